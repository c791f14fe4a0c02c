//! One fetch from its frame to its answer.
//!
//! A fetch is read at once. If it brings too little it registers at its
//! partitions, looks again, and parks; a move of a high watermark, deletion or
//! its deadline has it read again and answered.
//!
//! # Invariants
//! F1. A fetch is answered once; whoever takes the slot answers.
//! F2. While a read is under way (`Phase::Reading`) a wake-up is remembered,
//!     never lost.
//! F3. A fetch that is answered or cancelled is registered nowhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use seawall_net::BodyPart;
use seawall_net::wire::FetchPartitionResponse;

use super::super::slot::Slot;
use super::read::Round;
use super::{Ask, AskedPart, respond};
use crate::broker::Broker;
use crate::partition::{ReadWaiter, ReaderKey};
use crate::timer::Deadline;

/// Longest long poll: more than any client asks, less than a forgotten
/// connection should cost.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// The fetch of a connection that waits, if any.
#[derive(Default)]
pub(in super::super) struct Parked(Option<Weak<Fetch>>);

impl Parked {
    pub(super) fn new(fetch: &Arc<Fetch>) -> Self {
        Self(Some(Arc::downgrade(fetch)))
    }

    /// The peer sends nothing more: answer with what there is.
    pub(in super::super) fn hurry(&self) {
        if let Some(fetch) = self.get() {
            fetch.expire();
        }
    }

    /// The connection is gone.
    pub(in super::super) fn cancel(&self) {
        if let Some(fetch) = self.get() {
            let state = fetch.state.lock();
            drop(fetch.close(state));
        }
    }

    fn get(&self) -> Option<Arc<Fetch>> {
        self.0.as_ref().and_then(Weak::upgrade)
    }
}

enum Phase {
    /// A read is under way; `again` says that something changed meanwhile.
    Reading { again: bool },
    /// Registered at its partitions.
    Waiting,
}

struct State {
    slot: Option<Slot>,
    phase: Phase,
    keys: Vec<(usize, ReaderKey)>,
    deadline: Option<Deadline>,
    expired: bool,
}

pub(super) struct Fetch {
    ask: Arc<Ask>,
    broker: Arc<Broker>,
    received: Instant,
    /// Bytes that may be readable, as counted when it parked or was woken:
    /// per partition, and in all.
    seen_bytes: Vec<AtomicU64>,
    ready_bytes: AtomicU64,
    state: Mutex<State>,
}

impl Fetch {
    pub(super) fn new(ask: Ask, broker: &Arc<Broker>, received: Instant, slot: Slot) -> Arc<Self> {
        Arc::new(Self {
            broker: Arc::clone(broker),
            received,
            seen_bytes: ask.parts.iter().map(|_| AtomicU64::new(0)).collect(),
            ask: Arc::new(ask),
            ready_bytes: AtomicU64::new(0),
            state: Mutex::new(State {
                slot: Some(slot),
                phase: Phase::Reading { again: false },
                keys: Vec::new(),
                deadline: None,
                expired: false,
            }),
        })
    }

