//! A group of the classic protocol, as a pure machine: command and time in, effects out.
//!
//! Owns:     members, generation, the phases of a rebalance, their deadlines.
//! Does not: know clocks, threads, sockets, files, or what assignments say.
//! Called with the group's lock held; whoever calls carries out the [`Effects`] afterwards.
//!
//! # Invariants
//! G1. `members` is empty exactly in `Empty`, or while a rebalance is prepared.
//! G2. A group in `Preparing` or `Completing` has a deadline, and every member has one: it always ends `Stable` or
//!     `Empty`.
//! G3. `record` is what the file says: it changes only when a rebalance ends or a static member is replaced, so that a
//!     commit in the middle of a rebalance stores no half of it.
//! G4. A member that waits in a join or a sync does not expire, but for a new one: it cannot send heartbeats yet, and may
//!     have gone without a word (KIP-394's five minutes).
//!
//! The rules are those of Kafka's `GroupMetadataManager` and `ClassicGroup`.

mod expire;
mod join;
mod leave;
mod member;
mod migrate;
mod record;
mod sync;
#[cfg(test)]
mod tests;

pub(crate) use join::{Join, JoinRefused, JoinReply, Joined};
pub(crate) use leave::Leaver;
pub(crate) use member::Protocol;
pub(crate) use migrate::Emigrant;
pub(crate) use record::ClassicRecord;
pub(crate) use sync::{Sync, SyncReply, Synced};

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use seawall_net::wire::subscription::decode_subscription;

use super::effects::Effects;
use super::error::GroupError;
use member::Member;

/// Chosen by the coordinator: client id or instance id, and a UUID.
pub(crate) type MemberId = Arc<str>;

/// What holds for all groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassicLimits {
    /// group.initial.rebalance.delay.ms
    pub(crate) initial_delay: Duration,
    /// group.max.size
    pub(crate) members_max: usize,
}

/// How long a member may wait in its first join (Kafka's `NEW_MEMBER_JOIN_TIMEOUT_MS`).
const NEW_MEMBER_JOIN: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug)]
enum State {
    /// No members.
    Empty,
    /// Members are to join again.
    Preparing(Preparing),
    /// All have joined; the leader's assignment is awaited.
    Completing,
    /// All have an assignment.
    Stable,
}

/// The join phase ends when all members have joined, or then.
#[derive(Clone, Copy, Debug)]
struct Preparing {
    by: Instant,
    /// Of a group that was empty: others that start at the same time are waited for.
    gathering: Option<Gathering>,
}

#[derive(Clone, Copy, Debug)]
struct Gathering {
    /// How much longer than `by` may be waited if more members come.
    left: Duration,
    /// One came since the last look.
    more: bool,
}

/// See the module.
pub(crate) struct Classic {
    limits: ClassicLimits,
    state: State,
    generation: i32,
    protocol_type: Option<Arc<str>>,
    protocol: Option<Arc<str>>,
    leader: Option<MemberId>,
    members: BTreeMap<MemberId, Member>,
    /// Static members by instance id.
    instances: HashMap<Arc<str>, MemberId>,
    /// Ids that were given out and not used yet, with the end of their session.
    pending: HashMap<MemberId, Instant>,
    /// Members that have not synced by then are removed.
    sync_by: Option<Instant>,
    record: Arc<ClassicRecord>,
}

/// A group as DescribeGroups shows it.
pub(crate) struct Description {
    /// Kafka's name of the state.
    pub(crate) state: &'static str,
    /// Empty where there is none.
    pub(crate) protocol_type: Arc<str>,
    /// Empty unless `Stable`.
    pub(crate) protocol: Arc<str>,
    /// In the order of their ids.
    pub(crate) members: Vec<DescribedMember>,
}

/// A member as DescribeGroups shows it.
pub(crate) struct DescribedMember {
    /// Its id.
    pub(crate) id: MemberId,
    /// group.instance.id
    pub(crate) instance: Option<Arc<str>>,
    /// client.id
    pub(crate) client_id: Arc<str>,
    /// `/address`
    pub(crate) client_host: Arc<str>,
    /// Opaque; empty unless the group is `Stable`.
    pub(crate) metadata: bytes::Bytes,
    /// Opaque; empty unless the group is `Stable`.
    pub(crate) assignment: bytes::Bytes,
}

impl Classic {
    /// A group that nobody has joined.
    pub(crate) fn new(limits: ClassicLimits) -> Self {
        Self {
            limits,
            state: State::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: HashMap::new(),
            pending: HashMap::new(),
            sync_by: None,
            record: Arc::default(),
        }
    }

