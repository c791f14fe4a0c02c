//! ConsumerGroupHeartbeat: a member joins, stays, tells what it has, learns what it is to have, or leaves.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::member::{AWAY, Member, Pattern};
use super::{Consumer, ConsumerLimits, MemberId, Partitions, TopicLookup, View};
use crate::groups::consumer::Assignor;
use crate::groups::effects::Effects;
use crate::groups::error::GroupError;

/// The member epoch of who leaves for good.
const LEAVE: i32 = -1;

/// What a member says; `None` is "as before".
#[derive(Clone, Debug)]
pub(crate) struct Heartbeat {
    /// Chosen by the member.
    pub(crate) member: MemberId,
    /// 0 to join, -1 to leave, -2 to go for a while.
    pub(crate) epoch: i32,
    /// group.instance.id
    pub(crate) instance: Option<Arc<str>>,
    /// client.rack
    pub(crate) rack: Option<Arc<str>>,
    /// client.id
    pub(crate) client_id: Arc<str>,
    /// `/address`
    pub(crate) client_host: Arc<str>,
    /// max.poll.interval.ms
    pub(crate) rebalance_timeout: Option<Duration>,
    /// The topics it reads.
    pub(crate) names: Option<BTreeSet<Arc<str>>>,
    /// Those that match; empty for none.
    pub(crate) regex: Option<Arc<str>>,
    /// What it may see; patterns match nothing else.
    pub(crate) view: Arc<dyn View>,
    /// How it would have partitions assigned.
    pub(crate) assignor: Option<Arc<str>>,
    /// What it has.
    pub(crate) owned: Option<Partitions>,
}

/// What a member is told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Beaten {
    /// Who.
    pub(crate) member: MemberId,
    /// To be sent with the next heartbeat.
    pub(crate) epoch: i32,
    /// All it is to have; `None` is "as before".
    pub(crate) assignment: Option<Partitions>,
}

impl Heartbeat {
    /// Whether the assignor is known and the expression compiles.
    pub(crate) fn check(&self, limits: &ConsumerLimits) -> Result<(), GroupError> {
        self.assignor(limits)?;
        self.pattern().map(drop)
    }

    fn assignor(&self, limits: &ConsumerLimits) -> Result<Option<Assignor>, GroupError> {
        let Some(name) = self.assignor.as_deref() else {
            return Ok(None);
        };
        let known = limits.assignors.iter().find(|known| known.name() == name);
        known
            .copied()
            .map(Some)
            .ok_or(GroupError::UnsupportedAssignor)
    }

    fn pattern(&self) -> Result<Option<Pattern>, GroupError> {
        match self.regex.as_deref() {
            None | Some("") => Ok(None),
            Some(text) => Pattern::new(text).map(Some),
        }
    }

    fn joins(&self) -> bool {
        self.epoch == 0
    }

    /// A member that says everything is answered with everything.
    fn is_full(&self) -> bool {
        let subscribes = self.names.is_some() || self.regex.is_some();
        self.joins() || (self.rebalance_timeout.is_some() && subscribes && self.owned.is_some())
    }
}

impl Consumer {
    /// A heartbeat. The answer may be given when the effects are stored.
    pub(crate) fn heartbeat(
        &mut self,
        beat: &Heartbeat,
        topics: &dyn TopicLookup,
        fx: &mut Effects,
    ) -> Result<Beaten, GroupError> {
        if beat.epoch < 0 {
            return self.leave_by_heartbeat(beat, fx);
        }
        let assignor = beat.assignor(&self.limits)?;
        let pattern = beat.pattern()?;
        let before = self.enter(beat, fx)?;
        let mut member = before.clone();
        member.classic = None;
        beat.tell(&mut member);
        member.assignor = assignor.or(member.assignor);
        if beat.regex.is_some() {
            member.pattern = pattern;
        }
        self.update(&beat.member, (&before, member), topics, fx);
        self.assign_if_due(fx);
        self.reconcile(&beat.member, beat.owned.as_ref(), fx);
        self.beaten(beat, &before, fx)
    }

    fn beaten(
        &mut self,
        beat: &Heartbeat,
        before: &Member,
        fx: &mut Effects,
    ) -> Result<Beaten, GroupError> {
        let session_timeout = self.limits.session_timeout;
        let member = self.members.get_mut(&beat.member);
        let member = member.ok_or(GroupError::UnknownMember)?;
        member.expires = fx.now + session_timeout;
        fx.wake_at(member.expires);
        let assigned = member.partitions();
        let news = beat.is_full() || assigned != before.partitions();
        Ok(Beaten {
            member: Arc::clone(&beat.member),
            epoch: member.epoch,
            assignment: news.then_some(assigned),
        })
    }

