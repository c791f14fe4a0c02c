//! A partition moves between log dirs while calls fail and the broker dies.
//!
//! The catalog, the old place and the new one are directories of one mount, so that a power cut hits them together.

use seawall_faultfs::{Call, Errno, Fault, FaultFs, Standing};
use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::requests::TopicRef;
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{Broker, Raw};

use super::writer::Writer;
use crate::{codes, cut_power_under, setup};

const CATALOG: &str = "catalog";
const DIRS: [&str; 2] = ["a", "b"];
const TOPIC: &str = "mover";
/// Where rows of the catalog are written, and their directory.
const ROWS: &str = "catalog/topics";

/// The broker comes first, so that it goes first.
struct Rig {
    broker: Broker,
    fs: FaultFs,
    writer: Writer,
    acknowledged: i32,
}

impl Rig {
    /// A topic of one partition with ten records, that has been in both log dirs and is in the first.
    fn start(seed: u64) -> Self {
        let fs = FaultFs::mount(seed);
        let dirs = DIRS.map(|dir| fs.path(dir).display().to_string());
        let broker = setup()
            .set("log.dirs", &dirs.join(","))
            .set("cluster.dir", &fs.path(CATALOG).display().to_string())
            .set("log.flush.stall.timeout.ms", "500")
            .start();
        let mut raw = broker.connect();
        let topic: TopicRef = create_topic(&mut raw, TOPIC, 1, &[]);
        let writer = Writer::new(&mut raw, &topic, 0);
        let mut rig = Self {
            broker,
            fs,
            writer,
            acknowledged: 0,
        };
        rig.append(&mut raw, 10);
        for dir in [1, 0] {
            rig.move_to(&mut raw, dir);
        }
        rig
    }

    fn append(&mut self, raw: &mut Raw, count: i32) {
        for _ in 0..count {
            let mut told = (codes::NOT_LEADER_OR_FOLLOWER, -1);
            // Who writes to the old place just then is told to come again.
            while told.0 == codes::NOT_LEADER_OR_FOLLOWER {
                told = self.writer.produce(raw, self.acknowledged);
            }
            assert_eq!(told, (codes::NONE, i64::from(self.acknowledged)));
            self.acknowledged += 1;
        }
    }

    fn ask_to_move(&self, raw: &mut Raw, dir: usize) -> i16 {
        calls::move_partition(raw, TOPIC, 0, &self.fs.path(DIRS[dir]))
    }

    /// Asks for a move, again where the last one found the partition busy, until it has come to that call so often.
    fn ask_until(&self, raw: &mut Raw, dir: usize, order: &Standing, hits: u64) {
        let refused = || self.broker.log().matches("it is busy").count();
        let mut before = None;
        wait::until("the move is under way", SOON, || {
            if order.hits() >= hits {
                return true;
            }
            if before != Some(refused()) {
                before = Some(refused());
                assert_eq!(self.ask_to_move(raw, dir), codes::NONE);
            }
            false
        });
    }

    fn move_to(&self, raw: &mut Raw, dir: usize) {
        wait::until("it has moved", SOON, || {
            assert_eq!(self.ask_to_move(raw, dir), codes::NONE);
            self.is_in(raw, dir)
        });
    }

    fn is_in(&self, raw: &mut Raw, dir: usize) -> bool {
        calls::place_of(raw, TOPIC).0 == self.fs.path(DIRS[dir])
    }

    /// Everything acknowledged is there, and it goes on.
    fn assert_whole(&mut self, what: &str) {
        let mut raw = self.broker.connect();
        self.writer.assert_log_is(&mut raw, self.acknowledged, what);
        self.append(&mut raw, 3);
        self.writer.assert_log_is(&mut raw, self.acknowledged, what);
    }

    /// Kills, frees what hangs, cuts the power if told, and starts again.
    fn die(&mut self, free: impl FnOnce(), power: bool) {
        self.broker.kill9_and(free);
        if power {
            cut_power_under(&self.fs, &[CATALOG, DIRS[0], DIRS[1]]);
        }
        self.broker.start_again();
    }
}

