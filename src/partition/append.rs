//! What an append worker does with one partition; on an idle log its committer
//! thread does the same before it flushes.
//!
//! Owns:     the order of the steps between a lane and the committer.
//! Does not: fsync, create or rename files, or wait for anybody.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use seawall_committer::{
    AckPolicy, Call, CallGuard, Chore, Committer, Failure, Group, Log as _, Member, Refusal,
};
use seawall_net::Unparker;
use seawall_storage::{
    BatchVerdict, FlushPoint, GroupOutcome, Marker, Offered, Offset, Timestamp, TxnOrigin,
    WriteStop,
};

use super::lane::{Around, Next, Push};
use super::part::{AppendError, LaneItem, Part, Stored, Waiter};
use super::{Partition, now, unsigned};
use crate::queued::QueuedBytes;
use crate::tripwire;

/// What the log said to a group, and where it stands now.
struct Written {
    outcome: GroupOutcome,
    tail: Option<FlushPoint>,
    start: Offset,
    end: Offset,
    now: Timestamp,
}

impl Around for Arc<Partition> {
    fn refusal(&self) -> Option<AppendError> {
        if !self.dir.claim.is_fresh() {
            return Some(AppendError::Refused(Refusal::NotOwner));
        }
        if !self.dir.reserve.is_held() {
            return Some(AppendError::NoSpace);
        }
        if self.gate.is_online() {
            return None;
        }
        self.refusal_by_health()
    }

    fn watch(&self) -> CallGuard {
        Partition::watch(self, Call::LaneWait)
    }

    fn queued(&self) -> &QueuedBytes {
        &self.dir.queued
    }
}

impl Partition {
    /// Queues a batch for its append. A batch that comes back was not taken.
    pub fn offer(self: &Arc<Self>, item: LaneItem, unparker: &Unparker) -> Push {
        let forced = item.policy == AckPolicy::Forced;
        let push = self.lane.push(item, unparker, self);
        match push {
            // Nothing is being flushed: who flushes this batch may append it too.
            Push::Queued { schedule: true } if forced && !self.gate.is_flushing() => {
                self.dir.committer.request_drain(self);
            }
            Push::Queued { schedule: true } => self.submit_drain(),
            _ => {}
        }
        push
    }

    /// Appends a marker, to be durable before `part` hears of it. The broker's own
    /// batches are never refused for a full lane: there is at most one for each
    /// transaction that is being ended.
    pub fn offer_marker(self: &Arc<Self>, marker: &Marker, again: bool, part: Part) {
        let item = LaneItem {
            batch: marker.batch(),
            policy: AckPolicy::Forced,
            stamp: false,
            txn: TxnOrigin::Marker { again },
            part,
        };
        match self.lane.push_own(item, self) {
            Push::Queued { schedule: true } => self.submit_drain(),
            Push::Queued { schedule: false } => {}
            Push::Refused(item, error) => item.part.settle(Err(error)),
            // Never too much, as it says.
            Push::Full(item) => item.part.settle(Err(AppendError::DirBusy)),
        }
    }

    pub(super) fn submit_drain(self: &Arc<Self>) {
        let partition = Arc::clone(self);
        self.dir.appends.submit(move || partition.drain_lane());
    }

    /// Appends everything queued as one group. A panic takes this partition
    /// offline and no other.
    pub(super) fn drain_lane(self: &Arc<Self>) {
        let Some(items) = self.lane.take(&self.dir.queued) else {
            return;
        };
        let guard = PanicGuard(self);
        let mut deferred = Vec::new();
        let mut chore = None;
        if !items.is_empty() {
            let written = tripwire::PRODUCE.around(|| self.write(&items));
            chore = self.hand_over(items, written, &mut deferred);
        }
        let next = self.next_step(chore);
        if self.lane.done(deferred, next, self) {
            self.submit_drain();
        }
        match chore {
            Some(chore) => self.request_chore(chore),
            // The flush may have ended before the lane began to wait for it.
            None if next == Next::Flush && !self.gate.is_flushing() => self.flush_ended(),
            None => {}
        }
        std::mem::forget(guard);
    }

    /// On a file system over the network a write into a file waits for its flush
    /// under way: so does the lane there, and the worker serves others. The
    /// groups only get larger.
    fn next_step(&self, chore: Option<Chore>) -> Next {
        match chore {
            Some(_) => Next::Chore,
            None if self.dir.claim.is_shared() && self.gate.is_flushing() => Next::Flush,
            None => Next::Group,
        }
    }

    pub(super) fn request_chore(self: &Arc<Self>, chore: Chore) {
        self.dir.committer.request_chore(self, chore);
        // A log that failed in the meantime does no chore and tells nobody.
        if !self.gate.is_online() {
            self.health_changed();
        }
    }

