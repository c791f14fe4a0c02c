//! The machine in virtual time: nothing here waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seawall_net::wire::subscription::{decode_assignment, encode_assignment};
use seawall_storage::TopicId;

use super::*;
use crate::groups::classic::{Classic, ClassicLimits, Emigrant, Join, Protocol, Sync};

const SESSION: Duration = Duration::from_secs(45);
const REBALANCE: Duration = Duration::from_secs(60);

/// Topics named "t0", "t1", ... with so many partitions each.
#[derive(Clone)]
struct Lookup(u64, Vec<i32>);

impl TopicLookup for Lookup {
    fn version(&self) -> u64 {
        self.0
    }

    fn named(&self, name: &str) -> Option<(TopicId, i32)> {
        let number: usize = name.strip_prefix('t')?.parse().ok()?;
        Some((id(number), *self.1.get(number)?))
    }

    fn name_of(&self, topic: TopicId) -> Option<Arc<str>> {
        let number = (0..self.1.len()).find(|n| id(*n) == topic)?;
        Some(format!("t{number}").into())
    }

    fn names(&self) -> Vec<Arc<str>> {
        (0..self.1.len()).map(|n| format!("t{n}").into()).collect()
    }
}

/// A member that may not see some topics, by a version of the rules.
#[derive(Debug)]
struct Sees(u64, &'static [&'static str]);

impl View for Sees {
    fn sees(&self, topic: &str) -> bool {
        !self.1.contains(&topic)
    }

    fn sight(&self) -> Sight {
        ("u".into(), [127, 0, 0, 1].into(), self.0)
    }
}

fn id(number: usize) -> TopicId {
    TopicId(uuid::Uuid::from_u128(number as u128 + 1))
}

struct World {
    group: Consumer,
    topics: Lookup,
    now: Instant,
    stored: usize,
    wake_at: Option<Instant>,
}

fn limits() -> Arc<ConsumerLimits> {
    Arc::new(ConsumerLimits {
        session_timeout: SESSION,
        heartbeat_interval: Duration::from_secs(5),
        members_max: 4,
        assignment_interval: Duration::from_secs(1),
        assignors: vec![Assignor::Uniform, Assignor::Range],
    })
}

fn joining(member: &str) -> Heartbeat {
    Heartbeat {
        epoch: 0,
        rebalance_timeout: Some(REBALANCE),
        names: Some(BTreeSet::from(["t0".into()])),
        owned: Some(Partitions::new()),
        ..staying(member, 0, None)
    }
}

fn staying(member: &str, epoch: i32, owned: Option<Partitions>) -> Heartbeat {
    Heartbeat {
        member: member.into(),
        epoch,
        instance: None,
        rack: None,
        client_id: "c".into(),
        client_host: "/::1".into(),
        rebalance_timeout: None,
        names: None,
        regex: None,
        view: Arc::new(Sees(0, &[])),
        assignor: None,
        owned,
    }
}

fn partitions(of_t0: &[i32]) -> Partitions {
    if of_t0.is_empty() {
        return Partitions::new();
    }
    Partitions::from([(id(0), of_t0.iter().copied().collect())])
}

impl World {
    fn new(partitions: i32) -> Self {
        Self {
            group: Consumer::new(limits()),
            topics: Lookup(1, vec![partitions]),
            now: Instant::now(),
            stored: 0,
            wake_at: None,
        }
    }

    fn act<R>(&mut self, act: impl FnOnce(&mut Consumer, &Lookup, &mut Effects) -> R) -> R {
        let mut fx = Effects::new(self.now);
        let result = act(&mut self.group, &self.topics, &mut fx);
        self.stored += usize::from(fx.store);
        if let Some(when) = fx.wake_at {
            self.wake_at = Some(self.wake_at.map_or(when, |earlier| earlier.min(when)));
        }
        self.check();
        result
    }

