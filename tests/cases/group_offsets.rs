//! Committed offsets: what is committed comes back, in every version, over a crash, and for whom; groups listed and
//! deleted; the rows g01, g07, g09, g11 and g12 of the cases.

use std::collections::BTreeMap;

use seawall_testkit::calls::create_topic;
use seawall_testkit::groups::{self, Commit, Committed, OffsetsOf, subscription};
use seawall_testkit::kafka_wire::list_groups_response::ListedGroup;
use seawall_testkit::kafka_wire::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use seawall_testkit::kafka_wire::{
    DeleteGroupsRequest, DeleteTopicsRequest, ListGroupsRequest, OffsetCommitRequest,
    OffsetDeleteRequest, OffsetFetchRequest,
};
use seawall_testkit::kafka_wire_core::Uuid;
use seawall_testkit::requests::{self, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{Broker, Raw};

use super::codes;
use super::groups::{describe, first_member, groups_broker, member, new_group, settle_alone};
use crate::setup;

/// The version of OffsetCommit where a test does not care.
const COMMIT: i16 = 8;
/// The version of OffsetFetch where a test does not care.
const FETCH: i16 = 7;

fn new_topic(broker: &Broker, partitions: i32) -> TopicRef {
    create_topic(
        &mut broker.connect(),
        &broker.fresh("offsets"),
        partitions,
        &[],
    )
}

/// The committed offset of one partition.
fn offset_of(raw: &mut Raw, group: &str, topic: &TopicRef, partition: i32) -> i64 {
    let (error, rows) = OffsetsOf::of(group, topic, &[partition]).run(raw, FETCH);
    assert_eq!((error, rows[0].error), (codes::NONE, codes::NONE));
    rows[0].offset
}

/// DeleteGroups of one group.
fn delete(broker: &Broker, group: &str) -> i16 {
    let mut request = DeleteGroupsRequest::default();
    request.groups_names = vec![group.into()];
    let answer = broker.connect().call::<DeleteGroupsRequest>(2, &request);
    answer.results[0].error_code
}

/// ListGroups with filters, the groups of other tests left out.
fn list(
    broker: &Broker,
    version: i16,
    states: &[&str],
    types: &[&str],
    ours: &[&str],
) -> Vec<ListedGroup> {
    let mut request = ListGroupsRequest::default();
    request.states_filter = states.iter().map(|state| (*state).into()).collect();
    request.types_filter = types.iter().map(|kind| (*kind).into()).collect();
    let answer = broker
        .connect()
        .call::<ListGroupsRequest>(version, &request);
    assert_eq!(answer.error_code, codes::NONE);
    let mut groups = answer.groups;
    groups.retain(|group| ours.contains(&group.group_id.as_str()));
    groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    groups
}

#[test]
fn what_was_committed_is_fetched_in_every_version() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let topic = new_topic(&broker, 2);
    let mut raw = broker.connect();
    for version in 2..=10 {
        let commit = Commit {
            topic_id: topic.id,
            epoch: 3,
            metadata: Some("meta"),
            ..Commit::new(&group, &topic.name, 1, 100 + i64::from(version))
        };
        assert_eq!(
            commit.run(&mut raw, version),
            codes::NONE,
            "commit v{version}"
        );
        let epoch = if version >= 6 { 3 } else { -1 };
        for fetch in 1..=10 {
            let (error, rows) = OffsetsOf::of(&group, &topic, &[0, 1]).run(&mut raw, fetch);
            let name = if fetch >= 10 { "" } else { topic.name.as_str() };
            let row = |partition, offset, epoch, metadata: &str| Committed {
                topic: name.to_owned(),
                partition,
                offset,
                epoch: if fetch >= 5 { epoch } else { -1 },
                metadata: metadata.to_owned(),
                error: codes::NONE,
            };
            let expected = vec![
                row(0, -1, -1, ""),
                row(1, 100 + i64::from(version), epoch, "meta"),
            ];
            assert_eq!(
                (error, rows),
                (codes::NONE, expected),
                "commit v{version}, fetch v{fetch}"
            );
        }
    }
}

