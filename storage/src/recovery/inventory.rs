//! What lies in a partition's directory before anything is scanned.
//!
//! Owns:     reading names, manifest, checkpoint and snapshot, and which of them may be used.
//! Does not: read batches, except the one that a checkpoint names.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::disk::{DirEntry, Disk, DiskFile, read_full};
use crate::manifest::{Checkpoint, Manifest, STATE_BYTES_MAX};
use crate::names::{CHECKPOINT, MANIFEST, SNAPSHOT, SegmentName, TEMP_PREFIX, split_visible};
use crate::scan::crc_holds;
use crate::segment::Segment;
use crate::snapshot::{self, Facts, SNAPSHOT_BYTES_MAX, SnapshotKey};
use crate::state_file::read_bounded;
use crate::types::{LeaderEpoch, Offset, Position, narrow, wide};
use seawall_planted::planted;

use super::replay::Start;
use super::{OpenError, OpenOptions, Stop};

pub(super) struct Inventory {
    pub(super) dir: Arc<Path>,
    disk: Arc<dyn Disk>,
    /// Visible segments in offset order.
    pub(super) segments: Vec<Arc<Segment>>,
    /// Hidden wholly by a newer epoch.
    pub(super) hidden: Vec<Arc<Segment>>,
    /// Below the log start: a deletion that a crash has ended.
    pub(super) garbage: Vec<Arc<Segment>>,
    /// Length of the last one.
    pub(super) last_len: u64,
    manifest: Option<Manifest>,
    /// Undamaged and of this partition.
    pub(super) checkpoint: Option<Checkpoint>,
    /// Index of its segment, if the batch it names is there.
    authentic: Option<usize>,
    pub(super) snapshot: Option<(Offset, Facts)>,
    /// The highest epoch in names and manifest.
    pub(super) epoch_max: LeaderEpoch,
    pub(super) leftovers: Vec<String>,
    pub(super) new_dir: bool,
    clean: bool,
}

impl Inventory {
    pub(super) fn take(
        disk: &Arc<dyn Disk>,
        dir: &Arc<Path>,
        options: &OpenOptions<'_>,
    ) -> Result<Self, OpenError> {
        let entries = list(&**disk, dir)?;
        let names: Vec<_> = entries
            .iter()
            .filter_map(|e| SegmentName::parse_log(&e.name))
            .collect();
        let epoch_max = names
            .iter()
            .map(|n| n.epoch)
            .max()
            .unwrap_or(LeaderEpoch::NONE);
        // The directory is synced into its parent before the first segment is created in it.
        let new_dir = names.is_empty();
        let manifest = read_manifest(&**disk, dir, &entries)?;
        let snapshot = read_snapshot(&**disk, dir, &entries, options)?;
        let log_start = manifest.map_or(Offset::ZERO, |m| m.log_start);
        // A segment below the start whose producers no snapshot knows was not dropped yet (T3 of `trim.rs`).
        let known = snapshot.as_ref().map_or(Offset::ZERO, |s| s.0);
        let (visible, hidden, garbage) = sort_names(names, log_start.min(known));
        let segment = |name: &SegmentName| Arc::new(Segment::new(*name, disk, dir));
        let segments: Vec<_> = visible.iter().map(segment).collect();
        let last_len = match visible.last() {
            Some(last) => disk.file_len(&dir.join(last.log()))?,
            None => 0,
        };
        let mut found = Self {
            dir: Arc::clone(dir),
            disk: Arc::clone(disk),
            new_dir,
            segments,
            hidden: hidden.iter().map(segment).collect(),
            garbage: garbage.iter().map(segment).collect(),
            last_len,
            epoch_max: epoch_max.max(manifest.map_or(LeaderEpoch::NONE, |m| m.epoch)),
            manifest,
            checkpoint: None,
            authentic: None,
            snapshot,
            leftovers: entries
                .iter()
                .filter(|e| e.name.starts_with(TEMP_PREFIX))
                .map(|e| e.name.clone())
                .collect(),
            clean: options.stop == Stop::Clean,
        };
        found.read_checkpoint(&entries, options)?;
        Ok(found)
    }

