//! What of a log is due to go by age and size.
//!
//! Owns:     the rules of `retention.ms` and `retention.bytes`, for whole segments from the oldest on.
//! Does not: delete anything, or take the log: it looks at a view.
//! Called from `maint-*` threads; it may read the indexes of old segments.

use std::io;

use crate::segment::newest_of;
use crate::types::{Offset, Timestamp};
use crate::view::ReadView;

/// How long and how much is kept; a limit that is `None` does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// `retention.ms`.
    pub age_ms: Option<u64>,
    /// `retention.bytes`.
    pub bytes: Option<u64>,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Where the log may start: everything before it is too old or too much.
    pub start: Offset,
    /// The last segment should be closed: it is too old to be written to, or all of it is too old to be kept.
    pub roll: bool,
}

/// Where the growing segment stands in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ActiveAge {
    pub(crate) roll_at: Timestamp,
    pub(crate) last_append: Timestamp,
}

impl ReadView {
    /// What is due at `now`, of what lies below `upto` (the last stable offset).
    pub fn due(&self, retention: &Retention, now: Timestamp, upto: Offset) -> io::Result<Due> {
        let roll_due = self.active.is_some_and(|a| now >= a.roll_at);
        let by_size = self.too_much(retention)?;
        let by_age = self.too_old(retention, now, upto)?;
        let last = self.segments.len().saturating_sub(1);
        let wanted = by_size.max(by_age).min(last);
        let start = self.base_up_to(wanted, upto);
        Ok(Due {
            start: start.max(self.start),
            roll: self.has_bytes() && (roll_due || by_age > last),
        })
    }

    /// Whether the last segment holds anything.
    fn has_bytes(&self) -> bool {
        self.segments
            .last()
            .is_some_and(|last| last.name.base < self.end)
    }

    /// The base of the segment at `index`, or of the last one before it that does not lie beyond `upto`.
    fn base_up_to(&self, index: usize, upto: Offset) -> Offset {
        let bases = self.segments.iter().take(index + 1).map(|s| s.name.base);
        let fitting = bases.take_while(|base| *base <= upto);
        fitting.last().unwrap_or(self.start)
    }

    /// How many segments from the oldest on could go and leave at least `retention.bytes`.
    fn too_much(&self, retention: &Retention) -> io::Result<usize> {
        let Some(limit) = retention.bytes else {
            return Ok(0);
        };
        let mut over = self.size_bytes()?.saturating_sub(limit);
        let mut count = 0;
        for segment in self.sealed() {
            let bytes = segment.bytes()?;
            if bytes > over {
                break;
            }
            (over, count) = (over - bytes, count + 1);
        }
        Ok(count)
    }

    /// How many segments from the oldest on have no record that is young enough.
    fn too_old(&self, retention: &Retention, now: Timestamp, upto: Offset) -> io::Result<usize> {
        let Some(limit) = retention.age_ms else {
            return Ok(0);
        };
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        for index in 0..self.segments.len() {
            let end = self.part(index).map_or(self.end, |part| part.end);
            let empty = index + 1 == self.segments.len() && !self.has_bytes();
            if empty || end > upto || now.since_ms(self.newest(index, end)?) <= limit {
                return Ok(index);
            }
        }
        Ok(self.segments.len())
    }

    fn newest(&self, index: usize, end: Offset) -> io::Result<Timestamp> {
        let segment = &self.segments[index];
        match self.active.filter(|_| index + 1 == self.segments.len()) {
            Some(active) => Ok(newest_of(
                self.growing_max.map(|m| m.time),
                active.last_append,
            )),
            None => segment.newest(&self.resources, end),
        }
    }
}
