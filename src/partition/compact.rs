//! Compaction of one partition.
//!
//! Owns:     the order between the log, its readers and the disk when rewritten
//!           segments take the place of old ones.
//! Does not: know keys or files (storage does).
//!
//! Runs on `compact-D-N` threads, one pass of a partition at a time.
//!
//! # Invariants
//! K1. Nothing is rewritten while a swap is not at its end.
//! K2. Names change only when no reader can have an old file open, or has not
//!     let go of it for [`READERS`].
//! K3. While a swap is under way no segment is dropped: `reclaim` waits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use seawall_storage::{
    Compaction, CompactionRules, CompactionStats, CompactionTask, Dirty, Offset, ReadView,
    Rewritten, Swap, Throttle, read_progress, write_progress,
};

use super::{Partition, now};
use crate::cleaner::{Cleaner, Pace};

/// How long to wait for readers of files that are to be replaced.
const READERS: Duration = Duration::from_secs(60);
/// And how often to look.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// No progress file was read yet.
pub(super) const CLEAN_UNKNOWN: i64 = -1;

impl Partition {
    /// How dirty the log is, if it is to be compacted now.
    pub fn dirty_ratio(self: &Arc<Self>) -> Option<f64> {
        let rules = self.keeping.load().compaction?;
        if !self.may_trim() || self.is_deleted() {
            return None;
        }
        let found = self.look_for_dirt(&self.view(), &rules);
        let dirty = found
            .inspect_err(|error| self.say("is not looked through for compaction", error))
            .ok()??;
        dirty.is_due.then_some(dirty.ratio)
    }

    /// One pass over what is dirty, or as much of it as the map of keys holds.
    pub fn compact(self: &Arc<Self>, cleaner: &Cleaner) {
        let Some(_making_files) = self.making_files().filter(|_| self.may_trim()) else {
            return;
        };
        let Some(rules) = self.keeping.load().compaction else {
            return;
        };
        let rules = CompactionRules {
            map_bytes_max: cleaner.map_bytes_max(),
            ..rules
        };
        let started = Instant::now();
        let pace = PassPace {
            partition: self,
            pace: cleaner.pace(),
        };
        match self.pass(&rules, pace) {
            Ok(Some(stats)) => {
                cleaner.count(&stats);
                self.tell_pass(&stats, started.elapsed());
            }
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => self.say("is not compacted", &error),
        }
        self.try_reclaim();
    }

    fn tell_pass(&self, stats: &CompactionStats, took: Duration) {
        log::info!(
            "{}-{}: compacted, {} keys, {} records removed, {} bytes became {}, in {took:.1?}",
            self.topic,
            self.index,
            stats.keys,
            stats.records_removed,
            stats.bytes_before,
            stats.bytes_after,
        );
        if stats.opaque_batches + stats.damaged > 0 {
            log::warn!(
                "{}-{}: {} batches that cannot be read and {} damaged runs stay as they are",
                self.topic,
                self.index,
                stats.opaque_batches,
                stats.damaged
            );
        }
    }

    fn look_for_dirt(
        self: &Arc<Self>,
        view: &ReadView,
        rules: &CompactionRules,
    ) -> io::Result<Option<Dirty>> {
        let upto = self.compactable_up_to(view);
        view.dirty(self.clean_up_to(), rules, now(), upto)
    }

    /// Below everything that may be taken back, and below a durable snapshot; one
    /// that lies too far back is asked for.
    fn compactable_up_to(self: &Arc<Self>, view: &ReadView) -> Offset {
        let Some(mut log) = self.patient_log() else {
            return Offset::ZERO;
        };
        let stable = self.last_stable_offset().min(log.durable_offset());
        let wanted = stable.min(view.last_base());
        let snapshot = log.snapshot_offset(wanted);
        drop(log);
        if snapshot < wanted {
            self.dir.committer.flush_in_background(self);
            self.submit_checkpoint();
        }
        wanted.min(snapshot)
    }

    fn clean_up_to(&self) -> Offset {
        let known = self.clean.load(Ordering::Relaxed);
        if known != CLEAN_UNKNOWN {
            return Offset::new(known);
        }
        let found = read_progress(&*self.dir.disk, &self.path, self.topic_id, self.index);
        self.clean.store(found.get(), Ordering::Relaxed);
        found
    }

    fn pass(
        self: &Arc<Self>,
        rules: &CompactionRules,
        mut pace: PassPace<'_>,
    ) -> io::Result<Option<CompactionStats>> {
        self.finish_swap(&pace.pace)?;
        let view = self.view();
        let Some(dirty) = self.look_for_dirt(&view, rules)?.filter(|d| d.is_due) else {
            return Ok(None);
        };
        let Some(log) = self.patient_log() else {
            return Ok(None);
        };
        let keep = log.remembered_batches();
        drop(log);
        let task = CompactionTask {
            dirty,
            rules: *rules,
            keep: keep.into_iter().collect(),
            now: now(),
        };
        let begun = Compaction::begin(&view, task, &mut pace)?;
        drop(view);
        let Some(mut pass) = begun else {
            return Ok(None);
        };
        while let Some(run) = pass.next_run(&mut pace)? {
            self.swap_in(run)?;
            self.finish_swap(&pace.pace)?;
        }
        let clean = pass.end();
        write_progress(
            &*self.dir.disk,
            &self.path,
            self.topic_id,
            self.index,
            clean,
        )?;
        self.clean.store(clean.get(), Ordering::Relaxed);
        Ok(Some(pass.stats))
    }

    /// Readers see the new file from here on.
    fn swap_in(&self, run: Rewritten) -> io::Result<()> {
        let mut swapping = self.swapping.lock();
        let mut log = self.log.lock();
        let swap = match log.splice(run) {
            Ok(swap) => swap,
            Err(stale) => {
                // Retention was faster; the next pass looks again.
                drop(log);
                stale.discard();
                return Err(io::ErrorKind::Interrupted.into());
            }
        };
        self.view.store(log.read_view());
        drop(log);
        *swapping = Some(swap);
        Ok(())
    }

    /// K1: drives the swap under way, perhaps one that failed before.
    fn finish_swap(&self, pace: &Pace) -> io::Result<()> {
        let mut swapping = self.swapping.lock();
        let Some(swap) = swapping.as_mut() else {
            return Ok(());
        };
        wait_for_readers(swap, pace)?;
        swap.run()?;
        let mut log = self.log.lock();
        log.swapped(swap);
        self.view.store(log.read_view());
        drop(log);
        *swapping = None;
        Ok(())
    }
}

/// The speed of a pass, and its end when the topic is deleted.
struct PassPace<'a> {
    partition: &'a Partition,
    pace: Pace,
}

impl Throttle for PassPace<'_> {
    fn took(&mut self, bytes: u64) -> io::Result<()> {
        if self.partition.is_deleted() || !self.partition.may_trim() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.pace.took(bytes)
    }
}

/// K2.
fn wait_for_readers(swap: &Swap, pace: &Pace) -> io::Result<()> {
    let deadline = Instant::now() + READERS;
    while !swap.is_let_go() && Instant::now() < deadline {
        if !pace.wait(LOOK_AGAIN) {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    Ok(())
}
