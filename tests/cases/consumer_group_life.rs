//! What becomes of a consumer group (KIP-848) and what others see of it: described, listed, deleted, full, silent, over a
//! crash, and on its way from a classic group and back.

use std::time::{Duration, Instant};

use seawall_testkit::consumers;
use seawall_testkit::groups::subscription;
use seawall_testkit::kafka_wire::{DeleteGroupsRequest, ListGroupsRequest};
use seawall_testkit::wait::{self, SOON};

use super::codes;
use super::consumer_groups::{beat, consumer, new_topic, settled};
use super::groups::{describe, first_member, groups_broker, member, new_group};
use crate::setup;

#[test]
fn a_silent_member_is_fenced_and_one_that_gives_nothing_up_too() {
    let broker = setup()
        .set("group.consumer.min.session.timeout.ms", "1000")
        .set("group.consumer.session.timeout.ms", "2000")
        .set("group.consumer.min.heartbeat.interval.ms", "100")
        .set("group.consumer.heartbeat.interval.ms", "500")
        .start();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 2));
    let mut first = consumer(&broker, &group, "m-1", &topic);
    first.rebalance_ms = 1_500;
    assert_eq!(first.join().heartbeat_interval_ms, 500);
    wait::until("it owns all", SOON, || {
        beat(&mut first);
        first.owns(topic.id) == [0, 1]
    });
    let mut second = consumer(&broker, &group, "m-2", &topic);
    assert_eq!(second.join().error_code, codes::NONE);
    first.keeps = true;
    wait::until("the first one is out, though it beats", SOON, || {
        beat(&mut second);
        let code = first.beat().error_code;
        assert!(
            [
                codes::NONE,
                codes::UNKNOWN_MEMBER_ID,
                codes::FENCED_MEMBER_EPOCH
            ]
            .contains(&code),
            "{code}"
        );
        code != codes::NONE
    });
    wait::until("the second one owns all", SOON, || {
        beat(&mut second);
        second.owns(topic.id) == [0, 1]
    });
    let started = Instant::now();
    wait::until("the silent one is out", SOON, || {
        let described = consumers::describe(&mut broker.connect(), 1, &group);
        described.group_state.as_str() == "Empty"
    });
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn describe_says_who_has_what() {
    let broker = groups_broker();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 2));
    let mut alone = consumer(&broker, &group, "m-1", &topic);
    alone.instance = Some("one".to_owned());
    let mut request = alone.full_request();
    request.rack_id = Some("rack-7".into());
    request.topic_partitions = Some(Vec::new());
    assert_eq!(alone.send(&request).error_code, codes::NONE);
    wait::until("it owns all", SOON, || {
        beat(&mut alone);
        alone.owns(topic.id) == [0, 1]
    });
    beat(&mut alone);
    for version in [0, 1] {
        let described = consumers::describe(&mut broker.connect(), version, &group);
        let got = (
            described.error_code,
            described.group_state.as_str(),
            described.assignor_name.as_str(),
        );
        assert_eq!(got, (codes::NONE, "Stable", "uniform"), "v{version}");
        assert_eq!(
            (described.group_epoch, described.assignment_epoch),
            (alone.epoch, alone.epoch)
        );
        assert_eq!(described.authorized_operations, i32::MIN);
        let row = &described.members[0];
        assert_eq!(
            (row.member_id.as_str(), row.member_epoch),
            ("m-1", alone.epoch)
        );
        assert_eq!(
            (row.instance_id.as_deref(), row.rack_id.as_deref()),
            (Some("one"), Some("rack-7"))
        );
        assert_eq!(
            (row.client_id.as_str(), row.client_host.as_str()),
            ("test", "/127.0.0.1")
        );
        assert_eq!(row.subscribed_topic_names.len(), 1);
        for assignment in [&row.assignment, &row.target_assignment] {
            let owned = &assignment.topic_partitions[0];
            assert_eq!(
                (owned.topic_name.as_str(), owned.topic_id),
                (topic.name.as_str(), topic.id)
            );
            assert_eq!(owned.partitions.len(), 2);
        }
        assert_eq!(
            row.member_type,
            if version == 0 { -1 } else { 1 },
            "v{version}"
        );
    }
    let unknown = consumers::describe(&mut broker.connect(), 1, &broker.fresh("unknown"));
    assert_eq!(
        (unknown.error_code, unknown.group_state.as_str()),
        (codes::GROUP_ID_NOT_FOUND, "")
    );
    // The classic describe does not know it, and the other way round.
    let old = describe(&broker, &group, 6);
    assert_eq!(
        (old.error_code, old.group_state.as_str()),
        (codes::GROUP_ID_NOT_FOUND, "Dead")
    );
    let classic = new_group(&broker);
    let _first = first_member(&broker, &classic, 9);
    let described = consumers::describe(&mut broker.connect(), 1, &classic);
    assert_eq!(described.error_code, codes::GROUP_ID_NOT_FOUND);
}

