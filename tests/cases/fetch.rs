//! What a Fetch, a ListOffsets and an OffsetForLeaderEpoch get: f01 to f13, as far as neither groups nor compaction are
//! needed.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use seawall_testkit::calls::{self, create_topic, list_offset_at};
use seawall_testkit::kafka_wire::fetch_response::PartitionData;
use seawall_testkit::kafka_wire::{
    CreateTopicsRequest, DeleteTopicsRequest, FetchRequest, OffsetForLeaderEpochRequest,
};
use seawall_testkit::requests::{self, AT_ONCE, FetchFrom, FetchLimits, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Raw, Rec, metrics};

use super::codes;
use crate::{broker, not_for_kafka, times};

fn one_at(time: i64) -> BatchBuilder {
    BatchBuilder::new(vec![Rec::value("x").at(time)])
}

#[test]
fn f01_offsets_by_time_are_those_of_the_first_record_not_before_it() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f01"), 1, &[]);
    for time in [2, 4, 6, 8] {
        calls::append(&mut raw, &topic, 0, one_at(time).build());
    }
    for version in 1..=10 {
        let expected = [0, 0, 1, 1, 2, 2, 3, 3, -1];
        for (asked, offset) in (1..=9).zip(expected) {
            let answer = list_offset_at(&mut raw, version, &topic.name, 0, asked);
            assert_eq!(
                (answer.error_code, answer.offset),
                (codes::NONE, offset),
                "v{version} at {asked}"
            );
        }
    }
}

#[test]
fn f01_offsets_by_time_are_found_inside_a_batch() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f01"), 1, &[]);
    let records = [2, 4, 6, 8].map(|time| Rec::value("x").at(time)).to_vec();
    calls::append(&mut raw, &topic, 0, BatchBuilder::new(records).build());
    for (asked, offset, time) in [
        (1, 0, 2),
        (2, 0, 2),
        (3, 1, 4),
        (7, 3, 8),
        (8, 3, 8),
        (9, -1, -1),
    ] {
        let answer = list_offset_at(&mut raw, calls::LIST_OFFSETS, &topic.name, 0, asked);
        assert_eq!(
            (answer.offset, answer.timestamp),
            (offset, time),
            "at {asked}"
        );
    }
}

#[test]
fn f02_beyond_the_last_timestamp_there_is_no_offset_and_no_error() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f02"), 1, &[]);
    for round in 0..2 {
        let answer = list_offset_at(&mut raw, calls::LIST_OFFSETS, &topic.name, 0, 5_000);
        let got = (answer.error_code, answer.offset, answer.timestamp);
        assert_eq!(got, (codes::NONE, -1, -1), "{round} batches");
        calls::append(&mut raw, &topic, 0, one_at(4_999).build());
    }
}

#[test]
fn f03_on_a_log_append_time_topic_it_is_the_base_offset_of_the_batch() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(
        &mut raw,
        &broker.fresh("f03"),
        1,
        &[("message.timestamp.type", "LogAppendTime")],
    );
    for _ in 0..2 {
        calls::append(
            &mut raw,
            &topic,
            0,
            BatchBuilder::of(&["a", "b", "c"]).build(),
        );
    }
    let answer = list_offset_at(
        &mut raw,
        calls::LIST_OFFSETS,
        &topic.name,
        0,
        1_600_000_000_000,
    );
    assert_eq!((answer.error_code, answer.offset), (codes::NONE, 0));
}

#[test]
fn f04_the_largest_timestamp_is_found_wherever_it_lies() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f04"), 1, &[]);
    for time in [5, 9, 3] {
        calls::append(&mut raw, &topic, 0, one_at(time).build());
    }
    for version in 7..=10 {
        let answer = list_offset_at(&mut raw, version, &topic.name, 0, -3);
        assert_eq!(
            (answer.error_code, answer.offset, answer.timestamp),
            (codes::NONE, 1, 9),
            "v{version}"
        );
    }
}

