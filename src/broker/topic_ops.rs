//! Opening, creating, deleting and closing topics with their partitions.
//!
//! Everything here blocks on the disk and runs on state workers, or before the
//! first connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;
use seawall_storage::{CompactionRules, LogConfig, PartitionIndex, Retention, Stop, TopicId};

use super::Broker;
use crate::cluster::{self, ChangeError, CreateError, LogDirIndex, Progress};
use crate::config::TopicConfig;
use crate::partition::{Keeping, OpenPartition, Partition, PartitionConfig};
use crate::startup::Startup;
use crate::topics::{Slot, Topic};

/// How long a deletion waits for a roll or a checkpoint under way.
const RETIRE: Duration = Duration::from_secs(5);

/// What a batch may unpack to in a compaction thread, whatever a topic allows.
const UNPACKED_BYTES_MAX: u64 = 256 << 20;

/// How a topic is asked for.
pub struct NewTopic {
    /// Its name, not checked yet.
    pub name: String,
    /// How many partitions; defaults are filled in.
    pub partitions: i32,
    /// Its own configuration, not checked yet.
    pub overrides: BTreeMap<String, String>,
    /// Only say what would happen.
    pub validate_only: bool,
}

impl NewTopic {
    fn wanted(&self) -> cluster::NewTopic<'_> {
        cluster::NewTopic {
            name: &self.name,
            partitions: self.partitions,
            overrides: self.overrides.clone(),
        }
    }
}

/// What was made, or would have been.
pub struct CreatedTopic {
    /// The incarnation; a random one if only asked.
    pub id: TopicId,
    /// What holds for it.
    pub config: Arc<TopicConfig>,
}

impl Broker {
    /// Opens every topic of the catalog, all log dirs at once.
    pub(super) fn open_topics(self: &Arc<Self>, startup: &Arc<Startup>) {
        let started = Instant::now();
        let snapshot = self.cluster.catalog.snapshot();
        let entries = snapshot.topics();
        startup.will_open(entries.iter().map(|entry| entry.places().count()).sum());
        let (done, opened) = unbounded();
        let mut slots: Vec<Vec<Option<Slot>>> = Vec::with_capacity(entries.len());
        for (place, entry) in entries.iter().enumerate() {
            for (at, (index, dir)) in entry.places().enumerate() {
                let dir = dir.map_err(ToString::to_string);
                let (broker, entry, done) = (Arc::clone(self), Arc::clone(entry), done.clone());
                let startup = Arc::clone(startup);
                let pool = dir.as_ref().ok().and_then(|dir| self.dir(*dir));
                let open = move || {
                    let read = |bytes| startup.read(bytes);
                    let slot = broker.open_partition(&entry, index, &dir, &read);
                    startup.opened_one();
                    // The receiver outlives every job.
                    let _ = done.send((place, at, slot));
                };
                match pool {
                    Some(dir) => dir.state.submit(open),
                    None => open(),
                }
            }
            slots.push(vec![None; entry.places().count()]);
        }
        drop(done);
        for (place, at, slot) in opened {
            if let Some(there) = slots.get_mut(place).and_then(|slots| slots.get_mut(at)) {
                *there = Some(slot);
            }
        }
        let damaged = snapshot.damaged_names().map(|name| name.as_str().into());
        self.topics.set_damaged(damaged.collect());
        let partitions: usize = slots.iter().map(Vec::len).sum();
        let topics: Vec<Arc<Topic>> = entries
            .iter()
            .zip(slots)
            .map(|(entry, slots)| topic(entry, slots.into_iter().map(opened_slot).collect()))
            .collect();
        self.topics.insert(&topics);
        if partitions > 0 {
            let took = started.elapsed();
            log::info!(
                "{} topics with {partitions} partitions were opened in {took:.1?}",
                topics.len()
            );
        }
    }

