//! The bounded FIFO in front of one partition's append worker.
//!
//! Owns:     batches that wait for their append, parked connections, and
//!           whether an append worker is on its way.
//! Does not: append, or call anybody while its lock is held.
//!
//! Net threads push, one append worker at a time drains, the committer opens
//! and closes.
//!
//! # Invariants
//! L1. A lane is on the run queue at most once (`Phase`).
//! L2. The full check and the registration of a parked connection are one step
//!     under the lock, so that no wake-up is lost.
//! L3. Items leave in the order in which they came.
//! L4. A lane that refuses or closes wakes everybody it parked.
//! L5. Health is asked under the lane's lock, and [`Lane::refuse_all`] comes
//!     after a change of health: no batch slips in between and is forgotten.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use seawall_committer::CallGuard;
use seawall_net::Unparker;

use super::part::{AppendError, LaneItem, Part};
use crate::queued::QueuedBytes;

/// Most batches in a lane: what 128 requests in flight on each of a few dozen
/// connections can bring before the disk has to answer for it.
pub const LANE_ITEMS_MAX: usize = 4096;
/// Most bytes in a lane: two groups of 32 MiB, enough to keep a disk busy.
pub const LANE_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Nothing to do.
    Idle,
    /// On the run queue.
    Scheduled,
    /// An append worker has its items.
    Draining,
    /// Waits for its committer (a roll, a cut).
    Chore,
    /// Nothing is appended while the partition moves.
    Held,
    /// Waits for the flush under way, where a write would wait for it anyway.
    Flushing,
}

/// What comes after a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// The next group.
    Group,
    /// A chore of the committer.
    Chore,
    /// The end of the flush under way.
    Flush,
}

struct State {
    items: VecDeque<LaneItem>,
    bytes: usize,
    phase: Phase,
    closed: Option<AppendError>,
    /// The next rest is a hold.
    hold: bool,
    /// When a hold, begun or not, is over whoever asked for it; `None`: there is
    /// none, or only who asked ends it.
    hold_until: Option<Instant>,
    parked: Vec<Unparker>,
    /// Watches the head's wait for a worker.
    waiting: Option<CallGuard>,
    /// Who is refused if the write in hand hangs.
    draining: Vec<Part>,
}

/// See the module.
pub struct Lane {
    state: Mutex<State>,
}

/// What became of a pushed batch.
pub enum Push {
    /// In the lane.
    Queued {
        /// The caller must put the partition on the run queue.
        schedule: bool,
    },
    /// The lane is full; the unparker is registered, the batch comes back.
    Full(LaneItem),
    /// The lane is closed; the part is for the caller to settle.
    Refused(LaneItem, AppendError),
}

