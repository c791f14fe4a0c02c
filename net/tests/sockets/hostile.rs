//! Peers that lie, stutter, or speak something else.

use std::io::Write;
use std::time::{Duration, Instant};

use seawall_net::{Limits, ResponseBody};

use crate::support::{
    Client, EXCLUSIVE, PIPELINED, REFUSED, Toy, eventually, frame, start, start_with,
};

/// Sends bytes on a new connection and expects it to be closed without an answer.
fn check_closed(server: &seawall_net::Server, bytes: &[u8]) {
    let mut client = Client::connect(server);
    // The server may close while we still write.
    let _ = client.stream.write_all(bytes);
    assert_eq!(client.until_closed(), b"", "answered {bytes:?}");
}

#[test]
fn p08_http_and_tls_are_recognised_and_closed() {
    let (_toy, server) = start();
    check_closed(&server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    check_closed(&server, b"POST /topics HTTP/1.1\r\n\r\n");
    check_closed(&server, &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00]);
    assert_eq!(server.stats().peer_faults, 3);
    assert_eq!(server.stats().frames, 0);
}

#[test]
fn p09_impossible_frame_lengths_close_the_connection() {
    let (_toy, server) = start();
    for length in [i32::MIN, -1, 0, 1, 9, 100 * 1024 * 1024 + 1, i32::MAX] {
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend_from_slice(&[0; 64]);
        check_closed(&server, &bytes);
    }
    assert_eq!(server.stats().peer_faults, 7);
}

#[test]
fn a_header_that_cannot_be_decoded_closes_the_connection() {
    let (_toy, server) = start();
    // The client id claims more than there is.
    check_closed(&server, b"\0\0\0\x0c\0\x03\0\x01\0\0\0\x01\x7f\xffab");
    // The tagged fields of a flexible header have an overlong varint.
    check_closed(
        &server,
        b"\0\0\0\x10\0\x03\0\x0c\0\0\0\x01\xff\xff\x80\x80\x80\x80\x80\x00",
    );
    assert_eq!(server.stats().peer_faults, 2);
}

#[test]
fn a_frame_above_the_limit_before_login_is_refused() {
    let toy = std::sync::Arc::new(Toy::default());
    let server = start_with(&toy, Limits::default());
    let mut client = Client::connect(&server);
    client.send(EXCLUSIVE, 1, &vec![b'e'; 500 * 1024]);
    assert_eq!(client.reply().1.len(), 500 * 1024 - 1);
    client.raw(&(512 * 1024 + 1_i32).to_be_bytes());
    assert_eq!(client.until_closed(), b"");
}

#[test]
fn a_refused_request_closes_after_the_earlier_answers() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(PIPELINED, 1, b"dslow");
    client.send(REFUSED, 2, b"");
    client.send(PIPELINED, 3, b"enever");
    toy.wait_deferred(1);
    let (payload, slot) = toy.take_deferred().pop().unwrap();
    slot.reply(payload);
    assert_eq!(client.reply(), (1, b"slow".to_vec()));
    assert_eq!(client.until_closed(), b"");
    assert_eq!(toy.started(), 1);
}

#[test]
fn w05_a_close_of_the_service_answers_nothing() {
    let (_toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(PIPELINED, 1, b"e1");
    client.send(PIPELINED, 2, b"c");
    client.send(PIPELINED, 3, b"e3");
    assert_eq!(client.reply(), (1, b"1".to_vec()));
    assert_eq!(client.until_closed(), b"");
}

#[test]
fn a_slot_that_is_dropped_closes_its_connection_only() {
    let (_toy, server) = start();
    let mut other = Client::connect(&server);
    check_closed(&server, &frame(EXCLUSIVE, 1, b"l"));
    other.send(EXCLUSIVE, 1, b"e");
    other.reply();
}

#[test]
fn a_panic_of_the_service_closes_its_connection_only() {
    let (toy, server) = start();
    let mut others: Vec<_> = (0..8).map(|_| Client::connect(&server)).collect();
    check_closed(&server, &frame(EXCLUSIVE, 1, b"x"));
    for client in &mut others {
        client.send(EXCLUSIVE, 1, b"e");
        client.reply();
    }
    assert_eq!(server.stats().panics, 1);
    let closed = &toy.closed;
    eventually("the state is handed back", || {
        closed.load(std::sync::atomic::Ordering::SeqCst) == 1
    });
}

#[test]
fn a_reply_of_many_parts_goes_out_whole() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(EXCLUSIVE, 1, b"d");
    toy.wait_deferred(1);
    let (_, slot) = toy.take_deferred().pop().unwrap();
    let parts: Vec<_> = (0..1_000_u32)
        .map(|n| bytes::Bytes::copy_from_slice(&n.to_be_bytes()))
        .collect();
    let expected = parts.concat();
    slot.reply(ResponseBody::from(parts));
    assert_eq!(client.reply(), (1, expected));
}

fn stalling_limits() -> Limits {
    Limits {
        frame_deadline: Duration::from_millis(400),
        idle_deadline: Duration::from_secs(2),
        ..Limits::default()
    }
}

#[test]
fn p11_a_frame_that_is_late_within_the_deadline_is_served() {
    let toy = Toy::logged_in();
    let limits = Limits {
        frame_deadline: Duration::from_secs(30),
        ..stalling_limits()
    };
    let server = start_with(&toy, limits);
    let mut client = Client::connect(&server);
    let bytes = frame(EXCLUSIVE, 1, b"elate");
    client.raw(&bytes[..9]);
    // As long as it takes another connection to be closed as idle.
    let mut idle = Client::connect(&server);
    idle.until_closed();
    client.raw(&bytes[9..]);
    assert_eq!(client.reply(), (1, b"late".to_vec()));
}

#[test]
fn p11_a_frame_that_is_late_beyond_the_deadline_is_closed() {
    let toy = Toy::logged_in();
    let server = start_with(&toy, stalling_limits());
    let bytes = frame(EXCLUSIVE, 1, b"elate");
    for cut in [1, 3, 4, 9, bytes.len() - 1] {
        let mut client = Client::connect(&server);
        let began = Instant::now();
        client.raw(&bytes[..cut]);
        assert_eq!(client.until_closed(), b"", "cut at {cut}");
        assert!(began.elapsed() >= Duration::from_millis(400), "too early");
    }
    assert_eq!(toy.started(), 0);
    assert_eq!(server.stats().peer_faults, 5);
}

#[test]
fn an_idle_connection_is_closed_and_one_that_waits_for_us_is_not() {
    let toy = Toy::logged_in();
    let limits = Limits {
        idle_deadline: Duration::from_millis(200),
        ..Limits::default()
    };
    let server = start_with(&toy, limits);
    let mut waiting = Client::connect(&server);
    waiting.send(EXCLUSIVE, 1, b"danswer");
    toy.wait_deferred(1);
    let mut idle = Client::connect(&server);
    idle.until_closed();
    let mut idle = Client::connect(&server);
    idle.until_closed();
    let (payload, slot) = toy.take_deferred().pop().unwrap();
    assert!(slot.conn_alive());
    slot.reply(payload);
    assert_eq!(waiting.reply(), (1, b"answer".to_vec()));
}
