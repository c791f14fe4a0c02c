//! The two index files of a segment against its batches, in step with the walk.
//!
//! Owns:     comparing every entry with the batch that it names.
//! Does not: hold an index: entries pass by.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::batch::BatchHeader;
use crate::disk::{Disk, DiskFile, read_full};
use crate::index_file::MaxTime;
use crate::live_index::unpack;
use crate::names::SegmentName;
use crate::types::{Offset, Position, Timestamp, narrow, wide};

use super::finding::{Finding, What};

const PLACE_BYTES: usize = 8;
const TIME_BYTES: usize = 12;
/// Read at once: whole entries of both sizes.
const READ_BYTES: u64 = 48 * 1024;

/// Entries of a fixed size, one by one, and the checksum of those that passed.
struct Entries<const N: usize> {
    file: Arc<dyn DiskFile>,
    /// Where the entries end.
    end: u64,
    at: u64,
    buf: Vec<u8>,
    buf_at: u64,
    sum: u32,
}

impl<const N: usize> Entries<N> {
    fn new(file: Arc<dyn DiskFile>, end: u64) -> Self {
        Self {
            file,
            end,
            at: 0,
            buf: Vec::new(),
            buf_at: 0,
            sum: 0,
        }
    }

    /// Where the next entry stands, and the entry.
    fn next(&mut self) -> io::Result<Option<(Position, [u8; N])>> {
        let start = narrow(self.at.saturating_sub(self.buf_at));
        if self.buf.len().saturating_sub(start) < N {
            self.fill()?;
        }
        let start = narrow(self.at.saturating_sub(self.buf_at));
        let Some(entry) = self.buf.get(start..).and_then(|b| b.first_chunk::<N>()) else {
            return Ok(None);
        };
        let position = Position(self.at);
        self.sum = crc32c::crc32c_append(self.sum, entry);
        self.at = self.at.saturating_add(wide(N));
        Ok(Some((position, *entry)))
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buf_at = self.at;
        self.buf
            .resize(narrow(READ_BYTES.min(self.end.saturating_sub(self.at))), 0);
        let read = read_full(&*self.file, &mut self.buf, self.buf_at)?;
        self.buf.truncate(read);
        Ok(())
    }
}

/// An entry of both files.
#[derive(Clone, Copy)]
struct Entry {
    place_at: Position,
    time_at: Position,
    offset: u32,
    position: u32,
    max: MaxTime,
}

/// See the module.
pub(super) struct IndexAudit {
    name: SegmentName,
    places: Entries<PLACE_BYTES>,
    times: Entries<TIME_BYTES>,
    next: Option<Entry>,
    last: Option<u32>,
    last_batch: Option<u32>,
    max: Option<MaxTime>,
    /// Whether every batch from the segment's start has passed, so that the largest timestamp is known.
    whole: bool,
    found: Vec<Finding>,
}

/// What there is to compare.
pub(super) enum Opened {
    Audit(Box<IndexAudit>),
    Finding(Finding),
    Missing,
}

impl IndexAudit {
    pub(super) fn open(disk: &dyn Disk, dir: &Path, name: SegmentName) -> io::Result<Opened> {
        let (Some(places), Some(times)) = (
            open_existing(disk, &dir.join(name.index()))?,
            open_existing(disk, &dir.join(name.time_index()))?,
        ) else {
            return Ok(Opened::Missing);
        };
        let (places_len, times_len) = (places.len()?, times.len()?);
        let count = places_len / wide(PLACE_BYTES);
        if places_len == 0 || times_len == 0 {
            return Ok(Opened::Finding(Finding::note(
                name.index(),
                What::IndexShort,
            )));
        }
        let whole = places_len % wide(PLACE_BYTES) == 0;
        if !whole || times_len != (count + 1) * wide(TIME_BYTES) {
            return Ok(Opened::Finding(Finding::damage(
                name.index(),
                What::IndexSize,
            )));
        }
        let mut audit = Self {
            name,
            places: Entries::new(places, places_len),
            times: Entries::new(times, times_len - wide(TIME_BYTES)),
            next: None,
            last: None,
            last_batch: None,
            max: None,
            whole: true,
            found: Vec::new(),
        };
        audit.advance()?;
        Ok(Opened::Audit(Box::new(audit)))
    }

