//! An immutable picture of a log for readers.
//!
//! Owns:     reading whole batches from the right place, and questions about epochs.
//! Does not: lock, know the high watermark (the caller passes what may be seen), decode records.
//! Called from any thread; the log's owner publishes a new view after each change.
//!
//! # Invariants
//! V1. Bytes below `end` never change (D3), so a view stays true for ever; a newer one only shows more.
//! V2. What is returned is whole batches in offset order, none of them at or beyond the next segment's base (D5).

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::disk::read_full;
use crate::index_file::MaxTime;
use crate::names::SegmentName;
use crate::producers::MarkerRound;
use crate::resources::{ReadBuffer, Resources};
use crate::retention::ActiveAge;
use crate::scan::{Expect, crc_holds};
use crate::segment::{Floor, OpenSegment, Reach, Segment};
use crate::transactions::TxnView;
use crate::types::{LeaderEpoch, Offset, Position, narrow, wide};

/// Read at least this much: a batch header is worth no system call of its own.
const READ_MIN: u64 = 4096;
/// Added when the walk has to begin before the wanted offset.
const WALK_BYTES: u64 = 16 * 1024;

/// What to read.
#[derive(Debug, Clone, Copy)]
pub struct ReadSpec {
    /// The batch that holds this offset comes first, whole.
    pub from: Offset,
    /// Only batches that end at or below this offset: the high watermark or the last stable offset.
    pub upto: Offset,
    /// Bytes at most.
    pub max_bytes: usize,
    /// The first batch comes even if it is larger (KIP-74).
    pub at_least_one: bool,
    /// Empty batches that stand for what compaction removed come too. Kafka sends none, and clients exist that stumble over
    /// them: so they are left out, unless there is nothing else up to `upto` and the reader would never reach its end.
    pub gaps: bool,
    /// Check the CRC of each batch, once for every open file; a bad first one is `Corrupt`, a later one ends the answer
    /// before it.
    pub check_crc: bool,
}

/// Whole batches.
#[derive(Debug, Clone)]
pub struct ReadBatches {
    /// Their bytes; empty when nothing lies between `from` and `upto` or the first batch is too large.
    pub bytes: Bytes,
    /// Offset of the first batch, or `from`.
    pub base: Offset,
    /// Offset after the last batch, or `from`.
    pub next: Offset,
}

/// Why a read gave nothing. Nothing was changed.
#[derive(Debug)]
pub enum ReadError {
    /// The reader's fault.
    OutOfRange {
        /// First offset that may be read.
        start: Offset,
        /// Log end.
        end: Offset,
    },
    /// The disk's fault: bytes below the log end are not what was written. The rest of the log works.
    Corrupt {
        /// Which segment.
        segment: SegmentName,
        /// Where in its file.
        position: Position,
        /// The offset that should be there.
        offset: Offset,
    },
    /// The disk's fault: the call failed.
    Io(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { start, end } => write!(f, "offset outside of {start}..{end}"),
            Self::Corrupt {
                segment,
                position,
                offset,
            } => {
                write!(
                    f,
                    "corrupt batch at byte {position} of segment {segment}, expected offset {offset}"
                )
            }
            Self::Io(e) => write!(f, "read failed: {e}"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// Where a leader epoch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Its first offset.
    pub start: Offset,
}

/// The picture. Making one costs a few reference counts.
#[derive(Debug, Clone)]
pub struct ReadView {
    pub(crate) segments: Arc<[Arc<Segment>]>,
    pub(crate) epochs: Arc<[EpochStart]>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) start: Offset,
    pub(crate) end: Offset,
    pub(crate) end_position: Position,
    pub(crate) growing_max: Option<MaxTime>,
    pub(crate) txns: TxnView,
    pub(crate) round: MarkerRound,
    /// Whether the last segment grows: then `txns` knows what was aborted in it.
    pub(crate) growing: bool,
    pub(crate) active: Option<ActiveAge>,
}

impl ReadView {
    /// The first offset that may be read.
    pub fn start_offset(&self) -> Offset {
        self.start
    }

    /// Where the last segment begins, the only one that grows.
    pub fn last_base(&self) -> Offset {
        self.segments.last().map_or(self.start, |s| s.name.base)
    }

    /// The log end: the offset of the next record.
    pub fn end_offset(&self) -> Offset {
        self.end
    }