    pub(super) fn start(self: &Arc<Self>, wait_ms: i32) {
        let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0)).min(WAIT_MAX);
        if wait.is_zero() || !self.ask.may_wait() {
            self.state.lock().expired = true;
        }
        let fetch = Arc::clone(self);
        let due = self.received + wait;
        self.hold(self.broker.timer.at(due, move || fetch.expire()));
        self.read();
    }

    /// Keeps a deadline for as long as the fetch is open.
    fn hold(&self, deadline: Deadline) {
        let mut state = self.state.lock();
        let before = match state.slot {
            Some(_) => state.deadline.replace(deadline),
            None => Some(deadline),
        };
        drop(state);
        drop(before);
    }

    /// The wait is over: what is there now is the answer.
    fn expire(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.expired = true;
        if self.leave_waiting(&mut state) {
            drop(state);
            self.read();
        }
    }

    /// A read that hangs answers by itself, as an error, after the stall timeout.
    fn read(self: &Arc<Self>) {
        let fetch = Arc::clone(self);
        Round::start(&self.ask, move |rows| fetch.read_done(rows));
    }

    fn read_done(self: &Arc<Self>, rows: Vec<FetchPartitionResponse>) {
        let bytes: usize = rows.iter().map(record_bytes).sum();
        let urgent = self.ask.parts.iter().zip(&rows).any(is_urgent);
        let state = self.state.lock();
        if state.expired || urgent || bytes as u64 >= self.ask.min_bytes {
            if let Some(slot) = self.close(state) {
                let Ask { context, parts, .. } = &*self.ask;
                let response = context.response(&self.broker.fetch_sessions, parts, rows);
                let counts = &self.broker.counts;
                counts.fetches.took(self.received.elapsed());
                counts.fetched_bytes.add(bytes as u64);
                respond(slot, self.ask.version, response);
            }
            return;
        }
        let registered = !state.keys.is_empty();
        drop(state);
        // Buffers of a read that was too small go back before the wait.
        drop(rows);
        if !registered {
            self.register();
        }
        self.wait_or_read();
    }

    /// Look again after registering, then wait (F2).
    fn wait_or_read(self: &Arc<Self>) {
        let grown = self.count_ready() >= self.ask.min_bytes;
        let mut state = self.state.lock();
        let again = matches!(state.phase, Phase::Reading { again: true });
        if grown || again || state.expired {
            state.phase = Phase::Reading { again: false };
            drop(state);
            return self.read();
        }
        state.phase = Phase::Waiting;
    }

    fn register(self: &Arc<Self>) {
        let mut keys = Vec::with_capacity(self.ask.parts.len());
        for (index, part) in self.ask.parts.iter().enumerate() {
            if let Ok(partition) = &part.partition {
                let waiter = Arc::clone(self) as Arc<dyn ReadWaiter>;
                keys.push((index, partition.readers().register(waiter, index)));
            }
        }
        let mut state = self.state.lock();
        state.keys = keys;
        if state.slot.is_none() {
            drop(self.close(state));
        }
    }

    /// Bytes that may be readable now, at most; sets the marks for `wake`.
    fn count_ready(&self) -> u64 {
        self.ready_bytes.store(0, Ordering::Release);
        let mut total = 0;
        for (part, seen) in self.ask.parts.iter().zip(&self.seen_bytes) {
            let bytes = part.ready_bytes(&self.ask);
            seen.store(bytes, Ordering::Release);
            total += bytes;
        }
        // A wake-up in between has added what it saw.
        self.ready_bytes.fetch_add(total, Ordering::AcqRel) + total
    }

    /// Whether the fetch was waiting; then it is reading now, by the caller.
    fn leave_waiting(&self, state: &mut MutexGuard<'_, State>) -> bool {
        match &mut state.phase {
            Phase::Reading { again } => {
                *again = true;
                false
            }
            Phase::Waiting => {
                state.phase = Phase::Reading { again: false };
                state.slot.is_some()
            }
        }
    }

    /// F1, F3: takes the slot, and the registrations and the deadline back.
    fn close(&self, mut state: MutexGuard<'_, State>) -> Option<Slot> {
        let slot = state.slot.take();
        let keys = std::mem::take(&mut state.keys);
        let deadline = state.deadline.take();
        drop(state);
        drop(deadline);
        for (index, key) in keys {
            if let Some(Ok(partition)) = self.ask.parts.get(index).map(|p| &p.partition) {
                partition.readers().forget(key);
            }
        }
        slot
    }
}

impl ReadWaiter for Fetch {
    fn wake(self: Arc<Self>, index: usize) {
        let (Some(part), Some(seen)) = (self.ask.parts.get(index), self.seen_bytes.get(index))
        else {
            return;
        };
        let bytes = part.ready_bytes(&self.ask);
        let before = seen.swap(bytes, Ordering::AcqRel);
        let more = bytes.saturating_sub(before);
        let ready = self.ready_bytes.fetch_add(more, Ordering::AcqRel) + more;
        if ready < self.ask.min_bytes {
            return;
        }
        if self.leave_waiting(&mut self.state.lock()) {
            self.read();
        }
    }
}

fn record_bytes(row: &FetchPartitionResponse) -> usize {
    row.records.as_ref().map_or(0, BodyPart::len)
}

/// Whether a row should be told at once.
fn is_urgent((part, row): (&AskedPart, &FetchPartitionResponse)) -> bool {
    let no_topic = part.partition.as_ref().is_err_and(|missing| missing.topic);
    (row.error_code != 0 && !no_topic) || row.diverging_epoch.is_some()
}
