//! Idempotent producers: one copy of each batch, whatever is retried and whoever is killed. i01, i02, i05 to i10 as far as
//! they are seen from outside.

use std::collections::HashSet;
use std::fs;

use seawall_testkit::calls::{self, create_topic, end_offset};
use seawall_testkit::kafka_wire::ProduceRequest;
use seawall_testkit::requests::{self, TopicRef};
use seawall_testkit::{BatchBuilder, Broker, Bytes, Raw, disk};

use super::codes;
use crate::{broker, not_for_kafka, setup, times};

/// A producer with its own numbering.
struct Producer {
    id: i64,
    epoch: i16,
}

impl Producer {
    fn new(raw: &mut Raw) -> Self {
        let (id, epoch) = calls::new_producer(raw);
        Self { id, epoch }
    }

    /// The one-record batch with a sequence number; the same number is the same batch.
    fn batch(&self, sequence: i32) -> Bytes {
        BatchBuilder::of(&[&format!("record {sequence}")])
            .producer(self.id, self.epoch, sequence)
            .build()
    }

    /// Sends a batch; error code and base offset.
    fn send(&self, raw: &mut Raw, topic: &TopicRef, sequence: i32) -> (i16, i64) {
        let answer = calls::produce(raw, topic, 0, -1, self.batch(sequence));
        (answer.error_code, answer.base_offset)
    }
}

fn topic_and_producer(broker: &Broker, raw: &mut Raw, stem: &str) -> (TopicRef, Producer) {
    let topic = create_topic(raw, &broker.fresh(stem), 1, &[]);
    let producer = Producer::new(raw);
    (topic, producer)
}

#[test]
fn i01_a_retry_after_a_crash_gets_the_original_offset_and_one_copy() {
    let mut broker = setup().set("num.partitions", "1").start();
    let mut raw = broker.connect();
    let (topic, producer) = topic_and_producer(&broker, &mut raw, "i01");
    for round in 0..times(4, 30) {
        let sequence = i32::try_from(round * 2).expect("few");
        let offset = i64::from(sequence);
        assert_eq!(
            producer.send(&mut raw, &topic, sequence),
            (codes::NONE, offset)
        );
        // The next one may or may not reach the disk before the kill: nobody reads its answer.
        let records = vec![(0, Some(producer.batch(sequence + 1)))];
        raw.send(
            calls::PRODUCE,
            &requests::produce(calls::PRODUCE, &topic, -1, records),
        );
        broker.crash_and_restart();
        raw = broker.connect();
        assert_eq!(
            producer.send(&mut raw, &topic, sequence + 1),
            (codes::NONE, offset + 1),
            "round {round}"
        );
        assert_eq!(
            producer.send(&mut raw, &topic, sequence),
            (codes::NONE, offset),
            "an acknowledged one"
        );
        assert_eq!(end_offset(&mut raw, &topic, 0), offset + 2);
    }
}

#[test]
fn i02_a_retry_of_a_batch_in_a_closed_segment_gets_its_offset() {
    let broker = broker();
    let mut raw = broker.connect();
    // The smallest segments there are; every batch below fills one.
    let topic = create_topic(
        &mut raw,
        &broker.fresh("i02"),
        1,
        &[("segment.bytes", "1048576")],
    );
    let producer = Producer::new(&mut raw);
    let other = BatchBuilder::sized(700_000).build();
    assert_eq!(producer.send(&mut raw, &topic, 0), (codes::NONE, 0));
    for offset in 1..4 {
        assert_eq!(calls::append(&mut raw, &topic, 0, other.clone()), offset);
    }
    if !broker.is_kafka() {
        let segments = disk::files(&broker.partition_dir(&topic.name, 0), ".log");
        assert!(segments.len() >= 2, "{segments:?}");
    }
    assert_eq!(producer.send(&mut raw, &topic, 0), (codes::NONE, 0));
    assert_eq!(producer.send(&mut raw, &topic, 1), (codes::NONE, 4));
}

#[test]
fn i05_no_producer_id_is_ever_handed_out_twice() {
    let mut broker = setup().set("num.partitions", "1").start();
    let mut seen = HashSet::new();
    for round in 0..4 {
        let mut raw = broker.connect();
        for _ in 0..times(300, 3_000) {
            let (id, epoch) = calls::new_producer(&mut raw);
            assert_eq!(epoch, 0);
            assert!(
                seen.insert(id),
                "round {round}: id {id} was handed out before"
            );
        }
        if round % 2 == 0 {
            broker.crash_and_restart();
        } else {
            broker.stop_and_restart();
        }
    }
}

