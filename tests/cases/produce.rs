//! What a Produce gets: w01 to w14.

use bytes::{Bytes, BytesMut};
use seawall_testkit::batch::at;
use seawall_testkit::calls::{self, create_topic, end_offset};
use seawall_testkit::kafka_wire::{CreateTopicsRequest, ProduceRequest};
use seawall_testkit::kafka_wire_core::Uuid;
use seawall_testkit::requests::{self, AT_ONCE, FetchFrom, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Codec, Raw, Rec};

use super::codes;
use crate::{broker, not_for_kafka, setup, times};

/// Each input goes to partition 0 beside a good batch for partition 1, which must succeed whatever becomes of the first.
/// (Kafka refuses the whole request for some of them, so there each goes alone.)
fn check(broker: &Broker, inputs: &[(&str, Bytes, i16)]) {
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w"), 2, &[]);
    for (what, records, expected) in inputs {
        let before = end_offset(&mut raw, &topic, 0);
        let mut parts = vec![(0, Some(records.clone()))];
        if !broker.is_kafka() {
            parts.push((1, Some(BatchBuilder::of(&["good"]).build())));
        }
        for answer in calls::produce_at(&mut raw, calls::PRODUCE, &topic, -1, parts) {
            let wanted = if answer.index == 0 {
                *expected
            } else {
                codes::NONE
            };
            let got = (answer.error_code, &answer.error_message);
            assert_eq!(got.0, wanted, "{what}, partition {}: {got:?}", answer.index);
        }
        let grown = end_offset(&mut raw, &topic, 0) - before;
        assert_eq!(
            grown > 0,
            *expected == codes::NONE,
            "{what}: partition 0 grew by {grown}"
        );
    }
}

fn three() -> BatchBuilder {
    BatchBuilder::of(&["a", "b", "c"])
}

fn joined(first: &[u8], second: &[u8]) -> Bytes {
    let mut both = BytesMut::from(first);
    both.extend_from_slice(second);
    both.freeze()
}

#[test]
fn w01_counts_and_lengths_that_lie_are_refused_and_write_nothing() {
    let whole = three().build();
    let half = whole.slice(..whole.len() / 2);
    let empty = BatchBuilder::new(Vec::new());
    check(
        &broker(),
        &[
            (
                "three records, last offset delta 0",
                three().last_offset_delta(0).build(),
                codes::INVALID_RECORD,
            ),
            (
                "three records, last offset delta -1",
                three().last_offset_delta(-1).build(),
                codes::INVALID_RECORD,
            ),
            (
                "last offset delta 2^31-1",
                three().last_offset_delta(i32::MAX).build(),
                codes::INVALID_RECORD,
            ),
            ("count 0", three().count(0).build(), codes::INVALID_RECORD),
            ("count -1", three().count(-1).build(), codes::INVALID_RECORD),
            ("an empty batch", empty.build(), codes::INVALID_RECORD),
            (
                "batch length below the minimum",
                three().batch_length(20).build(),
                codes::CORRUPT_MESSAGE,
            ),
            (
                "batch length 0",
                three().batch_length(0).build(),
                codes::CORRUPT_MESSAGE,
            ),
            (
                "batch length -1",
                three().batch_length(-1).build(),
                codes::CORRUPT_MESSAGE,
            ),
            (
                "batch length beyond the bytes",
                three().batch_length(9_999).build(),
                codes::INVALID_RECORD,
            ),
            ("half a batch", half.clone(), codes::INVALID_RECORD),
            (
                "a whole batch and half a one",
                joined(&whole, &half),
                codes::NONE,
            ),
            (
                "two whole batches",
                joined(&whole, &whole),
                codes::INVALID_RECORD,
            ),
            ("no bytes", Bytes::new(), codes::INVALID_RECORD),
            (
                "base offset 5",
                three().base_offset(5).build(),
                codes::INVALID_RECORD,
            ),
            (
                "a wrong CRC",
                three().crc(1).build(),
                codes::CORRUPT_MESSAGE,
            ),
            ("a good batch", whole, codes::NONE),
        ],
    );
}

#[test]
fn w01_a_whole_batch_followed_by_half_a_one_is_stored_alone() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w01"), 1, &[]);
    let whole = three().build();
    calls::append(&mut raw, &topic, 0, joined(&whole, &whole[..70]));
    calls::append(&mut raw, &topic, 0, whole.clone());
    let stored = calls::read_from(&mut raw, &topic, 0, 0);
    assert_eq!(stored.len(), 2);
    assert!(stored.iter().all(|batch| batch.bytes.len() == whole.len()));
}

