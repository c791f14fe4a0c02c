//! Group commit for the logs of one log dir.
//!
//! Owns:     the committer threads (`commit-<dir>-K`) and their loop.
//! Does not: hold any lock across a flush, a chore or a completion (C3 of the
//!           DESIGN, G1 here); touch the log's own lock.
//!
//! [`Committer::appended`] is called by append workers, [`Committer::stall`]
//! and [`Committer::unstall`] by whoever the watchdog tells, the rest by any
//! thread.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::gate::Gate;
use crate::pool::{Load, Pool};
use crate::queue::{Failure, Group, Job, Queue, Refusal, Target};
use crate::watchdog::{Call, CallGuard, Watchdog, Watched};
use seawall_planted::planted;

/// Work of a log's committer that is not a flush.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Chore {
    /// Sync the old segment, make the next one, sync its directory, publish.
    Roll,
    /// Cut the rest of a write that found no space (D5).
    Cut,
    /// Bring a Failed log back: rewrite what is not known to be durable.
    Heal,
}

/// Why a chore was not done.
#[derive(Debug)]
pub enum ChoreError {
    /// No space. The log is as it was; the next append asks again.
    NoSpace(io::Error),
    /// Anything else: the log fails.
    Failed(io::Error),
}

/// One log, as its committer sees it.
pub trait Log: Watched + Sized {
    /// A place in the log, with the file that a flush up to it must sync.
    type Point: Clone + Send + 'static;
    /// Who waits for an acknowledgement.
    type Waiter: Send + 'static;

    /// The log's gate.
    fn gate(&self) -> &Gate<Self::Point, Self::Waiter>;
    /// Syncs the file of `point`. Called with no lock held.
    ///
    /// # Errors
    /// Whatever fsync returned; the log fails and the file is not synced again.
    fn sync(&self, point: &Self::Point) -> io::Result<()>;
    /// Does `chore`; returns the log end behind it. A roll that succeeds has
    /// synced everything before it; after healing all of the log is durable.
    ///
    /// # Errors
    /// See [`ChoreError`].
    fn chore(self: &Arc<Self>, chore: Chore) -> Result<u64, ChoreError>;
    /// A flush acknowledged that many waiters. Must not block.
    fn group_committed(&self, _waiters: usize) {}
    /// A flush came to its end, well or not.
    fn flush_ended(self: &Arc<Self>) {}
    /// Appends what waits in the lane and calls [`Committer::appended`], as an
    /// append worker does.
    fn drain(self: &Arc<Self>);
    /// A chore came to its end, well or not: appends may go on.
    fn chore_ended(self: &Arc<Self>, chore: Chore, no_space: bool);
    /// Everything before `point` is durable. Called after the waiters are
    /// released, so it may take the log's own lock.
    fn synced(self: &Arc<Self>, point: &Self::Point);
    /// Whether the claim on the log dir is fresh (D7). Does no I/O.
    fn is_owner(&self) -> bool;
    /// Releases a waiter. Must not block.
    fn release(&self, waiter: Self::Waiter, outcome: Result<(), Refusal>);
    /// The high watermark moved. Must not block.
    fn advanced(&self, high_watermark: u64);
    /// The health changed; the gate tells to what. Must not block nor take the
    /// log's own lock. Two changes may be told in either order.
    fn health_changed(&self);
}

/// Sizes and times of one [`Committer`].
#[derive(Clone, Debug)]
pub struct CommitterConfig {
    /// Threads are named `<name>-K`; 15 bytes are visible.
    pub name: String,
    /// Most threads; beyond them logs queue.
    pub threads_max: usize,
    /// How long a thread waits for work before it ends.
    pub idle_timeout: Duration,
    /// Bytes not flushed after which a flush is started that nobody waits for.
    pub background_bytes: u64,
}

struct Scheduled<L: Log> {
    committer: Arc<Committer<L>>,
    log: Arc<L>,
    /// Watches the wait for a thread.
    waiting: CallGuard,
}

/// Group commit for the logs of one log dir.
pub struct Committer<L: Log> {
    pool: Arc<Pool<Scheduled<L>>>,
    watchdog: Arc<Watchdog>,
    background_bytes: u64,
}

type Settled<L> = Vec<(<L as Log>::Waiter, Result<(), Refusal>)>;

impl<L: Log> Committer<L> {
    /// A committer without threads yet.
    #[must_use]
    pub fn new(config: CommitterConfig, watchdog: Arc<Watchdog>) -> Arc<Self> {
        Arc::new(Self {
            pool: Arc::new(Pool::new(
                config.name,
                config.threads_max,
                config.idle_timeout,
            )),
            watchdog,
            background_bytes: config.background_bytes,
        })
    }

