//! Buffers of large frames, used again.
//!
//! Owns:     buffers that no frame uses at the moment; one pool per net thread.
//! Does not: decide how long a frame may be.
//! Used by the net thread (take) and by whoever drops the last slice of a frame (put).
//!
//! A fresh buffer of a megabyte costs hundreds of page faults and has to be zeroed; one from here
//! costs neither.
//!
//! # Invariants
//! P1. The pool never holds more than [`POOL_BYTES_MAX`].
//! P2. Every byte of a pooled buffer is initialised: its length is its size.

use std::sync::Arc;

use parking_lot::Mutex;

/// Buffers below this come from the allocator's own caches cheaply enough.
pub(crate) const POOLED_BYTES_MIN: usize = 64 * 1024;
/// Larger ones are rare and would only pin memory.
const POOLED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What one net thread keeps: a few frames of the largest pooled size.
const POOL_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A buffer serves frames of at least its size divided by this, so that small frames do not pin
/// memory for which they reserved nothing.
const OVERSIZE_MAX: usize = 2;

/// See the file comment.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    /// Takes since the last trim.
    used: bool,
}

impl Pool {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// A buffer that holds a frame of `bytes`, if one is there.
    pub(crate) fn take(&self, bytes: usize) -> Option<Vec<u8>> {
        if !(POOLED_BYTES_MIN..=POOLED_BYTES_MAX).contains(&bytes) {
            return None;
        }
        let mut free = self.free.lock();
        free.used = true;
        let fits = |buffer: &Vec<u8>| buffer.len() >= bytes && buffer.len() / OVERSIZE_MAX <= bytes;
        let at = free.buffers.iter().position(fits)?;
        let buffer = free.buffers.swap_remove(at);
        free.bytes -= buffer.len();
        Some(buffer)
    }

    /// Takes a buffer back, or lets it go when there are enough.
    pub(crate) fn put(&self, buffer: Vec<u8>) {
        if !(POOLED_BYTES_MIN..=POOLED_BYTES_MAX).contains(&buffer.len()) {
            return;
        }
        let mut free = self.free.lock();
        if free.bytes + buffer.len() <= POOL_BYTES_MAX {
            free.bytes += buffer.len();
            free.buffers.push(buffer);
        }
    }

    /// Lets all buffers go if none was taken since the last call.
    pub(crate) fn trim(&self) {
        let used = std::mem::take(&mut self.free.lock().used);
        if !used {
            self.clear();
        }
    }

    /// Lets all buffers go.
    pub(crate) fn clear(&self) {
        *self.free.lock() = Free::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_serves_frames_of_its_own_size_only() {
        let pool = Pool::new();
        pool.put(vec![0; 1024 * 1024]);
        assert!(pool.take(1024 * 1024 + 1).is_none(), "too long for it");
        assert!(pool.take(256 * 1024).is_none(), "would waste most of it");
        assert!(pool.take(900 * 1024).is_some());
        assert!(pool.take(900 * 1024).is_none(), "it is in use");
    }

    #[test]
    fn the_pool_is_bounded_and_lets_go_when_unused() {
        let pool = Pool::new();
        for _ in 0..40 {
            pool.put(vec![0; 1024 * 1024]);
        }
        assert_eq!(pool.free.lock().bytes, POOL_BYTES_MAX);
        assert!(pool.take(1024 * 1024).is_some());
        pool.trim();
        assert!(pool.free.lock().bytes > 0, "used since the last trim");
        pool.trim();
        assert_eq!(pool.free.lock().bytes, 0);
    }
}
