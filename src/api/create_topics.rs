//! CreateTopics: usable when the answer is out.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire::messages::create_topics_request::CreatableTopic;
use seawall_net::wire::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use seawall_net::wire::messages::{CreateTopicsRequest, CreateTopicsResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer_from, text, topic_id_to_wire};
use crate::broker::NewTopic;
use crate::cluster::CreateError;
use crate::config::describe_topic;
use crate::security::acl::{CLUSTER_NAME, Operation, ResourceType};
use crate::security::quota::Mutations;

/// The lowest version that is refused what is beyond its quota (KIP-599).
const STRICT_FROM: i16 = 6;
/// The lowest version that tells the effective configuration (KIP-525).
const CONFIGS_FROM: i16 = 5;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let broker = Arc::clone(call.broker);
    answer_from(call, &broker.state_workers(), respond)
}

fn respond(asked: &Asked<'_>, request: &CreateTopicsRequest) -> CreateTopicsResponse {
    let mut response = CreateTopicsResponse::default();
    let twins = twins(request);
    let access = asked.access();
    let cluster = (ResourceType::Cluster, CLUSTER_NAME);
    let any = access.quietly(Operation::Create, cluster);
    let mutations = asked.mutations(asked.version >= STRICT_FROM);
    for topic in &request.topics {
        let outcome = if twins.contains(topic.name.as_str()) {
            Err(Refusal::new(
                ErrorCode::InvalidRequest,
                "Duplicate topic name.",
            ))
        } else if !any
            && access
                .topic(Operation::Create, topic.name.as_str())
                .is_err()
        {
            Err(Refusal::new(
                ErrorCode::TopicAuthorizationFailed,
                "Authorization failed.",
            ))
        } else {
            create(asked, topic, (request.validate_only, &mutations))
        };
        response.topics.push(result(topic, outcome));
    }
    response.throttle_time_ms = mutations.map_or(0, |mutations| mutations.throttle_ms());
    response
}

fn twins(request: &CreateTopicsRequest) -> HashSet<&str> {
    let mut seen = HashSet::new();
    let names = request.topics.iter().map(|topic| topic.name.as_str());
    names.filter(|name| !seen.insert(*name)).collect()
}

/// Why a topic was not created; nothing of it was.
struct Refusal {
    code: ErrorCode,
    message: String,
}

