//! Record batches of format 2: built with any header field overridden, and taken apart again.
//!
//! Written from the format's description (Kafka documentation, "Record Batch"), not with the broker's own parser.

use bytes::{BufMut, Bytes, BytesMut};

use crate::checksum::crc32;

/// Bytes of a batch before its records.
pub const HEADER_LEN: usize = 61;

/// Where the fields of a batch header lie.
pub mod at {
    /// Base offset, 8 bytes.
    pub const BASE_OFFSET: usize = 0;
    /// Batch length, 4 bytes, counted from the leader epoch.
    pub const BATCH_LENGTH: usize = 8;
    /// Partition leader epoch, 4 bytes.
    pub const LEADER_EPOCH: usize = 12;
    /// Magic, 1 byte.
    pub const MAGIC: usize = 16;
    /// CRC-32C over everything from the attributes on, 4 bytes.
    pub const CRC: usize = 17;
    /// Attributes, 2 bytes.
    pub const ATTRIBUTES: usize = 21;
    /// Last offset delta, 4 bytes.
    pub const LAST_OFFSET_DELTA: usize = 23;
    /// Base timestamp, 8 bytes.
    pub const BASE_TIMESTAMP: usize = 27;
    /// Max timestamp, 8 bytes.
    pub const MAX_TIMESTAMP: usize = 35;
    /// Producer id, 8 bytes.
    pub const PRODUCER_ID: usize = 43;
    /// Producer epoch, 2 bytes.
    pub const PRODUCER_EPOCH: usize = 51;
    /// Base sequence, 4 bytes.
    pub const BASE_SEQUENCE: usize = 53;
    /// Record count, 4 bytes.
    pub const RECORD_COUNT: usize = 57;
}

/// One record to be put into a batch.
#[derive(Clone, Debug)]
pub struct Rec {
    /// Timestamp in milliseconds since 1970.
    pub timestamp: i64,
    /// Key; `None` is null.
    pub key: Option<Bytes>,
    /// Value; `None` is null.
    pub value: Option<Bytes>,
}

impl Rec {
    /// A record without a key, at time 1,000.
    #[must_use]
    pub fn value(value: &str) -> Self {
        Self {
            timestamp: 1_000,
            key: None,
            value: Some(Bytes::copy_from_slice(value.as_bytes())),
        }
    }

    /// The same record with a key.
    #[must_use]
    pub fn keyed(mut self, key: &str) -> Self {
        self.key = Some(Bytes::copy_from_slice(key.as_bytes()));
        self
    }

    /// The same record at another time.
    #[must_use]
    pub fn at(mut self, timestamp: i64) -> Self {
        self.timestamp = timestamp;
        self
    }
}

/// How the builder wraps the records. The real codecs are the real clients' business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As they are.
    None,
    /// A gzip stream of stored blocks.
    Gzip,
}

/// Builds one batch; fields left alone follow from the records.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    records: Vec<Rec>,
    codec: Codec,
    attribute_bits: i16,
    producer: (i64, i16, i32),
    base_offset: i64,
    magic: i8,
    last_offset_delta: Option<i32>,
    count: Option<i32>,
    batch_length: Option<i32>,
    max_timestamp: Option<i64>,
    crc: Option<u32>,
}

impl BatchBuilder {
    /// A batch of `records` without a producer id.
    #[must_use]
    pub fn new(records: Vec<Rec>) -> Self {
        Self {
            records,
            codec: Codec::None,
            attribute_bits: 0,
            producer: (-1, -1, -1),
            base_offset: 0,
            magic: 2,
            last_offset_delta: None,
            count: None,
            batch_length: None,
            max_timestamp: None,
            crc: None,
        }
    }

    /// A batch of records with these values.
    #[must_use]
    pub fn of(values: &[&str]) -> Self {
        Self::new(values.iter().map(|value| Rec::value(value)).collect())
    }

    /// A batch of one record whose value has `len` bytes.
    #[must_use]
    pub fn sized(len: usize) -> Self {
        Self::new(vec![Rec {
            timestamp: 1_000,
            key: None,
            value: Some(Bytes::from(vec![b'x'; len])),
        }])
    }

    /// Producer id, producer epoch and base sequence.
    #[must_use]
    pub fn producer(mut self, id: i64, epoch: i16, sequence: i32) -> Self {
        self.producer = (id, epoch, sequence);
        self
    }

    /// Wraps the records.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// Sets further bits of the attributes.
    #[must_use]
    pub fn attribute_bits(mut self, bits: i16) -> Self {
        self.attribute_bits |= bits;
        self
    }

    /// Overrides the base offset (0).
    #[must_use]
    pub fn base_offset(mut self, offset: i64) -> Self {
        self.base_offset = offset;
        self
    }

    /// Overrides the magic (2).
    #[must_use]
    pub fn magic(mut self, magic: i8) -> Self {
        self.magic = magic;
        self
    }