#[test]
fn w01_null_records_are_refused() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w01"), 1, &[]);
    for version in 3..=12 {
        let answers = calls::produce_at(&mut raw, version, &topic, -1, vec![(0, None)]);
        assert_eq!(
            answers[0].error_code,
            codes::INVALID_RECORD,
            "null records at v{version}"
        );
    }
}

#[test]
fn w02_a_refused_batch_is_named_with_a_message_from_v8_on() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w02"), 1, &[]);
    for version in 8..=13 {
        let lying = three().count(2).build();
        let answer =
            calls::produce_at(&mut raw, version, &topic, -1, vec![(0, Some(lying))]).remove(0);
        assert_eq!(answer.error_code, codes::INVALID_RECORD, "v{version}");
        let named = answer.record_errors.len() == 1
            || answer.error_message.is_some_and(|text| !text.is_empty());
        assert!(
            named || broker.is_kafka(),
            "record errors or a message at v{version}"
        );
        assert_eq!(
            answer.base_offset, -1,
            "base offset of a refused batch at v{version}"
        );
    }
}

#[test]
fn w03_old_and_unknown_formats_are_refused_and_the_connection_stays() {
    check(
        &broker(),
        &[
            ("magic 0", three().magic(0).build(), codes::INVALID_RECORD),
            ("magic 1", three().magic(1).build(), codes::INVALID_RECORD),
            ("magic 3", three().magic(3).build(), codes::CORRUPT_MESSAGE),
            (
                "magic -1",
                three().magic(-1).build(),
                codes::CORRUPT_MESSAGE,
            ),
            ("magic 2", three().build(), codes::NONE),
        ],
    );
}

#[test]
fn w04_a_batch_above_the_limit_is_too_large_and_its_neighbour_is_stored() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(
        &mut raw,
        &broker.fresh("w04"),
        2,
        &[("max.message.bytes", "1000")],
    );
    let at_limit = BatchBuilder::sized(500).build();
    assert_eq!(
        calls::produce(&mut raw, &topic, 0, -1, at_limit).error_code,
        codes::NONE
    );
    let parts = vec![
        (0, Some(BatchBuilder::sized(1_000).build())),
        (1, Some(BatchBuilder::sized(10).build())),
    ];
    let answers = calls::produce_at(&mut raw, calls::PRODUCE, &topic, -1, parts);
    for answer in answers {
        let expected = if answer.index == 0 {
            codes::MESSAGE_TOO_LARGE
        } else {
            codes::NONE
        };
        assert_eq!(answer.error_code, expected, "partition {}", answer.index);
    }
}

#[test]
fn w04_the_limit_is_on_the_whole_batch_to_the_byte() {
    let broker = broker();
    let mut raw = broker.connect();
    let batch = BatchBuilder::sized(2_000).build();
    let exactly = batch.len().to_string();
    let topic = create_topic(
        &mut raw,
        &broker.fresh("w04"),
        1,
        &[("max.message.bytes", &exactly)],
    );
    assert_eq!(
        calls::produce(&mut raw, &topic, 0, -1, batch).error_code,
        codes::NONE
    );
    let larger = BatchBuilder::sized(2_001).build();
    assert_eq!(
        calls::produce(&mut raw, &topic, 0, -1, larger).error_code,
        codes::MESSAGE_TOO_LARGE
    );
}

#[test]
fn w05_acks_0_with_an_error_closes_the_connection_and_answers_nothing() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w05"), 1, &[]);
    let nowhere = TopicRef {
        name: broker.fresh("no-such"),
        id: topic.id,
    };
    let inputs = [
        (
            "an unknown topic",
            &nowhere,
            three().build(),
            "UNKNOWN_TOPIC_OR_PARTITION",
        ),
        (
            "a bad CRC",
            &topic,
            three().crc(7).build(),
            "CORRUPT_MESSAGE",
        ),
        (
            "a bad count",
            &topic,
            three().count(1).build(),
            "INVALID_RECORD",
        ),
    ];
    for (what, topic, records, name) in inputs {
        let mut raw = broker.connect();
        raw.send(
            calls::PRODUCE,
            &requests::produce(calls::PRODUCE, topic, 0, vec![(0, Some(records))]),
        );
        raw.expect_closed(what);
        if !broker.is_kafka() {
            wait::until(&format!("the log names {name}"), SOON, || {
                broker.log().contains(name)
            });
        }
    }
}

