//! FindCoordinator: there is one broker, so it is the coordinator of everything.

use seawall_net::Flow;
use seawall_net::wire::messages::find_coordinator_response::Coordinator;
use seawall_net::wire::messages::{FindCoordinatorRequest, FindCoordinatorResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};

/// The lowest version that asks for many keys at once (KIP-699).
const BATCH_FROM: i16 = 4;
/// Kinds of keys: groups and transactional ids. Share groups have none here.
const KEY_TYPES: [i8; 2] = [0, 1];
/// The lowest version that carries a message.
const MESSAGE_FROM: i16 = 1;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &FindCoordinatorRequest) -> FindCoordinatorResponse {
    let mut response = FindCoordinatorResponse::default();
    let (host, port) = asked.broker.endpoint(asked.session);
    let node = asked.broker.node_id();
    let error = if KEY_TYPES.contains(&request.key_type) {
        ErrorCode::None
    } else {
        ErrorCode::InvalidRequest
    };
    let known = error == ErrorCode::None;
    let (node, host, port) = if known {
        (node, host, port)
    } else {
        (-1, "", 0)
    };
    let port = if known { i32::from(port) } else { -1 };
    if asked.version < BATCH_FROM {
        response.error_code = error.code();
        response.node_id = node;
        response.host = text(host);
        response.port = port;
        if asked.version >= MESSAGE_FROM {
            response.error_message = Some(text(if known { "NONE" } else { "unknown key type" }));
        }
        return response;
    }
    let keys = request.coordinator_keys.iter();
    response.coordinators = keys
        .map(|key| {
            let mut row = Coordinator::default();
            row.key = text(key.as_str());
            row.error_code = error.code();
            row.node_id = node;
            row.host = text(host);
            row.port = port;
            row.error_message = Some(text(if known { "" } else { "unknown key type" }));
            row
        })
        .collect();
    response
}
