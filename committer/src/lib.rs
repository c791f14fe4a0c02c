//! The time between *written* and *durable*.
//!
//! Owns:     ack policies, the flush sequence, the high watermark's rule, the
//!           committer threads of a log dir, the watchdog over I/O calls.
//! Does not: know what the bytes are, what a file is, or Kafka.
//!
//! [`Committer`] is the door: an append worker hands it what it wrote
//! ([`Group`]), and every waiter is released exactly once, by whichever thread
//! settles it. See the README of this crate for the protocol and its evidence.

mod committer;
mod gate;
mod policy;
mod pool;
mod queue;
mod sync;
mod watchdog;

pub use committer::{Chore, ChoreError, Committer, CommitterConfig, Log};
pub use gate::Gate;
pub use policy::AckPolicy;
pub use pool::Load;
pub use queue::{Failure, FlushSeq, Group, Health, Member, Refusal};
pub use watchdog::{Call, CallGuard, InFlight, Watchdog, Watched};
