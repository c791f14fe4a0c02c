//! What all logs of a log dir (or a process) share: read handles, read buffers, counters.
//!
//! Owns:     a bounded cache of open sealed segments, a bounded pool of read buffers.
//! Does not: hold handles with unsynced writes (the logs do), or block: every place is a small lock-free queue, and whoever
//!           finds one empty opens or allocates for itself.
//! Called from any thread.
//!
//! # Invariants
//! R1. At most `handles_max` idle handles and `SMALL_KEPT` + `LARGE_KEPT` idle buffers exist.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use crossbeam_queue::ArrayQueue;

use crate::segment::OpenSegment;

/// Buffers of this size serve most reads of consumers that keep up.
const SMALL_BYTES: usize = 128 * 1024;
/// Buffers for the usual fetch of 1 MiB, with room for the walk from an index entry to the wanted offset.
const LARGE_BYTES: usize = 1024 * 1024 + 64 * 1024;
const SMALL_KEPT: usize = 64;
const LARGE_KEPT: usize = 32;
/// Below this size the allocator is as good as a pool.
const POOLED_MIN: usize = 16 * 1024;
/// Tries at a place that another reader holds for the moment of a clone.
const SPINS_MAX: u32 = 64;

/// Identifies a segment object in the handle cache; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentKey(u64);

impl SegmentKey {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

type Place = ArrayQueue<(SegmentKey, Arc<OpenSegment>)>;

/// What logs share. Make one per log dir.
#[derive(Debug)]
pub struct Resources {
    handles: Box<[Place]>,
    small: ArrayQueue<Vec<u8>>,
    large: ArrayQueue<Vec<u8>>,
    /// Indexes that had to be rebuilt because their files were missing or damaged.
    pub indexes_rebuilt: AtomicU64,
}

impl Resources {
    /// `handles_max`: how many clean segments may stay open.
    pub fn new(handles_max: usize) -> Arc<Self> {
        Arc::new(Self {
            handles: (0..handles_max.max(1))
                .map(|_| ArrayQueue::new(1))
                .collect(),
            small: ArrayQueue::new(SMALL_KEPT),
            large: ArrayQueue::new(LARGE_KEPT),
            indexes_rebuilt: AtomicU64::new(0),
        })
    }

    fn place(&self, key: SegmentKey) -> Option<&Place> {
        let index = key.0 % u64::try_from(self.handles.len()).unwrap_or(1);
        self.handles.get(usize::try_from(index).unwrap_or(0))
    }

    /// The cached handle of a segment. While it is copied, the place is empty for an instant.
    pub(crate) fn handle(&self, key: SegmentKey) -> Option<Arc<OpenSegment>> {
        let place = self.place(key)?;
        for _ in 0..SPINS_MAX {
            if let Some((owner, open)) = place.pop() {
                let found = (owner == key).then(|| Arc::clone(&open));
                // A reader that came in between has put a handle of its own there: then this one is dropped.
                let _ = place.push((owner, open));
                return found;
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Keeps a handle; whatever had its place is closed when its last reader is done.
    pub(crate) fn keep_handle(&self, key: SegmentKey, open: Arc<OpenSegment>) {
        if let Some(place) = self.place(key) {
            place.force_push((key, open));
        }
    }

    /// Closes an idle handle.
    pub(crate) fn forget_handle(&self, key: SegmentKey) {
        if let Some((owner, open)) = self.place(key).and_then(ArrayQueue::pop)
            && owner != key
        {
            // Of another segment: it goes back, unless a reader has put one there meanwhile.
            let _ = self.place(key).map(|place| place.push((owner, open)));
        }
    }

    /// A buffer of exactly `len` bytes with any content.
    pub(crate) fn buffer(self: &Arc<Self>, len: usize) -> ReadBuffer {
        let (pool, size) = if !(POOLED_MIN..=LARGE_BYTES).contains(&len) {
            (None, len)
        } else if len <= SMALL_BYTES {
            (Some(&self.small), SMALL_BYTES)
        } else {
            (Some(&self.large), LARGE_BYTES)
        };
        let bytes = pool
            .and_then(ArrayQueue::pop)
            .unwrap_or_else(|| vec![0; size]);
        ReadBuffer {
            bytes,
            len,
            home: Arc::clone(self),
        }
    }

    fn take_back(&self, bytes: Vec<u8>) {
        match bytes.len() {
            SMALL_BYTES => drop(self.small.push(bytes)),
            LARGE_BYTES => drop(self.large.push(bytes)),
            _ => {}
        }
    }
}

/// A buffer that goes back to its pool with the last `Bytes` that refers to it.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    bytes: Vec<u8>,
    len: usize,
    home: Arc<Resources>,
}

impl ReadBuffer {
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for ReadBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        self.home.take_back(std::mem::take(&mut self.bytes));
    }
}
