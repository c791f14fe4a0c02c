//! What the log knows of its producers: who may write next, which batches are duplicates, which transactions are open.
//!
//! Owns:     the window of five batches per producer id, the rules for epochs, sequences and markers, expiry, undo.
//! Does not: write anything; `snapshot.rs` encodes it. The state belongs to the log, never to a connection.
//! Called by the log's writer and by recovery.
//!
//! # Invariants
//! P1. A batch is a duplicate only if id, epoch and both sequences match one of the last five batches of its producer.
//! P2. Undoing the changes of a group in reverse order gives exactly the state before it, but for what P3 refuses.
//! P3. A transaction begins only with a batch that was verified after the producer's last marker was written, or was found
//!     to be there: a late batch never opens a transaction that nobody will end.
//!
//! The rules are Kafka's (KIP-98, KIP-360, KIP-890): an unknown producer may begin with any sequence, a raised epoch
//! begins with 0, a marker may raise the epoch.

use std::collections::HashMap;

use crate::batch::BatchHeader;
use crate::marker::{MarkerValue, TxnOutcome};
use crate::transactions::{EndedTxn, TxnStep};
use crate::types::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use seawall_planted::planted;

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
    /// First offset of its open transaction.
    pub open: Option<Offset>,
    /// Offset of its last marker.
    pub last_marker: Option<Offset>,
    /// Epoch of the coordinator that wrote that marker.
    pub coordinator_epoch: Option<i32>,
    /// Verified in an earlier round is too early to begin a transaction; in memory only, like what was verified.
    refuse_before: MarkerRound,
    window: [Option<PastBatch>; WINDOW],
}

