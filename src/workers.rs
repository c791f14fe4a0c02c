//! A pool of named threads with one queue.
//!
//! Owns:     its threads and jobs that were not started yet.
//! Does not: know what a job does. A panicking job is logged; the thread goes
//!           on, and what the job owned is dropped, which settles it.
//!
//! The pool has a fixed size, but for stand-ins: a thread that hangs in a call
//! to the disk is replaced until it comes back, so that what hangs is the call
//! and not everybody behind it.
//!
//! The queue has no limit of its own: every job belongs to a request, a lane
//! or a partition, and those are bounded where they are admitted.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use parking_lot::{Condvar, Mutex};
use seawall_net::Spin;

enum Job {
    Run(Box<dyn FnOnce() + Send>),
    /// Whoever takes it ends its thread.
    Leave,
}

/// Jobs that wait for a thread, and threads that wait for a job.
///
/// One of them may look for a job instead of sleeping: who brings the only one need not wake anybody then.
struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
    /// How many jobs there are, for who looks without the lock.
    len: AtomicUsize,
}

struct Waiting {
    jobs: VecDeque<Job>,
    closed: bool,
    /// Threads that sleep.
    idle: usize,
    /// Since when a thread has slept while no job came.
    idle_since: Option<Instant>,
    looking: bool,
    spin: Spin,
}

impl Queue {
    fn new() -> Self {
        Self {
            state: Mutex::new(Waiting {
                jobs: VecDeque::new(),
                closed: false,
                idle: 0,
                idle_since: None,
                looking: false,
                spin: Spin::for_this_machine(),
            }),
            changed: Condvar::new(),
            len: AtomicUsize::new(0),
        }
    }

    /// Adds a job, unless the queue is closed; says which.
    fn push(&self, job: Job) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        if let Some(since) = state.idle_since.take() {
            state.spin.slept(since.elapsed());
        }
        state.jobs.push_back(job);
        self.len.store(state.jobs.len(), Ordering::Release);
        let expected = usize::from(state.looking);
        let wake = state.idle > 0 && state.jobs.len() > expected;
        drop(state);
        if wake {
            self.changed.notify_one();
        }
        true
    }

    /// The next job; `None` when the queue is closed and dry.
    fn pop(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                self.len.store(state.jobs.len(), Ordering::Release);
                return Some(job);
            }
            if state.closed {
                return None;
            }
            if !state.looking && state.spin.is_on() {
                state.looking = true;
                let mut spin = state.spin;
                drop(state);
                spin.look(|| (self.len.load(Ordering::Acquire) > 0).then_some(()));
                state = self.state.lock();
                state.looking = false;
                state.spin = spin;
                if !state.jobs.is_empty() || state.closed {
                    continue;
                }
            }
            state.idle += 1;
            state.idle_since.get_or_insert_with(Instant::now);
            self.changed.wait(&mut state);
            state.idle -= 1;
        }
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

/// Most stand-ins of a pool at a time: a mount that swallows this many threads
/// is gone, and more would not help those who wait for it.
const STAND_INS_MAX: usize = 64;

/// A pool of threads.
pub struct Workers {
    name: String,
    queue: Arc<Queue>,
    /// Disconnected when all threads are gone: each holds a sender.
    ended: Receiver<()>,
    threads: Mutex<Threads>,
}

struct Threads {
    handles: Vec<JoinHandle<()>>,
    alive: Option<Sender<()>>,
    started: usize,
    stand_ins: usize,
}

impl Workers {
    /// Starts `count` threads named `<name>-N`.
    ///
    /// # Errors
    /// A thread could not be started; those that were are ended again.
    pub fn start(name: &str, count: usize) -> io::Result<Arc<Self>> {
        let (alive, ended) = crossbeam_channel::bounded(0);
        let workers = Arc::new(Self {
            name: name.to_owned(),
            queue: Arc::new(Queue::new()),
            ended,
            threads: Mutex::new(Threads {
                handles: Vec::with_capacity(count),
                alive: Some(alive),
                started: 0,
                stand_ins: 0,
            }),
        });
        let mut threads = workers.threads.lock();
        for _ in 0..count {
            workers.spawn(&mut threads)?;
        }
        drop(threads);
        Ok(workers)
    }

    fn spawn(&self, threads: &mut Threads) -> io::Result<()> {
        let Some(alive) = threads.alive.clone() else {
            return Ok(());
        };
        let queue = Arc::clone(&self.queue);
        let handle = std::thread::Builder::new()
            .name(format!("{}-{}", self.name, threads.started))
            .stack_size(512 * 1024)
            .spawn(move || {
                run(&queue);
                drop(alive);
            })?;
        threads.started += 1;
        threads.handles.retain(|handle| !handle.is_finished());
        threads.handles.push(handle);
        Ok(())
    }

