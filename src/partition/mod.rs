//! One partition: a log behind a lock, a lane in front, a committer behind.
//!
//! Owns:     the way of a batch from its lane to the log and to the committer,
//!           and what readers of the partition see.
//! Does not: know requests, connections or Kafka's error codes.
//!
//! Net threads offer batches, `append-*` drains, `commit-*` flushes and rolls,
//! `read-*` reads; see the thread and lock tables of the README.
//!
//! # Invariants
//! A1. Only one append worker drains a partition at a time (L1), so groups
//!     reach the committer in log order.
//! A2. The log's lock is never held while anybody is told anything.
//! A3. No append runs between a chore's request and its end.
//! A4. Nothing is made or renamed in the partition's directory after `retire`
//!     has returned: the name may belong to another incarnation by then (D11).

mod append;
mod compact;
mod lane;
mod moving;
mod part;
mod readers;
mod trim;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use seawall_committer::{
    Call, CallGuard, Chore, ChoreError, Committer, Failure, Gate, Health, Log as CommitLog,
    Refusal, Watched,
};
use seawall_planted::planted;
use seawall_storage::{
    CHECKPOINT_AGE_MS, FlushPoint, LeaderEpoch, Log, LogConfig, LogState, LogSync, Offset,
    OpenError, OpenOptions, PartitionIndex, ProducerEntry, ProducerId, ReadView, RollError, Stop,
    Swap, Timestamp, TopicId,
};

pub use lane::Push;
pub use moving::Held;
pub use part::{AppendError, LaneItem, Part, PartSink, Stored, Waiter};
pub use readers::{ReadWaiter, ReaderKey};
pub use trim::{Keeping, TrimError};

use crate::logdir::LogDir;
use lane::Lane;
use readers::Readers;
use trim::Trash;

/// Offsets in a log are never negative; the committer counts without a sign.
fn unsigned(offset: Offset) -> u64 {
    u64::try_from(offset.get()).unwrap_or(0)
}

fn signed(offset: u64) -> Offset {
    Offset::new(i64::try_from(offset).unwrap_or(i64::MAX))
}

/// What a partition takes from its topic's configuration.
#[derive(Clone, Copy, Debug)]
pub struct PartitionConfig {
    /// Sizes and times of the log.
    pub log: LogConfig,
    /// `flush.messages`: the durability dial, in records.
    pub flush_messages: u64,
    /// `flush.ms`: a dirty log is flushed in the background after this time.
    pub flush_ms: u64,
    /// What stays, and for how long.
    pub keeping: Keeping,
}

/// Which partition to open, and what is known about the last stop.
pub struct OpenPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The topic's incarnation.
    pub topic_id: TopicId,
    /// Its number in the topic.
    pub index: PartitionIndex,
    /// How the last broker on this log dir stopped.
    pub stop: Stop,
    /// Whether a broker was through recovery on this log dir since the machine
    /// started.
    pub recovered_this_boot: bool,
}

/// See the module.
pub struct Partition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Its number in the topic.
    pub index: PartitionIndex,
    dir: Arc<LogDir>,
    log: Mutex<Log>,
    view: ArcSwap<ReadView>,
    gate: Gate<FlushPoint, Waiter>,
    lane: Lane,
    readers: Readers,
    flush_messages: AtomicU64,
    flush_ms: AtomicU64,
    deleted: AtomicBool,
    counted_failed: AtomicBool,
    counted_unwell: AtomicBool,
    /// A write hangs, and another worker stands in for the one in it.
    append_stand_in: AtomicBool,
    /// A4. Read-locked by whoever makes files; write-locked once, to retire.
    files: RwLock<()>,
    /// When the oldest record that is not flushed was written, in ms since the
    /// epoch; 0 when there is none.
    dirty_since_ms: AtomicI64,
    /// When a Failed partition is tried again, and the pause after that.
    heal_at_ms: AtomicI64,
    heal_pause_ms: AtomicI64,
    /// When the log first grew durably since its last checkpoint.
    uncheckpointed_since_ms: AtomicI64,
    keeping: ArcSwap<Keeping>,
    topic_id: TopicId,
    path: PathBuf,
    /// Everything before it is compacted.
    clean: AtomicI64,
    /// Rewritten segments on their way into the place of old ones.
    swapping: Mutex<Option<Swap>>,
    /// The log start is moved by one at a time.
    trimming: Mutex<()>,
    trash: Trash,
    /// Segments could go after the next roll or checkpoint.
    reclaim_wanted: AtomicBool,
    /// It is being copied to another log dir.
    moving: AtomicBool,
    /// It serves from there.
    moved_away: AtomicBool,
}

