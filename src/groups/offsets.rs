//! What a group has committed.
//!
//! Owns:     the committed offsets that are stored, the changes that are not stored yet, the offsets staged by
//!           transactions.
//! Does not: know the file, or who may commit.
//! Called with the group's lock held; what it hands out is immutable.
//!
//! # Invariants
//! O1. `stored` is what the file on the volume says: a reader is never shown an offset that a crash can take back.
//! O2. Changes take effect in the order in which they came; those of a write that failed are dropped whole, and whoever
//!     asked for them is told.
//! O3. An offset belongs to one incarnation of a topic (D11): those of an earlier one are never shown.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use seawall_storage::TopicId;
use serde::{Deserialize, Serialize};

/// One committed offset.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Committed {
    /// The next offset to read.
    pub(crate) offset: i64,
    /// Of the last record read; -1 is not known.
    pub(crate) leader_epoch: i32,
    /// Whatever the consumer wants to remember.
    pub(crate) metadata: Arc<str>,
    /// When, by the broker's clock.
    pub(crate) committed_ms: i64,
    /// When it ends, if the client said so (OffsetCommit up to version 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_ms: Option<i64>,
}

/// Offsets of one topic.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct TopicOffsets {
    /// The incarnation.
    #[serde(with = "topic_id")]
    pub(crate) id: TopicId,
    /// By partition.
    pub(crate) partitions: BTreeMap<i32, Committed>,
}

/// Offsets by topic name.
pub(crate) type ByTopic = BTreeMap<Arc<str>, TopicOffsets>;

/// What an open transaction will commit.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Staged {
    /// The producer's epoch.
    pub(crate) epoch: i16,
    /// What it will commit.
    pub(crate) offsets: ByTopic,
}

/// All offsets of a group.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct OffsetTable {
    /// What a consumer goes on from.
    #[serde(default)]
    pub(crate) offsets: ByTopic,
    /// By producer id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) staged: BTreeMap<i64, Staged>,
}

/// One offset to commit.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The topic.
    pub(crate) topic: Arc<str>,
    /// Its incarnation.
    pub(crate) id: TopicId,
    /// The partition.
    pub(crate) partition: i32,
    /// What to remember.
    pub(crate) committed: Committed,
}

/// What a transaction is to commit.
pub(crate) struct StagedRows {
    /// The producer's id.
    pub(crate) producer: i64,
    /// Its epoch.
    pub(crate) epoch: i16,
    /// The offsets.
    pub(crate) rows: Vec<Row>,
}

/// A change that is to be stored.
pub(crate) enum Change {
    /// A consumer commits.
    Commit(Vec<Row>),
    /// An administrator, the clock, or the end of a topic takes offsets away.
    Forget(Vec<(Arc<str>, i32)>),
    /// A transaction will commit these.
    Stage(StagedRows),
    /// The transaction has ended.
    End {
        /// Whose.
        producer: i64,
        /// Whether it was committed.
        commit: bool,
    },
}

impl OffsetTable {
    /// The committed offset of a partition of that incarnation.
    pub(crate) fn get(&self, topic: &str, id: TopicId, partition: i32) -> Option<&Committed> {
        let topic = self.offsets.get(topic).filter(|topic| topic.id == id)?;
        topic.partitions.get(&partition)
    }

    /// Whether a transaction has offsets of the partition.
    pub(crate) fn is_staged(&self, topic: &str, partition: i32) -> bool {
        let mut staged = self.staged.values();
        staged.any(|staged| {
            let topic = staged.offsets.get(topic);
            topic.is_some_and(|topic| topic.partitions.contains_key(&partition))
        })
    }