    /// The only place that appends. Nothing is told to anybody in here (A2).
    fn write(self: &Arc<Self>, items: &[LaneItem]) -> Written {
        let now = now();
        // With the dial turned nobody waits, and nothing is promised.
        let honest = self.flush_messages.load(Ordering::Relaxed) <= 1;
        let offered: Vec<Offered> = items
            .iter()
            .map(|item| Offered {
                batch: item.batch.clone(),
                append_time: item.stamp.then_some(now),
                keep: honest && item.policy == AckPolicy::Forced,
                txn: item.txn,
            })
            .collect();
        let watched = Partition::watch(self, Call::Append);
        let began = Instant::now();
        let visible = self.high_watermark();
        let mut log = self.log.lock();
        log.settle_transactions(visible);
        let outcome = log.append_group(&offered, now);
        let written = outcome.bytes_written > 0;
        let tail = if written { log.flush_point() } else { None };
        let (start, end) = (log.start_offset(), log.end_offset());
        // A marker that is there already counts as seen, too.
        let marked = || {
            items
                .iter()
                .any(|item| item.batch.header().attributes.is_control())
        };
        if written || marked() {
            self.view.store(log.read_view());
        }
        drop(log);
        drop(watched);
        self.count(&outcome, began);
        Written {
            outcome,
            tail,
            start,
            end,
            now,
        }
    }

    fn count(&self, outcome: &GroupOutcome, began: Instant) {
        let counts = &self.dir.counts;
        counts.writes.took(began.elapsed());
        let appended = outcome.verdicts.iter();
        let appended = appended.filter(|v| matches!(v, BatchVerdict::Appended { .. }));
        counts.batches.add(appended.count() as u64);
        counts.records.add(outcome.records_written);
        counts.bytes.add(outcome.bytes_written);
    }

    /// Tells everybody concerned. Returns what the committer must do before
    /// the next append.
    fn hand_over(
        self: &Arc<Self>,
        items: Vec<LaneItem>,
        written: Written,
        deferred: &mut Vec<LaneItem>,
    ) -> Option<Chore> {
        let mut members = Vec::with_capacity(items.len());
        let no_space = matches!(written.outcome.stopped, Some(WriteStop::NoSpace(_)));
        for (item, verdict) in items.into_iter().zip(&written.outcome.verdicts) {
            match member(item, *verdict, &written) {
                Fate::Joins(member) => members.push(member),
                Fate::Deferred(item) => deferred.push(item),
                Fate::Lost(item) => {
                    let error = if no_space {
                        AppendError::NoSpace
                    } else {
                        AppendError::NotWritten
                    };
                    item.part.settle(Err(error));
                }
                Fate::Settled => {}
            }
        }
        self.admit(members, &written);
        self.after_stop(written.outcome.stopped, !deferred.is_empty())
    }

    fn admit(self: &Arc<Self>, members: Vec<Member<Waiter>>, written: &Written) {
        if members.is_empty() {
            return;
        }
        let since = &self.dirty_since_ms;
        let now = written.now.get();
        let _ = since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        let group = Group {
            tail: written.tail.clone(),
            end: unsigned(written.end),
            records: written.outcome.records_written,
            bytes: written.outcome.bytes_written,
            flush_interval: self.flush_messages.load(Ordering::Relaxed),
            members,
        };
        self.dir.committer.appended(self, group);
    }

    fn after_stop(&self, stopped: Option<WriteStop>, deferred: bool) -> Option<Chore> {
        match stopped {
            None => deferred.then_some(Chore::Roll),
            Some(WriteStop::NoSpace(error)) => {
                log::warn!(
                    "{}-{}: no space for an append: {error}",
                    self.topic,
                    self.index
                );
                Some(Chore::Cut)
            }
            Some(WriteStop::Failed(error)) => {
                log::error!(
                    "{}-{}: a write failed, the partition takes no more appends: {error}",
                    self.topic,
                    self.index
                );
                Committer::fail(self, Failure::Io(error.kind()));
                None
            }
        }
    }
}

enum Fate {
    Joins(Member<Waiter>),
    Deferred(LaneItem),
    Lost(LaneItem),
    Settled,
}

fn member(item: LaneItem, verdict: BatchVerdict, written: &Written) -> Fate {
    let stamp = item.stamp.then_some(written.now);
    match verdict {
        BatchVerdict::Appended { base, last } => {
            Fate::Joins(joined(item, (base, last), stamp, written.start))
        }
        BatchVerdict::Duplicate {
            base,
            last,
            append_time,
        } => {
            let mut member = joined(item, (base, last), append_time, written.start);
            member.duplicate = true;
            Fate::Joins(member)
        }
        BatchVerdict::Rejected(reject) => {
            item.part
                .settle(Err(AppendError::Rejected(reject, written.start)));
            Fate::Settled
        }
        BatchVerdict::NotWritten => Fate::Lost(item),
        BatchVerdict::Deferred => Fate::Deferred(item),
    }
}

fn joined(
    item: LaneItem,
    (base, last): (Offset, Offset),
    append_time: Option<Timestamp>,
    log_start: Offset,
) -> Member<Waiter> {
    Member {
        policy: item.policy,
        range: (unsigned(base), unsigned(last) + 1),
        duplicate: false,
        waiter: Waiter {
            part: item.part,
            stored: Stored {
                base_offset: base,
                append_time,
                log_start,
            },
        },
    }
}

/// Takes its partition offline when a drain unwinds.
struct PanicGuard<'a>(&'a Arc<Partition>);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        log::error!(
            "{}-{}: an append worker panicked; the partition goes offline",
            self.0.topic,
            self.0.index
        );
        Committer::fail(&**self.0, Failure::Panicked);
    }
}