#[test]
fn g12_all_offsets_and_named_ones_are_the_same() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut raw = broker.connect();
    let topics = [new_topic(&broker, 1), new_topic(&broker, 2)];
    let mut expected = BTreeMap::new();
    for (number, (topic, partition)) in [(&topics[0], 0), (&topics[1], 0), (&topics[1], 1)]
        .into_iter()
        .enumerate()
    {
        let number = i32::try_from(number).expect("small");
        let commit = Commit {
            epoch: 5 + number,
            metadata: Some("m"),
            ..Commit::new(&group, &topic.name, partition, 50 + i64::from(number))
        };
        assert_eq!(commit.run(&mut raw, COMMIT), codes::NONE);
        expected.insert(
            (topic.name.clone(), partition),
            (50 + i64::from(number), 5 + number),
        );
    }
    for version in 2..=9 {
        let (error, rows) = OffsetsOf::all(&group).run(&mut raw, version);
        assert_eq!(error, codes::NONE);
        let got: BTreeMap<(String, i32), (i64, i32)> = rows
            .into_iter()
            .map(|row| ((row.topic, row.partition), (row.offset, row.epoch)))
            .collect();
        let mut expected = expected.clone();
        if version < 5 {
            expected.values_mut().for_each(|value| value.1 = -1);
        }
        assert_eq!(got, expected, "v{version}");
    }
    let (_, rows) = OffsetsOf::all(&group).run(&mut raw, 10);
    assert_eq!(rows.len(), 3, "by id");
}

#[test]
fn g07_metadata_comes_back_and_too_much_of_it_is_refused() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let topic = new_topic(&broker, 2);
    let mut raw = broker.connect();
    let largest = "m".repeat(4_096);
    let larger = "m".repeat(4_097);
    let commit = |partition, metadata| Commit {
        metadata,
        ..Commit::new(&group, &topic.name, partition, 1)
    };
    for version in 2..=9 {
        assert_eq!(commit(0, Some("meta")).run(&mut raw, version), codes::NONE);
        assert_eq!(
            commit(0, Some(&larger)).run(&mut raw, version),
            codes::OFFSET_METADATA_TOO_LARGE
        );
        let rows = OffsetsOf::of(&group, &topic, &[0]).run(&mut raw, FETCH).1;
        assert_eq!(rows[0].metadata, "meta", "the refused one changed nothing");
        assert_eq!(
            commit(1, Some(&largest)).run(&mut raw, version),
            codes::NONE
        );
        let rows = OffsetsOf::of(&group, &topic, &[1]).run(&mut raw, FETCH).1;
        assert_eq!(rows[0].metadata, largest);
        assert_eq!(
            commit(1, None).run(&mut raw, version),
            codes::NONE,
            "null stands for nothing"
        );
        let rows = OffsetsOf::of(&group, &topic, &[1]).run(&mut raw, FETCH).1;
        assert_eq!(rows[0].metadata, "");
    }
}