    /// K1 and K2, and that what is stored comes back as it was.
    fn check(&self) {
        let mut seen = BTreeSet::new();
        for member in self.group.members.values() {
            for key in member.holds() {
                assert!(seen.insert(key), "K1: {key:?} is held twice");
            }
            assert!(member.epoch <= self.group.assignment_epoch, "K2");
        }
        assert_eq!(seen.len(), self.group.held.len(), "K1");
        assert!(self.group.assignment_epoch <= self.group.epoch, "K2");
        let record = self.group.record();
        let json = serde_json::to_string(&record).unwrap();
        let back = Consumer::from_record(limits(), serde_json::from_str(&json).unwrap(), self.now);
        assert_eq!(back.record(), record);
    }

    fn beat(&mut self, beat: &Heartbeat) -> Result<Beaten, GroupError> {
        self.act(|group, topics, fx| group.heartbeat(beat, topics, fx))
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(when) = self.wake_at.filter(|when| *when <= until) {
            self.now = self.now.max(when);
            self.wake_at = None;
            self.act(|group, _, fx| group.tick(fx));
        }
        self.now = until;
    }

    /// Two members that have two partitions each.
    fn pair() -> Self {
        let mut world = World::new(4);
        let a = world.beat(&joining("a")).unwrap();
        assert_eq!(
            (a.epoch, a.assignment),
            (2, Some(partitions(&[0, 1, 2, 3])))
        );
        world.pass(Duration::from_secs(1));
        assert_eq!(
            world.beat(&joining("b")).unwrap().assignment,
            Some(Partitions::new())
        );
        let a = world.beat(&staying("a", 2, None)).unwrap();
        let kept = a.assignment.expect("a has to give back");
        assert_eq!((a.epoch, count(&kept)), (2, 2));
        assert_eq!(world.beat(&staying("a", 2, Some(kept))).unwrap().epoch, 3);
        let b = world.beat(&staying("b", 3, None)).unwrap();
        assert_eq!((b.epoch, b.assignment.as_ref().map(count)), (3, Some(2)));
        assert_eq!(world.group.state_name(), "Stable");
        world
    }
}

#[test]
fn a_partition_is_taken_over_when_its_owner_has_given_it_back_and_not_before() {
    let mut world = World::new(4);
    world.beat(&joining("a")).unwrap();
    world.pass(Duration::from_secs(1));
    let b = world.beat(&joining("b")).unwrap();
    assert_eq!((b.epoch, b.assignment), (3, Some(Partitions::new())));
    assert_eq!(world.beat(&staying("b", 3, None)).unwrap().assignment, None);
    world.beat(&staying("a", 2, None)).unwrap();
    let all = partitions(&[0, 1, 2, 3]);
    world.beat(&staying("a", 2, Some(all))).unwrap();
    assert_eq!(
        world.beat(&staying("b", 3, None)).unwrap().assignment,
        None,
        "a still owns all"
    );
    assert_eq!(world.group.state_name(), "Reconciling");
    let kept = world.group.members["a"].partitions();
    world.beat(&staying("a", 2, Some(kept))).unwrap();
    let b = world.beat(&staying("b", 3, None)).unwrap();
    assert_eq!(b.assignment.as_ref().map(count), Some(2));
}

#[test]
fn an_idle_heartbeat_changes_and_stores_nothing() {
    let mut world = World::pair();
    let stored = world.stored;
    world.pass(Duration::from_secs(5));
    let a = world.beat(&staying("a", 3, None)).unwrap();
    assert_eq!((a.epoch, a.assignment), (3, None));
    assert_eq!(world.stored, stored);
}