#[test]
fn f04_special_timestamps_get_what_kafka_answers_version_by_version() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f04"), 1, &[]);
    calls::append(&mut raw, &topic, 0, one_at(5).build());
    for (special, since) in [
        (-1, 1),
        (-2, 1),
        (-3, 7),
        (-4, 8),
        (-5, 9),
        (-6, 11),
        (-7, i16::MAX),
        (-99, i16::MAX),
    ] {
        for version in 1..=11 {
            let answer = list_offset_at(&mut raw, version, &topic.name, 0, special);
            let expected = if version < since {
                codes::UNSUPPORTED_VERSION
            } else {
                codes::NONE
            };
            assert_eq!(answer.error_code, expected, "{special} at v{version}");
        }
    }
    // Without tiered storage the earliest local offset is the earliest, and nothing is tiered.
    let earliest_local = list_offset_at(&mut raw, 9, &topic.name, 0, -4);
    assert_eq!(earliest_local.offset, 0);
    let latest_tiered = list_offset_at(&mut raw, 9, &topic.name, 0, -5);
    assert_eq!(latest_tiered.offset, -1);
}

#[test]
fn f05_a_first_batch_larger_than_every_limit_comes_whole() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f05"), 3, &[]);
    for partition in [1, 2] {
        calls::append(
            &mut raw,
            &topic,
            partition,
            BatchBuilder::sized(600_000).build(),
        );
        calls::append(
            &mut raw,
            &topic,
            partition,
            BatchBuilder::sized(600_000).build(),
        );
    }
    let parts = [0, 1, 2].map(|partition| FetchFrom {
        partition,
        offset: 0,
        max_bytes: 400_000,
    });
    for max_bytes in [1, 0] {
        let limits = FetchLimits {
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes,
        };
        let answer = raw.call::<FetchRequest>(12, &requests::fetch(12, &topic, limits, &parts));
        let batches = answer
            .responses
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(batches_of)
            .collect::<Vec<_>>();
        let counts: BTreeMap<i32, usize> = batches.into_iter().collect();
        assert_eq!(
            counts,
            BTreeMap::from([(0, 0), (1, 1), (2, 0)]),
            "max_bytes {max_bytes}"
        );
    }
}

fn batches_of(data: &PartitionData) -> (i32, usize) {
    assert_eq!(
        data.error_code,
        codes::NONE,
        "partition {}",
        data.partition_index
    );
    (data.partition_index, calls::whole_batches(data).len())
}

#[test]
fn f05_no_batch_is_ever_cut_whatever_the_limit() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f05"), 1, &[]);
    let batch = BatchBuilder::sized(100).build();
    for _ in 0..10 {
        calls::append(&mut raw, &topic, 0, batch.clone());
    }
    let one = i32::try_from(batch.len()).expect("small");
    for (max_bytes, expected) in [
        (1, 1),
        (one, 1),
        (2 * one - 1, 1),
        (2 * one, 2),
        (7 * one + 5, 7),
        (1 << 20, 10),
    ] {
        let from = FetchFrom {
            partition: 0,
            offset: 0,
            max_bytes,
        };
        let data = calls::fetch(&mut raw, &topic, AT_ONCE, from);
        assert_eq!(
            calls::whole_batches(&data).len(),
            expected,
            "partition max bytes {max_bytes}"
        );
    }
}

#[test]
fn f06_a_fetch_inside_a_batch_returns_the_whole_batch() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f06"), 1, &[]);
    for _ in 0..2 {
        calls::append(&mut raw, &topic, 0, BatchBuilder::of(&["a", "b"]).build());
    }
    for (offset, base) in [(0, 0), (1, 0), (2, 2), (3, 2)] {
        let data = calls::fetch(&mut raw, &topic, AT_ONCE, FetchFrom::new(0, offset));
        assert_eq!(
            calls::whole_batches(&data)[0].base_offset(),
            base,
            "fetch at {offset}"
        );
    }
}

/// All bytes of partition 0, as fetches bring them.
fn everything(raw: &mut Raw, topic: &TopicRef) -> Vec<u8> {
    let (mut next, mut bytes) = (0, Vec::new());
    loop {
        let data = calls::fetch(raw, topic, AT_ONCE, FetchFrom::new(0, next));
        let batches = calls::whole_batches(&data);
        let Some(last) = batches.last() else {
            return bytes;
        };
        assert_eq!(batches[0].base_offset(), next);
        next = last.last_offset() + 1;
        bytes.extend_from_slice(&data.records.unwrap_or_default());
    }
}

