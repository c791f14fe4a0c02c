//! Bringing a failed log back without a restart (DESIGN 5).
//!
//! Owns:     the rewriting of the tail that is not known to be durable, and what the log is afterwards.
//! Does not: decide when; whoever owns the log probes its directory first. Never syncs the old file again (D4), never
//!           cuts it (D5): the new file's epoch hides its tail.
//! The plan runs without the log; no append runs meanwhile, for a failed log takes none.
//!
//! # Invariants
//! L1. What is written is what was written before, batch by batch: the same offsets, the same leader epochs.
//! L2. The new file has a temporary name, which recovery ignores, until all of it is synced.
//! L3. A batch that is in memory is taken from there; only others are believed from the file, and only by their CRC.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::batch::{Batch, BatchHeader, HEADER_BYTES};
use crate::disk::{Disk, DiskFile, write_all_at};
use crate::log::{LastBatch, Log, LogState};
use crate::names::{SegmentName, TEMP_PREFIX};
use crate::plans::{LogSync, NewSegment, sync_and_tell};
use crate::scan::{CHUNK_BYTES, Expect, Scan, Step};
use crate::segment::Segment;
use crate::types::{LeaderEpoch, Offset, Position, wide};
use crate::view::EpochStart;
use seawall_planted::planted;

/// A written batch that is kept until a flush covers it.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) header: BatchHeader,
    pub(crate) batch: Batch,
}

/// How to rewrite the tail of a failed log.
#[derive(Debug)]
pub struct HealPlan {
    disk: Arc<dyn Disk>,
    dir: Arc<Path>,
    old: Arc<dyn DiskFile>,
    old_epoch: LeaderEpoch,
    /// Where the tail begins, and its place in the old file.
    from: (Offset, Position),
    upto: Offset,
    kept: VecDeque<Kept>,
    name: SegmentName,
}

/// A tail that is durable in a file of its own.
#[derive(Debug)]
pub struct Healed {
    new: NewSegment,
    batches: Vec<(BatchHeader, Position)>,
    end_position: Position,
    end: Offset,
}

/// What healing could not save: batches that nobody was promised on stable storage, and that the old file does not
/// give back whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealLoss {
    /// Records that the log has no more.
    pub records: u64,
}

impl HealPlan {
    /// Writes, syncs, renames, syncs the directory. On an error nothing has changed for readers or for a restart.
    pub fn run(&self) -> io::Result<Healed> {
        self.run_telling(&|_| {})
    }

    /// As `run`, and tells of the sync of the new file.
    pub fn run_telling(&self, told: &dyn Fn(LogSync)) -> io::Result<Healed> {
        let temp = self.temp();
        match self.disk.remove_file(&temp) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = self.disk.create_new(&temp)?;
        let (batches, end_position) = self.rewrite(&*file)?;
        if !planted("heal-not-synced") {
            sync_and_tell(&*file, told)?;
        }
        self.disk.rename(&temp, &self.dir.join(self.name.log()))?;
        if !planted("heal-dir-not-synced") {
            self.disk.sync_dir(&self.dir)?;
        }
        let end = batches.last().map_or(self.from.0, |(h, _)| h.next_offset());
        Ok(Healed {
            new: NewSegment {
                name: self.name,
                file,
            },
            batches,
            end_position,
            end,
        })
    }

    fn temp(&self) -> PathBuf {
        self.dir.join(format!("{TEMP_PREFIX}heal"))
    }

    fn rewrite(&self, to: &dyn DiskFile) -> io::Result<(Vec<(BatchHeader, Position)>, Position)> {
        let mut batches = Vec::new();
        let mut at = Position::ZERO;
        let mut source = Source::new(self)?;
        while let Some((header, payload)) = source.next()? {
            let bytes = header.encode();
            let mut slices = [IoSlice::new(&bytes), IoSlice::new(&payload)];
            write_all_at(to, &mut slices, at.0).map_err(|ended| ended.error)?;
            batches.push((header, at));
            at = at.plus(wide(HEADER_BYTES).saturating_add(wide(payload.len())));
        }
        Ok((batches, at))
    }
}

/// The batches of the tail, one after the other.
struct Source<'a> {
    plan: &'a HealPlan,
    kept: std::collections::vec_deque::Iter<'a, Kept>,
    next_kept: Option<&'a Kept>,
    old_len: u64,
    at: Position,
    offset: Offset,
}

impl<'a> Source<'a> {
    fn new(plan: &'a HealPlan) -> io::Result<Self> {
        let mut kept = plan.kept.iter();
        let next_kept = kept.next();
        Ok(Self {
            plan,
            kept,
            next_kept,
            old_len: plan.old.len()?,
            at: plan.from.1,
            offset: plan.from.0,
        })
    }

