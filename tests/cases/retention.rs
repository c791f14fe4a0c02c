//! What goes: by age, by size, by DeleteRecords. d06, d08, i02, i04, t11, and what a restart finds.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use seawall_testkit::calls::{self, append, create_topic, end_offset, list_offset_at};
use seawall_testkit::kafka_wire::delete_records_response::DeleteRecordsPartitionResult;
use seawall_testkit::kafka_wire::{DeleteRecordsRequest, IncrementalAlterConfigsRequest};
use seawall_testkit::requests::{self, AT_ONCE, FetchFrom, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Raw, Rec, Setup};

use super::codes;
use crate::setup;

const EARLIEST: i64 = -2;

/// A broker that looks often and removes at once.
fn sweeping() -> Setup {
    setup()
        .set("log.retention.check.interval.ms", "50")
        .set("log.initial.task.delay.ms", "50")
        .set("log.segment.delete.delay.ms", "0")
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.expect("after 1970").as_millis()).expect("small")
}

fn dated(time: i64) -> bytes::Bytes {
    BatchBuilder::new(vec![Rec::value("x").keyed("k").at(time)]).build()
}

fn start_offset(raw: &mut Raw, topic: &TopicRef) -> i64 {
    let answer = list_offset_at(raw, calls::LIST_OFFSETS, &topic.name, 0, EARLIEST);
    assert_eq!(answer.error_code, codes::NONE);
    answer.offset
}

fn until_start(raw: &mut Raw, topic: &TopicRef, wanted: i64) {
    wait::until("the log starts there", SOON, || {
        start_offset(raw, topic) == wanted
    });
}

fn alter(raw: &mut Raw, topic: &TopicRef, key: &str, value: &str) {
    let request = requests::incremental_alter(&topic.name, &[(key, 0, Some(value))]);
    let answer = raw.call::<IncrementalAlterConfigsRequest>(1, &request);
    assert_eq!(answer.responses[0].error_code, codes::NONE);
}

fn delete(raw: &mut Raw, topic: &str, partition: i32, upto: i64) -> DeleteRecordsPartitionResult {
    let request = requests::delete_records(topic, &[(partition, upto)]);
    let mut answer = raw.call::<DeleteRecordsRequest>(2, &request);
    assert_eq!(answer.topics[0].name.as_str(), topic);
    answer.topics.remove(0).partitions.remove(0)
}

/// Nothing below the start is shown, everything from there on is.
fn check_start(raw: &mut Raw, topic: &TopicRef, start: i64, end: i64) {
    assert_eq!(start_offset(raw, topic), start);
    assert_eq!(end_offset(raw, topic, 0), end);
    if start > 0 {
        let from = FetchFrom::new(0, start - 1);
        let below = calls::fetch(raw, topic, AT_ONCE, from);
        assert_eq!(
            below.error_code,
            codes::OFFSET_OUT_OF_RANGE,
            "below the start"
        );
    }
    let data = calls::fetch(raw, topic, AT_ONCE, FetchFrom::new(0, start));
    assert_eq!((data.error_code, data.log_start_offset), (0, start));
    let batches = calls::read_from(raw, topic, 0, start);
    let last = batches.last().map_or(start - 1, |b| b.last_offset());
    assert_eq!(last, end - 1, "everything above the start is there");
}

fn logs(broker: &Broker, topic: &str) -> usize {
    let entries = fs::read_dir(broker.partition_dir(topic, 0)).expect("the partition's directory");
    let names = entries.map(|e| {
        e.expect("an entry")
            .file_name()
            .into_string()
            .expect("utf-8")
    });
    names.filter(|name| name.ends_with(".log")).count()
}

/// As many segments as batches, but for the last.
fn tiny_segments(raw: &mut Raw, name: &str, configs: &[(&str, &str)]) -> TopicRef {
    let mut all = vec![("internal.segment.bytes", "80")];
    all.extend_from_slice(configs);
    create_topic(raw, name, 1, &all)
}

