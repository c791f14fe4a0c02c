//! One file, batch by batch, going on behind a bad place where that is safe.
//!
//! Owns:     what is a bad place, and where the next batch surely begins.
//! Does not: know what a bad place means.
//!
//! # Invariants
//! W1. Behind a bad place the walk goes on only where its length field leads to the end of the file or to a header that
//!     fits: right magic, a length that the file has, a later offset.

use std::io;

use bytes::Bytes;

use crate::batch::{Batch, BatchHeader, HEADER_BYTES};
use crate::disk::{DiskFile, read_full};
use crate::resync::{BadPlace, find_valid, holds};
use crate::scan::{BadBatch, CHUNK_BYTES, Expect, Found, Scan, Step, crc_holds};
use crate::types::{LeaderEpoch, Offset, Position, narrow, wide};

/// What must hold from batch to batch.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The offset of the first batch; with gaps allowed, the least.
    pub first: Offset,
    /// Offsets from here on belong to the next file.
    pub end: Offset,
    /// No offset is missing between two batches.
    pub without_gaps: bool,
    /// The least and the largest leader epoch; it never decreases. `None`: not looked at.
    pub epochs: Option<(LeaderEpoch, LeaderEpoch)>,
}

impl Rules {
    /// For a file of which nothing is known: offsets grow.
    pub const ANY: Self = Self {
        first: Offset::ZERO,
        end: Offset(i64::MAX),
        without_gaps: false,
        epochs: None,
    };
}

/// A batch that is whole and in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenBatch {
    /// Its header.
    pub header: BatchHeader,
    /// Where it begins.
    pub position: Position,
    /// Where it ends.
    pub end: Position,
}

/// A place where no good batch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bad {
    /// Where.
    pub position: Position,
    /// The offset that should be there.
    pub offset: Offset,
    /// What stands there, if there are enough bytes for a header.
    pub header: Option<BatchHeader>,
    /// What is wrong.
    pub why: BadBatch,
    /// Where the walk goes on.
    pub next: Next,
}

/// What lies behind a bad place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Its length field leads to a header that fits, here.
    Batch(Position),
    /// Its length field leads to the end of the file.
    End,
    /// It is not known where the next batch begins; so many bytes are left, the bad place among them.
    Unknown {
        /// Bytes from the bad place on.
        bytes: u64,
        /// Whether all of them are zero.
        zeros: bool,
    },
}

/// One step of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A good batch.
    Batch(SeenBatch),
    /// A bad place.
    Bad(Bad),
}

/// See the module.
pub struct FileWalk<'a> {
    scan: Scan<'a>,
    file: &'a dyn DiskFile,
    len: u64,
    rules: Rules,
    epoch: LeaderEpoch,
    stopped: bool,
}

impl<'a> FileWalk<'a> {
    /// Walks the first `len` bytes of a file.
    pub fn new(file: &'a dyn DiskFile, len: u64, rules: Rules) -> Self {
        let expect = Expect {
            offset: rules.first,
            end: rules.end,
        };
        Self {
            scan: Scan::new(file, len, CHUNK_BYTES).from(Position::ZERO, expect),
            file,
            len,
            rules,
            epoch: rules.epochs.map_or(LeaderEpoch::NONE, |epochs| epochs.0),
            stopped: false,
        }
    }

    /// Where the walk is.
    pub fn position(&self) -> Position {
        self.scan.position
    }

    /// The offset that is expected there.
    pub fn offset(&self) -> Offset {
        self.scan.expect.offset
    }

    /// The epoch of the last good batch.
    pub(crate) fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// The next batch or bad place; `None` at the end of the file, of the segment, or of what can be walked.
    pub fn step(&mut self) -> io::Result<Option<Seen>> {
        if self.stopped {
            return Ok(None);
        }
        let (position, offset) = (self.position(), self.offset());
        let why = match self.scan.next_header()? {
            Step::End => return Ok(None),
            Step::Bad(why) => why,
            Step::Batch(found) => match self.judge(&found, offset)? {
                Some(why) => why,
                None => return Ok(Some(self.accept(found))),
            },
        };
        self.bad(position, offset, why)
            .map(|bad| Some(Seen::Bad(bad)))
    }

    fn accept(&mut self, found: Found) -> Seen {
        self.epoch = found.header.leader_epoch;
        Seen::Batch(SeenBatch {
            header: found.header,
            position: found.position,
            end: found.end,
        })
    }

