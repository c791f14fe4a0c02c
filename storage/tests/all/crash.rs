//! Power cuts and kills at every call that changes the disk, checked against a model of what was promised.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use seawall_storage::disk::{Crash, Disk, Fault, FaultAt, SimDisk};
use seawall_storage::names::{CHECKPOINT, SNAPSHOT};
use seawall_storage::{
    Batch, BatchVerdict, LeaderEpoch, Log, LogConfig, Offered, Offset, PastBatch, ProducerEpoch,
    Stop, Timestamp,
};

use crate::support::{Setup, idempotent, offered, parse, plain, read_all};

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
    /// The sequence that follows what was acknowledged as durable.
    acked_sequence: i32,
    tag: u32,
    now: i64,
}

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
            acked_sequence: 0,
            tag: 0,
            now: 2_000_000,
        }
    }

    fn group(&mut self) -> Vec<Batch> {
        self.tag += 1;
        let batch = idempotent(7, 0, self.sequence, 2);
        vec![
            plain(self.tag, 3, 40),
            batch,
            plain(self.tag + 1000, 1, 150),
        ]
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
        let batches = self.group();
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
                .any(|o| o.batch.header().has_producer())
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

    fn open(&mut self, stop: Stop) -> Result<Log, Cut> {
        self.setup.try_open(stop).map_err(|_| Cut)
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
            .find(|b| b.header().has_producer())
            .map(|b| b.header().last_sequence());
        let known = log
            .producers()
            .iter()
            .next()
            .and_then(|(_, entry)| entry.last_batch());
        match last {
            Some(last) => assert_eq!(known.map(|b| b.last_sequence), Some(last), "{what}"),
            None => {
                let next = known.map_or(0, |b| b.last_sequence.0 + 1);
                assert!(next >= self.acked_sequence, "i04 {what}");
            }
        }
        assert!(
            log.producers()
                .iter()
                .all(|(_, e)| e.epoch == ProducerEpoch(0))
        );
    }

    fn check_without_hints(&self, fork: SimDisk, log: &Log, what: &str) {
        for name in [CHECKPOINT, SNAPSHOT] {
            drop(fork.remove_file(&Path::new(DIR).join(name)));
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
            batches.collect::<Vec<_>>()
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
    }
}

fn fresh() -> Run {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/topic")).expect("mkdir");
    disk.sync_dir(Path::new("/")).expect("sync");
    Run::new(disk)
}

/// Runs the script with a power cut at the call `after`, then crashes in every way. `false`: the script ended before.
fn cut_at(after: u64) -> bool {
    let crashes = [Crash::KeepAll, Crash::LoseAll]
        .into_iter()
        .chain((0..5).map(|n| Crash::Random(after * 100 + n)));
    for crash in crashes {
        let mut run = fresh();
        run.disk.inject(FaultAt {
            op: None,
            after,
            fault: Fault::PowerCut,
        });
        if run.script().is_ok() {
            return false;
        }
        let what = format!("cut at {after}, {crash:?}");
        let mut log = run.check_after(crash, &what);
        after_recovery(&mut run, &mut log, &what);
    }
    true
}

/// Nothing is ever appended behind a torn tail: what is acknowledged after a recovery survives the next power cut.
fn after_recovery(run: &mut Run, log: &mut Log, what: &str) {
    let known = log
        .producers()
        .iter()
        .next()
        .and_then(|(_, e)| e.last_batch())
        .map(|b| b.last_sequence);
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
    let mut at = 0;
    while cut_at(at) {
        at += 1;
    }
    assert!(at > 100, "the script makes {at} calls that change the disk");
}

/// A batch as it would be parsed from the wire again: the model's payloads are compared with these bytes.
#[test]
fn the_model_sees_the_bytes_that_were_sent() {
    let batch = plain(1, 2, 10);
    assert_eq!(parse(batch.bytes()).payload(), batch.payload());
}
