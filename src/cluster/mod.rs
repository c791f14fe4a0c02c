//! The cluster as this broker knows it: who we are, which directories are ours, which topics exist.
//!
//! Owns:     everything in `__cluster` but groups, transactions and security; the identity files of log dirs; the
//!           stamps and configurations of topics.
//! Does not: look into partitions, or know the wire.
//!
//! Everything here that writes blocks on I/O and belongs on a `state-*` thread; what is read on the hot path
//! (`Catalog::load`, `Ownership`, `DirClaim::is_fresh`) takes no lock.
mod book;
mod catalog;
mod catalog_error;
mod claim;
mod dir_lock;
mod identity;
mod identity_error;
mod ids;
pub(crate) mod inspect;
mod log_dirs;
mod names;
mod open_catalog;
mod owner_file;
mod ownership;
#[cfg(test)]
mod power_tests;
mod producer_ids;
mod removal;
mod snapshot;
pub(crate) mod state_file;
mod stop;
mod stray;
#[cfg(test)]
mod test_broker;
#[cfg(test)]
pub(crate) mod test_disk;
mod topic_files;

pub(crate) use catalog::{Catalog, NewTopic};
pub(crate) use catalog_error::{ChangeError, CreateError};
pub(crate) use claim::DirClaim;
pub(crate) use dir_lock::try_lock;
pub(crate) use identity::Places;
pub(crate) use identity_error::IdentityError;
pub(crate) use ids::{ClusterId, topic_id_text};
pub(crate) use log_dirs::{LogDirIndex, LogDirs};
pub(crate) use names::{TopicName, root};
pub(crate) use open_catalog::Finding;
pub(crate) use owner_file::HostFacts;
pub(crate) use ownership::Ownership;
pub(crate) use producer_ids::{ProducerIdError, ProducerIds};
pub(crate) use removal::{Progress, Removal};
pub(crate) use snapshot::Topic;
pub(crate) use state_file::StateError;
pub(crate) use stop::StopSignal;

use crate::config::{Config, NodeId, Settings};
use catalog::CatalogPlace;
use claim::{ClaimOptions, OwnerTiming};
use identity::Identity;
use seawall_storage::disk::Disk;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the broker must know to find out who it is.
#[derive(Clone)]
pub(crate) struct ClusterOptions {
    /// The log dirs, at least one.
    pub(crate) log_dirs: Vec<PathBuf>,
    /// `cluster.dir`
    pub(crate) cluster_dir: Option<PathBuf>,
    /// `node.id`
    pub(crate) node_id: NodeId,
    /// What holds for topics without overrides.
    pub(crate) settings: Arc<Settings>,
    /// This machine and process.
    pub(crate) facts: HostFacts,
    /// How long the beat of another owner is watched, and so on.
    pub(crate) timing: OwnerTiming,
    /// Raise it to end a wait for another owner.
    pub(crate) stop: Arc<StopSignal>,
    /// Called once, from an `owner-*` thread, when a directory belongs to another broker: the process must exit
    /// without writing anything.
    pub(crate) on_lost: Arc<dyn Fn(&Path) + Send + Sync>,
    /// Everything but locks and owner files goes through it.
    pub(crate) disk: Arc<dyn Disk>,
    /// Treats every file system as shared between machines (tests).
    pub(crate) always_shared: bool,
}

impl ClusterOptions {
    /// Those of a configuration, on this machine.
    pub(crate) fn new(
        config: &Config,
        stop: Arc<StopSignal>,
        on_lost: Arc<dyn Fn(&Path) + Send + Sync>,
    ) -> Self {
        ClusterOptions {
            log_dirs: config.log_dirs.clone(),
            cluster_dir: config.cluster_dir.clone(),
            node_id: config.node_id,
            settings: Arc::clone(&config.settings),
            facts: HostFacts::read(),
            timing: OwnerTiming::default(),
            stop,
            on_lost,
            disk: state_file::real_disk(),
            always_shared: false,
        }
    }
}

