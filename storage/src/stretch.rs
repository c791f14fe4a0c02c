//! Stretches of a file that can go out unread.
//!
//! Owns:     which whole batches lie one behind the other from a known boundary to another.
//! Does not: read them, or answer every read: where there is no such stretch, [`ReadView::read`] answers.
//! Called from `read-*` threads.
//!
//! # Invariants
//! Z1. Every batch in a stretch was read and checked before through the same handle, and none is one that `read` leaves
//!     out (`OpenSegment::note_checked`).
//! Z2. Both ends are boundaries of batches: known ones, or what an index file says and the batch there confirms.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::disk::read_full;
use crate::segment::{Floor, OpenSegment, Reach};
use crate::types::{Offset, narrow, wide};
use crate::view::{ReadError, ReadSpec, ReadView};

/// Whole batches in one file.
#[derive(Debug)]
pub struct Stretch {
    open: Arc<OpenSegment>,
    at: u64,
    len: usize,
    /// Offset of the first batch, or one before it that compaction took.
    pub base: Offset,
    /// Offset after the last batch.
    pub next: Offset,
}

impl Stretch {
    /// Bytes of the batches.
    #[expect(clippy::len_without_is_empty, reason = "there is no empty one")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Puts references to the pages behind the first `done` bytes into a pipe; may wait for the disk. Returns how many bytes
    /// that are.
    ///
    /// # Errors
    /// The system's; also where the file system cannot.
    pub fn splice(&self, done: usize, pipe: BorrowedFd<'_>) -> io::Result<usize> {
        let at = self.at.saturating_add(wide(done));
        let left = self.len.saturating_sub(done);
        self.open.file.splice_at(at, left, pipe)
    }
}

impl ReadView {
    /// What of a read can go out unread: at least `least` bytes, if there are that many, and no more than the read asks for.
    /// Only the headers at its ends are looked at.
    ///
    /// # Errors
    /// The disk's.
    pub fn stretch(&self, spec: &ReadSpec, least: usize) -> Result<Option<Stretch>, ReadError> {
        if spec.from < self.start || spec.max_bytes < least {
            return Ok(None);
        }
        let index = self.segment_of(spec.from);
        let Some(part) = index.and_then(|index| self.part(index)) else {
            return Ok(None);
        };
        let open = part.segment.open(&self.resources)?;
        let reach = self.reach(&part, &open);
        let from = part.segment.floor(&reach, spec.from)?;
        if from.offset != spec.from {
            return Ok(None);
        }
        let position_max = from.position.plus(wide(spec.max_bytes));
        let upto = spec.upto.min(part.end);
        let Some(to) = part.segment.floor_within(&reach, upto, position_max)? else {
            return Ok(None);
        };
        let len = narrow(to.position.0.saturating_sub(from.position.0));
        // Z1, Z2
        let good = len >= least.max(1)
            && open.is_checked(to.position)
            && is_boundary(&reach, &from)?
            && is_boundary(&reach, &to)?;
        if !good {
            return Ok(None);
        }
        part.segment.remember(to.offset, to.position);
        Ok(Some(Stretch {
            at: from.position.0,
            len,
            base: from.offset,
            next: to.offset,
            open,
        }))
    }
}

/// Whether a batch begins there (Z2).
fn is_boundary(reach: &Reach<'_>, place: &Floor) -> io::Result<bool> {
    if !place.doubtful {
        return Ok(true);
    }
    let mut bytes = [0; HEADER_BYTES];
    read_full(&*reach.open.file, &mut bytes, place.position.0)?;
    let header = BatchHeader::peek(&bytes);
    Ok(header.is_some_and(|header| header.magic == 2 && header.base_offset == place.offset))
}
