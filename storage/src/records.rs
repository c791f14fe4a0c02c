//! The one decoder of records. It is never used on the way of a Produce or a Fetch.
//!
//! Owns:     decompression and record parsing, both bounded; the counters that show who decodes.
//! Does not: trust any length or count: nothing is allocated beyond `Limits`, and a batch that lies ends in an error.
//! Called from `work-*` and compaction threads.
//!
//! # Invariants
//! K1. Decompressed bytes are counted as they appear; at `Limits::bytes_max` the decoder stops, however small the input.
//! K2. Every use is counted at its site, so that a test can assert that the hot path has no site.

use std::cell::Cell;
use std::fmt;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::batch::{Batch, Codec};
use crate::types::{Offset, Timestamp, wide};

mod snappy;

/// How much a decoder may produce.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Decompressed bytes of one batch.
    pub bytes_max: u64,
}

impl Default for Limits {
    /// 256 MiB: more than any batch that fits a request can sensibly hold.
    fn default() -> Self {
        Self {
            bytes_max: 256 * 1024 * 1024,
        }
    }
}

/// Why records are decoded; each has its own counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeSite {
    /// ListOffsets by timestamp.
    TimestampLookup,
    /// Produce to a compacted topic: keys are required.
    CompactedProduce,
    /// Compaction.
    Compaction,
    /// Tools and tests.
    Tool,
}

static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// How many batches have been decoded at a site in this process.
pub fn decoded_batches(site: DecodeSite) -> u64 {
    counter(site).load(Ordering::Relaxed)
}

fn counter(site: DecodeSite) -> &'static AtomicU64 {
    match site {
        DecodeSite::TimestampLookup => &COUNTS[0],
        DecodeSite::CompactedProduce => &COUNTS[1],
        DecodeSite::Compaction => &COUNTS[2],
        DecodeSite::Tool => &COUNTS[3],
    }
}

thread_local! {
    static DECODED_HERE: Cell<u64> = const { Cell::new(0) };
}

/// How many batches this very thread has decoded: the broker compares it around
/// the steps of the hot path, where it must not move (K2).
pub fn decoded_on_this_thread() -> u64 {
    DECODED_HERE.get()
}

/// What is wrong with the payload of a batch. The producer's fault; the batch itself may be stored and served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordError {
    /// The codec number is not defined.
    UnknownCodec,
    /// The compressed bytes are damaged.
    Decompress,
    /// More than `Limits::bytes_max`.
    TooLarge,
    /// A record's lengths do not fit its bytes, or fewer or more records than the header says.
    Malformed,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownCodec => "unknown compression codec",
            Self::Decompress => "the compressed records are damaged",
            Self::TooLarge => "the records are too large when decompressed",
            Self::Malformed => "the records are malformed",
        })
    }
}

impl std::error::Error for RecordError {}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its offset.
    pub offset: Offset,
    /// Its timestamp; for `LogAppendTime` that of the batch.
    pub timestamp: Timestamp,
    /// Key, or none.
    pub key: Option<Bytes>,
    /// Value, or none (a tombstone).
    pub value: Option<Bytes>,
    /// Headers in order.
    pub headers: RecordHeaders,
}

/// The headers of a record, as they lie in it: an empty one takes two bytes there and thirty times that as a pair, so pairs
/// are made one by one, for whoever looks at them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHeaders {
    count: i32,
    bytes: Bytes,
}

impl RecordHeaders {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(0)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Key and value of each.
    pub fn iter(&self) -> impl Iterator<Item = (Bytes, Option<Bytes>)> {
        let mut parser = Parser(self.bytes.clone());
        // They were walked once, so each is whole.
        (0..self.count).map_while(move |_| parser.header().ok())
    }
}

/// The records of a batch, one after the other.
#[derive(Debug)]
pub struct Records {
    batch: Batch,
    bytes: Bytes,
    left: i32,
    failed: bool,
}

impl Records {
    /// Decompresses a batch.
    pub fn decode(batch: &Batch, limits: &Limits, site: DecodeSite) -> Result<Self, RecordError> {
        counter(site).fetch_add(1, Ordering::Relaxed);
        DECODED_HERE.set(DECODED_HERE.get() + 1);
        let codec = batch.header().attributes.codec();
        let codec = codec.ok_or(RecordError::UnknownCodec)?;
        let payload = batch.bytes().slice(crate::batch::HEADER_BYTES..);
        Ok(Self {
            batch: batch.clone(),
            bytes: decompress(codec, payload, limits)?,
            left: batch.header().record_count,
            failed: false,
        })
    }

