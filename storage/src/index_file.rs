//! The `.index` and `.timeindex` files of a segment, and the same in memory for a sealed segment.
//!
//! Owns:     their encoding, the check whether they are complete, and rebuilding them from the segment.
//! Does not: know a log. An index is never an authority: missing, short or damaged means rebuilt (D10).
//! Called from read threads (load, search) and `state-*` threads (write).
//!
//! # Invariants
//! X1. Entries strictly grow in offset and position; times never fall.
//! X2. The last entry of `.index` is the last batch that the files cover, and the last of `.timeindex` names that batch and
//!     holds a checksum over all other entries of both files: so files that are short, old or damaged are noticed.
//!
//! `.index`: 8 bytes, relative base offset and position of a batch, both u32 big-endian.
//! `.timeindex`: 12 bytes, timestamp i64 and relative base offset u32: the largest timestamp up to the batch of the same
//! entry in `.index`, and the batch that reached it first. Last: CRC-32C as i64, relative base offset of the last batch.

use std::io;
use std::path::Path;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::disk::{Disk, DiskFile, read_full};
use crate::live_index::{IndexEntry, pack, unpack};
use crate::names::SegmentName;
use crate::scan::{Expect, HEADER_CHUNK_BYTES, Scan, Step};
use crate::state_file::{read_bounded, write_unsynced};
use crate::types::{Offset, Position, Timestamp, wide};

const OFFSET_ENTRY_BYTES: usize = 8;
const TIME_ENTRY_BYTES: usize = 12;
/// Entries kept in memory of a sealed segment; between two of them the log is walked by headers.
const KEPT_MAX: usize = 16 * 1024;
/// A larger index file is not ours: more than an entry for each smallest batch of the largest segment is impossible.
const FILE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// The largest timestamp of a stretch of batches and the (relative) batch that first reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MaxTime {
    pub(crate) time: Timestamp,
    pub(crate) offset: u32,
}

