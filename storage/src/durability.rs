//! What of a log is durable: flush points, checkpoints, the clean stop.
//!
//! Owns:     how far syncs have come, when a checkpoint is due and what goes into it.
//! Does not: sync or write; the plans do, without the log.
//! Called by the owner of the log, holding its lock.
//!
//! # Invariants
//! U1. A checkpoint and its snapshot speak of one end, which was durable before either was planned.
//! U2. After a failed sync nothing becomes durable any more (D4).

use std::sync::Arc;

use crate::disk::DiskFile;
use crate::log::{Log, LogState, seal};
use crate::manifest::{Checkpoint, Manifest};
use crate::names::SegmentName;
use crate::plans::{Captured, CheckpointDone, CheckpointPlan, ClosePlan, IndexJob};
use crate::segment::Segment;
use crate::snapshot::{self, SnapshotKey};
use crate::types::{Offset, Position, Timestamp};
use seawall_planted::planted;

/// A checkpoint is due after this many bytes have become durable since the last one (DESIGN 6.7).
pub const CHECKPOINT_GROWTH_BYTES: u64 = 64 * 1024 * 1024;
/// Or this long after any.
pub const CHECKPOINT_AGE_MS: i64 = 60_000;

/// A place in the log that a sync makes durable. `Clone + Send`: the committer syncs `file` without the log.
#[derive(Debug, Clone)]
pub struct FlushPoint {
    /// What to sync.
    pub file: Arc<dyn DiskFile>,
    /// Everything below this offset is durable once `file` is synced.
    pub end: Offset,
    /// The end of the active file at that offset.
    pub position: Position,
    /// The active segment.
    pub segment: SegmentName,
}

/// What is known to be durable, and the next checkpoint in the making.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    /// End of the durable prefix.
    pub(crate) end: Offset,
    /// Bytes that have become durable since the log was opened.
    bytes: u64,
    /// `bytes` and the clock at the last checkpoint.
    checkpoint_bytes: u64,
    checkpoint_at: Option<Timestamp>,
    /// Producer facts at an end that was sampled for a flush.
    captured: Option<Captured>,
    running: bool,
    /// A checkpoint is wanted whatever has grown: segments wait for it to be dropped.
    pub(crate) wanted: bool,
    /// The offset of the newest snapshot that is durable.
    pub(crate) snapshot_at: Offset,
}

impl Log {
    /// What to sync so that everything appended so far is durable; `None` when nothing is owed. When a checkpoint will be
    /// due, it also keeps a copy of the producer facts of this very end.
    pub fn flush_point(&mut self) -> Option<FlushPoint> {
        if self.state == LogState::Failed {
            return None;
        }
        let active = self
            .active
            .as_ref()
            .filter(|a| a.synced < self.end_position)?;
        let point = FlushPoint {
            file: Arc::clone(&active.file),
            end: self.end,
            position: self.end_position,
            segment: active.segment.name,
        };
        let growth = self.durable.bytes.saturating_add(self.unsynced_bytes());
        if self.durable.captured.is_none()
            && !self.durable.running
            && self.durable.is_due(growth, self.now)
        {
            self.capture();
        }
        Some(point)
    }

    /// Keeps the producer facts of the present end for a checkpoint there.
    pub(crate) fn capture(&mut self) {
        let Some(segment) = self.segments.last() else {
            return;
        };
        self.durable.captured = Some(Captured {
            checkpoint: self.checkpoint(segment.name),
            snapshot: self.encode_snapshot(),
            bytes: self.durable.bytes.saturating_add(self.unsynced_bytes()),
            at: self.now,
        });
    }

    fn checkpoint(&self, segment: SegmentName) -> Checkpoint {
        Checkpoint {
            topic_id: self.topic_id,
            partition: self.partition,
            segment,
            batch_position: self.last_batch.position,
            position: self.end_position,
            offset: if planted("checkpoint-one-further") {
                Offset(self.end.0.saturating_add(1))
            } else {
                self.end
            },
            batch_crc: self.last_batch.crc,
        }
    }

    fn encode_snapshot(&self) -> Vec<u8> {
        let key = SnapshotKey {
            topic_id: self.topic_id,
            partition: self.partition,
            offset: self.end,
        };
        let segment = self.segments.last().map_or(self.end, |s| s.name.base);
        snapshot::encode(&key, &self.producers, (segment, &self.txns.aborted))
    }

    /// The sync of a flush point succeeded.
    pub fn mark_synced(&mut self, point: &FlushPoint) {
        let Some(active) = self
            .active
            .as_mut()
            .filter(|a| a.segment.name == point.segment)
        else {
            return;
        };
        if self.state == LogState::Failed || point.position <= active.synced {
            return;
        }
        self.durable
            .grow(point.position.since(active.synced), point.end);
        active.synced = point.position;
        let durable = self.durable.end;
        self.txns.settle(durable);
        while let Some(first) = self.kept.front() {
            if first.header.next_offset() > durable {
                break;
            }
            self.kept.pop_front();
        }
    }

