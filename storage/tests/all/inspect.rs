//! What an inspection finds in files that are whole, damaged, torn, or not ours at all.

use std::path::Path;

use proptest::prelude::*;
use seawall_storage::batch::HEADER_BYTES;
use seawall_storage::disk::{Disk, SimDisk};
use seawall_storage::inspect::{
    FileWalk, Finding, InspectOptions, Next, PartitionFacts, Rules, Seen, Severity, What,
    inspect_partition,
};
use seawall_storage::names::{CHECKPOINT, MANIFEST, SNAPSHOT};
use seawall_storage::{
    BadBatch, Batch, BatchHeader, Offset, PartitionIndex, Position, Stop, TopicId,
};

use crate::damage::{files, flip, on_fork, path, setup};
use crate::support::{
    Setup, TOPIC, append, close, flush, header, idempotent, payload, plain, roll, seal,
};

const DIR: &str = "/topic/3";

fn inspect_as(
    disk: &SimDisk,
    topic: u128,
    recovered_this_boot: bool,
) -> (PartitionFacts, Vec<Finding>) {
    let options = InspectOptions {
        topic_id: Some(TopicId(uuid::Uuid::from_u128(topic))),
        partition: PartitionIndex(3),
        recovered_this_boot,
        progress: &|_| {},
    };
    let mut found = Vec::new();
    let facts = inspect_partition(disk, Path::new(DIR), &options, &mut |f| found.push(f));
    (facts.expect("the directory can be listed"), found)
}

fn inspect(disk: &SimDisk) -> (PartitionFacts, Vec<Finding>) {
    inspect_as(disk, TOPIC, false)
}

fn damage(found: &[Finding]) -> Vec<&Finding> {
    found
        .iter()
        .filter(|f| f.severity == Severity::Damage)
        .collect()
}

/// Several segments, a producer, a clean stop; 60 offsets.
fn closed() -> SimDisk {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    fill(&mut log);
    close(&log);
    disk
}

fn fill(log: &mut seawall_storage::Log) {
    for tag in 0..20 {
        let sequence = i32::try_from(tag).expect("small") * 2;
        append(log, &[plain(tag, 1, 60), idempotent(5, 0, sequence, 2)]);
    }
}

/// Written and synced, no state files, the process gone.
fn open_ended() -> (SimDisk, Setup) {
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    fill(&mut log);
    flush(&mut log);
    (disk, setup)
}

fn content(disk: &SimDisk, name: &str) -> Vec<u8> {
    disk.content(&path(name)).expect("there")
}

/// Where the batches of a file begin.
fn starts(bytes: &[u8]) -> Vec<usize> {
    let mut at = 0;
    let mut starts = Vec::new();
    while let Some(header) = BatchHeader::peek(&bytes[at..]) {
        starts.push(at);
        at += usize::try_from(header.total_len().expect("good")).expect("small");
    }
    starts
}

#[test]
fn a_whole_log_has_no_findings() {
    let (facts, found) = inspect(&closed());
    assert!(found.is_empty(), "{found:?}");
    assert_eq!((facts.start, facts.end), (Offset(0), Offset(60)));
    assert_eq!(facts.batches, 40);
    assert!(facts.files >= 3 * 3 + 3, "{facts:?}");
    let (facts, found) = inspect(&setup().0);
    assert!(found.is_empty() && facts.end == Offset(0), "not made yet");
}

#[test]
fn any_flipped_bit_of_any_header_is_found_at_its_batch() {
    let disk = closed();
    for name in files(&disk, ".log") {
        let starts = starts(&content(&disk, &name));
        assert!(starts.len() > 2, "{name}");
        for (start, bit) in starts
            .iter()
            .flat_map(|start| (0..HEADER_BYTES * 8).map(move |bit| (*start, bit)))
        {
            let fork = disk.fork();
            flip(&fork, &name, start * 8 + bit);
            let (_, found) = inspect(&fork);
            let first = damage(&found).first().map(|f| (f.file.clone(), f.position));
            let place = Position(u64::try_from(start).expect("small"));
            assert_eq!(
                first,
                Some((name.clone(), Some(place))),
                "bit {bit} of the batch at {start}: {found:?}"
            );
            assert_eq!(damage(&found).len(), 1, "bit {bit}: {found:?}");
        }
    }
}

