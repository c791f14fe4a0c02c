//! The record batch, format v2: the only parser of its 61-byte header.
//!
//! Owns:     the header layout, the rules for batches of producers, the edits the broker may make in a header.
//! Does not: decode records (`records.rs` does, off the hot path) or decide whether a batch may be appended.
//! Called from any thread; values are immutable and cheap to clone.
//!
//! # Invariants
//! B1. A `Batch` holds exactly one whole batch: `12 + batch_length` bytes, and at least a header.
//! B2. No byte of the payload is ever changed or copied here.
//!
//! Format: <https://kafka.apache.org/documentation/#recordbatch>.

use std::fmt;

use bytes::Bytes;

use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, wide};

/// Bytes of a batch header.
pub const HEADER_BYTES: usize = 61;
/// Bytes before the part that `batch_length` counts.
pub const LENGTH_END: usize = 12;
/// Where the bytes that the CRC covers begin.
const CRC_START: usize = 21;
/// The smallest whole batch, after the length field.
const LENGTH_MIN: usize = HEADER_BYTES - LENGTH_END;
/// What Kafka takes as the smallest length of any format; below it the length itself is called corrupt.
const LENGTH_MIN_ANY_FORMAT: i64 = 14;
/// Bytes up to and including the magic byte.
const MAGIC_END: usize = 17;
/// The smallest record: length, attributes, two deltas, two nulls, no headers; one byte each.
const RECORD_BYTES_MIN: u64 = 7;

/// The attribute bits of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes(pub u16);

/// How the records of a batch are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Codec {
    /// Not at all.
    None,
    /// RFC 1952.
    Gzip,
    /// Raw snappy or the Java client's framing.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// RFC 8878.
    Zstd,
}

impl Attributes {
    const LOG_APPEND_TIME: u16 = 1 << 3;
    const TRANSACTIONAL: u16 = 1 << 4;
    const CONTROL: u16 = 1 << 5;
    const DELETE_HORIZON: u16 = 1 << 6;
    const CODEC: u16 = 7;

    /// What a marker has: transactional and control.
    pub(crate) const MARKER: Self = Self(Self::TRANSACTIONAL | Self::CONTROL);

    /// The codec; `None` for a number nobody has defined.
    pub fn codec(self) -> Option<Codec> {
        match self.0 & 7 {
            0 => Some(Codec::None),
            1 => Some(Codec::Gzip),
            2 => Some(Codec::Snappy),
            3 => Some(Codec::Lz4),
            4 => Some(Codec::Zstd),
            _ => None,
        }
    }

    /// Whether `max_timestamp` is the time of the append and holds for every record.
    pub fn is_log_append_time(self) -> bool {
        self.0 & Self::LOG_APPEND_TIME != 0
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the base timestamp is the time from which on the batch's tombstones may go (KIP-534).
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    pub(crate) fn with_delete_horizon(self) -> Self {
        Self(self.0 | Self::DELETE_HORIZON)
    }

    pub(crate) fn without_codec(self) -> Self {
        Self(self.0 & !Self::CODEC)
    }

    /// Whether the batch holds a marker instead of records.
    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }
}

/// A parsed header. Field names are the format's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Bytes of the batch after the length field.
    pub batch_length: i32,
    /// Epoch of the leader that appended it.
    pub leader_epoch: LeaderEpoch,
    /// Format version.
    pub magic: i8,
    /// CRC-32C of everything from the attributes to the end.
    pub crc: u32,
    /// Attribute bits.
    pub attributes: Attributes,
    /// Offset of the last record, relative to the first.
    pub last_offset_delta: i32,
    /// Timestamp of the first record.
    pub base_timestamp: Timestamp,
    /// Largest timestamp, as the producer says.
    pub max_timestamp: Timestamp,
    /// Producer id, or none.
    pub producer_id: ProducerId,
    /// Producer epoch, or none.
    pub producer_epoch: ProducerEpoch,
    /// Sequence of the first record, or none.
    pub base_sequence: Sequence,
    /// Number of records.
    pub record_count: i32,
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

