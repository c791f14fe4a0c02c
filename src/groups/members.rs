//! Who is in a group: each command goes to the machine of the group's protocol.
//!
//! Owns:     the choice of the protocol: an empty group takes that of the first who comes; a classic group becomes a
//!           consumer group when a member of that protocol joins, and is one again when the last of them has gone, as far
//!           as `group.consumer.migration.policy` allows (KIP-848).
//! Does not: decide anything about members.

use std::collections::HashSet;
use std::sync::Arc;

use super::classic::{
    Classic, Description, Join, JoinRefused, JoinReply, Leaver, MemberId, Sync, SyncReply,
};
use super::consumer::{Beaten, Consumer, ConsumerDescription, Heartbeat, TopicLookup};
use super::effects::{Effects, Reply};
use super::error::GroupError;
use super::group::{Group, Kind};
use super::offsets::Row;
use super::requests::Committer;

/// group.consumer.migration.policy
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Migration {
    /// Neither way.
    Disabled,
    /// From classic to consumer only.
    Upgrade,
    /// From consumer to classic only.
    Downgrade,
    /// Both ways.
    Bidirectional,
}

impl Migration {
    /// As configurations call it; the table of keys lets nothing else through.
    pub(crate) fn of_name(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "disabled" => Self::Disabled,
            "upgrade" => Self::Upgrade,
            "downgrade" => Self::Downgrade,
            _ => Self::Bidirectional,
        }
    }

    fn upgrades(self) -> bool {
        matches!(self, Self::Upgrade | Self::Bidirectional)
    }

    fn downgrades(self) -> bool {
        matches!(self, Self::Downgrade | Self::Bidirectional)
    }
}

impl Group {
    /// JoinGroup.
    pub(crate) fn join(
        &mut self,
        join: Join,
        reply: JoinReply,
        topics: &dyn TopicLookup,
        fx: &mut Effects,
    ) {
        if let Kind::Consumer(consumer) = &self.kind
            && consumer.is_empty()
        {
            self.kind = Kind::Classic(Box::new(Classic::new(self.limits.classic)));
        }
        match &mut self.kind {
            Kind::Classic(classic) => classic.join(join, reply, fx),
            Kind::Consumer(consumer) => {
                let id = Arc::clone(&join.member);
                let joined = consumer.join_classic(join, topics, fx);
                fx.when_stored(move |stored| {
                    let unavailable = || JoinRefused {
                        error: GroupError::Unavailable,
                        member: id,
                    };
                    reply(stored.map_err(|_| unavailable()).and(joined));
                });
            }
        }
    }

    /// SyncGroup.
    pub(crate) fn sync(
        &mut self,
        sync: Sync,
        reply: SyncReply,
        topics: &dyn TopicLookup,
        fx: &mut Effects,
    ) {
        match &mut self.kind {
            Kind::Classic(classic) => classic.sync(sync, reply, fx),
            Kind::Consumer(consumer) => {
                let synced = consumer.sync_classic(&sync, topics, fx);
                fx.when_stored(|stored| {
                    reply(stored.map_err(|_| GroupError::Unavailable).and(synced));
                });
            }
        }
    }

    /// Heartbeat.
    pub(crate) fn heartbeat(
        &mut self,
        who: &Committer,
        fx: &mut Effects,
    ) -> Result<(), GroupError> {
        let (instance, generation) = (who.instance.as_deref(), who.generation);
        match &mut self.kind {
            Kind::Classic(classic) => classic.heartbeat(fx.now, &who.member, instance, generation),
            Kind::Consumer(consumer) => {
                consumer.heartbeat_classic(&who.member, instance, generation, fx)
            }
        }
    }

