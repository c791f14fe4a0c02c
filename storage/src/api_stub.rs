//! Signatures of the log; bodies follow.
#![allow(missing_docs, unused_variables, clippy::needless_pass_by_value, clippy::panic)]
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::Batch;
use crate::disk::{Disk, DiskFile};
use crate::types::*;

fn stub<T>() -> T {
    panic!("stub")
}

/// Settable while running by [`Log::set_config`].
#[derive(Debug, Clone, Copy)]
pub struct LogConfig {
    pub segment_bytes: u64,
    pub segment_ms: u64,
    pub segment_jitter_ms: u64,
    pub index_interval_bytes: u64,
    pub producer_expiry_ms: u64,
}

/// How the previous broker on this log dir stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    Clean,
    Unclean,
}

/// What all logs of a process (or log dir) share: a bounded cache of read handles, a pool of read buffers, counters.
#[derive(Debug)]
pub struct Resources {}
impl Resources {
    pub fn new(handles_max: usize) -> Arc<Self> {
        stub()
    }
}

pub struct OpenOptions<'a> {
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    pub config: LogConfig,
    pub stop: Stop,
    /// The dir's owner file says `recovered` for this very boot.
    pub recovered_this_boot: bool,
    pub now: Timestamp,
    pub resources: Arc<Resources>,
    /// Called with the number of bytes scanned since the last call.
    pub progress: &'a dyn Fn(u64),
}

