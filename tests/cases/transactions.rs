//! Transactions as their clients see them: x01, x02, x06, x07, x09, x10, and what a coordinator refuses. Every value
//! here is what Apache Kafka 4.4 answers.

use std::time::Duration;

use seawall_testkit::calls::{self, create_topic, list_offset_at};
use seawall_testkit::kafka_wire::{CreateTopicsRequest, DeleteTopicsRequest, ListOffsetsRequest};
use seawall_testkit::requests::{self, TopicRef};
use seawall_testkit::txn::{Committed, Tx, fetch_committed, init_once, read_committed};
use seawall_testkit::{BatchBuilder, Broker, Raw, wait};

use super::codes;
use crate::{broker, setup, times};

const NOBODY: (i64, i16) = (-1, -1);

fn start(stem: &str) -> (Broker, Raw, TopicRef) {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh(stem), 3, &[]);
    (broker, raw, topic)
}

#[test]
fn x01_a_transaction_left_alone_is_aborted_and_its_producer_recovers() {
    let (broker, mut raw, topic) = start("x01");
    let raw = &mut raw;
    let mut tx = Tx::begin_with_timeout(raw, &broker.fresh("x01"), 100);
    assert_eq!(tx.add(raw, &topic, 0), codes::NONE);
    assert_eq!(tx.send(raw, (&topic, 0), 0), (codes::NONE, 0));
    wait::until(
        "the transaction is aborted",
        Duration::from_secs(30),
        || tx.describe(raw).1 == "CompleteAbort",
    );
    for version in [11, 12] {
        let sent = tx.send_once(raw, version, (&topic, 0), 1);
        assert_eq!(sent.0, codes::INVALID_PRODUCER_EPOCH, "Produce v{version}");
    }
    assert_eq!(tx.end_once(raw, 1, true).0, codes::INVALID_PRODUCER_EPOCH);
    assert_eq!(tx.end_once(raw, 4, true).0, codes::PRODUCER_FENCED);
    let told = tx.end_once(raw, 5, false);
    assert_eq!(told, (codes::NONE, (tx.producer.0, 1)), "aborted it is");
    assert_eq!(tx.end_once(raw, 5, true).0, codes::INVALID_TXN_STATE);
    assert_eq!(
        read_committed(raw, &topic),
        (vec![0, 1], vec![(tx.producer.0, 0)])
    );
    assert_eq!(tx.init_again(raw), codes::NONE);
    assert_eq!(tx.producer.1, 1);
    assert_eq!(tx.add(raw, &topic, 0), codes::NONE);
    assert_eq!(tx.send(raw, (&topic, 0), 0), (codes::NONE, 2));
    assert_eq!(tx.end(raw, true), codes::NONE);
}

#[test]
fn x02_a_repeated_end_is_answered_like_the_first() {
    let (broker, mut raw, topic) = start("x02");
    let raw = &mut raw;
    let tx = Tx::begin(raw, &broker.fresh("x02"));
    for (commit, state) in [(true, "CompleteCommit"), (false, "CompleteAbort")] {
        assert_eq!(tx.add(raw, &topic, 0), codes::NONE);
        for _ in 0..3 {
            assert_eq!(tx.end(raw, commit), codes::NONE, "{state}");
        }
        assert_eq!(tx.end(raw, !commit), codes::INVALID_TXN_STATE, "{state}");
        assert_eq!(tx.settled(raw), state);
    }
    let mut tx = Tx::begin(raw, &broker.fresh("x02-v2"));
    for commit in [true, false] {
        let before = tx.clone();
        let at = tx.send_v2(raw, (&topic, 1), 0);
        assert_eq!(at.0, codes::NONE);
        assert_eq!(tx.end_v2(raw, commit), codes::NONE);
        tx.settled(raw);
        for _ in 0..3 {
            assert_eq!(before.end_once(raw, 5, commit), (codes::NONE, tx.producer));
        }
        let other = before.end_once(raw, 5, !commit);
        assert_eq!(other.0, codes::INVALID_TXN_STATE);
    }
}

