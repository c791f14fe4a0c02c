//! A request that cannot be pushed on parks its connection, never the loop.

use std::sync::atomic::Ordering;

use crate::support::{Client, EXCLUSIVE, PIPELINED, eventually, start};

#[test]
fn a_parked_connection_goes_on_when_woken_and_keeps_its_order() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(PIPELINED, 1, b"dearlier");
    client.send(PIPELINED, 2, b"pparked");
    client.send(PIPELINED, 3, b"elater");
    eventually("it is parked", || toy.started() == 2);
    // Others are served meanwhile, on both threads.
    for _ in 0..8 {
        let mut other = Client::connect(&server);
        other.send(EXCLUSIVE, 0, b"e");
        other.reply();
    }
    assert_eq!(toy.started(), 10, "nothing starts behind a parked request");
    // A wake that comes too early parks it again.
    toy.unparkers.lock()[0].wake();
    eventually("it looked", || toy.resumes.load(Ordering::SeqCst) == 1);
    assert_eq!(toy.started(), 10);
    toy.open_gate();
    eventually("the later one starts", || toy.started() == 11);
    let (payload, slot) = toy.take_deferred().pop().unwrap();
    slot.reply(payload);
    assert_eq!(client.reply(), (1, b"earlier".to_vec()));
    assert_eq!(client.reply(), (2, b"parked".to_vec()));
    assert_eq!(client.reply(), (3, b"later".to_vec()));
}

#[test]
fn many_parked_connections_wake_from_one_burst() {
    let (toy, server) = start();
    let mut clients: Vec<_> = (0..100).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        client.send(PIPELINED, 1, b"pone");
        client.send(PIPELINED, 2, b"ptwo");
    }
    eventually("all are parked", || toy.unparkers.lock().len() == 100);
    toy.open_gate();
    toy.open_gate();
    for client in &mut clients {
        assert_eq!(client.reply(), (1, b"one".to_vec()));
        assert_eq!(client.reply(), (2, b"two".to_vec()));
    }
}

#[test]
fn a_parked_request_is_dropped_with_its_connection() {
    let (toy, server) = start();
    let client = Client::connect(&server);
    {
        let mut client = Client {
            stream: client.stream.try_clone().unwrap(),
        };
        client.send(PIPELINED, 1, b"pparked");
    }
    eventually("it is parked", || toy.unparkers.lock().len() == 1);
    let socket = socket2::SockRef::from(&client.stream);
    socket.set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(client);
    eventually("it is closed", || toy.closed.load(Ordering::SeqCst) == 1);
    toy.open_gate();
    let mut other = Client::connect(&server);
    other.send(EXCLUSIVE, 0, b"e");
    other.reply();
    assert_eq!(toy.resumes.load(Ordering::SeqCst), 0);
    eventually("everything is released", || {
        server.stats().frame_bytes_reserved == 0
    });
}

#[test]
fn w07_requests_before_the_end_of_stream_are_all_started_even_when_parked() {
    let (toy, server) = start();
    let mut client = Client::connect(&server);
    client.send(PIPELINED, 1, b"pparked");
    for n in 2..=200 {
        client.send(PIPELINED, n, b"s");
    }
    client.finish();
    eventually("it is parked", || toy.unparkers.lock().len() == 1);
    toy.open_gate();
    // The client stays: an answer to a socket that is closed would be met by a
    // reset, and with a reset the kernel drops what has not been read yet.
    eventually("everything is started", || toy.started() == 200);
    assert_eq!(client.reply().0, 1);
}