    fn open_partition(
        &self,
        entry: &cluster::Topic,
        index: PartitionIndex,
        dir: &Result<LogDirIndex, String>,
        progress: &dyn Fn(u64),
    ) -> Slot {
        let offline = |why: String| {
            log::error!("{}-{index} is offline: {why}", entry.name);
            Slot::Offline(why.into())
        };
        let dir = match dir.as_ref().map(|dir| self.dir(*dir)) {
            Ok(Some(dir)) => dir,
            Ok(None) => return offline("its log dir is absent".into()),
            Err(why) => return offline(why.clone()),
        };
        let before = dir.claim.predecessor();
        let what = OpenPartition {
            topic: entry.name.as_str().into(),
            topic_id: entry.id,
            index,
            stop: if before.stopped_cleanly {
                Stop::Clean
            } else {
                Stop::Unclean
            },
            recovered_this_boot: before.recovered_this_boot,
        };
        match Partition::open(
            dir,
            what,
            &partition_config(&entry.config, self.live.producer_expiry_ms()),
            progress,
        ) {
            Ok(partition) => Slot::Open(partition),
            Err(error) => offline(error.to_string()),
        }
    }

    /// A partition whose files were copied while nothing was appended.
    pub(super) fn open_moved(
        &self,
        entry: &cluster::Topic,
        index: PartitionIndex,
        to: LogDirIndex,
    ) -> Slot {
        let Some(dir) = self.dir(to) else {
            return Slot::Offline("its log dir is absent".into());
        };
        let what = OpenPartition {
            topic: entry.name.as_str().into(),
            topic_id: entry.id,
            index,
            stop: Stop::Clean,
            recovered_this_boot: false,
        };
        match Partition::open(
            dir,
            what,
            &partition_config(&entry.config, self.live.producer_expiry_ms()),
            &|_| {},
        ) {
            Ok(partition) => Slot::Open(partition),
            Err(error) => {
                log::error!("{}-{index} is offline after its move: {error}", entry.name);
                Slot::Offline(error.to_string().into())
            }
        }
    }

    fn open_all(&self, entry: &cluster::Topic) -> Arc<Topic> {
        let slots = entry.places().map(|(index, dir)| {
            let dir = dir.map_err(ToString::to_string);
            self.open_partition(entry, index, &dir, &|_| {})
        });
        topic(entry, slots.collect())
    }

    /// Says whether a topic could be created, and what would hold for it.
    ///
    /// # Errors
    /// It could not.
    pub fn check_topic(&self, new: &NewTopic) -> Result<TopicConfig, CreateError> {
        let (_, config) = self.cluster.catalog.check(&new.wanted())?;
        Ok(config)
    }

    /// Creates a topic; it can be used when this returns.
    ///
    /// # Errors
    /// Nothing of it was made, or the error says what stays.
    pub fn create_topic(&self, new: &NewTopic) -> Result<CreatedTopic, CreateError> {
        if new.validate_only {
            let config = self.check_topic(new)?;
            return Ok(CreatedTopic {
                id: TopicId(uuid::Uuid::new_v4()),
                config: Arc::new(config),
            });
        }
        let wanted = new.wanted();
        let entry = self.cluster.catalog.create(&wanted)?;
        self.topics.insert(&[self.open_all(&entry)]);
        self.settle_config(entry.id, 0, usize::MAX);
        log::info!(
            "topic {} was created with {} partitions",
            entry.name,
            new.partitions
        );
        Ok(CreatedTopic {
            id: entry.id,
            config: Arc::clone(&entry.config),
        })
    }

    /// Creates a topic that a client asked metadata of. What goes wrong is for
    /// the log: the client sees that the topic is not there.
    pub fn auto_create(&self, name: &str) {
        let new = NewTopic {
            name: name.to_owned(),
            partitions: self.config.num_partitions,
            overrides: BTreeMap::new(),
            validate_only: false,
        };
        match self.create_topic(&new) {
            Ok(_) | Err(CreateError::Exists) => {}
            Err(error) => log::warn!("topic {name:?} was not created: {error}"),
        }
    }