#[test]
fn one_bad_partition_does_not_keep_the_others_from_being_committed() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let topic = new_topic(&broker, 2);
    let mut raw = broker.connect();
    let large = "m".repeat(5_000);
    let mut request = Commit::new(&group, &topic.name, 0, 7).request(COMMIT);
    let mut second = request.topics[0].partitions[0].clone();
    second.partition_index = 1;
    second.committed_metadata = Some(large.as_str().into());
    let mut third = request.topics[0].partitions[0].clone();
    third.partition_index = 2;
    request.topics[0].partitions.extend([second, third]);
    request.topics.push(
        Commit::new(&group, "no-such-topic", 0, 1)
            .request(COMMIT)
            .topics
            .remove(0),
    );
    let answer = raw.call::<OffsetCommitRequest>(COMMIT, &request);
    let mut got: Vec<(i32, i16)> = answer
        .topics
        .iter()
        .filter(|row| row.name.as_str() == topic.name)
        .flat_map(|row| {
            row.partitions
                .iter()
                .map(|p| (p.partition_index, p.error_code))
        })
        .collect();
    got.sort_unstable();
    let expected = [
        (0, codes::NONE),
        (1, codes::OFFSET_METADATA_TOO_LARGE),
        (2, codes::UNKNOWN_TOPIC_OR_PARTITION),
    ];
    assert_eq!(got, expected);
    let unknown = answer
        .topics
        .iter()
        .find(|row| row.name.as_str() == "no-such-topic")
        .expect("a row");
    assert_eq!(
        unknown.partitions[0].error_code,
        codes::UNKNOWN_TOPIC_OR_PARTITION
    );
    assert_eq!(offset_of(&mut raw, &group, &topic, 0), 7);
    assert_eq!(offset_of(&mut raw, &group, &topic, 1), -1);
}

#[test]
fn unknown_topics_are_refused_by_name_and_by_id() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut raw = broker.connect();
    for version in 2..=9 {
        let code = Commit::new(&group, "no-such-topic", 0, 1).run(&mut raw, version);
        assert_eq!(code, codes::UNKNOWN_TOPIC_OR_PARTITION, "v{version}");
    }
    let by_id = Commit {
        topic_id: Uuid::from_bytes([7; 16]),
        ..Commit::new(&group, "", 0, 1)
    };
    assert_eq!(by_id.run(&mut raw, 10), codes::UNKNOWN_TOPIC_ID);
    let unknown = TopicRef {
        name: "no-such-topic".to_owned(),
        id: Uuid::from_bytes([7; 16]),
    };
    for version in 1..=10 {
        let (error, rows) = OffsetsOf::of(&group, &unknown, &[0]).run(&mut raw, version);
        let expected = if version >= 10 {
            codes::UNKNOWN_TOPIC_ID
        } else {
            codes::NONE
        };
        assert_eq!(
            (error, rows[0].offset, rows[0].error),
            (codes::NONE, -1, expected),
            "v{version}"
        );
    }
}

#[test]
fn an_unknown_group_has_no_offsets_and_that_is_no_error() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let topic = new_topic(&broker, 1);
    let mut raw = broker.connect();
    for version in 1..=10 {
        let (error, rows) = OffsetsOf::of(&group, &topic, &[0]).run(&mut raw, version);
        assert_eq!(
            (error, rows[0].offset, rows[0].error),
            (codes::NONE, -1, codes::NONE),
            "v{version}"
        );
    }
    for version in 2..=10 {
        assert_eq!(
            OffsetsOf::all(&group).run(&mut raw, version),
            (codes::NONE, vec![]),
            "v{version}"
        );
    }
    assert_eq!(
        describe(&broker, &group, 5).group_state.as_str(),
        "Dead",
        "asking makes no group"
    );
}

#[test]
fn offsets_of_several_groups_come_in_one_answer_in_its_order() {
    let broker = groups_broker();
    let topic = new_topic(&broker, 1);
    let mut raw = broker.connect();
    let names = [new_group(&broker), new_group(&broker), new_group(&broker)];
    for (name, offset) in names.iter().zip([5, 6]) {
        assert_eq!(
            Commit::new(name, &topic.name, 0, offset).run(&mut raw, COMMIT),
            codes::NONE
        );
    }
    for version in 8..=10 {
        let mut request = OffsetFetchRequest::default();
        for name in &names {
            let of_one = OffsetsOf::of(name, &topic, &[0]).request(version);
            request.groups.extend(of_one.groups);
        }
        request
            .groups
            .extend(OffsetsOf::all(&names[0]).request(version).groups);
        let answer = raw.call::<OffsetFetchRequest>(version, &request);
        let got: Vec<(&str, i64)> = answer
            .groups
            .iter()
            .map(|group| {
                (
                    group.group_id.as_str(),
                    group.topics[0].partitions[0].committed_offset,
                )
            })
            .collect();
        let expected = [
            (names[0].as_str(), 5),
            (&names[1], 6),
            (&names[2], -1),
            (&names[0], 5),
        ];
        assert_eq!(got, expected, "v{version}");
    }
}

