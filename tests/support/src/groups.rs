//! Consumer groups without a client library: the requests of both group protocols in the form of any version, and a
//! member of the classic protocol that takes its steps one by one.
//!
//! Fields that a version does not have are left at their defaults, so that one description of a request serves all.

use bytes::{Bytes, BytesMut};
use kafka_wire::find_coordinator_response::Coordinator;
use kafka_wire::join_group_request::JoinGroupRequestProtocol;
use kafka_wire::leave_group_request::MemberIdentity;
use kafka_wire::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_wire::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_wire::sync_group_request::SyncGroupRequestAssignment;
use kafka_wire::{
    ConsumerProtocolSubscription, FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, OffsetCommitRequest, OffsetFetchRequest,
    SyncGroupRequest, SyncGroupResponse, encode_consumer_protocol_subscription,
};
use kafka_wire_core::{ApiVersion, Uuid};

use crate::raw::Raw;
use crate::requests::TopicRef;
use crate::wait::{self, SOON};

/// The member id that came with it has to be used in the next JoinGroup (KIP-394).
pub const MEMBER_ID_REQUIRED: i16 = 79;
/// A coordinator that Kafka has not made yet.
const COORDINATOR_ERRORS: [i16; 3] = [14, 15, 16];

/// What a consumer of the classic protocol says about itself: the topics it wants, as version 1 of its metadata.
///
/// # Panics
/// Never with topic names that fit.
#[must_use]
pub fn subscription(topics: &[&str]) -> Bytes {
    let mut subscription = ConsumerProtocolSubscription::default();
    subscription.topics = topics.iter().map(|topic| (*topic).into()).collect();
    let mut bytes = BytesMut::new();
    encode_consumer_protocol_subscription(&mut bytes, &subscription, ApiVersion::new(1))
        .expect("a subscription");
    bytes.freeze()
}

/// FindCoordinator of one key in the form of a version.
#[must_use]
pub fn find_coordinator(version: i16, key: &str, key_type: i8) -> FindCoordinatorRequest {
    let mut request = FindCoordinatorRequest::default();
    if version >= 1 {
        request.key_type = key_type;
    }
    if version >= 4 {
        request.coordinator_keys = vec![key.into()];
    } else {
        request.key = key.into();
    }
    request
}

/// Finds the coordinator of one key; the answer is in the form of the batch, whatever the version.
pub fn coordinator_of(raw: &mut Raw, version: i16, key: &str, key_type: i8) -> Coordinator {
    let request = find_coordinator(version, key, key_type);
    let mut answer = raw.call::<FindCoordinatorRequest>(version, &request);
    if version >= 4 {
        return answer.coordinators.remove(0);
    }
    let mut found = Coordinator::default();
    found.key = key.into();
    (found.node_id, found.host, found.port) = (answer.node_id, answer.host, answer.port);
    (found.error_code, found.error_message) = (answer.error_code, answer.error_message);
    found
}

/// Waits until a group has a coordinator; Kafka makes the topic behind it on the first request.
pub fn until_coordinated(raw: &mut Raw, group: &str) {
    wait::until("the group has a coordinator", SOON, || {
        let found = coordinator_of(raw, 4, group, 0);
        if found.error_code != 0 {
            return false;
        }
        // A heartbeat would be answered well while the group loads.
        let (error, _) = OffsetsOf::all(group).run(raw, 7);
        !COORDINATOR_ERRORS.contains(&error)
    });
}

/// What a member of the classic protocol says when it joins.
#[derive(Clone, Debug)]
pub struct Join {
    /// The group.
    pub group: String,
    /// Its id, empty at first.
    pub member: String,
    /// Its static name (KIP-345).
    pub instance: Option<String>,
    /// How long it may be silent.
    pub session_ms: i32,
    /// How long it may take to rejoin.
    pub rebalance_ms: i32,
    /// "consumer" for consumers.
    pub protocol_type: String,
    /// Its assignors with its metadata, in its order.
    pub protocols: Vec<(String, Bytes)>,
}

impl Join {
    /// A consumer of no topic with the assignor `range`.
    #[must_use]
    pub fn new(group: &str) -> Self {
        Self {
            group: group.to_owned(),
            member: String::new(),
            instance: None,
            session_ms: 30_000,
            rebalance_ms: 30_000,
            protocol_type: "consumer".to_owned(),
            protocols: vec![("range".to_owned(), subscription(&[]))],
        }
    }

