//! A log on a real disk: append, roll, read, close, open.

use std::path::Path;
use std::sync::Arc;

use seawall_storage::disk::{CacheState, Disk, RealDisk, SimDisk};
use seawall_storage::names::MANIFEST;
use seawall_storage::{BatchVerdict, LeaderEpoch, LogState, Offset, ReadError, Stop};
use seawall_storage::{LogConfig, Timestamp};

use crate::support::{
    Setup, append, assert_contiguous, close, flush, idempotent, offered, plain, read_all, roll,
    spec,
};

fn setup() -> (tempfile::TempDir, Setup) {
    let temp = tempfile::tempdir().expect("temp dir");
    let setup = Setup::new(Arc::new(RealDisk), &temp.path().join("3"));
    (temp, setup)
}

#[test]
fn an_empty_log_answers_deferred_until_its_first_segment_is_there() {
    let (_temp, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    assert_eq!(
        (log.start_offset(), log.end_offset(), log.leader_epoch()),
        (Offset(0), Offset(0), LeaderEpoch(0))
    );
    assert_eq!(log.state(), LogState::Ready);
    assert!(log.flush_point().is_none() && log.close_plan().is_none());
    assert!(!setup.dir.exists(), "opening writes nothing");
    let verdicts = append(&mut log, &[plain(1, 3, 10), plain(2, 1, 10)]);
    let appended = |base, last| BatchVerdict::Appended {
        base: Offset(base),
        last: Offset(last),
    };
    assert_eq!(verdicts, [appended(0, 2), appended(3, 3)]);
}

#[test]
fn what_was_appended_is_read_back_over_many_segments_and_restarts() {
    let (_temp, setup) = setup();
    for (round, stop) in [Stop::Clean, Stop::Clean, Stop::Unclean, Stop::Unclean]
        .into_iter()
        .enumerate()
    {
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
        assert_eq!(
            inside.base,
            before.plus(1),
            "a fetch inside a batch returns that whole batch"
        );
        if round != 1 {
            close(&log);
        }
    }
    let log = setup.open(Stop::Clean);
    assert_eq!(
        log.recovery().scanned_bytes,
        0,
        "a clean stop leaves nothing to scan"
    );
    assert_eq!(log.leader_epoch(), LeaderEpoch(4));
    assert_contiguous(&read_all(&log, 0, 777), 0, log.end_offset());
    let view = log.read_view();
    assert_eq!(
        view.end_offset_for_epoch(LeaderEpoch(1)),
        Some((LeaderEpoch(1), Offset(240)))
    );
    assert_eq!(
        view.end_offset_for_epoch(LeaderEpoch(4)),
        Some((LeaderEpoch(4), Offset(480)))
    );
    assert_eq!(view.end_offset_for_epoch(LeaderEpoch(9)), None);
    assert_eq!(view.epoch_of(Offset(130)), LeaderEpoch(1));
    assert!(matches!(
        view.read(&spec(481, 1)),
        Err(ReadError::OutOfRange { .. })
    ));
    assert!(
        view.read(&spec(480, 1))
            .expect("at the end")
            .bytes
            .is_empty()
    );
}

#[test]
fn reads_stop_at_the_given_offset_and_size() {
    let (_temp, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    append(
        &mut log,
        &[plain(1, 2, 10), plain(2, 2, 10), plain(3, 2, 10)],
    );
    let view = log.read_view();
    let mut s = spec(0, 1 << 20);
    s.upto = Offset(3);
    assert_eq!(
        view.read(&s).expect("read").next,
        Offset(2),
        "only whole batches below the limit"
    );
    s.at_least_one = false;
    s.max_bytes = 10;
    assert!(view.read(&s).expect("read").bytes.is_empty());
    roll(&mut log);
    assert_eq!(
        view.read(&spec(0, 1 << 20))
            .expect("an old view stays true")
            .next,
        Offset(6)
    );
}

#[test]
fn a_segment_rolls_by_time_and_by_size_and_takes_one_batch_of_any_size() {
    let (_temp, mut setup) = setup();
    setup.config.segment_ms = 1000;
    let mut log = setup.open(Stop::Clean);
    roll(&mut log);
    let mut at = |now: i64, size: usize| {
        let outcome = log.append_group(&[offered(&plain(1, 1, size))], Timestamp(now));
        if outcome.verdicts == [BatchVerdict::Deferred] {
            roll(&mut log);
            return "roll";
        }
        "append"
    };
    let steps = [
        (5000, 10, "append"),
        (5999, 10, "append"),
        (6000, 10, "roll"),
        (6000, 9000, "append"),
        (6001, 10, "roll"),
        (6001, 10, "append"),
        (1000, 10, "append"),
    ];
    for (now, size, expected) in steps {
        assert_eq!(at(now, size), expected, "at {now}");
    }
    log.set_config(LogConfig {
        segment_ms: 1,
        segment_jitter_ms: 50,
        ..setup.config
    });
    assert!(
        log.needs_roll(Timestamp(6002)),
        "new settings hold at once; jitter never makes the age negative"
    );
}

#[test]
fn a_log_start_beyond_what_survived_gives_no_offset_out_again() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/topic")).expect("mkdir");
    let setup = Setup::new(Arc::new(disk.clone()), Path::new("/topic/3"));
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[plain(1, 5, 10), idempotent(3, 0, 0, 5)]);
    close(&log);
    let moved = disk.content(&setup.dir.join(MANIFEST)).expect("written");
    let moved = String::from_utf8(moved)
        .expect("JSON")
        .replace("\"logStartOffset\": 0", "\"logStartOffset\": 12");
    let fields: serde_json::Value = serde_json::from_str(&moved).expect("JSON");
    let resealed =
        seawall_storage::state_file::encode_json(&without_checksum(fields)).expect("JSON");
    disk.put(&setup.dir.join(MANIFEST), &resealed);
    let mut log = setup.open(Stop::Clean);
    assert_eq!(
        (log.start_offset(), log.end_offset()),
        (Offset(12), Offset(12))
    );
    append(&mut log, &[plain(2, 3, 10)]);
    flush(&mut log);
    for stop in [Stop::Clean, Stop::Unclean] {
        let log = setup.open(stop);
        assert_eq!(
            (log.start_offset(), log.end_offset()),
            (Offset(12), Offset(15))
        );
        assert_contiguous(&read_all(&log, 12, 100), 12, Offset(15));
        assert!(matches!(
            log.read_view().read(&spec(11, 1)),
            Err(ReadError::OutOfRange { .. })
        ));
    }
}