#[derive(Debug)]
pub enum OpenError {
    Io(io::Error),
    ManifestDamaged,
    Corrupt { segment: String, position: Position, offset: Offset },
    DurabilityViolation { checkpoint: Offset, log_end: Offset },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogState {
    /// Appends are taken (after a roll, if `needs_roll`).
    Ready,
    /// A write found no space: run `cut_plan`, then `cut_done`.
    NeedsCut,
    /// A write or sync failed: appends are refused.
    Failed,
}

pub struct Offered {
    pub batch: Batch,
    pub append_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendReject {
    OutOfOrderSequence,
    ProducerFenced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchVerdict {
    Appended { base: Offset, last: Offset },
    Duplicate { base: Offset, last: Offset, append_time: Option<Timestamp> },
    Rejected(AppendReject),
    NotWritten,
    Deferred,
}

#[derive(Debug)]
pub enum WriteStop {
    NoSpace(io::Error),
    Failed(io::Error),
}

#[derive(Debug)]
pub struct GroupOutcome {
    pub verdicts: Vec<BatchVerdict>,
    pub stopped: Option<WriteStop>,
    pub bytes_written: u64,
    pub records_written: u64,
}

#[derive(Debug, Clone)]
pub struct FlushPoint {
    pub file: Arc<dyn DiskFile>,
    pub end: Offset,
    pub position: Position,
}

#[derive(Debug, Clone)]
pub struct RollPlan {}
impl RollPlan {
    pub fn run(&self) -> Result<NewSegment, RollError> {
        stub()
    }
}
#[derive(Debug)]
pub struct NewSegment {}
/// `NoSpace`: nothing is left behind that a later roll would mind; try again at the next append. Failed: latch.
#[derive(Debug)]
pub enum RollError {
    NoSpace(io::Error),
    Failed(io::Error),
}
/// The log has moved on since the plan was made; nothing was changed.
#[derive(Debug)]
pub struct StaleRoll;

#[derive(Debug)]
pub struct CheckpointPlan {}
impl CheckpointPlan {
    pub fn run(&self) -> Result<CheckpointDone, io::Error> {
        stub()
    }
}
#[derive(Debug)]
pub struct CheckpointDone {}
#[derive(Debug)]
pub struct ClosePlan {}
impl ClosePlan {
    /// Fsyncs the active file if needed, then writes manifest, snapshot, checkpoint, indexes: one directory sync for all.
    pub fn run(&self) -> Result<(), io::Error> {
        stub()
    }
}
#[derive(Debug, Clone)]
pub struct CutPlan {}
impl CutPlan {
    pub fn run(&self) -> Result<(), io::Error> {
        stub()
    }
}

pub struct Log {
    dir: PathBuf,
}

impl Log {
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: &OpenOptions<'_>) -> Result<Self, OpenError> {
        stub()
    }
    pub fn set_config(&mut self, config: LogConfig) {
        stub()
    }
    pub fn state(&self) -> LogState {
        stub()
    }
    pub fn append_group(&mut self, group: &[Offered], now: Timestamp) -> GroupOutcome {
        stub()
    }
    pub fn read_view(&self) -> Arc<ReadView> {
        stub()
    }
    /// `&mut`: when a checkpoint is due it also keeps a copy of the producer facts of this very end.
    pub fn flush_point(&mut self) -> Option<FlushPoint> {
        stub()
    }
    pub fn mark_synced(&mut self, point: &FlushPoint) {
        stub()
    }
    /// A sync of this point failed: the log is Failed from now on (D4).
    pub fn mark_sync_failed(&mut self, point: &FlushPoint) {
        stub()
    }
    /// `&mut` for the same reason as `flush_point`. No append may run between this and `install`.
    pub fn roll_plan(&mut self) -> RollPlan {
        stub()
    }
    pub fn install(&mut self, segment: NewSegment) -> Result<(), StaleRoll> {
        stub()
    }
    pub fn checkpoint_due(&self) -> bool {
        stub()
    }
    pub fn checkpoint_plan(&mut self) -> Option<CheckpointPlan> {
        stub()
    }
    pub fn checkpoint_done(&mut self, done: CheckpointDone) {
        stub()
    }
    pub fn close_plan(&self) -> Option<ClosePlan> {
        stub()
    }
    pub fn cut_plan(&self) -> Option<CutPlan> {
        stub()
    }
    pub fn cut_done(&mut self) {
        stub()
    }
    pub fn start_offset(&self) -> Offset {
        stub()
    }
    pub fn end_offset(&self) -> Offset {
        stub()
    }
    /// End of what is known to be durable.
    pub fn durable_offset(&self) -> Offset {
        stub()
    }
    pub fn leader_epoch(&self) -> LeaderEpoch {
        stub()
    }
    /// Bytes written to the active file since the last sync.
    pub fn unsynced_bytes(&self) -> u64 {
        stub()
    }
    /// Drops producers that have been silent for `producer_expiry_ms`; returns how many.
    pub fn expire_producers(&mut self, now: Timestamp) -> usize {
        stub()
    }
}

/// What to read.
#[derive(Debug, Clone, Copy)]
pub struct ReadSpec {
    pub from: Offset,
    /// Only batches that end at or below this offset (the high watermark or the last stable offset).
    pub upto: Offset,
    pub max_bytes: usize,
    /// The first batch comes whole even if it is larger than `max_bytes` (KIP-74).
    pub at_least_one: bool,
    pub check_crc: bool,
}

#[derive(Debug, Clone)]
pub struct ReadBatches {
    /// Whole batches; empty when nothing lies between `from` and `upto`.
    pub bytes: Bytes,
    /// Offset of the first batch in `bytes`, or `from`.
    pub base: Offset,
    /// Offset after the last batch in `bytes`, or `from`.
    pub next: Offset,
}

#[derive(Debug)]
pub enum ReadError {
    OutOfRange { start: Offset, end: Offset },
    Corrupt { segment: String, position: Position, offset: Offset },
    Io(io::Error),
}

/// A record found by its timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOffset {
    pub offset: Offset,
    pub timestamp: Timestamp,
    pub leader_epoch: LeaderEpoch,
}

pub struct ReadView {}
impl ReadView {
    pub fn start_offset(&self) -> Offset {
        stub()
    }
    pub fn end_offset(&self) -> Offset {
        stub()
    }
    pub fn leader_epoch(&self) -> LeaderEpoch {
        stub()
    }
    pub fn read(&self, spec: &ReadSpec) -> Result<ReadBatches, ReadError> {
        stub()
    }
    /// I/O only: the batch that holds the first record at or after `ts`. Decode it with `records::find_timestamp`.
    pub fn batch_for_timestamp(&self, ts: Timestamp, from: Offset, upto: Offset) -> Result<Option<Batch>, ReadError> {
        stub()
    }
    pub fn offset_for_timestamp(&self, ts: Timestamp, upto: Offset) -> Result<Option<TimedOffset>, ReadError> {
        stub()
    }
    pub fn max_timestamp(&self, upto: Offset) -> Result<Option<TimedOffset>, ReadError> {
        stub()
    }
    /// `(NONE, None)` for an epoch newer than any known.
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        stub()
    }
    pub fn epoch_of(&self, offset: Offset) -> LeaderEpoch {
        stub()
    }
    pub fn size_bytes(&self) -> u64 {
        stub()
    }
}
