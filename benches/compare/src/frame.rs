//! Prebuilt Produce (v9) and Fetch (v12) frames of which only a few fields change, and the look at their answers.
//!
//! Owns:     the byte positions inside those frames.
//! Does not: know sockets. Both layouts are those of Kafka's protocol guide for flexible versions (KIP-482).

use crate::batch;
use crate::error::{Error, Result};

const CLIENT: &[u8] = b"seawall-compare";
const CORRELATION_AT: usize = 8;
/// Header tags, topic tags, partition tags and body tags at the end of a request.
const PRODUCE_TAIL: usize = 3;
const PRODUCE_TIMEOUT_MS: i32 = 30_000;
const FETCH_WAIT_MS: i32 = 500;
const FETCH_MAX_BYTES: i32 = 50 * 1024 * 1024;

/// A Produce v9 request with one batch for one partition.
pub(crate) struct Produce {
    bytes: Vec<u8>,
    batch_at: usize,
}

impl Produce {
    /// Builds the frame around `batch`.
    pub(crate) fn new(topic: &str, partition: i32, acks: i16, batch: &[u8]) -> Result<Self> {
        let mut bytes = head(0, 9);
        bytes.push(0); // no transactional id
        bytes.extend_from_slice(&acks.to_be_bytes());
        bytes.extend_from_slice(&PRODUCE_TIMEOUT_MS.to_be_bytes());
        put_uvarint(&mut bytes, 2); // one topic
        put_name(&mut bytes, topic)?;
        put_uvarint(&mut bytes, 2); // one partition
        bytes.extend_from_slice(&partition.to_be_bytes());
        put_uvarint(&mut bytes, batch.len() + 1);
        let batch_at = bytes.len();
        bytes.extend_from_slice(batch);
        bytes.extend_from_slice(&[0; PRODUCE_TAIL]);
        set_length(&mut bytes)?;
        Ok(Self { bytes, batch_at })
    }

    /// The frame under that correlation id.
    pub(crate) fn with_correlation(&mut self, id: i32) -> &[u8] {
        set_i32(&mut self.bytes, CORRELATION_AT, id);
        &self.bytes
    }

    /// The batch inside the frame, for changes that keep its length.
    pub(crate) fn batch_mut(&mut self) -> &mut [u8] {
        let end = self.bytes.len() - PRODUCE_TAIL;
        &mut self.bytes[self.batch_at..end]
    }
}

/// What a Produce answer says about its one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Produced {
    pub(crate) correlation: i32,
    pub(crate) base_offset: i64,
}

/// Reads a Produce v9 answer (without its length prefix) for a topic whose name has `name_len` bytes.
pub(crate) fn produced(answer: &[u8], name_len: usize) -> Result<Produced> {
    let mut at = Cursor::new(answer, "Produce answer");
    let correlation = at.i32()?;
    at.skip(1 + 1 + 1 + name_len + 1 + 4)?; // header tags, topics, name, partitions, index
    let code = at.i16()?;
    let base_offset = at.i64()?;
    if code != 0 {
        return Err(Error::Code {
            api: "Produce",
            code,
        });
    }
    Ok(Produced {
        correlation,
        base_offset,
    })
}

/// A Fetch v12 request for one partition, outside any session.
pub(crate) struct Fetch {
    bytes: Vec<u8>,
    offset_at: usize,
}

impl Fetch {
    /// Builds the frame; `max_bytes` is the limit for the partition.
    pub(crate) fn new(topic: &str, partition: i32, max_bytes: i32) -> Result<Self> {
        let mut bytes = head(1, 12);
        bytes.extend_from_slice(&(-1i32).to_be_bytes()); // replica id
        bytes.extend_from_slice(&FETCH_WAIT_MS.to_be_bytes());
        bytes.extend_from_slice(&1i32.to_be_bytes()); // min bytes
        bytes.extend_from_slice(&FETCH_MAX_BYTES.to_be_bytes());
        bytes.push(0); // read uncommitted
        bytes.extend_from_slice(&0i32.to_be_bytes()); // session id
        bytes.extend_from_slice(&(-1i32).to_be_bytes()); // session epoch: none
        put_uvarint(&mut bytes, 2); // one topic
        put_name(&mut bytes, topic)?;
        put_uvarint(&mut bytes, 2); // one partition
        bytes.extend_from_slice(&partition.to_be_bytes());
        bytes.extend_from_slice(&(-1i32).to_be_bytes()); // current leader epoch
        let offset_at = bytes.len();
        bytes.extend_from_slice(&0i64.to_be_bytes());
        bytes.extend_from_slice(&(-1i32).to_be_bytes()); // last fetched epoch
        bytes.extend_from_slice(&(-1i64).to_be_bytes()); // log start offset
        bytes.extend_from_slice(&max_bytes.to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 1, 1, 0]); // tags, tags, nothing forgotten, rack "", tags
        set_length(&mut bytes)?;
        Ok(Self { bytes, offset_at })
    }

    /// The frame for that offset.
    pub(crate) fn at_offset(&mut self, correlation: i32, offset: i64) -> &[u8] {
        set_i32(&mut self.bytes, CORRELATION_AT, correlation);
        self.bytes[self.offset_at..self.offset_at + 8].copy_from_slice(&offset.to_be_bytes());
        &self.bytes
    }
}