impl Partition {
    /// Opens the log, running recovery. Writes nothing.
    ///
    /// # Errors
    /// The log cannot be served; nothing was changed on disk.
    pub fn open(
        dir: &Arc<LogDir>,
        what: OpenPartition,
        config: &PartitionConfig,
        progress: &dyn Fn(u64),
    ) -> Result<Arc<Self>, OpenError> {
        let path = dir.path.join(&*what.topic).join(what.index.to_string());
        let options = OpenOptions {
            topic_id: what.topic_id,
            partition: what.index,
            config: config.log,
            stop: what.stop,
            recovered_this_boot: what.recovered_this_boot,
            now: now(),
            resources: Arc::clone(&dir.resources),
            progress,
        };
        let mut log = Log::open(Arc::clone(&dir.disk), &path, &options)?;
        if log.recovery().tail_bytes > 0 {
            dir.found_tail();
        }
        let trash = Trash::default();
        trash.add(log.take_garbage(), Duration::ZERO);
        let starts_failed = log.state() == LogState::Failed;
        let partition = Arc::new(Self {
            topic: what.topic,
            index: what.index,
            dir: Arc::clone(dir),
            view: ArcSwap::new(log.read_view()),
            gate: Gate::new(unsigned(log.end_offset())),
            log: Mutex::new(log),
            lane: Lane::new(),
            readers: Readers::default(),
            flush_messages: AtomicU64::new(config.flush_messages),
            flush_ms: AtomicU64::new(config.flush_ms),
            deleted: AtomicBool::new(false),
            counted_failed: AtomicBool::new(false),
            counted_unwell: AtomicBool::new(false),
            append_stand_in: AtomicBool::new(false),
            files: RwLock::new(()),
            dirty_since_ms: AtomicI64::new(0),
            heal_at_ms: AtomicI64::new(0),
            heal_pause_ms: AtomicI64::new(HEAL_PAUSE_MIN_MS),
            uncheckpointed_since_ms: AtomicI64::new(0),
            keeping: ArcSwap::from_pointee(config.keeping),
            topic_id: what.topic_id,
            path,
            clean: AtomicI64::new(compact::CLEAN_UNKNOWN),
            swapping: Mutex::new(None),
            trimming: Mutex::new(()),
            trash,
            reclaim_wanted: AtomicBool::new(false),
            moving: AtomicBool::new(false),
            moved_away: AtomicBool::new(false),
        });
        if starts_failed {
            // Recovery could not sync what it found (D9): what is known to be
            // durable is served, and nothing appended.
            Committer::fail(&*partition, Failure::Io(std::io::ErrorKind::Other));
        }
        Ok(partition)
    }