/// The calls of a move in their order, each at a place of its own.
const STEPS: [(Call, &str); 9] = [
    (Call::Create, "b/mover/.move-0"),
    (Call::Write, "b/mover/.move-0/"),
    (Call::Sync, "b/mover/.move-0/"),
    (Call::SyncDir, "b/mover/.move-0"),
    (Call::Rename, "b/mover/.move-0"),
    (Call::SyncDir, "b/mover"),
    (Call::Sync, ROWS),
    (Call::Rename, ROWS),
    (Call::SyncDir, ROWS),
];

fn dies_at_every_step(power: bool) {
    for (seed, (call, place)) in (1..).zip(STEPS) {
        let mut rig = Rig::start(seed);
        let mut raw = rig.broker.connect();
        let hang = rig.fs.order(call, place, Fault::Hang);
        rig.ask_until(&mut raw, 1, &hang, 1);
        let what = format!("{call:?} of {place}");
        if call == Call::Create || call == Call::Write {
            // It still serves.
            rig.append(&mut raw, 3);
        }
        rig.die(|| drop(hang), power);
        rig.assert_whole(&what);
        rig.move_to(&mut rig.broker.connect(), 1);
        rig.assert_whole(&what);
        rig.move_to(&mut rig.broker.connect(), 0);
        rig.die(|| (), power);
        rig.assert_whole(&what);
    }
}

#[test]
fn a_move_that_dies_at_any_step_loses_nothing_acknowledged() {
    dies_at_every_step(false);
}

#[test]
fn a_move_that_a_power_cut_ends_at_any_step_loses_nothing_acknowledged() {
    dies_at_every_step(true);
}

#[test]
fn a_move_that_cannot_be_recorded_leaves_the_partition_where_it_was() {
    for power in [false, true] {
        for call in [Call::Write, Call::Rename] {
            let mut rig = Rig::start(3);
            let mut raw = rig.broker.connect();
            let failing = rig.fs.order(call, ROWS, Fault::Fail(Errno::Io));
            rig.ask_until(&mut raw, 1, &failing, 1);
            let what = format!("after a failed {call:?}");
            rig.append(&mut raw, 5);
            assert!(rig.is_in(&mut raw, 0), "{what}");
            rig.die(|| drop(failing), power);
            rig.assert_whole(&what);
            assert!(rig.is_in(&mut rig.broker.connect(), 0), "{what}");
            rig.move_to(&mut rig.broker.connect(), 1);
            rig.assert_whole(&what);
        }
    }
}

#[test]
fn a_move_whose_record_may_be_lost_is_taken_back() {
    for power in [false, true] {
        let mut rig = Rig::start(6);
        let mut raw = rig.broker.connect();
        let failing = rig
            .fs
            .order_times(Call::SyncDir, ROWS, Fault::Fail(Errno::Io), 1);
        rig.ask_until(&mut raw, 1, &failing, 1);
        rig.append(&mut raw, 5);
        rig.die(|| (), power);
        rig.assert_whole("after a directory sync that failed once");
    }
}

#[test]
fn a_move_in_doubt_takes_nothing_more_until_a_restart_tells_where_the_partition_is() {
    for power in [false, true] {
        let mut rig = Rig::start(4);
        let mut raw = rig.broker.connect();
        let failing = rig.fs.order(Call::SyncDir, ROWS, Fault::Fail(Errno::Io));
        rig.ask_until(&mut raw, 1, &failing, 2);
        wait::until("the partition is offline", SOON, || {
            let number = rig.acknowledged;
            let (code, _) = rig.writer.produce(&mut raw, number);
            rig.acknowledged += i32::from(code == codes::NONE);
            code == codes::KAFKA_STORAGE_ERROR
        });
        drop(failing);
        rig.die(|| (), power);
        rig.assert_whole("after a move in doubt");
    }
}

#[test]
fn a_partition_serves_on_when_the_place_it_moves_to_hangs() {
    let mut rig = Rig::start(5);
    let mut raw = rig.broker.connect();
    let hang = rig.fs.order(Call::SyncDir, "b/mover/.move-0", Fault::Hang);
    rig.ask_until(&mut raw, 1, &hang, 1);
    rig.append(&mut raw, 3);
    drop(hang);
    rig.append(&mut raw, 3);
    assert!(rig.is_in(&mut raw, 0));
    rig.assert_whole("after a move that hung");
    rig.move_to(&mut raw, 1);
    rig.assert_whole("after it has moved");
}