impl BatchHeader {
    /// Reads the fields; checks nothing.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        Self {
            base_offset: Offset(i64::from_be_bytes(take(bytes, 0))),
            batch_length: i32::from_be_bytes(take(bytes, 8)),
            leader_epoch: LeaderEpoch(i32::from_be_bytes(take(bytes, 12))),
            magic: i8::from_be_bytes(take(bytes, 16)),
            crc: u32::from_be_bytes(take(bytes, 17)),
            attributes: Attributes(u16::from_be_bytes(take(bytes, 21))),
            last_offset_delta: i32::from_be_bytes(take(bytes, 23)),
            base_timestamp: Timestamp(i64::from_be_bytes(take(bytes, 27))),
            max_timestamp: Timestamp(i64::from_be_bytes(take(bytes, 35))),
            producer_id: ProducerId(i64::from_be_bytes(take(bytes, 43))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(take(bytes, 51))),
            base_sequence: Sequence(i32::from_be_bytes(take(bytes, 53))),
            record_count: i32::from_be_bytes(take(bytes, 57)),
        }
    }

    /// Reads the header at the start of `bytes`; `None` if there are fewer than 61 of them.
    pub fn peek(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk::<HEADER_BYTES>().map(Self::decode)
    }

    /// Writes the fields.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..8].copy_from_slice(&self.base_offset.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.batch_length.to_be_bytes());
        out[12..16].copy_from_slice(&self.leader_epoch.0.to_be_bytes());
        out[16..17].copy_from_slice(&self.magic.to_be_bytes());
        out[17..21].copy_from_slice(&self.crc.to_be_bytes());
        out[21..23].copy_from_slice(&self.attributes.0.to_be_bytes());
        out[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        out[27..35].copy_from_slice(&self.base_timestamp.0.to_be_bytes());
        out[35..43].copy_from_slice(&self.max_timestamp.0.to_be_bytes());
        out[43..51].copy_from_slice(&self.producer_id.0.to_be_bytes());
        out[51..53].copy_from_slice(&self.producer_epoch.0.to_be_bytes());
        out[53..57].copy_from_slice(&self.base_sequence.0.to_be_bytes());
        out[57..61].copy_from_slice(&self.record_count.to_be_bytes());
        out
    }

    /// Bytes of the whole batch; `None` if the length field is impossible for this format.
    pub fn total_len(&self) -> Option<u64> {
        let length = u64::try_from(self.batch_length).ok()?;
        (length >= wide(LENGTH_MIN)).then_some(length + wide(LENGTH_END))
    }

    /// Offset of the last record.
    pub fn last_offset(&self) -> Offset {
        self.base_offset.plus(i64::from(self.last_offset_delta))
    }

    /// Offset after the last record.
    pub fn next_offset(&self) -> Offset {
        self.last_offset().plus(1)
    }

    /// Sequence of the last record.
    pub fn last_sequence(&self) -> Sequence {
        self.base_sequence.plus(self.last_offset_delta)
    }

    /// Whether it stands for batches that compaction removed: no record, and nobody's.
    pub fn is_gap(&self) -> bool {
        self.record_count == 0 && !self.has_producer()
    }

    /// Whether the batch was sent by an idempotent producer.
    pub fn has_producer(&self) -> bool {
        self.producer_id > ProducerId::NONE
    }
}

