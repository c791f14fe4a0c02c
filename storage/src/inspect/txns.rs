//! The `.txnindex` files against the batches, in step with the walk.
//!
//! Owns:     comparing what each says with what the batches of its segment say.
//! Does not: walk, or look into records but for the one of a marker.

use std::io;
use std::path::Path;

use crate::batch::BatchHeader;
use crate::disk::Disk;
use crate::marker::read_marker;
use crate::names::SegmentName;
use crate::transactions::AbortedTxn;
use crate::txn_index::{Fold, SegmentTxns};
use crate::types::Offset;

use super::finding::{Finding, What};
use super::walk::{FileWalk, SeenBatch};

/// No marker is larger.
const MARKER_BYTES_MAX: u64 = 4096;

/// See the module.
#[derive(Default)]
pub(super) struct TxnAudit {
    fold: Fold,
    /// A place of the log could not be read: nothing can be compared any more.
    lost_track: bool,
}

impl TxnAudit {
    /// The next batch of the log.
    pub(super) fn batch(&mut self, walk: &FileWalk<'_>, seen: &SeenBatch) -> io::Result<()> {
        let header: &BatchHeader = &seen.header;
        let marker = if header.attributes.is_control() {
            let batch = walk.batch(seen, MARKER_BYTES_MAX)?;
            batch.and_then(|batch| read_marker(header, batch.payload()))
        } else {
            None
        };
        self.fold.batch(header, marker);
        Ok(())
    }

    pub(super) fn lose_track(&mut self) {
        self.lost_track = true;
    }

    /// The segment ends at `end`. `first`: where the log begins; what transactions did before that nobody can tell.
    pub(super) fn segment_end(
        &mut self,
        (disk, dir): (&dyn Disk, &Path),
        name: &SegmentName,
        (first, end): (Offset, Offset),
    ) -> io::Result<Option<Finding>> {
        let ours = self.fold.segment_end();
        let Some((there_end, theirs)) = SegmentTxns::load_any(disk, dir, name)? else {
            return Ok(damaged_if_there(disk, dir, name));
        };
        if there_end != end || self.lost_track {
            // Of a file that was longer: a healed one. It is not believed.
            return Ok(None);
        }
        let known = |txns: &SegmentTxns| -> Vec<AbortedTxn> {
            let all = txns.aborted.iter();
            all.filter(|txn| txn.first_offset >= first).collect()
        };
        let differs = known(&ours) != known(&theirs);
        Ok(differs.then(|| Finding::damage(name.txn_index(), What::TxnIndexEntry)))
    }
}

/// A file without any byte is what a power cut leaves; it will be rebuilt.
fn damaged_if_there(disk: &dyn Disk, dir: &Path, name: &SegmentName) -> Option<Finding> {
    match disk.file_len(&dir.join(name.txn_index())).ok()? {
        0 => Some(Finding::note(name.txn_index(), What::IndexShort)),
        _ => Some(Finding::damage(name.txn_index(), What::NotAsWritten)),
    }
}
