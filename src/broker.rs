//! The broker: topics on log dirs, and the operations that touch both.
//!
//! Owns:     opening, creating, deleting and closing topics with their
//!           partitions; the parts that all of them share.
//! Does not: know the wire (the APIs do), the bytes (storage does), sockets, or
//!           how topics are persisted (the catalog does).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seawall_committer::Watchdog;
use seawall_net::ConnInfo;
use seawall_storage::{PartitionIndex, Stop};

use crate::cluster::{
    Cluster, CreateError, DeleteError, OpenError, TopicEntry, TopicName, TopicNameError,
};
use crate::config::{Config, TopicConfig, TopicConfigError};
use crate::logdir::LogDir;
use crate::partition::{OpenPartition, Partition, PartitionConfig, now};
use crate::timer::Timer;
use crate::topics::{Slot, Topic, Topics};
use crate::workers::Workers;

/// Workers for due deadlines and what burns CPU: one per core of a small
/// machine.
const WORKERS: usize = 2;

/// How a topic is asked for.
pub struct NewTopic {
    /// Its name, not checked yet.
    pub name: String,
    /// How many partitions; at least 1.
    pub partitions: i32,
    /// Its own configuration, not checked yet.
    pub overrides: BTreeMap<String, String>,
    /// Only say what would happen.
    pub validate_only: bool,
}

/// What was made, or would have been.
pub struct CreatedTopic {
    /// The incarnation; a random one if only asked.
    pub id: seawall_storage::TopicId,
    /// What holds for it.
    pub config: TopicConfig,
}

/// See the module.
pub struct Broker {
    /// What it was told.
    pub config: Config,
    /// The topics it serves.
    pub topics: Topics,
    /// Deadlines.
    pub timer: Arc<Timer>,
    work: Arc<Workers>,
    watchdog: Arc<Watchdog>,
    dirs: Vec<Arc<LogDir>>,
    cluster: Cluster,
    /// Host and port for clients, by listener.
    endpoints: Vec<(String, u16)>,
}

impl Broker {
    /// Claims the log dirs and opens every partition.
    ///
    /// # Errors
    /// A dir cannot be claimed or a thread not started. A partition that cannot
    /// be opened is offline; that is no error here.
    pub fn open(
        config: Config,
        endpoints: Vec<(String, u16)>,
    ) -> Result<Arc<Self>, OpenError> {
        let cluster = Cluster::open(&config)?;
        let stall = Duration::from_millis(config.flush_stall_timeout_ms);
        let watchdog = Watchdog::start(stall)?;
        let work = Workers::start("work", WORKERS)?;
        let timer = Timer::start(Arc::clone(&work))?;
        let dirs = cluster.log_dirs();
        let queued_max = config.queued_request_bytes_max / 2 / dirs.len().max(1) as u64;
        let dirs = dirs.iter().enumerate().map(|(index, claimed)| {
            let ownership = Arc::clone(&claimed.ownership);
            let watchdog = Arc::clone(&watchdog);
            LogDir::start(index, &claimed.path, ownership, watchdog, queued_max)
        });
        let dirs = dirs.collect::<Result<Vec<_>, _>>()?;
        let broker = Arc::new(Self {
            config,
            topics: Topics::default(),
            timer,
            work,
            watchdog,
            dirs,
            cluster,
            endpoints,
        });
        broker.open_topics();
        Ok(broker)
    }

    /// This broker's number.
    pub fn node_id(&self) -> i32 {
        self.config.node_id.get()
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> &str {
        self.cluster.id()
    }

    /// Where a client of that connection is told to go.
    pub fn endpoint(&self, conn: &ConnInfo) -> (&str, u16) {
        let endpoint = self.endpoints.get(conn.listener());
        endpoint.map_or(("", 0), |(host, port)| (host.as_str(), *port))
    }
}

/// Topics and their partitions.
impl Broker {
    /// Opens every topic of the catalog, all log dirs at once.
    fn open_topics(self: &Arc<Self>) {
        let entries = self.cluster.topics();
        let (done, opened) = crossbeam_channel::unbounded();
        let mut expected = 0_usize;
        for (place, entry) in entries.iter().enumerate() {
            let config = self.effective(entry);
            for (index, dir) in (0..).zip(&entry.partitions) {
                expected += 1;
                let (broker, entry) = (Arc::clone(self), Arc::clone(entry));
                let (config, done, dir) = (config.clone(), done.clone(), *dir);
                let open = move || {
                    let slot = broker.open_partition(&entry, index, dir, &config);
                    // The receiver outlives every job.
                    let _ = done.send((place, index, slot));
                };
                match self.dirs.get(dir) {
                    Some(dir) => dir.state.submit(open),
                    None => open(),
                }
            }
        }
        let mut slots: Vec<Vec<Option<Slot>>> = entries
            .iter()
            .map(|entry| vec![None; entry.partitions.len()])
            .collect();
        for (place, index, slot) in opened.iter().take(expected) {
            let place = slots.get_mut(place);
            let index: Option<usize> = usize::try_from(index).ok();
            if let Some(there) = place.and_then(|slots| slots.get_mut(index?)) {
                *there = Some(slot);
            }
        }
        let topics: Vec<Arc<Topic>> = entries
            .iter()
            .zip(slots)
            .map(|(entry, slots)| self.topic(entry, slots.into_iter().flatten().collect()))
            .collect();
        self.topics.insert(&topics);
    }

