//! A client that does more than it may is not read for a while (KIP-219), and nobody else notices.

use std::time::{Duration, Instant};

use seawall_net::Limits;

use crate::support::{Client, EXCLUSIVE, PIPELINED, Toy, eventually, start, start_with};

const MUTE: Duration = Duration::from_millis(300);

#[test]
fn nothing_is_started_on_a_muted_connection_before_its_time_and_others_go_on() {
    let (toy, server) = start();
    for kind in [EXCLUSIVE, PIPELINED] {
        let started = toy.started();
        let mut muted = Client::connect(&server);
        let mut other = Client::connect(&server);
        muted.send(kind, 1, b"d1");
        toy.wait_deferred(1);
        let (payload, slot) = toy.take_deferred().remove(0);
        let since = Instant::now();
        slot.mute(MUTE);
        slot.reply(payload);
        assert_eq!(
            muted.reply(),
            (1, b"1".to_vec()),
            "the answer comes at once"
        );
        muted.send(kind, 2, b"e2");
        // Many turns of the same threads: none of them starts the request that came too early.
        let mut calls = 0;
        while since.elapsed() < MUTE / 2 {
            other.send(EXCLUSIVE, calls, b"eo");
            assert_eq!(other.reply(), (calls, b"o".to_vec()));
            calls += 1;
        }
        let count = usize::try_from(calls).unwrap();
        assert_eq!(toy.started(), started + 1 + count, "the muted one waits");
        assert_eq!(muted.reply(), (2, b"2".to_vec()));
        assert!(since.elapsed() >= MUTE, "{:?}", since.elapsed());
    }
}

#[test]
fn the_longest_of_several_mutes_counts_and_a_drain_does_not_wait_for_it() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(PIPELINED, 1, b"d1");
    client.send(PIPELINED, 2, b"d2");
    toy.wait_deferred(2);
    let since = Instant::now();
    for ((payload, slot), time) in toy.take_deferred().into_iter().zip([MUTE, MUTE / 3]) {
        slot.mute(time);
        slot.reply(payload);
    }
    client.send(PIPELINED, 3, b"d3");
    toy.wait_deferred(1);
    assert!(since.elapsed() >= MUTE, "{:?}", since.elapsed());
    let (payload, slot) = toy.take_deferred().remove(0);
    slot.mute(Duration::from_secs(3_600));
    slot.reply(payload);
    for n in 1..=3 {
        assert_eq!(client.reply().0, n);
    }
    let drained = server.drain(Duration::from_secs(10));
    assert_eq!((drained.connections_cut, drained.threads_stuck), (0, 0));
}

#[test]
fn a_muted_connection_whose_peer_resets_it_is_gone_at_once() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(EXCLUSIVE, 1, b"d1");
    toy.wait_deferred(1);
    let (payload, slot) = toy.take_deferred().remove(0);
    slot.mute(Duration::from_secs(3_600));
    slot.reply(payload);
    assert_eq!(client.reply().0, 1);
    let socket = socket2::SockRef::from(&client.stream);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    eventually("the connection is closed", || {
        server.stats().connections == 0
    });
}

#[test]
fn a_muted_connection_whose_peer_has_left_ends_with_what_it_sent_started() {
    let toy = Toy::logged_in();
    let limits = Limits {
        idle_deadline: MUTE,
        ..Limits::default()
    };
    let server = start_with(&toy, limits);
    let mut client = Client::connect(&server);
    client.send(PIPELINED, 1, b"d1");
    toy.wait_deferred(1);
    let (payload, slot) = toy.take_deferred().remove(0);
    slot.mute(Duration::from_secs(3_600));
    slot.reply(payload);
    assert_eq!(client.reply().0, 1);
    // The mute of the first of these does not hold the others.
    for _ in 0..3 {
        client.send(PIPELINED, 0, b"m");
    }
    client.finish();
    drop(client);
    eventually("it is closed", || server.stats().connections == 0);
    assert_eq!(toy.started(), 1 + 3);
}

#[test]
fn a_mute_of_any_length_harms_nobody_else() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(EXCLUSIVE, 1, b"d1");
    toy.wait_deferred(1);
    let (payload, slot) = toy.take_deferred().remove(0);
    slot.mute(Duration::MAX);
    slot.reply(payload);
    assert_eq!(client.reply().0, 1);
    client.send(EXCLUSIVE, 2, b"e2");
    // Both threads go round, and the muted connection starts nothing.
    for n in 0..8 {
        let mut other = Client::connect(&server);
        other.send(EXCLUSIVE, n, b"eo");
        assert_eq!(other.reply().0, n);
    }
    assert_eq!(toy.started(), 1 + 8);
}
