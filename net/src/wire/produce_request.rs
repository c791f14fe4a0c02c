//! Produce requests, versions 0 to 13 (KIP-98, KIP-482, KIP-516).

use bytes::Bytes;
use kafka_wire_core::{StrBytes, Uuid};

use super::reader::{Entries, Reader};
use super::{PRODUCE_VERSION_MAX, WireError};

/// A producer's batches. All strings and records are slices of the frame.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProduceRequest {
    /// Null for a producer without transactions, and before version 3.
    pub transactional_id: Option<StrBytes>,
    /// 0, 1 or -1; other values are passed on as they came.
    pub acks: i16,
    /// How long the producer waits, in milliseconds.
    pub timeout_ms: i32,
    /// What goes where.
    pub topics: Vec<ProduceTopic>,
}

/// The batches for one topic.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProduceTopic {
    /// The topic's name; empty from version 13.
    pub name: StrBytes,
    /// The topic's id; zero before version 13.
    pub topic_id: Uuid,
    /// What goes to which partition.
    pub partitions: Vec<ProducePartition>,
}

/// The batch for one partition.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProducePartition {
    /// The partition.
    pub index: i32,
    /// The batch as sent; null is possible on the wire.
    pub records: Option<Bytes>,
}

/// What the layout depends on.
#[derive(Clone, Copy)]
struct Layout {
    flexible: bool,
    topic_ids: bool,
}

impl ProduceRequest {
    /// Decodes the body of a request. Bytes behind it are tolerated.
    pub fn decode(body: &Bytes, version: i16) -> Result<Self, WireError> {
        if !(0..=PRODUCE_VERSION_MAX).contains(&version) {
            return Err(WireError::UnsupportedVersion(version));
        }
        let layout = Layout {
            flexible: version >= 9,
            topic_ids: version >= 13,
        };
        let mut reader = Reader::new(body);
        let transactional_id = if version >= 3 {
            reader.nullable_string(body, layout.flexible)?
        } else {
            None
        };
        let acks = reader.i16()?;
        let timeout_ms = reader.i32()?;
        let topics = decode_topics(&mut reader, body, layout)?;
        reader.skip_tagged_fields_if(layout.flexible)?;
        Ok(Self {
            transactional_id,
            acks,
            timeout_ms,
            topics,
        })
    }
}

fn decode_topics(
    reader: &mut Reader<'_>,
    body: &Bytes,
    layout: Layout,
) -> Result<Vec<ProduceTopic>, WireError> {
    let mut entries = Entries::new();
    let topic_bytes_min = if layout.topic_ids { 18 } else { 3 };
    let count = entries.count(reader, layout.flexible, topic_bytes_min)?;
    let mut topics = Vec::with_capacity(count);
    for _ in 0..count {
        let mut topic = ProduceTopic::default();
        if layout.topic_ids {
            topic.topic_id = reader.uuid()?;
        } else {
            topic.name = reader.string(body, layout.flexible)?;
        }
        topic.partitions = decode_partitions(reader, body, layout, &mut entries)?;
        reader.skip_tagged_fields_if(layout.flexible)?;
        topics.push(topic);
    }
    Ok(topics)
}

fn decode_partitions(
    reader: &mut Reader<'_>,
    body: &Bytes,
    layout: Layout,
    entries: &mut Entries,
) -> Result<Vec<ProducePartition>, WireError> {
    const PARTITION_BYTES_MIN: usize = 6;
    let count = entries.count(reader, layout.flexible, PARTITION_BYTES_MIN)?;
    let mut partitions = Vec::with_capacity(count);
    for _ in 0..count {
        let index = reader.i32()?;
        let records = reader.nullable_bytes(body, layout.flexible)?;
        reader.skip_tagged_fields_if(layout.flexible)?;
        partitions.push(ProducePartition { index, records });
    }
    Ok(partitions)
}
