//! `manifest.json`: where a log starts; and `recovery-checkpoint.json`: which prefix is known to be durable.
//!
//! Owns:     their fields and their encoding.
//! Does not: decide what follows from them (`recovery.rs` does). A checkpoint is the minimum of the log, never the
//!           authority for its content (D10).
//! Called from `state-*` threads (writing) and whoever opens a log.

use std::io;

use serde::{Deserialize, Serialize};

use crate::names::SegmentName;
use crate::state_file::{decode_json, encode_json};
use crate::types::{LeaderEpoch, Offset, PartitionIndex, Position, TopicId};

/// The largest manifest or checkpoint that is read.
pub(crate) const STATE_BYTES_MAX: u64 = 64 * 1024;

/// When the log start moves, and at a close that changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manifest {
    /// Epoch of the writer.
    pub epoch: LeaderEpoch,
    /// High watermark at that time; a hint for people, recovery does not use it.
    pub high_watermark: Offset,
    /// The first offset that may be read.
    pub log_start: Offset,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestJson {
    epoch: i32,
    high_watermark: i64,
    log_start_offset: i64,
}

impl Manifest {
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        encode_json(&ManifestJson {
            epoch: self.epoch.0,
            high_watermark: self.high_watermark.0,
            log_start_offset: self.log_start.0,
        })
    }

    /// `None`: damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let json: ManifestJson = decode_json(bytes)?;
        (json.log_start_offset >= 0 && json.epoch >= -1).then_some(Self {
            epoch: LeaderEpoch(json.epoch),
            high_watermark: Offset(json.high_watermark),
            log_start: Offset(json.log_start_offset),
        })
    }
}

/// Everything below `offset` is durable; it ends at `position` of `segment` with the batch at `batch_position`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// Whose log it is about (D11).
    pub topic_id: TopicId,
    /// Which partition of the topic.
    pub partition: PartitionIndex,
    /// The last segment of the durable prefix.
    pub segment: SegmentName,
    /// Start of its last durable batch.
    pub batch_position: Position,
    /// End of that batch; 0 when the segment has none yet.
    pub position: Position,
    /// The offset after it.
    pub offset: Offset,
    /// The CRC field of that batch.
    pub batch_crc: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CheckpointJson {
    topic_id: String,
    partition: i32,
    segment: String,
    batch_position: u64,
    position: u64,
    offset: i64,
    batch_crc: u32,
}

impl Checkpoint {
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        encode_json(&CheckpointJson {
            topic_id: self.topic_id.to_string(),
            partition: self.partition.0,
            segment: self.segment.to_string(),
            batch_position: self.batch_position.0,
            position: self.position.0,
            offset: self.offset.0,
            batch_crc: self.batch_crc,
        })
    }

    /// `None`: damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let json: CheckpointJson = decode_json(bytes)?;
        let segment = SegmentName::parse(&json.segment)?;
        let topic_id = TopicId(uuid::Uuid::parse_str(&json.topic_id).ok()?);
        let sane = json.batch_position <= json.position && json.offset >= segment.base.0;
        sane.then_some(Self {
            topic_id,
            partition: PartitionIndex(json.partition),
            segment,
            batch_position: Position(json.batch_position),
            position: Position(json.position),
            offset: Offset(json.offset),
            batch_crc: json.batch_crc,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d09_a_flipped_bit_in_a_manifest_or_checkpoint_is_noticed_or_harmless() {
        let manifest = Manifest {
            epoch: LeaderEpoch(3),
            high_watermark: Offset(77),
            log_start: Offset(5),
        };
        let checkpoint = Checkpoint {
            topic_id: TopicId(uuid::Uuid::from_u128(7)),
            partition: PartitionIndex(2),
            segment: SegmentName {
                epoch: LeaderEpoch(3),
                base: Offset(9),
            },
            batch_position: Position(10),
            position: Position(99),
            offset: Offset(77),
            batch_crc: 5,
        };
        let (m, c) = (
            manifest.encode().expect("m"),
            checkpoint.encode().expect("c"),
        );
        for bit in 0..m.len() * 8 {
            let mut bytes = m.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(
                Manifest::decode(&bytes).is_none_or(|got| got == manifest),
                "bit {bit}"
            );
        }
        for bit in 0..c.len() * 8 {
            let mut bytes = c.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(
                Checkpoint::decode(&bytes).is_none_or(|got| got == checkpoint),
                "bit {bit}"
            );
        }
    }
}
