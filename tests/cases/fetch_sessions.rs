//! Fetch sessions (KIP-227) and what a reader far from its broker asks (KIP-392): which rows an incremental answer has,
//! epochs, forgotten partitions, how many sessions there are, and how they end.

use std::time::{Duration, Instant};

use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::kafka_wire::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use seawall_testkit::kafka_wire::{DeleteTopicsRequest, FetchRequest, FetchResponse};
use seawall_testkit::requests::{self, AT_ONCE, FetchFrom, FetchLimits, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Raw, metrics};

use super::codes;
use crate::{broker, not_for_kafka, setup};

/// By topic name.
const BY_NAME: i16 = 12;
/// By topic id.
const BY_ID: i16 = 17;
/// The wait of a poll that is expected to be answered before it ends.
const LONG: FetchLimits = FetchLimits {
    max_wait_ms: 20_000,
    ..AT_ONCE
};
/// The wait of a poll that is expected to bring nothing.
const SHORT: FetchLimits = FetchLimits {
    max_wait_ms: 100,
    ..AT_ONCE
};

/// A reader: its session as it should stand, and the connection it uses.
struct Reader {
    raw: Raw,
    version: i16,
    session: i32,
    epoch: i32,
}

/// What a reader asks of one topic.
struct Ask<'a> {
    topic: &'a TopicRef,
    limits: FetchLimits,
    wanted: &'a [FetchFrom],
    forgotten: &'a [i32],
}

impl<'a> Ask<'a> {
    fn nothing_new(topic: &'a TopicRef, limits: FetchLimits) -> Self {
        Self {
            topic,
            limits,
            wanted: &[],
            forgotten: &[],
        }
    }
}

impl Reader {
    /// One who has no session yet.
    fn new(broker: &Broker, version: i16) -> Self {
        Self {
            raw: broker.connect(),
            version,
            session: 0,
            epoch: 0,
        }
    }

    /// Opens a session for these partitions of a topic.
    fn opened(
        broker: &Broker,
        version: i16,
        topic: &TopicRef,
        wanted: &[FetchFrom],
    ) -> (Self, FetchResponse) {
        let mut reader = Self::new(broker, version);
        let answer = reader.poll(&Ask {
            wanted,
            ..Ask::nothing_new(topic, AT_ONCE)
        });
        assert_eq!(answer.error_code, codes::NONE);
        assert!(answer.session_id > 0, "a session: {}", answer.session_id);
        reader.session = answer.session_id;
        (reader, answer)
    }

    /// The next fetch of the session.
    fn poll(&mut self, ask: &Ask<'_>) -> FetchResponse {
        let correlation = self.send(ask);
        self.raw.receive::<FetchRequest>(self.version, correlation)
    }

    fn send(&mut self, ask: &Ask<'_>) -> i32 {
        let request = self.request(ask);
        self.epoch = self.epoch.wrapping_add(1);
        self.raw.send(self.version, &request)
    }

    fn request(&self, ask: &Ask<'_>) -> FetchRequest {
        let mut request = requests::fetch(self.version, ask.topic, ask.limits, ask.wanted);
        if ask.wanted.is_empty() {
            request.topics.clear();
        }
        if !ask.forgotten.is_empty() {
            request.forgotten_topics_data = vec![forgotten(self.version, ask)];
        }
        request.session_id = self.session;
        request.session_epoch = self.epoch;
        request
    }

    /// A poll that changes nothing in the session.
    fn poll_idle(&mut self, topic: &TopicRef, limits: FetchLimits) -> FetchResponse {
        self.poll(&Ask::nothing_new(topic, limits))
    }

    /// A fetch with a given id and epoch; gives error, session id and number of rows.
    fn try_with(&mut self, topic: &TopicRef, session: i32, epoch: i32) -> (i16, i32, usize) {
        (self.session, self.epoch) = (session, epoch);
        let answer = self.poll_idle(topic, SHORT);
        (answer.error_code, answer.session_id, rows(&answer).len())
    }
}

fn forgotten(version: i16, ask: &Ask<'_>) -> ForgottenTopic {
    let mut topic = ForgottenTopic::default();
    if version >= 13 {
        topic.topic_id = ask.topic.id;
    } else {
        topic.topic = ask.topic.name.as_str().into();
    }
    topic.partitions = ask.forgotten.to_vec();
    topic
}

