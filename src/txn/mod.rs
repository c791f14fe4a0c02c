//! The transaction coordinator.
//!
//! Owns:     the fifty slots, the order persist, answer, carry out; what is due by
//!           the clock.
//! Does not: decide (`machine`), know the wire (the APIs do), or write to a log
//!           itself (`markers` asks the partitions).
//!
//! Commands come from net and state threads; slot files are written by `state-*`
//! threads; markers are answered by append and committer threads.
//!
//! # Invariants
//! T1. No answer leaves before what it says is durable.
//! T2. A decision is durable before its first marker is written, and is carried out
//!     until it is complete, over any number of crashes.
//! T3. No lock of a slot is held while anybody is told anything, or over I/O.

mod machine;
#[cfg(test)]
mod machine_tests;
mod markers;
mod offsets;
mod slot;
mod state;
mod sweep;
mod verify;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use seawall_storage::disk::Disk;

pub use machine::{Command, TxnError};
pub use slot::{Reply, check_file};
pub use state::{Phase, Producer, Txn, TxnPartition};

use crate::broker::Broker;
use crate::cluster::{Cluster, DirClaim, state_file};
use crate::config::Config;
use crate::partition::now;
use machine::Decision;
use slot::{Job, Owed, SLOTS, Slot, State, slot_of};

/// The folder of the slot files in `__cluster`.
pub const DIR: &str = "txn_state";
/// Commands that wait for one transactional id: a client has one in flight, and a
/// few more may be on their way from connections that it gave up.
const WAITING_MAX: usize = 64;

/// The time of transactions, in ms since the epoch: right when the broker starts, and steady from then on, so that a clock
/// that is set neither ends a transaction nor keeps it (d14).
struct Clock {
    wall_ms: i64,
    started: Instant,
}

impl Clock {
    fn new() -> Self {
        Self {
            wall_ms: now().get(),
            started: Instant::now(),
        }
    }

    fn now_ms(&self) -> i64 {
        let passed = i64::try_from(self.started.elapsed().as_millis());
        self.wall_ms.saturating_add(passed.unwrap_or(i64::MAX))
    }
}

/// See the module.
pub struct Transactions {
    clock: Clock,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    claim: Arc<DirClaim>,
    timeout_max_ms: i64,
    expiration_ms: i64,
    stall_ms: i64,
    slots: Vec<Slot>,
    expired_ms: AtomicI64,
}

impl Transactions {
    /// Reads the slot files. Nothing is carried out before [`Transactions::resume`].
    pub(crate) fn open(cluster: &Cluster, disk: &Arc<dyn Disk>, config: &Config) -> Self {
        let dir = cluster.dir.join(DIR);
        let slots = (0..SLOTS).map(|number| Slot::open(&**disk, &dir, number));
        let clock = Clock::new();
        Self {
            slots: slots.collect(),
            disk: Arc::clone(disk),
            dir,
            claim: Arc::clone(&cluster.claim),
            timeout_max_ms: config.transaction_timeout_max_ms,
            expiration_ms: config.transactional_id_expiration_ms,
            stall_ms: i64::try_from(config.flush_stall_timeout_ms).unwrap_or(i64::MAX),
            expired_ms: AtomicI64::new(clock.now_ms()),
            clock,
        }
    }

    /// After a start: carries out what was decided before (T2).
    pub(crate) fn resume(&self, broker: &Arc<Broker>) {
        for (id, txn) in self.all() {
            if txn.phase.decided().is_some() {
                log::info!(
                    "transactional id {id:?}: {} is carried out",
                    txn.phase.name()
                );
                markers::carry_out(broker, &id, &txn, true);
            }
        }
    }

    /// Asks something of a transactional id. `reply` is called once, when the answer
    /// holds (T1), by any thread, perhaps before this returns.
    pub(crate) fn submit(&self, broker: &Arc<Broker>, id: &str, command: Command, reply: Reply) {
        let early = self.refuse_early(id, &command);
        let Some(slot) = self.slots.get(slot_of(id)) else {
            return reply(Err(TxnError::Unavailable));
        };
        if let Some(error) = early {
            return reply(Err(error));
        }
        let job = Job {
            command,
            fresh: None,
            reply,
        };
        self.run(broker, slot, &Arc::from(id), job);
    }

    /// Whether a batch of that producer belongs to the transaction, by what is
    /// durable.
    pub(crate) fn verify(
        &self,
        id: &str,
        producer: Producer,
        partition: &TxnPartition,
    ) -> Result<(), TxnError> {
        let slot = self.slots.get(slot_of(id)).ok_or(TxnError::Unavailable)?;
        let state = slot.state.lock();
        if state.unreadable {
            return Err(TxnError::Unavailable);
        }
        let txn = state.entries.get(id).and_then(|entry| entry.txn.as_ref());
        verify::partition(txn, producer, partition)
    }

