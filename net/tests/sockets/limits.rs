//! Connections in total, per address and per second; several listeners.

use std::sync::Arc;
use std::time::{Duration, Instant};

use seawall_net::{Limits, Listener, ListenerLimits, NetConfig, ResponseBody, Server, StartError};

use crate::support::{Client, EXCLUSIVE, Shared, Toy, eventually, start_with};

/// Whether a new connection is served.
fn served(server: &Server) -> Option<Client> {
    use std::io::{Read, Write};
    let mut client = Client::connect(server);
    let request = crate::support::frame(EXCLUSIVE, 1, b"e");
    client.stream.write_all(&request).ok()?;
    let mut reply = [0; 8];
    client.stream.read_exact(&mut reply).ok()?;
    Some(client)
}

#[test]
fn connections_beyond_the_total_are_refused_until_one_goes() {
    let toy = Toy::logged_in();
    let limits = Limits {
        connections_max: 3,
        ..Limits::default()
    };
    let server = start_with(&toy, limits);
    let mut clients: Vec<_> = (0..3).map(|_| served(&server).unwrap()).collect();
    assert!(served(&server).is_none());
    assert!(served(&server).is_none());
    assert_eq!(server.stats().refused, 2);
    clients.pop();
    eventually("there is room again", || served(&server).is_some());
}

#[test]
fn connections_beyond_those_of_an_address_are_refused() {
    let toy = Toy::logged_in();
    let limits = Limits {
        connections_per_address_max: 2,
        ..Limits::default()
    };
    let server = start_with(&toy, limits);
    let _clients: Vec<_> = (0..2).map(|_| served(&server).unwrap()).collect();
    assert!(served(&server).is_none());
}

#[test]
fn connections_beyond_the_rate_wait_and_are_served() {
    let toy = Toy::logged_in();
    let limits = Limits {
        connections_per_second_max: 20,
        ..Limits::default()
    };
    let server = start_with(&toy, limits);
    let began = Instant::now();
    let mut clients: Vec<_> = (0..30).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        client.send(EXCLUSIVE, 1, b"e");
        client.reply();
    }
    assert!(began.elapsed() >= Duration::from_millis(400));
    assert_eq!(server.stats().refused, 0);
}

#[test]
fn each_listener_has_its_index_and_address() {
    let toy = Toy::logged_in();
    let listener = |name: &str, addr: &str| Listener {
        tls: None,
        name: name.into(),
        addr: addr.parse().unwrap(),
    };
    let config = NetConfig {
        threads: 1,
        limits: Limits::default(),
        listeners: vec![listener("A", "127.0.0.1:0"), listener("B", "127.0.0.1:0")],
    };
    let bound = Server::bind(config).unwrap();
    let addrs = bound.local_addrs().to_vec();
    let server = bound.start(Arc::new(Shared(Arc::clone(&toy)))).unwrap();
    for (index, addr) in addrs.into_iter().enumerate() {
        let mut client = Client::connect_to(addr);
        client.send(EXCLUSIVE, 1, b"d");
        toy.wait_deferred(1);
        let (_, slot) = toy.take_deferred().pop().unwrap();
        let info = slot.conn();
        assert_eq!((info.listener(), info.local()), (index, addr));
        assert_eq!(info.peer(), client.stream.local_addr().unwrap());
        slot.reply(ResponseBody::new());
        client.reply();
    }
    drop(server);
}

#[test]
fn a_listener_that_is_full_lets_others_wait_and_takes_them_when_one_goes() {
    let toy = Toy::logged_in();
    let listener = |name: &str| Listener {
        tls: None,
        name: name.into(),
        addr: "127.0.0.1:0".parse().unwrap(),
    };
    let own = ListenerLimits {
        connections_max: Some(2),
        connections_per_second_max: None,
    };
    let config = NetConfig {
        threads: 2,
        limits: Limits {
            by_listener: vec![ListenerLimits::default(), own],
            ..Limits::default()
        },
        listeners: vec![listener("FREE"), listener("FULL")],
    };
    let server = Server::start(config, Arc::new(Shared(Arc::clone(&toy)))).unwrap();
    let addrs = server.local_addrs().to_vec();
    let ask = |client: &mut Client| {
        client.send(EXCLUSIVE, 1, b"e");
        client.reply();
    };
    let mut inside = [(); 2].map(|()| Client::connect_to(addrs[1]));
    inside.iter_mut().for_each(ask);
    assert_eq!(server.stats().held_back, 0, "nobody waits");
    let mut waiting = [(); 2].map(|()| Client::connect_to(addrs[1]));
    eventually("it is told", || server.stats().held_back == 1);
    (0..5).for_each(|_| ask(&mut Client::connect_to(addrs[0])));
    assert!(server.stats().connections <= 7, "nobody more was let in");
    drop(inside);
    waiting.iter_mut().for_each(ask);
    assert_eq!(server.stats().refused, 0);
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let toy = Toy::logged_in();
    let first = start_with(&toy, Limits::default());
    let mut config = crate::support::config(Limits::default());
    config.listeners[0].addr = first.local_addrs()[0];
    match Server::start(config, Arc::new(Shared(toy))) {
        Err(StartError::Bind { addr, .. }) => assert_eq!(addr, first.local_addrs()[0]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_may_be_turned_away_for_any_time_and_others_are_served() {
    let toy = Toy::logged_in();
    let server = start_with(&toy, Limits::default());
    *toy.turns_away.lock() = Some(Duration::MAX);
    let held = Client::connect(&server);
    eventually("it is held", || server.stats().turned_away == 1);
    *toy.turns_away.lock() = None;
    assert!(served(&server).is_some());
    assert_eq!(server.stats().panics, 0);
    drop(held);
}