impl ProducerEntry {
    pub(crate) fn new(epoch: ProducerEpoch, last_append: Timestamp) -> Self {
        Self {
            epoch,
            last_append,
            open: None,
            last_marker: None,
            coordinator_epoch: None,
            refuse_before: MarkerRound::default(),
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
        if planted("window-of-four") {
            self.window[0] = None;
            self.window.rotate_left(1);
        }
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
    /// A transactional batch of which no coordinator knows, or another one inside of a transaction.
    InvalidTxnState,
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

/// What a recorded batch changed.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    pub(crate) undo: Option<Undo>,
    pub(crate) step: Option<TxnStep>,
}

/// How many markers a log has seen since it was opened, written or found to be there already (P3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct MarkerRound(pub u64);

/// All producers of one log.
#[derive(Debug, Clone, Default)]
pub struct Producers {
    entries: HashMap<ProducerId, ProducerEntry>,
    round: MarkerRound,
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
    /// with any sequence, like an unknown one. `reopened`: transactions that were ended there.
    pub(crate) fn forget_from(&mut self, end: Offset, reopened: &[EndedTxn]) {
        for txn in reopened {
            if let Some(entry) = self.entries.get_mut(&txn.producer) {
                entry.open = Some(txn.first);
            }
        }
        self.entries.retain(|_, entry| {
            let wrote = entry.last_batch().is_some();
            entry.open = entry.open.filter(|first| *first < end);
            entry.last_marker = entry.last_marker.filter(|at| *at < end);
            let kept = entry.window.map(|slot| slot.filter(|past| past.last < end));
            entry.window = [None; WINDOW];
            let mut free = entry.window.iter_mut();
            for past in kept.into_iter().flatten() {
                if let Some(slot) = free.next() {
                    *slot = Some(past);
                }
            }
            entry.last_batch().is_some() || entry.open.is_some() || !wrote
        });
    }

    /// Open transactions: whose, and their first offsets. In no order.
    pub(crate) fn open(&self) -> impl Iterator<Item = (ProducerId, Offset)> {
        let open = |(id, entry): (&ProducerId, &ProducerEntry)| Some((*id, entry.open?));
        self.entries.iter().filter_map(open)
    }

    /// All producers, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (ProducerId, &ProducerEntry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    /// One producer.
    pub fn get(&self, id: ProducerId) -> Option<&ProducerEntry> {
        self.entries.get(&id)
    }

    /// The present round.
    pub(crate) fn round(&self) -> MarkerRound {
        self.round
    }

    fn next_round(&mut self) -> MarkerRound {
        self.round.0 += 1;
        self.round
    }

    /// Judges a batch that a client sent. `verified_in`: the round before its transaction was verified.
    pub(crate) fn judge(
        &self,
        header: &BatchHeader,
        verified_in: Option<MarkerRound>,
    ) -> Judgement {
        if !header.has_producer() {
            return Judgement::Fresh;
        }
        let entry = self.entries.get(&header.producer_id);
        match entry.map_or(Judgement::Fresh, |entry| judge_sequence(entry, header)) {
            Judgement::Fresh => judge_transaction(entry, header, verified_in),
            other => other,
        }
    }

    /// Judges a marker. `again`: it may have been written before, by a try whose end is not known; then it is not written
    /// twice.
    pub(crate) fn judge_marker(&self, header: &BatchHeader, again: bool) -> Judgement {
        let Some(entry) = self.entries.get(&header.producer_id) else {
            return Judgement::Fresh;
        };
        if header.producer_epoch < entry.epoch {
            return Judgement::Rejected(AppendReject::ProducerFenced);
        }
        if again && entry.open.is_none() && header.producer_epoch == entry.epoch {
            return Judgement::Duplicate(standing_marker(entry));
        }
        Judgement::Fresh
    }

    /// A marker of this producer was due and is there already: batches that were verified before are as late as if it had
    /// been written now (P3).
    pub(crate) fn note_standing_marker(&mut self, id: ProducerId) {
        let round = self.next_round();
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.refuse_before = round;
        }
    }

    /// Records a batch with its final offsets; `marker`: what a control batch says.
    pub(crate) fn apply(
        &mut self,
        header: &BatchHeader,
        marker: Option<MarkerValue>,
        now: Timestamp,
    ) -> Applied {
        let marked = header.attributes.is_control();
        if !header.has_producer() || (marked && marker.is_none()) {
            return Applied::default();
        }
        let id = header.producer_id;
        let before = self.entries.get(&id).copied();
        let mut entry = before.unwrap_or(ProducerEntry::new(header.producer_epoch, now));
        if entry.epoch != header.producer_epoch {
            entry.epoch = header.producer_epoch;
            entry.window = [None; WINDOW];
        }
        entry.last_append = now;
        let step = match marker {
            Some(marker) => {
                entry.refuse_before = self.next_round();
                end_transaction(&mut entry, header, marker)
            }
            None => add_batch(&mut entry, header),
        };
        self.entries.insert(id, entry);
        let undo = Some(Undo { id, before });
        Applied { undo, step }
    }

    pub(crate) fn undo(&mut self, undo: &Undo) {
        match undo.before {
            Some(mut entry) => {
                if let Some(now) = self.entries.get(&undo.id) {
                    entry.refuse_before = now.refuse_before;
                }
                self.entries.insert(undo.id, entry)
            }
            None => self.entries.remove(&undo.id),
        };
    }

    pub(crate) fn insert(&mut self, id: ProducerId, entry: ProducerEntry) {
        self.entries.insert(id, entry);
    }

    /// Forgets those that have been silent for `expiry_ms` outside of a transaction; they may go on with any sequence.
    pub(crate) fn expire(&mut self, now: Timestamp, expiry_ms: u64) -> usize {
        let before = self.entries.len();
        let expiry = i64::try_from(expiry_ms).unwrap_or(i64::MAX);
        self.entries
            .retain(|_, e| e.open.is_some() || now.since_ms(e.last_append) < expiry);
        before - self.entries.len()
    }
}

fn judge_sequence(entry: &ProducerEntry, header: &BatchHeader) -> Judgement {
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

/// P3, and no plain batch while a transaction is open.
fn judge_transaction(
    entry: Option<&ProducerEntry>,
    header: &BatchHeader,
    verified_in: Option<MarkerRound>,
) -> Judgement {
    let open = entry.is_some_and(|entry| entry.open.is_some());
    let earliest = entry.map_or(MarkerRound::default(), |entry| entry.refuse_before);
    let fits = match (header.attributes.is_transactional(), open) {
        (transactional, true) => transactional,
        (false, false) => true,
        (true, false) => verified_in.is_some_and(|round| round >= earliest),
    };
    if fits {
        Judgement::Fresh
    } else {
        Judgement::Rejected(AppendReject::InvalidTxnState)
    }
}

/// Where the marker of a transaction that is over already stands; everything is durable up to one whose place is not known.
fn standing_marker(entry: &ProducerEntry) -> PastBatch {
    let at = entry.last_marker.unwrap_or(Offset::ZERO);
    PastBatch {
        first_sequence: Sequence::NONE,
        last_sequence: Sequence::NONE,
        base: at,
        last: at,
        append_time: Timestamp::NONE,
    }
}

fn add_batch(entry: &mut ProducerEntry, header: &BatchHeader) -> Option<TxnStep> {
    entry.remember(past_batch(header));
    if !header.attributes.is_transactional() || entry.open.is_some() {
        return None;
    }
    entry.open = Some(header.base_offset);
    Some(TxnStep::Began(header.base_offset))
}

fn end_transaction(
    entry: &mut ProducerEntry,
    header: &BatchHeader,
    marker: MarkerValue,
) -> Option<TxnStep> {
    entry.last_marker = Some(header.base_offset);
    entry.coordinator_epoch = Some(marker.coordinator_epoch);
    let first = entry.open.take()?;
    Some(TxnStep::Ended(EndedTxn {
        producer: header.producer_id,
        first,
        last: header.base_offset,
        aborted: marker.outcome == TxnOutcome::Abort,
    }))
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
