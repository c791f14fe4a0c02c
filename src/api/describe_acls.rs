//! DescribeAcls: the rules that a filter means.

use seawall_net::Flow;
use seawall_net::wire::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use seawall_net::wire::messages::{DescribeAclsRequest, DescribeAclsResponse};

use super::acl_wire::{Parts, Refusal, rules};
use super::{Asked, Call, answer, text};
use crate::security::acl::{Operation, Rule};

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &DescribeAclsRequest) -> DescribeAclsResponse {
    let mut response = DescribeAclsResponse::default();
    response.error_message = None;
    match matching(asked, request) {
        Ok(rules) => response.resources = resources(&rules),
        Err((code, message)) => {
            response.error_code = code.code();
            response.error_message = Some(text(&message));
        }
    }
    response
}

fn matching(asked: &Asked<'_>, request: &DescribeAclsRequest) -> Result<Vec<Rule>, Refusal> {
    let allowed = asked.access().cluster(Operation::Describe);
    allowed.map_err(|code| (code, "Cluster authorization failed.".into()))?;
    let rules = rules(asked.broker)?;
    let filter = Parts {
        resource: request.resource_type_filter,
        name: request.resource_name_filter.as_ref(),
        pattern: request.pattern_type_filter,
        principal: request.principal_filter.as_ref(),
        host: request.host_filter.as_ref(),
        operation: request.operation,
        permission: request.permission_type,
    };
    Ok(rules.matching(&filter.filter()?))
}

/// Rules come in the order of their resources: neighbours share an entry.
fn resources(rules: &[Rule]) -> Vec<DescribeAclsResource> {
    let same =
        |a: &Rule, b: &Rule| (a.resource, a.pattern, &a.name) == (b.resource, b.pattern, &b.name);
    let groups = rules.chunk_by(same);
    groups
        .filter_map(|rules| {
            let first = rules.first()?;
            let mut row = DescribeAclsResource::default();
            row.resource_type = first.resource.code();
            row.resource_name = text(&first.name);
            row.pattern_type = first.pattern.code();
            row.acls = rules.iter().map(description).collect();
            Some(row)
        })
        .collect()
}

fn description(rule: &Rule) -> AclDescription {
    let mut row = AclDescription::default();
    row.principal = text(&rule.principal);
    row.host = text(&rule.host);
    row.operation = rule.operation.code();
    row.permission_type = rule.permission.code();
    row
}