    /// Its topic's incarnation.
    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }

    /// Where its files are.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// The log dir it lives on.
    pub fn dir(&self) -> &Arc<LogDir> {
        &self.dir
    }

    /// One past the last offset a reader may see.
    pub fn high_watermark(&self) -> Offset {
        signed(self.gate.high_watermark())
    }

    /// min(high watermark, first offset of an open transaction).
    pub fn last_stable_offset(&self) -> Offset {
        self.stable_in(&self.view.load())
    }

    /// The same by a view that was taken before: what is read with it is all below
    /// that offset, and what was aborted below it is all known to it.
    pub fn stable_in(&self, view: &ReadView) -> Offset {
        view.last_stable_offset(self.high_watermark())
    }

    /// What is there to read; lock-free.
    pub fn view(&self) -> Arc<ReadView> {
        self.view.load_full()
    }

    /// The epoch under which this broker leads the partition.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.view.load().leader_epoch()
    }

    /// What the partition can do now.
    pub fn health(&self) -> Health {
        self.gate.health()
    }

    /// Whether the partition serves as it should: neither stalled nor failed.
    pub fn is_online(&self) -> bool {
        self.gate.is_online()
    }

    /// Whether its topic was deleted.
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    /// Fetches that wait here.
    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Takes over a changed topic configuration. `newest` is asked with the log
    /// locked, so that of two changes at once the later one stands.
    pub fn set_config(&self, newest: impl FnOnce() -> PartitionConfig) {
        let mut log = self.log.lock();
        let config = newest();
        self.flush_messages
            .store(config.flush_messages, Ordering::Relaxed);
        self.flush_ms.store(config.flush_ms, Ordering::Relaxed);
        self.keeping.store(Arc::new(config.keeping));
        log.set_config(config.log);
        self.view.store(log.read_view());
    }

    /// The topic is deleted: nothing more is appended, waiters are told.
    pub fn deleted(&self) {
        self.deleted.store(true, Ordering::Release);
        self.count_health();
        self.lane.close(&AppendError::Deleted, &self.dir.queued);
        self.readers.wake_all();
    }

    /// Has the log dir count this partition as what it is now. One that is deleted is no trouble any more.
    fn count_health(&self) {
        let deleted = self.is_deleted();
        let unwell = !deleted && !self.gate.is_online();
        if self.counted_unwell.swap(unwell, Ordering::AcqRel) != unwell {
            self.dir.count_unwell(unwell);
        }
        let failed = !deleted && matches!(self.gate.health(), Health::Failed(_));
        if self.counted_failed.swap(failed, Ordering::AcqRel) != failed {
            self.dir.count_failed(failed);
        }
        if !deleted && self.is_deleted() {
            self.count_health(); // Deleted since the look.
        }
    }

    /// After [`Partition::deleted`]: waits until nobody makes files any more.
    /// `false` if that takes longer than `patience` (a disk that hangs).
    pub fn retire(&self, patience: Duration) -> bool {
        self.files.try_write_for(patience).is_some()
    }

    /// A4. Held while files are made or renamed; `None` for a deleted topic.
    pub(crate) fn making_files(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let guard = self.files.read();
        (!self.is_deleted()).then_some(guard)
    }

    /// The broker stops: nothing more is appended.
    pub fn stopping(&self) {
        self.lane.close(&AppendError::Stopping, &self.dir.queued);
        self.readers.wake_all();
    }

    /// After all pools of the log dir have stopped: leaves checkpoint and
    /// snapshot at the end, so that the next start scans nothing.
    ///
    /// # Errors
    /// Something could not be written; the next start scans.
    pub fn close(&self) -> std::io::Result<()> {
        let plan = self.log.lock().close_plan();
        match plan {
            Some(plan) => plan.run(),
            None => Ok(()),
        }
    }

    /// What is due by the clock: background flush, checkpoint. Cheap when
    /// nothing is.
    pub fn sweep(self: &Arc<Self>, now_ms: i64) {
        self.sweep_failed(now_ms);
        self.sweep_trash();
        self.sweep_hold();
        let dirty = self.dirty_since_ms.load(Ordering::Relaxed);
        let flush_ms = i64::try_from(self.flush_ms.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        if dirty != 0 && now_ms.saturating_sub(dirty) >= flush_ms {
            self.dir.committer.flush_in_background(self);
        }
        let grown = self.uncheckpointed_since_ms.load(Ordering::Relaxed);
        if grown != 0 && now_ms.saturating_sub(grown) >= CHECKPOINT_AGE_MS {
            self.submit_checkpoint();
        }
    }

    /// Whether its topic is compacted.
    pub fn is_compacted(&self) -> bool {
        self.keeping.load().compaction.is_some()
    }

    /// Who has written here. Waits for an append under way.
    pub fn producers(&self) -> Vec<(ProducerId, ProducerEntry)> {
        let log = self.log.lock();
        let all = log.producers().iter();
        all.map(|(id, entry)| (id, *entry)).collect()
    }

    /// Forgets idle producers.
    pub fn expire_producers(&self) {
        self.log.lock().expire_producers(now());
    }

    /// A Failed partition is tried again, with growing pauses: first whether
    /// its log dir takes a write and a sync at all.
    fn sweep_failed(self: &Arc<Self>, now_ms: i64) {
        if self.is_online() || !matches!(self.health(), Health::Failed(_)) {
            // Almost always the case, and so nothing is written.
            if self.heal_pause_ms.load(Ordering::Relaxed) != HEAL_PAUSE_MIN_MS {
                self.heal_pause_ms
                    .store(HEAL_PAUSE_MIN_MS, Ordering::Relaxed);
            }
            return;
        }
        if now_ms < self.heal_at_ms.load(Ordering::Relaxed) {
            return;
        }
        let pause = self.heal_pause_ms.load(Ordering::Relaxed);
        self.heal_at_ms
            .store(now_ms.saturating_add(pause), Ordering::Relaxed);
        self.heal_pause_ms
            .store((pause * 2).min(HEAL_PAUSE_MAX_MS), Ordering::Relaxed);
        let partition = Arc::clone(self);
        self.dir.state.submit(move || match partition.dir.probe() {
            Ok(()) => partition.dir.committer.request_heal(&partition),
            Err(error) => log::warn!(
                "{}: the disk is not well yet: {error}",
                partition.dir.path.display()
            ),
        });
    }

    fn submit_checkpoint(self: &Arc<Self>) {
        self.uncheckpointed_since_ms.store(0, Ordering::Relaxed);
        let partition = Arc::clone(self);
        self.dir.state.submit(move || partition.checkpoint());
    }

    fn checkpoint(self: &Arc<Self>) {
        let Some(_making_files) = self.making_files() else {
            return;
        };
        let plan = self.log.lock().checkpoint_plan(now());
        let Some(plan) = plan else { return };
        let done = if self.frees_space() {
            self.on_full_disk(|| plan.run())
        } else {
            plan.run()
        };
        if let Err(error) = &done {
            let (topic, index) = (&self.topic, self.index);
            log::warn!("{topic}-{index}: no checkpoint was written: {error}");
        }
        let done = done.ok();
        let made = done.is_some();
        self.log.lock().checkpoint_done(done);
        if made {
            self.try_reclaim();
        }
    }

    fn refusal_by_health(&self) -> Option<AppendError> {
        match self.gate.health() {
            Health::Online => None,
            Health::Stalled => Some(AppendError::Refused(Refusal::Stalled)),
            Health::Failed(failure) => Some(AppendError::Refused(Refusal::Failed(failure))),
        }
    }

    fn watch(self: &Arc<Self>, call: Call) -> CallGuard {
        self.dir
            .watchdog
            .watch(Arc::clone(self) as Arc<dyn Watched>, call)
    }

    fn count_sync(&self, sync: LogSync) {
        self.dir.counts.fsyncs.took(sync.took);
        if sync.failed {
            self.dir.counts.fsyncs_failed.add(1);
        }
    }

    fn roll(&self) -> Result<(), ChoreError> {
        let Some(_making_files) = self.making_files() else {
            return Err(ChoreError::Failed(std::io::ErrorKind::NotFound.into()));
        };
        let plan = self.log.lock().roll_plan();
        let rolled = match plan.run_telling(&|sync| self.count_sync(sync)) {
            Err(RollError::NoSpace(_)) if self.frees_space() => {
                self.dir.reserve.give_up();
                plan.run_telling(&|sync| self.count_sync(sync))
            }
            other => other,
        };
        let segment = rolled.map_err(|error| match error {
            RollError::NoSpace(error) => ChoreError::NoSpace(error),
            RollError::OldNotSynced(error) => {
                self.log.lock().mark_sync_failed();
                ChoreError::Failed(error)
            }
            RollError::Failed(error) => {
                self.log.lock().mark_failed();
                ChoreError::Failed(error)
            }
        })?;
        let mut log = self.log.lock();
        // A3: nothing was appended since the plan, so it cannot be stale.
        log.install(segment)
            .map_err(|_| ChoreError::Failed(std::io::ErrorKind::Other.into()))?;
        self.view.store(log.read_view());
        Ok(())
    }

    /// No append runs meanwhile: a failed log takes none.
    fn heal(&self) -> Result<(), ChoreError> {
        let Some(_making_files) = self.making_files() else {
            return Err(ChoreError::Failed(std::io::ErrorKind::NotFound.into()));
        };
        let plan = self.log.lock().heal_plan();
        let plan =
            plan.ok_or_else(|| ChoreError::Failed(std::io::ErrorKind::Unsupported.into()))?;
        let healed = plan.run_telling(&|sync| self.count_sync(sync));
        let healed = healed.map_err(ChoreError::Failed)?;
        let mut log = self.log.lock();
        let loss = log.heal_done(healed);
        self.view.store(log.read_view());
        drop(log);
        let (topic, index) = (&self.topic, self.index);
        log::warn!("{topic}-{index}: healed, appends go on in a new epoch");
        if loss.records > 0 {
            let lost = loss.records;
            log::error!("{topic}-{index}: {lost} records of acks=1 could not be read back");
        }
        Ok(())
    }

    fn cut(&self) -> Result<(), ChoreError> {
        let plan = self.log.lock().cut_plan();
        if let Some(plan) = plan {
            plan.run().map_err(ChoreError::Failed)?;
            self.log.lock().cut_done();
        }
        Ok(())
    }
}

