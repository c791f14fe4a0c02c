//! Members of the classic protocol in a group that has begun to use the consumer protocol (KIP-848).
//!
//! They keep sending JoinGroup, SyncGroup and Heartbeat; the coordinator assigns for them like for the others, and
//! tells them to join again whenever there is a step for them to take.

use std::sync::Arc;

use bytes::Bytes;
use seawall_net::wire::subscription::{Subscription, decode_subscription, encode_assignment};

use super::member::{ClassicSide, Member, Progress};
use super::{Consumer, MemberId, Partitions, TopicLookup};
use crate::groups::classic::{Join, JoinRefused, Joined, Leaver, Sync, Synced};
use crate::groups::effects::Effects;
use crate::groups::error::GroupError;

/// The only protocol type that can be in such a group.
pub(super) const CONSUMER: &str = "consumer";

impl Consumer {
    /// JoinGroup. The answer may be given when the effects are stored.
    pub(crate) fn join_classic(
        &mut self,
        join: Join,
        topics: &dyn TopicLookup,
        fx: &mut Effects,
    ) -> Result<Joined, JoinRefused> {
        let refused = |error, member: &MemberId| JoinRefused {
            error,
            member: Arc::clone(member),
        };
        let subscription = match self.subscription(&join) {
            Ok(subscription) => subscription,
            Err(error) => return Err(refused(error, &join.member)),
        };
        let (id, before) = match self.enter_classic(&join, fx) {
            Ok(entered) => entered,
            Err(GroupError::MemberIdRequired) => {
                return Err(refused(GroupError::MemberIdRequired, &join.new_id));
            }
            Err(error) => return Err(refused(error, &join.member)),
        };
        let protocol = join.protocols.first().map(|p| Arc::clone(&p.name));
        let owned = owned(&subscription, topics);
        let member = joining(before.clone(), join, subscription, fx);
        self.update(&id, (&before, member), topics, fx);
        self.assign_if_due(fx);
        self.reconcile(&id, Some(&owned), fx);
        let epoch = self.members.get(&id).map_or(0, |member| member.epoch);
        Ok(Joined {
            generation: epoch,
            protocol_type: CONSUMER.into(),
            protocol: protocol.unwrap_or_else(|| "".into()),
            leader: "".into(),
            member: id,
            members: Vec::new(),
            skip_assignment: false,
        })
    }

    fn subscription(&self, join: &Join) -> Result<Subscription, GroupError> {
        let others = self.members.iter().filter(|(id, _)| **id != join.member);
        let mut others = others.filter_map(|(_, member)| member.classic.as_ref());
        let knows =
            |side: &ClassicSide, name: &str| side.protocols.iter().any(|p| &*p.name == name);
        let common = |name: &Arc<str>| others.all(|side| knows(side, name));
        let mut names = join.protocols.iter().map(|p| &p.name);
        if &*join.protocol_type != CONSUMER || !names.any(common) {
            return Err(GroupError::InconsistentProtocol);
        }
        let first = join
            .protocols
            .first()
            .ok_or(GroupError::InconsistentProtocol)?;
        decode_subscription(&first.metadata).map_err(|_| GroupError::InconsistentProtocol)
    }

    fn enter_classic(
        &mut self,
        join: &Join,
        fx: &mut Effects,
    ) -> Result<(MemberId, Member), GroupError> {
        let holder = join
            .instance
            .as_ref()
            .and_then(|i| self.instances.get(i))
            .cloned();
        if let Some(holder) = holder {
            if holder == join.member {
                return Ok((Arc::clone(&holder), self.member(&holder)?.clone()));
            }
            if !join.member.is_empty() {
                return Err(GroupError::FencedInstance);
            }
            return self.replace_classic(&holder, &join.new_id, fx);
        }
        let id = match (&*join.member, &join.instance) {
            ("", None) if join.needs_id => return Err(GroupError::MemberIdRequired),
            ("", _) => &join.new_id,
            _ => &join.member,
        };
        match self.members.get(id) {
            Some(member) => Ok((Arc::clone(id), member.clone())),
            None if self.members.len() >= self.limits.members_max => Err(GroupError::Full),
            None => Ok((Arc::clone(id), Member::new(fx.now))),
        }
    }

    fn replace_classic(
        &mut self,
        holder: &MemberId,
        id: &MemberId,
        fx: &mut Effects,
    ) -> Result<(MemberId, Member), GroupError> {
        let former = self.member(holder)?.clone();
        self.release(holder);
        self.members.remove(holder);
        if let Some(target) = self.target.remove(holder) {
            self.target.insert(Arc::clone(id), target);
        }
        self.put(id, former.clone());
        fx.store();
        Ok((Arc::clone(id), former))
    }

