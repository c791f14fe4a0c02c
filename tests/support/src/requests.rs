//! The requests that tests send over and over, with the fields a test cares about as parameters.

use bytes::Bytes;
use kafka_wire::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_wire::create_partitions_request::CreatePartitionsTopic;
use kafka_wire::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_wire::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_wire::delete_topics_request::DeleteTopicState;
use kafka_wire::fetch_request::{FetchPartition, FetchTopic};
use kafka_wire::incremental_alter_configs_request as incremental;
use kafka_wire::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_wire::metadata_request::MetadataRequestTopic;
use kafka_wire::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_wire::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_wire::{
    AlterConfigsRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest,
    DeleteTopicsRequest, FetchRequest, IncrementalAlterConfigsRequest, InitProducerIdRequest,
    ListOffsetsRequest, MetadataRequest, OffsetForLeaderEpochRequest, ProduceRequest,
};
use kafka_wire_core::Uuid;

/// One topic to create: name, partitions, replication factor 1, configs.
#[must_use]
pub fn topic(name: &str, partitions: i32, configs: &[(&str, &str)]) -> CreatableTopic {
    let mut topic = CreatableTopic::default();
    topic.name = name.into();
    topic.num_partitions = partitions;
    topic.replication_factor = 1;
    topic.configs = configs
        .iter()
        .map(|(key, value)| {
            let mut config = CreatableTopicConfig::default();
            config.name = (*key).into();
            config.value = Some((*value).into());
            config
        })
        .collect();
    topic
}

/// CreateTopics with half a minute to do it.
#[must_use]
pub fn create_topics(topics: Vec<CreatableTopic>) -> CreateTopicsRequest {
    let mut request = CreateTopicsRequest::default();
    request.topics = topics;
    request.timeout_ms = 30_000;
    request
}

/// DeleteTopics by name, in the form of `version`.
#[must_use]
pub fn delete_topics(version: i16, names: &[&str]) -> DeleteTopicsRequest {
    let mut request = DeleteTopicsRequest::default();
    request.timeout_ms = 30_000;
    if version >= 6 {
        request.topics = names.iter().map(|name| by_name(name)).collect();
    } else {
        request.topic_names = names.iter().map(|name| (*name).into()).collect();
    }
    request
}

fn by_name(name: &str) -> DeleteTopicState {
    let mut state = DeleteTopicState::default();
    state.name = Some(name.into());
    state
}

/// Metadata for these topics by name, without creating any.
#[must_use]
pub fn metadata(version: i16, names: &[&str]) -> MetadataRequest {
    let mut request = MetadataRequest::default();
    // The field does not exist before version 4, where its default stands for it.
    request.allow_auto_topic_creation = version < 4;
    request.topics = Some(names.iter().map(|name| metadata_topic(name)).collect());
    request
}

fn metadata_topic(name: &str) -> MetadataRequestTopic {
    let mut topic = MetadataRequestTopic::default();
    topic.name = Some(name.into());
    topic
}

/// A topic by name or by id, whichever the version of the request wants.
#[derive(Clone, Debug)]
pub struct TopicRef {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: Uuid,
}

/// A Produce of some partitions of one topic.
#[must_use]
pub fn produce(
    version: i16,
    topic: &TopicRef,
    acks: i16,
    parts: Vec<(i32, Option<Bytes>)>,
) -> ProduceRequest {
    let mut data = TopicProduceData::default();
    if version >= 13 {
        data.topic_id = topic.id;
    } else {
        data.name = topic.name.as_str().into();
    }
    data.partition_data = parts
        .into_iter()
        .map(|(index, records)| {
            let mut part = PartitionProduceData::default();
            part.index = index;
            part.records = records;
            part
        })
        .collect();
    let mut request = ProduceRequest::default();
    request.acks = acks;
    request.timeout_ms = 30_000;
    request.topic_data = vec![data];
    request
}

/// What a Fetch asks of one partition.
#[derive(Clone, Copy, Debug)]
pub struct FetchFrom {
    /// Partition index.
    pub partition: i32,
    /// First offset wanted.
    pub offset: i64,
    /// Limit of this partition.
    pub max_bytes: i32,
}

impl FetchFrom {
    /// Up to 1 MiB of a partition.
    #[must_use]
    pub fn new(partition: i32, offset: i64) -> Self {
        Self {
            partition,
            offset,
            max_bytes: 1 << 20,
        }
    }
}

/// Limits of a whole Fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchLimits {
    /// Longest wait.
    pub max_wait_ms: i32,
    /// Bytes to wait for.
    pub min_bytes: i32,
    /// Limit of the whole answer.
    pub max_bytes: i32,
}

/// No wait at all.
pub const AT_ONCE: FetchLimits = FetchLimits {
    max_wait_ms: 0,
    min_bytes: 1,
    max_bytes: 50 << 20,
};

