//! How much lies between two offsets, without asking the disk.
//!
//! Owns:     an upper bound, for long polls that wait for many bytes.
//! Does not: read anything. It knows the growing segment's index in memory and
//!           takes every other distance for infinite: a reader that far behind
//!           has enough to read.

use crate::types::Offset;
use crate::view::ReadView;

impl ReadView {
    /// Bytes from the batch that holds `from` up to `to`, at most; `u64::MAX`
    /// where `from` lies before the growing segment.
    pub fn bytes_between_at_most(&self, from: Offset, to: Offset) -> u64 {
        if to <= from {
            return 0;
        }
        let growing = self
            .segments
            .last()
            .and_then(|s| Some((s, s.live.as_ref()?)));
        let Some((segment, live)) = growing.filter(|(_, live)| from >= live.from_offset) else {
            return u64::MAX;
        };
        let Ok(relative) = u32::try_from(from.since(segment.name.base)) else {
            return u64::MAX;
        };
        let floor = live.index.floor_offset(relative);
        let begins = floor.map_or(live.from.0, |entry| u64::from(entry.position));
        self.end_position.0.saturating_sub(begins)
    }
}