    /// The epoch in which this log appends.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.epochs.last().map_or(LeaderEpoch::NONE, |e| e.epoch)
    }

    /// The epoch of the record at `offset`, or in which the next one would be appended.
    pub fn epoch_of(&self, offset: Offset) -> LeaderEpoch {
        let after = self.epochs.partition_point(|e| e.start <= offset);
        let found = after
            .checked_sub(1)
            .and_then(|i| self.epochs.get(i))
            .or(self.epochs.first());
        found.map_or(LeaderEpoch::NONE, |e| e.epoch)
    }

    /// Where `epoch` ends: the largest known epoch not above it, and the start of the next one (or the log end).
    /// `None` for an epoch newer than this log's (KIP-320).
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        if epoch == self.leader_epoch() {
            return Some((epoch, self.end));
        }
        let after = self.epochs.partition_point(|e| e.epoch <= epoch);
        let next = self.epochs.get(after)?;
        let floor = after.checked_sub(1).and_then(|i| self.epochs.get(i));
        Some((floor.map_or(epoch, |e| e.epoch), next.start))
    }

    /// Where reading committed records ends when everything below `visible` may be seen.
    pub fn last_stable_offset(&self, visible: Offset) -> Offset {
        self.txns.stable(visible.min(self.end)).max(self.start)
    }

    /// Markers seen so far; look at it before a coordinator is asked about a batch (`TxnOrigin`).
    pub fn marker_round(&self) -> MarkerRound {
        self.round
    }

    /// Where the oldest transaction begins that no marker has ended.
    pub fn first_open_offset(&self) -> Option<Offset> {
        self.txns.first_open
    }

    /// Bytes of all segment files that are read. Asks the file system once for each that this process did not write.
    pub fn size_bytes(&self) -> io::Result<u64> {
        let mut sum = self.end_position.0;
        for segment in self.sealed() {
            sum = sum.saturating_add(segment.bytes()?);
        }
        Ok(sum)
    }

    /// The names of the files that hold the batches of all segments but the last.
    pub fn sealed_files(&self) -> Vec<String> {
        self.sealed().iter().map(|s| s.name.log()).collect()
    }

    /// The name of the file of the last segment, and how many of its bytes belong to this view: those stay as they are.
    pub fn last_file(&self) -> Option<(String, Position)> {
        let last = self.segments.last()?;
        Some((last.name.log(), self.end_position))
    }

    /// All segments but the last.
    pub(crate) fn sealed(&self) -> &[Arc<Segment>] {
        self.segments.split_last().map_or(&[], |(_, sealed)| sealed)
    }

    /// Reads whole batches of one segment, beginning with the one that holds `from`.
    pub fn read(&self, spec: &ReadSpec) -> Result<ReadBatches, ReadError> {
        if spec.from < self.start || spec.from > self.end {
            return Err(ReadError::OutOfRange {
                start: self.start,
                end: self.end,
            });
        }
        if spec.max_bytes == 0 && !spec.at_least_one {
            return Ok(empty(spec.from));
        }
        let found = self.read_between(spec)?;
        // Without `at_least_one` the first batch may only have been too large.
        let only_gaps = found.bytes.is_empty() && spec.at_least_one;
        if only_gaps && !spec.gaps && spec.from < spec.upto.min(self.end) {
            return self.read_between(&ReadSpec {
                gaps: true,
                ..*spec
            });
        }
        Ok(found)
    }

    fn read_between(&self, spec: &ReadSpec) -> Result<ReadBatches, ReadError> {
        let upto = spec.upto.min(self.end);
        let mut from = spec.from;
        let mut index = self.segment_of(from);
        while from < upto {
            let Some(part) = index.and_then(|i| self.part(i)) else {
                break;
            };
            let open = part.segment.open(&self.resources)?;
            let got = Reading {
                part: &part,
                reach: self.reach(&part, &open),
                spec: ReadSpec {
                    from,
                    upto,
                    ..*spec
                },
            }
            .run()?;
            if let Some(batches) = got {
                return Ok(batches);
            }
            // Everything from `from` to the end of this segment was compacted away: the next one answers.
            from = part.end;
            index = index.map(|i| i + 1);
        }
        Ok(empty(spec.from))
    }

    pub(crate) fn segment_of(&self, offset: Offset) -> Option<usize> {
        self.segments
            .partition_point(|s| s.name.base <= offset)
            .checked_sub(1)
    }

    pub(crate) fn part(&self, index: usize) -> Option<Part<'_>> {
        let segment = self.segments.get(index)?;
        Some(match self.segments.get(index + 1) {
            Some(next) => Part {
                segment,
                end: next.name.base,
                bytes: None,
            },
            None => Part {
                segment,
                end: self.end,
                bytes: Some(self.end_position.0),
            },
        })
    }

    pub(crate) fn reach<'a>(&'a self, part: &Part<'_>, open: &'a OpenSegment) -> Reach<'a> {
        let bytes_max = part.bytes.unwrap_or(open.len);
        Reach {
            open,
            resources: &self.resources,
            end: part.end,
            bytes_max,
        }
    }
}

