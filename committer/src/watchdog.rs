//! Notices I/O calls, and waits for a thread, that take too long.
//!
//! Owns:     the start times of everything in flight, one thread.
//! Does not: do I/O, or hold its lock while it tells somebody.
//!
//! # Invariants
//! W1. For each watched call: `overdue` at most once, and `recovered` exactly
//!     once after each `overdue`.
//! W2. The registry lock is a leaf: nothing is called while it is held.
//! W3. A call that begins while the thread sleeps is due after the thread wakes:
//!     it never sleeps for longer than the timeout. So nobody wakes it, and a
//!     call costs no switch of threads.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seawall_planted::planted;

use crate::sync::{Builder, Condvar, JoinHandle, Mutex};

/// What is being waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Call {
    /// A write of an append worker.
    Append,
    /// A read of a read worker.
    Read,
    /// An fsync.
    Flush,
    /// Making a new segment, or cutting a torn write.
    Roll,
    /// The head of a lane waits for an append worker.
    LaneWait,
    /// A flush request waits for a committer thread.
    FlushWait,
}

/// Whoever answers for a call that hangs.
pub trait Watched: Send + Sync + 'static {
    /// The call has been running for longer than the stall timeout.
    fn overdue(&self, call: Call);
    /// An overdue call has come back.
    fn recovered(&self, call: Call);
}

struct Entry {
    call: Call,
    owner: Arc<dyn Watched>,
}

/// Calls of one kind that have not come back.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct InFlight {
    /// How many.
    pub count: usize,
    /// How long the oldest of them has been running.
    pub age: Duration,
}

impl Call {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Append,
        Self::Read,
        Self::Flush,
        Self::Roll,
        Self::LaneWait,
        Self::FlushWait,
    ];

    /// One word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Read => "read",
            Self::Flush => "flush",
            Self::Roll => "roll",
            Self::LaneWait => "lane_wait",
            Self::FlushWait => "flush_wait",
        }
    }
}

type Key = (Instant, u64);

#[derive(Default)]
struct Registry {
    in_flight: BTreeMap<Key, Entry>,
    /// Those that were reported and have not come back.
    hung: BTreeMap<Key, Call>,
    /// The call whose owner is being told that it is overdue.
    telling: Option<Telling>,
    next_id: u64,
    stopping: bool,
}

struct Telling {
    key: Key,
    came_back: bool,
}

struct Shared {
    registry: Mutex<Registry>,
    changed: Condvar,
    timeout: Duration,
}

