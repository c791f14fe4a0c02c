//! A member of the consumer group protocol (KIP-848) that beats when a test says so.

use std::collections::BTreeMap;

use kafka_wire::consumer_group_describe_response::DescribedGroup;
use kafka_wire::consumer_group_heartbeat_request::TopicPartitions;
use kafka_wire::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
};
use kafka_wire_core::Uuid;

use crate::raw::Raw;

/// Partitions by topic id, sorted.
pub type Partitions = BTreeMap<[u8; 16], Vec<i32>>;

/// One member. What it is told to own it owns at once, unless `keeps` says otherwise.
pub struct Consumer {
    /// Its connection.
    pub raw: Raw,
    /// The version of its heartbeats.
    pub version: i16,
    /// The group.
    pub group: String,
    /// Its id, made by itself from version 1.
    pub id: String,
    /// The epoch it was told last.
    pub epoch: i32,
    /// Its static name.
    pub instance: Option<String>,
    /// The topics it wants.
    pub topics: Vec<String>,
    /// The assignor it wants.
    pub assignor: Option<String>,
    /// How long it may take to give partitions up.
    pub rebalance_ms: i32,
    /// What it owns.
    pub owned: Partitions,
    /// Whether it goes on with what it has, whatever it is told.
    pub keeps: bool,
}

impl Consumer {
    /// One that has not joined yet.
    #[must_use]
    pub fn new(raw: Raw, group: &str, id: &str, topics: &[&str]) -> Self {
        Self {
            raw,
            version: 1,
            group: group.to_owned(),
            id: id.to_owned(),
            epoch: 0,
            instance: None,
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            assignor: None,
            rebalance_ms: 30_000,
            owned: Partitions::new(),
            keeps: false,
        }
    }

    /// The heartbeat that joins, or says everything again.
    #[must_use]
    pub fn full_request(&self) -> ConsumerGroupHeartbeatRequest {
        let mut request = self.short_request();
        request.rebalance_timeout_ms = self.rebalance_ms;
        request.subscribed_topic_names = Some(
            self.topics
                .iter()
                .map(|topic| topic.as_str().into())
                .collect(),
        );
        request.server_assignor = self.assignor.as_deref().map(Into::into);
        request.topic_partitions = Some(to_wire(&self.owned));
        request
    }

    /// A heartbeat that says nothing new but what it owns.
    #[must_use]
    pub fn short_request(&self) -> ConsumerGroupHeartbeatRequest {
        let mut request = ConsumerGroupHeartbeatRequest::default();
        request.group_id = self.group.as_str().into();
        request.member_id = self.id.as_str().into();
        request.member_epoch = self.epoch;
        request.instance_id = self.instance.as_deref().map(Into::into);
        request.rebalance_timeout_ms = -1;
        request.topic_partitions = (self.epoch > 0).then(|| to_wire(&self.owned));
        request
    }

    /// Joins.
    pub fn join(&mut self) -> ConsumerGroupHeartbeatResponse {
        self.epoch = 0;
        self.owned.clear();
        let request = self.full_request();
        self.send(&request)
    }

    /// Beats.
    pub fn beat(&mut self) -> ConsumerGroupHeartbeatResponse {
        let request = self.short_request();
        self.send(&request)
    }

    /// Leaves with -1, or with -2 as a static member that comes back.
    pub fn leave(&mut self, epoch: i32) -> ConsumerGroupHeartbeatResponse {
        let mut request = self.short_request();
        request.member_epoch = epoch;
        request.topic_partitions = None;
        self.raw
            .call::<ConsumerGroupHeartbeatRequest>(self.version, &request)
    }

    /// Sends a heartbeat and takes over what the answer says.
    pub fn send(
        &mut self,
        request: &ConsumerGroupHeartbeatRequest,
    ) -> ConsumerGroupHeartbeatResponse {
        let answer = self
            .raw
            .call::<ConsumerGroupHeartbeatRequest>(self.version, request);
        if answer.error_code != 0 {
            return answer;
        }
        if let Some(id) = &answer.member_id {
            self.id = id.as_str().to_owned();
        }
        self.epoch = answer.member_epoch;
        if let (Some(assignment), false) = (&answer.assignment, self.keeps) {
            let topics = assignment.topic_partitions.iter();
            self.owned = topics
                .filter(|topic| !topic.partitions.is_empty())
                .map(|topic| {
                    let mut partitions = topic.partitions.clone();
                    partitions.sort_unstable();
                    (*topic.topic_id.as_bytes(), partitions)
                })
                .collect();
        }
        answer
    }

    /// The partitions of one topic that it owns.
    #[must_use]
    pub fn owns(&self, topic: Uuid) -> Vec<i32> {
        self.owned
            .get(topic.as_bytes())
            .cloned()
            .unwrap_or_default()
    }
}

fn to_wire(partitions: &Partitions) -> Vec<TopicPartitions> {
    let topics = partitions.iter().map(|(id, partitions)| {
        let mut topic = TopicPartitions::default();
        topic.topic_id = Uuid::from_bytes(*id);
        topic.partitions = partitions.clone();
        topic
    });
    topics.collect()
}

/// ConsumerGroupDescribe of one group.
pub fn describe(raw: &mut Raw, version: i16, group: &str) -> DescribedGroup {
    let mut request = ConsumerGroupDescribeRequest::default();
    request.group_ids = vec![group.into()];
    let mut answer = raw.call::<ConsumerGroupDescribeRequest>(version, &request);
    answer.groups.remove(0)
}
