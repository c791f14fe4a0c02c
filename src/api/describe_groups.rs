//! DescribeGroups: classic groups with their members.

use seawall_net::Flow;
use seawall_net::wire::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use seawall_net::wire::messages::{DescribeGroupsRequest, DescribeGroupsResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};
use crate::groups::GroupError;
use crate::groups::classic::{DescribedMember, Description};
use crate::security::acl::Operation;

/// The lowest version with the allowed operations.
const OPERATIONS_FROM: i16 = 3;
/// The lowest version with instance ids.
const INSTANCES_FROM: i16 = 4;
/// The lowest version that says that there is no such group (KIP-1043).
const NOT_FOUND_FROM: i16 = 6;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &DescribeGroupsRequest) -> DescribeGroupsResponse {
    let mut response = DescribeGroupsResponse::default();
    let groups = request.groups.iter();
    response.groups = groups
        .map(|group| {
            let group = group.as_str();
            let mut row = row(asked, group);
            row.group_id = text(group);
            if asked.version >= OPERATIONS_FROM {
                let asked_for = request.include_authorized_operations && row.error_code == 0;
                row.authorized_operations = asked.access().on_group(asked_for, group);
            }
            row
        })
        .collect();
    response
}

fn row(asked: &Asked<'_>, group: &str) -> DescribedGroup {
    if let Err(code) = asked.access().group(Operation::Describe, group) {
        let mut row = DescribedGroup::default();
        row.error_code = code.code();
        return row;
    }
    match asked.broker.groups.describe(group) {
        Ok(description) => described(&description, asked.version),
        Err(error) => refused(group, error, asked.version),
    }
}

fn described(group: &Description, version: i16) -> DescribedGroup {
    let mut row = DescribedGroup::default();
    row.group_state = text(group.state);
    row.protocol_type = text(&group.protocol_type);
    row.protocol_data = text(&group.protocol);
    row.members = group.members.iter().map(|m| member(m, version)).collect();
    row
}

fn member(member: &DescribedMember, version: i16) -> DescribedGroupMember {
    let mut row = DescribedGroupMember::default();
    row.member_id = text(&member.id);
    row.client_id = text(&member.client_id);
    row.client_host = text(&member.client_host);
    row.member_metadata = member.metadata.clone();
    row.member_assignment = member.assignment.clone();
    if version >= INSTANCES_FROM {
        row.group_instance_id = member.instance.as_deref().map(text);
    }
    row
}

/// A group that is not there is `Dead`; newer clients can be told so.
fn refused(group: &str, error: GroupError, version: i16) -> DescribedGroup {
    let mut row = DescribedGroup::default();
    let missing = matches!(error, GroupError::NotFound | GroupError::WrongType);
    if missing {
        row.group_state = text("Dead");
    }
    if !missing || version >= NOT_FOUND_FROM {
        row.error_code = ErrorCode::from(&error).code();
    }
    if missing && version >= NOT_FOUND_FROM {
        row.error_message = Some(text(&format!("Group {group} not found.")));
    }
    row
}