#[test]
fn odd_commits_get_what_kafka_answers() {
    let broker = groups_broker();
    let topic = new_topic(&broker, 1);
    let mut raw = broker.connect();
    let commit = |group: &str, generation, member: &str, version, raw: &mut Raw| {
        Commit {
            generation,
            member,
            ..Commit::new(group, &topic.name, 0, 1)
        }
        .run(raw, version)
    };
    new_group(&broker);
    assert_eq!(
        commit("", -1, "", 8, &mut raw),
        codes::NONE,
        "an empty group id"
    );
    for version in 2..=9 {
        let unknown = new_group(&broker);
        let code = commit(&unknown, 3, "m", version, &mut raw);
        let expected = if version >= 9 {
            codes::GROUP_ID_NOT_FOUND
        } else {
            codes::ILLEGAL_GENERATION
        };
        assert_eq!(
            code, expected,
            "a generation of an unknown group, v{version}"
        );
        let empty = new_group(&broker);
        assert_eq!(
            commit(&empty, -1, "", version, &mut raw),
            codes::NONE,
            "v{version}"
        );
        assert_eq!(
            commit(&empty, -1, "stranger", version, &mut raw),
            codes::NONE,
            "an empty group, v{version}"
        );
    }
    let group = new_group(&broker);
    let mut first = first_member(&broker, &group, 9);
    assert_eq!(
        commit(&group, -1, "", 8, &mut raw),
        codes::UNKNOWN_MEMBER_ID,
        "from outside of a live group"
    );
    assert_eq!(
        commit(&group, 1, "stranger", 8, &mut raw),
        codes::UNKNOWN_MEMBER_ID
    );
    assert_eq!(first.commit(&topic.name, 0, -1), codes::NONE, "offset -1");
    assert_eq!(offset_of(&mut raw, &group, &topic, 0), -1);
    assert_eq!(first.commit(&topic.name, 0, i64::MAX), codes::NONE);
    assert_eq!(offset_of(&mut raw, &group, &topic, 0), i64::MAX);
    assert_eq!(
        first.commit(&topic.name, 0, 3),
        codes::NONE,
        "back is allowed to who commits"
    );
    assert_eq!(offset_of(&mut raw, &group, &topic, 0), 3);
}

#[test]
fn committed_offsets_survive_a_crash_right_after_the_answer() {
    let mut broker = setup().set("group.initial.rebalance.delay.ms", "0").start();
    let group = new_group(&broker);
    let topic = new_topic(&broker, 3);
    for round in 1..=3 {
        let mut raw = broker.connect();
        for partition in 0..3 {
            let commit = Commit {
                metadata: Some("kept"),
                epoch: 4,
                ..Commit::new(
                    &group,
                    &topic.name,
                    partition,
                    round * 10 + i64::from(partition),
                )
            };
            assert_eq!(commit.run(&mut raw, COMMIT), codes::NONE);
        }
        broker.crash_and_restart();
        let mut raw = broker.connect();
        groups::until_coordinated(&mut raw, &group);
        let (error, rows) = OffsetsOf::of(&group, &topic, &[0, 1, 2]).run(&mut raw, FETCH);
        let got: Vec<(i64, i32, &str)> = rows
            .iter()
            .map(|row| (row.offset, row.epoch, row.metadata.as_str()))
            .collect();
        let expected = [0, 1, 2].map(|partition| (round * 10 + partition, 4, "kept"));
        assert_eq!(
            (error, got),
            (codes::NONE, expected.to_vec()),
            "round {round}"
        );
    }
}

