//! The broker: topics on log dirs, and the operations that touch both.
//!
//! Owns:     the parts that all topics share; their start and stop.
//! Does not: know the wire (the APIs do), the bytes (storage does), sockets, or
//!           how topics are persisted (the catalog does).
//!
//! `topic_ops` opens, creates and deletes topics, `removal` takes what is left
//! of deleted ones off the disks.

mod moves;
mod reload;
mod removal;
mod topic_ops;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use reload::Live;
use seawall_committer::{Call, InFlight, Watchdog};
use seawall_storage::ProducerId;

use crate::cleaner::CleanerConfig;
use crate::cluster::{
    Cluster, ClusterError, ClusterOptions, LogDirIndex, ProducerIdError, StopSignal,
};
use crate::config::Config;
use crate::counts::RequestCounts;
use crate::fetch_sessions::FetchSessions;
use crate::groups::{Groups, Place};
use crate::health::DirFacts;
use crate::logdir::{LogDir, LogDirOptions, shown_path};
use crate::partition::{Partition, now};
use crate::security::quota::Quotas;
use crate::security::{Authorizer, Credentials, CredentialsError, Doors, Session};
use crate::startup::Startup;
use crate::timer::Timer;
use crate::topics::{LookupError, Topics};
use crate::txn::Transactions;
use crate::workers::Workers;
use removal::Removals;

pub use topic_ops::NewTopic;

/// Workers for due deadlines and what burns CPU: one per core of a small
/// machine.
const WORKERS: usize = 2;
/// Workers for the tokens of logins, which cost milliseconds of computing each and which strangers send: nobody
/// else waits behind them.
const LOGIN_WORKERS: usize = 2;
/// How often idle producers are looked for, as in Kafka.
const PRODUCER_CHECK_MS: i64 = 600_000;
/// How long a claim may take to be given back.
const RELEASE: Duration = Duration::from_secs(5);

/// Why the broker did not open. Nothing is left running.
#[derive(Debug)]
pub enum OpenError {
    /// The directories are not what they should be, or not ours.
    Cluster(ClusterError),
    /// The users cannot be read.
    Credentials(CredentialsError),
    /// The system refused a thread.
    Threads(std::io::Error),
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> Self {
        Self::Threads(error)
    }
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cluster(error) => error.fmt(f),
            Self::Credentials(error) => error.fmt(f),
            Self::Threads(error) => write!(f, "a thread could not be started: {error}"),
        }
    }
}

/// See the module.
pub struct Broker {
    /// What it was told.
    pub config: Config,
    /// The topics it serves.
    pub topics: Arc<Topics>,
    /// What readers want, between their fetches.
    pub fetch_sessions: Arc<FetchSessions>,
    /// What clients asked for.
    pub counts: RequestCounts,
    /// Deadlines.
    pub timer: Arc<Timer>,
    /// How much somebody may do.
    pub(crate) quotas: Quotas,
    /// Who may do what.
    pub(crate) authorizer: Arc<Authorizer>,
    /// The transaction coordinator.
    pub txns: Transactions,
    work: Arc<Workers>,
    logins: Arc<Workers>,
    watchdog: Arc<Watchdog>,
    /// By their place in `log.dirs`; `None` where one is absent.
    dirs: Vec<Option<Arc<LogDir>>>,
    /// What each listener asks of its clients.
    pub(crate) doors: Arc<Doors>,
    /// Users and their keys.
    pub(crate) credentials: Credentials,
    /// Consumer groups.
    pub groups: Arc<Groups>,
    cluster: Cluster,
    removals: Removals,
    moved: moves::Moved,
    producers_checked_ms: AtomicI64,
    retained_at: Mutex<Instant>,
    cleaned_at: Mutex<Instant>,
    live: Arc<Live>,
    /// Host and port for clients, by listener.
    endpoints: Vec<(String, u16)>,
}

