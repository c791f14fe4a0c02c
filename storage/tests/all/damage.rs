//! Files that are not what was written: d01, d02, d03, d09, d10, d13, d15, d16, d17.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use seawall_storage::disk::{Crash, Disk, SimDisk};
use seawall_storage::names::{CHECKPOINT, MANIFEST, SNAPSHOT};
use seawall_storage::{Batch, Log, Offset, OpenError, ReadError, Stop};

use crate::support::{
    Setup, append, assert_contiguous, close, flush, header, idempotent, offered, parse, payload, plain, read_all, seal, spec,
};

const DIR: &str = "/topic/3";

fn setup() -> (SimDisk, Setup) {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/topic")).expect("mkdir");
    disk.sync_dir(Path::new("/")).expect("sync");
    let setup = Setup::new(Arc::new(disk.clone()), Path::new(DIR));
    (disk, setup)
}

fn on_fork(disk: &SimDisk, setup: &Setup) -> (SimDisk, Setup) {
    let fork = disk.fork();
    let setup = Setup { disk: Arc::new(fork.clone()), dir: setup.dir.clone(), resources: setup.resources.clone(), ..*setup };
    (fork, setup)
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn files(disk: &SimDisk, ext: &str) -> Vec<String> {
    let list = disk.list(Path::new(DIR)).expect("list");
    let mut names: Vec<_> = list.into_iter().map(|e| e.name).filter(|n| n.ends_with(ext)).collect();
    names.sort();
    names
}

fn flip(disk: &SimDisk, name: &str, bit: usize) {
    let mut content = disk.content(&path(name)).expect("there");
    content[bit / 8] ^= 1 << (bit % 8);
    disk.put(&path(name), &content);
}

/// A closed log of several segments; 120 offsets.
fn closed() -> (SimDisk, Setup) {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    for tag in 0..40 {
        let sequence = i32::try_from(tag).expect("small") * 2;
        append(&mut log, &[plain(tag, 1, 60), idempotent(5, 0, sequence, 2)]);
    }
    close(&log);
    (disk, setup)
}

fn assert_all_there(setup: &Setup, what: &str) {
    let log = setup.open(Stop::Clean);
    assert_eq!(log.end_offset(), Offset(120), "{what}");
    for from in [0, 1, 17, 55, 118] {
        let got = log.read_view().read(&spec(from, 1)).expect("read");
        assert!(got.base <= Offset(from) && got.next > Offset(from), "{what}: {from} in {}..{}", got.base, got.next);
    }
    assert_contiguous(&read_all(&log, 0, 300), 0, Offset(120));
}

#[test]
fn d01_a_damaged_index_is_rebuilt() {
    let (disk, setup) = closed();
    let (indexes, times) = (files(&disk, ".index"), files(&disk, ".timeindex"));
    assert!(indexes.len() > 3 && times.len() == indexes.len());
    let damages: [(&str, fn(&[u8]) -> Vec<u8>); 6] = [
        ("truncated", |c| c[..c.len() - 3].to_vec()),
        ("short", |c| c[..c.len() - 12].to_vec()),
        ("zeroed", |c| vec![0; c.len()]),
        ("backwards", |c| c.chunks(8).rev().flatten().copied().collect()),
        ("empty", |_| Vec::new()),
        ("longer", |c| [c, c].concat()),
    ];
    for name in indexes.iter().chain(&times) {
        for (what, damage) in damages {
            let (fork, setup) = on_fork(&disk, &setup);
            fork.put(&path(name), &damage(&disk.content(&path(name)).expect("there")));
            assert_all_there(&setup, what);
        }
        let (fork, setup) = on_fork(&disk, &setup);
        fork.remove_file(&path(name)).expect("there");
        assert_all_there(&setup, "missing");
    }
}

#[test]
fn d01_an_index_with_any_bit_flipped_never_hides_a_record() {
    let (disk, setup) = closed();
    let name = &files(&disk, ".index")[1];
    for bit in 0..disk.content(&path(name)).expect("there").len() * 8 {
        let (fork, setup) = on_fork(&disk, &setup);
        flip(&fork, name, bit);
        let log = setup.open(Stop::Clean);
        for from in 0..120 {
            let got = log.read_view().read(&spec(from, 1)).expect("read");
            assert!(got.base <= Offset(from) && got.next > Offset(from), "bit {bit}, offset {from}");
        }
    }
}

/// A batch whose CRC is 0: the CRC is linear, so four bytes of the payload can be chosen by elimination.
fn batch_with_crc_zero() -> Batch {
    let build = |value: u32| {
        let mut bytes = payload(1, 1, 40);
        let at = bytes.len() - 9;
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        parse(&seal(header(1, 1), &bytes))
    };
    let crc = |value| build(value).header().crc;
    let mut rows: Vec<(u32, u32)> = Vec::new();
    for bit in 0..32 {
        let (mut delta, mut combination) = (crc(1 << bit) ^ crc(0), 1_u32 << bit);
        for (row, made_of) in &rows {
            if delta & (1 << row.ilog2()) != 0 {
                (delta, combination) = (delta ^ row, combination ^ made_of);
            }
        }
        assert_ne!(delta, 0, "CRC bits are independent");
        rows.push((delta, combination));
    }
    let (mut wanted, mut value) = (crc(0), 0);
    loop {
        let Some(top) = wanted.checked_ilog2() else { break };
        let same = rows.iter().filter(|(row, _)| row.ilog2() == top);
        let (row, made_of) = same.last().expect("rows span all CRCs");
        (wanted, value) = (wanted ^ row, value ^ made_of);
    }
    build(value)
}

#[test]
fn d02_a_batch_whose_crc_is_zero_is_read_and_a_zero_filled_tail_is_the_end() {
    let (disk, setup) = setup();
    let batch = batch_with_crc_zero();
    assert_eq!(batch.header().crc, 0);
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[batch.clone(), plain(2, 2, 10)]);
    flush(&mut log);
    drop(log);
    let name = &files(&disk, ".log")[0];
    let content = disk.content(&path(name)).expect("there");
    for zeros in [1, 60, 61, 100, 5000] {
        let (fork, setup) = on_fork(&disk, &setup);
        fork.put(&path(name), &[content.clone(), vec![0; zeros]].concat());
        let log = setup.open(Stop::Unclean);
        assert_eq!(log.end_offset(), Offset(3));
        assert_eq!(read_all(&log, 0, 1)[0].payload(), batch.payload());
    }
}

