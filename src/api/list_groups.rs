//! ListGroups: all groups that one may describe, or those in some states or of some types.

use seawall_net::Flow;
use seawall_net::wire::StrBytes;
use seawall_net::wire::messages::list_groups_response::ListedGroup;
use seawall_net::wire::messages::{ListGroupsRequest, ListGroupsResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};
use crate::security::acl::{CLUSTER_NAME, Operation, ResourceType};

/// The lowest version with states (KIP-518).
const STATES_FROM: i16 = 4;
/// The lowest version with types (KIP-848).
const TYPES_FROM: i16 = 5;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &ListGroupsRequest) -> ListGroupsResponse {
    let mut response = ListGroupsResponse::default();
    let listed = match asked.broker.groups.list() {
        Ok(listed) => listed,
        Err(error) => {
            response.error_code = ErrorCode::from(&error).code();
            return response;
        }
    };
    let (states, types) = (&request.states_filter, &request.types_filter);
    let access = asked.access();
    let all = access.quietly(Operation::Describe, (ResourceType::Cluster, CLUSTER_NAME));
    let is_shown =
        |name: &str| all || access.quietly(Operation::Describe, (ResourceType::Group, name));
    let wanted = listed.iter().filter(|group| {
        passes(states, group.state) && passes(types, group.kind) && is_shown(&group.name)
    });
    response.groups = wanted
        .map(|group| {
            let mut row = ListedGroup::default();
            row.group_id = text(&group.name);
            row.protocol_type = text(&group.protocol_type);
            if asked.version >= STATES_FROM {
                row.group_state = text(group.state);
            }
            if asked.version >= TYPES_FROM {
                row.group_type = text(group.kind);
            }
            row
        })
        .collect();
    response
}

/// No filter lets everything through; case does not count.
fn passes(filter: &[StrBytes], what: &str) -> bool {
    let matches = |wanted: &StrBytes| wanted.as_str().eq_ignore_ascii_case(what);
    filter.is_empty() || filter.iter().any(matches)
}