impl Broker {
    /// Claims the log dirs and opens every partition. On a shared file system
    /// it may wait for half a minute until the last owner is provably gone;
    /// `stop` ends that wait; `startup` hears how far it has come.
    ///
    /// # Errors
    /// A dir cannot be claimed or a thread not started. A partition that cannot
    /// be opened is offline; that is no error here.
    pub fn open(
        config: Config,
        endpoints: Vec<(String, u16)>,
        doors: Arc<Doors>,
        stop: Arc<StopSignal>,
        startup: &Arc<Startup>,
    ) -> Result<Arc<Self>, OpenError> {
        let live = Live::new(&config);
        let options = ClusterOptions::new(&config, stop, Arc::new(lost));
        let mut cluster = Cluster::open(&options).map_err(OpenError::Cluster)?;
        for finding in &cluster.findings {
            log::warn!("{finding}");
        }
        let credentials = Credentials::open(
            Arc::clone(&options.disk),
            &cluster.dir,
            Arc::clone(&cluster.claim),
        )
        .map_err(OpenError::Credentials)?;
        let authorizer = Authorizer::open(&config.access, &cluster, &options.disk)
            .map_err(ClusterError::Catalog)
            .map_err(OpenError::Cluster)?;
        let quotas = Quotas::open(&config.access, &cluster, &options.disk)
            .map_err(ClusterError::Catalog)
            .map_err(OpenError::Cluster)?;
        let stall = Duration::from_millis(config.flush_stall_timeout_ms);
        let watchdog = Watchdog::start(stall)?;
        let work = Workers::start("work", WORKERS)?;
        let logins = Workers::start("login", LOGIN_WORKERS)?;
        let timer = Timer::start(Arc::clone(&work))?;
        let dirs = start_dirs(&config, &cluster, &watchdog)?;
        let topics = Arc::<Topics>::default();
        let first = dirs.iter().flatten().next();
        let place = Place {
            disk: crate::cluster::state_file::real_disk(),
            cluster_dir: &cluster.dir,
            claim: Arc::clone(&cluster.claim),
            // Like the files of topics.
            pool: Arc::clone(first.map_or(&work, |dir| &dir.state)),
            timer: Arc::clone(&timer),
            topics: Arc::clone(&topics),
        };
        let groups = Groups::open(config.groups.clone(), place);
        let removals = Removals::new(std::mem::take(&mut cluster.removal));
        let txns = Transactions::open(&cluster, &options.disk, &config);
        let broker = Arc::new(Self {
            fetch_sessions: Arc::new(FetchSessions::new(config.fetch_sessions_max)),
            config,
            counts: RequestCounts::new(),
            topics,
            timer,
            quotas,
            authorizer: Arc::new(authorizer),
            txns,
            work,
            logins,
            watchdog,
            dirs,
            doors,
            credentials,
            groups,
            cluster,
            removals,
            moved: moves::Moved::default(),
            producers_checked_ms: AtomicI64::new(now().get()),
            retained_at: Mutex::new(Instant::now()),
            cleaned_at: Mutex::new(Instant::now()),
            live,
            endpoints,
        });
        broker.open_topics(startup);
        broker.say_recovered();
        broker.txns.resume(&broker);
        Ok(broker)
    }