    /// The request in the form of a version.
    #[must_use]
    pub fn request(&self, version: i16) -> JoinGroupRequest {
        let mut request = JoinGroupRequest::default();
        request.group_id = self.group.as_str().into();
        request.session_timeout_ms = self.session_ms;
        if version >= 1 {
            request.rebalance_timeout_ms = self.rebalance_ms;
        }
        if version >= 5 {
            request.group_instance_id = self.instance.as_deref().map(Into::into);
        }
        request.member_id = self.member.as_str().into();
        request.protocol_type = self.protocol_type.as_str().into();
        let protocols = self.protocols.iter().map(|(name, metadata)| {
            let mut protocol = JoinGroupRequestProtocol::default();
            protocol.name = name.as_str().into();
            protocol.metadata = metadata.clone();
            protocol
        });
        request.protocols = protocols.collect();
        request
    }
}

/// A member of a classic group. Its requests have the version that came with JoinGroup's of the same time.
pub struct Member {
    /// Its connection.
    pub raw: Raw,
    /// What it says when it joins; its id is kept here.
    pub join: Join,
    /// The generation it was told last.
    pub generation: i32,
    /// The version of its JoinGroup.
    pub version: i16,
}

impl Member {
    /// One that has not joined yet.
    #[must_use]
    pub fn new(raw: Raw, join: Join, version: i16) -> Self {
        Self {
            raw,
            join,
            generation: -1,
            version,
        }
    }

    /// Its member id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.join.member
    }

    /// Sends JoinGroup; gives the correlation id.
    pub fn send_join(&mut self) -> i32 {
        self.raw
            .send(self.version, &self.join.request(self.version))
    }

    /// Sends JoinGroup; where a member id is required, once more with it.
    ///
    /// # Panics
    /// When the first answer is another error.
    pub fn send_join_with_id(&mut self) -> i32 {
        let needs_id = self.version >= 4 && self.join.instance.is_none();
        if needs_id && self.join.member.is_empty() {
            let correlation = self.send_join();
            let answer = self.receive_join(correlation);
            assert_eq!(answer.error_code, MEMBER_ID_REQUIRED);
        }
        self.send_join()
    }

    /// Reads the answer to a JoinGroup and takes over the member id and the generation.
    pub fn receive_join(&mut self, correlation: i32) -> JoinGroupResponse {
        let answer = self
            .raw
            .receive::<JoinGroupRequest>(self.version, correlation);
        if answer.error_code == 0 || answer.error_code == MEMBER_ID_REQUIRED {
            self.join.member = answer.member_id.as_str().to_owned();
            self.generation = answer.generation_id;
        }
        answer
    }

    /// Joins and waits for the answer.
    pub fn join(&mut self) -> JoinGroupResponse {
        let correlation = self.send_join_with_id();
        self.receive_join(correlation)
    }

    /// A SyncGroup with these assignments.
    #[must_use]
    pub fn sync_request(&self, assignments: &[(&str, &[u8])]) -> SyncGroupRequest {
        let mut request = SyncGroupRequest::default();
        request.group_id = self.join.group.as_str().into();
        request.generation_id = self.generation;
        request.member_id = self.join.member.as_str().into();
        if self.sync_version() >= 3 {
            request.group_instance_id = self.join.instance.as_deref().map(Into::into);
        }
        if self.sync_version() >= 5 {
            request.protocol_type = Some(self.join.protocol_type.as_str().into());
            request.protocol_name = self.join.protocols.first().map(|p| p.0.as_str().into());
        }
        let assignments = assignments.iter().map(|(member, bytes)| {
            let mut assignment = SyncGroupRequestAssignment::default();
            assignment.member_id = (*member).into();
            assignment.assignment = Bytes::copy_from_slice(bytes);
            assignment
        });
        request.assignments = assignments.collect();
        request
    }

    /// The version of SyncGroup.
    #[must_use]
    pub fn sync_version(&self) -> i16 {
        match self.version {
            ..5 => self.version.min(2),
            5 => 3,
            6 => 4,
            _ => 5,
        }
    }

    /// Sends SyncGroup; gives the correlation id.
    pub fn send_sync(&mut self, assignments: &[(&str, &[u8])]) -> i32 {
        let request = self.sync_request(assignments);
        self.raw.send(self.sync_version(), &request)
    }

    /// Sends SyncGroup and waits for the answer.
    pub fn sync(&mut self, assignments: &[(&str, &[u8])]) -> SyncGroupResponse {
        let correlation = self.send_sync(assignments);
        self.raw
            .receive::<SyncGroupRequest>(self.sync_version(), correlation)
    }

    /// Sends Heartbeat; gives the error code.
    pub fn heartbeat(&mut self) -> i16 {
        let version = self.sync_version().min(4);
        let mut request = HeartbeatRequest::default();
        request.group_id = self.join.group.as_str().into();
        request.generation_id = self.generation;
        request.member_id = self.join.member.as_str().into();
        if version >= 3 {
            request.group_instance_id = self.join.instance.as_deref().map(Into::into);
        }
        self.raw
            .call::<HeartbeatRequest>(version, &request)
            .error_code
    }

    /// Leaves; gives the error code, that of the member from version 3.
    ///
    /// # Panics
    /// When a batch is answered without a row.
    pub fn leave(&mut self) -> i16 {
        let version = self.sync_version();
        let (group, member) = (self.join.group.clone(), self.join.member.clone());
        let instance = self.join.instance.clone();
        let request = leave(version, &group, &[(&member, instance.as_deref())]);
        let answer = self.raw.call::<LeaveGroupRequest>(version, &request);
        match answer.members.first() {
            Some(row) if answer.error_code == 0 => row.error_code,
            _ => answer.error_code,
        }
    }

    /// Commits an offset as a member; gives the error code.
    pub fn commit(&mut self, topic: &str, partition: i32, offset: i64) -> i16 {
        let commit = Commit {
            generation: self.generation,
            member: &self.join.member,
            instance: self.join.instance.as_deref(),
            ..Commit::new(&self.join.group, topic, partition, offset)
        };
        let request = commit.request(8);
        let answer = self.raw.call::<OffsetCommitRequest>(8, &request);
        answer.topics[0].partitions[0].error_code
    }
}

