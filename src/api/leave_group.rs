//! LeaveGroup: members go by themselves, or an administrator sends them away.

use seawall_net::Flow;
use seawall_net::wire::messages::leave_group_response::MemberResponse;
use seawall_net::wire::messages::{LeaveGroupRequest, LeaveGroupResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};
use crate::groups::GroupError;
use crate::groups::classic::Leaver;
use crate::security::acl::Operation;

/// The lowest version that names many members (KIP-345).
const MANY_FROM: i16 = 3;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &LeaveGroupRequest) -> LeaveGroupResponse {
    let mut response = LeaveGroupResponse::default();
    if let Err(code) = asked
        .access()
        .group(Operation::Read, request.group_id.as_str())
    {
        response.error_code = code.code();
        return response;
    }
    let leavers = leavers(request, asked.version);
    let left = match request.group_id.as_str() {
        "" => Err(GroupError::InvalidId),
        group => asked.broker.groups.leave(group, &leavers),
    };
    let left = match left {
        Ok(left) => left,
        Err(error) => {
            response.error_code = ErrorCode::from(&error).code();
            return response;
        }
    };
    let code = |left: &Result<(), GroupError>| match left {
        Ok(()) => ErrorCode::None.code(),
        Err(error) => ErrorCode::from(error).code(),
    };
    if asked.version < MANY_FROM {
        response.error_code = left.first().map_or(0, code);
        return response;
    }
    let rows = leavers.iter().zip(&left);
    response.members = rows
        .map(|(leaver, left)| {
            let mut row = MemberResponse::default();
            row.member_id = text(&leaver.member);
            row.group_instance_id = leaver.instance.as_deref().map(text);
            row.error_code = code(left);
            row
        })
        .collect();
    response
}

fn leavers(request: &LeaveGroupRequest, version: i16) -> Vec<Leaver> {
    if version < MANY_FROM {
        return vec![Leaver {
            member: request.member_id.as_str().into(),
            instance: None,
        }];
    }
    let members = request.members.iter();
    members
        .map(|member| Leaver {
            member: member.member_id.as_str().into(),
            instance: member
                .group_instance_id
                .as_ref()
                .map(|id| id.as_str().into()),
        })
        .collect()
}
