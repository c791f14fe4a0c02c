//! What time does to a consumer group.

use std::sync::Arc;
use std::time::Instant;

use super::member::Member;
use super::{Consumer, MemberId};
use crate::groups::effects::Effects;

impl Consumer {
    /// Does what is due, and says when to come again.
    pub(crate) fn tick(&mut self, fx: &mut Effects) {
        let late = self.members.iter().filter(|(_, m)| deadline(m) <= fx.now);
        let late: Vec<MemberId> = late.map(|(id, _)| Arc::clone(id)).collect();
        for id in late {
            self.remove(&id, fx);
        }
        if let Some(when) = self.members.values().map(deadline).min() {
            fx.wake_at(when);
        }
    }
}

/// When a member is out unless it does what it owes: a heartbeat, to give back, to join, to sync.
fn deadline(member: &Member) -> Instant {
    let classic = member.classic.as_ref();
    let owed = [
        member.revoke_by,
        classic.and_then(|c| c.join_by),
        classic.and_then(|c| c.sync_by),
    ];
    let first = owed.into_iter().flatten().min();
    first.map_or(member.expires, |first| first.min(member.expires))
}
