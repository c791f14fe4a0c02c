//! What time does to a classic group.

use std::sync::Arc;
use std::time::Instant;

use super::{Classic, Gathering, MemberId, Preparing, State};
use crate::groups::effects::Effects;
use crate::groups::error::GroupError;

impl Classic {
    /// Does what is due at `now`, and says when to come again.
    pub(crate) fn tick(&mut self, fx: &mut Effects) {
        self.expire_sessions(fx);
        self.end_join_phase(fx);
        self.expire_syncs(fx);
        if let Some(when) = self.next_deadline() {
            fx.wake_at(when);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let sessions = self.members.values().map(|m| m.expires);
        let preparing = match self.state {
            State::Preparing(preparing) => Some(preparing.by),
            _ => None,
        };
        let pending = self.pending.values().copied();
        sessions
            .chain(pending)
            .chain(preparing)
            .chain(self.sync_by)
            .min()
    }

    fn expire_sessions(&mut self, fx: &mut Effects) {
        let pending_before = self.pending.len();
        self.pending.retain(|_, expires| *expires > fx.now);
        let mut gone: Vec<MemberId> = Vec::new();
        for (id, member) in &mut self.members {
            if member.expires > fx.now {
                continue;
            }
            if member.waits() {
                member.expires = fx.now + member.session_timeout;
            } else {
                gone.push(Arc::clone(id));
            }
        }
        for id in &gone {
            self.remove(id, GroupError::UnknownMember, fx);
        }
        if !gone.is_empty() {
            self.departed(fx);
        } else if self.pending.len() < pending_before {
            self.complete_join_if_all_are_here(fx);
        }
    }

    fn end_join_phase(&mut self, fx: &mut Effects) {
        let State::Preparing(preparing) = self.state else {
            return;
        };
        if preparing.by > fx.now {
            return;
        }
        match preparing.gathering {
            Some(gathering) if gathering.more && !gathering.left.is_zero() => {
                let longer = self.limits.initial_delay.min(gathering.left);
                let by = fx.now + longer;
                self.state = State::Preparing(Preparing {
                    by,
                    gathering: Some(Gathering {
                        left: gathering.left - longer,
                        more: false,
                    }),
                });
            }
            _ => self.complete_join(fx),
        }
    }

    /// Who has joined and never asked for its assignment holds up the others.
    fn expire_syncs(&mut self, fx: &mut Effects) {
        if self.sync_by.is_none_or(|by| by > fx.now) {
            return;
        }
        self.sync_by = None;
        let late = self.members.iter().filter(|(_, m)| !m.synced);
        let late: Vec<MemberId> = late.map(|(id, _)| Arc::clone(id)).collect();
        for id in &late {
            self.remove(id, GroupError::UnknownMember, fx);
        }
        if !late.is_empty() {
            self.departed(fx);
        }
    }
}
