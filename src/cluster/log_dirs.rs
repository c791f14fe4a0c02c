//! The log dirs of this broker: which are here, which are known and missing.
//!
//! Owns:     the numbering of log dirs and their claims.
//! Does not: decide what is here (`identity` does, once, at start).
//! Immutable after start; read from every thread.
use super::claim::DirClaim;
use super::ids::LogDirId;
use super::state_file::StateError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The place of a log dir in the configuration, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LogDirIndex(pub(crate) usize);

impl fmt::Display for LogDirIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A log dir that can be used.
#[derive(Debug)]
pub(crate) struct PresentDir {
    /// Its id.
    pub(crate) id: LogDirId,
    /// Our claim on it.
    pub(crate) claim: Arc<DirClaim>,
}

/// Why a configured log dir is not used. Nothing was made or changed in it.
#[derive(Debug)]
pub(crate) enum Absence {
    /// It has no id while a known id is missing: it may be the mount point of that one.
    MaybeUnmounted {
        /// The ids known and not found.
        missing: Vec<LogDirId>,
    },
    /// Its own id file cannot be used.
    Damaged(StateError),
    /// It cannot be looked at.
    Io(io::Error),
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Absence::MaybeUnmounted { missing } => {
                let ids: Vec<String> = missing.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "it has no id, while the log dirs with these ids are missing: {}. Mount it; or, if they are gone \
                     for good, remove their ids from 'logDirs' in meta.json, with its key 'crc32c'",
                    ids.join(", ")
                )
            }
            Absence::Damaged(error) => write!(f, "{error}"),
            Absence::Io(error) => write!(f, "it cannot be read: {error}"),
        }
    }
}

/// One configured log dir.
#[derive(Debug)]
pub(crate) struct LogDir {
    /// Its place in the configuration.
    pub(crate) index: LogDirIndex,
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Whether it is used.
    pub(crate) state: Result<PresentDir, Absence>,
}

/// All log dirs.
#[derive(Debug)]
pub(crate) struct LogDirs {
    dirs: Vec<LogDir>,
    missing: Vec<LogDirId>,
}

impl LogDirs {
    pub(super) fn new(dirs: Vec<LogDir>, missing: Vec<LogDirId>) -> LogDirs {
        LogDirs { dirs, missing }
    }

    /// Every configured one.
    pub(crate) fn all(&self) -> &[LogDir] {
        &self.dirs
    }

    /// Those that are used.
    pub(crate) fn present(&self) -> impl Iterator<Item = (&LogDir, &PresentDir)> {
        self.dirs
            .iter()
            .filter_map(|dir| Some((dir, dir.state.as_ref().ok()?)))
    }

    /// Ids that the cluster knows and no configured directory has.
    pub(crate) fn missing(&self) -> &[LogDirId] {
        &self.missing
    }

    /// Where a log dir is, if it is used.
    pub(crate) fn path(&self, index: LogDirIndex) -> Option<&Path> {
        let dir = self.dirs.get(index.0)?;
        dir.state.is_ok().then_some(dir.path.as_path())
    }

    /// The claim on a log dir, if it is used.
    pub(crate) fn claim(&self, index: LogDirIndex) -> Option<&Arc<DirClaim>> {
        self.dirs
            .get(index.0)?
            .state
            .as_ref()
            .ok()
            .map(|present| &present.claim)
    }

    /// The log dir with this id, if it is used.
    pub(crate) fn find(&self, id: LogDirId) -> Option<LogDirIndex> {
        self.present()
            .find(|(_, present)| present.id == id)
            .map(|(dir, _)| dir.index)
    }
}
