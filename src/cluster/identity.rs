//! Who we are: the cluster, the log dirs, and whether what is configured is what we know.
//!
//! Owns:     `meta.json`, `log-dir.json`, and the decision which directory is ours, new, absent or another's.
//! Does not: look at topics.
//! Called once, by the thread that starts the broker.
//!
//! # Invariants
//! I1. A log dir has an id only after its cluster has a `meta.json`: a `log-dir.json` without one is a loss, never a
//!     start that was interrupted.
//! I2. An id stands in a log dir before it stands in `meta.json`: what `meta.json` knows has existed.
//! I3. A directory is looked at before anything is made in it, and decided about again once it is locked.
use super::claim::{ClaimError, ClaimOptions, DirClaim};
use super::identity_error::IdentityError;
use super::ids::{ClusterId, LogDirId};
use super::log_dirs::{Absence, LogDir, LogDirIndex, LogDirs, PresentDir};
use super::names::root;
use super::state_file::{self, StateError, parent};
use seawall_storage::disk::Disk;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const META_BYTES_MAX: u64 = 1 << 20;
pub(super) const LOG_DIR_BYTES_MAX: u64 = 64 << 10;

/// `meta.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) cluster_id: ClusterId,
    pub(super) log_dirs: Vec<LogDirId>,
}

/// `log-dir.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LogDirFile {
    pub(super) id: LogDirId,
    pub(super) cluster_id: ClusterId,
}

/// What `open` found and made.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The cluster.
    pub(crate) cluster_id: ClusterId,
    /// Where catalog, groups and producer ids are.
    pub(crate) cluster_dir: PathBuf,
    /// The claim that covers it.
    pub(crate) cluster_claim: Arc<DirClaim>,
    /// The log dirs.
    pub(crate) log_dirs: Arc<LogDirs>,
}

/// Where things are configured to be.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The log dirs, at least one.
    pub(crate) log_dirs: Vec<PathBuf>,
    /// `cluster.dir`, where it is set.
    pub(crate) cluster_dir: Option<PathBuf>,
}

impl Places {
    /// The directory of the catalog.
    pub(super) fn catalog(&self) -> PathBuf {
        let first = self.log_dirs.first().map(|dir| dir.join(root::CLUSTER_DIR));
        self.cluster_dir
            .clone()
            .or(first)
            .unwrap_or_else(|| PathBuf::from(root::CLUSTER_DIR))
    }
}

/// Finds out who we are, takes every usable directory, and writes what is new. `first_files` is called on the catalog
/// directory of a new cluster before its `meta.json` exists.
pub(crate) fn open(
    disk: &dyn Disk,
    places: &Places,
    claims: &ClaimOptions,
    first_files: &dyn Fn(&Path) -> Result<(), StateError>,
) -> Result<Identity, IdentityError> {
    let before = Plan::make(disk, places)?;
    let own_volume = places
        .cluster_dir
        .as_deref()
        .map(|dir| take(disk, dir, "c", claims))
        .transpose()?;
    let take_one = |(at, dir)| take_log_dir(disk, dir, at, places, claims);
    let taken = before
        .dirs
        .iter()
        .enumerate()
        .map(take_one)
        .collect::<Result<Vec<_>, _>>()?;
    let plan = Plan::make(disk, places)?;
    if !before.agrees(&plan) {
        return Err(IdentityError::Moved);
    }
    let meta = match plan.meta.clone() {
        Some(meta) => meta,
        None => make_cluster(disk, &places.catalog(), first_files)?,
    };
    settle(
        disk,
        places,
        plan,
        meta,
        Taken {
            own_volume,
            dirs: taken,
        },
    )
}

/// A claim on a log dir; `Err`: it is known and cannot be taken, so it is absent; `None`: it was absent before.
type TakenDir = Option<Result<Arc<DirClaim>, io::Error>>;

struct Taken {
    own_volume: Option<Arc<DirClaim>>,
    dirs: Vec<TakenDir>,
}

/// A known log dir that the system refuses is absent (its partitions answer 56), unless it holds the catalog. A new
/// one that it refuses is a mistake in the configuration.
fn take_log_dir(
    disk: &dyn Disk,
    dir: &PlannedDir,
    at: usize,
    places: &Places,
    claims: &ClaimOptions,
) -> Result<TakenDir, IdentityError> {
    if matches!(dir.plan, DirPlan::Absent(_)) {
        return Ok(None);
    }
    let holds_catalog = at == 0 && places.cluster_dir.is_none();
    match (&dir.plan, take(disk, &dir.path, &at.to_string(), claims)) {
        (_, Ok(claim)) => Ok(Some(Ok(claim))),
        (DirPlan::Known(_), Err(IdentityError::Claim(ClaimError::Io { source, .. })))
            if !holds_catalog =>
        {
            Ok(Some(Err(source)))
        }
        (_, Err(error)) => Err(error),
    }
}

