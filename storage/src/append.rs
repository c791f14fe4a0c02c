//! Appending a group of batches: the hot path (DESIGN 3.3).
//!
//! Owns:     verdicts on provisional producer state, the writes, and taking back what was not written.
//! Does not: sync, roll, copy a payload, or allocate per batch.
//! Called by the owner of the log, holding its lock.
//!
//! # Invariants
//! A1. After a group, end offset, index, views and producers are those of the wholly written batches, no more, no less.
//! A2. Batches are written in the order in which they were offered; from the first one that does not fit on, all wait.

use std::io::{self, IoSlice};

use crate::batch::{Batch, BatchHeader, HEADER_BYTES};
use crate::disk::{DiskFile, WriteEnded, is_no_space, write_all_at};
use crate::heal::Kept;
use crate::index_file::MaxTime;
use crate::live_index::IndexEntry;
use crate::log::{LastBatch, Log, LogState};
use crate::marker::read_marker;
use crate::producers::{AppendReject, Applied, Judgement, MarkerRound};
use crate::types::{Offset, Position, Timestamp, wide};
use seawall_planted::planted;

/// Batches per system call: two slices each, IOV_MAX is 1024 on Linux.
const BATCHES_PER_WRITE: usize = 512;

/// One batch that waits to be appended.
#[derive(Debug, Clone)]
pub struct Offered {
    /// The batch; its CRC has been checked.
    pub batch: Batch,
    /// Set on topics with `LogAppendTime`.
    pub append_time: Option<Timestamp>,
    /// Keep it in memory until a flush covers it: healing takes it from there (DESIGN 5). For batches that somebody waits
    /// to see on stable storage.
    pub keep: bool,
    /// How it stands to transactions.
    pub txn: TxnOrigin,
}

/// How an offered batch stands to transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TxnOrigin {
    /// A client sent it, and no coordinator was asked.
    Unverified,
    /// Its coordinator knows that its transaction goes on here; it was asked after this round had begun.
    VerifiedIn(MarkerRound),
    /// The broker's own marker.
    Marker {
        /// An earlier try may have written it.
        again: bool,
    },
}

impl TxnOrigin {
    fn verified_in(self) -> Option<MarkerRound> {
        match self {
            Self::VerifiedIn(round) => Some(round),
            Self::Unverified | Self::Marker { .. } => None,
        }
    }
}

/// What became of an offered batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an appended batch is not durable before a flush that covers it"]
pub enum BatchVerdict {
    /// It is in the log.
    Appended {
        /// Offset of its first record.
        base: Offset,
        /// Offset of its last record.
        last: Offset,
    },
    /// An earlier copy is in the log; whether that is durable the committer knows (D8).
    Duplicate {
        /// Offset of the first record.
        base: Offset,
        /// Offset of the last record.
        last: Offset,
        /// The append time that was answered then.
        append_time: Option<Timestamp>,
    },
    /// The producer's fault; nothing was written.
    Rejected(AppendReject),
    /// The disk's fault, or the log takes no appends; nothing of it stays.
    NotWritten,
    /// It does not fit the segment, or there is none: offer it again after a roll.
    Deferred,
}

/// Why a group's write ended early.
#[derive(Debug)]
pub enum WriteStop {
    /// No space: the written prefix is fine, the rest must be cut before the next append.
    NoSpace(io::Error),
    /// Anything else: the log is Failed.
    Failed(io::Error),
}

/// What became of a group.
#[derive(Debug)]
#[must_use = "every batch of the group waits for its verdict"]
pub struct GroupOutcome {
    /// One per offered batch, in order.
    pub verdicts: Vec<BatchVerdict>,
    /// Set when a write ended early.
    pub stopped: Option<WriteStop>,
    /// Bytes appended.
    pub bytes_written: u64,
    /// Records appended.
    pub records_written: u64,
}

/// A batch that is to be written.
struct Staged {
    index: usize,
    header: BatchHeader,
    position: Position,
    end: Position,
    applied: Applied,
}

