//! One batch on its way through a partition, and who wants to know its fate.
//!
//! Owns:     the outcome types of an append as the partition sees them.
//! Does not: know requests, versions or Kafka's error codes.

use std::sync::Arc;

use seawall_committer::{AckPolicy, Refusal};
use seawall_storage::{AppendReject, Batch, Offset, Timestamp, TxnOrigin};

/// Where a batch ended up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stored {
    /// Offset of its first record; of the original, for a duplicate.
    pub base_offset: Offset,
    /// The broker's time, if the topic stamps records with it.
    pub append_time: Option<Timestamp>,
    /// Log start offset when it was appended.
    pub log_start: Offset,
}

/// Why a batch was not acknowledged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AppendError {
    /// The log refused the batch by its content. Nothing was written.
    Rejected(AppendReject, Offset),
    /// The disk has no space. Nothing of the batch stays.
    NoSpace,
    /// The log cannot serve now. The batch may be in the log.
    Refused(Refusal),
    /// The write ended before this batch. Nothing of it stays.
    NotWritten,
    /// The topic was deleted. Nothing was written.
    Deleted,
    /// Too many bytes wait for this log dir. Nothing was written.
    DirBusy,
    /// The broker stops. Nothing was written.
    Stopping,
}

/// Whoever waits for the batches of one request.
pub trait PartSink: Send + Sync {
    /// Called once, before the batch is written. `false`: it was given up and
    /// must not be appended.
    fn claim(&self, index: usize) -> bool;
    /// The fate of the batch. The first call counts, later ones are ignored.
    fn settle(&self, index: usize, outcome: Result<Stored, AppendError>);
}

/// One batch of a request, by the place of its answer.
#[derive(Clone)]
pub struct Part {
    sink: Arc<dyn PartSink>,
    index: usize,
}

impl Part {
    /// The part `index` of `sink`.
    pub fn new(sink: Arc<dyn PartSink>, index: usize) -> Self {
        Self { sink, index }
    }

    /// See [`PartSink::claim`].
    pub fn claim(&self) -> bool {
        self.sink.claim(self.index)
    }

    /// See [`PartSink::settle`].
    pub fn settle(&self, outcome: Result<Stored, AppendError>) {
        self.sink.settle(self.index, outcome);
    }
}

/// A batch that waits in a lane.
pub struct LaneItem {
    /// The batch, checked.
    pub batch: Batch,
    /// What its producer asked for.
    pub policy: AckPolicy,
    /// Whether the broker stamps it with the time of its append.
    pub stamp: bool,
    /// How it stands to transactions.
    pub txn: TxnOrigin,
    /// Who wants to know.
    pub part: Part,
}

/// Who waits in the committer: a part, and what it will be told on success.
pub struct Waiter {
    /// Who wants to know.
    pub part: Part,
    /// What to tell on success.
    pub stored: Stored,
}