    /// Kafka's name of the state.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            State::Empty => "Empty",
            State::Preparing(_) => "PreparingRebalance",
            State::Completing => "CompletingRebalance",
            State::Stable => "Stable",
        }
    }

    /// "consumer", "connect", ...; `None` before the first join.
    pub(crate) fn protocol_type(&self) -> Option<&Arc<str>> {
        self.protocol_type.as_ref()
    }

    /// Whether it has neither members nor any on their way.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.state, State::Empty)
    }

    /// Whether somebody was told an id and may come back with it.
    pub(crate) fn awaits_members(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What the group's file is to say.
    pub(crate) fn record(&self) -> &Arc<ClassicRecord> {
        &self.record
    }

    /// What members have told with the protocol in force; `None` while none is.
    pub(crate) fn subscriptions(&self) -> Option<Vec<&bytes::Bytes>> {
        let protocol = self.protocol.as_ref()?;
        let members = self.members.values();
        Some(members.filter_map(|m| m.metadata(protocol)).collect())
    }

    /// Whether a member reads the topic, as far as we can know: others than consumers may read any, and so may consumers
    /// in a rebalance.
    pub(crate) fn reads(&self, topic: &str) -> bool {
        let consumes = self.protocol_type.as_deref() == Some("consumer");
        let stable = matches!(self.state, State::Stable);
        let Some(subscriptions) = self.subscriptions().filter(|_| consumes && stable) else {
            return true;
        };
        let names = |bytes: &&bytes::Bytes| match decode_subscription(bytes) {
            Ok(subscription) => subscription.topics.iter().any(|name| name == topic),
            Err(_) => true,
        };
        subscriptions.iter().any(names)
    }

    /// For DescribeGroups.
    pub(crate) fn describe(&self) -> Description {
        let stable = matches!(self.state, State::Stable);
        let protocol = self.protocol.clone().filter(|_| stable);
        let members = self.members.iter().map(|(id, member)| DescribedMember {
            id: Arc::clone(id),
            instance: member.instance.clone(),
            client_id: Arc::clone(&member.client_id),
            client_host: Arc::clone(&member.client_host),
            metadata: protocol
                .as_ref()
                .and_then(|protocol| member.metadata(protocol).cloned())
                .unwrap_or_default(),
            assignment: if stable {
                member.assignment.clone()
            } else {
                bytes::Bytes::new()
            },
        });
        Description {
            state: self.state_name(),
            protocol_type: self.protocol_type.clone().unwrap_or_else(|| "".into()),
            members: members.collect(),
            protocol: protocol.unwrap_or_else(|| "".into()),
        }
    }

    /// Who asks: a member, under the id that goes with its instance id.
    fn check_member(&self, id: &str, instance: Option<&str>) -> Result<(), GroupError> {
        if let Some(instance) = instance {
            match self.instances.get(instance) {
                None => return Err(GroupError::UnknownMember),
                Some(holder) if &**holder != id => return Err(GroupError::FencedInstance),
                Some(_) => {}
            }
        }
        if self.members.contains_key(id) {
            Ok(())
        } else {
            Err(GroupError::UnknownMember)
        }
    }

    /// Whether a member may commit offsets. `generation` below 0 and no member: a consumer that manages its partitions
    /// itself, and may commit only while nobody else manages them.
    pub(crate) fn check_commit(
        &mut self,
        now: Instant,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), GroupError> {
        if generation < 0 && self.is_empty() {
            return Ok(());
        }
        if generation < 0 && member.is_empty() && instance.is_none() {
            return Err(GroupError::UnknownMember);
        }
        self.check_member(member, instance)?;
        if generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        match self.state {
            State::Completing => return Err(GroupError::RebalanceInProgress),
            State::Stable | State::Preparing(_) => self.keep_alive(member, now),
            State::Empty => {}
        }
        Ok(())
    }

    /// Whether a producer may stage offsets for a member (KIP-447); a producer that names none is not fenced by the
    /// group.
    pub(crate) fn check_transactional_commit(
        &self,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), GroupError> {
        if generation < 0 && member.is_empty() && instance.is_none() {
            return Ok(());
        }
        self.check_member(member, instance)?;
        if generation >= 0 && generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        Ok(())
    }

    /// The heartbeat of a member.
    pub(crate) fn heartbeat(
        &mut self,
        now: Instant,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), GroupError> {
        self.check_member(member, instance)?;
        if generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        match self.state {
            State::Empty => return Err(GroupError::UnknownMember),
            State::Preparing(_) => {
                self.keep_alive(member, now);
                return Err(GroupError::RebalanceInProgress);
            }
            State::Completing | State::Stable => self.keep_alive(member, now),
        }
        Ok(())
    }

    fn keep_alive(&mut self, member: &str, now: Instant) {
        if let Some(member) = self.members.get_mut(member) {
            member.expires = now + member.session_timeout;
        }
    }

    /// The longest time a member may take to come back to a rebalance.
    fn rebalance_timeout(&self) -> Duration {
        let timeouts = self.members.values().map(|m| m.rebalance_timeout);
        timeouts.max().unwrap_or_default()
    }

    /// Members are to join again, unless they already are.
    fn rebalance(&mut self, fx: &mut Effects) {
        match self.state {
            State::Preparing(_) => return,
            State::Completing => self.refuse_syncs(GroupError::RebalanceInProgress, fx),
            State::Empty | State::Stable => {}
        }
        let timeout = self.rebalance_timeout();
        self.sync_by = None;
        let delay = self.limits.initial_delay.min(timeout);
        let gathering = self.is_empty() && !delay.is_zero();
        let preparing = if gathering {
            Preparing {
                by: fx.now + delay,
                gathering: Some(Gathering {
                    left: timeout - delay,
                    more: false,
                }),
            }
        } else {
            Preparing {
                by: fx.now + timeout,
                gathering: None,
            }
        };
        self.state = State::Preparing(preparing);
        fx.wake_at(preparing.by);
        self.complete_join_if_all_are_here(fx);
    }

    /// A member has gone: who is left goes on without it.
    fn departed(&mut self, fx: &mut Effects) {
        match self.state {
            State::Empty => {}
            State::Preparing(_) => self.complete_join_if_all_are_here(fx),
            State::Completing | State::Stable => self.rebalance(fx),
        }
    }

    /// Takes a member out; who waits there is told why.
    fn remove(&mut self, id: &str, why: GroupError, fx: &mut Effects) {
        let Some(mut member) = self.members.remove(id) else {
            return;
        };
        member.refuse(id, why, fx);
        if let Some(instance) = &member.instance
            && self.instances.get(instance).is_some_and(|m| **m == *id)
        {
            self.instances.remove(instance);
        }
        if self.leader.as_deref() == Some(id) {
            self.leader = self.members.keys().next().cloned();
        }
    }
}
