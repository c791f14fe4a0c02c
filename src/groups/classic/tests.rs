//! The machine in virtual time: nothing here waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use super::*;
use crate::groups::effects::Effects;

const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(60);

type Seen<T> = Arc<Mutex<HashMap<&'static str, T>>>;

/// A group, its time, and what its members have been told since they were asked last.
struct World {
    group: Classic,
    now: Instant,
    wake_at: Option<Instant>,
    joined: Seen<Result<Joined, JoinRefused>>,
    synced: Seen<Result<Synced, GroupError>>,
    stored: usize,
}

/// Who joins, as the tests name them.
#[derive(Clone, Copy)]
struct Who {
    name: &'static str,
    instance: Option<&'static str>,
    protocols: &'static [&'static str],
    needs_id: bool,
}

fn who(name: &'static str) -> Who {
    Who {
        name,
        instance: None,
        protocols: &["range"],
        needs_id: false,
    }
}

fn fixed(name: &'static str, instance: &'static str) -> Who {
    Who {
        instance: Some(instance),
        ..who(name)
    }
}

impl World {
    fn new(initial_delay: Duration) -> Self {
        Self {
            group: Classic::new(ClassicLimits {
                initial_delay,
                members_max: 3,
            }),
            now: Instant::now(),
            wake_at: None,
            joined: Seen::default(),
            synced: Seen::default(),
            stored: 0,
        }
    }

    fn act(&mut self, act: impl FnOnce(&mut Classic, &mut Effects)) {
        let mut fx = Effects::new(self.now);
        act(&mut self.group, &mut fx);
        self.stored += usize::from(fx.store);
        if let Some(when) = fx.wake_at {
            self.wake_at = Some(self.wake_at.map_or(when, |earlier| earlier.min(when)));
        }
        fx.answers.into_iter().for_each(|answer| answer());
        fx.when_stored.into_iter().for_each(|reply| reply(Ok(())));
    }

    /// Joins under an id, or for the first time; the new id is `<name>-<n>`.
    fn join(&mut self, who: Who, member: &str, new_id: &str) {
        let joined = Arc::clone(&self.joined);
        let reply: JoinReply = Box::new(move |answer| {
            joined.lock().insert(who.name, answer);
        });
        let join = Join {
            member: member.into(),
            new_id: new_id.into(),
            instance: who.instance.map(Into::into),
            client_id: who.name.into(),
            client_host: "/::1".into(),
            session_timeout: SESSION,
            rebalance_timeout: REBALANCE,
            protocol_type: "consumer".into(),
            protocols: who.protocols.iter().map(|name| protocol(name)).collect(),
            needs_id: who.needs_id,
            may_skip_assignment: false,
        };
        self.act(|group, fx| group.join(join, reply, fx));
    }

    fn sync(
        &mut self,
        name: &'static str,
        id: &str,
        generation: i32,
        assign: &[(&str, &'static [u8])],
    ) {
        let synced = Arc::clone(&self.synced);
        let reply: SyncReply = Box::new(move |answer| {
            synced.lock().insert(name, answer);
        });
        let assignments = assign.iter();
        let sync = Sync {
            member: id.into(),
            instance: None,
            generation,
            protocol_type: None,
            protocol: None,
            assignments: assignments
                .map(|(id, bytes)| ((*id).into(), Bytes::from_static(bytes)))
                .collect(),
        };
        self.act(|group, fx| group.sync(sync, reply, fx));
    }

    fn leave(&mut self, id: &str) -> Result<(), GroupError> {
        let leaver = Leaver {
            member: id.into(),
            instance: None,
        };
        let mut answers = Vec::new();
        self.act(|group, fx| answers = group.leave(&[leaver], fx));
        answers.remove(0)
    }

    /// Lets time pass, with every tick that was asked for.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(when) = self.wake_at.filter(|when| *when <= until) {
            self.now = self.now.max(when);
            self.wake_at = None;
            self.act(Classic::tick);
        }
        self.now = until;
    }

