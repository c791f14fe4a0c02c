//! SyncGroup: a member fetches its assignment; the leader brings all of them.

use std::sync::Arc;

use bytes::Bytes;
use seawall_net::Flow;
use seawall_net::wire;
use seawall_net::wire::messages::{SyncGroupRequest, SyncGroupResponse};

use super::codes::ErrorCode;
use super::{Call, MALFORMED, reply, text};
use crate::groups::GroupError;
use crate::groups::classic::{Sync, Synced};
use crate::security::acl::Operation;

/// The lowest version that tells type and name of the protocol (KIP-559).
const PROTOCOL_FROM: i16 = 5;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<SyncGroupRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    if let Err(code) = call
        .access()
        .group(Operation::Read, request.group_id.as_str())
    {
        let mut refused = SyncGroupResponse::default();
        refused.error_code = code.code();
        reply(call.slot, &refused, version);
        return Flow::Done;
    }
    let slot = call.slot;
    let answer = move |answer: Result<Synced, GroupError>| {
        reply(slot, &response(answer, version), version);
    };
    let given = |field: &Option<wire::StrBytes>| field.is_some();
    let named = given(&request.protocol_type) && given(&request.protocol_name);
    if request.group_id.as_str().is_empty() {
        answer(Err(GroupError::InvalidId));
    } else if version >= PROTOCOL_FROM && !named {
        answer(Err(GroupError::InconsistentProtocol));
    } else {
        let broker = Arc::clone(call.broker);
        let group = request.group_id.as_str();
        broker.groups.sync(group, sync(&request), Box::new(answer));
    }
    Flow::Done
}

fn sync(request: &SyncGroupRequest) -> Sync {
    let text = |field: &Option<wire::StrBytes>| field.as_ref().map(|text| text.as_str().into());
    let assignments = request.assignments.iter();
    Sync {
        member: request.member_id.as_str().into(),
        instance: text(&request.group_instance_id),
        generation: request.generation_id,
        protocol_type: text(&request.protocol_type),
        protocol: text(&request.protocol_name),
        assignments: assignments
            .map(|one| {
                // A copy: the group outlives the frame.
                let assignment = Bytes::copy_from_slice(&one.assignment);
                (one.member_id.as_str().into(), assignment)
            })
            .collect(),
    }
}

fn response(answer: Result<Synced, GroupError>, version: i16) -> SyncGroupResponse {
    let mut response = SyncGroupResponse::default();
    match answer {
        Err(error) => response.error_code = ErrorCode::from(&error).code(),
        Ok(synced) => {
            response.assignment = synced.assignment;
            if version >= PROTOCOL_FROM {
                response.protocol_type = Some(text(&synced.protocol_type));
                response.protocol_name = Some(text(&synced.protocol));
            }
        }
    }
    response
}