    /// Overrides the last offset delta.
    #[must_use]
    pub fn last_offset_delta(mut self, delta: i32) -> Self {
        self.last_offset_delta = Some(delta);
        self
    }

    /// Overrides the record count.
    #[must_use]
    pub fn count(mut self, count: i32) -> Self {
        self.count = Some(count);
        self
    }

    /// Overrides the batch length, leaving the bytes as they are.
    #[must_use]
    pub fn batch_length(mut self, length: i32) -> Self {
        self.batch_length = Some(length);
        self
    }

    /// Overrides the max timestamp.
    #[must_use]
    pub fn max_timestamp(mut self, timestamp: i64) -> Self {
        self.max_timestamp = Some(timestamp);
        self
    }

    /// Overrides the checksum.
    #[must_use]
    pub fn crc(mut self, crc: u32) -> Self {
        self.crc = Some(crc);
        self
    }

    /// The bytes of the batch.
    ///
    /// # Panics
    /// When the batch does not fit the format's 32-bit lengths.
    #[must_use]
    pub fn build(&self) -> Bytes {
        let base_timestamp = self.records.first().map_or(-1, |record| record.timestamp);
        let payload = self.payload(base_timestamp);
        let natural_delta = small(self.records.len()) - 1;
        let natural_length = small(HEADER_LEN - at::LEADER_EPOCH + payload.len());
        let latest = self
            .records
            .iter()
            .map(|record| record.timestamp)
            .max()
            .unwrap_or(-1);
        let mut out = BytesMut::with_capacity(HEADER_LEN + payload.len());
        out.put_i64(self.base_offset);
        out.put_i32(self.batch_length.unwrap_or(natural_length));
        out.put_i32(-1);
        out.put_i8(self.magic);
        out.put_u32(0);
        out.put_i16(self.attributes());
        out.put_i32(self.last_offset_delta.unwrap_or(natural_delta));
        out.put_i64(base_timestamp);
        out.put_i64(self.max_timestamp.unwrap_or(latest));
        out.put_i64(self.producer.0);
        out.put_i16(self.producer.1);
        out.put_i32(self.producer.2);
        out.put_i32(self.count.unwrap_or(small(self.records.len())));
        out.put_slice(&payload);
        let crc = self
            .crc
            .unwrap_or_else(|| crc32c::crc32c(&out[at::ATTRIBUTES..]));
        out[at::CRC..at::CRC + 4].copy_from_slice(&crc.to_be_bytes());
        out.freeze()
    }

    fn attributes(&self) -> i16 {
        let codec = match self.codec {
            Codec::None => 0,
            Codec::Gzip => 1,
        };
        self.attribute_bits | codec
    }

    fn payload(&self, base_timestamp: i64) -> Vec<u8> {
        let mut plain = Vec::new();
        for (delta, record) in self.records.iter().enumerate() {
            put_record(&mut plain, record, base_timestamp, small(delta));
        }
        match self.codec {
            Codec::None => plain,
            Codec::Gzip => gzip_stored(&plain),
        }
    }
}

fn put_record(out: &mut Vec<u8>, record: &Rec, base_timestamp: i64, offset_delta: i32) {
    let mut body = vec![0];
    put_varint(&mut body, record.timestamp - base_timestamp);
    put_varint(&mut body, i64::from(offset_delta));
    put_field(&mut body, record.key.as_deref());
    put_field(&mut body, record.value.as_deref());
    put_varint(&mut body, 0);
    put_varint(out, i64::from(small(body.len())));
    out.extend_from_slice(&body);
}

fn put_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, i64::from(small(bytes.len())));
            out.extend_from_slice(bytes);
        }
    }
}

fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push((rest & 0x7f) as u8);
}

fn gzip_stored(plain: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let mut chunks = plain.chunks(0xffff).peekable();
    if chunks.peek().is_none() {
        out.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
    }
    while let Some(chunk) = chunks.next() {
        let len = u16::try_from(chunk.len()).expect("chunks of 65535 bytes");
        out.push(u8::from(chunks.peek().is_none()));
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&(!len).to_le_bytes());
        out.extend_from_slice(chunk);
    }
    out.extend_from_slice(&crc32(plain).to_le_bytes());
    out.extend_from_slice(&small(plain.len()).to_le_bytes());
    out
}

fn small(len: usize) -> i32 {
    i32::try_from(len).expect("a test batch fits 32 bits")
}

/// The length of the batch that the bytes start with, if all of it is there.
fn whole_batch(bytes: &[u8]) -> Option<usize> {
    let field = bytes.get(at::BATCH_LENGTH..at::LEADER_EPOCH)?;
    let length = i32::from_be_bytes(field.try_into().expect("4 bytes"));
    let whole = usize::try_from(length).ok()? + at::LEADER_EPOCH;
    (whole >= HEADER_LEN && whole <= bytes.len()).then_some(whole)
}

