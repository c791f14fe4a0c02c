//! AlterPartitionReassignments: every partition is where it can only be, on
//! this broker.

use seawall_net::Flow;
use seawall_net::wire::messages::alter_partition_reassignments_request::ReassignablePartition;
use seawall_net::wire::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use seawall_net::wire::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};
use crate::security::acl::Operation;
use crate::topics::TopicMap;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(
    asked: &Asked<'_>,
    request: &AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let map = asked.broker.topics.load();
    let mut response = AlterPartitionReassignmentsResponse::default();
    if asked.version >= 1 {
        response.allow_replication_factor_change = request.allow_replication_factor_change;
    }
    if let Err(code) = asked.access().cluster(Operation::Alter) {
        response.error_code = code.code();
        return response;
    }
    for topic in &request.topics {
        let mut result = ReassignableTopicResponse::default();
        result.name = text(topic.name.as_str());
        for part in &topic.partitions {
            let mut row = ReassignablePartitionResponse::default();
            row.partition_index = part.partition_index;
            let node = asked.broker.node_id();
            if let Err((code, message)) = check(&map, topic.name.as_str(), part, node) {
                row.error_code = code.code();
                row.error_message = Some(text(&message));
            }
            result.partitions.push(row);
        }
        response.responses.push(result);
    }
    response
}

fn check(
    map: &TopicMap,
    name: &str,
    part: &ReassignablePartition,
    node: i32,
) -> Result<(), (ErrorCode, String)> {
    let slot = map
        .named(name)
        .and_then(|topic| topic.slot(part.partition_index));
    slot.map_err(|error| (ErrorCode::from(&error), error.to_string()))?;
    match part.replicas.as_deref() {
        None => {
            let why = "No reassignment is in progress.".to_owned();
            Err((ErrorCode::NoReassignmentInProgress, why))
        }
        Some([one]) if *one == node => Ok(()),
        Some(_) => {
            let why = format!("There is one copy of each partition, and broker {node} has it.");
            Err((ErrorCode::InvalidReplicaAssignment, why))
        }
    }
}
