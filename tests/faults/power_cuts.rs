//! Power cuts under load: kill -9, and what was not synced is forgotten or torn.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::Duration;

use seawall_faultfs::{Call, Errno, Fault, FaultFs, Standing};
use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::kafka_wire::DeleteTopicsRequest;
use seawall_testkit::requests::{self, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Raw};

use super::load::{Forced, Unforced, observe};
use super::model::{Crash, Ledger};
use super::writer::Writer;
use crate::{codes, cut_power, place, rounds, seed, setup_on};

const PARTITIONS: i32 = 2;
/// All of the log is checked after each cut, so that a night on one mount would do little else.
const ROUNDS_PER_MOUNT: u32 = 20;

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
            let writer = Writer::new(raw, topic, partition).padded(24_000 * name);
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

    /// Its producers and its reader, each on its own connection.
    fn spawn<'s>(&'s mut self, threads: &'s Scope<'s, '_>, broker: &Broker, topic: &'s TopicRef) {
        for forced in &mut self.forced {
            let mut raw = broker.connect();
            threads.spawn(move || forced.run(&mut raw));
        }
        let (mut writes, mut reads) = (broker.connect(), broker.connect());
        let (unforced, ledger) = (&mut self.unforced, Arc::clone(&self.ledger));
        let (partition, end) = (self.partition, self.end);
        threads.spawn(move || unforced.run(&mut writes));
        threads.spawn(move || observe(&mut reads, topic, partition, end, &ledger));
    }
}

/// A broker on its mount with everything that runs against it. The broker comes first, so that it goes first.
struct Rig {
    broker: Broker,
    fs: FaultFs,
    topic: TopicRef,
    lanes: Vec<Lane>,
    topics: Topics,
}

impl Rig {
    fn start(seed: u64) -> Self {
        let fs = FaultFs::mount(seed);
        let broker = setup_on(&fs).start();
        let mut raw = broker.connect();
        let small = [("segment.bytes", "1048576")];
        let topic = create_topic(&mut raw, "power", PARTITIONS, &small);
        let lanes = (0..PARTITIONS).map(|partition| Lane::new(&mut raw, &topic, partition));
        Self {
            lanes: lanes.collect(),
            broker,
            fs,
            topic,
            topics: Topics::default(),
        }
    }

    /// Runs the load until each partition has given so many answers, pulls the plug, and starts the broker again.
    /// In every other round an fsync of each partition fails meanwhile.
    fn cut_under_load(&mut self, acks: u64, round: u32) {
        let failing = if round % 2 == 1 { PARTITIONS } else { 0 };
        let fail = Fault::Fail(Errno::Io);
        let failures: Vec<Standing> = (0..failing)
            .map(|partition| {
                self.fs
                    .order_times(Call::Sync, &place("power", partition), fail, 1)
            })
            .collect();
        let slow = Fault::Delay(Duration::from_millis(acks % 8));
        let delay = self.fs.order(Call::Sync, "", slow);
        let ledgers: Vec<Arc<Ledger>> = self.lanes.iter().map(|l| Arc::clone(&l.ledger)).collect();
        let before = told(&ledgers);
        let (broker, topic) = (&mut self.broker, &self.topic);
        thread::scope(|threads| {
            for lane in &mut self.lanes {
                lane.spawn(threads, broker, topic);
            }
            self.topics.change(&mut broker.connect(), round);
            wait::until("the load is acknowledged", SOON, || {
                let now = told(&ledgers);
                now.iter()
                    .zip(&before)
                    .all(|(now, before)| now - before >= acks)
            });
            broker.kill9();
        });
        drop((delay, failures));
        cut_power(&self.fs);
        self.broker.start_again();
    }

    fn check(&mut self, round: u32) {
        let mut raw = self.broker.connect();
        for lane in &mut self.lanes {
            let what = format!("round {round}");
            lane.end = lane
                .ledger
                .check(&mut raw, &self.topic, lane.partition, &what);
        }
        self.topics.check(&mut raw);
    }
}

#[test]
fn acknowledged_and_shown_records_survive_power_cuts_under_load() {
    let seed = seed();
    let mut left = rounds("SEAWALL_POWER_CUTS", ROUNDS_PER_MOUNT);
    while left > 0 {
        let now = left.min(ROUNDS_PER_MOUNT);
        run_on_one_mount(seed.wrapping_add(u64::from(left)), now);
        left -= now;
    }
}

fn run_on_one_mount(seed: u64, rounds: u32) {
    let mut rig = Rig::start(seed);
    for round in 0..rounds {
        let acks = 10 + (seed.rotate_left(round) ^ u64::from(round)) % 80;
        rig.cut_under_load(acks, round);
        rig.check(round);
    }
    let kept: usize = rig.lanes.iter().map(|lane| lane.ledger.kept()).sum();
    eprintln!("{kept} records kept");
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

#[test]
fn a_clean_stop_leaves_nothing_for_a_power_cut_to_take() {
    for seed in 0..4 {
        let fs = FaultFs::mount(seed);
        let mut broker = setup_on(&fs).start();
        let mut raw = broker.connect();
        let topic = create_topic(&mut raw, "stopped", 1, &[]);
        for number in 0..20 {
            let batch = BatchBuilder::of(&[&format!("record {number}")]).build();
            let answer = calls::produce(&mut raw, &topic, 0, 1, batch);
            assert_eq!(
                (answer.error_code, answer.base_offset),
                (codes::NONE, number)
            );
        }
        broker.shut_down();
        cut_power(&fs);
        broker.start_again();
        let stored = calls::read_from(&mut broker.connect(), &topic, 0, 0);
        assert_eq!(stored.len(), 20, "records with acks=1 before a clean stop");
    }
}