#[test]
fn g01_no_offset_is_missing_while_a_restarted_broker_loads_its_groups() {
    let mut broker = setup().set("group.initial.rebalance.delay.ms", "0").start();
    let topic = new_topic(&broker, 1);
    let names: Vec<String> = (0..20).map(|_| new_group(&broker)).collect();
    for name in &names {
        assert_eq!(
            Commit::new(name, &topic.name, 0, 9).run(&mut broker.connect(), COMMIT),
            codes::NONE
        );
    }
    broker.crash_and_restart();
    let mut raw = broker.connect();
    for name in names.iter().rev() {
        for version in [1, 2, 7, 8] {
            wait::until("the group is loaded", SOON, || {
                let (error, rows) = OffsetsOf::of(name, &topic, &[0]).run(&mut raw, version);
                let loading = [14, 15, 16].contains(&error)
                    || rows.iter().any(|row| [14, 15, 16].contains(&row.error));
                if !loading {
                    assert_eq!(
                        (error, rows[0].error, rows[0].offset),
                        (0, 0, 9),
                        "v{version}"
                    );
                }
                !loading
            });
        }
    }
}

#[test]
fn offsets_are_deleted_but_not_those_that_a_member_reads() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let (read, unread) = (new_topic(&broker, 1), new_topic(&broker, 2));
    let mut first = member(&broker, &group, 9);
    first.join.protocols[0].1 = subscription(&[&read.name]);
    settle_alone(&mut first);
    for (topic, partition) in [(&read, 0), (&unread, 0), (&unread, 1)] {
        assert_eq!(first.commit(&topic.name, partition, 5), codes::NONE);
    }
    let parts = [(&read, 0), (&unread, 0), (&unread, 7)];
    let expected = [
        codes::GROUP_SUBSCRIBED_TO_TOPIC,
        codes::NONE,
        codes::UNKNOWN_TOPIC_OR_PARTITION,
    ];
    assert_eq!(
        delete_offsets(&broker, &group, &parts),
        (codes::NONE, expected.to_vec())
    );
    let mut raw = broker.connect();
    assert_eq!(offset_of(&mut raw, &group, &read, 0), 5);
    assert_eq!(offset_of(&mut raw, &group, &unread, 0), -1);
    assert_eq!(offset_of(&mut raw, &group, &unread, 1), 5);
    first.leave();
    let again = delete_offsets(&broker, &group, &[(&read, 0), (&read, 0)]);
    assert_eq!(again.1[0], codes::NONE, "nobody reads it any more");
    assert_eq!(offset_of(&mut raw, &group, &read, 0), -1);
    let unknown = new_group(&broker);
    assert_eq!(
        delete_offsets(&broker, &unknown, &[(&read, 0)]).0,
        codes::GROUP_ID_NOT_FOUND
    );
}

/// OffsetDelete: the error of the group, and those of the partitions.
fn delete_offsets(broker: &Broker, group: &str, parts: &[(&TopicRef, i32)]) -> (i16, Vec<i16>) {
    let mut request = OffsetDeleteRequest::default();
    request.group_id = group.into();
    for (topic, partition) in parts {
        let mut part = OffsetDeleteRequestPartition::default();
        part.partition_index = *partition;
        let mut row = OffsetDeleteRequestTopic::default();
        row.name = topic.name.as_str().into();
        row.partitions = vec![part];
        request.topics.push(row);
    }
    let answer = broker.connect().call::<OffsetDeleteRequest>(0, &request);
    let code = |topic: &TopicRef, partition| {
        let rows = answer
            .topics
            .iter()
            .filter(|row| row.name.as_str() == topic.name);
        let mut rows = rows.flat_map(|row| &row.partitions);
        let row = rows.find(|row| row.partition_index == partition);
        row.map_or(-1, |row| row.error_code)
    };
    (
        answer.error_code,
        parts
            .iter()
            .map(|(topic, partition)| code(topic, *partition))
            .collect(),
    )
}

