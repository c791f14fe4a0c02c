//! DescribeProducers: who writes to a partition, and whose transaction is open there.

use seawall_net::Flow;
use seawall_net::wire::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use seawall_net::wire::messages::{DescribeProducersRequest, DescribeProducersResponse};
use seawall_storage::{ProducerEntry, ProducerId};

use super::codes::ErrorCode;
use super::{Asked, Call, answer_from, text};
use crate::security::acl::Operation;
use crate::topics::TopicMap;

/// Stands for what is not known.
const NONE: i64 = -1;

pub(super) fn handle(call: Call<'_>) -> Flow {
    // It takes the log's lock, which may be held over a write.
    let pool = call.broker.read_workers();
    answer_from(call, &pool, respond)
}

fn respond(asked: &Asked<'_>, request: &DescribeProducersRequest) -> DescribeProducersResponse {
    let map = asked.broker.topics.load();
    let mut response = DescribeProducersResponse::default();
    for topic in &request.topics {
        let mut rows = TopicResponse::default();
        rows.name = text(topic.name.as_str());
        let indexes = topic.partition_indexes.iter();
        rows.partitions = indexes
            .map(|index| row(asked, &map, topic.name.as_str(), *index))
            .collect();
        response.topics.push(rows);
    }
    response
}

fn row(asked: &Asked<'_>, map: &TopicMap, topic: &str, index: i32) -> PartitionResponse {
    let mut row = PartitionResponse::default();
    row.partition_index = index;
    if let Err(code) = asked.access().topic(Operation::Read, topic) {
        row.error_code = code.code();
        return row;
    }
    let partition = map.named(topic).and_then(|topic| topic.partition(index));
    match partition {
        Ok(partition) => {
            let producers = partition.producers();
            row.active_producers = producers.iter().map(|(id, e)| state(*id, e)).collect();
        }
        Err(error) => {
            row.error_code = ErrorCode::from(&error).code();
            row.error_message = Some(text(&error.to_string()));
        }
    }
    row
}

fn state(id: ProducerId, entry: &ProducerEntry) -> ProducerState {
    let mut state = ProducerState::default();
    state.producer_id = id.get();
    state.producer_epoch = i32::from(entry.epoch.get());
    state.last_sequence = entry.last_batch().map_or(-1, |b| b.last_sequence.get());
    state.last_timestamp = entry.last_append.get();
    state.coordinator_epoch = entry.coordinator_epoch.unwrap_or(-1);
    state.current_txn_start_offset = entry.open.map_or(NONE, |first| first.get());
    state
}
