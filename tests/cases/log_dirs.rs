//! Several log dirs: partitions move between them while they serve.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use seawall_testkit::calls::{self, append, create_topic};
use seawall_testkit::requests::TopicRef;
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Raw};

use super::codes;
use crate::{setup, times};

/// A broker with two log dirs; it goes before they do.
fn two_dirs() -> (tempfile::TempDir, [PathBuf; 2], Broker) {
    let home = tempfile::tempdir().expect("a directory");
    let dirs = ["a", "b"].map(|name| home.path().join(name));
    let list = format!("{},{}", dirs[0].display(), dirs[1].display());
    let broker = setup()
        .set("log.dirs", &list)
        .set("log.retention.ms", "-1")
        .start();
    (home, dirs, broker)
}

fn move_to(raw: &mut Raw, topic: &str, to: &Path) {
    wait::until("it has moved", SOON, || {
        // A move that finds the partition busy, or old files in the way, is asked for again.
        assert_eq!(calls::move_partition(raw, topic, 0, to), codes::NONE);
        calls::place_of(raw, topic).0 == to
    });
}

fn other(dirs: &[PathBuf; 2], one: &Path) -> PathBuf {
    dirs.iter().find(|dir| *dir != one).expect("two").clone()
}

#[test]
fn a_partition_moves_with_all_it_has_and_stays_there() {
    let (_home, dirs, mut broker) = two_dirs();
    if broker.is_kafka() {
        return;
    }
    let mut raw = broker.connect();
    let configs = [("internal.segment.bytes", "200")];
    let topic = create_topic(&mut raw, "moved", 1, &configs);
    let (id, epoch) = calls::new_producer(&mut raw);
    let batch = |n: i32| {
        BatchBuilder::of(&[&n.to_string()])
            .producer(id, epoch, n)
            .build()
    };
    for n in 0..20 {
        append(&mut raw, &topic, 0, batch(n));
    }
    let (from, size) = calls::place_of(&mut raw, "moved");
    let to = other(&dirs, &from);
    assert_eq!(
        calls::move_partition(&mut raw, "moved", 0, &from),
        codes::NONE,
        "there already"
    );
    assert_eq!(
        calls::move_partition(&mut raw, "moved", 0, Path::new("/nowhere")),
        codes::LOG_DIR_NOT_FOUND
    );
    assert_eq!(
        calls::move_partition(&mut raw, "moved", 1, &to),
        codes::UNKNOWN_TOPIC_OR_PARTITION
    );
    assert_eq!(
        calls::move_partition(&mut raw, "none", 0, &to),
        codes::UNKNOWN_TOPIC_OR_PARTITION
    );
    assert_eq!(calls::place_of(&mut raw, "moved").0, from);
    let before = calls::read_from(&mut raw, &topic, 0, 0);
    move_to(&mut raw, "moved", &to);
    let same = |raw: &mut Raw| {
        let after = calls::read_from(raw, &topic, 0, 0);
        let bytes = |all: &[seawall_testkit::ParsedBatch]| -> Vec<bytes::Bytes> {
            all.iter().take(20).map(|b| b.bytes.clone()).collect()
        };
        assert_eq!(bytes(&after), bytes(&before));
    };
    same(&mut raw);
    assert_eq!(calls::place_of(&mut raw, "moved"), (to.clone(), size));
    assert_eq!(
        append(&mut raw, &topic, 0, batch(19)),
        19,
        "a duplicate is known"
    );
    assert_eq!(append(&mut raw, &topic, 0, batch(20)), 20);
    wait::until("the old files are gone", SOON, || {
        !from.join("moved/0").exists()
    });
    broker.crash_and_restart();
    let mut raw = broker.connect();
    same(&mut raw);
    assert_eq!(calls::place_of(&mut raw, "moved").0, to);
    move_to(&mut raw, "moved", &from);
    same(&mut raw);
    broker.stop_and_restart();
    let mut raw = broker.connect();
    same(&mut raw);
    assert_eq!(append(&mut raw, &topic, 0, batch(21)), 21);
    assert_eq!(calls::place_of(&mut raw, "moved").0, from);
}

/// Appends one after the other until told to stop; gives what was acknowledged, by offset. What was refused is not there.
fn load(mut raw: Raw, topic: &TopicRef, stop: &AtomicBool) -> Vec<(i64, String)> {
    let mut acknowledged = Vec::new();
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let value = format!("value {n}");
        let answer = calls::produce(&mut raw, topic, 0, -1, BatchBuilder::of(&[&value]).build());
        match answer.error_code {
            codes::NONE => acknowledged.push((answer.base_offset, value)),
            code => assert_eq!(code, codes::NOT_LEADER_OR_FOLLOWER),
        }
    }
    acknowledged
}

/// Ends the load also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_partition_moves_to_and_fro_under_load_and_loses_nothing() {
    let (_home, dirs, mut broker) = two_dirs();
    if broker.is_kafka() {
        return;
    }
    let mut raw = broker.connect();
    let configs = [("internal.segment.bytes", "20000")];
    let topic = create_topic(&mut raw, "busy", 1, &configs);
    let stop = AtomicBool::new(false);
    let second = broker.connect();
    let acknowledged = thread::scope(|scope| {
        let writing = scope.spawn(|| load(second, &topic, &stop));
        let ended = Stop(&stop);
        for _ in 0..times(4, 40) {
            let (from, _) = calls::place_of(&mut raw, "busy");
            move_to(&mut raw, "busy", &other(&dirs, &from));
        }
        drop(ended);
        writing.join().expect("the load")
    });
    assert!(acknowledged.len() > 10, "{}", acknowledged.len());
    for crash in [false, true] {
        if crash {
            broker.crash_and_restart();
            raw = broker.connect();
        }
        let batches = calls::read_from(&mut raw, &topic, 0, 0);
        let found: Vec<(i64, String)> = batches
            .iter()
            .flat_map(seawall_testkit::ParsedBatch::records)
            .map(|r| {
                let value = r.value.expect("a value");
                (r.offset, String::from_utf8(value.to_vec()).expect("text"))
            })
            .collect();
        assert_eq!(found, acknowledged, "all of it, and nothing else");
    }
}
