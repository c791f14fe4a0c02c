//! Who reads what: when a subscription or the topics behind it change, the group needs a new assignment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::member::Member;
use super::{Consumer, Known, MemberId, TopicLookup};
use crate::groups::effects::Effects;

impl Consumer {
    /// Puts a member as it is now in place of what it was. Raises the epoch if that matters to the assignment.
    pub(super) fn update(
        &mut self,
        id: &MemberId,
        (before, mut member): (&Member, Member),
        topics: &dyn TopicLookup,
        fx: &mut Effects,
    ) {
        let known = self.members.contains_key(id);
        let pattern = |m: &Member| m.pattern.as_ref().map(|p| Arc::clone(&p.text));
        if !known || pattern(&member) != pattern(before) || member.sees_anew() {
            member.match_topics(topics);
        }
        let resubscribed = !known
            || member.names != before.names
            || member.matched != before.matched
            || member.assignor != before.assignor;
        let told = !known
            || pattern(&member) != pattern(before)
            || member.instance != before.instance
            || member.rack != before.rack
            || member.rebalance_timeout != before.rebalance_timeout
            || member.client_id != before.client_id
            || member.classic.is_some() != before.classic.is_some();
        if let Some(instance) = &member.instance {
            let instance = Arc::clone(instance);
            self.instances.insert(instance, Arc::clone(id));
        }
        self.put(id, member);
        let moved = self.follow_topics(topics, resubscribed);
        if resubscribed || moved {
            self.raise_epoch(fx);
        } else if told {
            fx.store();
        }
    }

    /// Looks at the topics again if they have changed, or if other ones count now. Says whether those that are read have
    /// changed.
    fn follow_topics(&mut self, topics: &dyn TopicLookup, resubscribed: bool) -> bool {
        let version = topics.version();
        let same = self.topics_version == Some(version);
        if same && !resubscribed {
            return false;
        }
        let first = self.topics_version.is_none();
        self.topics_version = Some(version);
        if !same {
            for member in self.members.values_mut().filter(|m| m.pattern.is_some()) {
                member.match_topics(topics);
            }
        }
        let read: BTreeSet<&Arc<str>> = self
            .members
            .values()
            .flat_map(|member| member.names.iter().chain(&member.matched))
            .collect();
        let known = read.into_iter().filter_map(|name| {
            let (id, partitions) = topics.named(name)?;
            Some((Arc::clone(name), Known { id, partitions }))
        });
        let known: BTreeMap<Arc<str>, Known> = known.collect();
        let changed = known != self.topics;
        self.topics = known;
        // After a start there is nothing to compare with but what was assigned.
        changed && (!first || self.target_misfits())
    }

    /// Whether the target leaves a partition out or has one that is not there.
    fn target_misfits(&self) -> bool {
        let there: usize = self
            .topics
            .values()
            .map(|known| size(known.partitions))
            .sum();
        let assigned: usize = self.target.values().map(super::count).sum();
        let ids: BTreeSet<_> = self.topics.values().map(|known| known.id).collect();
        let mut topics = self.target.values().flat_map(BTreeMap::keys);
        there != assigned || topics.any(|topic| !ids.contains(topic))
    }
}

fn size(partitions: i32) -> usize {
    usize::try_from(partitions).unwrap_or(0)
}
