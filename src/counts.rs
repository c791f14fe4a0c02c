//! What the parts of the broker count while they work, as plain numbers.
//!
//! Owns:     the counters of a log dir, of produces and of fetches.
//! Does not: name them or say what they mean to people: `metrics` does, in one table.
//!
//! Any thread counts, with relaxed atomics and no lock.

use std::sync::atomic::{AtomicU64, Ordering};

use seawall_committer::Refusal;
use seawall_storage::AppendReject;

use crate::histogram::Histogram;
use crate::partition::AppendError;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to it.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happens on one log dir.
pub struct DirCounts {
    /// Batches written.
    pub batches: Count,
    /// Records written.
    pub records: Count,
    /// Bytes of batches written.
    pub bytes: Count,
    /// Bytes of batches read for fetches.
    pub read_bytes: Count,
    /// Bytes of those that went from the page cache into a socket without a copy.
    pub piped_bytes: Count,
    /// How long writes took, with the wait for the partition's lock.
    pub writes: Histogram,
    /// How long reads took.
    pub reads: Histogram,
    /// How long fsyncs of logs took, those of rolls and healing included, and those that failed.
    pub fsyncs: Histogram,
    /// Fsyncs of logs that failed.
    pub fsyncs_failed: Count,
    /// How many batches each flush acknowledged.
    pub groups: Histogram,
}

impl DirCounts {
    /// All zero.
    pub fn new() -> Self {
        Self {
            batches: Count::default(),
            records: Count::default(),
            bytes: Count::default(),
            read_bytes: Count::default(),
            piped_bytes: Count::default(),
            writes: Histogram::of_times(),
            reads: Histogram::of_times(),
            fsyncs: Histogram::of_times(),
            fsyncs_failed: Count::default(),
            groups: Histogram::of_counts(),
        }
    }
}

/// What clients ask of partitions.
pub struct RequestCounts {
    /// From the end of a produce's frame to its answer.
    pub produces: Histogram,
    /// From the end of a fetch's frame to its answer, long polls included.
    pub fetches: Histogram,
    /// Bytes of batches that fetches brought.
    pub fetched_bytes: Count,
    /// Batches that were not appended, by the place of the reason in [`REASONS`].
    refused: [Count; REASONS.len()],
}

/// Why a batch was not acknowledged, by the names that metrics have for it.
pub const REASONS: [&str; 12] = [
    "stalled",
    "failed",
    "not_owner",
    "no_space",
    "not_written",
    "deleted",
    "dir_busy",
    "stopping",
    "out_of_order_sequence",
    "producer_fenced",
    "invalid_txn_state",
    "timed_out",
];

/// The place of a reason in [`REASONS`].
const TIMED_OUT: usize = 11;

fn place(error: &AppendError) -> usize {
    match error {
        AppendError::Refused(Refusal::Stalled) => 0,
        AppendError::Refused(Refusal::Failed(_)) => 1,
        AppendError::Refused(Refusal::NotOwner) => 2,
        AppendError::NoSpace => 3,
        AppendError::NotWritten => 4,
        AppendError::Deleted => 5,
        AppendError::DirBusy => 6,
        AppendError::Stopping => 7,
        AppendError::Rejected(AppendReject::OutOfOrderSequence, _) => 8,
        AppendError::Rejected(AppendReject::ProducerFenced, _) => 9,
        AppendError::Rejected(AppendReject::InvalidTxnState, _) => 10,
    }
}

impl RequestCounts {
    /// All zero.
    pub fn new() -> Self {
        Self {
            produces: Histogram::of_times(),
            fetches: Histogram::of_times(),
            fetched_bytes: Count::default(),
            refused: Default::default(),
        }
    }

    /// A batch of a produce was refused.
    pub fn refuse(&self, error: &AppendError) {
        if let Some(count) = self.refused.get(place(error)) {
            count.add(1);
        }
    }

    /// A batch of a produce was given up at the produce's own deadline.
    pub fn time_out(&self) {
        self.refused[TIMED_OUT].add(1);
    }

    /// Batches refused, by reason.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REASONS.into_iter().zip(self.refused.iter().map(Count::get))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_committer::Failure;
    use seawall_storage::Offset;

    #[test]
    fn every_refusal_is_counted_under_its_own_name() {
        let start = Offset::new(0);
        let counts = RequestCounts::new();
        for (error, name) in [
            (AppendError::Refused(Refusal::Stalled), "stalled"),
            (
                AppendError::Refused(Refusal::Failed(Failure::Panicked)),
                "failed",
            ),
            (AppendError::Refused(Refusal::NotOwner), "not_owner"),
            (AppendError::NoSpace, "no_space"),
            (AppendError::NotWritten, "not_written"),
            (AppendError::Deleted, "deleted"),
            (AppendError::DirBusy, "dir_busy"),
            (AppendError::Stopping, "stopping"),
            (
                AppendError::Rejected(AppendReject::OutOfOrderSequence, start),
                "out_of_order_sequence",
            ),
            (
                AppendError::Rejected(AppendReject::ProducerFenced, start),
                "producer_fenced",
            ),
            (
                AppendError::Rejected(AppendReject::InvalidTxnState, start),
                "invalid_txn_state",
            ),
        ] {
            let before: u64 = counts.refused().map(|row| row.1).sum();
            counts.refuse(&error);
            let row = counts.refused().find(|row| row.0 == name);
            assert_eq!(row, Some((name, 1)));
            assert_eq!(counts.refused().map(|row| row.1).sum::<u64>(), before + 1);
        }
        counts.time_out();
        assert!(counts.refused().all(|row| row.1 == 1));
    }
}
