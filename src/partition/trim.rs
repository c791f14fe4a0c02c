//! What a partition loses at its beginning: by age, by size, by DeleteRecords.
//!
//! Owns:     the order between log, committer and disk when the log start moves;
//!           files that are no part of the log and still on the disk.
//! Does not: know segments (storage does) or requests.
//!
//! Runs on `maint-D` threads, DeleteRecords on `state-D-N`.
//!
//! # Invariants
//! T1. The start is durable before anybody is told or shown it.
//! T2. Files are removed only while the topic exists (A4): under another
//!     incarnation the names are not ours.
//! T3. A file is removed when no reader can have it open, or has not let go of
//!     it for [`READERS`]: on NFS an open file frees nothing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use seawall_committer::Chore;
use seawall_storage::disk::is_no_space;
use seawall_storage::{CompactionRules, Garbage, Log, Offset, Retention};

use super::{Partition, now};

/// How long to wait for readers of a file that is to be removed.
const READERS: Duration = Duration::from_secs(60);
/// Pause before a file is looked at again that could not be removed.
const PAUSE: Duration = Duration::from_secs(5);
/// How long to wait for the log: an append that hangs in its write holds it.
const LOG_PATIENCE: Duration = Duration::from_millis(200);

/// What a topic's configuration says about what stays.
#[derive(Clone, Copy, Debug)]
pub struct Keeping {
    /// What is deleted by age and size.
    pub retention: Retention,
    /// `file.delete.delay.ms`.
    pub delete_delay: Duration,
    /// How it is compacted; `None`: not at all.
    pub compaction: Option<CompactionRules>,
}

/// Why the start was not moved. It is where it was, but for `Disk`: a restart
/// may find it moved.
#[derive(Debug)]
pub enum TrimError {
    /// The client's fault: beyond the high watermark, or negative.
    OutOfRange,
    /// The topic was deleted.
    Deleted,
    /// The partition is not well, or its log dir not ours for sure.
    Unavailable,
    /// The disk's fault.
    Disk(io::Error),
}

/// A file on its way off the disk.
struct Trashed {
    garbage: Garbage,
    not_before: Instant,
    readers_until: Instant,
}

/// Files that are no part of the log.
#[derive(Default)]
pub(super) struct Trash {
    all: Mutex<Vec<Trashed>>,
    /// Whether there may be any: a look at thousands of partitions takes no lock. Written with the lock held.
    some: AtomicBool,
}

impl Trash {
    pub(super) fn add(&self, garbage: Vec<Garbage>, delay: Duration) {
        let now = Instant::now();
        let not_before = now.checked_add(delay).unwrap_or(now + READERS);
        let more = garbage.into_iter().map(|garbage| Trashed {
            garbage,
            not_before,
            readers_until: not_before + READERS,
        });
        let mut all = self.all.lock();
        all.extend(more);
        self.some.store(!all.is_empty(), Ordering::Release);
    }

    fn take_due(&self) -> Vec<Trashed> {
        if !self.some.load(Ordering::Acquire) {
            return Vec::new();
        }
        let now = Instant::now();
        let mut all = self.all.lock();
        let due = all.extract_if(.., |t| now >= t.not_before).collect();
        self.some.store(!all.is_empty(), Ordering::Release);
        due
    }

    fn put_back(&self, mut trashed: Trashed) {
        trashed.not_before = Instant::now() + PAUSE;
        self.all.lock().push(trashed);
        self.some.store(true, Ordering::Release);
    }
}

impl Partition {
    /// What is due by the clock, of what a sweep by age and size looks at.
    pub fn retain(self: &Arc<Self>) {
        let Some(_making_files) = self.making_files().filter(|_| self.may_trim()) else {
            return;
        };
        let view = self.view();
        let keeping = self.keeping.load();
        let due = view.due(&keeping.retention, now(), self.last_stable_offset());
        let due = match due {
            Ok(due) => due,
            Err(error) => return self.say("is not looked through for old segments", &error),
        };
        if due.start > view.start_offset() {
            match self.move_start(due.start) {
                Ok(()) => log::info!(
                    "{}-{}: deleted by retention up to offset {}",
                    self.topic,
                    self.index,
                    due.start
                ),
                Err(TrimError::Disk(error)) => self.say("keeps old segments", &error),
                Err(_) => return,
            }
        }
        if due.roll {
            self.roll_quietly();
        }
        self.reclaim();
    }

