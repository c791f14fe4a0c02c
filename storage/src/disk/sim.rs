//! A disk that forgets: it knows which bytes and which names have been synced, loses the others at a crash, and fails where it is told.
//!
//! Owns:     the face of the simulation; `sim/state.rs` holds what it remembers.
//! Does not: lock: its state is a token that is passed around (a queue of one place), so calls from several threads are
//!           served one after the other.
//! Called from tests, of this crate and of others.
//!
//! What it models: un-synced writes survive a crash wholly, torn or not at all, in any order; a file may be longer than
//! its data; un-synced names survive or not; after a failed sync the data that should have become durable never does, though
//! reads still show it until the cache is dropped; handles of before a crash are dead.

mod state;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use super::{CacheState, DirEntry, Disk, DiskFile};
use crate::types::Timestamp;
use state::{NodeId, State};

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SimOp {
    /// `write_vectored_at`.
    Write,
    /// `sync_data`.
    Sync,
    /// `sync_dir`.
    SyncDir,
    /// `create_new` and `create_dir`.
    Create,
    /// `rename`.
    Rename,
    /// `remove_file` and `remove_dir`.
    Remove,
    /// `set_len`.
    SetLen,
    /// `read_at`, `list`, lengths and opening.
    Read,
}

impl SimOp {
    /// Whether it changes anything that a crash could lose; power cuts count these.
    pub fn changes(self) -> bool {
        self != Self::Read
    }
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with this error and has done nothing; a sync has lost what it should have written.
    Error(io::ErrorKind),
    /// A write takes only so many bytes and succeeds.
    ShortWrite(usize),
    /// The power fails during the call: it and all later ones fail until `restart`. A write may have been taken in part.
    PowerCut,
}

/// Which call a fault hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultAt {
    /// Only calls of this kind count; `None`: all that change something.
    pub op: Option<SimOp>,
    /// How many such calls pass before.
    pub after: u64,
    /// What happens then, once.
    pub fault: Fault,
}

/// What a crash does to un-synced things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// Only the process died: everything stays.
    KeepAll,
    /// Everything un-synced is gone.
    LoseAll,
    /// Each un-synced write and name is kept, torn or lost, as this seed decides.
    Random(u64),
}

struct Shared {
    token: ArrayQueue<Box<State>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimDisk")
    }
}

impl Shared {
    fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        let mut state = loop {
            match self.token.pop() {
                Some(state) => break state,
                None => std::hint::spin_loop(),
            }
        };
        let result = work(&mut state);
        drop(self.token.push(state));
        result
    }
}

/// The simulated disk; clones are the same disk. The directory `/` exists.
#[derive(Debug, Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        let token = ArrayQueue::new(1);
        drop(token.push(Box::new(State::new())));
        Self {
            shared: Arc::new(Shared { token }),
        }
    }

    /// Plans a fault. Several may be planned.
    pub fn inject(&self, at: FaultAt) {
        self.shared.with(|s| s.inject(at));
    }

    /// Forgets planned faults; returns whether any had not happened.
    pub fn clear_faults(&self) -> bool {
        self.shared.with(State::clear_faults)
    }

    /// Crashes and starts again: handles die, un-synced things go as `crash` says.
    pub fn restart(&self, crash: Crash) {
        self.shared.with(|s| s.restart(crash));
    }

    /// Another disk with the same content and state.
    #[must_use]
    pub fn fork(&self) -> Self {
        let token = ArrayQueue::new(1);
        drop(token.push(Box::new(self.shared.with(|s| s.clone()))));
        Self {
            shared: Arc::new(Shared { token }),
        }
    }

    /// How many calls of a kind (`None`: of all kinds that change something) were made.
    pub fn calls(&self, op: Option<SimOp>) -> u64 {
        self.shared.with(|s| s.calls(op))
    }

    /// Bytes that fit on the disk; writes beyond are short and then fail with `StorageFull`. `None`: no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.with(|s| s.capacity = bytes);
    }

    /// Whether pages survive `drop_cache_from`, as where the system does not let go of them.
    pub fn set_cache_stays(&self, stays: bool) {
        self.shared.with(|s| s.cache_stays = stays);
    }

    /// Sets the clock that stamps what is written from now on; it stands still otherwise.
    pub fn set_clock(&self, now: Timestamp) {
        self.shared.with(|s| s.clock = now);
    }

    /// The content of a file as readers see it.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        self.shared.with(|s| s.content(path))
    }

    /// Puts a durable file there, or replaces the content of one: damage, or a file from elsewhere.
    pub fn put(&self, path: &Path, content: &[u8]) {
        self.shared.with(|s| s.put(path, content));
    }
}

impl SimDisk {
    fn file(&self, (node, life): (NodeId, u64)) -> Arc<dyn DiskFile> {
        Arc::new(SimFile {
            shared: Arc::clone(&self.shared),
            node,
            life,
        })
    }
}

impl Disk for SimDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.shared
            .with(|s| s.create(path, false))
            .map(|node| self.file(node))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.shared
            .with(|s| s.open(path))
            .map(|node| self.file(node))
    }

    fn open_write(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.open_read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.shared.with(|s| s.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.shared.with(|s| s.remove(path, false))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.with(|s| s.create(path, true)).map(drop)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.with(|s| s.remove(path, true))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.with(|s| s.sync_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.shared.with(|s| s.list(path))
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.open_read(path)?.len()
    }

    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        self.shared.with(|s| s.modified(path))
    }
}

#[derive(Debug)]
struct SimFile {
    shared: Arc<Shared>,
    node: NodeId,
    /// Restarts of the disk before this handle was opened.
    life: u64,
}

impl DiskFile for SimFile {
    fn write_vectored_at(&self, bufs: &[io::IoSlice<'_>], at: u64) -> io::Result<usize> {
        let bytes = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        self.shared
            .with(|s| s.write((self.node, self.life), bytes, at))
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.shared
            .with(|s| s.read((self.node, self.life), buf, at))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.shared.with(|s| s.sync((self.node, self.life)))
    }

    fn set_modified(&self, time: Timestamp) -> io::Result<()> {
        self.shared
            .with(|s| s.set_modified((self.node, self.life), time))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.shared.with(|s| s.set_len((self.node, self.life), len))
    }

    fn len(&self) -> io::Result<u64> {
        self.shared.with(|s| s.len((self.node, self.life)))
    }

    fn drop_cache_from(&self, at: u64) -> io::Result<CacheState> {
        self.shared
            .with(|s| s.drop_cache((self.node, self.life), at))
    }
}
