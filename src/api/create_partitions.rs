//! CreatePartitions: more partitions for a topic, usable when the answer is
//! out.

use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire::messages::create_partitions_request::CreatePartitionsTopic;
use seawall_net::wire::messages::create_partitions_response::CreatePartitionsTopicResult;
use seawall_net::wire::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer_from, text};
use crate::security::acl::Operation;
use crate::security::quota::Mutations;

/// The lowest version that is refused what is beyond its quota (KIP-599).
const STRICT_FROM: i16 = 3;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let broker = Arc::clone(call.broker);
    answer_from(call, &broker.state_workers(), respond)
}

fn respond(asked: &Asked<'_>, request: &CreatePartitionsRequest) -> CreatePartitionsResponse {
    let mut response = CreatePartitionsResponse::default();
    let mutations = asked.mutations(asked.version >= STRICT_FROM);
    for wanted in &request.topics {
        let mut row = CreatePartitionsTopicResult::default();
        row.name = text(wanted.name.as_str());
        if let Err((code, message)) =
            grow(asked, wanted, (request.validate_only, mutations.as_ref()))
        {
            row.error_code = code.code();
            row.error_message = Some(text(&message));
        }
        response.results.push(row);
    }
    response.throttle_time_ms = mutations.map_or(0, |mutations| mutations.throttle_ms());
    response
}

fn grow(
    asked: &Asked<'_>,
    wanted: &CreatePartitionsTopic,
    (validate_only, mutations): (bool, Option<&Mutations<'_>>),
) -> Result<(), (ErrorCode, String)> {
    let map = asked.broker.topics.load();
    let name = wanted.name.as_str();
    let allowed = asked.access().topic(Operation::Alter, name);
    allowed.map_err(|code| (code, String::new()))?;
    let topic = map.named(name);
    let topic = topic.map_err(|error| (ErrorCode::from(&error), error.to_string()))?;
    let now = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    if wanted.count <= now {
        let message = format!(
            "The topic {} currently has {now} partition(s); {} would not be an increase.",
            topic.name, wanted.count
        );
        return Err((ErrorCode::InvalidPartitions, message));
    }
    check_assignments(asked, wanted, now)?;
    if validate_only {
        return Ok(());
    }
    let added = usize::try_from(wanted.count - now).unwrap_or(0);
    if !mutations.is_none_or(|mutations| mutations.take(added)) {
        let why = "The throttling quota has been exceeded.".to_owned();
        return Err((ErrorCode::ThrottlingQuotaExceeded, why));
    }
    let grown = asked.broker.add_partitions(topic, wanted.count);
    grown.map_err(|error| (ErrorCode::from(&error), error.to_string()))
}

fn check_assignments(
    asked: &Asked<'_>,
    wanted: &CreatePartitionsTopic,
    now: i32,
) -> Result<(), (ErrorCode, String)> {
    let Some(assignments) = &wanted.assignments else {
        return Ok(());
    };
    let ours = [asked.broker.node_id()];
    let added = usize::try_from(wanted.count.saturating_sub(now)).unwrap_or(0);
    if assignments.len() == added && assignments.iter().all(|a| a.broker_ids == ours) {
        return Ok(());
    }
    let message = format!(
        "{added} additional partition(s) on broker {} are what can be assigned.",
        asked.broker.node_id()
    );
    Err((ErrorCode::InvalidReplicaAssignment, message))
}
