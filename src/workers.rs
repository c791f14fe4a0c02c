//! A fixed pool of named threads with one queue.
//!
//! Owns:     its threads and jobs that were not started yet.
//! Does not: know what a job does. A panicking job is logged; the thread goes
//!           on, and what the job owned is dropped, which settles it.
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

type Job = Box<dyn FnOnce() + Send>;

/// A fixed pool of threads.
pub struct Workers {
    name: String,
    jobs: Mutex<Option<Sender<Job>>>,
    ended: Receiver<()>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    /// Starts `count` threads named `<name>-N`.
    ///
    /// # Errors
    /// A thread could not be started; those that were are ended again.
    pub fn start(name: &str, count: usize) -> io::Result<Arc<Self>> {
        let (sender, receiver) = unbounded::<Job>();
        let (alive, ended) = crossbeam_channel::bounded(0);
        let mut threads = Vec::with_capacity(count);
        for n in 0..count {
            let receiver = receiver.clone();
            let alive: Sender<()> = alive.clone();
            threads.push(
                std::thread::Builder::new()
                    .name(format!("{name}-{n}"))
                    .stack_size(512 * 1024)
                    .spawn(move || {
                        run(&receiver);
                        drop(alive);
                    })?,
            );
        }
        Ok(Arc::new(Self {
            name: name.to_owned(),
            jobs: Mutex::new(Some(sender)),
            ended,
            threads: Mutex::new(threads),
        }))
    }

    /// Queues a job. After [`Workers::stop`] it is dropped instead.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let sent = self.jobs.lock().as_ref().map(|s| s.send(Box::new(job)));
        if !matches!(sent, Some(Ok(()))) {
            log::debug!("{}: a job came after the stop and was dropped", self.name);
        }
    }

    /// Lets the queue run dry and joins the threads. Says whether they all
    /// ended before `deadline`.
    pub fn stop(&self, deadline: Instant) -> bool {
        drop(self.jobs.lock().take());
        // Each thread holds a sender of `ended`; the channel disconnects when
        // the last one is gone.
        let gone = self.ended.recv_deadline(deadline)
            == Err(crossbeam_channel::RecvTimeoutError::Disconnected);
        if gone {
            for thread in self.threads.lock().drain(..) {
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
