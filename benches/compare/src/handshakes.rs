//! Handshakes until the first answer, and connections that only stay open.
//!
//! Owns:     its connections; a few blocking threads, each with one connection at a time.
//! Does not: print.
//!
//! # Invariants
//! H1. A handshake counts when the broker has answered a request behind it: only then is it complete on both sides.
//! H2. Each thread resumes its own sessions: a ticket is used once.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use rustls::ClientConfig;
use rustls::client::Resumption;

use crate::error::{Doing, Error, Result};
use crate::frame;
use crate::link::{Door, Link};
use crate::produce::Run;

/// Connections that are being opened at a time.
pub(crate) const AT_A_TIME: usize = 8;
/// ApiVersions v0, correlation id 1, no client id.
const REQUEST: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];

/// Opens connections for `time`, one handshake each; says how many were resumed.
pub(crate) fn run(door: &Door, resume: bool, time: Duration) -> Result<(Run, u64)> {
    let started = Instant::now();
    let threads: Vec<_> = (0..AT_A_TIME)
        .map(|_| {
            let door = with_cache(door, resume);
            thread::spawn(move || open_until(&door, started + time))
        })
        .collect();
    let mut latencies = Vec::new();
    let mut resumed = 0;
    for thread in threads {
        let ended = thread.join().map_err(|_| Error::Malformed {
            what: "end of a thread that opens connections",
        })?;
        let (mut found, of_them) = ended?;
        latencies.append(&mut found);
        resumed += of_them;
    }
    let run = Run {
        batches: u64::try_from(latencies.len()).unwrap_or_default(),
        bytes: 0,
        elapsed: started.elapsed(),
        latencies,
    };
    Ok((run, resumed))
}

/// The door with tickets of its own, or without any (H2).
fn with_cache(door: &Door, resume: bool) -> Door {
    let tls = door.tls.as_ref().map(|config| {
        let mut config = ClientConfig::clone(config);
        config.resumption = if resume {
            Resumption::in_memory_sessions(4)
        } else {
            Resumption::disabled()
        };
        Arc::new(config)
    });
    Door {
        addr: door.addr,
        tls,
    }
}

fn open_until(door: &Door, deadline: Instant) -> Result<(Vec<Duration>, u64)> {
    let mut latencies = Vec::new();
    let mut resumed = 0;
    let mut before = Instant::now();
    while before < deadline {
        let link = open(door)?;
        let now = Instant::now();
        resumed += u64::from(link.session().is_some_and(|(resumed, _)| resumed));
        link.finish();
        latencies.push(now - before);
        before = Instant::now();
    }
    Ok((latencies, resumed))
}

/// One connection that has had one answer (H1).
fn open(door: &Door) -> Result<Link> {
    let mut link = Link::connect(door, true)?;
    let sent = link.write_all(&REQUEST).and_then(|()| link.flush());
    sent.doing("send ApiVersions")?;
    let mut prefix = [0; 4];
    link.read_exact(&mut prefix).doing("read an answer")?;
    let mut answer = vec![0; frame::length(prefix)?];
    link.read_exact(&mut answer).doing("read an answer")?;
    Ok(link)
}

/// That many connections, each of which has had one answer.
pub(crate) fn idle(door: &Door, count: usize) -> Result<Vec<TcpStream>> {
    let door = with_cache(door, false);
    let mut open_ones = Vec::with_capacity(count);
    while open_ones.len() < count {
        open_ones.push(open(&door)?.into_socket());
    }
    Ok(open_ones)
}

/// How many of them the broker has closed.
pub(crate) fn closed(sockets: &mut [TcpStream]) -> usize {
    let is_closed = |socket: &mut TcpStream| {
        let blocking = socket2::SockRef::from(&*socket);
        if blocking.set_nonblocking(true).is_err() {
            return true;
        }
        // Tickets may wait there, sealed.
        let mut waiting = [0; 4096];
        loop {
            match socket.read(&mut waiting) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    };
    sockets
        .iter_mut()
        .map(is_closed)
        .filter(|is_closed| *is_closed)
        .count()
}
