//! JoinGroup: a member comes in, and waits until the others have.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use seawall_net::Flow;
use seawall_net::wire;
use seawall_net::wire::messages::join_group_response::JoinGroupResponseMember;
use seawall_net::wire::messages::{JoinGroupRequest, JoinGroupResponse};

use super::codes::ErrorCode;
use super::slot::Work;
use super::{Call, MALFORMED, reply, text};
use crate::groups::GroupError;
use crate::groups::classic::{Join, JoinRefused, Joined, Protocol};
use crate::security::acl::Operation;

/// The lowest version with a rebalance timeout of its own.
const REBALANCE_TIMEOUT_FROM: i16 = 1;
/// The lowest version in which a member must come again with its id (KIP-394).
const NEEDS_ID_FROM: i16 = 4;
/// The lowest version with instance ids (KIP-345).
const INSTANCES_FROM: i16 = 5;
/// The lowest version that tells the protocol type (KIP-559).
const PROTOCOL_TYPE_FROM: i16 = 7;
/// The lowest version in which a leader may be told not to assign (KIP-814).
const SKIP_FROM: i16 = 9;
/// Member ids carry so much of a client id: enough to know who it is.
const CLIENT_ID_CHARS_MAX: usize = 200;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<JoinGroupRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    if let Err(code) = call
        .access()
        .group(Operation::Read, request.group_id.as_str())
    {
        let response = refused_response(code, request.member_id.as_str(), version);
        reply(call.slot, &response, version);
        return Flow::Done;
    }
    let client_id = call
        .request
        .header
        .client_id
        .clone()
        .unwrap_or_else(|| "".into());
    let host: Arc<str> = format!("/{}", call.conn.session.host).into();
    let client = call.client();
    let slot = call.slot;
    let broker = Arc::clone(call.broker);
    // A rebalance that this completes tells every member of every other.
    call.broker.workers().submit(move || {
        let _work = client.as_ref().map(|who| Work::of(&broker, who));
        let join = join(&request, version, client_id, host);
        let answer = move |answer: Result<Joined, JoinRefused>| {
            let response = match answer {
                Ok(joined) => joined_response(joined, version),
                Err(JoinRefused { error, member }) => {
                    refused_response(ErrorCode::from(&error), &member, version)
                }
            };
            reply(slot, &response, version);
        };
        if request.group_id.as_str().is_empty() {
            let (error, member) = (GroupError::InvalidId, join.member);
            return answer(Err(JoinRefused { error, member }));
        }
        broker
            .groups
            .join(request.group_id.as_str(), join, Box::new(answer));
    });
    Flow::Done
}

fn join(request: &JoinGroupRequest, version: i16, client_id: Arc<str>, host: Arc<str>) -> Join {
    let ms = |ms: i32| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    let session_timeout = ms(request.session_timeout_ms);
    let instance = request.group_instance_id.as_ref();
    let instance: Option<Arc<str>> = instance.map(|instance| instance.as_str().into());
    let protocols = request.protocols.iter();
    Join {
        member: request.member_id.as_str().into(),
        new_id: new_id(instance.as_deref().unwrap_or(&client_id)),
        instance,
        client_id,
        client_host: host,
        session_timeout,
        rebalance_timeout: if version >= REBALANCE_TIMEOUT_FROM {
            ms(request.rebalance_timeout_ms)
        } else {
            session_timeout
        },
        protocol_type: request.protocol_type.as_str().into(),
        protocols: protocols
            .map(|protocol| Protocol {
                name: protocol.name.as_str().into(),
                // A copy: the group outlives the frame.
                metadata: Bytes::copy_from_slice(&protocol.metadata),
            })
            .collect(),
        needs_id: version >= NEEDS_ID_FROM,
        may_skip_assignment: version >= SKIP_FROM,
    }
}

fn new_id(who: &str) -> Arc<str> {
    let shown: String = who.chars().take(CLIENT_ID_CHARS_MAX).collect();
    let uuid = uuid::Uuid::new_v4();
    format!("{shown}-{uuid}").into()
}

fn joined_response(joined: Joined, version: i16) -> JoinGroupResponse {
    let mut response = JoinGroupResponse::default();
    response.generation_id = joined.generation;
    response.leader = text(&joined.leader);
    response.member_id = text(&joined.member);
    response.protocol_name = Some(text(&joined.protocol));
    if version >= PROTOCOL_TYPE_FROM {
        response.protocol_type = Some(text(&joined.protocol_type));
    }
    if version >= SKIP_FROM {
        response.skip_assignment = joined.skip_assignment;
    }
    let members = joined.members.into_iter();
    response.members = members
        .map(|member| {
            let mut row = JoinGroupResponseMember::default();
            row.member_id = text(&member.id);
            row.metadata = member.metadata;
            if version >= INSTANCES_FROM {
                row.group_instance_id = member.instance.as_deref().map(text);
            }
            row
        })
        .collect();
    response
}

fn refused_response(code: ErrorCode, member: &str, version: i16) -> JoinGroupResponse {
    let mut response = JoinGroupResponse::default();
    response.error_code = code.code();
    response.generation_id = -1;
    response.member_id = text(member);
    // Nullable only where the type is told too.
    if version < PROTOCOL_TYPE_FROM {
        response.protocol_name = Some(text(""));
    }
    response
}
