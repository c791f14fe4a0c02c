//! What becomes of members of classic groups: static ones, silent ones, those that never sync or do not come back, and
//! how many there may be; the rows g02 to g06 of the cases.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use seawall_testkit::calls::create_topic;
use seawall_testkit::groups::{self, MEMBER_ID_REQUIRED, Member, subscription};
use seawall_testkit::kafka_wire::{JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest};
use seawall_testkit::wait::{self, SOON};

use super::codes;
use super::groups::{
    describe, first_member, groups_broker, member, new_group, rebalance_with, settle_alone,
    static_member, until_state,
};
use crate::{broker, setup, times};

#[test]
fn g02_a_member_that_got_an_id_and_never_came_back_does_not_hold_the_group() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut real = member(&broker, &group, 9);
    real.join.session_ms = 600;
    let mut ghost = member(&broker, &group, 9);
    ghost.join.session_ms = 600;
    let correlation = ghost.send_join();
    assert_eq!(
        ghost.receive_join(correlation).error_code,
        MEMBER_ID_REQUIRED
    );
    settle_alone(&mut real);
    let started = Instant::now();
    until_state(&broker, &group, "Empty");
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    let described = describe(&broker, &group, 5);
    assert_eq!(described.members.len(), 0);
    assert_eq!(
        ghost.join().error_code,
        codes::UNKNOWN_MEMBER_ID,
        "its id has expired, too"
    );
}

#[test]
fn g03_a_leave_while_a_rebalance_is_preparing_completes_it_at_once() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut first = first_member(&broker, &group, 9);
    let mut second = member(&broker, &group, 9);
    let joining = second.send_join_with_id();
    until_state(&broker, &group, "PreparingRebalance");
    let started = Instant::now();
    assert_eq!(first.leave(), codes::NONE);
    let joined = second.receive_join(joining);
    assert_eq!((joined.error_code, joined.members.len()), (codes::NONE, 1));
    assert_eq!(joined.leader.as_str(), second.id());
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn g04_a_member_does_not_expire_while_its_join_is_parked() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut first = member(&broker, &group, 9);
    first.join.session_ms = 20_000;
    first.join.rebalance_ms = 60_000;
    settle_alone(&mut first);
    let mut second = member(&broker, &group, 9);
    second.join.session_ms = 400;
    second.join.rebalance_ms = 60_000;
    let joining = second.send_join_with_id();
    until_state(&broker, &group, "PreparingRebalance");
    // The first one beats on and does not rejoin: the second is parked for several of its sessions.
    let started = Instant::now();
    wait::until("three sessions have passed", SOON, || {
        assert_eq!(first.heartbeat(), codes::REBALANCE_IN_PROGRESS);
        started.elapsed() > Duration::from_millis(1_300)
    });
    assert_eq!(describe(&broker, &group, 5).members.len(), 2);
    let rejoined = first.join();
    assert_eq!(rejoined.members.len(), 2);
    assert_eq!(second.receive_join(joining).error_code, codes::NONE);
}

#[test]
fn g05_a_static_member_keeps_its_place_over_a_crash_of_the_broker() {
    let mut broker = setup().set("group.initial.rebalance.delay.ms", "0").start();
    let group = new_group(&broker);
    let mut first = static_member(&broker, &group, "one");
    settle_alone(&mut first);
    let id = first.id().to_owned();
    for round in 0..2 {
        if round == 0 {
            broker.kill9();
            broker.start_again();
        } else {
            broker.stop_and_restart();
        }
        first.raw = broker.connect();
        groups::until_coordinated(&mut first.raw, &group);
        assert_eq!(first.heartbeat(), codes::NONE, "round {round}");
        let synced = first.sync(&[]);
        assert_eq!(
            (synced.error_code, &synced.assignment[..]),
            (codes::NONE, &b"all of it"[..])
        );
    }
    // One that lost its memory comes back under its name and gets its place.
    let mut reborn = static_member(&broker, &group, "one");
    let joined = reborn.join();
    assert_eq!(
        (joined.error_code, joined.generation_id),
        (codes::NONE, first.generation)
    );
    assert_ne!(reborn.id(), id);
    assert_eq!(&reborn.sync(&[]).assignment[..], b"all of it");
    assert_eq!(first.heartbeat(), codes::FENCED_INSTANCE_ID);
}

