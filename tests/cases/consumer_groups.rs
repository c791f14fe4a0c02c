//! The consumer group protocol (KIP-848): joining by heartbeat, epochs, assignments that move, static members, regular
//! expressions, and offsets.

use seawall_testkit::Broker;
use seawall_testkit::calls::create_topic;
use seawall_testkit::consumers::{self, Consumer};
use seawall_testkit::groups::{Commit, OffsetsOf};
use seawall_testkit::kafka_wire::{
    ApiVersionsRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
    CreatePartitionsRequest,
};
use seawall_testkit::requests::{self, TopicRef};
use seawall_testkit::wait::{self, SOON};

use super::codes;
use super::groups::{describe, groups_broker, new_group};

pub(crate) fn new_topic(broker: &Broker, partitions: i32) -> TopicRef {
    create_topic(
        &mut broker.connect(),
        &broker.fresh("consumed"),
        partitions,
        &[],
    )
}

pub(crate) fn consumer(broker: &Broker, group: &str, id: &str, topic: &TopicRef) -> Consumer {
    Consumer::new(broker.connect(), group, id, &[&topic.name])
}

/// A member that has joined alone and owns all partitions of a topic.
pub(crate) fn settled(
    broker: &Broker,
    group: &str,
    id: &str,
    topic: &TopicRef,
    partitions: i32,
) -> Consumer {
    let mut alone = consumer(broker, group, id, topic);
    assert_eq!(alone.join().error_code, codes::NONE);
    let all: Vec<i32> = (0..partitions).collect();
    wait::until("it owns all", SOON, || {
        beat(&mut alone);
        alone.owns(topic.id) == all
    });
    alone
}

pub(crate) fn beat(consumer: &mut Consumer) -> ConsumerGroupHeartbeatResponse {
    let answer = consumer.beat();
    assert_eq!(answer.error_code, codes::NONE, "{:?}", answer.error_message);
    answer
}

/// Lets all beat until they own so many partitions each, in any order, and no partition twice.
pub(crate) fn until_shared(all: &mut [&mut Consumer], topic: &TopicRef, shares: &[usize]) {
    wait::until("the partitions are shared", SOON, || {
        let mut owned = Vec::new();
        let mut counts = Vec::new();
        for consumer in all.iter_mut() {
            beat(consumer);
            let own = consumer.owns(topic.id);
            counts.push(own.len());
            owned.extend(own);
        }
        let count = owned.len();
        owned.sort_unstable();
        owned.dedup();
        assert_eq!(owned.len(), count, "a partition has two owners");
        counts.sort_unstable();
        counts == shares
    });
}

#[test]
fn clients_are_told_that_the_protocol_is_on() {
    let broker = groups_broker();
    let mut request = ApiVersionsRequest::default();
    request.client_software_name = "test".into();
    request.client_software_version = "1".into();
    let answer = broker.connect().call::<ApiVersionsRequest>(4, &request);
    let finalized = answer
        .finalized_features
        .iter()
        .find(|feature| feature.name.as_str() == "group.version");
    let finalized = finalized.unwrap_or_else(|| panic!("group.version is finalized: {answer:?}"));
    assert_eq!(
        (finalized.max_version_level, finalized.min_version_level),
        (1, 1)
    );
    let supported = answer
        .supported_features
        .iter()
        .find(|feature| feature.name.as_str() == "group.version");
    assert!(supported.is_some_and(|feature| feature.max_version >= 1));
}