#[test]
fn who_does_not_give_back_in_time_is_out() {
    let mut world = World::new(4);
    world.beat(&joining("a")).unwrap();
    world.pass(Duration::from_secs(1));
    world.beat(&joining("b")).unwrap();
    world.beat(&staying("a", 2, None)).unwrap();
    for _ in 0..12 {
        world.pass(Duration::from_secs(5));
        let _ = world.beat(&staying("a", 2, Some(partitions(&[0, 1, 2, 3]))));
        let _ = world.beat(&staying("b", 3, None));
    }
    assert_eq!(
        world.beat(&staying("a", 2, None)),
        Err(GroupError::UnknownMember)
    );
    world.pass(Duration::from_secs(1));
    let epoch = world.group.members["b"].epoch;
    world.beat(&staying("b", epoch, None)).unwrap();
    assert_eq!(count(&world.group.members["b"].partitions()), 4);
}

#[test]
fn a_silent_member_is_out_after_its_session() {
    let mut world = World::pair();
    world.pass(Duration::from_secs(44));
    world.beat(&staying("b", 3, None)).unwrap();
    world.pass(Duration::from_secs(1));
    assert_eq!(
        world.beat(&staying("a", 3, None)),
        Err(GroupError::UnknownMember)
    );
    let b = world.beat(&staying("b", 3, None)).unwrap();
    assert_eq!((b.epoch, b.assignment.as_ref().map(count)), (4, Some(4)));
}

#[test]
fn g06_a_lost_answer_does_not_fence() {
    let mut world = World::new(4);
    let first = world.beat(&joining("a")).unwrap();
    assert_eq!(
        world.beat(&joining("a")).unwrap(),
        first,
        "the first join again"
    );
    assert_eq!(
        world.beat(&staying("a", 1, None)),
        Err(GroupError::FencedEpoch)
    );
    assert_eq!(
        world.beat(&staying("a", 9, None)),
        Err(GroupError::FencedEpoch)
    );
    let mut world = World::pair();
    let mine = world.group.members["a"].partitions();
    assert_eq!(world.beat(&staying("a", 2, Some(mine))).unwrap().epoch, 3);
    let others = world.group.members["b"].partitions();
    assert_eq!(
        world.beat(&staying("a", 2, Some(others))),
        Err(GroupError::FencedEpoch)
    );
}

#[test]
fn a_static_member_comes_back_to_what_it_had() {
    let fixed = |beat: Heartbeat| Heartbeat {
        instance: Some("i".into()),
        ..beat
    };
    let mut world = World::new(4);
    world.beat(&fixed(joining("a"))).unwrap();
    let other = fixed(joining("a2"));
    assert_eq!(world.beat(&other), Err(GroupError::UnreleasedInstance));
    assert_eq!(
        world.beat(&fixed(staying("a", -2, None))).unwrap().epoch,
        -2
    );
    let back = world.beat(&other).unwrap();
    assert_eq!(
        (back.epoch, back.assignment),
        (2, Some(partitions(&[0, 1, 2, 3])))
    );
    assert_eq!(world.group.epoch, 2, "nobody else was disturbed");
    assert_eq!(
        world.beat(&fixed(staying("a", 2, None))),
        Err(GroupError::FencedInstance)
    );
}

#[test]
fn a_static_member_that_stays_away_is_out_after_its_session() {
    let mut world = World::new(4);
    let fixed = |beat: Heartbeat| Heartbeat {
        instance: Some("i".into()),
        ..beat
    };
    world.beat(&fixed(joining("a"))).unwrap();
    world.beat(&fixed(staying("a", -2, None))).unwrap();
    world.pass(SESSION);
    assert!(world.group.is_empty());
    assert_eq!(
        world.beat(&fixed(joining("b"))).unwrap().assignment,
        Some(partitions(&[0, 1, 2, 3]))
    );
}

