//! Record batches (format v2) as a producer would send them.
//!
//! Owns:     the layout of the batches this program writes, and the look at the ones it reads.
//! Does not: know frames or sockets.
//!
//! # Invariants
//! B1. A batch built here has exactly the size asked for, its 61-byte header included.

use std::time::UNIX_EPOCH;

use crate::error::{Error, Result};

/// Bytes of the batch header.
pub(crate) const HEADER: usize = 61;
const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;
const ATTRIBUTES_AT: usize = 21;
const LAST_DELTA_AT: usize = 23;
const PRODUCER_AT: usize = 43;
const SEQUENCE_AT: usize = 53;

/// Size and record count of the batches of one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) bytes: usize,
    pub(crate) records: i32,
}

/// Builds one batch of `shape`. Its payload is text of six random bits per byte, different for each seed.
pub(crate) fn build(shape: Shape, seed: u64) -> Result<Vec<u8>> {
    let count = usize::try_from(shape.records).map_err(|_| Error::Usage("record count"))?;
    let body = shape.bytes.saturating_sub(HEADER);
    if count == 0 || body / count < 40 {
        return Err(Error::Usage(
            "a record needs at least 40 bytes of its batch",
        ));
    }
    let mut batch = header(shape)?;
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for index in 0..count {
        let end = HEADER + body * (index + 1) / count;
        push_record(&mut batch, index, end, &mut random)?;
    }
    seal(&mut batch);
    Ok(batch)
}

/// Puts a producer id and epoch into the header; `set_sequence` must follow, it renews the CRC.
pub(crate) fn set_producer(batch: &mut [u8], id: i64, epoch: i16) {
    put(batch, PRODUCER_AT, &id.to_be_bytes());
    put(batch, PRODUCER_AT + 8, &epoch.to_be_bytes());
}

/// Makes the batch one of a transaction; `set_sequence` must follow, it renews the CRC.
pub(crate) fn set_transactional(batch: &mut [u8]) {
    const TRANSACTIONAL: i16 = 1 << 4;
    put(batch, ATTRIBUTES_AT, &TRANSACTIONAL.to_be_bytes());
}

/// Puts the base sequence into the header and renews the CRC.
pub(crate) fn set_sequence(batch: &mut [u8], sequence: i32) {
    put(batch, SEQUENCE_AT, &sequence.to_be_bytes());
    seal(batch);
}

/// What a consumer needs to see of a batch it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) base_offset: i64,
    pub(crate) next_offset: i64,
    pub(crate) bytes: usize,
}

/// Looks at the batch at the start of `bytes`; `None` where the answer was cut in its middle, as brokers may.
pub(crate) fn look(bytes: &[u8]) -> Result<Option<Seen>> {
    if bytes.len() < HEADER {
        return Ok(None);
    }
    let base_offset = i64::from_be_bytes(take(bytes, 0));
    let length =
        usize::try_from(i32::from_be_bytes(take(bytes, 8))).map_err(|_| Error::Malformed {
            what: "batch length",
        })?;
    let delta = i32::from_be_bytes(take(bytes, LAST_DELTA_AT));
    if bytes[16] != 2 || delta < 0 || length < HEADER - 12 {
        return Err(Error::Malformed {
            what: "batch header",
        });
    }
    let seen = Seen {
        base_offset,
        next_offset: base_offset + i64::from(delta) + 1,
        bytes: 12 + length,
    };
    Ok((seen.bytes <= bytes.len()).then_some(seen))
}

/// Checks the CRC of exactly one batch.
pub(crate) fn check_crc(batch: &[u8]) -> Result<()> {
    let stored = u32::from_be_bytes(take(batch, CRC_AT));
    let computed = crc32c::crc32c(&batch[CRC_FROM..]);
    if stored == computed {
        return Ok(());
    }
    Err(Error::Wrong {
        what: "CRC of a fetched batch",
        expected: i64::from(computed),
        found: i64::from(stored),
    })
}