#[test]
fn what_is_fetched_again_goes_out_without_a_copy_and_is_the_same() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    let mut raw = broker.connect();
    let small = [("segment.bytes", "1048576")];
    let topic = create_topic(&mut raw, &broker.fresh("again"), 1, &small);
    for size in (0..120).map(|n| 500 + n * 7_919 % 60_000) {
        calls::append(&mut raw, &topic, 0, BatchBuilder::sized(size).build());
    }
    let uncopied = || {
        let page = metrics::scrape(broker.admin());
        let name = "seawall_read_uncopied_bytes_total";
        let of_dir = page
            .lines()
            .find(|line| line.starts_with(&format!("{name}{{")));
        let value = of_dir.and_then(|line| line.rsplit(' ').next());
        value.map_or(0.0, |value| value.parse::<f64>().expect("a number"))
    };
    let first = everything(&mut raw, &topic);
    let (copied, all) = (uncopied(), first.len());
    for _ in 0..3 {
        assert!(everything(&mut raw, &topic) == first);
    }
    #[expect(clippy::cast_precision_loss, reason = "a few megabytes")]
    let most = 2.0 * all as f64;
    assert!(
        uncopied() - copied > most,
        "{} of {all}",
        uncopied() - copied
    );
}

#[test]
fn f07_at_the_log_end_it_is_empty_after_the_wait_and_outside_an_error() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f07"), 1, &[]);
    calls::append(&mut raw, &topic, 0, one_at(1).build());
    let started = Instant::now();
    let limits = FetchLimits {
        max_wait_ms: 300,
        ..AT_ONCE
    };
    let at_end = calls::fetch(&mut raw, &topic, limits, FetchFrom::new(0, 1));
    assert_eq!(
        (at_end.error_code, at_end.records.unwrap_or_default().len()),
        (codes::NONE, 0)
    );
    assert!(
        started.elapsed() >= Duration::from_millis(250),
        "waited {:?}",
        started.elapsed()
    );
    for offset in [2, 1_000_000, -1, i64::MAX] {
        let outside = calls::fetch(&mut raw, &topic, limits, FetchFrom::new(0, offset));
        assert_eq!(
            outside.error_code,
            codes::OFFSET_OUT_OF_RANGE,
            "fetch at {offset}"
        );
        let marks = (
            outside.high_watermark,
            outside.last_stable_offset,
            outside.log_start_offset,
        );
        assert_eq!(marks, (-1, -1, -1), "fetch at {offset}");
    }
}

#[test]
fn f08_parked_fetches_are_woken_by_an_append() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f08"), 1, &[]);
    let mut parked = park(&broker, &topic, times(300, 5_000), 1);
    if !broker.is_kafka() {
        let threads = broker.proc_status("Threads");
        assert!(
            threads < 100,
            "{threads} threads with {} parked fetches",
            parked.len()
        );
    }
    calls::append(&mut raw, &topic, 0, one_at(1).build());
    for (waiter, correlation) in &mut parked {
        let answer = waiter.receive::<FetchRequest>(12, *correlation);
        assert_eq!(
            calls::whole_batches(&answer.responses[0].partitions[0]).len(),
            1
        );
    }
}

#[test]
fn f08_parked_fetches_are_released_when_their_clients_leave() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f08"), 1, &[]);
    let open = || {
        std::fs::read_dir(format!("/proc/{}/fd", broker.pid()))
            .expect("descriptors")
            .count()
    };
    let before = open();
    let parked = park(&broker, &topic, times(300, 5_000), 1 << 30);
    let count = parked.len();
    wait::until("all are connected", SOON, || open() >= before + count);
    drop(parked);
    wait::until("all descriptors are closed", SOON, || open() <= before);
    assert_eq!(calls::append(&mut raw, &topic, 0, one_at(1).build()), 0);
}

/// Fetches at the log end, each on a connection of its own, with the longest wait there is.
fn park(broker: &Broker, topic: &TopicRef, count: usize, min_bytes: i32) -> Vec<(Raw, i32)> {
    let limits = FetchLimits {
        max_wait_ms: i32::MAX,
        min_bytes,
        max_bytes: 50 << 20,
    };
    let request = requests::fetch(12, topic, limits, &[FetchFrom::new(0, 0)]);
    (0..count)
        .map(|_| {
            let mut raw = broker.connect();
            let correlation = raw.send(12, &request);
            (raw, correlation)
        })
        .collect()
}

