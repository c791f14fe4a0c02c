//! Connections that are not read for a while, because their client does more than it may (KIP-219).
//!
//! Owns:     when each of a net thread's muted connections is read again.
//! Does not: mute; the connection does.
//!
//! # Invariants
//! U1. A muted connection has its turn at its time, whatever else happens on its thread.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use crate::mailbox::ConnKey;

/// See the file comment.
#[derive(Debug, Default)]
pub(crate) struct Mutes(BinaryHeap<Reverse<(Instant, usize, u64)>>);

impl Mutes {
    /// The connection is to have a turn then.
    pub(crate) fn add(&mut self, key: ConnKey, until: Instant) {
        self.0.push(Reverse((until, key.place, key.id.0)));
    }

    /// When the next one is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((until, ..))| *until)
    }

    /// Takes one that is due: its place and number.
    pub(crate) fn take(&mut self, now: Instant) -> Option<(usize, u64)> {
        if self.due()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, place, id))| (place, id))
    }
}
