//! `__cluster/acls.json`: the rules on stable storage.
//!
//! Owns:     the rules, their file, and the index that checks read.
//!
//! # Invariants
//! A1. A check sees only rules that are durable.
//! A2. One change at a time; it is whole on disk or not at all.
//! A3. Reading waits for no disk: only changes take the lock.
//! A4. A change that is acknowledged is on disk, also where an earlier one failed halfway: the file is
//!     not taken to say what memory says until a write has succeeded again.
//!
//! Threads: everything that reads takes no lock. A change blocks on the disk, and belongs on a `state-*` thread.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use seawall_storage::disk::Disk;
use serde::{Deserialize, Serialize};

use super::filter::Filter;
use super::index::Index;
use super::rule::Rule;
use crate::cluster::{DirClaim, StateError, state_file};

const FILE: &str = "acls.json";
/// Most rules: ten times what large clusters have; a change rewrites the file.
pub(crate) const RULES_MAX: usize = 100_000;
const FILE_BYTES_MAX: u64 = 256 << 20;

#[derive(Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct File {
    acls: BTreeSet<Rule>,
}

/// Why rules were not changed; none was.
#[derive(Debug)]
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
            Self::TooMany => write!(f, "There can be at most {RULES_MAX} rules."),
            Self::NotFresh => f.write_str(
                "This broker cannot be sure to own its directories at the moment; nothing was changed.",
            ),
            Self::State => {
                f.write_str("The rules could not be written; the broker's log says why.")
            }
        }
    }
}

/// See the module.
pub(crate) struct RuleStore {
    disk: Arc<dyn Disk>,
    claim: Option<Arc<DirClaim>>,
    path: PathBuf,
    changes: Mutex<Writing>,
    published: ArcSwap<Published>,
}

/// What a change knows of the file.
#[derive(Default)]
struct Writing {
    /// A write has failed since the last one that succeeded: what the file says is not known (A4).
    unsure: bool,
}

/// The rules that hold, and how checks find them.
pub(crate) struct Published {
    rules: BTreeSet<Rule>,
    /// For checks.
    pub(crate) index: Index,
    /// Another one with every change.
    pub(crate) version: u64,
}

impl Published {
    fn new(rules: BTreeSet<Rule>, version: u64) -> Self {
        let index = Index::new(&rules);
        Self {
            rules,
            index,
            version,
        }
    }

    fn matching(&self, filter: &Filter) -> Vec<Rule> {
        let rules = self.rules.iter();
        rules.filter(|rule| filter.matches(rule)).cloned().collect()
    }
}

impl RuleStore {
    /// Reads the rules. No file is no rule.
    ///
    /// # Errors
    /// The file cannot be read: who may do what is not known then, and nobody is let in by guessing.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        cluster_dir: &Path,
        claim: Option<Arc<DirClaim>>,
    ) -> Result<Self, StateError> {
        let path = cluster_dir.join(FILE);
        let file: Option<File> = state_file::load(&*disk, &path, FILE_BYTES_MAX)?;
        let rules = file.unwrap_or_default().acls;
        Ok(Self {
            disk,
            claim,
            path,
            changes: Mutex::default(),
            published: ArcSwap::from_pointee(Published::new(rules, 0)),
        })
    }

    /// The rules as they hold; lock-free.
    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<Published>> {
        self.published.load()
    }

    /// How many rules there are; lock-free.
    pub(crate) fn len(&self) -> usize {
        self.published.load().rules.len()
    }

    /// The rules that a filter means, in order; lock-free.
    pub(crate) fn matching(&self, filter: &Filter) -> Vec<Rule> {
        self.published.load().matching(filter)
    }

    /// Adds rules; one that is there already stays.
    ///
    /// # Errors
    /// See [`ChangeError`]; none was added.
    pub(crate) fn add(&self, new: &[Rule]) -> Result<(), ChangeError> {
        let mut writing = self.changes.lock();
        let mut changed = self.published.load().rules.clone();
        changed.extend(new.iter().cloned());
        if changed.len() > RULES_MAX {
            return Err(ChangeError::TooMany);
        }
        self.publish(&mut writing, changed)
    }

    /// Removes what filters mean, and tells what that was, by filter.
    ///
    /// # Errors
    /// See [`ChangeError`]; none was removed.
    pub(crate) fn remove(&self, filters: &[Filter]) -> Result<Vec<Vec<Rule>>, ChangeError> {
        let mut writing = self.changes.lock();
        let before = self.published.load_full();
        let matching = |filter: &Filter| before.matching(filter);
        let removed: Vec<Vec<Rule>> = filters.iter().map(matching).collect();
        let mut left = before.rules.clone();
        for rule in removed.iter().flatten() {
            left.remove(rule);
        }
        self.publish(&mut writing, left)?;
        Ok(removed)
    }

    /// A1, A2, A4.
    fn publish(&self, writing: &mut Writing, changed: BTreeSet<Rule>) -> Result<(), ChangeError> {
        if changed == self.published.load().rules && !writing.unsure {
            return Ok(());
        }
        if self.claim.as_ref().is_some_and(|claim| !claim.is_fresh()) {
            return Err(ChangeError::NotFresh);
        }
        let file = File { acls: changed };
        if let Err(error) = state_file::store(&*self.disk, &self.path, &file) {
            writing.unsure = true;
            log::error!("{error}");
            return Err(ChangeError::State);
        }
        writing.unsure = false;
        let version = self.published.load().version + 1;
        self.published
            .store(Arc::new(Published::new(file.acls, version)));
        Ok(())
    }
}
