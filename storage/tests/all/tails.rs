//! Where a log ends after a crash: d10, d13, d16.

use seawall_storage::disk::{Crash, Disk, SimDisk};
use seawall_storage::{Offset, OpenError, Stop};

use crate::damage::{files, flip, on_fork, path, setup};
use crate::support::{Setup, append, assert_contiguous, flush, plain, read_all};

/// A log with five good batches in one file, of which nothing is checkpointed.
fn five_batches() -> (SimDisk, Setup, String, Vec<usize>) {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    let batches: Vec<_> = (0..5).map(|tag| plain(tag, 1, 50)).collect();
    append(&mut log, &batches);
    flush(&mut log);
    let mut ends = vec![0];
    for batch in &batches {
        ends.push(ends[ends.len() - 1] + batch.len());
    }
    let name = files(&disk, ".log")[0].clone();
    (disk, setup, name, ends)
}

#[test]
fn d10_torn_tail_ends_at_last_good_batch() {
    let (disk, setup, name, ends) = five_batches();
    let whole = disk.content(&path(&name)).expect("there");
    let check = |content: &[u8], good: usize, what: &str| {
        let (fork, setup) = on_fork(&disk, &setup);
        fork.put(&path(&name), content);
        let mut log = setup.open(Stop::Unclean);
        assert_eq!(
            log.end_offset(),
            Offset(i64::try_from(good).expect("small")),
            "{what}"
        );
        append(&mut log, &[plain(77, 1, 10)]);
        flush(&mut log);
        assert_eq!(
            fork.content(&path(&name)).as_deref(),
            Some(content),
            "{what}: nothing was cut"
        );
        fork.restart(Crash::LoseAll);
        let log = setup.open(Stop::Unclean);
        assert_contiguous(
            &read_all(&log, 0, 1 << 20),
            0,
            Offset(i64::try_from(good + 1).expect("small")),
        );
    };
    for len in 0..=whole.len() {
        let good = ends
            .iter()
            .rposition(|end| *end <= len)
            .expect("0 is there");
        check(&whole[..len], good, "cut");
    }
    for length in [-1, 0, 48, 1_000_000, i32::MAX, i32::MIN] {
        let mut bad = whole.clone();
        bad[ends[4] + 8..ends[4] + 12].copy_from_slice(&length.to_be_bytes());
        check(&bad, 4, "a length that lies");
    }
}

#[test]
fn a_bad_batch_with_good_ones_behind_it_is_corruption_when_only_a_process_died() {
    let (disk, mut setup, name, ends) = five_batches();
    flip(&disk, &name, (ends[2] + 70) * 8);
    assert_eq!(
        setup.open(Stop::Unclean).end_offset(),
        Offset(2),
        "after a power cut it is a tail"
    );
    setup.recovered_this_boot = true;
    match setup.try_open(Stop::Unclean) {
        Err(OpenError::Corrupt { offset, .. }) => assert_eq!(offset, Offset(2)),
        other => panic!("{:?}", other.map(|log| log.end_offset())),
    }
    let content = disk.content(&path(&name)).expect("there");
    disk.put(&path(&name), &content[..ends[3] + 10]);
    assert_eq!(
        setup.open(Stop::Unclean).end_offset(),
        Offset(2),
        "nothing good follows: a kill in a write"
    );
}

#[test]
fn d13_a_segment_whose_name_was_not_synced_holds_nothing_that_was_acknowledged() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[plain(1, 3, 10)]);
    flush(&mut log);
    let next = path("00000000-00000000000000000003.log");
    drop(disk.create_new(&next).expect("created, not synced"));
    disk.restart(Crash::LoseAll);
    assert_eq!(disk.content(&next), None);
    let mut log = setup.open(Stop::Unclean);
    assert_eq!(log.end_offset(), Offset(3));
    append(&mut log, &[plain(2, 1, 10)]);
    assert_contiguous(&read_all(&log, 0, 100), 0, Offset(4));
}

#[test]
fn d16_nothing_is_appended_behind_a_torn_tail() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[plain(1, 2, 100)]);
    flush(&mut log);
    append(&mut log, &[plain(2, 2, 100), plain(3, 2, 100)]);
    disk.restart(Crash::Random(3));
    let name = &files(&disk, ".log")[0];
    let torn = disk.content(&path(name)).expect("there");
    disk.put(&path(name), &[torn.as_slice(), b"torn"].concat());
    let mut log = setup.open(Stop::Unclean);
    let base = log.end_offset();
    for _ in 0..80 {
        append(&mut log, &[plain(5, 50, 1)]);
    }
    flush(&mut log);
    assert_eq!(log.end_offset(), base.plus(4000));
    disk.restart(Crash::LoseAll);
    let log = setup.open(Stop::Unclean);
    assert_eq!(log.end_offset(), base.plus(4000));
    assert_contiguous(&read_all(&log, 0, 4096), 0, base.plus(4000));
}
