//! ListConfigResources: what can be asked for its configuration.

use seawall_net::Flow;
use seawall_net::wire::messages::list_config_resources_response::ConfigResource;
use seawall_net::wire::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};
use crate::security::acl::Operation;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;
/// What an empty list stands for.
const ALL: &[i8] = &[TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP];
/// The lowest version that knows other types than client metrics (KIP-1142).
const TYPES_FROM: i16 = 1;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &ListConfigResourcesRequest) -> ListConfigResourcesResponse {
    let mut response = ListConfigResourcesResponse::default();
    if let Err(code) = asked.access().cluster(Operation::DescribeConfigs) {
        response.error_code = code.code();
        return response;
    }
    let wanted = match request.resource_types.as_slice() {
        // There are no client metrics resources: telemetry is not offered.
        _ if asked.version < TYPES_FROM => return response,
        [] => ALL,
        some => some,
    };
    if !wanted.iter().all(|kind| ALL.contains(kind)) {
        response.error_code = ErrorCode::UnsupportedVersion.code();
        return response;
    }
    for kind in ALL.iter().filter(|kind| wanted.contains(kind)) {
        let rows = names(asked, *kind).into_iter();
        response.config_resources.extend(rows.map(|name| {
            let mut row = ConfigResource::default();
            row.resource_type = *kind;
            row.resource_name = text(&name);
            row
        }));
    }
    response
}

/// Groups and client metrics have no configuration here.
fn names(asked: &Asked<'_>, kind: i8) -> Vec<String> {
    match kind {
        TOPIC => {
            let map = asked.broker.topics.load();
            map.iter().map(|topic| topic.name.to_string()).collect()
        }
        BROKER | BROKER_LOGGER => vec![asked.broker.node_id().to_string()],
        _ => Vec::new(),
    }
}