/// Pauses between tries to heal a partition.
const HEAL_PAUSE_MIN_MS: i64 = 1_000;
const HEAL_PAUSE_MAX_MS: i64 = 60_000;

/// The wall clock, for record timestamps only.
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let ms = since.map_or(0, |d| d.as_millis());
    Timestamp::new(i64::try_from(ms).unwrap_or(i64::MAX))
}

impl Watched for Partition {
    fn overdue(&self, call: Call) {
        log::error!(
            "{}-{}: stalled, a call ({call:?}) has been running for longer than log.flush.stall.timeout.ms",
            self.topic,
            self.index
        );
        if call == Call::Append {
            let stand_in = self.dir.appends.stand_in();
            self.append_stand_in.store(stand_in, Ordering::Release);
        }
        Committer::stall(self);
    }

    fn recovered(&self, call: Call) {
        if call == Call::Append && self.append_stand_in.swap(false, Ordering::AcqRel) {
            self.dir.appends.dismiss();
        }
        log::warn!(
            "{}-{}: the call ({call:?}) came back",
            self.topic,
            self.index
        );
        Committer::unstall(self);
    }
}

impl CommitLog for Partition {
    type Point = FlushPoint;
    type Waiter = Waiter;

    fn gate(&self) -> &Gate<FlushPoint, Waiter> {
        &self.gate
    }

