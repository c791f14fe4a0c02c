//! Power cuts and kills at every call that changes the disk, checked against a model of what was promised.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use seawall_storage::disk::{Crash, Disk, Fault, FaultAt, SimDisk};
use seawall_storage::names::{CHECKPOINT, SNAPSHOT};
use seawall_storage::{
    AbortedTxn, Batch, BatchVerdict, LeaderEpoch, Log, LogConfig, LogState, Offered, Offset,
    PastBatch, ProducerEpoch, ProducerId, Stop, Timestamp, TxnOutcome,
};

use crate::support::{Setup, idempotent, marker, offered, parse, plain, read_all, transactional};

const DIR: &str = "/topic/3";

/// The disk has failed; nothing more can be done in this life of the broker.
struct Cut;

/// What was offered at an offset: where it ends and its payload.
type Attempt = (Offset, Bytes);

struct Run {
    disk: SimDisk,
    setup: Setup,
    /// The latest batch offered at each base offset.
    attempts: BTreeMap<Offset, Attempt>,
    /// End of what was acknowledged as durable (D1).
    acked: Offset,
    /// End of what was written.
    written: Offset,
    /// Where the log starts for sure, and where it may start: a deletion may have been cut.
    start: (Offset, Offset),
    /// The highest epoch in which anything was written.
    epoch: LeaderEpoch,
    sequence: i32,
    /// Of the transactional producer.
    txn: Txn,
    /// The sequence that follows what was acknowledged as durable.
    acked_sequence: i32,
    tag: u32,
    now: i64,
}

/// The transactional producer: where it is in its transaction of three batches and a marker.
#[derive(Clone, Copy, Default)]
struct Txn {
    sequence: i32,
    step: u32,
    count: u32,
}

impl Txn {
    /// Every other transaction is aborted, every third marker raises the epoch as transactions v2 do.
    fn next(&mut self, epoch: i16) -> (Batch, i16) {
        self.step += 1;
        if !self.step.is_multiple_of(4) {
            self.sequence += 1;
            return (transactional(TXN, epoch, self.sequence - 1, 1), epoch);
        }
        self.count += 1;
        let outcome = if self.count.is_multiple_of(2) {
            TxnOutcome::Commit
        } else {
            TxnOutcome::Abort
        };
        if !self.count.is_multiple_of(3) {
            return (marker(TXN, epoch, outcome), epoch);
        }
        self.sequence = 0;
        (marker(TXN, epoch + 1, outcome), epoch + 1)
    }
}

const TXN: i64 = 8;

impl Run {
    fn new(disk: SimDisk) -> Self {
        let mut setup = Setup::new(Arc::new(disk.clone()), Path::new(DIR));
        setup.config = LogConfig {
            segment_bytes: 1500,
            index_interval_bytes: 200,
            ..setup.config
        };
        Self {
            disk,
            setup,
            attempts: BTreeMap::new(),
            acked: Offset(0),
            written: Offset(0),
            start: (Offset(0), Offset(0)),
            epoch: LeaderEpoch(-1),
            sequence: 0,
            txn: Txn::default(),
            acked_sequence: 0,
            tag: 0,
            now: 2_000_000,
        }
    }

    fn group(&mut self, log: &Log) -> Vec<Batch> {
        self.tag += 1;
        let batch = idempotent(7, 0, self.sequence, 2);
        let mut epoch = self.resume_transaction(log);
        let mut steps = Vec::new();
        for _ in 0..3 {
            let (step, next) = self.txn.next(epoch);
            epoch = next;
            steps.push(step);
        }
        steps.insert(1, plain(self.tag, 3, 40));
        steps.insert(3, batch);
        steps.push(plain(self.tag + 1000, 1, 150));
        steps
    }

    /// After a crash the transactional producer goes on where the log says. Gives its epoch.
    fn resume_transaction(&mut self, log: &Log) -> i16 {
        let known = log.producers().get(ProducerId(TXN));
        let last = known.and_then(|entry| entry.last_batch());
        self.txn.sequence = last.map_or(0, |past| past.last_sequence.0 + 1);
        let open = known.is_some_and(|entry| entry.open.is_some());
        if !open {
            self.txn.step = 0;
        } else if self.txn.step.is_multiple_of(4) {
            self.txn.step = 3;
        }
        known.map_or(0, |entry| entry.epoch.0)
    }

