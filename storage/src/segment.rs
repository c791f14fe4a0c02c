//! One segment as readers see it.
//!
//! Owns:     where a segment's bytes and indexes are found: the writer's handle, or one from the bounded cache; what is
//!           known of its size and age.
//! Does not: write; know where the log ends (the view that asks says so).
//! Called from any thread.
//!
//! # Invariants
//! G1. A batch boundary never moves, so a remembered (offset, position) of one stays true.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::disk::{Disk, DiskFile};
use crate::index_file::{Covered, MaxTime, SealedIndex};
use crate::live_index::{IndexEntry, LiveIndex, pack, unpack};
use crate::names::SegmentName;
use crate::resources::{ReadBuffer, Resources, SegmentKey};
use crate::txn_index::{SegmentBytes, SegmentTxns};
use crate::types::{Offset, Position, ProducerId, Timestamp};

/// No batch boundary is remembered. A real one never has this offset.
const NO_HINT: u64 = u64::MAX;
/// Bytes between two entries of an index that a reader rebuilds in memory.
pub(crate) const REBUILD_INTERVAL_BYTES: u64 = 4096;

/// The part of a segment whose index is in memory because this process wrote or scanned it.
#[derive(Debug, Clone)]
pub(crate) struct LivePart {
    pub(crate) index: Arc<LiveIndex>,
    /// Where that part begins.
    pub(crate) from: Position,
    pub(crate) from_offset: Offset,
    /// Its last batch, once it does not grow any more.
    pub(crate) last: Option<IndexEntry>,
}

/// What is known of a segment that does not grow any more; shared by all values of it, so that its count tells whether
/// anybody can still open the file.
#[derive(Debug)]
pub(crate) struct Facts {
    key: SegmentKey,
    bytes: AtomicU64,
    last_append_ms: AtomicI64,
    max_time: OnceLock<Option<MaxTime>>,
}

/// A number that is not known yet.
const UNKNOWN_BYTES: u64 = u64::MAX;
const UNKNOWN_MS: i64 = i64::MIN;

impl Facts {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            key: SegmentKey::next(),
            bytes: AtomicU64::new(UNKNOWN_BYTES),
            last_append_ms: AtomicI64::new(UNKNOWN_MS),
            max_time: OnceLock::new(),
        })
    }

    /// This process wrote the segment and closes it.
    pub(crate) fn close(&self, bytes: Position, last_append: Timestamp, max: Option<MaxTime>) {
        self.bytes.store(bytes.0, Ordering::Relaxed);
        self.last_append_ms.store(last_append.0, Ordering::Relaxed);
        // Known already only if it was closed before, with the same content.
        let _ = self.max_time.set(max);
    }
}

/// A segment. Sealing it, or writing its index files, makes a new value with the same facts.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) name: SegmentName,
    pub(crate) facts: Arc<Facts>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: Arc<Path>,
    /// The writer's handle while the segment is active.
    pub(crate) writer: Option<Arc<OpenSegment>>,
    pub(crate) live: Option<LivePart>,
    /// What its batches say of transactions, while that is in memory; the active segment's is the log's.
    pub(crate) txns: Option<Arc<SegmentTxns>>,
    hint: AtomicU64,
}

/// An open handle of a segment and its lazily loaded indexes.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub(crate) file: Arc<dyn DiskFile>,
    /// Bytes of the file when it was opened; of no meaning for the active segment.
    pub(crate) len: u64,
    index: OnceLock<SealedIndex>,
    rebuilt: OnceLock<SealedIndex>,
    txns: OnceLock<Arc<SegmentTxns>>,
    /// Every batch below this position had its CRC checked through this handle, and none is a gap.
    checked: AtomicU64,
}

impl OpenSegment {
    pub(crate) fn new(file: Arc<dyn DiskFile>, len: u64) -> Self {
        Self {
            file,
            len,
            index: OnceLock::new(),
            rebuilt: OnceLock::new(),
            txns: OnceLock::new(),
            checked: AtomicU64::new(0),
        }
    }