#[test]
fn it_is_listed_as_a_consumer_group_and_deleted_when_empty() {
    let broker = groups_broker();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 1));
    let mut alone = settled(&broker, &group, "m-1", &topic, 1);
    let listed = |states: &[&str], types: &[&str]| {
        let mut request = ListGroupsRequest::default();
        request.states_filter = states.iter().map(|state| (*state).into()).collect();
        request.types_filter = types.iter().map(|kind| (*kind).into()).collect();
        let answer = broker.connect().call::<ListGroupsRequest>(5, &request);
        let row = answer
            .groups
            .into_iter()
            .find(|row| row.group_id.as_str() == group);
        row.map(|row| {
            [row.protocol_type, row.group_state, row.group_type]
                .map(|text| text.as_str().to_owned())
        })
    };
    let stable = ["consumer", "Stable", "consumer"].map(str::to_owned);
    assert_eq!(listed(&[], &[]), Some(stable.clone()));
    assert_eq!(listed(&["stable"], &["Consumer"]), Some(stable));
    assert_eq!(listed(&[], &["classic"]), None);
    let delete = || {
        let mut request = DeleteGroupsRequest::default();
        request.groups_names = vec![group.as_str().into()];
        broker
            .connect()
            .call::<DeleteGroupsRequest>(2, &request)
            .results[0]
            .error_code
    };
    assert_eq!(delete(), codes::NON_EMPTY_GROUP);
    assert_eq!(alone.leave(-1).error_code, codes::NONE);
    assert_eq!(
        listed(&["Empty"], &["consumer"]).map(|row| row[1].clone()),
        Some("Empty".to_owned())
    );
    assert_eq!(delete(), codes::NONE);
    assert_eq!(listed(&[], &[]), None);
}

#[test]
fn a_consumer_group_survives_a_crash_of_the_broker() {
    let mut broker = setup().set("group.initial.rebalance.delay.ms", "0").start();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 2));
    let mut alone = settled(&broker, &group, "m-1", &topic, 2);
    let epoch = alone.epoch;
    broker.crash_and_restart();
    alone.raw = broker.connect();
    wait::until("it beats on", SOON, || {
        let code = alone.beat().error_code;
        assert!([codes::NONE, 14, 15, 16].contains(&code), "{code}");
        code == codes::NONE
    });
    assert_eq!((alone.epoch, alone.owns(topic.id)), (epoch, vec![0, 1]));
}