#[test]
fn g09_a_deleted_group_is_gone_and_stays_gone() {
    let mut broker = setup().set("group.initial.rebalance.delay.ms", "0").start();
    let topic = new_topic(&broker, 1);
    let (joined, committed) = (new_group(&broker), new_group(&broker));
    let mut first = first_member(&broker, &joined, 9);
    assert_eq!(delete(&broker, &joined), codes::NON_EMPTY_GROUP);
    assert_eq!(first.leave(), codes::NONE);
    wait::until("the group is empty", SOON, || {
        describe(&broker, &joined, 5).group_state.as_str() == "Empty"
    });
    assert_eq!(
        Commit::new(&committed, &topic.name, 0, 5).run(&mut broker.connect(), COMMIT),
        codes::NONE
    );
    assert_eq!(list(&broker, 5, &[], &[], &[&joined, &committed]).len(), 2);
    for group in [&joined, &committed] {
        assert_eq!(delete(&broker, group), codes::NONE);
        assert_eq!(delete(&broker, group), codes::GROUP_ID_NOT_FOUND);
    }
    broker.crash_and_restart();
    groups::until_coordinated(&mut broker.connect(), &joined);
    assert_eq!(list(&broker, 5, &[], &[], &[&joined, &committed]).len(), 0);
    assert_eq!(offset_of(&mut broker.connect(), &committed, &topic, 0), -1);
}

#[test]
fn groups_are_deleted_in_a_batch_in_every_version() {
    let broker = groups_broker();
    let topic = new_topic(&broker, 1);
    for version in 0..=2 {
        let live = new_group(&broker);
        let _first = first_member(&broker, &live, 9);
        let (idle, unknown) = (new_group(&broker), new_group(&broker));
        assert_eq!(
            Commit::new(&idle, &topic.name, 0, 5).run(&mut broker.connect(), COMMIT),
            codes::NONE
        );
        let mut request = DeleteGroupsRequest::default();
        request.groups_names = [&live, &idle, &unknown]
            .map(|name| name.as_str().into())
            .to_vec();
        let answer = broker
            .connect()
            .call::<DeleteGroupsRequest>(version, &request);
        let got: BTreeMap<&str, i16> = answer
            .results
            .iter()
            .map(|row| (row.group_id.as_str(), row.error_code))
            .collect();
        let expected = [
            (live.as_str(), codes::NON_EMPTY_GROUP),
            (&idle, codes::NONE),
            (&unknown, codes::GROUP_ID_NOT_FOUND),
        ];
        assert_eq!(got, BTreeMap::from(expected), "v{version}");
    }
}

