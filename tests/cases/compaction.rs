//! Compacted topics: what stays, what goes, who reads it. f09, i11, t10, t11, w12, and a broker killed in the middle.

use std::collections::BTreeMap;
use std::fs;

use seawall_testkit::calls::{self, append, create_topic, end_offset};
use seawall_testkit::requests::{self, AT_ONCE, FetchFrom, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, ParsedBatch, Raw, Rec, Setup};

use super::codes;
use crate::{setup, times};

/// A broker that compacts at once whatever there is.
fn cleaning() -> Setup {
    setup()
        .set("log.retention.check.interval.ms", "50")
        .set("log.initial.task.delay.ms", "50")
        .set("log.segment.delete.delay.ms", "0")
        .set("log.cleaner.backoff.ms", "50")
}

const POLICY: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("min.cleanable.dirty.ratio", "0.0"),
    ("delete.retention.ms", "100"),
    ("internal.segment.bytes", "400"),
];

fn rec(key: &str, value: Option<&str>) -> Rec {
    let mut rec = Rec::value(value.unwrap_or_default()).keyed(key);
    if value.is_none() {
        rec.value = None;
    }
    rec
}

fn put(raw: &mut Raw, topic: &TopicRef, pairs: &[(&str, Option<&str>)]) -> i64 {
    let records = pairs.iter().map(|(k, v)| rec(k, *v)).collect();
    append(raw, topic, 0, BatchBuilder::new(records).build())
}

/// Key and value of all records, by offset.
fn records(batches: &[ParsedBatch]) -> BTreeMap<i64, (String, Option<String>)> {
    let all = batches.iter().flat_map(ParsedBatch::records);
    let text = |bytes: bytes::Bytes| String::from_utf8(bytes.to_vec()).expect("text");
    all.map(|r| (r.offset, (text(r.key.expect("a key")), r.value.map(text))))
        .collect()
}

fn table(records: &BTreeMap<i64, (String, Option<String>)>) -> BTreeMap<String, String> {
    let mut table = BTreeMap::new();
    for (key, value) in records.values() {
        match value {
            Some(value) => table.insert(key.clone(), value.clone()),
            None => table.remove(key),
        };
    }
    table
}

/// Read as a consumer does: from the end of each batch on, to the end of the log.
fn read_to_end(raw: &mut Raw, topic: &TopicRef) -> Vec<ParsedBatch> {
    let end = end_offset(raw, topic, 0);
    let batches = calls::read_from(raw, topic, 0, 0);
    let last = batches.last().map_or(0, |b| b.last_offset() + 1);
    assert_eq!(last, end, "f09: the end is reached");
    batches
}

fn until_compacted(raw: &mut Raw, topic: &TopicRef, left: usize) -> Vec<ParsedBatch> {
    wait::until_some("it is compacted", SOON, || {
        let batches = read_to_end(raw, topic);
        (records(&batches).len() <= left).then_some(batches)
    })
}

#[test]
fn f09_of_each_key_the_latest_record_stays_and_readers_reach_the_end() {
    let mut broker = cleaning().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "f09", 1, &POLICY);
    for round in 0..40 {
        let value = round.to_string();
        put(
            &mut raw,
            &topic,
            &[("a", Some(&value)), ("b", Some(&value))],
        );
    }
    let last = put(&mut raw, &topic, &[("c", Some("x")), ("d", Some("y"))]);
    // The last segment is left alone, whatever lies in it.
    let batches = until_compacted(&mut raw, &topic, 12);
    let found = records(&batches);
    let expected = [("a", "39"), ("b", "39"), ("c", "x"), ("d", "y")];
    let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(table(&found), BTreeMap::from(expected.clone()));
    assert_eq!(
        found[&last],
        ("c".to_owned(), Some("x".to_owned())),
        "offsets stay"
    );
    for from in [0, 1, 17, 33, last] {
        let data = calls::fetch(&mut raw, &topic, AT_ONCE, FetchFrom::new(0, from));
        assert_eq!(data.error_code, codes::NONE, "from {from}");
        let first = calls::whole_batches(&data);
        assert!(first[0].last_offset() >= from, "from {from}");
    }
    if broker.is_kafka() {
        return;
    }
    for crash in [true, false] {
        if crash {
            broker.crash_and_restart();
        } else {
            broker.stop_and_restart();
        }
        let batches = read_to_end(&mut broker.connect(), &topic);
        assert_eq!(table(&records(&batches)), BTreeMap::from(expected.clone()));
    }
}

#[test]
fn tombstones_go_after_delete_retention_ms() {
    let broker = cleaning().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "tombstones", 1, &POLICY);
    put(&mut raw, &topic, &[("a", Some("1")), ("b", Some("1"))]);
    put(&mut raw, &topic, &[("a", None)]);
    wait::until("key and tombstone are gone", SOON, || {
        // Something new makes the log dirty again.
        put(
            &mut raw,
            &topic,
            &[("z", Some("some bytes, so that segments fill up"))],
        );
        let left = records(&read_to_end(&mut raw, &topic));
        left.values().all(|(key, _)| key != "a")
    });
    let left = records(&read_to_end(&mut raw, &topic));
    assert_eq!(table(&left)["b"], "1");
}