    /// Whether what ends at `end` was checked already: a byte that is served a hundred times need not be checked a hundred
    /// times, and a handle does not live long where nobody reads.
    pub(crate) fn is_checked(&self, end: Position) -> bool {
        end.0 <= self.checked.load(Ordering::Relaxed)
    }

    /// The batches in `from..to` were checked.
    pub(crate) fn note_checked(&self, from: Position, to: Position) {
        if self.is_checked(from) {
            self.checked.fetch_max(to.0, Ordering::Relaxed);
        }
    }
}

/// A known batch boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) offset: Offset,
    pub(crate) position: Position,
    /// It comes from an index file, so the batch there may not be what it says.
    pub(crate) doubtful: bool,
}

impl Segment {
    pub(crate) fn new(name: SegmentName, disk: &Arc<dyn Disk>, dir: &Arc<Path>) -> Self {
        Self {
            name,
            facts: Facts::new(),
            disk: Arc::clone(disk),
            dir: Arc::clone(dir),
            writer: None,
            live: None,
            txns: None,
            hint: AtomicU64::new(NO_HINT),
        }
    }

    /// The same segment with another writer and live part.
    pub(crate) fn with(&self, writer: Option<Arc<OpenSegment>>, live: Option<LivePart>) -> Self {
        Self {
            name: self.name,
            facts: Arc::clone(&self.facts),
            disk: Arc::clone(&self.disk),
            dir: Arc::clone(&self.dir),
            writer,
            live,
            txns: self.txns.clone(),
            hint: AtomicU64::new(self.hint.load(Ordering::Relaxed)),
        }
    }

    /// The same segment with what is known of its transactions.
    #[must_use]
    pub(crate) fn with_txns(self, txns: Option<Arc<SegmentTxns>>) -> Self {
        Self { txns, ..self }
    }

    /// The writer's handle, a cached one, or a fresh one.
    pub(crate) fn open(&self, resources: &Resources) -> io::Result<Arc<OpenSegment>> {
        if let Some(writer) = &self.writer {
            return Ok(Arc::clone(writer));
        }
        if let Some(open) = resources.handle(self.facts.key) {
            return Ok(open);
        }
        let file = self.disk.open_read(&self.dir.join(self.name.log()))?;
        let len = file.len()?;
        let open = Arc::new(OpenSegment::new(file, len));
        resources.keep_handle(self.facts.key, Arc::clone(&open));
        Ok(open)
    }

    /// Whether nobody but the holder of this value can have the file open or open it; closes an idle handle.
    pub(crate) fn is_let_go(self: &Arc<Self>, resources: &Resources) -> bool {
        let alone = Arc::strong_count(self) == 1 && Arc::strong_count(&self.facts) == 1;
        if alone {
            self.let_go(resources);
        }
        alone
    }

    /// Closes an idle handle.
    pub(crate) fn let_go(&self, resources: &Resources) {
        resources.forget_handle(self.facts.key);
    }

    /// Bytes of the file of a segment that does not grow any more.
    pub(crate) fn bytes(&self) -> io::Result<u64> {
        let known = self.facts.bytes.load(Ordering::Relaxed);
        if known != UNKNOWN_BYTES {
            return Ok(known);
        }
        let len = self.disk.file_len(&self.dir.join(self.name.log()))?;
        self.facts.bytes.store(len, Ordering::Relaxed);
        Ok(len)
    }

    /// From when the age of a segment counts that does not grow any more: its largest timestamp, but never later than its
    /// last append. Where this process did not write it, the file system tells of that one.
    pub(crate) fn newest(&self, resources: &Arc<Resources>, end: Offset) -> io::Result<Timestamp> {
        let max = match self.facts.max_time.get() {
            Some(max) => *max,
            None => {
                let open = self.open(resources)?;
                let reach = Reach {
                    open: &open,
                    resources,
                    end,
                    bytes_max: open.len,
                };
                let max = self.max_time(&reach, None)?;
                *self.facts.max_time.get_or_init(|| max)
            }
        };
        Ok(newest_of(max.map(|m| m.time), self.last_append()?))
    }