    fn heartbeat(&mut self, id: &str, generation: i32) -> Result<(), GroupError> {
        self.group.heartbeat(self.now, id, None, generation)
    }

    fn joined(&self, name: &str) -> Option<Result<Joined, JoinRefused>> {
        self.joined.lock().remove(name)
    }

    fn assignment(&self, name: &str) -> Option<Result<Bytes, GroupError>> {
        let synced = self.synced.lock().remove(name);
        synced.map(|synced| synced.map(|synced| synced.assignment))
    }

    #[track_caller]
    fn generation_of(&self, name: &str) -> i32 {
        self.joined(name)
            .expect("answered")
            .expect("joined")
            .generation
    }

    /// A stable group of these members.
    #[track_caller]
    fn stable(names: &[(Who, &str)]) -> Self {
        let mut world = World::new(Duration::from_secs(3));
        for (who, id) in names {
            world.join(*who, "", id);
        }
        world.pass(Duration::from_secs(10));
        let leader = world.group.leader.clone().unwrap();
        for (who, id) in names {
            assert_eq!(world.generation_of(who.name), 1);
            if **id != *leader {
                world.sync(who.name, id, 1, &[]);
            }
        }
        let leads = names.iter().find(|(_, id)| **id == *leader).unwrap();
        let all: Vec<(&str, &'static [u8])> =
            names.iter().map(|(_, id)| (*id, b"x".as_slice())).collect();
        world.sync(leads.0.name, &leader, 1, &all);
        for (who, _) in names {
            assert_eq!(
                world.assignment(who.name),
                Some(Ok(Bytes::from_static(b"x")))
            );
        }
        assert_eq!(world.group.state_name(), "Stable");
        world
    }
}

fn protocol(name: &str) -> Protocol {
    Protocol {
        name: name.into(),
        metadata: Bytes::from_static(b"m"),
    }
}

#[test]
fn members_that_start_together_are_assigned_together() {
    let mut world = World::new(Duration::from_secs(3));
    world.join(who("a"), "", "a-1");
    world.pass(Duration::from_secs(2));
    world.join(who("b"), "", "b-1");
    assert!(world.joined("a").is_none(), "the group gathers");
    world.pass(Duration::from_secs(1));
    assert!(world.joined("a").is_none(), "b has made it wait once more");
    world.pass(Duration::from_secs(3));
    let a = world.joined("a").unwrap().unwrap();
    let b = world.joined("b").unwrap().unwrap();
    assert_eq!((a.generation, b.generation), (1, 1));
    assert_eq!(a.leader, b.leader);
    assert_eq!(
        a.members.len() + b.members.len(),
        2,
        "the leader alone learns of the others"
    );
}

#[test]
fn an_assignment_is_stored_before_anybody_reads_by_it() {
    let mut world = World::new(Duration::ZERO);
    world.join(who("a"), "", "a-1");
    assert_eq!(world.generation_of("a"), 1);
    let mut fx = Effects::new(world.now);
    let sync = Sync {
        member: "a-1".into(),
        instance: None,
        generation: 1,
        protocol_type: None,
        protocol: None,
        assignments: HashMap::from([("a-1".into(), Bytes::from_static(b"x"))]),
    };
    let told = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&told);
    world.group.sync(
        sync,
        Box::new(move |answer| *tell.lock() = Some(answer)),
        &mut fx,
    );
    assert!(fx.store && fx.answers.is_empty());
    assert_eq!(&*world.group.record().members["a-1"].assignment, "78");
    fx.when_stored
        .into_iter()
        .for_each(|reply| reply(Err(crate::groups::effects::NotStored)));
    assert_eq!(told.lock().take(), Some(Err(GroupError::Unavailable)));
}

