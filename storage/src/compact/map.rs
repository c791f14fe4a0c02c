//! Which offset is the latest of each key, within a bound of memory.
//!
//! Owns:     the table of key hashes.
//! Does not: keep keys: two keys with the same 128 bits of a hash that nobody outside of this process knows would be taken
//!           for one; with a billion keys that happens once in 10^20 passes.
//!
//! # Invariants
//! O1. It never holds more than `capacity` keys, whatever is offered.

use std::hash::{BuildHasher, RandomState};

use crate::types::{Offset, narrow, wide};

/// Bytes of a slot.
const SLOT_BYTES: u64 = 24;
/// Slots that stay free of ten, so that searches stay short.
const FREE_OF_TEN: u64 = 1;

#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: (u64, u64),
    offset: i64,
}

const FREE: Slot = Slot {
    hash: (0, 0),
    offset: -1,
};

/// See the module.
#[derive(Debug)]
pub(super) struct OffsetMap {
    slots: Box<[Slot]>,
    capacity: usize,
    len: usize,
    hashers: (RandomState, RandomState),
}

/// The table is full; the key was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

impl OffsetMap {
    /// For at most `records` keys, in at most `bytes` of memory.
    pub(super) fn new(bytes: u64, records: u64) -> Self {
        let most = (bytes / SLOT_BYTES).max(10);
        let wanted = records.saturating_mul(10) / (10 - FREE_OF_TEN) + 2;
        let slots = most.min(wanted);
        let capacity = slots - (slots * FREE_OF_TEN / 10).max(1);
        Self {
            slots: vec![FREE; narrow(slots)].into(),
            capacity: narrow(capacity),
            len: 0,
            hashers: (RandomState::new(), RandomState::new()),
        }
    }

    /// Bytes that the table takes.
    pub(super) fn bytes(&self) -> u64 {
        wide(self.slots.len()).saturating_mul(SLOT_BYTES)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn hash(&self, key: &[u8]) -> (u64, u64) {
        (self.hashers.0.hash_one(key), self.hashers.1.hash_one(key))
    }

    /// The slot of a hash, or the free one where it belongs. There is always a free one (O1).
    fn find(&self, hash: (u64, u64)) -> usize {
        let count = self.slots.len();
        let mut at = narrow(hash.0 % wide(count).max(1));
        while self.slots[at].offset >= 0 && self.slots[at].hash != hash {
            at = if at + 1 == count { 0 } else { at + 1 };
        }
        at
    }

    /// The record at `offset` has this key. Offsets come in order.
    pub(super) fn put(&mut self, key: &[u8], offset: Offset) -> Result<(), Full> {
        let hash = self.hash(key);
        let at = self.find(hash);
        if self.slots[at].offset < 0 {
            if self.len >= self.capacity {
                return Err(Full);
            }
            self.len += 1;
        }
        self.slots[at] = Slot {
            hash,
            offset: offset.0.max(0),
        };
        Ok(())
    }

    /// The latest offset of a key.
    pub(super) fn latest(&self, key: &[u8]) -> Option<Offset> {
        let slot = self.slots[self.find(self.hash(key))];
        (slot.offset >= 0).then_some(Offset(slot.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_offset_of_each_key_within_the_bound() {
        let mut map = OffsetMap::new(24 * 100, 1 << 40);
        assert!(map.bytes() <= 24 * 100);
        let key = |n: i64| format!("key-{n}");
        for n in 0..90 {
            assert_eq!(map.put(key(n).as_bytes(), Offset(n)), Ok(()), "{n}");
        }
        assert_eq!(map.put(b"one too many", Offset(90)), Err(Full));
        assert_eq!(
            map.put(key(7).as_bytes(), Offset(91)),
            Ok(()),
            "a known key"
        );
        assert_eq!(map.latest(key(7).as_bytes()), Some(Offset(91)));
        assert_eq!(map.latest(key(8).as_bytes()), Some(Offset(8)));
        assert_eq!(map.latest(b"one too many"), None);
        assert_eq!(map.len(), 90);
    }

    #[test]
    fn a_table_for_few_records_is_small() {
        let map = OffsetMap::new(1 << 40, 3);
        assert!(map.bytes() < 1000);
        assert!(
            OffsetMap::new(0, 0).capacity >= 1,
            "progress is always possible"
        );
    }
}
