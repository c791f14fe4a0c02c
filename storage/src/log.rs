//! The single writer of one partition.
//!
//! Owns:     where the log ends, its active segment, its producers, what of it is durable.
//! Does not: lock, sync, create files or run threads: whoever owns the log holds a lock around it, and plans (`plans.rs`)
//!           do what takes long without it.
//! Called by one thread at a time; `read_view` makes the picture that other threads use.
//!
//! # Invariants
//! W1. Every segment but the last is durable up to its successor's base (a roll syncs the old file first).
//! W2. Nothing is appended behind bytes that are not known to be whole batches: an append begins a new epoch's file after
//!     a start, and the rest of a write that found no space is cut before the next one (D5).
//! W3. Producer and transaction facts in memory are those of exactly the batches below `end`.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::durability::Durable;
use crate::heal::Kept;
use crate::index_file::MaxTime;
use crate::live_index::{IndexEntry, LiveIndex};
use crate::names::SegmentName;
use crate::plans::{CutPlan, NewSegment, RollPlan, StaleRoll};
use crate::producers::Producers;
use crate::recovery::{OpenError, OpenOptions, Recovered, RecoverySummary, recover};
use crate::resources::Resources;
use crate::retention::ActiveAge;
use crate::segment::{LivePart, OpenSegment, Segment};
use crate::transactions::Transactions;
use crate::txn_index::SegmentTxns;
use crate::types::{LeaderEpoch, Offset, PartitionIndex, Position, Timestamp, TopicId};
use crate::view::{EpochStart, ReadView};

/// Positions in an index are 32 bits wide and relative offsets must fit as well.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 0x7fff_ffff;
pub(crate) const RELATIVE_OFFSET_MAX: i64 = 0x7fff_ffff;

/// The settings of one log; all may change while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`: roll before a segment would exceed this.
    pub segment_bytes: u64,
    /// `segment.ms`: roll when the first append of the active segment is this old by the broker's clock.
    pub segment_ms: u64,
    /// `segment.jitter.ms`: up to this much less, so that partitions do not roll all at once.
    pub segment_jitter_ms: u64,
    /// `index.interval.bytes`: about one index entry per so many bytes.
    pub index_interval_bytes: u64,
    /// `producer.id.expiration.ms`.
    pub producer_expiry_ms: u64,
}

impl Default for LogConfig {
    /// Kafka's defaults.
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3600 * 1000,
            segment_jitter_ms: 0,
            index_interval_bytes: 4096,
            producer_expiry_ms: 24 * 3600 * 1000,
        }
    }
}

/// Whether appends are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogState {
    /// Yes, perhaps after a roll.
    Ready,
    /// Not before the rest of a write that found no space is cut: run `cut_plan`, then call `cut_done`.
    NeedsCut,
    /// No: a write or sync failed. The written prefix is kept and readable.
    Failed,
}

/// The segment that is written.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) segment: Arc<Segment>,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) index: Arc<LiveIndex>,
    /// Broker's clock at its first append.
    pub(crate) first_append: Option<Timestamp>,
    /// And at its last one.
    pub(crate) last_append: Timestamp,
    pub(crate) indexed_at: Position,
    pub(crate) max: Option<MaxTime>,
    pub(crate) synced: Position,
}

/// The last batch below the end of the last segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LastBatch {
    pub(crate) base: Offset,
    pub(crate) position: Position,
    pub(crate) crc: u32,
}

