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

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

enum Job {
    Run(Box<dyn FnOnce() + Send>),
    /// Whoever takes it ends its thread.
    Leave,
}

/// Most stand-ins of a pool at a time: a mount that swallows this many threads
/// is gone, and more would not help those who wait for it.
const STAND_INS_MAX: usize = 64;

/// A pool of threads.
pub struct Workers {
    name: String,
    jobs: Mutex<Option<Sender<Job>>>,
    receiver: Receiver<Job>,
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
        let (sender, receiver) = unbounded::<Job>();
        let (alive, ended) = crossbeam_channel::bounded(0);
        let workers = Arc::new(Self {
            name: name.to_owned(),
            jobs: Mutex::new(Some(sender)),
            receiver,
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
        let receiver = self.receiver.clone();
        let handle = std::thread::Builder::new()
            .name(format!("{}-{}", self.name, threads.started))
            .stack_size(512 * 1024)
            .spawn(move || {
                run(&receiver);
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
        self.receiver.len()
    }

    fn send(&self, job: Job) {
        let sent = self.jobs.lock().as_ref().map(|s| s.send(job));
        if !matches!(sent, Some(Ok(()))) {
            log::debug!("{}: a job came after the stop and was dropped", self.name);
        }
    }

    /// Lets the queue run dry and joins the threads. Says whether they all
    /// ended before `deadline`.
    pub fn stop(&self, deadline: Instant) -> bool {
        drop(self.jobs.lock().take());
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

fn run(jobs: &Receiver<Job>) {
    for job in jobs {
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
