//! OffsetCommit: how far a group has read; answered when it is on stable storage.

use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire;
use seawall_net::wire::messages::offset_commit_request::OffsetCommitRequestTopic;
use seawall_net::wire::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use seawall_net::wire::messages::{OffsetCommitRequest, OffsetCommitResponse};

use super::codes::ErrorCode;
use super::offset_rows::{AskedOffset, Keep};
use super::{Call, MALFORMED, reply, text, topic_id_from_wire};
use crate::groups::{Committer, GroupError, Row};
use crate::security::acl::Operation;
use crate::topics::Topic;

/// The lowest version that names topics by id.
const IDS_FROM: i16 = 10;
/// Versions that say how long the offsets are to be kept.
const RETENTION_UP_TO: i16 = 4;
/// The lowest version that knows member epochs (KIP-848).
const EPOCHS_FROM: i16 = 9;
/// The lowest version that can say that there is no such group.
const NOT_FOUND_FROM: i16 = 9;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<OffsetCommitRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let may = call
        .access()
        .group(Operation::Read, request.group_id.as_str());
    let (rows, mut response) = sort_out(&call, may, &request);
    if may.is_err() {
        reply(call.slot, &response, version);
        return Flow::Done;
    }
    let instance = request.group_instance_id.as_ref();
    let who = Committer {
        member: request.member_id.as_str().into(),
        instance: instance.map(|instance| instance.as_str().into()),
        generation: request.generation_id_or_member_epoch,
    };
    let slot = call.slot;
    let answer = move |committed: Result<(), GroupError>| {
        if let Err(error) = committed {
            refuse(&mut response, error, version);
        }
        reply(slot, &response, version);
    };
    let group = request.group_id.as_str();
    let asks = (&who, version >= EPOCHS_FROM);
    let groups = &call.broker.groups;
    groups.commit(group, asks, rows, Box::new(answer));
    Flow::Done
}

/// The rows that can be committed, and the answer as it is if they are; none where the group is refused.
fn sort_out(
    call: &Call<'_>,
    may: Result<(), ErrorCode>,
    request: &OffsetCommitRequest,
) -> (Vec<Row>, OffsetCommitResponse) {
    let (broker, access) = (call.broker, call.access());
    let version = call.request.header.api_version;
    let map = broker.topics.load();
    let retention = request.retention_time_ms;
    let says = version <= RETENTION_UP_TO && retention >= 0;
    let keep = Keep::new(broker, says.then_some(retention));
    let mut rows = Vec::new();
    let mut response = OffsetCommitResponse::default();
    for asked in &request.topics {
        let topic = may.and_then(|()| {
            if version >= IDS_FROM {
                let id = topic_id_from_wire(asked.topic_id);
                access.with_id(&map, Operation::Read, id)
            } else {
                access.named(&map, Operation::Read, asked.name.as_str())
            }
        });
        let mut answers = OffsetCommitResponseTopic::default();
        if version >= IDS_FROM {
            answers.topic_id = asked.topic_id;
        } else {
            answers.name = text(asked.name.as_str());
        }
        answers.partitions = partitions(topic, asked, &keep, &mut rows);
        response.topics.push(answers);
    }
    (rows, response)
}

fn partitions(
    topic: Result<&Arc<Topic>, ErrorCode>,
    asked: &OffsetCommitRequestTopic,
    keep: &Keep,
    rows: &mut Vec<Row>,
) -> Vec<OffsetCommitResponsePartition> {
    let partitions = asked.partitions.iter();
    partitions
        .map(|asked| {
            let mut row = OffsetCommitResponsePartition::default();
            row.partition_index = asked.partition_index;
            let offset = AskedOffset {
                partition: asked.partition_index,
                offset: asked.committed_offset,
                leader_epoch: asked.committed_leader_epoch,
                metadata: asked.committed_metadata.as_ref(),
            };
            match keep.row(topic, &offset) {
                Ok(kept) => rows.push(kept),
                Err(code) => row.error_code = code.code(),
            }
            row
        })
        .collect()
}

/// The whole request is refused: every row that was not refused by itself says so.
fn refuse(response: &mut OffsetCommitResponse, error: GroupError, version: i16) {
    let code = match error {
        GroupError::NotFound if version < NOT_FOUND_FROM => ErrorCode::IllegalGeneration,
        error => ErrorCode::from(&error),
    };
    let rows = response
        .topics
        .iter_mut()
        .flat_map(|topic| &mut topic.partitions);
    for row in rows.filter(|row| row.error_code == ErrorCode::None.code()) {
        row.error_code = code.code();
    }
}
