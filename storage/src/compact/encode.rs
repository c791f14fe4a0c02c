//! Batches that compaction makes: of the records that stay, of none, and of what is gone.
//!
//! Owns:     their headers and payloads; compression in the codec that the producer chose.
//! Does not: decide what stays.
//!
//! # Invariants
//! E1. A batch covers the offsets that its original covered (Z1 of `mod.rs`), with its epochs and sequences.

use std::io::{self, Write};

use bytes::Bytes;

use crate::batch::{Attributes, BatchHeader, Codec, HEADER_BYTES, LENGTH_END};
use crate::records::{RawRecord, decompressed};
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, wide};

/// Batches of snappy blocks in the Java client's framing have blocks of this size.
const SNAPPY_BLOCK_BYTES: usize = 32 * 1024;
const SNAPPY_HEADER: &[u8; 16] = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";

/// A whole batch: its header with length and CRC filled in, and its payload.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub(super) header: BatchHeader,
    pub(super) payload: Bytes,
}

impl Made {
    pub(super) fn new(header: BatchHeader, payload: Bytes) -> Option<Self> {
        let length = payload.len() + HEADER_BYTES - LENGTH_END;
        let mut header = BatchHeader {
            batch_length: i32::try_from(length).ok()?,
            ..header
        };
        let covered = crc32c::crc32c(&header.encode()[21..]);
        header.crc = crc32c::crc32c_append(covered, &payload);
        Some(Self { header, payload })
    }
}

/// What stands where all batches were removed: no records, from `base` up to `next`.
pub(super) fn gap(base: Offset, next: Offset, epoch: LeaderEpoch) -> Option<Made> {
    let header = BatchHeader {
        base_offset: base,
        batch_length: 0,
        leader_epoch: epoch,
        magic: 2,
        crc: 0,
        attributes: Attributes(0),
        last_offset_delta: i32::try_from(next.since(base) - 1).ok()?,
        base_timestamp: Timestamp::NONE,
        max_timestamp: Timestamp::NONE,
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch::NONE,
        base_sequence: Sequence::NONE,
        record_count: 0,
    };
    Made::new(header, Bytes::new())
}

/// What stays of a batch whose records are gone and whose producer may ask for it again: its header.
pub(super) fn emptied(header: &BatchHeader) -> Option<Made> {
    let header = BatchHeader {
        attributes: header.attributes.without_codec(),
        record_count: 0,
        ..*header
    };
    Made::new(header, Bytes::new())
}

/// A batch of some of the records of another; with a delete horizon, its tombstones go after that time (KIP-534).
pub(super) fn filtered(
    header: &BatchHeader,
    records: &[&RawRecord],
    horizon: Option<Timestamp>,
) -> Option<Made> {
    let mut made = *header;
    if let Some(horizon) = horizon {
        made.attributes = header.attributes.with_delete_horizon();
        made.base_timestamp = horizon;
    }
    let mut plain = Vec::new();
    for record in records {
        let shift = header.base_timestamp.0.wrapping_sub(made.base_timestamp.0);
        record.write(&mut plain, record.time_delta.wrapping_add(shift));
    }
    made.record_count = i32::try_from(records.len()).ok()?;
    if !header.attributes.is_log_append_time() {
        let times = records
            .iter()
            .map(|r| header.base_timestamp.0.wrapping_add(r.time_delta));
        made.max_timestamp = Timestamp(times.max()?);
    }
    let codec = header.attributes.codec()?;
    let payload = match compress(codec, &plain) {
        Ok(packed) if holds(codec, &packed, &plain) => packed,
        _ => {
            made.attributes = made.attributes.without_codec();
            plain
        }
    };
    Made::new(made, payload.into())
}

/// The only copy is about to be replaced: what was packed must unpack again.
fn holds(codec: Codec, packed: &[u8], plain: &[u8]) -> bool {
    codec == Codec::None
        || decompressed(codec, &Bytes::copy_from_slice(packed), wide(plain.len()))
            .is_ok_and(|again| again == plain)
}

fn compress(codec: Codec, plain: &[u8]) -> io::Result<Vec<u8>> {
    match codec {
        Codec::None => Ok(plain.to_vec()),
        Codec::Gzip => {
            let level = flate2::Compression::default();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(plain)?;
            encoder.finish()
        }
        Codec::Lz4 => {
            let info = lz4_flex::frame::FrameInfo::new()
                .block_size(lz4_flex::frame::BlockSize::Max64KB)
                .block_mode(lz4_flex::frame::BlockMode::Independent);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(plain)?;
            encoder.finish().map_err(io::Error::other)
        }
        Codec::Zstd => {
            let level = ruzstd::encoding::CompressionLevel::Fastest;
            Ok(ruzstd::encoding::compress_to_vec(plain, level))
        }
        Codec::Snappy => snappy(plain),
    }
}

fn snappy(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = SNAPPY_HEADER.to_vec();
    let mut encoder = snap::raw::Encoder::new();
    for block in plain.chunks(SNAPPY_BLOCK_BYTES) {
        let packed = encoder.compress_vec(block).map_err(io::Error::other)?;
        let len = i32::try_from(packed.len()).map_err(io::Error::other)?;
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&packed);
    }
    Ok(out)
}
