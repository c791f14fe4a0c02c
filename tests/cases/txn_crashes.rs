//! Transactions over crashes of the broker that coordinates them: x03, x04, x05 and x08, at every step between a decision
//! and its end. What a crash leaves on disk at a step is put together from directories of a killed broker.

use std::fs;
use std::path::{Path, PathBuf};

use seawall_testkit::calls::create_topic;
use seawall_testkit::kafka_wire::OffsetFetchRequest;
use seawall_testkit::kafka_wire::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use seawall_testkit::requests::TopicRef;
use seawall_testkit::txn::{Tx, fetch_committed, read_committed};
use seawall_testkit::{Broker, Raw, wait};
use serde_json::Value;

use super::codes;
use crate::{not_for_kafka, setup, times};

/// The file of the slot that knows a transactional id.
fn slot_file(data: &Path, id: &str) -> PathBuf {
    let dir = data.join("__cluster/txn_state");
    let files = fs::read_dir(&dir).expect("the folder of the slots");
    let mut files = files.map(|entry| entry.expect("an entry").path());
    let holds = |path: &PathBuf| fs::read_to_string(path).expect("a slot").contains(id);
    files.find(holds).expect("a slot that knows the id")
}

/// Changes what the disk says of a transactional id, as a person could.
fn edit(data: &Path, id: &str, change: impl FnOnce(&mut Value)) {
    let path = slot_file(data, id);
    let text = fs::read_to_string(&path).expect("the slot");
    let mut file: Value = serde_json::from_str(&text).expect("JSON");
    file.as_object_mut().expect("an object").remove("crc32c");
    change(&mut file["transactions"][id]);
    fs::write(&path, file.to_string()).expect("write the slot");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("mkdir");
    for entry in fs::read_dir(from).expect("list") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("copy");
        }
    }
}

fn put_back(from: &Path, to: &Path) {
    fs::remove_dir_all(to).expect("remove");
    copy(from, to);
}

/// The committed offset of partition 0, or the error.
fn committed(raw: &mut Raw, group: &str, topic: &TopicRef, stable: bool) -> Result<i64, i16> {
    let mut wanted = OffsetFetchRequestTopics::default();
    wanted.name = topic.name.as_str().into();
    wanted.partition_indexes = vec![0];
    let mut one = OffsetFetchRequestGroup::default();
    one.group_id = group.into();
    one.topics = Some(vec![wanted]);
    let mut request = OffsetFetchRequest::default();
    request.groups = vec![one];
    request.require_stable = stable;
    let answer = raw.call::<OffsetFetchRequest>(8, &request);
    let row = &answer.groups[0].topics[0].partitions[0];
    match row.error_code {
        codes::NONE => Ok(row.committed_offset),
        code => Err(code),
    }
}

/// A transaction over two topics and a group, open, and all of it on disk when the broker was killed.
struct Scene {
    broker: Broker,
    topics: [TopicRef; 2],
    group: String,
    tx: Tx,
    /// Directories of the killed broker.
    open: tempfile::TempDir,
}

const UNSTABLE_OFFSET_COMMIT: i16 = 88;

impl Scene {
    fn new() -> Option<Self> {
        let mut broker = setup().set("num.partitions", "1").start();
        if not_for_kafka(&broker) {
            return None;
        }
        let raw = &mut broker.connect();
        let topics = ["one", "two"].map(|name| create_topic(raw, &broker.fresh(name), 1, &[]));
        let (id, group) = (broker.fresh("crash"), broker.fresh("group"));
        let tx = Tx::begin(raw, &id);
        for topic in &topics {
            assert_eq!(tx.add(raw, topic, 0), codes::NONE);
            assert_eq!(tx.send(raw, (topic, 0), 0), (codes::NONE, 0));
        }
        assert_eq!(tx.add_offsets(raw, 3, &group), codes::NONE);
        let offset = (topics[0].name.as_str(), 0, 42);
        assert_eq!(tx.commit_offset(raw, 3, &group, offset), codes::NONE);
        broker.kill9();
        let open = tempfile::tempdir().expect("a directory");
        copy(broker.data(), open.path());
        Some(Self {
            broker,
            topics,
            group,
            tx,
            open,
        })
    }

    /// Starts, commits, waits until that is carried out, and kills the broker.
    fn commit_and_kill(&mut self) {
        self.broker.start_again();
        let raw = &mut self.broker.connect();
        assert_eq!(self.tx.end(raw, true), codes::NONE);
        assert_eq!(self.tx.settled(raw), "CompleteCommit");
        self.broker.kill9();
    }

    /// The disk as it was before this part took part in the commit.
    fn undo(&self, part: &str) {
        put_back(&self.open.path().join(part), &self.broker.data().join(part));
    }