#[test]
fn a_member_joins_owns_all_and_leaves() {
    let broker = groups_broker();
    for version in [0, 1] {
        let (group, topic) = (new_group(&broker), new_topic(&broker, 3));
        let mut alone = consumer(
            &broker,
            &group,
            if version == 0 { "" } else { "m-1" },
            &topic,
        );
        alone.version = version;
        let joined = alone.join();
        assert_eq!(joined.error_code, codes::NONE);
        assert_eq!(joined.heartbeat_interval_ms, 5_000);
        assert!(!alone.id.is_empty(), "an id was made");
        wait::until("it owns all", SOON, || {
            beat(&mut alone);
            alone.owns(topic.id) == [0, 1, 2]
        });
        let epoch = alone.epoch;
        // Nothing to say: no assignment.
        let quiet = beat(&mut alone);
        assert_eq!(
            (quiet.assignment.is_some(), quiet.member_epoch),
            (false, epoch)
        );
        // Who says everything gets everything.
        let request = alone.full_request();
        let full = alone.send(&request);
        assert_eq!(
            (full.error_code, full.assignment.is_some()),
            (codes::NONE, true)
        );

        let left = alone.leave(-1);
        assert_eq!((left.error_code, left.member_epoch), (codes::NONE, -1));
        let described = consumers::describe(&mut broker.connect(), version, &group);
        assert_eq!(
            (described.group_state.as_str(), described.members.len()),
            ("Empty", 0)
        );
    }
}

#[test]
fn the_first_member_is_at_epoch_two_when_it_owns_something() {
    let broker = groups_broker();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 1));
    let alone = settled(&broker, &group, "m-1", &topic, 1);
    assert_eq!(alone.epoch, 2);
}

#[test]
fn partitions_move_without_ever_having_two_owners() {
    let broker = groups_broker();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 6));
    let mut first = settled(&broker, &group, "m-1", &topic, 6);
    let mut second = consumer(&broker, &group, "m-2", &topic);
    assert_eq!(second.join().error_code, codes::NONE);
    // The first one holds on to what it has: the second gets nothing of it.
    first.keeps = true;
    wait::until("the first one is asked to give some up", SOON, || {
        let own = beat(&mut first).assignment;
        assert_eq!(second.owns(topic.id), [0; 0]);
        beat(&mut second);
        own.is_some_and(|own| {
            own.topic_partitions
                .iter()
                .map(|t| t.partitions.len())
                .sum::<usize>()
                == 3
        })
    });
    for _ in 0..3 {
        beat(&mut second);
        assert_eq!(second.owns(topic.id), [0; 0], "not given up yet");
    }
    first.keeps = false;
    let request = first.full_request();
    assert_eq!(first.send(&request).error_code, codes::NONE);
    until_shared(&mut [&mut first, &mut second], &topic, &[3, 3]);
    let mut third = consumer(&broker, &group, "m-3", &topic);
    assert_eq!(third.join().error_code, codes::NONE);
    until_shared(
        &mut [&mut first, &mut second, &mut third],
        &topic,
        &[2, 2, 2],
    );
    assert_eq!(second.leave(-1).error_code, codes::NONE);
    until_shared(&mut [&mut first, &mut third], &topic, &[3, 3]);
}

#[test]
fn epochs_that_do_not_fit_are_fenced() {
    let broker = groups_broker();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 2));
    let mut early = consumer(&broker, &group, "m-1", &topic);
    early.epoch = 5;
    assert_eq!(
        early.beat().error_code,
        codes::GROUP_ID_NOT_FOUND,
        "nobody is in the group"
    );
    let mut alone = settled(&broker, &group, "m-1", &topic, 2);
    let epoch = alone.epoch;
    for wrong in [epoch + 1, epoch + 100, i32::MAX] {
        alone.epoch = wrong;
        assert_eq!(
            alone.beat().error_code,
            codes::FENCED_MEMBER_EPOCH,
            "{wrong}"
        );
    }
    alone.epoch = epoch;
    let mut stranger = consumer(&broker, &group, "stranger", &topic);
    stranger.epoch = epoch;
    assert_eq!(stranger.beat().error_code, codes::UNKNOWN_MEMBER_ID);
    assert_eq!(stranger.leave(-1).error_code, codes::UNKNOWN_MEMBER_ID);
}