#[test]
fn a_shorter_retention_holds_within_a_sweep_and_after_every_kind_of_stop() {
    let mut broker = sweeping().start();
    let mut raw = broker.connect();
    let topic = tiny_segments(&mut raw, "aged", &[]);
    let now = now_ms();
    for age_s in [3000, 2000, 1000, 0] {
        append(&mut raw, &topic, 0, dated(now - age_s * 1000));
    }
    check_start(&mut raw, &topic, 0, 4);
    alter(&mut raw, &topic, "retention.ms", "1500000");
    until_start(&mut raw, &topic, 2);
    check_start(&mut raw, &topic, 2, 4);
    if !broker.is_kafka() {
        wait::until("files are removed", SOON, || logs(&broker, "aged") == 2);
        broker.crash_and_restart();
        check_start(&mut broker.connect(), &topic, 2, 4);
        broker.stop_and_restart();
        check_start(&mut broker.connect(), &topic, 2, 4);
        raw = broker.connect();
    }
    alter(&mut raw, &topic, "retention.ms", "1");
    until_start(&mut raw, &topic, 4);
    alter(&mut raw, &topic, "retention.ms", "-1");
    append(&mut raw, &topic, 0, dated(now));
    check_start(&mut raw, &topic, 4, 5);
}

#[test]
fn a_topic_with_one_segment_is_emptied_too() {
    let broker = sweeping().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "quiet", 1, &[("retention.ms", "1")]);
    append(&mut raw, &topic, 0, dated(1));
    until_start(&mut raw, &topic, 1);
    check_start(&mut raw, &topic, 1, 1);
    if !broker.is_kafka() {
        wait::until("its file is removed", SOON, || logs(&broker, "quiet") == 1);
    }
}

#[test]
fn retention_by_size_keeps_at_least_that_much() {
    let broker = sweeping().start();
    let mut raw = broker.connect();
    let one = i64::try_from(dated(1).len()).expect("small");
    let limit = (2 * one + 1).to_string();
    let configs = [("retention.ms", "-1"), ("retention.bytes", limit.as_str())];
    let topic = tiny_segments(&mut raw, "sized", &configs);
    for _ in 0..6 {
        append(&mut raw, &topic, 0, dated(1));
    }
    until_start(&mut raw, &topic, 3);
    check_start(&mut raw, &topic, 3, 6);
}

#[test]
fn without_limits_and_without_the_policy_everything_stays() {
    let broker = sweeping().start();
    let mut raw = broker.connect();
    let ever = tiny_segments(&mut raw, "ever", &[("retention.ms", "-1")]);
    let compacted = tiny_segments(
        &mut raw,
        "compacted",
        &[
            ("cleanup.policy", "compact"),
            ("retention.ms", "1"),
            ("min.cleanable.dirty.ratio", "1.0"),
        ],
    );
    let gone = tiny_segments(&mut raw, "gone", &[("retention.ms", "1")]);
    for topic in [&ever, &compacted, &gone] {
        append(&mut raw, topic, 0, dated(1));
        append(&mut raw, topic, 0, dated(2));
    }
    until_start(&mut raw, &gone, 2);
    check_start(&mut raw, &ever, 0, 2);
    assert_eq!(start_offset(&mut raw, &compacted), 0);
}

#[test]
fn d08_records_dated_back_go_by_their_date_and_those_ahead_block_nothing() {
    let broker = sweeping().start();
    let mut raw = broker.connect();
    let topic = tiny_segments(
        &mut raw,
        "dates",
        &[("message.timestamp.after.max.ms", "9223372036854775807")],
    );
    append(&mut raw, &topic, 0, dated(1));
    append(&mut raw, &topic, 0, dated(now_ms() + 10 * 365 * 86_400_000));
    append(&mut raw, &topic, 0, dated(now_ms()));
    until_start(&mut raw, &topic, 1);
    if broker.is_kafka() {
        return;
    }
    alter(&mut raw, &topic, "retention.ms", "1");
    until_start(&mut raw, &topic, 3);
}

