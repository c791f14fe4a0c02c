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
pub struct Topic {
    /// Its name.
    pub name: Arc<str>,
    /// Its incarnation.
    pub id: TopicId,
    /// Its effective configuration.
    pub config: ArcSwap<TopicConfig>,
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
