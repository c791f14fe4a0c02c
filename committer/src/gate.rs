//! The flush gate of one log: its queue behind a lock, and what readers load.
//!
//! Owns:     one [`Queue`], the published high watermark and health.
//! Does not: start threads or call the log.
//!
//! # Invariants
//! G1. The queue's lock is never held across a flush or a completion.
//! G2. The high watermark is stored while the lock is held, so that it never
//!     goes back for a reader.

use crate::queue::{Health, Queue};
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};

/// The flush gate of one log. `P` is a place in the log with the file that
/// holds it, `W` is who waits for an acknowledgement.
pub struct Gate<P, W> {
    queue: Mutex<Queue<P, W>>,
    high_watermark: AtomicU64,
    online: AtomicBool,
}

impl<P: Clone, W> Gate<P, W> {
    /// A gate for a log that is durable up to its end, `end`.
    #[must_use]
    pub fn new(end: u64) -> Self {
        Self {
            queue: Mutex::new(Queue::new(end)),
            high_watermark: AtomicU64::new(end),
            online: AtomicBool::new(true),
        }
    }

    /// One past the last offset a reader may see. Lock-free.
    pub fn high_watermark(&self) -> u64 {
        self.high_watermark.load(Ordering::Acquire)
    }

    /// One past the last offset that a flush covers.
    pub fn durable(&self) -> u64 {
        self.queue.lock().durable()
    }

    /// Whether appends are taken now. Lock-free.
    pub fn is_online(&self) -> bool {
        self.online.load(Ordering::Acquire)
    }

    /// Whether a flush is requested or under way.
    pub fn is_flushing(&self) -> bool {
        self.queue.lock().is_flushing()
    }

    /// What the log can do now.
    pub fn health(&self) -> Health {
        self.queue.lock().health()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Queue<P, W>> {
        self.queue.lock()
    }

    /// Publishes the health, with the lock held as in G2.
    pub(crate) fn publish_health(&self, queue: &MutexGuard<'_, Queue<P, W>>) {
        let online = queue.health() == Health::Online;
        self.online.store(online, Ordering::Release);
    }

    /// After healing: the one moment at which the high watermark may go back,
    /// over acks=1 records that the disk does not give back.
    pub(crate) fn publish_healed(&self, queue: &MutexGuard<'_, Queue<P, W>>) -> u64 {
        let now = queue.high_watermark();
        self.high_watermark.store(now, Ordering::Release);
        self.publish_health(queue);
        now
    }

    /// G2. Returns the new high watermark if it moved.
    pub(crate) fn publish(&self, queue: &MutexGuard<'_, Queue<P, W>>) -> Option<u64> {
        let now = queue.high_watermark();
        let before = self.high_watermark.swap(now, Ordering::AcqRel);
        assert!(now >= before, "C4: the high watermark never goes back");
        (now > before).then_some(now)
    }
}