/// One partition's log.
#[derive(Debug)]
pub struct Log {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: Arc<Path>,
    pub(crate) topic_id: TopicId,
    pub(crate) partition: PartitionIndex,
    pub(crate) config: LogConfig,
    pub(crate) resources: Arc<Resources>,
    pub(crate) epoch: LeaderEpoch,
    pub(crate) start: Offset,
    pub(crate) end: Offset,
    pub(crate) segments: Arc<[Arc<Segment>]>,
    pub(crate) epochs: Arc<[EpochStart]>,
    /// End of the last segment, active or not.
    pub(crate) end_position: Position,
    pub(crate) last_batch: LastBatch,
    pub(crate) active: Option<Active>,
    pub(crate) producers: Producers,
    pub(crate) txns: Transactions,
    pub(crate) state: LogState,
    pub(crate) durable: Durable,
    pub(crate) now: Timestamp,
    /// Batches that a flush has to cover, oldest first.
    pub(crate) kept: VecDeque<Kept>,
    /// Segments whose index files do not cover them yet.
    pub(crate) index_owed: Vec<Arc<Segment>>,
    /// Files that a newer epoch's file hides wholly; they go with what lies below the start.
    pub(crate) hidden: Vec<Arc<Segment>>,
    /// Files below the start that a crash left.
    pub(crate) garbage: Vec<Arc<Segment>>,
    /// Temporary files that a crash left.
    leftovers: Vec<String>,
    /// The directory's own name may not be durable yet.
    new_dir: bool,
    pub(crate) changed: bool,
    summary: RecoverySummary,
}

impl Drop for Log {
    /// The files may be unlinked next, and one that is open would live on as `.nfs*` on NFS (DESIGN 6.5).
    fn drop(&mut self) {
        for segment in self.segments.iter() {
            segment.let_go(&self.resources);
        }
    }
}

