//! DeleteRecords: moves the log start of partitions, durably; the files below
//! it follow.

use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire::messages::delete_records_request::DeleteRecordsPartition;
use seawall_net::wire::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use seawall_net::wire::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use seawall_storage::Offset;

use super::codes::ErrorCode;
use super::{Asked, Call, answer_from, text};
use crate::security::acl::Operation;
use crate::topics::TopicMap;

/// Stands for the high watermark.
const HIGH_WATERMARK: i64 = -1;
/// The log start in an answer with an error.
const NO_OFFSET: i64 = -1;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let broker = Arc::clone(call.broker);
    answer_from(call, &broker.state_workers(), respond)
}

fn respond(asked: &Asked<'_>, request: &DeleteRecordsRequest) -> DeleteRecordsResponse {
    let map = asked.broker.topics.load();
    let mut response = DeleteRecordsResponse::default();
    for topic in &request.topics {
        let mut result = DeleteRecordsTopicResult::default();
        result.name = text(topic.name.as_str());
        for part in &topic.partitions {
            let mut row = DeleteRecordsPartitionResult::default();
            row.partition_index = part.partition_index;
            match delete(asked, &map, topic.name.as_str(), part) {
                Ok(start) => row.low_watermark = start.get(),
                Err(code) => {
                    row.low_watermark = NO_OFFSET;
                    row.error_code = code.code();
                }
            }
            result.partitions.push(row);
        }
        response.topics.push(result);
    }
    response
}

fn delete(
    asked: &Asked<'_>,
    map: &TopicMap,
    name: &str,
    part: &DeleteRecordsPartition,
) -> Result<Offset, ErrorCode> {
    let topic = asked.access().named(map, Operation::Delete, name)?;
    let partition = topic
        .partition(part.partition_index)
        .map_err(|error| ErrorCode::from(&error))?;
    if !topic.config.load().cleanup_policy.delete {
        return Err(ErrorCode::PolicyViolation);
    }
    let upto = (part.offset != HIGH_WATERMARK).then(|| Offset::new(part.offset));
    partition
        .delete_records(upto)
        .map_err(|error| ErrorCode::from(&error))
}
