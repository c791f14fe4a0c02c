//! What the coordinator does by the clock, and at a stop.
//!
//! Owns:     who has waited long enough, which transactions take too long, which ids nobody uses.
//! Does not: decide what follows: the machine does.
//! Called from `maint`, and by whoever stops the broker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::slot::{Entry, Job, Owed, State};
use super::{Command, Transactions, Txn, TxnError, machine};
use crate::broker::Broker;

/// How long a command waits for the last transaction to be carried out before the
/// client is told to come again.
const HELD_MS: i64 = 2_000;
/// How often transactional ids that nobody uses are looked for.
const EXPIRY_SWEEP_MS: i64 = 60_000;

impl Transactions {
    /// What is due by the clock: transactions that take too long, commands that have
    /// waited enough, files behind memory, ids that nobody uses.
    pub(crate) fn sweep(&self, broker: &Arc<Broker>) {
        let now_ms = self.now_ms();
        let due = now_ms.saturating_sub(self.expired_ms.load(Ordering::Relaxed));
        let expire = due >= EXPIRY_SWEEP_MS;
        if expire {
            self.expired_ms.store(now_ms, Ordering::Relaxed);
        }
        for slot in &self.slots {
            let mut state = slot.state.lock();
            if expire {
                forget_expired(&mut state, self.expiration_ms, now_ms);
            }
            let hung = take_hung(&mut state, now_ms.saturating_sub(self.stall_ms));
            let (late, overdue) = take_late(&mut state, now_ms);
            if state.dirty {
                self.request_write(broker, slot, state);
            } else {
                drop(state);
            }
            for job in late {
                (job.reply)(Err(TxnError::Concurrent));
            }
            hung.tell();
            for id in overdue {
                log::info!("transactional id {id:?}: its transaction took too long and is aborted");
                self.submit(broker, &id, Command::Expire, Box::new(drop));
            }
        }
    }

    /// At a clean stop: brings the files up to memory. Blocks on the disk.
    pub(crate) fn close(&self) -> bool {
        let mut clean = true;
        for (number, slot) in self.slots.iter().enumerate() {
            let mut state = slot.state.lock();
            if !state.dirty || state.writing || state.unreadable {
                continue;
            }
            let (content, _) = slot.snapshot(number, &mut state);
            drop(state);
            if let Err(error) = slot.store(&*self.disk, &content) {
                log::warn!("{error}");
                clean = false;
            }
        }
        clean
    }
}

fn forget_expired(state: &mut State, expiration_ms: i64, now_ms: i64) {
    let before = state.entries.len();
    state.entries.retain(|_, entry: &mut Entry| {
        let quiet = !entry.busy && entry.waiting.is_empty() && entry.held.is_empty();
        let expired = |txn| machine::is_expired(txn, expiration_ms, now_ms);
        !(quiet && entry.txn.as_ref().is_some_and(expired))
    });
    state.dirty |= state.entries.len() != before;
}

/// Who has waited too long for a disk that hangs.
struct Hung {
    owed: Vec<Owed>,
    jobs: Vec<Job>,
}

impl Hung {
    /// What they asked for may still come true.
    fn tell(self) {
        for owed in self.owed {
            owed.tell(Err(TxnError::Unavailable));
        }
        for job in self.jobs {
            (job.reply)(Err(TxnError::Unavailable));
        }
    }
}

/// Those who wait since `limit_ms` or longer. Their changes stay on their way.
fn take_hung(state: &mut State, limit_ms: i64) -> Hung {
    let owed = state.owed.iter().chain(&state.writing_for);
    let owed = owed.filter(|owed| owed.since_ms <= limit_ms).cloned();
    let mut hung = Hung {
        owed: owed.collect(),
        jobs: Vec::new(),
    };
    for entry in state.entries.values_mut() {
        while entry
            .waiting
            .front()
            .is_some_and(|(_, since)| *since <= limit_ms)
        {
            hung.jobs
                .extend(entry.waiting.pop_front().map(|(job, _)| job));
        }
    }
    hung
}

/// Commands that have waited long enough for a decision to be carried out, and ids whose transaction takes too long.
fn take_late(state: &mut State, now_ms: i64) -> (Vec<Job>, Vec<Arc<str>>) {
    let (mut late, mut overdue) = (Vec::new(), Vec::new());
    for (id, entry) in &mut state.entries {
        let too_long = |txn: &Txn| txn.is_overdue(now_ms);
        if !entry.busy && entry.txn.as_ref().is_some_and(too_long) {
            overdue.push(Arc::clone(id));
        }
        let held = std::mem::take(&mut entry.held);
        for (job, since) in held {
            if now_ms.saturating_sub(since) >= HELD_MS {
                late.push(job);
            } else {
                entry.held.push((job, since));
            }
        }
    }
    (late, overdue)
}
