//! Group commit as a plain state machine: many waiters, one flush.
//!
//! Owns:     who waits for which flush, and what readers may see.
//! Does not: lock, wait, or call anybody; `Gate` wraps it in a lock.
//!
//! # Invariants
//! C1. `completed` never goes back and never passes `requested`.
//! C2. A waiter leaves the queue exactly once.
//! C3. The target of a flush is sampled before it starts.
//! C4. The high watermark is the start of the oldest forced span that no flush
//!     covered yet, or the log end where there is none. It never goes back.
//! C5. A forced waiter leaves with success only for a flush sampled after its
//!     bytes were written (D1, D8).

use std::collections::VecDeque;
use std::io;

use crate::{AckPolicy, Chore};
use seawall_planted::planted;

/// Number of a flush of one log; requests and completions are compared by it.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct FlushSeq(u64);

impl FlushSeq {
    fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Why a log stopped for good, until it is healed or opened again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// A write, fsync, create or truncate returned this kind of error.
    Io(io::ErrorKind),
    /// A thread that held the log's work panicked. Our fault.
    Panicked,
    /// No committer thread could be started.
    NoThread,
}

/// What a log can do now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Health {
    /// Serves.
    Online,
    /// A call has been running for longer than the stall timeout. It may
    /// still come back, then the log is online again.
    Stalled,
    /// An I/O call failed; new appends are refused.
    Failed(Failure),
}

/// Why a waiter did not get its acknowledgement. The bytes may be in the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// The log is stalled.
    Stalled,
    /// The log failed.
    Failed(Failure),
    /// The claim on the log dir was not fresh when the flush returned (D7).
    NotOwner,
}

/// One batch of a group, as the ack policy sees it.
#[derive(Debug)]
pub struct Member<W> {
    /// What its producer asked for.
    pub policy: AckPolicy,
    /// Offsets it occupies, first and one past the last. For a duplicate: of
    /// the original.
    pub range: (u64, u64),
    /// A duplicate wrote nothing; it only waits.
    pub duplicate: bool,
    /// Who is released when its policy is satisfied or refused.
    pub waiter: W,
}

/// What one drain of a lane wrote, in log order.
#[derive(Debug)]
pub struct Group<P, W> {
    /// Where the log ends now, and the file a flush must sync to cover it.
    /// `None` if the group wrote nothing.
    pub tail: Option<P>,
    /// Log end offset after the group.
    pub end: u64,
    /// Records written.
    pub records: u64,
    /// Bytes written.
    pub bytes: u64,
    /// `flush.messages` of the topic: forced members wait once this many
    /// records are not flushed. 1 is the honest default.
    pub flush_interval: u64,
    /// The batches, in log order.
    pub members: Vec<Member<W>>,
}

/// What becomes of a member when it is admitted.
enum Settled {
    Now(Result<(), Refusal>),
    ByFlush,
    /// Nobody waits any more, but its bytes are written: they are hidden until
    /// a flush covers them (C4, D2).
    Refused(Refusal),
}

/// A flush about to start. C3: made under the lock, before the call.
#[derive(Clone, Debug)]
pub(crate) struct Target<P> {
    pub(crate) seq: FlushSeq,
    pub(crate) end: u64,
    pub(crate) point: Option<P>,
    records: u64,
    bytes: u64,
}

/// What the committer thread does next for this log.
#[derive(Debug)]
pub(crate) enum Job<P> {
    Flush(Target<P>),
    Chore(Chore, Target<P>),
    Drain,
}

#[derive(Debug)]
pub(crate) struct Queue<P, W> {
    requested: FlushSeq,
    completed: FlushSeq,
    in_flight: Option<(FlushSeq, u64)>,
    tail: Option<P>,
    end: u64,
    durable: u64,
    spans: VecDeque<(u64, u64)>,
    waiters: VecDeque<(FlushSeq, W)>,
    records_unflushed: u64,
    bytes_unflushed: u64,
    chore: Option<Chore>,
    /// A drain is asked for. It stays asked for while the log is Failed.
    drain: bool,
    health: Health,
    stalled_calls: u32,
    scheduled: bool,
}

impl<P: Clone, W> Queue<P, W> {
    /// A log that recovery made durable up to `end`.
    pub(crate) fn new(end: u64) -> Self {
        Self {
            requested: FlushSeq::default(),
            completed: FlushSeq::default(),
            in_flight: None,
            tail: None,
            end,
            durable: end,
            spans: VecDeque::new(),
            waiters: VecDeque::new(),
            records_unflushed: 0,
            bytes_unflushed: 0,
            chore: None,
            drain: false,
            health: Health::Online,
            stalled_calls: 0,
            scheduled: false,
        }
    }

