//! Consumer groups and committed offsets.
//!
//! Owns:     the map of groups; what happens around a command: its effects are carried out when the group's lock is
//!           free, answers that promise something are let go when the group's file is on stable storage.
//! Does not: know the wire, or decide anything about members (the machines do).
//!
//! Called from net threads and `work-N`; files are read and written on `state-*`.
//!
//! # Invariants
//! M1. No lock of a group or of the map is held over I/O or over an answer.
//! M2. While the files are being read nobody is told that a group has no offsets: everybody is told to come again.

pub(crate) mod classic;
pub(crate) mod consumer;
mod effects;
mod error;
pub(crate) mod file;
pub(crate) mod group;
mod hex;
mod load;
mod members;
mod offsets;
mod requests;
mod retention;
mod store;

pub(crate) use effects::Reply;
pub(crate) use error::GroupError;
pub(crate) use members::Migration;
pub(crate) use offsets::{Committed, Row, StagedRows};
pub(crate) use requests::{Committer, Fetched};

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard, RwLock};
use seawall_storage::disk::Disk;

use crate::cluster::DirClaim;
use crate::timer::Timer;
use crate::topics::Topics;
use crate::workers::Workers;
use classic::ClassicLimits;
use consumer::ConsumerLimits;
use effects::{Effects, NotStored, Stored};
use group::Group;
use store::Store;

/// What the broker's configuration says about groups.
#[derive(Clone, Debug)]
pub(crate) struct GroupConfig {
    /// Of the machines.
    pub(crate) limits: Arc<Limits>,
    /// group.min.session.timeout.ms and group.max.session.timeout.ms
    pub(crate) session_timeout: std::ops::RangeInclusive<Duration>,
    /// offset.metadata.max.bytes
    pub(crate) metadata_bytes_max: usize,
    /// offsets.retention.minutes
    pub(crate) retention: Duration,
    /// offsets.retention.check.interval.ms
    pub(crate) retention_check: Duration,
    /// offsets.commit.timeout.ms
    pub(crate) commit_timeout: Duration,
}

/// What the machines go by.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Of classic groups.
    pub(crate) classic: ClassicLimits,
    /// Of consumer groups.
    pub(crate) consumer: Arc<ConsumerLimits>,
    /// From one to the other.
    pub(crate) migration: Migration,
}

/// One group's place in the map.
pub(crate) struct Cell {
    /// The group's id.
    pub(crate) name: Arc<str>,
    group: Mutex<Group>,
    groups: Weak<Groups>,
}

/// See the module.
pub(crate) struct Groups {
    /// What holds for all.
    pub(crate) config: GroupConfig,
    map: RwLock<HashMap<Arc<str>, Arc<Cell>>>,
    /// Names of files that cannot be read: their groups are answered by nobody, and nothing is written over them.
    damaged: RwLock<HashSet<String>>,
    loading: AtomicBool,
    store: Arc<Store>,
    timer: Arc<Timer>,
    topics: Arc<Topics>,
    checked: Mutex<Instant>,
    me: Weak<Groups>,
}

/// Where groups are kept, and by whose hands.
pub(crate) struct Place<'a> {
    /// The file system.
    pub(crate) disk: Arc<dyn Disk>,
    /// `cluster.dir`
    pub(crate) cluster_dir: &'a Path,
    /// Covers it.
    pub(crate) claim: Arc<DirClaim>,
    /// May wait for it.
    pub(crate) pool: Arc<Workers>,
    /// For sessions.
    pub(crate) timer: Arc<Timer>,
    /// What there is to read.
    pub(crate) topics: Arc<Topics>,
}

impl Groups {
    /// Begins to read the files of all groups; until that is done every request is told to come again.
    pub(crate) fn open(config: GroupConfig, place: Place<'_>) -> Arc<Self> {
        let dir = place.cluster_dir.join(file::DIR);
        let store = Store::new(place.disk, dir, place.claim, place.pool);
        let groups = Arc::new_cyclic(|me| Self {
            config,
            map: RwLock::default(),
            damaged: RwLock::default(),
            loading: AtomicBool::new(true),
            store,
            timer: place.timer,
            topics: place.topics,
            checked: Mutex::new(Instant::now()),
            me: Weak::clone(me),
        });
        let loading = Arc::clone(&groups);
        groups.store.pool().submit(move || loading.load());
        groups
    }

    /// The group, if anybody has heard of it.
    fn find(&self, name: &str) -> Result<Arc<Cell>, GroupError> {
        self.check_loaded()?;
        let found = self.map.read().get(name).map(Arc::clone);
        if found.is_none() && self.is_damaged(name) {
            return Err(GroupError::Unavailable);
        }
        found.ok_or(GroupError::NotFound)
    }