    /// The member as it was, a new one, or why it may not come.
    fn enter(&mut self, beat: &Heartbeat, fx: &mut Effects) -> Result<Member, GroupError> {
        let holder = beat
            .instance
            .as_ref()
            .and_then(|i| self.instances.get(i))
            .cloned();
        match (&beat.instance, holder) {
            (Some(_), Some(holder)) if holder != beat.member && beat.joins() => {
                return self.take_place(beat, &holder, fx);
            }
            (Some(_), Some(holder)) if holder != beat.member => {
                return Err(GroupError::FencedInstance);
            }
            (Some(_), None) if !beat.joins() => return Err(GroupError::UnknownMember),
            _ => {}
        }
        match self.members.get(&beat.member) {
            Some(member) if member.epoch == AWAY && beat.joins() => Ok(member.clone()),
            Some(member) => {
                check_epoch(member, beat)?;
                Ok(member.clone())
            }
            None if !beat.joins() => Err(GroupError::UnknownMember),
            None if self.members.len() >= self.limits.members_max => Err(GroupError::Full),
            None => Ok(Member::new(fx.now)),
        }
    }

    /// A static member came back as another process: what its former self had is its own.
    fn take_place(
        &mut self,
        beat: &Heartbeat,
        holder: &MemberId,
        fx: &mut Effects,
    ) -> Result<Member, GroupError> {
        let former = self.members.get(holder).cloned();
        let mut former = former.ok_or(GroupError::UnknownMember)?;
        if former.epoch != AWAY && former.classic.is_none() {
            return Err(GroupError::UnreleasedInstance);
        }
        self.release(holder);
        self.members.remove(holder);
        if let Some(target) = self.target.remove(holder) {
            self.target.insert(Arc::clone(&beat.member), target);
        }
        former.epoch = 0;
        former.previous_epoch = 0;
        self.put(&beat.member, former.clone());
        fx.store();
        Ok(former)
    }

    fn leave_by_heartbeat(
        &mut self,
        beat: &Heartbeat,
        fx: &mut Effects,
    ) -> Result<Beaten, GroupError> {
        if let Some(instance) = &beat.instance {
            match self.instances.get(instance) {
                None => return Err(GroupError::UnknownMember),
                Some(holder) if *holder != beat.member => return Err(GroupError::FencedInstance),
                Some(_) => {}
            }
        }
        let mut member = self.member(&beat.member)?.clone();
        if beat.epoch == LEAVE {
            self.remove(&beat.member, fx);
        } else {
            // What it has stays its own until its session ends.
            member.epoch = AWAY;
            member.revoking.clear();
            member.revoke_by = None;
            member.expires = fx.now + self.limits.session_timeout;
            fx.wake_at(member.expires);
            self.put(&beat.member, member);
            fx.store();
        }
        Ok(Beaten {
            member: Arc::clone(&beat.member),
            epoch: beat.epoch,
            assignment: None,
        })
    }
}

impl Heartbeat {
    /// Tells a member's record what has changed.
    fn tell(&self, member: &mut Member) {
        if let Some(instance) = &self.instance {
            member.instance = Some(Arc::clone(instance));
        }
        if let Some(rack) = &self.rack {
            member.rack = Some(Arc::clone(rack));
        }
        if let Some(timeout) = self.rebalance_timeout {
            member.rebalance_timeout = timeout;
        }
        if let Some(names) = &self.names {
            member.names.clone_from(names);
        }
        member.view = Some(Arc::clone(&self.view));
        member.client_id = Arc::clone(&self.client_id);
        member.client_host = Arc::clone(&self.client_host);
    }
}

/// An epoch other than the current one is accepted only from a member that has missed its last answer: it comes with
/// the one before, and has nothing that is not its own.
fn check_epoch(member: &Member, beat: &Heartbeat) -> Result<(), GroupError> {
    if beat.epoch == member.epoch {
        return Ok(());
    }
    let fits = |owned: &Partitions| {
        owned.iter().all(|(topic, partitions)| {
            let assigned = member.assigned.get(topic);
            assigned.is_some_and(|a| partitions.iter().all(|p| a.contains_key(p)))
        })
    };
    if beat.epoch == member.previous_epoch && beat.owned.as_ref().is_some_and(fits) {
        return Ok(());
    }
    Err(GroupError::FencedEpoch)
}