#[test]
fn a_flipped_bit_of_a_payload_is_found_and_the_rest_is_walked() {
    let disk = closed();
    let name = &files(&disk, ".log")[0];
    let bytes = content(&disk, name);
    for start in starts(&bytes) {
        let fork = disk.fork();
        flip(&fork, name, (start + HEADER_BYTES + 5) * 8 + 3);
        let (facts, found) = inspect(&fork);
        let all = damage(&found);
        assert!(matches!(
            all[0].what,
            What::Batch {
                why: BadBatch::Crc,
                unknown_bytes: 0
            }
        ));
        assert_eq!((all.len(), facts.batches), (1, 39));
    }
}

#[test]
fn any_flipped_bit_of_any_other_file_is_found_there() {
    let disk = closed();
    let mut names: Vec<String> = [MANIFEST, CHECKPOINT, SNAPSHOT].map(str::to_owned).into();
    names.push(files(&disk, ".index")[0].clone());
    names.push(files(&disk, ".timeindex")[0].clone());
    for name in names {
        for bit in 0..content(&disk, &name).len() * 8 {
            let fork = disk.fork();
            flip(&fork, &name, bit);
            let (_, found) = inspect(&fork);
            let named: Vec<&str> = damage(&found).iter().map(|f| f.file.as_str()).collect();
            assert_eq!(named, [name.as_str()], "bit {bit}: {found:?}");
        }
    }
}

#[test]
fn index_damage_is_named_with_its_entry() {
    let disk = closed();
    let name = &files(&disk, ".timeindex")[0];
    let fork = disk.fork();
    flip(&fork, name, (12 + 7) * 8);
    let (_, found) = inspect(&fork);
    assert_eq!(found[0].position, Some(Position(12)));
    assert!(matches!(found[0].what, What::IndexEntry), "{found:?}");
}

#[test]
fn files_of_another_incarnation_are_damage() {
    let (_, found) = inspect_as(&closed(), TOPIC + 1, false);
    let named: Vec<&str> = damage(&found).iter().map(|f| f.file.as_str()).collect();
    assert_eq!(named, [CHECKPOINT, SNAPSHOT]);
}

#[test]
fn torn_zero_and_garbage_tails_are_notes() {
    let (disk, _) = open_ended();
    let name = files(&disk, ".log").pop().expect("a segment");
    let whole = content(&disk, &name);
    let end = inspect(&disk).0.end;
    let tails: [(&str, Vec<u8>); 4] = [
        ("half a header", whole[..30].to_vec()),
        ("half a batch", whole[..70].to_vec()),
        ("zeros", vec![0; 5000]),
        (
            "garbage",
            (0..5000)
                .map(|n| u8::try_from(n % 251).expect("small"))
                .collect(),
        ),
    ];
    for (what, tail) in tails {
        let fork = disk.fork();
        fork.put(&path(&name), &[whole.as_slice(), &tail].concat());
        for recovered in [false, true] {
            let (facts, found) = inspect_as(&fork, TOPIC, recovered);
            assert!(damage(&found).is_empty(), "{what}: {found:?}");
            assert_eq!(facts.end, end, "{what}");
            let tails: Vec<_> = found
                .iter()
                .filter(
                    |f| matches!(f.what, What::Tail { zeros, .. } if zeros == (what == "zeros")),
                )
                .map(|f| f.position.expect("a place").0)
                .collect();
            assert_eq!(
                tails,
                [u64::try_from(whole.len()).expect("small")],
                "{what}"
            );
        }
    }
}

#[test]
fn a_tail_that_a_newer_file_hides_is_a_note() {
    let (disk, old) = open_ended();
    let name = files(&disk, ".log").pop().expect("a segment");
    let whole = content(&disk, &name);
    disk.put(&path(&name), &[whole.as_slice(), &whole[..70]].concat());
    let mut log = old.open(Stop::Unclean);
    append(&mut log, &[plain(1, 1, 10)]);
    let (_, found) = inspect(&disk);
    assert!(damage(&found).is_empty(), "{found:?}");
    let hidden = found.iter().find(|f| f.file == name).expect("the tail");
    assert!(
        matches!(
            hidden.what,
            What::HiddenTail { bytes: 70, .. } | What::IndexMissing
        ),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|f| matches!(f.what, What::HiddenTail { bytes: 70, .. }))
    );
}

