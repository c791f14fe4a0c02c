//! Rewriting a run of segments without what nobody needs.
//!
//! Owns:     the verdict on each record and batch, and the new file.
//! Does not: touch the log or replace a file (`swap.rs` does).

use std::collections::{HashMap, HashSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::{Batch, BatchHeader};
use crate::disk::{Disk, DiskFile, read_full, write_all_at};
use crate::index_file::EntryBuilder;
use crate::live_index::IndexEntry;
use crate::marker::read_marker;
use crate::names::SegmentName;
use crate::records::{Limits, RawRecord, raw_records};
use crate::scan::{CHUNK_BYTES, Expect, Found, Scan, Step};
use crate::state_file::create_temp;
use crate::transactions::AbortedTxn;
use crate::txn_index::{Fold, SegmentTxns};
use crate::types::{LeaderEpoch, Offset, Position, ProducerId, Timestamp, narrow, wide};

use super::encode::{Made, emptied, filtered, gap};
use super::map::OffsetMap;
use super::{Stats, Throttle};

/// Written at once.
const WRITE_BYTES: usize = 1024 * 1024;

/// What decides about each record.
pub(super) struct Rules<'a> {
    pub(super) map: &'a OffsetMap,
    /// The map knows every key from the first dirty offset up to here.
    pub(super) map_end: Offset,
    pub(super) now: Timestamp,
    pub(super) delete_retention_ms: i64,
    /// Base offsets of batches that producers may still be asked about.
    pub(super) keep: &'a HashSet<Offset>,
    /// Transactions that were aborted, by producer, in order.
    pub(super) aborted: &'a HashMap<ProducerId, Vec<AbortedTxn>>,
    pub(super) limits: Limits,
}

/// What becomes of a batch.
enum Verdict {
    Keep,
    Replace(Made),
    Gone,
}

/// One segment of a run, as far as it is read.
pub(super) struct Source {
    pub(super) name: SegmentName,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) len: u64,
    pub(super) end: Offset,
}

/// A new file, synced, under a temporary name.
#[derive(Debug)]
pub(super) struct NewFile {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) bytes: Position,
    pub(super) entries: Vec<IndexEntry>,
    pub(super) txns: SegmentTxns,
}

/// Why a run was not rewritten.
#[derive(Debug)]
pub(super) enum CleanError {
    /// Bytes that should be a batch are none: the run stays as it is.
    Corrupt(SegmentName, Position),
    Io(io::Error),
}

impl From<io::Error> for CleanError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

pub(super) struct Cleaner<'a> {
    pub(super) rules: Rules<'a>,
    pub(super) stats: &'a mut Stats,
    /// A batch behind which tombstones stay, since nobody knows what it holds.
    pub(super) opaque: &'a mut bool,
    /// Transactions as the batches that stay tell of them.
    pub(super) fold: &'a mut Fold,
    pub(super) throttle: &'a mut dyn Throttle,
}