/// What is wrong with a batch. The sender's fault (or, in a file, the disk's); nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchError {
    /// There are no bytes.
    Empty,
    /// The bytes end before the batch does.
    Short,
    /// The length field is smaller than any batch.
    ImpossibleLength(i32),
    /// A format older than v2.
    OldMagic(i8),
    /// A format that does not exist.
    UnknownMagic(i8),
    /// The checksum does not match.
    CrcMismatch,
    /// Larger than the topic allows.
    TooLarge {
        /// Bytes of the batch as sent.
        bytes: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// Another whole batch follows.
    MoreThanOne,
    /// The base offset is not 0.
    BaseOffsetNotZero(Offset),
    /// Record count, last offset delta and length do not agree, or there is no record.
    BadCount,
    /// A client sent a control batch.
    ControlBatch,
    /// Transactional without a producer id.
    TransactionalWithoutProducer,
    /// A producer id without a sequence or an epoch.
    ProducerWithoutSequence,
    /// A compression codec that does not exist, or that this request version may not use.
    UnsupportedCodec,
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no record batch"),
            Self::Short => f.write_str("the batch ends early"),
            Self::ImpossibleLength(n) => write!(f, "impossible batch length {n}"),
            Self::OldMagic(m) => write!(f, "record format {m} is not supported, 2 is"),
            Self::UnknownMagic(m) => write!(f, "unknown record format {m}"),
            Self::CrcMismatch => f.write_str("the checksum does not match"),
            Self::TooLarge { bytes, limit } => {
                write!(f, "batch of {bytes} bytes, {limit} are allowed")
            }
            Self::MoreThanOne => f.write_str("more than one record batch"),
            Self::BaseOffsetNotZero(o) => write!(f, "base offset {o} instead of 0"),
            Self::BadCount => {
                f.write_str("record count, last offset delta and length do not agree")
            }
            Self::ControlBatch => f.write_str("clients may not write control batches"),
            Self::TransactionalWithoutProducer => {
                f.write_str("transactional batch without a producer id")
            }
            Self::ProducerWithoutSequence => {
                f.write_str("producer id without a valid epoch and sequence")
            }
            Self::UnsupportedCodec => f.write_str("unsupported compression codec"),
        }
    }
}

impl std::error::Error for BatchError {}

/// What a batch of a producer is measured against.
#[derive(Debug, Clone, Copy)]
pub struct ProducerRules {
    /// `max.message.bytes` of the topic, for the batch as sent.
    pub max_batch_bytes: u64,
    /// Whether zstd is allowed (Produce v7 and above).
    pub zstd: bool,
    /// Check the CRC here; otherwise the caller calls [`Batch::check_crc`] on the thread it prefers.
    pub check_crc: bool,
}

/// Exactly one whole batch and its parsed header (B1).
#[derive(Debug, Clone)]
pub struct Batch {
    bytes: Bytes,
    header: BatchHeader,
}

impl Batch {
    /// Takes the first batch of `bytes`; what follows is ignored. Checks magic and lengths, not the CRC.
    pub fn parse_one(bytes: &Bytes) -> Result<Self, BatchError> {
        let total = whole_len(bytes)?;
        let header = BatchHeader::peek(bytes).ok_or(BatchError::Short)?;
        Ok(Self {
            bytes: bytes.slice(..total),
            header,
        })
    }

    /// A batch of our own: length and CRC are filled in.
    pub(crate) fn assemble(mut header: BatchHeader, payload: &[u8]) -> Self {
        let length = HEADER_BYTES - LENGTH_END + payload.len();
        header.batch_length = i32::try_from(length).unwrap_or(i32::MAX);
        let crc = crc32c::crc32c(&header.encode()[CRC_START..]);
        header.crc = crc32c::crc32c_append(crc, payload);
        let bytes = [header.encode().as_slice(), payload].concat().into();
        Self { bytes, header }
    }

    /// Takes the one batch that a producer sent for a partition. A half batch behind it is dropped.
    pub fn from_producer(records: &Bytes, rules: &ProducerRules) -> Result<Self, BatchError> {
        let batch = Self::parse_one(records)?;
        match whole_len(&records[batch.len()..]) {
            Ok(_) | Err(BatchError::OldMagic(_)) => return Err(BatchError::MoreThanOne),
            Err(BatchError::Empty | BatchError::Short) => {}
            Err(other) => return Err(other),
        }
        if wide(batch.len()) > rules.max_batch_bytes {
            return Err(BatchError::TooLarge {
                bytes: wide(batch.len()),
                limit: rules.max_batch_bytes,
            });
        }
        if rules.check_crc {
            batch.check_crc()?;
        }
        batch.check_producer_fields(rules.zstd)?;
        Ok(batch)
    }