    fn read_checkpoint(
        &mut self,
        entries: &[DirEntry],
        options: &OpenOptions<'_>,
    ) -> Result<(), OpenError> {
        let checkpoint = read_if_listed(
            &*self.disk,
            &self.dir,
            entries,
            (CHECKPOINT, STATE_BYTES_MAX),
        )?;
        let ours =
            |c: &Checkpoint| c.topic_id == options.topic_id && c.partition == options.partition;
        self.checkpoint = checkpoint
            .as_deref()
            .and_then(Checkpoint::decode)
            .filter(ours);
        self.authentic = match self.checkpoint {
            Some(checkpoint) => self.authenticate(&checkpoint)?,
            None => None,
        };
        Ok(())
    }

    /// The index of the checkpoint's segment if the batch that it names ends where it says.
    fn authenticate(&self, checkpoint: &Checkpoint) -> io::Result<Option<usize>> {
        let Some(index) = self
            .segments
            .iter()
            .position(|s| s.name == checkpoint.segment)
        else {
            return Ok(None);
        };
        let next_base = self.segments.get(index + 1).map(|s| s.name.base);
        if next_base.is_some_and(|base| checkpoint.offset > base) {
            return Ok(None);
        }
        if checkpoint.position == Position::ZERO {
            return Ok((checkpoint.offset == checkpoint.segment.base).then_some(index));
        }
        let last = index + 1 == self.segments.len();
        if last && checkpoint.position.0 > self.last_len {
            return Ok(None);
        }
        let file = self
            .disk
            .open_read(&self.dir.join(checkpoint.segment.log()))?;
        let whole = !(self.clean && last && checkpoint.position.0 == self.last_len);
        Ok(names_its_batch(&*file, checkpoint, whole)?.then_some(index))
    }

    /// Whether the last stop left nothing to scan: the checkpoint and the snapshot are at the end of the last file.
    pub(super) fn is_closed(&self) -> bool {
        let snapshot = self.snapshot.as_ref().map(|(offset, _)| *offset);
        match &self.checkpoint {
            Some(checkpoint) => {
                self.authentic == self.segments.len().checked_sub(1)
                    && !self.segments.is_empty()
                    && checkpoint.position.0 == self.last_len
                    && snapshot == Some(checkpoint.offset)
            }
            None => self.segments.is_empty(),
        }
    }

    pub(super) fn open_last(&self) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let last = self.segments.last();
        last.map(|last| self.disk.open_write(&self.dir.join(last.name.log())))
            .transpose()
    }

    pub(super) fn open(&self, segment: &Segment) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open_read(&self.dir.join(segment.name.log()))
    }

    /// Up to which position the last file is known to be durable.
    pub(super) fn durable_position(&self) -> Position {
        match (&self.checkpoint, self.authentic) {
            (Some(checkpoint), Some(index)) if index + 1 == self.segments.len() => {
                checkpoint.position
            }
            _ => Position::ZERO,
        }
    }

    /// The first offset that may be read.
    pub(super) fn log_start(&self) -> Offset {
        let first = self.segments.first().map_or(Offset::ZERO, |s| s.name.base);
        self.manifest.map_or(first, |m| m.log_start.max(first))
    }

    pub(super) fn manifest_missing(&self) -> bool {
        self.manifest.is_none() && !self.segments.is_empty()
    }

    /// From where to check batches: the checkpoint if it is authentic, else the oldest segment.
    fn check_from(&self) -> Start {
        let oldest = self.segments.first().map_or(Offset::ZERO, |s| s.name.base);
        match (&self.checkpoint, self.authentic) {
            (Some(checkpoint), Some(segment)) => Start {
                segment,
                position: checkpoint.position,
                offset: checkpoint.offset,
                replay: None,
            },
            _ => Start {
                segment: 0,
                position: Position::ZERO,
                offset: oldest,
                replay: None,
            },
        }
    }

    /// From where to scan so that the snapshot can be brought up to the log end; `None` without a usable snapshot.
    pub(super) fn start_with_snapshot(&self) -> Option<Start> {
        let (offset, _) = self.snapshot.as_ref()?;
        let start = self.check_from();
        let replay = Some(*offset);
        if *offset >= start.offset {
            return Some(Start { replay, ..start });
        }
        let segment = self
            .segments
            .partition_point(|s| s.name.base <= *offset)
            .saturating_sub(1);
        let base = self.segments.get(segment)?.name.base;
        Some(Start {
            segment,
            position: Position::ZERO,
            offset: base,
            replay,
        })
    }

    /// All batch headers tell what the producers did.
    pub(super) fn start_without_snapshot(&self) -> Start {
        let oldest = self.segments.first().map_or(Offset::ZERO, |s| s.name.base);
        Start {
            segment: 0,
            position: Position::ZERO,
            offset: oldest,
            replay: None,
        }
    }
}

