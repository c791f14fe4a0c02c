//! The classic group protocol, step by step: joining, syncing, heartbeats, leaving, static members, what a group looks
//! like to others, and the rows g08 and g11 of the cases.

use seawall_testkit::calls::create_topic;
use seawall_testkit::groups::{
    self, Join, MEMBER_ID_REQUIRED, Member, coordinator_of, subscription,
};
use seawall_testkit::kafka_wire::describe_groups_response::DescribedGroup;
use seawall_testkit::kafka_wire::{
    DescribeGroupsRequest, FindCoordinatorRequest, HeartbeatRequest, SyncGroupRequest,
};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{Broker, Bytes};

use super::codes;
use crate::setup;

/// A broker whose groups do not wait for more members, and allow sessions that a test can wait for.
pub(crate) fn groups_broker() -> Broker {
    let setup = setup()
        .set("group.initial.rebalance.delay.ms", "0")
        .set("group.min.session.timeout.ms", "300");
    setup.start_or_share()
}

/// A group name that has a coordinator.
pub(crate) fn new_group(broker: &Broker) -> String {
    let group = broker.fresh("group");
    groups::until_coordinated(&mut broker.connect(), &group);
    group
}

/// One that has not joined yet.
pub(crate) fn member(broker: &Broker, group: &str, version: i16) -> Member {
    Member::new(broker.connect(), Join::new(group), version)
}

pub(crate) fn static_member(broker: &Broker, group: &str, instance: &str) -> Member {
    let mut member = member(broker, group, 9);
    member.join.instance = Some(instance.to_owned());
    member
}

/// The first member of a group, joined and synced.
pub(crate) fn first_member(broker: &Broker, group: &str, version: i16) -> Member {
    let mut first = member(broker, group, version);
    settle_alone(&mut first);
    first
}

/// Joins a group that has nobody else, and syncs.
pub(crate) fn settle_alone(member: &mut Member) {
    assert_eq!(member.join().error_code, codes::NONE);
    let id = member.id().to_owned();
    let synced = member.sync(&[(&id, b"all of it")]);
    assert_eq!(
        (synced.error_code, &synced.assignment[..]),
        (codes::NONE, &b"all of it"[..])
    );
}

/// Lets a member join a stable group: the others learn it by their heartbeats and rejoin, the leader assigns its id to
/// each member, and all sync.
pub(crate) fn rebalance_with(old: &mut [&mut Member], new: &mut Member) {
    let joining = new.send_join_with_id();
    let rejoining: Vec<i32> = old
        .iter_mut()
        .map(|member| {
            wait::until("the rebalance is seen", SOON, || {
                member.heartbeat() == codes::REBALANCE_IN_PROGRESS
            });
            member.send_join()
        })
        .collect();
    let mut leader = new.receive_join(joining).leader.as_str().to_owned();
    for (member, correlation) in old.iter_mut().zip(rejoining) {
        let answer = member.receive_join(correlation);
        assert_eq!(answer.error_code, codes::NONE);
        leader = answer.leader.as_str().to_owned();
    }
    let mut all: Vec<&mut Member> = old.iter_mut().map(|member| &mut **member).collect();
    all.push(new);
    sync_all(&mut all, &leader);
}

pub(crate) fn sync_all(all: &mut [&mut Member], leader: &str) {
    let ids: Vec<String> = all.iter().map(|member| member.id().to_owned()).collect();
    let plan: Vec<(&str, &[u8])> = ids.iter().map(|id| (id.as_str(), id.as_bytes())).collect();
    let sent: Vec<i32> = all
        .iter_mut()
        .map(|member| {
            let leads = member.id() == leader;
            member.send_sync(if leads { &plan } else { &[] })
        })
        .collect();
    for (member, correlation) in all.iter_mut().zip(sent) {
        let version = member.sync_version();
        let answer = member.raw.receive::<SyncGroupRequest>(version, correlation);
        assert_eq!(answer.error_code, codes::NONE);
        assert_eq!(&answer.assignment[..], member.id().as_bytes());
    }
}

/// What DescribeGroups says.
pub(crate) fn describe(broker: &Broker, group: &str, version: i16) -> DescribedGroup {
    let mut request = DescribeGroupsRequest::default();
    request.groups = vec![group.into()];
    let mut answer = broker
        .connect()
        .call::<DescribeGroupsRequest>(version, &request);
    answer.groups.remove(0)
}

