//! The topics that are open in this broker, by name and by id.
//!
//! Owns:     the published map of topics and their partitions.
//! Does not: persist anything; the catalog in `cluster` does.
//!
//! Readers load the map without a lock. Changes are made by one thread at a
//! time, under `changes`, and published whole.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use seawall_committer::Health;
use seawall_storage::PartitionIndex;
use seawall_storage::{LeaderEpoch, TopicId};

use crate::config::TopicConfig;
use crate::groups::consumer::TopicLookup;
use crate::partition::Partition;

/// One partition as the broker knows it.
#[derive(Clone)]
pub enum Slot {
    /// Serves, though it may be stalled or failed.
    Open(Arc<Partition>),
    /// Cannot be opened; the reason is for people.
    Offline(Arc<str>),
}

impl Slot {
    /// The epoch under which the partition is led; that of an offline one is
    /// not known.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        match self {
            Self::Open(partition) => partition.leader_epoch(),
            Self::Offline(_) => LeaderEpoch::NONE,
        }
    }

    /// Whether it can be written to and read.
    pub fn is_healthy(&self) -> bool {
        match self {
            Self::Open(partition) => !matches!(partition.health(), Health::Failed(_)),
            Self::Offline(_) => false,
        }
    }
}

/// One topic.
#[derive(Clone)]
pub struct Topic {
    /// Its name.
    pub name: Arc<str>,
    /// Its incarnation.
    pub id: TopicId,
    /// Its effective configuration; every state of the topic shares it.
    pub config: Arc<ArcSwap<TopicConfig>>,
    /// Its partitions by number.
    pub partitions: Vec<Slot>,
}

/// Why a partition is not served. The client's fault, but for `Offline`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LookupError {
    /// No topic of that name.
    UnknownTopic,
    /// No topic with that id.
    UnknownTopicId,
    /// The topic has no partition of that number.
    UnknownPartition,
    /// The partition could not be opened.
    Offline,
    /// The catalog's row of the topic cannot be read.
    Damaged,
}

impl std::fmt::Display for LookupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::UnknownTopic => "This server does not host this topic.",
            Self::UnknownTopicId => "This server does not host this topic ID.",
            Self::UnknownPartition => "This topic has no such partition.",
            Self::Offline => "The partition is offline; the log of the broker says why.",
            Self::Damaged => "The topic's file in the catalog is damaged.",
        })
    }
}

impl Topic {
    /// The partition of that number, open or not.
    ///
    /// # Errors
    /// There is none.
    pub fn slot(&self, index: i32) -> Result<&Slot, LookupError> {
        let index = usize::try_from(index).ok();
        let slot = index.and_then(|index| self.partitions.get(index));
        slot.ok_or(LookupError::UnknownPartition)
    }

    /// The open partition of that number.
    ///
    /// # Errors
    /// There is none, or it is offline.
    pub fn partition(&self, index: i32) -> Result<&Arc<Partition>, LookupError> {
        let slot = usize::try_from(index)
            .ok()
            .and_then(|index| self.partitions.get(index));
        match slot {
            Some(Slot::Open(partition)) => Ok(partition),
            Some(Slot::Offline(_)) => Err(LookupError::Offline),
            None => Err(LookupError::UnknownPartition),
        }
    }

    /// Puts a partition in its place; those before it that are not there yet are
    /// being opened by somebody else.
    pub fn set_slot(&mut self, index: PartitionIndex, slot: Slot) {
        let Ok(index) = usize::try_from(index.get()) else {
            return;
        };
        while self.partitions.len() <= index {
            let opening = Slot::Offline("it is being opened".into());
            self.partitions.push(opening);
        }
        self.partitions[index] = slot;
    }

    /// Whether there is a partition of that number, open or not.
    pub fn has_partition(&self, index: i32) -> bool {
        usize::try_from(index).is_ok_and(|index| index < self.partitions.len())
    }

    /// The open partitions.
    pub fn open_partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions.iter().filter_map(|slot| match slot {
            Slot::Open(partition) => Some(partition),
            Slot::Offline(_) => None,
        })
    }
}

/// All topics at one moment.
#[derive(Clone, Default)]
pub struct TopicMap {
    by_name: HashMap<Arc<str>, Arc<Topic>>,
    by_id: HashMap<TopicId, Arc<Topic>>,
    damaged: HashSet<Arc<str>>,
    /// One more with every change.
    version: u64,
}

impl TopicMap {
    /// The topic of that name.
    ///
    /// # Errors
    /// There is none, or nobody can tell.
    pub fn named(&self, name: &str) -> Result<&Arc<Topic>, LookupError> {
        match self.by_name.get(name) {
            Some(topic) => Ok(topic),
            None if self.damaged.contains(name) => Err(LookupError::Damaged),
            None => Err(LookupError::UnknownTopic),
        }
    }

    /// The topic with that id.
    ///
    /// # Errors
    /// There is none.
    pub fn with_id(&self, id: TopicId) -> Result<&Arc<Topic>, LookupError> {
        self.by_id.get(&id).ok_or(LookupError::UnknownTopicId)
    }

    /// All topics, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_name.values()
    }

    /// Names that stand in the catalog and cannot be read.
    pub fn damaged(&self) -> impl Iterator<Item = &str> {
        self.damaged.iter().map(|name| &**name)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    fn insert(&mut self, topic: &Arc<Topic>) {
        self.by_id.insert(topic.id, Arc::clone(topic));
        self.by_name
            .insert(Arc::clone(&topic.name), Arc::clone(topic));
    }
}

