//! Putting a rewritten file in the place of the segments that it was made of (Z3, Z4).
//!
//! Owns:     the order: readers first, then the rename, then the removals.
//! Does not: wait for readers; its caller asks `Swap::is_let_go`.
//!
//! Readers of newer views read the new file through a handle that is kept open, whatever its name, and nobody opens the old
//! ones any more. When the last older view is gone, no old file is open (which matters on NFS), and the names change.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::DiskFile;
use crate::index_file::write_files;
use crate::live_index::{IndexEntry, LiveIndex};
use crate::log::Log;
use crate::resources::Resources;
use crate::segment::{LivePart, OpenSegment, Segment};
use crate::txn_index::SegmentTxns;
use crate::types::{Offset, Position, Timestamp};

use super::clean::NewFile;

/// A run of segments rewritten into one file, synced, under a temporary name.
#[derive(Debug)]
pub struct Rewritten {
    temp: PathBuf,
    /// What readers are to see; it holds the file open.
    new: Arc<Segment>,
    bytes: Position,
    entries: Vec<IndexEntry>,
    txns: Option<Arc<SegmentTxns>>,
    old: Vec<Arc<Segment>>,
    end: Offset,
    bytes_before: u64,
}

/// The log is not what it was when the segments were read: some of them are gone. The new file is still there.
#[derive(Debug)]
pub struct StaleRewrite(Box<Rewritten>);

impl StaleRewrite {
    /// Removes the new file. Not while the log is held: it may be large.
    pub fn discard(self) {
        drop(self.0.new.disk.remove_file(&self.0.temp));
    }
}

impl Rewritten {
    pub(super) fn new(
        old: Vec<Arc<Segment>>,
        new: NewFile,
        end: Offset,
        txns_known: bool,
    ) -> io::Result<Self> {
        let mut bytes_before = 0_u64;
        let mut last_append = Timestamp::NONE;
        for segment in &old {
            bytes_before = bytes_before.saturating_add(segment.bytes()?);
            last_append = last_append.max(segment.last_append()?);
        }
        // So that its age after a restart is still that of its records.
        new.file.set_modified(last_append)?;
        let txns = txns_known.then(|| Arc::new(new.txns));
        let first = old.first().ok_or(io::ErrorKind::InvalidInput)?;
        let segment = segment(first, &new.file, (new.bytes, &new.entries));
        let max = new.entries.last().map(IndexEntry::max);
        segment.facts.close(new.bytes, last_append, max);
        Ok(Self {
            temp: new.path,
            new: Arc::new(segment.with_txns(txns.clone())),
            bytes: new.bytes,
            entries: new.entries,
            txns,
            old,
            end,
            bytes_before,
        })
    }

    pub(super) fn bytes_before(&self) -> u64 {
        self.bytes_before
    }

    pub(super) fn bytes_after(&self) -> u64 {
        self.bytes.0
    }
}

/// The segment that the new file is, under the name of the first of its run.
fn segment(first: &Segment, file: &Arc<dyn DiskFile>, of: (Position, &[IndexEntry])) -> Segment {
    let (bytes, entries) = of;
    let index = LiveIndex::default();
    for entry in entries {
        index.push(*entry);
    }
    let live = LivePart {
        index: Arc::new(index),
        from: Position::ZERO,
        from_offset: first.name.base,
        last: entries.last().copied(),
    };
    let open = Arc::new(OpenSegment::new(Arc::clone(file), bytes.0));
    Segment::new(first.name, &first.disk, &first.dir).with(Some(open), Some(live))
}

/// A new segment that readers see already, while the disk still has the old names.
#[derive(Debug)]
pub struct Swap {
    new: Arc<Segment>,
    temp: PathBuf,
    entries: Vec<IndexEntry>,
    txns: Option<Arc<SegmentTxns>>,
    end: Offset,
    old: Vec<Arc<Segment>>,
    renamed: bool,
    resources: Arc<Resources>,
}

impl Log {
    /// Shows a rewritten run in the place of its segments. Publish a new view, then drive the swap to its end before
    /// anything else is rewritten or dropped.
    pub fn splice(&mut self, run: Rewritten) -> Result<Swap, StaleRewrite> {
        let place = run.old.first().and_then(|first| {
            let mut all = self.segments.iter();
            all.position(|s| Arc::ptr_eq(&s.facts, &first.facts))
        });
        let still = |at: usize| {
            let there = self.segments.get(at..at + run.old.len());
            let next = self.segments.get(at + run.old.len());
            next.is_some_and(|next| next.name.base == run.end)
                && there.is_some_and(|there| {
                    let pairs = there.iter().zip(&run.old);
                    pairs
                        .into_iter()
                        .all(|(a, b)| Arc::ptr_eq(&a.facts, &b.facts))
                })
        };
        let Some(at) = place.filter(|at| still(*at)) else {
            return Err(StaleRewrite(Box::new(run)));
        };
        let new = run.new;
        let mut segments = self.segments.to_vec();
        segments.splice(at..at + run.old.len(), [Arc::clone(&new)]);
        self.segments = segments.into();
        let is_old = |s: &Arc<Segment>| run.old.iter().any(|o| Arc::ptr_eq(&o.facts, &s.facts));
        self.index_owed.retain(|owed| !is_old(owed));
        self.changed = true;
        Ok(Swap {
            new,
            temp: run.temp,
            entries: run.entries,
            txns: run.txns,
            end: run.end,
            old: run.old,
            renamed: false,
            resources: Arc::clone(&self.resources),
        })
    }

    /// The swap is over: the new file has its name, and needs no handle of its own.
    pub fn swapped(&mut self, swap: &Swap) {
        let light = |s: &Arc<Segment>| {
            if Arc::ptr_eq(&s.facts, &swap.new.facts) {
                Arc::new(s.with(None, None).with_txns(None))
            } else {
                Arc::clone(s)
            }
        };
        self.segments = self.segments.iter().map(light).collect();
    }
}

impl Swap {
    /// Whether no reader has an old file open or could open it.
    pub fn is_let_go(&self) -> bool {
        let mut old = self.old.iter();
        old.all(|segment| segment.is_let_go(&self.resources))
    }

    /// Renames, syncs the directory, removes the other old files one by one (Z4). After an error it may be run again; a
    /// crash leaves a right log wherever it comes.
    pub fn run(&mut self) -> io::Result<()> {
        let (disk, dir) = (Arc::clone(&self.new.disk), Arc::clone(&self.new.dir));
        let name = self.new.name;
        if !self.renamed {
            // Those of the old file would speak of other positions.
            for index in [name.index(), name.time_index(), name.txn_index()] {
                ignore_missing(disk.remove_file(&dir.join(index)))?;
            }
            disk.rename(&self.temp, &dir.join(name.log()))?;
            self.renamed = true;
        }
        disk.sync_dir(&dir)?;
        while self.old.len() > 1 {
            let next = self.old[1].name;
            let indexes = [next.index(), next.time_index(), next.txn_index()];
            for file in indexes.into_iter().chain([next.log()]) {
                ignore_missing(disk.remove_file(&dir.join(file)))?;
            }
            disk.sync_dir(&dir)?;
            self.old.remove(1);
        }
        // Hints: without them the segment is walked when they are needed.
        if let Some(txns) = &self.txns {
            drop(txns.write(&*disk, &dir, &name, self.end));
        }
        drop(write_files(&*disk, &dir, &name, &self.entries));
        Ok(())
    }
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