    fn offer(&mut self, log: &Log, batches: &[Batch]) {
        let mut next = log.end_offset();
        assert!(next >= self.acked);
        self.attempts.split_off(&next);
        for batch in batches {
            let end = next.plus(i64::from(batch.header().record_count));
            self.attempts
                .insert(next, (end, Bytes::copy_from_slice(batch.payload())));
            next = end;
        }
    }

    fn append(&mut self, log: &mut Log) -> Result<(), Cut> {
        let batches = self.group(log);
        self.offer(log, &batches);
        self.now += 1;
        let mut waiting: Vec<Offered> = batches.iter().map(offered).collect();
        while !waiting.is_empty() {
            let outcome = log.append_group(&waiting, Timestamp(self.now));
            self.written = log.end_offset();
            let done = outcome
                .verdicts
                .iter()
                .take_while(|v| matches!(v, BatchVerdict::Appended { .. }))
                .count();
            if waiting[..done]
                .iter()
                .any(|o| o.batch.header().producer_id == ProducerId(7))
            {
                self.sequence += 2;
            }
            waiting.drain(..done);
            if outcome.stopped.is_some() || outcome.verdicts.contains(&BatchVerdict::NotWritten) {
                return Err(Cut);
            }
            if !waiting.is_empty() {
                let new = log.roll_plan().run().map_err(|_| Cut)?;
                log.install(new).map_err(|_| Cut)?;
                self.acked = log.end_offset();
                self.acked_sequence = self.sequence;
                self.epoch = log.leader_epoch();
            }
        }
        Ok(())
    }

    fn flush(&mut self, log: &mut Log) -> Result<(), Cut> {
        if let Some(point) = log.flush_point() {
            point.file.sync_data().map_err(|_| Cut)?;
            log.mark_synced(&point);
            self.acked = self.acked.max(point.end);
            self.acked_sequence = self.sequence;
        }
        Ok(())
    }

    fn checkpoint(&mut self, log: &mut Log) -> Result<(), Cut> {
        self.now += 70_000;
        self.append(log)?;
        self.flush(log)?;
        let plan = log
            .checkpoint_plan(Timestamp(self.now))
            .expect("a minute after growth a checkpoint is due");
        log.checkpoint_done(Some(plan.run().map_err(|_| Cut)?));
        Ok(())
    }

    /// Deletes up to `to` as a broker does, and all files that can go.
    fn trim(&mut self, log: &mut Log, to: Offset) -> Result<(), Cut> {
        if let Some(plan) = log.trim_plan(to) {
            self.start.1 = self.start.1.max(to);
            plan.run().map_err(|_| Cut)?;
            log.trim_done(&plan);
            self.start.0 = to;
        }
        let mut garbage = log.take_garbage();
        loop {
            let dropped = log.drop_below_start();
            garbage.extend(dropped.garbage);
            if dropped.needs_roll {
                let new = log.roll_plan().run().map_err(|_| Cut)?;
                log.install(new).map_err(|_| Cut)?;
                self.acked = log.end_offset();
                self.acked_sequence = self.sequence;
                self.epoch = log.leader_epoch();
                continue;
            }
            if !dropped.needs_checkpoint {
                break;
            }
            self.flush(log)?;
            let plan = log.checkpoint_plan(Timestamp(self.now)).expect("wanted");
            log.checkpoint_done(Some(plan.run().map_err(|_| Cut)?));
        }
        garbage
            .iter()
            .try_for_each(|segment| segment.remove())
            .map_err(|_| Cut)
    }

    /// A log that starts Failed serves what it knows to be durable and takes nothing: the life is over.
    fn open(&mut self, stop: Stop) -> Result<Log, Cut> {
        let log = self.setup.try_open(stop).map_err(|_| Cut)?;
        match log.state() {
            LogState::Failed => Err(Cut),
            _ => Ok(log),
        }
    }

