//! One group: its members, its offsets, and how far its file has followed.
//!
//! Owns:     which waiters a write of the file lets go, and when the group is over.
//! Does not: write the file (the store does), or know the members' protocol (the machines do).
//! Everything happens under the group's lock, which is never held over I/O or a call back.
//!
//! # Invariants
//! R1. At most one write of a group is under way; changes made meanwhile share the next one.
//! R2. A waiter is let go by a write that began after its change was made.
//! R3. A group that is being deleted takes no command any more; when its file is gone it is taken out of the map.

use std::sync::Arc;
use std::time::Instant;

use super::Limits;
use super::classic::Classic;
use super::consumer::Consumer;
use super::effects::{Effects, NotStored, Reply, Stored};
use super::error::GroupError;
use super::file::{GroupFile, Members};
use super::offsets::Offsets;
use crate::timer::Deadline;

/// Who is in the group, by its protocol.
pub(crate) enum Kind {
    /// JoinGroup and SyncGroup.
    Classic(Box<Classic>),
    /// ConsumerGroupHeartbeat.
    Consumer(Box<Consumer>),
}

/// What the file is to say.
pub(crate) enum Write {
    /// This.
    Put(Box<GroupFile>),
    /// It is to go.
    Remove,
}

/// See the module.
pub(crate) struct Group {
    /// Its id.
    pub(crate) name: Arc<str>,
    /// Who is in it.
    pub(crate) kind: Kind,
    /// What holds for all groups.
    pub(crate) limits: Arc<Limits>,
    /// What it has read.
    pub(crate) offsets: Offsets,
    /// Since when it has had no members; means something only while it has none.
    pub(crate) empty_since_ms: i64,
    /// Whether there is a file, or has been an attempt to write one.
    has_file: bool,
    deleting: bool,
    gone: bool,
    dirty: bool,
    writing: bool,
    /// The write under way removes the file.
    removing: bool,
    /// Let go by the next write.
    waiting: Vec<Reply<Stored>>,
    /// Let go by the write under way.
    in_flight: Vec<Reply<Stored>>,
    /// The tick that is due first.
    pub(crate) wake: Option<(Instant, Deadline)>,
}

/// What the driver does about effects once the lock is free.
pub(crate) struct Due {
    /// To be told that all is stored already.
    pub(crate) stored: Vec<Reply<Stored>>,
    /// The file must be written and nobody is at it.
    pub(crate) write: bool,
}

impl Group {
    /// A group that nobody has heard of.
    pub(crate) fn new(name: Arc<str>, limits: &Arc<Limits>) -> Self {
        Self {
            name,
            kind: Kind::Classic(Box::new(Classic::new(limits.classic))),
            limits: Arc::clone(limits),
            offsets: Offsets::default(),
            empty_since_ms: 0,
            has_file: false,
            deleting: false,
            gone: false,
            dirty: false,
            writing: false,
            removing: false,
            waiting: Vec::new(),
            in_flight: Vec::new(),
            wake: None,
        }
    }

    /// A group as its file tells of it.
    pub(crate) fn from_file(file: GroupFile, limits: &Arc<Limits>, now: Instant) -> Self {
        let kind = match file.members {
            Members::Classic(record) => {
                Kind::Classic(Box::new(Classic::from_record(limits.classic, record, now)))
            }
            Members::Consumer(record) => {
                let limits = Arc::clone(&limits.consumer);
                Kind::Consumer(Box::new(Consumer::from_record(limits, record, now)))
            }
        };
        Self {
            kind,
            offsets: Offsets::new(file.committed),
            empty_since_ms: file.empty_since_ms,
            has_file: true,
            ..Self::new(file.group, limits)
        }
    }

    /// Whether it was taken out of the map: whoever still holds it must look again.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether it takes commands. One that has left the map since it was found there does not: nobody would see what
    /// became of them.
    pub(crate) fn check_open(&self) -> Result<(), GroupError> {
        if self.deleting || self.gone {
            return Err(GroupError::Unavailable);
        }
        Ok(())
    }

