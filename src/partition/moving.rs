//! Moving a partition to another log dir while it serves.
//!
//! Owns:     the pause of its appends and the copy of its files.
//! Does not: know the catalog or where the copy goes into service (the broker
//!           does).
//!
//! Runs on a `state-D-N` thread of the new log dir.
//!
//! # Invariants
//! M1. While a partition moves nothing is dropped from its log or compacted.
//! M2. The last step of the copy runs while nothing is appended and everything
//!     appended is durable: the copy is the log, byte by byte.
//! M3. The copy has a name that nobody reads until it is whole and synced.
//! M4. A partition moves once: who has moved never gives the right back.
//! M5. A copy that hangs while appends are held holds them for `HOLD` at most:
//!     then they go on, and the move has failed.

use std::collections::{HashMap, HashSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use seawall_storage::disk::{DirEntry, Disk, read_full, write_all_at};

use super::part::AppendError;
use super::{Partition, unsigned};

/// Copied at once.
const CHUNK_BYTES: usize = 1 << 20;
/// How long appends may be held for the last part of the copy.
const HOLD: Duration = Duration::from_secs(10);
/// So much is left for then, unless it grows faster than it is copied.
const LAST_PART_BYTES: u64 = 8 << 20;
/// How often the copy runs after what was appended meanwhile.
const ROUNDS_MAX: u32 = 8;
/// How often to look whether everything is durable.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The right to move a partition.
pub struct Moving {
    partition: Arc<Partition>,
    moved: bool,
}

impl Drop for Moving {
    fn drop(&mut self) {
        if !self.moved {
            self.partition.moving.store(false, Ordering::Release);
        }
    }
}

/// The copy in the making.
pub struct Copy {
    moving: Moving,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Files that grow no more.
    done: HashSet<String>,
    /// Bytes copied of each file.
    copied: HashMap<String, u64>,
}

/// A partition that is copied and whose appends are held; unless it has moved,
/// they go on when this is dropped.
pub struct Held(Moving);

impl Drop for Held {
    fn drop(&mut self) {
        let partition = &self.0.partition;
        if !self.0.moved && partition.lane.release(partition) {
            partition.submit_drain();
        }
    }
}

impl Held {
    /// The copy serves from here on: whoever still comes here is told to look
    /// again.
    pub fn moved(mut self) {
        self.0.moved = true;
        let partition = &self.0.partition;
        partition.moved_away.store(true, Ordering::Release);
        partition.deleted.store(true, Ordering::Release);
        partition
            .lane
            .close(&AppendError::Stopping, &partition.dir.queued);
        partition.readers.wake_all();
    }
}

impl Partition {
    /// The right to move it; `None`: it is moving already, has moved, or is not
    /// well.
    pub fn begin_move(self: &Arc<Self>) -> Option<Moving> {
        if !self.may_trim() || self.is_deleted() || self.moving.swap(true, Ordering::AcqRel) {
            return None;
        }
        let moving = Moving {
            partition: Arc::clone(self),
            moved: false,
        };
        // M1: what is under way comes to its end first; the next one sees the flag.
        drop(self.trimming.lock());
        let swapping = self.swapping.lock().is_some();
        (!swapping).then_some(moving)
    }

    /// M5.
    pub(super) fn sweep_hold(self: &Arc<Self>) {
        if self.moving.load(Ordering::Acquire) && self.lane.release_if_over(self) {
            self.submit_drain();
        }
    }

    /// Whether it serves in another log dir now.
    pub fn has_moved(&self) -> bool {
        self.moved_away.load(Ordering::Acquire)
    }
}

impl Moving {
    /// Begins to copy into `dir`, which does not exist.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn copy_into(self, disk: &Arc<dyn Disk>, dir: &Path) -> io::Result<Copy> {
        disk.create_dir(dir)?;
        Ok(Copy {
            moving: self,
            disk: Arc::clone(disk),
            dir: dir.to_owned(),
            done: HashSet::new(),
            copied: HashMap::new(),
        })
    }
}