/// Waits until a group is in a state.
pub(crate) fn until_state(broker: &Broker, group: &str, state: &str) {
    wait::until(state, SOON, || {
        describe(broker, group, 5).group_state.as_str() == state
    });
}

#[test]
fn the_coordinator_of_everything_is_this_broker() {
    let broker = groups_broker();
    let group = new_group(&broker);
    for version in 0..=6 {
        let found = coordinator_of(&mut broker.connect(), version, &group, 0);
        let got = (
            found.error_code,
            found.node_id,
            found.host.as_str(),
            found.port,
        );
        assert_eq!(
            got,
            (codes::NONE, 1, "127.0.0.1", i32::from(broker.addr().port())),
            "v{version}"
        );
    }
}

#[test]
fn coordinators_are_found_in_a_batch_in_its_order() {
    let broker = groups_broker();
    new_group(&broker);
    for version in 4..=6 {
        let mut request = FindCoordinatorRequest::default();
        request.coordinator_keys = ["b", "a", "", "b"].map(Into::into).to_vec();
        let answer = broker
            .connect()
            .call::<FindCoordinatorRequest>(version, &request);
        let got: Vec<(&str, i16)> = answer
            .coordinators
            .iter()
            .map(|c| (c.key.as_str(), c.error_code))
            .collect();
        assert_eq!(got, [("b", 0), ("a", 0), ("", 0), ("b", 0)], "v{version}");
    }
}

#[test]
fn a_kind_of_coordinator_that_does_not_exist_is_refused() {
    let broker = groups_broker();
    for version in 1..=6 {
        let found = coordinator_of(&mut broker.connect(), version, "x", 9);
        assert_eq!(found.error_code, codes::INVALID_REQUEST, "v{version}");
    }
}

#[test]
fn a_member_joins_syncs_beats_and_leaves_in_every_version() {
    let broker = groups_broker();
    for version in 0..=9 {
        let group = new_group(&broker);
        let mut first = member(&broker, &group, version);
        if version >= 4 {
            let correlation = first.send_join();
            let refused = first.receive_join(correlation);
            assert_eq!(refused.error_code, MEMBER_ID_REQUIRED, "v{version}");
            assert_eq!(refused.generation_id, -1, "v{version}");
            assert!(!refused.member_id.as_str().is_empty(), "v{version}");
        }
        let joined = first.join();
        assert_eq!(
            (joined.error_code, joined.generation_id),
            (codes::NONE, 1),
            "v{version}"
        );
        assert_eq!(joined.leader, joined.member_id, "v{version}");
        assert_eq!(joined.protocol_name.as_deref(), Some("range"), "v{version}");
        let kind = (version >= 7).then_some("consumer");
        assert_eq!(joined.protocol_type.as_deref(), kind, "v{version}");
        let listed: Vec<&str> = joined
            .members
            .iter()
            .map(|m| m.member_id.as_str())
            .collect();
        assert_eq!(listed, [joined.member_id.as_str()], "v{version}");
        assert_eq!(joined.members[0].metadata, subscription(&[]), "v{version}");
        assert!(!joined.skip_assignment, "v{version}");

        let id = first.id().to_owned();
        let synced = first.sync(&[(&id, b"mine")]);
        assert_eq!(
            (synced.error_code, &synced.assignment[..]),
            (codes::NONE, &b"mine"[..]),
            "v{version}"
        );
        if first.sync_version() >= 5 {
            assert_eq!(
                synced.protocol_type.as_deref(),
                Some("consumer"),
                "v{version}"
            );
            assert_eq!(synced.protocol_name.as_deref(), Some("range"), "v{version}");
        }
        assert_eq!(first.heartbeat(), codes::NONE, "v{version}");
        assert_eq!(first.leave(), codes::NONE, "v{version}");
        assert_eq!(first.heartbeat(), codes::UNKNOWN_MEMBER_ID, "v{version}");
        until_state(&broker, &group, "Empty");
    }
}

