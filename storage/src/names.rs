//! Names of the files of a partition, and which segments hide which.
//!
//! Owns:     the syntax of segment names, the fixed names, the hiding rule.
//! Does not: touch a disk.
//! Called from any thread.
//!
//! # Invariants
//! N1. Visible segments have strictly growing bases and never falling epochs: an older epoch's bytes at and beyond the
//!     offset where a newer epoch's file begins are never read (D5).

use std::fmt;

use crate::types::{LeaderEpoch, Offset};

/// Log start and high watermark.
pub const MANIFEST: &str = "manifest.json";
/// Producer facts at a known offset.
pub const SNAPSHOT: &str = "producer-state.snapshot";
/// The durable prefix.
pub const CHECKPOINT: &str = "recovery-checkpoint.json";
/// How far the log is compacted.
pub const COMPACTION: &str = "compaction.json";
/// Every temporary file begins with this; what a crash leaves of them is removed before the next append.
pub const TEMP_PREFIX: &str = ".tmp-";

const LOG_EXT: &str = "log";
const INDEX_EXT: &str = "index";
const TIME_INDEX_EXT: &str = "timeindex";
const TXN_INDEX_EXT: &str = "txnindex";

/// What a segment's file name says: who wrote it and which offset comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// Epoch of the leader that made the file.
    pub epoch: LeaderEpoch,
    /// Offset of its first record.
    pub base: Offset,
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:020}", self.epoch.0, self.base.0)
    }
}

impl SegmentName {
    /// `<epoch:08x>-<base:020>`, without extension.
    pub fn parse(stem: &str) -> Option<Self> {
        let (epoch, base) = stem.split_once('-')?;
        let hex = epoch
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let digits = base.bytes().all(|b| b.is_ascii_digit());
        if epoch.len() != 8 || base.len() != 20 || !hex || !digits {
            return None;
        }
        let epoch = LeaderEpoch(i32::from_str_radix(epoch, 16).ok()?);
        Some(Self {
            epoch,
            base: Offset(base.parse().ok()?),
        })
    }

    /// The name of a `.log` file; `None` for any other file.
    pub fn parse_log(file_name: &str) -> Option<Self> {
        Self::parse(file_name.strip_suffix(LOG_EXT)?.strip_suffix('.')?)
    }

    /// The file of the batches.
    pub fn log(&self) -> String {
        format!("{self}.{LOG_EXT}")
    }

    /// The file of (relative offset, position) pairs.
    pub fn index(&self) -> String {
        format!("{self}.{INDEX_EXT}")
    }

    /// The file of (timestamp, relative offset) pairs.
    pub fn time_index(&self) -> String {
        format!("{self}.{TIME_INDEX_EXT}")
    }

    /// The file of aborted transactions.
    pub fn txn_index(&self) -> String {
        format!("{self}.{TXN_INDEX_EXT}")
    }
}

/// The segments that are read, in offset order (N1), and those that a newer epoch hides wholly.
pub(crate) fn split_visible(mut names: Vec<SegmentName>) -> (Vec<SegmentName>, Vec<SegmentName>) {
    names.sort_unstable();
    let mut visible: Vec<SegmentName> = Vec::with_capacity(names.len());
    let mut hidden = Vec::new();
    for name in names {
        while visible.last().is_some_and(|last| last.base >= name.base) {
            hidden.extend(visible.pop());
        }
        visible.push(name);
    }
    (visible, hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(epoch: i32, base: i64) -> SegmentName {
        SegmentName {
            epoch: LeaderEpoch(epoch),
            base: Offset(base),
        }
    }

    #[test]
    fn names_round_trip_and_strangers_are_none_of_ours() {
        let n = name(0x1f, 1234);
        assert_eq!(n.log(), "0000001f-00000000000000001234.log");
        assert_eq!(SegmentName::parse_log(&n.log()), Some(n));
        for stranger in [
            "00000000000000000000.log",
            "0000001F-00000000000000001234.log",
            ".tmp-1",
            "x.log",
            ".log",
            "0000001f-00000000000000001234.index",
            "ffffffff-00000000000000000000.log",
            "00000001-99999999999999999999.log",
            "+0000001-00000000000000000000.log",
        ] {
            assert_eq!(SegmentName::parse_log(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn a_newer_epoch_hides_what_lies_at_and_beyond_its_base() {
        let all = vec![
            name(1, 100),
            name(0, 0),
            name(0, 100),
            name(0, 200),
            name(2, 150),
            name(3, 150),
        ];
        let (visible, hidden) = split_visible(all);
        assert_eq!(visible, [name(0, 0), name(1, 100), name(3, 150)]);
        assert_eq!(hidden.len(), 3);
    }
}