/// What a Fetch answer says about its one partition.
pub(crate) struct Fetched<'a> {
    pub(crate) correlation: i32,
    pub(crate) high_watermark: i64,
    pub(crate) records: &'a [u8],
}

/// Reads a Fetch v12 answer (without its length prefix) for a topic whose name has `name_len` bytes.
pub(crate) fn fetched(answer: &[u8], name_len: usize) -> Result<Fetched<'_>> {
    let mut at = Cursor::new(answer, "Fetch answer");
    let correlation = at.i32()?;
    at.skip(1 + 4)?; // header tags, throttle time
    let code = at.i16()?;
    no_error(code)?;
    at.skip(4 + 1 + 1 + name_len + 1 + 4)?; // session, topics, name, partitions, index
    let code = at.i16()?;
    no_error(code)?;
    let high_watermark = at.i64()?;
    at.skip(8 + 8)?; // last stable offset, log start offset
    if at.uvarint()? > 1 {
        return Err(Error::Malformed {
            what: "Fetch answer: aborted transactions without any transaction",
        });
    }
    at.skip(4)?; // preferred replica
    let len = at.uvarint()?.saturating_sub(1);
    Ok(Fetched {
        correlation,
        high_watermark,
        records: at.bytes(len)?,
    })
}

fn no_error(code: i16) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::Code { api: "Fetch", code })
}

/// The four bytes in front of every frame.
pub(crate) fn length(prefix: [u8; 4]) -> Result<usize> {
    usize::try_from(i32::from_be_bytes(prefix)).map_err(|_| Error::Malformed {
        what: "length of an answer",
    })
}

/// Length (set later), request header v2.
fn head(api_key: i16, version: i16) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(&api_key.to_be_bytes());
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes.extend_from_slice(&0i32.to_be_bytes());
    bytes.extend_from_slice(&[0, CLIENT.len().to_le_bytes()[0]]);
    bytes.extend_from_slice(CLIENT);
    bytes.push(0); // tags
    bytes
}

fn put_name(bytes: &mut Vec<u8>, name: &str) -> Result<()> {
    // One length byte keeps the position of every field in the answers fixed.
    if name.len() > 126 {
        return Err(Error::Usage("topic name too long"));
    }
    put_uvarint(bytes, name.len() + 1);
    bytes.extend_from_slice(name.as_bytes());
    Ok(())
}

fn put_uvarint(out: &mut Vec<u8>, n: usize) {
    let mut rest = n;
    while rest >= 0x80 {
        out.push((rest.to_le_bytes()[0] & 0x7f) | 0x80);
        rest >>= 7;
    }
    out.push(rest.to_le_bytes()[0]);
}

fn set_length(bytes: &mut [u8]) -> Result<()> {
    let len = i32::try_from(bytes.len() - 4).map_err(|_| Error::Usage("frame too large"))?;
    set_i32(bytes, 0, len);
    Ok(())
}

fn set_i32(bytes: &mut [u8], at: usize, value: i32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Bounds-checked reading of one answer.
struct Cursor<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Cursor<'a> {
    fn new(rest: &'a [u8], what: &'static str) -> Self {
        Self { rest, what }
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let Some((head, tail)) = self.rest.split_at_checked(len) else {
            return Err(Error::Malformed { what: self.what });
        };
        self.rest = tail;
        Ok(head)
    }

    fn skip(&mut self, len: usize) -> Result<()> {
        self.bytes(len).map(drop)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N)?);
        Ok(out)
    }

    fn i16(&mut self) -> Result<i16> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_be_bytes)
    }

    fn uvarint(&mut self) -> Result<usize> {
        let mut value = 0usize;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::Malformed { what: self.what })
    }
}