#[test]
fn the_previous_epoch_is_taken_while_what_is_owned_fits() {
    let broker = groups_broker();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 2));
    let mut first = settled(&broker, &group, "m-1", &topic, 2);
    let before = first.epoch;
    let mut second = consumer(&broker, &group, "m-2", &topic);
    assert_eq!(second.join().error_code, codes::NONE);
    until_shared(&mut [&mut first, &mut second], &topic, &[1, 1]);
    let epoch = first.epoch;
    assert!(epoch > before);
    // The answer with the newest epoch was lost.
    first.epoch = before;
    let again = first.beat();
    assert_eq!((again.error_code, again.member_epoch), (codes::NONE, epoch));
    first.epoch = before;
    first.owned.insert(*topic.id.as_bytes(), vec![0, 1]);
    assert_eq!(
        first.beat().error_code,
        codes::FENCED_MEMBER_EPOCH,
        "it has what is not its own"
    );
    first.epoch = before - 1;
    first.owned.clear();
    assert_eq!(
        first.beat().error_code,
        codes::FENCED_MEMBER_EPOCH,
        "older still"
    );
}

#[test]
fn a_member_that_joins_again_gets_the_same_again() {
    let broker = groups_broker();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 2));
    let mut alone = settled(&broker, &group, "m-1", &topic, 2);
    let epoch = alone.epoch;
    let again = alone.join();
    assert_eq!((again.error_code, again.member_epoch), (codes::NONE, epoch));
    assert_eq!(alone.owns(topic.id), [0, 1]);
}

#[test]
fn heartbeats_that_make_no_sense_are_refused() {
    let broker = groups_broker();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 1));
    let good = || {
        let mut request = consumer(&broker, &group, "m-1", &topic).full_request();
        request.topic_partitions = Some(Vec::new());
        request
    };
    let code = |change: &dyn Fn(&mut ConsumerGroupHeartbeatRequest)| {
        let mut request = good();
        change(&mut request);
        broker
            .connect()
            .call::<ConsumerGroupHeartbeatRequest>(1, &request)
            .error_code
    };
    let invalid = codes::INVALID_REQUEST;
    assert_eq!(code(&|r| r.group_id = "".into()), invalid, "no group id");
    assert_eq!(code(&|r| r.member_id = "".into()), invalid, "no member id");
    assert_eq!(
        code(&|r| r.rebalance_timeout_ms = -1),
        invalid,
        "no rebalance timeout"
    );
    assert_eq!(
        code(&|r| r.subscribed_topic_names = None),
        invalid,
        "no subscription"
    );
    assert_eq!(
        code(&|r| r.topic_partitions = None),
        invalid,
        "no owned partitions"
    );
    assert_eq!(
        code(&|r| r.instance_id = Some("".into())),
        invalid,
        "an empty static name"
    );
    assert_eq!(
        code(&|r| r.rack_id = Some("".into())),
        invalid,
        "an empty rack"
    );
    assert_eq!(
        code(&|r| r.member_epoch = -2),
        invalid,
        "-2 without a static name"
    );
    assert_eq!(code(&|r| r.member_epoch = -3), invalid, "epoch -3");
    let unknown = Some("no-such-assignor".into());
    assert_eq!(
        code(&|r| r.server_assignor = unknown.clone()),
        codes::UNSUPPORTED_ASSIGNOR
    );
    assert_eq!(
        code(&|r| r.subscribed_topic_regex = Some("[".into())),
        codes::INVALID_REGULAR_EXPRESSION
    );
    assert_eq!(
        describe(&broker, &group, 6).error_code,
        codes::GROUP_ID_NOT_FOUND,
        "none of these made a group"
    );
}