    fn topic(&self, entry: &TopicEntry, partitions: Vec<Slot>) -> Arc<Topic> {
        Arc::new(Topic {
            name: Arc::clone(&entry.name),
            id: entry.id,
            config: arc_swap::ArcSwap::from_pointee(self.effective(entry)),
            partitions,
        })
    }

    /// What holds for a topic. Overrides that do not hold any more (a damaged
    /// or newer file) are reported and left out: they must not keep the data
    /// from its readers.
    fn effective(&self, entry: &TopicEntry) -> TopicConfig {
        let settings = &self.config.settings;
        let (config, errors) = TopicConfig::resolve_leniently(settings, &entry.overrides);
        for error in errors {
            log::error!("{}: a setting is ignored: {error}", entry.name);
        }
        config
    }

    fn open_partition(
        &self,
        entry: &TopicEntry,
        index: i32,
        dir: usize,
        config: &TopicConfig,
    ) -> Slot {
        let offline = |why: String| {
            log::error!("{}-{index} is offline: {why}", entry.name);
            Slot::Offline(why.into())
        };
        let (Some(dir), Some(claimed)) = (self.dirs.get(dir), self.cluster.log_dirs().get(dir))
        else {
            return offline("its log dir is absent".into());
        };
        let what = OpenPartition {
            topic: Arc::clone(&entry.name),
            topic_id: entry.id,
            index: PartitionIndex::new(index),
            stop: if claimed.clean { Stop::Clean } else { Stop::Unclean },
            recovered_this_boot: claimed.recovered_this_boot,
        };
        match Partition::open(dir, what, &self.partition_config(config), &|_| {}) {
            Ok(partition) => Slot::Open(partition),
            Err(error) => offline(error.to_string()),
        }
    }

    fn partition_config(&self, config: &TopicConfig) -> PartitionConfig {
        PartitionConfig {
            log: seawall_storage::LogConfig {
                segment_bytes: config.segment_bytes,
                segment_ms: config.segment_ms,
                segment_jitter_ms: config.segment_jitter_ms,
                index_interval_bytes: config.index_interval_bytes,
                producer_expiry_ms: self.config.producer_id_expiration_ms,
            },
            flush_messages: config.flush_messages,
            flush_ms: config.flush_ms.unwrap_or(u64::MAX),
        }
    }

    /// Creates a topic; it can be used when this returns. Blocks on the disk.
    ///
    /// # Errors
    /// Nothing of it was made.
    pub fn create_topic(&self, new: &NewTopic) -> Result<CreatedTopic, CreateTopicError> {
        let name = TopicName::parse(&new.name).map_err(CreateTopicError::Name)?;
        let config = TopicConfig::resolve(&self.config.settings, &new.overrides)
            .map_err(CreateTopicError::Config)?;
        let count = usize::try_from(new.partitions).unwrap_or(0);
        if !(1..=PARTITIONS_PER_TOPIC_MAX).contains(&count) {
            return Err(CreateTopicError::Partitions(new.partitions));
        }
        self.cluster.check_new(&name).map_err(CreateTopicError::Catalog)?;
        if new.validate_only {
            let id = seawall_storage::TopicId(uuid::Uuid::new_v4());
            return Ok(CreatedTopic { id, config });
        }
        let entry = self.cluster.create(&name, count, &new.overrides);
        let entry = entry.map_err(CreateTopicError::Catalog)?;
        let slots = (0..).zip(&entry.partitions);
        let slots = slots.map(|(index, dir)| self.open_partition(&entry, index, *dir, &config));
        let topic = self.topic(&entry, slots.collect());
        self.topics.insert(&[topic]);
        log::info!("topic {name} was created with {count} partitions");
        Ok(CreatedTopic { id: entry.id, config })
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
            Ok(_) | Err(CreateTopicError::Catalog(CreateError::Exists)) => {}
            Err(error) => log::warn!("topic {name:?} was not created: {error}"),
        }
    }

