//! Losing the beginning of a log: what is due by age and size, and that nothing else goes. d08, i04.

use std::path::Path;
use std::sync::Arc;

use seawall_storage::disk::{Disk, SimDisk};
use seawall_storage::{
    Batch, BatchHeader, BatchVerdict, Due, LeaderEpoch, Log, Offset, ReadError, Retention, Stop,
    Timestamp,
};

use crate::support::{
    Setup, append, assert_contiguous, close, flush, header, idempotent, parse, payload, read_all,
    roll, seal, spec,
};

const DAY: i64 = 24 * 3600 * 1000;
/// What `support::append` tells the log.
const APPENDED_AT: i64 = 2_000_000;

fn setup() -> (Setup, SimDisk) {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/topic")).expect("mkdir");
    disk.sync_dir(Path::new("/")).expect("sync");
    (
        Setup::new(Arc::new(disk.clone()), Path::new("/topic/3")),
        disk,
    )
}

fn dated(time: i64) -> Batch {
    let fields = BatchHeader {
        max_timestamp: Timestamp(time),
        ..header(2, time)
    };
    parse(&seal(fields, &payload(7, 2, 100)))
}

/// One segment for each time, two records each; nothing behind the last roll.
fn segments(setup: &Setup, times: &[i64]) -> Log {
    let mut log = setup.open(Stop::Clean);
    for time in times {
        append(&mut log, &[dated(*time)]);
        flush(&mut log);
        roll(&mut log);
    }
    log
}

fn by_age(ms: u64) -> Retention {
    Retention {
        age_ms: Some(ms),
        bytes: None,
    }
}

fn due(log: &Log, retention: &Retention, now: i64) -> Due {
    let view = log.read_view();
    view.due(retention, Timestamp(now), view.end_offset())
        .expect("look at indexes")
}

fn trim(log: &mut Log, to: i64) {
    if let Some(plan) = log.trim_plan(Offset(to)) {
        plan.run().expect("manifest");
        log.trim_done(&plan);
    }
}

/// As a broker does: drop, make the checkpoint that is asked for, drop again, remove. Gives how many segments went.
fn reclaim(log: &mut Log) -> usize {
    let mut garbage = Vec::new();
    loop {
        let dropped = log.drop_below_start();
        garbage.extend(dropped.garbage);
        if !dropped.needs_checkpoint {
            break;
        }
        flush(log);
        let plan = log.checkpoint_plan(Timestamp(APPENDED_AT)).expect("wanted");
        log.checkpoint_done(Some(plan.run().expect("checkpoint")));
    }
    for segment in &garbage {
        assert!(segment.is_let_go());
        segment.remove().expect("remove");
    }
    garbage.len()
}

fn logs(disk: &SimDisk) -> usize {
    let entries = disk.list(Path::new("/topic/3")).expect("list");
    entries.iter().filter(|e| e.name.ends_with(".log")).count()
}

#[test]
fn segments_go_by_the_age_of_their_newest_record_oldest_first() {
    let (setup, _) = setup();
    let log = segments(&setup, &[1000, 5000, 2000, 9000]);
    for (now, start) in [(1000, 0), (2000, 0), (2001, 2), (6000, 2), (6001, 6)] {
        assert_eq!(
            due(&log, &by_age(1000), now).start,
            Offset(start),
            "now {now}"
        );
    }
    let kept = due(&log, &Retention::default(), i64::MAX);
    assert_eq!(
        (kept.start, kept.roll),
        (Offset(0), false),
        "-1 is for ever"
    );
}

#[test]
fn segments_go_by_size_as_long_as_the_rest_is_not_too_small() {
    let (setup, _) = setup();
    let mut log = segments(&setup, &[1000, 1000, 1000]);
    append(&mut log, &[dated(1000)]);
    let total = log.read_view().size_bytes().expect("sizes");
    let one = total / 4;
    assert_eq!(one * 4, total);
    for (limit, start) in [
        (total, 0),
        (total - 1, 0),
        (total - one, 2),
        (one + 1, 4),
        (one, 6),
        (0, 6),
    ] {
        let retention = Retention {
            age_ms: None,
            bytes: Some(limit),
        };
        assert_eq!(
            due(&log, &retention, 0).start,
            Offset(start),
            "limit {limit}"
        );
    }
}