/// Undamaged and of this partition.
fn read_snapshot(
    disk: &dyn Disk,
    dir: &Path,
    entries: &[DirEntry],
    options: &OpenOptions<'_>,
) -> Result<Option<(Offset, Facts)>, OpenError> {
    let bytes = read_if_listed(disk, dir, entries, (SNAPSHOT, SNAPSHOT_BYTES_MAX))?;
    let ours =
        |key: &SnapshotKey| key.topic_id == options.topic_id && key.partition == options.partition;
    let snapshot = bytes
        .as_deref()
        .and_then(snapshot::decode)
        .filter(|(key, _)| ours(key));
    if planted("snapshot-empty") {
        return Ok(snapshot.map(|(key, _)| (key.offset, Facts::default())));
    }
    Ok(snapshot.map(|(key, facts)| (key.offset, facts)))
}

/// Visible, hidden and deleted segments. What was dropped is no part of the log, whatever a crash has left of it (T1 of
/// `trim.rs`): neither its batches nor its names count.
fn sort_names(
    names: Vec<SegmentName>,
    dropped: Offset,
) -> (Vec<SegmentName>, Vec<SegmentName>, Vec<SegmentName>) {
    let (mut visible, mut hidden) = split_visible(names);
    let below = visible.iter().skip(1).take_while(|n| n.base <= dropped);
    let mut garbage: Vec<_> = visible.drain(..below.count()).collect();
    if let Some(first) = visible.first() {
        garbage.extend(hidden.extract_if(.., |h| h.base < first.base));
    }
    garbage.sort_unstable();
    (visible, hidden, garbage)
}

fn list(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<DirEntry>> {
    match disk.list(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// A file that is too large to be ours reads as no bytes, which no decoder takes.
fn read_if_listed(
    disk: &dyn Disk,
    dir: &Path,
    entries: &[DirEntry],
    (name, bytes_max): (&str, u64),
) -> io::Result<Option<Vec<u8>>> {
    if !entries.iter().any(|e| e.name == name) {
        return Ok(None);
    }
    match read_bounded(disk, &dir.join(name), bytes_max) {
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(Some(Vec::new())),
        other => other,
    }
}

fn read_manifest(
    disk: &dyn Disk,
    dir: &Path,
    entries: &[DirEntry],
) -> Result<Option<Manifest>, OpenError> {
    match read_if_listed(disk, dir, entries, (MANIFEST, STATE_BYTES_MAX))? {
        Some(bytes) => Manifest::decode(&bytes)
            .map(Some)
            .ok_or(OpenError::ManifestDamaged),
        None => Ok(None),
    }
}

/// Whether the batch at `batch_position` is the one that the checkpoint means; `whole`: check its own CRC as well.
fn names_its_batch(file: &dyn DiskFile, checkpoint: &Checkpoint, whole: bool) -> io::Result<bool> {
    let (start, len) = (
        checkpoint.batch_position,
        checkpoint.position.since(checkpoint.batch_position),
    );
    let mut bytes = [0; HEADER_BYTES];
    if read_full(file, &mut bytes, start.0)? < HEADER_BYTES {
        return Ok(false);
    }
    let header = BatchHeader::decode(&bytes);
    let agrees = header.magic == 2
        && header.total_len() == Some(len)
        && header.next_offset() == checkpoint.offset
        && header.crc == checkpoint.batch_crc;
    if !agrees || !whole {
        return Ok(agrees);
    }
    if start.0.saturating_add(len) > file.len()? {
        return Ok(false);
    }
    let mut batch = vec![0; narrow(len)];
    let read = read_full(file, &mut batch, start.0)?;
    Ok(wide(read) == len && crc_holds(&batch))
}