#[test]
fn two_members_share_a_group_and_only_the_leader_sees_both() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut first = first_member(&broker, &group, 9);
    let mut second = member(&broker, &group, 5);
    let joining = second.send_join_with_id();
    wait::until("the rebalance is seen", SOON, || {
        first.heartbeat() == codes::REBALANCE_IN_PROGRESS
    });
    let led = first.join();
    let followed = second.receive_join(joining);
    assert_eq!((led.generation_id, followed.generation_id), (2, 2));
    assert_eq!(led.leader, followed.leader);
    assert_eq!(led.leader.as_str(), first.id());
    assert_eq!((led.members.len(), followed.members.len()), (2, 0));
    assert_eq!(
        describe(&broker, &group, 5).group_state.as_str(),
        "CompletingRebalance"
    );

    let leader = first.id().to_owned();
    sync_all(&mut [&mut first, &mut second], &leader);
    assert_eq!(
        (first.heartbeat(), second.heartbeat()),
        (codes::NONE, codes::NONE)
    );
    // Who syncs again gets the same again.
    let id = second.id().to_owned();
    assert_eq!(&second.sync(&[]).assignment[..], id.as_bytes());
    // A follower that joins again with the same metadata changes nothing.
    let again = second.join();
    assert_eq!((again.error_code, again.generation_id), (codes::NONE, 2));
    assert_eq!(first.heartbeat(), codes::NONE);
}

#[test]
fn a_leader_that_joins_again_starts_a_rebalance() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut first = first_member(&broker, &group, 9);
    let again = first.join();
    assert_eq!((again.error_code, again.generation_id), (codes::NONE, 2));
}

#[test]
fn what_a_group_does_not_know_is_refused_by_name() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut stranger = member(&broker, &group, 9);
    stranger.join.member = "stranger".to_owned();
    stranger.generation = 1;
    // Nobody has joined this group yet.
    assert_eq!(stranger.heartbeat(), codes::UNKNOWN_MEMBER_ID);
    assert_eq!(stranger.sync(&[]).error_code, codes::UNKNOWN_MEMBER_ID);
    assert_eq!(stranger.leave(), codes::UNKNOWN_MEMBER_ID);
    assert_eq!(stranger.join().error_code, codes::UNKNOWN_MEMBER_ID);

    let mut first = first_member(&broker, &group, 9);
    assert_eq!(stranger.heartbeat(), codes::UNKNOWN_MEMBER_ID);
    assert_eq!(stranger.sync(&[]).error_code, codes::UNKNOWN_MEMBER_ID);
    assert_eq!(stranger.leave(), codes::UNKNOWN_MEMBER_ID);
    assert_eq!(stranger.join().error_code, codes::UNKNOWN_MEMBER_ID);
    let topic = create_topic(&mut broker.connect(), &broker.fresh("t"), 1, &[]);
    for wrong in [0, 2, -1, i32::MAX] {
        first.generation = wrong;
        assert_eq!(first.heartbeat(), codes::ILLEGAL_GENERATION, "{wrong}");
        assert_eq!(
            first.sync(&[]).error_code,
            codes::ILLEGAL_GENERATION,
            "{wrong}"
        );
        assert_eq!(
            first.commit(&topic.name, 0, 1),
            codes::ILLEGAL_GENERATION,
            "{wrong}"
        );
    }
}

#[test]
fn a_refused_join_keeps_the_member_id_it_came_with() {
    let broker = groups_broker();
    let group = new_group(&broker);
    for version in 0..=9 {
        let mut stranger = member(&broker, &group, version);
        stranger.join.member = "stranger".to_owned();
        let correlation = stranger.send_join();
        let refused = stranger.receive_join(correlation);
        assert_eq!(refused.error_code, codes::UNKNOWN_MEMBER_ID, "v{version}");
        assert_eq!(refused.member_id.as_str(), "stranger", "v{version}");
        assert_eq!(
            (refused.generation_id, refused.leader.as_str()),
            (-1, ""),
            "v{version}"
        );
        assert_eq!(refused.members.len(), 0, "v{version}");
    }
}

#[test]
fn protocols_that_do_not_fit_are_refused() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let refused = |broker: &Broker, change: &dyn Fn(&mut Join)| {
        let mut other = member(broker, &group, 3);
        change(&mut other.join);
        let correlation = other.send_join();
        other.receive_join(correlation).error_code
    };
    let none = |join: &mut Join| join.protocols.clear();
    let untyped = |join: &mut Join| join.protocol_type.clear();
    assert_eq!(
        refused(&broker, &none),
        codes::INCONSISTENT_GROUP_PROTOCOL,
        "into an unknown group"
    );
    assert_eq!(
        refused(&broker, &untyped),
        codes::INCONSISTENT_GROUP_PROTOCOL,
        "into an unknown group"
    );

    let _first = first_member(&broker, &group, 9);
    let other_type = |join: &mut Join| join.protocol_type = "connect".to_owned();
    let other_name = |join: &mut Join| join.protocols[0].0 = "sticky".to_owned();
    assert_eq!(refused(&broker, &none), codes::INCONSISTENT_GROUP_PROTOCOL);
    assert_eq!(
        refused(&broker, &untyped),
        codes::INCONSISTENT_GROUP_PROTOCOL
    );
    assert_eq!(
        refused(&broker, &other_type),
        codes::INCONSISTENT_GROUP_PROTOCOL
    );
    assert_eq!(
        refused(&broker, &other_name),
        codes::INCONSISTENT_GROUP_PROTOCOL
    );
}