impl Cleaner<'_> {
    /// Rewrites the run; `None` if nothing would change.
    pub(super) fn run(
        &mut self,
        out: Output<'_>,
        sources: &[Source],
    ) -> Result<Option<NewFile>, CleanError> {
        let mut writing = Writing { out, gap: None };
        let done = self.rewrite(&mut writing, sources);
        let txns = self.fold.segment_end();
        let finished = done.and_then(|()| Ok(writing.out.finish(txns)?));
        finished.inspect_err(|_| writing.out.abandon())
    }

    fn rewrite(&mut self, to: &mut Writing<'_>, sources: &[Source]) -> Result<(), CleanError> {
        if sources.len() > 1 {
            to.out.begin()?;
        }
        for source in sources {
            self.segment(to, source)?;
            // No batch reaches over the end of an old segment: the new file may have to stop there (Z4).
            to.close_gap(source.end)?;
        }
        Ok(())
    }

    fn segment(&mut self, to: &mut Writing<'_>, source: &Source) -> Result<(), CleanError> {
        let expect = Expect {
            offset: source.name.base,
            end: source.end,
        };
        let mut scan =
            Scan::new(&*source.file, source.len, CHUNK_BYTES).from(Position::ZERO, expect);
        let mut epoch = LeaderEpoch::NONE;
        while scan.expect.offset < source.end {
            let corrupt = CleanError::Corrupt(source.name, scan.position);
            let Step::Batch(found) = scan.next_valid((epoch, source.name.epoch))? else {
                return Err(corrupt);
            };
            epoch = found.header.leader_epoch;
            let bytes = Bytes::copy_from_slice(scan.whole(&found)?.unwrap_or_default());
            self.stats.bytes_read += wide(bytes.len());
            self.throttle.took(wide(bytes.len()))?;
            let batch = Batch::parse_one(&bytes).map_err(|_| corrupt)?;
            let verdict = self.judge(&batch);
            self.note_transaction(&batch, &verdict);
            to.step(&found, &batch, verdict)?;
        }
        Ok(())
    }

    fn judge(&mut self, batch: &Batch) -> Verdict {
        let header = batch.header();
        if header.record_count == 0 {
            return if self.is_asked_for(header) {
                Verdict::Keep
            } else {
                Verdict::Gone
            };
        }
        match raw_records(batch, &self.rules.limits) {
            Ok(records) if header.attributes.is_control() => self.judge_marker(header, &records),
            Ok(records) => self.filter(header, &records),
            Err(_) => {
                self.stats.opaque_batches += 1;
                *self.opaque = true;
                Verdict::Keep
            }
        }
    }

    /// A marker stays as long as any batch of its transaction does, and then for its horizon: readers who have seen such
    /// a batch wait for it (KIP-534).
    fn judge_marker(&mut self, header: &BatchHeader, records: &[RawRecord]) -> Verdict {
        let needed = header.last_offset() >= self.rules.map_end
            || self.fold.is_open(header.producer_id)
            || self.is_asked_for(header);
        if needed {
            return Verdict::Keep;
        }
        if header.attributes.has_delete_horizon() {
            let ripe = header.base_timestamp <= self.rules.now && !*self.opaque;
            return if ripe { Verdict::Gone } else { Verdict::Keep };
        }
        let all: Vec<&RawRecord> = records.iter().collect();
        let made = filtered(header, &all, Some(self.rules.horizon_from_now()));
        made.map_or(Verdict::Keep, Verdict::Replace)
    }

    fn note_transaction(&mut self, batch: &Batch, verdict: &Verdict) {
        let header = batch.header();
        if !matches!(verdict, Verdict::Gone) {
            self.fold
                .batch(header, read_marker(header, batch.payload()));
        }
    }

    fn is_asked_for(&self, header: &BatchHeader) -> bool {
        header.has_producer() && self.rules.keep.contains(&header.base_offset)
    }

    fn filter(&mut self, header: &BatchHeader, records: &[RawRecord]) -> Verdict {
        let ripe = header.attributes.has_delete_horizon()
            && header.base_timestamp <= self.rules.now
            && !*self.opaque;
        let fate = (ripe, is_aborted(self.rules.aborted, header));
        let mut tombstones = false;
        let stays = |record: &&RawRecord| {
            let offset = header.base_offset.plus(i64::from(record.offset_delta));
            let stays = self.rules.stays(record, offset, fate);
            tombstones |= stays && record.is_tombstone;
            stays
        };
        let kept: Vec<&RawRecord> = records.iter().filter(stays).collect();
        let horizon = self.rules.horizon(header, tombstones);
        self.stats.records_removed += wide(records.len() - kept.len());
        if kept.len() == records.len() && horizon.is_none() {
            return Verdict::Keep;
        }
        let made = if !kept.is_empty() {
            filtered(header, &kept, horizon)
        } else if self.is_asked_for(header) {
            emptied(header)
        } else {
            return Verdict::Gone;
        };
        made.map_or(Verdict::Keep, Verdict::Replace)
    }
}

impl Rules<'_> {
    fn stays(&self, record: &RawRecord, offset: Offset, (ripe, aborted): (bool, bool)) -> bool {
        if offset >= self.map_end {
            return true;
        }
        if aborted {
            return false;
        }
        // Without a key it has no place in a compacted log, as in Kafka.
        let Some(key) = &record.key else {
            return false;
        };
        let latest = self.map.latest(key).is_none_or(|latest| latest <= offset);
        latest && !(record.is_tombstone && ripe)
    }

    /// When the tombstones of a batch may go: set once every older record of their keys is gone.
    fn horizon(&self, header: &BatchHeader, tombstones: bool) -> Option<Timestamp> {
        let wanted = tombstones
            && !header.attributes.has_delete_horizon()
            && header.last_offset() < self.map_end;
        wanted.then(|| self.horizon_from_now())
    }

    fn horizon_from_now(&self) -> Timestamp {
        Timestamp(self.now.0.saturating_add(self.delete_retention_ms))
    }
}

/// Whether a batch belongs to a transaction that was aborted.
pub(super) fn is_aborted(
    aborted: &HashMap<ProducerId, Vec<AbortedTxn>>,
    header: &BatchHeader,
) -> bool {
    let of_producer = header
        .attributes
        .is_transactional()
        .then(|| aborted.get(&header.producer_id))
        .flatten();
    let Some(all) = of_producer else { return false };
    let base = header.base_offset;
    let after = all.partition_point(|txn| txn.first_offset <= base);
    let last = after.checked_sub(1).and_then(|at| all.get(at));
    last.is_some_and(|txn| base <= txn.last_offset)
}

/// Removed batches in a row that no batch stands for yet.
struct Gap {
    base: Offset,
    epoch: LeaderEpoch,
    /// It is nothing but this batch, which stands for a gap already.
    only: Option<(Found, Bytes)>,
}