impl Copy {
    /// Copies what is there while the partition serves; only a little is left.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn copy_most(&mut self) -> io::Result<()> {
        for _ in 0..ROUNDS_MAX {
            let view = self.moving.partition.view();
            for name in view.sealed_files() {
                if !self.done.contains(&name) {
                    self.copy_file(&name, u64::MAX)?;
                    self.done.insert(name);
                }
            }
            let Some((name, end)) = view.last_file() else {
                break;
            };
            if self.copy_file(&name, end.0)? < LAST_PART_BYTES {
                break;
            }
        }
        Ok(())
    }

    /// M2: holds appends, waits until all is durable, copies the rest, and gives
    /// the copy its name.
    ///
    /// # Errors
    /// The partition serves on as before.
    pub fn finish(mut self, name: &Path) -> io::Result<Held> {
        let partition = Arc::clone(&self.moving.partition);
        partition.lane.hold(Instant::now() + HOLD);
        let copied = self.copy_rest(&partition, name);
        let held = Held(self.moving);
        copied?;
        if partition.lane.keep_held() {
            Ok(held)
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    fn copy_rest(&mut self, partition: &Arc<Partition>, name: &Path) -> io::Result<()> {
        until_still(partition)?;
        partition.close()?;
        for entry in files(partition)? {
            if !self.done.contains(&entry.name) {
                self.copy_file(&entry.name, u64::MAX)?;
            }
        }
        self.disk.sync_dir(&self.dir)?;
        self.disk.rename(&self.dir, name)?;
        let above = name.parent().ok_or(io::ErrorKind::InvalidInput)?;
        self.disk.sync_dir(above)
    }

    /// Copies a file up to that many bytes, going on where the last call ended,
    /// and syncs it; gives the bytes copied now.
    fn copy_file(&mut self, name: &str, upto: u64) -> io::Result<u64> {
        let partition = &self.moving.partition;
        let from = partition.dir.disk.open_read(&partition.path.join(name))?;
        let path = self.dir.join(name);
        let begun = self.copied.get(name).copied();
        let to = match begun {
            None => self.disk.create_new(&path)?,
            Some(_) => self.disk.open_write(&path)?,
        };
        let start = begun.unwrap_or(0);
        let mut at = start;
        let mut chunk = vec![0; CHUNK_BYTES];
        while at < upto {
            let wanted = usize::try_from(upto - at).map_or(CHUNK_BYTES, |n| n.min(CHUNK_BYTES));
            let read = read_full(&*from, &mut chunk[..wanted], at)?;
            if read == 0 {
                break;
            }
            write_all_at(&*to, &mut [IoSlice::new(&chunk[..read])], at)
                .map_err(|ended| ended.error)?;
            at = at.saturating_add(read as u64);
        }
        to.sync_data()?;
        self.copied.insert(name.to_owned(), at);
        Ok(at - start)
    }
}

/// Waits until nothing is appended and all that was is durable.
fn until_still(partition: &Arc<Partition>) -> io::Result<()> {
    let end = || {
        let log = partition.log.try_lock()?;
        Some(unsigned(log.end_offset()))
    };
    let is_still = || {
        partition.lane.is_held()
            && !partition.gate.is_flushing()
            && end().is_some_and(|end| partition.gate.durable() >= end)
    };
    while !is_still() {
        let well = partition.is_online() && partition.dir.claim.is_fresh();
        if partition.lane.is_released() || !well || partition.is_deleted() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        partition.dir.committer.flush_in_background(partition);
        std::thread::park_timeout(LOOK_AGAIN);
    }
    Ok(())
}

/// The files of a partition, but for temporary ones; none where nothing was
/// written yet.
fn files(partition: &Partition) -> io::Result<Vec<DirEntry>> {
    let mut all = match partition.dir.disk.list(&partition.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    all.retain(|entry| !entry.is_dir && !entry.name.starts_with('.'));
    Ok(all)
}
