//! A failed log comes back without a restart (DESIGN 5): nothing promised is lost, no offset changes.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use seawall_storage::disk::{Crash, Disk, Fault, FaultAt, SimDisk, SimOp};
use seawall_storage::{
    Batch, BatchVerdict, HealLoss, LeaderEpoch, Log, LogState, Offered, Offset, Stop, Timestamp,
    TxnOutcome,
};

use crate::support::{
    Setup, append, assert_contiguous, flush, idempotent, marker, offered, plain, read_all, roll,
    transactional,
};

const NO_LOSS: HealLoss = HealLoss { records: 0 };

fn setup() -> (SimDisk, Setup) {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/topic")).expect("mkdir");
    disk.sync_dir(Path::new("/")).expect("sync");
    let mut setup = Setup::new(Arc::new(disk.clone()), Path::new("/topic/3"));
    setup.config.segment_bytes = 1 << 20;
    (disk, setup)
}

fn active_file(setup: &Setup) -> PathBuf {
    setup.dir.join("00000000-00000000000000000000.log")
}

/// Changes bytes of the file in place, as a disk would that lost what it had
/// failed to write.
fn scribble(disk: &SimDisk, setup: &Setup, at: usize, bytes: &[u8]) {
    let file = disk.open_write(&active_file(setup)).expect("there");
    let at = u64::try_from(at).expect("small");
    let written = file.write_vectored_at(&[std::io::IoSlice::new(bytes)], at);
    assert_eq!(written.expect("written"), bytes.len());
}

/// A log with `durable` flushed batches and two more whose flush has failed.
fn failed(disk: &SimDisk, setup: &Setup, durable: u32) -> Log {
    let mut log = setup.open(Stop::Clean);
    roll(&mut log);
    for tag in 0..durable {
        append(&mut log, &[plain(tag, 2, 30)]);
    }
    flush(&mut log);
    append(&mut log, &[plain(100, 3, 40), idempotent(7, 0, 0, 2)]);
    fail_flush(disk, &mut log);
    log
}

fn fail_flush(disk: &SimDisk, log: &mut Log) {
    let point = log.flush_point().expect("something to flush");
    disk.inject(FaultAt {
        op: Some(SimOp::Sync),
        after: 0,
        fault: Fault::Error(ErrorKind::Other),
    });
    assert!(point.file.sync_data().is_err());
    log.mark_sync_failed();
}

fn heal(log: &mut Log) -> HealLoss {
    let healed = log.heal_plan().expect("failed").run().expect("well again");
    log.heal_done(healed)
}

fn payloads(batches: &[Batch]) -> Vec<Vec<u8>> {
    batches.iter().map(|b| b.payload().to_vec()).collect()
}

#[test]
fn healing_keeps_offsets_bytes_and_epochs_and_appends_go_on() {
    for durable in [0, 1, 5] {
        let (disk, setup) = setup();
        let mut log = failed(&disk, &setup, durable);
        assert_eq!(log.state(), LogState::Failed);
        let (before, end) = (read_all(&log, 0, 500), log.end_offset());
        assert_eq!(heal(&mut log), NO_LOSS);
        assert_eq!(log.state(), LogState::Ready);
        assert_eq!(log.durable_offset(), end);
        let after = read_all(&log, 0, 500);
        assert_contiguous(&after, 0, end);
        assert_eq!(payloads(&after), payloads(&before));
        assert!(
            after
                .iter()
                .all(|b| b.header().leader_epoch == LeaderEpoch(0))
        );
        assert_eq!(log.leader_epoch(), LeaderEpoch(1));
        let view = log.read_view();
        assert_eq!(
            view.end_offset_for_epoch(LeaderEpoch(0)),
            Some((LeaderEpoch(0), end))
        );
        append(&mut log, &[plain(200, 1, 10)]);
        let last = read_all(&log, end.0, 500);
        assert_eq!(last[0].header().leader_epoch, LeaderEpoch(1));
    }
}

#[test]
fn what_was_healed_survives_a_power_cut_and_tells_the_same_epochs_after_it() {
    for durable in [0, 3] {
        let (disk, setup) = setup();
        let mut log = failed(&disk, &setup, durable);
        let (before, end) = (read_all(&log, 0, 500), log.end_offset());
        assert_eq!(heal(&mut log), NO_LOSS);
        drop(log);
        disk.restart(Crash::LoseAll);
        let mut log = setup.open(Stop::Unclean);
        assert_eq!(log.end_offset(), end);
        assert_eq!(payloads(&read_all(&log, 0, 500)), payloads(&before));
        let view = log.read_view();
        assert_eq!(
            view.end_offset_for_epoch(LeaderEpoch(0)),
            Some((LeaderEpoch(0), end))
        );
        let again = append(&mut log, &[idempotent(7, 0, 0, 2)]);
        assert!(
            matches!(again[..], [BatchVerdict::Duplicate { base, .. }] if base == Offset(end.0 - 2)),
            "a retry is recognised: {again:?}"
        );
    }
}