    /// Everything a broker does, over four lives.
    fn script(&mut self) -> Result<(), Cut> {
        for life in 0..4 {
            let stop = if life == 2 {
                Stop::Unclean
            } else {
                Stop::Clean
            };
            let mut log = self.open(stop)?;
            for round in 0..5 {
                self.append(&mut log)?;
                if round % 2 == 0 {
                    self.flush(&mut log)?;
                }
                if round == 3 && life != 0 {
                    self.checkpoint(&mut log)?;
                }
                // In the middle of a batch, and once of what is not durable.
                if round == 4 && life != 1 {
                    let to = Offset(log.end_offset().0 - 8);
                    self.trim(&mut log, to)?;
                }
                if round == 1 && life == 3 {
                    let to = log.end_offset();
                    self.trim(&mut log, to)?;
                }
            }
            if life == 1 {
                drop(log);
                self.disk.restart(Crash::KeepAll);
            } else if let Some(plan) = log.close_plan() {
                plan.run().map_err(|_| Cut)?;
                self.acked = log.end_offset();
            }
        }
        Ok(())
    }

    /// After a crash: the log opens, holds all that was promised and nothing that was never offered.
    fn check_after(&mut self, crash: Crash, what: &str) -> Log {
        self.disk.restart(crash);
        let fork = self.disk.fork();
        let log = self
            .setup
            .try_open(Stop::Unclean)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let end = log.end_offset();
        assert!(
            end >= self.acked,
            "D1 {what}: acked up to {}, found {end}",
            self.acked
        );
        assert!(
            crash != Crash::KeepAll || end >= self.written,
            "{what}: a kill lost written batches"
        );
        assert!(log.leader_epoch() > self.epoch, "{what}: epochs grow");
        let start = log.start_offset();
        let (sure, tried) = self.start;
        assert!(
            sure <= start && start <= tried,
            "{what}: {sure}..{tried}, found {start}"
        );
        self.start = (start, start);
        self.check_content(&log, what);
        self.check_producers(&log, what);
        self.check_transactions(&log, what);
        let again = self
            .setup
            .try_open(Stop::Unclean)
            .expect("recovery is idempotent");
        assert_eq!(
            (again.end_offset(), again.leader_epoch()),
            (end, log.leader_epoch()),
            "{what}"
        );
        self.check_without_hints(fork, &log, what);
        self.written = end;
        self.attempts.split_off(&end);
        log
    }

    fn check_content(&self, log: &Log, what: &str) {
        let start = log.start_offset();
        let batches = read_all(log, start.0, 700);
        let mut next = batches.first().map_or(start, |b| b.header().base_offset);
        assert!(next <= start, "{what}");
        for batch in batches {
            assert_eq!(batch.header().base_offset, next, "{what}");
            let (end, payload) = self
                .attempts
                .get(&next)
                .unwrap_or_else(|| panic!("{what}: nobody offered {next}"));
            assert_eq!(
                (*end, payload.as_ref()),
                (batch.header().next_offset(), batch.payload()),
                "D3 {what} at {next}"
            );
            next = *end;
        }
        assert_eq!(next, log.end_offset(), "{what}");
    }

    /// The producer's facts are those of the batches in the log (D10), or of deleted ones (i04).
    fn check_producers(&self, log: &Log, what: &str) {
        let start = log.start_offset();
        let batches = read_all(log, start.0, 1 << 20);
        let last = batches
            .iter()
            .rev()
            .find(|b| b.header().producer_id == ProducerId(7))
            .map(|b| b.header().last_sequence());
        let known = log.producers().get(ProducerId(7));
        let known = known.and_then(|entry| entry.last_batch());
        match last {
            Some(last) => assert_eq!(known.map(|b| b.last_sequence), Some(last), "{what}"),
            None => {
                let next = known.map_or(0, |b| b.last_sequence.0 + 1);
                assert!(next >= self.acked_sequence, "i04 {what}");
            }
        }
        let mut others = log.producers().iter().filter(|(id, _)| id.0 != TXN);
        assert!(others.all(|(_, e)| e.epoch == ProducerEpoch(0)));
    }

