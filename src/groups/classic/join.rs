//! JoinGroup: who comes in, when a rebalance begins, when its join phase ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::member::{Member, Protocol};
use super::{Classic, MemberId, NEW_MEMBER_JOIN, Preparing, State};
use crate::groups::effects::{Effects, Reply};
use crate::groups::error::GroupError;

/// A request to join.
pub(crate) struct Join {
    /// Empty for who comes for the first time.
    pub(crate) member: MemberId,
    /// The id it gets if it has none.
    pub(crate) new_id: MemberId,
    /// group.instance.id
    pub(crate) instance: Option<Arc<str>>,
    /// client.id
    pub(crate) client_id: Arc<str>,
    /// `/address`
    pub(crate) client_host: Arc<str>,
    /// session.timeout.ms
    pub(crate) session_timeout: Duration,
    /// max.poll.interval.ms, mostly
    pub(crate) rebalance_timeout: Duration,
    /// "consumer", "connect", ...
    pub(crate) protocol_type: Arc<str>,
    /// In the order of preference.
    pub(crate) protocols: Vec<Protocol>,
    /// Who has no id must come again with one (KIP-394, from version 4).
    pub(crate) needs_id: bool,
    /// A static leader may be told to leave the assignment as it is (KIP-814, from version 9).
    pub(crate) may_skip_assignment: bool,
}

/// What a member is told at the end of the join phase.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Joined {
    /// The generation that has begun, or goes on.
    pub(crate) generation: i32,
    /// As all members have it.
    pub(crate) protocol_type: Arc<str>,
    /// The assignor that the leader is to use.
    pub(crate) protocol: Arc<str>,
    /// Who is to assign.
    pub(crate) leader: MemberId,
    /// Whom the answer is for.
    pub(crate) member: MemberId,
    /// For the leader alone.
    pub(crate) members: Vec<JoinedMember>,
    /// The leader need not assign.
    pub(crate) skip_assignment: bool,
}

/// A member as its leader sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct JoinedMember {
    /// Its id.
    pub(crate) id: MemberId,
    /// group.instance.id
    pub(crate) instance: Option<Arc<str>>,
    /// What it tells the assignor.
    pub(crate) metadata: Bytes,
}

/// Why a member is not in, under the id it may come back with.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct JoinRefused {
    /// Why.
    pub(crate) error: GroupError,
    /// As asked, or the new one.
    pub(crate) member: MemberId,
}

/// The way back to a member that joins.
pub(crate) type JoinReply = Reply<Result<Joined, JoinRefused>>;

impl JoinRefused {
    pub(super) fn of(error: GroupError, member: &str) -> Self {
        Self {
            error,
            member: member.into(),
        }
    }
}

impl Classic {
    /// A member joins, for the first time or again.
    pub(crate) fn join(&mut self, join: Join, reply: JoinReply, fx: &mut Effects) {
        if let Err(error) = self.may_join(&join) {
            if error == GroupError::Full {
                self.pending.remove(&join.member);
            }
            fx.answer(reply, Err(JoinRefused::of(error, &join.member)));
            return;
        }
        let known_instance = join.instance.as_ref();
        let holder = known_instance.and_then(|instance| self.instances.get(instance).cloned());
        match holder {
            Some(holder) if join.member.is_empty() => {
                self.replace_static(&holder, join, reply, fx);
            }
            _ if !join.member.is_empty() && self.members.contains_key(&join.member) => {
                self.join_again(join, reply, fx);
            }
            _ if join.member.is_empty() && join.instance.is_none() && join.needs_id => {
                let expires = fx.now + join.session_timeout;
                self.pending.insert(Arc::clone(&join.new_id), expires);
                fx.wake_at(expires);
                let refused = JoinRefused::of(GroupError::MemberIdRequired, &join.new_id);
                fx.answer(reply, Err(refused));
            }
            _ => {
                self.pending.remove(&join.member);
                self.add(join, reply, fx);
            }
        }
    }

    fn may_join(&self, join: &Join) -> Result<(), GroupError> {
        if !self.has_room_for(&join.member) {
            return Err(GroupError::Full);
        }
        if !self.knows_one_of(join) {
            return Err(GroupError::InconsistentProtocol);
        }
        if join.member.is_empty() {
            return Ok(());
        }
        if self.pending.contains_key(&join.member) && join.instance.is_none() {
            return Ok(());
        }
        self.check_member(&join.member, join.instance.as_deref())
    }

    fn has_room_for(&self, member: &str) -> bool {
        let max = self.limits.members_max;
        match self.state {
            State::Empty => max > 0,
            State::Preparing(_) => {
                let waiting = || self.members.values().filter(|m| m.join.is_some()).count();
                let waits = self.members.get(member).is_some_and(|m| m.join.is_some());
                waits || waiting() < max
            }
            State::Completing | State::Stable => {
                self.members.contains_key(member) || self.members.len() < max
            }
        }
    }

