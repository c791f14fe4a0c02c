//! What is left of deleted topics, until it is off the disks.
//!
//! Owns:     removals that are not done, and when each is tried again.
//! Does not: decide what is removed; the catalog committed that.
//!
//! Files are unlinked only when no partition holds them open any more, since
//! an unlinked open file lives on as `.nfs*` on NFS. Driven by the sweep, run
//! by state workers.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Broker;
use crate::cluster::{Progress, Removal};
use crate::partition::Partition;

/// Entries removed by one job, so that it does not hold a worker for long.
const ENTRIES_PER_STEP: usize = 1000;
/// How long to wait for readers of a deleted partition to let go of it.
const READERS: Duration = Duration::from_secs(60);
/// Pauses between tries of a removal that is stuck.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// One removal.
struct Pending {
    removal: Removal,
    open: Vec<Weak<Partition>>,
    since: Instant,
    not_before: Instant,
    pause: Duration,
}

/// All of them.
pub(super) struct Removals(Mutex<Vec<Pending>>);

impl Removals {
    /// With what an earlier broker left.
    pub(super) fn new(left: Removal) -> Self {
        let removals = Self(Mutex::new(Vec::new()));
        removals.add(left, Vec::new());
        removals
    }

    /// Adds a removal that waits until `open` is let go.
    pub(super) fn add(&self, removal: Removal, open: Vec<Weak<Partition>>) {
        if removal.is_empty() {
            return;
        }
        let now = Instant::now();
        self.0.lock().push(Pending {
            removal,
            open,
            since: now,
            not_before: now,
            pause: PAUSE_MIN,
        });
    }

    fn take_due(&self) -> Vec<Pending> {
        let now = Instant::now();
        let mut all = self.0.lock();
        all.extract_if(.., |pending| pending.is_due(now)).collect()
    }

    fn put_back(&self, pending: Pending) {
        self.0.lock().push(pending);
    }
}

impl Pending {
    fn is_due(&self, now: Instant) -> bool {
        let let_go = self
            .open
            .iter()
            .all(|partition| partition.strong_count() == 0);
        now >= self.not_before && (let_go || now.duration_since(self.since) > READERS)
    }
}

impl Broker {
    /// Starts what is due.
    pub(super) fn drive_removals(self: &Arc<Self>) {
        for pending in self.removals.take_due() {
            let broker = Arc::clone(self);
            self.state_workers().submit(move || broker.remove(pending));
        }
    }

    fn remove(&self, mut pending: Pending) {
        match self
            .cluster
            .catalog
            .remove_step(&mut pending.removal, ENTRIES_PER_STEP)
        {
            Progress::Done => {}
            Progress::More | Progress::NotFresh => self.removals.put_back(pending),
            Progress::Stuck(error) => {
                log::warn!("a deleted topic is not off the disk yet: {error}");
                pending.not_before = Instant::now() + pending.pause;
                pending.pause = (pending.pause * 2).min(PAUSE_MAX);
                self.removals.put_back(pending);
            }
        }
    }
}