    /// Takes in what an append worker wrote. Waiters whose policy is satisfied
    /// are released here, the others by the flush that covers them.
    ///
    /// Calls for one log must come in log order, one at a time.
    pub fn appended(self: &Arc<Self>, log: &Arc<L>, group: Group<L::Point, L::Waiter>) {
        let mut settled = Vec::new();
        let mut queue = log.gate().lock();
        queue.admit(group, &mut settled);
        if queue.bytes_unflushed() >= self.background_bytes {
            queue.request_flush();
        }
        let moved = log.gate().publish(&queue);
        let schedule = queue.claim_schedule();
        drop(queue);
        if schedule {
            self.schedule(log);
        }
        Self::settle(log, settled, moved);
    }

    /// Asks for `chore`; [`Log::chore_ended`] tells when it is over. Nothing
    /// may be appended in between.
    pub fn request_chore(self: &Arc<Self>, log: &Arc<L>, chore: Chore) {
        self.request(log, |queue| queue.request_chore(chore));
    }

    /// Asks for [`Log::drain`] by the thread that flushes next: on an idle log
    /// that saves waking one thread to wake another.
    pub fn request_drain(self: &Arc<Self>, log: &Arc<L>) {
        self.request(log, Queue::request_drain);
    }

    /// Asks for [`Chore::Heal`], if the log is Failed.
    pub fn request_heal(self: &Arc<Self>, log: &Arc<L>) {
        self.request(log, Queue::request_heal);
    }

    /// Starts a flush that nobody waits for, if anything is not flushed.
    pub fn flush_in_background(self: &Arc<Self>, log: &Arc<L>) {
        self.request(log, Queue::request_flush);
    }

    fn request(self: &Arc<Self>, log: &Arc<L>, ask: impl FnOnce(&mut Queue<L::Point, L::Waiter>)) {
        let mut queue = log.gate().lock();
        ask(&mut queue);
        let schedule = queue.claim_schedule();
        drop(queue);
        if schedule {
            self.schedule(log);
        }
    }

    /// Latches a failure; everybody who waits is refused.
    pub fn fail(log: &L, failure: Failure) {
        let mut queue = log.gate().lock();
        let waiters = queue.fail(failure);
        log.gate().publish_health(&queue);
        drop(queue);
        Self::refuse(log, waiters, Refusal::Failed(failure));
        log.health_changed();
    }

    /// A call of this log is overdue: everybody who waits is refused.
    pub fn stall(log: &L) {
        let mut queue = log.gate().lock();
        let waiters = queue.stall();
        log.gate().publish_health(&queue);
        drop(queue);
        Self::refuse(log, waiters, Refusal::Stalled);
        log.health_changed();
    }

    /// An overdue call of this log came back.
    pub fn unstall(log: &L) {
        let mut queue = log.gate().lock();
        let online = queue.unstall();
        log.gate().publish_health(&queue);
        drop(queue);
        if online {
            log.health_changed();
        }
    }

    /// How much there is to do. Takes a lock that nobody holds for long.
    #[must_use]
    pub fn load(&self) -> Load {
        self.pool.load()
    }

    /// Lets the threads finish and joins them. Returns how many did not end
    /// before `deadline`: then the stop is unclean.
    pub fn stop(&self, deadline: Instant) -> usize {
        self.pool.stop(deadline)
    }

    fn schedule(self: &Arc<Self>, log: &Arc<L>) {
        let scheduled = Scheduled {
            committer: Arc::clone(self),
            log: Arc::clone(log),
            waiting: self
                .watchdog
                .watch(Arc::clone(log) as Arc<dyn Watched>, Call::FlushWait),
        };
        if let Err((refused, error)) = self.pool.submit(scheduled, serve) {
            log::error!("no committer thread could be started: {error}");
            drop(refused.waiting);
            log.gate().lock().unschedule();
            Self::fail(log, Failure::NoThread);
        }
    }

    fn settle(log: &L, settled: Settled<L>, moved: Option<u64>) {
        if let Some(high_watermark) = moved {
            log.advanced(high_watermark);
        }
        for (waiter, outcome) in settled {
            log.release(waiter, outcome);
        }
    }

    fn refuse(log: &L, waiters: Vec<L::Waiter>, refusal: Refusal) {
        for waiter in waiters {
            log.release(waiter, Err(refusal));
        }
    }