#[test]
fn assignors_are_range_and_uniform() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let topics = [new_topic(&broker, 3), new_topic(&broker, 3)];
    let names = [topics[0].name.as_str(), &topics[1].name];
    let with = |id: &str| {
        let mut consumer = Consumer::new(broker.connect(), &group, id, &names);
        consumer.assignor = Some("range".to_owned());
        consumer
    };
    let (mut first, mut second) = (with("m-1"), with("m-2"));
    assert_eq!(first.join().error_code, codes::NONE);
    assert_eq!(second.join().error_code, codes::NONE);
    // Ranges of each topic: the one that comes first has two of both.
    wait::until("ranges", SOON, || {
        beat(&mut first);
        beat(&mut second);
        topics.iter().all(|topic| {
            let mut ranges = [first.owns(topic.id), second.owns(topic.id)];
            ranges.sort();
            ranges == [vec![0, 1], vec![2]]
        })
    });
    let described = consumers::describe(&mut broker.connect(), 1, &group);
    assert_eq!(described.assignor_name.as_str(), "range");
    // Uniform: three each.
    for consumer in [&mut first, &mut second] {
        consumer.assignor = Some("uniform".to_owned());
        let request = consumer.full_request();
        assert_eq!(consumer.send(&request).error_code, codes::NONE);
    }
    wait::until("the same for both", SOON, || {
        beat(&mut first);
        beat(&mut second);
        let count = |consumer: &Consumer| {
            topics
                .iter()
                .map(|t| consumer.owns(t.id).len())
                .sum::<usize>()
        };
        (count(&first), count(&second)) == (3, 3)
    });
}

#[test]
fn a_group_follows_new_partitions_and_new_topics() {
    let broker = groups_broker();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 1));
    let later = broker.fresh("later");
    let mut alone = Consumer::new(broker.connect(), &group, "m-1", &[&topic.name, &later]);
    assert_eq!(alone.join().error_code, codes::NONE);
    wait::until("the topic that exists", SOON, || {
        beat(&mut alone);
        alone.owns(topic.id) == [0]
    });
    let request = requests::create_partitions(&topic.name, 3);
    broker
        .connect()
        .call::<CreatePartitionsRequest>(3, &request);
    wait::until("its new partitions", SOON, || {
        beat(&mut alone);
        alone.owns(topic.id) == [0, 1, 2]
    });
    let created = create_topic(&mut broker.connect(), &later, 2, &[]);
    wait::until("the new topic", SOON, || {
        beat(&mut alone);
        alone.owns(created.id) == [0, 1]
    });
}

#[test]
fn a_regular_expression_finds_topics_now_and_later() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let stem = broker.fresh("regex");
    let one = create_topic(&mut broker.connect(), &format!("{stem}-one"), 1, &[]);
    let mut alone = Consumer::new(broker.connect(), &group, "m-1", &[]);
    let mut request = alone.full_request();
    request.subscribed_topic_names = None;
    request.subscribed_topic_regex = Some(format!("{stem}-.*").as_str().into());
    request.topic_partitions = Some(Vec::new());
    assert_eq!(alone.send(&request).error_code, codes::NONE);
    wait::until("the first topic", SOON, || {
        beat(&mut alone);
        alone.owns(one.id) == [0]
    });
    let two = create_topic(&mut broker.connect(), &format!("{stem}-two"), 1, &[]);
    create_topic(&mut broker.connect(), &format!("x{stem}-three"), 1, &[]);
    wait::until("the second topic", SOON, || {
        beat(&mut alone);
        alone.owns(two.id) == [0]
    });
    assert_eq!(alone.owned.len(), 2, "the whole name has to match");
    let described = consumers::describe(&mut broker.connect(), 1, &group);
    assert_eq!(
        described.members[0].subscribed_topic_regex.as_deref(),
        Some(format!("{stem}-.*").as_str())
    );
}

#[test]
fn a_static_member_that_went_away_gets_its_partitions_back() {
    let broker = groups_broker();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 4));
    let with = |id: &str, instance: &str| {
        let mut consumer = consumer(&broker, &group, id, &topic);
        consumer.instance = Some(instance.to_owned());
        consumer
    };
    let (mut one, mut two) = (with("m-1", "one"), with("m-2", "two"));
    assert_eq!(
        (one.join().error_code, two.join().error_code),
        (codes::NONE, codes::NONE)
    );
    until_shared(&mut [&mut one, &mut two], &topic, &[2, 2]);
    let own = one.owns(topic.id);
    let mut early = with("m-3", "one");
    assert_eq!(
        early.join().error_code,
        codes::UNRELEASED_INSTANCE_ID,
        "it is still there"
    );
    let left = one.leave(-2);
    assert_eq!((left.error_code, left.member_epoch), (codes::NONE, -2));
    let epoch = two.epoch;
    for _ in 0..3 {
        assert_eq!(
            beat(&mut two).member_epoch,
            epoch,
            "nobody else gets its partitions"
        );
    }
    let mut back = with("m-4", "one");
    assert_eq!(back.join().error_code, codes::NONE);
    wait::until("it has its own again", SOON, || {
        beat(&mut back);
        back.owns(topic.id) == own
    });
    assert_eq!(two.epoch, epoch);
    // The old id of the name is fenced.
    let code = one.beat().error_code;
    assert!(
        [codes::FENCED_INSTANCE_ID, codes::UNKNOWN_MEMBER_ID].contains(&code),
        "{code}"
    );
}