#[test]
fn d03_a_hundred_kills_with_cut_tails_leave_contiguous_offsets() {
    let (disk, setup) = setup();
    let mut end = Offset(0);
    for round in 0..100_usize {
        let mut log = setup.open(if round == 0 { Stop::Clean } else { Stop::Unclean });
        assert_eq!(log.end_offset(), end);
        append(&mut log, &[plain(u32::try_from(round).expect("small"), 2, 30)]);
        flush(&mut log);
        end = log.end_offset();
        append(&mut log, &[plain(7, 1, 30)]);
        drop(log);
        disk.restart(Crash::KeepAll);
        let name = files(&disk, ".log").pop().expect("a segment");
        let content = disk.content(&path(&name)).expect("there");
        disk.put(&path(&name), &content[..content.len() - 1 - round % 90]);
    }
    let log = setup.open(Stop::Unclean);
    assert_contiguous(&read_all(&log, 0, 1000), 0, end);
}

#[test]
fn d09_a_flipped_bit_in_a_closed_segment_is_reported_and_the_rest_is_served() {
    let (disk, setup) = closed();
    let names = files(&disk, ".log");
    flip(&disk, &names[1], 100 * 8);
    let log = setup.open(Stop::Clean);
    let base: i64 = names[1][9..29].parse().expect("a name");
    assert!(matches!(log.read_view().read(&spec(base, 1 << 20)), Err(ReadError::Corrupt { .. })));
    assert!(log.read_view().read(&spec(base - 1, 1 << 20)).is_ok());
    assert!(log.read_view().read(&spec(119, 1 << 20)).is_ok());
    for name in [CHECKPOINT, SNAPSHOT] {
        disk.remove_file(&path(name)).expect("there");
    }
    assert!(matches!(setup.try_open(Stop::Unclean), Err(OpenError::Corrupt { .. })), "a full scan says so");
    assert_eq!(files(&disk, ".log"), names, "nothing was deleted");
}

