//! DescribeTopicPartitions (KIP-966): topics page by page.
//!
//! One replica: no eligible leader replicas and no last known ones.

use seawall_net::Flow;
use seawall_net::wire::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use seawall_net::wire::messages::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
};

use super::codes::ErrorCode;
use super::gates::Access;
use super::{Asked, Call, answer, text, topic_id_to_wire};
use crate::cluster::TopicName;
use crate::security::acl::Operation;
use crate::topics::Topic;

/// Most partitions in one answer (`max.request.partition.size.limit`).
const PARTITIONS_MAX: usize = 2000;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(
    asked: &Asked<'_>,
    request: &DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let map = asked.broker.topics.load();
    let access = asked.access();
    let mut names: Vec<String> = if request.topics.is_empty() {
        let shown = map.iter().filter(|topic| access.sees_topic(&topic.name));
        shown.map(|topic| topic.name.to_string()).collect()
    } else {
        let names = request.topics.iter();
        names.map(|topic| topic.name.as_str().to_owned()).collect()
    };
    names.sort();
    names.dedup();
    let mut page = Page::new(asked, request.response_partition_limit);
    let cursor = request.cursor.as_ref();
    let (first, from) = cursor.map_or(("", 0), |c| (c.topic_name.as_str(), c.partition_index));
    if cursor.is_some() && !names.iter().any(|name| name == first) && !request.topics.is_empty() {
        return refused(&names);
    }
    for name in names.iter().filter(|name| name.as_str() >= first) {
        let from = if name == first { from.max(0) } else { 0 };
        let done = match access.named(&map, Operation::Describe, name) {
            Ok(topic) => page.add(topic, from),
            Err(code) => page.add_unknown(name, code),
        };
        if !done {
            break;
        }
    }
    page.response
}

/// A cursor on a topic that was not asked for.
fn refused(names: &[String]) -> DescribeTopicPartitionsResponse {
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names {
        let mut row = DescribeTopicPartitionsResponseTopic::default();
        row.error_code = ErrorCode::InvalidRequest.code();
        row.name = Some(text(name));
        response.topics.push(row);
    }
    response
}

/// An answer that fills up to its limit.
struct Page<'a> {
    node: i32,
    access: Access<'a>,
    left: usize,
    response: DescribeTopicPartitionsResponse,
}

impl<'a> Page<'a> {
    /// A limit of 0 or below means 1, as in Kafka.
    fn new(asked: &Asked<'a>, limit: i32) -> Self {
        let limit = usize::try_from(limit).unwrap_or(0);
        Self {
            node: asked.broker.node_id(),
            access: asked.access(),
            left: limit.clamp(1, PARTITIONS_MAX),
            response: DescribeTopicPartitionsResponse::default(),
        }
    }

    /// Says whether there is room for more.
    fn add(&mut self, topic: &Topic, from: i32) -> bool {
        let mut row = DescribeTopicPartitionsResponseTopic::default();
        row.name = Some(text(&topic.name));
        row.topic_id = topic_id_to_wire(topic.id);
        row.topic_authorized_operations = self.access.on_topic(true, &topic.name);
        let mut cut_at = None;
        let skip = usize::try_from(from).unwrap_or(0);
        for (index, slot) in (0..).zip(&topic.partitions).skip(skip) {
            if self.left == 0 {
                cut_at = Some(index);
                break;
            }
            self.left -= 1;
            let mut part = DescribeTopicPartitionsResponsePartition::default();
            part.partition_index = index;
            part.leader_id = self.node;
            part.leader_epoch = slot.leader_epoch().get();
            part.replica_nodes = vec![self.node];
            part.isr_nodes = vec![self.node];
            part.eligible_leader_replicas = Some(Vec::new());
            part.last_known_elr = Some(Vec::new());
            if !slot.is_healthy() {
                part.offline_replicas = vec![self.node];
            }
            row.partitions.push(part);
        }
        if let Some(index) = cut_at {
            let mut cursor = Cursor::default();
            cursor.topic_name = text(&topic.name);
            cursor.partition_index = index;
            self.response.next_cursor = Some(cursor);
        }
        if cut_at.is_none() || !row.partitions.is_empty() {
            self.response.topics.push(row);
        }
        cut_at.is_none()
    }

    fn add_unknown(&mut self, name: &str, code: ErrorCode) -> bool {
        let mut row = DescribeTopicPartitionsResponseTopic::default();
        let unknown = code == ErrorCode::UnknownTopicOrPartition;
        let code = if unknown && TopicName::parse(name).is_err() {
            ErrorCode::InvalidTopicException
        } else {
            code
        };
        row.error_code = code.code();
        row.name = Some(text(name));
        self.response.topics.push(row);
        true
    }
}
