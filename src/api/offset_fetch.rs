//! OffsetFetch: from where a group goes on.
//!
//! Versions up to 7 ask for one group, later ones for many. Offsets of a topic that was deleted, or made anew, are not
//! there.

use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire::Uuid;
use seawall_net::wire::messages::offset_fetch_request::OffsetFetchRequestGroup;
use seawall_net::wire::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use seawall_net::wire::messages::{OffsetFetchRequest, OffsetFetchResponse};

use super::codes::ErrorCode;
use super::gates::Access;
use super::{Asked, Call, answer, text, topic_id_from_wire, topic_id_to_wire};
use crate::groups::{Committed, Committer, Fetched, GroupError};
use crate::security::acl::Operation;
use crate::topics::{Topic, TopicMap};

/// The lowest version with an error for the whole group.
const ERROR_FROM: i16 = 2;
/// The lowest version with leader epochs.
const EPOCHS_FROM: i16 = 5;
/// The lowest version that asks for many groups.
const MANY_FROM: i16 = 8;
/// The lowest version that names topics by id.
const IDS_FROM: i16 = 10;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &OffsetFetchRequest) -> OffsetFetchResponse {
    let mut response = OffsetFetchResponse::default();
    let stable = request.require_stable;
    if asked.version >= MANY_FROM {
        let groups = request.groups.iter();
        response.groups = groups.map(|group| many(asked, group, stable)).collect();
        return response;
    }
    let group = request.group_id.as_str();
    let wanted = request.topics.as_ref().map(|topics| {
        let topics = topics.iter();
        let wanted = topics.map(|topic| Wanted {
            name: topic.name.as_str(),
            id: Uuid::ZERO,
            partitions: &topic.partition_indexes,
        });
        wanted.collect::<Vec<_>>()
    });
    match Reader::new(asked, group, None, stable) {
        Ok(reader) => {
            response.topics = reader
                .read(wanted.as_deref())
                .into_iter()
                .map(single_topic)
                .collect();
        }
        Err(error) => {
            let code = error.code();
            if asked.version >= ERROR_FROM {
                response.error_code = code;
            } else {
                let refused = refused(wanted.as_deref().unwrap_or_default(), code);
                response.topics = refused.into_iter().map(single_topic).collect();
            }
        }
    }
    response
}

fn many(
    asked: &Asked<'_>,
    request: &OffsetFetchRequestGroup,
    stable: bool,
) -> OffsetFetchResponseGroup {
    let mut response = OffsetFetchResponseGroup::default();
    let group = request.group_id.as_str();
    response.group_id = text(group);
    let member = request
        .member_id
        .as_ref()
        .map_or("", |member| member.as_str());
    let who = Committer {
        member: member.into(),
        instance: None,
        generation: request.member_epoch,
    };
    let wanted = request.topics.as_ref().map(|topics| {
        let topics = topics.iter();
        let wanted = topics.map(|topic| Wanted {
            name: topic.name.as_str(),
            id: topic.topic_id,
            partitions: &topic.partition_indexes,
        });
        wanted.collect::<Vec<_>>()
    });
    match Reader::new(asked, group, Some(&who), stable) {
        Ok(reader) => response.topics = reader.read(wanted.as_deref()),
        Err(code) => response.error_code = code.code(),
    }
    response
}

/// A topic that is asked for, by name or by id.
struct Wanted<'a> {
    name: &'a str,
    id: Uuid,
    partitions: &'a [i32],
}

/// Rows of an error, in the versions that have nowhere else to say it.
fn refused(wanted: &[Wanted<'_>], code: i16) -> Vec<OffsetFetchResponseTopics> {
    let topics = wanted.iter().map(|wanted| {
        let mut topic = OffsetFetchResponseTopics::default();
        topic.name = text(wanted.name);
        let partitions = wanted.partitions.iter();
        topic.partitions = partitions
            .map(|partition| row(*partition, None, code))
            .collect();
        topic
    });
    topics.collect()
}

/// The offsets of one group, for one request.
struct Reader<'a> {
    version: i16,
    topics: arc_swap::Guard<Arc<TopicMap>>,
    fetched: Fetched,
    stable: bool,
    access: Access<'a>,
}

