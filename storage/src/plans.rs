//! What takes long and runs without the log: rolls, checkpoints, closing, cutting.
//!
//! Owns:     the order of syncs and writes of each.
//! Does not: touch a `Log`; a plan holds all it needs, and its result is handed back to the log.
//! Called from committer threads (`RollPlan`, `CutPlan`) and `state-*` threads (`CheckpointPlan`, `ClosePlan`).
//!
//! # Invariants
//! Q1. A roll syncs the old file before the new one exists, and the directory before anyone may write to the new one (W1, D6).
//! Q2. The snapshot is written before the checkpoint, so a checkpoint never speaks for facts that are nowhere.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::disk::{Disk, DiskFile, is_no_space};
use crate::index_file::{Covered, MaxTime, read_entries, walk, write_files};
use crate::live_index::IndexEntry;
use crate::manifest::{Checkpoint, Manifest};
use crate::names::{CHECKPOINT, MANIFEST, SNAPSHOT, SegmentName};
use crate::resources::Resources;
use crate::segment::{Facts, REBUILD_INTERVAL_BYTES, Segment};
use crate::state_file::{write_atomic, write_atomic_all};
use crate::types::{Offset, Position, Timestamp};
use seawall_planted::planted;

/// The fsync of a log's file that a plan ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSync {
    /// How long it took.
    pub took: Duration,
    /// Whether it failed.
    pub failed: bool,
}

/// Syncs and tells of it, also when it failed.
pub(crate) fn sync_and_tell(file: &dyn DiskFile, told: &dyn Fn(LogSync)) -> io::Result<()> {
    let began = Instant::now();
    let synced = file.sync_data();
    told(LogSync {
        took: began.elapsed(),
        failed: synced.is_err(),
    });
    synced
}

/// How to begin a new segment.
#[derive(Debug, Clone)]
pub struct RollPlan {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: Arc<Path>,
    /// Set when the old file has unsynced bytes.
    pub(crate) old: Option<Arc<dyn DiskFile>>,
    pub(crate) name: SegmentName,
    pub(crate) new_dir: bool,
    pub(crate) leftovers: Vec<String>,
}

/// A new segment file whose name is durable; hand it to `Log::install`.
#[derive(Debug)]
pub struct NewSegment {
    pub(crate) name: SegmentName,
    pub(crate) file: Arc<dyn DiskFile>,
}

/// Why there is no new segment. The disk's fault.
#[derive(Debug)]
pub enum RollError {
    /// The old file could not be synced: nothing that was not durable before is to be believed (D4). The log is Failed.
    OldNotSynced(io::Error),
    /// No space for a file or a name. The old file is durable; an empty new one may exist, and the next try takes it.
    NoSpace(io::Error),
    /// Anything else; as with `NoSpace`, but the log is Failed.
    Failed(io::Error),
}

impl fmt::Display for RollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OldNotSynced(e) => write!(f, "the old segment could not be synced: {e}"),
            Self::NoSpace(e) => write!(f, "no space for a new segment: {e}"),
            Self::Failed(e) => write!(f, "no new segment: {e}"),
        }
    }
}

impl std::error::Error for RollError {}

/// The log has moved on since the roll was planned; nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleRoll;

impl RollPlan {
    /// Syncs the old file, makes the directory if needed, creates the new file, syncs the directory (Q1).
    pub fn run(&self) -> Result<NewSegment, RollError> {
        self.run_telling(&|_| {})
    }

    /// As `run`, and tells of the sync of the old file.
    pub fn run_telling(&self, told: &dyn Fn(LogSync)) -> Result<NewSegment, RollError> {
        if let Some(old) = &self.old
            && !planted("roll-old-not-synced")
        {
            sync_and_tell(&**old, told).map_err(RollError::OldNotSynced)?;
        }
        let file = self.make().map_err(|e| {
            if is_no_space(&e) {
                RollError::NoSpace(e)
            } else {
                RollError::Failed(e)
            }
        })?;
        Ok(NewSegment {
            name: self.name,
            file,
        })
    }

    /// Whether `run` begins with a sync of the old file.
    pub fn syncs_old(&self) -> bool {
        self.old.is_some()
    }

    fn make(&self) -> io::Result<Arc<dyn DiskFile>> {
        if self.new_dir {
            self.make_dir()?;
        }
        for leftover in &self.leftovers {
            // Only tidiness: a temporary file that stays does no harm.
            drop(self.disk.remove_file(&self.dir.join(leftover)));
        }
        let file = self.create()?;
        if !planted("roll-dir-not-synced") {
            self.disk.sync_dir(&self.dir)?;
        }
        Ok(file)
    }

    fn make_dir(&self) -> io::Result<()> {
        match self.disk.create_dir(&self.dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        self.dir
            .parent()
            .map_or(Ok(()), |parent| self.disk.sync_dir(parent))
    }

    /// A file of this epoch that exists already is one that an earlier try of this same log left empty.
    fn create(&self) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.dir.join(self.name.log());
        match self.disk.create_new(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let file = self.disk.open_write(&path)?;
                if file.is_empty()? { Ok(file) } else { Err(e) }
            }
            other => other,
        }
    }
}

