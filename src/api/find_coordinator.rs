//! FindCoordinator: there is one broker, so it is the coordinator of everything.

use seawall_net::Flow;
use seawall_net::wire::messages::find_coordinator_response::Coordinator;
use seawall_net::wire::messages::{FindCoordinatorRequest, FindCoordinatorResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};
use crate::security::acl::Operation;

/// The lowest version that asks for many keys at once (KIP-699).
const BATCH_FROM: i16 = 4;
/// Kinds of keys. Share groups have none here.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
/// The lowest version that carries a message.
const MESSAGE_FROM: i16 = 1;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &FindCoordinatorRequest) -> FindCoordinatorResponse {
    let mut response = FindCoordinatorResponse::default();
    let (host, port) = asked.broker.endpoint(asked.session);
    let node = asked.broker.node_id();
    let row = |key: &str| {
        let mut row = Coordinator::default();
        row.key = text(key);
        match check(asked, request.key_type, key) {
            Ok(()) => {
                row.node_id = node;
                row.host = text(host);
                row.port = i32::from(port);
                row.error_message = Some(text(""));
            }
            Err((code, why)) => {
                row.error_code = code.code();
                row.node_id = -1;
                row.port = -1;
                row.error_message = Some(text(why));
            }
        }
        row
    };
    if asked.version >= BATCH_FROM {
        let keys = request.coordinator_keys.iter();
        response.coordinators = keys.map(|key| row(key.as_str())).collect();
        return response;
    }
    let one = row(request.key.as_str());
    response.error_code = one.error_code;
    response.node_id = one.node_id;
    response.host = one.host;
    response.port = one.port;
    if asked.version >= MESSAGE_FROM {
        let fine = one.error_code == ErrorCode::None.code();
        let none = || Some(text("NONE"));
        response.error_message = if fine { none() } else { one.error_message };
    }
    response
}

/// Who may not describe it does not learn where it is.
fn check(asked: &Asked<'_>, kind: i8, key: &str) -> Result<(), (ErrorCode, &'static str)> {
    let may = match kind {
        GROUP => asked.access().group(Operation::Describe, key),
        TRANSACTION => asked.access().transactional_id(Operation::Describe, key),
        _ => return Err((ErrorCode::InvalidRequest, "unknown key type")),
    };
    may.map_err(|code| (code, "not authorized"))
}