/// Walks the whole batches of a fetch from `expected` on; returns the offset after them and their bytes.
pub(crate) fn walk(records: &[u8], expected: i64, with_crc: bool) -> Result<(i64, usize)> {
    let mut next = expected;
    let mut at = 0;
    while let Some(seen) = batch::look(&records[at..])? {
        if seen.base_offset != next {
            return Err(Error::Wrong {
                what: "base offset of a fetched batch",
                expected: next,
                found: seen.base_offset,
            });
        }
        if with_crc {
            batch::check_crc(&records[at..at + seen.bytes])?;
        }
        next = seen.next_offset;
        at += seen.bytes;
    }
    Ok((next, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_wire::fetch_response::{FetchableTopicResponse, PartitionData};
    use kafka_wire::produce_response::{PartitionProduceResponse, TopicProduceResponse};
    use kafka_wire::{FetchRequest, FetchResponse, ProduceRequest, ProduceResponse};
    use kafka_wire_core::{ApiVersion, Bytes, DecodeLimits, KafkaDecode, KafkaEncode, StrBytes};

    /// Bytes in front of the body: length, key, version, correlation id, client id, tags.
    const HEAD: usize = 4 + 2 + 2 + 4 + 2 + CLIENT.len() + 1;

    #[test]
    fn the_produce_frame_is_what_the_schema_says() {
        let shape = batch::Shape {
            bytes: 1024,
            records: 1,
        };
        let batch = batch::build(shape, 1).unwrap();
        let mut frame = Produce::new("topic", 3, -1, &batch).unwrap();
        assert_eq!(frame.batch_mut(), batch);
        let body = Bytes::copy_from_slice(&frame.with_correlation(9)[HEAD..]);
        let limits = DecodeLimits::default();
        let request = ProduceRequest::decode_from_bytes(body, ApiVersion::new(9), limits).unwrap();
        let topic = &request.topic_data[0];
        assert_eq!(topic.name.as_str(), "topic");
        assert_eq!(topic.partition_data[0].index, 3);
        assert_eq!(topic.partition_data[0].records.as_deref(), Some(&batch[..]));
        assert_eq!(request.acks, -1);
    }

    #[test]
    fn the_fetch_frame_is_what_the_schema_says() {
        let mut frame = Fetch::new("topic", 2, 1 << 20).unwrap();
        let body = Bytes::copy_from_slice(&frame.at_offset(1, 77)[HEAD..]);
        let limits = DecodeLimits::default();
        let request = FetchRequest::decode_from_bytes(body, ApiVersion::new(12), limits).unwrap();
        let partition = &request.topics[0].partitions[0];
        assert_eq!((partition.partition, partition.fetch_offset), (2, 77));
        assert_eq!(partition.partition_max_bytes, 1 << 20);
        assert_eq!(request.session_epoch, -1);
    }

    /// Correlation id 5 and no tags in front of `message`.
    fn answer(message: &impl KafkaEncode, version: i16) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 5, 0];
        bytes.extend_from_slice(&message.encode_to_bytes(ApiVersion::new(version)).unwrap());
        bytes
    }

    #[test]
    fn a_produce_answer_is_read_and_its_error_is_not_missed() {
        for (code, expected) in [(0, Some(4711)), (56, None)] {
            let mut partition = PartitionProduceResponse::default();
            partition.index = 3;
            partition.error_code = code;
            partition.base_offset = 4711;
            let mut topic = TopicProduceResponse::default();
            topic.name = StrBytes::from("topic");
            topic.partition_responses.push(partition);
            let mut message = ProduceResponse::default();
            message.responses.push(topic);
            let found = produced(&answer(&message, 9), 5).ok();
            assert_eq!(found.map(|p| p.base_offset), expected);
            assert!(found.is_none_or(|p| p.correlation == 5));
        }
    }

    #[test]
    fn a_fetch_answer_is_read_and_a_gap_in_it_is_not_missed() {
        let shape = batch::Shape {
            bytes: 1024,
            records: 4,
        };
        let mut records = batch::build(shape, 1).unwrap();
        records.extend(batch::build(shape, 2).unwrap());
        for (second, cut, expected) in [
            (4, 0, Some((8, 2048))),
            (4, 1, Some((4, 1024))),
            (5, 0, None),
        ] {
            records[1024..1032].copy_from_slice(&i64::to_be_bytes(second));
            let mut partition = PartitionData::default();
            partition.high_watermark = 8;
            partition.records = Some(Bytes::copy_from_slice(&records[..2048 - cut]));
            let mut topic = FetchableTopicResponse::default();
            topic.topic = StrBytes::from("topic");
            topic.partitions.push(partition);
            let mut message = FetchResponse::default();
            message.responses.push(topic);
            let bytes = answer(&message, 12);
            let found = fetched(&bytes, 5).unwrap();
            assert_eq!((found.correlation, found.high_watermark), (5, 8));
            assert_eq!(walk(found.records, 0, true).ok(), expected);
        }
    }
}