#[test]
fn x06_no_reader_of_committed_records_sees_an_aborted_one() {
    let (broker, mut raw, topic) = start("x06");
    let raw = &mut raw;
    let tx = Tx::begin(raw, &broker.fresh("x06"));
    let mut reader = broker.connect();
    for sequence in 0..i32::try_from(times(20, 100)).expect("few") {
        assert_eq!(tx.add(raw, &topic, 0), codes::NONE);
        let (code, offset) = tx.send(raw, (&topic, 0), sequence);
        assert_eq!(code, codes::NONE);
        let open = fetch_committed(&mut reader, &topic, offset);
        assert!(
            open.batches.is_empty() && open.last_stable <= offset,
            "{open:?}"
        );
        assert_eq!(tx.end(raw, false), codes::NONE);
        assert_eq!(tx.settled(raw), "CompleteAbort");
        let seen: Committed = wait::until_some("it can be read", wait::SOON, || {
            let got = fetch_committed(&mut reader, &topic, offset);
            (!got.batches.is_empty()).then_some(got)
        });
        let skipped = seen.aborted.contains(&(tx.producer.0, offset));
        assert!(skipped, "round {sequence}: {seen:?}");
    }
}

#[test]
fn x07_the_oldest_open_transaction_holds_readers_back() {
    let (broker, mut raw, topic) = start("x07");
    let raw = &mut raw;
    let plain = || BatchBuilder::of(&["plain"]).build();
    let (one, two) = (
        Tx::begin(raw, &broker.fresh("x07-1")),
        Tx::begin(raw, &broker.fresh("x07-2")),
    );
    assert_eq!(calls::append(raw, &topic, 0, plain()), 0);
    for (tx, offset) in [(&one, 1), (&two, 2)] {
        assert_eq!(tx.add(raw, &topic, 0), codes::NONE);
        assert_eq!(tx.send(raw, (&topic, 0), 0), (codes::NONE, offset));
    }
    assert_eq!(calls::append(raw, &topic, 0, plain()), 3);
    let got = fetch_committed(raw, &topic, 0);
    assert_eq!((got.high_watermark, got.last_stable), (4, 1));
    assert_eq!(got.batches.len(), 1);
    assert_eq!(two.end(raw, true), codes::NONE);
    assert_eq!(two.settled(raw), "CompleteCommit");
    assert_eq!(fetch_committed(raw, &topic, 0).last_stable, 1);
    for (committed, wanted) in [(0, 5), (1, 1)] {
        let mut request = requests::list_offsets(&topic.name, 0, -1);
        request.isolation_level = committed;
        let answer = raw.call::<ListOffsetsRequest>(7, &request);
        assert_eq!(
            answer.topics[0].partitions[0].offset, wanted,
            "level {committed}"
        );
    }
    assert_eq!(one.end(raw, false), codes::NONE);
    assert_eq!(one.settled(raw), "CompleteAbort");
    let all = (vec![0, 1, 2, 3, 4, 5], vec![(one.producer.0, 1)]);
    assert_eq!(read_committed(raw, &topic), all);
    assert_eq!(list_offset_at(raw, 7, &topic.name, 0, -1).offset, 6);
}

#[test]
fn x09_timeouts_outside_of_the_bounds_and_other_bad_inits_are_refused() {
    let (broker, mut raw, _topic) = start("x09");
    let raw = &mut raw;
    let tx = Tx::begin(raw, &broker.fresh("x09"));
    for timeout in [0, -1, 900_001, i32::MAX] {
        let refused = init_once(raw, 4, &tx.id, timeout, NOBODY);
        assert_eq!(refused.0, codes::INVALID_TRANSACTION_TIMEOUT, "{timeout}");
    }
    assert_eq!(init_once(raw, 4, &tx.id, 900_000, NOBODY).0, codes::NONE);
    assert_eq!(
        init_once(raw, 4, "", 1_000, NOBODY).0,
        codes::INVALID_REQUEST
    );
    for half in [(5, -1), (-1, 3)] {
        assert_eq!(
            init_once(raw, 4, &tx.id, 1_000, half).0,
            codes::INVALID_REQUEST
        );
    }
    let stranger = (tx.producer.0 + 1_000, 3);
    assert_eq!(
        init_once(raw, 4, &tx.id, 1_000, stranger).0,
        codes::PRODUCER_FENCED
    );
    assert_eq!(
        init_once(raw, 3, &tx.id, 1_000, stranger).0,
        codes::INVALID_PRODUCER_EPOCH
    );
    let unknown = init_once(raw, 4, &broker.fresh("x09-new"), 1_000, (5, 3));
    assert_eq!(
        (unknown.0, unknown.2),
        (codes::NONE, 0),
        "a lost id is made anew"
    );
}

