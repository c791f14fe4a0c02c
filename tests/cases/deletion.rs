//! Topics that are deleted, and those that take their names. t12.

use std::collections::BTreeMap;

use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::kafka_wire::{DeleteTopicsRequest, FetchRequest, MetadataRequest};
use seawall_testkit::requests::{self, AT_ONCE, FetchFrom, FetchLimits, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Raw};

use super::codes;
use super::topics::create;
use crate::{broker, setup};

#[test]
fn t12_a_topic_deleted_and_created_again_under_a_long_poll_shows_nothing_old() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("t12");
    let old = create_topic(&mut raw, &name, 1, &[]);
    for _ in 0..3 {
        calls::append(&mut raw, &old, 0, BatchBuilder::of(&["old"]).build());
    }
    let limits = FetchLimits {
        max_wait_ms: 60_000,
        ..AT_ONCE
    };
    let mut poll_by_id = broker.connect();
    let by_id = poll_by_id.send(
        16,
        &requests::fetch(16, &old, limits, &[FetchFrom::new(0, 3)]),
    );
    let mut poll_by_name = broker.connect();
    let by_name = poll_by_name.send(
        12,
        &requests::fetch(12, &old, limits, &[FetchFrom::new(0, 3)]),
    );
    let deleted = raw.call::<DeleteTopicsRequest>(6, &requests::delete_topics(6, &[&name]));
    assert_eq!(deleted.responses[0].error_code, codes::NONE);
    let id_answer = poll_by_id.receive::<FetchRequest>(16, by_id);
    let error = id_answer.responses[0].partitions[0].error_code;
    let gone = [
        codes::UNKNOWN_TOPIC_ID,
        codes::UNKNOWN_TOPIC_OR_PARTITION,
        6,
    ];
    assert!(gone.contains(&error), "by id, while it is deleted: {error}");
    let name_answer = poll_by_name.receive::<FetchRequest>(12, by_name);
    assert_ne!(
        name_answer.responses[0].partitions[0].error_code,
        codes::NONE,
        "by name"
    );
    let new = wait::until_some("the name is free again", SOON, || {
        let answer = create(&mut raw, &name);
        (answer.error_code == codes::NONE).then(|| TopicRef {
            name: name.clone(),
            id: answer.topic_id,
        })
    });
    let again = raw.call::<FetchRequest>(
        16,
        &requests::fetch(16, &old, AT_ONCE, &[FetchFrom::new(0, 3)]),
    );
    assert_eq!(
        again.responses[0].partitions[0].error_code,
        codes::UNKNOWN_TOPIC_ID,
        "by the old id"
    );
    calls::until_usable(&mut raw, &name, 1);
    assert_eq!(calls::end_offset(&mut raw, &new, 0), 0);
}

#[test]
fn t12_polls_that_begin_while_their_topic_is_deleted_are_answered() {
    const POLLS: usize = 40;
    let broker = broker();
    let mut raw = broker.connect();
    let limits = FetchLimits {
        max_wait_ms: 300_000,
        ..AT_ONCE
    };
    for _ in 0..50 {
        let name = broker.fresh("t12-race");
        let topic = create_topic(&mut raw, &name, 1, &[]);
        let mut polls: Vec<Raw> = (0..POLLS).map(|_| broker.connect()).collect();
        let fetch = requests::fetch(12, &topic, limits, &[FetchFrom::new(0, 0)]);
        let deletion = requests::delete_topics(6, &[&name]);
        let mut deleting = None;
        let sent: Vec<_> = polls
            .iter_mut()
            .enumerate()
            .map(|(at, poll)| {
                if at == POLLS / 2 {
                    deleting = Some(raw.send(6, &deletion));
                }
                poll.send(12, &fetch)
            })
            .collect();
        let deleting = deleting.expect("the topic is deleted half way");
        let deleted = raw.receive::<DeleteTopicsRequest>(6, deleting);
        assert_eq!(deleted.responses[0].error_code, codes::NONE);
        for (poll, sent) in polls.iter_mut().zip(sent) {
            let answer = poll.receive::<FetchRequest>(12, sent);
            let error = answer.responses[0].partitions[0].error_code;
            assert_ne!(error, codes::NONE, "a poll of a topic that is gone");
        }
    }
}

