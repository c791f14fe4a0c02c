//! Compaction of transactions: aborted records go, committed ones stay, markers go after their batches, and no crash shows
//! a reader anything else. x07.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use seawall_storage::disk::{Crash, Disk, Fault, FaultAt, SimDisk};
use seawall_storage::names::{CHECKPOINT, COMPACTION, SNAPSHOT};
use seawall_storage::{
    Attributes, Batch, BatchHeader, BatchVerdict, Log, Offset, ProducerEpoch, ProducerId, Sequence,
    Stop, Timestamp, TxnOutcome,
};

use crate::compaction::{
    DIR, HOUR, Pair, Row, all_rows, compact, fields, keyed, payload, rows, rules, setup, table,
};
use crate::support::{Setup, append, marker, offered, parse, read_all, roll, seal};

/// A batch of a transaction.
fn in_txn(id: i64, sequence: i32, pairs: &[Pair<'_>]) -> Batch {
    let pairs: Vec<_> = pairs.iter().map(|(k, v)| (Some(*k), *v)).collect();
    let fields = BatchHeader {
        attributes: Attributes(1 << 4),
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(0),
        base_sequence: Sequence(sequence),
        ..fields(pairs.len(), HOUR)
    };
    parse(&seal(fields, &payload(&pairs)))
}

/// What a reader of committed records gets, filtered as clients do: by the list of aborted transactions and the markers.
fn committed(log: &Log) -> Vec<Row> {
    let view = log.read_view();
    let stable = view.last_stable_offset(view.end_offset());
    let aborted = view
        .aborted_in(log.start_offset(), stable)
        .expect("aborted");
    let mut left: VecDeque<_> = aborted.into();
    let mut aborting = HashSet::new();
    let mut found = Vec::new();
    for batch in read_all(log, log.start_offset().0, 300) {
        let header = *batch.header();
        if header.next_offset() > stable {
            break;
        }
        while let Some(txn) = left
            .front()
            .filter(|t| t.first_offset <= header.last_offset())
        {
            aborting.insert(txn.producer);
            left.pop_front();
        }
        if header.attributes.is_control() {
            aborting.remove(&header.producer_id);
        } else if !header.attributes.is_transactional() || !aborting.contains(&header.producer_id) {
            found.extend(rows(&[batch]));
        }
    }
    found
}

fn markers(log: &Log) -> Vec<i64> {
    let all = read_all(log, 0, 1000);
    let markers = all.iter().filter(|b| b.header().attributes.is_control());
    markers.map(|b| b.header().base_offset.0).collect()
}

#[test]
fn aborted_records_go_committed_ones_stay_and_markers_go_after_their_batches() {
    let (setup, disk) = setup();
    let mut log = setup.open(Stop::Clean);
    append(
        &mut log,
        &[keyed(&[("a", Some("plain")), ("b", Some("plain"))])],
    );
    append(
        &mut log,
        &[in_txn(
            1,
            0,
            &[("a", Some("aborted")), ("c", Some("aborted"))],
        )],
    );
    append(&mut log, &[in_txn(2, 0, &[("b", Some("committed"))])]);
    append(
        &mut log,
        &[
            marker(1, 0, TxnOutcome::Abort),
            marker(2, 0, TxnOutcome::Commit),
        ],
    );
    // Later transactions, so that nobody is asked about those.
    for sequence in 1..7 {
        append(&mut log, &[in_txn(2, sequence, &[("z", Some("x"))])]);
        append(&mut log, &[marker(2, 0, TxnOutcome::Commit)]);
        append(&mut log, &[in_txn(1, 1 + sequence, &[("y", Some("x"))])]);
        append(&mut log, &[marker(1, 0, TxnOutcome::Commit)]);
    }
    roll(&mut log);
    let mut expected = table(&committed(&log));
    for pass in 0..3 {
        compact(&mut log, &disk, &rules(), HOUR + pass * 2000).expect("compaction");
        for log in [&log, &setup.open(Stop::Unclean)] {
            assert_eq!(table(&committed(log)), expected, "pass {pass}");
            let all = all_rows_of_data(log);
            assert!(
                !all.iter().any(|row| row.0 == 2 || row.0 == 3),
                "pass {pass}: {all:?}"
            );
            let view = log.read_view();
            let stable = view.last_stable_offset(view.end_offset());
            assert_eq!(stable, log.end_offset(), "nothing is open");
        }
        append(&mut log, &[keyed(&[("more", Some("x"))])]);
        expected.insert("more".to_owned(), "x".to_owned());
        roll(&mut log);
    }
    // Of 14 markers those stay whose batches do, or that end what a producer may be asked about.
    let left = markers(&log);
    assert!(!left.contains(&5), "the abort's: {left:?}");
    assert!(left.contains(&6), "b is still there: {left:?}");
    assert!(left.len() < 14, "{left:?}");
    assert!(
        left.contains(&28) && left.contains(&30),
        "the last of each: {left:?}"
    );
}

fn all_rows_of_data(log: &Log) -> Vec<Row> {
    let all = read_all(log, 0, 1000);
    let data: Vec<Batch> = all
        .into_iter()
        .filter(|b| !b.header().attributes.is_control())
        .collect();
    rows(&data)
}

#[test]
fn x07_an_open_transaction_is_left_alone_until_it_ends() {
    let (setup, disk) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[keyed(&[("a", Some("1"))])]);
    append(&mut log, &[in_txn(1, 0, &[("a", Some("2"))])]);
    roll(&mut log);
    append(&mut log, &[keyed(&[("a", Some("3"))])]);
    roll(&mut log);
    compact(&mut log, &disk, &rules(), HOUR).expect("compaction");
    assert_eq!(
        all_rows(&log).len(),
        3,
        "nothing behind its first record is stable"
    );
    append(&mut log, &[marker(1, 0, TxnOutcome::Abort)]);
    roll(&mut log);
    compact(&mut log, &disk, &rules(), HOUR).expect("compaction");
    assert_eq!(committed(&log).len(), 1);
    assert_eq!(table(&committed(&log))["a"], "3");
}