/// The watchdog thread and its registry.
pub struct Watchdog {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A call in flight; dropping it says that the call came back.
#[must_use = "a call that is not held is not watched"]
pub struct CallGuard {
    shared: Arc<Shared>,
    key: Key,
    call: Call,
    owner: Arc<dyn Watched>,
}

impl Watchdog {
    /// Starts the thread `watchdog`. `timeout` is the stall timeout.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(timeout: Duration) -> io::Result<Arc<Self>> {
        let shared = Arc::new(Shared {
            registry: Mutex::new(Registry::default()),
            changed: Condvar::new(),
            timeout,
        });
        let of_thread = Arc::clone(&shared);
        let thread = Builder::new()
            .name("watchdog".into())
            .spawn(move || run(&of_thread))?;
        Ok(Arc::new(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Watches a call that begins now, until the guard is dropped.
    pub fn watch(&self, owner: Arc<dyn Watched>, call: Call) -> CallGuard {
        let mut registry = self.shared.registry.lock();
        registry.next_id += 1;
        let key: Key = (Instant::now(), registry.next_id);
        let entry = Entry {
            call,
            owner: Arc::clone(&owner),
        };
        registry.in_flight.insert(key, entry);
        drop(registry);
        CallGuard {
            shared: Arc::clone(&self.shared),
            key,
            call,
            owner,
        }
    }

    /// What has not come back yet, by kind.
    #[must_use]
    pub fn in_flight(&self) -> [(Call, InFlight); Call::ALL.len()] {
        let mut seen = Call::ALL.map(|call| (call, InFlight::default()));
        let registry = self.shared.registry.lock();
        let now = Instant::now();
        let hung = registry.hung.iter().map(|(key, call)| (key, *call));
        let others = registry.in_flight.iter();
        for (key, call) in hung.chain(others.map(|(key, entry)| (key, entry.call))) {
            if let Some((_, of_kind)) = seen.iter_mut().find(|row| row.0 == call) {
                of_kind.count += 1;
                of_kind.age = of_kind.age.max(now.saturating_duration_since(key.0));
            }
        }
        seen
    }

    /// Ends the thread and joins it.
    pub fn stop(&self) {
        self.shared.registry.lock().stopping = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            log::error!("the watchdog thread had panicked");
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut registry = self.shared.registry.lock();
        if registry.in_flight.remove(&self.key).is_some() {
            return;
        }
        registry.hung.remove(&self.key);
        // W1: the watchdog took the entry out to report it. While it does, it
        // reports the return too, behind that.
        if let Some(telling) = &mut registry.telling
            && telling.key == self.key
            && !planted("return-told-first")
        {
            telling.came_back = true;
            return;
        }
        drop(registry);
        self.owner.recovered(self.call);
    }
}

fn run(shared: &Shared) {
    while let Some(entry) = next_overdue(shared) {
        entry.owner.overdue(entry.call);
        let told = shared.registry.lock().telling.take();
        if told.is_some_and(|telling| telling.came_back) {
            entry.owner.recovered(entry.call);
        }
    }
}

/// Waits for the next overdue call; `None` when the watchdog is stopped.
fn next_overdue(shared: &Shared) -> Option<Entry> {
    let mut registry = shared.registry.lock();
    while !registry.stopping {
        let now = Instant::now();
        let oldest = registry.in_flight.keys().next().copied();
        match oldest {
            Some(key) if now >= key.0 + shared.timeout => {
                let came_back = false;
                registry.telling = Some(Telling { key, came_back });
                let entry = registry.in_flight.remove(&key);
                if let Some(entry) = &entry {
                    registry.hung.insert(key, entry.call);
                }
                return entry;
            }
            // W3: the oldest is due within the timeout from now.
            Some(key) => shared
                .changed
                .wait_until(&mut registry, key.0 + shared.timeout),
            None => shared
                .changed
                .wait_until(&mut registry, now + shared.timeout),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    struct Reports(mpsc::Sender<(&'static str, Call)>);

    impl Watched for Reports {
        fn overdue(&self, call: Call) {
            self.0.send(("overdue", call)).unwrap();
        }
        fn recovered(&self, call: Call) {
            self.0.send(("recovered", call)).unwrap();
        }
    }

    #[test]
    fn a_call_that_hangs_is_reported_and_its_return_too() {
        let watchdog = Watchdog::start(Duration::from_millis(5)).unwrap();
        let (sender, reports) = mpsc::channel();
        let guard = watchdog.watch(Arc::new(Reports(sender)), Call::Flush);
        let patience = Duration::from_secs(30);
        assert_eq!(
            reports.recv_timeout(patience).unwrap(),
            ("overdue", Call::Flush)
        );
        let hung = watchdog.in_flight().map(|(call, seen)| (call, seen.count));
        assert_eq!(hung.iter().map(|row| row.1).sum::<usize>(), 1);
        assert!(hung.contains(&(Call::Flush, 1)), "it is still in flight");
        drop(guard);
        assert!(watchdog.in_flight().iter().all(|row| row.1.count == 0));
        assert_eq!(
            reports.recv_timeout(patience).unwrap(),
            ("recovered", Call::Flush)
        );
        watchdog.stop();
        assert!(reports.try_recv().is_err(), "W1");
    }

    #[test]
    fn a_call_that_returns_in_time_is_never_reported() {
        let watchdog = Watchdog::start(Duration::from_secs(3600)).unwrap();
        let (sender, reports) = mpsc::channel();
        drop(watchdog.watch(Arc::new(Reports(sender)), Call::Append));
        watchdog.stop();
        assert!(reports.try_recv().is_err());
    }
}