fn alternate(broker: &Broker, rounds: usize) {
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w06"), 1, &[]);
    let mut writer = raw.second_handle();
    let batch = BatchBuilder::of(&["x"]).build();
    let sender = std::thread::spawn(move || {
        for round in 0..rounds {
            let parts = vec![(0, Some(batch.clone()))];
            let request = requests::produce(calls::PRODUCE, &topic, [0, 1, -1][round % 3], parts);
            writer.send(calls::PRODUCE, &request);
        }
    });
    let first = raw.next_correlation();
    for round in (0..rounds).filter(|round| round % 3 != 0) {
        let correlation = first + i32::try_from(round).expect("few rounds");
        let answer = raw.receive::<ProduceRequest>(calls::PRODUCE, correlation);
        let part = &answer.responses[0].partition_responses[0];
        assert_eq!(
            (part.error_code, usize::try_from(part.base_offset).ok()),
            (codes::NONE, Some(round))
        );
    }
    sender.join().expect("the sender");
}

#[test]
fn w06_alternating_acks_are_answered_in_order_and_acks_0_never() {
    alternate(&broker(), times(3_000, 100_000));
}

#[test]
fn w07_acks_0_followed_at_once_by_fin_is_appended() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w07"), 1, &[]);
    let count = times(500, 20_000);
    let mut sender = broker.connect();
    for _ in 0..count {
        let records = Some(BatchBuilder::of(&["last words"]).build());
        sender.send(
            calls::PRODUCE,
            &requests::produce(calls::PRODUCE, &topic, 0, vec![(0, records)]),
        );
    }
    sender.finish_sending();
    sender.expect_closed("after a FIN");
    let count = i64::try_from(count).expect("few");
    wait::until("everything that arrived is appended", SOON, || {
        end_offset(&mut raw, &topic, 0) == count
    });
}

#[test]
fn w08_log_append_time_is_the_brokers() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(
        &mut raw,
        &broker.fresh("w08"),
        1,
        &[("message.timestamp.type", "LogAppendTime")],
    );
    let answer = calls::produce(&mut raw, &topic, 0, -1, three().build());
    assert_eq!(answer.error_code, codes::NONE);
    assert!(
        answer.log_append_time_ms > 1_600_000_000_000,
        "a time of ours: {}",
        answer.log_append_time_ms
    );
    let stored = calls::read_from(&mut raw, &topic, 0, 0).remove(0);
    assert_eq!(stored.attributes() & 0x08, 0x08, "the type bit");
    assert_eq!(stored.max_timestamp(), answer.log_append_time_ms);
    assert!(stored.crc_holds());
    assert_eq!(
        stored.payload(),
        three().build().slice(at::RECORD_COUNT + 4..),
        "the records as sent"
    );
}

#[test]
fn w08_create_time_keeps_the_producers_time_and_clears_a_stray_append_time_bit() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w08"), 1, &[]);
    let records = BatchBuilder::new(vec![Rec::value("a").at(1_234)])
        .attribute_bits(0x08)
        .build();
    let answer = calls::produce(&mut raw, &topic, 0, -1, records);
    assert_eq!(
        (answer.error_code, answer.log_append_time_ms),
        (codes::NONE, -1)
    );
    let stored = calls::read_from(&mut raw, &topic, 0, 0).remove(0);
    assert_eq!(
        (stored.attributes() & 0x08, stored.max_timestamp()),
        (0, 1_234)
    );
}

#[test]
fn w08_a_wrong_max_timestamp_is_stored_as_sent() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w08"), 1, &[]);
    calls::append(&mut raw, &topic, 0, three().max_timestamp(77_777).build());
    assert_eq!(
        calls::read_from(&mut raw, &topic, 0, 0)[0].max_timestamp(),
        77_777
    );
}

#[test]
fn w09_bits_that_only_the_broker_may_set_are_refused() {
    check(
        &broker(),
        &[
            (
                "the control bit",
                three().attribute_bits(0x20).build(),
                codes::INVALID_RECORD,
            ),
            (
                "a producer id without a sequence",
                three().producer(4_000, 0, -1).build(),
                codes::INVALID_RECORD,
            ),
            (
                "a negative sequence",
                three().producer(4_000, 0, -7).build(),
                codes::INVALID_RECORD,
            ),
        ],
    );
}