#[test]
fn batches_that_wait_for_a_flush_come_from_memory_whatever_the_file_says() {
    let (disk, setup) = setup();
    let mut log = failed(&disk, &setup, 2);
    let (before, end) = (read_all(&log, 0, 500), log.end_offset());
    let len = disk.content(&active_file(&setup)).expect("there").len();
    scribble(&disk, &setup, len - 100, &[0; 100]);
    assert_eq!(heal(&mut log), NO_LOSS);
    assert_eq!(payloads(&read_all(&log, 0, 500)), payloads(&before));
    assert_eq!(log.end_offset(), end);
}

#[test]
fn a_transaction_whose_marker_was_seen_and_is_lost_is_open_again() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    roll(&mut log);
    append(&mut log, &[transactional(5, 0, 0, 2)]);
    flush(&mut log);
    let group = Offered {
        keep: false,
        ..offered(&marker(5, 0, TxnOutcome::Abort))
    };
    let outcome = log.append_group(&[group], Timestamp(2_000_000));
    assert!(outcome.stopped.is_none());
    // The dial shows it before it is durable.
    let end = log.end_offset();
    log.settle_transactions(end);
    assert_eq!(log.read_view().last_stable_offset(end), end);
    fail_flush(&disk, &mut log);
    let file = disk.content(&active_file(&setup)).expect("there");
    scribble(&disk, &setup, file.len() - 3, &[file[file.len() - 3] ^ 1]);
    assert_eq!(heal(&mut log), HealLoss { records: 1 });
    let view = log.read_view();
    assert_eq!(view.first_open_offset(), Some(Offset(0)));
    assert_eq!(view.last_stable_offset(log.end_offset()), Offset(0));
}

#[test]
fn an_unpromised_batch_that_cannot_be_read_back_ends_the_log_and_is_told() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    roll(&mut log);
    append(&mut log, &[plain(1, 2, 30)]);
    flush(&mut log);
    let written = [plain(2, 2, 30), idempotent(7, 0, 0, 3), plain(3, 1, 30)];
    let group: Vec<Offered> = written
        .iter()
        .map(|batch| Offered {
            keep: false,
            ..offered(batch)
        })
        .collect();
    let outcome = log.append_group(&group, Timestamp(2_000_000));
    assert!(outcome.stopped.is_none());
    fail_flush(&disk, &mut log);
    let file = disk.content(&active_file(&setup)).expect("there");
    let at = file.len() - written[2].len() - 5;
    scribble(&disk, &setup, at, &[file[at] ^ 1]);
    assert_eq!(heal(&mut log), HealLoss { records: 4 });
    assert_eq!(log.end_offset(), Offset(4));
    assert_contiguous(&read_all(&log, 0, 500), 0, Offset(4));
    let again = append(&mut log, &[idempotent(7, 0, 0, 3)]);
    assert!(
        matches!(
            again[..],
            [BatchVerdict::Appended {
                base: Offset(4),
                ..
            }]
        ),
        "its producer may send it again: {again:?}"
    );
}

#[test]
fn healing_that_fails_or_is_cut_short_at_any_call_loses_nothing_promised() {
    for fault in [Fault::Error(ErrorKind::Other), Fault::PowerCut] {
        let mut after = 0;
        loop {
            let (disk, setup) = setup();
            let mut log = failed(&disk, &setup, 2);
            let (before, end) = (read_all(&log, 0, 500), log.end_offset());
            disk.inject(FaultAt {
                op: None,
                after,
                fault,
            });
            let plan = log.heal_plan().expect("failed");
            let healed = plan.run();
            let happened = !disk.clear_faults();
            if matches!(fault, Fault::PowerCut) {
                drop((healed, log));
                disk.restart(Crash::LoseAll);
                let log = setup.open(Stop::Unclean);
                assert!(log.end_offset() >= Offset(4), "what was flushed is there");
                let there = payloads(&read_all(&log, 0, 500));
                assert_eq!(there, payloads(&before)[..there.len()]);
            } else if let Ok(healed) = healed {
                log.heal_done(healed);
                assert_eq!(log.end_offset(), end);
            } else {
                assert_eq!(heal(&mut log), NO_LOSS, "the next try");
                assert_eq!(payloads(&read_all(&log, 0, 500)), payloads(&before));
            }
            if !happened {
                break;
            }
            after += 1;
        }
        assert!(
            after >= 5,
            "create, writes, syncs and the rename were all hit"
        );
    }
}

#[test]
fn a_healed_log_rolls_closes_and_opens_like_any_other() {
    let (disk, setup) = setup();
    let mut log = failed(&disk, &setup, 3);
    assert_eq!(heal(&mut log), NO_LOSS);
    roll(&mut log);
    append(&mut log, &[plain(300, 2, 30)]);
    crate::support::close(&log);
    let (before, end) = (payloads(&read_all(&log, 0, 500)), log.end_offset());
    drop(log);
    disk.restart(Crash::LoseAll);
    let log = setup.open(Stop::Clean);
    assert_eq!(
        log.recovery().scanned_bytes,
        0,
        "a clean stop leaves nothing to scan"
    );
    assert_eq!(log.end_offset(), end);
    assert_eq!(payloads(&read_all(&log, 0, 500)), before);
    assert_eq!(log.leader_epoch(), LeaderEpoch(2));
}
