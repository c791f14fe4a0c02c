//! A group of the consumer protocol (KIP-848), as a pure machine: the coordinator assigns, members reconcile one by one.
//!
//! Owns:     members with their subscriptions, the target assignment, what each member has now.
//! Does not: know clocks, threads, sockets, files; topics are shown to it with each command.
//! Called with the group's lock held, from `work-N`.
//!
//! # Invariants
//! K1. A partition is in the assignment of one member at a time, those it is still giving back included: `held`.
//! K2. `assignment_epoch` <= `epoch`, and no member's epoch is above `assignment_epoch`.
//! K3. A member that must give partitions back has a deadline to say that it has.
//! K4. Everything but deadlines is in the record, and a member is told of a change when that is stored.
//!
//! The rules are those of Kafka's `GroupMetadataManager` and `CurrentAssignmentBuilder`.

mod assign;
mod classic_member;
mod describe;
mod expire;
mod heartbeat;
mod member;
mod migrate;
mod reconcile;
mod record;
mod subscribe;
#[cfg(test)]
mod tests;

pub(crate) use assign::Assignor;
pub(crate) use describe::{ConsumerDescription, DescribedConsumer};
pub(crate) use heartbeat::{Beaten, Heartbeat};
pub(crate) use record::ConsumerRecord;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seawall_storage::TopicId;

use super::classic::MemberId;
use super::effects::Effects;
use super::error::GroupError;
use member::Member;

/// Partitions of topics.
pub(crate) type Partitions = BTreeMap<TopicId, BTreeSet<i32>>;

/// The topics at one moment, as far as groups care.
pub(crate) trait TopicLookup {
    /// Changes whenever anything here does.
    fn version(&self) -> u64;
    /// Id and number of partitions.
    fn named(&self, name: &str) -> Option<(TopicId, i32)>;
    /// The name of a topic that is there.
    fn name_of(&self, id: TopicId) -> Option<Arc<str>>;
    /// All names, in no order.
    fn names(&self) -> Vec<Arc<str>>;
}

/// As whom, from where, and by which version of the rules somebody sees topics.
pub(crate) type Sight = (Arc<str>, IpAddr, u64);

/// What a member may see of the topics. It stays with the member, for a pattern is matched whenever topics change and
/// not only while its member is asking.
pub(crate) trait View: fmt::Debug + Send + Sync {
    /// Whether that topic may be shown to it.
    fn sees(&self, topic: &str) -> bool;
    /// Another one whenever it may see other topics.
    fn sight(&self) -> Sight;
}

/// What holds for all groups.
#[derive(Clone, Debug)]
pub(crate) struct ConsumerLimits {
    /// group.consumer.session.timeout.ms
    pub(crate) session_timeout: Duration,
    /// group.consumer.heartbeat.interval.ms
    pub(crate) heartbeat_interval: Duration,
    /// group.consumer.max.size
    pub(crate) members_max: usize,
    /// group.consumer.assignment.interval.ms
    pub(crate) assignment_interval: Duration,
    /// group.consumer.assignors, the default first
    pub(crate) assignors: Vec<Assignor>,
}

/// A topic that somebody in the group reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Known {
    id: TopicId,
    partitions: i32,
}

/// See the module.
pub(crate) struct Consumer {
    limits: Arc<ConsumerLimits>,
    epoch: i32,
    assignment_epoch: i32,
    /// When the target was computed last; `None`: not by this process.
    assigned_at: Option<Instant>,
    target: BTreeMap<MemberId, Partitions>,
    members: BTreeMap<MemberId, Member>,
    /// Static members by instance id.
    instances: HashMap<Arc<str>, MemberId>,
    /// Who has a partition, or is still giving it back.
    held: HashMap<(TopicId, i32), MemberId>,
    /// The topics that anybody reads, and the version of the topics at which that was found out.
    topics: BTreeMap<Arc<str>, Known>,
    topics_version: Option<u64>,
}

