//! The one codec of the Kafka protocol.
//!
//! Owns:     byte layouts. Request headers, Produce and Fetch are written by hand, since they are
//!           hot and hostile; all other messages come from `kafka-wire`, as [`messages`].
//! Does not: know what a field means, or look into records.
//!
//! # Invariants
//! W1. No length or count from the peer is trusted before it is compared with the bytes left.
//! W2. Decoding never panics, whatever the bytes are.
//! W3. Records are slices of the frame; they are never copied or looked into.

mod error;
mod fetch_request;
mod fetch_response;
mod generic;
mod header;
mod produce_request;
mod produce_response;
mod reader;
pub mod subscription;
mod tables;
mod writer;

pub use error::WireError;
pub use fetch_request::{FetchPartition, FetchRequest, FetchTopic, ForgottenTopic};
pub use fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchPartitionResponse, FetchResponse, FetchTopicResponse,
};
pub use generic::{decode, encode};
pub use header::RequestHeader;
pub(crate) use header::{HEADER_BYTES_MIN, RawHeader};
pub use kafka_wire as messages;
pub use kafka_wire_core::{StrBytes, Uuid};
pub use produce_request::{ProducePartition, ProduceRequest, ProduceTopic};
pub use produce_response::{
    LeaderIdAndEpoch, NodeEndpoint, ProducePartitionResponse, ProduceResponse,
    ProduceTopicResponse, RecordError,
};
pub use tables::{request_is_flexible, response_header_is_flexible};

/// Lowest version of Produce that is decoded into batches; v0 to v2 are advertised but not served.
pub const PRODUCE_VERSION_MIN: i16 = 3;
/// Newest version of Produce.
pub const PRODUCE_VERSION_MAX: i16 = 13;
/// Oldest version of Fetch.
pub const FETCH_VERSION_MIN: i16 = 4;
/// Newest version of Fetch.
pub const FETCH_VERSION_MAX: i16 = 18;
/// Topics and partitions of one Produce or Fetch request, together: more than any broker leads,
/// and the reason that a frame full of empty entries cannot be multiplied into gigabytes.
pub const REQUEST_ENTRIES_MAX: usize = 200_000;