    /// Deletes a topic: committed and out of sight when this returns; its files
    /// go afterwards. Blocks on the disk.
    ///
    /// # Errors
    /// The topic is still there.
    pub fn delete_topic(&self, topic: &Arc<Topic>) -> Result<(), DeleteError> {
        self.cluster.delete(topic.id)?;
        self.topics.remove(topic);
        for partition in topic.open_partitions() {
            partition.deleted();
        }
        log::info!("topic {} was deleted", topic.name);
        Ok(())
    }

    /// An id that was never handed out before. Blocks on the disk at times.
    ///
    /// # Errors
    /// The next block of ids could not be made durable.
    pub fn new_producer_id(&self) -> Result<i64, std::io::Error> {
        self.cluster.new_producer_id()
    }
}

/// Life of the parts.
impl Broker {
    /// The pool for catalog work; it belongs to the volume of the catalog.
    pub fn state_workers(&self) -> Arc<Workers> {
        self.dirs.first().map_or(&self.work, |dir| &dir.state).clone()
    }

    /// The pool for look-ups that read from many partitions.
    pub fn read_workers(&self) -> Arc<Workers> {
        self.dirs.first().map_or(&self.work, |dir| &dir.reads).clone()
    }

    /// Adds up a number over all open partitions.
    pub fn sum_partitions(&self, number: impl Fn(&Partition) -> u64) -> u64 {
        let map = self.topics.load();
        let partitions = map.iter().flat_map(|topic| topic.open_partitions());
        partitions.map(|partition| number(partition)).sum()
    }

    /// The health of every partition that is not well, as JSON.
    pub fn health_json(&self) -> String {
        let map = self.topics.load();
        let mut unwell = Vec::new();
        for topic in map.iter() {
            for (index, slot) in topic.partitions.iter().enumerate() {
                let state = match slot {
                    Slot::Open(partition) if partition.is_online() => continue,
                    Slot::Open(partition) => format!("{:?}", partition.health()),
                    Slot::Offline(why) => format!("Offline: {why}"),
                };
                unwell.push(serde_json::json!({
                    "topic": &*topic.name, "partition": index, "state": state,
                }));
            }
        }
        serde_json::json!({ "status": "ok", "unwell": unwell }).to_string()
    }

    /// What is due by the clock in every partition.
    pub fn sweep(&self) {
        let now_ms = now().get();
        let map = self.topics.load();
        for partition in map.iter().flat_map(|topic| topic.open_partitions()) {
            partition.sweep(now_ms);
        }
    }

    /// Stops in the order in which work flows. The stop is clean if everything
    /// ended before `deadline`.
    pub fn stop(&self, deadline: Instant) -> bool {
        let map = self.topics.load();
        for partition in map.iter().flat_map(|topic| topic.open_partitions()) {
            partition.stopping();
        }
        let mut clean = true;
        for dir in &self.dirs {
            clean &= dir.stop_appends(deadline);
        }
        clean &= self.close_partitions(deadline);
        for dir in &self.dirs {
            clean &= dir.stop(deadline);
        }
        self.timer.stop();
        clean &= self.work.stop(deadline);
        self.watchdog.stop();
        self.cluster.release(clean);
        clean
    }

    /// Closes every partition, many at once.
    fn close_partitions(&self, deadline: Instant) -> bool {
        let map = self.topics.load();
        let (done, closed) = crossbeam_channel::unbounded();
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

/// Most partitions of one topic: what a single request may make us open.
const PARTITIONS_PER_TOPIC_MAX: usize = 10_000;

/// Why a topic was not created. Nothing of it was made.
#[derive(Debug)]
pub enum CreateTopicError {
    /// Client: a name that no topic can have.
    Name(TopicNameError),
    /// Client: a configuration that does not hold.
    Config(TopicConfigError),
    /// Client: a number of partitions that no topic can have.
    Partitions(i32),
    /// The catalog refused it, or its disk.
    Catalog(CreateError),
}

impl std::fmt::Display for CreateTopicError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(error) => write!(f, "Topic name is invalid: {error}"),
            Self::Config(error) => error.fmt(f),
            Self::Partitions(count) => write!(
                f,
                "A topic has from 1 to {PARTITIONS_PER_TOPIC_MAX} partitions, not {count}."
            ),
            Self::Catalog(error) => error.fmt(f),
        }
    }
}