#[test]
fn w09_a_transactional_batch_without_a_transaction_is_refused() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w09"), 1, &[]);
    let (id, epoch) = calls::new_producer(&mut raw);
    let transactional = three().attribute_bits(0x10);
    // TRANSACTIONAL_ID_AUTHORIZATION_FAILED is what Kafka says to a transactional batch without a transactional id.
    for (what, records, expected) in [
        (
            "with a producer id",
            transactional.clone().producer(id, epoch, 0),
            [53, 53],
        ),
        (
            "without a producer id",
            transactional,
            [codes::INVALID_RECORD, 53],
        ),
    ] {
        let answer = calls::produce(&mut raw, &topic, 0, -1, records.build());
        assert!(
            expected.contains(&answer.error_code),
            "{what}: {}",
            answer.error_code
        );
    }
    assert_eq!(end_offset(&mut raw, &topic, 0), 0);
}

#[test]
fn w09_unknown_attribute_bits_are_stored_as_sent() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w09"), 1, &[]);
    for bits in [0x40, 0x100, 0x4000] {
        let at = calls::append(&mut raw, &topic, 0, three().attribute_bits(bits).build());
        let stored = calls::read_from(&mut raw, &topic, 0, at).remove(0);
        assert_eq!(stored.attributes(), bits, "bits {bits:#x}");
    }
}

#[test]
fn w10_unknown_codecs_are_refused() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    check(
        &broker,
        &[
            (
                "codec 5",
                three().attribute_bits(5).build(),
                codes::UNSUPPORTED_COMPRESSION,
            ),
            (
                "codec 6",
                three().attribute_bits(6).build(),
                codes::UNSUPPORTED_COMPRESSION,
            ),
            (
                "codec 7",
                three().attribute_bits(7).build(),
                codes::UNSUPPORTED_COMPRESSION,
            ),
        ],
    );
}

#[test]
fn w10_zstd_is_refused_below_produce_v7() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w10"), 1, &[]);
    for version in [3, 6] {
        let zstd = three().attribute_bits(4).build();
        let answer =
            calls::produce_at(&mut raw, version, &topic, -1, vec![(0, Some(zstd))]).remove(0);
        assert_eq!(
            answer.error_code,
            codes::UNSUPPORTED_COMPRESSION,
            "v{version}"
        );
    }
}

#[test]
fn w11_a_sequence_wraps_from_the_largest_to_zero() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w11"), 1, &[]);
    let (id, epoch) = calls::new_producer(&mut raw);
    let batch = |sequence| {
        BatchBuilder::of(&["x"])
            .producer(id, epoch, sequence)
            .build()
    };
    for (sequence, offset) in [(i32::MAX - 1, 0), (i32::MAX, 1), (0, 2), (1, 3)] {
        assert_eq!(
            calls::append(&mut raw, &topic, 0, batch(sequence)),
            offset,
            "sequence {sequence}"
        );
    }
}

#[test]
fn w11_a_sequence_wraps_inside_a_batch() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w11"), 1, &[]);
    let (id, epoch) = calls::new_producer(&mut raw);
    let first = three().producer(id, epoch, i32::MAX - 1).build();
    assert_eq!(calls::append(&mut raw, &topic, 0, first), 0);
    let next = three().producer(id, epoch, 1).build();
    assert_eq!(calls::append(&mut raw, &topic, 0, next), 3);
}

#[test]
fn w12_a_record_without_a_key_is_refused_by_a_compacted_topic() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(
        &mut raw,
        &broker.fresh("w12"),
        1,
        &[("cleanup.policy", "compact")],
    );
    for codec in [Codec::None, Codec::Gzip] {
        let keyless =
            BatchBuilder::new(vec![Rec::value("a").keyed("k"), Rec::value("b")]).codec(codec);
        let answer = calls::produce(&mut raw, &topic, 0, -1, keyless.build());
        assert_eq!(
            answer.error_code,
            codes::INVALID_RECORD,
            "keyless, {codec:?}"
        );
        let keyed = BatchBuilder::new(vec![Rec::value("a").keyed("k"), Rec::value("b").keyed("")])
            .codec(codec);
        assert_eq!(
            calls::produce(&mut raw, &topic, 0, -1, keyed.build()).error_code,
            codes::NONE,
            "keyed, {codec:?}"
        );
    }
}

