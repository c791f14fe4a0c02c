//! A peer that sends more than it reads, and frames beyond the budget, make us stop reading.

use std::io::{Read, Write};
use std::time::Duration;

use bytes::Bytes;
use seawall_net::{Limits, ReplySlot, Server};

use crate::support::{Client, EXCLUSIVE, PIPELINED, Toy, eventually, frame, start, start_with};

#[test]
fn p13_requests_in_flight_are_capped() {
    let (toy, server) = start();
    let cap = Limits::default().requests_in_flight_max;
    let mut client = Client::connect(&server);
    for n in 0..1_000 {
        client.send(PIPELINED, n, b"dx");
    }
    toy.wait_deferred(cap);
    // Another connection on the same thread is served, so the loop has been round.
    for _ in 0..8 {
        let mut other = Client::connect(&server);
        other.send(EXCLUSIVE, 0, b"e");
        other.reply();
    }
    assert_eq!(toy.deferred.lock().len(), cap);
    let mut answered = 0;
    while answered < 1_000 {
        toy.wait_deferred(1);
        for (payload, slot) in toy.take_deferred() {
            slot.reply(payload);
            answered += 1;
        }
    }
    for n in 0..1_000 {
        assert_eq!(client.reply().0, n);
    }
}

#[test]
fn frames_beyond_the_budget_wait_and_are_served_in_order_of_asking() {
    let toy = Toy::logged_in();
    *toy.hoard.lock() = Some(Vec::new());
    let limits = Limits {
        frames_in_flight_bytes_max: 3_000_000,
        ..Limits::default()
    };
    let server = start_with(&toy, limits);
    let mut body = vec![b'e'];
    body.resize(1_000_000, 0);
    let mut clients: Vec<_> = (0..6).map(|_| Client::connect(&server)).collect();
    let mut senders = Vec::new();
    for (n, client) in clients.iter().enumerate() {
        let mut writer = client.stream.try_clone().unwrap();
        let bytes = frame(EXCLUSIVE, i32::try_from(n).unwrap(), &body);
        senders.push(std::thread::spawn(move || {
            writer.write_all(&bytes).unwrap();
        }));
        let (running, waiting) = (n.min(1) + n / 2, n.saturating_sub(1));
        let _ = (running, waiting);
        let expected = n + 1;
        eventually("the frame was started or waits", || {
            toy.started() + usize::try_from(server.stats().frames_waiting).unwrap() == expected
        });
    }
    assert_eq!(toy.started(), 2, "a third does not fit with its header");
    assert!(server.stats().frame_bytes_reserved <= 3_000_000);
    // Small frames do not pass those that wait.
    let mut small = Client::connect(&server);
    small.send(EXCLUSIVE, 99, b"esmall");
    eventually("the small one waits", || server.stats().frames_waiting == 5);
    while !toy.hoard.lock().as_mut().unwrap().is_empty() {
        let released = toy.hoard.lock().as_mut().unwrap().remove(0);
        drop(released);
        eventually("the next one is started or none is left", || {
            server.stats().frames_waiting == 0 || toy.hoard.lock().as_ref().unwrap().len() >= 2
        });
    }
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.reply().0, i32::try_from(n).unwrap());
    }
    assert_eq!(small.reply(), (99, b"small".to_vec()));
    senders
        .into_iter()
        .for_each(|sender| sender.join().unwrap());
}

#[test]
fn one_frame_may_always_proceed() {
    let toy = Toy::logged_in();
    let limits = Limits {
        frames_in_flight_bytes_max: 1_000,
        ..Limits::default()
    };
    let server = start_with(&toy, limits);
    let mut client = Client::connect(&server);
    client.send(EXCLUSIVE, 1, &vec![b'e'; 300_000]);
    assert_eq!(client.reply().1.len(), 299_999);
    client.send(EXCLUSIVE, 2, &vec![b'e'; 300_000]);
    assert_eq!(client.reply().1.len(), 299_999);
}

#[test]
fn a_connection_that_dies_while_it_waits_for_the_budget_lets_the_next_one_pass() {
    let toy = Toy::logged_in();
    *toy.hoard.lock() = Some(Vec::new());
    let limits = Limits {
        frames_in_flight_bytes_max: 100_000,
        ..Limits::default()
    };
    let server = start_with(&toy, limits);
    let mut first = Client::connect(&server);
    first.send(EXCLUSIVE, 1, &vec![b'e'; 50_000]);
    first.reply();
    let mut big = Client::connect(&server);
    big.raw(&90_000_i32.to_be_bytes());
    big.raw(&[7; 16 * 1024]);
    eventually("the big one waits", || server.stats().frames_waiting == 1);
    let mut small = Client::connect(&server);
    small.send(EXCLUSIVE, 2, b"esmall");
    eventually("the small one waits", || server.stats().frames_waiting == 2);
    // A reset, since an end of stream is not seen while nothing is read.
    let socket = socket2::SockRef::from(&big.stream);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
    drop(big);
    assert_eq!(small.reply(), (2, b"small".to_vec()));
}

