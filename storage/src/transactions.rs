//! Which transactions of a log are open, ended but not stable yet, or aborted.
//!
//! Owns:     what decides the last stable offset, and the aborted transactions of the segment that is written.
//! Does not: know producers (`producers.rs` says when one began or ended) or files (`txn_index.rs` does).
//! Called by the log's writer and by recovery; `TxnView` is the picture for readers.
//!
//! # Invariants
//! T1. A reader of committed records never gets beyond the first record of a transaction whose marker it may not see yet:
//!     the marker may be lost in a power cut, and with it the outcome.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::types::{Offset, ProducerId};

/// Aborted transactions that share one allocation: an abort copies at most these.
const CHUNK: usize = 128;

/// A transaction that was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AbortedTxn {
    /// Offset of its first record.
    pub first_offset: Offset,
    /// Offset of its marker.
    pub last_offset: Offset,
    /// Whose it was.
    pub producer: ProducerId,
}

/// A transaction that a marker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndedTxn {
    pub(crate) producer: ProducerId,
    pub(crate) first: Offset,
    /// Offset of the marker.
    pub(crate) last: Offset,
    pub(crate) aborted: bool,
}

/// What a batch did to a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TxnStep {
    /// It is its first one, at this offset.
    Began(Offset),
    /// It is its marker.
    Ended(EndedTxn),
}

/// Aborted transactions in the order of their markers. A clone is a picture that stays as it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct AbortedList {
    full: Arc<[Arc<[AbortedTxn]>]>,
    tail: Arc<[AbortedTxn]>,
}

impl AbortedList {
    pub(crate) fn push(&mut self, txn: AbortedTxn) {
        let tail: Arc<[AbortedTxn]> = self.tail.iter().copied().chain([txn]).collect();
        if tail.len() < CHUNK {
            self.tail = tail;
            return;
        }
        self.full = self.full.iter().cloned().chain([tail]).collect();
        self.tail = Arc::default();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = AbortedTxn> + '_ {
        let full = self.full.iter().flat_map(|chunk| chunk.iter());
        full.chain(self.tail.iter()).copied()
    }
}

impl FromIterator<AbortedTxn> for AbortedList {
    fn from_iter<I: IntoIterator<Item = AbortedTxn>>(all: I) -> Self {
        let mut list = Self::default();
        all.into_iter().for_each(|txn| list.push(txn));
        list
    }
}

/// All that is known of the transactions of one log, as of its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transactions {
    /// First offsets of those that no marker has ended.
    open: BTreeSet<Offset>,
    /// Those whose markers readers may not see yet, in the order of the markers.
    ended: Arc<[EndedTxn]>,
    /// Those that were aborted in the last segment.
    pub(crate) aborted: AbortedList,
}

impl Transactions {
    /// As a snapshot or a full replay has them, when everything is visible.
    pub(crate) fn new(
        open: impl Iterator<Item = (ProducerId, Offset)>,
        aborted: AbortedList,
    ) -> Self {
        Self {
            open: open.map(|(_, first)| first).collect(),
            ended: Arc::default(),
            aborted,
        }
    }

    pub(crate) fn note(&mut self, step: &TxnStep) {
        match step {
            TxnStep::Began(first) => {
                self.open.insert(*first);
            }
            TxnStep::Ended(txn) => {
                self.open.remove(&txn.first);
                self.ended = self.ended.iter().copied().chain([*txn]).collect();
                if txn.aborted {
                    self.aborted.push(txn.into());
                }
            }
        }
    }

    /// Markers below `visible` may be seen: their transactions hold nobody back any more.
    pub(crate) fn settle(&mut self, visible: Offset) {
        if self.ended.first().is_some_and(|txn| txn.last < visible) {
            let left = self.ended.iter().filter(|txn| txn.last >= visible);
            self.ended = left.copied().collect();
        }
    }

    /// A new last segment begins at `base`; it holds the markers from there on.
    pub(crate) fn begin_segment(&mut self, base: Offset) {
        let kept = self.aborted.iter().filter(|txn| txn.last_offset >= base);
        self.aborted = kept.collect();
    }

