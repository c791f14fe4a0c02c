//! CreateAcls: rules hold, for open connections too, when the answer is out.

use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire::messages::create_acls_request::AclCreation;
use seawall_net::wire::messages::create_acls_response::AclCreationResult;
use seawall_net::wire::messages::{CreateAclsRequest, CreateAclsResponse};

use super::acl_wire::{Parts, Refusal, refusal, rules};
use super::codes::ErrorCode;
use super::{Asked, Call, answer_from, text};
use crate::security::acl::{Operation, Rule};

pub(super) fn handle(call: Call<'_>) -> Flow {
    let broker = Arc::clone(call.broker);
    answer_from(call, &broker.state_workers(), respond)
}

fn respond(asked: &Asked<'_>, request: &CreateAclsRequest) -> CreateAclsResponse {
    let wanted: Vec<Result<Rule, Refusal>> = request.creations.iter().map(rule).collect();
    let good: Vec<Rule> = wanted.iter().flatten().cloned().collect();
    let added = add(asked, &good);
    let mut response = CreateAclsResponse::default();
    let results = wanted.into_iter().map(|wanted| match (&added, wanted) {
        (Err(refusal), _) => result(Err(refusal.clone())),
        (Ok(()), wanted) => result(wanted.map(drop)),
    });
    response.results = results.collect();
    response
}

fn add(asked: &Asked<'_>, rules_wanted: &[Rule]) -> Result<(), Refusal> {
    let allowed = asked.access().cluster(Operation::Alter);
    allowed.map_err(|code| (code, "Cluster authorization failed.".into()))?;
    let rules = rules(asked.broker)?;
    rules.add(rules_wanted).map_err(|error| refusal(&error))
}

fn rule(wanted: &AclCreation) -> Result<Rule, Refusal> {
    let parts = Parts {
        resource: wanted.resource_type,
        name: Some(&wanted.resource_name),
        pattern: wanted.resource_pattern_type,
        principal: Some(&wanted.principal),
        host: Some(&wanted.host),
        operation: wanted.operation,
        permission: wanted.permission_type,
    };
    parts.rule()
}

fn result(outcome: Result<(), Refusal>) -> AclCreationResult {
    let mut row = AclCreationResult::default();
    row.error_code = ErrorCode::None.code();
    row.error_message = None;
    if let Err((code, message)) = outcome {
        row.error_code = code.code();
        row.error_message = Some(text(&message));
    }
    row
}