/// LeaveGroup of some members, each by id and perhaps static name, in the form of a version.
#[must_use]
pub fn leave(version: i16, group: &str, members: &[(&str, Option<&str>)]) -> LeaveGroupRequest {
    let mut request = LeaveGroupRequest::default();
    request.group_id = group.into();
    if version < 3 {
        request.member_id = members[0].0.into();
        return request;
    }
    let members = members.iter().map(|(id, instance)| {
        let mut member = MemberIdentity::default();
        member.member_id = (*id).into();
        member.group_instance_id = instance.map(Into::into);
        if version >= 5 {
            member.reason = Some("the test is over".into());
        }
        member
    });
    request.members = members.collect();
    request
}

/// An OffsetCommit of one partition.
#[derive(Clone, Debug)]
pub struct Commit<'a> {
    /// The group.
    pub group: &'a str,
    /// Generation, or member epoch from version 9; -1 outside of the group.
    pub generation: i32,
    /// Member id, empty outside of the group.
    pub member: &'a str,
    /// Static name.
    pub instance: Option<&'a str>,
    /// Topic by name, up to version 9.
    pub topic: &'a str,
    /// Topic by id, from version 10.
    pub topic_id: Uuid,
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
    /// Leader epoch, from version 6.
    pub epoch: i32,
    /// Metadata.
    pub metadata: Option<&'a str>,
}

impl<'a> Commit<'a> {
    /// From outside of the group.
    #[must_use]
    pub fn new(group: &'a str, topic: &'a str, partition: i32, offset: i64) -> Self {
        Self {
            group,
            generation: -1,
            member: "",
            instance: None,
            topic,
            topic_id: Uuid::ZERO,
            partition,
            offset,
            epoch: -1,
            metadata: Some(""),
        }
    }

    /// The request in the form of a version.
    #[must_use]
    pub fn request(&self, version: i16) -> OffsetCommitRequest {
        let mut partition = OffsetCommitRequestPartition::default();
        partition.partition_index = self.partition;
        partition.committed_offset = self.offset;
        if version >= 6 {
            partition.committed_leader_epoch = self.epoch;
        }
        partition.committed_metadata = self.metadata.map(Into::into);
        let mut topic = OffsetCommitRequestTopic::default();
        if version >= 10 {
            topic.topic_id = self.topic_id;
        } else {
            topic.name = self.topic.into();
        }
        topic.partitions = vec![partition];
        let mut request = OffsetCommitRequest::default();
        request.group_id = self.group.into();
        request.generation_id_or_member_epoch = self.generation;
        request.member_id = self.member.into();
        if version >= 7 {
            request.group_instance_id = self.instance.map(Into::into);
        }
        request.topics = vec![topic];
        request
    }

