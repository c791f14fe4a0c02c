//! Power cuts and failing calls at every step of compaction, checked against a model of what a reader must end up with.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use seawall_storage::disk::{Crash, Disk, Fault, FaultAt, SimDisk};
use seawall_storage::names::{CHECKPOINT, COMPACTION, SNAPSHOT};
use seawall_storage::{
    BatchVerdict, CompactionRules, Log, Offered, Stop, Timestamp, read_progress,
};

use crate::compaction::{
    DIR, HOUR, Pair, Row, all_rows, checkpoint, compact, keyed, rules, setup, table, topic,
};
use crate::support::{Setup, offered};

/// Everything offered in order; the model of what a reader must end up with at any offset.
struct Life {
    setup: Setup,
    disk: SimDisk,
    offered: Vec<Row>,
    acked: i64,
    tag: u32,
}

struct Cut;

impl From<std::io::Error> for Cut {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

impl Life {
    fn new() -> Self {
        let (setup, disk) = setup();
        Self {
            setup,
            disk,
            offered: Vec::new(),
            acked: 0,
            tag: 0,
        }
    }

    fn append(&mut self, log: &mut Log, pairs: &[Pair<'_>]) -> Result<(), Cut> {
        self.tag += 1;
        let tag = self.tag;
        let texts: Vec<(String, Option<String>)> = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), v.map(|v| format!("{v}-{tag}"))))
            .collect();
        let pairs: Vec<Pair<'_>> = texts
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_deref()))
            .collect();
        let batch = keyed(&pairs);
        loop {
            let base = log.end_offset().0;
            self.offered.truncate(usize::try_from(base).expect("small"));
            let rows = (base..).zip(&texts).map(|(offset, (k, v))| {
                (
                    offset,
                    Some(k.clone()),
                    v.clone(),
                    HOUR + 10 * (offset - base),
                )
            });
            self.offered.extend(rows);
            let outcome = log.append_group(
                &[Offered {
                    keep: false,
                    ..offered(&batch)
                }],
                Timestamp(HOUR),
            );
            match outcome.verdicts[0] {
                BatchVerdict::Appended { .. } if outcome.stopped.is_none() => return Ok(()),
                BatchVerdict::Deferred => self.roll(log)?,
                _ => return Err(Cut),
            }
        }
    }

    fn roll(&mut self, log: &mut Log) -> Result<(), Cut> {
        let new = log.roll_plan().run().map_err(|_| Cut)?;
        log.install(new).map_err(|_| Cut)?;
        self.acked = log.end_offset().0;
        Ok(())
    }

    fn flush(&mut self, log: &mut Log) -> Result<(), Cut> {
        if let Some(point) = log.flush_point() {
            point.file.sync_data()?;
            log.mark_synced(&point);
            self.acked = self.acked.max(point.end.0);
        }
        Ok(())
    }

    fn compact(&mut self, log: &mut Log, now: i64) -> Result<(), Cut> {
        self.flush(log)?;
        let disk = self.disk.clone();
        // Runs of many segments, which take many steps to go.
        let rules = CompactionRules {
            segment_bytes: 1500,
            ..rules()
        };
        compact(log, &disk, &rules, now)?;
        Ok(())
    }

    /// Keys come, change, go and come back, over two lives.
    fn script(&mut self) -> Result<(), Cut> {
        for life in 0..2 {
            let mut log = self.setup.try_open(Stop::Unclean).map_err(|_| Cut)?;
            for round in 0..3 {
                let now = HOUR + (life * 3 + round) * 2000;
                self.append(
                    &mut log,
                    &[("a", Some("x")), ("b", Some("x")), ("c", Some("x"))],
                )?;
                self.append(&mut log, &[("a", None), ("d", Some("x"))])?;
                self.append(
                    &mut log,
                    &[("b", if round % 2 == 0 { None } else { Some("y") })],
                )?;
                self.roll(&mut log)?;
                self.append(&mut log, &[("d", None), ("e", Some("z"))])?;
                self.flush(&mut log)?;
                self.compact(&mut log, now)?;
            }
            if life == 0
                && let Some(plan) = log.close_plan()
            {
                plan.run()?;
            }
        }
        Ok(())
    }

    fn check_after(&mut self, crash: Crash, what: &str) {
        self.disk.restart(crash);
        let fork = self.disk.fork();
        let log = self
            .setup
            .try_open(Stop::Unclean)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let end = log.end_offset().0;
        assert!(
            end >= self.acked,
            "D1 {what}: {} acknowledged, {end} found",
            self.acked
        );
        let rows = all_rows(&log);
        let offered: HashMap<i64, &Row> = self.offered.iter().map(|row| (row.0, row)).collect();
        for row in &rows {
            assert_eq!(
                offered.get(&row.0),
                Some(&row),
                "{what}: a record that nobody sent"
            );
        }
        let prefix = self.offered.iter().filter(|row| row.0 < end);
        assert_eq!(table(&rows), table(prefix), "Z2, Z3 {what}: {rows:?}");
        for name in [CHECKPOINT, SNAPSHOT, COMPACTION] {
            drop(fork.remove_file(&Path::new(DIR).join(name)));
        }
        let bare = Setup {
            disk: Arc::new(fork),
            dir: self.setup.dir.clone(),
            resources: self.setup.resources.clone(),
            ..self.setup
        };
        let bare = bare
            .try_open(Stop::Unclean)
            .unwrap_or_else(|e| panic!("{what}, no hints: {e}"));
        assert_eq!(bare.end_offset().0, end, "Y1 {what}");
        assert_eq!(all_rows(&bare), rows, "Y1 {what}");
        self.offered.truncate(usize::try_from(end).expect("small"));
        self.acked = end;
    }

    /// The next broker compacts on, as if nothing had happened.
    fn go_on(&mut self, what: &str) {
        let mut log = self.setup.open(Stop::Unclean);
        let went_on = (0..2).try_for_each(|round| {
            self.append(&mut log, &[("a", Some("w")), ("f", Some("w"))])?;
            self.roll(&mut log)?;
            self.compact(&mut log, 10 * HOUR + round * 2000)
        });
        assert!(went_on.is_ok(), "{what}");
        self.check_after(Crash::LoseAll, &format!("{what}, then again"));
        let log = self.setup.open(Stop::Unclean);
        let (id, index) = topic();
        let clean = read_progress(&self.disk, Path::new(DIR), id, index);
        let rows = all_rows(&log);
        let mut seen = HashMap::new();
        for row in rows.iter().filter(|row| row.0 < clean.0) {
            assert_eq!(
                seen.insert(row.1.clone(), row.0),
                None,
                "Z6 {what}: {rows:?}"
            );
        }
    }
}