fn header(shape: Shape) -> Result<Vec<u8>> {
    let length = i32::try_from(shape.bytes - 12).map_err(|_| Error::Usage("batch too large"))?;
    let mut out = Vec::with_capacity(shape.bytes);
    out.extend_from_slice(&0i64.to_be_bytes()); // base offset
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&(-1i32).to_be_bytes()); // partition leader epoch
    out.push(2); // magic
    out.extend_from_slice(&[0; 4]); // CRC, set by `seal`
    out.extend_from_slice(&0i16.to_be_bytes()); // attributes: not compressed, create time
    out.extend_from_slice(&(shape.records - 1).to_be_bytes());
    let first = now_ms();
    out.extend_from_slice(&first.to_be_bytes());
    out.extend_from_slice(&(first + i64::from(shape.records) - 1).to_be_bytes());
    out.extend_from_slice(&(-1i64).to_be_bytes()); // producer id
    out.extend_from_slice(&(-1i16).to_be_bytes()); // producer epoch
    out.extend_from_slice(&(-1i32).to_be_bytes()); // base sequence
    out.extend_from_slice(&shape.records.to_be_bytes());
    Ok(out)
}

/// Records dated long ago would be removed by retention in the middle of a run.
fn now_ms() -> i64 {
    let since = UNIX_EPOCH.elapsed().unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or_default()
}

/// Appends one record that makes the batch `end` bytes long.
fn push_record(batch: &mut Vec<u8>, index: usize, end: usize, random: &mut Random) -> Result<()> {
    let total = end - batch.len();
    let (key, value) = split(total, index)?;
    let body = record_body(index, key, value);
    put_varint(batch, body);
    batch.push(0); // attributes
    put_varint(batch, index); // timestamp delta, ms
    put_varint(batch, index); // offset delta
    put_varint(batch, key);
    random.text(batch, key);
    put_varint(batch, value);
    random.text(batch, value);
    batch.push(0); // headers
    debug_assert_eq!(batch.len(), end, "B1");
    Ok(())
}

/// Key and value length of a record of exactly `total` bytes. One key length does not reach every total, because a
/// length field may grow by a byte together with what it counts. Two reach all but the few (65, 8194, ..) where the
/// record's own length field grows: those are refused.
fn split(total: usize, index: usize) -> Result<(usize, usize)> {
    let fits = |key: usize, value: usize| {
        let body = record_body(index, key, value);
        varint_len(body) + body == total
    };
    (0..total)
        .rev()
        .take(64)
        .flat_map(|value| [(16, value), (17, value)])
        .find(|&(key, value)| fits(key, value))
        .ok_or(Error::Usage("no record of that size"))
}

fn record_body(index: usize, key: usize, value: usize) -> usize {
    2 + 2 * varint_len(index) + varint_len(key) + key + varint_len(value) + value
}

/// Bytes of the zigzag varint of a non-negative number.
fn varint_len(n: usize) -> usize {
    let mut rest = (n << 1) >> 7;
    let mut len = 1;
    while rest > 0 {
        rest >>= 7;
        len += 1;
    }
    len
}

fn put_varint(out: &mut Vec<u8>, n: usize) {
    let mut rest = n << 1;
    while rest >= 0x80 {
        out.push(low_bits(rest) | 0x80);
        rest >>= 7;
    }
    out.push(low_bits(rest));
}

fn low_bits(n: usize) -> u8 {
    n.to_le_bytes()[0] & 0x7f
}

fn seal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[CRC_FROM..]);
    put(batch, CRC_AT, &crc.to_be_bytes());
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// xorshift64: cheap, and the same payload in every run.
struct Random(u64);

impl Random {
    fn text(&mut self, out: &mut Vec<u8>, len: usize) {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for _ in 0..len {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            out.push(LETTERS[usize::from(self.0.to_le_bytes()[4] & 63)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_exactly_the_size_asked_for() {
        for bytes in (101..126)
            .chain(127..700)
            .chain([1024, 16384, 16385, 16386, 65536, 1 << 20])
        {
            let batch = build(Shape { bytes, records: 1 }, 7).unwrap();
            assert_eq!(batch.len(), bytes);
        }
        let batch = build(
            Shape {
                bytes: 16384,
                records: 16,
            },
            7,
        )
        .unwrap();
        assert_eq!(batch.len(), 16384);
        let seen = look(&batch).unwrap().unwrap();
        assert_eq!((seen.next_offset, seen.bytes), (16, 16384));
        check_crc(&batch).unwrap();
    }

    #[test]
    fn a_changed_byte_fails_the_crc() {
        let mut batch = build(
            Shape {
                bytes: 1024,
                records: 1,
            },
            1,
        )
        .unwrap();
        batch[700] ^= 1;
        assert!(check_crc(&batch).is_err());
    }
}