#[test]
fn groups_are_listed_by_state_and_type() {
    let broker = groups_broker();
    let topic = new_topic(&broker, 1);
    let (stable, empty) = (new_group(&broker), new_group(&broker));
    let _first = first_member(&broker, &stable, 9);
    assert_eq!(
        Commit::new(&empty, &topic.name, 0, 5).run(&mut broker.connect(), COMMIT),
        codes::NONE
    );
    let ours = [stable.as_str(), empty.as_str()];
    let names = |version, states: &[&str], types: &[&str]| -> Vec<String> {
        let listed = list(&broker, version, states, types, &ours);
        listed
            .iter()
            .map(|group| group.group_id.as_str().to_owned())
            .collect()
    };
    let mut both = vec![stable.clone(), empty.clone()];
    both.sort();
    for version in 0..=5 {
        assert_eq!(names(version, &[], &[]), both, "v{version}");
    }
    for version in 4..=5 {
        assert_eq!(
            names(version, &["Stable"], &[]),
            [stable.as_str()],
            "v{version}"
        );
        assert_eq!(
            names(version, &["sTABLE", "Dead"], &[]),
            [stable.as_str()],
            "v{version}"
        );
        assert_eq!(
            names(version, &["Empty"], &[]),
            [empty.as_str()],
            "v{version}"
        );
        assert_eq!(names(version, &["NoSuchState"], &[]), [""; 0], "v{version}");
    }
    assert_eq!(names(5, &[], &["classic"]), both);
    assert_eq!(names(5, &[], &["Classic", "consumer"]), both);
    assert_eq!(names(5, &[], &["consumer"]), [""; 0]);
    assert_eq!(names(5, &[], &["nonsense"]), [""; 0]);
    let listed = list(&broker, 5, &["Stable"], &[], &ours);
    let row = &listed[0];
    let got = (
        row.protocol_type.as_str(),
        row.group_state.as_str(),
        row.group_type.as_str(),
    );
    assert_eq!(got, ("consumer", "Stable", "classic"));
    let listed = list(&broker, 5, &["Empty"], &[], &ours);
    let row = &listed[0];
    let got = (
        row.protocol_type.as_str(),
        row.group_state.as_str(),
        row.group_type.as_str(),
    );
    assert_eq!(got, ("", "Empty", "classic"));
}

#[test]
fn offsets_of_a_deleted_topic_go_with_it() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let (goes, stays) = (new_topic(&broker, 1), new_topic(&broker, 1));
    let mut raw = broker.connect();
    for topic in [&goes, &stays] {
        assert_eq!(
            Commit::new(&group, &topic.name, 0, 5).run(&mut raw, COMMIT),
            codes::NONE
        );
    }
    raw.call::<DeleteTopicsRequest>(6, &requests::delete_topics(6, &[&goes.name]));
    wait::until("its offset is gone", SOON, || {
        offset_of(&mut raw, &group, &goes, 0) == -1
    });
    create_topic(&mut raw, &goes.name, 1, &[]);
    assert_eq!(offset_of(&mut raw, &group, &goes, 0), -1);
    assert_eq!(offset_of(&mut raw, &group, &stays, 0), 5);
}

#[test]
fn g11_offsets_of_odd_group_ids_are_kept_apart() {
    let broker = groups_broker();
    let topic = new_topic(&broker, 1);
    let long = "x".repeat(300);
    let mut raw = broker.connect();
    new_group(&broker);
    let ids = [
        long.as_str(),
        "../../x",
        "a/b",
        "a\0b",
        ".",
        "..",
        "%2e",
        "%2E",
        "Ä",
        " ",
        "A",
        "a",
        "a%2Fb",
    ];
    for (number, id) in (0..).zip(ids) {
        let code = Commit::new(id, &topic.name, 0, number).run(&mut raw, COMMIT);
        assert_eq!(code, codes::NONE, "{id:?}");
    }
    for (number, id) in (0..).zip(ids) {
        assert_eq!(offset_of(&mut raw, id, &topic, 0), number, "{id:?}");
    }
    for id in ids {
        assert_eq!(delete(&broker, id), codes::NONE, "{id:?}");
    }
}

#[test]
fn concurrent_commits_of_many_groups_are_all_kept() {
    let broker = groups_broker();
    let topic = new_topic(&broker, 1);
    new_group(&broker);
    let names: Vec<String> = (0..40).map(|_| broker.fresh("many")).collect();
    std::thread::scope(|scope| {
        let (broker, topic) = (&broker, &topic);
        for chunk in names.chunks(10) {
            scope.spawn(move || {
                let mut raw = broker.connect();
                for round in 1..=10 {
                    for name in chunk {
                        let code = Commit::new(name, &topic.name, 0, round).run(&mut raw, COMMIT);
                        assert_eq!(code, codes::NONE);
                    }
                }
            });
        }
    });
    let mut raw = broker.connect();
    for name in &names {
        assert_eq!(offset_of(&mut raw, name, &topic, 0), 10);
    }
}
