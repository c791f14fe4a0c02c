//! DeleteAcls: the rules that filters mean are gone when the answer is out.

use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire::messages::delete_acls_request::DeleteAclsFilter;
use seawall_net::wire::messages::delete_acls_response::{
    DeleteAclsFilterResult, DeleteAclsMatchingAcl,
};
use seawall_net::wire::messages::{DeleteAclsRequest, DeleteAclsResponse};

use super::acl_wire::{Parts, Refusal, refusal, rules};
use super::{Asked, Call, answer_from, text};
use crate::security::acl::{Filter, Operation, Rule};

pub(super) fn handle(call: Call<'_>) -> Flow {
    let broker = Arc::clone(call.broker);
    answer_from(call, &broker.state_workers(), respond)
}

fn respond(asked: &Asked<'_>, request: &DeleteAclsRequest) -> DeleteAclsResponse {
    let filters: Vec<Result<Filter, Refusal>> = request.filters.iter().map(filter).collect();
    let good: Vec<Filter> = filters.iter().flatten().cloned().collect();
    let mut response = DeleteAclsResponse::default();
    response.filter_results = match remove(asked, &good) {
        Err(refusal) => filters.iter().map(|_| refused(&refusal)).collect(),
        Ok(removed) => {
            let mut removed = removed.into_iter();
            let results = filters.iter().map(|filter| match filter {
                Ok(_) => result(removed.next().unwrap_or_default()),
                Err(refusal) => refused(refusal),
            });
            results.collect()
        }
    };
    response
}

fn remove(asked: &Asked<'_>, filters: &[Filter]) -> Result<Vec<Vec<Rule>>, Refusal> {
    let allowed = asked.access().cluster(Operation::Alter);
    allowed.map_err(|code| (code, "Cluster authorization failed.".into()))?;
    let rules = rules(asked.broker)?;
    rules.remove(filters).map_err(|error| refusal(&error))
}

fn filter(wanted: &DeleteAclsFilter) -> Result<Filter, Refusal> {
    let parts = Parts {
        resource: wanted.resource_type_filter,
        name: wanted.resource_name_filter.as_ref(),
        pattern: wanted.pattern_type_filter,
        principal: wanted.principal_filter.as_ref(),
        host: wanted.host_filter.as_ref(),
        operation: wanted.operation,
        permission: wanted.permission_type,
    };
    parts.filter()
}

fn refused((code, message): &Refusal) -> DeleteAclsFilterResult {
    let mut row = DeleteAclsFilterResult::default();
    row.error_code = code.code();
    row.error_message = Some(text(message));
    row
}

fn result(removed: Vec<Rule>) -> DeleteAclsFilterResult {
    let mut row = DeleteAclsFilterResult::default();
    row.error_message = None;
    let rules = removed.into_iter().map(|rule| {
        let mut row = DeleteAclsMatchingAcl::default();
        row.error_message = None;
        row.resource_type = rule.resource.code();
        row.resource_name = text(&rule.name);
        row.pattern_type = rule.pattern.code();
        row.principal = text(&rule.principal);
        row.host = text(&rule.host);
        row.operation = rule.operation.code();
        row.permission_type = rule.permission.code();
        row
    });
    row.matching_acls = rules.collect();
    row
}