#[test]
fn a_sync_that_names_another_protocol_is_refused() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut first = first_member(&broker, &group, 9);
    let good = first.sync_request(&[]);
    for (kind, name) in [("connect", "range"), ("consumer", "sticky")] {
        let mut request = good.clone();
        request.protocol_type = Some(kind.into());
        request.protocol_name = Some(name.into());
        let answer = first.raw.call::<SyncGroupRequest>(5, &request);
        assert_eq!(
            answer.error_code,
            codes::INCONSISTENT_GROUP_PROTOCOL,
            "{kind} {name}"
        );
    }
    let mut unnamed = good;
    (unnamed.protocol_type, unnamed.protocol_name) = (None, None);
    let answer = first.raw.call::<SyncGroupRequest>(5, &unnamed);
    assert_eq!(
        answer.error_code,
        codes::INCONSISTENT_GROUP_PROTOCOL,
        "a name is required from v5"
    );
}

#[test]
fn the_protocol_that_all_know_and_most_prefer_is_taken() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let with = |names: &[&str]| {
        let mut member = member(&broker, &group, 9);
        let protocols = names
            .iter()
            .map(|name| ((*name).to_owned(), Bytes::from_static(b"m")));
        member.join.protocols = protocols.collect();
        member
    };
    let mut first = with(&["a", "b", "c"]);
    assert_eq!(first.join().protocol_name.as_deref(), Some("a"));
    let mut second = with(&["c", "b"]);
    let joining = second.send_join_with_id();
    wait::until("the rebalance is seen", SOON, || {
        first.heartbeat() == codes::REBALANCE_IN_PROGRESS
    });
    let rejoining = first.send_join();
    let chosen = first.receive_join(rejoining).protocol_name;
    assert_eq!(second.receive_join(joining).protocol_name, chosen);
    // One vote each for b and c.
    assert!(matches!(chosen.as_deref(), Some("b" | "c")), "{chosen:?}");
    let mut third = with(&["c"]);
    let joining = third.send_join_with_id();
    let rejoining = [&mut first, &mut second].map(|member| {
        wait::until("the rebalance is seen", SOON, || {
            member.heartbeat() == codes::REBALANCE_IN_PROGRESS
        });
        member.send_join()
    });
    assert_eq!(
        third.receive_join(joining).protocol_name.as_deref(),
        Some("c")
    );
    assert_eq!(
        first.receive_join(rejoining[0]).protocol_name.as_deref(),
        Some("c")
    );
}

#[test]
fn a_commit_during_a_rebalance_is_taken_and_a_sync_is_not() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let topic = create_topic(&mut broker.connect(), &broker.fresh("t"), 1, &[]);
    let mut first = first_member(&broker, &group, 9);
    let mut second = member(&broker, &group, 9);
    second.send_join_with_id();
    until_state(&broker, &group, "PreparingRebalance");
    assert_eq!(first.commit(&topic.name, 0, 7), codes::NONE);
    assert_eq!(first.sync(&[]).error_code, codes::REBALANCE_IN_PROGRESS);
    assert_eq!(first.heartbeat(), codes::REBALANCE_IN_PROGRESS);
}

#[test]
fn g08_metadata_without_owned_partitions_passes_unchanged() {
    let broker = groups_broker();
    let group = new_group(&broker);
    // Version 0: one topic, user data of three bytes, and nothing behind it.
    let bytes = Bytes::from_static(b"\0\0\0\0\0\x01\0\x01t\0\0\0\x03abc");
    let odd = Bytes::from_static(b"\xff\xffno subscription at all");
    let mut first = member(&broker, &group, 9);
    first.join.protocols[0].1 = bytes.clone();
    settle_alone(&mut first);
    let mut second = member(&broker, &group, 9);
    second.join.protocols[0].1 = odd.clone();
    let joining = second.send_join_with_id();
    wait::until("the rebalance is seen", SOON, || {
        first.heartbeat() == codes::REBALANCE_IN_PROGRESS
    });
    let led = first.join();
    let mut passed: Vec<Bytes> = led.members.iter().map(|m| m.metadata.clone()).collect();
    passed.sort();
    assert_eq!(passed, [bytes, odd]);
    assert_eq!(second.receive_join(joining).error_code, codes::NONE);
}