    fn read_record(&mut self) -> Result<Record, RecordError> {
        let mut body = Parser(take_prefixed(&mut self.bytes)?.ok_or(RecordError::Malformed)?);
        body.take(1)?;
        let time_delta = body.varlong()?;
        let offset_delta = body.varint()?;
        let (key, value) = (body.bytes()?, body.bytes()?);
        let headers = body.headers()?;
        if !body.0.is_empty() {
            return Err(RecordError::Malformed);
        }
        let header = self.batch.header();
        let timestamp = if header.attributes.is_log_append_time() {
            header.max_timestamp
        } else {
            Timestamp(header.base_timestamp.0.wrapping_add(time_delta))
        };
        Ok(Record {
            offset: header.base_offset.plus(i64::from(offset_delta)),
            timestamp,
            key,
            value,
            headers,
        })
    }
}

impl Iterator for Records {
    type Item = Result<Record, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || (self.left <= 0 && self.bytes.is_empty()) {
            return None;
        }
        let record = if self.left <= 0 {
            Err(RecordError::Malformed)
        } else {
            self.read_record()
        };
        self.left -= 1;
        self.failed = record.is_err();
        Some(record)
    }
}

fn decompress(codec: Codec, payload: Bytes, limits: &Limits) -> Result<Bytes, RecordError> {
    match codec {
        Codec::None => Ok(payload),
        Codec::Gzip => bounded(
            flate2::bufread::MultiGzDecoder::new(payload.as_ref()),
            limits,
        ),
        Codec::Lz4 => bounded(lz4_flex::frame::FrameDecoder::new(payload.as_ref()), limits),
        Codec::Zstd => bounded(zstd(&payload)?, limits),
        Codec::Snappy => snappy::decompress(&payload, limits),
    }
}

/// What a packed payload unpacks to, at most `bytes_max` bytes.
pub(crate) fn decompressed(
    codec: Codec,
    payload: &Bytes,
    bytes_max: u64,
) -> Result<Bytes, RecordError> {
    decompress(codec, payload.clone(), &Limits { bytes_max })
}

/// A record of which only what compaction asks about was taken apart.
#[derive(Debug, Clone)]
pub(crate) struct RawRecord {
    attributes: Bytes,
    pub(crate) time_delta: i64,
    pub(crate) offset_delta: i32,
    pub(crate) key: Option<Bytes>,
    /// No value: the key is deleted.
    pub(crate) is_tombstone: bool,
    /// From the offset delta on.
    rest: Bytes,
}

impl RawRecord {
    fn parse(mut body: Parser) -> Result<Self, RecordError> {
        let attributes = body.take(1)?;
        let time_delta = body.varlong()?;
        let rest = body.0.clone();
        let offset_delta = body.varint()?;
        let key = body.bytes()?;
        let is_tombstone = body.bytes()?.is_none();
        body.headers()?;
        if body.0.is_empty() {
            Ok(Self {
                attributes,
                time_delta,
                offset_delta,
                key,
                is_tombstone,
                rest,
            })
        } else {
            Err(RecordError::Malformed)
        }
    }

    /// Appends the record with another timestamp delta.
    pub(crate) fn write(&self, out: &mut Vec<u8>, time_delta: i64) {
        let mut delta = Vec::with_capacity(10);
        write_varlong(&mut delta, time_delta);
        let len = self.attributes.len() + delta.len() + self.rest.len();
        write_varlong(out, i64::try_from(len).unwrap_or(i64::MAX));
        out.extend_from_slice(&self.attributes);
        out.extend_from_slice(&delta);
        out.extend_from_slice(&self.rest);
    }
}

fn write_varlong(out: &mut Vec<u8>, value: i64) {
    let mut zigzag = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while zigzag >= 0x80 {
        out.push(u8::try_from(zigzag & 0x7f).unwrap_or(0) | 0x80);
        zigzag >>= 7;
    }
    out.push(u8::try_from(zigzag).unwrap_or(0));
}

/// Records of one batch that compaction takes apart: each takes 112 bytes for a moment, where it may have taken eight packed
/// ones. A producer's batch has some thousands.
const RAW_RECORDS_MAX: i32 = 1 << 20;

/// All records of a batch, for compaction; their offsets lie within the batch and grow.
pub(crate) fn raw_records(batch: &Batch, limits: &Limits) -> Result<Vec<RawRecord>, RecordError> {
    let header = batch.header();
    if header.record_count > RAW_RECORDS_MAX {
        return Err(RecordError::TooLarge);
    }
    let mut records = Records::decode(batch, limits, DecodeSite::Compaction)?;
    let mut found = Vec::new();
    let mut least = 0;
    while !records.bytes.is_empty() {
        let body = take_prefixed(&mut records.bytes)?.ok_or(RecordError::Malformed)?;
        let record = RawRecord::parse(Parser(body))?;
        if !(least..=header.last_offset_delta).contains(&record.offset_delta) {
            return Err(RecordError::Malformed);
        }
        least = record.offset_delta.saturating_add(1);
        if i32::try_from(found.len()).is_ok_and(|len| len >= header.record_count) {
            return Err(RecordError::Malformed);
        }
        found.push(record);
    }
    let count = i32::try_from(found.len()).map_err(|_| RecordError::Malformed)?;
    if count == header.record_count {
        Ok(found)
    } else {
        Err(RecordError::Malformed)
    }
}

