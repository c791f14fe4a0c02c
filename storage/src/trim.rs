//! Moving the start of a log, and what lies below it.
//!
//! Owns:     the order in which a log loses its beginning: start durable, then out of sight, then off the disk.
//! Does not: decide how far (`retention.rs` and DeleteRecords do), run threads, or wait for readers.
//! Plans run without the log. `Garbage` is removed by whoever finds it let go.
//!
//! # Invariants
//! T1. Nothing is dropped before the manifest that puts the start at or behind its end is durable.
//! T2. The segment that holds the start is never dropped, and the last one neither: its name keeps epoch and end.
//! T3. A segment is dropped only when a snapshot at or behind its end is durable: its producers outlive it (i04).
//! T4. So what lies below both the start and the snapshot is garbage, whatever a crash has left of it: recovery does not
//!     look into it, and nothing that a dropped file hid comes back (D5). Garbage may be removed in any order.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::Disk;
use crate::log::Log;
use crate::manifest::Manifest;
use crate::names::{MANIFEST, SegmentName};
use crate::resources::Resources;
use crate::segment::Segment;
use crate::state_file::write_atomic;
use crate::types::Offset;
use crate::view::EpochStart;

/// A new start that is to be made durable.
#[derive(Debug)]
pub struct TrimPlan {
    disk: Arc<dyn Disk>,
    dir: Arc<Path>,
    manifest: Manifest,
}

impl TrimPlan {
    /// Writes the manifest; then call `Log::trim_done`. After an error the old start holds, or after a crash perhaps the
    /// new one.
    pub fn run(&self) -> io::Result<()> {
        write_atomic(
            &*self.disk,
            &self.dir.join(MANIFEST),
            &self.manifest.encode()?,
        )
    }
}

/// What became of the segments below the start.
#[derive(Debug, Default)]
#[must_use = "garbage is to be removed"]
pub struct Dropped {
    /// Files that are no part of the log any more.
    pub garbage: Vec<Garbage>,
    /// More could go if a checkpoint were made at the durable end (T3).
    pub needs_checkpoint: bool,
    /// All of the log lies below the start: a roll would let its last segment go too (T2).
    pub needs_roll: bool,
}

/// The files of a segment that is no part of the log any more.
#[derive(Debug)]
pub struct Garbage {
    segment: Arc<Segment>,
    resources: Arc<Resources>,
}

impl Garbage {
    pub(crate) fn new(segment: Arc<Segment>, resources: &Arc<Resources>) -> Self {
        Self {
            segment,
            resources: Arc::clone(resources),
        }
    }

    /// Which segment it was.
    pub fn name(&self) -> SegmentName {
        self.segment.name
    }

    /// Whether no reader has its file open or could open it: on NFS an open file that is removed frees nothing.
    pub fn is_let_go(&self) -> bool {
        self.segment.is_let_go(&self.resources)
    }

    /// Removes the files, the log last, so that what a crash leaves is found by its name. What is gone already is no error.
    pub fn remove(&self) -> io::Result<()> {
        let name = self.segment.name;
        let indexes = [name.index(), name.time_index(), name.txn_index()];
        for file in indexes.into_iter().chain([name.log()]) {
            match self.segment.disk.remove_file(&self.segment.dir.join(file)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Log {
    /// How to move the start to `to`, at most to the log end; `None` if it is there or beyond. One plan at a time.
    pub fn trim_plan(&self, to: Offset) -> Option<TrimPlan> {
        let to = to.min(self.end);
        (to > self.start).then(|| TrimPlan {
            disk: Arc::clone(&self.disk),
            dir: Arc::clone(&self.dir),
            manifest: Manifest {
                epoch: self.epoch,
                high_watermark: self.end,
                log_start: to,
            },
        })
    }

    /// The plan was run: the log starts there.
    pub fn trim_done(&mut self, plan: &TrimPlan) {
        self.start = self.start.max(plan.manifest.log_start);
        self.epochs = clip_epochs(&self.epochs, self.start).into();
        self.changed = true;
    }

    /// Takes out what lies wholly below the start and may go. Publish a new view before the garbage is removed.
    pub fn drop_below_start(&mut self) -> Dropped {
        let below = |limit: Offset| {
            let bases = self.segments.iter().skip(1);
            bases.take_while(|next| next.name.base <= limit).count()
        };
        let (all, now) = (
            below(self.start),
            below(self.start.min(self.durable.snapshot_at)),
        );
        if now < all {
            self.durable.wanted = true;
        }
        let needs_roll = self.start >= self.end
            && self
                .segments
                .last()
                .is_some_and(|last| last.name.base < self.start);
        let kept: Arc<[_]> = self.segments[now..].into();
        let mut gone = self.segments[..now].to_vec();
        if let Some(first) = kept.first() {
            let base = first.name.base;
            gone.extend(self.hidden.extract_if(.., |h| h.name.base < base));
        }
        self.segments = kept;
        self.index_owed
            .retain(|owed| !gone.iter().any(|g| g.name == owed.name));
        Dropped {
            garbage: gone
                .into_iter()
                .map(|segment| Garbage::new(segment, &self.resources))
                .collect(),
            needs_checkpoint: now < all,
            needs_roll,
        }
    }

    /// What a crash left of files that are no part of the log.
    pub fn take_garbage(&mut self) -> Vec<Garbage> {
        let left = std::mem::take(&mut self.garbage);
        left.into_iter()
            .map(|segment| Garbage::new(segment, &self.resources))
            .collect()
    }
}

/// Epochs of a log that begins at `start`: the one of its first record begins there (as in Kafka).
pub(crate) fn clip_epochs(epochs: &[EpochStart], start: Offset) -> Vec<EpochStart> {
    let below = epochs.partition_point(|e| e.start <= start);
    let mut kept = epochs[below.saturating_sub(1)..].to_vec();
    if let Some(first) = kept.first_mut() {
        first.start = first.start.max(start);
    }
    kept
}
