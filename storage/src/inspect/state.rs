//! The state files of a partition: each by itself, and then against the log.
//!
//! Owns:     reading them, and what may be said of each once the log has been walked.
//! Does not: walk the log.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use crate::disk::Disk;
use crate::manifest::{Checkpoint, Manifest, STATE_BYTES_MAX};
use crate::names::{CHECKPOINT, MANIFEST, SNAPSHOT, SegmentName};
use crate::producers::PastBatch;
use crate::snapshot::{self, SNAPSHOT_BYTES_MAX};
use crate::state_file::read_bounded;
use crate::types::{Offset, Position, ProducerEpoch, ProducerId};

use super::InspectOptions;
use super::finding::{Finding, What};
use super::walk::SeenBatch;

/// Batches that the producer snapshot remembers, by base offset.
type Remembered = HashMap<Offset, (ProducerId, ProducerEpoch, PastBatch)>;

/// What the state files say, and how much of it the log has confirmed.
#[derive(Default)]
pub(super) struct States {
    pub(super) manifest: Option<Manifest>,
    pub(super) checkpoint: Option<Checkpoint>,
    checkpoint_confirmed: bool,
    snapshot_offset: Option<Offset>,
    remembered: Remembered,
    pub(super) files: u64,
    pub(super) found: Vec<Finding>,
}

enum Read<T> {
    Absent,
    Bad,
    Good(T),
}

impl States {
    pub(super) fn read(disk: &dyn Disk, dir: &Path, options: &InspectOptions<'_>) -> Self {
        let mut states = Self::default();
        states.manifest = states.take(
            MANIFEST,
            read(disk, &dir.join(MANIFEST), STATE_BYTES_MAX, Manifest::decode),
        );
        let checkpoint = read(
            disk,
            &dir.join(CHECKPOINT),
            STATE_BYTES_MAX,
            Checkpoint::decode,
        );
        if let Some(checkpoint) = states.take(CHECKPOINT, checkpoint) {
            states.take_checkpoint(checkpoint, options);
        }
        let snapshot = read(
            disk,
            &dir.join(SNAPSHOT),
            SNAPSHOT_BYTES_MAX,
            snapshot::decode,
        );
        if let Some((key, facts)) = states.take(SNAPSHOT, snapshot) {
            let ours = options.topic_id.is_none_or(|id| id == key.topic_id)
                && key.partition == options.partition;
            if !ours {
                states.foreign(SNAPSHOT);
                return states;
            }
            states.snapshot_offset = Some(key.offset);
            for (id, entry) in facts.producers.iter() {
                let batches = entry.batches().map(|b| (b.base, (id, entry.epoch, *b)));
                states.remembered.extend(batches);
            }
        }
        states
    }

    fn take_checkpoint(&mut self, checkpoint: Checkpoint, options: &InspectOptions<'_>) {
        let ours = options.topic_id.is_none_or(|id| id == checkpoint.topic_id)
            && checkpoint.partition == options.partition;
        if ours {
            self.checkpoint = Some(checkpoint);
            self.checkpoint_confirmed = checkpoint.position == Position::ZERO
                && checkpoint.offset == checkpoint.segment.base;
        } else {
            self.foreign(CHECKPOINT);
        }
    }

    fn foreign(&mut self, file: &str) {
        self.found
            .push(Finding::damage(file, What::OfAnotherPartition));
    }

    fn take<T>(&mut self, file: &str, read: io::Result<Read<T>>) -> Option<T> {
        self.files += u64::from(!matches!(read, Ok(Read::Absent)));
        let what = match read {
            Ok(Read::Good(value)) => return Some(value),
            Ok(Read::Absent) => return None,
            Ok(Read::Bad) => What::NotAsWritten,
            Err(error) => What::Io(error),
        };
        self.found.push(Finding::damage(file, what));
        None
    }

    /// The offset below which everything is known to be durable.
    pub(super) fn durable(&self) -> Offset {
        self.checkpoint.map_or(Offset::ZERO, |c| c.offset)
    }

    /// The first offset that may be read, as far as the manifest says.
    pub(super) fn log_start(&self) -> Offset {
        self.manifest.map_or(Offset::ZERO, |m| m.log_start)
    }

    /// A good batch of a visible segment.
    pub(super) fn batch(&mut self, segment: &SegmentName, batch: &SeenBatch) {
        let header = &batch.header;
        self.checkpoint_confirmed |= self.checkpoint.is_some_and(|c| {
            c.segment == *segment
                && c.batch_position == batch.position
                && c.position == batch.end
                && c.offset == header.next_offset()
                && c.batch_crc == header.crc
        });
        let same = |(id, epoch, past): &(ProducerId, ProducerEpoch, PastBatch)| {
            *id == header.producer_id
                && *epoch == header.producer_epoch
                && past.first_sequence == header.base_sequence
                && past.last_sequence == header.last_sequence()
                && past.last == header.last_offset()
        };
        if self.remembered.get(&header.base_offset).is_some_and(same) {
            self.remembered.remove(&header.base_offset);
        }
        if header.is_gap() {
            // Compacted away since the snapshot was made.
            let (from, upto) = (header.base_offset, header.next_offset());
            self.remembered
                .retain(|base, _| *base < from || *base >= upto);
        }
    }

    /// Where the durable prefix ends in a file that a newer epoch hides, only the offset counts.
    pub(super) fn visible(&mut self, segments: &[SegmentName]) {
        self.checkpoint_confirmed |= self
            .checkpoint
            .is_some_and(|c| !segments.contains(&c.segment));
    }

    /// After the walk over `[start, end)`; `whole`: no place of it was bad.
    pub(super) fn finish(mut self, start: Offset, end: Offset, whole: bool) -> Vec<Finding> {
        if let Some(checkpoint) = self.checkpoint {
            if checkpoint.offset > end && whole {
                let durable = checkpoint.offset;
                let what = What::EndsBelowCheckpoint { durable, end };
                self.found.push(about(CHECKPOINT, end, what));
            } else if !self.checkpoint_confirmed && whole {
                let what = What::CheckpointNamesNoBatch;
                self.found.push(about(CHECKPOINT, checkpoint.offset, what));
            }
        }
        if whole {
            self.finish_snapshot(start, end);
        }
        self.found
    }

    fn finish_snapshot(&mut self, start: Offset, end: Offset) {
        if let Some(offset) = self.snapshot_offset.filter(|offset| *offset > end) {
            let what = What::BeyondEnd { offset, end };
            self.found.push(about(SNAPSHOT, offset, what));
            return;
        }
        let first = self
            .remembered
            .values()
            .filter(|(_, _, past)| past.base >= start)
            .min_by_key(|(_, _, past)| past.base);
        if let Some((producer, _, past)) = first {
            let what = What::SnapshotBatch {
                producer: *producer,
            };
            let finding = about(SNAPSHOT, past.base, what);
            self.found.push(finding);
        }
    }
}

fn about(file: &str, offset: Offset, what: What) -> Finding {
    Finding {
        offset: Some(offset),
        ..Finding::damage(file, what)
    }
}

/// A file that is too large to be ours is bad.
fn read<T>(
    disk: &dyn Disk,
    path: &Path,
    bytes_max: u64,
    decode: impl Fn(&[u8]) -> Option<T>,
) -> io::Result<Read<T>> {
    match read_bounded(disk, path, bytes_max) {
        Ok(Some(bytes)) => Ok(decode(&bytes).map_or(Read::Bad, Read::Good)),
        Ok(None) => Ok(Read::Absent),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(Read::Bad),
        Err(e) => Err(e),
    }
}
