//! Committer threads of one log dir, started on first need, gone after idling.
//!
//! Owns:     the queue of logs that have something to flush, the threads.
//! Does not: know what a log is or what is done for it.
//!
//! # Invariants
//! P1. A log is queued at most once (its gate's `scheduled` flag).
//! P2. Idling out is decided under the lock that enqueues, so that no log is
//!     queued behind a thread that leaves.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seawall_planted::planted;

use crate::sync::{Builder, Condvar, JoinHandle, Mutex, forget_finished};

/// What a pool has to do, and with whom.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Load {
    /// Logs that wait for a thread.
    pub queued: usize,
    /// Threads that there are.
    pub threads: usize,
}

struct State<T> {
    queue: VecDeque<T>,
    threads: usize,
    idle: usize,
    started: u64,
    stopping: bool,
    handles: Vec<JoinHandle<()>>,
}

/// A pool whose threads run `work` for each queued item.
pub(crate) struct Pool<T: Send + 'static> {
    name: String,
    threads_max: usize,
    idle_timeout: Duration,
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T: Send + 'static> Pool<T> {
    pub(crate) fn new(name: String, threads_max: usize, idle_timeout: Duration) -> Self {
        Self {
            name,
            threads_max,
            idle_timeout,
            state: Mutex::new(State {
                queue: VecDeque::new(),
                threads: 0,
                idle: 0,
                started: 0,
                stopping: false,
                handles: Vec::new(),
            }),
            changed: Condvar::new(),
        }
    }

    /// Queues `item` and makes sure that a thread will take it.
    ///
    /// # Errors
    /// No thread runs and none could be started: the item comes back.
    pub(crate) fn submit(
        self: &Arc<Self>,
        item: T,
        work: fn(&Arc<Self>, T),
    ) -> Result<(), (T, io::Error)> {
        let mut state = self.state.lock();
        state.queue.push_back(item);
        if state.queue.len() <= state.idle {
            drop(state);
            self.changed.notify_one();
            return Ok(());
        }
        if state.threads >= self.threads_max {
            return Ok(());
        }
        match self.spawn(&mut state, work) {
            Ok(()) => Ok(()),
            Err(_) if state.threads > 0 => Ok(()),
            Err(error) => match state.queue.pop_back() {
                Some(item) => Err((item, error)),
                None => Ok(()),
            },
        }
    }

    fn spawn(
        self: &Arc<Self>,
        state: &mut State<T>,
        work: fn(&Arc<Self>, T),
    ) -> Result<(), io::Error> {
        let pool = Arc::clone(self);
        let handle = Builder::new()
            .name(format!("{}-{}", self.name, state.started))
            .stack_size(256 * 1024)
            .spawn(move || {
                while let Some(item) = pool.next() {
                    work(&pool, item);
                }
            })?;
        state.started += 1;
        state.threads += 1;
        forget_finished(&mut state.handles);
        state.handles.push(handle);
        Ok(())
    }

    /// Whether another log waits and no thread is free for it.
    pub(crate) fn is_crowded(&self) -> bool {
        let state = self.state.lock();
        state.queue.len() > state.idle && state.threads >= self.threads_max
    }

    /// How much there is to do.
    pub(crate) fn load(&self) -> Load {
        let state = self.state.lock();
        Load {
            queued: state.queue.len(),
            threads: state.threads,
        }
    }

    fn next(&self) -> Option<T> {
        let mut state = self.state.lock();
        let deadline = Instant::now() + self.idle_timeout;
        while state.queue.is_empty() {
            if state.stopping {
                return self.leave(&mut state);
            }
            state.idle += 1;
            let timeout = self.changed.wait_until(&mut state, deadline);
            state.idle -= 1;
            if timeout.timed_out() && (state.queue.is_empty() || planted("idle-leaves-work")) {
                return self.leave(&mut state);
            }
        }
        state.queue.pop_front()
    }

    /// P2.
    fn leave(&self, state: &mut State<T>) -> Option<T> {
        state.threads -= 1;
        if state.stopping {
            self.changed.notify_all();
        }
        None
    }

    /// Lets the threads finish what is queued and waits for them until
    /// `deadline`. Returns how many did not come back in time.
    pub(crate) fn stop(&self, deadline: Instant) -> usize {
        let mut state = self.state.lock();
        state.stopping = true;
        self.changed.notify_all();
        while state.threads > 0 {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return state.threads;
            }
        }
        for handle in std::mem::take(&mut state.handles) {
            // Every thread has left its loop; the join only waits for its exit.
            if handle.join().is_err() {
                log::error!("a thread of {} had panicked", self.name);
            }
        }
        0
    }
}
