//! From the classic protocol to this one and back, while the members go on (KIP-848).

use std::sync::Arc;

use seawall_net::wire::subscription::{TopicPartitions, decode_assignment, decode_subscription};

use super::classic_member::{CONSUMER, assignment};
use super::member::{ClassicSide, Member};
use super::{Consumer, ConsumerLimits, MemberId, Partitions, TopicLookup};
use crate::groups::classic::{Classic, ClassicLimits, Emigrant};
use crate::groups::effects::Effects;

impl Consumer {
    /// Takes over the members of a classic group, each with what it has. `None`, and the group is untouched, if it does
    /// not consist of consumers whose subscriptions and assignments can be read.
    pub(crate) fn from_classic(
        limits: Arc<ConsumerLimits>,
        classic: &mut Classic,
        topics: &dyn TopicLookup,
        fx: &mut Effects,
    ) -> Option<Self> {
        if classic
            .protocol_type()
            .is_none_or(|kind| &**kind != CONSUMER)
        {
            return None;
        }
        let generation = classic.generation();
        let emigrants = classic.emigrants();
        let members = emigrants.into_iter();
        let members: Option<Vec<(MemberId, Member, Partitions)>> = members
            .map(|(id, emigrant)| {
                let (member, has) = immigrant(emigrant, generation, topics, fx)?;
                Some((id, member, has))
            })
            .collect();
        let members = members.filter(|members| members.len() <= limits.members_max)?;
        classic.dismiss(fx);
        let mut group = Self::new(limits);
        group.epoch = generation.max(1);
        group.assignment_epoch = group.epoch;
        for (id, member, has) in members {
            if let Some(instance) = &member.instance {
                let instance = Arc::clone(instance);
                group.instances.insert(instance, Arc::clone(&id));
            }
            group.target.insert(Arc::clone(&id), has);
            fx.wake_at(member.expires);
            group.put(&id, member);
        }
        Some(group)
    }

    /// Whether all that are left speak the classic protocol.
    pub(crate) fn is_all_classic(&self) -> bool {
        !self.is_empty() && self.members.values().all(|m| m.classic.is_some())
    }

    /// Hands all members over to a classic group, which begins a rebalance.
    pub(crate) fn to_classic(
        &self,
        limits: ClassicLimits,
        topics: &dyn TopicLookup,
        fx: &mut Effects,
    ) -> Classic {
        let members = self.members.iter().filter_map(|(id, member)| {
            let side = member.classic.as_ref()?;
            let emigrant = Emigrant {
                instance: member.instance.clone(),
                client_id: Arc::clone(&member.client_id),
                client_host: Arc::clone(&member.client_host),
                rebalance_timeout: member.rebalance_timeout,
                session_timeout: side.session_timeout,
                protocols: side.protocols.clone(),
                protocol: None,
                assignment: assignment(member, topics),
            };
            Some((Arc::clone(id), emigrant))
        });
        // The epoch that the members know; that of who left last was never told to anybody.
        let generation = self.assignment_epoch;
        Classic::from_emigrants(limits, (CONSUMER, generation), members.collect(), fx)
    }
}

fn immigrant(
    emigrant: Emigrant,
    generation: i32,
    topics: &dyn TopicLookup,
    fx: &Effects,
) -> Option<(Member, Partitions)> {
    let mut protocols = emigrant.protocols.iter();
    let spoken = match &emigrant.protocol {
        Some(name) => protocols.find(|p| p.name == *name),
        None => protocols.next(),
    };
    let told = decode_subscription(&spoken?.metadata).ok()?;
    let has = if emigrant.assignment.is_empty() {
        Partitions::new()
    } else {
        by_id(&decode_assignment(&emigrant.assignment).ok()?, topics)
    };
    let mut member = Member::new(fx.now);
    member.assigned = has
        .iter()
        .map(|(topic, all)| (*topic, all.iter().map(|p| (*p, generation)).collect()))
        .collect();
    member.epoch = generation;
    member.previous_epoch = generation;
    member.instance = emigrant.instance;
    member.rack = told.rack.map(Into::into);
    member.client_id = emigrant.client_id;
    member.client_host = emigrant.client_host;
    member.rebalance_timeout = emigrant.rebalance_timeout;
    member.names = told.topics.into_iter().map(Into::into).collect();
    member.expires = fx.now + emigrant.session_timeout;
    member.classic = Some(ClassicSide {
        session_timeout: emigrant.session_timeout,
        protocols: emigrant.protocols,
        join_by: None,
        sync_by: None,
    });
    Some((member, has))
}

/// Partitions that the classic protocol names; those of topics that are not there are left out.
pub(super) fn by_id(named: &TopicPartitions, topics: &dyn TopicLookup) -> Partitions {
    let mut partitions = Partitions::new();
    for (name, all) in named {
        if let Some((id, _)) = topics.named(name) {
            partitions.entry(id).or_default().extend(all);
        }
    }
    partitions
}