/// Why the broker does not start. Nothing was changed but what a first start makes.
#[derive(Debug)]
pub(crate) enum ClusterError {
    /// The directories are not what they should be.
    Identity(IdentityError),
    /// The catalog's folder cannot be read.
    Catalog(StateError),
    /// The catalog's folder is gone, though the cluster is not new.
    CatalogMissing(PathBuf),
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterError::Identity(error) => write!(f, "{error}"),
            ClusterError::Catalog(error) => write!(f, "{error}"),
            ClusterError::CatalogMissing(path) => write!(
                f,
                "{} is missing, so it is not known which topics exist: restore it from a backup",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ClusterError {}

/// Everything the broker knows about itself after `open`.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The cluster's id, as clients see it.
    pub(crate) id: ClusterId,
    /// Where the state files of groups and transactions go.
    pub(crate) dir: PathBuf,
    /// The claim that covers `dir`.
    pub(crate) claim: Arc<DirClaim>,
    /// The log dirs.
    pub(crate) log_dirs: Arc<LogDirs>,
    /// Do I lead it, is my claim fresh?
    #[allow(dead_code, reason = "a single broker asks the claim of a log dir")]
    pub(crate) ownership: Ownership,
    /// The topics.
    pub(crate) catalog: Arc<Catalog>,
    /// Producer ids.
    pub(crate) producer_ids: Arc<ProducerIds>,
    /// What is left of topics deleted before: to be driven by `Catalog::remove_step`.
    pub(crate) removal: Removal,
    /// What the operator should know.
    pub(crate) findings: Vec<Finding>,
}

impl Cluster {
    /// Takes the directories, finds out who we are, reads the catalog. On a shared file system this may wait for half
    /// a minute until the last owner is provably gone.
    pub(crate) fn open(options: &ClusterOptions) -> Result<Cluster, ClusterError> {
        let disk = &options.disk;
        let places = Places {
            log_dirs: options.log_dirs.clone(),
            cluster_dir: options.cluster_dir.clone(),
        };
        let claims = ClaimOptions {
            facts: options.facts.clone(),
            timing: options.timing,
            stop: Arc::clone(&options.stop),
            on_lost: Arc::clone(&options.on_lost),
            always_shared: options.always_shared,
        };
        let first_files = |dir: &Path| first_files(&**disk, dir, options.node_id);
        let identity = identity::open(&**disk, &places, &claims, &first_files)
            .map_err(ClusterError::Identity)?;
        Cluster::read(options, identity)
    }

    fn read(options: &ClusterOptions, identity: Identity) -> Result<Cluster, ClusterError> {
        let Identity {
            cluster_id,
            cluster_dir,
            cluster_claim,
            log_dirs,
        } = identity;
        let topics = cluster_dir.join(topic_files::TOPICS_DIR);
        if !topics.is_dir() {
            return Err(ClusterError::CatalogMissing(topics));
        }
        let place = CatalogPlace {
            disk: Arc::clone(&options.disk),
            cluster_dir: cluster_dir.clone(),
            cluster_claim: Arc::clone(&cluster_claim),
            log_dirs: Arc::clone(&log_dirs),
            settings: Arc::clone(&options.settings),
        };
        let (catalog, removal, findings) = Catalog::open(place).map_err(ClusterError::Catalog)?;
        let claim = Arc::clone(&cluster_claim);
        let producer_ids = ProducerIds::new(
            Arc::clone(&options.disk),
            &cluster_dir,
            claim,
            options.node_id,
        );
        Ok(Cluster {
            id: cluster_id,
            dir: cluster_dir,
            claim: cluster_claim,
            ownership: Ownership::SingleNode(Arc::clone(&log_dirs)),
            log_dirs,
            catalog: Arc::new(catalog),
            producer_ids: Arc::new(producer_ids),
            removal,
            findings,
        })
    }
}

/// What must exist before a cluster does: from then on it is a loss if it is missing.
fn first_files(disk: &dyn Disk, cluster_dir: &Path, node: NodeId) -> Result<(), StateError> {
    make_dir(disk, &cluster_dir.join(topic_files::TOPICS_DIR))?;
    producer_ids::make_first(disk, cluster_dir, node)
}

/// Makes a directory that an interrupted start may have made already, durably.
fn make_dir(disk: &dyn Disk, dir: &Path) -> Result<(), StateError> {
    let made = match disk.create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    };
    made.and_then(|()| disk.sync_dir(state_file::parent(dir)))
        .map_err(StateError::io(dir))
}
