//! A log on a real disk: append, roll, read, close, open.

use std::sync::Arc;

use seawall_storage::disk::RealDisk;
use seawall_storage::{BatchVerdict, LeaderEpoch, LogState, Offset, ReadError, Stop};

use crate::support::{Setup, append, assert_contiguous, close, flush, plain, read_all, roll, spec};

fn setup() -> (tempfile::TempDir, Setup) {
    let temp = tempfile::tempdir().expect("temp dir");
    let setup = Setup::new(Arc::new(RealDisk), &temp.path().join("3"));
    (temp, setup)
}

#[test]
fn an_empty_log_answers_deferred_until_its_first_segment_is_there() {
    let (_temp, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    assert_eq!((log.start_offset(), log.end_offset(), log.leader_epoch()), (Offset(0), Offset(0), LeaderEpoch(0)));
    assert_eq!(log.state(), LogState::Ready);
    assert!(log.flush_point().is_none() && log.close_plan().is_none());
    assert!(!setup.dir.exists(), "opening writes nothing");
    let verdicts = append(&mut log, &[plain(1, 3, 10), plain(2, 1, 10)]);
    let appended = |base, last| BatchVerdict::Appended { base: Offset(base), last: Offset(last) };
    assert_eq!(verdicts, [appended(0, 2), appended(3, 3)]);
}

#[test]
fn what_was_appended_is_read_back_over_many_segments_and_restarts() {
    let (_temp, setup) = setup();
    for (round, stop) in [Stop::Clean, Stop::Clean, Stop::Unclean, Stop::Unclean].into_iter().enumerate() {
        let mut log = setup.open(stop);
        let before = log.end_offset();
        assert_eq!(before, Offset(i64::try_from(round).expect("small") * 120));
        for tag in 0..40 {
            append(&mut log, &[plain(tag, 1, 30), plain(tag, 2, 100)]);
        }
        flush(&mut log);
        for size in [1, 300, 1 << 20] {
            assert_contiguous(&read_all(&log, 0, size), 0, log.end_offset());
        }
        let inside = log.read_view().read(&spec(before.0 + 2, 1)).expect("read");
        assert_eq!(inside.base, before.plus(1), "a fetch inside a batch returns that whole batch");
        if round != 1 {
            close(&log);
        }
    }
    let log = setup.open(Stop::Clean);
    assert_eq!(log.recovery().scanned_bytes, 0, "a clean stop leaves nothing to scan");
    assert_eq!(log.leader_epoch(), LeaderEpoch(4));
    assert_contiguous(&read_all(&log, 0, 777), 0, log.end_offset());
    let view = log.read_view();
    assert_eq!(view.end_offset_for_epoch(LeaderEpoch(1)), Some((LeaderEpoch(1), Offset(240))));
    assert_eq!(view.end_offset_for_epoch(LeaderEpoch(4)), Some((LeaderEpoch(4), Offset(480))));
    assert_eq!(view.end_offset_for_epoch(LeaderEpoch(9)), None);
    assert_eq!(view.epoch_of(Offset(130)), LeaderEpoch(1));
    assert!(matches!(view.read(&spec(481, 1)), Err(ReadError::OutOfRange { .. })));
    assert!(view.read(&spec(480, 1)).expect("at the end").bytes.is_empty());
}

#[test]
fn reads_stop_at_the_given_offset_and_size() {
    let (_temp, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[plain(1, 2, 10), plain(2, 2, 10), plain(3, 2, 10)]);
    let view = log.read_view();
    let mut s = spec(0, 1 << 20);
    s.upto = Offset(3);
    assert_eq!(view.read(&s).expect("read").next, Offset(2), "only whole batches below the limit");
    s.at_least_one = false;
    s.max_bytes = 10;
    assert!(view.read(&s).expect("read").bytes.is_empty());
    roll(&mut log);
    assert_eq!(view.read(&spec(0, 1 << 20)).expect("an old view stays true").next, Offset(6));
}
