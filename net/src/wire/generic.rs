//! Decoding and encoding of the messages that `kafka-wire` generates.

use bytes::{Bytes, BytesMut};
use kafka_wire::{KafkaMessage, KafkaRequest};
use kafka_wire_core::{ApiVersion, DecodeLimits, Decoder, KafkaDecode, KafkaEncode};

use super::WireError;

/// Longest request of any API but Produce and Fetch. The largest real ones (a group's assignments,
/// commits of thousands of partitions) are a few MiB; decoded values are some ten times larger than
/// their bytes, so the limit of a frame would be too much.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Elements of one array in such a request.
const ARRAY_ELEMENTS_MAX: usize = 100_000;
/// Unknown tagged fields of one structure. Kafka has at most a handful.
const TAGGED_FIELDS_MAX: usize = 256;

fn limits() -> DecodeLimits {
    let mut limits = DecodeLimits::default();
    limits.max_frame_bytes = BODY_BYTES_MAX;
    limits.max_string_bytes = BODY_BYTES_MAX;
    limits.max_bytes_bytes = BODY_BYTES_MAX;
    limits.max_array_elements = ARRAY_ELEMENTS_MAX;
    limits.max_tagged_fields = TAGGED_FIELDS_MAX;
    limits
}

/// Decodes a request. Bytes behind it are tolerated, as Kafka does. Strings and byte fields are
/// slices of `body`: copy what is kept for long.
pub fn decode<R: KafkaRequest + KafkaDecode>(body: &Bytes, version: i16) -> Result<R, WireError> {
    let mut decoder = Decoder::new(body.clone(), limits()).map_err(WireError::Decode)?;
    R::decode(&mut decoder, ApiVersion::new(version)).map_err(WireError::Decode)
}

/// Encodes a response.
pub fn encode<R: KafkaMessage + KafkaEncode>(
    response: &R,
    version: i16,
) -> Result<Bytes, WireError> {
    let mut buffer = BytesMut::new();
    response
        .encode_into(&mut buffer, ApiVersion::new(version))
        .map_err(WireError::Encode)?;
    Ok(buffer.freeze())
}
