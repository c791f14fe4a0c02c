//! Produce responses, versions 3 to 13 (KIP-467 for record errors, KIP-951 for leaders).

use bytes::BytesMut;
use kafka_wire_core::{StrBytes, Uuid};

use super::writer::Writer;
use super::{PRODUCE_VERSION_MAX, PRODUCE_VERSION_MIN, WireError};
use crate::ResponseBody;

/// What became of a Produce.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProduceResponse {
    /// In the order of the request.
    pub topics: Vec<ProduceTopicResponse>,
    /// How long the client should pause, in milliseconds.
    pub throttle_time_ms: i32,
    /// Where the leaders named in it are; written from version 10 if not empty.
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// The results of one topic.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProduceTopicResponse {
    /// Written before version 13.
    pub name: StrBytes,
    /// Written from version 13.
    pub topic_id: Uuid,
    /// Its partitions.
    pub partitions: Vec<ProducePartitionResponse>,
}

/// The result of one partition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProducePartitionResponse {
    /// The partition.
    pub index: i32,
    /// 0, or Kafka's error code.
    pub error_code: i16,
    /// Offset of the first record, or -1.
    pub base_offset: i64,
    /// The broker's time for LogAppendTime topics, else -1.
    pub log_append_time_ms: i64,
    /// First offset of the log, or -1; written from version 5.
    pub log_start_offset: i64,
    /// Which records were wrong; written from version 8.
    pub record_errors: Vec<RecordError>,
    /// In words; written from version 8.
    pub error_message: Option<StrBytes>,
    /// Who leads, if not we; written from version 10.
    pub current_leader: Option<LeaderIdAndEpoch>,
}

impl Default for ProducePartitionResponse {
    fn default() -> Self {
        Self {
            index: 0,
            error_code: 0,
            base_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
            record_errors: Vec::new(),
            error_message: None,
            current_leader: None,
        }
    }
}

/// One wrong record of a refused batch.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RecordError {
    /// Its place in the batch.
    pub batch_index: i32,
    /// What is wrong with it.
    pub message: Option<StrBytes>,
}

/// Who leads a partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeaderIdAndEpoch {
    /// The node, or -1.
    pub leader_id: i32,
    /// Its epoch, or -1.
    pub leader_epoch: i32,
}

/// Where a node is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeEndpoint {
    /// The node.
    pub node_id: i32,
    /// Its advertised name.
    pub host: StrBytes,
    /// Its advertised port.
    pub port: i32,
    /// Its rack.
    pub rack: Option<StrBytes>,
}

/// Bytes of a partition's result without messages and names, for the first allocation.
const PARTITION_BYTES: usize = 48;

impl ProduceResponse {
    /// Encodes the body of a response.
    pub fn encode(&self, version: i16) -> Result<ResponseBody, WireError> {
        if !(PRODUCE_VERSION_MIN..=PRODUCE_VERSION_MAX).contains(&version) {
            return Err(WireError::UnsupportedVersion(version));
        }
        let topic_bytes = |topic: &ProduceTopicResponse| {
            32 + topic.name.len() + PARTITION_BYTES * topic.partitions.len()
        };
        let expected = 16 + self.topics.iter().map(topic_bytes).sum::<usize>();
        let mut writer = Writer::new(version >= 9, expected);
        writer.length(Some(self.topics.len()))?;
        for topic in &self.topics {
            encode_topic(&mut writer, topic, version)?;
        }
        writer.i32(self.throttle_time_ms);
        if version >= 9 {
            encode_node_endpoints(&mut writer, &self.node_endpoints, version >= 10)?;
        }
        Ok(writer.buffer.freeze().into())
    }
}

fn encode_topic(
    writer: &mut Writer,
    topic: &ProduceTopicResponse,
    version: i16,
) -> Result<(), WireError> {
    if version >= 13 {
        writer.uuid(topic.topic_id);
    } else {
        writer.string(&topic.name)?;
    }
    writer.length(Some(topic.partitions.len()))?;
    for partition in &topic.partitions {
        encode_partition(writer, partition, version)?;
    }
    writer.no_tagged_fields();
    Ok(())
}

fn encode_partition(
    writer: &mut Writer,
    partition: &ProducePartitionResponse,
    version: i16,
) -> Result<(), WireError> {
    writer.i32(partition.index);
    writer.i16(partition.error_code);
    writer.i64(partition.base_offset);
    writer.i64(partition.log_append_time_ms);
    if version >= 5 {
        writer.i64(partition.log_start_offset);
    }
    if version >= 8 {
        encode_record_errors(writer, &partition.record_errors)?;
        writer.nullable_string(partition.error_message.as_ref())?;
    }
    match partition.current_leader {
        Some(leader) if version >= 10 => writer.tagged_fields(&[(0, leader.to_tag())]),
        _ => {
            writer.no_tagged_fields();
            Ok(())
        }
    }
}

fn encode_record_errors(writer: &mut Writer, errors: &[RecordError]) -> Result<(), WireError> {
    writer.length(Some(errors.len()))?;
    for error in errors {
        writer.i32(error.batch_index);
        writer.nullable_string(error.message.as_ref())?;
        writer.no_tagged_fields();
    }
    Ok(())
}

impl LeaderIdAndEpoch {
    /// The payload of the tagged field that carries it.
    pub(super) fn to_tag(self) -> BytesMut {
        let mut payload = Writer::new(true, 9);
        payload.i32(self.leader_id);
        payload.i32(self.leader_epoch);
        payload.no_tagged_fields();
        payload.buffer
    }
}

/// The tagged fields at the end of a Produce or Fetch response: nothing, or tag 0 with the nodes.
pub(super) fn encode_node_endpoints(
    writer: &mut Writer,
    nodes: &[NodeEndpoint],
    in_this_version: bool,
) -> Result<(), WireError> {
    if nodes.is_empty() || !in_this_version {
        writer.no_tagged_fields();
        return Ok(());
    }
    let mut payload = Writer::new(true, 32 * nodes.len());
    payload.length(Some(nodes.len()))?;
    for node in nodes {
        payload.i32(node.node_id);
        payload.string(&node.host)?;
        payload.i32(node.port);
        payload.nullable_string(node.rack.as_ref())?;
        payload.no_tagged_fields();
    }
    writer.tagged_fields(&[(0, payload.buffer)])
}
