//! ListOffsets: by place or by time.
//!
//! Times are looked up by the read workers of the log dir: the one place near
//! the hot path where records are decoded, by storage's bounded decoder.

use std::collections::HashSet;
use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire::messages::list_offsets_request::ListOffsetsPartition;
use seawall_net::wire::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use seawall_net::wire::messages::{ListOffsetsRequest, ListOffsetsResponse};
use seawall_storage::{Offset, TimedOffset, Timestamp};

use super::codes::ErrorCode;
use super::{Asked, Call, answer_from, text};
use crate::partition::Partition;
use crate::security::acl::Operation;
use crate::topics::TopicMap;

/// The lowest version that tells the epoch (KIP-320).
const LEADER_EPOCH_FROM: i16 = 4;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let pool = call.broker.read_workers();
    answer_from(call, &pool, respond)
}

fn respond(asked: &Asked<'_>, request: &ListOffsetsRequest) -> ListOffsetsResponse {
    let map = asked.broker.topics.load();
    let twins = twins(request);
    let mut response = ListOffsetsResponse::default();
    for topic in &request.topics {
        let mut result = ListOffsetsTopicResponse::default();
        result.name = text(topic.name.as_str());
        for part in &topic.partitions {
            let key = (topic.name.as_str(), part.partition_index);
            let there = if twins.contains(&key) {
                Err(ErrorCode::InvalidRequest)
            } else {
                let committed = request.isolation_level == 1;
                found(asked, &map, key.0, part, committed)
            };
            result
                .partitions
                .push(row(part.partition_index, there, asked.version));
        }
        response.topics.push(result);
    }
    response
}

/// Partitions named twice: neither is answered, as in Kafka.
fn twins(request: &ListOffsetsRequest) -> HashSet<(&str, i32)> {
    let mut seen = HashSet::new();
    let parts = request.topics.iter().flat_map(|topic| {
        let parts = topic.partitions.iter();
        parts.map(|part| (topic.name.as_str(), part.partition_index))
    });
    parts.filter(|key| !seen.insert(*key)).collect()
}

fn row(
    index: i32,
    found: Result<Option<Found>, ErrorCode>,
    version: i16,
) -> ListOffsetsPartitionResponse {
    let mut row = ListOffsetsPartitionResponse::default();
    row.partition_index = index;
    row.timestamp = -1;
    row.offset = -1;
    row.leader_epoch = -1;
    match found {
        Ok(Some(found)) => {
            row.timestamp = found.timestamp;
            row.offset = found.offset.get();
            if version >= LEADER_EPOCH_FROM {
                row.leader_epoch = found.leader_epoch;
            }
        }
        Ok(None) => {}
        Err(code) => row.error_code = code.code(),
    }
    row
}

struct Found {
    offset: Offset,
    timestamp: i64,
    leader_epoch: i32,
}

impl From<TimedOffset> for Found {
    fn from(timed: TimedOffset) -> Self {
        Self {
            offset: timed.offset,
            timestamp: timed.timestamp.get(),
            leader_epoch: timed.leader_epoch.get(),
        }
    }
}

/// The version that brought a special timestamp; below it, and for unknown
/// ones, a partition answers `UNSUPPORTED_VERSION`.
fn brought_by(timestamp: i64) -> i16 {
    match timestamp {
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL => 8,
        LATEST_TIERED => 9,
        EARLIEST_PENDING_UPLOAD => 11,
        ..EARLIEST_PENDING_UPLOAD => i16::MAX,
        _ => 0,
    }
}

fn found(
    by: &Asked<'_>,
    map: &TopicMap,
    topic: &str,
    asked: &ListOffsetsPartition,
    committed: bool,
) -> Result<Option<Found>, ErrorCode> {
    let topic = by.access().named(map, Operation::Describe, topic)?;
    let partition = topic.partition(asked.partition_index);
    let partition = partition.map_err(|e| ErrorCode::from(&e))?;
    if by.version < brought_by(asked.timestamp) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    check_epoch(partition, asked.current_leader_epoch)?;
    let limit = if committed {
        partition.last_stable_offset()
    } else {
        partition.high_watermark()
    };
    by_timestamp(partition, asked.timestamp, limit)
}

fn check_epoch(partition: &Partition, asked: i32) -> Result<(), ErrorCode> {
    let ours = partition.leader_epoch().get();
    match asked {
        ..0 => Ok(()),
        _ if asked < ours => Err(ErrorCode::FencedLeaderEpoch),
        _ if asked > ours => Err(ErrorCode::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

/// Without tiered storage all of the log is local: the local start is the log
/// start, nothing is tiered, and all of it would be pending upload.
fn by_timestamp(
    partition: &Arc<Partition>,
    timestamp: i64,
    limit: Offset,
) -> Result<Option<Found>, ErrorCode> {
    let view = partition.view();
    let place = |offset: Offset| {
        Ok(Some(Found {
            offset,
            timestamp: -1,
            leader_epoch: view.epoch_of(offset).get(),
        }))
    };
    let timed = match timestamp {
        LATEST => return place(limit),
        EARLIEST | EARLIEST_LOCAL => return place(view.start_offset()),
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => return Ok(None),
        MAX_TIMESTAMP => view.max_timestamp(limit),
        _ => view.offset_for_timestamp(Timestamp::new(timestamp), limit),
    };
    match timed {
        Ok(timed) => Ok(timed.map(Found::from)),
        Err(error) => Err(ErrorCode::from(&error)),
    }
}
