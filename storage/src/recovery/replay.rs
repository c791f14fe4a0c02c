//! Scanning batches from a start to the end of the log, and replaying what their headers say of producers.
//!
//! Owns:     where the log ends and whether that end is a torn tail or corruption.
//! Does not: sync or write.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::disk::DiskFile;
use crate::index_file::EntryBuilder;
use crate::live_index::LiveIndex;
use crate::log::LastBatch;
use crate::marker::{MarkerValue, read_marker};
use crate::names::SegmentName;
use crate::producers::Producers;
use crate::resync::{BadPlace, find_valid};
use crate::scan::{BadBatch, CHUNK_BYTES, Expect, Found, Scan, Step};
use crate::segment::{LivePart, Segment};
use crate::transactions::{AbortedList, TxnStep};
use crate::txn_index::SegmentTxns;
use crate::types::{LeaderEpoch, Offset, Position, Timestamp};
use seawall_planted::planted;

use super::inventory::Inventory;
use super::{OpenError, OpenOptions, RecoverySummary};

/// Where a scan begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    /// Index of the segment.
    pub(super) segment: usize,
    pub(super) position: Position,
    pub(super) offset: Offset,
    /// The snapshot's offset: batches from there on are replayed. `None`: no snapshot, all are.
    pub(super) replay: Option<Offset>,
}

/// What a scan found.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    pub(super) end: Offset,
    pub(super) end_position: Position,
    pub(super) last_batch: LastBatch,
    pub(super) producers: Producers,
    /// Transactions that were aborted in the last segment.
    pub(super) aborted: AbortedList,
    /// What the batches of whole segments say of transactions, where all of it was seen.
    pub(super) txns: HashMap<SegmentName, Arc<SegmentTxns>>,
    /// The snapshot on disk is where they began.
    pub(super) with_snapshot: bool,
    pub(super) live: Option<LivePart>,
    /// Segments of which something was scanned.
    pub(super) scanned: Vec<SegmentName>,
    pub(super) summary: RecoverySummary,
}

impl Replayed {
    /// A log whose checkpoint is at its end, or that has no segments.
    pub(super) fn closed(inventory: &Inventory) -> Self {
        let mut found = Self {
            end: inventory.log_start(),
            ..Self::default()
        };
        if let Some(checkpoint) = inventory
            .checkpoint
            .filter(|_| !inventory.segments.is_empty())
        {
            found.end = checkpoint.offset;
            found.end_position = checkpoint.position;
            found.last_batch = LastBatch {
                base: checkpoint.offset,
                position: checkpoint.batch_position,
                crc: checkpoint.batch_crc,
            };
        }
        let fitting = inventory
            .snapshot
            .as_ref()
            .filter(|(offset, _)| *offset == found.end);
        found.with_snapshot = fitting.is_some();
        if let Some((_, facts)) = fitting {
            found.producers = facts.producers.clone();
            found.aborted = facts.aborted.clone();
        }
        found
    }
}

impl Replayed {
    /// Nothing scanned yet: the state that the snapshot and the checkpoint give.
    fn at(start: &Start, inventory: &Inventory) -> Self {
        let known = inventory
            .snapshot
            .as_ref()
            .filter(|_| start.replay.is_some());
        let checkpoint = inventory
            .checkpoint
            .filter(|c| c.position == start.position && c.offset == start.offset);
        let last_batch = checkpoint.map(|c| LastBatch {
            base: c.offset,
            position: c.batch_position,
            crc: c.batch_crc,
        });
        Self {
            end: start.offset,
            end_position: start.position,
            last_batch: last_batch.unwrap_or_default(),
            with_snapshot: known.is_some(),
            producers: known
                .map(|(_, facts)| facts.producers.clone())
                .unwrap_or_default(),
            ..Self::default()
        }
    }

    fn enter(&mut self, run: &SegmentRun<'_>) {
        (self.end, self.end_position) = (run.from_offset, run.from);
        if run.from == Position::ZERO {
            self.last_batch = LastBatch::default();
        }
    }

