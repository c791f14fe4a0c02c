//! Reading logs without being their owner: for tools, offline or beside a living broker.
//!
//! Owns:     walking one file by its batches, and comparing everything in a partition's directory with everything else.
//! Does not: write, lock, sync, or take what it sees for the present state: a file may grow while it is read.
//! Called from tools, one thread.
//!
//! # Invariants
//! V1. Files are opened for reading only.
//! V2. Memory is bounded by chunks, whatever lengths the bytes claim (a producer snapshot is held whole).
//! V3. What a crash may leave is a note, never damage: tails, missing indexes, temporary files.

mod finding;
mod index;
mod partition;
mod state;
mod txns;
mod walk;

pub use finding::{Finding, Severity, What};
pub use partition::{InspectOptions, PartitionFacts, inspect_partition};
pub use walk::{Bad, FileWalk, Next, Rules, Seen, SeenBatch};
