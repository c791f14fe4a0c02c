//! ConsumerGroupHeartbeat (KIP-848): a member joins, stays, or leaves, and learns what it is to have.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use seawall_net::Flow;
use seawall_net::wire::messages::consumer_group_heartbeat_request::TopicPartitions as Owned;
use seawall_net::wire::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use seawall_net::wire::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use seawall_net::wire::{self, StrBytes};

use super::codes::ErrorCode;
use super::gates::Access;
use super::slot::Work;
use super::{Call, MALFORMED, reply, text, topic_id_from_wire, topic_id_to_wire};
use crate::groups::GroupError;
use crate::groups::consumer::{Beaten, Heartbeat, Partitions, Sight, View};
use crate::security::acl::{Operation, ResourceType};
use crate::security::{Authorizer, Session};

/// The lowest version in which members choose their ids themselves.
const OWN_IDS_FROM: i16 = 1;
/// Member epochs with a meaning of their own.
const JOIN: i32 = 0;
const LEAVE: i32 = -1;
const GO_AWAY: i32 = -2;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let body = &call.request.body;
    let Ok(request) = wire::decode::<ConsumerGroupHeartbeatRequest>(body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let broker = Arc::clone(call.broker);
    let interval = broker.groups.config.limits.consumer.heartbeat_interval;
    if let Err(code) = allowed(call.access(), &request) {
        reply(call.slot, &refused(code, None), version);
        return Flow::Done;
    }
    let client = call.client();
    let slot = call.slot;
    if let Some(why) = contradiction(&request, version) {
        reply(
            slot,
            &refused(ErrorCode::InvalidRequest, Some(why)),
            version,
        );
        return Flow::Done;
    }
    let answer = move |beaten: Result<Beaten, GroupError>| {
        let response = match beaten {
            Ok(beaten) => told(beaten, interval),
            Err(error) => refused(ErrorCode::from(&error), None),
        };
        reply(slot, &response, version);
    };
    let client_id = call.request.header.client_id.clone();
    let view = Arc::new(MemberView {
        authorizer: Arc::clone(&broker.authorizer),
        session: call.conn.session.clone(),
    });
    // Assignors burn CPU.
    call.broker.workers().submit(move || {
        let _work = client.as_ref().map(|who| Work::of(&broker, who));
        let beat = heartbeat(&request, client_id.unwrap_or_default(), view);
        let group = request.group_id.as_str();
        broker.groups.beat(group, &beat, Box::new(answer));
    });
    Flow::Done
}

/// A member may read with the group, and subscribe by name to what it may see.
fn allowed(access: Access<'_>, request: &ConsumerGroupHeartbeatRequest) -> Result<(), ErrorCode> {
    access.group(Operation::Read, request.group_id.as_str())?;
    let mut names = request.subscribed_topic_names.iter().flatten();
    names.try_for_each(|name| access.topic(Operation::Describe, name.as_str()))
}

/// What a member may see, by its login and the rules of the moment.
struct MemberView {
    authorizer: Arc<Authorizer>,
    session: Session,
}

impl fmt::Debug for MemberView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what {} may see", self.session.principal)
    }
}

impl View for MemberView {
    fn sees(&self, topic: &str) -> bool {
        let what = (ResourceType::Topic, topic);
        self.authorizer
            .may_quietly(&self.session, Operation::Describe, what)
    }

    fn sight(&self) -> Sight {
        let user = self.session.principal.shared_name();
        (user, self.session.host, self.authorizer.version())
    }
}