#[test]
fn subscriptions_follow_the_topics_and_their_expression() {
    let mut world = World::new(2);
    let beat = Heartbeat {
        names: None,
        regex: Some("t[0-9]+".into()),
        ..joining("a")
    };
    assert_eq!(
        world.beat(&beat).unwrap().assignment,
        Some(partitions(&[0, 1]))
    );
    let bad = Heartbeat {
        regex: Some("t(".into()),
        ..joining("b")
    };
    assert_eq!(world.beat(&bad), Err(GroupError::InvalidRegex));
    world.topics = Lookup(2, vec![3, 1]);
    world.pass(Duration::from_secs(1));
    let a = world.beat(&staying("a", 2, None)).unwrap();
    assert_eq!((a.epoch, a.assignment.as_ref().map(count)), (3, Some(4)));
    let nowhere = Heartbeat {
        names: Some(BTreeSet::new()),
        regex: Some("".into()),
        ..staying("a", 3, None)
    };
    world.pass(Duration::from_secs(1));
    assert_eq!(
        world.beat(&nowhere).unwrap().assignment,
        Some(Partitions::new())
    );
}

/// The names that the pattern of a member means.
fn matched(world: &World, member: &str) -> Vec<String> {
    let matched = &world.group.members[member].matched;
    matched.iter().map(ToString::to_string).collect()
}

#[test]
fn an_expression_matches_what_its_member_may_see_whoever_makes_the_group_look_again() {
    let mut world = World::new(1);
    let with = |member, view| Heartbeat {
        names: None,
        regex: Some("t.*".into()),
        view: Arc::new(view),
        ..joining(member)
    };
    world.topics = Lookup(1, vec![1, 1]);
    world.beat(&with("a", Sees(0, &["t1", "t3"]))).unwrap();
    assert_eq!(matched(&world, "a"), ["t0"]);
    // Another member's heartbeat finds that the topics have changed.
    world.topics = Lookup(2, vec![1, 1, 1, 1]);
    world.beat(&with("b", Sees(0, &[]))).unwrap();
    assert_eq!(matched(&world, "a"), ["t0", "t2"]);
    assert_eq!(matched(&world, "b"), ["t0", "t1", "t2", "t3"]);
    // After a restart nobody has said who they are: nothing is new to them, and what is gone is gone.
    let mut back = Consumer::from_record(limits(), world.group.record(), world.now);
    std::mem::swap(&mut world.group, &mut back);
    world.topics = Lookup(3, vec![1, 1, 1, 1, 1]);
    world.beat(&with("c", Sees(0, &[]))).unwrap();
    assert_eq!(matched(&world, "a"), ["t0", "t2"]);
    assert_eq!(matched(&world, "c").len(), 5);
    // With its next heartbeat it is known again, and by other rules it sees something else.
    let epoch = world.group.members["a"].epoch;
    let beat = Heartbeat {
        view: Arc::new(Sees(1, &["t0"])),
        ..staying("a", epoch, None)
    };
    world.beat(&beat).unwrap();
    assert_eq!(matched(&world, "a"), ["t1", "t2", "t3", "t4"]);
}

#[test]
fn assignments_are_computed_once_in_a_while() {
    let mut world = World::new(4);
    world.beat(&joining("a")).unwrap();
    world.beat(&joining("b")).unwrap();
    assert_eq!(world.group.state_name(), "Assigning");
    assert_eq!(world.group.assignment_epoch, 2);
    world.pass(Duration::from_secs(1));
    world.beat(&staying("b", 2, None)).unwrap();
    assert_eq!(world.group.assignment_epoch, 3);
}

#[test]
fn a_group_takes_no_more_members_than_it_may_and_no_assignor_it_does_not_know() {
    let mut world = World::new(4);
    for member in ["a", "b", "c", "d"] {
        world.beat(&joining(member)).unwrap();
    }
    assert_eq!(world.beat(&joining("e")), Err(GroupError::Full));
    let odd = Heartbeat {
        assignor: Some("odd".into()),
        ..joining("a")
    };
    assert_eq!(world.beat(&odd), Err(GroupError::UnsupportedAssignor));
}