#[test]
fn f08_a_fetch_waits_for_its_minimum_and_no_longer_than_it_asked() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f08"), 1, &[]);
    calls::append(&mut raw, &topic, 0, BatchBuilder::sized(1_000).build());
    let limits = FetchLimits {
        max_wait_ms: 400,
        min_bytes: 1 << 20,
        max_bytes: 50 << 20,
    };
    let started = Instant::now();
    let data = calls::fetch(&mut raw, &topic, limits, FetchFrom::new(0, 0));
    assert!(
        started.elapsed() >= Duration::from_millis(350),
        "waited {:?}",
        started.elapsed()
    );
    assert_eq!(calls::whole_batches(&data).len(), 1);
}

#[test]
fn f08_a_fetch_with_an_error_in_it_does_not_wait() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f08"), 2, &[]);
    let limits = FetchLimits {
        max_wait_ms: 60_000,
        min_bytes: 1,
        max_bytes: 50 << 20,
    };
    let parts = [FetchFrom::new(0, 0), FetchFrom::new(1, 99)];
    let answer = raw.call::<FetchRequest>(12, &requests::fetch(12, &topic, limits, &parts));
    let errors: BTreeMap<i32, i16> = answer.responses[0]
        .partitions
        .iter()
        .map(|data| (data.partition_index, data.error_code))
        .collect();
    assert_eq!(errors.get(&1), Some(&codes::OFFSET_OUT_OF_RANGE));
}

#[test]
fn f08_a_fetch_of_no_partition_has_nothing_to_wait_for() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f08"), 1, &[]);
    // What the Java client sends at a close, to end a session that it does not have.
    let limits = FetchLimits {
        max_wait_ms: 5_000,
        ..AT_ONCE
    };
    for version in [7, 12, 18] {
        let mut request = requests::fetch(version, &topic, limits, &[]);
        request.topics.clear();
        let started = Instant::now();
        let answer = raw.call::<FetchRequest>(version, &request);
        assert_eq!(
            (answer.error_code, answer.responses.len()),
            (codes::NONE, 0),
            "v{version}"
        );
        assert!(
            started.elapsed() < Duration::from_secs(4),
            "v{version}: waited {:?}",
            started.elapsed()
        );
    }
}

#[test]
fn f10_no_epoch_ends_below_what_a_reader_was_shown() {
    let mut broker = crate::setup().set("log.flush.interval.ms", "1000").start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "f10", 1, &[]);
    let mut shown: BTreeMap<i32, i64> = BTreeMap::new();
    for round in 0..times(4, 30) {
        let writer = write_until_gone(&broker, &topic);
        let mut reader = broker.connect();
        let next = shown.values().max().copied().unwrap_or(0);
        wait::until("new records are shown", SOON, || {
            for batch in calls::read_from(&mut reader, &topic, 0, next) {
                shown.insert(batch.leader_epoch(), batch.last_offset() + 1);
            }
            shown.values().max().copied().unwrap_or(0) > next + 100
        });
        broker.kill9();
        writer.join().expect("the writer");
        broker.start_again();
        let mut raw = broker.connect();
        for (epoch, end) in &shown {
            let request = requests::offset_for_leader_epoch(&topic.name, 0, *epoch);
            let answer = raw.call::<OffsetForLeaderEpochRequest>(4, &request);
            let part = &answer.topics[0].partitions[0];
            assert_eq!(part.error_code, codes::NONE, "round {round}, epoch {epoch}");
            assert!(
                part.end_offset >= *end,
                "round {round}: epoch {epoch} ends at {}, shown {end}",
                part.end_offset
            );
        }
    }
}

/// Produces with acks 1 until the broker is killed.
fn write_until_gone(broker: &Broker, topic: &TopicRef) -> thread::JoinHandle<()> {
    let mut raw = broker.connect();
    let request = requests::produce(
        calls::PRODUCE,
        topic,
        1,
        vec![(0, Some(BatchBuilder::of(&["a", "b"]).build()))],
    );
    thread::spawn(move || {
        loop {
            raw.send(calls::PRODUCE, &request);
            if raw.read_frame().is_none() {
                return;
            }
        }
    })
}