    /// SyncGroup.
    pub(crate) fn sync_classic(
        &mut self,
        sync: &Sync,
        topics: &dyn TopicLookup,
        fx: &mut Effects,
    ) -> Result<Synced, GroupError> {
        self.check_classic(&sync.member, sync.instance.as_deref(), sync.generation)?;
        let (epoch, now) = (self.epoch, fx.now);
        let member = self.members.get_mut(&sync.member);
        let member = member.ok_or(GroupError::UnknownMember)?;
        let timeout = now + member.rebalance_timeout;
        let assigned = named(&member.partitions(), topics);
        let (behind, revokes) = (epoch > member.epoch, member.progress == Progress::Unrevoked);
        let side = member.classic.as_mut().ok_or(GroupError::UnknownMember)?;
        let protocol = side.protocols.first().map(|p| Arc::clone(&p.name));
        let differs =
            |told: &Option<Arc<str>>, ours: &str| told.as_deref().is_some_and(|told| told != ours);
        let protocol = protocol.unwrap_or_else(|| "".into());
        if differs(&sync.protocol_type, CONSUMER) || differs(&sync.protocol, &protocol) {
            return Err(GroupError::InconsistentProtocol);
        }
        if behind && !revokes {
            side.join_by.get_or_insert(timeout);
            fx.wake_at(timeout);
            return Err(GroupError::RebalanceInProgress);
        }
        side.sync_by = None;
        member.expires = now + side.session_timeout;
        Ok(Synced {
            protocol_type: CONSUMER.into(),
            protocol,
            assignment: encode_assignment(&assigned),
        })
    }

    /// Heartbeat.
    pub(crate) fn heartbeat_classic(
        &mut self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
        fx: &mut Effects,
    ) -> Result<(), GroupError> {
        self.check_classic(id, instance, generation)?;
        let waits = self.waits_for_others(&Arc::from(id));
        let (epoch, now) = (self.epoch, fx.now);
        let member = self.members.get_mut(id).ok_or(GroupError::UnknownMember)?;
        let timeout = now + member.rebalance_timeout;
        let must_join = member.epoch < epoch
            || member.progress == Progress::Unrevoked
            || (member.progress == Progress::Unreleased && !waits);
        let side = member.classic.as_mut().ok_or(GroupError::UnknownMember)?;
        member.expires = now + side.session_timeout;
        fx.wake_at(member.expires);
        if must_join {
            side.join_by.get_or_insert(timeout);
            fx.wake_at(timeout);
            return Err(GroupError::RebalanceInProgress);
        }
        Ok(())
    }

    /// LeaveGroup; one answer for each. Members of the consumer protocol leave by heartbeat.
    pub(crate) fn leave_classic(
        &mut self,
        leavers: &[Leaver],
        fx: &mut Effects,
    ) -> Vec<Result<(), GroupError>> {
        let mut one = |leaver: &Leaver| {
            let id = match &leaver.instance {
                None => Arc::clone(&leaver.member),
                Some(instance) => {
                    let holder = self.instances.get(instance);
                    let holder = holder.ok_or(GroupError::UnknownMember)?;
                    if !leaver.member.is_empty() && *holder != leaver.member {
                        return Err(GroupError::FencedInstance);
                    }
                    Arc::clone(holder)
                }
            };
            let by_name = leaver.instance.is_some() && leaver.member.is_empty();
            if self.member(&id)?.classic.is_none() && !by_name {
                return Err(GroupError::UnknownMember);
            }
            self.remove(&id, fx);
            Ok(())
        };
        leavers.iter().map(&mut one).collect()
    }

    fn check_classic(
        &self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), GroupError> {
        if let Some(instance) = instance {
            match self.instances.get(instance) {
                None => return Err(GroupError::UnknownMember),
                Some(holder) if **holder != *id => return Err(GroupError::FencedInstance),
                Some(_) => {}
            }
        }
        let member = self.member(id)?;
        if member.classic.is_none() {
            return Err(GroupError::UnknownMember);
        }
        if member.epoch != generation {
            return Err(GroupError::IllegalGeneration);
        }
        Ok(())
    }
}

fn joining(mut member: Member, join: Join, told: Subscription, fx: &mut Effects) -> Member {
    let sync_by = fx.now + join.rebalance_timeout;
    member.expires = fx.now + join.session_timeout;
    fx.wake_at(sync_by.min(member.expires));
    member.instance = join.instance.or(member.instance);
    member.rack = told.rack.map(Into::into).or(member.rack);
    member.client_id = join.client_id;
    member.client_host = join.client_host;
    member.rebalance_timeout = join.rebalance_timeout;
    member.names = told.topics.into_iter().map(Into::into).collect();
    member.pattern = None;
    member.classic = Some(ClassicSide {
        session_timeout: join.session_timeout,
        protocols: join.protocols,
        join_by: None,
        sync_by: Some(sync_by),
    });
    member
}

fn owned(subscription: &Subscription, topics: &dyn TopicLookup) -> Partitions {
    super::migrate::by_id(&subscription.owned, topics)
}

/// Partitions as the classic protocol names them.
pub(super) fn named(
    partitions: &Partitions,
    topics: &dyn TopicLookup,
) -> seawall_net::wire::subscription::TopicPartitions {
    let named = partitions.iter().filter_map(|(topic, all)| {
        let name = topics.name_of(*topic)?;
        Some((name.to_string(), all.iter().copied().collect()))
    });
    named.collect()
}

/// An assignment of a member, as it would read it.
pub(super) fn assignment(member: &Member, topics: &dyn TopicLookup) -> Bytes {
    encode_assignment(&named(&member.partitions(), topics))
}