    /// Whether `checkpoint_plan` has something to do. Ask after a flush, after a roll and from a timer.
    pub fn checkpoint_due(&self, now: Timestamp) -> bool {
        if self.durable.running || self.state == LogState::Failed {
            return false;
        }
        match &self.durable.captured {
            Some(_) if planted("checkpoint-before-sync") => true,
            Some(captured) => captured.checkpoint.offset <= self.durable.end,
            None => self.durable.end == self.end && self.durable.is_due(self.durable.bytes, now),
        }
    }

    /// What to write for the durable prefix. Run it without the log, then call `checkpoint_done`.
    pub fn checkpoint_plan(&mut self, now: Timestamp) -> Option<CheckpointPlan> {
        if !self.checkpoint_due(now) {
            return None;
        }
        if self.durable.captured.is_none() {
            self.now = now;
            self.capture();
        }
        let captured = self.durable.captured.take()?;
        self.durable.running = true;
        Some(CheckpointPlan {
            disk: Arc::clone(&self.disk),
            dir: Arc::clone(&self.dir),
            indexes: self.index_jobs(),
            captured,
        })
    }

    fn index_jobs(&self) -> Vec<IndexJob> {
        let ends = self
            .segments
            .iter()
            .skip(1)
            .map(|s| s.name.base)
            .chain([self.end]);
        let owed = |s: &Segment| self.index_owed.iter().any(|o| o.name == s.name);
        let pairs = self.segments.iter().zip(ends).filter(|(s, _)| owed(s));
        pairs
            .map(|(s, end)| IndexJob {
                segment: Arc::clone(s),
                end,
                resources: Arc::clone(&self.resources),
            })
            .collect()
    }

    /// A checkpoint plan is over; `None` if it failed, then a later one does its work.
    pub fn checkpoint_done(&mut self, done: Option<CheckpointDone>) {
        self.durable.running = false;
        let Some(done) = done else { return };
        self.durable.checkpoint_bytes = done.bytes;
        self.durable.checkpoint_at = Some(done.at);
        self.durable.snapshot_at = self.durable.snapshot_at.max(done.offset);
        self.durable.wanted = false;
        // Another file may have taken the name meanwhile.
        let is_indexed = |s: &Segment| done.indexed.iter().any(|f| Arc::ptr_eq(f, &s.facts));
        self.index_owed.retain(|s| !is_indexed(s));
        let active = self.active.as_ref().map(|a| a.segment.name);
        let light = |s: &Arc<Segment>| {
            let indexed = is_indexed(s) && active != Some(s.name);
            if indexed {
                Arc::new(s.with(None, None).with_txns(None))
            } else {
                Arc::clone(s)
            }
        };
        self.segments = self.segments.iter().map(light).collect();
    }

    /// What a clean stop has to write; `None` when nothing changed since the log was opened, or when it is Failed.
    /// No append may run from here on.
    pub fn close_plan(&self) -> Option<ClosePlan> {
        let last = self
            .segments
            .last()
            .filter(|_| self.changed && self.state != LogState::Failed)?;
        let mut indexes = self.index_jobs();
        if let Some(active) = &self.active {
            indexes.push(IndexJob {
                segment: seal(
                    active,
                    self.last_batch,
                    self.end_position,
                    self.last_segment_txns(),
                ),
                end: self.end,
                resources: Arc::clone(&self.resources),
            });
        }
        let owed = self
            .active
            .as_ref()
            .filter(|a| a.synced < self.end_position);
        Some(ClosePlan {
            disk: Arc::clone(&self.disk),
            dir: Arc::clone(&self.dir),
            file: owed.map(|a| Arc::clone(&a.file)),
            cut: self.cut_plan(),
            manifest: Manifest {
                epoch: self.epoch,
                high_watermark: self.end,
                log_start: self.start,
            },
            snapshot: self.encode_snapshot(),
            checkpoint: self.checkpoint(last.name),
            indexes,
        })
    }
}

impl Durable {
    pub(crate) fn up_to(end: Offset, snapshot_at: Offset) -> Self {
        Self {
            end,
            snapshot_at,
            ..Self::default()
        }
    }

    pub(crate) fn grow(&mut self, bytes: u64, end: Offset) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.end = self.end.max(end);
    }

    /// Healing made everything up to `end` durable. What was captured for a checkpoint spoke of the old file.
    pub(crate) fn healed(&mut self, end: Offset) {
        (self.end, self.captured) = (end, None);
    }

    /// The first checkpoint is due a while after the first append, not at once.
    pub(crate) fn start_clock(&mut self, now: Timestamp) {
        self.checkpoint_at.get_or_insert(now);
    }

    fn is_due(&self, bytes: u64, now: Timestamp) -> bool {
        let growth = bytes.saturating_sub(self.checkpoint_bytes);
        let old = self
            .checkpoint_at
            .is_none_or(|at| now.since_ms(at).saturating_abs() >= CHECKPOINT_AGE_MS);
        self.wanted || growth >= CHECKPOINT_GROWTH_BYTES || (growth > 0 && old)
    }
}
