//! The operations a client may be told it is allowed (KIP-430).
//!
//! Owns: which operations each kind of resource knows. Without an authorizer everybody may do all of
//! them, as in Kafka.

use super::gates::Access;
use crate::security::acl::{CLUSTER_NAME, Operation, Operations, ResourceType};

/// Not asked for.
pub(super) const NOT_ASKED: i32 = i32::MIN;

const fn set(operations: &[Operation]) -> Operations {
    let mut all = Operations::NONE;
    let mut at = 0;
    while at < operations.len() {
        all = all.and(Operations::of(operations[at]));
        at += 1;
    }
    all
}

const ON_TOPIC: Operations = set(&[
    Operation::Read,
    Operation::Write,
    Operation::Create,
    Operation::Delete,
    Operation::Alter,
    Operation::Describe,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
]);
const ON_GROUP: Operations = set(&[
    Operation::Read,
    Operation::Delete,
    Operation::Describe,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
]);
const ON_CLUSTER: Operations = set(&[
    Operation::Create,
    Operation::Alter,
    Operation::Describe,
    Operation::ClusterAction,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
    Operation::IdempotentWrite,
]);

impl Access<'_> {
    fn operations(&self, (resource, name): (ResourceType, &str), known: Operations) -> i32 {
        let may = self.authorizer.operations(self.session, resource, name);
        may.within(known).bits()
    }

    /// The field of a topic.
    pub(super) fn on_topic(&self, asked: bool, name: &str) -> i32 {
        if !asked {
            return NOT_ASKED;
        }
        self.operations((ResourceType::Topic, name), ON_TOPIC)
    }

    /// The field of a group.
    pub(super) fn on_group(&self, asked: bool, id: &str) -> i32 {
        if !asked {
            return NOT_ASKED;
        }
        self.operations((ResourceType::Group, id), ON_GROUP)
    }

    /// The field of the cluster: nothing for those who may not describe it.
    pub(super) fn on_cluster(&self, asked: bool) -> i32 {
        if !asked {
            return NOT_ASKED;
        }
        if self.cluster(Operation::Describe).is_err() {
            return 0;
        }
        self.operations((ResourceType::Cluster, CLUSTER_NAME), ON_CLUSTER)
    }
}
