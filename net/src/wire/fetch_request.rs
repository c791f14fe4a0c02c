//! Fetch requests, versions 4 to 18 (KIP-227, KIP-320, KIP-482, KIP-516, KIP-903, KIP-1166).

use bytes::Bytes;
use kafka_wire_core::{StrBytes, Uuid};

use super::reader::{Entries, Reader};
use super::{FETCH_VERSION_MAX, FETCH_VERSION_MIN, WireError};

/// What a reader wants. All strings are slices of the frame.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FetchRequest {
    /// -1 for a consumer. From version 15 it comes from the replica state.
    pub replica_id: i32,
    /// How long to wait for `min_bytes`, in milliseconds.
    pub max_wait_ms: i32,
    /// Answer when there is this much.
    pub min_bytes: i32,
    /// Answer with at most this much, the first batch apart.
    pub max_bytes: i32,
    /// 0 reads uncommitted, 1 reads committed.
    pub isolation_level: i8,
    /// The fetch session, 0 for none; from version 7.
    pub session_id: i32,
    /// The epoch of the session, -1 for none; from version 7.
    pub session_epoch: i32,
    /// What is wanted.
    pub topics: Vec<FetchTopic>,
    /// What to take out of the session; from version 7.
    pub forgotten_topics: Vec<ForgottenTopic>,
    /// The reader's rack; from version 11, else empty.
    pub rack_id: StrBytes,
}

/// The wanted partitions of one topic.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FetchTopic {
    /// The topic's name; empty from version 13.
    pub name: StrBytes,
    /// The topic's id; zero before version 13.
    pub topic_id: Uuid,
    /// Its partitions.
    pub partitions: Vec<FetchPartition>,
}

/// What is wanted of one partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FetchPartition {
    /// The partition.
    pub index: i32,
    /// The leader epoch that the reader knows, -1 for none; from version 9.
    pub current_leader_epoch: i32,
    /// Where to read.
    pub fetch_offset: i64,
    /// Epoch of the last record that the reader has, -1 for none; from version 12.
    pub last_fetched_epoch: i32,
    /// The reader's own log start; only followers set it.
    pub log_start_offset: i64,
    /// Answer with at most this much of this partition, the first batch apart.
    pub partition_max_bytes: i32,
}

/// Partitions that leave a fetch session.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ForgottenTopic {
    /// The topic's name; empty from version 13.
    pub name: StrBytes,
    /// The topic's id; zero before version 13.
    pub topic_id: Uuid,
    /// Its partitions.
    pub partitions: Vec<i32>,
}

/// What the layout depends on.
#[derive(Clone, Copy)]
struct Layout {
    version: i16,
    flexible: bool,
}

impl FetchRequest {
    /// Decodes the body of a request. Bytes behind it are tolerated.
    pub fn decode(body: &Bytes, version: i16) -> Result<Self, WireError> {
        if !(FETCH_VERSION_MIN..=FETCH_VERSION_MAX).contains(&version) {
            return Err(WireError::UnsupportedVersion(version));
        }
        let layout = Layout {
            version,
            flexible: version >= 12,
        };
        let mut reader = Reader::new(body);
        let mut request = decode_fixed_part(&mut reader, version)?;
        let mut entries = Entries::new();
        request.topics = decode_topics(&mut reader, body, layout, &mut entries)?;
        if version >= 7 {
            request.forgotten_topics = decode_forgotten(&mut reader, body, layout, &mut entries)?;
        }
        if version >= 11 {
            request.rack_id = reader.string(body, layout.flexible)?;
        }
        if layout.flexible {
            request.decode_tagged_fields(&mut reader, version)?;
        }
        Ok(request)
    }

    /// Tag 0 is the cluster id, which Kafka ignores; tag 1 the replica state.
    fn decode_tagged_fields(
        &mut self,
        reader: &mut Reader<'_>,
        version: i16,
    ) -> Result<(), WireError> {
        reader.tagged_fields(|tag, payload| {
            if tag == 1 && version >= 15 {
                self.replica_id = payload.i32()?;
            }
            Ok(())
        })
    }
}