/// Partition, error, high watermark and number of batches of each row, in their order.
fn rows(answer: &FetchResponse) -> Vec<(i32, i16, i64, usize)> {
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
    partitions
        .map(|data| {
            let batches = calls::whole_batches(data).len();
            (
                data.partition_index,
                data.error_code,
                data.high_watermark,
                batches,
            )
        })
        .collect()
}

fn from_start(partitions: i32) -> Vec<FetchFrom> {
    (0..partitions)
        .map(|partition| FetchFrom::new(partition, 0))
        .collect()
}

fn append(broker: &Broker, topic: &TopicRef, partition: i32) {
    calls::append(
        &mut broker.connect(),
        topic,
        partition,
        BatchBuilder::of(&["x"]).build(),
    );
}

fn new_topic(broker: &Broker, partitions: i32) -> TopicRef {
    create_topic(
        &mut broker.connect(),
        &broker.fresh("sessions"),
        partitions,
        &[],
    )
}

#[test]
fn a_first_fetch_gets_a_session_and_a_row_for_every_partition() {
    let broker = broker();
    let topic = new_topic(&broker, 3);
    for version in 7..=18 {
        let (_, answer) = Reader::opened(&broker, version, &topic, &from_start(3));
        assert_eq!(
            rows(&answer),
            [(0, 0, 0, 0), (1, 0, 0, 0), (2, 0, 0, 0)],
            "v{version}"
        );
    }
}

#[test]
fn a_fetch_outside_of_sessions_gets_none() {
    let broker = broker();
    let topic = new_topic(&broker, 1);
    for version in 4..=18 {
        let mut raw = broker.connect();
        let request = requests::fetch(version, &topic, AT_ONCE, &from_start(1));
        let answer = raw.call::<FetchRequest>(version, &request);
        assert_eq!(
            (answer.session_id, rows(&answer).len()),
            (0, 1),
            "v{version}"
        );
    }
}

#[test]
fn an_incremental_answer_has_the_partitions_with_news_and_no_others() {
    let broker = broker();
    for version in [7, BY_NAME, 13, BY_ID, 18] {
        let topic = new_topic(&broker, 4);
        let (mut reader, _) = Reader::opened(&broker, version, &topic, &from_start(4));
        let idle = reader.poll_idle(&topic, SHORT);
        assert_eq!(
            (rows(&idle), idle.session_id),
            (vec![], reader.session),
            "v{version}"
        );

        append(&broker, &topic, 2);
        let answer = reader.poll_idle(&topic, LONG);
        assert_eq!(rows(&answer), [(2, 0, 1, 1)], "v{version}");
        // The reader has not said that it goes on behind them: the same records again.
        let answer = reader.poll_idle(&topic, LONG);
        assert_eq!(rows(&answer), [(2, 0, 1, 1)], "v{version}");
        let behind = Ask {
            wanted: &[FetchFrom::new(2, 1)],
            ..Ask::nothing_new(&topic, SHORT)
        };
        assert_eq!(rows(&reader.poll(&behind)), [], "v{version}");
    }
}

#[test]
fn a_moved_high_watermark_is_told_once_to_who_reads_beyond_it() {
    let broker = broker();
    let topic = new_topic(&broker, 2);
    append(&broker, &topic, 0);
    let wanted = [FetchFrom::new(0, 1), FetchFrom::new(1, 0)];
    let (mut reader, answer) = Reader::opened(&broker, BY_NAME, &topic, &wanted);
    assert_eq!(rows(&answer), [(0, 0, 1, 0), (1, 0, 0, 0)]);
    append(&broker, &topic, 0);
    // Its new end is where it goes on: no records, but news.
    let ahead = Ask {
        wanted: &[FetchFrom::new(0, 2)],
        ..Ask::nothing_new(&topic, SHORT)
    };
    assert_eq!(rows(&reader.poll(&ahead)), [(0, 0, 2, 0)]);
    assert_eq!(rows(&reader.poll_idle(&topic, SHORT)), []);
}