    /// Deletes a topic: committed and out of sight when this returns; its files
    /// go afterwards.
    ///
    /// # Errors
    /// The topic is still there. `Busy` if its disk hangs; then it serves
    /// nobody until the deletion is tried again.
    pub fn delete_topic(&self, topic: &Arc<Topic>) -> Result<(), ChangeError> {
        for partition in topic.open_partitions() {
            partition.deleted();
        }
        if !topic
            .open_partitions()
            .all(|partition| partition.retire(RETIRE))
        {
            return Err(ChangeError::Busy);
        }
        let mut removal = match self.cluster.catalog.delete(topic.id) {
            Ok(removal) => removal,
            Err(error) => {
                self.open_again(topic);
                return Err(error);
            }
        };
        self.topics.remove(topic);
        self.groups.topic_deleted(&topic.name, topic.id);
        // The name is free for another incarnation from here on (A4 of the
        // partition: nobody makes files under the old one any more).
        if let Progress::Stuck(error) = self.cluster.catalog.set_aside(&mut removal) {
            log::warn!("topic {}: its name is not free yet: {error}", topic.name);
        }
        let open = topic.open_partitions().map(Arc::downgrade).collect();
        self.removals.add(removal, open);
        log::info!("topic {} was deleted", topic.name);
        Ok(())
    }

    /// Changes a topic's configuration; in force and durable when this returns.
    ///
    /// # Errors
    /// The old one holds.
    pub fn alter_topic(
        &self,
        topic: &Arc<Topic>,
        overrides: &BTreeMap<String, String>,
        validate_only: bool,
    ) -> Result<(), ChangeError> {
        if validate_only {
            let checked = TopicConfig::resolve(&self.settings(), overrides);
            return checked.map(drop).map_err(ChangeError::Config);
        }
        let entry = self.cluster.catalog.set_overrides(topic.id, overrides)?;
        self.settle_config(entry.id, 0, usize::MAX);
        log::info!("topic {}: its configuration was changed", topic.name);
        Ok(())
    }

    /// Has a topic go by what the catalog says now, and its partitions from that one on. For those that came into
    /// service, too: the configuration may have changed between their opening and that.
    pub(super) fn settle_config(&self, id: TopicId, from: usize, count: usize) {
        let Some(topic) = self.configure(id) else {
            return;
        };
        for slot in topic.partitions.iter().skip(from).take(count) {
            if let Slot::Open(partition) = slot {
                partition.set_config(self.newest_config(&topic));
            }
        }
    }

    /// Has a topic go by what the catalog says now; its partitions do not yet.
    pub(super) fn configure(&self, id: TopicId) -> Option<Arc<Topic>> {
        self.topics.configure(id, || {
            let snapshot = self.cluster.catalog.load();
            Some(Arc::clone(&snapshot.by_id(id)?.config))
        })
    }

    /// What a partition takes from its topic, whenever it is asked.
    pub(super) fn newest_config(
        &self,
        topic: &Arc<Topic>,
    ) -> impl FnOnce() -> PartitionConfig + use<> {
        let (topic, live) = (Arc::clone(topic), Arc::clone(&self.live));
        move || partition_config(&topic.config.load(), live.producer_expiry_ms())
    }

    /// Adds partitions up to a total; they can be used when this returns.
    ///
    /// # Errors
    /// Nothing was added, or the error says what stays.
    pub fn add_partitions(&self, topic: &Arc<Topic>, total: i32) -> Result<(), ChangeError> {
        let (entry, before) = self.cluster.catalog.add_partitions(topic.id, total)?;
        let mut opened = Vec::new();
        for (index, dir) in entry.places().skip(before) {
            let dir = dir.map_err(ToString::to_string);
            opened.push((index, self.open_partition(&entry, index, &dir, &|_| {})));
        }
        self.topics.update(topic.id, |now| {
            for (index, slot) in opened {
                now.set_slot(index, slot);
            }
        });
        self.settle_config(topic.id, before, usize::MAX);
        log::info!("topic {} has {total} partitions now", topic.name);
        Ok(())
    }

