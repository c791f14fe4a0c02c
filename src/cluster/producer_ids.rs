//! Producer ids: each is given out once, ever (i05).
//!
//! Owns:     `producer_ids/broker-<node>.json`, which says how far ids are reserved.
//! Does not: know producers.
//!
//! # Invariants
//! P1. A block is durable on disk before any id of it is given out. What a crash leaves of a block is never used.
//! P2. A block begins at or beyond the end of every block on disk, of whatever node: a broker whose number was changed
//!     goes on where the other stopped.
//!
//! Threads: `next` writes a block once in a thousand ids and then blocks on I/O; `try_next` never does.
use super::claim::DirClaim;
use super::state_file::{self, StateError, StateFault};
use crate::config::NodeId;
use parking_lot::Mutex;
use seawall_storage::ProducerId;
use seawall_storage::disk::Disk;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Ids per block, as in Kafka: a crash loses at most these, and there are 2^63.
const BLOCK_LEN: i64 = 1000;
const FILE_BYTES_MAX: u64 = 64 << 10;
pub(super) const DIR: &str = "producer_ids";

/// `broker-<node>.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block {
    first: i64,
    /// One beyond the last id.
    end: i64,
}

/// Why there is no producer id. The disk's fault; nothing was given out.
#[derive(Debug)]
pub(crate) enum ProducerIdError {
    /// The file with the reserved ids cannot be read or written.
    State(StateError),
    /// No file says which ids were given out, though the cluster is not new.
    Missing(PathBuf),
    /// Another broker may own the directory by now.
    NotFresh,
    /// All were given out.
    Exhausted,
}

impl fmt::Display for ProducerIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProducerIdError::State(error) => write!(f, "{error}"),
            ProducerIdError::Missing(path) => write!(
                f,
                "{} is missing, so it is not known which producer ids were given out: restore it from a backup, or \
                 write {{\"first\":N,\"end\":N}} with an N above every producer id in use",
                path.display()
            ),
            ProducerIdError::NotFresh => write!(
                f,
                "this broker cannot be sure to own its directories at the moment"
            ),
            ProducerIdError::Exhausted => write!(f, "all producer ids were given out"),
        }
    }
}

impl std::error::Error for ProducerIdError {}

/// Gives out producer ids.
pub(crate) struct ProducerIds {
    disk: Arc<dyn Disk>,
    claim: Arc<DirClaim>,
    path: PathBuf,
    /// What is left of the block in use. Held for an instant only.
    left: Mutex<std::ops::Range<i64>>,
    /// One block is written at a time; the end of what is reserved, or `None` before the first block.
    reserving: Mutex<Option<i64>>,
}

impl fmt::Debug for ProducerIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProducerIds")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The first file of a new cluster, made before the cluster exists: later on, a missing file is a loss.
pub(super) fn make_first(
    disk: &dyn Disk,
    cluster_dir: &Path,
    node: NodeId,
) -> Result<(), StateError> {
    let dir = cluster_dir.join(DIR);
    super::make_dir(disk, &dir)?;
    state_file::store(disk, &path_of(&dir, node), &Block { first: 0, end: 0 })
}

/// Whether a file of the folder is that of a node.
pub(super) fn is_block(name: &str) -> bool {
    name.starts_with("broker-") && name.ends_with(".json")
}

/// Where the ids that a file reserves end; `None` where there is no file.
pub(super) fn load_end(disk: &dyn Disk, path: &Path) -> Result<Option<i64>, StateError> {
    let block: Option<Block> = state_file::load(disk, path, FILE_BYTES_MAX)?;
    match block {
        Some(block) if block.first < 0 || block.end < block.first => Err(StateError {
            path: path.to_owned(),
            fault: StateFault::Contradiction { key: "end" },
        }),
        block => Ok(block.map(|block| block.end)),
    }
}

fn path_of(dir: &Path, node: NodeId) -> PathBuf {
    dir.join(format!("broker-{node}.json"))
}

impl ProducerIds {
    /// Reads nothing yet: damage here is the business of producers that ask for an id, not of the start.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        cluster_dir: &Path,
        claim: Arc<DirClaim>,
        node: NodeId,
    ) -> ProducerIds {
        let path = path_of(&cluster_dir.join(DIR), node);
        ProducerIds {
            disk,
            claim,
            path,
            left: Mutex::new(0..0),
            reserving: Mutex::new(None),
        }
    }

    /// An id from the block in use, if it has one left.
    pub(crate) fn try_next(&self) -> Option<ProducerId> {
        self.left.lock().next().map(ProducerId)
    }

    /// An id; reserves the next block first where that is needed.
    pub(crate) fn next(&self) -> Result<ProducerId, ProducerIdError> {
        if let Some(id) = self.try_next() {
            return Ok(id);
        }
        let mut reserved = self.reserving.lock();
        // Another thread may have reserved a block while this one waited.
        if let Some(id) = self.try_next() {
            return Ok(id);
        }
        let first = match *reserved {
            Some(end) => end,
            None => self.reserved_on_disk()?,
        };
        let end = first
            .checked_add(BLOCK_LEN)
            .ok_or(ProducerIdError::Exhausted)?;
        if !self.claim.is_fresh() {
            return Err(ProducerIdError::NotFresh);
        }
        state_file::store(&*self.disk, &self.path, &Block { first, end })
            .map_err(ProducerIdError::State)?;
        *reserved = Some(end);
        *self.left.lock() = first + 1..end;
        Ok(ProducerId(first))
    }

    /// Where reserved ids end, over the files of all nodes (P2).
    fn reserved_on_disk(&self) -> Result<i64, ProducerIdError> {
        let dir = state_file::parent(&self.path);
        let fail = |error| ProducerIdError::State(StateError::io(dir)(error));
        let mut end = None;
        for entry in self.disk.list(dir).map_err(fail)? {
            if is_block(&entry.name) {
                let path = dir.join(&entry.name);
                let block = load_end(&*self.disk, &path).map_err(ProducerIdError::State)?;
                end = end.max(block);
            }
        }
        end.ok_or_else(|| ProducerIdError::Missing(self.path.clone()))
    }
}

#[cfg(test)]
#[path = "producer_ids_tests.rs"]
mod tests;
