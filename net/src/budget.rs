//! The global budgets of frame bytes: of those who have logged in, and of strangers.
//!
//! Owns:     how many bytes of frames are reserved, and the queues of those who wait for room.
//! Does not: allocate; a reservation is accounting.
//! Used by net threads (reserve) and by whoever drops the last slice of a frame (release).
//!
//! # Invariants
//! B1. `used` is the sum of all live permits; it passes the limit only for one frame that found
//!     nothing reserved.
//! B2. Waiters are served in their order: nobody passes a waiter, however small its frame.
//! B3. The queue's lock is held for pointer work only.
//! B4. What strangers hold takes no room from those who have logged in.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::config::Limits;
use crate::mailbox::{ConnKey, Mailbox, Message};

/// Both budgets (B4).
#[derive(Clone, Debug)]
pub(crate) struct Budgets {
    strangers: Arc<Budget>,
    users: Arc<Budget>,
}

impl Budgets {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            strangers: Budget::new(limits.frames_in_flight_bytes_max_before_login),
            users: Budget::new(limits.frames_in_flight_bytes_max),
        }
    }

    pub(crate) fn of(&self, logged_in: bool) -> &Arc<Budget> {
        if logged_in {
            &self.users
        } else {
            &self.strangers
        }
    }

    /// Bytes reserved now.
    pub(crate) fn used(&self) -> usize {
        self.strangers.used() + self.users.used()
    }

    /// Frames that wait for room now.
    pub(crate) fn waiting(&self) -> usize {
        self.strangers.waiting() + self.users.waiting()
    }

    /// Forgets a connection that died while it waited, in whichever queue that was.
    pub(crate) fn forget(&self, key: ConnKey) {
        self.strangers.forget(key);
        self.users.forget(key);
    }
}

/// A part of the budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

#[derive(Debug)]
struct Waiter {
    key: ConnKey,
    mailbox: Arc<Mailbox>,
    bytes: usize,
}

/// See the file comment.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    used: AtomicUsize,
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Waiter>>,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(VecDeque::new()),
        })
    }

    /// Bytes reserved now.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Frames that wait for room now.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Reserves `bytes` at once, or not at all.
    pub(crate) fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Permit> {
        if self.waiting.load(Ordering::SeqCst) != 0 {
            return None; // B2
        }
        self.take(bytes)
    }

    /// Queues a connection; it gets [`Message::Grant`] when there is room.
    pub(crate) fn wait(self: &Arc<Self>, key: ConnKey, mailbox: &Arc<Mailbox>, bytes: usize) {
        let mut queue = self.queue.lock();
        queue.push_back(Waiter {
            key,
            mailbox: Arc::clone(mailbox),
            bytes,
        });
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // The last release may have come before the queue had anybody to serve.
        let grants = self.serve(&mut queue);
        drop(queue);
        send(grants);
    }

    /// Forgets a connection that died while it waited.
    pub(crate) fn forget(self: &Arc<Self>, key: ConnKey) {
        let mut queue = self.queue.lock();
        let before = queue.len();
        queue.retain(|waiter| waiter.key != key);
        self.waiting
            .fetch_sub(before - queue.len(), Ordering::SeqCst);
        let grants = self.serve(&mut queue);
        drop(queue);
        send(grants);
    }

    fn take(self: &Arc<Self>, bytes: usize) -> Option<Permit> {
        let fits = |used: usize| (used == 0 || used + bytes <= self.limit).then(|| used + bytes);
        self.used
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits)
            .ok()
            .map(|_| Permit {
                budget: Arc::clone(self),
                bytes,
            })
    }

    fn release(self: &Arc<Self>, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) != 0 {
            let grants = self.serve(&mut self.queue.lock());
            send(grants);
        }
    }

    /// Takes from the head of the queue while there is room.
    fn serve(self: &Arc<Self>, queue: &mut VecDeque<Waiter>) -> Vec<(Waiter, Permit)> {
        let mut grants = Vec::new();
        while let Some(permit) = queue.front().and_then(|waiter| self.take(waiter.bytes)) {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            grants.extend(queue.pop_front().map(|waiter| (waiter, permit)));
        }
        grants
    }
}

/// Sends grants without the lock (B3): a permit whose thread is gone is dropped in here, and comes
/// back through `release`.
fn send(grants: Vec<(Waiter, Permit)>) {
    for (waiter, permit) in grants {
        waiter.mailbox.send(Message::Grant(waiter.key, permit));
    }
}
