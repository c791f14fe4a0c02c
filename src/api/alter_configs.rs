//! AlterConfigs: the whole configuration of a topic at once, as older admin
//! clients do it. What is not named goes back to its default.

use std::collections::BTreeMap;
use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire::messages::alter_configs_request::AlterConfigsResource;
use seawall_net::wire::messages::alter_configs_response::AlterConfigsResourceResponse;
use seawall_net::wire::messages::{AlterConfigsRequest, AlterConfigsResponse};

use super::codes::ErrorCode;
use super::incremental_alter_configs::{Refusal, store, topic};
use super::{Asked, Call, answer_from, text};

pub(super) fn handle(call: Call<'_>) -> Flow {
    let broker = Arc::clone(call.broker);
    answer_from(call, &broker.state_workers(), respond)
}

fn respond(asked: &Asked<'_>, request: &AlterConfigsRequest) -> AlterConfigsResponse {
    let mut response = AlterConfigsResponse::default();
    for resource in &request.resources {
        let mut row = AlterConfigsResourceResponse::default();
        row.resource_type = resource.resource_type;
        row.resource_name = text(resource.resource_name.as_str());
        if let Err((code, message)) = alter(asked, resource, request.validate_only) {
            row.error_code = code.code();
            row.error_message = Some(text(&message));
        }
        response.responses.push(row);
    }
    response
}

fn alter(
    asked: &Asked<'_>,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<(), Refusal> {
    let topic = topic(
        asked,
        resource.resource_type,
        resource.resource_name.as_str(),
    )?;
    let mut overrides = BTreeMap::new();
    for config in &resource.configs {
        let name = config.name.as_str();
        let Some(value) = &config.value else {
            let message = format!("Null value not supported for: {name}");
            return Err((ErrorCode::InvalidRequest, message));
        };
        overrides.insert(name.to_owned(), value.as_str().to_owned());
    }
    store(asked, &topic, &overrides, validate_only)
}