#[test]
fn x10_an_older_or_higher_epoch_is_fenced_by_version() {
    let (broker, mut raw, topic) = start("x10");
    let raw = &mut raw;
    let tx = Tx::begin(raw, &broker.fresh("x10"));
    assert_eq!(tx.add(raw, &topic, 0), codes::NONE);
    let group = broker.fresh("group");
    for epoch in [-1, 7] {
        let wrong = tx.at_epoch(epoch);
        for (version, code) in [(0, 47), (1, 47), (2, 90), (4, 90)] {
            assert_eq!(
                wrong.end_once(raw, version, true).0,
                code,
                "EndTxn v{version}"
            );
            let added = wrong.add_once(raw, version.min(3), &topic.name, &[0]);
            assert_eq!(added, [code], "AddPartitionsToTxn v{version}");
            let offsets = wrong.add_offsets(raw, version, &group);
            assert_eq!(offsets, code, "AddOffsetsToTxn v{version}");
        }
        assert_eq!(wrong.end_once(raw, 5, true).0, codes::PRODUCER_FENCED);
    }
    for version in [3, 11, 12] {
        let sent = tx.at_epoch(7).send_once(raw, version, (&topic, 0), 0);
        assert_eq!(sent.0, codes::INVALID_PRODUCER_EPOCH, "Produce v{version}");
    }
}

#[test]
fn a_transactional_id_that_nobody_has_begun_is_unknown_everywhere() {
    let (broker, mut raw, topic) = start("unknown");
    let raw = &mut raw;
    let tx = Tx::begin(raw, &broker.fresh("known")).called(&broker.fresh("unknown"));
    let unknown = codes::INVALID_PRODUCER_ID_MAPPING;
    assert_eq!(tx.add_once(raw, 3, &topic.name, &[0]), [unknown]);
    assert_eq!(tx.add_offsets(raw, 3, "g"), unknown);
    for version in [0, 4, 5] {
        assert_eq!(tx.end_once(raw, version, true).0, unknown);
    }
    for version in [3, 11, 12] {
        assert_eq!(tx.send_once(raw, version, (&topic, 0), 0).0, unknown);
    }
    assert_eq!(tx.describe(raw).0, codes::TRANSACTIONAL_ID_NOT_FOUND);
    let nameless = tx.called("");
    assert_eq!(nameless.describe(raw).0, codes::INVALID_REQUEST);
    assert_eq!(
        nameless.add_once(raw, 3, &topic.name, &[0]),
        [codes::INVALID_REQUEST]
    );
    assert_eq!(nameless.end_once(raw, 4, true).0, codes::INVALID_REQUEST);
}

#[test]
fn a_batch_outside_of_its_transaction_is_not_written() {
    let (broker, mut raw, topic) = start("outside");
    let raw = &mut raw;
    let tx = Tx::begin(raw, &broker.fresh("outside"));
    let refused = |raw: &mut Raw| {
        for (version, code) in [(3, 48), (10, 48), (11, 120)] {
            assert_eq!(
                tx.send_once(raw, version, (&topic, 0), 0),
                (code, -1),
                "v{version}"
            );
        }
    };
    refused(raw);
    assert_eq!(tx.add(raw, &topic, 1), codes::NONE);
    refused(raw);
    assert_eq!(tx.end(raw, true), codes::NONE);
    tx.settled(raw);
    assert_eq!(
        tx.send_once(raw, 11, (&topic, 1), 0).0,
        codes::TRANSACTION_ABORTABLE
    );
    let batch = BatchBuilder::of(&["nobody's"]).producer(tx.producer.0, 0, 0);
    let batch = batch.attribute_bits(1 << 4).build();
    let answer = calls::produce(raw, &topic, 0, -1, batch);
    assert_eq!(
        answer.error_code,
        codes::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    );
    assert_eq!(list_offset_at(raw, 7, &topic.name, 0, -1).offset, 0);
}