    fn accept(&mut self, batch: &Found) {
        let header = &batch.header;
        (self.end, self.end_position) = (header.next_offset(), batch.end);
        self.last_batch = LastBatch {
            base: header.base_offset,
            position: batch.position,
            crc: header.crc,
        };
        self.summary.scanned_bytes += batch.end.since(batch.position);
    }

    /// Records what a batch says of its producer and of transactions.
    fn apply(&mut self, header: &BatchHeader, marker: Option<MarkerValue>, now: Timestamp) {
        let applied = self.producers.apply(header, marker, now);
        if let Some(TxnStep::Ended(txn)) = applied.step
            && txn.aborted
        {
            self.aborted.push((&txn).into());
        }
    }
}

/// One run over the segments.
pub(super) struct Replay<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) options: &'a OpenOptions<'a>,
    /// Set when the last file could not be synced: nothing beyond this position is believed.
    pub(super) last_file_limit: Option<Position>,
}

/// One segment of a run.
struct SegmentRun<'a> {
    segment: &'a Segment,
    file: Arc<dyn DiskFile>,
    len: u64,
    from: Position,
    from_offset: Offset,
    /// The successor's base; `None` for the last segment.
    next_base: Option<Offset>,
}

impl Replay<'_> {
    /// `None`: the snapshot does not fit the log, so that the run has to be done without it.
    pub(super) fn run(&self, start: Start) -> Result<Option<Replayed>, OpenError> {
        let mut found = Replayed::at(&start, self.inventory);
        for index in start.segment..self.inventory.segments.len() {
            let run = self.segment_run(index, &start)?;
            if !self.scan_segment(&run, start.replay, &mut found)? {
                return Ok(None);
            }
        }
        let beyond = start.replay.is_some_and(|offset| offset > found.end);
        Ok((!beyond).then_some(found))
    }

    fn segment_run(&self, index: usize, start: &Start) -> Result<SegmentRun<'_>, OpenError> {
        let segment = &self.inventory.segments[index];
        let (from, from_offset) = if index == start.segment {
            (start.position, start.offset)
        } else {
            (Position::ZERO, segment.name.base)
        };
        let file = self.inventory.open(segment)?;
        let next_base = self.inventory.segments.get(index + 1).map(|s| s.name.base);
        let limit = self
            .last_file_limit
            .filter(|_| next_base.is_none())
            .map_or(u64::MAX, |p| p.0);
        let len = file.len()?.min(limit);
        Ok(SegmentRun {
            segment,
            file,
            len,
            from,
            from_offset,
            next_base,
        })
    }

    /// Scans one segment to its end. `false`: the snapshot's offset lies inside a batch, so it is not of this log.
    fn scan_segment(
        &self,
        run: &SegmentRun<'_>,
        replay: Option<Offset>,
        found: &mut Replayed,
    ) -> Result<bool, OpenError> {
        let interval = self.options.config.index_interval_bytes;
        let mut builder = EntryBuilder::new(run.segment.name.base, interval, run.from);
        found.enter(run);
        let seeded = self.aborted_before(run, replay);
        found.aborted = seeded.clone().unwrap_or_default();
        let Some(bad) = self.walk(run, replay, found, &mut builder)? else {
            return Ok(false);
        };
        self.judge_end(run, bad.err(), found)?;
        if found.end > run.from_offset {
            found.scanned.push(run.segment.name);
        }
        if seeded.is_some() {
            let txns = SegmentTxns {
                aborted: found.aborted.clone(),
                open_at_end: found.producers.open().collect(),
            };
            found.txns.insert(run.segment.name, Arc::new(txns));
        }
        found.live = live_part(run, builder);
        Ok(true)
    }

    /// The transactions that were aborted in a segment before the first batch of it that is replayed; `None` if the
    /// snapshot does not know.
    fn aborted_before(&self, run: &SegmentRun<'_>, replay: Option<Offset>) -> Option<AbortedList> {
        let base = run.segment.name.base;
        match (replay, &self.inventory.snapshot) {
            (Some(_), Some((_, facts))) if facts.segment == base => Some(facts.aborted.clone()),
            (Some(offset), _) if base < offset => None,
            _ => Some(AbortedList::default()),
        }
    }

    /// Takes valid batches until there is none; the inner error says why. `None`: the snapshot is not of this log.
    fn walk(
        &self,
        run: &SegmentRun<'_>,
        replay: Option<Offset>,
        found: &mut Replayed,
        builder: &mut EntryBuilder,
    ) -> Result<Option<Result<(), BadBatch>>, OpenError> {
        let sealed = run.next_base.filter(|_| !planted("seal-ignored"));
        let end = sealed.unwrap_or(Offset(i64::MAX));
        let expect = Expect {
            offset: run.from_offset,
            end,
        };
        let mut scan = Scan::new(&*run.file, run.len, CHUNK_BYTES).from(run.from, expect);
        let mut epoch = LeaderEpoch(0);
        loop {
            let batch = match scan.next_valid((epoch, run.segment.name.epoch))? {
                Step::Batch(batch) => batch,
                Step::End => return Ok(Some(Ok(()))),
                Step::Bad(why) => return Ok(Some(Err(why))),
            };
            let (base, next) = (batch.header.base_offset, batch.header.next_offset());
            if replay.is_some_and(|offset| base < offset && offset < next) {
                return Ok(None);
            }
            if replay.is_none_or(|offset| base >= offset) {
                let marker = marker_of(&mut scan, &batch)?;
                found.apply(&batch.header, marker, self.options.now);
            }
            epoch = batch.header.leader_epoch;
            builder.add(&batch.header, batch.position);
            found.accept(&batch);
            (self.options.progress)(batch.end.since(batch.position));
        }
    }

    /// A sealed segment must reach its successor's base; the last one may end in a torn tail.
    fn judge_end(
        &self,
        run: &SegmentRun<'_>,
        bad: Option<BadBatch>,
        found: &mut Replayed,
    ) -> Result<(), OpenError> {
        let corrupt = |why| OpenError::Corrupt {
            segment: run.segment.name,
            position: found.end_position,
            offset: found.end,
            why,
        };
        if let Some(base) = run.next_base {
            // Below the log start nothing is missed: deleted records need not have been durable.
            return if found.end == base
                || base <= self.inventory.log_start()
                || planted("middle-taken-for-tail")
            {
                Ok(())
            } else {
                Err(corrupt(bad.unwrap_or(BadBatch::Short)))
            };
        }
        let Some(why) = bad else { return Ok(()) };
        if planted("zero-tail-is-corruption") && why == BadBatch::Impossible {
            return Err(corrupt(why));
        }
        if self.options.recovered_this_boot && self.valid_batch_follows(run, found)? {
            return Err(corrupt(why));
        }
        found.summary.tail = Some(why);
        found.summary.tail_bytes = run.len.saturating_sub(found.end_position.0);
        Ok(())
    }

    /// Looks behind a bad place for a batch that could be a later one of this very log.
    fn valid_batch_follows(&self, run: &SegmentRun<'_>, found: &Replayed) -> io::Result<bool> {
        let bad = BadPlace {
            position: found.end_position,
            offset: found.end,
            epoch: run.segment.name.epoch,
        };
        Ok(find_valid(&*run.file, run.len, &bad)?.is_some())
    }
}

/// What a control batch says.
fn marker_of(scan: &mut Scan<'_>, batch: &Found) -> io::Result<Option<MarkerValue>> {
    if !batch.header.attributes.is_control() {
        return Ok(None);
    }
    let bytes = scan.whole(batch)?.unwrap_or_default();
    let payload = bytes.get(HEADER_BYTES..).unwrap_or_default();
    Ok(read_marker(&batch.header, payload))
}

/// What was scanned of a segment, as an index in memory.
fn live_part(run: &SegmentRun<'_>, builder: EntryBuilder) -> Option<LivePart> {
    let entries = builder.finish();
    let last = entries.last().copied()?;
    let index = LiveIndex::default();
    for entry in entries {
        index.push(entry);
    }
    Some(LivePart {
        index: Arc::new(index),
        from: run.from,
        from_offset: run.from_offset,
        last: Some(last),
    })
}
