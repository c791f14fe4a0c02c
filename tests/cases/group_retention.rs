//! Offsets that end: by what the client asked, or because nobody uses the group any more.

use seawall_testkit::calls::create_topic;
use seawall_testkit::groups::{Commit, OffsetsOf, subscription};
use seawall_testkit::kafka_wire::{ListGroupsRequest, OffsetCommitRequest};
use seawall_testkit::requests::TopicRef;
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{Broker, Raw};

use super::codes;
use super::groups::{member, settle_alone};
use crate::setup;

fn start() -> (Broker, Raw, TopicRef) {
    let broker = setup()
        .set("offsets.retention.check.interval.ms", "50")
        .set("group.initial.rebalance.delay.ms", "0")
        .start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "read", 2, &[]);
    (broker, raw, topic)
}

/// Commits in version 4, the last that says how long.
fn commit_for(raw: &mut Raw, group: &str, topic: &TopicRef, partition: i32, retention_ms: i64) {
    let mut request = Commit::new(group, &topic.name, partition, 5).request(4);
    request.retention_time_ms = retention_ms;
    let answer = raw.call::<OffsetCommitRequest>(4, &request);
    assert_eq!(answer.topics[0].partitions[0].error_code, codes::NONE);
}

fn committed(raw: &mut Raw, group: &str, topic: &TopicRef) -> Vec<i64> {
    let (_, rows) = OffsetsOf::of(group, topic, &[0, 1]).run(raw, 7);
    rows.iter().map(|row| row.offset).collect()
}

fn groups(raw: &mut Raw) -> Vec<String> {
    let answer = raw.call::<ListGroupsRequest>(4, &ListGroupsRequest::default());
    let groups = answer.groups.iter();
    groups
        .map(|group| group.group_id.as_str().to_owned())
        .collect()
}

#[test]
fn an_offset_ends_when_its_client_said_and_the_group_with_its_last_offset() {
    let (broker, mut raw, topic) = start();
    commit_for(&mut raw, "g", &topic, 0, 1);
    commit_for(&mut raw, "g", &topic, 1, 3_600_000);
    wait::until("the first has ended", SOON, || {
        committed(&mut raw, "g", &topic) == [-1, 5]
    });
    commit_for(&mut raw, "short", &topic, 0, 1);
    wait::until("the group has ended", SOON, || groups(&mut raw) == ["g"]);
    let file = broker
        .data()
        .join("__cluster/__consumer_offsets/short.json");
    wait::until("its file is gone", SOON, || !file.exists());
}

#[test]
fn offsets_of_a_group_with_members_do_not_end() {
    let (broker, mut raw, topic) = start();
    let mut member = member(&broker, "g", 5);
    member.join.protocols = vec![("range".to_owned(), subscription(&[&topic.name]))];
    settle_alone(&mut member);
    let mut request = Commit {
        generation: member.generation,
        member: member.id(),
        ..Commit::new("g", &topic.name, 0, 5)
    }
    .request(4);
    request.retention_time_ms = 1;
    let answer = raw.call::<OffsetCommitRequest>(4, &request);
    assert_eq!(answer.topics[0].partitions[0].error_code, codes::NONE);
    // Sweeps have come and gone when an offset that may end has ended.
    for _ in 0..2 {
        commit_for(&mut raw, "short", &topic, 0, 1);
        wait::until("another has ended", SOON, || {
            committed(&mut raw, "short", &topic)[0] == -1
        });
    }
    assert_eq!(committed(&mut raw, "g", &topic)[0], 5);
    member.join.protocols = vec![("range".to_owned(), subscription(&["another"]))];
    settle_alone(&mut member);
    wait::until("it ends when nobody reads the topic", SOON, || {
        committed(&mut raw, "g", &topic)[0] == -1
    });
    assert_eq!(member.commit(&topic.name, 0, 6), codes::NONE);
    assert_eq!(committed(&mut raw, "g", &topic)[0], 6);
    assert_eq!(member.leave(), codes::NONE);
}
