//! Errors of the disk while it is used: d04, d18, and what recovery does when it cannot sync.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use seawall_storage::disk::{Crash, Disk, Fault, FaultAt, SimDisk, SimOp};
use seawall_storage::{
    BatchVerdict, LogState, Offered, Offset, RollError, Stop, Timestamp, WriteStop,
};

use crate::support::{
    Setup, append, assert_contiguous, close, flush, offered, plain, read_all, roll,
};

fn setup() -> (SimDisk, Setup) {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/topic")).expect("mkdir");
    disk.sync_dir(Path::new("/")).expect("sync");
    let setup = Setup::new(Arc::new(disk.clone()), Path::new("/topic/3"));
    (disk, setup)
}

fn inject(disk: &SimDisk, op: SimOp, after: u64, fault: Fault) {
    disk.inject(FaultAt {
        op: Some(op),
        after,
        fault,
    });
}

fn group(sizes: &[usize]) -> Vec<Offered> {
    sizes
        .iter()
        .map(|size| offered(&plain(1, 1, *size)))
        .collect()
}

#[test]
fn short_and_interrupted_writes_are_continued() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[plain(0, 1, 10)]);
    for cut in [1, 60, 61, 62, 100, 200] {
        inject(&disk, SimOp::Write, 0, Fault::ShortWrite(cut));
        inject(&disk, SimOp::Write, 1, Fault::Error(ErrorKind::Interrupted));
        append(
            &mut log,
            &[
                plain(cut.try_into().expect("small"), 2, 30),
                plain(1, 1, 50),
            ],
        );
        assert!(!disk.clear_faults(), "both faults happened");
    }
    assert_contiguous(&read_all(&log, 0, 500), 0, log.end_offset());
}

#[test]
fn d18_no_space_keeps_the_written_prefix_and_cuts_the_rest() {
    for room in 0..400 {
        let (disk, setup) = setup();
        let mut log = setup.open(Stop::Clean);
        append(&mut log, &[plain(9, 1, 10)]);
        let used = disk
            .content(&setup.dir.join("00000000-00000000000000000000.log"))
            .expect("there")
            .len();
        disk.set_capacity(Some(u64::try_from(used + room).expect("small")));
        let outcome = log.append_group(&group(&[10, 20, 30, 40]), Timestamp(1));
        let kept = outcome
            .verdicts
            .iter()
            .take_while(|v| **v != BatchVerdict::NotWritten)
            .count();
        assert!(
            outcome.verdicts[kept..]
                .iter()
                .all(|v| *v == BatchVerdict::NotWritten)
        );
        assert_eq!(
            log.end_offset(),
            Offset(1 + i64::try_from(kept).expect("small"))
        );
        assert_eq!(
            read_all(&log, 0, 100).len(),
            1 + kept,
            "readable throughout"
        );
        if kept == 4 {
            assert!(outcome.stopped.is_none());
            return;
        }
        assert!(matches!(outcome.stopped, Some(WriteStop::NoSpace(_))));
        assert_eq!(
            log.append_group(&group(&[1]), Timestamp(1)).verdicts,
            [BatchVerdict::NotWritten],
            "not before the cut"
        );
        disk.set_capacity(None);
        log.cut_plan().expect("to cut").run().expect("cut");
        log.cut_done();
        let good: usize = read_all(&log, 0, 100)
            .iter()
            .map(seawall_storage::Batch::len)
            .sum();
        let left = disk.content(&setup.dir.join("00000000-00000000000000000000.log"));
        assert_eq!(left.map(|c| c.len()), Some(good), "no half batch stays");
        append(&mut log, &[plain(3, 2, 10)]);
        assert_contiguous(
            &read_all(&log, 0, 100),
            0,
            Offset(3 + i64::try_from(kept).expect("small")),
        );
        flush(&mut log);
        disk.restart(Crash::LoseAll);
        assert_eq!(setup.open(Stop::Unclean).end_offset(), log.end_offset());
    }
    panic!("400 bytes are enough for the group");
}