/// A group on its way.
struct Group {
    verdicts: Vec<BatchVerdict>,
    staged: Vec<Staged>,
    headers: Vec<[u8; HEADER_BYTES]>,
}

impl Log {
    /// Appends what it can of a group, in order. Writes are not synced: see `flush_point`.
    pub fn append_group(&mut self, group: &[Offered], now: Timestamp) -> GroupOutcome {
        self.now = now;
        let refusal = match self.state {
            LogState::Failed | LogState::NeedsCut => Some(BatchVerdict::NotWritten),
            LogState::Ready => self.needs_roll(now).then_some(BatchVerdict::Deferred),
        };
        if let Some(verdict) = refusal {
            return GroupOutcome::all(verdict, group.len());
        }
        let staged = self.stage(group, now);
        let written = self.write(group, &staged);
        self.settle(group, staged, written)
    }

    /// Judges each batch as if those before it had been written already.
    fn stage(&mut self, group: &[Offered], now: Timestamp) -> Group {
        let mut out = Group {
            verdicts: Vec::with_capacity(group.len()),
            staged: Vec::with_capacity(group.len()),
            headers: Vec::with_capacity(group.len()),
        };
        let (mut next, mut position) = (self.end, self.end_position);
        for (index, offered) in group.iter().enumerate() {
            let judgement = self.judge(offered);
            if judgement != Judgement::Fresh {
                out.verdicts.push(judgement.into());
                continue;
            }
            let header = offered
                .batch
                .stored_header(next, self.epoch, offered.append_time);
            let bytes = wide(offered.batch.len());
            if !self.fits(position, bytes, header.last_offset()) {
                out.verdicts.resize(group.len(), BatchVerdict::Deferred);
                break;
            }
            let marker = read_marker(&header, offered.batch.payload());
            let applied = self.producers.apply(&header, marker, now);
            let end = position.plus(bytes);
            out.verdicts.push(BatchVerdict::Appended {
                base: next,
                last: header.last_offset(),
            });
            out.headers.push(header.encode());
            out.staged.push(Staged {
                index,
                header,
                position,
                end,
                applied,
            });
            (next, position) = (header.next_offset(), end);
        }
        out
    }

    fn judge(&mut self, offered: &Offered) -> Judgement {
        let header = offered.batch.header();
        let TxnOrigin::Marker { again } = offered.txn else {
            return self.producers.judge(header, offered.txn.verified_in());
        };
        let judgement = self.producers.judge_marker(header, again);
        if matches!(judgement, Judgement::Duplicate(_)) {
            self.producers.note_standing_marker(header.producer_id);
        }
        judgement
    }

    fn write(&self, group: &[Offered], staged: &Group) -> Result<(), WriteEnded> {
        let Some(active) = &self.active else {
            return Ok(());
        };
        let mut slices = Vec::with_capacity(2 * staged.staged.len().min(BATCHES_PER_WRITE));
        let chunks = staged
            .staged
            .chunks(BATCHES_PER_WRITE)
            .zip(staged.headers.chunks(BATCHES_PER_WRITE));
        for (batches, headers) in chunks {
            slices.clear();
            for (batch, header) in batches.iter().zip(headers) {
                slices.push(IoSlice::new(header));
                slices.push(IoSlice::new(group[batch.index].batch.payload()));
            }
            write_chunk(
                &*active.file,
                &mut slices,
                batches[0].position,
                self.end_position,
            )?;
        }
        Ok(())
    }

