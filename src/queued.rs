//! An account of bytes with a limit.
//!
//! Owns:     one number. It is a leaf: taken under any lock, it takes none.
//! Does not: know whose bytes they are.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of batches that wait for the append workers of one log dir. A dir
/// that hangs cannot take the whole byte budget of the broker.
#[derive(Debug)]
pub struct QueuedBytes {
    now: AtomicU64,
    max: u64,
}

impl QueuedBytes {
    /// An empty account with a limit in bytes.
    pub fn new(max: u64) -> Self {
        Self {
            now: AtomicU64::new(0),
            max,
        }
    }

    /// Adds `bytes` unless that passes the limit. One batch always fits.
    pub fn try_add(&self, bytes: u64) -> bool {
        let before = self.now.fetch_add(bytes, Ordering::Relaxed);
        let fits = before == 0 || before + bytes <= self.max;
        if !fits {
            self.sub(bytes);
        }
        fits
    }

    /// Adds `bytes` that were in the account before and come back to it.
    pub fn add(&self, bytes: u64) {
        self.now.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What is in it.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Gives `bytes` back.
    pub fn sub(&self, bytes: u64) {
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }
}
