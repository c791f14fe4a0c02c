//! The data directory as crashes, full descriptor tables and damaged bits leave it: d01, d02, d03, d05, d09, d10, d12, d15,
//! d17, d20 as far as they are seen from outside. The simulated disk of the storage crate covers power cuts.

use std::fs;
use std::path::{Path, PathBuf};

use seawall_testkit::batch::HEADER_LEN;
use seawall_testkit::calls::{self, create_topic, end_offset};
use seawall_testkit::requests::{self, AT_ONCE, FetchFrom, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Bytes, Raw, Rec, Setup, disk};

use super::codes;
use crate::{setup, times};

/// These tests reach into our own files.
fn left_out() -> bool {
    seawall_testkit::kafka::jars().is_some()
}

/// Ten one-record batches with different values.
fn ten(raw: &mut Raw, topic: &TopicRef) {
    for number in 0..10 {
        assert_eq!(calls::append(raw, topic, 0, numbered(number)), number);
    }
}

fn numbered(number: i64) -> Bytes {
    BatchBuilder::of(&[&format!("value {number}")]).build()
}

/// A killed broker whose only segment holds ten batches, and that segment.
fn ten_and_killed(topic: &str) -> (Broker, TopicRef, PathBuf) {
    let mut broker = setup().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, topic, 1, &[]);
    ten(&mut raw, &topic);
    broker.kill9();
    let log = last_log(&broker, &topic.name);
    (broker, topic, log)
}

fn last_log(broker: &Broker, topic: &str) -> PathBuf {
    let dir = broker.partition_dir(topic, 0);
    disk::files(&dir, ".log")
        .pop()
        .unwrap_or_else(|| panic!("no segment in {}", dir.display()))
}

/// The log holds the first `count` of the ten, byte for byte, and takes appends after them.
fn assert_holds(broker: &Broker, topic: &TopicRef, count: i64, what: &str) {
    let mut raw = broker.connect();
    assert_eq!(end_offset(&mut raw, topic, 0), count, "{what}");
    let stored = calls::read_from(&mut raw, topic, 0, 0);
    let expected: Vec<Bytes> = (0..count)
        .map(|number| numbered(number).slice(HEADER_LEN..))
        .collect();
    assert_eq!(
        stored
            .iter()
            .map(|batch| batch.payload())
            .collect::<Vec<_>>(),
        expected,
        "{what}"
    );
    let offsets: Vec<i64> = stored.iter().map(|batch| batch.base_offset()).collect();
    assert_eq!(offsets, (0..count).collect::<Vec<_>>(), "{what}");
    assert_eq!(
        calls::append(&mut raw, topic, 0, numbered(count)),
        count,
        "{what}: the next append"
    );
}

#[test]
fn d01_damaged_and_missing_indexes_are_rebuilt() {
    if left_out() {
        return;
    }
    for what in [
        "missing",
        "empty",
        "cut",
        "zeros",
        "not monotone",
        "too long",
    ] {
        let mut broker = setup().start();
        let mut raw = broker.connect();
        let topic = create_topic(
            &mut raw,
            "d01",
            1,
            &[("index.interval.bytes", "64"), ("segment.bytes", "1048576")],
        );
        for number in 0..200 {
            calls::append(&mut raw, &topic, 0, BatchBuilder::sized(10_000).build());
            assert_eq!(end_offset(&mut raw, &topic, 0), number + 1);
        }
        broker.shut_down();
        for suffix in [".index", ".timeindex"] {
            let found = disk::files(&broker.partition_dir("d01", 0), suffix);
            assert!(!found.is_empty(), "{suffix} files after a clean stop");
            found.iter().for_each(|path| damage_index(path, what));
        }
        broker.start_again();
        let mut raw = broker.connect();
        assert_eq!(end_offset(&mut raw, &topic, 0), 200, "{what}");
        for offset in [0, 1, 99, 150, 199] {
            let data = calls::fetch(&mut raw, &topic, AT_ONCE, FetchFrom::new(0, offset));
            assert_eq!(
                calls::whole_batches(&data)[0].base_offset(),
                offset,
                "{what}"
            );
        }
        let by_time = calls::list_offset_at(&mut raw, calls::LIST_OFFSETS, "d01", 0, 1_000);
        assert_eq!(
            (by_time.error_code, by_time.offset),
            (codes::NONE, 0),
            "{what}"
        );
    }
}