struct Writing<'a> {
    out: Output<'a>,
    gap: Option<Gap>,
}

impl Writing<'_> {
    fn step(&mut self, found: &Found, batch: &Batch, verdict: Verdict) -> io::Result<()> {
        let base = found.header.base_offset;
        match verdict {
            Verdict::Gone => self.widen_gap(found, batch),
            Verdict::Keep => {
                self.close_gap(base)?;
                self.out.keep(found, batch.bytes())
            }
            Verdict::Replace(made) => {
                self.close_gap(base)?;
                self.out.put(&made)
            }
        }
    }

    fn widen_gap(&mut self, found: &Found, batch: &Batch) -> io::Result<()> {
        let header = &found.header;
        let other_epoch = |gap: &Gap| gap.epoch != header.leader_epoch;
        if self.gap.as_ref().is_some_and(other_epoch) {
            self.close_gap(header.base_offset)?;
        }
        let is_gap = header.is_gap();
        match &mut self.gap {
            Some(gap) => gap.only = None,
            None => {
                self.gap = Some(Gap {
                    base: header.base_offset,
                    epoch: header.leader_epoch,
                    only: is_gap.then(|| (*found, batch.bytes().clone())),
                });
            }
        }
        Ok(())
    }

    fn close_gap(&mut self, next: Offset) -> io::Result<()> {
        let Some(open) = self.gap.take() else {
            return Ok(());
        };
        if let Some((found, bytes)) = open.only {
            return self.out.keep(&found, &bytes);
        }
        let made = gap(open.base, next, open.epoch).ok_or(io::ErrorKind::InvalidData)?;
        self.out.put(&made)
    }
}

/// The new file. It is not made before it differs from the old one.
pub(super) struct Output<'a> {
    disk: &'a dyn Disk,
    dir: PathBuf,
    /// The segment whose beginning is the same so far.
    first: &'a Source,
    same_up_to: Position,
    /// Under a temporary name of its own, until somebody takes it.
    file: Option<(PathBuf, Arc<dyn DiskFile>)>,
    buffer: Vec<u8>,
    /// Where the buffer goes.
    at: Position,
    builder: EntryBuilder,
}

impl<'a> Output<'a> {
    pub(super) fn new(disk: &'a dyn Disk, dir: &Path, first: &'a Source, interval: u64) -> Self {
        let base = first.name.base;
        Self {
            disk,
            dir: dir.to_owned(),
            first,
            same_up_to: Position::ZERO,
            file: None,
            buffer: Vec::new(),
            at: Position::ZERO,
            builder: EntryBuilder::new(base, interval, Position::ZERO),
        }
    }

    fn keep(&mut self, found: &Found, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            self.builder.add(&found.header, found.position);
            self.same_up_to = found.end;
            return Ok(());
        }
        self.builder.add(&found.header, self.end());
        self.append(bytes)
    }

    fn put(&mut self, made: &Made) -> io::Result<()> {
        self.begin()?;
        self.builder.add(&made.header, self.end());
        self.append(&made.header.encode())?;
        self.append(&made.payload)
    }

    fn end(&self) -> Position {
        self.at.plus(wide(self.buffer.len()))
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some((_, file)) = &self.file {
            let mut slices = [IoSlice::new(&self.buffer)];
            write_all_at(&**file, &mut slices, self.at.0).map_err(|ended| ended.error)?;
            self.at = self.end();
            self.buffer.clear();
        }
        Ok(())
    }

    /// From here on the file is another one: what was the same is copied.
    fn begin(&mut self) -> io::Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        self.file = Some(create_temp(self.disk, &self.dir)?);
        let mut from = 0;
        let mut chunk = vec![0; WRITE_BYTES];
        while from < self.same_up_to.0 {
            let len = narrow(wide(WRITE_BYTES).min(self.same_up_to.0 - from));
            if read_full(&*self.first.file, &mut chunk[..len], from)? < len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.append(&chunk[..len])?;
            from = from.saturating_add(wide(len));
        }
        Ok(())
    }

    fn finish(&mut self, txns: SegmentTxns) -> io::Result<Option<NewFile>> {
        self.flush()?;
        let Some((_, file)) = &self.file else {
            return Ok(None);
        };
        file.sync_data()?;
        let base = self.first.name.base;
        let none = EntryBuilder::new(base, 0, Position::ZERO);
        let builder = std::mem::replace(&mut self.builder, none);
        let taken = self.file.take();
        Ok(taken.map(|(path, file)| NewFile {
            path,
            file,
            bytes: self.at,
            entries: builder.finish(),
            txns,
        }))
    }

    fn abandon(&mut self) {
        if let Some((path, _)) = self.file.take() {
            // What stays is removed before the first append after the next start.
            drop(self.disk.remove_file(&path));
        }
    }
}
