//! DeleteTopics, by name or by id: gone when the answer is out; its files
//! follow.

use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire::Uuid;
use seawall_net::wire::messages::delete_topics_response::DeletableTopicResult;
use seawall_net::wire::messages::{DeleteTopicsRequest, DeleteTopicsResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer_from, text, topic_id_from_wire, topic_id_to_wire};
use crate::security::acl::Operation;
use crate::security::quota::Mutations;
use crate::topics::Topic;

/// The lowest version that is refused what is beyond its quota (KIP-599).
const STRICT_FROM: i16 = 5;
/// The lowest version that takes ids (KIP-516).
const IDS_FROM: i16 = 6;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let broker = Arc::clone(call.broker);
    answer_from(call, &broker.state_workers(), respond)
}

/// A topic as the client names it.
struct Named {
    name: Option<String>,
    id: Uuid,
}

impl Named {
    /// The name behind an id, for those who may see it.
    fn shown(&self, asked: &Asked<'_>) -> Option<Arc<str>> {
        let map = asked.broker.topics.load();
        let topic = map.with_id(topic_id_from_wire(self.id)).ok()?;
        let is_shown = asked.access().sees_topic(&topic.name);
        is_shown.then(|| Arc::clone(&topic.name))
    }
}

fn respond(asked: &Asked<'_>, request: &DeleteTopicsRequest) -> DeleteTopicsResponse {
    let mut response = DeleteTopicsResponse::default();
    let mutations = asked.mutations(asked.version >= STRICT_FROM);
    for named in named(request, asked.version) {
        let mut row = DeletableTopicResult::default();
        row.name = named.name.as_deref().map(text);
        row.topic_id = named.id;
        match delete(asked, &named, mutations.as_ref()) {
            Ok(topic) => {
                row.name = Some(text(&topic.name));
                row.topic_id = topic_id_to_wire(topic.id);
            }
            Err((code, message)) => {
                row.error_code = code.code();
                row.error_message = message.as_deref().map(text);
                row.name = named.shown(asked).as_deref().map(text).or(row.name);
            }
        }
        response.responses.push(row);
    }
    response.throttle_time_ms = mutations.map_or(0, |mutations| mutations.throttle_ms());
    response
}

fn named(request: &DeleteTopicsRequest, version: i16) -> Vec<Named> {
    if version < IDS_FROM {
        let names = request.topic_names.iter();
        let named = names.map(|name| Named {
            name: Some(name.as_str().to_owned()),
            id: Uuid::default(),
        });
        return named.collect();
    }
    let topics = request.topics.iter();
    let named = topics.map(|topic| Named {
        name: topic.name.as_ref().map(|name| name.as_str().to_owned()),
        id: topic.topic_id,
    });
    named.collect()
}

fn delete(
    asked: &Asked<'_>,
    named: &Named,
    mutations: Option<&Mutations<'_>>,
) -> Result<Arc<Topic>, (ErrorCode, Option<String>)> {
    if !asked.broker.config.delete_topics {
        return Err((ErrorCode::TopicDeletionDisabled, None));
    }
    let map = asked.broker.topics.load();
    let access = asked.access();
    let found = match &named.name {
        Some(_) if !named.id.is_zero() => {
            let why = "Topic name and topic id can not both be set.".to_owned();
            return Err((ErrorCode::InvalidRequest, Some(why)));
        }
        Some(name) => access.named(&map, Operation::Delete, name),
        None => access.with_id(&map, Operation::Delete, topic_id_from_wire(named.id)),
    };
    let topic = found.map_err(|code| (code, None))?;
    let takes = |mutations: &Mutations<'_>| mutations.take(topic.partitions.len());
    if !mutations.is_none_or(takes) {
        let why = "The throttling quota has been exceeded.".to_owned();
        return Err((ErrorCode::ThrottlingQuotaExceeded, Some(why)));
    }
    asked
        .broker
        .delete_topic(topic)
        .map_err(|error| (ErrorCode::from(&error), Some(error.to_string())))?;
    Ok(Arc::clone(topic))
}