fn damage_index(path: &Path, what: &str) {
    let len = disk::len(path);
    match what {
        "missing" => fs::remove_file(path).expect("remove an index"),
        "empty" => disk::set_len(path, 0),
        "cut" => disk::set_len(path, len / 2 + 1),
        "zeros" => {
            disk::set_len(path, 0);
            disk::set_len(path, len);
        }
        "not monotone" => disk::overwrite(path, 0, &[0x7f; 12]),
        _ => disk::overwrite(path, len, &[0x7f; 1_000]),
    }
}

#[test]
fn d02_a_genuine_batch_whose_crc_is_zero_is_read() {
    if left_out() {
        return;
    }
    let mut broker = setup().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "d02", 1, &[]);
    assert_eq!(calls::append(&mut raw, &topic, 0, with_crc_zero()), 0);
    assert_eq!(calls::append(&mut raw, &topic, 0, numbered(1)), 1);
    broker.crash_and_restart();
    let mut raw = broker.connect();
    assert_eq!(end_offset(&mut raw, &topic, 0), 2);
    assert_eq!(calls::read_from(&mut raw, &topic, 0, 0).len(), 2);
}

/// CRC-32C is linear: the four bytes that make it zero are found by solving for them, bit by bit. The last four bytes of
/// the value are free.
fn with_crc_zero() -> Bytes {
    let build = |tail: u32| {
        let bytes = [b"tail:".as_slice(), &tail.to_be_bytes()].concat();
        let record = Rec {
            timestamp: 1_000,
            key: None,
            value: Some(bytes.into()),
        };
        BatchBuilder::new(vec![record]).build()
    };
    let crc = |tail: u32| {
        let batch = build(tail);
        u32::from_be_bytes(batch[17..21].try_into().expect("4 bytes"))
    };
    let base = crc(0);
    let columns: Vec<(u32, u32)> = (0..32)
        .map(|bit| (1 << bit, crc(1 << bit) ^ base))
        .collect();
    let tail = solve(columns, base);
    let batch = build(tail);
    assert_eq!(batch[17..21], [0; 4], "the CRC is zero");
    batch
}

/// Gaussian elimination over GF(2): the xor of inputs whose columns xor to `target`.
fn solve(mut columns: Vec<(u32, u32)>, mut target: u32) -> u32 {
    let mut input = 0;
    for bit in (0..32).rev() {
        let Some(at) = columns
            .iter()
            .position(|(_, column)| column >> bit & 1 == 1)
        else {
            continue;
        };
        let (from, column) = columns.remove(at);
        for other in &mut columns {
            if other.1 >> bit & 1 == 1 {
                *other = (other.0 ^ from, other.1 ^ column);
            }
        }
        if target >> bit & 1 == 1 {
            target ^= column;
            input ^= from;
        }
    }
    input
}

#[test]
fn d02_a_tail_of_zeros_is_the_end() {
    if left_out() {
        return;
    }
    for zeros in [1, 60, 61, 5_000] {
        let (mut broker, topic, log) = ten_and_killed("d02");
        disk::set_len(&log, disk::len(&log) + zeros);
        broker.start_again();
        assert_holds(&broker, &topic, 10, &format!("{zeros} zeros"));
    }
}

#[test]
fn d03_restart_after_restart_with_torn_tails_offsets_stay_contiguous() {
    if left_out() {
        return;
    }
    let mut broker = setup().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "d03", 1, &[]);
    let mut acknowledged = 0;
    for round in 0..times(10, 100) {
        for _ in 0..5 {
            assert_eq!(
                calls::append(&mut raw, &topic, 0, numbered(acknowledged)),
                acknowledged,
                "round {round}"
            );
            acknowledged += 1;
        }
        broker.kill9();
        let log = last_log(&broker, "d03");
        let torn = numbered(acknowledged);
        disk::overwrite(
            &log,
            disk::len(&log),
            &torn[..1 + round * 7 % (torn.len() - 1)],
        );
        broker.start_again();
        raw = broker.connect();
        assert_eq!(
            end_offset(&mut raw, &topic, 0),
            acknowledged,
            "round {round}"
        );
    }
    assert_holds(&broker, &topic, acknowledged, "at the end");
}

