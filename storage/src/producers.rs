//! What the log knows of its idempotent producers: who may write next, and which batches are duplicates.
//!
//! Owns:     the window of five batches per producer id, the epoch and sequence rules, expiry, undo.
//! Does not: write anything; `snapshot.rs` encodes it. The state belongs to the log, never to a connection.
//! Called by the log's writer and by recovery.
//!
//! # Invariants
//! P1. A batch is a duplicate only if id, epoch and both sequences match one of the last five batches of its producer.
//! P2. Undoing the changes of a group in reverse order gives exactly the state before it.
//!
//! The rules are Kafka's (KIP-98, KIP-360): an unknown producer may begin with any sequence, a raised epoch begins with 0.

use std::collections::HashMap;

use crate::batch::BatchHeader;
use crate::types::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// Batches remembered per producer: what a Java client may have in flight.
pub const WINDOW: usize = 5;

/// One remembered batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastBatch {
    /// Sequence of the first record.
    pub first_sequence: Sequence,
    /// Sequence of the last record.
    pub last_sequence: Sequence,
    /// Offset of the first record.
    pub base: Offset,
    /// Offset of the last record.
    pub last: Offset,
    /// The append time that was answered, for topics with `LogAppendTime`; else none.
    pub append_time: Timestamp,
}

/// One producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerEntry {
    /// The epoch it last wrote with.
    pub epoch: ProducerEpoch,
    /// The broker's clock at its last append.
    pub last_append: Timestamp,
    window: [Option<PastBatch>; WINDOW],
}

impl ProducerEntry {
    pub(crate) fn new(epoch: ProducerEpoch, last_append: Timestamp) -> Self {
        Self {
            epoch,
            last_append,
            window: [None; WINDOW],
        }
    }

    /// The remembered batches, oldest first.
    pub fn batches(&self) -> impl Iterator<Item = &PastBatch> {
        self.window.iter().flatten()
    }

    /// The newest remembered batch.
    pub fn last_batch(&self) -> Option<&PastBatch> {
        self.batches().last()
    }

    pub(crate) fn remember(&mut self, batch: PastBatch) {
        match self.window.iter_mut().find(|slot| slot.is_none()) {
            Some(free) => *free = Some(batch),
            None => {
                self.window.rotate_left(1);
                self.window[WINDOW - 1] = Some(batch);
            }
        }
    }
}

/// Why the broker's state refuses a batch; the producer's fault, nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendReject {
    /// The sequence does not follow the last one (also a duplicate older than the window).
    OutOfOrderSequence,
    /// The epoch is older than one already seen.
    ProducerFenced,
}

/// What the state says of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Fresh,
    Duplicate(PastBatch),
    Rejected(AppendReject),
}

/// How to take one change back (P2).
#[derive(Debug)]
pub(crate) struct Undo {
    id: ProducerId,
    before: Option<ProducerEntry>,
}

/// All producers of one log.
#[derive(Debug, Clone, Default)]
pub struct Producers {
    entries: HashMap<ProducerId, ProducerEntry>,
}

impl Producers {
    /// How many producers are known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets what was written at `end` and beyond: the log has it no more. A producer that is left with nothing may begin
    /// with any sequence, like an unknown one.
    pub(crate) fn forget_from(&mut self, end: Offset) {
        self.entries.retain(|_, entry| {
            let kept = entry.window.map(|slot| slot.filter(|past| past.last < end));
            entry.window = [None; WINDOW];
            let mut free = entry.window.iter_mut();
            for past in kept.into_iter().flatten() {
                if let Some(slot) = free.next() {
                    *slot = Some(past);
                }
            }
            entry.last_batch().is_some()
        });
    }

    /// All producers, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (ProducerId, &ProducerEntry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    /// One producer.
    pub fn get(&self, id: ProducerId) -> Option<&ProducerEntry> {
        self.entries.get(&id)
    }

    /// Judges a batch that a client sent.
    pub(crate) fn judge(&self, header: &BatchHeader) -> Judgement {
        if !header.has_producer() {
            return Judgement::Fresh;
        }
        let Some(entry) = self.entries.get(&header.producer_id) else {
            return Judgement::Fresh;
        };
        if header.producer_epoch < entry.epoch {
            return Judgement::Rejected(AppendReject::ProducerFenced);
        }
        if header.producer_epoch > entry.epoch {
            return fresh_if(header.base_sequence == Sequence(0));
        }
        let (first, last) = (header.base_sequence, header.last_sequence());
        let same = entry
            .batches()
            .find(|b| b.first_sequence == first && b.last_sequence == last);
        match (same, entry.last_batch()) {
            (Some(past), _) => Judgement::Duplicate(*past),
            (None, Some(past)) => fresh_if(past.last_sequence.is_followed_by(first)),
            (None, None) => fresh_if(Sequence::NONE.is_followed_by(first)),
        }
    }

    /// Records a batch with its final offsets.
    pub(crate) fn apply(&mut self, header: &BatchHeader, now: Timestamp) -> Option<Undo> {
        if !header.has_producer() || header.attributes.is_control() {
            return None;
        }
        let id = header.producer_id;
        let before = self.entries.get(&id).copied();
        let fresh = ProducerEntry::new(header.producer_epoch, now);
        let mut entry = before
            .filter(|e| e.epoch == header.producer_epoch)
            .unwrap_or(fresh);
        entry.last_append = now;
        entry.remember(past_batch(header));
        self.entries.insert(id, entry);
        Some(Undo { id, before })
    }

    pub(crate) fn undo(&mut self, undo: &Undo) {
        match undo.before {
            Some(entry) => self.entries.insert(undo.id, entry),
            None => self.entries.remove(&undo.id),
        };
    }

    pub(crate) fn insert(&mut self, id: ProducerId, entry: ProducerEntry) {
        self.entries.insert(id, entry);
    }

    /// Forgets those that have been silent for `expiry_ms`; they may go on with any sequence.
    pub(crate) fn expire(&mut self, now: Timestamp, expiry_ms: u64) -> usize {
        let before = self.entries.len();
        let expiry = i64::try_from(expiry_ms).unwrap_or(i64::MAX);
        self.entries
            .retain(|_, entry| now.since_ms(entry.last_append) < expiry);
        before - self.entries.len()
    }
}

fn fresh_if(in_order: bool) -> Judgement {
    if in_order {
        Judgement::Fresh
    } else {
        Judgement::Rejected(AppendReject::OutOfOrderSequence)
    }
}

fn past_batch(header: &BatchHeader) -> PastBatch {
    let append_time = if header.attributes.is_log_append_time() {
        header.max_timestamp
    } else {
        Timestamp::NONE
    };
    PastBatch {
        first_sequence: header.base_sequence,
        last_sequence: header.last_sequence(),
        base: header.base_offset,
        last: header.last_offset(),
        append_time,
    }
}