    fn decide(&self, phase: &str) {
        edit(self.broker.data(), &self.tx.id, |txn| {
            txn["phase"] = phase.into();
            let partitions = self.topics.iter().map(|topic| {
                serde_json::json!({
                    "topic": topic.name, "id": text_of(topic), "partition": 0
                })
            });
            txn["partitions"] = partitions.collect();
            txn["groups"] = serde_json::json!([self.group]);
        });
    }

    /// After a start the decision is carried out, once, and can be repeated.
    fn check(&mut self, commit: bool) {
        self.broker.start_again();
        let raw = &mut self.broker.connect();
        let state = if commit {
            "CompleteCommit"
        } else {
            "CompleteAbort"
        };
        assert_eq!(self.tx.settled(raw), state);
        let aborted = |first| {
            if commit {
                vec![]
            } else {
                vec![(self.tx.producer.0, first)]
            }
        };
        for topic in &self.topics {
            assert_eq!(
                read_committed(raw, topic),
                (vec![0, 1], aborted(0)),
                "one marker"
            );
        }
        let offset = if commit { 42 } else { -1 };
        assert_eq!(
            committed(raw, &self.group, &self.topics[0], true),
            Ok(offset)
        );
        assert_eq!(self.tx.end(raw, commit), codes::NONE, "a repeated end");
        assert_eq!(self.tx.end(raw, !commit), codes::INVALID_TXN_STATE);
        // The next transaction is as good as any.
        assert_eq!(self.tx.add(raw, &self.topics[0], 0), codes::NONE);
        assert_eq!(self.tx.send(raw, (&self.topics[0], 0), 1), (codes::NONE, 2));
        assert_eq!(self.tx.end(raw, true), codes::NONE);
        assert_eq!(self.tx.settled(raw), "CompleteCommit");
        assert_eq!(
            read_committed(raw, &self.topics[0]),
            (vec![0, 1, 2, 3], aborted(0))
        );
    }
}

/// A topic's id as it stands in our files: base64 of the URL kind.
fn text_of(topic: &TopicRef) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = u128::from_be_bytes(*topic.id.as_bytes());
    let six = |n: u32| match n {
        21 => (bits << 4) & 63,
        n => (bits >> (122 - 6 * n)) & 63,
    };
    (0..22)
        .map(|n| char::from(LETTERS[usize::try_from(six(n)).expect("six bits")]))
        .collect()
}

#[test]
fn x03_a_new_process_ends_a_transaction_that_was_open_before_a_crash() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    scene.broker.start_again();
    let raw = &mut scene.broker.connect();
    for topic in &scene.topics {
        assert_eq!(
            fetch_committed(raw, topic, 0).last_stable,
            0,
            "open as before"
        );
    }
    let (group, topic) = (scene.group.clone(), scene.topics[0].clone());
    assert_eq!(
        committed(raw, &group, &topic, true),
        Err(UNSTABLE_OFFSET_COMMIT)
    );
    assert_eq!(committed(raw, &group, &topic, false), Ok(-1));
    assert_eq!(scene.tx.end(raw, true), codes::NONE);
    scene.broker.kill9();
    scene.check(true);
}

#[test]
fn x05_a_decision_is_carried_out_after_a_crash_at_any_step() {
    for commit in [true, false] {
        let Some(mut scene) = Scene::new() else {
            return;
        };
        scene.decide(if commit {
            "PrepareCommit"
        } else {
            "PrepareAbort"
        });
        scene.check(commit);
    }
    for undone in 0..4 {
        let Some(mut scene) = Scene::new() else {
            return;
        };
        scene.commit_and_kill();
        let parts = scene.topics.each_ref().map(|topic| topic.name.clone());
        let groups = "__cluster/__consumer_offsets".to_owned();
        let all = [parts[0].clone(), parts[1].clone(), groups];
        // The first `undone` parts had not confirmed yet.
        all.iter().take(undone).for_each(|part| scene.undo(part));
        scene.decide("PrepareCommit");
        scene.check(true);
    }
}

