//! `producer-state.snapshot`: the producers and transactions of a log as they were at one offset.
//!
//! Owns:     its encoding.
//! Does not: decide whether it may be used; a snapshot is never an authority (D10): damaged, foreign or newer than the
//!           log means that the batch headers are replayed instead.
//! Called from the log's writer (encode) and recovery (decode).
//!
//! Layout, big-endian: `SWPS`, version u16 = 2, topic id 16 bytes, partition i32, offset i64, count u32, entries, base of the
//! segment written to i64, its aborted transactions as in `.txnindex`, CRC-32C of all before it. Entry: id i64, epoch i16,
//! last append i64, first offset of the open transaction i64, offset of the last marker i64 (both -1: none), coordinator
//! epoch i32 (i32::MIN: none), count u8, then per batch first sequence i32, last sequence i32, base i64, last i64, append
//! time i64.

use crate::producers::{PastBatch, ProducerEntry, Producers, WINDOW};
use crate::transactions::AbortedList;
use crate::txn_index::{Cursor, decode_aborted, encode_aborted};
use crate::types::{
    Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId,
};

/// A larger file is not ours: that many bytes hold more producers than a partition may have.
pub(crate) const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

const MAGIC: &[u8; 4] = b"SWPS";
const VERSION: u16 = 2;
const ENTRY_BYTES_MIN: usize = 39;
/// Stands for an offset that is not there.
const NO_OFFSET: Offset = Offset(-1);
const NO_EPOCH: i32 = i32::MIN;

/// Whose state it is, and at which offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SnapshotKey {
    pub(crate) topic_id: TopicId,
    pub(crate) partition: PartitionIndex,
    pub(crate) offset: Offset,
}

/// What a snapshot knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) producers: Producers,
    /// Base of the segment that was written to.
    pub(crate) segment: Offset,
    /// Transactions aborted in that segment.
    pub(crate) aborted: AbortedList,
}

pub(crate) fn encode(
    key: &SnapshotKey,
    producers: &Producers,
    (segment, aborted): (Offset, &AbortedList),
) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + producers.len() * (ENTRY_BYTES_MIN + 32 * WINDOW));
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(key.topic_id.0.as_bytes());
    out.extend_from_slice(&key.partition.0.to_be_bytes());
    out.extend_from_slice(&key.offset.0.to_be_bytes());
    out.extend_from_slice(
        &u32::try_from(producers.len())
            .unwrap_or(u32::MAX)
            .to_be_bytes(),
    );
    for (id, entry) in producers.iter() {
        encode_entry(&mut out, id, entry);
    }
    out.extend_from_slice(&segment.0.to_be_bytes());
    encode_aborted(&mut out, aborted);
    out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
    out
}

fn encode_entry(out: &mut Vec<u8>, id: ProducerId, entry: &ProducerEntry) {
    out.extend_from_slice(&id.0.to_be_bytes());
    out.extend_from_slice(&entry.epoch.0.to_be_bytes());
    out.extend_from_slice(&entry.last_append.0.to_be_bytes());
    out.extend_from_slice(&entry.open.unwrap_or(NO_OFFSET).0.to_be_bytes());
    out.extend_from_slice(&entry.last_marker.unwrap_or(NO_OFFSET).0.to_be_bytes());
    out.extend_from_slice(&entry.coordinator_epoch.unwrap_or(NO_EPOCH).to_be_bytes());
    out.push(u8::try_from(entry.batches().count()).unwrap_or(0));
    for batch in entry.batches() {
        out.extend_from_slice(&batch.first_sequence.0.to_be_bytes());
        out.extend_from_slice(&batch.last_sequence.0.to_be_bytes());
        out.extend_from_slice(&batch.base.0.to_be_bytes());
        out.extend_from_slice(&batch.last.0.to_be_bytes());
        out.extend_from_slice(&batch.append_time.0.to_be_bytes());
    }
}

/// `None`: damaged, or of a version that this program does not know.
pub(crate) fn decode(bytes: &[u8]) -> Option<(SnapshotKey, Facts)> {
    let (content, crc) = bytes.split_last_chunk::<4>()?;
    if crc32c::crc32c(content) != u32::from_be_bytes(*crc) {
        return None;
    }
    let mut rest = Cursor(content);
    if rest.take::<4>()? != *MAGIC || u16::from_be_bytes(rest.take()?) != VERSION {
        return None;
    }
    let key = SnapshotKey {
        topic_id: TopicId(uuid::Uuid::from_bytes(rest.take()?)),
        partition: PartitionIndex(i32::from_be_bytes(rest.take()?)),
        offset: Offset(i64::from_be_bytes(rest.take()?)),
    };
    let count = u32::from_be_bytes(rest.take()?);
    let mut producers = Producers::default();
    for _ in 0..count {
        let (id, entry) = decode_entry(&mut rest)?;
        producers.insert(id, entry);
    }
    let facts = Facts {
        producers,
        segment: rest.offset()?,
        aborted: decode_aborted(&mut rest)?,
    };
    rest.0.is_empty().then_some((key, facts))
}

fn decode_entry(rest: &mut Cursor<'_>) -> Option<(ProducerId, ProducerEntry)> {
    let id = ProducerId(i64::from_be_bytes(rest.take()?));
    let epoch = ProducerEpoch(i16::from_be_bytes(rest.take()?));
    let mut entry = ProducerEntry::new(epoch, Timestamp(i64::from_be_bytes(rest.take()?)));
    let some = |offset: Offset| (offset != NO_OFFSET).then_some(offset);
    entry.open = some(rest.offset()?);
    entry.last_marker = some(rest.offset()?);
    let coordinator_epoch = i32::from_be_bytes(rest.take()?);
    entry.coordinator_epoch = (coordinator_epoch != NO_EPOCH).then_some(coordinator_epoch);
    let [count] = rest.take::<1>()?;
    for _ in 0..count {
        entry.remember(PastBatch {
            first_sequence: Sequence(i32::from_be_bytes(rest.take()?)),
            last_sequence: Sequence(i32::from_be_bytes(rest.take()?)),
            base: Offset(i64::from_be_bytes(rest.take()?)),
            last: Offset(i64::from_be_bytes(rest.take()?)),
            append_time: Timestamp(i64::from_be_bytes(rest.take()?)),
        });
    }
    Some((id, entry))
}
