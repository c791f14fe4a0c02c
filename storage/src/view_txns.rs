//! Which aborted transactions a reader of a stretch of the log has to know.
//!
//! Owns:     finding them, segment by segment, and making good for a `.txnindex` that is not.
//! Does not: know the high watermark: the caller passes what was read.
//! Called from read and compaction threads.

use std::io;
use std::sync::Arc;

use crate::transactions::AbortedTxn;
use crate::txn_index::SegmentTxns;
use crate::types::Offset;
use crate::view::ReadView;

impl ReadView {
    /// The transactions that were aborted and of which a record lies in `from..upto`, by their first offsets. For records
    /// below a last stable offset that is all that a reader needs to leave them out.
    pub fn aborted_in(&self, from: Offset, upto: Offset) -> io::Result<Vec<AbortedTxn>> {
        let mut found = Vec::new();
        let touched = |txn: &AbortedTxn| txn.first_offset < upto && txn.last_offset >= from;
        let last = self.segments.len().saturating_sub(1);
        let mut index = self.segment_of(from).unwrap_or(0);
        while let Some(segment) = self.segments.get(index) {
            if index == last && self.growing {
                found.extend(self.txns.aborted.iter().filter(touched));
                break;
            }
            let txns = self.segment_txns(index)?;
            found.extend(txns.aborted.iter().filter(touched));
            index += 1;
            let goes_on = self.segments.get(index).is_some_and(|n| n.name.base < upto);
            if !goes_on && !txns.reaches_beyond(upto) {
                break;
            }
            debug_assert!(segment.name.base <= upto || goes_on || txns.reaches_beyond(upto));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// What the batches of a segment that does not grow say of transactions. Where its file is not good enough, the
    /// batches are read, from the nearest segment before it of which more is known.
    fn segment_txns(&self, index: usize) -> io::Result<Arc<SegmentTxns>> {
        let mut start = index;
        let mut known = self.known_txns(start)?;
        while known.is_none() && start > 0 {
            start -= 1;
            known = self.known_txns(start)?;
        }
        let mut at = match &known {
            Some(_) => start + 1,
            None => start,
        };
        let mut txns = known.unwrap_or_default();
        while at <= index {
            txns = self.rebuild_txns(at, &txns)?;
            at += 1;
        }
        Ok(txns)
    }

    fn known_txns(&self, index: usize) -> io::Result<Option<Arc<SegmentTxns>>> {
        let Some(part) = self.part(index) else {
            return Ok(None);
        };
        let open = part.segment.open(&self.resources)?;
        part.segment.known_txns(&open, part.end)
    }

    fn rebuild_txns(&self, index: usize, before: &SegmentTxns) -> io::Result<Arc<SegmentTxns>> {
        let Some(part) = self.part(index) else {
            return Ok(Arc::default());
        };
        let open = part.segment.open(&self.resources)?;
        let reach = self.reach(&part, &open);
        part.segment.rebuild_txns(&reach, &before.open_at_end)
    }
}
