//! Finding records by time: f01-f04, over active, sealed and reopened segments.

use std::path::Path;
use std::sync::Arc;

use seawall_storage::disk::{Disk, SimDisk};
use seawall_storage::{
    Batch, BatchHeader, Log, Offered, Offset, Stop, TimedOffset, Timestamp, TxnOrigin,
};

use crate::support::{Rec, Setup, append, close, flush, header, parse, record_bytes, roll, seal};

fn setup() -> Setup {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/topic")).expect("mkdir");
    Setup::new(Arc::new(disk), Path::new("/topic/3"))
}

/// A batch of records at these times.
fn at(times: &[i64]) -> Batch {
    let records: Vec<Rec> = times
        .iter()
        .map(|t| (t - times[0], b"v".to_vec()))
        .collect();
    let max = times.iter().copied().max().expect("not empty");
    let count = i32::try_from(times.len()).expect("small");
    let fields = BatchHeader {
        max_timestamp: Timestamp(max),
        ..header(count, times[0])
    };
    parse(&seal(fields, &record_bytes(&records)))
}

fn find(log: &Log, time: i64) -> Option<(i64, i64)> {
    let found = log
        .read_view()
        .offset_for_timestamp(Timestamp(time), Offset(i64::MAX))
        .expect("look-up");
    found.map(|f: TimedOffset| (f.offset.0, f.timestamp.0))
}

fn latest(log: &Log) -> Option<(i64, i64)> {
    let found = log
        .read_view()
        .max_timestamp(Offset(i64::MAX))
        .expect("look-up");
    found.map(|f| (f.offset.0, f.timestamp.0))
}

#[test]
fn f01_f02_the_first_record_at_or_after_a_time() {
    let setup = setup();
    let mut log = setup.open(Stop::Clean);
    assert_eq!((find(&log, 1), latest(&log)), (None, None));
    append(&mut log, &[at(&[2]), at(&[4]), at(&[6]), at(&[8])]);
    for (time, offset) in (1..9).zip([0, 0, 1, 1, 2, 2, 3, 3]) {
        assert_eq!(
            find(&log, time),
            Some((offset, 2 * offset + 2)),
            "asked {time}"
        );
    }
    assert_eq!(find(&log, 9), None);
}

/// The model: a plain list of all times.
fn check_all(log: &Log, times: &[i64], what: &str) {
    for asked in -1..times.iter().max().expect("some") + 2 {
        let expected = times
            .iter()
            .position(|t| *t >= asked)
            .map(|i| (i64::try_from(i).expect("small"), times[i]));
        assert_eq!(find(log, asked), expected, "{what}, asked {asked}");
    }
    let max = times.iter().max().expect("some");
    let first = times.iter().position(|t| t == max).expect("some");
    assert_eq!(
        latest(log),
        Some((i64::try_from(first).expect("small"), *max)),
        "{what}"
    );
}

#[test]
fn f01_f04_times_out_of_order_over_many_segments_and_restarts() {
    let setup = setup();
    let mut times = Vec::new();
    let mut log = setup.open(Stop::Clean);
    for round in 0..150_i64 {
        let batch = [round * 7 % 61, round * 13 % 97, round / 3];
        append(&mut log, &[at(&batch)]);
        times.extend_from_slice(&batch);
    }
    check_all(&log, &times, "written");
    flush(&mut log);
    drop(log);
    let log = setup.open(Stop::Unclean);
    check_all(&log, &times, "recovered");
    close(&log);
    let mut log = setup.open(Stop::Clean);
    check_all(&log, &times, "reopened");
    assert_eq!(log.recovery().scanned_bytes, 0);
    append(&mut log, &[at(&[500])]);
    times.push(500);
    check_all(&log, &times, "and one more");
    roll(&mut log);
    check_all(&log, &times, "with an empty active segment");
}

#[test]
fn d01_a_time_index_with_any_bit_flipped_never_hides_a_record() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/topic")).expect("mkdir");
    let setup = Setup::new(Arc::new(disk.clone()), Path::new("/topic/3"));
    let mut times = Vec::new();
    let mut log = setup.open(Stop::Clean);
    for round in 0..60_i64 {
        append(&mut log, &[at(&[round * 7 % 31])]);
        times.push(round * 7 % 31);
    }
    close(&log);
    for name in [
        "00000000-00000000000000000000.index",
        "00000000-00000000000000000000.timeindex",
    ] {
        let path = setup.dir.join(name);
        let content = disk.content(&path).expect("written at the close");
        for bit in (0..content.len() * 8).step_by(7) {
            let mut bad = content.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            disk.put(&path, &bad);
            check_all(&setup.open(Stop::Clean), &times, name);
        }
        disk.put(&path, &content);
    }
}

#[test]
fn f02_limits_hide_what_is_not_visible_yet() {
    let setup = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[at(&[2]), at(&[9]), at(&[4])]);
    let view = log.read_view();
    assert_eq!(
        view.offset_for_timestamp(Timestamp(5), Offset(1))
            .expect("look-up"),
        None
    );
    let below = view
        .max_timestamp(Offset(1))
        .expect("look-up")
        .expect("one record is visible");
    assert_eq!((below.offset, below.timestamp), (Offset(0), Timestamp(2)));
}

#[test]
fn f03_log_append_time_answers_with_the_base_offset() {
    let setup = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[at(&[1])]);
    for time in [100, 200] {
        let group = [Offered {
            batch: at(&[5, 6, 7]),
            append_time: Some(Timestamp(time)),
            keep: true,
            txn: TxnOrigin::Unverified,
        }];
        assert!(log.append_group(&group, Timestamp(time)).stopped.is_none());
    }
    assert_eq!(find(&log, 150), Some((4, 200)));
    assert_eq!(latest(&log), Some((4, 200)));
}

#[test]
fn a_max_timestamp_that_lies_does_not_end_the_search() {
    let setup = setup();
    let mut log = setup.open(Stop::Clean);
    let records = record_bytes(&[(0, b"v".to_vec())]);
    let liar = seal(
        BatchHeader {
            max_timestamp: Timestamp(1000),
            ..header(1, 5)
        },
        &records,
    );
    append(&mut log, &[parse(&liar), at(&[50])]);
    assert_eq!(find(&log, 20), Some((1, 50)));
}