#[test]
fn w13_compression_by_the_broker_is_refused_with_the_reason() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    let mut raw = broker.connect();
    let request = requests::create_topics(vec![requests::topic(
        "w13",
        1,
        &[("compression.type", "zstd")],
    )]);
    let answer = raw.call::<CreateTopicsRequest>(calls::CREATE_TOPICS, &request);
    assert_eq!(answer.topics[0].error_code, codes::INVALID_CONFIG);
    let message = answer.topics[0].error_message.clone().unwrap_or_default();
    assert!(
        message.contains("compression.type"),
        "the reason: {message}"
    );
    create_topic(&mut raw, "w13", 1, &[("compression.type", "producer")]);
}

#[test]
fn w14_fifty_partitions_in_one_request_are_all_appended() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("w14"), 50, &[]);
    for round in 0..3 {
        let parts = (0..50)
            .map(|index| (index, Some(BatchBuilder::of(&["x"]).build())))
            .collect();
        let answers = calls::produce_at(&mut raw, calls::PRODUCE, &topic, -1, parts);
        assert!(
            answers
                .iter()
                .all(|answer| (answer.error_code, answer.base_offset) == (codes::NONE, round))
        );
    }
}

#[test]
fn every_version_of_produce_stores_and_answers() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("versions"), 1, &[]);
    for (version, offset) in (3..=13).zip(0..) {
        for_acks(&mut raw, version, &topic, offset);
    }
}

fn for_acks(raw: &mut Raw, version: i16, topic: &TopicRef, round: i64) {
    for (acks, at) in [(1, round * 2), (-1, round * 2 + 1)] {
        let records = Some(BatchBuilder::of(&["x"]).build());
        let answer = calls::produce_at(raw, version, topic, acks, vec![(0, records)]).remove(0);
        assert_eq!(
            (answer.error_code, answer.base_offset),
            (codes::NONE, at),
            "v{version} acks {acks}"
        );
        if version >= 5 {
            assert_eq!(answer.log_start_offset, 0, "v{version} acks {acks}");
        }
    }
}

#[test]
fn min_insync_replicas_of_two_is_no_obstacle_on_one_replica() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(
        &mut raw,
        &broker.fresh("isr"),
        1,
        &[("min.insync.replicas", "2")],
    );
    assert_eq!(calls::append(&mut raw, &topic, 0, three().build()), 0);
}

#[test]
fn negative_timestamps_are_accepted() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("timestamps"), 1, &[]);
    for time in [-1, -2] {
        let batch = BatchBuilder::new(vec![Rec::value("x").at(time)]).build();
        assert_eq!(
            calls::produce(&mut raw, &topic, 0, -1, batch).error_code,
            codes::NONE,
            "timestamp {time}"
        );
    }
}

#[test]
fn acks_other_than_0_1_and_all_are_refused() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("acks"), 1, &[]);
    for acks in [2, -2, i16::MAX] {
        let answer = calls::produce(&mut raw, &topic, 0, acks, three().build());
        assert_eq!(
            answer.error_code, 21,
            "INVALID_REQUIRED_ACKS for acks {acks}"
        );
    }
    assert_eq!(end_offset(&mut raw, &topic, 0), 0);
}

#[test]
fn unknown_topics_and_partitions_are_named_beside_what_succeeds() {
    let broker = setup().set("auto.create.topics.enable", "false").start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "known", 1, &[]);
    let good = || Some(three().build());
    let answers = calls::produce_at(
        &mut raw,
        calls::PRODUCE,
        &topic,
        -1,
        vec![(0, good()), (1, good()), (-1, good())],
    );
    for answer in answers {
        let expected = if answer.index == 0 {
            codes::NONE
        } else {
            codes::UNKNOWN_TOPIC_OR_PARTITION
        };
        assert_eq!(answer.error_code, expected, "partition {}", answer.index);
    }
    let nowhere = TopicRef {
        name: "unknown".to_owned(),
        id: Uuid::from_bytes([9; 16]),
    };
    let by_name = calls::produce(&mut raw, &nowhere, 0, -1, three().build());
    assert_eq!(by_name.error_code, codes::UNKNOWN_TOPIC_OR_PARTITION);
    let by_id = calls::produce_at(&mut raw, 13, &nowhere, -1, vec![(0, good())]).remove(0);
    assert_eq!(by_id.error_code, codes::UNKNOWN_TOPIC_ID);
    let data = calls::fetch(&mut raw, &nowhere, AT_ONCE, FetchFrom::new(0, 0));
    assert_eq!(data.error_code, codes::UNKNOWN_TOPIC_OR_PARTITION);
}