#[test]
fn any_other_write_error_fails_the_log_and_keeps_the_prefix() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[plain(9, 1, 10)]);
    inject(&disk, SimOp::Write, 0, Fault::ShortWrite(150));
    inject(&disk, SimOp::Write, 1, Fault::Error(ErrorKind::Other));
    let outcome = log.append_group(&group(&[10, 20, 30]), Timestamp(1));
    assert!(matches!(outcome.stopped, Some(WriteStop::Failed(_))));
    assert_eq!(outcome.verdicts[1], BatchVerdict::NotWritten);
    assert_eq!(
        (log.state(), log.end_offset()),
        (LogState::Failed, Offset(2))
    );
    assert_eq!(read_all(&log, 0, 100).len(), 2);
    assert!(
        log.flush_point().is_none()
            && log.close_plan().is_none()
            && !log.checkpoint_due(Timestamp(1 << 40))
    );
}

#[test]
fn a_failed_roll_for_want_of_space_is_tried_again() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[plain(9, 1, 10)]);
    for op in [SimOp::Create, SimOp::SyncDir] {
        inject(&disk, op, 0, Fault::Error(ErrorKind::QuotaExceeded));
        assert!(matches!(log.roll_plan().run(), Err(RollError::NoSpace(_))));
        assert_eq!(log.state(), LogState::Ready);
    }
    roll(&mut log);
    append(&mut log, &[plain(9, 1, 10)]);
    assert_contiguous(&read_all(&log, 0, 100), 0, Offset(2));
}

#[test]
fn d4_a_failed_sync_at_a_roll_is_never_tried_again() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[plain(9, 1, 10)]);
    inject(&disk, SimOp::Sync, 0, Fault::Error(ErrorKind::StorageFull));
    assert!(
        matches!(log.roll_plan().run(), Err(RollError::OldNotSynced(_))),
        "no space at a sync is a failed sync"
    );
    log.mark_sync_failed();
    assert!(
        log.flush_point().is_none(),
        "nobody is offered that file again"
    );
    assert_eq!(
        log.append_group(&group(&[1]), Timestamp(1)).verdicts,
        [BatchVerdict::NotWritten]
    );
}

#[test]
fn d9_a_sync_that_fails_at_a_start_serves_only_what_was_durable() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[plain(1, 3, 10)]);
    close(&log);
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[plain(2, 3, 10)]);
    flush(&mut log);
    append(&mut log, &[plain(3, 3, 10)]);
    drop(log);
    disk.restart(Crash::KeepAll);
    inject(&disk, SimOp::Sync, 0, Fault::Error(ErrorKind::Other));
    let log = setup.open(Stop::Unclean);
    assert_eq!(
        (log.state(), log.end_offset()),
        (LogState::Failed, Offset(3))
    );
    assert_contiguous(&read_all(&log, 0, 100), 0, Offset(3));
}

#[test]
fn d9_pages_that_only_the_cache_holds_are_not_accepted() {
    for stays in [false, true] {
        let (disk, setup) = setup();
        let mut log = setup.open(Stop::Clean);
        append(&mut log, &[plain(1, 3, 10)]);
        flush(&mut log);
        append(&mut log, &[plain(2, 3, 10)]);
        // A failed write-back leaves the second batch in the cache, clean, and nowhere else.
        inject(&disk, SimOp::Sync, 0, Fault::Error(ErrorKind::Other));
        assert!(log.flush_point().expect("dirty").file.sync_data().is_err());
        drop(log);
        disk.restart(Crash::KeepAll);
        disk.set_cache_stays(stays);
        let log = setup.open(Stop::Unclean);
        let end = log.end_offset();
        assert_eq!(
            end,
            Offset(if stays { 6 } else { 3 }),
            "written again where the cache keeps it"
        );
        disk.restart(Crash::LoseAll);
        assert_eq!(
            setup.open(Stop::Unclean).end_offset(),
            end,
            "what a start accepted survives the next power cut"
        );
    }
}

#[test]
fn d9_pages_that_cannot_be_written_again_are_not_accepted() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[plain(1, 3, 10)]);
    close(&log);
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[plain(2, 3, 10)]);
    drop(log);
    disk.restart(Crash::KeepAll);
    disk.set_cache_stays(true);
    inject(&disk, SimOp::Sync, 1, Fault::Error(ErrorKind::Other));
    let log = setup.open(Stop::Unclean);
    assert_eq!(
        (log.state(), log.end_offset()),
        (LogState::Failed, Offset(3))
    );
}