impl Lane {
    /// An empty, open lane.
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State {
                items: VecDeque::new(),
                bytes: 0,
                phase: Phase::Idle,
                closed: None,
                hold: false,
                hold_until: None,
                parked: Vec::new(),
                waiting: None,
                draining: Vec::new(),
            }),
        }
    }

    /// Queues a batch, or says why not.
    pub fn push(&self, item: LaneItem, unparker: &Unparker, around: &impl Around) -> Push {
        let mut state = self.state.lock();
        let closed = state.closed.clone();
        if let Some(error) = closed.or_else(|| around.refusal()) {
            return Push::Refused(item, error);
        }
        let len = item.batch.len();
        let bytes_full = state.bytes + len > LANE_BYTES_MAX && !state.items.is_empty();
        if bytes_full || state.items.len() >= LANE_ITEMS_MAX {
            state.parked.push(unparker.clone());
            return Push::Full(item);
        }
        if !around.queued().try_add(len as u64) {
            return Push::Refused(item, AppendError::DirBusy);
        }
        let schedule = state.take_in(item, around);
        Push::Queued { schedule }
    }

    /// As [`Lane::push`] for a batch of the broker's own, which is never too much.
    pub fn push_own(&self, item: LaneItem, around: &impl Around) -> Push {
        let mut state = self.state.lock();
        let closed = state.closed.clone();
        if let Some(error) = closed.or_else(|| around.refusal()) {
            return Push::Refused(item, error);
        }
        around.queued().add(item.batch.len() as u64);
        let schedule = state.take_in(item, around);
        Push::Queued { schedule }
    }

    /// Everything queued, for the append worker. Parts that were given up in
    /// the meantime are left out. `None` if there is nothing to drain now, or
    /// another drains (L1).
    pub fn take(&self, queued: &QueuedBytes) -> Option<Vec<LaneItem>> {
        let mut state = self.state.lock();
        if state.phase != Phase::Scheduled {
            return None;
        }
        state.phase = Phase::Draining;
        queued.sub(std::mem::take(&mut state.bytes) as u64);
        let items = std::mem::take(&mut state.items);
        let parked = std::mem::take(&mut state.parked);
        let waiting = state.waiting.take();
        drop(state);
        drop(waiting);
        wake(parked);
        let items: Vec<LaneItem> = items.into_iter().filter(|i| i.part.claim()).collect();
        self.state.lock().draining = items.iter().map(|i| i.part.clone()).collect();
        Some(items)
    }

    /// The append worker is done. `deferred` goes back to the head (L3). Returns
    /// whether the partition must be put on the run queue again.
    pub fn done(&self, deferred: Vec<LaneItem>, next: Next, around: &impl Around) -> bool {
        let mut state = self.state.lock();
        state.draining.clear();
        for item in deferred.into_iter().rev() {
            around.queued().add(item.batch.len() as u64);
            state.bytes += item.batch.len();
            state.items.push_front(item);
        }
        match next {
            Next::Group => return state.rest(around),
            Next::Chore => state.phase = Phase::Chore,
            Next::Flush => state.phase = Phase::Flushing,
        }
        false
    }

    /// A flush is over. See [`Lane::done`] for the result.
    pub fn flush_done(&self, around: &impl Around) -> bool {
        let mut state = self.state.lock();
        state.phase == Phase::Flushing && state.rest(around)
    }

    /// A chore of the committer begins by itself; not while anything waits or
    /// is appended, for that finds out what is due.
    pub fn begin_chore(&self) -> bool {
        let mut state = self.state.lock();
        let idle = state.phase == Phase::Idle && state.closed.is_none();
        if idle {
            state.phase = Phase::Chore;
        }
        idle
    }

    /// From the next rest on nothing is taken out, until the hold is ended or
    /// the time has come. What arrives stays queued.
    pub fn hold(&self, until: Instant) {
        let mut state = self.state.lock();
        state.hold_until = Some(until);
        if matches!(state.phase, Phase::Idle) {
            state.phase = Phase::Held;
        } else {
            state.hold = true;
        }
    }

    /// Whether the hold is on and not over; from then on only [`Lane::release`]
    /// ends it.
    pub fn keep_held(&self) -> bool {
        let mut state = self.state.lock();
        let kept = state.phase == Phase::Held && !state.is_hold_over();
        if kept {
            state.hold_until = None;
        }
        kept
    }

    /// Ends a hold whose time is over. See [`Lane::done`] for the result.
    pub fn release_if_over(&self, around: &impl Around) -> bool {
        let mut state = self.state.lock();
        state.hold_until.is_some() && state.is_hold_over() && state.release(around)
    }

    /// Whether there is no hold any more that could be kept.
    pub fn is_released(&self) -> bool {
        self.state.lock().hold_until.is_none()
    }

    /// Whether a hold has begun.
    pub fn is_held(&self) -> bool {
        self.state.lock().phase == Phase::Held
    }

    /// Ends a hold. See [`Lane::done`] for the result.
    pub fn release(&self, around: &impl Around) -> bool {
        self.state.lock().release(around)
    }

    /// The chore is over. See [`Lane::done`] for the result.
    pub fn chore_done(&self, around: &impl Around) -> bool {
        let mut state = self.state.lock();
        if state.phase != Phase::Chore {
            return false;
        }
        state.rest(around)
    }

    /// Refuses everything that is queued or being written.
    pub fn refuse_all(&self, error: &AppendError, queued: &QueuedBytes) {
        let state = self.state.lock();
        refuse(state, error, queued);
    }

    /// As [`Lane::refuse_all`], and whatever comes later too.
    pub fn close(&self, error: &AppendError, queued: &QueuedBytes) {
        let mut state = self.state.lock();
        state.closed = Some(error.clone());
        refuse(state, error, queued);
    }
}