#[test]
fn d05_with_256_descriptors_a_flood_of_connections_does_not_reach_storage() {
    if left_out() {
        return;
    }
    let broker = setup().below(&["prlimit", "--nofile=256:256"]).start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "d05", 4, &[("segment.bytes", "1048576")]);
    let flood: Vec<std::net::TcpStream> = (0..1_000)
        .filter_map(|_| std::net::TcpStream::connect(broker.addr()).ok())
        .collect();
    for round in 0..8 {
        for partition in 0..4 {
            let offset = calls::append(
                &mut raw,
                &topic,
                partition,
                BatchBuilder::sized(400_000).build(),
            );
            assert_eq!(
                offset,
                round,
                "under a flood of {} connections",
                flood.len()
            );
        }
    }
    let segments = disk::files(&broker.partition_dir("d05", 0), ".log");
    assert!(segments.len() > 1, "the segment rolled: {segments:?}");
    drop(flood);
    wait::until("new connections are served again", SOON, || {
        let mut raw = broker.connect();
        raw.send(
            0,
            &seawall_testkit::kafka_wire::ApiVersionsRequest::default(),
        );
        raw.read_frame().is_some()
    });
}

#[test]
fn d09_a_flipped_bit_in_a_closed_segment_is_an_error_and_the_rest_works() {
    if left_out() {
        return;
    }
    let mut broker = setup().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "d09", 1, &[("segment.bytes", "1048576")]);
    let other = create_topic(&mut raw, "d09-other", 1, &[]);
    for offset in 0..6 {
        assert_eq!(
            calls::append(&mut raw, &topic, 0, BatchBuilder::sized(600_000).build()),
            offset
        );
    }
    ten(&mut raw, &other);
    broker.kill9();
    let logs = disk::files(&broker.partition_dir("d09", 0), ".log");
    assert!(logs.len() > 2, "closed segments: {logs:?}");
    disk::flip_bit(&logs[0], disk::len(&logs[0]) / 2);
    let before: Vec<Vec<u8>> = logs
        .iter()
        .map(|log| fs::read(log).expect("read"))
        .collect();
    broker.start_again();
    let mut raw = broker.connect();
    let data = calls::fetch(&mut raw, &topic, AT_ONCE, FetchFrom::new(0, 0));
    let refused = [codes::CORRUPT_MESSAGE, codes::KAFKA_STORAGE_ERROR];
    assert!(
        refused.contains(&data.error_code),
        "a fetch of the damaged batch: {}",
        data.error_code
    );
    assert_holds(&broker, &other, 10, "another topic");
    let after: Vec<Vec<u8>> = logs
        .iter()
        .map(|log| fs::read(log).expect("read"))
        .collect();
    assert_eq!(before, after, "nothing was cut or mended");
    assert!(broker.log().contains("d09"), "the log names the partition");
}

#[test]
fn d09_a_flipped_bit_below_the_checkpoint_is_reported_and_never_cut() {
    if left_out() {
        return;
    }
    let mut broker = setup().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "d09", 1, &[]);
    ten(&mut raw, &topic);
    broker.stop_and_restart();
    let mut raw = broker.connect();
    assert_eq!(calls::append(&mut raw, &topic, 0, numbered(10)), 10);
    broker.kill9();
    let logs = disk::files(&broker.partition_dir("d09", 0), ".log");
    disk::flip_bit(&logs[0], disk::len(&logs[0]) / 2);
    let before = fs::read(&logs[0]).expect("read");
    broker.start_again();
    let mut raw = broker.connect();
    let data = calls::fetch(&mut raw, &topic, AT_ONCE, FetchFrom::new(0, 5));
    let refused = [codes::CORRUPT_MESSAGE, codes::KAFKA_STORAGE_ERROR];
    assert!(
        refused.contains(&data.error_code),
        "a fetch of the damaged batch: {}",
        data.error_code
    );
    assert_eq!(
        fs::read(&logs[0]).expect("read"),
        before,
        "nothing was cut or mended"
    );
}

