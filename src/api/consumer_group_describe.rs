//! ConsumerGroupDescribe (KIP-848): groups of the consumer protocol with what their members have and are to have.

use seawall_net::Flow;
use seawall_net::wire::messages::consumer_group_describe_response::{
    Assignment, DescribedGroup, Member, TopicPartitions,
};
use seawall_net::wire::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text, topic_id_to_wire};
use crate::groups::GroupError;
use crate::groups::consumer::{ConsumerDescription, DescribedConsumer, Partitions};
use crate::security::acl::Operation;
use crate::topics::TopicMap;

/// The lowest version that tells the protocol of a member.
const TYPES_FROM: i16 = 1;
const CLASSIC: i8 = 0;
const CONSUMER: i8 = 1;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(
    asked: &Asked<'_>,
    request: &ConsumerGroupDescribeRequest,
) -> ConsumerGroupDescribeResponse {
    let topics = asked.broker.topics.load();
    let mut response = ConsumerGroupDescribeResponse::default();
    let groups = request.group_ids.iter();
    response.groups = groups
        .map(|group| {
            let group = group.as_str();
            let mut row = row(asked, group, &topics);
            row.group_id = text(group);
            let asked_for = request.include_authorized_operations && row.error_code == 0;
            row.authorized_operations = asked.access().on_group(asked_for, group);
            row
        })
        .collect();
    response
}

fn row(asked: &Asked<'_>, group: &str, topics: &TopicMap) -> DescribedGroup {
    if let Err(code) = asked.access().group(Operation::Describe, group) {
        let mut row = DescribedGroup::default();
        row.error_code = code.code();
        return row;
    }
    match asked.broker.groups.describe_consumer(group) {
        Ok(description) => {
            let row = described(&description, topics, asked.version);
            hidden(asked, &row).unwrap_or(row)
        }
        Err(error) => refused(group, error),
    }
}

/// Assignments tell the names of topics that are there: who may not see one of them sees none of the group. What members
/// have subscribed to says nothing about what there is, and is told as in Kafka.
fn hidden(asked: &Asked<'_>, row: &DescribedGroup) -> Option<DescribedGroup> {
    let access = asked.access();
    let of_member = |member: &Member| {
        let assigned = [&member.assignment, &member.target_assignment];
        let assigned = assigned.into_iter().flat_map(|all| &all.topic_partitions);
        let mut names = assigned.map(|topic| &topic.topic_name);
        names.any(|name| !access.sees_topic(name.as_str()))
    };
    row.members.iter().any(of_member).then(|| {
        let mut row = DescribedGroup::default();
        row.error_code = ErrorCode::TopicAuthorizationFailed.code();
        let why = "The group has described topic(s) that the client is not authorized to describe.";
        row.error_message = Some(text(why));
        row
    })
}

fn described(group: &ConsumerDescription, topics: &TopicMap, version: i16) -> DescribedGroup {
    let mut row = DescribedGroup::default();
    row.group_state = text(group.state);
    row.group_epoch = group.epoch;
    row.assignment_epoch = group.assignment_epoch;
    row.assignor_name = text(group.assignor);
    let members = group.members.iter();
    row.members = members.map(|one| member(one, topics, version)).collect();
    row
}

fn member(member: &DescribedConsumer, topics: &TopicMap, version: i16) -> Member {
    let mut row = Member::default();
    row.member_id = text(&member.id);
    row.instance_id = member.instance.as_deref().map(text);
    row.rack_id = member.rack.as_deref().map(text);
    row.member_epoch = member.epoch;
    row.client_id = text(&member.client_id);
    row.client_host = text(&member.client_host);
    row.subscribed_topic_names = member.names.iter().map(|name| text(name)).collect();
    row.subscribed_topic_regex = member.regex.as_deref().map(text);
    row.assignment = assignment(&member.assigned, topics);
    row.target_assignment = assignment(&member.target, topics);
    if version >= TYPES_FROM {
        row.member_type = if member.is_classic { CLASSIC } else { CONSUMER };
    }
    row
}

/// Topics that are gone are left out: they have no name any more.
fn assignment(partitions: &Partitions, topics: &TopicMap) -> Assignment {
    let mut assignment = Assignment::default();
    let named = partitions.iter().filter_map(|(id, partitions)| {
        let mut row = TopicPartitions::default();
        row.topic_id = topic_id_to_wire(*id);
        row.topic_name = text(&topics.with_id(*id).ok()?.name);
        row.partitions = partitions.iter().copied().collect();
        Some(row)
    });
    assignment.topic_partitions = named.collect();
    assignment
}

fn refused(group: &str, error: GroupError) -> DescribedGroup {
    let mut row = DescribedGroup::default();
    row.error_code = ErrorCode::from(&error).code();
    row.error_message = match error {
        GroupError::NotFound => Some(text(&format!("Group {group} not found."))),
        GroupError::WrongType => Some(text(&format!("Group {group} is not a consumer group."))),
        _ => None,
    };
    row
}