/// What a lane asks of its partition, under its lock; none of it blocks.
pub trait Around {
    /// Why no batch is taken now, if so.
    fn refusal(&self) -> Option<AppendError>;
    /// Watches the head's wait for a worker.
    fn watch(&self) -> CallGuard;
    /// The account of the log dir.
    fn queued(&self) -> &QueuedBytes;
}

impl State {
    fn take_in(&mut self, item: LaneItem, around: &impl Around) -> bool {
        self.bytes += item.batch.len();
        self.items.push_back(item);
        let schedule = self.phase == Phase::Idle;
        if schedule {
            self.phase = Phase::Scheduled;
            self.waiting = Some(around.watch());
        }
        schedule
    }

    /// Whether there is no hold that may last.
    fn is_hold_over(&self) -> bool {
        self.hold_until.is_none_or(|until| until <= Instant::now())
    }

    fn release(&mut self, around: &impl Around) -> bool {
        self.hold = false;
        self.hold_until = None;
        self.phase == Phase::Held && self.rest(around)
    }

    fn rest(&mut self, around: &impl Around) -> bool {
        if std::mem::take(&mut self.hold) {
            self.phase = Phase::Held;
            self.waiting = None;
            return false;
        }
        let again = !self.items.is_empty();
        self.phase = if again { Phase::Scheduled } else { Phase::Idle };
        self.waiting = again.then(|| around.watch());
        again
    }
}

fn refuse(mut state: MutexGuard<'_, State>, error: &AppendError, queued: &QueuedBytes) {
    queued.sub(std::mem::take(&mut state.bytes) as u64);
    let items = std::mem::take(&mut state.items);
    let draining = std::mem::take(&mut state.draining);
    let parked = std::mem::take(&mut state.parked);
    drop(state);
    wake(parked);
    for part in draining {
        part.settle(Err(error.clone()));
    }
    for item in items {
        item.part.settle(Err(error.clone()));
    }
}

fn wake(parked: Vec<Unparker>) {
    for unparker in parked {
        unparker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_committer::{Call, Watchdog, Watched};
    use std::sync::Arc;
    use std::time::Duration;

    struct Nothing(Arc<Watchdog>, QueuedBytes);

    struct Nobody;

    impl Watched for Nobody {
        fn overdue(&self, _: Call) {}
        fn recovered(&self, _: Call) {}
    }

    impl Around for Nothing {
        fn refusal(&self) -> Option<AppendError> {
            None
        }
        fn watch(&self) -> CallGuard {
            self.0.watch(Arc::new(Nobody), Call::LaneWait)
        }
        fn queued(&self) -> &QueuedBytes {
            &self.1
        }
    }

    #[test]
    fn a_hold_is_kept_or_over_and_never_both() {
        let watchdog = Watchdog::start(Duration::from_secs(3600)).unwrap();
        let around = Nothing(watchdog, QueuedBytes::new(u64::MAX));
        let lane = Lane::new();
        lane.hold(Instant::now());
        assert!(lane.is_held());
        assert!(!lane.keep_held(), "its time is over");
        lane.release_if_over(&around);
        assert!(!lane.is_held() && lane.is_released());
        lane.hold(Instant::now() + Duration::from_secs(3600));
        lane.release_if_over(&around);
        assert!(lane.keep_held(), "its time is not over");
        // Kept: the sweep leaves it alone, whatever the time is.
        lane.release_if_over(&around);
        assert!(lane.is_held());
        lane.release(&around);
        assert!(!lane.is_held());
        around.0.stop();
    }
}