    /// LeaveGroup.
    pub(crate) fn leave(
        &mut self,
        leavers: &[Leaver],
        topics: &dyn TopicLookup,
        fx: &mut Effects,
    ) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        match &mut self.kind {
            Kind::Classic(classic) => Ok(classic.leave(leavers, fx)),
            Kind::Consumer(consumer) => {
                let left = consumer.leave_classic(leavers, fx);
                self.downgrade_if_all_are_classic(topics, fx);
                Ok(left)
            }
        }
    }

    /// ConsumerGroupHeartbeat.
    pub(crate) fn beat(
        &mut self,
        beat: &Heartbeat,
        topics: &dyn TopicLookup,
        reply: Reply<Result<Beaten, GroupError>>,
        fx: &mut Effects,
    ) {
        // What is refused anyway must not turn the group over.
        let beaten = beat
            .check(&self.limits.consumer)
            .and_then(|()| self.become_consumer(beat, topics, fx))
            .and_then(|consumer| consumer.heartbeat(beat, topics, fx));
        self.downgrade_if_all_are_classic(topics, fx);
        match beaten {
            Err(error) => fx.answer(reply, Err(error)),
            Ok(beaten) => fx.when_stored(|stored| {
                reply(stored.map(|()| beaten).map_err(|_| GroupError::Unavailable));
            }),
        }
    }

    fn become_consumer(
        &mut self,
        beat: &Heartbeat,
        topics: &dyn TopicLookup,
        fx: &mut Effects,
    ) -> Result<&mut Consumer, GroupError> {
        let limits = Arc::clone(&self.limits.consumer);
        if let Kind::Classic(classic) = &mut self.kind {
            if beat.epoch != 0 {
                return Err(GroupError::NotFound);
            }
            let consumer = if classic.is_empty() {
                Consumer::new(limits)
            } else if self.limits.migration.upgrades() {
                let upgraded = Consumer::from_classic(limits, classic, topics, fx);
                upgraded.ok_or(GroupError::NotFound)?
            } else {
                return Err(GroupError::NotFound);
            };
            log::debug!("group {:?} is of the consumer protocol now", self.name);
            self.kind = Kind::Consumer(Box::new(consumer));
        }
        match &mut self.kind {
            Kind::Consumer(consumer) => Ok(consumer),
            Kind::Classic(_) => Err(GroupError::NotFound),
        }
    }

    fn downgrade_if_all_are_classic(&mut self, topics: &dyn TopicLookup, fx: &mut Effects) {
        let Kind::Consumer(consumer) = &self.kind else {
            return;
        };
        if consumer.is_all_classic() && self.limits.migration.downgrades() {
            let classic = consumer.to_classic(self.limits.classic, topics, fx);
            log::debug!("group {:?} is of the classic protocol again", self.name);
            self.kind = Kind::Classic(Box::new(classic));
        }
    }

    /// What time does.
    pub(crate) fn tick(&mut self, topics: &dyn TopicLookup, fx: &mut Effects) {
        match &mut self.kind {
            Kind::Classic(classic) => classic.tick(fx),
            Kind::Consumer(consumer) => {
                consumer.tick(fx);
                self.downgrade_if_all_are_classic(topics, fx);
            }
        }
    }

    /// Whether the rows may be committed. `knows_epochs`: the request can say that an epoch is stale.
    pub(crate) fn check_commit(
        &mut self,
        who: &Committer,
        rows: &[Row],
        knows_epochs: bool,
        fx: &Effects,
    ) -> Result<(), GroupError> {
        self.check_open()?;
        match &mut self.kind {
            Kind::Classic(classic) => {
                let instance = who.instance.as_deref();
                classic.check_commit(fx.now, &who.member, instance, who.generation)
            }
            Kind::Consumer(consumer) => {
                let rows: Vec<_> = rows.iter().map(|row| (row.id, row.partition)).collect();
                consumer.check_commit(&who.member, who.generation, &rows)?;
                if knows_epochs || !consumer.is_consumer(&who.member) {
                    return Ok(());
                }
                Err(GroupError::UnsupportedVersion)
            }
        }
    }

    /// Whether a producer may stage offsets for a member.
    pub(crate) fn check_transactional_commit(&mut self, who: &Committer) -> Result<(), GroupError> {
        self.check_open()?;
        let unnamed = who.generation < 0 && who.member.is_empty() && who.instance.is_none();
        match &mut self.kind {
            Kind::Classic(classic) => {
                let instance = who.instance.as_deref();
                classic.check_transactional_commit(&who.member, instance, who.generation)
            }
            Kind::Consumer(_) if unnamed => Ok(()),
            Kind::Consumer(consumer) => {
                let checked = consumer.check_commit(&who.member, who.generation, &[]);
                checked.map_err(|error| match error {
                    GroupError::StaleEpoch => GroupError::IllegalGeneration,
                    other => other,
                })
            }
        }
    }

    /// Whether who asks may see the offsets.
    pub(crate) fn check_fetch(&self, who: Option<&Committer>) -> Result<(), GroupError> {
        self.check_open()?;
        match (&self.kind, who) {
            (Kind::Consumer(consumer), Some(who)) => {
                consumer.check_fetch(&who.member, who.generation)
            }
            _ => Ok(()),
        }
    }

    /// For DescribeGroups.
    pub(crate) fn describe_classic(&self) -> Result<Description, GroupError> {
        self.check_open()?;
        match &self.kind {
            Kind::Classic(classic) => Ok(classic.describe()),
            Kind::Consumer(_) => Err(GroupError::WrongType),
        }
    }

    /// For ConsumerGroupDescribe.
    pub(crate) fn describe_consumer(&self) -> Result<ConsumerDescription, GroupError> {
        self.check_open()?;
        match &self.kind {
            Kind::Consumer(consumer) => Ok(consumer.describe()),
            Kind::Classic(_) => Err(GroupError::WrongType),
        }
    }

    /// State, kind and protocol type, for ListGroups.
    pub(crate) fn summary(&self) -> (&'static str, &'static str, MemberId) {
        match &self.kind {
            Kind::Classic(classic) => {
                let kind = classic.protocol_type().cloned();
                let kind = kind.unwrap_or_else(|| "".into());
                (classic.state_name(), "classic", kind)
            }
            Kind::Consumer(consumer) => (consumer.state_name(), "consumer", "consumer".into()),
        }
    }

    /// Which of these topics members read; `subscribed` says which topics classic subscriptions name.
    pub(crate) fn read_topics(
        &self,
        topics: &[&str],
        subscribed: impl FnOnce(&[&bytes::Bytes]) -> HashSet<String>,
    ) -> Result<HashSet<String>, GroupError> {
        self.check_open()?;
        let classic = match &self.kind {
            Kind::Classic(classic) => classic,
            Kind::Consumer(consumer) => {
                let read = topics.iter().filter(|topic| consumer.reads(topic));
                return Ok(read.map(|topic| (*topic).to_owned()).collect());
            }
        };
        if classic.is_empty() {
            return Ok(HashSet::new());
        }
        // What other protocols subscribe to we cannot know.
        if classic
            .protocol_type()
            .is_none_or(|kind| &**kind != "consumer")
        {
            return Err(GroupError::NotEmpty);
        }
        Ok(subscribed(&classic.subscriptions().unwrap_or_default()))
    }
}