fn empty(from: Offset) -> ReadBatches {
    ReadBatches {
        bytes: Bytes::new(),
        base: from,
        next: from,
    }
}

/// A segment and where it ends in a view.
pub(crate) struct Part<'a> {
    pub(crate) segment: &'a Arc<Segment>,
    pub(crate) end: Offset,
    /// Known for the last segment only: a sealed file may have a hidden tail.
    pub(crate) bytes: Option<u64>,
}

/// One read in one segment.
struct Reading<'a> {
    part: &'a Part<'a>,
    reach: Reach<'a>,
    spec: ReadSpec,
}

/// Stretches of a window that go out: one, where nothing in between was left out.
struct Taken {
    from: usize,
    before: Vec<std::ops::Range<usize>>,
}

impl Taken {
    fn from(start: usize) -> Self {
        Self {
            from: start,
            before: Vec::new(),
        }
    }

    /// The batch at `at` does not go out.
    fn leave_out(&mut self, at: usize, len: usize) {
        if at > self.from {
            self.before.push(self.from..at);
        }
        self.from = at + len;
    }

    fn bytes(&self, end: usize) -> usize {
        self.before
            .iter()
            .map(ExactSizeIterator::len)
            .sum::<usize>()
            + (end - self.from)
    }

    fn cut(mut self, window: &Bytes, end: usize) -> Bytes {
        if end > self.from {
            self.before.push(self.from..end);
        }
        match self.before.as_slice() {
            [] => Bytes::new(),
            [one] => window.slice(one.clone()),
            several => {
                let parts: Vec<&[u8]> = several.iter().map(|r| &window[r.clone()]).collect();
                parts.concat().into()
            }
        }
    }
}

/// Bytes of the file from `at` on.
struct Window {
    buffer: ReadBuffer,
    at: Position,
}

/// What a look at one place of the window shows.
enum Look {
    Batch(BatchHeader, usize),
    /// The window ends before the batch does; the batch has this many bytes (or at least a header).
    Beyond(u64),
}

