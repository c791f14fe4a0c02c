//! The storage engine of one broker: record batches, segments, indexes, producer facts, recovery.
//!
//! Owns:     the bytes on disk of every partition, and the rules D1-D12 about them as far as one log reaches.
//! Does not: know threads, locks, sockets, Kafka error codes or wire message types. `Log` is the single writer of
//!           one partition and takes `&mut self`; plans are plain values that other threads run without the log.
//! See README.md beside this crate for the layout on disk and the invariants.

mod append;
pub mod batch;
mod compact;
pub mod disk;
mod distance;
mod durability;
mod heal;
mod index_file;
pub mod inspect;
mod live_index;
mod log;
mod lookup;
mod manifest;
mod marker;
pub mod names;
mod plans;
mod producers;
pub mod records;
mod recovery;
mod resources;
mod resync;
mod retention;
mod scan;
mod segment;
mod snapshot;
pub mod state_file;
mod stretch;
mod transactions;
mod trim;
mod txn_index;
mod types;
mod view;
mod view_txns;

pub use append::{BatchVerdict, GroupOutcome, Offered, TxnOrigin, WriteStop};
pub use batch::{Attributes, Batch, BatchError, BatchHeader, Codec, ProducerRules};
pub use compact::{
    Compaction, CompactionRules, CompactionTask, Dirty, Rewritten, StaleRewrite,
    Stats as CompactionStats, Swap, Throttle, read_progress, write_progress,
};
pub use durability::{CHECKPOINT_AGE_MS, CHECKPOINT_GROWTH_BYTES, FlushPoint};
pub use heal::{HealLoss, HealPlan, Healed};
pub use log::{Log, LogConfig, LogState};
pub use lookup::TimedOffset;
pub use manifest::{Checkpoint, Manifest};
pub use marker::{Marker, MarkerValue, TxnOutcome};
pub use names::SegmentName;
pub use plans::{
    CheckpointDone, CheckpointPlan, ClosePlan, CutPlan, LogSync, NewSegment, RollError, RollPlan,
    StaleRoll,
};
pub use producers::{AppendReject, MarkerRound, PastBatch, ProducerEntry, Producers, WINDOW};
pub use recovery::{OpenError, OpenOptions, RecoverySummary, Stop};
pub use resources::Resources;
pub use retention::{Due, Retention};
pub use scan::BadBatch;
pub use stretch::Stretch;
pub use transactions::AbortedTxn;
pub use trim::{Dropped, Garbage, TrimPlan};
pub use types::{
    LeaderEpoch, Offset, PartitionIndex, Position, ProducerEpoch, ProducerId, Sequence, Timestamp,
    TopicId,
};
pub use view::{EpochStart, ReadBatches, ReadError, ReadSpec, ReadView};