    fn run_job(&self, log: &Arc<L>, job: Job<L::Point>) {
        let call = match job {
            Job::Flush(_) => Call::Flush,
            // The log watches its own writes.
            Job::Drain => return log.drain(),
            Job::Chore(..) => Call::Roll,
        };
        // Held until the outcome is settled, so that a late failure is latched
        // before the log counts as online again.
        let watched = self
            .watchdog
            .watch(Arc::clone(log) as Arc<dyn Watched>, call);
        match job {
            Job::Flush(target) => {
                Self::flush(log, &target);
                log.flush_ended();
            }
            Job::Chore(chore, target) => Self::chore(log, chore, &target),
            Job::Drain => {}
        }
        drop(watched);
    }

    fn flush(log: &Arc<L>, target: &Target<L::Point>) {
        if planted("ack-before-fsync") {
            Self::flushed(log, target);
            drop(target.point.as_ref().map(|p| log.sync(p)));
            return;
        }
        let mut synced = target.point.as_ref().map_or(Ok(()), |p| log.sync(p));
        if synced.is_err() && planted("sync-tried-again") {
            synced = target.point.as_ref().map_or(Ok(()), |p| log.sync(p));
        }
        let late = planted("target-sampled-late").then(|| log.gate().lock().sample());
        let target = late.as_ref().unwrap_or(target);
        match synced {
            Ok(()) => Self::flushed(log, target),
            Err(error) => Self::failed(log, &error),
        }
    }

    fn chore(log: &Arc<L>, chore: Chore, target: &Target<L::Point>) {
        match (chore, log.chore(chore)) {
            (Chore::Roll, Ok(_)) => Self::flushed(log, target),
            (Chore::Cut, Ok(_)) => log.gate().lock().abandon_flight(),
            (Chore::Heal, Ok(end)) => Self::healed(log, end),
            (Chore::Heal, Err(ChoreError::NoSpace(error) | ChoreError::Failed(error))) => {
                log::warn!("not healed yet: {error}");
                return log.gate().lock().abandon_flight();
            }
            (_, Err(ChoreError::NoSpace(error))) => {
                log::warn!("no space for a {chore:?}: {error}");
                log.gate().lock().abandon_flight();
                return log.chore_ended(chore, true);
            }
            (_, Err(ChoreError::Failed(error))) => Self::failed(log, &error),
        }
        log.chore_ended(chore, false);
    }

    fn healed(log: &L, end: u64) {
        let mut queue = log.gate().lock();
        queue.healed(end);
        let high_watermark = log.gate().publish_healed(&queue);
        drop(queue);
        log.advanced(high_watermark);
        log.health_changed();
    }

    fn failed(log: &L, error: &io::Error) {
        log::error!("a flush or roll failed, the partition is offline for appends: {error}");
        Self::fail(log, Failure::Io(error.kind()));
    }

    /// The flush came back with success: publish, then release (D2, D1).
    fn flushed(log: &Arc<L>, target: &Target<L::Point>) {
        // D7: a claim that went stale during the flush acknowledges and shows
        // nothing.
        let owner = log.is_owner();
        let mut queue = log.gate().lock();
        let waiters = queue.complete(target);
        let moved = if owner {
            log.gate().publish(&queue)
        } else {
            None
        };
        drop(queue);
        let outcome = owner.then_some(()).ok_or(Refusal::NotOwner);
        log.group_committed(waiters.len());
        let settled = waiters.into_iter().map(|w| (w, outcome)).collect();
        Self::settle(log, settled, moved);
        if let Some(point) = &target.point {
            log.synced(point);
        }
    }
}

/// What a committer thread does for one scheduled log.
fn serve<L: Log>(pool: &Arc<Pool<Scheduled<L>>>, scheduled: Scheduled<L>) {
    let Scheduled {
        committer,
        log,
        waiting,
    } = scheduled;
    drop(waiting);
    let worked = catch_unwind(AssertUnwindSafe(|| drain(pool, &committer, &log)));
    if worked.is_err() {
        log::error!("a committer thread panicked; its partition goes offline");
        log.gate().lock().unschedule();
        Committer::fail(&*log, Failure::Panicked);
    }
}

fn drain<L: Log>(pool: &Arc<Pool<Scheduled<L>>>, committer: &Arc<Committer<L>>, log: &Arc<L>) {
    loop {
        let next = log.gate().lock().next_job();
        let Some(job) = next else {
            if planted("given-back-late") {
                log.gate().lock().unschedule();
            }
            return;
        };
        committer.run_job(log, job);
        if pool.is_crowded() {
            return committer.schedule(log);
        }
    }
}