impl MaxTime {
    /// The later of two; the first when they are equal.
    pub(crate) fn later(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(a), Some(b)) => Some(if b.time > a.time { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

/// Which part of a segment an index covers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Covered {
    pub(crate) name: SegmentName,
    /// The offset at which the covered part ends.
    pub(crate) end: Offset,
    /// Bytes that may belong to it.
    pub(crate) bytes_max: u64,
    /// At least so many bytes lie between two entries of a rebuilt index.
    pub(crate) interval: u64,
}

/// The index of the part of a segment that does not grow any more.
#[derive(Debug, Default)]
pub(crate) struct SealedIndex {
    entries: Box<[IndexEntry]>,
    max: Option<MaxTime>,
    /// Whether the files on disk were not good enough.
    pub(crate) rebuilt: bool,
}

impl SealedIndex {
    /// Takes the files if they are complete, else walks the segment.
    pub(crate) fn load(
        disk: &dyn Disk,
        dir: &Path,
        file: &dyn DiskFile,
        covered: &Covered,
    ) -> io::Result<Self> {
        match read_entries(disk, dir, file, covered)? {
            Some(entries) => Ok(Self::from_entries(entries)),
            None => Self::rebuild(file, covered),
        }
    }

    /// Walks the segment from its start.
    pub(crate) fn rebuild(file: &dyn DiskFile, covered: &Covered) -> io::Result<Self> {
        let index = Self::from_entries(walk(file, covered)?);
        Ok(Self {
            rebuilt: true,
            ..index
        })
    }

    fn from_entries(entries: Vec<IndexEntry>) -> Self {
        let max = entries.last().map(IndexEntry::max);
        let step = entries.len().div_ceil(KEPT_MAX).max(1);
        let kept = if step == 1 {
            entries.into()
        } else {
            entries.into_iter().step_by(step).collect()
        };
        Self {
            entries: kept,
            max,
            rebuilt: false,
        }
    }

    /// The last known batch at or below a relative offset.
    pub(crate) fn floor_offset(&self, offset: u32) -> Option<IndexEntry> {
        let after = self.entries.partition_point(|e| e.offset <= offset);
        self.entries.get(after.checked_sub(1)?).copied()
    }

    /// The last known batch at or below a relative offset and a position.
    pub(crate) fn floor(&self, offset: u32, position: u32) -> Option<IndexEntry> {
        let below = |e: &IndexEntry| e.offset <= offset && e.position <= position;
        let after = self.entries.partition_point(below);
        self.entries.get(after.checked_sub(1)?).copied()
    }

    /// The last known batch up to which every timestamp is smaller than `time`.
    pub(crate) fn before_time(&self, time: Timestamp) -> Option<IndexEntry> {
        let after = self.entries.partition_point(|e| e.max_time < time);
        self.entries.get(after.checked_sub(1)?).copied()
    }

    pub(crate) fn max_time(&self) -> Option<MaxTime> {
        self.max
    }
}

/// The entries of both files; `None` unless they are sound and complete (X1, X2).
pub(crate) fn read_entries(
    disk: &dyn Disk,
    dir: &Path,
    file: &dyn DiskFile,
    covered: &Covered,
) -> io::Result<Option<Vec<IndexEntry>>> {
    let Some(places) = read_index(disk, &dir.join(covered.name.index()))? else {
        return Ok(None);
    };
    let Some(times) = read_index(disk, &dir.join(covered.name.time_index()))? else {
        return Ok(None);
    };
    let Some(entries) = decode(&places, &times) else {
        return Ok(None);
    };
    let Some(last) = entries.last() else {
        return Ok(None);
    };
    Ok(ends_at(file, covered, last)?.then_some(entries))
}

fn decode(places: &[u8], times: &[u8]) -> Option<Vec<IndexEntry>> {
    let (times, seal) = times.split_last_chunk::<TIME_ENTRY_BYTES>()?;
    let entries = decode_places(places)?;
    let last = entries.last().map(|place| unpack(*place).0)?;
    if *seal != seal_entry(places, times, last) {
        return None;
    }
    let times = decode_times(times)?;
    let pairs = entries
        .iter()
        .zip(&times)
        .map(|(place, max)| IndexEntry::new(unpack(*place), *max));
    (times.len() == entries.len()).then(|| pairs.collect())
}

/// The last entry of a time index (X2).
fn seal_entry(places: &[u8], times: &[u8], last: u32) -> [u8; TIME_ENTRY_BYTES] {
    let sum = crc32c::crc32c_append(crc32c::crc32c(places), times);
    let mut entry = [0; TIME_ENTRY_BYTES];
    entry[..8].copy_from_slice(&i64::from(sum).to_be_bytes());
    entry[8..].copy_from_slice(&last.to_be_bytes());
    entry
}

fn read_index(disk: &dyn Disk, path: &Path) -> io::Result<Option<Vec<u8>>> {
    match read_bounded(disk, path, FILE_BYTES_MAX) {
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(None),
        other => other,
    }
}

/// Whether the batch that the last entry names is there and is the last one (X2).
fn ends_at(file: &dyn DiskFile, covered: &Covered, last: &IndexEntry) -> io::Result<bool> {
    let mut bytes = [0; HEADER_BYTES];
    if read_full(file, &mut bytes, u64::from(last.position))? < HEADER_BYTES {
        return Ok(false);
    }
    let header = BatchHeader::decode(&bytes);
    let base = covered.name.base.plus(i64::from(last.offset));
    Ok(header.magic == 2 && header.base_offset == base && header.next_offset() == covered.end)
}

fn decode_places(bytes: &[u8]) -> Option<Vec<u64>> {
    let (entries, rest) = bytes.as_chunks::<OFFSET_ENTRY_BYTES>();
    let places: Vec<u64> = entries.iter().map(|e| u64::from_be_bytes(*e)).collect();
    let grow = places
        .windows(2)
        .all(|w| unpack(w[0]).0 < unpack(w[1]).0 && unpack(w[0]).1 < unpack(w[1]).1);
    (rest.is_empty() && grow).then_some(places)
}

fn decode_times(bytes: &[u8]) -> Option<Vec<MaxTime>> {
    let (entries, rest) = bytes.as_chunks::<TIME_ENTRY_BYTES>();
    let times: Vec<MaxTime> = entries.iter().filter_map(decode_time).collect();
    let grow = times
        .windows(2)
        .all(|w| w[0].time <= w[1].time && w[0].offset <= w[1].offset);
    (rest.is_empty() && grow).then_some(times)
}

fn decode_time(entry: &[u8; TIME_ENTRY_BYTES]) -> Option<MaxTime> {
    let time = Timestamp(i64::from_be_bytes(*entry.first_chunk::<8>()?));
    let offset = u32::from_be_bytes(*entry.last_chunk::<4>()?);
    Some(MaxTime { time, offset })
}

/// Entries of the whole covered part, by walking its headers; the last batch is always the last entry (X2).
pub(crate) fn walk(file: &dyn DiskFile, covered: &Covered) -> io::Result<Vec<IndexEntry>> {
    let expect = Expect {
        offset: covered.name.base,
        end: covered.end,
    };
    let mut scan =
        Scan::new(file, covered.bytes_max, HEADER_CHUNK_BYTES).from(Position::ZERO, expect);
    let mut builder = EntryBuilder::new(covered.name.base, covered.interval, Position::ZERO);
    while let Step::Batch(found) = scan.next_header()? {
        builder.add(&found.header, found.position);
    }
    Ok(builder.finish())
}

/// Turns batches in order into sparse entries.
#[derive(Debug)]
pub(crate) struct EntryBuilder {
    base: Offset,
    interval: u64,
    entries: Vec<IndexEntry>,
    last: Option<IndexEntry>,
    max: Option<MaxTime>,
    indexed_at: Position,
}

impl EntryBuilder {
    /// For batches of the segment at `base`, from `start` on.
    pub(crate) fn new(base: Offset, interval: u64, start: Position) -> Self {
        Self {
            base,
            interval,
            entries: Vec::new(),
            last: None,
            max: None,
            indexed_at: start,
        }
    }

    pub(crate) fn add(&mut self, header: &BatchHeader, position: Position) {
        let (Ok(offset), Ok(place)) = (
            u32::try_from(header.base_offset.since(self.base)),
            u32::try_from(position.0),
        ) else {
            return;
        };
        self.max = MaxTime::later(
            self.max,
            Some(MaxTime {
                time: header.max_timestamp,
                offset,
            }),
        );
        let Some(max) = self.max else { return };
        let entry = IndexEntry {
            offset,
            position: place,
            max_time: max.time,
            max_offset: max.offset,
        };
        if position.since(self.indexed_at) >= self.interval {
            self.entries.push(entry);
            self.indexed_at = position;
        }
        self.last = Some(entry);
    }

    pub(crate) fn finish(mut self) -> Vec<IndexEntry> {
        match self.last {
            Some(last) if self.entries.last() != Some(&last) => self.entries.push(last),
            _ => {}
        }
        self.entries
    }
}

/// Writes both files; the time index first, so that a complete `.index` speaks for it (X2).
pub(crate) fn write_files(
    disk: &dyn Disk,
    dir: &Path,
    name: &SegmentName,
    entries: &[IndexEntry],
) -> io::Result<()> {
    let mut places = Vec::with_capacity(entries.len() * OFFSET_ENTRY_BYTES);
    let mut times = Vec::with_capacity(entries.len() * TIME_ENTRY_BYTES);
    for entry in entries {
        places.extend_from_slice(&pack(entry.offset, entry.position).to_be_bytes());
        times.extend_from_slice(&entry.max_time.0.to_be_bytes());
        times.extend_from_slice(&entry.max_offset.to_be_bytes());
    }
    if let Some(last) = entries.last() {
        let seal = seal_entry(&places, &times, last.offset);
        times.extend_from_slice(&seal);
    }
    debug_assert!(
        wide(places.len()) <= FILE_BYTES_MAX,
        "more entries than a segment can have batches"
    );
    write_unsynced(disk, &dir.join(name.time_index()), &times)?;
    write_unsynced(disk, &dir.join(name.index()), &places)
}
