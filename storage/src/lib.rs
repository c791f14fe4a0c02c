//! The storage engine of one broker: record batches, segments, indexes, producer facts, recovery.
//!
//! Owns:     the bytes on disk of every partition, and the rules D1-D12 about them as far as one log reaches.
//! Does not: know threads, locks, sockets, Kafka error codes or wire message types. `Log` is the single writer of
//!           one partition and takes `&mut self`; plans are plain values that other threads run without the log.
//! See README.md beside this crate for the layout on disk and the invariants.

pub mod batch;
pub mod disk;
mod types;

pub use batch::{Attributes, Batch, BatchError, BatchHeader, Codec, ProducerRules};
pub use types::{
    LeaderEpoch, Offset, PartitionIndex, Position, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId,
};
mod api_stub;
pub use api_stub::*;
