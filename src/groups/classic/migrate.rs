//! Members of a classic group on their way to the consumer protocol, or back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::member::{Member, Protocol};
use super::{Classic, ClassicLimits, MemberId, State};
use crate::groups::effects::Effects;
use crate::groups::error::GroupError;

/// A member without what it waits for.
pub(crate) struct Emigrant {
    /// group.instance.id
    pub(crate) instance: Option<Arc<str>>,
    /// client.id
    pub(crate) client_id: Arc<str>,
    /// `/address`
    pub(crate) client_host: Arc<str>,
    /// Its time to join again.
    pub(crate) rebalance_timeout: Duration,
    /// Its time between heartbeats.
    pub(crate) session_timeout: Duration,
    /// In the order of its preference.
    pub(crate) protocols: Vec<Protocol>,
    /// The one in force.
    pub(crate) protocol: Option<Arc<str>>,
    /// What it reads by.
    pub(crate) assignment: Bytes,
}

impl Classic {
    /// Of the last rebalance.
    pub(crate) fn generation(&self) -> i32 {
        self.generation
    }

    /// All members as they are.
    pub(crate) fn emigrants(&self) -> Vec<(MemberId, Emigrant)> {
        let members = self.members.iter().map(|(id, member)| {
            let emigrant = Emigrant {
                instance: member.instance.clone(),
                client_id: Arc::clone(&member.client_id),
                client_host: Arc::clone(&member.client_host),
                rebalance_timeout: member.rebalance_timeout,
                session_timeout: member.session_timeout,
                protocols: member.protocols.clone(),
                protocol: self.protocol.clone(),
                assignment: member.assignment.clone(),
            };
            (Arc::clone(id), emigrant)
        });
        members.collect()
    }

    /// The group goes on elsewhere: who waits here must join again there.
    pub(crate) fn dismiss(&mut self, fx: &mut Effects) {
        for (id, member) in &mut self.members {
            member.refuse(id, GroupError::RebalanceInProgress, fx);
        }
    }

    /// A group of members that have had assignments and are to join again.
    pub(crate) fn from_emigrants(
        limits: ClassicLimits,
        (protocol_type, generation): (&str, i32),
        members: Vec<(MemberId, Emigrant)>,
        fx: &mut Effects,
    ) -> Self {
        let mut group = Self::new(limits);
        group.generation = generation;
        group.protocol_type = Some(protocol_type.into());
        for (id, emigrant) in members {
            if let Some(instance) = &emigrant.instance {
                let instance = Arc::clone(instance);
                group.instances.insert(instance, Arc::clone(&id));
            }
            fx.wake_at(fx.now + emigrant.session_timeout);
            group.members.insert(id, emigrant.settle(fx));
        }
        group.leader = group.members.keys().next().cloned();
        group.protocol = group.select_protocol();
        group.state = State::Stable;
        group.make_record();
        fx.store();
        group.rebalance(fx);
        group
    }
}

impl Emigrant {
    fn settle(self, fx: &Effects) -> Member {
        Member {
            instance: self.instance,
            client_id: self.client_id,
            client_host: self.client_host,
            rebalance_timeout: self.rebalance_timeout,
            session_timeout: self.session_timeout,
            protocols: self.protocols,
            assignment: self.assignment,
            is_new: false,
            expires: fx.now + self.session_timeout,
            join: None,
            sync: None,
            synced: true,
        }
    }
}