    /// Commits; gives the error code of the partition.
    pub fn run(&self, raw: &mut Raw, version: i16) -> i16 {
        let answer = raw.call::<OffsetCommitRequest>(version, &self.request(version));
        answer.topics[0].partitions[0].error_code
    }
}

/// What OffsetFetch says about one partition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Committed {
    /// Topic name; empty from version 10.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset, -1 for none.
    pub offset: i64,
    /// Leader epoch, -1 for none and before version 5.
    pub epoch: i32,
    /// Metadata.
    pub metadata: String,
    /// Error of the partition.
    pub error: i16,
}

/// An OffsetFetch of one group.
#[derive(Clone, Debug)]
pub struct OffsetsOf<'a> {
    /// The group.
    pub group: &'a str,
    /// Member id and epoch, from version 9.
    pub member: Option<(&'a str, i32)>,
    /// Topic and partitions; `None` for all that is committed.
    pub topic: Option<(&'a TopicRef, &'a [i32])>,
    /// Waits out open transactions, from version 7.
    pub require_stable: bool,
}

impl<'a> OffsetsOf<'a> {
    /// Some partitions of a topic.
    #[must_use]
    pub fn of(group: &'a str, topic: &'a TopicRef, partitions: &'a [i32]) -> Self {
        Self {
            topic: Some((topic, partitions)),
            ..Self::all(group)
        }
    }

    /// All that is committed; from version 2.
    #[must_use]
    pub fn all(group: &'a str) -> Self {
        Self {
            group,
            member: None,
            topic: None,
            require_stable: false,
        }
    }

    /// The request in the form of a version.
    #[must_use]
    pub fn request(&self, version: i16) -> OffsetFetchRequest {
        let mut request = OffsetFetchRequest::default();
        if version >= 7 {
            request.require_stable = self.require_stable;
        }
        if version >= 8 {
            request.groups = vec![self.group_request(version)];
            return request;
        }
        request.group_id = self.group.into();
        request.topics = self.topic.map(|(topic, partitions)| {
            let mut wanted = OffsetFetchRequestTopic::default();
            wanted.name = topic.name.as_str().into();
            wanted.partition_indexes = partitions.to_vec();
            vec![wanted]
        });
        request
    }

    fn group_request(&self, version: i16) -> OffsetFetchRequestGroup {
        let mut group = OffsetFetchRequestGroup::default();
        group.group_id = self.group.into();
        if let (9.., Some((member, epoch))) = (version, self.member) {
            group.member_id = Some(member.into());
            group.member_epoch = epoch;
        }
        group.topics = self.topic.map(|(topic, partitions)| {
            let mut wanted = OffsetFetchRequestTopics::default();
            if version >= 10 {
                wanted.topic_id = topic.id;
            } else {
                wanted.name = topic.name.as_str().into();
            }
            wanted.partition_indexes = partitions.to_vec();
            vec![wanted]
        });
        group
    }

    /// Fetches: the error of the group (0 before version 2), and the partitions.
    ///
    /// # Panics
    /// When a batch has no group.
    pub fn run(&self, raw: &mut Raw, version: i16) -> (i16, Vec<Committed>) {
        let mut answer = raw.call::<OffsetFetchRequest>(version, &self.request(version));
        if version < 8 {
            let rows = answer.topics.iter().flat_map(|topic| {
                let name = topic.name.as_str();
                topic.partitions.iter().map(move |row| Committed {
                    topic: name.to_owned(),
                    partition: row.partition_index,
                    offset: row.committed_offset,
                    epoch: row.committed_leader_epoch,
                    metadata: row.metadata.as_deref().unwrap_or_default().to_owned(),
                    error: row.error_code,
                })
            });
            return (answer.error_code, rows.collect());
        }
        let group = answer.groups.remove(0);
        let rows = group.topics.iter().flat_map(|topic| {
            let name = topic.name.as_str();
            topic.partitions.iter().map(move |row| Committed {
                topic: name.to_owned(),
                partition: row.partition_index,
                offset: row.committed_offset,
                epoch: row.committed_leader_epoch,
                metadata: row.metadata.as_deref().unwrap_or_default().to_owned(),
                error: row.error_code,
            })
        });
        (group.error_code, rows.collect())
    }
}