#[test]
fn a_poll_in_a_session_is_woken_by_an_append() {
    let broker = broker();
    let topic = new_topic(&broker, 3);
    let (mut reader, _) = Reader::opened(&broker, BY_ID, &topic, &from_start(3));
    let correlation = reader.send(&Ask::nothing_new(&topic, LONG));
    let started = Instant::now();
    append(&broker, &topic, 1);
    let answer = reader.raw.receive::<FetchRequest>(BY_ID, correlation);
    assert_eq!(rows(&answer), [(1, 0, 1, 1)]);
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn an_unknown_session_and_a_wrong_epoch_are_refused() {
    let broker = broker();
    let topic = new_topic(&broker, 1);
    let (mut reader, _) = Reader::opened(&broker, BY_NAME, &topic, &from_start(1));
    let id = reader.session;
    let other = if id == 1 { 2 } else { id - 1 };
    for (session, epoch) in [(other, 1), (0, 1), (other, i32::MAX), (other, -2)] {
        let got = reader.try_with(&topic, session, epoch);
        assert_eq!(
            got,
            (codes::FETCH_SESSION_ID_NOT_FOUND, 0, 0),
            "{session} {epoch}"
        );
    }
    for epoch in [2, i32::MAX, -2, i32::MIN] {
        let got = reader.try_with(&topic, id, epoch);
        assert_eq!(
            got,
            (codes::INVALID_FETCH_SESSION_EPOCH, 0, 0),
            "epoch {epoch}"
        );
    }
    assert_eq!(reader.try_with(&topic, id, 1), (codes::NONE, id, 0));
    let again = reader.try_with(&topic, id, 1);
    assert_eq!(
        again,
        (codes::INVALID_FETCH_SESSION_EPOCH, 0, 0),
        "the same epoch again"
    );
    assert_eq!(reader.try_with(&topic, id, 2), (codes::NONE, id, 0));
}

#[test]
fn a_session_by_name_is_not_used_by_id_nor_the_other_way_round() {
    let broker = broker();
    let topic = new_topic(&broker, 1);
    for (version, other) in [(12, 13), (BY_ID, 7)] {
        let (mut reader, _) = Reader::opened(&broker, version, &topic, &from_start(1));
        let id = reader.session;
        reader.version = other;
        let got = reader.try_with(&topic, id, 1);
        assert_eq!(
            got,
            (codes::FETCH_SESSION_TOPIC_ID_ERROR, 0, 0),
            "v{version}, v{other}"
        );
        reader.version = version;
        assert_eq!(
            reader.try_with(&topic, id, 1),
            (codes::NONE, id, 0),
            "v{version} goes on"
        );
    }
}

#[test]
fn the_final_epoch_ends_a_session() {
    let broker = broker();
    let topic = new_topic(&broker, 1);
    let (mut reader, _) = Reader::opened(&broker, BY_NAME, &topic, &from_start(1));
    let id = reader.session;
    assert_eq!(reader.try_with(&topic, id, -1), (codes::NONE, 0, 0));
    let got = reader.try_with(&topic, id, 1);
    assert_eq!(got, (codes::FETCH_SESSION_ID_NOT_FOUND, 0, 0));
}

#[test]
fn a_full_fetch_replaces_the_session_that_it_names() {
    let broker = broker();
    let topic = new_topic(&broker, 1);
    let (mut reader, _) = Reader::opened(&broker, BY_NAME, &topic, &from_start(1));
    let old = reader.session;
    reader.epoch = 0;
    let answer = reader.poll(&Ask {
        wanted: &from_start(1),
        ..Ask::nothing_new(&topic, AT_ONCE)
    });
    assert!(answer.session_id > 0 && answer.session_id != old);
    let got = reader.try_with(&topic, old, 1);
    assert_eq!(got, (codes::FETCH_SESSION_ID_NOT_FOUND, 0, 0));
    let got = reader.try_with(&topic, answer.session_id, 1);
    assert_eq!(got, (codes::NONE, answer.session_id, 0));
}

#[test]
fn a_session_may_begin_without_a_partition_and_get_some_later() {
    let broker = broker();
    let topic = new_topic(&broker, 1);
    append(&broker, &topic, 0);
    let (mut reader, answer) = Reader::opened(&broker, BY_NAME, &topic, &[]);
    assert_eq!(rows(&answer), []);
    let answer = reader.poll(&Ask {
        wanted: &from_start(1),
        ..Ask::nothing_new(&topic, LONG)
    });
    assert_eq!(
        (rows(&answer), answer.session_id),
        (vec![(0, 0, 1, 1)], reader.session)
    );
}

#[test]
fn forgotten_partitions_are_read_no_more_and_the_last_one_ends_the_session() {
    let broker = broker();
    for version in [7, BY_NAME, BY_ID] {
        let topic = new_topic(&broker, 3);
        let (mut reader, _) = Reader::opened(&broker, version, &topic, &from_start(3));
        for partition in 0..3 {
            append(&broker, &topic, partition);
        }
        let answer = reader.poll(&Ask {
            forgotten: &[0, 2, 77],
            ..Ask::nothing_new(&topic, LONG)
        });
        assert_eq!(rows(&answer), [(1, 0, 1, 1)], "v{version}");
        let answer = reader.poll(&Ask {
            wanted: &[FetchFrom::new(0, 0)],
            forgotten: &[1],
            ..Ask::nothing_new(&topic, LONG)
        });
        assert_eq!(rows(&answer), [(0, 0, 1, 1)], "v{version}");
        // Named and forgotten in one request: forgotten.
        let answer = reader.poll(&Ask {
            wanted: &[FetchFrom::new(0, 0)],
            forgotten: &[0],
            ..Ask::nothing_new(&topic, LONG)
        });
        assert_eq!(answer.session_id, 0, "v{version}");
        let (id, epoch) = (reader.session, reader.epoch);
        let got = reader.try_with(&topic, id, epoch);
        assert_eq!(got, (codes::FETCH_SESSION_ID_NOT_FOUND, 0, 0), "v{version}");
    }
}

#[test]
fn a_session_belongs_to_its_id_and_moves_between_connections() {
    let broker = broker();
    let topic = new_topic(&broker, 1);
    let (mut reader, _) = Reader::opened(&broker, BY_ID, &topic, &from_start(1));
    reader.raw = broker.connect();
    assert_eq!(rows(&reader.poll_idle(&topic, SHORT)), []);
    reader.raw.reset();
    reader.raw = broker.connect();
    append(&broker, &topic, 0);
    assert_eq!(rows(&reader.poll_idle(&topic, LONG)), [(0, 0, 1, 1)]);
}

#[test]
fn an_answer_that_its_session_has_passed_by_is_refused() {
    let broker = broker();
    let topic = new_topic(&broker, 1);
    let (mut reader, _) = Reader::opened(&broker, BY_NAME, &topic, &from_start(1));
    let parked = reader.send(&Ask::nothing_new(&topic, LONG));
    let mut old = std::mem::replace(&mut reader.raw, broker.connect());
    // The second one follows the first, once that has reached the broker.
    let second = wait::until_some("the first fetch has begun", SOON, || {
        let answer = reader.poll_idle(&topic, SHORT);
        reader.epoch = 2;
        (answer.error_code == codes::NONE).then_some(answer)
    });
    assert_eq!(rows(&second), []);
    append(&broker, &topic, 0);
    let first = old.receive::<FetchRequest>(BY_NAME, parked);
    let got = (first.error_code, first.session_id, rows(&first).len());
    assert_eq!(got, (codes::INVALID_FETCH_SESSION_EPOCH, reader.session, 0));
}

#[test]
fn errors_are_repeated_and_their_end_is_told() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = new_topic(&broker, 2);
    let wanted = [
        FetchFrom::new(0, 0),
        FetchFrom::new(1, 5),
        FetchFrom::new(9, 0),
    ];
    let (mut reader, _) = Reader::opened(&broker, BY_NAME, &topic, &wanted);
    let both = [
        (1, codes::OFFSET_OUT_OF_RANGE, -1, 0),
        (9, codes::UNKNOWN_TOPIC_OR_PARTITION, -1, 0),
    ];
    for round in 0..3 {
        assert_eq!(rows(&reader.poll_idle(&topic, LONG)), both, "round {round}");
    }
    for _ in 0..5 {
        calls::append(&mut raw, &topic, 1, BatchBuilder::of(&["x"]).build());
    }
    let answer = reader.poll(&Ask {
        forgotten: &[9],
        ..Ask::nothing_new(&topic, SHORT)
    });
    assert_eq!(rows(&answer), [(1, 0, 5, 0)]);
    assert_eq!(rows(&reader.poll_idle(&topic, SHORT)), []);
}

