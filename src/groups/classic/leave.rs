//! LeaveGroup: members that say that they go, or are sent away by an administrator.

use std::sync::Arc;

use super::{Classic, MemberId};
use crate::groups::effects::Effects;
use crate::groups::error::GroupError;

/// Who leaves.
pub(crate) struct Leaver {
    /// Empty where only the instance is known (`removeMembersFromConsumerGroup`).
    pub(crate) member: MemberId,
    /// group.instance.id
    pub(crate) instance: Option<Arc<str>>,
}

impl Classic {
    /// Takes members out; one answer for each.
    pub(crate) fn leave(
        &mut self,
        leavers: &[Leaver],
        fx: &mut Effects,
    ) -> Vec<Result<(), GroupError>> {
        let answers: Vec<_> = leavers.iter().map(|one| self.leave_one(one, fx)).collect();
        if answers.iter().any(Result::is_ok) {
            self.departed(fx);
        }
        answers
    }

    fn leave_one(&mut self, leaver: &Leaver, fx: &mut Effects) -> Result<(), GroupError> {
        let id = match &leaver.instance {
            None if self.pending.remove(&leaver.member).is_some() => return Ok(()),
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
        if !self.members.contains_key(&id) {
            return Err(GroupError::UnknownMember);
        }
        self.remove(&id, GroupError::UnknownMember, fx);
        Ok(())
    }
}
