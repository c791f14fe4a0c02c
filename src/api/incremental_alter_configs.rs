//! IncrementalAlterConfigs (KIP-339): changes of a topic's configuration, key
//! by key.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use seawall_net::wire::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use seawall_net::wire::messages::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use super::codes::ErrorCode;
use super::{Asked, Call, answer_from, text};
use crate::config::{Kind, describe_topic};
use crate::topics::Topic;

const TOPIC: i8 = 2;

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// Why a resource was not changed; nothing of it was.
pub(super) type Refusal = (ErrorCode, String);

pub(super) fn handle(call: Call<'_>) -> Flow {
    let broker = Arc::clone(call.broker);
    answer_from(call, &broker.state_workers(), respond)
}

fn respond(
    asked: &Asked<'_>,
    request: &IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let mut response = IncrementalAlterConfigsResponse::default();
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
    let mut seen = HashSet::new();
    let mut overrides = topic.config.load().overrides().clone();
    for config in &resource.configs {
        if !seen.insert(config.name.as_str()) {
            let message = format!(
                "Error due to duplicate config keys: {}",
                config.name.as_str()
            );
            return Err((ErrorCode::InvalidRequest, message));
        }
        change(asked, &topic, &mut overrides, config)?;
    }
    store(asked, &topic, &overrides, validate_only)
}

/// The topic named by a resource. Settings of the broker are its file's.
pub(super) fn topic(asked: &Asked<'_>, kind: i8, name: &str) -> Result<Arc<Topic>, Refusal> {
    if kind != TOPIC {
        let message = "Only topics have a configuration that can be changed while the broker \
                       runs; its own stands in its file.";
        return Err((ErrorCode::InvalidRequest, message.into()));
    }
    let map = asked.broker.topics.load();
    match map.named(name) {
        Ok(topic) => Ok(Arc::clone(topic)),
        Err(error) => Err((ErrorCode::from(&error), error.to_string())),
    }
}

/// Makes `overrides` hold for the topic, now and after a restart.
pub(super) fn store(
    asked: &Asked<'_>,
    topic: &Arc<Topic>,
    overrides: &BTreeMap<String, String>,
    validate_only: bool,
) -> Result<(), Refusal> {
    let changed = asked.broker.alter_topic(topic, overrides, validate_only);
    changed.map_err(|error| (ErrorCode::from(&error), error.to_string()))
}

fn change(
    asked: &Asked<'_>,
    topic: &Topic,
    overrides: &mut BTreeMap<String, String>,
    config: &AlterableConfig,
) -> Result<(), Refusal> {
    let name = config.name.as_str();
    if config.config_operation == DELETE {
        overrides.remove(name);
        return Ok(());
    }
    let Some(value) = config.value.as_ref().map(|value| value.as_str()) else {
        let message = format!("Null value not supported for: {name}");
        return Err((ErrorCode::InvalidRequest, message));
    };
    let value = match config.config_operation {
        SET => value.to_owned(),
        APPEND | SUBTRACT => {
            let list = effective_list(asked, topic, overrides, name)?;
            let given: Vec<&str> = value.split(',').map(str::trim).collect();
            changed_list(config.config_operation, &list, &given)
        }
        other => {
            let message = format!("Unknown config operation {other}");
            return Err((ErrorCode::InvalidRequest, message));
        }
    };
    overrides.insert(name.to_owned(), value);
    Ok(())
}

/// The list that holds for the key, with what this request has changed so far.
fn effective_list(
    asked: &Asked<'_>,
    topic: &Topic,
    overrides: &BTreeMap<String, String>,
    name: &str,
) -> Result<Vec<String>, Refusal> {
    let entries = describe_topic(&asked.broker.settings(), &topic.config.load());
    let entry = entries.into_iter().find(|entry| entry.name == name);
    let Some(entry) = entry.filter(|entry| entry.kind == Kind::List) else {
        let message = format!("APPEND and SUBTRACT are for lists, and {name} is none");
        return Err((ErrorCode::InvalidConfig, message));
    };
    let value = overrides.get(name).cloned().or(entry.value);
    let value = value.unwrap_or_default();
    let items = value
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    Ok(items.map(str::to_owned).collect())
}

fn changed_list(operation: i8, list: &[String], given: &[&str]) -> String {
    let mut items: Vec<&str> = list.iter().map(String::as_str).collect();
    if operation == SUBTRACT {
        items.retain(|item| !given.contains(item));
    } else {
        let new = given
            .iter()
            .filter(|item| !list.iter().any(|l| l == **item));
        items.extend(new.copied());
    }
    items.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_grow_and_shrink_by_item() {
        let list = vec!["delete".to_owned()];
        assert_eq!(changed_list(APPEND, &list, &["compact"]), "delete,compact");
        assert_eq!(changed_list(APPEND, &list, &["delete"]), "delete");
        assert_eq!(changed_list(SUBTRACT, &list, &["delete"]), "");
        assert_eq!(changed_list(SUBTRACT, &list, &["compact"]), "delete");
    }
}