    /// What was written at `end` and beyond is gone. Gives those transactions that are open again.
    pub(crate) fn forget_from(&mut self, end: Offset) -> Vec<EndedTxn> {
        let (gone, left): (Vec<EndedTxn>, Vec<EndedTxn>) =
            self.ended.iter().partition(|txn| txn.last >= end);
        self.ended = left.into();
        self.aborted = self
            .aborted
            .iter()
            .filter(|t| t.last_offset < end)
            .collect();
        self.open.extend(gone.iter().map(|txn| txn.first));
        self.open.split_off(&end);
        gone.into_iter().filter(|txn| txn.first < end).collect()
    }

    pub(crate) fn view(&self) -> TxnView {
        TxnView {
            first_open: self.open.first().copied(),
            ended: Arc::clone(&self.ended),
            aborted: self.aborted.clone(),
        }
    }
}

impl From<&EndedTxn> for AbortedTxn {
    fn from(txn: &EndedTxn) -> Self {
        Self {
            first_offset: txn.first,
            last_offset: txn.last,
            producer: txn.producer,
        }
    }
}

/// What readers need to know.
#[derive(Debug, Clone, Default)]
pub(crate) struct TxnView {
    pub(crate) first_open: Option<Offset>,
    ended: Arc<[EndedTxn]>,
    /// Of the last segment.
    pub(crate) aborted: AbortedList,
}

impl TxnView {
    /// Where reading committed records ends when everything below `visible` may be seen (T1).
    pub(crate) fn stable(&self, visible: Offset) -> Offset {
        let hidden = self.ended.iter().filter(|txn| txn.last >= visible);
        let firsts = hidden.map(|txn| txn.first).chain(self.first_open);
        firsts.fold(visible, Offset::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(first: i64, last: i64, aborted: bool) -> TxnStep {
        TxnStep::Ended(EndedTxn {
            producer: ProducerId(1),
            first: Offset(first),
            last: Offset(last),
            aborted,
        })
    }

    #[test]
    fn x07_nothing_is_stable_behind_an_open_transaction_or_an_unseen_marker() {
        let mut txns = Transactions::default();
        assert_eq!(txns.view().stable(Offset(9)), Offset(9));
        txns.note(&TxnStep::Began(Offset(3)));
        txns.note(&TxnStep::Began(Offset(5)));
        assert_eq!(txns.view().stable(Offset(9)), Offset(3));
        assert_eq!(txns.view().stable(Offset(2)), Offset(2));
        txns.note(&ended(3, 9, false));
        assert_eq!(
            txns.view().stable(Offset(9)),
            Offset(3),
            "the marker is not seen"
        );
        assert_eq!(txns.view().stable(Offset(10)), Offset(5));
        txns.note(&ended(5, 10, true));
        assert_eq!(txns.view().stable(Offset(10)), Offset(5));
        assert_eq!(txns.view().stable(Offset(11)), Offset(11));
        txns.settle(Offset(11));
        assert_eq!(txns.view().stable(Offset(11)), Offset(11));
        assert_eq!(txns.aborted.iter().count(), 1);
    }

    #[test]
    fn a_list_gives_back_what_was_pushed_in_order() {
        let all: Vec<AbortedTxn> = (0..1000)
            .map(|n| AbortedTxn {
                first_offset: Offset(n),
                last_offset: Offset(n + 5),
                producer: ProducerId(n),
            })
            .collect();
        let list: AbortedList = all.iter().copied().collect();
        assert_eq!(list.iter().collect::<Vec<_>>(), all);
    }

    #[test]
    fn a_transaction_whose_marker_is_lost_is_open_again() {
        let mut txns = Transactions::default();
        txns.note(&TxnStep::Began(Offset(3)));
        txns.note(&ended(3, 9, true));
        txns.note(&TxnStep::Began(Offset(10)));
        assert_eq!(txns.forget_from(Offset(9)).len(), 1);
        assert_eq!(txns.view().stable(Offset(9)), Offset(3));
        assert_eq!(txns.aborted.iter().count(), 0);
        assert_eq!(txns.open.len(), 1);
    }
}
