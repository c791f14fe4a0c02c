//! One file: what a read sees, what the device has, and which pages differ.
//!
//! Owns:     durability of bytes (F1, F2).
//! Does not: know names.

use std::collections::BTreeSet;

use crate::dice::Dice;

/// What the device writes as a whole or not at all.
const SECTOR: usize = 512;
/// What the page cache keeps track of.
pub(crate) const PAGE: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct FileBody {
    live: Vec<u8>,
    synced: Vec<u8>,
    /// Pages written since the last fsync, whether it succeeded or not.
    dirty: BTreeSet<usize>,
    /// Pages whose fsync failed (F2).
    abandoned: BTreeSet<usize>,
    /// Whether the length is part of what the next fsync makes durable.
    length_dirty: bool,
}

impl FileBody {
    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn read(&self, at: usize, len: usize) -> &[u8] {
        let from = at.min(self.live.len());
        let to = at.saturating_add(len).min(self.live.len());
        &self.live[from..to]
    }

    pub(crate) fn write(&mut self, at: usize, data: &[u8]) {
        let end = at + data.len();
        if end > self.live.len() {
            self.set_len(end);
        }
        self.live[at..end].copy_from_slice(data);
        self.touch(at, end);
    }

    pub(crate) fn set_len(&mut self, len: usize) {
        let before = self.live.len();
        self.live.resize(len, 0);
        self.length_dirty = true;
        self.touch(before.min(len), before.max(len));
    }

    fn touch(&mut self, from: usize, to: usize) {
        for page in from / PAGE..to.div_ceil(PAGE) {
            self.dirty.insert(page);
            self.abandoned.remove(&page);
        }
    }

    /// A successful fsync.
    pub(crate) fn sync(&mut self) {
        if std::mem::take(&mut self.length_dirty) {
            self.synced.resize(self.live.len(), 0);
        }
        for page in std::mem::take(&mut self.dirty) {
            persist(&self.live, &mut self.synced, page * PAGE, (page + 1) * PAGE);
        }
    }

    /// A failed fsync (F2). The length is metadata and stays due.
    pub(crate) fn sync_failed(&mut self) {
        self.abandoned.append(&mut self.dirty);
    }

    /// The page cache lets go of clean pages: those whose fsync failed read as the device has them.
    pub(crate) fn evict(&mut self) {
        let len = self.live.len();
        for page in std::mem::take(&mut self.abandoned) {
            let (from, to) = (page * PAGE, ((page + 1) * PAGE).min(len));
            for at in from..to {
                self.live[at] = self.synced.get(at).copied().unwrap_or(0);
            }
        }
    }

    /// What a power cut leaves: nothing that was not synced, or any part of it.
    pub(crate) fn cut_power(&mut self, dice: &mut Dice, keep_nothing: bool) {
        if !keep_nothing {
            self.keep_some(dice);
        }
        self.dirty.clear();
        self.abandoned.clear();
        self.length_dirty = false;
        self.live.clone_from(&self.synced);
    }

    fn keep_some(&mut self, dice: &mut Dice) {
        let (short, long) = {
            let (a, b) = (self.live.len(), self.synced.len());
            (a.min(b), a.max(b))
        };
        let between = u64::try_from(long - short).expect("a length fits 64 bits");
        let len = match dice.below(3) {
            0 => self.synced.len(),
            1 => self.live.len(),
            _ => short + usize::try_from(dice.below(between + 1)).expect("at most a length"),
        };
        self.synced.resize(len, 0);
        for page in self.dirty.union(&self.abandoned) {
            let fate = dice.below(3);
            for sector in 0..PAGE / SECTOR {
                if fate == 1 || (fate == 2 && dice.coin()) {
                    let from = page * PAGE + sector * SECTOR;
                    persist(&self.live, &mut self.synced, from, from + SECTOR);
                }
            }
        }
    }
}

fn persist(live: &[u8], synced: &mut [u8], from: usize, to: usize) {
    let to = to.min(live.len()).min(synced.len());
    if from < to {
        synced[from..to].copy_from_slice(&live[from..to]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_and_the_rest_is_forgotten() {
        let mut file = FileBody::default();
        file.write(0, b"durable");
        file.sync();
        file.write(3, b"lost and more");
        file.cut_power(&mut Dice::new(1), true);
        assert_eq!(file.read(0, 100), b"durable");
    }

    #[test]
    fn a_second_fsync_after_a_failed_one_saves_nothing() {
        let mut file = FileBody::default();
        file.write(0, b"first");
        file.sync_failed();
        file.sync();
        assert_eq!(file.read(0, 100), b"first", "the cache still has it");
        file.cut_power(&mut Dice::new(1), true);
        assert_eq!(file.read(0, 100), [0; 5], "the length was metadata");
    }

    #[test]
    fn bytes_written_again_after_a_failed_fsync_are_saved_by_the_next() {
        let mut file = FileBody::default();
        file.write(0, b"first");
        file.sync_failed();
        file.write(0, b"again");
        file.sync();
        file.cut_power(&mut Dice::new(1), true);
        assert_eq!(file.read(0, 100), b"again");
    }

    #[test]
    fn a_torn_write_keeps_whole_sectors_only() {
        let mut seen_torn = false;
        for seed in 0..100 {
            let mut file = FileBody::default();
            file.write(0, &[b'o'; 2 * PAGE]);
            file.sync();
            file.write(0, &[b'n'; 2 * PAGE]);
            file.cut_power(&mut Dice::new(seed), false);
            let sectors: Vec<u8> = file
                .read(0, 2 * PAGE)
                .chunks(SECTOR)
                .map(|s| s[0])
                .collect();
            assert!(
                file.read(0, 2 * PAGE)
                    .chunks(SECTOR)
                    .all(|s| s.iter().all(|b| *b == s[0]))
            );
            seen_torn |= sectors.contains(&b'o') && sectors.contains(&b'n');
        }
        assert!(seen_torn);
    }
}
