//! Walking the batches of a file in order, by their headers.
//!
//! Owns:     one buffer over a file, and what makes a header possible at its place.
//! Does not: decide what an impossible one means: a torn tail, corruption and a damaged index look alike from here.
//! Called from whoever reads files: recovery, index rebuilds, look-ups.
//!
//! # Invariants
//! S1. Nothing is allocated beyond the bytes that the file has.

use std::io;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::disk::{DiskFile, read_full};
use crate::types::{LeaderEpoch, Offset, Position, narrow, wide};
use seawall_planted::planted;

/// Read at once when payloads are wanted; also the most that stays allocated.
pub(crate) const CHUNK_BYTES: u64 = 1024 * 1024;
/// Read at once when only headers are wanted and the batches are large.
pub(crate) const HEADER_CHUNK_BYTES: u64 = 64 * 1024;

/// Why the walk stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadBatch {
    /// The file ends inside a header or a batch.
    Short,
    /// Magic, length or offset delta can not be.
    Impossible,
    /// The base offset or the leader epoch does not follow.
    OutOfSequence,
    /// The checksum does not match.
    Crc,
}

/// What must hold at the next batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expect {
    /// Its base offset; a larger one is allowed, as files of Kafka have where records were compacted away. Recovery and
    /// compaction ask for no gap (`next_valid`).
    pub(crate) offset: Offset,
    /// Offsets from here on belong to the next segment.
    pub(crate) end: Offset,
}

impl Expect {
    /// Checks a header's own possibility and its place, not its CRC. Gives the length of the batch.
    pub(crate) fn check(&self, header: &BatchHeader) -> Result<u64, BadBatch> {
        let total = header.total_len().ok_or(BadBatch::Impossible)?;
        if header.magic != 2 || header.last_offset_delta < 0 {
            return Err(BadBatch::Impossible);
        }
        if header.base_offset < self.offset || header.next_offset() > self.end {
            return Err(BadBatch::OutOfSequence);
        }
        Ok(total)
    }
}

/// One batch as the walk found it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) header: BatchHeader,
    pub(crate) position: Position,
    pub(crate) end: Position,
}

/// What lies at the walk's place.
#[derive(Debug)]
pub(crate) enum Step {
    Batch(Found),
    /// The end of the file or of the segment.
    End,
    Bad(BadBatch),
}

pub(crate) struct Scan<'a> {
    file: &'a dyn DiskFile,
    file_len: u64,
    chunk: u64,
    buf: Vec<u8>,
    buf_at: u64,
    pub(crate) position: Position,
    pub(crate) expect: Expect,
}

impl<'a> Scan<'a> {
    /// `file_len` is the file's length, or a smaller bound.
    pub(crate) fn new(file: &'a dyn DiskFile, file_len: u64, chunk: u64) -> Self {
        let expect = Expect {
            offset: Offset::ZERO,
            end: Offset(i64::MAX),
        };
        Self {
            file,
            file_len,
            chunk,
            buf: Vec::new(),
            buf_at: 0,
            position: Position::ZERO,
            expect,
        }
    }

    #[must_use]
    pub(crate) fn from(mut self, position: Position, expect: Expect) -> Self {
        self.position = position;
        self.expect = expect;
        self
    }

    /// Looks at the batch at the current place and moves behind it. Only the header is read.
    pub(crate) fn next_header(&mut self) -> io::Result<Step> {
        if self.expect.offset >= self.expect.end || self.position.0 >= self.file_len {
            return Ok(Step::End);
        }
        let Some(bytes) = self.bytes(self.position, wide(HEADER_BYTES))? else {
            return Ok(Step::Bad(BadBatch::Short));
        };
        let Some(header) = BatchHeader::peek(bytes) else {
            return Ok(Step::Bad(BadBatch::Short));
        };
        let total = match self.expect.check(&header) {
            Ok(total) => total,
            Err(bad) => return Ok(Step::Bad(bad)),
        };
        let (position, end) = (self.position, self.position.plus(total));
        if end.0 > self.file_len {
            return Ok(Step::Bad(BadBatch::Short));
        }
        self.position = end;
        self.expect.offset = header.next_offset();
        Ok(Step::Batch(Found {
            header,
            position,
            end,
        }))
    }

    /// All bytes of a batch that the walk has found; `None` if the file has become shorter.
    pub(crate) fn whole(&mut self, found: &Found) -> io::Result<Option<&[u8]>> {
        self.bytes(found.position, found.end.since(found.position))
    }

    /// Like `next_header`, and the batch must follow without a gap, in epoch order, with a valid CRC.
    pub(crate) fn next_valid(&mut self, epochs: (LeaderEpoch, LeaderEpoch)) -> io::Result<Step> {
        let (expected, start) = (self.expect, self.position);
        let step = match self.next_header()? {
            Step::Batch(found) => self.judge(found, expected.offset, epochs)?,
            other => return Ok(other),
        };
        if matches!(step, Step::Bad(_)) {
            (self.expect, self.position) = (expected, start);
        }
        Ok(step)
    }

    fn judge(
        &mut self,
        found: Found,
        offset: Offset,
        epochs: (LeaderEpoch, LeaderEpoch),
    ) -> io::Result<Step> {
        let header = found.header;
        if header.base_offset != offset
            || header.leader_epoch < epochs.0
            || header.leader_epoch > epochs.1
        {
            return Ok(Step::Bad(BadBatch::OutOfSequence));
        }
        Ok(match self.whole(&found)? {
            Some(bytes) if crc_holds(bytes) => Step::Batch(found),
            Some(_) => Step::Bad(BadBatch::Crc),
            None => Step::Bad(BadBatch::Short),
        })
    }

    /// `len` bytes at `at`, through the buffer; `None` if the file ends before (S1).
    fn bytes(&mut self, at: Position, len: u64) -> io::Result<Option<&[u8]>> {
        let end = at.0.saturating_add(len);
        if end > self.file_len {
            return Ok(None);
        }
        if at.0 < self.buf_at || end > self.buf_at.saturating_add(wide(self.buf.len())) {
            self.fill(at.0, len)?;
        }
        let start = narrow(at.0 - self.buf_at);
        Ok(self.buf.get(start..start.saturating_add(narrow(len))))
    }

    fn fill(&mut self, at: u64, len: u64) -> io::Result<()> {
        let want = len.max(self.chunk).min(self.file_len - at);
        if wide(self.buf.capacity()) > CHUNK_BYTES.max(want) {
            self.buf = Vec::new();
        }
        self.buf.resize(narrow(want), 0);
        self.buf_at = at;
        let read = read_full(self.file, &mut self.buf, at)?;
        self.buf.truncate(read);
        Ok(())
    }
}

/// Whether the CRC field of a whole batch matches its bytes.
pub(crate) fn crc_holds(batch: &[u8]) -> bool {
    let refuses_zero = planted("crc-zero-refused");
    BatchHeader::peek(batch)
        .is_some_and(|h| crc32c::crc32c(&batch[21..]) == h.crc && !(refuses_zero && h.crc == 0))
}