    /// This broker's number.
    pub fn node_id(&self) -> i32 {
        self.config.node_id.get()
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> &str {
        self.cluster.id.as_str()
    }

    /// Where a client of that session is told to go.
    pub(crate) fn endpoint(&self, session: &Session) -> (&str, u16) {
        let endpoint = self.endpoints.get(session.listener);
        endpoint.map_or(("", 0), |(host, port)| (host.as_str(), *port))
    }

    /// An id that was never handed out before. Blocks on the disk at times.
    ///
    /// # Errors
    /// The next block of ids could not be made durable.
    pub(crate) fn fresh_producer_id(&self) -> Result<ProducerId, ProducerIdError> {
        self.cluster.producer_ids.next()
    }

    /// The pool for what burns CPU.
    pub fn workers(&self) -> &Arc<Workers> {
        &self.work
    }

    /// The pool for tokens of logins.
    pub(crate) fn login_workers(&self) -> &Arc<Workers> {
        &self.logins
    }

    /// The pool for catalog work; it belongs to a log dir like all I/O.
    pub fn state_workers(&self) -> Arc<Workers> {
        self.first_dir(|dir| &dir.state)
    }

    /// The pool for look-ups that read from many partitions.
    pub fn read_workers(&self) -> Arc<Workers> {
        self.first_dir(|dir| &dir.reads)
    }

    fn first_dir(&self, pool: impl Fn(&LogDir) -> &Arc<Workers>) -> Arc<Workers> {
        let dir = self.dirs.iter().flatten().next();
        Arc::clone(dir.map_or(&self.work, |dir| pool(dir)))
    }

    /// Every configured log dir by its full path; `None` where it is absent.
    pub fn log_dirs(&self) -> impl Iterator<Item = (String, Option<&Arc<LogDir>>)> {
        let all = self.cluster.log_dirs.all().iter().zip(&self.dirs);
        all.map(|(dir, started)| (shown_path(&dir.path), started.as_ref()))
    }

    fn dir(&self, index: LogDirIndex) -> Option<&Arc<LogDir>> {
        self.dirs.get(index.0)?.as_ref()
    }

    /// A process that dies from now on, and nothing else, leaves what the page
    /// cache has: the next start may take a damaged batch in the middle for
    /// corruption (DESIGN 7).
    fn say_recovered(&self) {
        let map = self.topics.load();
        let partitions = || map.iter().flat_map(|topic| topic.open_partitions());
        for dir in self.dirs.iter().flatten() {
            let mut here = partitions().filter(|partition| Arc::ptr_eq(partition.dir(), dir));
            let whole = here.all(|partition| partition.is_online()) && !dir.has_tail();
            if let Err(error) = dir.claim.set_recovered(whole) {
                log::warn!("{}: {error}", dir.path.display());
            }
        }
    }

    /// Adds up a number over all open partitions.
    pub fn sum_partitions(&self, number: impl Fn(&Partition) -> u64) -> u64 {
        let map = self.topics.load();
        let partitions = map.iter().flat_map(|topic| topic.open_partitions());
        partitions.map(|partition| number(partition)).sum()
    }

    /// Calls to disks that have not come back, by kind.
    pub fn calls(&self) -> [(Call, InFlight); Call::ALL.len()] {
        self.watchdog.in_flight()
    }

    /// How each configured log dir is.
    pub fn dir_facts(&self) -> impl Iterator<Item = DirFacts<'_>> {
        let all = self.cluster.log_dirs.all().iter().zip(&self.dirs);
        all.map(|(dir, started)| DirFacts {
            path: &dir.path,
            absence: dir.state.as_ref().err().map(ToString::to_string),
            well: started.as_ref().is_some_and(|dir| dir.claim.is_well()),
            claim_fresh: started.as_ref().is_some_and(|dir| dir.claim.is_fresh()),
            has_space: started.as_ref().is_some_and(|dir| dir.reserve.is_held()),
            free_bytes: started.as_ref().map_or(0, |dir| dir.claim.free_bytes()),
        })
    }

    /// What is due by the clock.
    pub fn sweep(self: &Arc<Self>) {
        let now_ms = now().get();
        let map = self.topics.load();
        for partition in map.iter().flat_map(|topic| topic.open_partitions()) {
            partition.sweep(now_ms);
        }
        let checked = self.producers_checked_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(checked) >= PRODUCER_CHECK_MS {
            self.producers_checked_ms.store(now_ms, Ordering::Relaxed);
            for partition in map.iter().flat_map(|topic| topic.open_partitions()) {
                partition.expire_producers();
            }
        }
        for dir in self.dirs.iter().flatten() {
            dir.sweep();
        }
        self.retain_if_due();
        self.compact_if_due();
        self.drive_removals();
        self.drive_moved();
        self.txns.sweep(self);
        self.sweep_groups();
        self.doors.sweep(&self.state_workers());
    }

    /// Offsets of topics that are gone go, and those that nobody asks for any more. What cannot be read is not gone
    /// (D12).
    fn sweep_groups(&self) {
        let map = self.topics.load();
        self.groups.sweep(&|name, id| match map.named(name) {
            Ok(topic) => topic.id != id,
            Err(error) => error == LookupError::UnknownTopic,
        });
    }

    /// Every `log.retention.check.interval.ms`.
    fn retain_if_due(&self) {
        if is_due(&self.retained_at, self.config.retention_check_interval_ms) {
            for dir in self.dirs.iter().flatten() {
                dir.retain(self.partitions_on(dir, |_| true));
            }
        }
    }

