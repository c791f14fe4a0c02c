//! A consumer group as ConsumerGroupDescribe shows it.

use std::sync::Arc;

use super::{Consumer, MemberId, Partitions};

/// See the module.
pub(crate) struct ConsumerDescription {
    /// Kafka's name of the state.
    pub(crate) state: &'static str,
    /// Raised with every change that needs an assignment.
    pub(crate) epoch: i32,
    /// Of the target.
    pub(crate) assignment_epoch: i32,
    /// How the next target is computed.
    pub(crate) assignor: &'static str,
    /// In the order of their ids.
    pub(crate) members: Vec<DescribedConsumer>,
}

/// A member of it.
pub(crate) struct DescribedConsumer {
    /// Its id.
    pub(crate) id: MemberId,
    /// group.instance.id
    pub(crate) instance: Option<Arc<str>>,
    /// client.rack
    pub(crate) rack: Option<Arc<str>>,
    /// client.id
    pub(crate) client_id: Arc<str>,
    /// `/address`
    pub(crate) client_host: Arc<str>,
    /// How far it is.
    pub(crate) epoch: i32,
    /// The topics it names.
    pub(crate) names: Vec<Arc<str>>,
    /// The expression that others must match.
    pub(crate) regex: Option<Arc<str>>,
    /// What it has.
    pub(crate) assigned: Partitions,
    /// What it is to have.
    pub(crate) target: Partitions,
    /// Whether it speaks the classic protocol.
    pub(crate) is_classic: bool,
}

impl Consumer {
    /// For ConsumerGroupDescribe.
    pub(crate) fn describe(&self) -> ConsumerDescription {
        let members = self.members.iter().map(|(id, member)| DescribedConsumer {
            id: Arc::clone(id),
            instance: member.instance.clone(),
            rack: member.rack.clone(),
            client_id: Arc::clone(&member.client_id),
            client_host: Arc::clone(&member.client_host),
            epoch: member.epoch,
            names: member.names.iter().map(Arc::clone).collect(),
            regex: member
                .pattern
                .as_ref()
                .map(|pattern| Arc::clone(&pattern.text)),
            assigned: member.partitions(),
            target: self.target.get(id).cloned().unwrap_or_default(),
            is_classic: member.classic.is_some(),
        });
        ConsumerDescription {
            state: self.state_name(),
            epoch: self.epoch,
            assignment_epoch: self.assignment_epoch,
            assignor: self.assignor().name(),
            members: members.collect(),
        }
    }
}
