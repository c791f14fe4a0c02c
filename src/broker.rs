//! The broker: topics on log dirs, and the operations that touch both.
//!
//! Owns:     opening, creating, deleting and closing topics with their
//!           partitions; the parts that all of them share.
//! Does not: know the wire (the APIs do), the bytes (storage does), sockets, or
//!           how topics are persisted (the catalog does).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use seawall_committer::Watchdog;
use seawall_net::ConnInfo;
use seawall_storage::{PartitionIndex, Stop};

use crate::cluster::{Cluster, CreateError, DeleteError, ProducerIdError, TopicEntry};
use crate::config::{Config, TopicConfig};
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
    pub overrides: Vec<(String, String)>,
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
    ) -> Result<Arc<Self>, crate::cluster::OpenError> {
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
