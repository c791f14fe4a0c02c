//! Heartbeat: a member of a classic group is alive, and learns whether it must join again.

use seawall_net::Flow;
use seawall_net::wire::messages::{HeartbeatRequest, HeartbeatResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer};
use crate::groups::{Committer, GroupError};
use crate::security::acl::Operation;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &HeartbeatRequest) -> HeartbeatResponse {
    let mut response = HeartbeatResponse::default();
    let instance = request.group_instance_id.as_ref();
    let who = Committer {
        member: request.member_id.as_str().into(),
        instance: instance.map(|instance| instance.as_str().into()),
        generation: request.generation_id,
    };
    if let Err(code) = asked
        .access()
        .group(Operation::Read, request.group_id.as_str())
    {
        response.error_code = code.code();
        return response;
    }
    let beaten = match request.group_id.as_str() {
        "" => Err(GroupError::InvalidId),
        group => asked.broker.groups.heartbeat(group, &who),
    };
    if let Err(error) = beaten {
        response.error_code = ErrorCode::from(&error).code();
    }
    response
}
