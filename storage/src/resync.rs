//! Looking behind a bad place for a batch that could be a later one of the same log.
//!
//! Owns:     what makes a header possible there, and the search.
//! Does not: decide what it means that there is one.
//! Called from recovery and from the tools, on threads that may read for long.
//!
//! # Invariants
//! F1. A batch is found only if its checksum holds; memory is bounded by two chunks, whatever lengths the bytes claim.

use std::io;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::disk::{DiskFile, read_full};
use crate::scan::CHUNK_BYTES;
use crate::types::{LeaderEpoch, Offset, Position, narrow, wide};

/// Where the covered part of a batch begins.
const CRC_START: u64 = 21;

/// The bad place, and what the log said up to there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BadPlace {
    pub(crate) position: Position,
    /// The offset that should be there.
    pub(crate) offset: Offset,
    /// The epoch in the file's name; batches have at most this one.
    pub(crate) epoch: LeaderEpoch,
}

/// The first place behind `bad`, in a file of `len` bytes, where a valid batch of a later offset begins.
pub(crate) fn find_valid(
    file: &dyn DiskFile,
    len: u64,
    bad: &BadPlace,
) -> io::Result<Option<Position>> {
    let mut buf = vec![0; narrow(CHUNK_BYTES.min(len.saturating_sub(bad.position.0)))];
    let mut at = bad.position.0.saturating_add(1);
    while at.saturating_add(wide(HEADER_BYTES)) <= len {
        let read = read_full(file, &mut buf, at)?;
        for place in 0..read.saturating_sub(HEADER_BYTES - 1) {
            let Some(header) = BatchHeader::peek(&buf[place..read]) else {
                break;
            };
            let position = Position(at.saturating_add(wide(place)));
            if could_follow(&header, bad) && holds(file, len, position, &header)? {
                return Ok(Some(position));
            }
        }
        if read < HEADER_BYTES {
            break;
        }
        at = at.saturating_add(wide(read - (HEADER_BYTES - 1)));
    }
    Ok(None)
}

fn could_follow(header: &BatchHeader, bad: &BadPlace) -> bool {
    let ahead = header.base_offset.since(bad.offset);
    header.magic == 2
        && (1..i64::from(i32::MAX)).contains(&ahead)
        && header.leader_epoch >= LeaderEpoch(0)
        && header.leader_epoch <= bad.epoch
        && header.last_offset_delta >= 0
}

/// Whether the whole batch lies below `len` and its checksum holds. It is read in chunks (F1).
pub(crate) fn holds(
    file: &dyn DiskFile,
    len: u64,
    at: Position,
    header: &BatchHeader,
) -> io::Result<bool> {
    let Some(total) = header.total_len() else {
        return Ok(false);
    };
    let end = at.0.saturating_add(total);
    if end > len {
        return Ok(false);
    }
    let mut place = at.0.saturating_add(CRC_START);
    let mut buf = vec![0; narrow(CHUNK_BYTES.min(end.saturating_sub(place)))];
    let mut crc = 0;
    while place < end {
        let want = narrow(wide(buf.len()).min(end - place));
        let read = read_full(file, &mut buf[..want], place)?;
        if read < want {
            return Ok(false);
        }
        crc = crc32c::crc32c_append(crc, &buf[..read]);
        place = place.saturating_add(wide(read));
    }
    Ok(crc == header.crc)
}