#[test]
fn g06_a_static_member_whose_join_answer_was_lost_is_not_fenced_by_itself() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut lost = static_member(&broker, &group, "one");
    lost.send_join();
    wait::until("it is in the group", SOON, || {
        describe(&broker, &group, 5).members.len() == 1
    });
    lost.raw.reset();
    lost.raw = broker.connect();
    let joined = lost.join();
    assert_eq!(joined.error_code, codes::NONE);
    let id = lost.id().to_owned();
    assert_eq!(&lost.sync(&[(&id, b"x")]).assignment[..], b"x");
    assert_eq!(lost.heartbeat(), codes::NONE);
    assert_eq!(describe(&broker, &group, 5).members.len(), 1);
    // Once more, from a stable group: the same generation, no rebalance.
    let id = lost.id().to_owned();
    lost.join.member.clear();
    lost.send_join();
    wait::until("it has a new id", SOON, || {
        describe(&broker, &group, 5).members[0].member_id.as_str() != id
    });
    lost.raw.reset();
    lost.raw = broker.connect();
    let again = lost.join();
    assert_eq!(
        (again.error_code, again.generation_id),
        (codes::NONE, joined.generation_id)
    );
    assert_eq!(&lost.sync(&[]).assignment[..], b"x");
    assert_eq!(describe(&broker, &group, 5).members.len(), 1);
}

#[test]
fn a_static_member_that_comes_back_fences_its_predecessor() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let topic = create_topic(&mut broker.connect(), &broker.fresh("t"), 1, &[]);
    let mut old = static_member(&broker, &group, "one");
    settle_alone(&mut old);
    let mut new = static_member(&broker, &group, "one");
    let joined = new.join();
    assert_eq!((joined.error_code, joined.generation_id), (codes::NONE, 1));
    // It leads, but need not assign anew.
    assert_eq!(
        (joined.leader.as_str(), joined.skip_assignment),
        (new.id(), true)
    );
    assert_eq!(&new.sync(&[]).assignment[..], b"all of it");

    assert_eq!(old.heartbeat(), codes::FENCED_INSTANCE_ID);
    assert_eq!(old.sync(&[]).error_code, codes::FENCED_INSTANCE_ID);
    assert_eq!(old.commit(&topic.name, 0, 1), codes::FENCED_INSTANCE_ID);
    assert_eq!(old.leave(), codes::FENCED_INSTANCE_ID);
    let correlation = old.send_join();
    assert_eq!(
        old.receive_join(correlation).error_code,
        codes::FENCED_INSTANCE_ID
    );
    assert_eq!(new.heartbeat(), codes::NONE);
    assert_eq!(new.commit(&topic.name, 0, 1), codes::NONE);
}

#[test]
fn a_static_member_that_comes_back_with_other_metadata_starts_no_rebalance() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut old = static_member(&broker, &group, "one");
    settle_alone(&mut old);
    let mut new = static_member(&broker, &group, "one");
    new.join.protocols[0].1 = subscription(&["other"]);
    let joined = new.join();
    assert_eq!((joined.error_code, joined.generation_id), (codes::NONE, 1));
    assert_eq!(
        (joined.leader.as_str(), joined.skip_assignment),
        (new.id(), true)
    );
    assert_eq!(joined.members[0].metadata, subscription(&["other"]));
    assert_eq!(joined.members[0].group_instance_id.as_deref(), Some("one"));
}

#[test]
fn a_static_member_that_knows_another_protocol_starts_a_rebalance() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut old = static_member(&broker, &group, "one");
    let sticky = ("sticky".to_owned(), subscription(&[]));
    old.join.protocols.push(sticky.clone());
    settle_alone(&mut old);
    let mut new = static_member(&broker, &group, "one");
    new.join.protocols = vec![sticky];
    let joined = new.join();
    assert_eq!((joined.error_code, joined.generation_id), (codes::NONE, 2));
    assert_eq!(joined.protocol_name.as_deref(), Some("sticky"));
    assert!(!joined.skip_assignment);
}

