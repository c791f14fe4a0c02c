//! The hand-written codecs against `kafka-wire`, byte for byte in every version, and against
//! hostile bytes. One target, since linking is slow.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails should fail its test"
)]

mod agree_fetch;
mod agree_produce;
mod generate;
mod hostile;