#[test]
fn g02_a_member_that_never_comes_back_with_its_id_does_not_hold_up_the_group() {
    let mut world = World::stable(&[(who("a"), "a-1")]);
    world.join(
        Who {
            needs_id: true,
            ..who("b")
        },
        "",
        "b-1",
    );
    let refused = world.joined("b").unwrap().unwrap_err();
    assert_eq!(
        (refused.error, &*refused.member),
        (GroupError::MemberIdRequired, "b-1")
    );
    assert_eq!(world.leave("a-1"), Ok(()));
    assert_eq!(world.group.state_name(), "PreparingRebalance");
    world.pass(SESSION);
    assert_eq!(world.group.state_name(), "Empty");
}

#[test]
fn an_id_that_was_handed_out_is_good_for_one_session() {
    let mut world = World::new(Duration::ZERO);
    world.join(
        Who {
            needs_id: true,
            ..who("b")
        },
        "",
        "b-1",
    );
    world.joined("b");
    world.pass(SESSION);
    world.join(who("b"), "b-1", "unused");
    let refused = world.joined("b").unwrap().unwrap_err();
    assert_eq!(refused.error, GroupError::UnknownMember);
}

#[test]
fn g03_a_join_completes_when_who_was_awaited_leaves() {
    let mut world = World::stable(&[(who("a"), "a-1"), (who("b"), "b-1")]);
    world.join(who("c"), "", "c-1");
    world.join(who("a"), "a-1", "unused");
    assert!(world.joined("c").is_none(), "b is awaited");
    assert_eq!(world.leave("b-1"), Ok(()));
    assert_eq!(world.generation_of("c"), 2);
    assert_eq!(world.generation_of("a"), 2);
}

#[test]
fn g04_who_waits_in_a_join_does_not_expire() {
    let mut world = World::stable(&[(who("a"), "a-1"), (who("b"), "b-1")]);
    world.join(who("a"), "a-1", "unused");
    world.join(who("c"), "", "c-1");
    for _ in 0..10 {
        world.pass(Duration::from_secs(5));
        let _ = world.heartbeat("b-1", 1);
    }
    assert!(world.joined("a").is_none() && world.joined("c").is_none());
    world.pass(Duration::from_secs(11));
    assert_eq!(world.generation_of("a"), 2, "b has not come: it is out");
    assert_eq!(world.generation_of("c"), 2);
    assert_eq!(world.heartbeat("b-1", 2), Err(GroupError::UnknownMember));
}

#[test]
fn a_silent_member_is_out_after_its_session_and_not_before() {
    let mut world = World::stable(&[(who("a"), "a-1"), (who("b"), "b-1")]);
    for _ in 0..3 {
        world.pass(SESSION - Duration::from_secs(1));
        assert_eq!(world.heartbeat("a-1", 1), Ok(()));
        assert_eq!(world.heartbeat("b-1", 1), Ok(()));
    }
    world.pass(SESSION - Duration::from_secs(1));
    assert_eq!(world.heartbeat("a-1", 1), Ok(()));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.heartbeat("b-1", 1), Err(GroupError::UnknownMember));
    assert_eq!(
        world.heartbeat("a-1", 1),
        Err(GroupError::RebalanceInProgress)
    );
    assert_eq!(
        world.heartbeat("a-1", 7),
        Err(GroupError::IllegalGeneration)
    );
}

#[test]
fn a_member_that_never_syncs_is_out_after_its_rebalance_timeout() {
    let mut world = World::stable(&[(who("a"), "a-1"), (who("b"), "b-1")]);
    world.join(who("a"), "a-1", "unused");
    world.join(who("b"), "b-1", "unused");
    let leader = world.group.leader.clone().unwrap();
    let (leads, other) = if &*leader == "a-1" {
        ("a", "b-1")
    } else {
        ("b", "a-1")
    };
    world.sync(leads, &leader, 2, &[]);
    for _ in 0..12 {
        world.pass(Duration::from_secs(5));
        let _ = world.heartbeat(&leader, 2);
        let _ = world.heartbeat(other, 2);
    }
    assert_eq!(world.heartbeat(other, 2), Err(GroupError::UnknownMember));
    assert_eq!(
        world.heartbeat(&leader, 2),
        Err(GroupError::RebalanceInProgress)
    );
}

