//! The `.txnindex` file of a segment: which transactions were aborted in it, and which were open at its end.
//!
//! Owns:     its encoding, and making the same from the segment's batches.
//! Does not: decide for whom an aborted transaction matters. It is never an authority (D10): missing, short, damaged or of
//!           another end means that the batch headers and the markers are read again.
//! Called from read threads (load, rebuild), `state-*` threads (write) and recovery.
//!
//! Layout, big-endian: `SWTX`, version u16 = 1, end offset i64, count u32 of open transactions (producer i64, first offset
//! i64), count u32 of aborted ones in the order of their markers (producer i64, first i64, last i64), CRC-32C of all
//! before it.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::disk::{Disk, DiskFile};
use crate::marker::{MarkerValue, TxnOutcome, read_marker};
use crate::names::SegmentName;
use crate::scan::{Expect, HEADER_CHUNK_BYTES, Scan, Step};
use crate::state_file::{read_bounded, write_unsynced};
use crate::transactions::{AbortedList, AbortedTxn};
use crate::types::{Offset, Position, ProducerId};

const MAGIC: &[u8; 4] = b"SWTX";
const VERSION: u16 = 1;
/// A larger file is not ours: so many bytes hold more transactions than a segment can have markers.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// What a segment's batches say of transactions.
#[derive(Debug, Clone, Default)]
pub(crate) struct SegmentTxns {
    /// In the order of their markers.
    pub(crate) aborted: AbortedList,
    /// Those that go on behind the segment: whose, and their first offsets.
    pub(crate) open_at_end: Vec<(ProducerId, Offset)>,
}

impl SegmentTxns {
    /// Whether a transaction that goes on behind this segment began below `upto`.
    pub(crate) fn reaches_beyond(&self, upto: Offset) -> bool {
        self.open_at_end.iter().any(|(_, first)| *first < upto)
    }

    fn encode(&self, end: Offset) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&end.0.to_be_bytes());
        put_count(&mut out, self.open_at_end.len());
        for (producer, first) in &self.open_at_end {
            out.extend_from_slice(&producer.0.to_be_bytes());
            out.extend_from_slice(&first.0.to_be_bytes());
        }
        encode_aborted(&mut out, &self.aborted);
        out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
        out
    }

    /// What a file says, and where its segment ended.
    fn decode(bytes: &[u8]) -> Option<(Offset, Self)> {
        let (content, crc) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(content) != u32::from_be_bytes(*crc) {
            return None;
        }
        let mut rest = Cursor(content);
        if rest.take::<4>()? != *MAGIC || u16::from_be_bytes(rest.take()?) != VERSION {
            return None;
        }
        let end = rest.offset()?;
        let mut open_at_end = Vec::new();
        for _ in 0..u32::from_be_bytes(rest.take()?) {
            open_at_end.push((ProducerId(rest.i64()?), rest.offset()?));
        }
        let aborted = decode_aborted(&mut rest)?;
        let txns = Self {
            aborted,
            open_at_end,
        };
        rest.0.is_empty().then_some((end, txns))
    }

    /// What the file says of a segment that ends at `end`; `None` if it is not good enough.
    pub(crate) fn load(
        disk: &dyn Disk,
        dir: &Path,
        name: &SegmentName,
        end: Offset,
    ) -> io::Result<Option<Self>> {
        let found = Self::load_any(disk, dir, name)?;
        Ok(found.filter(|found| found.0 == end).map(|found| found.1))
    }

    /// What the file says, and where its segment ended when it was written.
    pub(crate) fn load_any(
        disk: &dyn Disk,
        dir: &Path,
        name: &SegmentName,
    ) -> io::Result<Option<(Offset, Self)>> {
        match read_bounded(disk, &dir.join(name.txn_index()), FILE_BYTES_MAX) {
            Ok(bytes) => Ok(bytes.and_then(|bytes| Self::decode(&bytes))),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Writes the file of a segment that ends at `end`.
    pub(crate) fn write(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        name: &SegmentName,
        end: Offset,
    ) -> io::Result<()> {
        write_unsynced(disk, &dir.join(name.txn_index()), &self.encode(end))
    }

    /// Walks a segment from its start. `before`: what was open there.
    pub(crate) fn rebuild(
        file: &dyn DiskFile,
        segment: &SegmentBytes,
        before: &[(ProducerId, Offset)],
    ) -> io::Result<Self> {
        let expect = Expect {
            offset: segment.base,
            end: segment.end,
        };
        let mut scan =
            Scan::new(file, segment.bytes_max, HEADER_CHUNK_BYTES).from(Position::ZERO, expect);
        let mut fold = Fold::new(before);
        while let Step::Batch(found) = scan.next_header()? {
            let header = found.header;
            let marker = if header.attributes.is_control() {
                let bytes = scan.whole(&found)?.unwrap_or_default();
                read_marker(&header, bytes.get(HEADER_BYTES..).unwrap_or_default())
            } else {
                None
            };
            fold.batch(&header, marker);
        }
        Ok(fold.segment_end())
    }
}

/// Which bytes of a file are a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentBytes {
    pub(crate) base: Offset,
    pub(crate) end: Offset,
    pub(crate) bytes_max: u64,
}