#[test]
fn a_commit_with_an_older_epoch_is_good_for_what_the_member_has_kept() {
    let world = World::pair();
    let kept = *world.group.members["a"].assigned[&id(0)]
        .keys()
        .next()
        .unwrap();
    let lost = *world.group.members["b"].assigned[&id(0)]
        .keys()
        .next()
        .unwrap();
    let check = |epoch, partition| world.group.check_commit("a", epoch, &[(id(0), partition)]);
    assert_eq!(
        check(3, lost),
        Ok(()),
        "as in Kafka, the epoch alone decides"
    );
    assert_eq!(check(2, kept), Ok(()));
    assert_eq!(check(2, lost), Err(GroupError::StaleEpoch));
    assert_eq!(check(4, kept), Err(GroupError::StaleEpoch));
    assert_eq!(
        world.group.check_commit("", -1, &[]),
        Err(GroupError::UnknownMember)
    );
    assert_eq!(world.group.check_fetch("", -1), Ok(()));
    assert_eq!(world.group.check_fetch("a", 2), Err(GroupError::StaleEpoch));
}

/// A subscription to t0 that owns these partitions, as the Java client writes it (version 1).
fn subscription(owned: &[i32]) -> Vec<Protocol> {
    let mut bytes = b"\0\x01\0\0\0\x01\0\x02t0\xff\xff\xff\xff\0\0\0\x01\0\x02t0".to_vec();
    bytes.extend(u32::try_from(owned.len()).unwrap().to_be_bytes());
    owned.iter().for_each(|p| bytes.extend(p.to_be_bytes()));
    vec![Protocol {
        name: "cooperative-sticky".into(),
        metadata: bytes.into(),
    }]
}

fn classic_join(member: &str, owned: &[i32]) -> Join {
    Join {
        member: member.into(),
        new_id: "new".into(),
        instance: None,
        client_id: "c".into(),
        client_host: "/::1".into(),
        session_timeout: SESSION,
        rebalance_timeout: REBALANCE,
        protocol_type: "consumer".into(),
        protocols: subscription(owned),
        needs_id: true,
        may_skip_assignment: true,
    }
}

/// A classic group of one that has all four partitions, in generation 5, taken over.
fn upgraded() -> World {
    let mut world = World::new(4);
    let all = [("t0".to_owned(), vec![0, 1, 2, 3])];
    let emigrant = Emigrant {
        instance: None,
        client_id: "c".into(),
        client_host: "/::1".into(),
        rebalance_timeout: REBALANCE,
        session_timeout: SESSION,
        protocols: subscription(&[]),
        protocol: None,
        assignment: encode_assignment(&all.to_vec()),
    };
    let limits_of_classic = ClassicLimits {
        initial_delay: Duration::ZERO,
        members_max: 9,
    };
    let mut fx = Effects::new(world.now);
    let mut classic = Classic::from_emigrants(
        limits_of_classic,
        ("consumer", 5),
        vec![("a".into(), emigrant)],
        &mut fx,
    );
    let taken = Consumer::from_classic(limits(), &mut classic, &world.topics, &mut fx);
    world.group = taken.expect("a group of consumers");
    world
}