    /// One of the threads hangs: another takes its place. Says whether there is
    /// one; then [`Workers::dismiss`] must follow when it is back.
    pub fn stand_in(&self) -> bool {
        let mut threads = self.threads.lock();
        if threads.stand_ins >= STAND_INS_MAX {
            return false;
        }
        let started = self.spawn(&mut threads);
        if let Err(error) = &started {
            log::error!(
                "{}: no stand-in for a thread that hangs: {error}",
                self.name
            );
        }
        threads.stand_ins += usize::from(started.is_ok());
        started.is_ok()
    }

    /// The thread that hung is back: one of the pool ends.
    pub fn dismiss(&self) {
        let mut threads = self.threads.lock();
        threads.stand_ins = threads.stand_ins.saturating_sub(1);
        drop(threads);
        self.send(Job::Leave);
    }

    /// Queues a job. After [`Workers::stop`] it is dropped instead.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) {
        self.send(Job::Run(Box::new(job)));
    }

    /// Jobs that wait for a thread.
    pub fn queued(&self) -> usize {
        self.queue.len.load(Ordering::Acquire)
    }

    fn send(&self, job: Job) {
        if !self.queue.push(job) {
            log::debug!("{}: a job came after the stop and was dropped", self.name);
        }
    }

    /// Lets the queue run dry and joins the threads. Says whether they all
    /// ended before `deadline`.
    pub fn stop(&self, deadline: Instant) -> bool {
        self.queue.close();
        drop(self.threads.lock().alive.take());
        let gone = self.ended.recv_deadline(deadline)
            == Err(crossbeam_channel::RecvTimeoutError::Disconnected);
        if gone {
            for thread in self.threads.lock().handles.drain(..) {
                if thread.join().is_err() {
                    log::error!("a thread of {} had panicked", self.name);
                }
            }
        }
        gone
    }
}

fn run(queue: &Queue) {
    while let Some(job) = queue.pop() {
        let Job::Run(job) = job else { return };
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            log::error!("a job panicked; what it owned is settled as failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_panicking_job_does_not_take_its_thread_along() {
        let workers = Workers::start("work", 1).unwrap();
        let (sender, ran) = mpsc::channel();
        workers.submit(|| panic!("planted"));
        workers.submit(move || sender.send(7).unwrap());
        assert_eq!(ran.recv_timeout(Duration::from_secs(30)), Ok(7));
        assert!(workers.stop(Instant::now() + Duration::from_secs(30)));
    }

    #[test]
    fn a_stand_in_works_while_a_thread_hangs_and_leaves_afterwards() {
        let workers = Workers::start("work", 1).unwrap();
        let (let_go, hangs) = mpsc::channel::<()>();
        let (sender, ran) = mpsc::channel();
        let back = sender.clone();
        workers.submit(move || {
            hangs.recv().unwrap();
            back.send("back").unwrap();
        });
        let patience = Duration::from_secs(30);
        assert!(workers.stand_in());
        let behind = sender.clone();
        workers.submit(move || behind.send("behind").unwrap());
        assert_eq!(ran.recv_timeout(patience), Ok("behind"));
        let_go.send(()).unwrap();
        assert_eq!(ran.recv_timeout(patience), Ok("back"));
        workers.dismiss();
        workers.submit(move || sender.send("after").unwrap());
        assert_eq!(ran.recv_timeout(patience), Ok("after"), "one is left");
        assert!(workers.stop(Instant::now() + patience));
    }

    #[test]
    fn every_job_is_run_whether_threads_sleep_or_look() {
        let workers = Workers::start("work", 2).unwrap();
        let patience = Duration::from_secs(30);
        let (sender, ran) = mpsc::channel();
        // One at a time, so close together that a thread begins to look; then bursts, then pauses.
        for n in 0..20_000_usize {
            let back = sender.clone();
            workers.submit(move || back.send(n).unwrap());
            if n % 1_000 < 900 {
                assert_eq!(ran.recv_timeout(patience), Ok(n));
            } else if n % 1_000 == 999 {
                let burst: usize = (0..100).map(|_| ran.recv_timeout(patience).unwrap()).sum();
                assert_eq!(burst, (n - 99..=n).sum::<usize>());
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
        assert_eq!(workers.queued(), 0);
        assert!(workers.stop(Instant::now() + patience));
    }

    #[test]
    fn stop_runs_what_was_queued() {
        let workers = Workers::start("work", 2).unwrap();
        let (sender, ran) = mpsc::channel();
        for n in 0..100 {
            let sender = sender.clone();
            workers.submit(move || sender.send(n).unwrap());
        }
        assert!(workers.stop(Instant::now() + Duration::from_secs(30)));
        drop(sender);
        assert_eq!(ran.iter().count(), 100);
    }
}