#[test]
fn i06_five_in_flight_resent_by_a_client_that_lost_its_connection_are_five_in_total() {
    let broker = broker();
    let mut raw = broker.connect();
    let (topic, producer) = topic_and_producer(&broker, &mut raw, "i06");
    let send_all = |raw: &mut Raw| -> Vec<i32> {
        let send = |sequence| {
            let records = vec![(0, Some(producer.batch(sequence)))];
            raw.send(
                calls::PRODUCE,
                &requests::produce(calls::PRODUCE, &topic, -1, records),
            )
        };
        (0..5).map(send).collect()
    };
    let mut lost = broker.connect();
    send_all(&mut lost);
    let mut again = broker.connect();
    let correlations = send_all(&mut again);
    // The two connections race, so that a retry may come before its original: what is refused is sent again, as clients do.
    let mut refused = Vec::new();
    for (sequence, correlation) in (0..5).zip(correlations) {
        let answer = again.receive::<ProduceRequest>(calls::PRODUCE, correlation);
        let part = &answer.responses[0].partition_responses[0];
        match part.error_code {
            codes::NONE => assert_eq!(part.base_offset, i64::from(sequence)),
            codes::OUT_OF_ORDER_SEQUENCE => refused.push(sequence),
            other => panic!("sequence {sequence}: error {other}"),
        }
    }
    for sequence in refused {
        assert_eq!(
            producer.send(&mut again, &topic, sequence),
            (codes::NONE, i64::from(sequence))
        );
    }
    let stored = calls::read_from(&mut raw, &topic, 0, 0);
    let sent: Vec<Bytes> = (0..5)
        .map(|sequence| producer.batch(sequence).slice(61..))
        .collect();
    assert_eq!(
        stored
            .iter()
            .map(|batch| batch.payload())
            .collect::<Vec<_>>(),
        sent,
        "order kept, one copy each"
    );
}

#[test]
fn i07_a_gap_in_the_sequence_is_refused_and_writes_nothing() {
    let broker = broker();
    let mut raw = broker.connect();
    let (topic, producer) = topic_and_producer(&broker, &mut raw, "i07");
    for sequence in 150..157 {
        assert_eq!(
            producer.send(&mut raw, &topic, sequence).0,
            codes::NONE,
            "sequence {sequence}"
        );
    }
    let end = end_offset(&mut raw, &topic, 0);
    assert_eq!(
        producer.send(&mut raw, &topic, 158).0,
        codes::OUT_OF_ORDER_SEQUENCE
    );
    assert_eq!(end_offset(&mut raw, &topic, 0), end);
    assert_eq!(producer.send(&mut raw, &topic, 157), (codes::NONE, end));
    assert_eq!(producer.send(&mut raw, &topic, 158), (codes::NONE, end + 1));
}

#[test]
fn i07_a_partial_overlap_is_refused() {
    let broker = broker();
    let mut raw = broker.connect();
    let (topic, producer) = topic_and_producer(&broker, &mut raw, "i07");
    let two = |sequence| {
        BatchBuilder::of(&["a", "b"])
            .producer(producer.id, producer.epoch, sequence)
            .build()
    };
    assert_eq!(calls::append(&mut raw, &topic, 0, two(0)), 0);
    assert_eq!(calls::append(&mut raw, &topic, 0, two(2)), 2);
    for sequence in [1, 3] {
        let answer = calls::produce(&mut raw, &topic, 0, -1, two(sequence));
        assert_eq!(
            answer.error_code,
            codes::OUT_OF_ORDER_SEQUENCE,
            "sequence {sequence}"
        );
    }
    assert_eq!(end_offset(&mut raw, &topic, 0), 4);
}

#[test]
fn i07_an_unknown_producer_may_start_anywhere() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("i07"), 2, &[]);
    let producer = Producer::new(&mut raw);
    assert_eq!(producer.send(&mut raw, &topic, 5), (codes::NONE, 0));
    let other_partition = calls::produce(&mut raw, &topic, 1, -1, producer.batch(5));
    assert_eq!(
        (other_partition.error_code, other_partition.base_offset),
        (codes::NONE, 0)
    );
}

#[test]
fn i07_a_raised_epoch_starts_at_zero_and_an_old_one_is_fenced() {
    let broker = broker();
    let mut raw = broker.connect();
    let (topic, mut producer) = topic_and_producer(&broker, &mut raw, "i07");
    assert_eq!(producer.send(&mut raw, &topic, 0), (codes::NONE, 0));
    producer.epoch = 1;
    assert_eq!(
        producer.send(&mut raw, &topic, 1).0,
        codes::OUT_OF_ORDER_SEQUENCE
    );
    assert_eq!(producer.send(&mut raw, &topic, 0), (codes::NONE, 1));
    producer.epoch = 0;
    assert_eq!(
        producer.send(&mut raw, &topic, 1).0,
        codes::INVALID_PRODUCER_EPOCH
    );
    assert_eq!(end_offset(&mut raw, &topic, 0), 2);
}

#[test]
fn i08_a_duplicate_sent_behind_its_original_gets_the_same_answer() {
    let broker = broker();
    let mut raw = broker.connect();
    let (topic, producer) = topic_and_producer(&broker, &mut raw, "i08");
    for sequence in 0..i32::try_from(times(100, 1_000)).expect("few") {
        let request = requests::produce(
            calls::PRODUCE,
            &topic,
            -1,
            vec![(0, Some(producer.batch(sequence)))],
        );
        let sent: Vec<i32> = (0..3).map(|_| raw.send(calls::PRODUCE, &request)).collect();
        for correlation in sent {
            let answer = raw.receive::<ProduceRequest>(calls::PRODUCE, correlation);
            let part = &answer.responses[0].partition_responses[0];
            assert_eq!(
                (part.error_code, part.base_offset),
                (codes::NONE, i64::from(sequence))
            );
        }
    }
}

