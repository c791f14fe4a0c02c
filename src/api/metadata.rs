//! Metadata: who we are and which topics there are.
//!
//! A missing topic is created first when both sides allow it; then the answer
//! comes from the state workers, for the disk has to be asked.

use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire;
use seawall_net::wire::messages::metadata_request::MetadataRequestTopic;
use seawall_net::wire::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use seawall_net::wire::messages::{MetadataRequest, MetadataResponse};

use super::codes::ErrorCode;
use super::gates::Access;
use super::{
    Asked, Call, MALFORMED, answer_from, reply, text, topic_id_from_wire, topic_id_to_wire,
};
use crate::cluster::TopicName;
use crate::security::acl::{CLUSTER_NAME, Operation, ResourceType};
use crate::topics::{LookupError, Topic, TopicMap};

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<MetadataRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    if !missing(&call, &request).is_empty() {
        let broker = Arc::clone(call.broker);
        return answer_from(call, &broker.state_workers(), |asked, request| {
            auto_create(asked, request);
            respond(asked, request)
        });
    }
    let asked = Asked {
        broker: call.broker,
        session: &call.conn.session,
        api: call.api,
        client: call.client(),
        version,
    };
    reply(call.slot, &respond(&asked, &request), version);
    Flow::Done
}

/// Creates what is missing, as far as the rate of changes allows; what is beyond it stays unknown.
fn auto_create(asked: &Asked<'_>, request: &MetadataRequest) {
    let mutations = asked.mutations(true);
    let partitions = usize::try_from(asked.broker.config.num_partitions).unwrap_or(0);
    for name in creatable(asked.access(), &asked.broker.topics.load(), request) {
        if mutations.as_ref().is_none_or(|all| all.take(partitions)) {
            asked.broker.auto_create(&name);
        }
    }
}

/// Names to create before the answer.
fn missing(call: &Call<'_>, request: &MetadataRequest) -> Vec<String> {
    let version = call.request.header.api_version;
    // Versions below 4 lack the field and mean yes.
    let allowed = request.allow_auto_topic_creation || version < 4;
    if !allowed || !call.broker.config.auto_create_topics {
        return Vec::new();
    }
    creatable(call.access(), &call.broker.topics.load(), request)
}

/// Missing topics that the sender may see and create.
fn creatable(access: Access<'_>, map: &TopicMap, request: &MetadataRequest) -> Vec<String> {
    let may = |name: &str| access.sees_topic(name) && may_create(access, name);
    let names = request.topics.iter().flatten();
    let names = names.filter_map(|topic| topic.name.as_ref());
    let names = names.map(|name| name.as_str());
    names
        .filter(|name| {
            matches!(map.named(name), Err(LookupError::UnknownTopic))
                && TopicName::parse(name).is_ok()
                && may(name)
        })
        .map(str::to_owned)
        .collect()
}

fn may_create(access: Access<'_>, name: &str) -> bool {
    let cluster = (ResourceType::Cluster, CLUSTER_NAME);
    access.quietly(Operation::Create, cluster)
        || access.quietly(Operation::Create, (ResourceType::Topic, name))
}

fn respond(asked: &Asked<'_>, request: &MetadataRequest) -> MetadataResponse {
    let map = asked.broker.topics.load();
    let mut response = MetadataResponse::default();
    let (host, port) = asked.broker.endpoint(asked.session);
    let mut broker = MetadataResponseBroker::default();
    broker.node_id = asked.broker.node_id();
    broker.host = text(host);
    broker.port = i32::from(port);
    broker.rack = asked.broker.config.rack.as_deref().map(text);
    response.brokers = vec![broker];
    response.cluster_id = Some(text(asked.broker.cluster_id()));
    response.controller_id = asked.broker.node_id();
    let asked_for = request.include_cluster_authorized_operations;
    response.cluster_authorized_operations = asked.access().on_cluster(asked_for);
    let may_create = asked.broker.config.auto_create_topics
        && (request.allow_auto_topic_creation || asked.version < 4);
    let rows = Rows {
        access: asked.access(),
        may_create,
        node: asked.broker.node_id(),
        with_operations: request.include_topic_authorized_operations,
    };
    response.topics = match wanted(request, asked.version) {
        None => rows.all(&map),
        Some(topics) => topics.iter().map(|topic| rows.one(&map, topic)).collect(),
    };
    response
}

/// The topics asked for; `None` for all of them. Version 0 has no null and says
/// it with an empty list.
fn wanted(request: &MetadataRequest, version: i16) -> Option<&[MetadataRequestTopic]> {
    let topics = request.topics.as_deref()?;
    (version > 0 || !topics.is_empty()).then_some(topics)
}

/// How topics are told.
struct Rows<'a> {
    access: Access<'a>,
    /// A missing topic would be created for those who may.
    may_create: bool,
    node: i32,
    with_operations: bool,
}

impl Rows<'_> {
    fn all(&self, map: &TopicMap) -> Vec<MetadataResponseTopic> {
        let shown = map
            .iter()
            .filter(|topic| self.access.sees_topic(&topic.name));
        let mut topics: Vec<&Arc<Topic>> = shown.collect();
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        topics.into_iter().map(|topic| self.good(topic)).collect()
    }

    fn one(&self, map: &TopicMap, asked: &MetadataRequestTopic) -> MetadataResponseTopic {
        let by_id = !asked.topic_id.is_zero();
        let name = asked.name.as_ref().map(|name| name.as_str());
        let describe = Operation::Describe;
        let found = match name {
            _ if by_id => {
                let id = topic_id_from_wire(asked.topic_id);
                self.access.with_id(map, describe, id)
            }
            Some(name) => self.access.named(map, describe, name),
            None => Err(ErrorCode::UnknownTopicId),
        };
        let code = match found {
            Ok(topic) => return self.good(topic),
            Err(code) => code,
        };
        let code = match name {
            Some(name) if !by_id && code == ErrorCode::UnknownTopicOrPartition => {
                self.missing(name)
            }
            _ => code,
        };
        let mut row = MetadataResponseTopic::default();
        row.error_code = code.code();
        row.name = name.map(text);
        row.topic_id = asked.topic_id;
        row
    }

    /// What is said of a topic that the sender may see and that is not there.
    fn missing(&self, name: &str) -> ErrorCode {
        if TopicName::parse(name).is_err() {
            ErrorCode::InvalidTopicException
        } else if self.may_create && !may_create(self.access, name) {
            let create = self.access.topic(Operation::Create, name);
            create.err().unwrap_or(ErrorCode::TopicAuthorizationFailed)
        } else {
            ErrorCode::UnknownTopicOrPartition
        }
    }

    fn good(&self, topic: &Topic) -> MetadataResponseTopic {
        let mut row = MetadataResponseTopic::default();
        row.name = Some(text(&topic.name));
        row.topic_id = topic_id_to_wire(topic.id);
        row.topic_authorized_operations = self.access.on_topic(self.with_operations, &topic.name);
        row.partitions = (0..)
            .zip(&topic.partitions)
            .map(|(index, slot)| {
                let mut row = MetadataResponsePartition::default();
                row.partition_index = index;
                row.leader_id = self.node;
                row.leader_epoch = slot.leader_epoch().get();
                row.replica_nodes = vec![self.node];
                row.isr_nodes = vec![self.node];
                if !slot.is_healthy() {
                    row.offline_replicas = vec![self.node];
                }
                row
            })
            .collect();
        row
    }
}
