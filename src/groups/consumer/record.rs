//! A consumer group as its file keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use seawall_storage::TopicId;
use serde::{Deserialize, Serialize};

use super::member::{ClassicSide, Member, Pattern, Progress};
use super::{Assignor, Consumer, ConsumerLimits, MemberId, Partitions};
use crate::groups::classic::Protocol;
use crate::groups::hex;

/// Partitions by the id of their topic.
type PartitionsRecord = BTreeMap<String, BTreeSet<i32>>;

/// See the module.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsumerRecord {
    epoch: i32,
    assignment_epoch: i32,
    members: BTreeMap<MemberId, MemberRecord>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct MemberRecord {
    instance: Option<Arc<str>>,
    rack: Option<Arc<str>>,
    client_id: Arc<str>,
    client_host: Arc<str>,
    rebalance_timeout_ms: u64,
    topics: BTreeSet<Arc<str>>,
    regex: Option<Arc<str>>,
    matched: BTreeSet<Arc<str>>,
    assignor: Option<Arc<str>>,
    epoch: i32,
    previous_epoch: i32,
    state: StateRecord,
    /// Since which epoch it has each partition, by topic id and partition.
    assigned: BTreeMap<String, BTreeMap<String, i32>>,
    revoking: PartitionsRecord,
    target: PartitionsRecord,
    classic: Option<ClassicSideRecord>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum StateRecord {
    Stable,
    Unrevoked,
    Unreleased,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClassicSideRecord {
    session_timeout_ms: u64,
    /// Name and metadata (hexadecimal).
    protocols: Vec<(Arc<str>, String)>,
}

impl Consumer {
    /// What the group's file is to say.
    pub(crate) fn record(&self) -> ConsumerRecord {
        let nothing = Partitions::new();
        let members = self.members.iter().map(|(id, member)| {
            let target = self.target.get(id).unwrap_or(&nothing);
            (Arc::clone(id), member.to_record(target))
        });
        ConsumerRecord {
            epoch: self.epoch,
            assignment_epoch: self.assignment_epoch,
            members: members.collect(),
        }
    }

    /// A group as its file tells of it; deadlines begin anew. A member that contradicts itself is left out: it is told
    /// that it is unknown, and joins again.
    pub(crate) fn from_record(
        limits: Arc<ConsumerLimits>,
        record: ConsumerRecord,
        now: Instant,
    ) -> Self {
        let mut group = Self::new(limits);
        group.epoch = record.epoch;
        group.assignment_epoch = record.assignment_epoch.min(record.epoch);
        for (id, record) in record.members {
            let target = to_partitions(&record.target);
            let expires = now + record.session_timeout(&group.limits);
            let Some(member) = record.into_member(now, expires) else {
                log::warn!("a member of a consumer group was left out: its record is damaged");
                continue;
            };
            if let Some(instance) = &member.instance {
                let instance = Arc::clone(instance);
                group.instances.insert(instance, Arc::clone(&id));
            }
            group.target.insert(Arc::clone(&id), target);
            group.put(&id, member);
        }
        group
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn from_partitions(partitions: &Partitions) -> PartitionsRecord {
    let topics = partitions.iter();
    topics
        .map(|(topic, all)| (topic.0.to_string(), all.clone()))
        .collect()
}

fn to_partitions(record: &PartitionsRecord) -> Partitions {
    let topics = record.iter();
    topics
        .filter_map(|(topic, all)| Some((TopicId(topic.parse().ok()?), all.clone())))
        .collect()
}

impl Member {
    fn to_record(&self, target: &Partitions) -> MemberRecord {
        let assigned = self.assigned.iter().map(|(topic, all)| {
            let all = all
                .iter()
                .map(|(partition, since)| (partition.to_string(), *since));
            (topic.0.to_string(), all.collect())
        });
        MemberRecord {
            instance: self.instance.clone(),
            rack: self.rack.clone(),
            client_id: Arc::clone(&self.client_id),
            client_host: Arc::clone(&self.client_host),
            rebalance_timeout_ms: ms(self.rebalance_timeout),
            topics: self.names.clone(),
            regex: self
                .pattern
                .as_ref()
                .map(|pattern| Arc::clone(&pattern.text)),
            matched: self.matched.clone(),
            assignor: self.assignor.map(|assignor| assignor.name().into()),
            epoch: self.epoch,
            previous_epoch: self.previous_epoch,
            state: match self.progress {
                Progress::Stable => StateRecord::Stable,
                Progress::Unrevoked => StateRecord::Unrevoked,
                Progress::Unreleased => StateRecord::Unreleased,
            },
            assigned: assigned.collect(),
            revoking: from_partitions(&self.revoking),
            target: from_partitions(target),
            classic: self.classic.as_ref().map(ClassicSide::to_record),
        }
    }
}

impl ClassicSide {
    fn to_record(&self) -> ClassicSideRecord {
        let protocols = self.protocols.iter();
        ClassicSideRecord {
            session_timeout_ms: ms(self.session_timeout),
            protocols: protocols
                .map(|p| (Arc::clone(&p.name), hex::encode(&p.metadata)))
                .collect(),
        }
    }
}

impl MemberRecord {
    fn session_timeout(&self, limits: &ConsumerLimits) -> Duration {
        let classic = self.classic.as_ref();
        classic.map_or(limits.session_timeout, |side| {
            Duration::from_millis(side.session_timeout_ms)
        })
    }

    fn into_member(self, now: Instant, expires: Instant) -> Option<Member> {
        let rebalance_timeout = Duration::from_millis(self.rebalance_timeout_ms);
        let mut assigned = BTreeMap::new();
        for (topic, all) in &self.assigned {
            let all = all.iter().map(|(p, since)| Some((p.parse().ok()?, *since)));
            assigned.insert(TopicId(topic.parse().ok()?), all.collect::<Option<_>>()?);
        }
        let (progress, revoke_by) = match self.state {
            StateRecord::Stable => (Progress::Stable, None),
            StateRecord::Unrevoked => (Progress::Unrevoked, Some(now + rebalance_timeout)),
            StateRecord::Unreleased => (Progress::Unreleased, None),
        };
        let pattern = self.regex.as_deref().map(Pattern::new).transpose().ok()?;
        let classic = self.classic.map(|side| ClassicSide {
            session_timeout: Duration::from_millis(side.session_timeout_ms),
            protocols: side
                .protocols
                .into_iter()
                .map(|(name, metadata)| Protocol {
                    name,
                    metadata: hex::decode(&metadata),
                })
                .collect(),
            join_by: None,
            sync_by: None,
        });
        Some(Member {
            instance: self.instance,
            rack: self.rack,
            client_id: self.client_id,
            client_host: self.client_host,
            rebalance_timeout,
            names: self.topics,
            pattern,
            view: None,
            sight: None,
            matched: self.matched,
            assignor: self.assignor.as_deref().and_then(Assignor::of_name),
            epoch: self.epoch,
            previous_epoch: self.previous_epoch,
            progress,
            assigned,
            revoking: to_partitions(&self.revoking),
            expires,
            revoke_by,
            classic,
        })
    }
}
