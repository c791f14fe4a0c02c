//! OffsetDelete: committed offsets that no member of the group could miss (KIP-496).

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use seawall_net::Flow;
use seawall_net::wire;
use seawall_net::wire::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use seawall_net::wire::messages::{OffsetDeleteRequest, OffsetDeleteResponse};
use seawall_net::wire::subscription::decode_subscription;

use super::codes::ErrorCode;
use super::slot::Slot;
use super::{Call, MALFORMED, reply, text};
use crate::groups::GroupError;
use crate::security::acl::Operation;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<OffsetDeleteRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let access = call.access();
    if let Err(code) = access.group(Operation::Delete, request.group_id.as_str()) {
        let mut refused = OffsetDeleteResponse::default();
        refused.error_code = code.code();
        answer(call.slot, refused, version);
        return Flow::Done;
    }
    let map = call.broker.topics.load();
    let named = request.topics.iter().flat_map(|topic| {
        let name: Arc<str> = topic.name.as_str().into();
        let partitions = topic.partitions.iter();
        partitions.map(move |row| (Arc::clone(&name), row.partition_index))
    });
    let mut known = Vec::new();
    let mut refused = Vec::new();
    for row in named {
        let topic = access.named(&map, Operation::Read, &row.0);
        match topic.map(|topic| topic.has_partition(row.1)) {
            Ok(true) => known.push(row),
            Ok(false) => refused.push((row, ErrorCode::UnknownTopicOrPartition)),
            Err(code @ ErrorCode::TopicAuthorizationFailed) => refused.push((row, code)),
            Err(_) => refused.push((row, ErrorCode::UnknownTopicOrPartition)),
        }
    }
    let slot = call.slot;
    let rows = known.clone();
    let then = move |deleted: Result<Vec<Result<(), GroupError>>, GroupError>| {
        let mut response = OffsetDeleteResponse::default();
        match deleted {
            Err(error) => response.error_code = ErrorCode::from(&error).code(),
            Ok(answers) => {
                let codes = answers.iter().map(|answer| match answer {
                    Ok(()) => ErrorCode::None,
                    Err(error) => ErrorCode::from(error),
                });
                let lost = refused.iter().map(|(row, code)| (row, *code));
                response.topics = topics(rows.iter().zip(codes).chain(lost));
            }
        }
        answer(slot, response, version);
    };
    let group = request.group_id.as_str();
    let groups = &call.broker.groups;
    groups.delete_offsets(group, known, subscribed, Box::new(then));
    Flow::Done
}

/// The throttle time stands behind the error.
fn answer(mut slot: Slot, mut response: OffsetDeleteResponse, version: i16) {
    response.throttle_time_ms = slot.pay();
    reply(slot, &response, version);
}

/// The topics that any of these subscriptions names.
fn subscribed(subscriptions: &[&Bytes]) -> HashSet<String> {
    let readable = subscriptions.iter();
    let readable = readable.filter_map(|bytes| decode_subscription(bytes).ok());
    readable
        .flat_map(|subscription| subscription.topics)
        .collect()
}

fn topics<'a>(
    rows: impl Iterator<Item = (&'a (Arc<str>, i32), ErrorCode)>,
) -> Vec<OffsetDeleteResponseTopic> {
    let mut topics: Vec<OffsetDeleteResponseTopic> = Vec::new();
    for ((name, partition), code) in rows {
        let mut row = OffsetDeleteResponsePartition::default();
        row.partition_index = *partition;
        row.error_code = code.code();
        match topics
            .iter_mut()
            .find(|topic| topic.name.as_str() == &**name)
        {
            Some(topic) => topic.partitions.push(row),
            None => {
                let mut topic = OffsetDeleteResponseTopic::default();
                topic.name = text(name);
                topic.partitions.push(row);
                topics.push(topic);
            }
        }
    }
    topics
}