    fn check_producer_fields(&self, zstd: bool) -> Result<(), BatchError> {
        let h = &self.header;
        if h.base_offset != Offset::ZERO {
            return Err(BatchError::BaseOffsetNotZero(h.base_offset));
        }
        self.check_counts()?;
        if h.attributes.is_control() {
            return Err(BatchError::ControlBatch);
        }
        if h.attributes.is_transactional() && !h.has_producer() {
            return Err(BatchError::TransactionalWithoutProducer);
        }
        if h.has_producer()
            && (h.base_sequence < Sequence(0) || h.producer_epoch < ProducerEpoch(0))
        {
            return Err(BatchError::ProducerWithoutSequence);
        }
        match h.attributes.codec() {
            None => Err(BatchError::UnsupportedCodec),
            Some(Codec::Zstd) if !zstd => Err(BatchError::UnsupportedCodec),
            Some(_) => Ok(()),
        }
    }

    fn check_counts(&self) -> Result<(), BatchError> {
        let h = &self.header;
        let agrees = h.record_count > 0 && h.last_offset_delta == h.record_count - 1;
        let payload = wide(self.payload().len());
        let bytes_min = match h.attributes.codec() {
            Some(Codec::None) => u64::try_from(h.record_count).unwrap_or(0) * RECORD_BYTES_MIN,
            _ => 1,
        };
        if agrees && payload >= bytes_min {
            Ok(())
        } else {
            Err(BatchError::BadCount)
        }
    }

    /// Compares the CRC field with the bytes.
    pub fn check_crc(&self) -> Result<(), BatchError> {
        if crc32c::crc32c(&self.bytes[CRC_START..]) == self.header.crc {
            Ok(())
        } else {
            Err(BatchError::CrcMismatch)
        }
    }

    /// The parsed header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Bytes of the whole batch.
    #[expect(clippy::len_without_is_empty, reason = "a batch is never empty (B1)")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The whole batch.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Everything after the header.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// The header as it is stored: base offset and leader epoch set, timestamp type as the topic wants it.
    /// They lie outside the CRC; only a changed type bit or append time costs a new one (B2).
    pub fn stored_header(
        &self,
        base: Offset,
        epoch: LeaderEpoch,
        append_time: Option<Timestamp>,
    ) -> BatchHeader {
        let mut header = BatchHeader {
            base_offset: base,
            leader_epoch: epoch,
            ..self.header
        };
        match append_time {
            Some(time) => {
                header.attributes.0 |= Attributes::LOG_APPEND_TIME;
                header.max_timestamp = time;
            }
            None if header.attributes.is_log_append_time() => {
                header.attributes.0 &= !Attributes::LOG_APPEND_TIME;
            }
            None => return header,
        }
        let crc = crc32c::crc32c(&header.encode()[CRC_START..]);
        header.crc = crc32c::crc32c_append(crc, self.payload());
        header
    }
}

/// Length of the whole batch at the start of `bytes`.
fn whole_len(bytes: &[u8]) -> Result<usize, BatchError> {
    if bytes.is_empty() {
        return Err(BatchError::Empty);
    }
    if bytes.len() < LENGTH_END {
        return Err(BatchError::Short);
    }
    let length = i32::from_be_bytes(take(bytes, 8));
    if i64::from(length) < LENGTH_MIN_ANY_FORMAT {
        return Err(BatchError::ImpossibleLength(length));
    }
    if bytes.len() < MAGIC_END {
        return Err(BatchError::Short);
    }
    match i8::from_be_bytes(take(bytes, 16)) {
        2 => {}
        magic @ 0..2 => return Err(BatchError::OldMagic(magic)),
        magic => return Err(BatchError::UnknownMagic(magic)),
    }
    let length = usize::try_from(length).map_err(|_| BatchError::ImpossibleLength(length))?;
    if bytes.len() - LENGTH_END < length {
        return Err(BatchError::Short);
    }
    if length < LENGTH_MIN {
        return Err(BatchError::ImpossibleLength(i32::from_be_bytes(take(
            bytes, 8,
        ))));
    }
    Ok(LENGTH_END + length)
}