impl TopicLookup for TopicMap {
    fn version(&self) -> u64 {
        self.version
    }

    fn named(&self, name: &str) -> Option<(TopicId, i32)> {
        let topic = self.by_name.get(name)?;
        Some((topic.id, i32::try_from(topic.partitions.len()).ok()?))
    }

    fn name_of(&self, id: TopicId) -> Option<Arc<str>> {
        self.by_id.get(&id).map(|topic| Arc::clone(&topic.name))
    }

    fn names(&self) -> Vec<Arc<str>> {
        self.by_name.keys().map(Arc::clone).collect()
    }
}

/// See the module.
#[derive(Default)]
pub struct Topics {
    map: ArcSwap<TopicMap>,
    changes: Mutex<()>,
}

impl Topics {
    /// All topics now; lock-free.
    pub fn load(&self) -> arc_swap::Guard<Arc<TopicMap>> {
        self.map.load()
    }

    /// All topics now, to keep.
    pub fn load_full(&self) -> Arc<TopicMap> {
        self.map.load_full()
    }

    /// Publishes more topics.
    pub fn insert(&self, topics: &[Arc<Topic>]) {
        self.change(|map| topics.iter().for_each(|topic| map.insert(topic)));
    }

    /// Publishes another state of the topic with that id; nothing if it is gone:
    /// who was slow does not bring it back. Says whether it is there.
    pub fn update(&self, id: TopicId, change: impl FnOnce(&mut Topic)) -> bool {
        let mut there = false;
        self.change(|map| {
            if let Some(now) = map.by_id.get(&id) {
                let mut next = Topic::clone(now);
                change(&mut next);
                map.insert(&Arc::new(next));
                there = true;
            }
        });
        there
    }

    /// Has the topic go by the newest configuration. `newest` is asked with the
    /// changes locked, so that of two at once the later one stands.
    pub fn configure(
        &self,
        id: TopicId,
        newest: impl FnOnce() -> Option<Arc<TopicConfig>>,
    ) -> Option<Arc<Topic>> {
        let _one_at_a_time = self.changes.lock();
        let topic = self.map.load().by_id.get(&id).cloned()?;
        topic.config.store(newest()?);
        Some(topic)
    }

    /// Says which names stand in the catalog and cannot be read.
    pub fn set_damaged(&self, names: HashSet<Arc<str>>) {
        self.change(|map| map.damaged = names);
    }

    /// Takes a topic out, if it is still that incarnation.
    pub fn remove(&self, topic: &Topic) {
        self.change(|map| {
            map.by_id.remove(&topic.id);
            if map
                .by_name
                .get(&topic.name)
                .is_some_and(|t| t.id == topic.id)
            {
                map.by_name.remove(&topic.name);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut TopicMap)) {
        let _one_at_a_time = self.changes.lock();
        let mut map = TopicMap::clone(&self.map.load());
        change(&mut map);
        map.version += 1;
        self.map.store(Arc::new(map));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use std::collections::BTreeMap;

    fn topic(id: u128) -> Topic {
        let config = TopicConfig::resolve(&Settings::default(), &BTreeMap::new()).unwrap();
        Topic {
            name: "t".into(),
            id: TopicId(uuid::Uuid::from_u128(id)),
            config: Arc::new(ArcSwap::from_pointee(config)),
            partitions: vec![Slot::Offline("first".into())],
        }
    }

    fn reasons(topic: &Topic) -> Vec<&str> {
        let slots = topic.partitions.iter().map(|slot| match slot {
            Slot::Offline(why) => &**why,
            Slot::Open(_) => "open",
        });
        slots.collect()
    }

    #[test]
    fn who_was_slow_does_not_bring_a_topic_back() {
        let topics = Topics::default();
        let old = topic(1);
        topics.insert(&[Arc::new(old.clone())]);
        topics.remove(&old);
        assert!(!topics.update(old.id, |_| panic!("it is gone")));
        topics.insert(&[Arc::new(topic(2))]);
        assert!(!topics.update(old.id, |_| panic!("it is another's name now")));
        assert!(topics.load().with_id(old.id).is_err());
    }

    #[test]
    fn changes_of_different_partitions_do_not_undo_each_other() {
        let topics = Topics::default();
        let id = topic(1).id;
        topics.insert(&[Arc::new(topic(1))]);
        // The third was opened sooner than the second.
        for (index, why) in [(2, "third"), (1, "second"), (0, "moved")] {
            let slot = Slot::Offline(why.into());
            assert!(topics.update(id, |now| now.set_slot(PartitionIndex::new(index), slot)));
        }
        let map = topics.load();
        assert_eq!(
            reasons(map.with_id(id).unwrap()),
            ["moved", "second", "third"]
        );
        assert!(Arc::ptr_eq(
            map.with_id(id).unwrap(),
            map.named("t").unwrap()
        ));
    }

    #[test]
    fn all_states_of_a_topic_share_its_configuration() {
        let topics = Topics::default();
        let before = Arc::new(topic(1));
        topics.insert(&[Arc::clone(&before)]);
        topics.update(before.id, |now| {
            now.set_slot(PartitionIndex::new(1), Slot::Offline("more".into()));
        });
        let overrides = BTreeMap::from([("flush.messages".to_owned(), "7".to_owned())]);
        let newest = TopicConfig::resolve(&Settings::default(), &overrides).unwrap();
        topics.configure(before.id, || Some(Arc::new(newest)));
        assert_eq!(before.config.load().flush_messages, 7);
    }
}
