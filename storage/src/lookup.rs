//! Finding records by their timestamps.
//!
//! Owns:     which batch holds the first record at or after a time, and the one with the largest time.
//! Does not: trust a batch's `max_timestamp` (it is stored as the producer sent it): when a batch has no such record,
//!           the search goes on behind it.
//! Called from `read-*` threads (the I/O) and `work-*` threads (decoding).

use crate::batch::Batch;
use crate::index_file::MaxTime;
use crate::records::{find_max_timestamp, find_timestamp};
use crate::scan::{Expect, Found, HEADER_CHUNK_BYTES, Scan, Step};
use crate::segment::Reach;
use crate::types::{LeaderEpoch, Offset, Timestamp};
use crate::view::{Part, ReadError, ReadSpec, ReadView};

/// A record found by its timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOffset {
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp.
    pub timestamp: Timestamp,
    /// The epoch of the leader that appended it.
    pub leader_epoch: LeaderEpoch,
}

impl ReadView {
    /// The first record with a timestamp of `time` or later, below `upto`.
    pub fn offset_for_timestamp(
        &self,
        time: Timestamp,
        upto: Offset,
    ) -> Result<Option<TimedOffset>, ReadError> {
        let mut from = self.start_offset();
        while let Some(batch) = self.batch_for_timestamp(time, from, upto)? {
            if let Some(found) = timed(&batch, find_timestamp(&batch, time, from)) {
                return Ok(Some(found));
            }
            from = batch.header().next_offset();
        }
        Ok(None)
    }

    /// I/O only: the first batch at or behind `from` and below `upto` whose header claims a timestamp of `time` or later.
    /// `records::find_timestamp` says whether it holds such a record; if not, ask again behind it.
    pub fn batch_for_timestamp(
        &self,
        time: Timestamp,
        from: Offset,
        upto: Offset,
    ) -> Result<Option<Batch>, ReadError> {
        let (from, upto) = (from.max(self.start), upto.min(self.end));
        let mut index = self.segment_of(from);
        while let Some(part) = index
            .and_then(|i| self.part(i))
            .filter(|p| p.segment.name.base < upto)
        {
            let open = part.segment.open(&self.resources)?;
            let reach = self.reach(&part, &open);
            let max = part.segment.max_time(&reach, self.growing_max(&part))?;
            if max.is_some_and(|max| max.time >= time) {
                let begin = part.segment.before_time(&reach, time)?.max(from);
                let wanted =
                    |f: &Found| f.header.max_timestamp >= time && f.header.next_offset() > from;
                if let Some(found) = self.first_where(&part, &reach, begin, wanted)? {
                    return self.take_batch(&found, upto);
                }
            }
            index = index.map(|i| i + 1);
        }
        Ok(None)
    }

    /// The record with the largest timestamp below `upto`, the first of them if there are several.
    pub fn max_timestamp(&self, upto: Offset) -> Result<Option<TimedOffset>, ReadError> {
        let upto = upto.min(self.end);
        let mut best: Option<(MaxTime, Offset)> = None;
        for index in self.segment_of(self.start).unwrap_or(0)..self.segments.len() {
            let Some(part) = self.part(index).filter(|p| p.segment.name.base < upto) else {
                break;
            };
            let open = part.segment.open(&self.resources)?;
            let found = self.max_in(&part, &self.reach(&part, &open), upto)?;
            if let Some(max) = found.filter(|max| best.is_none_or(|(b, _)| max.time > b.time)) {
                best = Some((max, part.segment.name.base));
            }
        }
        let Some((max, base)) = best else {
            return Ok(None);
        };
        let batch = self.batch_at(base.plus(i64::from(max.offset)), upto)?;
        Ok(batch.and_then(|batch| timed(&batch, find_max_timestamp(&batch))))
    }

    /// The largest timestamp of a segment; when its batch lies outside of what may be seen, the headers are walked.
    fn max_in(
        &self,
        part: &Part<'_>,
        reach: &Reach<'_>,
        upto: Offset,
    ) -> Result<Option<MaxTime>, ReadError> {
        let base = part.segment.name.base;
        let max = part.segment.max_time(reach, self.growing_max(part))?;
        let visible = |offset: Offset| offset >= self.start && offset < upto;
        if max.is_none_or(|max| visible(base.plus(i64::from(max.offset)))) {
            return Ok(max);
        }
        let mut best = None;
        let mut scan = walk(reach, part, base, part.segment.floor(reach, base)?.position);
        while let Step::Batch(found) = scan.next_header()? {
            if found.header.next_offset() > upto {
                break;
            }
            if visible(found.header.base_offset) {
                let offset = part.segment.relative(found.header.base_offset);
                best = MaxTime::later(
                    best,
                    Some(MaxTime {
                        time: found.header.max_timestamp,
                        offset,
                    }),
                );
            }
        }
        Ok(best)
    }

    fn growing_max(&self, part: &Part<'_>) -> Option<MaxTime> {
        self.growing_max.filter(|_| part.bytes.is_some())
    }

    fn first_where(
        &self,
        part: &Part<'_>,
        reach: &Reach<'_>,
        begin: Offset,
        wanted: impl Fn(&Found) -> bool,
    ) -> Result<Option<Found>, ReadError> {
        let floor = part.segment.floor(reach, begin)?;
        let mut scan = walk(reach, part, floor.offset, floor.position);
        while let Step::Batch(found) = scan.next_header()? {
            if wanted(&found) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn take_batch(&self, found: &Found, upto: Offset) -> Result<Option<Batch>, ReadError> {
        if found.header.next_offset() > upto {
            return Ok(None);
        }
        // The batch that holds the log start begins before it.
        self.batch_at(found.header.base_offset.max(self.start), upto)
    }

    fn batch_at(&self, offset: Offset, upto: Offset) -> Result<Option<Batch>, ReadError> {
        let spec = ReadSpec {
            from: offset,
            upto,
            max_bytes: 1,
            at_least_one: true,
            gaps: false,
            check_crc: false,
        };
        Ok(Batch::parse_one(&self.read(&spec)?.bytes).ok())
    }
}

fn walk<'a>(
    reach: &Reach<'a>,
    part: &Part<'_>,
    offset: Offset,
    position: crate::types::Position,
) -> Scan<'a> {
    let expect = Expect {
        offset,
        end: part.end,
    };
    Scan::new(&*reach.open.file, reach.bytes_max, HEADER_CHUNK_BYTES).from(position, expect)
}

/// A batch whose records cannot be decoded answers with its first offset: its bytes are the producer's business.
fn timed(
    batch: &Batch,
    found: Result<Option<(Offset, Timestamp)>, crate::records::RecordError>,
) -> Option<TimedOffset> {
    let header = batch.header();
    let (offset, timestamp) = found.unwrap_or(Some((header.base_offset, header.max_timestamp)))?;
    Some(TimedOffset {
        offset,
        timestamp,
        leader_epoch: header.leader_epoch,
    })
}
