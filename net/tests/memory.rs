//! What hostile peers cost in memory. A target of its own, one test at a time, since it measures
//! the whole process.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails should fail its test"
)]

#[allow(dead_code, reason = "tests/sockets uses the rest")]
#[path = "sockets/support.rs"]
mod support;

use std::io::{ErrorKind, Write};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use seawall_net::{Limits, Server};

use crate::support::{
    Client, EXCLUSIVE, PATIENCE, PIPELINED, Random, Toy, eventually, frame, resident_bytes, start,
};

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock()
}

#[test]
fn p09_claimed_lengths_cost_nothing() {
    let _alone = alone();
    let (toy, server) = start();
    let before = resident_bytes();
    let clients: Vec<_> = (0..200)
        .map(|_| {
            let mut client = Client::connect(&server);
            client.raw(&(1024 * 1024_i32).to_be_bytes());
            client.raw(b"\0\0\0\x03");
            client
        })
        .collect();
    eventually("all claims were read", || {
        server.stats().bytes_in == 200 * 8
    });
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 * 1024 * 1024, "{grown} bytes for 1,600 bytes");
    drop(clients);
    eventually("the budget is given back", || {
        server.stats().frame_bytes_reserved == 0
    });
    assert_eq!(toy.started(), 0);
}

#[test]
fn p10_frames_of_random_bytes_close_the_connection_and_nothing_grows() {
    let _alone = alone();
    const FRAMES: u64 = 10_000;
    let (toy, server) = start();
    toy.closes_all
        .store(true, std::sync::atomic::Ordering::SeqCst);
    let mut random = Random(42);
    let mut before = 0;
    for n in 0..FRAMES {
        let length = 10 + random.below(200);
        let mut bytes = u32::try_from(length).unwrap().to_be_bytes().to_vec();
        bytes.extend(random.bytes(length));
        let mut client = Client::connect(&server);
        client.raw(&bytes);
        assert_eq!(client.until_closed(), b"");
        if n == FRAMES / 10 {
            before = resident_bytes();
        }
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 16 * 1024 * 1024, "grew by {grown} bytes");
    assert_eq!(server.stats().panics, 0);
    eventually("all are closed", || server.stats().connections == 0);
}

/// Writes until the socket takes nothing more; returns how many bytes it took.
fn write_until_stuck(client: &mut Client, bytes: &[u8]) -> usize {
    client
        .stream
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let mut written = 0;
    while written < bytes.len() {
        match client.stream.write(&bytes[written..]) {
            Ok(more) => written += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("the connection broke: {error}"),
        }
    }
    client.stream.set_write_timeout(Some(PATIENCE)).unwrap();
    written
}

/// How many requests were started once the server stands still: both of its loops have been round
/// several times without starting another.
fn settled(server: &Server, toy: &Toy) -> usize {
    let mut last = (usize::MAX, 0);
    while last.1 < 5 {
        let others = 8;
        for _ in 0..others {
            let mut other = Client::connect(server);
            other.send(EXCLUSIVE, 0, b"e");
            other.reply();
        }
        let now = toy.started();
        let same = now == last.0.wrapping_add(others);
        last = (now, if same { last.1 + 1 } else { 0 });
    }
    last.0
}

#[test]
fn p13_a_peer_that_does_not_read_is_not_read() {
    let _alone = alone();
    const REQUESTS: i32 = 10_000;
    const REPLY: u32 = 64 * 1024;
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    let before = resident_bytes();
    let mut body = vec![b'b'];
    body.extend_from_slice(&REPLY.to_be_bytes());
    let stream: Vec<u8> = (0..REQUESTS)
        .flat_map(|n| frame(PIPELINED, n, &body))
        .collect();
    let written = write_until_stuck(&mut client, &stream);
    // Up to 640 MB of replies were asked for; what was started fits the caps.
    let started = settled(&server, &toy);
    let limits = Limits::default();
    let in_kernel = 16 * 1024 * 1024 / usize::try_from(REPLY).unwrap();
    let in_output = limits.reply_bytes_queued_max / usize::try_from(REPLY).unwrap();
    let most = in_kernel + in_output + 4 * limits.requests_in_flight_max;
    assert!(started < most, "{started} requests were started");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 * 1024 * 1024, "grew by {grown} bytes");
    // Once it reads, everything is answered in order.
    let mut writer = client.stream.try_clone().unwrap();
    let rest = stream[written..].to_vec();
    let sender = std::thread::spawn(move || writer.write_all(&rest).unwrap());
    for n in 0..REQUESTS {
        let (correlation, reply) = client.reply();
        assert_eq!(correlation, n);
        assert_eq!(reply.len(), usize::try_from(REPLY).unwrap());
    }
    sender.join().unwrap();
}
