//! Files that are not what was written: d01, d02, d03, d09, d15, d17.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use seawall_storage::disk::{Crash, Disk, SimDisk};
use seawall_storage::names::{CHECKPOINT, MANIFEST, SNAPSHOT};
use seawall_storage::{Batch, Log, Offset, OpenError, ReadError, Stop};

use crate::support::{
    Setup, append, assert_contiguous, close, flush, header, idempotent, offered, parse, payload,
    plain, read_all, seal, spec,
};

const DIR: &str = "/topic/3";

pub(crate) fn setup() -> (SimDisk, Setup) {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/topic")).expect("mkdir");
    disk.sync_dir(Path::new("/")).expect("sync");
    let setup = Setup::new(Arc::new(disk.clone()), Path::new(DIR));
    (disk, setup)
}

pub(crate) fn on_fork(disk: &SimDisk, setup: &Setup) -> (SimDisk, Setup) {
    let fork = disk.fork();
    let setup = Setup {
        disk: Arc::new(fork.clone()),
        dir: setup.dir.clone(),
        resources: setup.resources.clone(),
        ..*setup
    };
    (fork, setup)
}

pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

pub(crate) fn files(disk: &SimDisk, ext: &str) -> Vec<String> {
    let list = disk.list(Path::new(DIR)).expect("list");
    let mut names: Vec<_> = list
        .into_iter()
        .map(|e| e.name)
        .filter(|n| n.ends_with(ext))
        .collect();
    names.sort();
    names
}

pub(crate) fn flip(disk: &SimDisk, name: &str, bit: usize) {
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
        append(
            &mut log,
            &[plain(tag, 1, 60), idempotent(5, 0, sequence, 2)],
        );
    }
    close(&log);
    (disk, setup)
}

fn assert_all_there(setup: &Setup, what: &str) {
    let log = setup.open(Stop::Clean);
    assert_eq!(log.end_offset(), Offset(120), "{what}");
    for from in [0, 1, 17, 55, 118] {
        let got = log.read_view().read(&spec(from, 1)).expect("read");
        assert!(
            got.base <= Offset(from) && got.next > Offset(from),
            "{what}: {from} in {}..{}",
            got.base,
            got.next
        );
    }
    assert_contiguous(&read_all(&log, 0, 300), 0, Offset(120));
}

type Damage = (&'static str, fn(&[u8]) -> Vec<u8>);

#[test]
fn d01_a_damaged_index_is_rebuilt() {
    let (disk, setup) = closed();
    let (indexes, times) = (files(&disk, ".index"), files(&disk, ".timeindex"));
    assert!(indexes.len() > 3 && times.len() == indexes.len());
    let damages: [Damage; 6] = [
        ("truncated", |c| c[..c.len() - 3].to_vec()),
        ("short", |c| c[..c.len() - 12].to_vec()),
        ("zeroed", |c| vec![0; c.len()]),
        ("backwards", |c| {
            c.chunks(8).rev().flatten().copied().collect()
        }),
        ("empty", |_| Vec::new()),
        ("longer", |c| [c, c].concat()),
    ];
    for name in indexes.iter().chain(&times) {
        for (what, damage) in damages {
            let (fork, setup) = on_fork(&disk, &setup);
            fork.put(
                &path(name),
                &damage(&disk.content(&path(name)).expect("there")),
            );
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
            assert!(
                got.base <= Offset(from) && got.next > Offset(from),
                "bit {bit}, offset {from}"
            );
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
    // One row per top bit: the change of the CRC, and the bits of the value that make it.
    let mut rows = [(0_u32, 0_u32); 32];
    for bit in 0..32 {
        let (change, made_of) = reduce(&rows, crc(1 << bit) ^ crc(0), 1 << bit);
        let top = usize::try_from(change.ilog2()).expect("CRC bits are independent");
        rows[top] = (change, made_of);
    }
    let (rest, value) = reduce(&rows, crc(0), 0);
    assert_eq!(rest, 0);
    build(value)
}

fn reduce(rows: &[(u32, u32); 32], mut change: u32, mut made_of: u32) -> (u32, u32) {
    for (row, row_made_of) in rows.iter().rev() {
        if *row != 0 && change & (1 << row.ilog2()) != 0 {
            (change, made_of) = (change ^ row, made_of ^ row_made_of);
        }
    }
    (change, made_of)
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
        let mut log = setup.open(if round == 0 {
            Stop::Clean
        } else {
            Stop::Unclean
        });
        assert_eq!(log.end_offset(), end);
        append(
            &mut log,
            &[plain(u32::try_from(round).expect("small"), 2, 30)],
        );
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
    assert!(matches!(
        log.read_view().read(&spec(base, 1 << 20)),
        Err(ReadError::Corrupt { .. })
    ));
    assert!(log.read_view().read(&spec(base - 1, 1 << 20)).is_ok());
    assert!(log.read_view().read(&spec(119, 1 << 20)).is_ok());
    for name in [CHECKPOINT, SNAPSHOT] {
        disk.remove_file(&path(name)).expect("there");
    }
    assert!(
        matches!(
            setup.try_open(Stop::Unclean),
            Err(OpenError::Corrupt { .. })
        ),
        "a full scan says so"
    );
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
        let start = ends
            .iter()
            .rfind(|end| **end <= bit / 8)
            .expect("0 is there");
        // The leader epoch alone lies outside of both the CRC and the sequence of offsets.
        let unseen = (12..16).contains(&(bit / 8 - start));
        match setup.try_open(Stop::Unclean) {
            Ok(log) => {
                assert_eq!(log.end_offset(), Offset(120), "bit {bit}");
                assert_eq!(read_to_the_end(&log).is_ok(), unseen, "bit {bit}");
            }
            Err(OpenError::DurabilityViolation { .. }) => {
                assert!(bit / 8 >= ends[ends.len() - 2], "bit {bit}");
            }
            Err(other) => panic!("bit {bit}: {other}"),
        }
        assert_eq!(
            fork.content(&path(&name)).map(|c| c.len()),
            Some(content.len()),
            "nothing was cut"
        );
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
        assert!(matches!(
            setup.try_open(Stop::Clean),
            Err(OpenError::ManifestDamaged)
        ));
    }
    disk.remove_file(&path(MANIFEST)).expect("there");
    let log = setup.open(Stop::Clean);
    assert!(log.recovery().manifest_missing);
    assert_eq!(
        (log.start_offset(), log.end_offset()),
        (Offset(0), Offset(120))
    );
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
    for content in old.iter().map(Vec::as_slice).chain([
        inside.as_bytes(),
        foreign.as_bytes(),
        b"",
        b"garbage",
        &[0; 4000],
    ]) {
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
            Err(OpenError::DurabilityViolation {
                checkpoint,
                log_end,
            }) => {
                assert_eq!((checkpoint, log_end), (Offset(120), Offset(118)));
            }
            other => panic!("{:?}", other.map(|log| log.end_offset())),
        }
    }
    for name in files(&disk, ".log") {
        disk.remove_file(&path(&name)).expect("there");
    }
    assert!(
        matches!(
            setup.try_open(Stop::Clean),
            Err(OpenError::DurabilityViolation { .. })
        ),
        "all segments are gone"
    );
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
