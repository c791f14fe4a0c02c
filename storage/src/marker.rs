//! The control batch that ends a transaction in one partition.
//!
//! Owns:     its encoding and decoding.
//! Does not: decide who may write one: the broker alone does, a client's is refused.
//! Called from whoever appends, recovers or heals; it decodes no record of a client.
//!
//! One uncompressed record: key version i16 = 0 and type i16 (0 abort, 1 commit), value version i16 = 0 and the
//! coordinator's epoch i32 (Kafka's `EndTxnMarker`).

use crate::batch::{Attributes, Batch, BatchHeader};
use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxnOutcome {
    /// Its records count.
    Commit,
    /// Its records count for nobody who reads committed ones only.
    Abort,
}

/// What the record of a control batch says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkerValue {
    /// How the transaction ended.
    pub outcome: TxnOutcome,
    /// Epoch of the coordinator that said so; -1 where the value does not tell.
    pub coordinator_epoch: i32,
}

/// A marker that is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Whose transaction it ends.
    pub producer_id: ProducerId,
    /// The epoch from which on the producer may write again.
    pub producer_epoch: ProducerEpoch,
    /// What it says.
    pub value: MarkerValue,
    /// The broker's clock.
    pub time: Timestamp,
}

const KEY_LEN: u8 = 4;
const VALUE_LEN: u8 = 6;
/// Attributes, two deltas, key and value with their lengths, no headers; every length fits one byte.
const RECORD_LEN: u8 = 3 + 1 + KEY_LEN + 1 + VALUE_LEN + 1;

impl Marker {
    /// The control batch.
    pub fn batch(&self) -> Batch {
        let header = BatchHeader {
            base_offset: Offset::ZERO,
            batch_length: 0,
            leader_epoch: LeaderEpoch::NONE,
            magic: 2,
            crc: 0,
            attributes: Attributes::MARKER,
            last_offset_delta: 0,
            base_timestamp: self.time,
            max_timestamp: self.time,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: Sequence::NONE,
            record_count: 1,
        };
        Batch::assemble(header, &self.record())
    }

    fn record(&self) -> Vec<u8> {
        let kind: i16 = match self.value.outcome {
            TxnOutcome::Abort => 0,
            TxnOutcome::Commit => 1,
        };
        let mut out = vec![2 * RECORD_LEN, 0, 0, 0, 2 * KEY_LEN];
        out.extend_from_slice(&0_i16.to_be_bytes());
        out.extend_from_slice(&kind.to_be_bytes());
        out.push(2 * VALUE_LEN);
        out.extend_from_slice(&0_i16.to_be_bytes());
        out.extend_from_slice(&self.value.coordinator_epoch.to_be_bytes());
        out.push(0);
        out
    }
}

/// What a whole batch says if it is a marker that ends a transaction; `None` for any other batch.
pub(crate) fn read_marker(header: &BatchHeader, payload: &[u8]) -> Option<MarkerValue> {
    if !header.attributes.is_control() {
        return None;
    }
    let mut record = Unread(payload);
    record.varint()?;
    record.take(1)?;
    record.varint()?;
    record.varint()?;
    let mut key = Unread(record.prefixed()?);
    key.take(2)?;
    let outcome = match key.i16()? {
        0 => TxnOutcome::Abort,
        1 => TxnOutcome::Commit,
        _ => return None,
    };
    let value = record.prefixed().and_then(|value| {
        let mut value = Unread(value);
        value.take(2)?;
        value.i32()
    });
    Some(MarkerValue {
        outcome,
        coordinator_epoch: value.unwrap_or(-1),
    })
}

/// Bytes not read yet.
struct Unread<'a>(&'a [u8]);

impl<'a> Unread<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    fn i16(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn i32(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    /// A zigzag varint of up to ten bytes.
    fn varint(&mut self) -> Option<i64> {
        let mut raw = 0_u64;
        for shift in (0..70).step_by(7) {
            let [byte] = *self.take(1)? else { return None };
            raw |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed());
            }
        }
        None
    }

    fn prefixed(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{DecodeSite, Limits, Records};

    fn marker(outcome: TxnOutcome) -> Marker {
        Marker {
            producer_id: ProducerId(77),
            producer_epoch: ProducerEpoch(3),
            value: MarkerValue {
                outcome,
                coordinator_epoch: 12,
            },
            time: Timestamp(1234),
        }
    }

    #[test]
    fn a_marker_is_a_batch_that_any_client_can_read() {
        let batch = marker(TxnOutcome::Commit).batch();
        batch.check_crc().unwrap();
        let records = Records::decode(&batch, &Limits::default(), DecodeSite::Tool).unwrap();
        let records: Vec<_> = records.collect::<Result<_, _>>().unwrap();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].key.as_deref(), Some([0, 0, 0, 1].as_slice()));
        assert_eq!(
            records[0].value.as_deref(),
            Some([0, 0, 0, 0, 0, 12].as_slice())
        );
        assert_eq!(records[0].timestamp, Timestamp(1234));
    }

    #[test]
    fn what_is_written_is_read_and_cut_bytes_are_no_marker() {
        for outcome in [TxnOutcome::Commit, TxnOutcome::Abort] {
            let batch = marker(outcome).batch();
            let read = read_marker(batch.header(), batch.payload());
            assert_eq!(read, Some(marker(outcome).value));
            for len in 0..9 {
                assert_eq!(read_marker(batch.header(), &batch.payload()[..len]), None);
            }
        }
    }
}