impl<'a> Reader<'a> {
    fn new(
        asked: &'a Asked<'a>,
        group: &str,
        who: Option<&Committer>,
        stable: bool,
    ) -> Result<Self, ErrorCode> {
        asked.access().group(Operation::Describe, group)?;
        let fetched = asked.broker.groups.fetch(group, who);
        Ok(Self {
            version: asked.version,
            fetched: fetched.map_err(|error: GroupError| ErrorCode::from(&error))?,
            topics: asked.broker.topics.load(),
            stable,
            access: asked.access(),
        })
    }

    fn read(&self, wanted: Option<&[Wanted<'_>]>) -> Vec<OffsetFetchResponseTopics> {
        match wanted {
            Some(wanted) => wanted.iter().map(|wanted| self.one(wanted)).collect(),
            None => self.all(),
        }
    }

    fn one(&self, wanted: &Wanted<'_>) -> OffsetFetchResponseTopics {
        let mut answer = OffsetFetchResponseTopics::default();
        let by_id = self.version >= IDS_FROM;
        let topic = if by_id {
            let id = topic_id_from_wire(wanted.id);
            self.access.with_id(&self.topics, Operation::Describe, id)
        } else {
            self.access
                .named(&self.topics, Operation::Describe, wanted.name)
        };
        if by_id {
            answer.topic_id = wanted.id;
        } else {
            answer.name = text(wanted.name);
        }
        let rows = wanted.partitions.iter();
        answer.partitions = rows
            .map(|partition| match topic {
                Ok(topic) => self.partition(topic, *partition),
                Err(code @ (ErrorCode::UnknownTopicId | ErrorCode::TopicAuthorizationFailed)) => {
                    row(*partition, None, code.code())
                }
                // Nothing was committed for a topic that is not there.
                Err(_) => row(*partition, None, ErrorCode::None.code()),
            })
            .collect();
        answer
    }

    fn partition(&self, topic: &Topic, partition: i32) -> OffsetFetchResponsePartitions {
        let key = (Arc::clone(&topic.name), partition);
        if self.stable && self.fetched.unstable.contains(&key) {
            return row(partition, None, ErrorCode::UnstableOffsetCommit.code());
        }
        let committed = self.fetched.table.get(&topic.name, topic.id, partition);
        let mut row = row(partition, committed, ErrorCode::None.code());
        if self.version < EPOCHS_FROM {
            row.committed_leader_epoch = -1;
        }
        row
    }

    /// Everything the group has committed, that is still there, and that the reader may see.
    fn all(&self) -> Vec<OffsetFetchResponseTopics> {
        let topics = self.fetched.table.offsets.iter();
        let there = topics.filter_map(|(name, offsets)| {
            let topic = self.topics.named(name).ok()?;
            let is_shown = topic.id == offsets.id && self.access.sees_topic(name);
            is_shown.then_some((topic, offsets))
        });
        there
            .map(|(topic, offsets)| {
                let mut answer = OffsetFetchResponseTopics::default();
                if self.version >= IDS_FROM {
                    answer.topic_id = topic_id_to_wire(topic.id);
                } else {
                    answer.name = text(&topic.name);
                }
                let partitions = offsets.partitions.keys();
                answer.partitions = partitions
                    .map(|partition| self.partition(topic, *partition))
                    .collect();
                answer
            })
            .collect()
    }
}

fn row(partition: i32, committed: Option<&Committed>, code: i16) -> OffsetFetchResponsePartitions {
    let mut row = OffsetFetchResponsePartitions::default();
    row.partition_index = partition;
    row.error_code = code;
    row.committed_offset = committed.map_or(-1, |c| c.offset);
    row.committed_leader_epoch = committed.map_or(-1, |c| c.leader_epoch);
    row.metadata = Some(text(committed.map_or("", |c| &c.metadata)));
    row
}

/// The form of versions up to 7.
fn single_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic {
    let mut single = OffsetFetchResponseTopic::default();
    single.name = topic.name;
    let partitions = topic.partitions.into_iter();
    single.partitions = partitions
        .map(|partition| {
            let mut row = OffsetFetchResponsePartition::default();
            row.partition_index = partition.partition_index;
            row.committed_offset = partition.committed_offset;
            row.committed_leader_epoch = partition.committed_leader_epoch;
            row.metadata = partition.metadata;
            row.error_code = partition.error_code;
            row
        })
        .collect();
    single
}