#[test]
fn i09_the_last_five_batches_are_known_and_an_older_one_is_out_of_order() {
    let broker = broker();
    let mut raw = broker.connect();
    let (topic, producer) = topic_and_producer(&broker, &mut raw, "i09");
    for sequence in 0..8 {
        assert_eq!(
            producer.send(&mut raw, &topic, sequence),
            (codes::NONE, i64::from(sequence))
        );
    }
    for sequence in 3..8 {
        assert_eq!(
            producer.send(&mut raw, &topic, sequence),
            (codes::NONE, i64::from(sequence)),
            "one of five"
        );
    }
    for sequence in 0..3 {
        assert_eq!(
            producer.send(&mut raw, &topic, sequence).0,
            codes::OUT_OF_ORDER_SEQUENCE,
            "sequence {sequence}"
        );
    }
    assert_eq!(end_offset(&mut raw, &topic, 0), 8);
}

/// A producer with eight batches in the log and a snapshot of the first four, written by a clean stop between them.
fn with_an_old_snapshot() -> (Broker, TopicRef, Producer, Vec<u8>) {
    let mut broker = setup().set("num.partitions", "1").start();
    let mut raw = broker.connect();
    let (topic, producer) = topic_and_producer(&broker, &mut raw, "i10");
    for sequence in 0..4 {
        producer.send(&mut raw, &topic, sequence);
    }
    broker.shut_down();
    let old = fs::read(snapshot(&broker, &topic)).expect("a snapshot after a clean stop");
    broker.start_again();
    let mut raw = broker.connect();
    for sequence in 4..8 {
        assert_eq!(
            producer.send(&mut raw, &topic, sequence),
            (codes::NONE, i64::from(sequence))
        );
    }
    broker.shut_down();
    (broker, topic, producer, old)
}

fn snapshot(broker: &Broker, topic: &TopicRef) -> std::path::PathBuf {
    broker
        .partition_dir(&topic.name, 0)
        .join("producer-state.snapshot")
}

/// After the start the window is that of a full replay.
fn assert_window(broker: &mut Broker, topic: &TopicRef, producer: &Producer, what: &str) {
    broker.start_again();
    let mut raw = broker.connect();
    for sequence in 3..8 {
        let expected = (codes::NONE, i64::from(sequence));
        assert_eq!(
            producer.send(&mut raw, topic, sequence),
            expected,
            "{what}: a duplicate"
        );
    }
    assert_eq!(
        producer.send(&mut raw, topic, 2).0,
        codes::OUT_OF_ORDER_SEQUENCE,
        "{what}: too old"
    );
    assert_eq!(
        producer.send(&mut raw, topic, 9).0,
        codes::OUT_OF_ORDER_SEQUENCE,
        "{what}: a gap"
    );
    assert_eq!(end_offset(&mut raw, topic, 0), 8, "{what}");
}

#[test]
fn i10_a_snapshot_that_is_old_damaged_or_missing_changes_nothing() {
    if seawall_testkit::kafka::jars().is_some() {
        return;
    }
    for what in ["old", "damaged", "cut", "missing", "empty"] {
        let (mut broker, topic, producer, old) = with_an_old_snapshot();
        let path = snapshot(&broker, &topic);
        match what {
            "old" => fs::write(&path, &old).expect("write"),
            "damaged" => disk::flip_bit(&path, disk::len(&path) / 2),
            "cut" => disk::set_len(&path, disk::len(&path) / 2),
            "missing" => fs::remove_file(&path).expect("remove"),
            _ => disk::set_len(&path, 0),
        }
        assert_window(&mut broker, &topic, &producer, what);
    }
}

#[test]
fn i10_a_snapshot_newer_than_the_log_is_not_believed() {
    let (mut broker, topic, producer, _) = with_an_old_snapshot();
    if not_for_kafka(&broker) {
        return;
    }
    // A crash that kept the snapshot and lost the log's unsynced tail can not happen with checkpoints; a restored file can.
    let newer = fs::read(snapshot(&broker, &topic)).expect("a snapshot");
    broker.start_again();
    let mut raw = broker.connect();
    assert_eq!(producer.send(&mut raw, &topic, 8), (codes::NONE, 8));
    broker.kill9();
    fs::write(snapshot(&broker, &topic), newer).expect("write");
    broker.start_again();
    let mut raw = broker.connect();
    assert_eq!(
        producer.send(&mut raw, &topic, 8),
        (codes::NONE, 8),
        "a duplicate"
    );
    assert_eq!(producer.send(&mut raw, &topic, 9), (codes::NONE, 9));
}