#[test]
fn d09_a_damaged_manifest_takes_its_partition_offline_and_no_other() {
    if left_out() {
        return;
    }
    let mut broker = setup().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "d09", 1, &[]);
    let other = create_topic(&mut raw, "d09-other", 1, &[]);
    ten(&mut raw, &topic);
    ten(&mut raw, &other);
    broker.shut_down();
    let dir = broker.partition_dir("d09", 0);
    fs::write(dir.join("manifest.json"), b"{ damaged").expect("write");
    let before: Vec<Vec<u8>> = disk::files(&dir, ".log")
        .iter()
        .map(|log| fs::read(log).expect("read"))
        .collect();
    broker.start_again();
    let mut raw = broker.connect();
    let refused = calls::produce(&mut raw, &topic, 0, -1, numbered(10));
    assert_eq!(refused.error_code, codes::KAFKA_STORAGE_ERROR);
    let data = calls::fetch(&mut raw, &topic, AT_ONCE, FetchFrom::new(0, 0));
    assert_eq!(data.error_code, codes::KAFKA_STORAGE_ERROR);
    let metadata = requests::metadata(12, &["d09"]);
    let answer = raw.call::<seawall_testkit::kafka_wire::MetadataRequest>(12, &metadata);
    let partition = &answer.topics[0].partitions[0];
    assert_eq!(
        partition.offline_replicas,
        [partition.leader_id],
        "the leader stays, its replica is offline"
    );
    assert_holds(&broker, &other, 10, "another topic");
    let after: Vec<Vec<u8>> = disk::files(&dir, ".log")
        .iter()
        .map(|log| fs::read(log).expect("read"))
        .collect();
    assert_eq!(before, after, "nothing was cut or mended");
}

#[test]
fn d10_a_torn_tail_ends_the_log_at_the_last_good_batch() {
    if left_out() {
        return;
    }
    let batch = numbered(10);
    let with_length = |length: i32| {
        let mut torn = batch.to_vec();
        torn[8..12].copy_from_slice(&length.to_be_bytes());
        torn
    };
    let tails: [(&str, Vec<u8>); 7] = [
        (
            "a batch short by one byte",
            batch[..batch.len() - 1].to_vec(),
        ),
        ("a header of 60 bytes", batch[..60].to_vec()),
        ("one byte", vec![0]),
        ("a negative length", with_length(-1)),
        ("a length of zero", with_length(0)),
        ("a length beyond the file", with_length(i32::MAX)),
        ("a bad CRC", {
            let mut torn = batch.to_vec();
            torn[70] ^= 1;
            torn
        }),
    ];
    for (what, tail) in tails {
        let (mut broker, topic, log) = ten_and_killed("d10");
        disk::overwrite(&log, disk::len(&log), &tail);
        broker.start_again();
        assert_holds(&broker, &topic, 10, what);
        broker.crash_and_restart();
        let mut raw = broker.connect();
        assert_eq!(
            end_offset(&mut raw, &topic, 0),
            11,
            "{what}: what was appended behind the tail stays"
        );
        assert_eq!(calls::read_from(&mut raw, &topic, 0, 0).len(), 11, "{what}");
    }
}

#[test]
fn d10_a_last_batch_cut_by_the_crash_is_gone_and_its_offset_given_again() {
    if left_out() {
        return;
    }
    let (mut broker, topic, log) = ten_and_killed("d10");
    disk::set_len(&log, disk::len(&log) - 1);
    // What a power cut leaves: this boot never finished a recovery of this directory.
    forget_boot(&broker);
    broker.start_again();
    assert_holds(&broker, &topic, 9, "cut by one byte");
}

/// Owner files say which boot recovered the directory; after a power cut that is another one.
fn forget_boot(broker: &Broker) {
    for path in disk::files(broker.data(), ".json") {
        if path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("owner-"))
        {
            fs::remove_file(path).expect("remove an owner file");
        }
    }
}

