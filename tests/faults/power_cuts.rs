//! Power cuts under load: kill -9, and what was not synced is forgotten or torn.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use seawall_faultfs::{Call, Fault, FaultFs};
use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::kafka_wire::DeleteTopicsRequest;
use seawall_testkit::requests::{self, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Raw};

use super::load::{Forced, Unforced, observe};
use super::model::{Crash, Ledger};
use super::writer::Writer;
use crate::{cut_power, rounds, seed, setup_on};

const PARTITIONS: i32 = 2;

/// One partition with its producers and what they were told.
struct Lane {
    partition: i32,
    ledger: Arc<Ledger>,
    forced: Vec<Forced>,
    unforced: Unforced,
    end: i64,
}

impl Lane {
    fn new(raw: &mut Raw, topic: &TopicRef, partition: i32) -> Self {
        let ledger = Arc::new(Ledger::new(Crash::Power));
        let first = 10 * usize::try_from(partition).expect("not negative");
        let forced = (0..2).map(|name| {
            // Large ones, so that writes cross pages and segments end.
            let writer = Writer::new(raw, topic, partition).padded(3_000 * name);
            Forced::new(first + name, writer, Arc::clone(&ledger))
        });
        let forced = forced.collect();
        let unforced = Unforced::new(first + 2, topic, partition, Arc::clone(&ledger));
        Self {
            partition,
            ledger,
            forced,
            unforced,
            end: 0,
        }
    }
}

#[test]
fn acknowledged_and_shown_records_survive_power_cuts_under_load() {
    let seed = seed();
    let fs = FaultFs::mount(seed);
    let mut broker = setup_on(&fs).start();
    let mut raw = broker.connect();
    let topic = create_topic(
        &mut raw,
        "power",
        PARTITIONS,
        &[("segment.bytes", "1048576")],
    );
    let mut lanes: Vec<Lane> = (0..PARTITIONS)
        .map(|p| Lane::new(&mut raw, &topic, p))
        .collect();
    let mut topics = Topics::default();
    for round in 0..rounds("SEAWALL_POWER_CUTS", 20) {
        let acks = 20 + (seed.rotate_left(round) ^ u64::from(round)) % 150;
        cut_under_load(&fs, &mut broker, &topic, &mut lanes, acks, |raw| {
            topics.change(raw, round)
        });
        raw = broker.connect();
        for lane in &mut lanes {
            lane.end =
                lane.ledger
                    .check(&mut raw, &topic, lane.partition, &format!("round {round}"));
        }
        topics.check(&mut raw);
    }
    let kept: usize = lanes.iter().map(|lane| lane.ledger.kept()).sum();
    eprintln!("{kept} records kept");
}

/// Runs the load until so many answers have come, pulls the plug, and starts the broker again.
fn cut_under_load(
    fs: &FaultFs,
    broker: &mut Broker,
    topic: &TopicRef,
    lanes: &mut [Lane],
    acks: u64,
    meanwhile: impl FnOnce(&mut Raw),
) {
    let slow = Fault::Delay(Duration::from_millis(acks % 8));
    let delay = fs.order(Call::Sync, "", slow);
    let ledgers: Vec<Arc<Ledger>> = lanes.iter().map(|lane| Arc::clone(&lane.ledger)).collect();
    let before = told(&ledgers);
    thread::scope(|threads| {
        for lane in lanes {
            let ledger = Arc::clone(&lane.ledger);
            for forced in &mut lane.forced {
                let mut raw = broker.connect();
                threads.spawn(move || forced.run(&mut raw));
            }
            let (unforced, partition, end) = (&mut lane.unforced, lane.partition, lane.end);
            let (mut writes, mut reads) = (broker.connect(), broker.connect());
            threads.spawn(move || unforced.run(&mut writes));
            threads.spawn(move || observe(&mut reads, topic, partition, end, &ledger));
        }
        meanwhile(&mut broker.connect());
        wait::until("the load is acknowledged", SOON, || {
            let now = told(&ledgers);
            now.iter()
                .zip(&before)
                .all(|(now, before)| now - before >= acks)
        });
        broker.kill9();
    });
    delay.lift();
    cut_power(fs);
    broker.start_again();
}

fn told(ledgers: &[Arc<Ledger>]) -> Vec<u64> {
    ledgers.iter().map(|ledger| ledger.acknowledged()).collect()
}

/// Topics that come and go between the cuts.
#[derive(Default)]
struct Topics {
    there: BTreeSet<String>,
    gone: BTreeSet<String>,
}

impl Topics {
    /// Makes one with a record in it, and deletes the one of three rounds ago.
    fn change(&mut self, raw: &mut Raw, round: u32) {
        let name = format!("short-lived-{round}");
        let topic = create_topic(raw, &name, 1, &[]);
        calls::append(raw, &topic, 0, BatchBuilder::of(&[&name]).build());
        self.there.insert(name);
        let Some(old) = round
            .checked_sub(3)
            .map(|round| format!("short-lived-{round}"))
        else {
            return;
        };
        let delete = requests::delete_topics(5, &[old.as_str()]);
        let answer = raw.call::<DeleteTopicsRequest>(5, &delete);
        assert_eq!(answer.responses[0].error_code, 0, "delete {old}");
        self.there.remove(&old);
        self.gone.insert(old);
    }

    fn check(&self, raw: &mut Raw) {
        for name in &self.there {
            let end = calls::list_offset_at(raw, calls::LIST_OFFSETS, name, 0, -1);
            assert_eq!(
                (end.error_code, end.offset),
                (0, 1),
                "{name} and its record"
            );
        }
        for name in &self.gone {
            let end = calls::list_offset_at(raw, calls::LIST_OFFSETS, name, 0, -1);
            assert_eq!(end.error_code, 3, "{name} stays deleted");
        }
    }
}