#[test]
fn a_topic_that_does_not_exist_yet_does_not_make_a_session_spin() {
    let broker = broker();
    let topic = new_topic(&broker, 1);
    let later = TopicRef {
        name: broker.fresh("later"),
        ..topic
    };
    let mut reader = Reader::new(&broker, BY_NAME);
    let ask = Ask {
        wanted: &from_start(1),
        ..Ask::nothing_new(&topic, AT_ONCE)
    };
    let mut request = reader.request(&ask);
    request.topics.push(topic_by_name(&later.name));
    let answer = reader.raw.call::<FetchRequest>(BY_NAME, &request);
    assert_eq!(rows(&answer).len(), 2);
    (reader.session, reader.epoch) = (answer.session_id, 1);
    let patient = FetchLimits {
        max_wait_ms: 300,
        ..AT_ONCE
    };
    let started = Instant::now();
    let answer = reader.poll_idle(&topic, patient);
    assert!(
        started.elapsed() >= Duration::from_millis(250),
        "it waits for the other topic"
    );
    let unknown = (0, codes::UNKNOWN_TOPIC_OR_PARTITION, -1, 0);
    assert_eq!(rows(&answer), [unknown]);

    let created = create_topic(&mut broker.connect(), &later.name, 1, &[]);
    append(&broker, &created, 0);
    assert_eq!(rows(&reader.poll_idle(&topic, LONG)), [(0, 0, 1, 1)]);
}

