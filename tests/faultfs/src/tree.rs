//! Names and files, as they are and as the device has them.
//!
//! Owns:     durability of names (F1), space.
//! Does not: answer the kernel, or know orders.

use std::collections::{BTreeMap, BTreeSet};

use crate::dice::Dice;
use crate::file::FileBody;

pub(crate) type Ino = u64;
type Names = BTreeMap<String, Ino>;

/// The root's number, by FUSE's rule.
pub(crate) const ROOT: Ino = 1;

#[derive(Debug)]
pub(crate) enum Body {
    File(FileBody),
    Dir { live: Names, synced: Names },
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) body: Body,
    parent: Ino,
    name: String,
    opens: u64,
    linked: bool,
}

/// A change of a directory that no fsync of it has covered.
#[derive(Debug)]
enum Change {
    Link {
        dir: Ino,
        name: String,
        ino: Ino,
    },
    Unlink {
        dir: Ino,
        name: String,
    },
    /// One step, also across two directories: file systems keep renames atomic.
    Rename {
        from: (Ino, String),
        to: (Ino, String),
        ino: Ino,
    },
}

/// Why a call on names was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NameError {
    NotFound,
    Exists,
    NotDir,
    IsDir,
    NotEmpty,
}

#[derive(Debug)]
pub(crate) struct Tree {
    nodes: BTreeMap<Ino, Node>,
    next: Ino,
    pending: Vec<Change>,
    /// Bytes of all files that have a name or are open.
    pub(crate) used: usize,
    pub(crate) capacity: Option<usize>,
    pub(crate) dice: Dice,
}

impl Tree {
    pub(crate) fn new(seed: u64) -> Self {
        let mut tree = Self {
            nodes: BTreeMap::new(),
            next: ROOT + 1,
            pending: Vec::new(),
            used: 0,
            capacity: None,
            dice: Dice::new(seed),
        };
        tree.nodes.insert(ROOT, node(empty_dir(), ROOT, ""));
        tree
    }

    pub(crate) fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    pub(crate) fn file(&self, ino: Ino) -> Option<&FileBody> {
        match &self.nodes.get(&ino)?.body {
            Body::File(file) => Some(file),
            Body::Dir { .. } => None,
        }
    }

    pub(crate) fn file_mut(&mut self, ino: Ino) -> Option<&mut FileBody> {
        match &mut self.nodes.get_mut(&ino)?.body {
            Body::File(file) => Some(file),
            Body::Dir { .. } => None,
        }
    }

    /// The path below the root, without a leading slash; directories end in one.
    pub(crate) fn path(&self, ino: Ino) -> String {
        let mut path = String::new();
        let mut at = ino;
        while let Some(node) = self.nodes.get(&at).filter(|_| at != ROOT) {
            let slash = if matches!(node.body, Body::Dir { .. }) {
                "/"
            } else {
                ""
            };
            path = format!("{}{slash}{path}", node.name);
            at = node.parent;
        }
        path
    }

    pub(crate) fn names(&self, dir: Ino) -> Result<&Names, NameError> {
        match &self.nodes.get(&dir).ok_or(NameError::NotFound)?.body {
            Body::Dir { live, .. } => Ok(live),
            Body::File(_) => Err(NameError::NotDir),
        }
    }

    fn names_mut(&mut self, dir: Ino) -> Result<&mut Names, NameError> {
        match &mut self.nodes.get_mut(&dir).ok_or(NameError::NotFound)?.body {
            Body::Dir { live, .. } => Ok(live),
            Body::File(_) => Err(NameError::NotDir),
        }
    }

    pub(crate) fn lookup(&self, dir: Ino, name: &str) -> Result<Ino, NameError> {
        self.names(dir)?
            .get(name)
            .copied()
            .ok_or(NameError::NotFound)
    }

    pub(crate) fn make(&mut self, dir: Ino, name: &str, as_dir: bool) -> Result<Ino, NameError> {
        let ino = self.next;
        let names = self.names_mut(dir)?;
        if names.contains_key(name) {
            return Err(NameError::Exists);
        }
        names.insert(name.to_owned(), ino);
        self.next += 1;
        let body = if as_dir {
            empty_dir()
        } else {
            Body::File(FileBody::default())
        };
        self.nodes.insert(ino, node(body, dir, name));
        let name = name.to_owned();
        self.pending.push(Change::Link { dir, name, ino });
        Ok(ino)
    }

