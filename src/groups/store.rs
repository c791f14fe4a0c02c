//! Writes the files of groups.
//!
//! Owns:     the queue of groups whose files must be written, and the few jobs that write them.
//! Does not: know what is in them.
//! Writes run on `state-*` threads, with no lock held.
//!
//! # Invariants
//! F1. A file is whole on stable storage, and its directory synced, before anybody is told (DESIGN 6.1); the claim on the
//!     directory is looked at in between (D7).
//! F2. Many groups share one directory sync: all that a job takes at once.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use seawall_planted::planted;
use seawall_storage::disk::Disk;

use super::Cell;
use super::effects::{NotStored, Stored};
use super::file;
use super::group::Write;
use crate::cluster::{DirClaim, state_file};
use crate::workers::Workers;

/// Jobs that write at a time: the rest of the pool is for checkpoints and topics.
const WRITERS_MAX: usize = 2;
/// Files per directory sync: enough to share it, few enough that the first does not wait for long.
const BATCH_MAX: usize = 64;

/// See the module.
pub(crate) struct Store {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    claim: Arc<DirClaim>,
    pool: Arc<Workers>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    cells: VecDeque<Arc<Cell>>,
    writers: usize,
}

impl Store {
    /// Writes into `dir`, which the claim covers.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        claim: Arc<DirClaim>,
        pool: Arc<Workers>,
    ) -> Arc<Self> {
        Arc::new(Self {
            disk,
            dir,
            claim,
            pool,
            queue: Mutex::default(),
        })
    }

    /// The folder of the files.
    pub(crate) fn dir(&self) -> &PathBuf {
        &self.dir
    }

    /// The file system under it.
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The pool that may wait for it.
    pub(crate) fn pool(&self) -> &Arc<Workers> {
        &self.pool
    }

    /// The group's file must be written; the group counts as `writing` already.
    pub(crate) fn enqueue(self: &Arc<Self>, cell: Arc<Cell>) {
        let mut queue = self.queue.lock();
        queue.cells.push_back(cell);
        if queue.writers < WRITERS_MAX {
            queue.writers += 1;
            drop(queue);
            let store = Arc::clone(self);
            self.pool.submit(move || store.write_all());
        }
    }

    fn write_all(self: &Arc<Self>) {
        while let Some(batch) = self.next_batch() {
            self.write(&batch);
        }
    }

    fn next_batch(&self) -> Option<Vec<Arc<Cell>>> {
        let mut queue = self.queue.lock();
        let many = queue.cells.len().min(BATCH_MAX);
        if many == 0 {
            queue.writers -= 1;
            return None;
        }
        Some(queue.cells.drain(..many).collect())
    }

    fn write(self: &Arc<Self>, batch: &[Arc<Cell>]) {
        let written: Vec<io::Result<()>> = batch.iter().map(|cell| self.write_one(cell)).collect();
        let synced = if planted("rename-not-synced") {
            Ok(())
        } else if self.claim.is_fresh() {
            self.disk.sync_dir(&self.dir)
        } else {
            Err(io::Error::other("another broker may own the directory"))
        };
        let synced = synced.and_then(|()| match self.claim.is_fresh() {
            true => Ok(()),
            false => Err(io::Error::other("another broker may own the directory")),
        });
        if let Err(error) = &synced {
            log::error!("{}: groups are not stored: {error}", self.dir.display());
        }
        for (cell, written) in batch.iter().zip(written) {
            let stored = match (&written, &synced) {
                (Ok(()), Ok(())) => Ok(()),
                _ => Err(NotStored),
            };
            if let Err(error) = written {
                log::error!("group {:?} is not stored: {error}", cell.name);
            }
            self.finish(cell, stored);
        }
    }

    fn write_one(&self, cell: &Cell) -> io::Result<()> {
        let write = cell.group.lock().begin_write();
        let path = self.dir.join(file::name_of(&cell.name));
        match write {
            Write::Put(file) => state_file::replace(&*self.disk, &path, &file),
            Write::Remove => match self.disk.remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other,
            },
        }
    }

    fn finish(self: &Arc<Self>, cell: &Arc<Cell>, stored: Stored) {
        let mut group = cell.group.lock();
        let (let_go, again) = group.end_write(stored);
        let gone = group.is_gone();
        drop(group);
        if gone && let Some(groups) = cell.groups.upgrade() {
            groups.take_out(cell);
        }
        for reply in let_go {
            reply(stored);
        }
        if again {
            self.enqueue(Arc::clone(cell));
        }
    }
}