fn without_checksum(mut fields: serde_json::Value) -> serde_json::Value {
    fields.as_object_mut().expect("an object").remove("crc32c");
    fields
}

#[test]
fn the_real_disk_never_calls_a_dirty_page_dropped() {
    let temp = tempfile::tempdir().expect("temp dir");
    let file = RealDisk.create_new(&temp.path().join("f")).expect("create");
    seawall_storage::disk::write_all_at(&*file, &mut [std::io::IoSlice::new(&[7; 300_000])], 0)
        .expect("write");
    assert_eq!(file.drop_cache_from(0).expect("asked"), CacheState::MayStay);
    assert_eq!(
        file.drop_cache_from(303_104).expect("asked"),
        CacheState::Dropped,
        "nothing is there"
    );
}

#[test]
fn a_checkpoint_is_not_due_before_what_it_speaks_of_is_durable() {
    let (_temp, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[plain(1, 3, 10)]);
    flush(&mut log);
    let later = Timestamp(2_000_000 + 3_600_000);
    let outcome = log.append_group(&[offered(&plain(2, 1, 10))], later);
    assert!(outcome.stopped.is_none());
    let point = log.flush_point().expect("something is owed");
    assert!(!log.checkpoint_due(later), "its flush is under way");
    point.file.sync_data().expect("sync");
    log.mark_synced(&point);
    assert!(log.checkpoint_due(later));
}
