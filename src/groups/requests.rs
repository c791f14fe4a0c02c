//! What clients ask of groups.

use std::collections::HashSet;
use std::sync::Arc;

use super::classic::{self, Join, JoinRefused, JoinReply, Leaver, Sync, SyncReply};
use super::consumer::{Beaten, ConsumerDescription, Heartbeat};
use super::effects::Reply;
use super::offsets::{Change, OffsetTable, Row, StagedRows};
use super::{Cell, GroupError, Groups};

/// Who commits or reads offsets.
pub(crate) struct Committer {
    /// Empty for a consumer that manages its partitions itself.
    pub(crate) member: Arc<str>,
    /// group.instance.id
    pub(crate) instance: Option<Arc<str>>,
    /// Generation or member epoch; below 0 like an empty `member`.
    pub(crate) generation: i32,
}

/// A group in a list.
pub(crate) struct Listed {
    /// Its id.
    pub(crate) name: Arc<str>,
    /// Kafka's name of its state.
    pub(crate) state: &'static str,
    /// "classic" or "consumer".
    pub(crate) kind: &'static str,
    /// "consumer", "connect", ...; empty for a group that has only committed.
    pub(crate) protocol_type: Arc<str>,
}

/// Offsets of a group at one moment.
pub(crate) struct Fetched {
    /// Those that are stored.
    pub(crate) table: Arc<OffsetTable>,
    /// Partitions of which a transaction may commit others.
    pub(crate) unstable: HashSet<(Arc<str>, i32)>,
}

impl Groups {
    /// A member joins. An id that no file can have is refused.
    pub(crate) fn join(&self, group: &str, join: Join, reply: JoinReply) {
        if !self.config.session_timeout.contains(&join.session_timeout) {
            return refuse_join(reply, GroupError::SessionTimeout, join.member);
        }
        // Only who comes without an id can be the first.
        let cell = if join.member.is_empty() {
            self.find_or_make(group)
        } else {
            self.find(group).map_err(|error| match error {
                GroupError::NotFound => GroupError::UnknownMember,
                other => other,
            })
        };
        let cell = match cell {
            Ok(cell) => cell,
            Err(error) => return refuse_join(reply, error, join.member),
        };
        let topics = self.topics.load();
        self.command(&cell, |group, fx| match group.check_open() {
            Ok(()) => group.join(join, reply, &**topics, fx),
            Err(error) => {
                let member = join.member;
                fx.answer(reply, Err(JoinRefused { error, member }));
            }
        });
        self.forget_unstored(&cell);
    }

    /// A member wants its assignment.
    pub(crate) fn sync(&self, group: &str, sync: Sync, reply: SyncReply) {
        let cell = match self.find_member(group) {
            Ok(cell) => cell,
            Err(error) => return reply(Err(error)),
        };
        let topics = self.topics.load();
        self.command(&cell, |group, fx| match group.check_open() {
            Ok(()) => group.sync(sync, reply, &**topics, fx),
            Err(error) => fx.answer(reply, Err(error)),
        });
    }

    /// A member is alive.
    pub(crate) fn heartbeat(&self, group: &str, who: &Committer) -> Result<(), GroupError> {
        let cell = self.find_member(group)?;
        self.command(&cell, |group, fx| {
            group.check_open()?;
            group.heartbeat(who, fx)
        })
    }