fn settle(
    disk: &dyn Disk,
    places: &Places,
    plan: Plan,
    meta: Meta,
    taken: Taken,
) -> Result<Identity, IdentityError> {
    let mut known = meta.log_dirs.clone();
    let mut dirs = Vec::new();
    for (at, (dir, claim)) in plan.dirs.into_iter().zip(taken.dirs).enumerate() {
        let state = match (dir.plan, claim) {
            (DirPlan::Absent(why), _) => Err(why),
            (_, Some(Err(refused))) => Err(Absence::Io(refused)),
            (DirPlan::Known(id), Some(Ok(claim))) => Ok(PresentDir { id, claim }),
            (DirPlan::New, Some(Ok(claim))) => Ok(PresentDir {
                id: make_log_dir(disk, &dir.path, &meta)?,
                claim,
            }),
            (_, None) => return Err(IdentityError::Moved),
        };
        let new = state
            .as_ref()
            .ok()
            .map(|present| present.id)
            .filter(|id| !known.contains(id));
        known.extend(new);
        dirs.push(LogDir {
            index: LogDirIndex(at),
            path: dir.path,
            state,
        });
    }
    let first = dirs
        .first()
        .and_then(|dir| dir.state.as_ref().ok())
        .map(|present| Arc::clone(&present.claim));
    let cluster_claim = taken.own_volume.or(first).ok_or(IdentityError::Moved)?;
    if known != meta.log_dirs {
        let meta = Meta {
            log_dirs: known.clone(),
            cluster_id: meta.cluster_id.clone(),
        };
        state_file::store(disk, &places.catalog().join(root::META), &meta)?;
    }
    known.retain(|id| {
        !dirs
            .iter()
            .any(|dir| dir.state.as_ref().is_ok_and(|present| present.id == *id))
    });
    let log_dirs = Arc::new(LogDirs::new(dirs, known));
    Ok(Identity {
        cluster_id: meta.cluster_id,
        cluster_dir: places.catalog(),
        cluster_claim,
        log_dirs,
    })
}

/// What one directory is, seen without touching it.
#[derive(Debug)]
enum DirPlan {
    Known(LogDirId),
    New,
    Absent(Absence),
}

#[derive(Debug)]
struct PlannedDir {
    path: PathBuf,
    plan: DirPlan,
}

/// What is to be done, made without touching anything.
#[derive(Debug)]
struct Plan {
    meta: Option<Meta>,
    dirs: Vec<PlannedDir>,
}

impl Plan {
    fn make(disk: &dyn Disk, places: &Places) -> Result<Plan, IdentityError> {
        let dirs = places.log_dirs.iter().chain(&places.cluster_dir);
        if let Some(dir) = dirs
            .into_iter()
            .find(|dir| dir.join(root::KAFKA_META).exists())
        {
            return Err(IdentityError::KafkaData { dir: dir.clone() });
        }
        let looks: Vec<Look> = places
            .log_dirs
            .iter()
            .map(|dir| Look::at(disk, dir))
            .collect();
        let meta_path = places.catalog().join(root::META);
        let meta: Option<Meta> = state_file::load(disk, &meta_path, META_BYTES_MAX)?;
        check_clusters(&looks, meta.as_ref(), &meta_path)?;
        check_copies(&looks)?;
        let known = meta.as_ref().map_or(&[][..], |meta| &meta.log_dirs);
        let has = |id: &LogDirId| looks.iter().any(|look| look.id() == Some(*id));
        let missing: Vec<LogDirId> = known.iter().filter(|id| !has(id)).copied().collect();
        let dirs = looks
            .into_iter()
            .map(|look| look.plan(&missing))
            .collect::<Result<Vec<_>, _>>()?;
        let mut plan = Plan { meta, dirs };
        plan.check_catalog_dir(places)?;
        Ok(plan)
    }

    /// The log dir that holds the catalog cannot be absent: its catalog would be.
    fn check_catalog_dir(&mut self, places: &Places) -> Result<(), IdentityError> {
        let embedded = places.cluster_dir.is_none();
        match self.dirs.first_mut() {
            Some(PlannedDir {
                path,
                plan: plan @ DirPlan::Absent(_),
            }) if embedded => {
                let DirPlan::Absent(why) = std::mem::replace(plan, DirPlan::New) else {
                    return Err(IdentityError::Moved);
                };
                Err(IdentityError::ClusterDirUnusable {
                    dir: path.clone(),
                    why,
                })
            }
            _ => Ok(()),
        }
    }

    fn agrees(&self, later: &Plan) -> bool {
        let same = |a: &PlannedDir, b: &PlannedDir| match (&a.plan, &b.plan) {
            (DirPlan::Known(a), DirPlan::Known(b)) => a == b,
            (DirPlan::New, DirPlan::New) | (DirPlan::Absent(_), DirPlan::Absent(_)) => true,
            _ => false,
        };
        self.meta == later.meta && self.dirs.iter().zip(&later.dirs).all(|(a, b)| same(a, b))
    }
}

/// What lies in a log dir.
struct Look {
    path: PathBuf,
    file: Result<Option<LogDirFile>, StateError>,
    has_topics: io::Result<bool>,
}