#[test]
fn t12_a_deleted_topic_is_gone_for_every_api_and_after_a_restart() {
    let mut broker = setup().set("auto.create.topics.enable", "false").start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "gone", 2, &[]);
    let kept = create_topic(&mut raw, "kept", 1, &[]);
    calls::append(&mut raw, &topic, 0, BatchBuilder::of(&["x"]).build());
    calls::append(&mut raw, &kept, 0, BatchBuilder::of(&["x"]).build());
    let deleted =
        raw.call::<DeleteTopicsRequest>(6, &requests::delete_topics(6, &["gone", "never-was"]));
    let errors: BTreeMap<_, _> = deleted
        .responses
        .iter()
        .map(|r| (r.name.clone().unwrap_or_default().to_string(), r.error_code))
        .collect();
    assert_eq!(
        errors,
        BTreeMap::from([("gone".to_owned(), 0), ("never-was".to_owned(), 3)])
    );
    for _ in 0..2 {
        let metadata = raw.call::<MetadataRequest>(12, &requests::metadata(12, &["gone", "kept"]));
        let errors: BTreeMap<_, _> = metadata
            .topics
            .iter()
            .map(|t| (t.name.clone().unwrap_or_default().to_string(), t.error_code))
            .collect();
        assert_eq!(
            errors,
            BTreeMap::from([("gone".to_owned(), 3), ("kept".to_owned(), 0)])
        );
        assert_eq!(calls::end_offset(&mut raw, &kept, 0), 1);
        broker.crash_and_restart();
        raw = broker.connect();
    }
    if !broker.is_kafka() {
        wait::until("the directory is gone", SOON, || {
            !broker.data().join("gone").exists()
        });
    }
}

#[test]
fn t12_topics_are_deleted_by_id() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("t12"), 1, &[]);
    let mut request = requests::delete_topics(6, &[&topic.name]);
    request.topics[0].name = None;
    request.topics[0].topic_id = topic.id;
    let answer = raw.call::<DeleteTopicsRequest>(6, &request);
    assert_eq!(answer.responses[0].error_code, codes::NONE);
    assert_eq!(
        answer.responses[0].name.as_ref().map(|name| name.as_str()),
        Some(topic.name.as_str())
    );
    let again = wait::until_some("the id is gone", SOON, || {
        let answer = raw
            .call::<DeleteTopicsRequest>(6, &request)
            .responses
            .remove(0);
        (answer.error_code != codes::NONE).then_some(answer.error_code)
    });
    assert_eq!(again, codes::UNKNOWN_TOPIC_ID);
}

#[test]
fn nothing_of_a_deleted_topic_stays_open() {
    let broker = setup().set("log.retention.ms", "-1").start();
    if broker.is_kafka() {
        return;
    }
    let mut raw = broker.connect();
    let small = [("internal.segment.bytes", "200")];
    let topic = create_topic(&mut raw, "read-and-gone", 2, &small);
    for n in 0..20 {
        calls::append(&mut raw, &topic, n % 2, BatchBuilder::of(&["x"]).build());
    }
    for partition in 0..2 {
        assert_eq!(calls::read_from(&mut raw, &topic, partition, 0).len(), 10);
    }
    let open = || {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", broker.pid())).expect("list them");
        let files = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        let names = files.map(|file| file.display().to_string());
        // Its directory is renamed before its files are unlinked.
        let of_topic = |name: &String| name.contains("read-and-gone") || name.contains(".trash-");
        names.filter(of_topic).collect::<Vec<_>>()
    };
    assert!(!open().is_empty(), "this test would see what is open");
    let deleted =
        raw.call::<DeleteTopicsRequest>(6, &requests::delete_topics(6, &["read-and-gone"]));
    assert_eq!(deleted.responses[0].error_code, codes::NONE);
    wait::until("everything of it is closed", SOON, || open().is_empty());
}