    /// Lets offsets of a group into the transaction. While the guard is held the
    /// transaction does not end there, so that none come behind its end.
    pub(crate) fn begin_staging(
        &self,
        id: &str,
        producer: Producer,
        group: &str,
    ) -> Result<StagingGuard, TxnError> {
        let slot = self.slots.get(slot_of(id)).ok_or(TxnError::Unavailable)?;
        let state = slot.state.lock();
        if state.unreadable {
            return Err(TxnError::Unavailable);
        }
        let entry = state.entries.get(id).ok_or(TxnError::UnknownProducer)?;
        verify::group(entry.txn.as_ref(), producer, group)?;
        entry.staging.fetch_add(1, Ordering::AcqRel);
        Ok(StagingGuard(Arc::clone(&entry.staging)))
    }

    /// Whether a guard of [`Transactions::begin_staging`] is out.
    fn is_staging(&self, id: &str) -> bool {
        let slot = self.slots.get(slot_of(id));
        let staging = slot.and_then(|slot| {
            let state = slot.state.lock();
            Some(state.entries.get(id)?.staging.load(Ordering::Acquire))
        });
        staging.is_some_and(|count| count > 0)
    }

    /// One transactional id.
    ///
    /// # Errors
    /// Its slot cannot be read.
    pub(crate) fn get(&self, id: &str) -> Result<Option<Txn>, TxnError> {
        let slot = self.slots.get(slot_of(id)).ok_or(TxnError::Unavailable)?;
        let state = slot.state.lock();
        if state.unreadable {
            return Err(TxnError::Unavailable);
        }
        Ok(state.entries.get(id).and_then(|entry| entry.txn.clone()))
    }

    /// The time by which transactions age.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// All of them, in no order.
    pub(crate) fn all(&self) -> Vec<(Arc<str>, Txn)> {
        let mut all = Vec::new();
        for slot in &self.slots {
            let state = slot.state.lock();
            let known = state
                .entries
                .iter()
                .filter_map(|(id, entry)| Some((Arc::clone(id), entry.txn.clone()?)));
            all.extend(known);
        }
        all
    }

    /// The decision of a transactional id is carried out.
    fn completed(&self, broker: &Arc<Broker>, id: &Arc<str>) {
        let Some(slot) = self.slots.get(slot_of(id)) else {
            return;
        };
        let mut state = slot.state.lock();
        let Some(entry) = state.entries.get_mut(id) else {
            return;
        };
        let done = entry
            .txn
            .as_ref()
            .and_then(|txn| machine::complete(txn, self.now_ms()));
        if done.is_none() {
            return;
        }
        entry.txn = done;
        let held = std::mem::take(&mut entry.held);
        state.dirty = true;
        drop(state);
        for (job, _) in held {
            self.run(broker, slot, id, job);
        }
    }

    fn refuse_early(&self, id: &str, command: &Command) -> Option<TxnError> {
        if id.is_empty() {
            return Some(TxnError::InvalidId);
        }
        match command {
            Command::Init { timeout_ms, .. } => {
                let allowed = 1..=self.timeout_max_ms;
                let fits = allowed.contains(&i64::from(*timeout_ms));
                (!fits).then_some(TxnError::InvalidTimeout)
            }
            Command::Add { .. } | Command::End { .. } | Command::Expire => None,
        }
    }

    fn run(&self, broker: &Arc<Broker>, slot: &Slot, id: &Arc<str>, job: Job) {
        let mut state = slot.state.lock();
        if state.unreadable {
            drop(state);
            return (job.reply)(Err(TxnError::Unavailable));
        }
        let entry = state.entries.entry(Arc::clone(id)).or_default();
        if entry.busy {
            if entry.waiting.len() < WAITING_MAX {
                entry.waiting.push_back((job, self.now_ms()));
                return;
            }
            drop(state);
            return (job.reply)(Err(TxnError::Concurrent));
        }
        let now_ms = self.now_ms();
        match machine::decide(entry.txn.as_ref(), &job.command, job.fresh, now_ms) {
            Decision::Answer(answer) => {
                if entry.is_nothing() {
                    state.entries.remove(id);
                }
                drop(state);
                (job.reply)(answer);
            }
            Decision::Wait if entry.held.len() >= WAITING_MAX => {
                drop(state);
                (job.reply)(Err(TxnError::Concurrent));
            }
            Decision::Wait => entry.held.push((job, now_ms)),
            Decision::NeedsProducerId => {
                entry.busy = true;
                drop(state);
                self.bring_producer_id(broker, Arc::clone(id), job);
            }
            Decision::Change { next, answer } => {
                entry.busy = true;
                entry.staged = Some(*next);
                let id = Arc::clone(id);
                state.owed.push(Owed {
                    id,
                    reply: Arc::new(Mutex::new(Some(job.reply))),
                    answer,
                    since_ms: now_ms,
                });
                self.request_write(broker, slot, state);
            }
        }
    }