    /// A deletion was not committed: the topic serves again, as after a start.
    fn open_again(&self, topic: &Topic) {
        match self.cluster.catalog.load().by_id(topic.id) {
            Some(entry) => self.topics.insert(&[self.open_all(entry)]),
            None => self.topics.remove(topic),
        }
    }

    /// Closes every partition, many at once. Says whether all were closed
    /// before `deadline`.
    pub(super) fn close_partitions(&self, deadline: Instant) -> bool {
        let map = self.topics.load();
        let (done, closed) = unbounded();
        let mut expected = 0_usize;
        for partition in map.iter().flat_map(|topic| topic.open_partitions()) {
            expected += 1;
            let (partition, done) = (Arc::clone(partition), done.clone());
            let state = Arc::clone(&partition.dir().state);
            state.submit(move || {
                let result = partition.close();
                if let Err(error) = &result {
                    let (topic, index) = (&partition.topic, partition.index);
                    log::warn!("{topic}-{index}: not closed cleanly: {error}");
                }
                // The receiver may have given up at its deadline.
                let _ = done.send(result.is_ok());
            });
        }
        drop(done);
        let mut clean = true;
        for _ in 0..expected {
            clean &= closed.recv_deadline(deadline).unwrap_or(false);
        }
        clean
    }
}

fn keeping(config: &TopicConfig) -> Keeping {
    let deletes = config.cleanup_policy.delete;
    Keeping {
        retention: Retention {
            age_ms: config.retention_ms.filter(|_| deletes),
            bytes: config.retention_bytes.filter(|_| deletes),
        },
        delete_delay: Duration::from_millis(config.file_delete_delay_ms),
        compaction: config.cleanup_policy.compact.then(|| rules(config)),
    }
}

fn rules(config: &TopicConfig) -> CompactionRules {
    CompactionRules {
        dirty_ratio_min: config.min_cleanable_dirty_ratio,
        lag_min_ms: config.min_compaction_lag_ms,
        lag_max_ms: config.max_compaction_lag_ms,
        delete_retention_ms: config.delete_retention_ms,
        segment_bytes: config.segment_bytes,
        index_interval_bytes: config.index_interval_bytes,
        // Each thread has its own share.
        map_bytes_max: 0,
        batch_bytes_max: config
            .max_decompressed_message_bytes
            .min(UNPACKED_BYTES_MAX),
    }
}

/// When segments are closed: a compacted log reaches all records in time.
fn segment_ms(config: &TopicConfig) -> u64 {
    if config.cleanup_policy.compact {
        config.segment_ms.min(config.max_compaction_lag_ms)
    } else {
        config.segment_ms
    }
}

fn partition_config(config: &TopicConfig, producer_expiry_ms: u64) -> PartitionConfig {
    PartitionConfig {
        log: LogConfig {
            segment_bytes: config.segment_bytes,
            segment_ms: segment_ms(config),
            segment_jitter_ms: config.segment_jitter_ms,
            index_interval_bytes: config.index_interval_bytes,
            producer_expiry_ms,
        },
        flush_messages: config.flush_messages,
        flush_ms: config.flush_ms.unwrap_or(u64::MAX),
        keeping: keeping(config),
    }
}

fn topic(entry: &cluster::Topic, partitions: Vec<Slot>) -> Arc<Topic> {
    Arc::new(Topic {
        name: entry.name.as_str().into(),
        id: entry.id,
        config: Arc::new(arc_swap::ArcSwap::new(Arc::clone(&entry.config))),
        partitions,
    })
}

/// A partition whose opening panicked has sent nothing.
fn opened_slot(slot: Option<Slot>) -> Slot {
    slot.unwrap_or_else(|| Slot::Offline("opening it panicked (a bug)".into()))
}