#[test]
fn members_are_removed_by_name_or_by_id_each_with_its_own_answer() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut first = static_member(&broker, &group, "one");
    settle_alone(&mut first);
    let mut second = static_member(&broker, &group, "two");
    rebalance_with(&mut [&mut first], &mut second);
    let id = second.id().to_owned();
    let request = groups::leave(
        5,
        &group,
        &[
            ("", Some("one")),
            ("", Some("nobody")),
            ("wrong", Some("two")),
            ("nobody", None),
            (&id, Some("two")),
        ],
    );
    let answer = broker.connect().call::<LeaveGroupRequest>(5, &request);
    let got: Vec<i16> = answer.members.iter().map(|row| row.error_code).collect();
    let expected = [
        codes::NONE,
        codes::UNKNOWN_MEMBER_ID,
        codes::FENCED_INSTANCE_ID,
        codes::UNKNOWN_MEMBER_ID,
        codes::NONE,
    ];
    assert_eq!((answer.error_code, got), (codes::NONE, expected.to_vec()));
    until_state(&broker, &group, "Empty");
}

#[test]
fn a_session_timeout_out_of_bounds_is_refused() {
    let broker = broker();
    groups::until_coordinated(&mut broker.connect(), "bounds");
    for (ms, expected) in [
        (5_999, codes::INVALID_SESSION_TIMEOUT),
        (1_800_001, codes::INVALID_SESSION_TIMEOUT),
        (0, codes::INVALID_SESSION_TIMEOUT),
        (-1, codes::INVALID_SESSION_TIMEOUT),
        (i32::MAX, codes::INVALID_SESSION_TIMEOUT),
        (6_000, MEMBER_ID_REQUIRED),
        (1_800_000, MEMBER_ID_REQUIRED),
    ] {
        // Whatever minimum a shared node has is below the default one.
        if broker.is_kafka() && ms == 5_999 {
            continue;
        }
        let mut first = member(&broker, &broker.fresh("bounds"), 4);
        first.join.session_ms = ms;
        let correlation = first.send_join();
        assert_eq!(
            first.receive_join(correlation).error_code,
            expected,
            "{ms} ms"
        );
    }
}

#[test]
fn a_full_group_takes_nobody_more() {
    let broker = setup()
        .set("group.initial.rebalance.delay.ms", "0")
        .set("group.max.size", "2")
        .start();
    let group = new_group(&broker);
    let mut first = first_member(&broker, &group, 9);
    let mut second = member(&broker, &group, 9);
    rebalance_with(&mut [&mut first], &mut second);
    for version in [3, 9] {
        let mut third = member(&broker, &group, version);
        let correlation = third.send_join();
        let refused = third.receive_join(correlation);
        assert_eq!(
            refused.error_code,
            codes::GROUP_MAX_SIZE_REACHED,
            "v{version}"
        );
    }
    // Those who are in it may rejoin.
    assert_eq!(second.join().error_code, codes::NONE);
    assert_eq!(first.leave(), codes::NONE);
}

#[test]
fn a_member_that_never_syncs_is_removed_and_the_others_go_on() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut first = member(&broker, &group, 9);
    first.join.rebalance_ms = 700;
    settle_alone(&mut first);
    let mut second = member(&broker, &group, 9);
    second.join.rebalance_ms = 700;
    let joining = second.send_join_with_id();
    wait::until("the rebalance is seen", SOON, || {
        first.heartbeat() == codes::REBALANCE_IN_PROGRESS
    });
    assert_eq!(first.join().members.len(), 2);
    assert_eq!(second.receive_join(joining).error_code, codes::NONE);
    let started = Instant::now();
    let id = first.id().to_owned();
    let parked = first.send_sync(&[(&id, b"x")]);
    let answer = first.raw.receive::<SyncGroupRequest>(5, parked);
    assert_eq!(
        answer.error_code,
        codes::NONE,
        "the leader need not wait for the others"
    );
    // The second one beats, but never takes its assignment.
    wait::until("the second one is out", SOON, || {
        first.heartbeat();
        second.heartbeat() == codes::UNKNOWN_MEMBER_ID
    });
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    let rejoined = first.join();
    assert_eq!(
        (rejoined.error_code, rejoined.members.len()),
        (codes::NONE, 1)
    );
}