    /// Keeps the wholly written prefix and takes the rest back (A1).
    fn settle(
        &mut self,
        offered: &[Offered],
        group: Group,
        written: Result<(), WriteEnded>,
    ) -> GroupOutcome {
        let Group {
            mut verdicts,
            mut staged,
            ..
        } = group;
        let stopped = match written {
            Ok(()) => None,
            Err(ended) => {
                let good_end = self.end_position.plus(ended.written);
                let kept = staged.partition_point(|s| s.end <= good_end);
                self.take_back(&staged[kept..], &mut verdicts);
                staged.truncate(kept);
                Some(self.stop(ended.error))
            }
        };
        let before = (self.end, self.end_position);
        for batch in &staged {
            self.advance(&batch.header, (batch.position, batch.end), self.now);
            if let Some(step) = &batch.applied.step {
                self.txns.note(step);
            }
            if let Some(offered) = offered.get(batch.index).filter(|o| o.keep) {
                self.kept.push_back(Kept {
                    header: batch.header,
                    batch: offered.batch.clone(),
                });
            }
        }
        GroupOutcome {
            verdicts,
            stopped,
            bytes_written: self.end_position.since(before.1),
            records_written: u64::try_from(self.end.since(before.0)).unwrap_or(0),
        }
    }

    fn stop(&mut self, error: io::Error) -> WriteStop {
        if is_no_space(&error) {
            if !planted("half-batch-stays") {
                self.state = LogState::NeedsCut;
            }
            WriteStop::NoSpace(error)
        } else {
            self.state = LogState::Failed;
            WriteStop::Failed(error)
        }
    }

    /// Undoes the producer facts of batches that were not written. Every later verdict that came from those facts falls
    /// with them: a duplicate of such a batch was not written either, and a refusal may have been wrong.
    fn take_back(&mut self, lost: &[Staged], verdicts: &mut [BatchVerdict]) {
        let Some(first) = lost.first() else { return };
        for batch in lost.iter().rev() {
            if let Some(undo) = &batch.applied.undo {
                self.producers.undo(undo);
            }
        }
        let lost_from = first.header.base_offset;
        for verdict in verdicts.iter_mut().skip(first.index) {
            let stays = match verdict {
                BatchVerdict::Duplicate { base, .. } => *base < lost_from,
                _ => false,
            };
            if !stays {
                *verdict = BatchVerdict::NotWritten;
            }
        }
    }

    /// The batch of `header` stands in the active file from `place.0` to `place.1`.
    pub(crate) fn advance(
        &mut self,
        header: &BatchHeader,
        place: (Position, Position),
        now: Timestamp,
    ) {
        let interval = self.config.index_interval_bytes;
        let Some(active) = self.active.as_mut() else {
            return;
        };
        let relative = active.segment.relative(header.base_offset);
        let time = MaxTime {
            time: header.max_timestamp,
            offset: relative,
        };
        active.max = MaxTime::later(active.max, Some(time));
        active.first_append.get_or_insert(now);
        active.last_append = now;
        if place.0.since(active.indexed_at) >= interval {
            let max = active.max.unwrap_or(time);
            let position = u32::try_from(place.0.0).unwrap_or(u32::MAX);
            active
                .index
                .push(IndexEntry::new((relative, position), max));
            active.indexed_at = place.0;
        }
        self.end = header.next_offset();
        self.end_position = place.1;
        self.last_batch = LastBatch {
            base: header.base_offset,
            position: place.0,
            crc: header.crc,
        };
    }
}

impl GroupOutcome {
    fn all(verdict: BatchVerdict, count: usize) -> Self {
        Self {
            verdicts: vec![verdict; count],
            stopped: None,
            bytes_written: 0,
            records_written: 0,
        }
    }
}

impl From<Judgement> for BatchVerdict {
    fn from(judgement: Judgement) -> Self {
        match judgement {
            Judgement::Fresh => Self::Deferred,
            Judgement::Rejected(why) => Self::Rejected(why),
            Judgement::Duplicate(past) => Self::Duplicate {
                base: past.base,
                last: past.last,
                append_time: (past.append_time != Timestamp::NONE).then_some(past.append_time),
            },
        }
    }
}

/// Writes slices at a position; the error counts from the group's start.
fn write_chunk(
    file: &dyn DiskFile,
    slices: &mut [IoSlice<'_>],
    at: Position,
    start: Position,
) -> Result<(), WriteEnded> {
    write_all_at(file, slices, at.0).map_err(|ended| WriteEnded {
        written: at.since(start).saturating_add(ended.written),
        error: ended.error,
    })
}
