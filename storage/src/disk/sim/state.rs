//! What the simulated disk remembers.
//!
//! Owns:     files, names, what of both is durable, planned faults.
//! Does not: know who calls.
//!
//! # Invariants
//! M1. `cached` is what readers see; `durable` is what a crash that loses everything un-synced leaves.
//! M2. A write is in `pending` from the call to the sync that makes it durable, or to the failed sync that loses it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::{Crash, DirEntry, Fault, FaultAt, SimOp};
use crate::disk::CacheState;
use crate::types::{Timestamp, narrow, wide};

/// A tear falls on any byte within a write; devices promise no more than this much at once.
const SECTOR_BYTES: usize = 512;

pub(super) type NodeId = usize;
type Handle = (NodeId, u64);

#[derive(Debug, Clone)]
enum Change {
    Write { at: u64, bytes: Vec<u8> },
    Len(u64),
}

#[derive(Debug, Clone, Default)]
struct Node {
    is_dir: bool,
    cached: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    modified: Timestamp,
}

#[derive(Debug, Clone)]
enum NameChange {
    Put(PathBuf, NodeId),
    Gone(PathBuf),
    Moved(PathBuf, PathBuf, NodeId),
}

impl NameChange {
    fn dir(&self) -> Option<&Path> {
        match self {
            Self::Put(path, _) | Self::Gone(path) | Self::Moved(path, ..) => path.parent(),
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, NodeId>) {
        match self {
            Self::Put(path, node) => drop(names.insert(path.clone(), *node)),
            Self::Gone(path) => drop(names.remove(path)),
            Self::Moved(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct State {
    nodes: Vec<Node>,
    names: BTreeMap<PathBuf, NodeId>,
    durable_names: BTreeMap<PathBuf, NodeId>,
    pending_names: Vec<NameChange>,
    faults: Vec<FaultAt>,
    calls: BTreeMap<SimOp, u64>,
    lives: u64,
    power_is_off: bool,
    pub(super) capacity: Option<u64>,
    pub(super) cache_stays: bool,
    pub(super) clock: Timestamp,
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Len(len) => content.resize(narrow(*len), 0),
        Change::Write { at, bytes } => {
            let (at, end) = (narrow(*at), narrow(*at) + bytes.len());
            if content.len() < end {
                content.resize(end, 0);
            }
            content[at..end].copy_from_slice(bytes);
        }
    }
}

fn no_power() -> io::Error {
    io::Error::other("simulated power cut")
}

impl State {
    pub(super) fn new() -> Self {
        let root = BTreeMap::from([(PathBuf::from("/"), 0)]);
        Self {
            nodes: vec![Node {
                is_dir: true,
                ..Node::default()
            }],
            names: root.clone(),
            durable_names: root,
            pending_names: Vec::new(),
            faults: Vec::new(),
            calls: BTreeMap::new(),
            lives: 0,
            power_is_off: false,
            capacity: None,
            cache_stays: false,
            clock: Timestamp(0),
        }
    }

    pub(super) fn inject(&mut self, at: FaultAt) {
        self.faults.push(at);
    }

    pub(super) fn clear_faults(&mut self) -> bool {
        let any = !self.faults.is_empty();
        self.faults.clear();
        any
    }

    pub(super) fn calls(&self, op: Option<SimOp>) -> u64 {
        let counts = self
            .calls
            .iter()
            .filter(|(kind, _)| op.map_or(kind.changes(), |op| op == **kind));
        counts.map(|(_, count)| count).sum()
    }

    /// Counts the call and finds the fault that hits it.
    fn enter(&mut self, op: SimOp) -> io::Result<Option<Fault>> {
        if self.power_is_off {
            return Err(no_power());
        }
        *self.calls.entry(op).or_default() += 1;
        let mut hit = None;
        for (index, at) in self.faults.iter_mut().enumerate() {
            if !at.op.map_or(op.changes(), |wanted| wanted == op) {
                continue;
            }
            match at.after.checked_sub(1) {
                Some(left) => at.after = left,
                None => hit = hit.or(Some(index)),
            }
        }
        let fault = hit.map(|index| self.faults.remove(index).fault);
        if fault == Some(Fault::PowerCut) {
            self.power_is_off = true;
        }
        Ok(fault)
    }

    /// For calls that either happen wholly or not at all.
    fn enter_simple(&mut self, op: SimOp) -> io::Result<()> {
        match self.enter(op)? {
            Some(Fault::Error(kind)) => Err(kind.into()),
            Some(Fault::PowerCut) => Err(no_power()),
            Some(Fault::ShortWrite(_)) | None => Ok(()),
        }
    }

    fn node(&mut self, (node, life): Handle) -> io::Result<&mut Node> {
        if life != self.lives {
            return Err(io::Error::other("a handle of before the restart"));
        }
        self.nodes
            .get_mut(node)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn find(&self, path: &Path, is_dir: bool) -> io::Result<NodeId> {
        let node = *self.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        match (self.nodes[node].is_dir, is_dir) {
            (true, false) => Err(io::ErrorKind::IsADirectory.into()),
            (false, true) => Err(io::ErrorKind::NotADirectory.into()),
            _ => Ok(node),
        }
    }

    fn rename_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }

    pub(super) fn create(&mut self, path: &Path, is_dir: bool) -> io::Result<Handle> {
        self.enter_simple(SimOp::Create)?;
        self.find(path.parent().unwrap_or(Path::new("/")), true)?;
        if self.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.nodes.push(Node {
            is_dir,
            modified: self.clock,
            ..Node::default()
        });
        let node = self.nodes.len() - 1;
        self.rename_names(NameChange::Put(path.to_owned(), node));
        Ok((node, self.lives))
    }

    pub(super) fn open(&mut self, path: &Path) -> io::Result<Handle> {
        self.enter_simple(SimOp::Read)?;
        Ok((self.find(path, false)?, self.lives))
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.enter_simple(SimOp::Rename)?;
        let node = self.find(from, false)?;
        self.rename_names(NameChange::Moved(from.to_owned(), to.to_owned(), node));
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path, is_dir: bool) -> io::Result<()> {
        self.enter_simple(SimOp::Remove)?;
        self.find(path, is_dir)?;
        if is_dir && self.names.keys().any(|name| name.parent() == Some(path)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.rename_names(NameChange::Gone(path.to_owned()));
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        self.enter_simple(SimOp::SyncDir)?;
        self.find(path, true)?;
        let (of_dir, others) = std::mem::take(&mut self.pending_names)
            .into_iter()
            .partition(|c| c.dir() == Some(path));
        self.pending_names = others;
        let of_dir: Vec<NameChange> = of_dir;
        for change in &of_dir {
            change.apply(&mut self.durable_names);
        }
        Ok(())
    }

    pub(super) fn list(&mut self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.enter_simple(SimOp::Read)?;
        self.find(path, true)?;
        let inside = self
            .names
            .iter()
            .filter(|(name, _)| name.parent() == Some(path));
        let entry = |(name, node): (&PathBuf, &NodeId)| {
            let name = name.file_name()?.to_str()?.to_owned();
            Some(DirEntry {
                name,
                is_dir: self.nodes[*node].is_dir,
            })
        };
        Ok(inside.filter_map(entry).collect())
    }

    pub(super) fn write(
        &mut self,
        handle: Handle,
        mut bytes: Vec<u8>,
        at: u64,
    ) -> io::Result<usize> {
        self.node(handle)?;
        let cut = match self.enter(SimOp::Write)? {
            Some(Fault::Error(kind)) => return Err(kind.into()),
            Some(Fault::ShortWrite(len)) => len,
            Some(Fault::PowerCut) | None => usize::MAX,
        };
        bytes.truncate(cut);
        bytes.truncate(self.room(handle, at)?);
        let written = bytes.len();
        let change = Change::Write { at, bytes };
        let clock = self.clock;
        let node = self.node(handle)?;
        node.modified = clock;
        apply(&mut node.cached, &change);
        node.pending.push(change);
        if self.power_is_off {
            Err(no_power())
        } else {
            Ok(written)
        }
    }

    /// How many bytes may be written at `at`; none at all is an error.
    fn room(&mut self, handle: Handle, at: u64) -> io::Result<usize> {
        let Some(capacity) = self.capacity else {
            return Ok(usize::MAX);
        };
        let used: u64 = self
            .names
            .values()
            .map(|node| wide(self.nodes[*node].cached.len()))
            .sum();
        let inside = wide(self.node(handle)?.cached.len()).saturating_sub(at);
        match capacity.saturating_sub(used).saturating_add(inside) {
            0 => Err(io::ErrorKind::StorageFull.into()),
            room => Ok(narrow(room)),
        }
    }

    pub(super) fn read(&mut self, handle: Handle, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.enter_simple(SimOp::Read)?;
        let content = &self.node(handle)?.cached;
        let rest = content.get(narrow(at)..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    pub(super) fn len(&mut self, handle: Handle) -> io::Result<u64> {
        self.enter_simple(SimOp::Read)?;
        Ok(wide(self.node(handle)?.cached.len()))
    }

    pub(super) fn modified(&mut self, path: &Path) -> io::Result<Timestamp> {
        self.enter_simple(SimOp::Read)?;
        Ok(self.nodes[self.find(path, false)?].modified)
    }

    pub(super) fn set_modified(&mut self, handle: Handle, time: Timestamp) -> io::Result<()> {
        self.node(handle)?.modified = time;
        Ok(())
    }

    pub(super) fn set_len(&mut self, handle: Handle, len: u64) -> io::Result<()> {
        self.enter_simple(SimOp::SetLen)?;
        let node = self.node(handle)?;
        let change = Change::Len(len);
        apply(&mut node.cached, &change);
        node.pending.push(change);
        Ok(())
    }

    pub(super) fn sync(&mut self, handle: Handle) -> io::Result<()> {
        let entered = self.enter_simple(SimOp::Sync);
        let power_is_off = self.power_is_off;
        let node = self.node(handle)?;
        match entered {
            Ok(()) => {
                for change in std::mem::take(&mut node.pending) {
                    apply(&mut node.durable, &change);
                }
            }
            // The pages are marked clean: no later sync writes them (M2).
            Err(_) if !power_is_off => node.pending.clear(),
            Err(_) => {}
        }
        entered
    }

    pub(super) fn drop_cache(&mut self, handle: Handle, at: u64) -> io::Result<CacheState> {
        self.enter_simple(SimOp::Read)?;
        if self.cache_stays {
            return Ok(CacheState::MayStay);
        }
        let node = self.node(handle)?;
        let mut fresh = node.durable.clone();
        for change in &node.pending {
            apply(&mut fresh, change);
        }
        fresh.resize(node.cached.len(), 0);
        let from = narrow(at - at % 4096).min(fresh.len());
        node.cached[from..].copy_from_slice(&fresh[from..]);
        Ok(CacheState::Dropped)
    }

    pub(super) fn content(&self, path: &Path) -> Option<Vec<u8>> {
        self.names
            .get(path)
            .map(|node| self.nodes[*node].cached.clone())
    }

    pub(super) fn put(&mut self, path: &Path, content: &[u8]) {
        self.nodes.push(Node {
            cached: content.to_owned(),
            durable: content.to_owned(),
            ..Node::default()
        });
        let node = self.nodes.len() - 1;
        self.names.insert(path.to_owned(), node);
        self.durable_names.insert(path.to_owned(), node);
    }

    pub(super) fn restart(&mut self, crash: Crash) {
        self.lives += 1;
        self.power_is_off = false;
        let mut dice = match crash {
            Crash::KeepAll => return,
            Crash::LoseAll => None,
            Crash::Random(seed) => Some(Dice(seed)),
        };
        for change in std::mem::take(&mut self.pending_names) {
            if dice.as_mut().is_some_and(|dice| dice.below(2) == 0) {
                change.apply(&mut self.durable_names);
            }
        }
        self.drop_orphans();
        self.names.clone_from(&self.durable_names);
        for node in &mut self.nodes {
            match &mut dice {
                Some(dice) => dice.settle(node),
                None => node.pending.clear(),
            }
            node.cached.clone_from(&node.durable);
        }
    }

    /// What lies in a directory whose own name is lost, is lost.
    fn drop_orphans(&mut self) {
        let names = self.durable_names.clone();
        let reachable = |path: &Path| path.ancestors().all(|dir| names.contains_key(dir));
        self.durable_names.retain(|path, _| reachable(path));
    }
}

/// A small generator: same seed, same crash.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Each pending change survives, survives in part, leaves only its length, or is lost.
    fn settle(&mut self, node: &mut Node) {
        for change in std::mem::take(&mut node.pending) {
            match (self.below(5), change) {
                (0, _) => {}
                (1, Change::Write { at, bytes }) => {
                    let len = at
                        .saturating_add(wide(bytes.len()))
                        .max(wide(node.durable.len()));
                    apply(&mut node.durable, &Change::Len(len));
                }
                (2, Change::Write { at, bytes }) => self.tear(node, at, &bytes),
                (_, change) => apply(&mut node.durable, &change),
            }
        }
    }

    fn tear(&mut self, node: &mut Node, at: u64, bytes: &[u8]) {
        if self.below(2) == 0 {
            let len = narrow(self.below(wide(bytes.len())));
            apply(
                &mut node.durable,
                &Change::Write {
                    at,
                    bytes: bytes[..len].to_vec(),
                },
            );
            return;
        }
        for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            if self.below(2) == 0 {
                let at = at.saturating_add(wide(index * SECTOR_BYTES));
                apply(
                    &mut node.durable,
                    &Change::Write {
                        at,
                        bytes: sector.to_vec(),
                    },
                );
            }
        }
    }
}