    /// L3. Ends at the tail's end, or where a batch cannot be had.
    fn next(&mut self) -> io::Result<Option<(BatchHeader, Vec<u8>)>> {
        if self.offset >= self.plan.upto {
            return Ok(None);
        }
        let found = match self
            .next_kept
            .filter(|k| k.header.base_offset == self.offset)
        {
            Some(kept) => {
                self.next_kept = self.kept.next();
                Some((kept.header, kept.batch.payload().to_vec()))
            }
            None => self.read_old()?,
        };
        if let Some((header, payload)) = &found {
            let bytes = wide(HEADER_BYTES).saturating_add(wide(payload.len()));
            self.at = self.at.plus(bytes);
            self.offset = header.next_offset();
        }
        Ok(found)
    }

    fn read_old(&self) -> io::Result<Option<(BatchHeader, Vec<u8>)>> {
        let expect = Expect {
            offset: self.offset,
            end: self.plan.upto,
        };
        let scan = Scan::new(&*self.plan.old, self.old_len, CHUNK_BYTES);
        let mut scan = scan.from(self.at, expect);
        let Step::Batch(found) = scan.next_valid((LeaderEpoch::NONE, self.plan.old_epoch))? else {
            return Ok(None);
        };
        let whole = scan.whole(&found)?;
        Ok(whole.map(|bytes| (found.header, bytes[HEADER_BYTES..].to_vec())))
    }
}

impl Log {
    /// How to heal a failed log; `None` if it is not Failed, or failed before it had anything of its own to rewrite (its
    /// recovery could not be synced: then a restart heals it).
    pub fn heal_plan(&self) -> Option<HealPlan> {
        let active = self
            .active
            .as_ref()
            .filter(|_| self.state == LogState::Failed)?;
        Some(HealPlan {
            disk: Arc::clone(&self.disk),
            dir: Arc::clone(&self.dir),
            old: Arc::clone(&active.file),
            old_epoch: self.epoch,
            from: (self.durable.end, active.synced),
            upto: self.end,
            kept: self.kept.clone(),
            name: SegmentName {
                epoch: self.epoch.next(),
                base: self.durable.end,
            },
        })
    }

    /// The tail is durable in its new file: the log goes on there, in a new epoch. Tells what was lost.
    pub fn heal_done(&mut self, healed: Healed) -> HealLoss {
        let lost = u64::try_from(self.end.since(healed.end)).unwrap_or(0);
        let epoch = healed.new.name.epoch;
        // What was aborted before is in the old file's part; whoever reads that finds it out.
        self.txns.begin_segment(healed.new.name.base);
        self.replace_active(healed.new);
        for (header, position) in &healed.batches {
            let end = position.plus(header.total_len().unwrap_or(0));
            self.advance(header, (*position, end), self.now);
        }
        (self.end, self.end_position) = (healed.end, healed.end_position);
        if lost > 0 {
            let reopened = self.txns.forget_from(healed.end);
            self.producers.forget_from(healed.end, &reopened);
        }
        if let Some(active) = self.active.as_mut() {
            active.synced = healed.end_position;
        }
        self.durable.healed(healed.end);
        self.kept.clear();
        self.begin_epoch(epoch);
        (self.state, self.changed) = (LogState::Ready, true);
        HealLoss { records: lost }
    }

    /// The old file's part below the tail is read as before; if it has none, the new file hides it wholly.
    fn replace_active(&mut self, new: NewSegment) {
        let mut segments = self.segments.to_vec();
        if let Some(old) = self.active.take() {
            segments.pop();
            if old.segment.name.base < new.name.base {
                // Without its index in memory, which knows the hidden tail too.
                let below = Arc::new(Segment::new(old.segment.name, &self.disk, &self.dir));
                segments.push(Arc::clone(&below));
                self.index_owed.push(below);
            } else {
                self.hidden.push(Arc::new(old.segment.with(None, None)));
            }
        }
        let active = self.activate(new);
        segments.push(Arc::clone(&active.segment));
        self.segments = segments.into();
        self.active = Some(active);
        self.last_batch = LastBatch::default();
    }

    fn begin_epoch(&mut self, epoch: LeaderEpoch) {
        let mut epochs = self.epochs.to_vec();
        epochs.retain(|e| e.start < self.end);
        epochs.push(EpochStart {
            epoch,
            start: self.end,
        });
        self.epoch = epoch;
        self.epochs = epochs.into();
    }
}
