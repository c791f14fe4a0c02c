//! ElectLeaders: the one replica of every partition leads it, so that no
//! election is ever needed.

use seawall_net::Flow;
use seawall_net::wire::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use seawall_net::wire::messages::{ElectLeadersRequest, ElectLeadersResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};
use crate::security::acl::Operation;
use crate::topics::TopicMap;

/// The lowest version that can say that it is refused as a whole.
const ERROR_FROM: i16 = 1;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &ElectLeadersRequest) -> ElectLeadersResponse {
    let map = asked.broker.topics.load();
    let mut response = ElectLeadersResponse::default();
    if let Err(code) = asked.access().cluster(Operation::Alter) {
        // Version 0 has no error for the whole; like Kafka we leave out all rows.
        if asked.version >= ERROR_FROM {
            response.error_code = code.code();
        }
        return response;
    }
    // Asked for all partitions, those that have their leader are left out.
    for topic in request.topic_partitions.iter().flatten() {
        let mut result = ReplicaElectionResult::default();
        result.topic = text(topic.topic.as_str());
        for index in &topic.partitions {
            let mut row = PartitionResult::default();
            row.partition_id = *index;
            let (code, message) = verdict(&map, topic.topic.as_str(), *index);
            row.error_code = code.code();
            row.error_message = Some(text(&message));
            result.partition_result.push(row);
        }
        response.replica_election_results.push(result);
    }
    response
}

fn verdict(map: &TopicMap, name: &str, index: i32) -> (ErrorCode, String) {
    let slot = map.named(name).and_then(|topic| topic.slot(index));
    match slot {
        Ok(_) => {
            let why = "The partition has one replica, and that leads it.".to_owned();
            (ErrorCode::ElectionNotNeeded, why)
        }
        Err(error) => (ErrorCode::from(&error), error.to_string()),
    }
}
