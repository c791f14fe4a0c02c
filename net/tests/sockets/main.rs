//! The server over real sockets, with a toy service above it. One target, since linking is slow.
//! Cases with an id (`p13`) are those of the project's list of inputs that must work.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails should fail its test"
)]

mod backpressure;
mod beats;
mod end;
mod hostile;
mod limits;
mod mute;
mod order;
mod parking;
mod pipes;
mod split;
#[allow(dead_code, reason = "tests/memory.rs uses the rest")]
mod support;
mod tls;
