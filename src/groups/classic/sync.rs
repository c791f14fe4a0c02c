//! SyncGroup: the leader's assignment, and the members that wait for it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{Classic, MemberId, State};
use crate::groups::effects::{Effects, Reply};
use crate::groups::error::GroupError;

/// A request for the own assignment; the leader brings everybody's.
pub(crate) struct Sync {
    /// Who asks.
    pub(crate) member: MemberId,
    /// group.instance.id
    pub(crate) instance: Option<Arc<str>>,
    /// The generation it has joined.
    pub(crate) generation: i32,
    /// From version 5 (KIP-559).
    pub(crate) protocol_type: Option<Arc<str>>,
    /// From version 5 (KIP-559).
    pub(crate) protocol: Option<Arc<str>>,
    /// By member id; empty but for the leader.
    pub(crate) assignments: HashMap<MemberId, Bytes>,
}

/// What a member is to read.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Synced {
    /// As all members have it.
    pub(crate) protocol_type: Arc<str>,
    /// The assignor that was used.
    pub(crate) protocol: Arc<str>,
    /// Opaque.
    pub(crate) assignment: Bytes,
}

/// The way back to a member that syncs.
pub(crate) type SyncReply = Reply<Result<Synced, GroupError>>;

impl Classic {
    /// A member wants its assignment.
    pub(crate) fn sync(&mut self, sync: Sync, reply: SyncReply, fx: &mut Effects) {
        if let Err(error) = self.may_sync(&sync) {
            return fx.answer(reply, Err(error));
        }
        let stable = matches!(self.state, State::Stable);
        let Some(member) = self.members.get_mut(&sync.member) else {
            return fx.answer(reply, Err(GroupError::UnknownMember));
        };
        member.synced = true;
        member.expires = fx.now + member.session_timeout;
        if let Some(earlier) = member.sync.replace(reply) {
            fx.answer(earlier, Err(GroupError::RebalanceInProgress));
        }
        if stable {
            self.answer_syncs(fx);
        } else if self.leader.as_ref() == Some(&sync.member) {
            self.assign(sync.assignments, fx);
        }
    }

    fn may_sync(&self, sync: &Sync) -> Result<(), GroupError> {
        self.check_member(&sync.member, sync.instance.as_deref())?;
        if sync.generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        let differs =
            |told: &Option<Arc<str>>, ours: &Option<Arc<str>>| told.is_some() && told != ours;
        if differs(&sync.protocol_type, &self.protocol_type)
            || differs(&sync.protocol, &self.protocol)
        {
            return Err(GroupError::InconsistentProtocol);
        }
        match self.state {
            State::Empty => Err(GroupError::UnknownMember),
            State::Preparing(_) => Err(GroupError::RebalanceInProgress),
            State::Completing | State::Stable => Ok(()),
        }
    }

    fn assign(&mut self, mut all: HashMap<MemberId, Bytes>, fx: &mut Effects) {
        for (id, member) in &mut self.members {
            member.assignment = all.remove(id).unwrap_or_default();
            if member.sync.is_some() {
                member.expires = fx.now + member.session_timeout;
            }
        }
        self.state = State::Stable;
        self.make_record();
        fx.store();
        self.answer_syncs(fx);
    }

    /// Nobody reads by an assignment that a restart would not know.
    fn answer_syncs(&mut self, fx: &mut Effects) {
        let protocol_type = self.protocol_type.clone().unwrap_or_else(|| "".into());
        let protocol = self.protocol.clone().unwrap_or_else(|| "".into());
        for member in self.members.values_mut() {
            let Some(reply) = member.sync.take() else {
                continue;
            };
            let synced = Synced {
                protocol_type: Arc::clone(&protocol_type),
                protocol: Arc::clone(&protocol),
                assignment: member.assignment.clone(),
            };
            fx.when_stored(move |stored| {
                reply(stored.map(|()| synced).map_err(|_| GroupError::Unavailable));
            });
        }
        if self.members.values().all(|m| m.synced) {
            self.sync_by = None;
        }
    }

    /// Who has waited could not send heartbeats meanwhile: its session begins anew.
    pub(super) fn refuse_syncs(&mut self, why: GroupError, fx: &mut Effects) {
        for member in self.members.values_mut() {
            member.assignment = Bytes::new();
            if let Some(reply) = member.sync.take() {
                member.expires = fx.now + member.session_timeout;
                fx.wake_at(member.expires);
                fx.answer(reply, Err(why));
            }
        }
    }
}
