//! Decoding and encoding of the messages that `kafka-wire` generates.

use bytes::{Bytes, BytesMut};
use kafka_wire::{JoinGroupRequest, KafkaMessage, KafkaRequest, SyncGroupRequest};
use kafka_wire_core::{ApiVersion, DecodeLimits, Decoder, KafkaDecode, KafkaEncode};

use super::WireError;

/// Longest request of any API but Produce, Fetch and those below: 100,000 rows of twenty bytes. Arrays in arrays of
/// nothing become seventy times as much memory as they have bytes, so the limit of a frame would be too much.
const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Longest JoinGroup and SyncGroup: a group's subscriptions and assignments are bytes, and no arrays in arrays.
const GROUP_BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Elements of one array in such a request.
const ARRAY_ELEMENTS_MAX: usize = 100_000;
/// Unknown tagged fields of one structure. Kafka has at most a handful.
const TAGGED_FIELDS_MAX: usize = 256;

fn limits(bytes_max: usize) -> DecodeLimits {
    let mut limits = DecodeLimits::default();
    limits.max_frame_bytes = bytes_max;
    limits.max_string_bytes = bytes_max;
    limits.max_bytes_bytes = bytes_max;
    limits.max_array_elements = ARRAY_ELEMENTS_MAX;
    limits.max_tagged_fields = TAGGED_FIELDS_MAX;
    limits
}

/// Decodes a request. Bytes behind it are tolerated, as Kafka does. Strings and byte fields are
/// slices of `body`: copy what is kept for long.
pub fn decode<R: KafkaRequest + KafkaDecode>(body: &Bytes, version: i16) -> Result<R, WireError> {
    let key = R::API_KEY;
    let of_group = key == JoinGroupRequest::API_KEY || key == SyncGroupRequest::API_KEY;
    let bytes_max = if of_group {
        GROUP_BODY_BYTES_MAX
    } else {
        BODY_BYTES_MAX
    };
    let mut decoder = Decoder::new(body.clone(), limits(bytes_max)).map_err(WireError::Decode)?;
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