    /// Every `log.cleaner.backoff.ms`, unless the last round is not over.
    fn compact_if_due(&self) {
        if is_due(&self.cleaned_at, self.live.cleaner_backoff_ms()) {
            for dir in self.dirs.iter().flatten() {
                let compacted = self.partitions_on(dir, Partition::is_compacted);
                dir.cleaner.round(compacted);
            }
        }
    }

    fn partitions_on(
        &self,
        dir: &Arc<LogDir>,
        wanted: impl Fn(&Partition) -> bool,
    ) -> Vec<Arc<Partition>> {
        let map = self.topics.load();
        let open = map.iter().flat_map(|topic| topic.open_partitions());
        open.filter(|p| Arc::ptr_eq(p.dir(), dir) && wanted(p))
            .cloned()
            .collect()
    }

    /// Adds up a number over all log dirs.
    pub fn sum_dirs(&self, number: impl Fn(&LogDir) -> u64) -> u64 {
        self.dirs.iter().flatten().map(|dir| number(dir)).sum()
    }

    /// Stops in the order in which work flows. The stop is clean if everything
    /// ended before `deadline`.
    pub fn stop(&self, deadline: Instant) -> bool {
        let map = self.topics.load();
        for partition in map.iter().flat_map(|topic| topic.open_partitions()) {
            partition.stopping();
        }
        let dirs = || self.dirs.iter().flatten();
        let mut clean = true;
        for dir in dirs() {
            clean &= dir.stop_changes(deadline);
        }
        clean &= self.close_partitions(deadline);
        clean &= self.txns.close();
        for dir in dirs() {
            clean &= dir.stop(deadline);
        }
        clean &= self.logins.stop(deadline);
        self.timer.stop();
        clean &= self.work.stop(deadline);
        self.watchdog.stop();
        // Only a clean stop is said to be one: the next start trusts it.
        clean && self.release()
    }

    fn release(&self) -> bool {
        let mut claims: Vec<_> = self.dirs.iter().flatten().map(|dir| &dir.claim).collect();
        let covered = claims
            .iter()
            .any(|claim| Arc::ptr_eq(claim, &self.cluster.claim));
        if !covered {
            claims.push(&self.cluster.claim);
        }
        let mut clean = true;
        for claim in claims {
            if let Err(error) = claim.release(RELEASE) {
                log::warn!("{}: not released: {error}", claim.dir().display());
                clean = false;
            }
        }
        clean
    }
}

fn is_due(last: &Mutex<Instant>, interval_ms: u64) -> bool {
    let mut last = last.lock();
    let due = last.elapsed() >= Duration::from_millis(interval_ms);
    if due {
        *last = Instant::now();
    }
    due
}

/// A dir that belongs to another broker: nothing may be written any more, so
/// the process ends on the spot, like one that was killed.
fn lost(dir: &Path) {
    log::error!("{} belongs to another broker now; exiting", dir.display());
    std::process::exit(EXIT_LOST);
}

/// The exit status after a dir was lost.
const EXIT_LOST: i32 = 3;

fn start_dirs(
    config: &Config,
    cluster: &Cluster,
    watchdog: &Arc<Watchdog>,
) -> Result<Vec<Option<Arc<LogDir>>>, OpenError> {
    let all = cluster.log_dirs.all();
    let count = all.len().max(1) as u64;
    let threads = if config.cleaner_enabled {
        config.cleaner_threads
    } else {
        0
    };
    let maps = count.saturating_mul(threads.max(1) as u64);
    let options = LogDirOptions {
        watchdog: Arc::clone(watchdog),
        queued_bytes_max: config.queued_request_bytes_max / 2 / count,
        cleaner: CleanerConfig {
            threads,
            map_bytes_max: config.cleaner_map_bytes_max / maps,
            bytes_per_second: config.cleaner_bytes_per_second,
        },
    };
    let mut dirs = Vec::with_capacity(all.len());
    for dir in all {
        dirs.push(match &dir.state {
            Ok(present) => {
                let claim = Arc::clone(&present.claim);
                let started = LogDir::start(dir.index.0, &dir.path, claim, &options);
                Some(started?)
            }
            Err(absence) => {
                log::error!("{} is not used: {absence}", dir.path.display());
                None
            }
        });
    }
    Ok(dirs)
}