fn decode_fixed_part(reader: &mut Reader<'_>, version: i16) -> Result<FetchRequest, WireError> {
    let mut request = FetchRequest {
        replica_id: -1,
        session_epoch: -1,
        ..FetchRequest::default()
    };
    if version <= 14 {
        request.replica_id = reader.i32()?;
    }
    request.max_wait_ms = reader.i32()?;
    request.min_bytes = reader.i32()?;
    request.max_bytes = reader.i32()?;
    request.isolation_level = reader.i8()?;
    if version >= 7 {
        request.session_id = reader.i32()?;
        request.session_epoch = reader.i32()?;
    }
    Ok(request)
}

/// Bytes of the shortest topic entry: a name or an id, a count, tagged fields.
fn topic_bytes_min(layout: Layout) -> usize {
    if layout.version >= 13 { 18 } else { 3 }
}

/// The name or the id of a topic, whichever the version has.
fn decode_topic_key(
    reader: &mut Reader<'_>,
    body: &Bytes,
    layout: Layout,
) -> Result<(StrBytes, Uuid), WireError> {
    if layout.version >= 13 {
        Ok((StrBytes::default(), reader.uuid()?))
    } else {
        Ok((reader.string(body, layout.flexible)?, Uuid::ZERO))
    }
}

fn decode_topics(
    reader: &mut Reader<'_>,
    body: &Bytes,
    layout: Layout,
    entries: &mut Entries,
) -> Result<Vec<FetchTopic>, WireError> {
    let count = entries.count(reader, layout.flexible, topic_bytes_min(layout))?;
    let mut topics = Vec::with_capacity(count);
    for _ in 0..count {
        let (name, topic_id) = decode_topic_key(reader, body, layout)?;
        let partitions = decode_partitions(reader, layout, entries)?;
        reader.skip_tagged_fields_if(layout.flexible)?;
        topics.push(FetchTopic {
            name,
            topic_id,
            partitions,
        });
    }
    Ok(topics)
}

fn decode_partitions(
    reader: &mut Reader<'_>,
    layout: Layout,
    entries: &mut Entries,
) -> Result<Vec<FetchPartition>, WireError> {
    const PARTITION_BYTES_MIN: usize = 16;
    let count = entries.count(reader, layout.flexible, PARTITION_BYTES_MIN)?;
    let mut partitions = Vec::with_capacity(count);
    for _ in 0..count {
        partitions.push(decode_partition(reader, layout)?);
    }
    Ok(partitions)
}

fn decode_partition(reader: &mut Reader<'_>, layout: Layout) -> Result<FetchPartition, WireError> {
    let version = layout.version;
    let index = reader.i32()?;
    let current_leader_epoch = if version >= 9 { reader.i32()? } else { -1 };
    let fetch_offset = reader.i64()?;
    let last_fetched_epoch = if version >= 12 { reader.i32()? } else { -1 };
    let log_start_offset = if version >= 5 { reader.i64()? } else { -1 };
    let partition_max_bytes = reader.i32()?;
    reader.skip_tagged_fields_if(layout.flexible)?;
    Ok(FetchPartition {
        index,
        current_leader_epoch,
        fetch_offset,
        last_fetched_epoch,
        log_start_offset,
        partition_max_bytes,
    })
}

fn decode_forgotten(
    reader: &mut Reader<'_>,
    body: &Bytes,
    layout: Layout,
    entries: &mut Entries,
) -> Result<Vec<ForgottenTopic>, WireError> {
    let count = entries.count(reader, layout.flexible, topic_bytes_min(layout))?;
    let mut topics = Vec::with_capacity(count);
    for _ in 0..count {
        let (name, topic_id) = decode_topic_key(reader, body, layout)?;
        let count = entries.count(reader, layout.flexible, 4)?;
        let mut partitions = Vec::with_capacity(count);
        for _ in 0..count {
            partitions.push(reader.i32()?);
        }
        reader.skip_tagged_fields_if(layout.flexible)?;
        topics.push(ForgottenTopic {
            name,
            topic_id,
            partitions,
        });
    }
    Ok(topics)
}