#[test]
fn who_waited_in_vain_for_its_assignment_has_a_whole_session_to_join_again() {
    let mut world = World::stable(&[(who("a"), "a-1"), (who("b"), "b-1")]);
    world.join(who("a"), "a-1", "unused");
    world.join(who("b"), "b-1", "unused");
    let leader = world.group.leader.clone().unwrap();
    let (name, id) = if &*leader == "a-1" {
        ("b", "b-1")
    } else {
        ("a", "a-1")
    };
    world.pass(Duration::from_secs(1));
    world.sync(name, id, 2, &[]);
    // The leader has died: the other learns of it when its own session would be almost over, had it not been waiting.
    world.pass(SESSION - Duration::from_secs(1));
    assert_eq!(
        world.assignment(name),
        Some(Err(GroupError::RebalanceInProgress))
    );
    world.pass(SESSION - Duration::from_secs(1));
    world.join(who(name), id, "unused");
    assert_eq!(world.generation_of(name), 3);
}

#[test]
fn every_group_ends_stable_or_empty_whatever_its_members_do() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for _ in 0..300 {
        let mut world = World::new(Duration::from_secs(random(4)));
        let ids = ["a-1", "b-1", "c-1", "d-1"];
        for _ in 0..random(40) {
            let at = usize::try_from(random(4)).unwrap();
            let generation = world.group.generation;
            match random(6) {
                0 => world.join(who("new"), "", ids[at]),
                1 => world.join(fixed("fixed", "i"), "", ids[at]),
                2 => world.join(who("again"), ids[at], "unused"),
                3 => world.sync("any", ids[at], generation, &[]),
                4 => drop(world.leave(ids[at])),
                _ => world.pass(Duration::from_secs(random(20))),
            }
            let empty = world.group.members.is_empty();
            let state = world.group.state_name();
            assert!(
                !(empty && (state == "Stable" || state == "CompletingRebalance")),
                "G1"
            );
            assert!(empty || state != "Empty", "G1");
        }
        world.pass(NEW_MEMBER_JOIN + REBALANCE + REBALANCE + SESSION);
        assert_eq!(
            world.group.state_name(),
            "Empty",
            "G2: nobody sends a heartbeat"
        );
    }
}

#[test]
fn a_group_takes_no_more_members_than_it_may() {
    let mut world = World::stable(&[(who("a"), "a-1"), (who("b"), "b-1"), (who("c"), "c-1")]);
    world.join(who("d"), "", "d-1");
    assert_eq!(
        world.joined("d").unwrap().unwrap_err().error,
        GroupError::Full
    );
    world.join(who("a"), "a-1", "unused");
    assert!(
        !matches!(world.joined("a"), Some(Err(_))),
        "who is in stays in"
    );
}

#[test]
fn a_member_without_a_common_assignor_is_refused() {
    let mut world = World::stable(&[(who("a"), "a-1")]);
    let odd = Who {
        protocols: &["sticky"],
        ..who("b")
    };
    world.join(odd, "", "b-1");
    assert_eq!(
        world.joined("b").unwrap().unwrap_err().error,
        GroupError::InconsistentProtocol
    );
    assert_eq!(world.group.state_name(), "Stable");
}

#[test]
fn the_assignor_that_most_like_best_is_chosen() {
    let mut world = World::new(Duration::from_secs(3));
    for (name, id, protocols) in [
        ("a", "a-1", &["range", "sticky"] as &[_]),
        ("b", "b-1", &["sticky", "range"]),
        ("c", "c-1", &["odd", "sticky", "range"]),
    ] {
        world.join(
            Who {
                protocols,
                ..who(name)
            },
            "",
            id,
        );
    }
    world.pass(Duration::from_secs(10));
    assert_eq!(&*world.joined("a").unwrap().unwrap().protocol, "sticky");
}

