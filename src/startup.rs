//! How far the start, or the stop, has come.
//!
//! Owns:     the phase and the numbers of recovery.
//! Does not: start or stop anything, or say it to anybody: `admin` and `heart` do.
//!
//! Written by whoever starts and stops and by recovery's threads, read by anyone; all of it is atomic.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What the broker is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Phase {
    /// It takes its log dirs into use; on a shared file system it may wait for the last owner.
    Claiming = 0,
    /// It opens its partitions, with recovery.
    Opening = 1,
    /// It serves.
    Serving = 2,
    /// It answers what it has begun, flushes and closes.
    Stopping = 3,
}

impl Phase {
    /// For machines: one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Claiming => "claiming",
            Self::Opening => "opening",
            Self::Serving => "serving",
            Self::Stopping => "stopping",
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Startup {
    phase: AtomicU8,
    partitions: AtomicU64,
    opened: AtomicU64,
    bytes: AtomicU64,
}

/// How far recovery has come.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Recovery {
    /// Partitions to open.
    pub partitions: u64,
    /// Partitions that are open, or offline for a reason.
    pub opened: u64,
    /// Bytes of logs read by it.
    pub bytes: u64,
}

impl std::fmt::Display for Recovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (opened, all, mib) = (self.opened, self.partitions, self.bytes >> 20);
        write!(f, "{opened} of {all} partitions open, {mib} MiB read")
    }
}

impl Startup {
    /// The phase now.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Claiming,
            1 => Phase::Opening,
            2 => Phase::Serving,
            _ => Phase::Stopping,
        }
    }

    /// Another phase begins.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Recovery begins.
    pub fn will_open(&self, partitions: usize) {
        self.partitions.store(partitions as u64, Ordering::Relaxed);
        self.enter(Phase::Opening);
    }

    /// One more partition is open, or offline for a reason.
    pub fn opened_one(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    /// Recovery read that much more.
    pub fn read(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How far recovery has come.
    pub fn recovery(&self) -> Recovery {
        Recovery {
            partitions: self.partitions.load(Ordering::Relaxed),
            opened: self.opened.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}