#[test]
fn what_may_still_be_taken_back_or_belongs_to_a_transaction_stays() {
    let (setup, _) = setup();
    let log = segments(&setup, &[1, 1, 1]);
    let view = log.read_view();
    for (upto, start) in [(0, 0), (1, 0), (3, 2), (4, 4), (5, 4), (6, 6)] {
        let due = view.due(&by_age(0), Timestamp(DAY), Offset(upto));
        assert_eq!(due.expect("due").start, Offset(start), "up to {upto}");
    }
}

#[test]
fn d08_records_dated_ahead_age_from_their_append_and_old_ones_by_their_date() {
    let (setup, disk) = setup();
    disk.set_clock(Timestamp(APPENDED_AT));
    let ahead = APPENDED_AT + 3650 * DAY;
    let check = |log: &Log, what: &str| {
        let early = due(log, &by_age(1000), APPENDED_AT + 1000);
        assert_eq!(early.start, Offset(2), "{what}: 1970 goes by its date");
        let late = due(log, &by_age(1000), APPENDED_AT + 1001);
        assert_eq!(late.start, Offset(6), "{what}: dated ahead blocks nothing");
    };
    let log = segments(&setup, &[1, ahead, -1]);
    check(&log, "written by this process");
    close(&log);
    let log = setup.open(Stop::Clean);
    check(&log, "after a clean stop");
    let log = setup.open(Stop::Unclean);
    check(&log, "after a crash");
}

#[test]
fn a_quiet_segment_is_closed_when_it_is_old_or_when_all_of_it_is_due() {
    let (mut setup, _) = setup();
    setup.config.segment_ms = 5000;
    let mut log = setup.open(Stop::Clean);
    assert!(!due(&log, &by_age(0), DAY).roll, "nothing there");
    roll(&mut log);
    assert!(!due(&log, &by_age(0), DAY).roll, "nothing in it");
    append(&mut log, &[dated(APPENDED_AT)]);
    let kept = Retention::default();
    assert!(!due(&log, &kept, APPENDED_AT + 4999).roll);
    assert!(due(&log, &kept, APPENDED_AT + 5000).roll, "segment.ms");
    let early = due(&log, &by_age(10), APPENDED_AT + 11);
    assert_eq!(
        early,
        Due {
            start: Offset(0),
            roll: true
        },
        "retention.ms below segment.ms"
    );
    flush(&mut log);
    roll(&mut log);
    let after = due(&log, &by_age(10), APPENDED_AT + 11);
    assert_eq!(
        after,
        Due {
            start: Offset(2),
            roll: false
        }
    );
}

#[test]
fn after_a_restart_a_quiet_log_goes_wholly_and_keeps_its_end() {
    let (setup, disk) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[]);
    roll(&mut log);
    append(&mut log, &[dated(5)]);
    close(&log);
    let mut log = setup.open(Stop::Clean);
    let wanted = due(&log, &by_age(10), DAY);
    assert_eq!(
        wanted,
        Due {
            start: Offset(0),
            roll: true
        }
    );
    roll(&mut log);
    let start = due(&log, &by_age(10), DAY).start;
    assert_eq!(start, Offset(2));
    trim(&mut log, start.0);
    assert_eq!(reclaim(&mut log), 1);
    assert_eq!(logs(&disk), 1);
    let again = setup.open(Stop::Unclean);
    assert_eq!(
        (again.start_offset(), again.end_offset()),
        (Offset(2), Offset(2))
    );
}

#[test]
fn readers_get_nothing_below_the_start_and_all_above_it() {
    let (setup, disk) = setup();
    let mut log = segments(&setup, &[1, 2, 3]);
    append(&mut log, &[dated(4)]);
    trim(&mut log, 3);
    assert_eq!(reclaim(&mut log), 1, "the one that holds the start stays");
    let check = |log: &Log, what: &str| {
        let view = log.read_view();
        let below = view.read(&spec(2, 1000));
        assert!(
            matches!(
                below,
                Err(ReadError::OutOfRange {
                    start: Offset(3),
                    ..
                })
            ),
            "{what}: {below:?}"
        );
        assert_contiguous(&read_all(log, 3, 100), 2, Offset(8));
        assert_eq!(view.epoch_of(Offset(3)), LeaderEpoch(0), "{what}");
        assert_eq!(
            view.end_offset_for_epoch(LeaderEpoch(-1)).map(|e| e.1),
            Some(Offset(3)),
            "{what}: no epoch begins below the start"
        );
        let by_time = view.offset_for_timestamp(Timestamp(0), Offset(i64::MAX));
        let found = by_time.expect("look-up").map(|f| f.offset);
        assert_eq!(found, Some(Offset(3)), "{what}: by time");
    };
    check(&log, "at once");
    check(&setup.open(Stop::Unclean), "after a crash");
    close(&log);
    check(&setup.open(Stop::Clean), "after a stop");
    assert_eq!(logs(&disk), 3);
}