    fn judge(&mut self, found: &Found, offset: Offset) -> io::Result<Option<BadBatch>> {
        let header = &found.header;
        if header.last_offset() == Offset(i64::MAX) {
            return Ok(Some(BadBatch::Impossible));
        }
        let out_of_epochs = self.rules.epochs.is_some_and(|(_, last)| {
            header.leader_epoch < self.epoch || header.leader_epoch > last
        });
        if out_of_epochs || (self.rules.without_gaps && header.base_offset != offset) {
            return Ok(Some(BadBatch::OutOfSequence));
        }
        let good = if found.end.since(found.position) <= CHUNK_BYTES {
            self.scan.whole(found)?.is_some_and(crc_holds)
        } else {
            holds(self.file, self.len, found.position, header)?
        };
        Ok((!good).then_some(BadBatch::Crc))
    }

    fn bad(&mut self, position: Position, offset: Offset, why: BadBatch) -> io::Result<Bad> {
        let header = self.peek(position)?;
        let next = match header.and_then(|h| h.total_len()) {
            Some(total) => self.behind(position, position.plus(total), offset)?,
            None => self.unknown(position)?,
        };
        Ok(Bad {
            position,
            offset,
            header,
            why,
            next,
        })
    }

    /// Goes to `to`, where a length field leads, if that is safe (W1).
    fn behind(&mut self, bad: Position, to: Position, offset: Offset) -> io::Result<Next> {
        if to.0 == self.len {
            self.stopped = true;
            return Ok(Next::End);
        }
        let expect = Expect {
            offset: offset.plus(1),
            end: self.rules.end,
        };
        match self.peek(to)? {
            Some(header) if self.fits(&header, to, &expect) => {
                self.go_to(to, header.base_offset);
                Ok(Next::Batch(to))
            }
            _ => self.unknown(bad),
        }
    }

    fn fits(&self, header: &BatchHeader, at: Position, expect: &Expect) -> bool {
        let near = header.base_offset.since(expect.offset) < i64::from(i32::MAX);
        near && expect
            .check(header)
            .is_ok_and(|total| at.plus(total).0 <= self.len)
    }

    fn unknown(&mut self, position: Position) -> io::Result<Next> {
        self.stopped = true;
        Ok(Next::Unknown {
            bytes: self.len.saturating_sub(position.0),
            zeros: is_zero(self.file, position, self.len)?,
        })
    }

    /// Searches for a valid batch behind a bad place of a file that is named after `epoch`, and goes there.
    pub(crate) fn search(&mut self, bad: &Bad, epoch: LeaderEpoch) -> io::Result<Option<Position>> {
        let place = BadPlace {
            position: bad.position,
            offset: bad.offset,
            epoch,
        };
        self.stopped = true;
        let Some(found) = find_valid(self.file, self.len, &place)? else {
            return Ok(None);
        };
        if let Some(header) = self.peek(found)? {
            self.go_to(found, header.base_offset);
        }
        Ok(Some(found))
    }

    fn go_to(&mut self, position: Position, offset: Offset) {
        self.stopped = false;
        self.scan.position = position;
        self.scan.expect.offset = offset;
    }

    fn peek(&self, at: Position) -> io::Result<Option<BatchHeader>> {
        let mut bytes = [0; HEADER_BYTES];
        if at.plus(wide(HEADER_BYTES)).0 > self.len {
            return Ok(None);
        }
        let read = read_full(self.file, &mut bytes, at.0)?;
        Ok((read == HEADER_BYTES).then(|| BatchHeader::decode(&bytes)))
    }

    /// The bytes of a batch that the walk has seen; `None` if it has more than `bytes_max`, or the file is shorter now.
    pub fn batch(&self, seen: &SeenBatch, bytes_max: u64) -> io::Result<Option<Batch>> {
        let len = seen.end.since(seen.position);
        if len > bytes_max {
            return Ok(None);
        }
        let mut bytes = vec![0; narrow(len)];
        let read = read_full(self.file, &mut bytes, seen.position.0)?;
        bytes.truncate(read);
        Ok(Batch::parse_one(&Bytes::from(bytes)).ok())
    }
}

fn is_zero(file: &dyn DiskFile, from: Position, len: u64) -> io::Result<bool> {
    let mut buf = vec![0; narrow(CHUNK_BYTES.min(len.saturating_sub(from.0)))];
    let mut at = from.0;
    while at < len {
        let want = narrow(wide(buf.len()).min(len - at));
        let read = read_full(file, &mut buf[..want], at)?;
        if read == 0 || buf[..read].iter().any(|byte| *byte != 0) {
            return Ok(read == 0);
        }
        at = at.saturating_add(wide(read));
    }
    Ok(true)
}
