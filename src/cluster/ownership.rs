//! Do I lead it, since which epoch, is my claim fresh?
//!
//! Owns:     the answers of a broker that is alone. With several brokers on one volume this becomes another variant.
//! Does not: count leader epochs: the log does, from the names of its files (6.3).
//! No lock, no I/O; asked on every produce and between fsync and acknowledgement (D7).
use super::log_dirs::{LogDirIndex, LogDirs};
use seawall_storage::{LeaderEpoch, PartitionIndex, TopicId};
use std::sync::Arc;

/// Who leads what.
#[derive(Debug, Clone)]
pub(crate) enum Ownership {
    /// One broker has everything.
    SingleNode(Arc<LogDirs>),
}

#[allow(dead_code, reason = "a single broker asks the claim of a log dir")]
impl Ownership {
    /// Whether this broker leads a partition.
    pub(crate) fn leads(&self, _topic: TopicId, _partition: PartitionIndex) -> bool {
        match self {
            Ownership::SingleNode(_) => true,
        }
    }

    /// The epoch that leadership was given with: the partition reports the higher of this and its log's own.
    pub(crate) fn epoch(&self, _topic: TopicId, _partition: PartitionIndex) -> LeaderEpoch {
        match self {
            Ownership::SingleNode(_) => LeaderEpoch(0),
        }
    }

    /// Whether no other broker can own this log dir now. False: answer 56 and acknowledge nothing.
    pub(crate) fn is_fresh(&self, dir: LogDirIndex) -> bool {
        match self {
            Ownership::SingleNode(dirs) => dirs.claim(dir).is_some_and(|claim| claim.is_fresh()),
        }
    }
}