#[test]
fn g06_a_static_member_whose_join_answer_was_lost_joins_again() {
    let broker = groups_broker();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 2));
    let mut lost = consumer(&broker, &group, "m-1", &topic);
    lost.instance = Some("one".to_owned());
    assert_eq!(lost.join().error_code, codes::NONE);
    // Kafka takes it for another one of that name until its session ends.
    let again = if broker.is_kafka() {
        codes::UNRELEASED_INSTANCE_ID
    } else {
        codes::NONE
    };
    assert_eq!(
        lost.join().error_code,
        again,
        "the same id is not fenced by itself"
    );
    if broker.is_kafka() {
        return;
    }
    wait::until("it owns all", SOON, || {
        beat(&mut lost);
        lost.owns(topic.id) == [0, 1]
    });
}

#[test]
fn offsets_are_committed_and_fetched_at_the_epoch_of_the_member() {
    let broker = groups_broker();
    let (group, topic) = (new_group(&broker), new_topic(&broker, 1));
    let mut alone = settled(&broker, &group, "m-1", &topic, 1);
    let mut raw = broker.connect();
    let commit = |generation, member: &str, version, raw: &mut seawall_testkit::Raw| {
        Commit {
            generation,
            member,
            topic_id: topic.id,
            ..Commit::new(&group, &topic.name, 0, 7)
        }
        .run(raw, version)
    };
    let epoch = alone.epoch;
    for version in [9, 10] {
        assert_eq!(
            commit(epoch, "m-1", version, &mut raw),
            codes::NONE,
            "v{version}"
        );
        assert_eq!(
            commit(epoch + 1, "m-1", version, &mut raw),
            codes::STALE_MEMBER_EPOCH,
            "v{version}"
        );
        assert_eq!(
            commit(epoch, "stranger", version, &mut raw),
            codes::UNKNOWN_MEMBER_ID,
            "v{version}"
        );
        let outside = commit(-1, "", version, &mut raw);
        assert_eq!(
            outside,
            codes::UNKNOWN_MEMBER_ID,
            "from outside of a live group, v{version}"
        );
    }
    assert_eq!(
        commit(epoch, "m-1", 8, &mut raw),
        codes::UNSUPPORTED_VERSION,
        "below v9"
    );
    for version in [9, 10] {
        let fetch = |member| OffsetsOf {
            member: Some(member),
            ..OffsetsOf::of(&group, &topic, &[0])
        };
        let (error, rows) = fetch(("m-1", epoch)).run(&mut raw, version);
        assert_eq!((error, rows[0].offset), (codes::NONE, 7), "v{version}");
        assert_eq!(
            fetch(("m-1", epoch - 1)).run(&mut raw, version).0,
            codes::STALE_MEMBER_EPOCH
        );
        assert_eq!(
            fetch(("stranger", epoch)).run(&mut raw, version).0,
            codes::UNKNOWN_MEMBER_ID
        );
    }
    let (error, rows) = OffsetsOf::of(&group, &topic, &[0]).run(&mut raw, 9);
    assert_eq!((error, rows[0].offset), (codes::NONE, 7), "from outside");
    assert_eq!(alone.leave(-1).error_code, codes::NONE);
    assert_eq!(
        commit(-1, "", 9, &mut raw),
        codes::NONE,
        "from outside of an empty group"
    );
}