/// Transactions while the batches of one segment after the other pass by.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    open: HashMap<ProducerId, Offset>,
    aborted: AbortedList,
}

impl Fold {
    /// `before`: what is open already.
    pub(crate) fn new(before: &[(ProducerId, Offset)]) -> Self {
        Self {
            open: before.iter().copied().collect(),
            aborted: AbortedList::default(),
        }
    }

    /// `marker`: what a control batch says.
    pub(crate) fn batch(&mut self, header: &BatchHeader, marker: Option<MarkerValue>) {
        let producer = header.producer_id;
        match marker {
            None if header.attributes.is_control() => {}
            None if header.attributes.is_transactional() => {
                self.open.entry(producer).or_insert(header.base_offset);
            }
            None => {}
            Some(marker) => {
                let first = self.open.remove(&producer);
                if let (Some(first_offset), TxnOutcome::Abort) = (first, marker.outcome) {
                    self.aborted.push(AbortedTxn {
                        first_offset,
                        last_offset: header.base_offset,
                        producer,
                    });
                }
            }
        }
    }

    /// Whether a transaction of this producer is open.
    pub(crate) fn is_open(&self, producer: ProducerId) -> bool {
        self.open.contains_key(&producer)
    }

    /// What the segment's batches said; what is open goes on in the next one.
    pub(crate) fn segment_end(&mut self) -> SegmentTxns {
        SegmentTxns {
            aborted: std::mem::take(&mut self.aborted),
            open_at_end: self.open.iter().map(|(id, first)| (*id, *first)).collect(),
        }
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
}

/// A count and the transactions, as they stand in this file and in the producer snapshot.
pub(crate) fn encode_aborted(out: &mut Vec<u8>, aborted: &AbortedList) {
    put_count(out, aborted.iter().count());
    for txn in aborted.iter() {
        out.extend_from_slice(&txn.producer.0.to_be_bytes());
        out.extend_from_slice(&txn.first_offset.0.to_be_bytes());
        out.extend_from_slice(&txn.last_offset.0.to_be_bytes());
    }
}

pub(crate) fn decode_aborted(rest: &mut Cursor<'_>) -> Option<AbortedList> {
    let mut aborted = Vec::new();
    for _ in 0..u32::from_be_bytes(rest.take()?) {
        aborted.push(AbortedTxn {
            producer: ProducerId(rest.i64()?),
            first_offset: rest.offset()?,
            last_offset: rest.offset()?,
        });
    }
    Some(aborted.into_iter().collect())
}

/// Bytes not read yet; a count never makes it allocate.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl Cursor<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }

    pub(crate) fn offset(&mut self) -> Option<Offset> {
        self.i64().map(Offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_file_is_noticed() {
        let txns = SegmentTxns {
            aborted: [(1, 2, 3), (4, 5, 6)]
                .map(|(producer, first, last)| AbortedTxn {
                    first_offset: Offset(first),
                    last_offset: Offset(last),
                    producer: ProducerId(producer),
                })
                .into_iter()
                .collect(),
            open_at_end: vec![(ProducerId(9), Offset(8))],
        };
        let good = txns.encode(Offset(40));
        let (end, read) = SegmentTxns::decode(&good).unwrap();
        assert_eq!(end, Offset(40));
        assert_eq!(read.aborted.iter().count(), 2);
        assert_eq!(read.open_at_end, txns.open_at_end);
        for at in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[at / 8] ^= 1 << (at % 8);
            assert!(SegmentTxns::decode(&bad).is_none(), "bit {at}");
        }
    }
}
