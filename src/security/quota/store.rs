//! `__cluster/quotas.json`: the limits on stable storage.
//!
//! Owns:     the limits, their file, and the table that measuring reads.
//!
//! # Invariants
//! Q1. What counts is durable.
//! Q2. One change at a time; it is whole on disk or not at all.
//!
//! Threads: `load` takes no lock. A change blocks on the disk, and belongs on a `state-*` thread.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use seawall_storage::disk::Disk;
use serde::{Deserialize, Serialize};

use super::entity::{Entity, QuotaKind};
use super::table::{Limits, Table};
use crate::cluster::{DirClaim, StateError, state_file};

const FILE: &str = "quotas.json";
/// Most entities with limits; a change rewrites the file.
const ENTITIES_MAX: usize = 100_000;
const FILE_BYTES_MAX: u64 = 256 << 20;

#[derive(Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct File {
    quotas: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Row {
    entity: Entity,
    limits: std::collections::BTreeMap<QuotaKind, f64>,
}

/// A change of one entity's limits: a new limit for each kind, or none.
#[derive(Clone, Debug)]
pub(crate) struct Alteration {
    /// Whose.
    pub(crate) entity: Entity,
    /// What.
    pub(crate) limits: Vec<(QuotaKind, Option<f64>)>,
}

/// Why limits were not changed; none was.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChangeError {
    /// There would be too many.
    TooMany,
    /// Another broker may own the directory by now.
    NotFresh,
    /// The disk refused; the log says how.
    State,
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "There can be limits for {ENTITIES_MAX} entities at most."),
            Self::NotFresh => f.write_str(
                "This broker cannot be sure to own its directories at the moment; nothing was changed.",
            ),
            Self::State => {
                f.write_str("The limits could not be written; the broker's log says why.")
            }
        }
    }
}

/// See the module.
pub(crate) struct QuotaStore {
    disk: Arc<dyn Disk>,
    claim: Option<Arc<DirClaim>>,
    path: PathBuf,
    changes: Mutex<()>,
    table: ArcSwap<Table>,
    /// Whether the table has limits for clients, for addresses. Written with it, with `changes` held.
    clients: AtomicBool,
    addresses: AtomicBool,
}

impl QuotaStore {
    /// Reads the limits. No file is no limit.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        cluster_dir: &Path,
        claim: Option<Arc<DirClaim>>,
    ) -> Result<Self, StateError> {
        let path = cluster_dir.join(FILE);
        let file: Option<File> = state_file::load(&*disk, &path, FILE_BYTES_MAX)?;
        let rows = file.unwrap_or_default().quotas.into_iter();
        let limits: Limits = rows
            .map(|row| (row.entity.canonical(), row.limits))
            .collect();
        let store = Self {
            disk,
            claim,
            path,
            changes: Mutex::new(()),
            table: ArcSwap::default(),
            clients: AtomicBool::new(false),
            addresses: AtomicBool::new(false),
        };
        store.put(limits);
        Ok(store)
    }

    /// Makes a table the one that counts.
    fn put(&self, limits: Limits) {
        let addresses = limits.keys().filter(|entity| entity.ip.is_some()).count();
        let clients = limits.len() > addresses;
        self.table.store(Arc::new(Table(limits)));
        self.addresses.store(addresses > 0, Ordering::Relaxed);
        self.clients.store(clients, Ordering::Relaxed);
    }

    /// Whether any client has a limit; a relaxed load.
    pub(crate) fn limits_clients(&self) -> bool {
        self.clients.load(Ordering::Relaxed)
    }

    /// Whether any address has a limit; a relaxed load.
    pub(crate) fn limits_addresses(&self) -> bool {
        self.addresses.load(Ordering::Relaxed)
    }

    /// The limits; lock-free.
    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<Table>> {
        self.table.load()
    }

    /// Makes changes hold, all of them.
    ///
    /// # Errors
    /// See [`ChangeError`]; none holds.
    pub(crate) fn alter(&self, alterations: &[Alteration]) -> Result<(), ChangeError> {
        let _one_at_a_time = self.changes.lock();
        let mut limits = self.table.load().0.clone();
        for alteration in alterations {
            let row = limits.entry(alteration.entity.clone()).or_default();
            for (kind, limit) in &alteration.limits {
                match limit {
                    Some(limit) => drop(row.insert(*kind, *limit)),
                    None => drop(row.remove(kind)),
                }
            }
        }
        limits.retain(|_, limits| !limits.is_empty());
        if limits.len() > ENTITIES_MAX {
            return Err(ChangeError::TooMany);
        }
        self.publish(limits)
    }

    /// Q1, Q2.
    fn publish(&self, limits: Limits) -> Result<(), ChangeError> {
        if self.claim.as_ref().is_some_and(|claim| !claim.is_fresh()) {
            return Err(ChangeError::NotFresh);
        }
        let rows = limits.iter().map(|(entity, limits)| Row {
            entity: entity.clone(),
            limits: limits.clone(),
        });
        let file = File {
            quotas: rows.collect(),
        };
        if let Err(error) = state_file::store(&*self.disk, &self.path, &file) {
            log::error!("{error}");
            return Err(ChangeError::State);
        }
        self.put(limits);
        Ok(())
    }
}