    /// What is known of transactions is what the batches in the log say, for every stretch of it (D10); more is known
    /// only of what was deleted.
    fn check_transactions(&self, log: &Log, what: &str) {
        let start = log.start_offset();
        let batches = read_all(log, start.0, 1 << 20);
        let (open, aborted) = transactions_of(&batches);
        let first = batches.first().map_or(start, |b| b.header().base_offset);
        let known = log.producers().get(ProducerId(TXN)).and_then(|e| e.open);
        let deleted = known.is_some_and(|known| known < first);
        assert!(known == open || deleted, "{what}: {known:?}, {open:?}");
        let (view, end) = (log.read_view(), log.end_offset());
        let stable = known.map_or(end, |known| known.max(start));
        assert_eq!(view.last_stable_offset(end), stable, "{what}");
        for (from, upto) in [(0, 1), (1, 2), (0, 2)] {
            let part = |n: i64| start.plus(end.since(start) * n / 2);
            let (from, upto) = (part(from), part(upto));
            let touched = |t: &&AbortedTxn| t.first_offset < upto && t.last_offset >= from;
            let touched: Vec<AbortedTxn> = aborted.iter().filter(touched).copied().collect();
            let found = view.aborted_in(from, upto).expect("aborted");
            let reached = |t: &AbortedTxn| {
                let same = |f: &&AbortedTxn| f.last_offset == t.last_offset;
                found.iter().find(same).map(|f| f.first_offset)
            };
            for txn in &touched {
                let reached = reached(txn).unwrap_or_else(|| panic!("{what}: no {txn:?}"));
                assert!(reached == txn.first_offset || reached < first, "{what}");
            }
            let mut kept = found.iter().filter(|t| t.first_offset >= first);
            assert!(kept.all(|t| touched.contains(t)), "{what}: {from}..{upto}");
        }
    }

    fn check_without_hints(&self, fork: SimDisk, log: &Log, what: &str) {
        for name in [CHECKPOINT, SNAPSHOT] {
            drop(fork.remove_file(&Path::new(DIR).join(name)));
        }
        for entry in fork.list(Path::new(DIR)).unwrap_or_default() {
            if entry.name.ends_with("index") {
                drop(fork.remove_file(&Path::new(DIR).join(entry.name)));
            }
        }
        let setup = Setup {
            disk: Arc::new(fork),
            dir: self.setup.dir.clone(),
            resources: self.setup.resources.clone(),
            ..self.setup
        };
        let full = setup
            .try_open(Stop::Unclean)
            .unwrap_or_else(|e| panic!("{what} without hints: {e}"));
        assert_eq!(full.end_offset(), log.end_offset(), "Y1 {what}");
        assert_eq!(full.start_offset(), log.start_offset(), "Y1 {what}");
        let windows = |log: &Log| {
            let batches = log
                .producers()
                .iter()
                .flat_map(|(id, e)| e.batches().map(move |b| (id, *b)).collect::<Vec<_>>());
            let mut batches = batches.collect::<Vec<_>>();
            batches.sort_by_key(|(id, batch)| (*id, batch.base));
            batches
        };
        // A snapshot also speaks of what was deleted.
        let start = log.start_offset();
        let (with, without) = (windows(log), windows(&full));
        let known = |(_, past): &&(_, PastBatch)| past.base >= start;
        let agree =
            |some: &[_], others: &[_]| some.iter().filter(known).all(|p| others.contains(p));
        assert!(
            agree(&with, &without) && agree(&without, &with),
            "Y1 {what}"
        );
        self.check_transactions(&full, what);
    }
}

/// The open transaction and the aborted ones, by the batches.
fn transactions_of(batches: &[Batch]) -> (Option<Offset>, Vec<AbortedTxn>) {
    let (mut open, mut aborted) = (None, Vec::new());
    for batch in batches {
        let header = batch.header();
        if header.attributes.is_control() {
            let commit = batch.payload()[8] == 1;
            if let Some(first_offset) = open.take().filter(|_| !commit) {
                aborted.push(AbortedTxn {
                    first_offset,
                    last_offset: header.base_offset,
                    producer: header.producer_id,
                });
            }
        } else if header.attributes.is_transactional() {
            open = open.or(Some(header.base_offset));
        }
    }
    (open, aborted)
}

fn fresh() -> Run {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/topic")).expect("mkdir");
    disk.sync_dir(Path::new("/")).expect("sync");
    Run::new(disk)
}

/// Crash states that one run checks at least, unless `SEAWALL_CRASH_STATES` asks for more (a night: 200,000).
const STATES_MIN: u64 = 5_000;
/// Of each power cut: nothing more is lost, all that was not synced is lost, and two checks of either.
const CHECKS_PER_CRASH: u64 = 2;