fn topic_by_name(name: &str) -> FetchTopic {
    let mut partition = FetchPartition::default();
    partition.partition_max_bytes = 1 << 20;
    let mut topic = FetchTopic::default();
    topic.topic = name.into();
    topic.partitions = vec![partition];
    topic
}

#[test]
fn a_deleted_topic_is_an_error_in_its_sessions() {
    let broker = broker();
    // In a session Kafka has the name of an id that is gone. We say what it says outside of one.
    let (gone, other) = if broker.is_kafka() {
        (
            codes::UNKNOWN_TOPIC_OR_PARTITION,
            codes::INCONSISTENT_TOPIC_ID,
        )
    } else {
        (codes::UNKNOWN_TOPIC_ID, codes::UNKNOWN_TOPIC_ID)
    };
    let by_name = codes::UNKNOWN_TOPIC_OR_PARTITION;
    for (version, deleted, recreated) in [(BY_NAME, by_name, codes::NONE), (BY_ID, gone, other)] {
        let topic = new_topic(&broker, 1);
        let (mut reader, _) = Reader::opened(&broker, version, &topic, &from_start(1));
        let request = requests::delete_topics(6, &[&topic.name]);
        broker.connect().call::<DeleteTopicsRequest>(6, &request);
        let code = wait::until_some("an error", SOON, || {
            let answer = reader.poll_idle(&topic, SHORT);
            rows(&answer).first().map(|row| row.1)
        });
        assert_eq!(code, deleted, "v{version}");
        create_topic(&mut broker.connect(), &topic.name, 1, &[]);
        let code = rows(&reader.poll_idle(&topic, SHORT))[0].1;
        assert_eq!(code, recreated, "v{version}");
    }
}

#[test]
fn partitions_take_turns_where_an_answer_holds_only_some() {
    let broker = broker();
    let topic = new_topic(&broker, 3);
    let batch = BatchBuilder::sized(10_000).build();
    for partition in 0..3 {
        for _ in 0..4 {
            calls::append(&mut broker.connect(), &topic, partition, batch.clone());
        }
    }
    let (mut reader, _) = Reader::opened(&broker, BY_NAME, &topic, &[]);
    let one_batch = FetchLimits {
        max_bytes: 10_100,
        ..LONG
    };
    let mut turns = Vec::new();
    let mut wanted = from_start(3);
    for _ in 0..6 {
        let answer = reader.poll(&Ask {
            wanted: &wanted,
            ..Ask::nothing_new(&topic, one_batch)
        });
        wanted.clear();
        let with_records = rows(&answer).into_iter().filter(|row| row.3 > 0);
        turns.push(with_records.map(|row| row.0).collect::<Vec<_>>());
    }
    assert_eq!(turns, [[0], [1], [2], [0], [1], [2]]);
}

