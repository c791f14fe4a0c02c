//! DeleteGroups: groups without members, with their offsets.

use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire;
use seawall_net::wire::messages::delete_groups_response::DeletableGroupResult;
use seawall_net::wire::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use super::codes::ErrorCode;
use super::gather::Gather;
use super::{Call, MALFORMED, reply, text};
use crate::security::acl::Operation;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<DeleteGroupsRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let access = call.access();
    let rows = request.groups_names.iter().map(|group| {
        let mut row = DeletableGroupResult::default();
        row.group_id = text(group.as_str());
        if let Err(code) = access.group(Operation::Delete, group.as_str()) {
            row.error_code = code.code();
        }
        row
    });
    let mut response = DeleteGroupsResponse::default();
    response.results = rows.collect();
    let allowed: Vec<bool> = response.results.iter().map(|r| r.error_code == 0).collect();
    let slot = call.slot;
    let gather = Gather::new(response, move |response| reply(slot, &response, version));
    let groups = request.groups_names.iter().enumerate();
    for ((place, group), _) in groups.zip(allowed).filter(|(_, allowed)| *allowed) {
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
