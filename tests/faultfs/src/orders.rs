//! Standing orders: which calls below which path hang, wait or fail.
//!
//! Owns:     the list of orders, and the calls that hang by them.
//! Does not: perform calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What an order is about.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Call {
    /// fsync and fdatasync of a file.
    Sync,
    /// fsync of a directory.
    SyncDir,
    /// write, in every form.
    Write,
    /// Making a file or a directory.
    Create,
    /// rename; the path is the one it is renamed from.
    Rename,
    /// read, in every form.
    Read,
    /// statfs, which tells of no path: only orders about everything concern it.
    StatFs,
}

/// The error of a failing call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Errno {
    /// EIO
    Io,
    /// ENOSPC
    NoSpace,
    /// EDQUOT
    Quota,
    /// ESTALE
    Stale,
}

/// What happens to the calls of an order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// They are done when the order is lifted.
    Hang,
    /// They are done after this time, or when the order is lifted.
    Delay(Duration),
    /// They fail. A failed fsync leaves its bytes in the page cache (F2).
    Fail(Errno),
    /// As `Fail`, and what the fsync was for is gone from the page cache at once.
    FailAndEvict(Errno),
    /// A `Sync` or `SyncDir` is answered with success and nothing is done, as by a cache without a battery.
    Lie,
}

/// What to do with a call now.
pub(crate) enum Ruling {
    /// No order concerns it.
    Go,
    /// Hand it to [`Orders::hold`].
    Hold(u64, Option<Duration>),
    Fail {
        errno: Errno,
        evict: bool,
    },
    /// Say that it is done.
    Lie,
}

/// A call that hangs: told `true` to be done, `false` to be answered EIO.
pub(crate) type Held = Box<dyn FnOnce(bool) + Send>;

struct Order {
    call: Call,
    prefix: String,
    fault: Fault,
    times_left: u64,
    hits: u64,
    held: Vec<Held>,
}

#[derive(Default)]
struct Book {
    orders: BTreeMap<u64, Order>,
    next: u64,
    closed: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Orders {
    book: Mutex<Book>,
    changed: Condvar,
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn give(
        self: &Arc<Self>,
        call: Call,
        prefix: &str,
        fault: Fault,
        times: u64,
    ) -> Standing {
        let mut book = self.lock();
        let id = book.next;
        book.next += 1;
        let order = Order {
            call,
            prefix: prefix.to_owned(),
            fault,
            times_left: times,
            hits: 0,
            held: Vec::new(),
        };
        book.orders.insert(id, order);
        drop(book);
        Standing {
            orders: Arc::clone(self),
            id,
        }
    }

    /// The oldest order that concerns a call decides.
    pub(crate) fn rule(&self, call: Call, path: &str) -> Ruling {
        let mut book = self.lock();
        let concerned = book
            .orders
            .iter_mut()
            .find(|(_, o)| o.call == call && o.times_left > 0 && path.starts_with(&o.prefix));
        let Some((id, order)) = concerned else {
            return Ruling::Go;
        };
        let id = *id;
        order.hits += 1;
        order.times_left -= 1;
        let ruling = match order.fault {
            Fault::Hang => Ruling::Hold(id, None),
            Fault::Delay(time) => Ruling::Hold(id, Some(time)),
            Fault::Fail(errno) => Ruling::Fail {
                errno,
                evict: false,
            },
            Fault::FailAndEvict(errno) => Ruling::Fail { errno, evict: true },
            Fault::Lie => Ruling::Lie,
        };
        drop(book);
        self.changed.notify_all();
        ruling
    }

    /// Keeps a call until its order is lifted or its time is over.
    pub(crate) fn hold(self: &Arc<Self>, id: u64, time: Option<Duration>, held: Held) {
        let mut book = self.lock();
        let closed = book.closed;
        let Some(order) = book.orders.get_mut(&id).filter(|_| !closed) else {
            drop(book);
            held(!closed);
            return;
        };
        match time {
            None => order.held.push(held),
            Some(time) => {
                drop(book);
                let orders = Arc::clone(self);
                thread::spawn(move || held(orders.wait_out(id, Instant::now() + time)));
            }
        }
    }

    fn wait_out(&self, id: u64, until: Instant) -> bool {
        let mut book = self.lock();
        while !book.closed && book.orders.contains_key(&id) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(book, left);
            book = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        !book.closed
    }

    fn lift(&self, id: u64) {
        let order = self.lock().orders.remove(&id);
        self.changed.notify_all();
        for held in order.into_iter().flat_map(|order| order.held) {
            held(true);
        }
    }

    /// The mount ends (F3).
    pub(crate) fn close(&self) {
        let mut book = self.lock();
        book.closed = true;
        let orders = std::mem::take(&mut book.orders);
        drop(book);
        self.changed.notify_all();
        for held in orders.into_values().flat_map(|order| order.held) {
            held(false);
        }
    }
}

/// An order in force. Dropping it lifts it: calls that hang by it are done, and later ones are not concerned.
#[must_use = "dropping the order lifts it"]
pub struct Standing {
    orders: Arc<Orders>,
    id: u64,
}

impl Standing {
    /// How many calls it has concerned.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.orders
            .lock()
            .orders
            .get(&self.id)
            .map_or(0, |order| order.hits)
    }

    /// Waits until it has concerned `hits` calls.
    ///
    /// # Panics
    /// When that takes longer than `within`.
    pub fn wait_for_hits(&self, hits: u64, within: Duration) {
        let until = Instant::now() + within;
        let mut book = self.orders.lock();
        loop {
            let now = book.orders.get(&self.id).map_or(0, |order| order.hits);
            if now >= hits {
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{now} of {hits} calls came to the order");
            let waited = self.orders.changed.wait_timeout(book, left);
            book = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// As dropping it.
    pub fn lift(self) {}
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.orders.lift(self.id);
    }
}
