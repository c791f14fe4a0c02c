//! What happens when the process has no descriptor left (d05). A target of its own, since the limit
//! is the process's.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails should fail its test"
)]

#[allow(dead_code, reason = "tests/sockets uses the rest")]
#[path = "sockets/support.rs"]
mod support;

use std::fs::File;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;
use socket2::{Domain, Socket, Type};

use crate::support::{Client, EXCLUSIVE, PATIENCE, eventually, start};

/// Takes every descriptor that is left, after lowering the limit to about what is in use.
fn take_all_descriptors() -> Vec<File> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let mut files = vec![File::open("/dev/null").unwrap()];
    let limit = u64::try_from(files[0].as_raw_fd()).unwrap() + 64;
    setrlimit(Resource::RLIMIT_NOFILE, limit, hard).unwrap();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    files
}

fn cpu_ms() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    usage.user_time().num_milliseconds() + usage.system_time().num_milliseconds()
}

#[test]
fn d05_without_descriptors_connections_are_refused_politely_and_nothing_spins() {
    let (_toy, server) = start();
    let addr = server.local_addrs()[0];
    let mut before = Client::connect(&server);
    before.send(EXCLUSIVE, 0, b"e");
    before.reply();
    let sockets: Vec<_> = (0..20)
        .map(|_| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap())
        .collect();
    let files = take_all_descriptors();
    for socket in &sockets {
        socket.connect(&addr.into()).unwrap();
    }
    let mut refused: Vec<_> = sockets
        .into_iter()
        .map(|socket| {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            Client {
                stream: TcpStream::from(socket),
            }
        })
        .collect();
    // Whoever is refused is told so; whoever was accepted before is served.
    for client in &mut refused {
        assert_eq!(client.until_closed(), b"");
    }
    for n in 0..100 {
        before.send(EXCLUSIVE, n, b"e");
        assert_eq!(before.reply().0, n);
    }
    let (cpu, began) = (cpu_ms(), Instant::now());
    eventually("half a second passes", || {
        began.elapsed() > Duration::from_millis(500)
    });
    let used = cpu_ms() - cpu;
    assert!(used < 250, "{used} ms of CPU in half a second of waiting");
    assert_eq!(server.stats().refused, 20);
    drop(files);
    let mut after = Client::connect(&server);
    after.send(EXCLUSIVE, 8, b"eafter");
    assert_eq!(after.reply(), (8, b"after".to_vec()));
}