#[test]
fn a_partition_named_twice_is_read_once_where_it_was_named_last() {
    let broker = broker();
    let topic = new_topic(&broker, 1);
    append(&broker, &topic, 0);
    append(&broker, &topic, 0);
    let twice = [FetchFrom::new(0, 0), FetchFrom::new(0, 1)];
    for epoch in [-1, 0] {
        let mut reader = Reader::new(&broker, BY_NAME);
        reader.epoch = epoch;
        let answer = reader.poll(&Ask {
            wanted: &twice,
            ..Ask::nothing_new(&topic, AT_ONCE)
        });
        assert_eq!(rows(&answer), [(0, 0, 2, 1)], "epoch {epoch}");
    }
}

#[test]
fn sessions_are_bounded_and_a_closed_one_makes_room() {
    let broker = setup()
        .set("max.incremental.fetch.session.cache.slots", "2")
        .start();
    if broker.is_kafka() {
        return; // It has eight shards of the cache, and so at least one slot for each.
    }
    let topic = new_topic(&broker, 3);
    let (mut first, _) = Reader::opened(&broker, BY_NAME, &topic, &from_start(1));
    let (_, _) = Reader::opened(&broker, BY_NAME, &topic, &from_start(2));
    let mut third = Reader::new(&broker, BY_NAME);
    let ask = Ask {
        wanted: &from_start(3),
        ..Ask::nothing_new(&topic, AT_ONCE)
    };
    for round in 0..2 {
        let answer = third.poll(&ask);
        third.epoch = 0;
        assert_eq!(
            (answer.session_id, rows(&answer).len()),
            (0, 3),
            "round {round}"
        );
    }
    let page = metrics::scrape(broker.admin());
    assert_eq!(metrics::value(&page, "seawall_fetch_sessions"), Some(2.0));
    assert_eq!(
        metrics::value(&page, "seawall_fetch_session_partitions"),
        Some(3.0)
    );
    let id = first.session;
    assert_eq!(first.try_with(&topic, id, -1).0, codes::NONE);
    assert!(third.poll(&ask).session_id > 0);
}

#[test]
fn without_slots_there_are_no_sessions() {
    let broker = setup()
        .set("max.incremental.fetch.session.cache.slots", "0")
        .start();
    let topic = new_topic(&broker, 1);
    let mut reader = Reader::new(&broker, BY_NAME);
    let answer = reader.poll(&Ask {
        wanted: &from_start(1),
        ..Ask::nothing_new(&topic, AT_ONCE)
    });
    assert_eq!((answer.session_id, rows(&answer).len()), (0, 1));
}

#[test]
fn ten_thousand_sessions_are_served_when_there_are_slots_for_them() {
    let broker = setup()
        .set("max.incremental.fetch.session.cache.slots", "10000")
        .start();
    if not_for_kafka(&broker) {
        return;
    }
    let topic = new_topic(&broker, 10);
    let before = broker.proc_status("VmRSS");
    let mut reader = Reader::new(&broker, BY_NAME);
    let ask = Ask {
        wanted: &from_start(10),
        ..Ask::nothing_new(&topic, AT_ONCE)
    };
    for _ in 0..10_000 {
        (reader.session, reader.epoch) = (0, 0);
        assert!(reader.poll(&ask).session_id > 0);
    }
    let grown = broker.proc_status("VmRSS") - before;
    assert!(
        grown < 60_000,
        "100,000 partitions in sessions cost {grown} KiB"
    );
}

#[test]
fn a_reader_in_another_rack_is_served_by_the_only_replica() {
    let broker = broker();
    let topic = new_topic(&broker, 1);
    append(&broker, &topic, 0);
    for version in 11..=18 {
        let mut request = requests::fetch(version, &topic, AT_ONCE, &from_start(1));
        request.rack_id = "far-away".into();
        let answer = broker.connect().call::<FetchRequest>(version, &request);
        let data = &answer.responses[0].partitions[0];
        let got = (data.error_code, data.preferred_read_replica);
        assert_eq!(got, (codes::NONE, -1), "v{version}");
        assert_eq!(calls::whole_batches(data).len(), 1, "v{version}");
    }
}
