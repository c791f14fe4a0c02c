//! kill -9 over and over, with live producers and an observer that never restarts.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use seawall_testkit::calls::create_topic;
use seawall_testkit::requests::TopicRef;
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{Broker, Raw};

use super::load::{Forced, Unforced, observe};
use super::model::{Crash, Ledger};
use super::writer::Writer;
use crate::{rounds, seed, setup};

/// All of the log is checked after each kill, so that a night on one topic would do little else.
const ROUNDS_PER_TOPIC: u32 = 100;

#[test]
fn nothing_a_reader_ever_saw_changes_or_vanishes_under_kill_9() {
    let seed = seed();
    let mut left = rounds("SEAWALL_KILLS", 30);
    while left > 0 {
        let now = left.min(ROUNDS_PER_TOPIC);
        kill_over_and_over(seed.wrapping_add(u64::from(left)), now);
        left -= now;
    }
}

fn kill_over_and_over(seed: u64, rounds: u32) {
    let mut broker = setup().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "killed", 1, &[("segment.bytes", "1048576")]);
    let ledger = Arc::new(Ledger::new(Crash::Process));
    let mut forced: Vec<Forced> = (0..3)
        .map(|name| {
            let writer = Writer::new(&mut raw, &topic, 0).padded(1_000 * name);
            Forced::new(name, writer, Arc::clone(&ledger))
        })
        .collect();
    let mut unforced = Unforced::new(3, &topic, 0, Arc::clone(&ledger));
    let (connections, observer) = mpsc::channel();
    thread::scope(|threads| {
        let (observed, shown) = (&topic, Arc::clone(&ledger));
        threads.spawn(move || observe_for_ever(&observer, observed, &shown));
        for round in 0..rounds {
            connections
                .send(broker.connect())
                .expect("the observer lives");
            let acks = 10 + (seed.rotate_left(round) ^ u64::from(round)) % 60;
            kill_under_load(&mut broker, &ledger, &mut forced, &mut unforced, acks);
            ledger.check(&mut broker.connect(), &topic, 0, &format!("round {round}"));
        }
        drop(connections);
    });
    eprintln!("{} records kept", ledger.kept());
}

/// Reads on over every connection it is given; begins again at the start each time, so that all it ever saw is compared.
fn observe_for_ever(connections: &Receiver<Raw>, topic: &TopicRef, ledger: &Ledger) {
    let mut stood = 0;
    while let Ok(mut raw) = connections.recv() {
        let stands = observe(&mut raw, topic, 0, 0, ledger);
        assert!(
            stands <= stood || stands > 0,
            "an observer that saw {stood} records sees none"
        );
        stood = stands;
    }
}

fn kill_under_load(
    broker: &mut Broker,
    ledger: &Ledger,
    forced: &mut [Forced],
    unforced: &mut Unforced,
    acks: u64,
) {
    let before = ledger.acknowledged();
    thread::scope(|threads| {
        for producer in forced {
            let mut raw = broker.connect();
            threads.spawn(move || producer.run(&mut raw));
        }
        let mut raw = broker.connect();
        threads.spawn(move || unforced.run(&mut raw));
        wait::until("the load is acknowledged", SOON, || {
            ledger.acknowledged() >= before + acks
        });
        broker.kill9();
    });
    broker.start_again();
}
