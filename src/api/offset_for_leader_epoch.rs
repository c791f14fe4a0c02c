//! OffsetForLeaderEpoch (KIP-320): where an epoch ended, so that a reader who
//! saw more of it than is left can tell.

use seawall_net::Flow;
use seawall_net::wire::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use seawall_net::wire::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use seawall_net::wire::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use seawall_storage::LeaderEpoch;

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};
use crate::security::acl::Operation;
use crate::topics::TopicMap;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(
    asked: &Asked<'_>,
    request: &OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let map = asked.broker.topics.load();
    let mut response = OffsetForLeaderEpochResponse::default();
    for topic in &request.topics {
        let mut result = OffsetForLeaderTopicResult::default();
        result.topic = text(topic.topic.as_str());
        let rows = topic.partitions.iter();
        result.partitions = rows
            .map(|part| row(asked, &map, topic.topic.as_str(), part))
            .collect();
        response.topics.push(result);
    }
    response
}

fn row(
    by: &Asked<'_>,
    map: &TopicMap,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> EpochEndOffset {
    let mut row = EpochEndOffset::default();
    row.partition = asked.partition;
    row.leader_epoch = -1;
    row.end_offset = -1;
    let may = by.access().topic(Operation::Describe, topic);
    match may.and_then(|()| end_of(map, topic, asked)) {
        Ok(Some((epoch, end))) => {
            row.leader_epoch = epoch;
            row.end_offset = end;
        }
        Ok(None) => {}
        Err(code) => row.error_code = code.code(),
    }
    row
}

fn end_of(
    map: &TopicMap,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> Result<Option<(i32, i64)>, ErrorCode> {
    let found = map.named(topic).and_then(|t| t.partition(asked.partition));
    let view = found.map_err(|e| ErrorCode::from(&e))?.view();
    match asked.current_leader_epoch {
        epoch if epoch >= 0 && epoch < view.leader_epoch().get() => {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        epoch if epoch > view.leader_epoch().get() => return Err(ErrorCode::UnknownLeaderEpoch),
        _ => {}
    }
    let end = view.end_offset_for_epoch(LeaderEpoch::new(asked.leader_epoch));
    Ok(end.map(|(epoch, offset)| (epoch.get(), offset.get())))
}
