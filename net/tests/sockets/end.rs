//! How connections and servers end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use seawall_net::{CloseReason, Drained, Limits};

use crate::support::{Client, EXCLUSIVE, PIPELINED, Toy, eventually, frame, start, start_with};

#[test]
fn w07_requests_without_answer_followed_by_the_end_are_all_started() {
    const REQUESTS: usize = 5_000;
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    let stream: Vec<u8> = (0..REQUESTS)
        .flat_map(|_| frame(PIPELINED, 0, b"srecords"))
        .collect();
    client.raw(&stream);
    drop(client);
    eventually("everything is started", || toy.started() == REQUESTS);
    eventually("it is closed", || toy.closed.load(Ordering::SeqCst) == 1);
}

#[test]
fn a_half_closed_connection_gets_its_replies() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(PIPELINED, 1, b"dfirst");
    client.send(EXCLUSIVE, 2, b"tsecond");
    client.finish();
    toy.wait_deferred(1);
    let (payload, slot) = toy.take_deferred().pop().unwrap();
    slot.reply(payload);
    assert_eq!(client.reply(), (1, b"first".to_vec()));
    assert_eq!(client.reply(), (2, b"second".to_vec()));
    assert_eq!(client.until_closed(), b"");
}

#[test]
fn f08_the_service_learns_that_a_waiting_peer_has_finished() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(EXCLUSIVE, 1, b"dpoll");
    toy.wait_deferred(1);
    client.finish();
    eventually("it is told", || toy.finished.load(Ordering::SeqCst) == 1);
    let (payload, slot) = toy.take_deferred().pop().unwrap();
    assert!(slot.conn().is_finished());
    slot.reply(payload);
    assert_eq!(client.reply(), (1, b"poll".to_vec()));
    assert_eq!(client.until_closed(), b"");
}

fn reset(client: Client) {
    let socket = socket2::SockRef::from(&client.stream);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
}

#[test]
fn p14_a_reset_in_the_middle_of_a_body_starts_nothing_and_releases_everything() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    let bytes = frame(PIPELINED, 1, &vec![b'e'; 1_000_000]);
    client.raw(&bytes[..600_000]);
    eventually("it is being read", || server.stats().bytes_in >= 100_000);
    reset(client);
    eventually("it is closed", || toy.closed.load(Ordering::SeqCst) == 1);
    assert_eq!(toy.started(), 0);
    // The service is told first; what the connection held goes with it, right after.
    eventually("everything is released", || {
        let stats = server.stats();
        (stats.connections, stats.frame_bytes_reserved) == (0, 0)
    });
}

#[test]
fn p14_a_reset_while_requests_wait_releases_the_connection_and_late_answers_are_dropped() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(PIPELINED, 1, b"d1");
    client.send(PIPELINED, 2, b"d2");
    toy.wait_deferred(2);
    reset(client);
    eventually("it is closed", || toy.closed.load(Ordering::SeqCst) == 1);
    for (payload, slot) in toy.take_deferred() {
        assert!(!slot.conn_alive());
        slot.reply(payload);
    }
    eventually("everything is released", || {
        server.stats().frame_bytes_reserved == 0
    });
}

#[test]
fn a_connection_can_be_closed_from_elsewhere() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(EXCLUSIVE, 1, b"d");
    toy.wait_deferred(1);
    let (_, slot) = toy.take_deferred().pop().unwrap();
    slot.conn()
        .close(CloseReason::Service("the login has expired"));
    assert_eq!(client.until_closed(), b"");
    drop(slot);
}

#[test]
fn a_drain_answers_what_is_started_and_nothing_else() {
    let (toy, server) = start();
    let addr = server.local_addrs()[0];
    let mut client = Client::connect(&server);
    let mut idle = Client::connect(&server);
    client.send(PIPELINED, 1, b"dfirst");
    client.send(EXCLUSIVE, 2, b"enever");
    toy.wait_deferred(1);
    let drain = std::thread::spawn(move || server.drain(Duration::from_secs(20)));
    assert_eq!(idle.until_closed(), b"");
    eventually("nobody is accepted", || {
        std::net::TcpStream::connect(addr).is_err()
    });
    assert!(
        toy.finished.load(Ordering::SeqCst) >= 1,
        "polls are cut short"
    );
    let (payload, slot) = toy.take_deferred().pop().unwrap();
    slot.reply(payload);
    assert_eq!(client.reply(), (1, b"first".to_vec()));
    assert_eq!(client.until_closed(), b"");
    assert_eq!(drain.join().unwrap(), Drained::default());
    assert_eq!(toy.started(), 1);
    let counts = [&toy.opened, &toy.closed].map(|count| count.load(Ordering::SeqCst));
    assert_eq!(counts[0], counts[1], "every state is handed back");
}

#[test]
fn a_drain_cuts_at_its_deadline() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(PIPELINED, 1, b"dnever");
    toy.wait_deferred(1);
    let began = Instant::now();
    let drained = server.drain(Duration::from_millis(200));
    assert!(began.elapsed() >= Duration::from_millis(200));
    let expected = Drained {
        connections_cut: 1,
        threads_stuck: 0,
    };
    assert_eq!(drained, expected);
    assert_eq!(client.until_closed(), b"");
    // Answering a connection of a server that is gone does nothing.
    toy.take_deferred()
        .into_iter()
        .for_each(|(p, slot)| slot.reply(p));
}

#[test]
fn replies_survive_a_close_that_leaves_requests_unread() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(PIPELINED, 1, b"efirst");
    client.send(PIPELINED, 2, b"c");
    for n in 3..1_000 {
        client.send(PIPELINED, n, b"eunread");
    }
    assert_eq!(client.reply(), (1, b"first".to_vec()));
    assert_eq!(client.until_closed(), b"");
    assert_eq!(toy.started(), 2);
}

#[test]
fn a_reply_on_its_way_is_not_destroyed_by_a_close_with_unread_bytes() {
    let toy = Toy::logged_in();
    let limits = Limits {
        linger: Duration::from_secs(20),
        ..Limits::default()
    };
    let server = start_with(&toy, limits);
    let mut client = Client::connect(&server);
    // More than the client's socket takes while it does not read, and what follows it is more than
    // one read of the server.
    client.send(PIPELINED, 1, &[b'b', 0, 10, 0, 0]);
    client.send(PIPELINED, 2, b"c");
    let mut writer = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        use std::io::Write;
        let unread = frame(PIPELINED, 3, &[b'e'; 2_000]);
        // The server may be gone before all is written.
        (0..500).try_for_each(|_| writer.write_all(&unread))
    });
    eventually("the service has closed it", || {
        toy.closed.load(Ordering::SeqCst) == 1
    });
    assert_eq!(client.reply().1.len(), 10 * 65_536);
    assert_eq!(client.until_closed(), b"");
    drop(client);
    drop(sender.join());
}

#[test]
fn a_dropped_server_leaves_no_thread_and_no_listener() {
    let toy = Toy::logged_in();
    let server = start_with(&toy, Limits::default());
    let addr = server.local_addrs()[0];
    let mut client = Client::connect(&server);
    drop(server);
    assert_eq!(client.until_closed(), b"");
    assert!(std::net::TcpStream::connect(addr).is_err());
}
