//! DescribeConfigs: of topics and of this broker, from the configuration
//! tables.

use seawall_net::Flow;
use seawall_net::wire::messages::describe_configs_request::DescribeConfigsResource;
use seawall_net::wire::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use seawall_net::wire::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};
use crate::cluster::TopicName;
use crate::config::{ConfigEntry, describe_broker, describe_topic};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &DescribeConfigsRequest) -> DescribeConfigsResponse {
    let mut response = DescribeConfigsResponse::default();
    let form = Form {
        synonyms: request.include_synonyms,
        documentation: request.include_documentation,
    };
    let results = request.resources.iter();
    response.results = results
        .map(|resource| form.result(resource, entries(asked, resource)))
        .collect();
    response
}

type Refusal = (ErrorCode, String);

fn entries(
    asked: &Asked<'_>,
    resource: &DescribeConfigsResource,
) -> Result<Vec<ConfigEntry>, Refusal> {
    let name = resource.resource_name.as_str();
    let settings = &asked.broker.settings();
    match resource.resource_type {
        TOPIC => {
            TopicName::parse(name)
                .map_err(|e| (ErrorCode::InvalidTopicException, e.to_string()))?;
            let map = asked.broker.topics.load();
            let topic = map.named(name);
            let topic = topic.map_err(|error| (ErrorCode::from(&error), error.to_string()))?;
            Ok(describe_topic(settings, &topic.config.load()))
        }
        BROKER => {
            let ours = asked.broker.node_id().to_string();
            // The empty name stands for the cluster-wide default, which nobody set.
            if name.is_empty() {
                return Ok(Vec::new());
            }
            if name != ours {
                let message = format!("Unexpected broker id, expected {ours}, but received {name}");
                return Err((ErrorCode::InvalidRequest, message));
            }
            Ok(describe_broker(settings))
        }
        BROKER_LOGGER => Ok(Vec::new()),
        other => Err((
            ErrorCode::InvalidRequest,
            format!("Unsupported resource type: {other}"),
        )),
    }
}

/// What of each entry is told.
struct Form {
    synonyms: bool,
    documentation: bool,
}

impl Form {
    fn result(
        &self,
        resource: &DescribeConfigsResource,
        entries: Result<Vec<ConfigEntry>, Refusal>,
    ) -> DescribeConfigsResult {
        let mut result = DescribeConfigsResult::default();
        result.resource_type = resource.resource_type;
        result.resource_name = text(resource.resource_name.as_str());
        match entries {
            Ok(entries) => {
                let keys = resource.configuration_keys.as_ref();
                let wanted = |entry: &ConfigEntry| {
                    keys.is_none_or(|keys| keys.iter().any(|key| key.as_str() == entry.name))
                };
                let entries = entries.iter().filter(|entry| wanted(entry));
                result.configs = entries.map(|entry| self.row(entry)).collect();
            }
            Err((code, message)) => {
                result.error_code = code.code();
                result.error_message = (!message.is_empty()).then(|| text(&message));
            }
        }
        result
    }

    fn row(&self, entry: &ConfigEntry) -> DescribeConfigsResourceResult {
        let mut row = DescribeConfigsResourceResult::default();
        row.name = text(entry.name);
        row.value = entry.value.as_deref().map(text);
        row.read_only = entry.read_only;
        row.config_source = entry.source.wire_code();
        row.is_sensitive = entry.is_sensitive;
        row.config_type = entry.kind.wire_code();
        row.documentation = self.documentation.then(|| text(entry.doc));
        if self.synonyms {
            let synonyms = entry.synonyms.iter().map(|synonym| {
                let mut row = DescribeConfigsSynonym::default();
                row.name = text(synonym.name);
                row.value = synonym.value.as_deref().map(text);
                row.source = synonym.source.wire_code();
                row
            });
            row.synonyms = synonyms.collect();
        }
        row
    }
}