#[test]
fn f11_every_requested_partition_appears_in_the_answer() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f11"), 5, &[]);
    calls::append(&mut raw, &topic, 3, one_at(1).build());
    let parts: Vec<FetchFrom> = (0..7)
        .map(|partition| FetchFrom::new(partition, 0))
        .collect();
    for version in 4..=18 {
        let answer =
            raw.call::<FetchRequest>(version, &requests::fetch(version, &topic, AT_ONCE, &parts));
        let mut got: Vec<(i32, i16)> = answer.responses[0]
            .partitions
            .iter()
            .map(|data| (data.partition_index, data.error_code))
            .collect();
        got.sort_unstable();
        let unknown = codes::UNKNOWN_TOPIC_OR_PARTITION;
        assert_eq!(
            got,
            [
                (0, 0),
                (1, 0),
                (2, 0),
                (3, 0),
                (4, 0),
                (5, unknown),
                (6, unknown)
            ],
            "v{version}"
        );
    }
}

#[test]
fn f12_answers_carry_the_marks_of_the_log() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("f12"), 1, &[]);
    calls::append(
        &mut raw,
        &topic,
        0,
        BatchBuilder::of(&["a", "b", "c"]).build(),
    );
    for version in 4..=18 {
        for isolation in [0, 1] {
            let mut request = requests::fetch(version, &topic, AT_ONCE, &[FetchFrom::new(0, 0)]);
            request.isolation_level = isolation;
            let data = raw
                .call::<FetchRequest>(version, &request)
                .responses
                .remove(0)
                .partitions
                .remove(0);
            let log_start = if version >= 5 { 0 } else { -1 };
            let got = (
                data.error_code,
                data.high_watermark,
                data.last_stable_offset,
                data.log_start_offset,
            );
            assert_eq!(got, (codes::NONE, 3, 3, log_start), "v{version}");
            let aborted = data.aborted_transactions.map(|list| list.len());
            assert_eq!(
                aborted,
                (isolation == 1).then_some(0),
                "aborted transactions at v{version}, {isolation}"
            );
        }
    }
}

#[test]
fn f13_a_recreated_topic_shows_nothing_of_the_old_one() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("f13");
    let old = create_topic(&mut raw, &name, 1, &[]);
    for _ in 0..5 {
        calls::append(&mut raw, &old, 0, BatchBuilder::of(&["old"]).build());
    }
    let deleted = raw.call::<DeleteTopicsRequest>(6, &requests::delete_topics(6, &[&name]));
    assert_eq!(deleted.responses[0].error_code, codes::NONE);
    let new = recreate(&mut raw, &name);
    assert_ne!(old.id, new.id);
    let by_name = calls::fetch(&mut raw, &new, AT_ONCE, FetchFrom::new(0, 0));
    assert_eq!(
        (
            by_name.error_code,
            by_name.records.unwrap_or_default().len()
        ),
        (codes::NONE, 0)
    );
    let beyond = calls::fetch(&mut raw, &new, AT_ONCE, FetchFrom::new(0, 5));
    assert_eq!(beyond.error_code, codes::OFFSET_OUT_OF_RANGE);
    for version in 13..=18 {
        let request = requests::fetch(version, &old, AT_ONCE, &[FetchFrom::new(0, 0)]);
        let answer = raw.call::<FetchRequest>(version, &request);
        assert_eq!(
            answer.responses[0].partitions[0].error_code,
            codes::UNKNOWN_TOPIC_ID,
            "v{version}"
        );
    }
}

/// Creates a topic again; a broker may need a moment until the name is free.
fn recreate(raw: &mut Raw, name: &str) -> TopicRef {
    let id = wait::until_some("the name is free again", SOON, || {
        let request = requests::create_topics(vec![requests::topic(name, 1, &[])]);
        let answer = raw.call::<CreateTopicsRequest>(7, &request);
        let topic = &answer.topics[0];
        let expected = [codes::NONE, codes::TOPIC_ALREADY_EXISTS];
        assert!(expected.contains(&topic.error_code), "{topic:?}");
        (topic.error_code == codes::NONE).then_some(topic.topic_id)
    });
    calls::until_usable(raw, name, 1);
    TopicRef {
        name: name.to_owned(),
        id,
    }
}