    /// Members go; one answer for each.
    pub(crate) fn leave(
        &self,
        group: &str,
        leavers: &[Leaver],
    ) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        let cell = match self.find(group) {
            Err(GroupError::NotFound) => {
                return Ok(leavers
                    .iter()
                    .map(|_| Err(GroupError::UnknownMember))
                    .collect());
            }
            other => other?,
        };
        let topics = self.topics.load();
        self.command(&cell, |group, fx| {
            group.check_open()?;
            group.leave(leavers, &**topics, fx)
        })
    }

    fn find_member(&self, group: &str) -> Result<Arc<Cell>, GroupError> {
        self.find(group).map_err(|error| match error {
            GroupError::NotFound => GroupError::UnknownMember,
            other => other,
        })
    }

    /// A group for DescribeGroups.
    pub(crate) fn describe(&self, group: &str) -> Result<classic::Description, GroupError> {
        let cell = self.find(group)?;
        let group = cell.group.lock();
        match group.is_unheard_of() {
            true => Err(GroupError::NotFound),
            false => group.describe_classic(),
        }
    }

    /// A group for ConsumerGroupDescribe.
    pub(crate) fn describe_consumer(&self, group: &str) -> Result<ConsumerDescription, GroupError> {
        let cell = self.find(group)?;
        cell.group.lock().describe_consumer()
    }

    /// A member of the consumer protocol says what it has and learns what it is to have.
    pub(crate) fn beat(
        &self,
        group: &str,
        beat: &Heartbeat,
        reply: Reply<Result<Beaten, GroupError>>,
    ) {
        let cell = if beat.epoch == 0 {
            self.find_or_make(group)
        } else {
            self.find(group)
        };
        let cell = match cell {
            Ok(cell) => cell,
            Err(error) => return reply(Err(error)),
        };
        let topics = self.topics.load();
        self.command(&cell, |group, fx| match group.check_open() {
            Ok(()) => group.beat(beat, &**topics, reply, fx),
            Err(error) => fx.answer(reply, Err(error)),
        });
        self.forget_unstored(&cell);
    }

    /// All groups.
    pub(crate) fn list(&self) -> Result<Vec<Listed>, GroupError> {
        self.check_loaded()?;
        let listed = self.cells().into_iter().filter_map(|cell| {
            let group = cell.group.lock();
            if group.is_unheard_of() {
                return None;
            }
            let (state, kind, protocol_type) = group.summary();
            Some(Listed {
                name: Arc::clone(&cell.name),
                state,
                kind,
                protocol_type,
            })
        });
        Ok(listed.collect())
    }

    /// Commits offsets; `knows_epochs`: the request can be told of stale member epochs. `reply` says when they are on stable storage.
    pub(crate) fn commit(
        &self,
        group: &str,
        (who, knows_epochs): (&Committer, bool),
        rows: Vec<Row>,
        reply: Reply<Result<(), GroupError>>,
    ) {
        let cell = if who.generation < 0 {
            self.find_or_make(group)
        } else {
            self.find(group)
        };
        let cell = match cell {
            Ok(cell) => cell,
            Err(error) => return reply(Err(error)),
        };
        self.command(&cell, |group, fx| {
            let checked = group.check_commit(who, &rows, knows_epochs, fx);
            if let Err(error) = checked {
                return fx.answer(reply, Err(error));
            }
            if !rows.is_empty() {
                group.offsets.push(Change::Commit(rows));
                fx.store();
            }
            fx.when_stored(|stored| reply(stored.map_err(|_| GroupError::Unavailable)));
        });
    }

    /// The committed offsets of a group; of one that nobody has heard of, none.
    pub(crate) fn fetch(
        &self,
        group: &str,
        who: Option<&Committer>,
    ) -> Result<Fetched, GroupError> {
        let cell = match self.find(group) {
            Ok(cell) => cell,
            Err(GroupError::NotFound) => {
                return Ok(Fetched {
                    table: Arc::default(),
                    unstable: HashSet::new(),
                });
            }
            Err(error) => return Err(error),
        };
        let group = cell.group.lock();
        group.check_fetch(who)?;
        Ok(Fetched {
            table: Arc::clone(group.offsets.stored()),
            unstable: group.offsets.staged_partitions(),
        })
    }

    /// Deletes a group without members.
    pub(crate) fn delete(&self, group: &str, reply: Reply<Result<(), GroupError>>) {
        let cell = match self.find(group) {
            Ok(cell) => cell,
            Err(error) => return reply(Err(error)),
        };
        self.command(&cell, |group, fx| {
            let checked = group.check_open().and_then(|()| match group.is_empty() {
                true => Ok(()),
                false => Err(GroupError::NotEmpty),
            });
            if let Err(error) = checked {
                return fx.answer(reply, Err(error));
            }
            group.delete(fx);
            fx.when_stored(|stored| reply(stored.map_err(|_| GroupError::Unavailable)));
        });
    }

    /// Takes offsets of a group away; `subscribed` says which topics members' metadata
    /// names. One answer for
    /// each partition, when what could be taken away is gone for good.
    pub(crate) fn delete_offsets(
        &self,
        group: &str,
        partitions: Vec<(Arc<str>, i32)>,
        subscribed: impl FnOnce(&[&bytes::Bytes]) -> HashSet<String>,
        reply: DeleteReply,
    ) {
        let cell = match self.find(group) {
            Ok(cell) => cell,
            Err(error) => return reply(Err(error)),
        };
        self.command(&cell, |group, fx| {
            let named: Vec<&str> = partitions.iter().map(|(topic, _)| &**topic).collect();
            let taken = match group.read_topics(&named, subscribed) {
                Ok(taken) => taken,
                Err(error) => return fx.answer(reply, Err(error)),
            };
            let answers = partitions
                .iter()
                .map(|(topic, _)| match taken.contains(&**topic) {
                    true => Err(GroupError::Subscribed),
                    false => Ok(()),
                });
            let answers: Vec<Result<(), GroupError>> = answers.collect();
            let free = partitions
                .into_iter()
                .filter(|(topic, _)| !taken.contains(&**topic));
            group.offsets.push(Change::Forget(free.collect()));
            fx.store();
            fx.when_stored(|stored| {
                reply(
                    stored
                        .map(|()| answers)
                        .map_err(|_| GroupError::Unavailable),
                );
            });
        });
    }

    /// A producer stages offsets in its transaction; `reply` says when they are on stable storage.
    pub(crate) fn stage(
        &self,
        group: &str,
        who: &Committer,
        staged: StagedRows,
        reply: Reply<Result<(), GroupError>>,
    ) {
        let cell = if who.generation < 0 {
            self.find_or_make(group)
        } else {
            self.find(group).map_err(|error| match error {
                GroupError::NotFound => GroupError::IllegalGeneration,
                other => other,
            })
        };
        let cell = match cell {
            Ok(cell) => cell,
            Err(error) => return reply(Err(error)),
        };
        self.command(&cell, |group, fx| {
            let checked = group.check_transactional_commit(who);
            if let Err(error) = checked {
                return fx.answer(reply, Err(error));
            }
            group.offsets.push(Change::Stage(staged));
            fx.store();
            fx.when_stored(|stored| reply(stored.map_err(|_| GroupError::Unavailable)));
        });
    }

    /// The producer's transaction has ended: what it staged is committed or dropped. May be repeated.
    pub(crate) fn end_transaction(
        &self,
        group: &str,
        producer: i64,
        commit: bool,
        reply: Reply<Result<(), GroupError>>,
    ) {
        let cell = match self.find(group) {
            Ok(cell) => cell,
            // Deleted, and its offsets with it.
            Err(GroupError::NotFound) => return reply(Ok(())),
            Err(error) => return reply(Err(error)),
        };
        self.command(&cell, |group, fx| {
            if let Err(error) = group.check_open() {
                return fx.answer(reply, Err(error));
            }
            if group.offsets.has_staged(producer) {
                group.offsets.push(Change::End { producer, commit });
                fx.store();
            }
            fx.when_stored(|stored| reply(stored.map_err(|_| GroupError::Unavailable)));
        });
    }
}

/// One answer for each partition, or one for all.
pub(crate) type DeleteReply = Reply<Result<Vec<Result<(), GroupError>>, GroupError>>;

fn refuse_join(reply: JoinReply, error: GroupError, member: Arc<str>) {
    reply(Err(JoinRefused { error, member }));
}