#[test]
fn d09_a_flipped_bit_below_the_checkpoint_is_never_taken_for_a_torn_tail() {
    let (disk, setup) = closed();
    let name = files(&disk, ".log").pop().expect("segments");
    let content = disk.content(&path(&name)).expect("there");
    let ends = batch_ends(&content);
    for bit in (0..content.len() * 8).step_by(53) {
        let (fork, setup) = on_fork(&disk, &setup);
        flip(&fork, &name, bit);
        let start = ends.iter().rfind(|end| **end <= bit / 8).expect("0 is there");
        // The leader epoch alone lies outside of both the CRC and the sequence of offsets.
        let unseen = (12..16).contains(&(bit / 8 - start));
        match setup.try_open(Stop::Unclean) {
            Ok(log) => {
                assert_eq!(log.end_offset(), Offset(120), "bit {bit}");
                assert_eq!(read_to_the_end(&log).is_ok(), unseen, "bit {bit}");
            }
            Err(OpenError::DurabilityViolation { .. }) => assert!(bit / 8 >= ends[ends.len() - 2], "bit {bit}"),
            Err(other) => panic!("bit {bit}: {other}"),
        }
        assert_eq!(fork.content(&path(&name)).map(|c| c.len()), Some(content.len()), "nothing was cut");
    }
}

fn batch_ends(content: &[u8]) -> Vec<usize> {
    let (mut rest, mut ends) = (bytes::Bytes::copy_from_slice(content), vec![0]);
    while let Ok(batch) = Batch::parse_one(&rest) {
        ends.push(ends[ends.len() - 1] + batch.len());
        rest = rest.slice(batch.len()..);
    }
    ends
}

fn read_to_the_end(log: &Log) -> Result<(), ReadError> {
    let view = log.read_view();
    let mut next = Offset(0);
    while next < view.end_offset() {
        next = view.read(&spec(next.0, 1))?.next;
    }
    Ok(())
}