#[test]
fn a_bad_batch_above_the_checkpoint_is_damage_only_if_a_process_died_and_a_good_one_follows() {
    let (disk, _) = open_ended();
    let name = files(&disk, ".log").pop().expect("a segment");
    let starts = starts(&content(&disk, &name));
    let (second, last) = (starts[1], *starts.last().expect("batches"));
    for (at, recovered, expected) in [
        (second, false, 0),
        (second, true, 1),
        (last, false, 0),
        (last, true, 0),
    ] {
        let fork = disk.fork();
        flip(&fork, &name, (at + 70) * 8);
        let (_, found) = inspect_as(&fork, TOPIC, recovered);
        assert_eq!(
            damage(&found).len(),
            expected,
            "{at} {recovered}: {found:?}"
        );
    }
}

#[test]
fn a_cut_below_what_was_durable_is_damage() {
    let disk = closed();
    let logs = files(&disk, ".log");
    for (name, expected) in [(&logs[0], 1), (logs.last().expect("a segment"), 1)] {
        for cut in [1, 30, 80] {
            let fork = disk.fork();
            let bytes = content(&disk, name);
            fork.put(&path(name), &bytes[..bytes.len() - cut]);
            let found = inspect(&fork).1;
            let in_log = damage(&found).iter().filter(|f| f.file == **name).count();
            assert_eq!(in_log, expected, "{name} cut by {cut}: {found:?}");
        }
        let fork = disk.fork();
        let bytes = content(&disk, name);
        fork.put(
            &path(name),
            &bytes[..*starts(&bytes).last().expect("batches")],
        );
        assert!(
            !damage(&inspect(&fork).1).is_empty(),
            "{name} without its last batch"
        );
    }
    let fork = disk.fork();
    fork.remove_file(&path(&logs[1])).expect("there");
    let found = inspect(&fork).1;
    assert!(
        matches!(damage(&found)[0].what, What::EndsEarly { .. }),
        "{found:?}"
    );
}

#[test]
fn what_crashes_and_people_leave_are_notes() {
    let disk = closed();
    disk.remove_file(&path(&files(&disk, ".index")[0]))
        .expect("there");
    disk.put(&path(".tmp-7"), b"{");
    disk.put(&path("notes.txt"), b"mine");
    let (_, found) = inspect(&disk);
    assert_eq!((found.len(), damage(&found).len()), (3, 0), "{found:?}");
}

#[test]
fn a_start_without_appends_and_a_second_epoch_have_no_damage() {
    let (disk, old) = setup();
    let mut log = old.open(Stop::Clean);
    roll(&mut log);
    close(&log);
    let mut log = old.open(Stop::Clean);
    fill(&mut log);
    close(&log);
    let (facts, found) = inspect(&disk);
    assert_eq!(
        (damage(&found).len(), facts.end),
        (0, Offset(60)),
        "{found:?}"
    );
}

/// The walk of one file.
fn walk(bytes: &[u8]) -> Vec<Seen> {
    let disk = SimDisk::new();
    disk.put(Path::new("/f"), bytes);
    let file = disk.open_read(Path::new("/f")).expect("there");
    let len = u64::try_from(bytes.len()).expect("small");
    let mut walk = FileWalk::new(&*file, len, Rules::ANY);
    let mut seen = Vec::new();
    while let Some(step) = walk.step().expect("memory") {
        seen.push(step);
    }
    seen
}

fn batch_at(offset: i64) -> Vec<u8> {
    let fields = BatchHeader {
        base_offset: Offset(offset),
        ..header(2, 7)
    };
    seal(fields, &payload(1, 2, 9)).to_vec()
}

fn bad_places(seen: &[Seen]) -> Vec<(u64, Next)> {
    seen.iter()
        .filter_map(|s| match s {
            Seen::Bad(bad) => Some((bad.position.0, bad.next)),
            Seen::Batch(_) => None,
        })
        .collect()
}

