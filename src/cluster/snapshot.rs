//! All topics at one moment.
//!
//! Owns:     look-up by name and by id. Immutable: a change publishes a new snapshot.
//! Does not: touch a disk. Read from every thread without a lock.
use super::ids::LogDirId;
use super::log_dirs::LogDirIndex;
use super::names::TopicName;
use super::state_file::StateError;
use crate::config::{TopicConfig, TopicConfigError};
use seawall_storage::{PartitionIndex, TopicId};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Why partitions of a topic cannot be used: Metadata names them as offline, Produce and Fetch answer 56.
#[derive(Debug, Clone)]
pub(crate) enum PlaceFault {
    /// Their log dir is known and not here.
    DirAbsent(LogDirId),
    /// The catalog knows the topic, and its directory here has no stamp, or another topic's: it is never made anew.
    StampMissing(PathBuf),
    /// The stamp or the overrides cannot be read.
    Unreadable(Arc<StateError>),
    /// The overrides are gone: with the defaults, retention might delete what should stay.
    ConfigMissing(PathBuf),
    /// The overrides are not valid in this version.
    Config(TopicConfigError),
}

impl fmt::Display for PlaceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceFault::DirAbsent(id) => write!(f, "the log dir with the id {id} is absent"),
            PlaceFault::StampMissing(path) => write!(
                f,
                "{} is not the directory of this topic (its stamp is missing or another's): restore it, or delete the \
                 topic",
                path.display()
            ),
            PlaceFault::Unreadable(error) => write!(f, "{error}"),
            PlaceFault::ConfigMissing(path) => {
                write!(
                    f,
                    "{} is missing: restore it, or write {{\"revision\":0,\"config\":{{}}}}",
                    path.display()
                )
            }
            PlaceFault::Config(error) => write!(f, "the topic's configuration: {error}"),
        }
    }
}

/// A log dir that a topic uses.
#[derive(Debug, Clone)]
pub(crate) struct TopicDir {
    /// Its id.
    pub(crate) id: LogDirId,
    /// Whether the topic's partitions in it can be used.
    pub(crate) state: Result<LogDirIndex, PlaceFault>,
}

/// One topic.
#[derive(Debug)]
pub(crate) struct Topic {
    /// Its name.
    pub(crate) name: TopicName,
    /// Its incarnation.
    pub(crate) id: TopicId,
    /// What holds for it.
    pub(crate) config: Arc<TopicConfig>,
    /// One more at every change of its configuration.
    pub(super) revision: u64,
    pub(super) dirs: Vec<TopicDir>,
    pub(super) partitions: Vec<u16>,
}

impl Topic {
    /// How many partitions it has.
    pub(crate) fn partition_count(&self) -> i32 {
        i32::try_from(self.partitions.len()).unwrap_or(i32::MAX)
    }

    /// Where a partition is; `None` where the topic has no such partition.
    pub(crate) fn place(
        &self,
        partition: PartitionIndex,
    ) -> Option<Result<LogDirIndex, &PlaceFault>> {
        let at = *self.partitions.get(usize::try_from(partition.0).ok()?)?;
        self.dirs
            .get(usize::from(at))
            .map(|dir| dir.state.as_ref().copied())
    }

    /// Every partition and where it is.
    pub(crate) fn places(
        &self,
    ) -> impl Iterator<Item = (PartitionIndex, Result<LogDirIndex, &PlaceFault>)> {
        (0..self.partition_count())
            .map(PartitionIndex)
            .filter_map(|index| Some((index, self.place(index)?)))
    }
}

/// All topics.
#[derive(Debug, Default, Clone)]
pub(crate) struct Snapshot {
    by_name: HashMap<TopicName, Arc<Topic>>,
    by_id: HashMap<TopicId, Arc<Topic>>,
    sorted: Vec<Arc<Topic>>,
    damaged: HashMap<TopicName, Arc<StateError>>,
}

impl Snapshot {
    pub(super) fn new(
        topics: Vec<Arc<Topic>>,
        damaged: HashMap<TopicName, Arc<StateError>>,
    ) -> Snapshot {
        let mut snapshot = Snapshot {
            damaged,
            ..Snapshot::default()
        };
        topics.into_iter().for_each(|topic| snapshot.put(topic));
        snapshot
    }

    /// The topic of this name.
    #[allow(
        dead_code,
        reason = "the broker keeps a map of open topics beside this one"
    )]
    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<Topic>> {
        self.by_name.get(name)
    }

    /// The topic of this id.
    pub(crate) fn by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.by_id.get(&id)
    }

    /// All topics, by name.
    pub(crate) fn topics(&self) -> &[Arc<Topic>] {
        &self.sorted
    }

    /// Why nothing is known about a topic whose row in the catalog cannot be read: its name stays taken.
    #[allow(
        dead_code,
        reason = "the broker keeps a map of open topics beside this one"
    )]
    pub(crate) fn damaged(&self, name: &str) -> Option<&Arc<StateError>> {
        self.damaged.get(name)
    }

    /// The names of topics whose rows cannot be read, in no order.
    #[allow(
        dead_code,
        reason = "the broker keeps a map of open topics beside this one"
    )]
    pub(crate) fn damaged_names(&self) -> impl Iterator<Item = &TopicName> {
        self.damaged.keys()
    }

    /// Adds a topic, or replaces it by a newer state of it.
    pub(super) fn put(&mut self, topic: Arc<Topic>) {
        match self
            .sorted
            .binary_search_by(|other| other.name.cmp(&topic.name))
        {
            Ok(at) => self.sorted[at] = Arc::clone(&topic),
            Err(at) => self.sorted.insert(at, Arc::clone(&topic)),
        }
        if let Some(old) = self.by_name.insert(topic.name.clone(), Arc::clone(&topic)) {
            self.by_id.remove(&old.id);
        }
        self.by_id.insert(topic.id, topic);
    }

    pub(super) fn remove(&mut self, topic: &Topic) {
        self.by_name.remove(&topic.name);
        self.by_id.remove(&topic.id);
        self.sorted.retain(|other| other.id != topic.id);
    }
}