    /// Whether the group can agree with the member on an assignor.
    fn knows_one_of(&self, join: &Join) -> bool {
        if self.members.is_empty() {
            return !join.protocol_type.is_empty() && !join.protocols.is_empty();
        }
        let all_know = |p: &Protocol| self.members.values().all(|m| m.knows(&p.name));
        self.protocol_type.as_ref() == Some(&join.protocol_type)
            && join.protocols.iter().any(all_know)
    }

    fn add(&mut self, join: Join, reply: JoinReply, fx: &mut Effects) {
        let id = if join.member.is_empty() {
            join.new_id
        } else {
            join.member
        };
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type);
        }
        if let Some(instance) = &join.instance {
            self.instances.insert(Arc::clone(instance), Arc::clone(&id));
        }
        let expires = fx.now + NEW_MEMBER_JOIN;
        fx.wake_at(expires);
        let member = Member {
            instance: join.instance,
            client_id: join.client_id,
            client_host: join.client_host,
            rebalance_timeout: join.rebalance_timeout,
            session_timeout: join.session_timeout,
            protocols: join.protocols,
            assignment: Bytes::new(),
            is_new: true,
            expires,
            join: Some(reply),
            sync: None,
            synced: false,
        };
        self.leader.get_or_insert_with(|| Arc::clone(&id));
        self.members.insert(id, member);
        if let State::Preparing(Preparing {
            gathering: Some(gathering),
            ..
        }) = &mut self.state
        {
            gathering.more = true;
        }
        self.go_on(fx);
    }

    /// A rebalance is on, with or without us having begun it.
    fn go_on(&mut self, fx: &mut Effects) {
        if matches!(self.state, State::Preparing(_)) {
            self.complete_join_if_all_are_here(fx);
        } else {
            self.rebalance(fx);
        }
    }

    fn join_again(&mut self, join: Join, reply: JoinReply, fx: &mut Effects) {
        let id = Arc::clone(&join.member);
        let same = self
            .members
            .get(&id)
            .is_some_and(|m| m.protocols == join.protocols);
        let leads = self.leader.as_ref() == Some(&id);
        let told = match self.state {
            // Its answer was lost.
            State::Completing => same,
            // Nothing has changed, so nobody is disturbed. The leader is: it may have seen that the topics have.
            State::Stable => same && !leads,
            State::Empty | State::Preparing(_) => false,
        };
        if told {
            self.keep_alive(&id, fx.now);
            let joined = self.joined(&id, matches!(self.state, State::Completing));
            fx.answer(reply, joined);
            return;
        }
        self.update(&id, join, reply, fx);
        self.go_on(fx);
    }

    fn update(&mut self, id: &str, join: Join, reply: JoinReply, fx: &mut Effects) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        // An earlier try of the same member, on a connection that it has given up.
        member.refuse(id, GroupError::RebalanceInProgress, fx);
        member.protocols = join.protocols;
        member.rebalance_timeout = join.rebalance_timeout;
        member.session_timeout = join.session_timeout;
        member.client_id = join.client_id;
        member.client_host = join.client_host;
        member.join = Some(reply);
        if !member.is_new {
            member.expires = fx.now + member.session_timeout;
            fx.wake_at(member.expires);
        }
    }

    /// A static member has been restarted: it takes the place of its former self, which is fenced (KIP-345).
    fn replace_static(
        &mut self,
        holder: &MemberId,
        join: Join,
        reply: JoinReply,
        fx: &mut Effects,
    ) {
        let id = Arc::clone(&join.new_id);
        let former_leader = self.leader.clone();
        let may_skip = join.may_skip_assignment;
        let Some(mut member) = self.members.remove(holder) else {
            return;
        };
        member.refuse(holder, GroupError::FencedInstance, fx);
        member.synced = false;
        self.members.insert(Arc::clone(&id), member);
        if let Some(instance) = &join.instance {
            self.instances.insert(Arc::clone(instance), Arc::clone(&id));
        }
        if self.leader.as_ref() == Some(holder) {
            self.leader = Some(Arc::clone(&id));
        }
        self.update(&id, join, reply, fx);
        let undisturbed =
            matches!(self.state, State::Stable) && self.select_protocol() == self.protocol;
        if undisturbed {
            self.answer_replaced(&id, former_leader, may_skip, fx);
        } else {
            self.go_on(fx);
        }
    }

    /// The generation goes on with the same assignment. Before KIP-814 a leader that comes back must not be told that it
    /// leads, or it would assign.
    fn answer_replaced(
        &mut self,
        id: &MemberId,
        former_leader: Option<MemberId>,
        may_skip: bool,
        fx: &mut Effects,
    ) {
        if let Some(member) = self.members.get_mut(id) {
            member.synced = true;
        }
        self.make_record();
        fx.store();
        let leads = self.leader.as_ref() == Some(id);
        let mut joined = self.joined(id, leads && may_skip);
        if let Ok(joined) = &mut joined {
            joined.skip_assignment = leads && may_skip;
            if let Some(former) = former_leader.filter(|_| leads && !may_skip) {
                joined.leader = former;
            }
        }
        let reply = self.members.get_mut(id).and_then(|m| m.join.take());
        let member = Arc::clone(id);
        if let Some(reply) = reply {
            fx.when_stored(move |stored| {
                reply(match stored {
                    Ok(()) => joined,
                    Err(_) => Err(JoinRefused::of(GroupError::Unavailable, &member)),
                });
            });
        }
    }

    pub(super) fn complete_join_if_all_are_here(&mut self, fx: &mut Effects) {
        let State::Preparing(Preparing {
            gathering: None, ..
        }) = self.state
        else {
            return;
        };
        if self.pending.is_empty() && self.members.values().all(|m| m.join.is_some()) {
            self.complete_join(fx);
        }
    }

    /// The join phase is over. Who is not here is out, but for static members, which have until the end of their
    /// sessions.
    pub(super) fn complete_join(&mut self, fx: &mut Effects) {
        let missing = self.members.iter();
        let missing = missing.filter(|(_, m)| m.join.is_none() && m.instance.is_none());
        let missing: Vec<MemberId> = missing.map(|(id, _)| Arc::clone(id)).collect();
        for id in missing {
            self.remove(&id, GroupError::UnknownMember, fx);
        }
        if self.members.is_empty() {
            return self.become_empty(fx);
        }
        let mut here = self.members.iter().filter(|(_, m)| m.join.is_some());
        let leads_here = |(id, _): &(&MemberId, &Member)| Some(*id) == self.leader.as_ref();
        let Some(leader) = here.clone().find(leads_here).or_else(|| here.next()) else {
            let by = fx.now + self.rebalance_timeout();
            self.state = State::Preparing(Preparing {
                by,
                gathering: None,
            });
            return fx.wake_at(by);
        };
        self.leader = Some(Arc::clone(leader.0));
        self.begin_generation(fx);
    }

    fn begin_generation(&mut self, fx: &mut Effects) {
        self.next_generation();
        self.protocol = self.select_protocol();
        self.state = State::Completing;
        let sync_by = fx.now + self.rebalance_timeout();
        self.sync_by = Some(sync_by);
        fx.wake_at(sync_by);
        let ids: Vec<MemberId> = self.members.keys().cloned().collect();
        for id in ids {
            let joined = self.joined(&id, true);
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            member.is_new = false;
            member.synced = false;
            member.assignment = Bytes::new();
            member.expires = fx.now + member.session_timeout;
            fx.wake_at(member.expires);
            if let Some(reply) = member.join.take() {
                fx.answer(reply, joined);
            }
        }
    }

    pub(super) fn become_empty(&mut self, fx: &mut Effects) {
        self.next_generation();
        self.state = State::Empty;
        self.protocol = None;
        self.leader = None;
        self.sync_by = None;
        self.make_record();
        fx.store();
    }

    fn next_generation(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
    }

    /// The generation as a member is told of it; the leader also learns who the others are, if `with_members`.
    fn joined(&self, id: &MemberId, with_members: bool) -> Result<Joined, JoinRefused> {
        let (Some(protocol), Some(leader)) = (&self.protocol, &self.leader) else {
            return Err(JoinRefused::of(GroupError::UnknownMember, id));
        };
        let members = if with_members && leader == id {
            self.members_for_leader(protocol)
        } else {
            Vec::new()
        };
        Ok(Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone().unwrap_or_else(|| "".into()),
            protocol: Arc::clone(protocol),
            leader: Arc::clone(leader),
            member: Arc::clone(id),
            members,
            skip_assignment: false,
        })
    }

    fn members_for_leader(&self, protocol: &str) -> Vec<JoinedMember> {
        let members = self.members.iter();
        members
            .map(|(id, member)| JoinedMember {
                id: Arc::clone(id),
                instance: member.instance.clone(),
                metadata: member.metadata(protocol).cloned().unwrap_or_default(),
            })
            .collect()
    }

    /// Among the assignors that all know, the one that most members like best.
    pub(super) fn select_protocol(&self) -> Option<Arc<str>> {
        let first = self.members.values().next()?;
        let all_know = |p: &&Protocol| self.members.values().all(|m| m.knows(&p.name));
        let common: Vec<&Protocol> = first.protocols.iter().filter(all_know).collect();
        let likes = |m: &Member, p: &Protocol| {
            let mut liked = m.protocols.iter();
            liked
                .find(|own| common.iter().any(|c| c.name == own.name))
                .map(|own| &own.name)
                == Some(&p.name)
        };
        let votes = |p: &&&Protocol| self.members.values().filter(|m| likes(m, p)).count();
        // The earlier one wins a draw.
        let best = common.iter().rev().max_by_key(votes)?;
        Some(Arc::clone(&best.name))
    }
}