    pub(crate) fn last_append(&self) -> io::Result<Timestamp> {
        let known = self.facts.last_append_ms.load(Ordering::Relaxed);
        if known != UNKNOWN_MS {
            return Ok(Timestamp(known));
        }
        let modified = self.disk.modified(&self.dir.join(self.name.log()))?;
        let facts = &self.facts.last_append_ms;
        facts.store(modified.0, Ordering::Relaxed);
        Ok(modified)
    }

    pub(crate) fn relative(&self, offset: Offset) -> u32 {
        u32::try_from(offset.since(self.name.base)).unwrap_or(u32::MAX)
    }

    /// The nearest known batch boundary at or below `offset`.
    pub(crate) fn floor(&self, at: &Reach<'_>, offset: Offset) -> io::Result<Floor> {
        let relative = self.relative(offset);
        let hinted = self.hinted(relative);
        if hinted.is_some_and(|h| h.offset == offset) {
            return Ok(hinted.unwrap_or(self.first()));
        }
        let indexed = match &self.live {
            Some(live) if offset >= live.from_offset => self.live_floor(live, relative),
            _ => self.sealed_floor(at, relative)?,
        };
        Ok(match hinted {
            Some(hint) if hint.offset >= indexed.offset => hint,
            _ => indexed,
        })
    }

    /// The last batch boundary that an index knows at or below `offset` and at or before `position`.
    pub(crate) fn floor_within(
        &self,
        at: &Reach<'_>,
        offset: Offset,
        position: Position,
    ) -> io::Result<Option<Floor>> {
        let relative = self.relative(offset);
        let position = u32::try_from(position.0).unwrap_or(u32::MAX);
        let live = self.live.as_ref();
        if let Some(entry) = live.and_then(|live| live.index.floor(relative, position)) {
            return Ok(Some(self.place((entry.offset, entry.position), false)));
        }
        if !self.has_sealed_part() {
            return Ok(None);
        }
        let entry = self.sealed_index(at)?.floor(relative, position);
        Ok(entry.map(|entry| self.place((entry.offset, entry.position), true)))
    }

    fn first(&self) -> Floor {
        Floor {
            offset: self.name.base,
            position: Position::ZERO,
            doubtful: false,
        }
    }

    fn place(&self, (offset, position): (u32, u32), doubtful: bool) -> Floor {
        let offset = self.name.base.plus(i64::from(offset));
        Floor {
            offset,
            position: Position(u64::from(position)),
            doubtful,
        }
    }

    fn live_floor(&self, live: &LivePart, relative: u32) -> Floor {
        match live.index.floor_offset(relative) {
            Some(entry) => self.place((entry.offset, entry.position), false),
            None => Floor {
                offset: live.from_offset,
                position: live.from,
                doubtful: false,
            },
        }
    }

    fn sealed_floor(&self, at: &Reach<'_>, relative: u32) -> io::Result<Floor> {
        let entry = self.sealed_index(at)?.floor_offset(relative);
        Ok(entry.map_or(self.first(), |e| self.place((e.offset, e.position), true)))
    }

    fn hinted(&self, relative: u32) -> Option<Floor> {
        let hint = self.hint.load(Ordering::Relaxed);
        let place = unpack(hint);
        (hint != NO_HINT && place.0 <= relative).then(|| self.place(place, false))
    }

    /// Remembers where a reader stopped: a consumer that keeps up needs no search (G1).
    pub(crate) fn remember(&self, offset: Offset, position: Position) {
        if let Ok(position) = u32::try_from(position.0) {
            self.hint
                .store(pack(self.relative(offset), position), Ordering::Relaxed);
        }
    }