/// Cuts the power at the call `after`, crashes in several ways. `false`: the script ended before.
fn cut_at(after: u64) -> bool {
    let crashes = [Crash::KeepAll, Crash::LoseAll]
        .into_iter()
        .chain((0..3).map(|n| Crash::Random(after * 100 + n)));
    for crash in crashes {
        let mut life = Life::new();
        life.disk.inject(FaultAt {
            op: None,
            after,
            fault: Fault::PowerCut,
        });
        if life.script().is_ok() {
            return false;
        }
        let what = format!("cut at {after}, {crash:?}");
        life.check_after(crash, &what);
        life.go_on(&what);
    }
    true
}

#[test]
fn no_power_cut_loses_a_key_or_brings_one_back() {
    let mut at = 0;
    while cut_at(at) {
        at += 1;
    }
    assert!(at > 200, "the script makes {at} calls that change the disk");
}

#[test]
fn a_failed_call_leaves_the_log_as_it_was_and_the_next_pass_finds_it() {
    for after in 0.. {
        let mut life = Life::new();
        let mut log = life.setup.open(Stop::Clean);
        for _ in 0..3 {
            assert!(
                life.append(&mut log, &[("a", Some("x")), ("b", Some("x"))])
                    .is_ok()
            );
            assert!(life.roll(&mut log).is_ok());
        }
        checkpoint(&mut log).expect("checkpoint");
        life.disk.inject(FaultAt {
            op: None,
            after,
            fault: Fault::Error(std::io::ErrorKind::Other),
        });
        let disk = life.disk.clone();
        let hit = compact(&mut log, &disk, &rules(), HOUR).is_err();
        let pending = life.disk.clear_faults();
        assert_eq!(table(&all_rows(&log)).len(), 2, "call {after}");
        drop(log);
        life.check_after(Crash::KeepAll, &format!("call {after} failed"));
        life.go_on(&format!("call {after} failed"));
        if !hit && pending {
            assert!(after > 5);
            return;
        }
    }
}
