//! Idempotence: cases w11, i01-i03, i07, i09, i10, i12.

use std::path::Path;
use std::sync::Arc;

use seawall_storage::disk::{Crash, Disk, Fault, FaultAt, SimDisk, SimOp};
use seawall_storage::names::{CHECKPOINT, SNAPSHOT};
use seawall_storage::{
    AppendReject, Batch, BatchVerdict, Log, LogState, Offered, Offset, ProducerId, Stop, Timestamp,
};

use crate::support::{Setup, append, close, flush, idempotent, offered, plain, read_all};

const DIR: &str = "/topic/3";

fn setup() -> (SimDisk, Setup) {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/topic")).expect("mkdir");
    disk.sync_dir(Path::new("/")).expect("sync");
    let setup = Setup::new(Arc::new(disk.clone()), Path::new(DIR));
    (disk, setup)
}

fn one(log: &mut Log, batch: &Batch) -> BatchVerdict {
    append(log, std::slice::from_ref(batch))[0]
}

fn appended(base: i64, last: i64) -> BatchVerdict {
    BatchVerdict::Appended {
        base: Offset(base),
        last: Offset(last),
    }
}

fn duplicate(base: i64, last: i64) -> BatchVerdict {
    BatchVerdict::Duplicate {
        base: Offset(base),
        last: Offset(last),
        append_time: None,
    }
}

const OUT_OF_ORDER: BatchVerdict = BatchVerdict::Rejected(AppendReject::OutOfOrderSequence);
const FENCED: BatchVerdict = BatchVerdict::Rejected(AppendReject::ProducerFenced);

#[test]
fn w11_sequences_wrap() {
    let (_disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    assert_eq!(
        one(&mut log, &idempotent(1, 0, i32::MAX - 1, 1)),
        appended(0, 0)
    );
    assert_eq!(
        one(&mut log, &idempotent(1, 0, i32::MAX, 2)),
        appended(1, 2),
        "a batch may wrap inside"
    );
    assert_eq!(one(&mut log, &idempotent(1, 0, 1, 1)), appended(3, 3));
    assert_eq!(
        one(&mut log, &idempotent(1, 0, i32::MAX, 2)),
        duplicate(1, 2)
    );
    assert_eq!(
        one(&mut log, &idempotent(2, 0, i32::MAX, 1)),
        appended(4, 4)
    );
    assert_eq!(one(&mut log, &idempotent(2, 0, 0, 1)), appended(5, 5));
}

#[test]
fn i01_a_retry_after_a_kill_gets_its_first_offset() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    assert_eq!(one(&mut log, &plain(1, 5, 10)), appended(0, 4));
    assert_eq!(one(&mut log, &idempotent(9, 3, 40, 4)), appended(5, 8));
    drop(log);
    disk.restart(Crash::KeepAll);
    let mut log = setup.open(Stop::Unclean);
    assert_eq!(one(&mut log, &idempotent(9, 3, 40, 4)), duplicate(5, 8));
    assert_eq!(log.end_offset(), Offset(9), "one copy");
    assert_eq!(one(&mut log, &idempotent(9, 3, 44, 1)), appended(9, 9));
}