/// A Fetch of some partitions of one topic, outside any session.
#[must_use]
pub fn fetch(
    version: i16,
    topic: &TopicRef,
    limits: FetchLimits,
    parts: &[FetchFrom],
) -> FetchRequest {
    let mut wanted = FetchTopic::default();
    if version >= 13 {
        wanted.topic_id = topic.id;
    } else {
        wanted.topic = topic.name.as_str().into();
    }
    wanted.partitions = parts.iter().map(fetch_partition).collect();
    let mut request = FetchRequest::default();
    request.max_wait_ms = limits.max_wait_ms;
    request.min_bytes = limits.min_bytes;
    request.max_bytes = limits.max_bytes;
    request.session_epoch = -1;
    request.topics = vec![wanted];
    request
}

fn fetch_partition(from: &FetchFrom) -> FetchPartition {
    let mut partition = FetchPartition::default();
    partition.partition = from.partition;
    partition.fetch_offset = from.offset;
    partition.partition_max_bytes = from.max_bytes;
    partition
}

/// ListOffsets of one partition.
#[must_use]
pub fn list_offsets(topic: &str, partition: i32, timestamp: i64) -> ListOffsetsRequest {
    let mut part = ListOffsetsPartition::default();
    part.partition_index = partition;
    part.timestamp = timestamp;
    let mut wanted = ListOffsetsTopic::default();
    wanted.name = topic.into();
    wanted.partitions = vec![part];
    let mut request = ListOffsetsRequest::default();
    request.replica_id = -1;
    request.topics = vec![wanted];
    request
}

/// DeleteRecords: (partition, offset) of one topic; -1 is the high watermark.
#[must_use]
pub fn delete_records(topic: &str, parts: &[(i32, i64)]) -> DeleteRecordsRequest {
    let mut wanted = DeleteRecordsTopic::default();
    wanted.name = topic.into();
    wanted.partitions = parts
        .iter()
        .map(|(index, offset)| {
            let mut part = DeleteRecordsPartition::default();
            part.partition_index = *index;
            part.offset = *offset;
            part
        })
        .collect();
    let mut request = DeleteRecordsRequest::default();
    request.topics = vec![wanted];
    request.timeout_ms = 30_000;
    request
}

/// InitProducerId without a transactional id.
#[must_use]
pub fn init_producer_id() -> InitProducerIdRequest {
    let mut request = InitProducerIdRequest::default();
    request.transactional_id = None;
    request.transaction_timeout_ms = 60_000;
    request
}

/// OffsetForLeaderEpoch of one partition.
#[must_use]
pub fn offset_for_leader_epoch(
    topic: &str,
    partition: i32,
    epoch: i32,
) -> OffsetForLeaderEpochRequest {
    let mut part = OffsetForLeaderPartition::default();
    part.partition = partition;
    part.current_leader_epoch = -1;
    part.leader_epoch = epoch;
    let mut wanted = OffsetForLeaderTopic::default();
    wanted.topic = topic.into();
    wanted.partitions = vec![part];
    let mut request = OffsetForLeaderEpochRequest::default();
    request.replica_id = -1;
    request.topics = vec![wanted];
    request
}

/// AlterConfigs of one topic: what is not named goes back to its default.
#[must_use]
pub fn alter_configs(topic: &str, configs: &[(&str, &str)]) -> AlterConfigsRequest {
    let mut resource = AlterConfigsResource::default();
    resource.resource_type = 2;
    resource.resource_name = topic.into();
    resource.configs = configs
        .iter()
        .map(|(key, value)| {
            let mut config = AlterableConfig::default();
            config.name = (*key).into();
            config.value = Some((*value).into());
            config
        })
        .collect();
    let mut request = AlterConfigsRequest::default();
    request.resources = vec![resource];
    request
}

/// IncrementalAlterConfigs of one topic: (key, operation, value); 0 sets, 1 deletes, 2 appends, 3 subtracts.
#[must_use]
pub fn incremental_alter(
    topic: &str,
    changes: &[(&str, i8, Option<&str>)],
) -> IncrementalAlterConfigsRequest {
    let mut resource = incremental::AlterConfigsResource::default();
    resource.resource_type = 2;
    resource.resource_name = topic.into();
    resource.configs = changes
        .iter()
        .map(|(key, operation, value)| {
            let mut config = incremental::AlterableConfig::default();
            config.name = (*key).into();
            config.config_operation = *operation;
            config.value = value.map(Into::into);
            config
        })
        .collect();
    let mut request = IncrementalAlterConfigsRequest::default();
    request.resources = vec![resource];
    request
}

/// CreatePartitions: the new number of partitions of one topic.
#[must_use]
pub fn create_partitions(topic: &str, count: i32) -> CreatePartitionsRequest {
    let mut wanted = CreatePartitionsTopic::default();
    wanted.name = topic.into();
    wanted.count = count;
    wanted.assignments = None;
    let mut request = CreatePartitionsRequest::default();
    request.topics = vec![wanted];
    request.timeout_ms = 30_000;
    request
}