impl Refusal {
    fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

fn create(
    asked: &Asked<'_>,
    topic: &CreatableTopic,
    (validate_only, mutations): (bool, &Option<Mutations<'_>>),
) -> Result<CreatableTopicResult, Refusal> {
    let new = NewTopic {
        name: topic.name.as_str().to_owned(),
        partitions: partitions(asked, topic)?,
        overrides: overrides(topic)?,
        validate_only,
    };
    check_replication(asked, topic)?;
    let refusal = |error: CreateError| Refusal {
        code: ErrorCode::from(&error),
        message: error.to_string(),
    };
    // What cannot be created costs nothing.
    if mutations.is_some() {
        asked.broker.check_topic(&new).map_err(refusal)?;
    }
    let count = usize::try_from(new.partitions).unwrap_or(0);
    let takes = |mutations: &Mutations<'_>| mutations.take(count);
    if !validate_only && !mutations.as_ref().is_none_or(takes) {
        return Err(Refusal::new(
            ErrorCode::ThrottlingQuotaExceeded,
            "The throttling quota has been exceeded.",
        ));
    }
    let created = asked.broker.create_topic(&new).map_err(refusal)?;
    let mut result = CreatableTopicResult::default();
    result.topic_id = topic_id_to_wire(created.id);
    result.num_partitions = new.partitions;
    result.replication_factor = 1;
    if asked.version < CONFIGS_FROM {
        return Ok(result);
    }
    let shown = (ResourceType::Topic, new.name.as_str());
    if asked.access().quietly(Operation::DescribeConfigs, shown) {
        let entries = describe_topic(&asked.broker.settings(), &created.config);
        let rows = entries.iter().map(|entry| {
            let mut row = CreatableTopicConfigs::default();
            row.name = text(entry.name);
            row.value = entry.value.as_deref().map(text);
            row.read_only = entry.read_only;
            row.config_source = entry.source.wire_code();
            row.is_sensitive = entry.is_sensitive;
            row
        });
        result.configs = Some(rows.collect());
    } else {
        result.num_partitions = -1;
        result.replication_factor = -1;
        result.topic_config_error_code = ErrorCode::TopicAuthorizationFailed.code();
    }
    Ok(result)
}

fn result(
    topic: &CreatableTopic,
    outcome: Result<CreatableTopicResult, Refusal>,
) -> CreatableTopicResult {
    let mut result = match outcome {
        Ok(result) => result,
        Err(refusal) => {
            let mut result = CreatableTopicResult::default();
            result.error_code = refusal.code.code();
            result.error_message = Some(text(&refusal.message));
            result.num_partitions = -1;
            result.replication_factor = -1;
            result
        }
    };
    result.name = text(topic.name.as_str());
    result
}

/// -1 means the broker's default (KIP-464); assignments are counted.
fn partitions(asked: &Asked<'_>, topic: &CreatableTopic) -> Result<i32, Refusal> {
    if !topic.assignments.is_empty() {
        return assigned(asked, topic);
    }
    match topic.num_partitions {
        -1 => Ok(asked.broker.config.num_partitions),
        ..=0 => Err(Refusal::new(
            ErrorCode::InvalidPartitions,
            "Number of partitions must be larger than 0, or -1 to use the default value.",
        )),
        count => Ok(count),
    }
}

fn assigned(asked: &Asked<'_>, topic: &CreatableTopic) -> Result<i32, Refusal> {
    let bad = |message: &str| Refusal::new(ErrorCode::InvalidReplicaAssignment, message);
    if topic.num_partitions != -1 || topic.replication_factor != -1 {
        return Err(Refusal::new(
            ErrorCode::InvalidRequest,
            "Both replicas assignment and number of partitions or replication factor are set.",
        ));
    }
    let ours = [asked.broker.node_id()];
    let mut indexes: Vec<i32> = Vec::with_capacity(topic.assignments.len());
    for assignment in &topic.assignments {
        if assignment.broker_ids != ours {
            return Err(bad(
                "This cluster has one broker; a partition has one replica on it.",
            ));
        }
        indexes.push(assignment.partition_index);
    }
    indexes.sort_unstable();
    if !indexes.iter().copied().eq((0..).take(indexes.len())) {
        return Err(bad("Partitions must be numbered from 0 without gaps."));
    }
    i32::try_from(indexes.len()).map_err(|_| bad("Too many partitions."))
}

/// There is one replica, always; whether more may be asked for is
/// `replication.factor.any`'s to say.
fn check_replication(asked: &Asked<'_>, topic: &CreatableTopic) -> Result<(), Refusal> {
    let any = asked.broker.config.replication_factor_any;
    match topic.replication_factor {
        -1 | 1 => Ok(()),
        2.. if any => Ok(()),
        0 | ..-1 => Err(Refusal::new(
            ErrorCode::InvalidReplicationFactor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )),
        factor => Err(Refusal::new(
            ErrorCode::InvalidReplicationFactor,
            format!(
                "Replication factor {factor} is larger than the one broker of this cluster; \
                 replication.factor.any=true accepts it and keeps one copy."
            ),
        )),
    }
}

fn overrides(topic: &CreatableTopic) -> Result<BTreeMap<String, String>, Refusal> {
    let mut overrides = BTreeMap::new();
    for config in &topic.configs {
        let name = config.name.as_str().to_owned();
        let Some(value) = &config.value else {
            return Err(Refusal::new(
                ErrorCode::InvalidConfig,
                format!("Null value not supported for topic configs: {name}"),
            ));
        };
        overrides.insert(name, value.as_str().to_owned());
    }
    Ok(overrides)
}
