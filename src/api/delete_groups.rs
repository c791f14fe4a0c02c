//! DeleteGroups: groups without members, with their offsets.

use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire;
use seawall_net::wire::messages::delete_groups_response::DeletableGroupResult;
use seawall_net::wire::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use super::codes::ErrorCode;
use super::gather::Gather;
use super::{Call, MALFORMED, reply, text};

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<DeleteGroupsRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let rows = request.groups_names.iter().map(|group| {
        let mut row = DeletableGroupResult::default();
        row.group_id = text(group.as_str());
        row
    });
    let mut response = DeleteGroupsResponse::default();
    response.results = rows.collect();
    let slot = call.slot;
    let gather = Gather::new(response, move |response| reply(slot, &response, version));
    for (place, group) in request.groups_names.iter().enumerate() {
        let gather = Arc::clone(&gather);
        let answer = move |deleted: Result<(), _>| {
            if let Err(error) = deleted {
                gather.with(|response| {
                    response.results[place].error_code = ErrorCode::from(&error).code();
                });
            }
        };
        call.broker.groups.delete(group.as_str(), Box::new(answer));
    }
    Flow::Done
}