    /// The index of the part that files cover, loaded at the first need.
    fn sealed_index<'a>(&self, at: &Reach<'a>) -> io::Result<&'a SealedIndex> {
        if let Some(index) = at.open.rebuilt.get().or(at.open.index.get()) {
            return Ok(index);
        }
        let covered = self.covered(at);
        let index = SealedIndex::load(&*self.disk, &self.dir, &*at.open.file, &covered)?;
        if index.rebuilt {
            at.resources.indexes_rebuilt.fetch_add(1, Ordering::Relaxed);
        }
        Ok(at.open.index.get_or_init(|| index))
    }

    /// The files looked right and were not: from now on the index is what the segment itself says.
    pub(crate) fn distrust_index(&self, at: &Reach<'_>) -> io::Result<()> {
        if at.open.rebuilt.get().is_none() {
            let index = SealedIndex::rebuild(&*at.open.file, &self.covered(at))?;
            if at.open.rebuilt.set(index).is_ok() {
                at.resources.indexes_rebuilt.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// What is known of its transactions without reading its batches: from memory, or from the file.
    pub(crate) fn known_txns(
        &self,
        open: &OpenSegment,
        end: Offset,
    ) -> io::Result<Option<Arc<SegmentTxns>>> {
        if let Some(txns) = self.txns.as_ref().or(open.txns.get()) {
            return Ok(Some(Arc::clone(txns)));
        }
        let loaded = SegmentTxns::load(&*self.disk, &self.dir, &self.name, end)?;
        Ok(loaded.map(|txns| Arc::clone(open.txns.get_or_init(|| Arc::new(txns)))))
    }

    /// The same from its batches. `before`: what was open at its start.
    pub(crate) fn rebuild_txns(
        &self,
        at: &Reach<'_>,
        before: &[(ProducerId, Offset)],
    ) -> io::Result<Arc<SegmentTxns>> {
        let bytes = SegmentBytes {
            base: self.name.base,
            end: at.end,
            bytes_max: at.bytes_max,
        };
        let txns = SegmentTxns::rebuild(&*at.open.file, &bytes, before)?;
        at.resources.indexes_rebuilt.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::clone(at.open.txns.get_or_init(|| Arc::new(txns))))
    }

    fn covered(&self, at: &Reach<'_>) -> Covered {
        let live = self.live.as_ref();
        Covered {
            name: self.name,
            end: live.map_or(at.end, |l| l.from_offset),
            bytes_max: live.map_or(at.bytes_max, |l| l.from.0),
            interval: REBUILD_INTERVAL_BYTES,
        }
    }

    /// Whether some part of the segment is covered by index files and not by memory.
    fn has_sealed_part(&self) -> bool {
        self.live
            .as_ref()
            .is_none_or(|live| live.from > Position::ZERO)
    }

    /// The largest timestamp. `growing` is that of the live part while the segment is active.
    pub(crate) fn max_time(
        &self,
        at: &Reach<'_>,
        growing: Option<MaxTime>,
    ) -> io::Result<Option<MaxTime>> {
        let sealed = if self.has_sealed_part() {
            self.sealed_index(at)?.max_time()
        } else {
            None
        };
        let live = self
            .live
            .as_ref()
            .and_then(|live| live.last)
            .map(|e| e.max())
            .or(growing);
        Ok(MaxTime::later(sealed, live))
    }

    /// An offset before which no batch has a timestamp of `time` or later.
    pub(crate) fn before_time(&self, at: &Reach<'_>, time: Timestamp) -> io::Result<Offset> {
        let sealed_max = if self.has_sealed_part() {
            self.sealed_index(at)?.max_time()
        } else {
            None
        };
        let relative = match &self.live {
            Some(live) if sealed_max.is_none_or(|max| max.time < time) => {
                let found = live.index.before_time(time).map(|e| e.offset);
                Some(found.unwrap_or(self.relative(live.from_offset)))
            }
            _ => self.sealed_index(at)?.before_time(time).map(|e| e.offset),
        };
        Ok(self.name.base.plus(i64::from(relative.unwrap_or(0))))
    }
}

/// From when an age counts: a record without a date is as old as its append, one that is dated ahead too.
pub(crate) fn newest_of(max: Option<Timestamp>, last_append: Timestamp) -> Timestamp {
    max.filter(|max| *max >= Timestamp(0))
        .map_or(last_append, |max| max.min(last_append))
}

/// How far a look-up in a segment may go, and through which handle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach<'a> {
    pub(crate) open: &'a OpenSegment,
    pub(crate) resources: &'a Arc<Resources>,
    /// The offset at which the segment ends for this reader.
    pub(crate) end: Offset,
    /// Bytes that may be read.
    pub(crate) bytes_max: u64,
}

impl Reach<'_> {
    pub(crate) fn open_buffer(&self, len: usize) -> ReadBuffer {
        self.resources.buffer(len)
    }
}