impl Log {
    /// Opens a log and recovers it (DESIGN 7). Writes nothing; a directory that does not exist is made by the first roll.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: &OpenOptions<'_>,
    ) -> Result<Self, OpenError> {
        let dir: Arc<Path> = Arc::from(dir);
        let found = recover(&disk, &dir, options)?;
        Ok(Self::from_recovered(disk, dir, options, found))
    }

    fn from_recovered(
        disk: Arc<dyn Disk>,
        dir: Arc<Path>,
        options: &OpenOptions<'_>,
        found: Recovered,
    ) -> Self {
        Self {
            disk,
            dir,
            topic_id: options.topic_id,
            partition: options.partition,
            config: options.config,
            resources: Arc::clone(&options.resources),
            epoch: found.epoch,
            start: found.start,
            end: found.end,
            segments: found.segments.into(),
            epochs: found.epochs.into(),
            end_position: found.end_position,
            last_batch: found.last_batch,
            active: None,
            producers: found.producers,
            txns: found.txns,
            state: if found.sync_failed {
                LogState::Failed
            } else {
                LogState::Ready
            },
            durable: Durable::up_to(found.end, found.snapshot_at),
            now: options.now,
            kept: VecDeque::new(),
            index_owed: found.index_owed,
            hidden: found.hidden,
            garbage: found.garbage,
            leftovers: found.leftovers,
            new_dir: found.new_dir,
            changed: found.summary.scanned_bytes > 0,
            summary: found.summary,
        }
    }

    /// What opening it found.
    pub fn recovery(&self) -> &RecoverySummary {
        &self.summary
    }

    /// Takes new settings; they hold from the next append on.
    pub fn set_config(&mut self, config: LogConfig) {
        self.config = config;
    }

    /// Whether appends are taken.
    pub fn state(&self) -> LogState {
        self.state
    }

    /// The first offset that may be read.
    pub fn start_offset(&self) -> Offset {
        self.start
    }

    /// The offset of the next record.
    pub fn end_offset(&self) -> Offset {
        self.end
    }

    /// The end of what is known to be durable.
    pub fn durable_offset(&self) -> Offset {
        self.durable.end
    }

    /// The epoch in which this log appends: one more than the highest that was found.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// The idempotent producers.
    pub fn producers(&self) -> &Producers {
        &self.producers
    }

    /// Base offsets of all batches that a producer may still be asked about, and of the last marker of each: compaction
    /// leaves their headers.
    pub fn remembered_batches(&self) -> Vec<Offset> {
        let entries = self.producers.iter();
        let batches = entries.flat_map(|(_, entry)| {
            let data = entry.batches().map(|past| past.base);
            data.chain(entry.last_marker)
        });
        batches.collect()
    }

    /// The offset of the newest durable snapshot. Asks for one at the durable end, if that lies behind `wanted`: then a
    /// checkpoint is due.
    pub fn snapshot_offset(&mut self, wanted: Offset) -> Offset {
        if self.durable.snapshot_at < wanted {
            self.durable.wanted = true;
        }
        self.durable.snapshot_at
    }

    /// Bytes written to the active file since its last sync.
    pub fn unsynced_bytes(&self) -> u64 {
        self.active
            .as_ref()
            .map_or(0, |a| self.end_position.since(a.synced))
    }

    /// Forgets producers that have been silent for `producer_expiry_ms`; returns how many.
    pub fn expire_producers(&mut self, now: Timestamp) -> usize {
        self.producers.expire(now, self.config.producer_expiry_ms)
    }

    /// The present picture for readers. Publish it after every append and install.
    pub fn read_view(&self) -> Arc<ReadView> {
        Arc::new(ReadView {
            segments: Arc::clone(&self.segments),
            epochs: Arc::clone(&self.epochs),
            resources: Arc::clone(&self.resources),
            start: self.start,
            end: self.end,
            end_position: self.end_position,
            growing_max: self.active.as_ref().and_then(|a| a.max),
            txns: self.txns.view(),
            round: self.producers.round(),
            growing: self.active.is_some(),
            active: self.active.as_ref().and_then(|a| self.age_of(a)),
        })
    }

    fn age_of(&self, active: &Active) -> Option<ActiveAge> {
        let limit = self
            .config
            .segment_ms
            .saturating_sub(self.jitter_ms(active.segment.name))
            .max(1);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        active.first_append.map(|first| ActiveAge {
            roll_at: Timestamp(first.0.saturating_add(limit)),
            last_append: active.last_append,
        })
    }

    /// Readers may see everything below `visible`: markers there hold nobody back any more. One that is not durable is
    /// remembered all the same, for it may be lost. Call it before an append.
    pub fn settle_transactions(&mut self, visible: Offset) {
        self.txns.settle(visible.min(self.durable.end));
    }

    /// What is known of the transactions of the last segment when it ends where the log ends now.
    pub(crate) fn last_segment_txns(&self) -> SegmentTxns {
        SegmentTxns {
            aborted: self.txns.aborted.clone(),
            open_at_end: self.producers.open().collect(),
        }
    }

    /// Whether the next append needs a new segment whatever its size.
    pub fn needs_roll(&self, now: Timestamp) -> bool {
        let Some(active) = &self.active else {
            return true;
        };
        self.age_of(active).is_some_and(|age| now >= age.roll_at)
    }

    fn jitter_ms(&self, name: SegmentName) -> u64 {
        if self.config.segment_jitter_ms == 0 {
            return 0;
        }
        let seed = crc32c::crc32c(
            &[
                self.topic_id.0.as_bytes().as_slice(),
                &name.base.0.to_be_bytes(),
            ]
            .concat(),
        );
        u64::from(seed ^ self.partition.0.unsigned_abs())
            .checked_rem(self.config.segment_jitter_ms)
            .unwrap_or(0)
    }

    /// Whether a batch of `bytes` that would end at `last` fits the active segment when that is `size` long.
    pub(crate) fn fits(&self, size: Position, bytes: u64, last: Offset) -> bool {
        let Some(active) = &self.active else {
            return false;
        };
        let limit = self.config.segment_bytes.min(SEGMENT_BYTES_MAX);
        let offsets_fit = last.since(active.segment.name.base) <= RELATIVE_OFFSET_MAX;
        size == Position::ZERO || (size.plus(bytes).0 <= limit && offsets_fit)
    }

    /// The sync of a flush point failed: what the page cache says of that file is not believed any more (D4).
    pub fn mark_sync_failed(&mut self) {
        self.state = LogState::Failed;
    }

    /// How to begin a new segment at the present end. No append may run between this and `install`.
    pub fn roll_plan(&mut self) -> RollPlan {
        let old = self
            .active
            .as_ref()
            .filter(|a| a.synced < self.end_position);
        RollPlan {
            disk: Arc::clone(&self.disk),
            dir: Arc::clone(&self.dir),
            old: old.map(|a| Arc::clone(&a.file)),
            name: SegmentName {
                epoch: self.epoch,
                base: self.end,
            },
            new_dir: self.new_dir,
            leftovers: std::mem::take(&mut self.leftovers),
        }
    }

    /// Makes the new segment the active one. The old file is durable, its index is owed to the next checkpoint.
    pub fn install(&mut self, new: NewSegment) -> Result<(), StaleRoll> {
        let active_name = self.active.as_ref().map(|a| a.segment.name);
        if new.name.base != self.end
            || new.name.epoch != self.epoch
            || active_name == Some(new.name)
        {
            return Err(StaleRoll);
        }
        self.durable.grow(self.unsynced_bytes(), self.end);
        let mut segments = self.segments.to_vec();
        let sealed_one = self.active.is_some();
        if let Some(old) = self.active.take() {
            let txns = self.last_segment_txns();
            let sealed = seal(&old, self.last_batch, self.end_position, txns);
            segments.pop();
            segments.push(Arc::clone(&sealed));
            self.index_owed.push(sealed);
        }
        self.txns.begin_segment(self.end);
        let active = self.activate(new);
        segments.push(Arc::clone(&active.segment));
        self.segments = segments.into();
        self.active = Some(active);
        (self.end_position, self.last_batch) = (Position::ZERO, LastBatch::default());
        if sealed_one {
            // Of the new segment, which its name alone authenticates: compaction may rewrite the old one.
            self.capture();
        }
        self.durable.start_clock(self.now);
        self.kept.clear();
        (self.new_dir, self.changed) = (false, true);
        Ok(())
    }

    pub(crate) fn activate(&self, new: NewSegment) -> Active {
        let index = Arc::new(LiveIndex::default());
        let live = LivePart {
            index: Arc::clone(&index),
            from: Position::ZERO,
            from_offset: new.name.base,
            last: None,
        };
        let writer = Arc::new(OpenSegment::new(Arc::clone(&new.file), 0));
        let segment = Segment::new(new.name, &self.disk, &self.dir).with(Some(writer), Some(live));
        Active {
            segment: Arc::new(segment),
            file: new.file,
            index,
            first_append: None,
            last_append: self.now,
            indexed_at: Position::ZERO,
            max: None,
            synced: Position::ZERO,
        }
    }

    /// How to cut the rest of a write that found no space; `None` unless the state is `NeedsCut`.
    pub fn cut_plan(&self) -> Option<CutPlan> {
        let active = self
            .active
            .as_ref()
            .filter(|_| self.state == LogState::NeedsCut)?;
        Some(CutPlan {
            file: Arc::clone(&active.file),
            len: self.end_position,
        })
    }

    /// The cut succeeded: appends are taken again.
    pub fn cut_done(&mut self) {
        if self.state == LogState::NeedsCut {
            self.state = LogState::Ready;
        }
    }

    /// The cut failed, or something else went wrong with this log's files: it takes no appends any more.
    pub fn mark_failed(&mut self) {
        self.state = LogState::Failed;
    }
}

/// The active segment as one that does not grow any more.
pub(crate) fn seal(
    active: &Active,
    last: LastBatch,
    end: Position,
    txns: SegmentTxns,
) -> Arc<Segment> {
    let place = (
        active.segment.relative(last.base),
        u32::try_from(last.position.0).unwrap_or(u32::MAX),
    );
    active
        .segment
        .facts
        .close(end, active.last_append, active.max);
    let last = active.max.map(|max| IndexEntry::new(place, max));
    let live = active
        .segment
        .live
        .clone()
        .map(|live| LivePart { last, ..live });
    let sealed = active.segment.with(None, live);
    Arc::new(sealed.with_txns(Some(Arc::new(txns))))
}
