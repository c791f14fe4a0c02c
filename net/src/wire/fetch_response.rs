//! Fetch responses, versions 4 to 18, as parts: what is not records in one buffer that is cut at
//! the records, so that these go out without being copied.

use bytes::{BufMut, BytesMut};
use kafka_wire_core::{StrBytes, Uuid};

use super::produce_response::{LeaderIdAndEpoch, NodeEndpoint, encode_node_endpoints};
use super::writer::Writer;
use super::{FETCH_VERSION_MAX, FETCH_VERSION_MIN, WireError};
use crate::{BodyPart, ResponseBody};

/// Records below this are copied into the buffer: a part of its own costs more than the copy.
const RECORDS_COPIED_BYTES_MAX: usize = 1024;
/// Bytes of a partition's entry without records, for the first allocation.
const PARTITION_BYTES: usize = 64;

/// What a reader gets.
#[derive(Debug, Default)]
pub struct FetchResponse {
    /// How long the client should pause, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request; written from version 7.
    pub error_code: i16,
    /// The fetch session, 0 for none; written from version 7.
    pub session_id: i32,
    /// The answers.
    pub topics: Vec<FetchTopicResponse>,
    /// Where the leaders named in it are; written from version 16 if not empty.
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// The answers for one topic.
#[derive(Debug, Default)]
pub struct FetchTopicResponse {
    /// Written before version 13.
    pub name: StrBytes,
    /// Written from version 13.
    pub topic_id: Uuid,
    /// Its partitions.
    pub partitions: Vec<FetchPartitionResponse>,
}

/// The answer for one partition.
#[derive(Debug)]
pub struct FetchPartitionResponse {
    /// The partition.
    pub index: i32,
    /// 0, or Kafka's error code.
    pub error_code: i16,
    /// The high watermark, or -1.
    pub high_watermark: i64,
    /// The last stable offset, or -1.
    pub last_stable_offset: i64,
    /// First offset of the log, or -1; written from version 5.
    pub log_start_offset: i64,
    /// Where the reader's log diverges; written from version 12.
    pub diverging_epoch: Option<EpochEndOffset>,
    /// Who leads, if not we; written from version 12.
    pub current_leader: Option<LeaderIdAndEpoch>,
    /// Aborted transactions in the records; null for readers of uncommitted records.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// The replica to read from, -1 for this one; written from version 11.
    pub preferred_read_replica: i32,
    /// Whole batches, as they are on disk.
    pub records: Option<BodyPart>,
}

impl Default for FetchPartitionResponse {
    fn default() -> Self {
        Self {
            index: 0,
            error_code: 0,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging_epoch: None,
            current_leader: None,
            aborted_transactions: None,
            preferred_read_replica: -1,
            records: Some(BodyPart::default()),
        }
    }
}

/// The end of an epoch, where a reader's log diverges.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EpochEndOffset {
    /// The epoch.
    pub epoch: i32,
    /// Its end offset.
    pub end_offset: i64,
}

/// A transaction whose records the reader must skip.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AbortedTransaction {
    /// Whose.
    pub producer_id: i64,
    /// From where.
    pub first_offset: i64,
}

impl FetchResponse {
    /// Encodes the body of a response.
    pub fn encode(self, version: i16) -> Result<ResponseBody, WireError> {
        if !(FETCH_VERSION_MIN..=FETCH_VERSION_MAX).contains(&version) {
            return Err(WireError::UnsupportedVersion(version));
        }
        let mut parts = Parts::new(&self, version);
        parts.writer.i32(self.throttle_time_ms);
        if version >= 7 {
            parts.writer.i16(self.error_code);
            parts.writer.i32(self.session_id);
        }
        parts.writer.length(Some(self.topics.len()))?;
        for topic in self.topics {
            parts.topic(topic, version)?;
        }
        if version >= 12 {
            encode_node_endpoints(&mut parts.writer, &self.node_endpoints, version >= 16)?;
        }
        Ok(parts.finish())
    }
}

/// A response that is being written: the parts so far, and the buffer behind them.
struct Parts {
    body: ResponseBody,
    writer: Writer,
}

impl Parts {
    fn new(response: &FetchResponse, version: i16) -> Self {
        let topic_bytes = |topic: &FetchTopicResponse| {
            32 + topic.name.len() + PARTITION_BYTES * topic.partitions.len()
        };
        let expected = 32 + response.topics.iter().map(topic_bytes).sum::<usize>();
        Self {
            body: ResponseBody::new(),
            writer: Writer::new(version >= 12, expected),
        }
    }

    fn finish(mut self) -> ResponseBody {
        self.body.push(self.writer.buffer.freeze());
        self.body
    }

    fn topic(&mut self, topic: FetchTopicResponse, version: i16) -> Result<(), WireError> {
        if version >= 13 {
            self.writer.uuid(topic.topic_id);
        } else {
            self.writer.string(&topic.name)?;
        }
        self.writer.length(Some(topic.partitions.len()))?;
        for partition in topic.partitions {
            self.partition(partition, version)?;
        }
        self.writer.no_tagged_fields();
        Ok(())
    }

    fn partition(
        &mut self,
        partition: FetchPartitionResponse,
        version: i16,
    ) -> Result<(), WireError> {
        self.writer.i32(partition.index);
        self.writer.i16(partition.error_code);
        self.writer.i64(partition.high_watermark);
        self.writer.i64(partition.last_stable_offset);
        if version >= 5 {
            self.writer.i64(partition.log_start_offset);
        }
        self.aborted_transactions(partition.aborted_transactions.as_deref())?;
        if version >= 11 {
            self.writer.i32(partition.preferred_read_replica);
        }
        let tags = partition.tags();
        self.records(partition.records)?;
        if version >= 12 {
            self.writer.tagged_fields(&tags)?;
        }
        Ok(())
    }

    fn aborted_transactions(
        &mut self,
        aborted: Option<&[AbortedTransaction]>,
    ) -> Result<(), WireError> {
        self.writer.length(aborted.map(<[_]>::len))?;
        for transaction in aborted.unwrap_or_default() {
            self.writer.i64(transaction.producer_id);
            self.writer.i64(transaction.first_offset);
            self.writer.no_tagged_fields();
        }
        Ok(())
    }

    fn records(&mut self, records: Option<BodyPart>) -> Result<(), WireError> {
        self.writer.length(records.as_ref().map(BodyPart::len))?;
        match records.unwrap_or_default() {
            BodyPart::Bytes(bytes) if bytes.len() <= RECORDS_COPIED_BYTES_MAX => {
                self.writer.buffer.put_slice(&bytes);
            }
            records => {
                self.body.push(self.writer.buffer.split().freeze());
                self.body.push(records);
            }
        }
        Ok(())
    }
}

impl FetchPartitionResponse {
    fn tags(&self) -> Vec<(u32, BytesMut)> {
        let diverging = self.diverging_epoch.map(|diverging| {
            let mut payload = Writer::new(true, 13);
            payload.i32(diverging.epoch);
            payload.i64(diverging.end_offset);
            payload.no_tagged_fields();
            (0, payload.buffer)
        });
        let leader = self.current_leader.map(|leader| (1, leader.to_tag()));
        diverging.into_iter().chain(leader).collect()
    }
}
