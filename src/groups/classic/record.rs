//! A classic group as its file keeps it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::member::{Member, Protocol};
use super::{Classic, ClassicLimits, MemberId, State};
use crate::groups::hex;

/// The last generation that all members had an assignment of, or that the group is empty.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClassicRecord {
    /// Of that generation.
    pub(crate) generation: i32,
    /// "consumer", "connect", ...
    pub(crate) protocol_type: Option<Arc<str>>,
    /// The assignor.
    pub(crate) protocol: Option<Arc<str>>,
    /// Who assigned.
    pub(crate) leader: Option<MemberId>,
    /// By id.
    #[serde(default)]
    pub(crate) members: BTreeMap<MemberId, MemberRecord>,
}

/// A member of it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemberRecord {
    /// group.instance.id
    pub(crate) instance: Option<Arc<str>>,
    /// client.id
    pub(crate) client_id: Arc<str>,
    /// `/address`
    pub(crate) client_host: Arc<str>,
    /// Milliseconds.
    pub(crate) session_timeout_ms: u32,
    /// Milliseconds.
    pub(crate) rebalance_timeout_ms: u32,
    /// Name and metadata (hexadecimal) of each assignor it knows, best liked first.
    pub(crate) protocols: Vec<(Arc<str>, String)>,
    /// Hexadecimal.
    pub(crate) assignment: String,
}

impl Classic {
    /// A group as its file tells of it. Sessions begin anew: nobody could send heartbeats while the broker was away.
    pub(crate) fn from_record(
        limits: ClassicLimits,
        record: Arc<ClassicRecord>,
        now: Instant,
    ) -> Self {
        let mut group = Self::new(limits);
        group.generation = record.generation;
        group.protocol_type.clone_from(&record.protocol_type);
        group.protocol.clone_from(&record.protocol);
        group.leader.clone_from(&record.leader);
        for (id, member) in &record.members {
            if let Some(instance) = &member.instance {
                let instance = Arc::clone(instance);
                group.instances.insert(instance, Arc::clone(id));
            }
            group.members.insert(Arc::clone(id), member.to_member(now));
        }
        if !group.members.is_empty() {
            group.state = State::Stable;
        }
        group.record = record;
        group
    }

    pub(super) fn make_record(&mut self) {
        let members = self.members.iter();
        self.record = Arc::new(ClassicRecord {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            members: members
                .map(|(id, member)| (Arc::clone(id), member.to_record()))
                .collect(),
        });
    }
}

impl Member {
    fn to_record(&self) -> MemberRecord {
        let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let protocols = self.protocols.iter();
        MemberRecord {
            instance: self.instance.clone(),
            client_id: Arc::clone(&self.client_id),
            client_host: Arc::clone(&self.client_host),
            session_timeout_ms: ms(self.session_timeout),
            rebalance_timeout_ms: ms(self.rebalance_timeout),
            protocols: protocols
                .map(|p| (Arc::clone(&p.name), hex::encode(&p.metadata)))
                .collect(),
            assignment: hex::encode(&self.assignment),
        }
    }
}

impl MemberRecord {
    fn to_member(&self, now: Instant) -> Member {
        let session_timeout = Duration::from_millis(self.session_timeout_ms.into());
        let protocols = self.protocols.iter();
        Member {
            instance: self.instance.clone(),
            client_id: Arc::clone(&self.client_id),
            client_host: Arc::clone(&self.client_host),
            rebalance_timeout: Duration::from_millis(self.rebalance_timeout_ms.into()),
            session_timeout,
            protocols: protocols
                .map(|(name, metadata)| Protocol {
                    name: Arc::clone(name),
                    metadata: hex::decode(metadata),
                })
                .collect(),
            assignment: hex::decode(&self.assignment),
            is_new: false,
            expires: now + session_timeout,
            join: None,
            sync: None,
            synced: true,
        }
    }
}