#[test]
fn d12_a_second_broker_on_the_directory_exits_naming_the_owner_and_touches_nothing() {
    if left_out() {
        return;
    }
    let broker = setup().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "d12", 1, &[]);
    ten(&mut raw, &topic);
    let before = stable_contents(&broker);
    let (status, log) = setup().on(broker.data()).start_expecting_exit();
    assert!(!status.success());
    assert!(
        log.contains(&broker.pid().to_string()),
        "the message names the owner: {log}"
    );
    assert!(!log.contains("panicked"), "{log}");
    assert_eq!(stable_contents(&broker), before);
    assert_eq!(calls::append(&mut raw, &topic, 0, numbered(10)), 10);
}

/// Everything in the data directory but the beat of the owner.
fn stable_contents(broker: &Broker) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = disk::contents(broker.data());
    all.retain(|(path, _)| !path.to_string_lossy().contains("owner-"));
    all
}

#[test]
fn d15_checkpoints_that_are_old_foreign_or_garbage_change_nothing() {
    if left_out() {
        return;
    }
    let name = "recovery-checkpoint.json";
    for what in [
        "old",
        "foreign",
        "in the middle of a batch",
        "garbage",
        "empty",
        "missing",
    ] {
        let mut broker = setup().start();
        let mut raw = broker.connect();
        let topic = create_topic(&mut raw, "d15", 1, &[]);
        let other = create_topic(&mut raw, "d15-other", 1, &[]);
        for number in 0..5 {
            calls::append(&mut raw, &topic, 0, numbered(number));
            calls::append(&mut raw, &other, 0, numbered(number));
        }
        broker.stop_and_restart();
        let path = broker.partition_dir("d15", 0).join(name);
        let old = fs::read(&path).expect("a checkpoint after a clean stop");
        let foreign =
            fs::read(broker.partition_dir("d15-other", 0).join(name)).expect("a checkpoint");
        let mut raw = broker.connect();
        for number in 5..10 {
            calls::append(&mut raw, &topic, 0, numbered(number));
        }
        broker.shut_down();
        match what {
            "old" => fs::write(&path, &old).expect("write"),
            "foreign" => fs::write(&path, &foreign).expect("write"),
            "in the middle of a batch" => shift_positions(&path),
            "garbage" => fs::write(&path, [0xff; 300]).expect("write"),
            "empty" => fs::write(&path, b"").expect("write"),
            _ => fs::remove_file(&path).expect("remove"),
        }
        broker.start_again();
        assert_holds(&broker, &topic, 10, what);
    }
}

/// Adds three to every number of a checkpoint, so that it points into batches.
fn shift_positions(path: &Path) {
    let text = fs::read_to_string(path).expect("read a checkpoint");
    let mut out = String::new();
    let mut digits = String::new();
    let mut quoted = false;
    for letter in text.chars().chain(['\n']) {
        quoted ^= letter == '"';
        if letter.is_ascii_digit() && !quoted {
            digits.push(letter);
            continue;
        }
        if let Ok(number) = digits.parse::<u64>() {
            out.push_str(&(number + 3).to_string());
        }
        digits.clear();
        out.push(letter);
    }
    fs::write(path, out).expect("write a checkpoint");
}

#[test]
fn d17_garbage_in_state_files_is_no_crash_loop() {
    if left_out() {
        return;
    }
    for garbage in [
        vec![0xff; 64],
        b"[[[[[[[[[[[[".to_vec(),
        b"{\"epoch\":99999999999999999999999}".to_vec(),
        Vec::new(),
    ] {
        let mut broker = setup().start();
        let mut raw = broker.connect();
        let topic = create_topic(&mut raw, "d17", 1, &[]);
        let other = create_topic(&mut raw, "d17-other", 1, &[]);
        ten(&mut raw, &topic);
        ten(&mut raw, &other);
        broker.shut_down();
        let dir = broker.partition_dir("d17", 0);
        for file in ["producer-state.snapshot", "recovery-checkpoint.json"] {
            fs::write(dir.join(file), &garbage).expect("write");
        }
        for suffix in [".index", ".timeindex"] {
            disk::files(&dir, suffix)
                .iter()
                .for_each(|path| fs::write(path, &garbage).expect("write"));
        }
        broker.start_again();
        assert_holds(&broker, &topic, 10, "damaged state files");
        assert_holds(&broker, &other, 10, "another topic");
    }
}