    /// Whether it has no members.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.kind {
            Kind::Classic(classic) => classic.is_empty(),
            Kind::Consumer(consumer) => consumer.is_empty(),
        }
    }

    /// Whether nothing would be lost if it were forgotten.
    pub(crate) fn is_idle(&self) -> bool {
        let awaits = match &self.kind {
            Kind::Classic(classic) => classic.awaits_members(),
            Kind::Consumer(_) => false,
        };
        self.is_empty() && !awaits && self.offsets.is_empty() && !self.deleting
    }

    /// Whether a file may exist.
    pub(crate) fn has_file(&self) -> bool {
        self.has_file
    }

    /// From when on offsets of a topic age, if not from their commit; `None` while members are there to use them.
    pub(crate) fn ages_since(&self, topic: &str) -> Option<i64> {
        let by_itself = Some(i64::MIN);
        match &self.kind {
            // It never had members.
            Kind::Classic(classic) if classic.protocol_type().is_none() => by_itself,
            Kind::Classic(classic) if classic.is_empty() => Some(self.empty_since_ms),
            Kind::Classic(classic) if classic.reads(topic) => None,
            Kind::Consumer(consumer) if consumer.is_empty() => Some(self.empty_since_ms),
            Kind::Consumer(consumer) if consumer.reads(topic) => None,
            Kind::Classic(_) | Kind::Consumer(_) => by_itself,
        }
    }

    /// Whether nobody ever joined it or committed to it, and so nobody should be told of it.
    pub(crate) fn is_unheard_of(&self) -> bool {
        let unstored = !self.has_file && !self.dirty && !self.writing;
        self.is_idle() && unstored
    }

    /// Forgets a group that never had a file.
    pub(crate) fn forget_unstored(&mut self) -> bool {
        self.gone |= self.is_unheard_of();
        self.gone
    }

    /// Begins the deletion: the next write removes the file.
    pub(crate) fn delete(&mut self, fx: &mut Effects) {
        self.deleting = true;
        fx.store();
    }

    /// Does what the driver must do in the lock: R1 and R2.
    pub(crate) fn take(&mut self, store: bool, when_stored: Vec<Reply<Stored>>) -> Due {
        self.dirty |= store;
        let mut due = Due {
            stored: Vec::new(),
            write: false,
        };
        if self.dirty {
            self.waiting.extend(when_stored);
            due.write = !self.writing;
            self.writing = true;
        } else if self.writing {
            self.in_flight.extend(when_stored);
        } else {
            due.stored = when_stored;
        }
        due
    }

    /// What a write that begins now must say.
    pub(crate) fn begin_write(&mut self) -> Write {
        self.dirty = false;
        self.in_flight = std::mem::take(&mut self.waiting);
        let table = self.offsets.begin_write();
        self.removing = self.deleting;
        if self.removing {
            return Write::Remove;
        }
        let members = match &self.kind {
            Kind::Classic(classic) => Members::Classic(Arc::clone(classic.record())),
            Kind::Consumer(consumer) => Members::Consumer(consumer.record()),
        };
        self.has_file = true;
        Write::Put(Box::new(GroupFile {
            group: Arc::clone(&self.name),
            empty_since_ms: self.empty_since_ms,
            members,
            committed: table,
        }))
    }

    /// The write has ended. Whom it lets go, and whether another must follow.
    pub(crate) fn end_write(&mut self, stored: Stored) -> (Vec<Reply<Stored>>, bool) {
        self.offsets.written(stored.is_ok());
        if std::mem::take(&mut self.removing) {
            self.gone = stored.is_ok();
            // A deletion that failed is over: the group is there as before.
            self.deleting = self.gone;
        }
        let again = self.dirty && !self.gone;
        self.writing = again;
        let mut let_go = std::mem::take(&mut self.in_flight);
        if self.gone {
            let_go.extend(self.waiting.drain(..).map(refused));
        }
        (let_go, again)
    }
}

/// A waiter of a group that is no more is not told that it was stored.
fn refused(reply: Reply<Stored>) -> Reply<Stored> {
    Box::new(move |_| reply(Err(NotStored)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::classic::ClassicLimits;
    use super::super::consumer::ConsumerLimits;
    use super::super::members::Migration;
    use super::*;

    fn group() -> Group {
        let limits = Limits {
            classic: ClassicLimits {
                initial_delay: Duration::ZERO,
                members_max: 1,
            },
            consumer: Arc::new(ConsumerLimits {
                session_timeout: Duration::ZERO,
                heartbeat_interval: Duration::ZERO,
                members_max: 1,
                assignment_interval: Duration::ZERO,
                assignors: Vec::new(),
            }),
            migration: Migration::Disabled,
        };
        Group::new("g".into(), &Arc::new(limits))
    }

    fn delete(group: &mut Group) {
        let mut fx = Effects::new(Instant::now());
        group.delete(&mut fx);
        group.take(fx.store, Vec::new());
    }

    #[test]
    fn a_write_that_began_before_the_deletion_does_not_complete_it() {
        let mut group = group();
        assert!(group.take(true, Vec::new()).write);
        assert!(matches!(group.begin_write(), Write::Put(_)));
        delete(&mut group);
        let (_, again) = group.end_write(Ok(()));
        assert!(again && !group.is_gone(), "the file is still there");
        assert!(matches!(group.begin_write(), Write::Remove));
        let (_, again) = group.end_write(Ok(()));
        assert!(!again && group.is_gone());
        assert!(group.check_open().is_err());
    }

    #[test]
    fn a_deletion_that_failed_leaves_the_group_as_it_was() {
        let mut group = group();
        delete(&mut group);
        assert!(matches!(group.begin_write(), Write::Remove));
        let (_, again) = group.end_write(Err(NotStored));
        assert!(!again && !group.is_gone());
        assert!(group.check_open().is_ok());
    }

    #[test]
    fn a_group_that_was_forgotten_takes_no_commands() {
        let mut group = group();
        assert!(group.check_open().is_ok() && group.is_unheard_of());
        assert!(group.forget_unstored());
        assert!(
            group.check_open().is_err(),
            "nobody would find what it keeps"
        );
    }
}
