//! Limits of one listener, beside those of the whole broker: who comes beyond them waits and is served in the end.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use seawall_testkit::kafka_wire::MetadataRequest;
use seawall_testkit::ports::free_port;
use seawall_testkit::{Broker, Raw, metrics, requests, wait};

use crate::setup;

/// A broker with a free listener and a bounded one.
struct Bounded {
    broker: Broker,
    bounded: SocketAddr,
}

impl Bounded {
    fn start(key: &str, value: &str) -> Self {
        let [free, bounded] =
            [free_port(), free_port()].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let broker = setup()
            .listening(free)
            .set("listeners", &format!("FREE://{free},SMALL://{bounded}"))
            .set(
                "listener.security.protocol.map",
                "FREE:PLAINTEXT,SMALL:PLAINTEXT",
            )
            .set(&format!("listener.name.small.{key}"), value)
            .start();
        Self { broker, bounded }
    }

    fn held_back(&self) -> Option<f64> {
        let page = metrics::scrape(self.broker.admin());
        metrics::value(&page, "seawall_connections_held_back_total")
    }
}

fn ask(raw: &mut Raw) -> i32 {
    raw.send::<MetadataRequest>(9, &requests::metadata(9, &[]))
}

fn is_answered(raw: &mut Raw, asked: i32) {
    let answer = raw.receive::<MetadataRequest>(9, asked);
    assert_eq!(answer.brokers.len(), 1);
}

fn waits(raw: &mut Raw) -> bool {
    raw.patience(Duration::from_millis(200));
    let peeked = raw.stream().peek(&mut [0]);
    raw.patience(wait::SOON);
    peeked.is_err()
}

#[test]
fn who_finds_a_listener_full_waits_until_another_leaves_and_other_listeners_do_not_notice() {
    let place = Bounded::start("max.connections", "2");
    let mut inside: Vec<Raw> = (0..2).map(|_| Raw::connect(place.bounded)).collect();
    for raw in &mut inside {
        let asked = ask(raw);
        is_answered(raw, asked);
    }
    assert_eq!(place.held_back(), Some(0.0), "nobody waits yet");
    let mut third = Raw::connect(place.bounded);
    let asked = ask(&mut third);
    assert!(waits(&mut third), "the third is let in");
    for _ in 0..3 {
        let mut other = place.broker.connect();
        let asked = ask(&mut other);
        is_answered(&mut other, asked);
    }
    assert_eq!(place.held_back(), Some(1.0));
    drop(inside.pop());
    is_answered(&mut third, asked);
}

#[test]
fn a_listener_takes_no_more_connections_a_second_than_its_rate_and_others_do_not_notice() {
    const RATE: u32 = 5;
    let place = Bounded::start("max.connection.creation.rate", &RATE.to_string());
    let began = Instant::now();
    let mut all: Vec<Raw> = (0..3 * RATE).map(|_| Raw::connect(place.bounded)).collect();
    let asked: Vec<i32> = all.iter_mut().map(ask).collect();
    let mut other = place.broker.connect();
    let of_other = ask(&mut other);
    is_answered(&mut other, of_other);
    let others = began.elapsed();
    for (raw, asked) in all.iter_mut().zip(asked) {
        is_answered(raw, asked);
    }
    // A second's worth at once, then two seconds for the rest.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1_900), "{took:?}");
    assert!(others < took, "{others:?} of {took:?}");
    assert!(place.held_back() >= Some(1.0));
}