#[test]
fn one_unknown_partition_spoils_the_others() {
    let (broker, mut raw, topic) = start("spoils");
    let raw = &mut raw;
    let tx = Tx::begin(raw, &broker.fresh("spoils"));
    let codes = tx.add_once(raw, 3, &topic.name, &[0, 7]);
    assert_eq!(
        codes,
        [
            codes::OPERATION_NOT_ATTEMPTED,
            codes::UNKNOWN_TOPIC_OR_PARTITION
        ]
    );
    assert_eq!(tx.describe(raw).1, "Empty");
    let codes = tx.add_once(raw, 3, &broker.fresh("no-such-topic"), &[0]);
    assert_eq!(codes, [codes::UNKNOWN_TOPIC_OR_PARTITION]);
}

#[test]
fn a_new_producer_fences_the_old_one_and_aborts_for_it() {
    let (broker, mut raw, topic) = start("fence");
    let raw = &mut raw;
    let old = Tx::begin(raw, &broker.fresh("fence"));
    assert_eq!(old.add(raw, &topic, 0), codes::NONE);
    assert_eq!(old.send(raw, (&topic, 0), 0), (codes::NONE, 0));
    let new = Tx::begin(raw, &old.id);
    assert_eq!(
        new.producer,
        (old.producer.0, 2),
        "one epoch for the abort, one for it"
    );
    for version in [11, 12] {
        assert_eq!(
            old.send_once(raw, version, (&topic, 0), 1).0,
            codes::INVALID_PRODUCER_EPOCH
        );
    }
    assert_eq!(old.clone().init_again(raw), codes::PRODUCER_FENCED);
    assert_eq!(new.add(raw, &topic, 0), codes::NONE);
    assert_eq!(new.send(raw, (&topic, 0), 0), (codes::NONE, 2));
    // It goes on after an error of its own, and hears of it twice.
    let (mut once, mut again) = (new.clone(), new.clone());
    assert_eq!(
        (once.init_again(raw), again.init_again(raw)),
        (codes::NONE, codes::NONE)
    );
    assert_eq!((once.producer.1, again.producer.1), (3, 3));
    let mut third = once.clone();
    assert_eq!(third.init_again(raw), codes::NONE);
    assert_eq!(third.producer.1, 4);
    assert_eq!(new.clone().init_again(raw), codes::PRODUCER_FENCED);
    let aborted = vec![(old.producer.0, 0), (old.producer.0, 2)];
    assert_eq!(read_committed(raw, &topic), (vec![0, 1, 2, 3], aborted));
}