    /// Whether there is nothing to remember.
    pub(crate) fn is_empty(&self) -> bool {
        self.offsets.is_empty() && self.staged.is_empty()
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Commit(rows) => put(&mut self.offsets, rows),
            Change::Forget(partitions) => self.forget(partitions),
            Change::Stage(rows) => self.stage(rows),
            Change::End { producer, commit } => {
                if let Some(staged) = self.staged.remove(producer).filter(|_| *commit) {
                    self.commit_staged(staged);
                }
            }
        }
    }

    fn stage(&mut self, new: &StagedRows) {
        let staged = self.staged.entry(new.producer).or_insert_with(|| Staged {
            epoch: new.epoch,
            offsets: ByTopic::new(),
        });
        // What a fenced epoch had staged ends with it.
        if staged.epoch != new.epoch {
            staged.offsets.clear();
            staged.epoch = new.epoch;
        }
        put(&mut staged.offsets, &new.rows);
    }

    fn commit_staged(&mut self, staged: Staged) {
        for (name, topic) in staged.offsets {
            let entry = entry(&mut self.offsets, &name, topic.id);
            entry.partitions.extend(topic.partitions);
        }
    }

    fn forget(&mut self, partitions: &[(Arc<str>, i32)]) {
        for (topic, partition) in partitions {
            let Some(entry) = self.offsets.get_mut(topic) else {
                continue;
            };
            entry.partitions.remove(partition);
            if entry.partitions.is_empty() {
                self.offsets.remove(topic);
            }
        }
    }
}

fn put(offsets: &mut ByTopic, rows: &[Row]) {
    for row in rows {
        let entry = entry(offsets, &row.topic, row.id);
        entry
            .partitions
            .insert(row.partition, row.committed.clone());
    }
}

/// The entry of a topic; that of an earlier incarnation is emptied (O3).
fn entry<'a>(offsets: &'a mut ByTopic, name: &Arc<str>, id: TopicId) -> &'a mut TopicOffsets {
    let fresh = || TopicOffsets {
        id,
        partitions: BTreeMap::new(),
    };
    let entry = offsets.entry(Arc::clone(name)).or_insert_with(fresh);
    if entry.id != id {
        *entry = fresh();
    }
    entry
}

/// See the module.
#[derive(Default)]
pub(crate) struct Offsets {
    stored: Arc<OffsetTable>,
    changes: Vec<Change>,
    /// The table that is being written, and how many of `changes` are in it.
    writing: Option<(Arc<OffsetTable>, usize)>,
}

impl Offsets {
    /// As the file says.
    pub(crate) fn new(stored: Arc<OffsetTable>) -> Self {
        Self {
            stored,
            ..Self::default()
        }
    }

    /// What is on the volume.
    pub(crate) fn stored(&self) -> &Arc<OffsetTable> {
        &self.stored
    }

    /// Whether a transaction has offsets of the partition, stored or on their way.
    pub(crate) fn is_staged(&self, topic: &str, partition: i32) -> bool {
        let on_its_way = |change: &Change| match change {
            Change::Stage(staged) => staged
                .rows
                .iter()
                .any(|row| &*row.topic == topic && row.partition == partition),
            _ => false,
        };
        self.stored.is_staged(topic, partition) || self.changes.iter().any(on_its_way)
    }

    /// The partitions of which transactions have offsets, stored or on their way.
    pub(crate) fn staged_partitions(&self) -> HashSet<(Arc<str>, i32)> {
        let stored = self
            .stored
            .staged
            .values()
            .flat_map(|staged| &staged.offsets);
        let stored = stored.flat_map(|(name, topic)| {
            let partitions = topic.partitions.keys();
            partitions.map(move |partition| (Arc::clone(name), *partition))
        });
        let on_their_way = self.changes.iter().flat_map(|change| match change {
            Change::Stage(staged) => staged.rows.as_slice(),
            _ => &[],
        });
        let on_their_way = on_their_way.map(|row| (Arc::clone(&row.topic), row.partition));
        stored.chain(on_their_way).collect()
    }

    /// Whether the producer has staged anything, stored or on its way.
    pub(crate) fn has_staged(&self, producer: i64) -> bool {
        let on_its_way = |change: &Change| match change {
            Change::Stage(staged) => staged.producer == producer,
            _ => false,
        };
        self.stored.staged.contains_key(&producer) || self.changes.iter().any(on_its_way)
    }

    /// Whether there is nothing to remember, nor will be.
    pub(crate) fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.changes.is_empty()
    }

    /// Takes a change; it shows when it is stored.
    pub(crate) fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// The table with all changes so far, to be written. [`Offsets::written`] must follow.
    pub(crate) fn begin_write(&mut self) -> Arc<OffsetTable> {
        let table = if self.changes.is_empty() {
            Arc::clone(&self.stored)
        } else {
            let mut table = OffsetTable::clone(&self.stored);
            self.changes.iter().for_each(|change| table.apply(change));
            Arc::new(table)
        };
        self.writing = Some((Arc::clone(&table), self.changes.len()));
        table
    }

    /// The write has ended.
    pub(crate) fn written(&mut self, stored: bool) {
        let Some((table, changes)) = self.writing.take() else {
            return;
        };
        self.changes.drain(..changes.min(self.changes.len()));
        if stored {
            self.stored = table;
        }
    }
}

