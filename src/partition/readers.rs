//! Fetches that wait at one partition for more to read.
//!
//! Owns:     who is woken when the high watermark or the state changes.
//! Does not: read, or call anybody while its lock is held.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// A fetch that waits.
pub trait ReadWaiter: Send + Sync {
    /// There may be more to read in the partition at `index` of the fetch, or
    /// its state changed. Must not block.
    fn wake(self: Arc<Self>, index: usize);
}

/// Names a registration, to take it back.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ReaderKey(u64);

/// A fetch, and the place of the partition in it.
type Waiting = (Arc<dyn ReadWaiter>, usize);

/// The fetches that wait at one partition.
#[derive(Default)]
pub struct Readers {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiting>>,
}

impl Readers {
    /// Registers a fetch; `index` comes back in [`ReadWaiter::wake`].
    pub fn register(&self, waiter: Arc<dyn ReadWaiter>, index: usize) -> ReaderKey {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().insert(key, (waiter, index));
        ReaderKey(key)
    }

    /// Takes a registration back.
    pub fn forget(&self, key: ReaderKey) {
        let gone = self.waiting.lock().remove(&key.0);
        drop(gone);
    }

    /// Wakes all who wait. They stay registered until they take that back.
    pub fn wake_all(&self) {
        let waiting = self.waiting.lock();
        if waiting.is_empty() {
            return;
        }
        let all: Vec<_> = waiting.values().cloned().collect();
        drop(waiting);
        for (waiter, index) in all {
            waiter.wake(index);
        }
    }
}
