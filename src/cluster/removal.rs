//! The second half of deleting: directories aside, their files away, the tombstone last (DESIGN 6.4, 6.5).
//!
//! Owns:     what is left to do for topics whose deletion is committed, in steps that can be interrupted anywhere.
//! Does not: commit a deletion (the catalog does), or close anybody's files: the caller closes them before the first
//!           step, since an unlinked open file lives on as `.nfs*` on NFS.
//!
//! # Invariants
//! R1. A tombstone goes only after everything of its topic is gone from every log dir it used; while one of them is
//!     absent it stays.
//! R2. What cannot be removed now does not keep the rest from being removed.
//!
//! Called from `state-*` threads; blocks on I/O.
use super::names::TopicName;
use super::state_file::{StateError, parent};
use super::stray::{Cleared, clear};
use seawall_storage::TopicId;
use seawall_storage::disk::Disk;
use std::io;
use std::path::{Path, PathBuf};

/// How deep directories may be nested in a topic: ours are two levels.
const DEPTH_MAX: usize = 16;

/// A directory that is still where its topic was.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) root: PathBuf,
    pub(super) name: TopicName,
    pub(super) id: TopicId,
}

/// What is left of deleted topics.
#[derive(Debug, Default)]
pub(crate) struct Removal {
    pub(super) standing: Vec<Standing>,
    pub(super) trash: Vec<PathBuf>,
    pub(super) tombstones: Vec<PathBuf>,
    /// Names to be given free when nothing stands any more.
    pub(super) holds: Vec<TopicName>,
}

/// How far a removal is.
#[derive(Debug)]
#[must_use]
pub(crate) enum Progress {
    /// There is more: call again.
    More,
    /// Something could not be removed; the rest was. Call again later, with a growing pause.
    Stuck(StateError),
    /// Another broker may own a directory by now: nothing was done. Call again later.
    NotFresh,
    /// Nothing is left.
    Done,
}

impl Removal {
    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.standing.is_empty() && self.trash.is_empty() && self.tombstones.is_empty()
    }

    /// Renames what still stands. Errors stay for a later try.
    pub(super) fn set_aside(&mut self, disk: &dyn Disk) -> Option<StateError> {
        let mut failed = None;
        let mut left = Vec::new();
        for one in std::mem::take(&mut self.standing) {
            match clear(disk, &one.root, &one.name, &|id| id == one.id, true) {
                Ok(Cleared::Trash(trash)) => self.trash.push(trash),
                Ok(Cleared::Nothing) => {}
                Ok(other) => log::warn!("while topic {} was deleted: {other}", one.name),
                Err(error) => {
                    failed = Some(error);
                    left.push(one);
                }
            }
        }
        self.standing = left;
        failed
    }

    /// Removes at most `entries_max` files and directories.
    pub(super) fn step(&mut self, disk: &dyn Disk, entries_max: usize) -> Progress {
        let mut failed = self.set_aside(disk);
        let mut budget = entries_max.max(1);
        let mut left = Vec::new();
        for path in std::mem::take(&mut self.trash) {
            match remove_some(disk, &path, &mut budget, DEPTH_MAX) {
                Ok(true) => {}
                Ok(false) => left.push(path),
                Err(error) => {
                    failed = Some(StateError::io(&path)(error));
                    left.push(path);
                }
            }
        }
        self.trash = left;
        match failed {
            Some(error) => Progress::Stuck(error),
            None if self.trash.is_empty() => self.finish(disk),
            None => Progress::More,
        }
    }

    fn finish(&mut self, disk: &dyn Disk) -> Progress {
        while let Some(path) = self.tombstones.last() {
            let removed =
                absent_is_ok(disk.remove_file(path)).and_then(|()| disk.sync_dir(parent(path)));
            if let Err(error) = removed {
                return Progress::Stuck(StateError::io(path)(error));
            }
            self.tombstones.pop();
        }
        Progress::Done
    }
}

/// Removes a tree, or as much of it as the budget allows; says whether it is gone. R2: after a failure the rest is
/// removed all the same, and the first failure is what is told.
fn remove_some(disk: &dyn Disk, dir: &Path, budget: &mut usize, depth: usize) -> io::Result<bool> {
    if depth == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let entries = match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        listed => listed?,
    };
    let mut failed = None;
    for entry in entries {
        if *budget == 0 {
            return failed.map_or(Ok(false), Err);
        }
        let path = dir.join(&entry.name);
        let removed = if entry.is_dir {
            remove_some(disk, &path, budget, depth - 1)
        } else {
            *budget -= 1;
            absent_is_ok(disk.remove_file(&path)).map(|()| true)
        };
        match removed {
            Ok(true) => {}
            Ok(false) => return failed.map_or(Ok(false), Err),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    if *budget == 0 {
        return Ok(false);
    }
    *budget -= 1;
    absent_is_ok(disk.remove_dir(dir)).map(|()| true)
}

fn absent_is_ok(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_storage::disk::RealDisk;
    use std::fs;

    #[test]
    fn what_cannot_be_removed_does_not_keep_the_rest() {
        let home = tempfile::tempdir().unwrap();
        let name = |n: u32| home.path().join(n.to_string());
        for n in 0..9 {
            fs::create_dir(name(n)).unwrap();
            fs::write(name(n).join("file"), b"x").unwrap();
        }
        // Deeper than anything of ours, so that it is left alone.
        let mut deep = name(4).join("file");
        fs::remove_file(&deep).unwrap();
        for _ in 0..DEPTH_MAX {
            fs::create_dir(&deep).unwrap();
            deep.push("deeper");
        }
        let mut budget = 1000;
        assert!(remove_some(&RealDisk, home.path(), &mut budget, DEPTH_MAX).is_err());
        let left: Vec<u32> = (0..9).filter(|n| name(*n).exists()).collect();
        assert_eq!(left, [4]);
    }
}