/// Calls that change the disk in a script that nothing disturbs.
fn calls_of_the_script() -> u64 {
    let mut run = fresh();
    let before = run.disk.calls(None);
    assert!(run.script().is_ok());
    run.disk.calls(None) - before
}

/// Runs the script with a power cut at the call `after`, then crashes in so many ways, and goes on from each.
fn cut_at(after: u64, crashes: u64) {
    let torn = (2..crashes).map(|n| Crash::Random(after * 1_000 + n));
    for crash in [Crash::KeepAll, Crash::LoseAll].into_iter().chain(torn) {
        let mut run = fresh();
        run.disk.inject(FaultAt {
            op: None,
            after,
            fault: Fault::PowerCut,
        });
        let what = format!("cut at {after}, {crash:?}");
        assert!(run.script().is_err(), "{what}");
        let mut log = run.check_after(crash, &what);
        after_recovery(&mut run, &mut log, &what);
    }
}

/// Nothing is ever appended behind a torn tail: what is acknowledged after a recovery survives the next power cut.
fn after_recovery(run: &mut Run, log: &mut Log, what: &str) {
    let known = log.producers().get(ProducerId(7));
    let known = known.and_then(|e| e.last_batch()).map(|b| b.last_sequence);
    run.sequence = known.map_or(0, |s| s.0 + 1);
    for _ in 0..3 {
        assert!(run.append(log).is_ok(), "{what}");
    }
    assert!(run.flush(log).is_ok(), "{what}");
    let promised = run.acked;
    assert_eq!(promised, log.end_offset());
    assert!(run.append(log).is_ok(), "{what}");
    run.check_after(Crash::LoseAll, &format!("{what}, then again"));
    assert!(run.acked >= promised);
}

#[test]
fn acked_records_survive_a_power_cut_at_any_write() {
    let asked = std::env::var("SEAWALL_CRASH_STATES").ok();
    let wanted = asked.map_or(STATES_MIN, |n| {
        n.parse().expect("SEAWALL_CRASH_STATES is a number")
    });
    let calls = calls_of_the_script();
    assert!(
        calls > 100,
        "the script makes {calls} calls that change the disk"
    );
    let crashes = wanted.div_ceil(calls * CHECKS_PER_CRASH).max(7);
    for at in 0..calls {
        cut_at(at, crashes);
    }
    println!("{} crash states", calls * crashes * CHECKS_PER_CRASH);
}

/// What a call may come back with, beside success.
const ANSWERS: [Fault; 6] = [
    Fault::Error(io::ErrorKind::Other),
    Fault::Error(io::ErrorKind::StorageFull),
    Fault::Error(io::ErrorKind::QuotaExceeded),
    Fault::Error(io::ErrorKind::StaleNetworkFileHandle),
    Fault::Error(io::ErrorKind::Interrupted),
    Fault::ShortWrite(1),
];

/// Every call that changes the disk fails: once, or all from there on. Then the process dies, or the power fails.
#[test]
fn acked_records_survive_a_failure_of_any_call_once_and_for_good() {
    let calls = calls_of_the_script();
    let mut states = 0_u64;
    for at in 0..calls {
        for fault in ANSWERS {
            for times in [1, calls] {
                fail_at(at, fault, times);
                states += 1;
            }
        }
    }
    println!("{states} sweeps of failed calls");
}

fn fail_at(after: u64, fault: Fault, times: u64) {
    let mut run = fresh();
    for after in after..after + times {
        let op = None;
        run.disk.inject(FaultAt { op, after, fault });
    }
    let what = format!("{fault:?} at {after}, {times} times");
    // The script ends where its owner would take the partition offline; some failures pass unnoticed.
    let _ = run.script();
    run.disk.clear_faults();
    // A failed sync may take back what was only written (D3).
    run.written = run.acked;
    let crash = match after % 3 {
        0 => Crash::KeepAll,
        1 => Crash::LoseAll,
        _ => Crash::Random(after),
    };
    let mut log = run.check_after(crash, &what);
    after_recovery(&mut run, &mut log, &what);
}

/// A batch as it would be parsed from the wire again: the model's payloads are compared with these bytes.
#[test]
fn the_model_sees_the_bytes_that_were_sent() {
    let batch = plain(1, 2, 10);
    assert_eq!(parse(batch.bytes()).payload(), batch.payload());
}
