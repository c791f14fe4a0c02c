//! The index of a segment that grows: one writer pushes, readers search without a lock.
//!
//! Owns:     sparse entries of one segment in memory.
//! Does not: touch files (`index_file.rs` does), or hold anything for an idle partition: the first push allocates.
//! Called from: the log's writer (`push`), any thread (the rest).
//!
//! # Invariants
//! L1. Entries below `len` never change; `len` is stored after the entry (release) and loaded before it (acquire).
//! L2. Offsets and positions strictly grow; `max_time` never falls.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::index_file::MaxTime;
use crate::types::Timestamp;

/// Entries of the first chunk; each further chunk has twice as many.
const FIRST_CHUNK: usize = 32;
/// Enough for 2^31 bytes with an entry for every batch of the smallest size.
const CHUNKS: usize = 24;

/// One entry: the batch at `position` has base offset `offset` (relative to the segment's base), and `max_time` is the
/// largest timestamp from the segment's start to this batch's end, first reached by the batch at `max_offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) offset: u32,
    pub(crate) position: u32,
    pub(crate) max_time: Timestamp,
    pub(crate) max_offset: u32,
}

impl IndexEntry {
    pub(crate) fn new((offset, position): (u32, u32), max: MaxTime) -> Self {
        Self {
            offset,
            position,
            max_time: max.time,
            max_offset: max.offset,
        }
    }

    pub(crate) fn max(&self) -> MaxTime {
        MaxTime {
            time: self.max_time,
            offset: self.max_offset,
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    place: AtomicU64,
    max_time: AtomicI64,
    max_offset: AtomicU32,
}

type Chunks = [OnceLock<Box<[Slot]>>; CHUNKS];

#[derive(Debug, Default)]
pub(crate) struct LiveIndex {
    chunks: OnceLock<Box<Chunks>>,
    len: AtomicUsize,
}

/// Offset and position in one word, so that they are read together.
pub(crate) fn pack(offset: u32, position: u32) -> u64 {
    (u64::from(offset) << 32) | u64::from(position)
}

pub(crate) fn unpack(word: u64) -> (u32, u32) {
    (
        u32::try_from(word >> 32).unwrap_or(0),
        u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0),
    )
}

/// The chunk of an entry and the place in it.
fn locate(index: usize) -> (usize, usize) {
    let doubled = index / FIRST_CHUNK + 1;
    let chunk = usize::try_from(doubled.ilog2()).unwrap_or(0);
    (chunk, index - FIRST_CHUNK * ((1 << chunk) - 1))
}

impl LiveIndex {
    /// Only the writer calls this. An entry beyond the largest count is dropped: searches start earlier then.
    pub(crate) fn push(&self, entry: IndexEntry) {
        let len = self.len.load(Ordering::Relaxed);
        let (chunk, place) = locate(len);
        let chunks = self.chunks.get_or_init(Default::default);
        let Some(slots) = chunks.get(chunk) else {
            return;
        };
        let slots =
            slots.get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| Slot::default()).collect());
        let slot = &slots[place];
        slot.place
            .store(pack(entry.offset, entry.position), Ordering::Relaxed);
        slot.max_time.store(entry.max_time.0, Ordering::Relaxed);
        slot.max_offset.store(entry.max_offset, Ordering::Relaxed);
        self.len.store(len + 1, Ordering::Release);
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// The entry at `index`, which is below a `len` that the caller has seen.
    fn get(&self, index: usize) -> Option<IndexEntry> {
        let (chunk, place) = locate(index);
        let slot = self.chunks.get()?.get(chunk)?.get()?.get(place)?;
        let (offset, position) = unpack(slot.place.load(Ordering::Relaxed));
        Some(IndexEntry {
            offset,
            position,
            max_time: Timestamp(slot.max_time.load(Ordering::Relaxed)),
            max_offset: slot.max_offset.load(Ordering::Relaxed),
        })
    }

    /// The last entry for which `below` holds; it holds for a prefix.
    fn last_where(&self, below: impl Fn(&IndexEntry) -> bool) -> Option<IndexEntry> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let mid = low + (high - low) / 2;
            if self.get(mid).is_some_and(|e| below(&e)) {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        self.get(low.checked_sub(1)?)
    }

    /// The last entry at or below a relative offset.
    pub(crate) fn floor_offset(&self, offset: u32) -> Option<IndexEntry> {
        self.last_where(|e| e.offset <= offset)
    }

    /// The last entry at or below a relative offset and a position.
    pub(crate) fn floor(&self, offset: u32, position: u32) -> Option<IndexEntry> {
        self.last_where(|e| e.offset <= offset && e.position <= position) // L2
    }

    /// The last entry whose largest timestamp is below `time`: no earlier batch can hold that time.
    pub(crate) fn before_time(&self, time: Timestamp) -> Option<IndexEntry> {
        self.last_where(|e| e.max_time < time)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = IndexEntry> + '_ {
        (0..self.len()).map_while(|i| self.get(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_find_the_last_entry_at_or_below() {
        let index = LiveIndex::default();
        assert_eq!(index.floor_offset(7), None);
        for i in 0..1000_u32 {
            index.push(IndexEntry {
                offset: i * 10,
                position: i * 100,
                max_time: Timestamp(i64::from(i / 3)),
                max_offset: 0,
            });
        }
        assert_eq!(index.floor_offset(4).map(|e| e.position), Some(0));
        assert_eq!(index.floor_offset(4999).map(|e| e.position), Some(49_900));
        assert_eq!(
            index.floor_offset(u32::MAX).map(|e| e.position),
            Some(99_900)
        );
        for (offset, position, found) in [(4999, 49_900, 499), (4999, 42, 0), (0, 99, 0)] {
            let entry = index.floor(offset, position).unwrap();
            assert_eq!((entry.offset, entry.position), (found * 10, found * 100));
        }
        assert_eq!(index.before_time(Timestamp(0)), None);
        assert_eq!(
            index.before_time(Timestamp(10)).map(|e| e.offset),
            Some(290)
        );
        assert_eq!(index.entries().count(), 1000);
    }
}