#[test]
fn a_walk_goes_on_behind_a_bad_place_only_by_a_length_that_leads_to_a_header_that_fits() {
    let parts = [batch_at(10), batch_at(12), batch_at(20)];
    let (one, len) = (
        parts[0].len(),
        u64::try_from(parts[0].len()).expect("small"),
    );
    let whole = parts.concat();
    assert_eq!((walk(&whole).len(), bad_places(&walk(&whole))), (3, vec![]));
    // Base offset, length, magic, checksum and everything that it covers.
    for (byte, next) in [
        (0, Next::Batch(Position(2 * len))),
        (
            8,
            Next::Unknown {
                bytes: 2 * len,
                zeros: false,
            },
        ),
        (
            11,
            Next::Unknown {
                bytes: 2 * len,
                zeros: false,
            },
        ),
        (16, Next::Batch(Position(2 * len))),
        (17, Next::Batch(Position(2 * len))),
        (22, Next::Batch(Position(2 * len))),
        (26, Next::Batch(Position(2 * len))),
        (60, Next::Batch(Position(2 * len))),
        (70, Next::Batch(Position(2 * len))),
    ] {
        let mut bytes = whole.clone();
        bytes[one + byte] ^= 0x80;
        let seen = walk(&bytes);
        assert_eq!(bad_places(&seen), [(len, next)], "byte {byte}: {seen:?}");
    }
    let mut bytes = whole.clone();
    bytes[2 * one + 70] ^= 1;
    assert_eq!(bad_places(&walk(&bytes)), [(2 * len, Next::End)]);
    let zeros = [whole, vec![0; 100]].concat();
    let expected = Next::Unknown {
        bytes: 100,
        zeros: true,
    };
    assert_eq!(bad_places(&walk(&zeros)), [(3 * len, expected)]);
}

#[test]
fn offsets_that_go_back_or_reach_the_end_of_numbers_are_bad() {
    let back = [batch_at(10), batch_at(5)].concat();
    assert_eq!(bad_places(&walk(&back)).len(), 1);
    for offset in [-1, i64::MIN, i64::MAX, i64::MAX - 1] {
        assert_eq!(bad_places(&walk(&batch_at(offset))).len(), 1, "{offset}");
    }
}

#[test]
fn a_header_far_beyond_the_expected_offset_is_no_place_to_go_on() {
    let mut parts = [batch_at(10), batch_at(12), batch_at(1 << 40)];
    parts[1][70] ^= 1;
    let len = u64::try_from(parts[0].len()).expect("small");
    let next = Next::Unknown {
        bytes: 2 * len,
        zeros: false,
    };
    assert_eq!(bad_places(&walk(&parts.concat())), [(len, next)]);
}

#[test]
fn a_snapshot_of_another_log_does_not_match() {
    let other = {
        let (disk, setup) = setup();
        let mut log = setup.open(Stop::Clean);
        append(&mut log, &[idempotent(5, 0, 0, 1)]);
        close(&log);
        content(&disk, SNAPSHOT)
    };
    let (disk, setup) = setup();
    let mut log = setup.open(Stop::Clean);
    append(&mut log, &[idempotent(5, 0, 0, 2)]);
    close(&log);
    assert!(inspect(&disk).1.is_empty());
    disk.put(&path(SNAPSHOT), &other);
    let (_, found) = inspect(&disk);
    assert!(
        matches!(
            found[..],
            [Finding {
                what: What::SnapshotBatch { .. },
                ..
            }]
        ),
        "{found:?}"
    );
}

#[test]
fn a_batch_of_many_chunks_is_checked_in_chunks() {
    let big = seal(header(1, 7), &payload(1, 1, 3 << 20)).to_vec();
    assert!(matches!(walk(&big)[..], [Seen::Batch(_)]));
    let mut bad = big.clone();
    *bad.last_mut().expect("bytes") ^= 1;
    assert!(matches!(walk(&bad)[..], [Seen::Bad(b)] if b.why == BadBatch::Crc));
    assert!(Batch::parse_one(&big.into()).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_bytes_make_a_walk_or_an_inspection_fall_over(
        garbage in proptest::collection::vec(any::<u8>(), 0..400),
        at in 0_usize..2000,
        which in 0_usize..12,
    ) {
        let disk = closed_once();
        let names: Vec<String> = disk.list(Path::new(DIR)).expect("list").into_iter().map(|e| e.name).collect();
        let name = &names[which % names.len()];
        let mut bytes = content(&disk, name);
        let at = at % (bytes.len() + 1);
        bytes.splice(at..(at + garbage.len()).min(bytes.len()), garbage.clone());
        let (fork, _) = on_fork(&disk, &setup().1);
        fork.put(&path(name), &bytes);
        inspect_as(&fork, TOPIC, true);
        walk(&bytes);
        walk(&garbage);
    }
}

fn closed_once() -> SimDisk {
    static DISK: std::sync::OnceLock<SimDisk> = std::sync::OnceLock::new();
    DISK.get_or_init(closed).fork()
}