/// One batch as it came out of a fetch or lies in a segment.
#[derive(Clone, Debug)]
pub struct ParsedBatch {
    /// The whole batch.
    pub bytes: Bytes,
}

impl ParsedBatch {
    /// Splits bytes into whole batches; gives them and how many bytes of a cut one follow.
    #[must_use]
    pub fn split(mut bytes: Bytes) -> (Vec<Self>, usize) {
        let mut batches = Vec::new();
        while let Some(whole) = whole_batch(&bytes) {
            batches.push(Self {
                bytes: bytes.split_to(whole),
            });
        }
        (batches, bytes.len())
    }

    fn i16_at(&self, at: usize) -> i16 {
        i16::from_be_bytes(self.bytes[at..][..2].try_into().expect("2 bytes"))
    }

    fn i32_at(&self, at: usize) -> i32 {
        i32::from_be_bytes(self.bytes[at..][..4].try_into().expect("4 bytes"))
    }

    fn i64_at(&self, at: usize) -> i64 {
        i64::from_be_bytes(self.bytes[at..][..8].try_into().expect("8 bytes"))
    }

    /// Offset of the first record.
    #[must_use]
    pub fn base_offset(&self) -> i64 {
        self.i64_at(at::BASE_OFFSET)
    }

    /// Offset of the last record.
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.base_offset() + i64::from(self.i32_at(at::LAST_OFFSET_DELTA))
    }

    /// Partition leader epoch.
    #[must_use]
    pub fn leader_epoch(&self) -> i32 {
        self.i32_at(at::LEADER_EPOCH)
    }

    /// Attributes.
    #[must_use]
    pub fn attributes(&self) -> i16 {
        self.i16_at(at::ATTRIBUTES)
    }

    /// Max timestamp.
    #[must_use]
    pub fn max_timestamp(&self) -> i64 {
        self.i64_at(at::MAX_TIMESTAMP)
    }

    /// Producer id.
    #[must_use]
    pub fn producer_id(&self) -> i64 {
        self.i64_at(at::PRODUCER_ID)
    }

    /// Record count.
    #[must_use]
    pub fn count(&self) -> i32 {
        self.i32_at(at::RECORD_COUNT)
    }

    /// The bytes after the header.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        self.bytes.slice(HEADER_LEN..)
    }

    /// The records of a batch that is not compressed.
    ///
    /// # Panics
    /// When the batch is compressed, or its bytes are no records.
    #[must_use]
    pub fn records(&self) -> Vec<SeenRecord> {
        assert_eq!(self.attributes() & 7, 0, "compressed");
        let mut rest = self.payload();
        let mut records = Vec::new();
        for _ in 0..self.count() {
            let len = usize::try_from(take_varint(&mut rest)).expect("a length");
            let mut body = rest.split_to(len).slice(1..);
            let time = take_varint(&mut body);
            let offset = take_varint(&mut body);
            records.push(SeenRecord {
                offset: self.base_offset() + offset,
                timestamp: self.i64_at(at::BASE_TIMESTAMP) + time,
                key: take_nullable(&mut body),
                value: take_nullable(&mut body),
            });
        }
        assert!(rest.is_empty(), "bytes behind the last record");
        records
    }

    /// Whether the checksum holds.
    #[must_use]
    pub fn crc_holds(&self) -> bool {
        self.i32_at(at::CRC).cast_unsigned() == crc32c::crc32c(&self.bytes[at::ATTRIBUTES..])
    }
}

/// One record of a parsed batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRecord {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp.
    pub timestamp: i64,
    /// Key; `None` is null.
    pub key: Option<Bytes>,
    /// Value; `None` is null.
    pub value: Option<Bytes>,
}

fn take_varint(bytes: &mut Bytes) -> i64 {
    let mut raw = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.split_to(1)[0];
        raw |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    (raw >> 1).cast_signed() ^ -(raw & 1).cast_signed()
}

fn take_nullable(bytes: &mut Bytes) -> Option<Bytes> {
    let len = usize::try_from(take_varint(bytes)).ok()?;
    Some(bytes.split_to(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_built_batch_comes_apart_as_it_was_meant() {
        let built = BatchBuilder::of(&["a", "b"]).producer(7, 0, 3).build();
        let (batches, rest) = ParsedBatch::split(built);
        assert_eq!(rest, 0);
        assert_eq!(batches.len(), 1);
        assert_eq!(
            (
                batches[0].base_offset(),
                batches[0].last_offset(),
                batches[0].count()
            ),
            (0, 1, 2)
        );
        assert!(batches[0].crc_holds());
    }

    #[test]
    fn a_cut_batch_is_told_from_a_whole_one() {
        let built = BatchBuilder::of(&["a"]).build();
        let (batches, rest) = ParsedBatch::split(built.slice(..built.len() - 1));
        assert_eq!((batches.len(), rest), (0, built.len() - 1));
    }
}
