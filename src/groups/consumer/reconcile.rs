//! From what a member has to what it is to have, step by step: first it gives back, then it gets what is free.

use std::collections::BTreeMap;

use seawall_storage::TopicId;

use super::member::{AWAY, Member, Progress};
use super::{Consumer, MemberId, Partitions};
use crate::groups::effects::Effects;

impl Consumer {
    /// Takes a member as far as it can go now. `owned` is what it says to have; `None` if it did not say.
    pub(super) fn reconcile(
        &mut self,
        id: &MemberId,
        owned: Option<&Partitions>,
        fx: &mut Effects,
    ) {
        let Some(member) = self.members.get(id) else {
            return;
        };
        let due = match member.progress {
            Progress::Stable => member.epoch != self.assignment_epoch || member.epoch == AWAY,
            Progress::Unreleased => true,
            Progress::Unrevoked => owned.is_some_and(|owned| !intersects(owned, &member.revoking)),
        };
        if !due {
            return;
        }
        let next = self.next_step(id, member.clone(), owned);
        let changed = self.members.get(id).is_some_and(|now| differs(now, &next));
        if let Some(by) = next.revoke_by_after(fx.now) {
            fx.wake_at(by);
        }
        if changed {
            self.put(id, next.armed(fx.now));
            fx.store();
        }
    }

    fn next_step(&self, id: &MemberId, mut member: Member, owned: Option<&Partitions>) -> Member {
        let nothing = Partitions::new();
        let target = self.target.get(id).unwrap_or(&nothing);
        let (kept, lost) = split(&member, target);
        let gives_back = match owned {
            None => !lost.is_empty(),
            Some(owned) => intersects(owned, &lost),
        };
        member.assigned = kept;
        if gives_back {
            member.revoking = lost;
            member.progress = Progress::Unrevoked;
            return member;
        }
        member.revoking.clear();
        let mut unreleased = false;
        for (topic, partition) in wanted(target) {
            if member
                .assigned
                .get(&topic)
                .is_some_and(|all| all.contains_key(&partition))
            {
                continue;
            }
            match self.held.get(&(topic, partition)) {
                Some(holder) if holder != id => unreleased = true,
                _ => {
                    let all = member.assigned.entry(topic).or_default();
                    all.insert(partition, self.assignment_epoch);
                }
            }
        }
        member.progress = if unreleased {
            Progress::Unreleased
        } else {
            Progress::Stable
        };
        if member.epoch != self.assignment_epoch {
            member.previous_epoch = member.epoch.max(0);
            member.epoch = self.assignment_epoch;
        }
        member
    }

    /// Whether anything that the member waits for is still held by another.
    pub(super) fn waits_for_others(&self, id: &MemberId) -> bool {
        let Some(target) = self.target.get(id) else {
            return false;
        };
        let holder = |key: &(TopicId, i32)| self.held.get(key);
        wanted(target).any(|key| holder(&key).is_some_and(|holder| holder != id))
    }
}

impl Member {
    fn revoke_by_after(&self, now: std::time::Instant) -> Option<std::time::Instant> {
        (self.progress == Progress::Unrevoked)
            .then(|| self.revoke_by.unwrap_or(now + self.rebalance_timeout))
    }

    /// K3.
    fn armed(mut self, now: std::time::Instant) -> Self {
        self.revoke_by = self.revoke_by_after(now);
        self
    }
}

fn differs(now: &Member, next: &Member) -> bool {
    now.epoch != next.epoch
        || now.progress != next.progress
        || now.assigned != next.assigned
        || now.revoking != next.revoking
}

fn wanted(target: &Partitions) -> impl Iterator<Item = (TopicId, i32)> {
    let topics = target.iter();
    topics.flat_map(|(topic, all)| all.iter().map(|partition| (*topic, *partition)))
}

/// What the member keeps and what it has to give back.
fn split(
    member: &Member,
    target: &Partitions,
) -> (BTreeMap<TopicId, BTreeMap<i32, i32>>, Partitions) {
    let mut kept: BTreeMap<TopicId, BTreeMap<i32, i32>> = BTreeMap::new();
    let mut lost = Partitions::new();
    for (topic, all) in &member.assigned {
        for (partition, since) in all {
            if target
                .get(topic)
                .is_some_and(|wanted| wanted.contains(partition))
            {
                kept.entry(*topic).or_default().insert(*partition, *since);
            } else {
                lost.entry(*topic).or_default().insert(*partition);
            }
        }
    }
    (kept, lost)
}

fn intersects(a: &Partitions, b: &Partitions) -> bool {
    a.iter().any(|(topic, partitions)| {
        let other = b.get(topic);
        other.is_some_and(|other| partitions.iter().any(|p| other.contains(p)))
    })
}
