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
use super::operations::{self, ON_CLUSTER, ON_TOPIC};
use super::{
    Asked, Call, MALFORMED, answer_from, reply, text, topic_id_from_wire, topic_id_to_wire,
};
use crate::cluster::TopicName;
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
            for name in creatable(&asked.broker.topics.load(), request) {
                asked.broker.auto_create(&name);
            }
            respond(asked, request)
        });
    }
    let asked = Asked {
        broker: call.broker,
        session: &call.conn.session,
        version,
    };
    reply(call.slot, &respond(&asked, &request), version);
    Flow::Done
}

/// Names to create before the answer.
fn missing(call: &Call<'_>, request: &MetadataRequest) -> Vec<String> {
    let version = call.request.header.api_version;
    // Versions below 4 lack the field and mean yes.
    let allowed = request.allow_auto_topic_creation || version < 4;
    if !allowed || !call.broker.config.auto_create_topics {
        return Vec::new();
    }
    creatable(&call.broker.topics.load(), request)
}

fn creatable(map: &TopicMap, request: &MetadataRequest) -> Vec<String> {
    let names = request.topics.iter().flatten();
    let names = names.filter_map(|topic| topic.name.as_ref());
    let names = names.map(|name| name.as_str());
    names
        .filter(|name| {
            matches!(map.named(name), Err(LookupError::UnknownTopic))
                && TopicName::parse(name).is_ok()
        })
        .map(str::to_owned)
        .collect()
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
    response.cluster_authorized_operations =
        operations::field(request.include_cluster_authorized_operations, ON_CLUSTER);
    let rows = Rows {
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
struct Rows {
    node: i32,
    with_operations: bool,
}

impl Rows {
    fn all(&self, map: &TopicMap) -> Vec<MetadataResponseTopic> {
        let mut topics: Vec<&Arc<Topic>> = map.iter().collect();
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        topics.into_iter().map(|topic| self.good(topic)).collect()
    }

    fn one(&self, map: &TopicMap, asked: &MetadataRequestTopic) -> MetadataResponseTopic {
        let by_id = !asked.topic_id.is_zero();
        let name = asked.name.as_ref().map(|name| name.as_str());
        let found = match name {
            _ if by_id => map.with_id(topic_id_from_wire(asked.topic_id)),
            Some(name) => map.named(name),
            None => Err(LookupError::UnknownTopicId),
        };
        let error = match found {
            Ok(topic) => return self.good(topic),
            Err(error) => error,
        };
        let code = match name {
            Some(name) if !by_id && TopicName::parse(name).is_err() => {
                ErrorCode::InvalidTopicException
            }
            _ => ErrorCode::from(&error),
        };
        let mut row = MetadataResponseTopic::default();
        row.error_code = code.code();
        row.name = name.map(text);
        row.topic_id = asked.topic_id;
        row
    }

    fn good(&self, topic: &Topic) -> MetadataResponseTopic {
        let mut row = MetadataResponseTopic::default();
        row.name = Some(text(&topic.name));
        row.topic_id = topic_id_to_wire(topic.id);
        row.topic_authorized_operations = operations::field(self.with_operations, ON_TOPIC);
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