/// The first record of a batch at or after `time`, and not before `from`: for `LogAppendTime` the batch's first (no record
/// is decoded then).
pub fn find_timestamp(
    batch: &Batch,
    time: Timestamp,
    from: Offset,
) -> Result<Option<(Offset, Timestamp)>, RecordError> {
    let header = batch.header();
    if header.attributes.is_log_append_time() {
        return Ok((header.max_timestamp >= time)
            .then_some((header.base_offset.max(from), header.max_timestamp)));
    }
    for record in Records::decode(batch, &Limits::default(), DecodeSite::TimestampLookup)? {
        let record = record?;
        if record.timestamp >= time && record.offset >= from {
            return Ok(Some((record.offset, record.timestamp)));
        }
    }
    Ok(None)
}

/// The first record of a batch that has its largest timestamp.
pub fn find_max_timestamp(batch: &Batch) -> Result<Option<(Offset, Timestamp)>, RecordError> {
    let header = batch.header();
    if header.attributes.is_log_append_time() {
        return Ok(Some((header.base_offset, header.max_timestamp)));
    }
    let mut best: Option<(Offset, Timestamp)> = None;
    for record in Records::decode(batch, &Limits::default(), DecodeSite::TimestampLookup)? {
        let record = record?;
        if best.is_none_or(|(_, time)| record.timestamp > time) {
            best = Some((record.offset, record.timestamp));
        }
    }
    Ok(best)
}

fn zstd(payload: &[u8]) -> Result<impl Read + '_, RecordError> {
    ruzstd::decoding::StreamingDecoder::new(payload).map_err(|_| RecordError::Decompress)
}

/// Reads to the end, or to the limit (K1).
fn bounded(reader: impl Read, limits: &Limits) -> Result<Bytes, RecordError> {
    let mut out = Vec::new();
    let read = reader
        .take(limits.bytes_max.saturating_add(1))
        .read_to_end(&mut out);
    read.map_err(|_| RecordError::Decompress)?;
    if wide(out.len()) > limits.bytes_max {
        Err(RecordError::TooLarge)
    } else {
        Ok(out.into())
    }
}

/// Bytes behind a varint length; `None` for a negative length. The length is measured against the bytes left.
fn take_prefixed(bytes: &mut Bytes) -> Result<Option<Bytes>, RecordError> {
    let mut parser = Parser(std::mem::take(bytes));
    let taken = parser.bytes();
    *bytes = parser.0;
    taken
}

struct Parser(Bytes);

impl Parser {
    fn take(&mut self, len: usize) -> Result<Bytes, RecordError> {
        if len > self.0.len() {
            Err(RecordError::Malformed)
        } else {
            Ok(self.0.split_to(len))
        }
    }

    fn varlong(&mut self) -> Result<i64, RecordError> {
        let mut raw = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.0.first().ok_or(RecordError::Malformed)?;
            self.0 = self.0.slice(1..);
            raw |= u64::from(byte & 0x7f) << shift.min(63);
            if byte & 0x80 == 0 {
                return Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed());
            }
        }
        Err(RecordError::Malformed)
    }

    fn varint(&mut self) -> Result<i32, RecordError> {
        i32::try_from(self.varlong()?).map_err(|_| RecordError::Malformed)
    }

    fn bytes(&mut self) -> Result<Option<Bytes>, RecordError> {
        match self.varint()? {
            -1 => Ok(None),
            len => self
                .take(usize::try_from(len).map_err(|_| RecordError::Malformed)?)
                .map(Some),
        }
    }

    fn header(&mut self) -> Result<(Bytes, Option<Bytes>), RecordError> {
        Ok((self.bytes()?.ok_or(RecordError::Malformed)?, self.bytes()?))
    }

    /// Walks over the headers; keeps none.
    fn headers(&mut self) -> Result<RecordHeaders, RecordError> {
        let count = self.varint()?;
        if count < 0 {
            return Err(RecordError::Malformed);
        }
        let mut bytes = self.0.clone();
        for _ in 0..count {
            self.header()?;
        }
        bytes.truncate(bytes.len() - self.0.len());
        Ok(RecordHeaders { count, bytes })
    }
}