    pub(crate) fn health(&self) -> Health {
        self.health
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    pub(crate) fn is_flushing(&self) -> bool {
        self.requested > self.completed
    }

    /// C4.
    pub(crate) fn high_watermark(&self) -> u64 {
        if planted("watermark-before-fsync") {
            return self.end;
        }
        self.spans.front().map_or(self.end, |span| span.0)
    }

    /// Takes in what was written. Returns the waiters that are settled now.
    pub(crate) fn admit(&mut self, group: Group<P, W>, out: &mut Vec<(W, Result<(), Refusal>)>) {
        let waits = self.count_group(&group);
        let mut flush = None;
        for member in group.members {
            match self.settle_now(&member, waits) {
                Settled::Now(verdict) => out.push((member.waiter, verdict)),
                Settled::ByFlush => {
                    let seq = self.seq_for(&member, &mut flush);
                    self.waiters.push_back((seq, member.waiter));
                }
                Settled::Refused(refusal) => {
                    if !planted("refused-is-visible") {
                        self.seq_for(&member, &mut flush);
                    }
                    out.push((member.waiter, Err(refusal)));
                }
            }
        }
    }

    /// Adds the group to the dirty totals; says whether its forced members
    /// wait for a flush.
    fn count_group(&mut self, group: &Group<P, W>) -> bool {
        assert!(group.end >= self.end, "the log end never goes back");
        self.end = group.end;
        if group.tail.is_some() {
            self.tail.clone_from(&group.tail);
        }
        self.records_unflushed += group.records;
        self.bytes_unflushed += group.bytes;
        self.records_unflushed >= group.flush_interval.max(1)
    }

    fn settle_now(&self, member: &Member<W>, waits: bool) -> Settled {
        if member.policy != AckPolicy::Forced {
            return Settled::Now(Ok(()));
        }
        match (self.refusal(), self.is_satisfied(member, waits)) {
            (None, true) => Settled::Now(Ok(())),
            (None, false) => Settled::ByFlush,
            (Some(refusal), true) => Settled::Now(Err(refusal)),
            (Some(refusal), false) => Settled::Refused(refusal),
        }
    }

    /// Whether a forced member needs no flush: it is covered, or the dial lets
    /// it go and it is no duplicate of a batch that still waits itself (D8).
    fn is_satisfied(&self, member: &Member<W>, waits: bool) -> bool {
        if member.range.1 <= self.durable {
            return true;
        }
        if member.duplicate && planted("duplicate-acked-early") {
            return true;
        }
        let original_waits =
            member.duplicate && self.spans.front().is_some_and(|s| s.0 < member.range.1);
        !waits && !original_waits
    }

    fn refusal(&self) -> Option<Refusal> {
        match self.health {
            Health::Online => None,
            Health::Stalled => Some(Refusal::Stalled),
            Health::Failed(failure) => Some(Refusal::Failed(failure)),
        }
    }

    /// The flush that a forced member waits for: one new request for the whole
    /// group, or for a duplicate the one in flight if it covers the original.
    fn seq_for(&mut self, member: &Member<W>, flush: &mut Option<FlushSeq>) -> FlushSeq {
        if member.duplicate
            && let Some((seq, end)) = self.in_flight
            && member.range.1 <= end
        {
            return seq;
        }
        if !member.duplicate {
            self.push_span(member.range);
        }
        *flush.get_or_insert_with(|| {
            self.requested = self.requested.next();
            self.requested
        })
    }

    fn push_span(&mut self, range: (u64, u64)) {
        match self.spans.back_mut() {
            // A sampled end lies between groups, so merging spans of different
            // samples would hide a durable prefix: `complete` splits them.
            Some(last) if last.1 == range.0 => last.1 = range.1,
            _ => self.spans.push_back(range),
        }
    }

    /// Whether a committer thread has to be found for this log; marks it as
    /// scheduled if so.
    pub(crate) fn claim_schedule(&mut self) -> bool {
        let wanted = !self.scheduled && self.has_work();
        self.scheduled |= wanted;
        wanted
    }

    fn has_work(&self) -> bool {
        if matches!(self.health, Health::Failed(_)) {
            return self.chore == Some(Chore::Heal);
        }
        self.is_flushing() || self.chore.is_some() || self.drain
    }

    /// The next job of the committer thread; `None` gives the log back, decided
    /// under the lock that enqueues.
    pub(crate) fn next_job(&mut self) -> Option<Job<P>> {
        if !self.has_work() {
            self.scheduled = planted("given-back-late");
            return None;
        }
        let failed = matches!(self.health, Health::Failed(_));
        if !failed && std::mem::take(&mut self.drain) {
            return Some(Job::Drain);
        }
        let target = self.sample();
        self.in_flight = Some((target.seq, target.end));
        Some(match self.chore.take() {
            Some(chore) => Job::Chore(chore, target),
            None => Job::Flush(target),
        })
    }

    pub(crate) fn sample(&self) -> Target<P> {
        Target {
            seq: self.requested,
            end: self.end,
            point: self.tail.clone(),
            records: self.records_unflushed,
            bytes: self.bytes_unflushed,
        }
    }

    /// The flush of `target` succeeded. Returns who is released.
    pub(crate) fn complete(&mut self, target: &Target<P>) -> Vec<W> {
        assert!(target.seq >= self.completed, "C1");
        assert!(target.seq <= self.requested, "C1");
        self.in_flight = None;
        self.completed = target.seq;
        self.durable = self.durable.max(target.end);
        self.records_unflushed -= target.records;
        self.bytes_unflushed -= target.bytes;
        if target.end == self.end {
            self.tail = None;
        }
        self.drop_spans_up_to(target.end);
        self.take_waiters_up_to(target.seq)
    }

    fn drop_spans_up_to(&mut self, end: u64) {
        while let Some(front) = self.spans.front_mut() {
            if front.1 > end {
                front.0 = front.0.max(end);
                return;
            }
            self.spans.pop_front();
        }
    }

    fn take_waiters_up_to(&mut self, seq: FlushSeq) -> Vec<W> {
        // Duplicates may wait for an earlier flush than those queued before
        // them, so the queue is not sorted; it is short where that happens.
        let sorted = self.waiters.iter().take_while(|w| w.0 <= seq).count();
        let mut out: Vec<W> = self.waiters.drain(..sorted).map(|w| w.1).collect();
        let mut rest = VecDeque::with_capacity(self.waiters.len());
        for (waits_for, waiter) in self.waiters.drain(..) {
            if waits_for <= seq {
                out.push(waiter);
            } else {
                rest.push_back((waits_for, waiter));
            }
        }
        self.waiters = rest;
        out
    }

    /// The log was healed: everything up to `end` is durable in a new file. The
    /// log end goes back only over what nobody was promised (D3).
    pub(crate) fn healed(&mut self, end: u64) {
        self.in_flight = None;
        // Asked for again while it was under way: there is nothing left to heal.
        if !planted("healed-twice") {
            self.chore.take_if(|chore| *chore == Chore::Heal);
        }
        self.completed = self.requested;
        self.tail = None;
        (self.end, self.durable) = (end, end);
        self.spans.clear();
        (self.records_unflushed, self.bytes_unflushed) = (0, 0);
        self.health = if self.stalled_calls > 0 {
            Health::Stalled
        } else {
            Health::Online
        };
    }

    /// A chore was done without flushing (it failed for want of space).
    pub(crate) fn abandon_flight(&mut self) {
        self.in_flight = None;
    }

    pub(crate) fn request_chore(&mut self, chore: Chore) {
        self.chore = Some(chore);
    }

    pub(crate) fn request_drain(&mut self) {
        self.drain = true;
    }

    /// Asks for healing, if the log is Failed.
    pub(crate) fn request_heal(&mut self) {
        if matches!(self.health, Health::Failed(_)) {
            self.chore = Some(Chore::Heal);
        }
    }

    /// A flush nobody waits for.
    pub(crate) fn request_flush(&mut self) {
        if self.tail.is_some() && self.requested == self.completed {
            self.requested = self.requested.next();
        }
    }

    pub(crate) fn bytes_unflushed(&self) -> u64 {
        self.bytes_unflushed
    }

    /// Forgets the schedule of a log that no thread will serve.
    pub(crate) fn unschedule(&mut self) {
        self.scheduled = false;
    }

    /// A call is overdue. Returns who is refused; empty if nothing changed.
    pub(crate) fn stall(&mut self) -> Vec<W> {
        self.stalled_calls += 1;
        if self.health == Health::Online {
            self.health = Health::Stalled;
        }
        if planted("late-success-acks") {
            return Vec::new();
        }
        self.take_all()
    }

    /// An overdue call came back. Says whether the log is online again by it.
    pub(crate) fn unstall(&mut self) -> bool {
        self.stalled_calls -= 1;
        let online = self.stalled_calls == 0 && self.health == Health::Stalled;
        if online {
            self.health = Health::Online;
        }
        online
    }

    /// Latches the first failure (D4). Returns who is refused.
    pub(crate) fn fail(&mut self, failure: Failure) -> Vec<W> {
        self.in_flight = None;
        if !matches!(self.health, Health::Failed(_)) {
            self.health = Health::Failed(failure);
        }
        self.take_all()
    }

    /// Refuses everybody who waits and leaves the log's state as it is.
    pub(crate) fn take_all(&mut self) -> Vec<W> {
        self.waiters.drain(..).map(|w| w.1).collect()
    }
}