    /// DeleteRecords: everything before `upto` goes, or before the high
    /// watermark. Durable when this returns; gives the log start.
    ///
    /// # Errors
    /// See [`TrimError`].
    pub fn delete_records(self: &Arc<Self>, upto: Option<Offset>) -> Result<Offset, TrimError> {
        let _making_files = self.making_files().ok_or(TrimError::Deleted)?;
        if !self.may_trim() {
            return Err(TrimError::Unavailable);
        }
        let high_watermark = self.high_watermark();
        let to = upto.unwrap_or(high_watermark);
        if to > high_watermark || to < Offset::ZERO {
            return Err(TrimError::OutOfRange);
        }
        self.move_start(to)?;
        let partition = Arc::clone(self);
        self.dir.maint.submit(move || {
            if let Some(_making_files) = partition.making_files() {
                partition.reclaim();
            }
        });
        Ok(self.view.load().start_offset())
    }

    pub(super) fn may_trim(&self) -> bool {
        let moves = self.moving.load(Ordering::Acquire);
        self.is_online() && self.dir.claim.is_fresh() && !moves
    }

    /// T1.
    fn move_start(&self, to: Offset) -> Result<(), TrimError> {
        let _one_at_a_time = self.trimming.lock();
        let log = self.patient_log().ok_or(TrimError::Unavailable)?;
        let plan = log.trim_plan(to);
        drop(log);
        let Some(plan) = plan else { return Ok(()) };
        self.on_full_disk(|| plan.run()).map_err(TrimError::Disk)?;
        let mut log = self.log.lock();
        log.trim_done(&plan);
        self.view.store(log.read_view());
        drop(log);
        self.readers.wake_all();
        Ok(())
    }

    pub(super) fn patient_log(&self) -> Option<MutexGuard<'_, Log>> {
        self.log.try_lock_for(LOG_PATIENCE)
    }

    /// Deleting needs a few bytes first: on a full disk those of the reserve.
    pub(super) fn on_full_disk<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match work() {
            Err(error) if is_no_space(&error) => {
                self.dir.reserve.give_up();
                work()
            }
            other => other,
        }
    }

    /// Takes whole segments below the start out of the log, and asks for what
    /// keeps others from going.
    fn reclaim(self: &Arc<Self>) {
        // K3 of `compact.rs`.
        let Some(no_swap) = self.swapping.try_lock().filter(|swap| swap.is_none()) else {
            self.reclaim_wanted.store(true, Ordering::Release);
            return;
        };
        let Some(mut log) = self.patient_log() else {
            return;
        };
        let dropped = log.drop_below_start();
        if !dropped.garbage.is_empty() {
            self.view.store(log.read_view());
        }
        drop(log);
        drop(no_swap);
        let delay = self.keeping.load().delete_delay;
        self.trash.add(dropped.garbage, delay);
        if dropped.needs_checkpoint {
            self.reclaim_wanted.store(true, Ordering::Release);
            self.dir.committer.flush_in_background(self);
            self.submit_checkpoint();
        }
        if dropped.needs_roll {
            self.roll_quietly();
        }
    }

    /// Closes the last segment of a log that nobody appends to; one that is
    /// appended to rolls by itself.
    fn roll_quietly(self: &Arc<Self>) {
        if self.is_online() && self.lane.begin_chore() {
            self.reclaim_wanted.store(true, Ordering::Release);
            self.request_chore(Chore::Roll);
        }
    }

    /// Whether segments wait for a roll or a checkpoint to be dropped.
    pub(super) fn frees_space(&self) -> bool {
        self.reclaim_wanted.load(Ordering::Acquire)
    }

    /// What kept segments from going was done.
    pub(super) fn try_reclaim(self: &Arc<Self>) {
        if self.reclaim_wanted.swap(false, Ordering::AcqRel) {
            let partition = Arc::clone(self);
            self.dir.maint.submit(move || partition.retain());
        }
    }

    /// Starts the removal of files whose time has come.
    pub(super) fn sweep_trash(self: &Arc<Self>) {
        let due = self.trash.take_due();
        if due.is_empty() {
            return;
        }
        let partition = Arc::clone(self);
        self.dir.maint.submit(move || {
            for trashed in due {
                partition.remove(trashed);
            }
        });
    }

    /// One file that cannot be removed stops no other.
    fn remove(&self, trashed: Trashed) {
        let Some(_making_files) = self.making_files().filter(|_| self.dir.claim.is_fresh()) else {
            return;
        };
        if !trashed.garbage.is_let_go() && Instant::now() < trashed.readers_until {
            return self.trash.put_back(trashed);
        }
        if let Err(error) = trashed.garbage.remove() {
            let name = trashed.garbage.name();
            self.say(&format!("keeps the deleted segment {name}"), &error);
            self.trash.put_back(trashed);
        }
    }

    pub(super) fn say(&self, what: &str, error: &io::Error) {
        log::warn!("{}-{} {what}: {error}", self.topic, self.index);
    }
}