#[test]
fn g11_no_group_id_is_ever_a_path() {
    let broker = groups_broker();
    new_group(&broker);
    let long = "x".repeat(300);
    for id in [
        long.as_str(),
        "../../x",
        "a/b",
        "a\0b",
        ".",
        "..",
        "%2e",
        "Ä",
        " ",
        "con",
        "A",
        "a",
    ] {
        // Other tests may share the broker.
        let id = format!("{id}{}", broker.fresh(""));
        let mut first = first_member(&broker, &id, 9);
        assert_eq!(
            describe(&broker, &id, 5).group_state.as_str(),
            "Stable",
            "{id:?}"
        );
        assert_eq!(first.leave(), codes::NONE, "{id:?}");
        until_state(&broker, &id, "Empty");
    }
    if !broker.is_kafka() {
        let outside = broker.data().parent().expect("a parent").join("x");
        assert!(!outside.exists());
    }
}

#[test]
fn g11_an_empty_group_id_has_no_members() {
    let broker = groups_broker();
    new_group(&broker);
    let mut nobody = member(&broker, "", 3);
    nobody.join.member = "m".to_owned();
    let correlation = nobody.send_join();
    assert_eq!(
        nobody.receive_join(correlation).error_code,
        codes::INVALID_GROUP_ID
    );
    assert_eq!(nobody.sync(&[]).error_code, codes::INVALID_GROUP_ID);
    assert_eq!(nobody.heartbeat(), codes::INVALID_GROUP_ID);
    assert_eq!(nobody.leave(), codes::INVALID_GROUP_ID);
}

#[test]
fn describe_groups_says_what_is_there_in_every_version() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let unknown = broker.fresh("unknown");
    let _first = {
        let mut first = static_member(&broker, &group, "one");
        first.join.protocols[0].1 = Bytes::from_static(b"meta");
        settle_alone(&mut first);
        first
    };
    for version in 0..=6 {
        let described = describe(&broker, &group, version);
        let got = (
            described.error_code,
            described.group_state.as_str(),
            described.protocol_type.as_str(),
            described.protocol_data.as_str(),
        );
        assert_eq!(
            got,
            (codes::NONE, "Stable", "consumer", "range"),
            "v{version}"
        );
        let member = &described.members[0];
        assert_eq!(
            (&member.member_metadata[..], &member.member_assignment[..]),
            (&b"meta"[..], &b"all of it"[..])
        );
        assert_eq!(
            (member.client_id.as_str(), member.client_host.as_str()),
            ("test", "/127.0.0.1"),
            "v{version}"
        );
        let instance = (version >= 4).then_some("one");
        assert_eq!(member.group_instance_id.as_deref(), instance, "v{version}");
        assert_eq!(described.authorized_operations, i32::MIN, "v{version}");

        let nothing = describe(&broker, &unknown, version);
        let code = if version >= 6 {
            codes::GROUP_ID_NOT_FOUND
        } else {
            codes::NONE
        };
        assert_eq!(
            (nothing.error_code, nothing.group_state.as_str()),
            (code, "Dead"),
            "v{version}"
        );
    }
    let empty = describe(&broker, "", 5);
    assert_eq!(empty.error_code, codes::NONE, "{empty:?}");
}

#[test]
fn describe_groups_tells_allowed_operations_to_who_asks() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let _first = first_member(&broker, &group, 9);
    for version in 3..=6 {
        let mut request = DescribeGroupsRequest::default();
        request.groups = vec![group.as_str().into()];
        request.include_authorized_operations = true;
        let answer = broker
            .connect()
            .call::<DescribeGroupsRequest>(version, &request);
        // READ, DELETE, DESCRIBE and what came later, as bits.
        let bits = answer.groups[0].authorized_operations;
        assert_eq!(bits & 0b1_0100_1000, 0b1_0100_1000, "v{version}: {bits:b}");
    }
}

#[test]
fn requests_without_their_group_do_not_make_one() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut probe = HeartbeatRequest::default();
    probe.group_id = group.as_str().into();
    probe.member_id = "m".into();
    for version in 0..=4 {
        let answer = broker.connect().call::<HeartbeatRequest>(version, &probe);
        assert_eq!(answer.error_code, codes::UNKNOWN_MEMBER_ID, "v{version}");
    }
    assert_eq!(describe(&broker, &group, 5).group_state.as_str(), "Dead");
}
