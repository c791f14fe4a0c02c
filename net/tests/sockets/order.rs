//! Requests are started and answered in order, whoever answers them.

use crate::support::{self, Client, EXCLUSIVE, FLEXIBLE, PIPELINED, start};

#[test]
fn a_reply_carries_length_correlation_id_and_the_flexible_headers_tags() {
    let (_toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(EXCLUSIVE, 7, b"ehello");
    assert_eq!(client.reply(), (7, b"hello".to_vec()));
    client.send(FLEXIBLE, -8, b"ehello");
    assert_eq!(client.reply(), (-8, b"\0hello".to_vec()));
}

#[test]
fn an_api_versions_request_newer_than_ours_is_answered_with_the_plain_header() {
    let (_toy, server) = start();
    let mut client = Client::connect(&server);
    for version in [3, 4, 5, 99] {
        client.send((18, version), 1, b"ehello");
        assert_eq!(client.reply(), (1, b"hello".to_vec()), "version {version}");
    }
}

#[test]
fn pipelined_requests_answered_in_any_order_are_replied_in_theirs() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    for n in 0..100_u8 {
        client.send(PIPELINED, i32::from(n), &[b'd', n]);
    }
    toy.wait_deferred(100);
    let mut slots = toy.take_deferred();
    // Odd ones first, then backwards.
    slots.sort_by_key(|(payload, _)| (payload[0] % 2 == 0, u8::MAX - payload[0]));
    for (payload, slot) in slots {
        std::thread::spawn(move || slot.reply(payload));
    }
    for n in 0..100_u8 {
        assert_eq!(client.reply(), (i32::from(n), vec![n]));
    }
}

#[test]
fn an_exclusive_request_starts_alone() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(PIPELINED, 1, b"d1");
    client.send(PIPELINED, 2, b"d2");
    client.send(EXCLUSIVE, 3, b"d3");
    client.send(PIPELINED, 4, b"d4");
    toy.wait_deferred(2);
    let mut slots = toy.take_deferred();
    let (_, second) = slots.pop().unwrap();
    second.reply(b"2".to_vec());
    assert_eq!(toy.started(), 2, "the first is unanswered");
    let (_, first) = slots.pop().unwrap();
    first.reply(b"1".to_vec());
    toy.wait_deferred(1);
    assert_eq!(client.reply(), (1, b"1".to_vec()));
    assert_eq!(client.reply(), (2, b"2".to_vec()));
    // Both loops have been round when others are answered.
    for _ in 0..8 {
        let mut other = Client::connect(&server);
        other.send(EXCLUSIVE, 0, b"e");
        other.reply();
    }
    let behind = toy.started.lock().iter().any(|body| body == b"d4");
    assert!(!behind, "nothing starts behind an exclusive one");
    let (_, third) = toy.take_deferred().pop().unwrap();
    third.reply(b"3".to_vec());
    assert_eq!(client.reply(), (3, b"3".to_vec()));
    toy.wait_deferred(1);
    let (_, fourth) = toy.take_deferred().pop().unwrap();
    fourth.reply(b"4".to_vec());
    assert_eq!(client.reply(), (4, b"4".to_vec()));
}

#[test]
fn w06_mixed_classes_with_and_without_answers_keep_their_order() {
    const REQUESTS: i32 = 100_000;
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    let mut writer = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        use std::io::Write;
        for n in 0..REQUESTS {
            let body: &[u8] = match n % 3 {
                0 => b"s",
                1 => b"e1",
                _ => b"e-1",
            };
            let kind = if n % 100 == 50 { EXCLUSIVE } else { PIPELINED };
            let bytes = support::frame(kind, n, body);
            writer.write_all(&bytes).unwrap();
        }
    });
    for n in (0..REQUESTS).filter(|n| n % 3 != 0) {
        assert_eq!(client.reply().0, n);
    }
    sender.join().unwrap();
    assert_eq!(toy.started(), usize::try_from(REQUESTS).unwrap());
}

#[test]
fn replies_of_other_threads_arrive_without_further_events() {
    let (_toy, server) = start();
    let mut client = Client::connect(&server);
    let began = std::time::Instant::now();
    for n in 0..300 {
        client.send(EXCLUSIVE, n, b"tanswer");
        assert_eq!(client.reply(), (n, b"answer".to_vec()));
    }
    // Without wakes they would come too, when the clock is looked at: once a second.
    assert!(began.elapsed() < support::PATIENCE);
}

#[test]
fn a_thousand_connections_are_served_at_once() {
    let (toy, server) = start();
    let mut clients: Vec<_> = (0..1_000).map(|_| Client::connect(&server)).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send((18, 0), i32::try_from(n).unwrap(), b"eversions");
        client.send(EXCLUSIVE, -1, b"tmetadata");
    }
    for (n, client) in clients.iter_mut().enumerate() {
        let n = i32::try_from(n).unwrap();
        assert_eq!(client.reply(), (n, b"versions".to_vec()), "p04");
        assert_eq!(client.reply(), (-1, b"metadata".to_vec()));
    }
    drop(clients);
    support::eventually("all are closed", || {
        toy.closed.load(std::sync::atomic::Ordering::SeqCst) == 1_000
    });
    support::eventually("all are counted off", || server.stats().connections == 0);
}

#[test]
fn client_ids_of_any_bytes_are_accepted() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    let mut bytes = support::frame(EXCLUSIVE, 1, b"e");
    bytes[14..17].copy_from_slice(&[0xff, b'x', 0xfe]);
    client.raw(&bytes);
    client.reply();
    // A negative length is null: -1 and any other.
    for length in [-1_i16, -7, i16::MIN] {
        let [high, low] = length.to_be_bytes();
        client.raw(&[0, 0, 0, 11, 0, 3, 0, 1, 0, 0, 0, 2, high, low, b'e']);
        client.reply();
    }
    let headers = toy.headers.lock();
    assert_eq!(headers[0].client_id.as_deref(), Some("\u{fffd}x\u{fffd}"));
    assert!(headers[1..].iter().all(|header| header.client_id.is_none()));
}