#[test]
fn a_peer_that_holds_room_and_sends_nothing_gives_way_to_those_who_wait() {
    let toy = Toy::logged_in();
    let limits = Limits {
        frames_in_flight_bytes_max: 100_000,
        contended_frame_grace: Duration::from_millis(300),
        ..Limits::default()
    };
    let server = start_with(&toy, limits);
    // Alone it may take its time.
    let mut hog = Client::connect(&server);
    hog.raw(&99_990_i32.to_be_bytes());
    hog.raw(&[7; 16 * 1024]);
    eventually("it holds room", || server.stats().frame_bytes_reserved > 0);
    let mut dripping: Vec<Client> = (0..50).map(|_| Client::connect(&server)).collect();
    for one in &mut dripping {
        one.raw(&90_000_i32.to_be_bytes());
        one.raw(&[7]);
    }
    // A frame that does not fit beside it waits, and the one that holds the room gives way.
    let mut other = Client::connect(&server);
    other.send(EXCLUSIVE, 1, &vec![b'e'; 20_000]);
    assert_eq!(other.reply().1.len(), 19_999);
    assert_eq!(hog.until_closed(), b"");
    assert_eq!(
        server.stats().connections,
        51,
        "those that drip hold no room"
    );
}

/// A client with a request that is not answered yet, and behind it a frame that holds nearly all room.
fn hog(toy: &Toy, server: &Server) -> (Client, Bytes, ReplySlot) {
    let mut hog = Client::connect(server);
    hog.send(PIPELINED, 1, b"danswer");
    toy.wait_deferred(1);
    hog.raw(&99_800_i32.to_be_bytes());
    hog.raw(&[7; 16 * 1024]);
    eventually("it holds room", || {
        server.stats().frame_bytes_reserved >= 99_800
    });
    let (payload, slot) = toy.take_deferred().remove(0);
    (hog, payload, slot)
}

fn contended_limits() -> Limits {
    Limits {
        frames_in_flight_bytes_max: 100_000,
        contended_frame_grace: Duration::from_millis(200),
        linger: Duration::from_millis(200),
        ..Limits::default()
    }
}

#[test]
fn who_gives_way_gives_room_at_once_and_gets_the_answers_that_are_owed() {
    let toy = Toy::logged_in();
    let server = start_with(&toy, contended_limits());
    let (mut hog, payload, slot) = hog(&toy, &server);
    let mut other = Client::connect(&server);
    other.send(EXCLUSIVE, 1, &vec![b'e'; 20_000]);
    assert_eq!(other.reply().1.len(), 19_999);
    slot.reply(payload);
    assert_eq!(hog.reply(), (1, b"answer".to_vec()));
    assert_eq!(hog.until_closed(), b"");
    // It is gone though the peer never ends its stream.
    eventually("it lingers no more", || server.stats().connections == 1);
}

#[test]
fn a_connection_that_is_not_read_gives_way_to_those_who_wait_for_room() {
    for muted in [true, false] {
        let toy = Toy::logged_in();
        let limits = Limits {
            reply_bytes_queued_max: 1_000,
            ..contended_limits()
        };
        let server = start_with(&toy, limits);
        let (_hog, payload, slot) = hog(&toy, &server);
        if muted {
            slot.mute(Duration::from_secs(3_600));
            slot.reply(payload);
        } else {
            // More than its socket takes while it does not read.
            slot.reply(Bytes::from(vec![7; 50_000_000]));
        }
        let mut other = Client::connect(&server);
        other.send(EXCLUSIVE, 1, &vec![b'e'; 20_000]);
        assert_eq!(other.reply().1.len(), 19_999, "{muted}");
    }
}

#[test]
fn large_replies_to_a_slow_reader_arrive_whole() {
    let (_toy, server) = start();
    let mut client = Client::connect(&server);
    let mut body = vec![b'b'];
    body.extend_from_slice(&20_000_000_u32.to_be_bytes());
    client.send(EXCLUSIVE, 1, &body);
    let mut read = 0;
    let mut buffer = vec![0; 100_000];
    while read < 20_000_008 {
        read += client.stream.read(&mut buffer).unwrap();
        std::thread::yield_now();
    }
    assert_eq!(read, 20_000_008);
    client.send(EXCLUSIVE, 2, b"e");
    assert_eq!(client.reply().0, 2);
}
