//! Why a broker does not start with the directories it was given, and what its operator can do about it.
use super::claim::ClaimError;
use super::ids::ClusterId;
use super::log_dirs::Absence;
use super::names::root;
use super::state_file::StateError;
use std::fmt;
use std::path::PathBuf;

/// Why the broker does not start. Nothing was changed, apart from what an interrupted first start has made.
#[derive(Debug)]
pub(crate) enum IdentityError {
    /// The directory is Kafka's.
    KafkaData {
        /// The directory.
        dir: PathBuf,
    },
    /// A log dir belongs to a cluster whose `meta.json` is not where it should be.
    MetaMissing {
        /// Where it should be.
        meta: PathBuf,
        /// The log dir that knows a cluster.
        dir: PathBuf,
        /// Where one is, if it is easily found.
        found: Option<PathBuf>,
    },
    /// A log dir belongs to another cluster.
    OtherCluster {
        /// The log dir.
        dir: PathBuf,
        /// Its cluster.
        theirs: ClusterId,
        /// The cluster of `meta.json`.
        ours: ClusterId,
    },
    /// Two directories say that they are the same one: one is a copy.
    SameId {
        /// One.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// The first log dir holds the catalog and cannot be used.
    ClusterDirUnusable {
        /// The directory.
        dir: PathBuf,
        /// Why not.
        why: Absence,
    },
    /// A directory holds topics and has no id: its `log-dir.json` is lost.
    IdLost {
        /// The directory.
        dir: PathBuf,
    },
    /// What was found under the locks is not what was found before them.
    Moved,
    /// A directory is another broker's, or cannot be taken.
    Claim(ClaimError),
    /// `meta.json` or another file of ours cannot be used.
    State(StateError),
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdentityError::KafkaData { dir } => write!(
                f,
                "{} holds the data of an Apache Kafka broker ({}). It was not touched. Choose another directory; to \
                 bring the data over, let MirrorMaker or a consumer and a producer copy it while that Kafka runs",
                dir.display(),
                root::KAFKA_META
            ),
            IdentityError::MetaMissing { meta, dir, found } => {
                let (meta, dir) = (meta.display(), dir.display());
                write!(f, "{dir} belongs to a cluster, and {meta} does not exist. ")?;
                match found {
                    Some(found) => write!(
                        f,
                        "It is at {}: list that log dir first, or set cluster.dir to that directory",
                        found.display()
                    ),
                    None => write!(
                        f,
                        "Mount the volume that holds it, or restore it from a backup"
                    ),
                }
            }
            IdentityError::OtherCluster { dir, theirs, ours } => write!(
                f,
                "{} belongs to the cluster {theirs}, and the catalog to the cluster {ours}: correct log.dirs or cluster.dir",
                dir.display()
            ),
            IdentityError::SameId { first, second } => write!(
                f,
                "{} and {} have the same id in {}: one is a copy of the other; remove it from log.dirs",
                first.display(),
                second.display(),
                root::LOG_DIR
            ),
            IdentityError::ClusterDirUnusable { dir, why } => {
                write!(
                    f,
                    "{} holds the catalog of the cluster and cannot be used: {why}",
                    dir.display()
                )
            }
            IdentityError::IdLost { dir } => write!(
                f,
                "{} holds topics and has no {}: restore that file from a backup",
                dir.display(),
                root::LOG_DIR
            ),
            IdentityError::Moved => {
                write!(
                    f,
                    "the directories changed while they were taken into use: start again"
                )
            }
            IdentityError::Claim(error) => write!(f, "{error}"),
            IdentityError::State(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for IdentityError {}

impl From<ClaimError> for IdentityError {
    fn from(error: ClaimError) -> IdentityError {
        IdentityError::Claim(error)
    }
}

impl From<StateError> for IdentityError {
    fn from(error: StateError) -> IdentityError {
        IdentityError::State(error)
    }
}