#[test]
fn a_reader_of_an_older_view_reads_on_and_holds_the_file() {
    let (setup, disk) = setup();
    let mut log = segments(&setup, &[1, 2]);
    let view = log.read_view();
    trim(&mut log, 2);
    let dropped = log.drop_below_start();
    assert!(dropped.needs_checkpoint && dropped.garbage.is_empty(), "T3");
    let plan = log.checkpoint_plan(Timestamp(0)).expect("wanted");
    log.checkpoint_done(Some(plan.run().expect("checkpoint")));
    drop(plan);
    let garbage = log.drop_below_start().garbage;
    assert_eq!(garbage.len(), 1);
    assert!(!garbage[0].is_let_go(), "the view may open it");
    assert!(!view.read(&spec(0, 1000)).expect("read").bytes.is_empty());
    drop(view);
    assert!(garbage[0].is_let_go());
    garbage[0].remove().expect("remove");
    garbage[0].remove().expect("twice is no error");
    assert_eq!(logs(&disk), 2);
}

#[test]
fn i04_producers_outlive_their_records() {
    let (setup, _) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[idempotent(9, 0, 0, 2), idempotent(9, 0, 2, 2)]);
    roll(&mut log);
    trim(&mut log, 4);
    assert_eq!(reclaim(&mut log), 1);
    let check = |log: &mut Log, next: i32| {
        let verdicts = append(log, &[idempotent(9, 0, 2, 2), idempotent(9, 0, next, 2)]);
        assert!(
            matches!(
                verdicts[0],
                BatchVerdict::Duplicate {
                    base: Offset(2),
                    ..
                }
            ),
            "{verdicts:?}"
        );
        assert!(
            matches!(verdicts[1], BatchVerdict::Appended { .. }),
            "{verdicts:?}"
        );
    };
    let mut again = setup.open(Stop::Unclean);
    check(&mut again, 4);
}

#[test]
fn deleting_what_was_not_durable_never_gives_an_offset_twice() {
    let (setup, disk) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[dated(1)]);
    flush(&mut log);
    append(&mut log, &[dated(2)]);
    trim(&mut log, 4);
    disk.restart(seawall_storage::disk::Crash::LoseAll);
    for stop in [Stop::Unclean, Stop::Clean] {
        let mut log = setup.open(stop);
        assert_eq!(
            (log.start_offset(), log.end_offset()),
            (Offset(4), Offset(4))
        );
        close(&log);
        let dropped = log.drop_below_start();
        assert!(dropped.needs_roll);
    }
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[dated(3)]);
    assert_eq!(log.end_offset(), Offset(6));
    close(&log);
    let log = setup.open(Stop::Unclean);
    assert_eq!(log.end_offset(), Offset(6));
}

#[test]
fn a_file_that_a_newer_epoch_hides_never_comes_back() {
    let (setup, disk) = setup();
    let mut log = segments(&setup, &[1]);
    append(&mut log, &[idempotent(77, 0, 0, 2)]);
    let path = Path::new("/topic/3/00000000-00000000000000000002.log");
    let lost = disk.content(path).expect("a segment");
    // Epoch 0 has a segment at offset 2 that never became durable; epoch 1 begins there.
    disk.restart(seawall_storage::disk::Crash::LoseAll);
    let mut log = setup.open(Stop::Unclean);
    assert_eq!(log.end_offset(), Offset(2));
    append(&mut log, &[dated(3)]);
    flush(&mut log);
    roll(&mut log);
    assert_eq!(logs(&disk), 4);
    trim(&mut log, 4);
    assert_eq!(reclaim(&mut log), 3, "the hidden one goes too");
    assert_eq!(logs(&disk), 1);
    // A crash may take any removal back, also this one alone.
    disk.put(path, &lost);
    let mut log = setup.open(Stop::Unclean);
    assert!(log.producers().is_empty(), "T4: {:?}", log.producers());
    assert_eq!(
        (log.start_offset(), log.end_offset()),
        (Offset(4), Offset(4))
    );
    let garbage = log.take_garbage();
    assert_eq!(garbage.len(), 1);
    garbage[0].remove().expect("remove");
    assert_eq!(logs(&disk), 1);
}
