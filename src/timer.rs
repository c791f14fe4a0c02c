//! One thread that knows every deadline: produces, fetches, later sessions.
//!
//! Owns:     the heap of deadlines and the thread `timer`.
//! Does not: do the work of a deadline; it hands it to the `work-N` pool.
//!
//! # Invariants
//! T1. An action runs at most once, and not after its guard was dropped and
//!     the drop has returned, unless it had been handed over before.
//! T2. The lock is a leaf; nothing is called while it is held.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::workers::Workers;

type Action = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    deadlines: BTreeMap<(Instant, u64), Action>,
    next_id: u64,
    /// When the thread wakes by itself; `None` if it waits to be woken. It may be
    /// early, for a deadline that was cancelled: that costs one look, where
    /// waking the thread for every deadline would cost a switch each.
    wakes_at: Option<Instant>,
    stopping: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The timer thread.
pub struct Timer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A pending deadline; dropping it cancels the action.
#[must_use = "a deadline that is not held is cancelled"]
pub struct Deadline {
    shared: Arc<Shared>,
    key: (Instant, u64),
}

impl Timer {
    /// Starts the thread; due actions go to `work`.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(work: Arc<Workers>) -> io::Result<Arc<Self>> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("timer".into())
            .spawn(move || {
                while let Some(action) = next_due(&of_thread) {
                    work.submit(action);
                }
            })?;
        Ok(Arc::new(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Runs `action` at `when`, unless the guard is dropped before.
    pub fn at(&self, when: Instant, action: impl FnOnce() + Send + 'static) -> Deadline {
        let mut state = self.shared.state.lock();
        state.next_id += 1;
        let key = (when, state.next_id);
        state.deadlines.insert(key, Box::new(action));
        let sleeps_too_long = state.wakes_at.is_none_or(|wakes| when < wakes);
        drop(state);
        if sleeps_too_long {
            self.shared.changed.notify_one();
        }
        Deadline {
            shared: Arc::clone(&self.shared),
            key,
        }
    }

    /// How many actions are pending.
    pub fn pending(&self) -> usize {
        self.shared.state.lock().deadlines.len()
    }

    /// Ends the thread; pending actions are forgotten.
    pub fn stop(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            log::error!("the timer thread had panicked");
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // The action is dropped after the lock is released: it may own things
        // whose own drop cancels other deadlines.
        let action = self.shared.state.lock().deadlines.remove(&self.key);
        drop(action);
    }
}

fn next_due(shared: &Shared) -> Option<Action> {
    let mut state = shared.state.lock();
    while !state.stopping {
        let Some(first) = state.deadlines.first_entry() else {
            state.wakes_at = None;
            shared.changed.wait(&mut state);
            continue;
        };
        let when = first.key().0;
        if Instant::now() >= when {
            return Some(first.remove());
        }
        state.wakes_at = Some(when);
        shared.changed.wait_until(&mut state, when);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    fn timer() -> (Arc<Timer>, Arc<Workers>) {
        let work = Workers::start("work", 1).unwrap();
        (Timer::start(Arc::clone(&work)).unwrap(), work)
    }

    #[test]
    fn actions_run_in_the_order_of_their_deadlines() {
        let (timer, work) = timer();
        let (sender, ran) = mpsc::channel();
        let now = Instant::now();
        let pending: Vec<Deadline> = [20_u64, 5, 10]
            .into_iter()
            .map(|ms| {
                let sender = sender.clone();
                timer.at(now + Duration::from_millis(ms), move || {
                    sender.send(ms).unwrap();
                })
            })
            .collect();
        let patience = Duration::from_secs(30);
        let order: Vec<u64> = (0..3)
            .map(|_| ran.recv_timeout(patience).unwrap())
            .collect();
        assert_eq!(order, [5, 10, 20]);
        drop(pending);
        timer.stop();
        work.stop(Instant::now() + patience);
    }

    #[test]
    fn a_dropped_deadline_never_runs() {
        let (timer, work) = timer();
        let (sender, ran) = mpsc::channel::<()>();
        let soon = Instant::now() + Duration::from_secs(3600);
        drop(timer.at(soon, move || sender.send(()).unwrap()));
        assert_eq!(
            ran.recv_timeout(Duration::from_secs(30)),
            Err(mpsc::RecvTimeoutError::Disconnected),
            "the action and what it owns are gone at once"
        );
        timer.stop();
        work.stop(Instant::now() + Duration::from_secs(30));
    }
}