    fn advance(&mut self) -> io::Result<()> {
        self.next = match (self.places.next()?, self.times.next()?) {
            (Some((place_at, place)), Some((time_at, time))) => {
                let (offset, position) = unpack(u64::from_be_bytes(place));
                self.last = Some(offset);
                Some(Entry {
                    place_at,
                    time_at,
                    offset,
                    position,
                    max: decode_time(&time),
                })
            }
            _ => None,
        };
        Ok(())
    }

    /// The next batch of the segment.
    pub(super) fn batch(&mut self, header: &BatchHeader, position: Position) -> io::Result<()> {
        let Ok(offset) = u32::try_from(header.base_offset.since(self.name.base)) else {
            return Ok(());
        };
        let time = header.max_timestamp;
        self.last_batch = Some(offset);
        self.max = MaxTime::later(self.max, Some(MaxTime { time, offset }));
        while let Some(entry) = self.next
            && entry.offset <= offset
        {
            self.compare(&entry, offset, position);
            self.advance()?;
        }
        Ok(())
    }

    fn compare(&mut self, entry: &Entry, offset: u32, position: Position) {
        let about = self.name.base.plus(i64::from(entry.offset));
        let names_it = entry.offset == offset && u64::from(entry.position) == position.0;
        let file = if !names_it && self.whole {
            (self.name.index(), entry.place_at)
        } else if names_it && self.whole && Some(entry.max) != self.max {
            (self.name.time_index(), entry.time_at)
        } else {
            return;
        };
        // One is enough to know that the index is bad.
        if self.found.is_empty() {
            let finding = Finding::damage(file.0, What::IndexEntry);
            self.found.push(finding.at(file.1, about));
        }
    }

    /// A place of the log could not be read: from here on entries cannot be compared, only their checksum.
    pub(super) fn lose_track(&mut self) {
        self.whole = false;
    }

    /// The segment ends at `end` for its readers; `hidden`: its file goes on behind that.
    pub(super) fn finish(
        mut self,
        end: Offset,
        (last, hidden): (bool, bool),
    ) -> io::Result<Vec<Finding>> {
        let mut beyond = None;
        while let Some(entry) = self.next {
            beyond.get_or_insert(entry);
            self.advance()?;
        }
        if let Some(entry) = beyond
            && self.whole
            && !hidden
            && self.found.is_empty()
        {
            let finding = Finding::damage(self.name.index(), What::IndexEntry);
            self.found
                .push(finding.at(entry.place_at, self.name.base.plus(i64::from(entry.offset))));
        }
        self.check_sum()?;
        let short = self.last < self.last_batch;
        if self.found.is_empty() && self.whole && short && !last {
            let finding = Finding::note(self.name.index(), What::IndexShort);
            self.found.push(finding.at(Position(self.places.end), end));
        }
        Ok(self.found)
    }

    fn check_sum(&mut self) -> io::Result<()> {
        let at = self.times.end;
        let mut seal = [0; TIME_BYTES];
        let read = read_full(&*self.times.file, &mut seal, at)?;
        let sum = crc32c::crc32c_combine(self.places.sum, self.times.sum, narrow(self.times.at));
        let right = MaxTime {
            time: Timestamp(i64::from(sum)),
            offset: self.last.unwrap_or(0),
        };
        if (read < TIME_BYTES || decode_time(&seal) != right) && self.found.is_empty() {
            let mut finding = Finding::damage(self.name.time_index(), What::IndexSum);
            finding.position = Some(Position(at));
            self.found.push(finding);
        }
        Ok(())
    }
}

fn decode_time(entry: &[u8; TIME_BYTES]) -> MaxTime {
    let (time, offset) = entry.split_at(PLACE_BYTES);
    MaxTime {
        time: Timestamp(i64::from_be_bytes(time.try_into().unwrap_or_default())),
        offset: u32::from_be_bytes(offset.try_into().unwrap_or_default()),
    }
}

fn open_existing(disk: &dyn Disk, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>> {
    match disk.open_read(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