impl Look {
    fn at(disk: &dyn Disk, path: &Path) -> Look {
        let file = state_file::load(disk, &path.join(root::LOG_DIR), LOG_DIR_BYTES_MAX);
        // Only a directory without an id must be searched for what it may have lost.
        let has_topics = if matches!(file, Ok(None)) {
            has_topics(disk, path)
        } else {
            Ok(true)
        };
        Look {
            path: path.to_owned(),
            file,
            has_topics,
        }
    }

    fn id(&self) -> Option<LogDirId> {
        self.file
            .as_ref()
            .ok()
            .and_then(Option::as_ref)
            .map(|file| file.id)
    }

    fn cluster(&self) -> Option<&ClusterId> {
        self.file
            .as_ref()
            .ok()
            .and_then(Option::as_ref)
            .map(|file| &file.cluster_id)
    }

    fn plan(self, missing: &[LogDirId]) -> Result<PlannedDir, IdentityError> {
        let plan = match (self.file, self.has_topics) {
            (Err(error), _) => DirPlan::Absent(Absence::Damaged(error)),
            (Ok(Some(file)), _) => DirPlan::Known(file.id),
            (Ok(None), Err(error)) => DirPlan::Absent(Absence::Io(error)),
            (Ok(None), Ok(true)) => return Err(IdentityError::IdLost { dir: self.path }),
            (Ok(None), Ok(false)) if missing.is_empty() => DirPlan::New,
            (Ok(None), Ok(false)) => DirPlan::Absent(Absence::MaybeUnmounted {
                missing: missing.to_vec(),
            }),
        };
        Ok(PlannedDir {
            path: self.path,
            plan,
        })
    }
}

/// Whether a directory holds stamped topics; one that does not exist holds none.
pub(super) fn has_topics(disk: &dyn Disk, dir: &Path) -> io::Result<bool> {
    let entries = match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        listed => listed?,
    };
    let stamped = |name: &str| dir.join(name).join(super::topic_files::STAMP).exists();
    Ok(entries
        .iter()
        .any(|entry| entry.is_dir && stamped(&entry.name)))
}

fn check_clusters(
    looks: &[Look],
    meta: Option<&Meta>,
    meta_path: &Path,
) -> Result<(), IdentityError> {
    for look in looks {
        match (look.cluster(), meta) {
            (Some(theirs), Some(meta)) if *theirs != meta.cluster_id => {
                return Err(IdentityError::OtherCluster {
                    dir: look.path.clone(),
                    theirs: theirs.clone(),
                    ours: meta.cluster_id.clone(),
                });
            }
            (Some(_), None) => {
                let mut embedded = looks.iter().map(|look| look.path.join(root::CLUSTER_DIR));
                return Err(IdentityError::MetaMissing {
                    meta: meta_path.to_owned(),
                    dir: look.path.clone(),
                    found: embedded.find(|dir| dir.join(root::META).exists()),
                });
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_copies(looks: &[Look]) -> Result<(), IdentityError> {
    for (at, look) in looks.iter().enumerate() {
        let earlier = looks[..at]
            .iter()
            .find(|other| look.id().is_some() && other.id() == look.id());
        if let Some(other) = earlier {
            return Err(IdentityError::SameId {
                first: other.path.clone(),
                second: look.path.clone(),
            });
        }
    }
    Ok(())
}

/// Makes the directory where it does not exist, and claims it.
fn take(
    disk: &dyn Disk,
    dir: &Path,
    name: &str,
    claims: &ClaimOptions,
) -> Result<Arc<DirClaim>, IdentityError> {
    make_dirs(disk, dir).map_err(StateError::io(dir))?;
    Ok(Arc::new(DirClaim::open(dir, name, claims)?))
}

/// Makes a directory and those above it, each durable in the one above (D6).
fn make_dirs(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = parent(dir);
    if above != dir {
        make_dirs(disk, above)?;
    }
    match disk.create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => disk.sync_dir(above),
    }
}

/// The first files of a cluster; `meta.json` comes last and commits them (I1).
fn make_cluster(
    disk: &dyn Disk,
    catalog: &Path,
    first_files: &dyn Fn(&Path) -> Result<(), StateError>,
) -> Result<Meta, IdentityError> {
    make_dirs(disk, catalog).map_err(StateError::io(catalog))?;
    first_files(catalog)?;
    let meta = Meta {
        cluster_id: ClusterId::random(),
        log_dirs: Vec::new(),
    };
    state_file::store(disk, &catalog.join(root::META), &meta)?;
    Ok(meta)
}

fn make_log_dir(disk: &dyn Disk, dir: &Path, meta: &Meta) -> Result<LogDirId, IdentityError> {
    let file = LogDirFile {
        id: LogDirId::random(),
        cluster_id: meta.cluster_id.clone(),
    };
    state_file::store(disk, &dir.join(root::LOG_DIR), &file)?;
    Ok(file.id)
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