mod topic_id {
    use seawall_storage::TopicId;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(id: &TopicId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&id.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TopicId, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(TopicId).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(topic: &str, id: u128, partition: i32, offset: i64) -> Row {
        Row {
            topic: topic.into(),
            id: TopicId(uuid::Uuid::from_u128(id)),
            partition,
            committed: Committed {
                offset,
                leader_epoch: -1,
                metadata: "".into(),
                committed_ms: 0,
                expires_ms: None,
            },
        }
    }

    fn offset(offsets: &Offsets, id: u128) -> Option<i64> {
        let id = TopicId(uuid::Uuid::from_u128(id));
        offsets.stored().get("t", id, 0).map(|c| c.offset)
    }

    fn write(offsets: &mut Offsets, stored: bool) {
        offsets.begin_write();
        offsets.written(stored);
    }

    #[test]
    fn an_offset_shows_when_it_is_stored_and_not_before() {
        let mut offsets = Offsets::default();
        offsets.push(Change::Commit(vec![row("t", 1, 0, 7)]));
        assert_eq!(offset(&offsets, 1), None);
        offsets.begin_write();
        offsets.push(Change::Commit(vec![row("t", 1, 0, 8)]));
        assert_eq!(offset(&offsets, 1), None);
        offsets.written(true);
        assert_eq!(offset(&offsets, 1), Some(7));
        write(&mut offsets, true);
        assert_eq!(offset(&offsets, 1), Some(8));
    }

    #[test]
    fn a_failed_write_takes_nothing_but_its_own_changes_away() {
        let mut offsets = Offsets::default();
        offsets.push(Change::Commit(vec![row("t", 1, 0, 7)]));
        write(&mut offsets, true);
        offsets.push(Change::Commit(vec![row("t", 1, 0, 8)]));
        offsets.begin_write();
        offsets.push(Change::Commit(vec![row("t", 1, 0, 9)]));
        offsets.written(false);
        assert_eq!(offset(&offsets, 1), Some(7));
        write(&mut offsets, true);
        assert_eq!(offset(&offsets, 1), Some(9));
    }

    #[test]
    fn d11_a_recreated_topic_inherits_no_offset() {
        let mut offsets = Offsets::default();
        offsets.push(Change::Commit(vec![row("t", 1, 0, 7), row("t", 1, 1, 7)]));
        write(&mut offsets, true);
        assert_eq!(offset(&offsets, 2), None);
        offsets.push(Change::Commit(vec![row("t", 2, 1, 3)]));
        write(&mut offsets, true);
        assert_eq!(offset(&offsets, 1), None);
        assert_eq!(offset(&offsets, 2), None, "partition 0 was of the old one");
    }

    #[test]
    fn staged_offsets_show_at_the_commit_and_never_after_an_abort() {
        for (commit, seen) in [(true, Some(5)), (false, None)] {
            let mut offsets = Offsets::default();
            offsets.push(Change::Stage(StagedRows {
                producer: 9,
                epoch: 0,
                rows: vec![row("t", 1, 0, 5)],
            }));
            assert!(offsets.is_staged("t", 0));
            write(&mut offsets, true);
            assert_eq!(offset(&offsets, 1), None);
            assert!(offsets.is_staged("t", 0) && offsets.has_staged(9));
            let end = || Change::End {
                producer: 9,
                commit,
            };
            offsets.push(end());
            offsets.push(end());
            write(&mut offsets, true);
            assert_eq!(offset(&offsets, 1), seen);
            assert!(!offsets.is_staged("t", 0));
        }
    }

    #[test]
    fn a_newer_epoch_of_a_producer_replaces_what_the_fenced_one_had_staged() {
        let mut offsets = Offsets::default();
        for (epoch, partition) in [(0, 0), (1, 1)] {
            offsets.push(Change::Stage(StagedRows {
                producer: 9,
                epoch,
                rows: vec![row("t", 1, partition, 5)],
            }));
        }
        write(&mut offsets, true);
        assert!(!offsets.is_staged("t", 0) && offsets.is_staged("t", 1));
    }
}