#[test]
fn a_classic_group_becomes_a_consumer_group_and_back() {
    let broker = groups_broker();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 2));
    let mut old = member(&broker, &group, 9);
    old.join.protocols[0].1 = subscription(&[&topic.name]);
    assert_eq!(old.join().error_code, codes::NONE);
    let id = old.id().to_owned();
    let everything: &[u8] = &assignment(&topic.name, &[0, 1]);
    assert_eq!(old.sync(&[(&id, everything)]).error_code, codes::NONE);

    let mut new = consumer(&broker, &group, "m-new", &topic);
    assert_eq!(new.join().error_code, codes::NONE, "it upgrades the group");
    let described = consumers::describe(&mut broker.connect(), 1, &group);
    let types: Vec<i8> = described
        .members
        .iter()
        .map(|row| row.member_type)
        .collect();
    assert!(types.contains(&0) && types.contains(&1), "{types:?}");
    // The old member learns by its heartbeat that it has to join again, gets half, and goes on.
    wait::until("the old one is asked to rejoin", SOON, || {
        new.beat();
        old.heartbeat() == codes::REBALANCE_IN_PROGRESS
    });
    let joined = old.join();
    assert_eq!(
        (joined.error_code, joined.protocol_name.as_deref()),
        (codes::NONE, Some("range"))
    );
    assert_eq!(old.sync(&[]).error_code, codes::NONE);
    wait::until("each has one partition", SOON, || {
        beat(&mut new);
        if old.heartbeat() == codes::REBALANCE_IN_PROGRESS {
            assert_eq!(old.join().error_code, codes::NONE);
            assert_eq!(old.sync(&[]).error_code, codes::NONE);
        }
        new.owns(topic.id).len() == 1
    });
    // The last one that speaks the new protocol leaves: a classic group again.
    assert_eq!(new.leave(-1).error_code, codes::NONE);
    wait::until("it is a classic group", SOON, || {
        describe(&broker, &group, 5).members.len() == 1
    });
    wait::until("the old one has all", SOON, || {
        match old.heartbeat() {
            codes::NONE => {}
            code => assert_eq!(code, codes::REBALANCE_IN_PROGRESS),
        }
        let joined = old.join();
        let synced = old.sync(&[(&id, everything)]);
        (joined.error_code, synced.error_code) == (codes::NONE, codes::NONE)
    });
    assert_eq!(old.heartbeat(), codes::NONE);
}

/// An assignment of the classic protocol, version 1.
fn assignment(topic: &str, partitions: &[i32]) -> Vec<u8> {
    let mut bytes = vec![0, 1, 0, 0, 0, 1, 0];
    bytes.push(u8::try_from(topic.len()).expect("a short name"));
    bytes.extend(topic.as_bytes());
    let count = i32::try_from(partitions.len()).expect("few partitions");
    bytes.extend(count.to_be_bytes());
    for partition in partitions {
        bytes.extend(partition.to_be_bytes());
    }
    bytes.extend((-1_i32).to_be_bytes());
    bytes
}

#[test]
fn groups_of_another_kind_are_left_alone() {
    let broker = groups_broker();
    let topic = new_topic(&broker, 1);
    // Members of a consumer group and of something else do not mix.
    let group = new_group(&broker);
    let _alone = settled(&broker, &group, "m-1", &topic, 1);
    let mut connect = member(&broker, &group, 3);
    connect.join.protocol_type = "connect".to_owned();
    let correlation = connect.send_join();
    let refused = connect.receive_join(correlation);
    assert_eq!(refused.error_code, codes::INCONSISTENT_GROUP_PROTOCOL);
    let other = new_group(&broker);
    let mut connect = member(&broker, &other, 3);
    connect.join.protocol_type = "connect".to_owned();
    assert_eq!(connect.join().error_code, codes::NONE);
    let mut new = consumer(&broker, &other, "m-1", &topic);
    assert_eq!(new.join().error_code, codes::GROUP_ID_NOT_FOUND);
}

#[test]
fn a_full_consumer_group_takes_nobody_more() {
    let broker = setup().set("group.consumer.max.size", "1").start();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 1));
    let mut first = settled(&broker, &group, "m-1", &topic, 1);
    let mut second = consumer(&broker, &group, "m-2", &topic);
    assert_eq!(second.join().error_code, codes::GROUP_MAX_SIZE_REACHED);
    assert_eq!(first.join().error_code, codes::NONE);
}