/// What no member may say.
fn contradiction(request: &ConsumerGroupHeartbeatRequest, version: i16) -> Option<&'static str> {
    let epoch = request.member_epoch;
    let empty =
        |field: &Option<StrBytes>| field.as_ref().is_some_and(|text| text.as_str().is_empty());
    let needs_id = version >= OWN_IDS_FROM || epoch > JOIN || epoch == LEAVE;
    if request.group_id.as_str().is_empty() {
        Some("GroupId can't be empty.")
    } else if empty(&request.instance_id) {
        Some("InstanceId can't be empty.")
    } else if empty(&request.rack_id) {
        Some("RackId can't be empty.")
    } else if needs_id && request.member_id.as_str().is_empty() {
        Some("MemberId can't be empty.")
    } else if epoch < GO_AWAY {
        Some("MemberEpoch is invalid.")
    } else if epoch == GO_AWAY && request.instance_id.is_none() {
        Some("InstanceId can't be null.")
    } else if epoch == JOIN {
        join_contradiction(request)
    } else {
        None
    }
}

fn join_contradiction(request: &ConsumerGroupHeartbeatRequest) -> Option<&'static str> {
    let owns_nothing = request.topic_partitions.as_ref().is_some_and(Vec::is_empty);
    if request.rebalance_timeout_ms == -1 {
        Some("RebalanceTimeoutMs must be provided in first request.")
    } else if !owns_nothing {
        Some("TopicPartitions must be empty when (re-)joining.")
    } else if request.subscribed_topic_names.is_none() && request.subscribed_topic_regex.is_none() {
        Some(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    } else {
        None
    }
}

fn heartbeat(
    request: &ConsumerGroupHeartbeatRequest,
    client_id: Arc<str>,
    view: Arc<MemberView>,
) -> Heartbeat {
    let copy = |field: &Option<StrBytes>| field.as_ref().map(|text| Arc::from(text.as_str()));
    let names = request.subscribed_topic_names.as_ref().map(|names| {
        let names = names.iter();
        names
            .map(|name| Arc::from(name.as_str()))
            .collect::<BTreeSet<Arc<str>>>()
    });
    let member = match request.member_id.as_str() {
        // Up to version 0 the coordinator gives the id.
        "" => uuid::Uuid::new_v4().to_string().into(),
        id => id.into(),
    };
    let timeout = u64::try_from(request.rebalance_timeout_ms).ok();
    Heartbeat {
        member,
        epoch: request.member_epoch,
        instance: copy(&request.instance_id),
        rack: copy(&request.rack_id),
        client_id,
        client_host: format!("/{}", view.session.host).into(),
        view,
        rebalance_timeout: timeout.map(Duration::from_millis),
        names,
        regex: copy(&request.subscribed_topic_regex),
        assignor: copy(&request.server_assignor),
        owned: request.topic_partitions.as_deref().map(owned),
    }
}

fn owned(topics: &[Owned]) -> Partitions {
    let mut owned = Partitions::new();
    for topic in topics {
        let partitions = owned.entry(topic_id_from_wire(topic.topic_id)).or_default();
        partitions.extend(&topic.partitions);
    }
    owned
}

fn told(beaten: Beaten, interval: Duration) -> ConsumerGroupHeartbeatResponse {
    let mut response = ConsumerGroupHeartbeatResponse::default();
    response.member_id = Some(text(&beaten.member));
    response.member_epoch = beaten.epoch;
    response.heartbeat_interval_ms = match beaten.epoch {
        LEAVE | GO_AWAY => 0,
        _ => i32::try_from(interval.as_millis()).unwrap_or(i32::MAX),
    };
    response.assignment = beaten.assignment.map(|partitions| {
        let mut assignment = Assignment::default();
        let topics = partitions.into_iter();
        assignment.topic_partitions = topics
            .map(|(topic, partitions)| {
                let mut row = TopicPartitions::default();
                row.topic_id = topic_id_to_wire(topic);
                row.partitions = partitions.into_iter().collect();
                row
            })
            .collect();
        assignment
    });
    response
}

fn refused(code: ErrorCode, why: Option<&str>) -> ConsumerGroupHeartbeatResponse {
    let mut response = ConsumerGroupHeartbeatResponse::default();
    response.error_code = code.code();
    response.error_message = why.map(text);
    response
}