/// Producer facts and the place in the log that they belong to.
#[derive(Debug, Clone)]
pub(crate) struct Captured {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) snapshot: Vec<u8>,
    pub(crate) bytes: u64,
    pub(crate) at: Timestamp,
}

/// Index files that are to be written for a segment.
#[derive(Debug, Clone)]
pub(crate) struct IndexJob {
    pub(crate) segment: Arc<Segment>,
    pub(crate) end: Offset,
    pub(crate) resources: Arc<Resources>,
}

impl IndexJob {
    fn run(&self) -> io::Result<()> {
        let entries = self.entries()?;
        if entries.is_empty() {
            return Ok(());
        }
        let segment = &self.segment;
        if let Some(txns) = &segment.txns {
            txns.write(&*segment.disk, &segment.dir, &segment.name, self.end)?;
        }
        write_files(&*segment.disk, &segment.dir, &segment.name, &entries)
    }

    /// What the files (or else the segment) say of the part before the one in memory, then that one.
    fn entries(&self) -> io::Result<Vec<IndexEntry>> {
        let mut entries = self.sealed_entries()?;
        let Some(live) = &self.segment.live else {
            return Ok(entries);
        };
        let mut max = entries.last().map(IndexEntry::max);
        for entry in live.index.entries().chain(live.last) {
            max = MaxTime::later(max, Some(entry.max()));
            let place = (entry.offset, entry.position);
            if entries.last().is_none_or(|e| e.offset < entry.offset) {
                entries.push(IndexEntry::new(place, max.unwrap_or(entry.max())));
            }
        }
        Ok(entries)
    }

    fn sealed_entries(&self) -> io::Result<Vec<IndexEntry>> {
        let segment = &self.segment;
        let live = segment.live.as_ref();
        if live.is_some_and(|l| l.from == Position::ZERO) {
            return Ok(Vec::new());
        }
        let open = segment.open(&self.resources)?;
        let covered = Covered {
            name: segment.name,
            end: live.map_or(self.end, |l| l.from_offset),
            bytes_max: live.map_or(open.len, |l| l.from.0),
            interval: REBUILD_INTERVAL_BYTES,
        };
        let found = read_entries(&*segment.disk, &segment.dir, &*open.file, &covered)?;
        found.map_or_else(|| walk(&*open.file, &covered), Ok)
    }
}

/// A checkpoint of the durable prefix, with what belongs to it.
#[derive(Debug)]
pub struct CheckpointPlan {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: Arc<Path>,
    pub(crate) indexes: Vec<IndexJob>,
    pub(crate) captured: Captured,
}

/// A checkpoint that was written; hand it to `Log::checkpoint_done`.
#[derive(Debug)]
pub struct CheckpointDone {
    pub(crate) indexed: Vec<Arc<Facts>>,
    pub(crate) offset: Offset,
    pub(crate) bytes: u64,
    pub(crate) at: Timestamp,
}

impl CheckpointPlan {
    /// Writes owed index files, the producer snapshot, then the checkpoint (Q2). An error leaves older ones in force.
    pub fn run(&self) -> io::Result<CheckpointDone> {
        for job in &self.indexes {
            job.run()?;
        }
        write_atomic(
            &*self.disk,
            &self.dir.join(SNAPSHOT),
            &self.captured.snapshot,
        )?;
        write_atomic(
            &*self.disk,
            &self.dir.join(CHECKPOINT),
            &self.captured.checkpoint.encode()?,
        )?;
        Ok(CheckpointDone {
            indexed: self
                .indexes
                .iter()
                .map(|job| Arc::clone(&job.segment.facts))
                .collect(),
            offset: self.captured.checkpoint.offset,
            bytes: self.captured.bytes,
            at: self.captured.at,
        })
    }
}

/// What a clean stop writes.
#[derive(Debug)]
pub struct ClosePlan {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: Arc<Path>,
    /// Set when the active file has unsynced bytes.
    pub(crate) file: Option<Arc<dyn DiskFile>>,
    pub(crate) cut: Option<CutPlan>,
    pub(crate) manifest: Manifest,
    pub(crate) snapshot: Vec<u8>,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) indexes: Vec<IndexJob>,
}

impl ClosePlan {
    /// Syncs the active file, then writes snapshot, checkpoint and manifest with one directory sync. After an error the
    /// stop is unclean, and the next start recovers.
    pub fn run(&self) -> io::Result<()> {
        if let Some(cut) = &self.cut {
            cut.run()?;
        }
        if let Some(file) = &self.file {
            file.sync_data()?;
        }
        for job in &self.indexes {
            job.run()?;
        }
        let files = [
            (SNAPSHOT, self.snapshot.clone()),
            (CHECKPOINT, self.checkpoint.encode()?),
            (MANIFEST, self.manifest.encode()?),
        ];
        write_atomic_all(&*self.disk, &self.dir, &files)
    }
}

/// How to cut the rest of a write that found no space: the only thing that is ever cut (D5).
#[derive(Debug, Clone)]
pub struct CutPlan {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) len: Position,
}

impl CutPlan {
    /// Cuts. After an error the log is Failed (`Log::mark_failed`).
    pub fn run(&self) -> io::Result<()> {
        self.file.set_len(self.len.0)
    }
}