#[test]
fn classic_members_go_on_in_a_group_that_has_changed_its_protocol() {
    let mut world = upgraded();
    let beat = |world: &mut World, generation| {
        world.act(|group, _, fx| group.heartbeat_classic("a", None, generation, fx))
    };
    assert_eq!(beat(&mut world, 5), Ok(()));
    world.beat(&joining("b")).unwrap();
    assert_eq!(beat(&mut world, 5), Err(GroupError::RebalanceInProgress));
    let joined = world
        .act(|group, topics, fx| group.join_classic(classic_join("a", &[0, 1, 2, 3]), topics, fx));
    assert_eq!(joined.unwrap().generation, 5, "it has to give back first");
    let sync = |generation| Sync {
        member: "a".into(),
        instance: None,
        generation,
        protocol_type: Some("consumer".into()),
        protocol: Some("cooperative-sticky".into()),
        assignments: Default::default(),
    };
    let synced = world
        .act(|group, topics, fx| group.sync_classic(&sync(5), topics, fx))
        .unwrap();
    let kept = decode_assignment(&synced.assignment).unwrap()[0].1.clone();
    assert_eq!(kept.len(), 2);
    assert_eq!(
        beat(&mut world, 5),
        Err(GroupError::RebalanceInProgress),
        "to say that it has"
    );
    let joined =
        world.act(|group, topics, fx| group.join_classic(classic_join("a", &kept), topics, fx));
    assert_eq!(joined.unwrap().generation, 6);
    world
        .act(|group, topics, fx| group.sync_classic(&sync(6), topics, fx))
        .unwrap();
    assert_eq!(beat(&mut world, 6), Ok(()));
    let b = world.beat(&staying("b", 6, None)).unwrap();
    assert_eq!(b.assignment.as_ref().map(count), Some(2));
    assert_eq!(world.group.state_name(), "Stable");
}

#[test]
fn a_group_is_classic_again_when_the_last_consumer_has_left() {
    let mut world = upgraded();
    world.beat(&joining("b")).unwrap();
    assert!(!world.group.is_all_classic());
    world.beat(&staying("b", -1, None)).unwrap();
    assert!(world.group.is_all_classic());
    let mut fx = Effects::new(world.now);
    let limits_of_classic = ClassicLimits {
        initial_delay: Duration::ZERO,
        members_max: 9,
    };
    let classic = world
        .group
        .to_classic(limits_of_classic, &world.topics, &mut fx);
    assert!(fx.store);
    assert_eq!(classic.state_name(), "PreparingRebalance");
    assert_eq!(classic.generation(), world.group.assignment_epoch);
    assert_eq!(classic.record().members["a"].protocols.len(), 1);
}

#[test]
fn a_classic_member_that_does_not_join_or_sync_in_time_is_out() {
    let mut world = upgraded();
    world.beat(&joining("b")).unwrap();
    for _ in 0..13 {
        let _ = world.act(|group, _, fx| group.heartbeat_classic("a", None, 5, fx));
        world.pass(Duration::from_secs(5));
        let _ = world.beat(&staying("b", 6, None));
    }
    let gone = world.act(|group, _, fx| group.heartbeat_classic("a", None, 5, fx));
    assert_eq!(gone, Err(GroupError::UnknownMember));
}

#[test]
fn every_group_becomes_stable_whatever_its_members_did() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for _ in 0..200 {
        let mut world = World::new(6);
        let names = ["a", "b", "c"];
        for _ in 0..random(40) {
            let name = names[usize::try_from(random(3)).unwrap()];
            let epoch = world.group.members.get(name).map_or(0, |m| m.epoch);
            let has = world.group.members.get(name).map(Member::partitions);
            let _ = match random(6) {
                0 => world.beat(&joining(name)),
                1 => world.beat(&staying(name, -1, None)),
                2 => world.beat(&staying(name, epoch, None)),
                3 => world.beat(&staying(name, epoch.saturating_sub(1), has)),
                4 => world.beat(&staying(name, epoch, has)),
                _ => {
                    world.pass(Duration::from_secs(random(20)));
                    Err(GroupError::NotFound)
                }
            };
        }
        world.beat(&joining("z")).map(drop).unwrap_or_default();
        for _ in 0..20 {
            world.pass(Duration::from_secs(5));
            let members: Vec<_> = world.group.members.keys().cloned().collect();
            for id in members {
                let member = &world.group.members[&id];
                let beat = staying(&id, member.epoch, Some(member.partitions()));
                let _ = world.beat(&beat);
            }
        }
        assert_eq!(world.group.state_name(), "Stable");
        let all: usize = world
            .group
            .members
            .values()
            .map(|m| count(&m.partitions()))
            .sum();
        assert_eq!(all, 6);
    }
}