#[test]
fn a_leader_that_never_syncs_is_removed_and_the_others_rejoin() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut first = member(&broker, &group, 9);
    first.join.rebalance_ms = 700;
    settle_alone(&mut first);
    let mut second = member(&broker, &group, 9);
    second.join.rebalance_ms = 700;
    let joining = second.send_join_with_id();
    wait::until("the rebalance is seen", SOON, || {
        first.heartbeat() == codes::REBALANCE_IN_PROGRESS
    });
    assert_eq!(first.join().members.len(), 2);
    assert_eq!(second.receive_join(joining).error_code, codes::NONE);
    let parked = second.send_sync(&[]);
    let answer = second.raw.receive::<SyncGroupRequest>(5, parked);
    assert_eq!(answer.error_code, codes::REBALANCE_IN_PROGRESS);
    let rejoined = second.join();
    assert_eq!(
        (rejoined.error_code, rejoined.members.len()),
        (codes::NONE, 1)
    );
    assert_eq!(rejoined.leader.as_str(), second.id());
}

#[test]
fn a_silent_member_expires_and_the_group_rebalances_without_it() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut first = first_member(&broker, &group, 9);
    let mut second = member(&broker, &group, 9);
    second.join.session_ms = 500;
    rebalance_with(&mut [&mut first], &mut second);
    wait::until("the first one sees a rebalance", SOON, || {
        first.heartbeat() == codes::REBALANCE_IN_PROGRESS
    });
    let rejoined = first.join();
    assert_eq!(
        (rejoined.error_code, rejoined.members.len()),
        (codes::NONE, 1)
    );
    assert_eq!(second.heartbeat(), codes::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_member_that_does_not_rejoin_in_time_is_left_behind() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut first = member(&broker, &group, 9);
    first.join.rebalance_ms = 600;
    settle_alone(&mut first);
    let mut second = member(&broker, &group, 9);
    second.join.rebalance_ms = 600;
    let joining = second.send_join_with_id();
    let joined = second.receive_join(joining);
    assert_eq!((joined.error_code, joined.members.len()), (codes::NONE, 1));
    assert_eq!(first.heartbeat(), codes::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_storm_of_joins_ends_in_a_stable_group() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let count = times(150, 1_000);
    let complete = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..count {
            let mut member = member(&broker, &group, 3);
            member.join.rebalance_ms = 60_000;
            member.join.session_ms = 60_000;
            let complete = &complete;
            scope.spawn(move || stay_until(complete, &mut member, count));
        }
    });
    assert_eq!(describe(&broker, &group, 5).members.len(), count);
}

/// Joins, and joins again whenever a heartbeat says so, until a leader has seen all.
fn stay_until(complete: &AtomicBool, member: &mut Member, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !complete.load(Ordering::Acquire) {
        let joined = member.join();
        assert_eq!(joined.error_code, codes::NONE);
        if joined.members.len() == count {
            complete.store(true, Ordering::Release);
        }
        wait::until("a rebalance, or all are there", SOON, || {
            complete.load(Ordering::Acquire) || member.heartbeat() == codes::REBALANCE_IN_PROGRESS
        });
        assert!(
            Instant::now() < deadline,
            "the group does not come together"
        );
    }
}

#[test]
fn a_member_that_dies_with_its_join_parked_is_out_after_its_session() {
    let broker = groups_broker();
    let group = new_group(&broker);
    let mut first = first_member(&broker, &group, 9);
    let mut gone = member(&broker, &group, 3);
    gone.join.session_ms = 400;
    gone.join.rebalance_ms = 500;
    gone.send_join();
    until_state(&broker, &group, "PreparingRebalance");
    drop(gone);
    let mut rejoined = first.join();
    // With the dead one at first, and without it after its session.
    wait::until("the dead one is out", SOON, || {
        if rejoined.members.len() == 1 {
            return true;
        }
        let id = first.id().to_owned();
        first.sync(&[(&id, b"x")]);
        if first.heartbeat() == codes::REBALANCE_IN_PROGRESS {
            let correlation = first.send_join();
            rejoined = first.raw.receive::<JoinGroupRequest>(9, correlation);
            first.generation = rejoined.generation_id;
        }
        false
    });
}