#[test]
fn x04_epochs_run_out_and_a_new_producer_id_takes_over_at_once() {
    let mut broker = setup().set("num.partitions", "1").start();
    if not_for_kafka(&broker) {
        return;
    }
    let topic = create_topic(&mut broker.connect(), &broker.fresh("x04"), 1, &[]);
    let mut tx = Tx::begin(&mut broker.connect(), &broker.fresh("x04"));
    let first = tx.producer.0;
    broker.kill9();
    edit(broker.data(), &tx.id, |txn| {
        txn["producerEpoch"] = 32_766.into();
    });
    broker.start_again();
    let raw = &mut broker.connect();
    tx.producer.1 = 32_766;
    let last = tx.clone();
    assert_eq!(tx.send_v2(raw, (&topic, 0), 0), (codes::NONE, 0));
    assert_eq!(tx.end_v2(raw, true), codes::NONE);
    assert_ne!(tx.producer.0, first);
    assert_eq!(tx.producer.1, 0);
    assert_eq!(tx.settled(raw), "CompleteCommit");
    assert_eq!(
        last.end_once(raw, 5, true),
        (codes::NONE, tx.producer),
        "a retry"
    );
    let late = last.send_once(raw, 12, (&topic, 0), 1);
    assert_eq!(late.0, codes::INVALID_PRODUCER_ID_MAPPING);
    broker.crash_and_restart();
    let raw = &mut broker.connect();
    let mut retried = last.clone();
    assert_eq!(retried.end_v2(raw, true), codes::NONE, "a late retry");
    assert_eq!(retried.producer, tx.producer);
    assert_eq!(tx.send_v2(raw, (&topic, 0), 0), (codes::NONE, 2));
    assert_eq!(tx.end_v2(raw, true), codes::NONE);
    assert_eq!(tx.settled(raw), "CompleteCommit");
    assert_eq!(read_committed(raw, &topic), (vec![0, 1, 2, 3], vec![]));
}

#[test]
fn x08_offsets_are_as_committed_however_often_it_is_said_and_whoever_crashes() {
    let mut broker = setup().set("num.partitions", "1").start();
    if not_for_kafka(&broker) {
        return;
    }
    let topic = create_topic(&mut broker.connect(), &broker.fresh("x08"), 1, &[]);
    let (id, group) = (broker.fresh("x08"), broker.fresh("group"));
    let mut tx = Tx::begin(&mut broker.connect(), &id);
    let mut expected = -1;
    for round in 0..times(6, 40) {
        let v2 = round % 2 == 1;
        let version = if v2 { 5 } else { 3 };
        let commit = round % 3 != 2;
        let offset = i64::try_from(round).expect("few") + 100;
        let raw = &mut broker.connect();
        if !v2 {
            assert_eq!(tx.add_offsets(raw, 3, &group), codes::NONE);
        }
        for _ in 0..2 {
            let row = (topic.name.as_str(), 0, offset);
            assert_eq!(tx.commit_offset(raw, version, &group, row), codes::NONE);
        }
        assert_eq!(committed(raw, &group, &topic, false), Ok(expected));
        broker.crash_and_restart();
        let raw = &mut broker.connect();
        let before = tx.clone();
        let ended = if v2 {
            tx.end_v2(raw, commit)
        } else {
            tx.end(raw, commit)
        };
        assert_eq!(ended, codes::NONE, "round {round}");
        if commit {
            expected = offset;
        }
        broker.crash_and_restart();
        let raw = &mut broker.connect();
        tx.settled(raw);
        let again = if v2 {
            before.clone().end_v2(raw, commit)
        } else {
            before.end(raw, commit)
        };
        assert_eq!(again, codes::NONE, "round {round}");
        let stable = wait::until_some("the offsets are stable", wait::SOON, || {
            committed(raw, &group, &topic, true).ok()
        });
        assert_eq!(stable, expected, "round {round}");
    }
}

#[test]
fn a_damaged_slot_costs_its_own_transactional_ids_only() {
    let mut broker = setup().set("num.partitions", "1").start();
    if not_for_kafka(&broker) {
        return;
    }
    let topic = create_topic(&mut broker.connect(), &broker.fresh("damaged"), 1, &[]);
    let tx = Tx::begin(&mut broker.connect(), &broker.fresh("damaged"));
    broker.kill9();
    let path = slot_file(broker.data(), &tx.id);
    let text = fs::read_to_string(&path).expect("the slot");
    fs::write(
        &path,
        text.replacen("producerEpoch\":0", "producerEpoch\":9", 1),
    )
    .expect("write");
    broker.start_again();
    let raw = &mut broker.connect();
    let unavailable = codes::COORDINATOR_NOT_AVAILABLE;
    assert_eq!(tx.add_once(raw, 3, &topic.name, &[0]), [unavailable]);
    assert_eq!(tx.describe(raw).0, unavailable);
    assert_eq!(tx.end_once(raw, 4, false).0, unavailable);
    let other = Tx::begin(raw, "another");
    assert_eq!(other.add(raw, &topic, 0), codes::NONE);
    assert_eq!(other.send(raw, (&topic, 0), 0), (codes::NONE, 0));
    assert_eq!(other.end(raw, true), codes::NONE);
    let damaged = fs::read_to_string(&path).expect("the slot");
    assert!(damaged.contains("producerEpoch\":9"), "it is left as it is");
}