#[test]
fn i02_a_retry_of_a_batch_in_a_rolled_segment_gets_its_first_offset() {
    let (_disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    assert_eq!(one(&mut log, &idempotent(9, 0, 0, 2)), appended(0, 1));
    for tag in 0..30 {
        append(&mut log, &[plain(tag, 1, 200)]);
    }
    assert_eq!(one(&mut log, &idempotent(9, 0, 0, 2)), duplicate(0, 1));
    close(&log);
    let mut log = setup.open(Stop::Clean);
    assert_eq!(one(&mut log, &idempotent(9, 0, 0, 2)), duplicate(0, 1));
}

#[test]
fn i03_a_silent_producer_may_go_on_after_its_state_has_expired() {
    let (_disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    assert_eq!(one(&mut log, &idempotent(9, 0, 0, 3)), appended(0, 2));
    assert_eq!(one(&mut log, &idempotent(9, 0, 7, 1)), OUT_OF_ORDER);
    assert_eq!(
        log.expire_producers(Timestamp(2_000_000 + 24 * 3600 * 1000 - 1)),
        0
    );
    assert_eq!(
        log.expire_producers(Timestamp(2_000_000 + 24 * 3600 * 1000)),
        1
    );
    assert_eq!(one(&mut log, &idempotent(9, 0, 7, 1)), appended(3, 3));
}

#[test]
fn i07_gaps_and_old_epochs_write_nothing() {
    let (_disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    assert_eq!(
        one(&mut log, &idempotent(9, 2, 156, 1)),
        appended(0, 0),
        "an unknown producer may begin anywhere"
    );
    assert_eq!(one(&mut log, &idempotent(9, 2, 158, 1)), OUT_OF_ORDER);
    assert_eq!(
        one(&mut log, &idempotent(9, 2, 156, 2)),
        OUT_OF_ORDER,
        "a partial overlap is no duplicate"
    );
    assert_eq!(one(&mut log, &idempotent(9, 1, 157, 1)), FENCED);
    assert_eq!(
        one(&mut log, &idempotent(9, 3, 157, 1)),
        OUT_OF_ORDER,
        "a raised epoch begins with 0"
    );
    assert_eq!(log.end_offset(), Offset(1));
    assert_eq!(one(&mut log, &idempotent(9, 3, 0, 1)), appended(1, 1));
    assert_eq!(one(&mut log, &idempotent(9, 2, 157, 1)), FENCED);
}

#[test]
fn i09_a_duplicate_older_than_five_batches_is_out_of_order() {
    let (_disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    for sequence in 0..6 {
        assert_eq!(
            one(&mut log, &idempotent(9, 0, sequence, 1)),
            appended(sequence.into(), sequence.into())
        );
    }
    assert_eq!(one(&mut log, &idempotent(9, 0, 0, 1)), OUT_OF_ORDER);
    for sequence in 1..6 {
        assert_eq!(
            one(&mut log, &idempotent(9, 0, sequence, 1)),
            duplicate(sequence.into(), sequence.into())
        );
    }
}

#[test]
fn i08_duplicates_and_gaps_within_one_group_are_judged_in_order() {
    let (_disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    let batches = [
        idempotent(9, 0, 0, 2),
        idempotent(9, 0, 0, 2),
        idempotent(9, 0, 3, 1),
        idempotent(9, 0, 2, 1),
    ];
    let verdicts = append(&mut log, &batches);
    assert_eq!(
        verdicts,
        [
            appended(0, 1),
            duplicate(0, 1),
            OUT_OF_ORDER,
            appended(2, 2)
        ]
    );
}

/// The state after opening, as (id, first sequence, base) of all remembered batches.
fn windows(log: &Log) -> Vec<(ProducerId, i32, i64)> {
    let mut all: Vec<_> = log
        .producers()
        .iter()
        .flat_map(|(id, e)| {
            e.batches()
                .map(move |b| (id, b.first_sequence.0, b.base.0))
                .collect::<Vec<_>>()
        })
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn i10_an_old_a_new_and_a_damaged_snapshot_give_the_state_of_a_full_replay() {
    let (disk, setup) = setup();
    let snapshot = Path::new(DIR).join(SNAPSHOT);
    let mut log = setup.open(Stop::Clean);
    let mut saved = Vec::new();
    for sequence in 0..40 {
        append(
            &mut log,
            &[
                idempotent(i64::from(sequence) % 3, 0, sequence / 3, 1),
                plain(7, 1, 100),
            ],
        );
        if sequence == 20 {
            close(&log);
            log = setup.open(Stop::Clean);
            saved = disk.content(&snapshot).expect("written at a close");
        }
    }
    flush(&mut log);
    let expected = windows(&log);
    close(&log);
    let newest = disk.content(&snapshot).expect("written");
    let check = |content: Option<&[u8]>, what: &str| {
        let fork = disk.fork();
        match content {
            Some(bytes) => fork.put(&snapshot, bytes),
            None => fork.remove_file(&snapshot).expect("was there"),
        }
        let setup = Setup {
            disk: Arc::new(fork),
            dir: setup.dir.clone(),
            resources: setup.resources.clone(),
            ..setup
        };
        assert_eq!(windows(&setup.open(Stop::Clean)), expected, "{what}");
        assert_eq!(
            windows(&setup.open(Stop::Unclean)),
            expected,
            "{what}, unclean"
        );
    };
    check(Some(&newest), "fitting");
    check(Some(&saved), "older than the log");
    check(None, "missing");
    check(Some(&[]), "empty");
    for bit in (0..newest.len() * 8).step_by(37) {
        let mut bad = newest.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        check(Some(&bad), "damaged");
    }
    newer_than_the_log(&disk, &setup);
}

/// A snapshot whose offset lies beyond the log end is of another past.
fn newer_than_the_log(disk: &SimDisk, setup: &Setup) {
    let fork = disk.fork();
    let at = |name: &str| Path::new(DIR).join(name);
    fork.remove_file(&at(CHECKPOINT)).expect("was there");
    let last = fork
        .list(Path::new(DIR))
        .expect("list")
        .into_iter()
        .filter(|e| e.name.ends_with(".log"));
    let last = last.map(|e| e.name).max().expect("segments");
    let content = fork.content(&at(&last)).expect("content");
    fork.put(&at(&last), &content[..content.len() - 1]);
    let setup = Setup {
        disk: Arc::new(fork.clone()),
        dir: setup.dir.clone(),
        resources: setup.resources.clone(),
        ..*setup
    };
    let with = windows(&setup.open(Stop::Unclean));
    fork.remove_file(&at(SNAPSHOT)).expect("was there");
    assert_eq!(windows(&setup.open(Stop::Unclean)), with);
}

#[test]
fn i12_a_retry_after_a_write_error_is_no_duplicate() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    assert_eq!(one(&mut log, &idempotent(9, 0, 0, 1)), appended(0, 0));
    let fault = Fault::Error(std::io::ErrorKind::StorageFull);
    disk.inject(FaultAt {
        op: Some(SimOp::Write),
        after: 0,
        fault,
    });
    let group: Vec<Offered> = [
        idempotent(9, 0, 1, 1),
        idempotent(9, 0, 1, 1),
        idempotent(9, 0, 0, 1),
        idempotent(9, 0, 2, 1),
    ]
    .iter()
    .map(offered)
    .collect();
    let outcome = log.append_group(&group, Timestamp(1));
    let not = BatchVerdict::NotWritten;
    assert_eq!(
        outcome.verdicts,
        [not, not, duplicate(0, 0), not],
        "a duplicate of what was not written is not written"
    );
    assert_eq!(log.state(), LogState::NeedsCut);
    log.cut_plan().expect("to cut").run().expect("cut");
    log.cut_done();
    assert_eq!(one(&mut log, &idempotent(9, 0, 1, 1)), appended(1, 1));
    assert_eq!(read_all(&log, 0, 1).len(), 2);
}