    /// The group, new if nobody has.
    fn find_or_make(&self, name: &str) -> Result<Arc<Cell>, GroupError> {
        match self.find(name) {
            Err(GroupError::NotFound) => {}
            other => return other,
        }
        let mut map = self.map.write();
        let name: Arc<str> = name.into();
        let cell = map.entry(Arc::clone(&name)).or_insert_with(|| {
            let group = Group::new(name, &self.config.limits);
            self.cell(group)
        });
        Ok(Arc::clone(cell))
    }

    fn cell(&self, group: Group) -> Arc<Cell> {
        Arc::new(Cell {
            name: Arc::clone(&group.name),
            group: Mutex::new(group),
            groups: Weak::clone(&self.me),
        })
    }

    fn check_loaded(&self) -> Result<(), GroupError> {
        if self.loading.load(Ordering::Acquire) {
            return Err(GroupError::Loading);
        }
        Ok(())
    }

    fn is_damaged(&self, name: &str) -> bool {
        let damaged = self.damaged.read();
        !damaged.is_empty() && damaged.contains(&file::name_of(name))
    }

    fn cells(&self) -> Vec<Arc<Cell>> {
        self.map.read().values().map(Arc::clone).collect()
    }

    /// How many groups there are.
    pub(crate) fn len(&self) -> usize {
        self.map.read().len()
    }

    /// What each group has committed and stored. No group's lock is held meanwhile.
    pub(crate) fn each_table(&self, mut tell: impl FnMut(&Arc<str>, &offsets::OffsetTable)) {
        for cell in self.cells() {
            let table = Arc::clone(cell.group.lock().offsets.stored());
            tell(&cell.name, &table);
        }
    }

    /// A group that is no more leaves the map, unless another has its name already.
    fn take_out(&self, cell: &Arc<Cell>) {
        let mut map = self.map.write();
        if map
            .get(&cell.name)
            .is_some_and(|other| Arc::ptr_eq(other, cell))
        {
            map.remove(&cell.name);
        }
    }

    /// Gives a command to a group and carries out its effects.
    fn command<R>(&self, cell: &Arc<Cell>, act: impl FnOnce(&mut Group, &mut Effects) -> R) -> R {
        let mut fx = Effects::new(Instant::now());
        let mut group = cell.group.lock();
        let was_empty = group.is_empty();
        let result = act(&mut group, &mut fx);
        if !was_empty && group.is_empty() {
            group.empty_since_ms = now_ms();
        }
        self.carry_out(cell, group, fx);
        result
    }

    fn carry_out(&self, cell: &Arc<Cell>, mut group: MutexGuard<'_, Group>, fx: Effects) {
        let when_stored = fx.when_stored.into_iter().map(|reply| self.bounded(reply));
        let due = group.take(fx.store, when_stored.collect());
        if let Some(when) = fx.wake_at {
            self.wake(cell, &mut group, when);
        }
        drop(group);
        fx.answers.into_iter().for_each(|answer| answer());
        due.stored.into_iter().for_each(|reply| reply(Ok(())));
        if due.write {
            self.store.enqueue(Arc::clone(cell));
        }
    }

    /// Ticks at `when`, unless it ticks before anyway.
    fn wake(&self, cell: &Arc<Cell>, group: &mut Group, when: Instant) {
        if group.wake.as_ref().is_some_and(|(at, _)| *at <= when) {
            return;
        }
        let (cell, groups) = (Arc::downgrade(cell), Weak::clone(&self.me));
        let deadline = self.timer.at(when, move || {
            if let (Some(cell), Some(groups)) = (cell.upgrade(), groups.upgrade()) {
                groups.tick(&cell);
            }
        });
        group.wake = Some((when, deadline));
    }

    fn tick(&self, cell: &Arc<Cell>) {
        self.command(cell, |group, fx| {
            // What is taken here is the deadline that has just run out.
            group.wake = None;
            group.tick(&**self.topics.load(), fx);
        });
        self.forget_unstored(cell);
    }

    /// A group that somebody asked for and nobody joined leaves no trace.
    fn forget_unstored(&self, cell: &Arc<Cell>) {
        if cell.group.lock().forget_unstored() {
            self.take_out(cell);
        }
    }

    /// Nobody waits for a hung disk for longer than `offsets.commit.timeout.ms`; the write goes on, and may succeed.
    fn bounded(&self, reply: Reply<Stored>) -> Reply<Stored> {
        let reply = Arc::new(Mutex::new(Some(reply)));
        let late = Arc::clone(&reply);
        let until = Instant::now() + self.config.commit_timeout;
        let deadline = self.timer.at(until, move || {
            let reply = late.lock().take();
            if let Some(reply) = reply {
                reply(Err(NotStored));
            }
        });
        Box::new(move |stored| {
            drop(deadline);
            let reply = reply.lock().take();
            if let Some(reply) = reply {
                reply(stored);
            }
        })
    }
}

/// Milliseconds of the wall clock.
fn now_ms() -> i64 {
    crate::partition::now().get()
}