    pub(crate) fn remove(&mut self, dir: Ino, name: &str, as_dir: bool) -> Result<(), NameError> {
        let ino = self.lookup(dir, name)?;
        match (&self.nodes[&ino].body, as_dir) {
            (Body::File(_), true) => return Err(NameError::NotDir),
            (Body::Dir { .. }, false) => return Err(NameError::IsDir),
            (Body::Dir { live, .. }, true) if !live.is_empty() => return Err(NameError::NotEmpty),
            _ => {}
        }
        self.names_mut(dir)?.remove(name);
        self.unlinked(ino);
        let name = name.to_owned();
        self.pending.push(Change::Unlink { dir, name });
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        from: (Ino, &str),
        to: (Ino, &str),
        keep: bool,
    ) -> Result<(), NameError> {
        let ino = self.lookup(from.0, from.1)?;
        let replaced = self.names(to.0)?.get(to.1).copied();
        if replaced.is_some() && keep {
            return Err(NameError::Exists);
        }
        if let Some(replaced) = replaced.filter(|replaced| *replaced != ino) {
            if matches!(&self.nodes[&replaced].body, Body::Dir { live, .. } if !live.is_empty()) {
                return Err(NameError::NotEmpty);
            }
            self.unlinked(replaced);
        }
        self.names_mut(from.0)?.remove(from.1);
        self.names_mut(to.0)?.insert(to.1.to_owned(), ino);
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.parent = to.0;
            to.1.clone_into(&mut node.name);
        }
        let (from, to) = ((from.0, from.1.to_owned()), (to.0, to.1.to_owned()));
        self.pending.push(Change::Rename { from, to, ino });
        Ok(())
    }

    pub(crate) fn opened(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.opens += 1;
        }
    }

    pub(crate) fn released(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.opens = node.opens.saturating_sub(1);
        }
        self.used = self.space_taken();
    }

    /// The bytes stay until the next power cut, which may bring the name back; the space is free at once.
    fn unlinked(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.linked = false;
        }
        self.used = self.space_taken();
    }

    fn space_taken(&self) -> usize {
        let taken = self
            .nodes
            .values()
            .filter(|node| node.linked || node.opens > 0);
        taken
            .map(|node| match &node.body {
                Body::File(file) => file.len(),
                Body::Dir { .. } => 0,
            })
            .sum()
    }

    /// How many of `len` bytes at `at` find space.
    pub(crate) fn fitting(&self, ino: Ino, at: usize, len: usize) -> usize {
        let Some(capacity) = self.capacity else {
            return len;
        };
        let now = self.file(ino).map_or(0, FileBody::len);
        let without_growth = now.saturating_sub(at).min(len);
        let room = capacity.saturating_sub(self.used);
        let gap = at.saturating_sub(now);
        let growth = (len - without_growth).min(room.saturating_sub(gap));
        without_growth + growth
    }

    pub(crate) fn write(&mut self, ino: Ino, at: usize, data: &[u8]) {
        self.resized(ino, |file| file.write(at, data));
    }

    pub(crate) fn set_len(&mut self, ino: Ino, len: usize) {
        self.resized(ino, |file| file.set_len(len));
    }

    fn resized(&mut self, ino: Ino, change: impl FnOnce(&mut FileBody)) {
        let Some(file) = self.file_mut(ino) else {
            return;
        };
        let before = file.len();
        change(file);
        let after = file.len();
        self.used = self.used + after - before;
    }

    /// fsync of a directory: all changes that touch it are durable, in their order.
    pub(crate) fn sync_dir(&mut self, dir: Ino) {
        let pending = std::mem::take(&mut self.pending);
        let mut kept: Vec<Change> = Vec::new();
        for change in pending {
            if !change.touches(dir) {
                kept.push(change);
                continue;
            }
            // The step that gave the moved thing its old name is overtaken; replayed later it would give it two names.
            if let Change::Rename { from, ino, .. } = &change {
                kept.retain(|earlier| !earlier.gives(from, *ino));
            }
            self.apply(&change);
        }
        self.pending = kept;
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Link { dir, name, ino } => self.put_synced(*dir, name, Some(*ino)),
            Change::Unlink { dir, name } => self.put_synced(*dir, name, None),
            Change::Rename { from, to, ino } => {
                if self.synced(from.0).and_then(|names| names.get(&from.1)) == Some(ino) {
                    self.put_synced(from.0, &from.1, None);
                }
                self.put_synced(to.0, &to.1, Some(*ino));
            }
        }
    }

    fn synced(&self, dir: Ino) -> Option<&Names> {
        match &self.nodes.get(&dir)?.body {
            Body::Dir { synced, .. } => Some(synced),
            Body::File(_) => None,
        }
    }

    fn put_synced(&mut self, dir: Ino, name: &str, ino: Option<Ino>) {
        let Some(Node {
            body: Body::Dir { synced, .. },
            ..
        }) = self.nodes.get_mut(&dir)
        else {
            return;
        };
        match ino {
            Some(ino) => synced.insert(name.to_owned(), ino),
            None => synced.remove(name),
        };
    }

    /// The power goes and comes back: everything that was not synced is forgotten, or one cut in four apart, any part
    /// of it stays. All handles are gone.
    pub(crate) fn cut_power(&mut self) {
        let keep_nothing = self.dice.below(4) == 0;
        for change in std::mem::take(&mut self.pending) {
            if !keep_nothing && self.dice.coin() {
                self.apply(&change);
            }
        }
        let dice = &mut self.dice;
        for node in self.nodes.values_mut() {
            node.opens = 0;
            match &mut node.body {
                Body::File(file) => file.cut_power(dice, keep_nothing),
                Body::Dir { live, synced } => live.clone_from(synced),
            }
        }
        self.forget_unreachable();
        self.used = self.space_taken();
    }

    fn forget_unreachable(&mut self) {
        let mut reached = BTreeSet::from([ROOT]);
        let mut open = vec![ROOT];
        while let Some(dir) = open.pop() {
            let names = self.names(dir).cloned().unwrap_or_default();
            for (name, ino) in names {
                let Some(node) = self.nodes.get_mut(&ino) else {
                    continue;
                };
                node.parent = dir;
                node.name = name;
                node.linked = true;
                if reached.insert(ino) && matches!(node.body, Body::Dir { .. }) {
                    open.push(ino);
                }
            }
        }
        self.nodes.retain(|ino, _| reached.contains(ino));
    }

    /// See [`FileBody::evict`]; of all files below a path.
    pub(crate) fn evict(&mut self, prefix: &str) {
        let inos: Vec<Ino> = self.nodes.keys().copied().collect();
        for ino in inos {
            if self.path(ino).starts_with(prefix)
                && let Some(file) = self.file_mut(ino)
            {
                file.evict();
            }
        }
    }
}