#[test]
fn t10_t11_the_policy_may_change_and_both_policies_hold_together() {
    let broker = cleaning().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "t11", 1, &POLICY);
    for round in 0..30 {
        put(
            &mut raw,
            &topic,
            &[("a", Some(&round.to_string())), ("b", Some("x"))],
        );
    }
    until_compacted(&mut raw, &topic, 12);
    let alter = |raw: &mut Raw, changes: &[(&str, i8, Option<&str>)]| {
        let request = requests::incremental_alter("t11", changes);
        let answer =
            raw.call::<seawall_testkit::kafka_wire::IncrementalAlterConfigsRequest>(1, &request);
        assert_eq!(answer.responses[0].error_code, codes::NONE);
    };
    alter(
        &mut raw,
        &[
            ("cleanup.policy", 0, Some("delete")),
            ("retention.ms", 0, Some("-1")),
        ],
    );
    read_to_end(&mut raw, &topic);
    let request = requests::delete_records("t11", &[(0, 1)]);
    let answer = raw.call::<seawall_testkit::kafka_wire::DeleteRecordsRequest>(2, &request);
    assert_eq!(answer.topics[0].partitions[0].error_code, codes::NONE);
    alter(
        &mut raw,
        &[
            ("cleanup.policy", 0, Some("compact,delete")),
            ("retention.ms", 0, Some("1")),
        ],
    );
    wait::until("retention takes it all", SOON, || {
        let start = calls::list_offset_at(&mut raw, calls::LIST_OFFSETS, "t11", 0, -2);
        start.offset == end_offset(&mut raw, &topic, 0)
    });
}

#[test]
fn i11_an_idempotent_producer_goes_on_over_compaction_and_restarts() {
    let mut broker = cleaning().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "i11", 1, &POLICY);
    let (id, epoch) = calls::new_producer(&mut raw);
    let batch = |sequence: i32| {
        let records = vec![rec("k", Some(&format!("value {sequence}")))];
        BatchBuilder::new(records)
            .producer(id, epoch, sequence)
            .build()
    };
    for sequence in 0..40 {
        append(&mut raw, &topic, 0, batch(sequence));
    }
    until_compacted(&mut raw, &topic, 6);
    if !broker.is_kafka() {
        broker.crash_and_restart();
        raw = broker.connect();
    }
    assert_eq!(append(&mut raw, &topic, 0, batch(39)), 39, "a duplicate");
    assert_eq!(append(&mut raw, &topic, 0, batch(40)), 40);
    let gap = calls::produce(&mut raw, &topic, 0, -1, batch(42));
    assert_eq!(gap.error_code, codes::OUT_OF_ORDER_SEQUENCE);
}

fn temporary(broker: &Broker, topic: &str) -> usize {
    let entries = fs::read_dir(broker.partition_dir(topic, 0)).expect("a directory");
    let names = entries.map(|e| e.expect("an entry").file_name());
    names
        .filter(|n| n.to_string_lossy().starts_with(".tmp-compact"))
        .count()
}

#[test]
fn a_broker_killed_while_it_compacts_has_every_key_after_the_restart() {
    let mut broker = cleaning().start();
    if broker.is_kafka() {
        return;
    }
    let mut model: BTreeMap<String, String> = BTreeMap::new();
    let topic = create_topic(
        &mut broker.connect(),
        "killed",
        1,
        &[
            POLICY[0],
            POLICY[1],
            POLICY[2],
            ("internal.segment.bytes", "20000"),
        ],
    );
    let filler = "x".repeat(300);
    for life in 0..times(6, 60) {
        let mut raw = broker.connect();
        for n in 0..120 {
            let key = format!("key-{}", (n * 7 + life) % 40);
            if n % 9 == 0 {
                model.remove(&key);
                put(&mut raw, &topic, &[(&key, None)]);
            } else {
                let value = format!("{life}-{n}-{filler}");
                put(&mut raw, &topic, &[(&key, Some(&value))]);
                model.insert(key, value);
            }
        }
        // At another point of the compaction each time.
        wait::until("compaction", SOON, || {
            temporary(&broker, "killed") > 0 || broker.log().contains(": compacted")
        });
        broker.crash_and_restart();
        let found = records(&read_to_end(&mut broker.connect(), &topic));
        assert_eq!(table(&found), model, "life {life}");
    }
    wait::until("no leftovers", SOON, || {
        put(&mut broker.connect(), &topic, &[("more", Some("x"))]);
        temporary(&broker, "killed") == 0
    });
}