/// What was offered, in order, as a model of transactions.
#[derive(Clone)]
enum Sent {
    Plain(Pair<'static>),
    InTxn(i64, Pair<'static>),
    Marker(i64, TxnOutcome),
}

struct Cut;

struct Life {
    setup: Setup,
    disk: SimDisk,
    sent: BTreeMap<i64, Sent>,
    sequences: BTreeMap<i64, i32>,
    acked: i64,
}

impl Life {
    fn new() -> Self {
        let (setup, disk) = setup();
        Self {
            setup,
            disk,
            sent: BTreeMap::new(),
            sequences: BTreeMap::new(),
            acked: 0,
        }
    }

    fn send(&mut self, log: &mut Log, what: &Sent) -> Result<(), Cut> {
        let batch = match what {
            Sent::Plain(pair) => keyed(&[*pair]),
            Sent::InTxn(id, pair) => in_txn(*id, *self.sequences.get(id).unwrap_or(&0), &[*pair]),
            Sent::Marker(id, outcome) => marker(*id, 0, *outcome),
        };
        loop {
            self.sent.split_off(&log.end_offset().0);
            self.sent.insert(log.end_offset().0, what.clone());
            let outcome = log.append_group(&[offered(&batch)], Timestamp(HOUR));
            match outcome.verdicts[0] {
                BatchVerdict::Appended { .. } if outcome.stopped.is_none() => break,
                BatchVerdict::Deferred => self.roll(log)?,
                _ => return Err(Cut),
            }
        }
        if let Sent::InTxn(id, _) = what {
            *self.sequences.entry(*id).or_default() += 1;
        }
        Ok(())
    }

    fn roll(&mut self, log: &mut Log) -> Result<(), Cut> {
        let new = log.roll_plan().run().map_err(|_| Cut)?;
        log.install(new).map_err(|_| Cut)?;
        self.acked = log.end_offset().0;
        Ok(())
    }

    fn compact(&mut self, log: &mut Log, now: i64) -> Result<(), Cut> {
        let rules = seawall_storage::CompactionRules {
            segment_bytes: 1500,
            ..rules()
        };
        let disk = self.disk.clone();
        compact(log, &disk, &rules, now).map_err(|_| Cut).map(drop)
    }

    fn script(&mut self) -> Result<(), Cut> {
        use Sent::{InTxn, Marker, Plain};
        let mut log = self.setup.try_open(Stop::Unclean).map_err(|_| Cut)?;
        for round in 0..4 {
            let last = if round % 2 == 0 {
                TxnOutcome::Commit
            } else {
                TxnOutcome::Abort
            };
            for what in [
                Plain(("a", Some("plain"))),
                InTxn(1, ("a", None)),
                InTxn(2, ("b", Some("two"))),
                Marker(1, TxnOutcome::Abort),
                InTxn(1, ("c", Some("one"))),
                Marker(2, last),
                Plain(("b", if round == 2 { None } else { Some("plain") })),
                Marker(1, TxnOutcome::Commit),
            ] {
                self.send(&mut log, &what)?;
            }
            self.roll(&mut log)?;
            self.send(&mut log, &Plain(("z", Some("filler"))))?;
            self.compact(&mut log, HOUR + round * 2000)?;
        }
        Ok(())
    }

    /// What a reader of committed records must have at `end`.
    fn model(&self, end: i64) -> BTreeMap<String, String> {
        let outcome_of = |id: i64, from: i64| {
            let mut later = self.sent.range(from..end);
            later.find_map(|(_, sent)| match sent {
                Sent::Marker(of, outcome) if *of == id => Some(*outcome),
                _ => None,
            })
        };
        let mut stable = end;
        let mut rows: Vec<Row> = Vec::new();
        for (offset, sent) in self.sent.range(..end) {
            let (pair, counts) = match sent {
                Sent::Plain(pair) => (pair, true),
                Sent::InTxn(id, pair) => match outcome_of(*id, *offset) {
                    Some(outcome) => (pair, outcome == TxnOutcome::Commit),
                    None => {
                        stable = stable.min(*offset);
                        continue;
                    }
                },
                Sent::Marker(..) => continue,
            };
            if counts {
                rows.push((*offset, Some(pair.0.into()), pair.1.map(Into::into), 0));
            }
        }
        table(rows.iter().filter(|row| row.0 < stable))
    }

    fn check_after(&self, crash: Crash, what: &str) {
        self.disk.restart(crash);
        let fork = self.disk.fork();
        let log = self
            .setup
            .try_open(Stop::Unclean)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let end = log.end_offset();
        assert!(end.0 >= self.acked, "D1 {what}");
        assert_eq!(table(&committed(&log)), self.model(end.0), "{what}");
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
        let stable = |log: &Log| log.read_view().last_stable_offset(Offset(i64::MAX));
        assert_eq!(stable(&bare), stable(&log), "Y1 {what}");
        assert_eq!(committed(&bare), committed(&log), "Y1 {what}");
        let facts = |log: &Log| {
            let all = log.producers().iter();
            let mut facts: Vec<_> = all
                .map(|(id, e)| (id.0, e.open, e.last_batch().copied(), e.last_marker))
                .collect();
            facts.sort_unstable_by_key(|fact| fact.0);
            facts
        };
        assert_eq!(facts(&bare), facts(&log), "Y1 {what}");
    }
}

#[test]
fn no_power_cut_shows_an_aborted_record_or_hides_a_committed_one() {
    let mut at = 0;
    loop {
        let crashes = [Crash::KeepAll, Crash::LoseAll];
        let random = (0..2).map(|n| Crash::Random(at * 100 + n));
        for crash in crashes.into_iter().chain(random) {
            let mut life = Life::new();
            life.disk.inject(FaultAt {
                op: None,
                after: at,
                fault: Fault::PowerCut,
            });
            if life.script().is_ok() {
                assert!(at > 100, "the script makes {at} calls that change the disk");
                return;
            }
            life.check_after(crash, &format!("cut at {at}, {crash:?}"));
        }
        at += 1;
    }
}
