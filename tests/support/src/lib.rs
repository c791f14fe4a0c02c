//! What the tests drive a whole broker with: a process on a data directory, a raw connection, a batch builder.
//!
//! Owns:     starting, killing and stopping the broker under test; bytes on its socket; record batches of any shape.
//! Does not: know the broker's crates. Everything here sees the broker from outside, so that the same tests run
//!           against Apache Kafka (`SEAWALL_TEST_KAFKA`), which is how their expected values were checked.
//!
//! # Invariants
//! K1. Nothing waits without a deadline, and nothing sleeps: a wait is for a condition.
//! K2. A broker that a test leaves running is stopped, and its tripwire counters must then read zero.
//! K3. Expected values are never computed here.

pub mod batch;
pub mod broker;
pub mod calls;
mod checksum;
pub mod consumers;
pub mod disk;
pub mod groups;
pub mod kafka;
pub mod manager;
pub mod metrics;
pub mod ports;
pub mod raw;
pub mod requests;
pub mod txn;
pub mod wait;

pub use batch::{BatchBuilder, Codec, ParsedBatch, Rec};
pub use broker::{Broker, Setup};
pub use bytes::Bytes;
pub use kafka_wire;
pub use kafka_wire_core;
pub use nix;
pub use raw::Raw;
pub use tempfile;