impl Consumer {
    /// A group that nobody has joined. Its first assignment is of epoch 2, as in Kafka.
    pub(crate) fn new(limits: Arc<ConsumerLimits>) -> Self {
        Self {
            limits,
            epoch: 1,
            assignment_epoch: 1,
            assigned_at: None,
            target: BTreeMap::new(),
            members: BTreeMap::new(),
            instances: HashMap::new(),
            held: HashMap::new(),
            topics: BTreeMap::new(),
            topics_version: None,
        }
    }

    /// Whether it has no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Kafka's name of the state.
    pub(crate) fn state_name(&self) -> &'static str {
        if self.is_empty() {
            "Empty"
        } else if self.epoch > self.assignment_epoch {
            "Assigning"
        } else if self
            .members
            .values()
            .all(|m| m.is_at(self.assignment_epoch))
        {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    /// Whether any member reads the topic.
    pub(crate) fn reads(&self, topic: &str) -> bool {
        self.members.values().any(|member| member.reads(topic))
    }

    /// Whether that is a member, and speaks the consumer protocol.
    pub(crate) fn is_consumer(&self, member: &str) -> bool {
        self.members
            .get(member)
            .is_some_and(|m| m.classic.is_none())
    }

    fn member(&self, id: &str) -> Result<&Member, GroupError> {
        self.members.get(id).ok_or(GroupError::UnknownMember)
    }

    /// Whether a member may commit these partitions. A member whose epoch was raised since may still commit what it has
    /// had all along (KIP-1251).
    pub(crate) fn check_commit(
        &self,
        member: &str,
        epoch: i32,
        partitions: &[(TopicId, i32)],
    ) -> Result<(), GroupError> {
        if epoch < 0 && self.is_empty() {
            return Ok(());
        }
        let member = self.member(member)?;
        if epoch == member.epoch {
            return Ok(());
        }
        if member.classic.is_some() {
            return Err(GroupError::IllegalGeneration);
        }
        let had = |(topic, partition): &(TopicId, i32)| {
            let since = member
                .assigned
                .get(topic)
                .and_then(|topic| topic.get(partition));
            since.is_some_and(|since| *since <= epoch)
        };
        if epoch < member.epoch && partitions.iter().all(had) {
            return Ok(());
        }
        Err(GroupError::StaleEpoch)
    }

    /// Whether a member may read offsets; one that names no member may.
    pub(crate) fn check_fetch(&self, member: &str, epoch: i32) -> Result<(), GroupError> {
        if member.is_empty() && epoch < 0 {
            return Ok(());
        }
        if self.member(member)?.epoch == epoch {
            return Ok(());
        }
        Err(GroupError::StaleEpoch)
    }

    /// Puts a member's new state in place of its old one; K1.
    fn put(&mut self, id: &MemberId, member: Member) {
        self.release(id);
        for (topic, partition) in member.holds() {
            self.held.insert((topic, partition), Arc::clone(id));
        }
        self.members.insert(Arc::clone(id), member);
    }

    fn release(&mut self, id: &str) {
        let Some(member) = self.members.get(id) else {
            return;
        };
        for key in member.holds() {
            if self.held.get(&key).is_some_and(|holder| **holder == *id) {
                self.held.remove(&key);
            }
        }
    }

    /// Takes a member out for good; the next heartbeat of another finds a new assignment.
    fn remove(&mut self, id: &str, fx: &mut Effects) {
        self.release(id);
        if let Some(member) = self.members.remove(id) {
            self.target.remove(id);
            if let Some(instance) = &member.instance
                && self.instances.get(instance).is_some_and(|m| **m == *id)
            {
                self.instances.remove(instance);
            }
            self.raise_epoch(fx);
        }
    }

    fn raise_epoch(&mut self, fx: &mut Effects) {
        self.epoch = self.epoch.saturating_add(1);
        fx.store();
    }
}

fn count(partitions: &Partitions) -> usize {
    partitions.values().map(BTreeSet::len).sum()
}