    /// Takes a producer id on a thread that may block, and decides again.
    fn bring_producer_id(&self, broker: &Arc<Broker>, id: Arc<str>, job: Job) {
        let worker = Arc::clone(broker);
        broker.state_workers().submit(move || {
            let fresh = worker.fresh_producer_id();
            let txns = &worker.txns;
            let Some(slot) = txns.slots.get(slot_of(&id)) else {
                return;
            };
            let waiting = {
                let mut state = slot.state.lock();
                idle_again(&mut state, &id)
            };
            match fresh {
                Ok(fresh) => {
                    let fresh = Some(fresh);
                    txns.run(&worker, slot, &id, Job { fresh, ..job });
                }
                Err(error) => {
                    log::error!("no producer id could be handed out: {error}");
                    (job.reply)(Err(TxnError::Unavailable));
                }
            }
            txns.run_all(&worker, slot, &id, waiting);
        });
    }

    fn run_all(&self, broker: &Arc<Broker>, slot: &Slot, id: &Arc<str>, jobs: Vec<Job>) {
        for job in jobs {
            self.run(broker, slot, id, job);
        }
    }

    /// S1 of the slot: at most one writer.
    fn request_write(&self, broker: &Arc<Broker>, slot: &Slot, mut state: MutexGuard<'_, State>) {
        if std::mem::replace(&mut state.writing, true) {
            return;
        }
        drop(state);
        self.submit_write(broker, self.number(slot));
    }

    fn submit_write(&self, broker: &Arc<Broker>, number: usize) {
        let worker = Arc::clone(broker);
        let pool = broker.state_workers();
        pool.submit(move || worker.txns.write(&worker, number));
    }

    fn number(&self, slot: &Slot) -> usize {
        let place = self.slots.iter().position(|one| std::ptr::eq(one, slot));
        place.unwrap_or(0)
    }

    /// Writes once. What is owed by then waits behind the others of the pool: a busy slot does not keep a thread.
    fn write(&self, broker: &Arc<Broker>, number: usize) {
        let Some(slot) = self.slots.get(number) else {
            return;
        };
        let (content, owed) = slot.snapshot(number, &mut slot.state.lock());
        let stored = self.store(slot, &content);
        let (told, waiting) = settle(&mut slot.state.lock(), owed, stored);
        self.tell(broker, told);
        for (id, jobs) in waiting {
            self.run_all(broker, slot, &id, jobs);
        }
        let mut state = slot.state.lock();
        if state.owed.is_empty() {
            state.writing = false;
        } else {
            drop(state);
            self.submit_write(broker, number);
        }
    }

    /// D7: whether the directory is ours is asked before and after.
    fn store(&self, slot: &Slot, content: &slot::Content) -> bool {
        if !self.claim.is_fresh() {
            return false;
        }
        let stored = slot.store(&*self.disk, content).or_else(|error| {
            // The folder is made with its first file.
            make_dir(&*self.disk, &self.dir).map_err(|_| error)?;
            slot.store(&*self.disk, content)
        });
        match stored {
            Ok(()) => self.claim.is_fresh(),
            Err(error) => {
                log::error!("a transaction's state was not written: {error}");
                false
            }
        }
    }

    fn tell(&self, broker: &Arc<Broker>, told: Vec<Told>) {
        for told in told {
            told.owed.tell(told.owed.answer);
            if let Some(txn) = told.decided {
                markers::carry_out(broker, &told.owed.id, &txn, false);
            }
        }
    }
}

/// Offsets are on their way into a group.
pub(crate) struct StagingGuard(Arc<AtomicUsize>);

impl Drop for StagingGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What goes out after a write.
struct Told {
    owed: Owed,
    /// A decision that is durable now.
    decided: Option<Txn>,
}

/// Commands that may go on, by transactional id.
type Waiting = (Arc<str>, Vec<Job>);

/// After a write: what was staged holds, or is given up.
fn settle(state: &mut State, owed: Vec<Owed>, stored: bool) -> (Vec<Told>, Vec<Waiting>) {
    let (mut told, mut waiting) = (Vec::new(), Vec::new());
    state.writing_for.clear();
    for mut owed in owed {
        let Some(entry) = state.entries.get_mut(&owed.id) else {
            continue;
        };
        let staged = entry.staged.take();
        let mut decided = None;
        if stored && let Some(txn) = staged {
            decided = txn.phase.decided().map(|_| txn.clone());
            entry.txn = Some(txn);
        }
        let jobs = idle_again(state, &owed.id);
        if !jobs.is_empty() {
            waiting.push((Arc::clone(&owed.id), jobs));
        }
        if !stored {
            owed.answer = Err(TxnError::Unavailable);
        }
        told.push(Told { owed, decided });
    }
    if !stored {
        // What was lazily ahead of the file still is.
        state.dirty = true;
    }
    (told, waiting)
}

/// Nothing is on its way for that id any more; gives the commands that waited.
fn idle_again(state: &mut State, id: &Arc<str>) -> Vec<Job> {
    let Some(entry) = state.entries.get_mut(id) else {
        return Vec::new();
    };
    entry.busy = false;
    let waiting = std::mem::take(&mut entry.waiting);
    if entry.is_nothing() {
        state.entries.remove(id);
    }
    waiting.into_iter().map(|(job, _)| job).collect()
}

fn make_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    match disk.create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    disk.sync_dir(state_file::parent(dir))
}