#[test]
fn d09_a_damaged_manifest_takes_the_partition_offline() {
    let (disk, setup) = closed();
    let content = disk.content(&path(MANIFEST)).expect("there");
    for damaged in [&content[..content.len() - 3], b"", b"{}", b"{\"epoch\":0}"] {
        disk.put(&path(MANIFEST), damaged);
        assert!(matches!(setup.try_open(Stop::Clean), Err(OpenError::ManifestDamaged)));
    }
    disk.remove_file(&path(MANIFEST)).expect("there");
    let log = setup.open(Stop::Clean);
    assert!(log.recovery().manifest_missing);
    assert_eq!((log.start_offset(), log.end_offset()), (Offset(0), Offset(120)));
}

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
        assert_eq!(log.end_offset(), Offset(i64::try_from(good).expect("small")), "{what}");
        append(&mut log, &[plain(77, 1, 10)]);
        flush(&mut log);
        assert_eq!(fork.content(&path(&name)).as_deref(), Some(content), "{what}: nothing was cut");
        fork.restart(Crash::LoseAll);
        let log = setup.open(Stop::Unclean);
        assert_contiguous(&read_all(&log, 0, 1 << 20), 0, Offset(i64::try_from(good + 1).expect("small")));
    };
    for len in 0..=whole.len() {
        let good = ends.iter().rposition(|end| *end <= len).expect("0 is there");
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
    assert_eq!(setup.open(Stop::Unclean).end_offset(), Offset(2), "after a power cut it is a tail");
    setup.recovered_this_boot = true;
    match setup.try_open(Stop::Unclean) {
        Err(OpenError::Corrupt { offset, .. }) => assert_eq!(offset, Offset(2)),
        other => panic!("{:?}", other.map(|log| log.end_offset())),
    }
    let content = disk.content(&path(&name)).expect("there");
    disk.put(&path(&name), &content[..ends[3] + 10]);
    assert_eq!(setup.open(Stop::Unclean).end_offset(), Offset(2), "nothing good follows: a kill in a write");
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
fn d15_an_old_foreign_or_garbage_checkpoint_changes_nothing() {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    let mut old = Vec::new();
    for round in 0..4 {
        append(&mut log, &[plain(round, 2, 300), plain(round, 1, 50)]);
        close(&log);
        old.push(disk.content(&path(CHECKPOINT)).expect("written"));
        log = setup.open(Stop::Clean);
    }
    append(&mut log, &[plain(9, 2, 300)]);
    flush(&mut log);
    let end = log.end_offset();
    let text = String::from_utf8(old[3].clone()).expect("JSON");
    let inside = text.replace("\"batchPosition\": 0", "\"batchPosition\": 7");
    let foreign = text.replace("5ea", "5eb");
    for content in old.iter().map(Vec::as_slice).chain([inside.as_bytes(), foreign.as_bytes(), b"", b"garbage", &[0; 4000]]) {
        let (fork, setup) = on_fork(&disk, &setup);
        fork.put(&path(CHECKPOINT), content);
        for stop in [Stop::Clean, Stop::Unclean] {
            let log = setup.open(stop);
            assert_eq!(log.end_offset(), end);
            assert_contiguous(&read_all(&log, 0, 1000), 0, end);
        }
    }
}

#[test]
fn a_log_that_ends_below_its_checkpoint_is_offline() {
    let (disk, setup) = closed();
    let name = files(&disk, ".log").pop().expect("segments");
    let content = disk.content(&path(&name)).expect("there");
    disk.put(&path(&name), &content[..content.len() - 1]);
    for stop in [Stop::Clean, Stop::Unclean] {
        match setup.try_open(stop) {
            Err(OpenError::DurabilityViolation { checkpoint, log_end }) => {
                assert_eq!((checkpoint, log_end), (Offset(120), Offset(118)));
            }
            other => panic!("{:?}", other.map(|log| log.end_offset())),
        }
    }
    for name in files(&disk, ".log") {
        disk.remove_file(&path(&name)).expect("there");
    }
    assert!(matches!(setup.try_open(Stop::Clean), Err(OpenError::DurabilityViolation { .. })), "all segments are gone");
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn d17_garbage_in_any_file_never_panics_and_never_allocates_beyond_it(
        which in 0_usize..6, at in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 1..12)
    ) {
        let (disk, setup) = closed();
        let name = match which {
            0 => files(&disk, ".log")[0].clone(),
            1 => files(&disk, ".log").pop().expect("segments"),
            2 => files(&disk, ".index")[0].clone(),
            3 => files(&disk, ".timeindex")[0].clone(),
            4 => SNAPSHOT.to_owned(),
            _ => CHECKPOINT.to_owned(),
        };
        let mut content = disk.content(&path(&name)).expect("there");
        let start = at.index(content.len());
        for (place, byte) in content[start..].iter_mut().zip(bytes) {
            *place = byte;
        }
        disk.put(&path(&name), &content);
        for stop in [Stop::Clean, Stop::Unclean] {
            if let Ok(log) = setup.try_open(stop) {
                prop_assert_eq!(log.end_offset(), Offset(120));
                read_what_can_be_read(&log);
            }
        }
    }
}

fn read_what_can_be_read(log: &Log) {
    let view = log.read_view();
    for from in (0..120).step_by(7) {
        let _ = view.read(&spec(from, 100));
    }
    let _ = view.offset_for_timestamp(seawall_storage::Timestamp(1020), Offset(120));
    let _ = view.max_timestamp(Offset(120));
    drop(offered(&plain(1, 1, 1)));
}