impl Reading<'_> {
    fn run(&self) -> Result<Option<ReadBatches>, ReadError> {
        let floor = self.part.segment.floor(&self.reach, self.spec.from)?;
        match self.read_from(&floor) {
            Err(ReadError::Corrupt { .. }) if floor.doubtful => {
                self.part.segment.distrust_index(&self.reach)?;
                let floor = self.part.segment.floor(&self.reach, self.spec.from)?;
                self.read_from(&floor)
            }
            other => other,
        }
    }

    fn read_from(&self, floor: &Floor) -> Result<Option<ReadBatches>, ReadError> {
        let walk = if floor.offset == self.spec.from {
            0
        } else {
            WALK_BYTES
        };
        let mut window = self.load(
            floor.position,
            wide(self.spec.max_bytes).saturating_add(walk),
        )?;
        let (mut place, mut expected) = (0, floor.offset);
        loop {
            if expected >= self.part.end || self.at_end_of_file(window.at, place) {
                return Ok(None);
            }
            match self.look(&window, place, expected)? {
                // An entry of an index file must name its very batch, or batches would be skipped.
                Look::Batch(header, _)
                    if floor.doubtful
                        && expected == floor.offset
                        && header.base_offset != expected =>
                {
                    return Err(self.corrupt(floor.position, expected));
                }
                Look::Batch(header, _)
                    if header.next_offset() > self.spec.from && !self.is_left_out(&header) =>
                {
                    return self.collect(window, place, expected).map(Some);
                }
                Look::Batch(header, len) => {
                    place += len;
                    expected = header.next_offset();
                }
                Look::Beyond(len) => {
                    let at = window.at.plus(wide(place));
                    window = self.load(at, len.max(wide(self.spec.max_bytes)))?;
                    place = 0;
                }
            }
        }
    }

    fn at_end_of_file(&self, at: Position, place: usize) -> bool {
        self.part.bytes.is_none() && at.plus(wide(place)).0 >= self.reach.bytes_max
    }

    fn load(&self, at: Position, want: u64) -> Result<Window, ReadError> {
        let len = want
            .max(READ_MIN)
            .min(self.reach.bytes_max.saturating_sub(at.0));
        let mut buffer = self.reach.open_buffer(narrow(len));
        let read = read_full(&*self.reach.open.file, buffer.as_mut(), at.0)?;
        if wide(read) < len {
            return Err(self.corrupt(at.plus(wide(read)), self.spec.from));
        }
        Ok(Window { buffer, at })
    }

    fn look(&self, window: &Window, place: usize, expected: Offset) -> Result<Look, ReadError> {
        let at = window.at.plus(wide(place));
        let left = self.reach.bytes_max.saturating_sub(at.0);
        let rest = window.buffer.as_ref().get(place..).unwrap_or_default();
        let Some(header) = BatchHeader::peek(rest) else {
            let more = wide(HEADER_BYTES);
            return if left < more {
                Err(self.corrupt(at, expected))
            } else {
                Ok(Look::Beyond(more))
            };
        };
        let check = Expect {
            offset: expected,
            end: self.part.end,
        }
        .check(&header);
        let total = check
            .ok()
            .filter(|&total| total <= left)
            .ok_or_else(|| self.corrupt(at, expected))?;
        if total > wide(rest.len()) {
            Ok(Look::Beyond(total))
        } else {
            Ok(Look::Batch(header, narrow(total)))
        }
    }

    fn corrupt(&self, position: Position, offset: Offset) -> ReadError {
        ReadError::Corrupt {
            segment: self.part.segment.name,
            position,
            offset,
        }
    }

    /// Whether the CRC of the batch at `place` holds, or held before, if anybody wants to know.
    fn is_sound(
        &self,
        window: &Window,
        place: usize,
        (header, len): (&BatchHeader, usize),
    ) -> bool {
        let open = self.reach.open;
        let (from, to) = (
            window.at.plus(wide(place)),
            window.at.plus(wide(place + len)),
        );
        if !self.spec.check_crc || open.is_checked(to) {
            return true;
        }
        let holds = crc_holds(&window.buffer.as_ref()[place..place + len]);
        if holds && !header.is_gap() {
            open.note_checked(from, to);
        }
        holds
    }

    fn is_left_out(&self, header: &BatchHeader) -> bool {
        header.is_gap() && !self.spec.gaps
    }

    /// Takes batches from `start` on as long as they are wanted.
    fn collect(
        &self,
        window: Window,
        start: usize,
        first: Offset,
    ) -> Result<ReadBatches, ReadError> {
        let (mut end, mut next, mut base) = (start, first, None);
        let mut taken = Taken::from(start);
        while next < self.spec.upto.min(self.part.end) {
            let (header, len) = match self.look(&window, end, next) {
                Ok(Look::Batch(header, len)) => (header, len),
                Err(e) if base.is_none() => return Err(e),
                Ok(Look::Beyond(_)) | Err(_) => break,
            };
            if self.is_left_out(&header) && header.next_offset() <= self.spec.upto {
                taken.leave_out(end, len);
                (end, next) = (end + len, header.next_offset());
                continue;
            }
            let fits = taken.bytes(end) + len <= self.spec.max_bytes
                || (base.is_none() && self.spec.at_least_one);
            if !fits || header.next_offset() > self.spec.upto {
                break;
            }
            if !self.is_sound(&window, end, (&header, len)) {
                if base.is_none() {
                    return Err(self.corrupt(window.at.plus(wide(end)), next));
                }
                break;
            }
            base = base.or(Some(header.base_offset));
            end += len;
            next = header.next_offset();
        }
        let Some(base) = base else {
            return Ok(empty(self.spec.from));
        };
        self.part.segment.remember(next, window.at.plus(wide(end)));
        Ok(ReadBatches {
            bytes: taken.cut(&window.buffer.freeze(), end),
            base,
            next,
        })
    }
}