#[test]
fn v2_clients_add_partitions_by_writing_and_get_a_new_epoch_at_each_end() {
    let (broker, mut raw, topic) = start("v2");
    let raw = &mut raw;
    let mut tx = Tx::begin(raw, &broker.fresh("v2"));
    let id = tx.producer.0;
    assert_eq!(
        tx.end_once(raw, 5, true),
        (codes::INVALID_TXN_STATE, NOBODY),
        "of nothing"
    );
    assert_eq!(tx.end_v2(raw, false), codes::NONE, "an abort of nothing");
    assert_eq!(tx.producer, (id, 1));
    assert_eq!(tx.send_v2(raw, (&topic, 1), 0), (codes::NONE, 0));
    assert_eq!(tx.send_v2(raw, (&topic, 1), 1), (codes::NONE, 1));
    assert_eq!(tx.send_v2(raw, (&topic, 2), 0), (codes::NONE, 0));
    assert_eq!(
        tx.describe(raw),
        (codes::NONE, "Ongoing".to_owned(), (id, 1), 2)
    );
    assert_eq!(
        tx.send_v2(raw, (&topic, 1), 7).0,
        codes::OUT_OF_ORDER_SEQUENCE
    );
    for epoch in [0, 2] {
        let wrong = tx.at_epoch(epoch);
        assert_eq!(
            wrong.send_once(raw, 12, (&topic, 1), 0).0,
            codes::INVALID_PRODUCER_EPOCH
        );
        assert_eq!(wrong.end_once(raw, 5, true).0, codes::PRODUCER_FENCED);
    }
    let before = tx.clone();
    assert_eq!(tx.end_v2(raw, true), codes::NONE);
    assert_eq!(tx.producer, (id, 2));
    assert_eq!(tx.settled(raw), "CompleteCommit");
    assert_eq!(
        tx.end_once(raw, 5, true).0,
        codes::INVALID_TXN_STATE,
        "of nothing"
    );
    assert_eq!(
        before.send_once(raw, 12, (&topic, 1), 2).0,
        codes::INVALID_PRODUCER_EPOCH
    );
    assert_eq!(
        tx.send_v2(raw, (&topic, 1), 2).0,
        codes::OUT_OF_ORDER_SEQUENCE
    );
    assert_eq!(
        tx.send_v2(raw, (&topic, 1), 0),
        (codes::NONE, 3),
        "sequences begin anew"
    );
    assert_eq!(Tx::begin(raw, &tx.id).producer, (id, 4));
}

#[test]
fn a_transaction_outlives_its_idle_connection_and_a_clean_restart() {
    let mut broker = setup().set("num.partitions", "1").start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("idle"), 1, &[]);
    let tx = Tx::begin(&mut raw, &broker.fresh("idle"));
    assert_eq!(tx.add(&mut raw, &topic, 0), codes::NONE);
    assert_eq!(tx.send(&mut raw, (&topic, 0), 0), (codes::NONE, 0));
    drop(raw);
    broker.stop_and_restart();
    let mut raw = broker.connect();
    calls::until_usable(&mut raw, &topic.name, 1);
    assert_eq!(fetch_committed(&mut raw, &topic, 0).last_stable, 0);
    assert_eq!(tx.send(&mut raw, (&topic, 0), 1), (codes::NONE, 1));
    assert_eq!(tx.end(&mut raw, true), codes::NONE);
    assert_eq!(tx.settled(&mut raw), "CompleteCommit");
    assert_eq!(read_committed(&mut raw, &topic), (vec![0, 1, 2], vec![]));
}

#[test]
fn a_deleted_topic_holds_no_transaction_up_and_its_successor_inherits_nothing() {
    let (broker, mut raw, topic) = start("gone");
    let raw = &mut raw;
    let doomed = create_topic(raw, &broker.fresh("doomed"), 1, &[]);
    let tx = Tx::begin(raw, &broker.fresh("gone"));
    for topic in [&topic, &doomed] {
        assert_eq!(tx.add(raw, topic, 0), codes::NONE);
        assert_eq!(tx.send(raw, (topic, 0), 0), (codes::NONE, 0));
    }
    let deletion = requests::delete_topics(5, &[&doomed.name]);
    let deleted = raw.call::<DeleteTopicsRequest>(5, &deletion);
    assert_eq!(deleted.responses[0].error_code, codes::NONE);
    let successor = wait::until_some("the name is free", wait::SOON, || {
        let request = requests::create_topics(vec![requests::topic(&doomed.name, 1, &[])]);
        let answer = raw.call::<CreateTopicsRequest>(7, &request);
        (answer.topics[0].error_code == codes::NONE).then_some(answer.topics[0].topic_id)
    });
    calls::until_usable(raw, &doomed.name, 1);
    assert_ne!(successor, doomed.id);
    assert_eq!(tx.end(raw, true), codes::NONE);
    assert_eq!(tx.settled(raw), "CompleteCommit");
    assert_eq!(read_committed(raw, &topic), (vec![0, 1], vec![]));
    if !broker.is_kafka() {
        // Kafka goes by the name, and writes its marker there.
        assert_eq!(list_offset_at(raw, 7, &doomed.name, 0, -1).offset, 0);
    }
}