impl Change {
    fn touches(&self, at: Ino) -> bool {
        match self {
            Self::Link { dir, .. } | Self::Unlink { dir, .. } => *dir == at,
            Self::Rename { from, to, .. } => from.0 == at || to.0 == at,
        }
    }

    fn gives(&self, place: &(Ino, String), what: Ino) -> bool {
        match self {
            Self::Link { dir, name, ino } => (*dir, name) == (place.0, &place.1) && *ino == what,
            Self::Rename { to, ino, .. } => to == place && *ino == what,
            Self::Unlink { .. } => false,
        }
    }
}

fn empty_dir() -> Body {
    Body::Dir {
        live: Names::new(),
        synced: Names::new(),
    }
}

fn node(body: Body, parent: Ino, name: &str) -> Node {
    Node {
        body,
        parent,
        name: name.to_owned(),
        opens: 0,
        linked: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree whose next cut keeps nothing that was not synced.
    fn merciless() -> Tree {
        let seed = (0..)
            .find(|seed| Dice::new(*seed).below(4) == 0)
            .expect("one of a few");
        Tree::new(seed)
    }

    #[test]
    fn a_name_without_a_sync_of_its_directory_is_forgotten() {
        let mut tree = merciless();
        let file = tree.make(ROOT, "file", false).expect("make");
        tree.write(file, 0, b"bytes");
        tree.file_mut(file).expect("a file").sync();
        tree.cut_power();
        assert_eq!(tree.lookup(ROOT, "file"), Err(NameError::NotFound));
        assert_eq!(tree.used, 0);
    }

    #[test]
    fn a_rename_without_a_sync_keeps_the_old_name_and_what_it_replaced() {
        let mut tree = merciless();
        let old = tree.make(ROOT, "state", false).expect("make");
        let new = tree.make(ROOT, "temp", false).expect("make");
        tree.sync_dir(ROOT);
        tree.rename((ROOT, "temp"), (ROOT, "state"), false)
            .expect("rename");
        assert_eq!(tree.lookup(ROOT, "state"), Ok(new));
        tree.cut_power();
        assert_eq!(tree.lookup(ROOT, "state"), Ok(old));
        assert_eq!(tree.lookup(ROOT, "temp"), Ok(new));
    }

    #[test]
    fn a_rename_is_never_seen_half_done() {
        for seed in 0..200 {
            let mut tree = Tree::new(seed);
            let dir = tree.make(ROOT, "dir", true).expect("make");
            let file = tree.make(ROOT, "file", false).expect("make");
            tree.sync_dir(ROOT);
            tree.rename((ROOT, "file"), (dir, "file"), false)
                .expect("rename");
            tree.cut_power();
            let places = [tree.lookup(ROOT, "file"), tree.lookup(dir, "file")];
            assert_eq!(
                places.iter().filter(|place| **place == Ok(file)).count(),
                1,
                "seed {seed}"
            );
        }
    }

    #[test]
    fn a_write_beyond_the_capacity_is_short_and_a_removed_file_gives_its_space_back() {
        let mut tree = Tree::new(1);
        let file = tree.make(ROOT, "file", false).expect("make");
        tree.capacity = Some(10);
        assert_eq!(tree.fitting(file, 0, 20), 10);
        tree.write(file, 0, &[1; 10]);
        assert_eq!(tree.fitting(file, 10, 1), 0);
        assert_eq!(tree.fitting(file, 5, 10), 5, "in place");
        tree.remove(ROOT, "file", false).expect("remove");
        assert_eq!(tree.used, 0);
    }
}
