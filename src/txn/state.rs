//! What the coordinator knows of one transactional id.
//!
//! Owns:     the shape of it, in memory and in the slot files.
//! Does not: change it; the machine does.

use std::collections::BTreeSet;

use seawall_storage::{PartitionIndex, ProducerEpoch, ProducerId, TopicId, TxnOutcome};
use serde::{Deserialize, Serialize};

use crate::cluster::topic_id_text;

/// The last epoch with which a producer id may begin a transaction: ending it, or
/// fencing it, takes one more.
pub const EPOCH_LAST: i16 = i16::MAX - 1;

/// A producer id with its epoch, as a client names itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Producer {
    /// The id.
    pub id: ProducerId,
    /// The epoch.
    pub epoch: ProducerEpoch,
}

impl Producer {
    /// From the numbers of a request.
    pub fn new(id: i64, epoch: i16) -> Self {
        Self {
            id: ProducerId::new(id),
            epoch: ProducerEpoch::new(epoch),
        }
    }

    /// Whether the next transaction needs a new id.
    pub fn is_exhausted(self) -> bool {
        self.epoch.get() >= EPOCH_LAST
    }

    /// The same id in its next epoch.
    #[must_use]
    pub fn next_epoch(self) -> Self {
        Self::new(self.id.get(), self.epoch.get().saturating_add(1))
    }
}

/// A partition of a transaction: the incarnation of its topic counts (D11), the
/// name is for people.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct TxnPartition {
    /// The topic's name when it was added.
    pub topic: String,
    #[serde(with = "topic_id_text")]
    id: TopicId,
    partition: i32,
}

impl TxnPartition {
    /// A partition of that topic.
    pub fn new(topic: &str, id: TopicId, index: PartitionIndex) -> Self {
        Self {
            topic: topic.to_owned(),
            id,
            partition: index.get(),
        }
    }

    /// The topic's incarnation.
    pub fn topic_id(&self) -> TopicId {
        self.id
    }

    /// The partition's number.
    pub fn index(&self) -> PartitionIndex {
        PartitionIndex::new(self.partition)
    }
}

/// Where a transactional id stands. The names are Kafka's.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub enum Phase {
    /// No transaction since its producer began.
    Empty,
    /// A transaction goes on.
    Ongoing,
    /// It will be committed, whatever happens.
    PrepareCommit,
    /// It will be aborted, whatever happens.
    PrepareAbort,
    /// The last one was committed.
    CompleteCommit,
    /// The last one was aborted.
    CompleteAbort,
}

impl Phase {
    /// All of them, and what Kafka's clients may name beyond.
    pub const NAMES: [&str; 8] = [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ];

    /// Kafka's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }

    /// The decision that is being carried out.
    pub fn decided(self) -> Option<TxnOutcome> {
        match self {
            Self::PrepareCommit => Some(TxnOutcome::Commit),
            Self::PrepareAbort => Some(TxnOutcome::Abort),
            Self::Empty | Self::Ongoing | Self::CompleteCommit | Self::CompleteAbort => None,
        }
    }
}

/// One transactional id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Txn {
    pub(super) producer_id: i64,
    pub(super) producer_epoch: i16,
    /// The epoch before the last bump that its producer asked for; -1 after a
    /// new producer began or the old one was fenced.
    pub last_epoch: i16,
    /// The producer id before its epochs ran out; -1 for none.
    pub previous_producer_id: i64,
    /// The producer id that takes over once the decision is carried out; -1 for
    /// none.
    pub next_producer_id: i64,
    /// How long a transaction may take.
    pub timeout_ms: i32,
    /// Where it stands.
    pub phase: Phase,
    /// The partitions that need a marker.
    pub partitions: BTreeSet<TxnPartition>,
    /// The groups whose offsets were sent to the transaction.
    pub groups: BTreeSet<String>,
    /// When the transaction began, in ms since the epoch; -1 before the first.
    pub started_ms: i64,
    /// When anything changed last.
    pub updated_ms: i64,
    /// The last transaction was one of version 2 (KIP-890): its end raised the
    /// epoch.
    pub v2: bool,
}

impl Txn {
    /// A transactional id that nobody has used before.
    pub fn new(id: ProducerId, timeout_ms: i32, now_ms: i64) -> Self {
        Self {
            producer_id: id.get(),
            producer_epoch: -1,
            last_epoch: -1,
            previous_producer_id: -1,
            next_producer_id: -1,
            timeout_ms,
            phase: Phase::Empty,
            partitions: BTreeSet::new(),
            groups: BTreeSet::new(),
            started_ms: -1,
            updated_ms: now_ms,
            v2: false,
        }
    }

    /// Who may use it now.
    pub fn producer(&self) -> Producer {
        Producer::new(self.producer_id, self.producer_epoch)
    }

    /// Lets another producer use it.
    pub fn set_producer(&mut self, producer: Producer) {
        self.producer_id = producer.id.get();
        self.producer_epoch = producer.epoch.get();
    }

    /// Whether its transaction has taken longer than it may.
    pub fn is_overdue(&self, now_ms: i64) -> bool {
        let age = now_ms.saturating_sub(self.started_ms);
        self.phase == Phase::Ongoing && age > i64::from(self.timeout_ms)
    }
}