    fn sync(&self, point: &FlushPoint) -> std::io::Result<()> {
        let began = Instant::now();
        let synced = point.file.sync_data();
        self.count_sync(LogSync {
            took: began.elapsed(),
            failed: synced.is_err(),
        });
        if synced.is_err() {
            self.log.lock().mark_sync_failed();
        }
        synced
    }

    fn chore(self: &Arc<Self>, chore: Chore) -> Result<u64, ChoreError> {
        match chore {
            Chore::Roll => self.roll()?,
            Chore::Cut => self.cut()?,
            Chore::Heal => self.heal()?,
        }
        Ok(unsigned(self.log.lock().end_offset()))
    }

    fn drain(self: &Arc<Self>) {
        self.drain_lane();
    }

    fn group_committed(&self, waiters: usize) {
        self.dir.counts.groups.observe(waiters as u64);
    }

    fn flush_ended(self: &Arc<Self>) {
        if self.lane.flush_done(self) {
            self.submit_drain();
        }
    }

    fn chore_ended(self: &Arc<Self>, chore: Chore, no_space: bool) {
        if no_space {
            self.lane
                .refuse_all(&AppendError::NoSpace, &self.dir.queued);
        } else if chore == Chore::Roll {
            self.try_reclaim();
        }
        if self.lane.chore_done(self) || self.lane.flush_done(self) {
            self.submit_drain();
        }
    }

    fn synced(self: &Arc<Self>, point: &FlushPoint) {
        let since = &self.uncheckpointed_since_ms;
        let _ = since.compare_exchange(0, now().get(), Ordering::Relaxed, Ordering::Relaxed);
        let mut log = self.log.lock();
        log.mark_synced(point);
        let due = log.checkpoint_due(now());
        // What was written during the flush is dirty still: `flush.ms` counts on.
        let dirty = log.end_offset() > point.end;
        let dirty_since = if dirty { now().get() } else { 0 };
        self.dirty_since_ms.store(dirty_since, Ordering::Relaxed);
        drop(log);
        if due {
            self.submit_checkpoint();
        }
    }

    fn is_owner(&self) -> bool {
        self.dir.claim.is_fresh()
    }

    fn release(&self, waiter: Waiter, outcome: Result<(), Refusal>) {
        waiter.part.settle(
            outcome
                .map(|()| waiter.stored)
                .map_err(AppendError::Refused),
        );
    }

    fn advanced(&self, _high_watermark: u64) {
        self.readers.wake_all();
    }

    fn health_changed(&self) {
        if planted("state-waits-for-log") {
            drop(self.log.lock());
        }
        if let Some(error) = self.refusal_by_health() {
            self.lane.refuse_all(&error, &self.dir.queued);
        }
        self.count_health();
        self.readers.wake_all();
    }
}