#[test]
fn delete_records_moves_the_start_durably_and_refuses_what_it_cannot() {
    let mut broker = sweeping().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "deleted", 1, &[("retention.ms", "-1")]);
    append(
        &mut raw,
        &topic,
        0,
        BatchBuilder::of(&["a", "b", "c", "d"]).build(),
    );
    append(&mut raw, &topic, 0, BatchBuilder::of(&["e", "f"]).build());
    let mut check = |upto: i64, error: i16, low: i64| {
        let row = delete(&mut raw, "deleted", 0, upto);
        let got = (row.partition_index, row.error_code, row.low_watermark);
        assert_eq!(got, (0, error, low), "up to {upto}");
    };
    check(7, codes::OFFSET_OUT_OF_RANGE, -1);
    check(-2, codes::OFFSET_OUT_OF_RANGE, -1);
    check(0, codes::NONE, 0);
    check(2, codes::NONE, 2);
    check(1, codes::NONE, 2);
    let unknown = delete(&mut raw, "deleted", 1, 0);
    assert_eq!(
        (unknown.error_code, unknown.low_watermark),
        (codes::UNKNOWN_TOPIC_OR_PARTITION, -1)
    );
    let unknown = delete(&mut raw, "nowhere", 0, 0);
    assert_eq!(unknown.error_code, codes::UNKNOWN_TOPIC_OR_PARTITION);
    check_start(&mut raw, &topic, 2, 6);
    if !broker.is_kafka() {
        broker.crash_and_restart();
        raw = broker.connect();
        check_start(&mut raw, &topic, 2, 6);
    }
    for version in 0..=2 {
        let request = requests::delete_records("deleted", &[(0, -1)]);
        let answer = raw.call::<DeleteRecordsRequest>(version, &request);
        let row = &answer.topics[0].partitions[0];
        assert_eq!((row.error_code, row.low_watermark), (codes::NONE, 6));
    }
    check_start(&mut raw, &topic, 6, 6);
    assert_eq!(append(&mut raw, &topic, 0, dated(1)), 6);
    if !broker.is_kafka() {
        broker.stop_and_restart();
        check_start(&mut broker.connect(), &topic, 6, 7);
    }
}

#[test]
fn t11_delete_records_works_only_where_the_policy_deletes() {
    let broker = sweeping().start();
    let mut raw = broker.connect();
    for (name, policy, error) in [
        ("t11-compact", "compact", codes::POLICY_VIOLATION),
        ("t11-both", "compact,delete", codes::NONE),
        ("t11-delete", "delete", codes::NONE),
    ] {
        let topic = create_topic(&mut raw, name, 1, &[("cleanup.policy", policy)]);
        append(&mut raw, &topic, 0, dated(now_ms()));
        let row = delete(&mut raw, name, 0, 1);
        assert_eq!(row.error_code, error, "{policy}");
        assert_eq!(row.low_watermark, if error == 0 { 1 } else { -1 });
    }
}

#[test]
fn i04_the_next_sequence_is_accepted_after_all_records_are_deleted() {
    let mut broker = sweeping().start();
    let mut raw = broker.connect();
    let topic = tiny_segments(&mut raw, "i04", &[("retention.ms", "-1")]);
    let (id, epoch) = calls::new_producer(&mut raw);
    let batch = |sequence| {
        BatchBuilder::of(&["x"])
            .producer(id, epoch, sequence)
            .build()
    };
    for sequence in 0..3 {
        append(&mut raw, &topic, 0, batch(sequence));
    }
    assert_eq!(delete(&mut raw, "i04", 0, -1).low_watermark, 3);
    if !broker.is_kafka() {
        wait::until("files are removed", SOON, || logs(&broker, "i04") == 1);
    }
    // i02: a retry of a batch that is deleted.
    assert_eq!(append(&mut raw, &topic, 0, batch(2)), 2);
    if !broker.is_kafka() {
        broker.crash_and_restart();
        raw = broker.connect();
        assert_eq!(append(&mut raw, &topic, 0, batch(2)), 2);
    }
    assert_eq!(append(&mut raw, &topic, 0, batch(3)), 3);
    let gap = calls::produce(&mut raw, &topic, 0, -1, batch(5));
    assert_eq!(gap.error_code, codes::OUT_OF_ORDER_SEQUENCE);
}