#[test]
fn g05_a_static_member_keeps_its_place_over_a_restart_of_the_broker() {
    let mut world = World::stable(&[(fixed("a", "i"), "a-1")]);
    let record = Arc::clone(world.group.record());
    let json = serde_json::to_string(&*record).unwrap();
    let record: ClassicRecord = serde_json::from_str(&json).unwrap();
    world.group = Classic::from_record(world.group.limits, Arc::new(record), world.now);
    assert_eq!(
        world.group.heartbeat(world.now, "a-1", Some("i"), 1),
        Ok(())
    );
    world.sync("a", "a-1", 1, &[]);
    assert_eq!(world.assignment("a"), Some(Ok(Bytes::from_static(b"x"))));
    world.wake_at = Some(world.now);
    world.pass(SESSION);
    assert_eq!(
        world.group.state_name(),
        "Empty",
        "its session began anew, and ended"
    );
}

#[test]
fn g06_a_restarted_static_member_takes_its_former_place_and_fences_it() {
    let mut world = World::stable(&[(fixed("a", "i"), "a-1"), (who("b"), "b-1")]);
    let stored = world.stored;
    world.join(fixed("a", "i"), "", "a-2");
    assert_eq!(world.generation_of("a"), 1, "nobody else is disturbed");
    assert_eq!(world.stored, stored + 1, "the new id outlives the broker");
    assert_eq!(
        world.group.heartbeat(world.now, "a-1", Some("i"), 1),
        Err(GroupError::FencedInstance)
    );
    assert_eq!(
        world.group.heartbeat(world.now, "a-2", Some("i"), 1),
        Ok(())
    );
    // Its answer was lost: it comes again without an id.
    world.join(fixed("a", "i"), "", "a-3");
    assert_eq!(world.generation_of("a"), 1);
    world.sync("a", "a-3", 1, &[]);
    assert_eq!(world.assignment("a"), Some(Ok(Bytes::from_static(b"x"))));
}

#[test]
fn a_commit_needs_the_generation_unless_nobody_is_in_the_group() {
    let mut world = World::new(Duration::ZERO);
    let now = world.now;
    let check = |world: &mut World, member: &str, generation| {
        world.group.check_commit(now, member, None, generation)
    };
    assert_eq!(check(&mut world, "", -1), Ok(()));
    assert_eq!(check(&mut world, "anybody", -1), Ok(()));
    assert_eq!(check(&mut world, "a-1", 1), Err(GroupError::UnknownMember));
    let mut world = World::stable(&[(who("a"), "a-1")]);
    assert_eq!(check(&mut world, "", -1), Err(GroupError::UnknownMember));
    assert_eq!(
        check(&mut world, "a-1", 0),
        Err(GroupError::IllegalGeneration)
    );
    assert_eq!(check(&mut world, "a-1", 1), Ok(()));
    world.join(who("a"), "a-1", "unused");
    assert_eq!(
        check(&mut world, "a-1", 2),
        Err(GroupError::RebalanceInProgress)
    );
}

#[test]
fn a_commit_in_the_middle_of_a_rebalance_stores_the_last_whole_generation() {
    let mut world = World::stable(&[(who("a"), "a-1")]);
    world.join(who("b"), "", "b-1");
    world.join(who("a"), "a-1", "unused");
    assert_eq!(world.group.state_name(), "CompletingRebalance");
    let record = world.group.record();
    assert_eq!((record.generation, record.members.len()), (1, 1), "G3");
}

#[test]
fn who_leaves_a_join_is_told_and_the_rest_go_on() {
    let mut world = World::stable(&[(who("a"), "a-1"), (who("b"), "b-1")]);
    world.join(who("a"), "a-1", "unused");
    world.leave("a-1").unwrap();
    assert_eq!(
        world.joined("a").unwrap().unwrap_err().error,
        GroupError::UnknownMember
    );
    world.join(who("b"), "b-1", "unused");
    assert_eq!(world.generation_of("b"), 2);
    assert_eq!(world.leave("nobody"), Err(GroupError::UnknownMember));
}