#[test]
fn d17_garbage_in_every_header_field_of_a_log_is_bounded_by_the_file() {
    if left_out() {
        return;
    }
    let (mut broker, topic, log) = ten_and_killed("d17");
    let whole = fs::read(&log).expect("read");
    let last = whole.len() - whole.len() / 10;
    for at in (0..HEADER_LEN).step_by(if times(0, 1) == 1 { 1 } else { 4 }) {
        let mut damaged = whole.clone();
        let end = (last + at + 4).min(damaged.len());
        damaged[last + at..end].fill(0x7f);
        fs::write(&log, &damaged).expect("write");
        broker.start_again();
        assert!(
            broker.proc_status("VmHWM") < 200 * 1024,
            "garbage at byte {at} of a header"
        );
        let mut raw = broker.connect();
        let data = calls::fetch(&mut raw, &topic, AT_ONCE, FetchFrom::new(0, 0));
        if data.error_code == codes::NONE {
            let shown = calls::whole_batches(&data).len();
            assert!(
                (9..=10).contains(&shown),
                "garbage at byte {at}: {shown} batches"
            );
        }
        broker.kill9();
        fs::write(&log, &whole).expect("write");
    }
    broker.start_again();
    assert_holds(&broker, &topic, 10, "once the bytes are back");
}

#[test]
fn d20_on_one_cpu_64_partitions_survive_a_crash_under_load() {
    if left_out() {
        return;
    }
    let one_cpu = |setup: Setup| setup.below(&["taskset", "-c", "0"]);
    let mut broker = one_cpu(setup()).start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "d20", 64, &[]);
    for round in 0..times(3, 20) {
        let all = || (0..64).map(|index| (index, Some(numbered(0)))).collect();
        let answers = calls::produce_at(&mut raw, calls::PRODUCE, &topic, -1, all());
        assert!(
            answers
                .iter()
                .all(|answer| answer.error_code == codes::NONE),
            "round {round}"
        );
        let ends: Vec<i64> = (0..64)
            .map(|index| end_offset(&mut raw, &topic, index))
            .collect();
        raw.send(
            calls::PRODUCE,
            &requests::produce(calls::PRODUCE, &topic, -1, all()),
        );
        broker.crash_and_restart();
        raw = broker.connect();
        for (index, end) in (0..64).zip(ends) {
            let now = end_offset(&mut raw, &topic, index);
            assert!(
                now == end || now == end + 1,
                "round {round}: partition {index} ended at {end}, now at {now}"
            );
        }
    }
}

#[test]
fn a_clean_stop_and_start_changes_no_file_of_an_idle_partition() {
    if left_out() {
        return;
    }
    let mut broker = setup().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "idle", 1, &[]);
    ten(&mut raw, &topic);
    broker.shut_down();
    let before = disk::contents(&broker.partition_dir("idle", 0));
    broker.start_again();
    assert_eq!(end_offset(&mut broker.connect(), &topic, 0), 10);
    broker.shut_down();
    assert_eq!(disk::contents(&broker.partition_dir("idle", 0)), before);
    broker.start_again();
}

#[test]
fn acknowledged_records_of_many_topics_survive_a_kill() {
    let mut broker = setup().set("num.partitions", "1").start();
    let mut raw = broker.connect();
    let topics: Vec<TopicRef> = (0..5)
        .map(|number| create_topic(&mut raw, &format!("many-{number}"), 3, &[]))
        .collect();
    for topic in &topics {
        for partition in 0..3 {
            assert_eq!(calls::append(&mut raw, topic, partition, numbered(0)), 0);
        }
    }
    broker.crash_and_restart();
    let mut raw = broker.connect();
    for topic in &topics {
        for partition in 0..3 {
            assert_eq!(
                end_offset(&mut raw, topic, partition),
                1,
                "{}-{partition}",
                topic.name
            );
        }
    }
}
