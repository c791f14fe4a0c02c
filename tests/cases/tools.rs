//! `seawall verify` and `seawall dump-log` on the directories of real brokers, living, stopped and damaged, and on files as
//! Kafka writes them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use seawall_testkit::batch::HEADER_LEN;
use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::{BatchBuilder, Broker, Bytes, Codec, Rec, disk};

use crate::setup;

/// The tools are ours, whatever broker is under test.
fn left_out() -> bool {
    seawall_testkit::kafka::jars().is_some()
}

fn seawall(args: &[&str]) -> Output {
    let binary = env::var_os("SEAWALL_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_seawall").into());
    Command::new(binary)
        .args(args)
        .output()
        .expect("run the tool")
}

fn verify(data: &Path, more: &[&str]) -> (i32, String) {
    let data = data.to_str().expect("a path");
    ended(&seawall(&[&["verify", "--data-dir", data], more].concat()))
}

fn dump(file: &Path, more: &[&str]) -> (i32, String) {
    let file = file.to_str().expect("a path");
    ended(&seawall(&[&["dump-log", file], more].concat()))
}

/// Exit code and standard output.
fn ended(output: &Output) -> (i32, String) {
    let code = output
        .status
        .code()
        .unwrap_or_else(|| panic!("killed: {}", String::from_utf8_lossy(&output.stderr)));
    (code, String::from_utf8_lossy(&output.stdout).into_owned())
}

fn damage(text: &str) -> Vec<&str> {
    text.lines().filter(|l| l.starts_with("DAMAGE")).collect()
}

fn rows(text: &str) -> Vec<serde_json::Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

/// A stopped broker with two topics; the first has three segments, indexes, and an idempotent producer.
fn stopped() -> Broker {
    let mut broker = setup().start();
    let mut raw = broker.connect();
    let topic = create_topic(
        &mut raw,
        "orders",
        2,
        &[("segment.bytes", "1048576"), ("index.interval.bytes", "64")],
    );
    let (id, epoch) = calls::new_producer(&mut raw);
    for number in 0..30 {
        let batch = BatchBuilder::sized(90_000).producer(id, epoch, number);
        calls::append(&mut raw, &topic, 0, batch.build());
    }
    let other = create_topic(&mut raw, "a-0", 1, &[]);
    calls::append(&mut raw, &other, 0, BatchBuilder::of(&["one"]).build());
    broker.shut_down();
    broker
}

fn logs(broker: &Broker) -> Vec<PathBuf> {
    disk::files(&broker.partition_dir("orders", 0), ".log")
}

/// Runs on the damaged bytes, then puts the file back; says what was printed as damage.
fn with_damage(broker: &Broker, file: &Path, harm: impl FnOnce(&Path)) -> Vec<String> {
    let good = fs::read(file).expect("read a file to damage");
    harm(file);
    let before = disk::contents(broker.data());
    let (code, text) = verify(broker.data(), &[]);
    assert_eq!(code, 1, "{}: {text}", file.display());
    assert!(
        before == disk::contents(broker.data()),
        "verify changed something"
    );
    fs::write(file, good).expect("put the file back");
    damage(&text)
        .iter()
        .map(|line| (*line).to_owned())
        .collect()
}

#[test]
fn verify_finds_nothing_in_a_stopped_directory_and_changes_nothing() {
    if left_out() {
        return;
    }
    let broker = stopped();
    let before = disk::contents(broker.data());
    let (code, text) = verify(broker.data(), &[]);
    assert_eq!((code, text.lines().count()), (0, 1), "{text}");
    assert!(
        text.contains("2 topics, 3 partitions") && text.contains("31 batches"),
        "{text}"
    );
    assert!(
        before == disk::contents(broker.data()),
        "verify changed something"
    );
    for (only, partitions) in [("orders", 2), ("orders-0", 1), ("a-0", 1), ("a-0-0", 1)] {
        let (code, text) = verify(broker.data(), &["--json", only]);
        let rows = rows(&text);
        assert_eq!(
            (code, rows[0]["partitions"].as_u64()),
            (0, Some(partitions)),
            "{only}: {text}"
        );
        assert_eq!(rows[0]["kind"], "summary");
    }
}

#[test]
fn verify_names_the_file_and_the_batch_of_a_flipped_bit_anywhere_in_a_log() {
    if left_out() {
        return;
    }
    let broker = stopped();
    let logs = logs(&broker);
    assert_eq!(logs.len(), 3, "segments");
    for log in &logs {
        let size = disk::len(log) / u64::try_from(segment_batches(log)).expect("small");
        for at in [8, 11, 15, 16, 18, 22, 26, 60, 70, size + 3, size + 50_000] {
            let lines = with_damage(&broker, log, |log| disk::flip_bit(log, at));
            let place = format!("DAMAGE {} byte {} offset ", log.display(), at / size * size);
            assert!(
                lines.len() == 1 && lines[0].starts_with(&place),
                "byte {at}: {lines:?} instead of {place}"
            );
        }
    }
    assert_eq!(verify(broker.data(), &[]).0, 0, "all is put back");
}

fn segment_batches(log: &Path) -> usize {
    dump(log, &[]).1.lines().count()
}

#[test]
fn verify_names_every_other_kind_of_file_that_is_damaged() {
    if left_out() {
        return;
    }
    let broker = stopped();
    let data = broker.data();
    let partition = broker.partition_dir("orders", 0);
    let mut files = vec![
        partition.join("manifest.json"),
        partition.join("producer-state.snapshot"),
        partition.join("recovery-checkpoint.json"),
        data.join("orders/.topic-id.json"),
        data.join("orders/.config.json"),
        data.join("log-dir.json"),
        data.join("__cluster/meta.json"),
        data.join("__cluster/topics/orders.json"),
    ];
    files.extend(disk::files(&partition, ".index").pop());
    files.extend(disk::files(&partition, ".timeindex").pop());
    files.extend(disk::files(&data.join("__cluster/producer_ids"), ".json").pop());
    for file in files {
        let lines = with_damage(&broker, &file, |file| {
            disk::flip_bit(file, disk::len(file) / 2);
        });
        let named = format!("DAMAGE {}", file.display());
        assert!(
            lines.iter().any(|line| line.starts_with(&named)),
            "{named}: {lines:?}"
        );
    }
    for file in [
        "orders/.topic-id.json",
        "__cluster/topics/orders.json",
        "__cluster/meta.json",
    ] {
        let file = data.join(file);
        let lines = with_damage(&broker, &file, |file| {
            fs::remove_file(file).expect("remove a file");
        });
        assert!(!lines.is_empty(), "{} is missing", file.display());
    }
    let owner = disk::files(data, ".json")
        .into_iter()
        .find(|path| path.to_string_lossy().contains("owner-"))
        .expect("an owner file");
    let lines = with_damage(&broker, &owner, |owner| disk::flip_bit(owner, 0));
    assert!(lines[0].contains("owner-"), "{lines:?}");
}

#[test]
fn verify_exits_with_2_where_there_is_nothing_to_look_at() {
    if left_out() {
        return;
    }
    let broker = stopped();
    for args in [
        &["nothing"][..],
        &["orders-7"],
        &["--config", "/nowhere/x.properties"],
    ] {
        assert_eq!(verify(broker.data(), args).0, 2, "{args:?}");
    }
    let empty = tempfile::tempdir().expect("a directory");
    assert_eq!(verify(empty.path(), &[]).0, 2, "empty");
    assert_eq!(verify(&empty.path().join("none"), &[]).0, 2, "missing");
    fs::write(empty.path().join("meta.properties"), "version=1\n").expect("write");
    assert_eq!(verify(empty.path(), &[]).0, 2, "Kafka's");
    assert_eq!(disk::contents(empty.path()).len(), 1, "nothing was made");
}

#[test]
fn verify_finds_no_damage_beside_a_living_broker_and_after_a_crash() {
    if left_out() {
        return;
    }
    let mut broker = setup().start();
    let mut raw = broker.connect();
    let options = [("segment.bytes", "1048576"), ("index.interval.bytes", "64")];
    let topic = create_topic(&mut raw, "busy", 1, &options);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..120 {
                calls::append(&mut raw, &topic, 0, BatchBuilder::sized(30_000).build());
            }
        });
        let mut looks = 0;
        while !writer.is_finished() {
            let (code, text) = verify(broker.data(), &[]);
            assert_eq!(code, 0, "look {looks}: {text}");
            looks += 1;
        }
        assert!(looks > 1, "looked {looks} times while the log grew");
    });
    broker.kill9();
    let log = disk::files(&broker.partition_dir("busy", 0), ".log")
        .pop()
        .expect("a log");
    disk::overwrite(&log, disk::len(&log), &[0; 300]);
    let (code, text) = verify(broker.data(), &[]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("zeros") && text.contains(&*log.to_string_lossy()),
        "{text}"
    );
    broker.start_again();
    let mut raw = broker.connect();
    calls::append(&mut raw, &topic, 0, BatchBuilder::of(&["behind"]).build());
    let (code, text) = verify(broker.data(), &[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("a tail of 300 bytes, never read"), "{text}");
}

#[test]
fn verify_sees_damage_below_a_living_broker() {
    if left_out() {
        return;
    }
    let broker = setup().start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "hurt", 1, &[]);
    for number in 0..5 {
        calls::append(
            &mut raw,
            &topic,
            0,
            BatchBuilder::of(&[&format!("{number}")]).build(),
        );
    }
    let log = disk::files(&broker.partition_dir("hurt", 0), ".log")
        .pop()
        .expect("a log");
    let size = disk::len(&log) / 5;
    disk::flip_bit(&log, 2 * size + 65);
    let (code, text) = verify(broker.data(), &["--json"]);
    let first = &rows(&text)[0];
    assert_eq!(code, 1, "{text}");
    assert_eq!(first["file"], *log.to_string_lossy());
    assert_eq!(
        (first["position"].as_u64(), first["offset"].as_i64()),
        (Some(2 * size), Some(2))
    );
}

#[test]
fn dump_log_prints_batches_and_records() {
    if left_out() {
        return;
    }
    let broker = stopped();
    let log = &logs(&broker)[1];
    let (code, text) = dump(log, &["--json", "--records"]);
    let rows = rows(&text);
    assert_eq!(code, 0, "{text:.300}");
    let batches = rows.iter().filter(|row| row["kind"] == "batch");
    let offsets: Vec<i64> = batches
        .map(|row| row["baseOffset"].as_i64().expect("a number"))
        .collect();
    let first = offsets[0];
    assert!(
        first > 0 && offsets.iter().zip(first..).all(|(a, b)| *a == b),
        "{offsets:?}"
    );
    assert_eq!(rows[0]["position"], 0);
    assert_eq!(rows[0]["baseSequence"], first);
    assert_eq!(rows[1]["offset"], first);
    assert_eq!(rows[1]["value"].as_str().map(str::len), Some(90_000));
    let (code, one) = dump(log, &["--max-bytes", "1"]);
    assert_eq!((code, one.lines().count()), (0, 1), "{one}");
}

/// A file as Kafka names and writes it: a batch of text, one in a transaction, its marker, a gap as compaction leaves it.
fn kafka_file() -> Vec<Bytes> {
    let mut keyed = Rec::value("a\n\u{fc}\\").keyed("k");
    keyed.timestamp = 1_700_000_000_000;
    let marker = Rec {
        timestamp: 5,
        key: Some(Bytes::from_static(&[0, 0, 0, 1])),
        value: Some(Bytes::from_static(&[0, 0, 0, 0, 0, 7])),
    };
    let raw = Rec {
        timestamp: 6,
        key: None,
        value: Some(Bytes::from_static(&[0xff, 0])),
    };
    vec![
        BatchBuilder::new(vec![keyed, Rec::value("b")])
            .codec(Codec::Gzip)
            .build(),
        BatchBuilder::new(vec![raw])
            .producer(4, 1, 9)
            .attribute_bits(1 << 4)
            .base_offset(2)
            .build(),
        BatchBuilder::new(vec![marker])
            .producer(4, 1, -1)
            .attribute_bits(3 << 4)
            .base_offset(3)
            .build(),
        BatchBuilder::of(&["after a gap"]).base_offset(40).build(),
    ]
}

fn write_kafka_file(dir: &Path, bytes: &[u8]) -> PathBuf {
    let path = dir.join("00000000000000000000.log");
    fs::write(&path, bytes).expect("write a file");
    path
}

#[test]
fn dump_log_reads_what_kafka_writes() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = write_kafka_file(dir.path(), &kafka_file().concat());
    let (code, text) = dump(&path, &["--records"]);
    assert_eq!(code, 0, "{text}");
    for part in [
        "offsets 0-1 count 2 epoch -1 position 0",
        "codec gzip CreateTime",
        r#"offset 0 timestamp 1700000000000 key "k" value "a\nü\\""#,
        "producer 4 epoch 1 sequence 9-9 transactional CreateTime",
        r#"key null value "\xff\x00""#,
        "transactional control",
        "offset 3 timestamp 5 marker commit coordinator epoch 7",
        "offsets 40-40",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let rows = rows(&dump(&path, &["--records", "--json"]).1);
    assert_eq!(rows.len(), 9);
    assert_eq!(rows[6]["marker"], "commit");
    assert_eq!(rows[4]["value"], "\\xff\\x00");
}

/// What is done to the bytes of a file.
enum Harm {
    Flip(usize),
    Cut(usize),
    Grow(usize, u8),
}

/// Where the first bad place is, where the walk goes on, and how many bytes are left where it does not.
#[derive(Debug, PartialEq)]
struct Told {
    position: usize,
    resumed_at: Option<usize>,
    bytes_left: Option<usize>,
}

#[track_caller]
fn check_told(bytes: &[u8], harm: &Harm, expected: &Told) {
    let mut bytes = bytes.to_vec();
    match *harm {
        Harm::Flip(at) => bytes[at] ^= 0x40,
        Harm::Cut(len) => bytes.truncate(len),
        Harm::Grow(len, byte) => bytes.resize(len, byte),
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (code, text) = dump(&write_kafka_file(dir.path(), &bytes), &["--json"]);
    let rows = rows(&text);
    let bad: Vec<_> = rows.iter().filter(|row| row["kind"] == "bad").collect();
    assert_eq!((code, bad.len()), (1, 1), "{text}");
    let number = |key: &str| bad[0][key].as_u64().and_then(|n| usize::try_from(n).ok());
    let told = Told {
        position: number("position").expect("a position"),
        resumed_at: number("resumedAt"),
        bytes_left: number("bytesLeft"),
    };
    assert_eq!(told, *expected, "{text}");
    assert_eq!(bad[0]["zeros"], matches!(harm, Harm::Grow(_, 0)), "{text}");
}

#[test]
fn dump_log_tells_damage_by_position_and_goes_on_only_where_that_is_safe() {
    let parts = kafka_file();
    let ends: Vec<usize> = parts
        .iter()
        .scan(0, |end, part| {
            *end += part.len();
            Some(*end)
        })
        .collect();
    let (second, third, last, end) = (ends[0], ends[1], ends[2], ends[3]);
    let resumed = (second, Some(third), None);
    for (harm, (position, resumed_at, bytes_left)) in [
        (Harm::Flip(second + HEADER_LEN + 1), resumed),
        (Harm::Flip(second + 18), resumed),
        (Harm::Flip(second + 16), resumed),
        (Harm::Flip(second + 10), (second, None, Some(end - second))),
        (Harm::Flip(end - 1), (last, None, None)),
        (Harm::Cut(end - 3), (last, None, Some(end - 3 - last))),
        (Harm::Grow(end + 99, 0), (end, None, Some(99))),
        (Harm::Grow(end + 99, 7), (end, None, Some(99))),
    ] {
        let expected = Told {
            position,
            resumed_at,
            bytes_left,
        };
        check_told(&parts.concat(), &harm, &expected);
    }
}

#[test]
fn dump_log_exits_with_2_for_what_is_no_file() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(dump(dir.path(), &[]).0, 2);
    assert_eq!(dump(&dir.path().join("none"), &[]).0, 2);
    assert_eq!(ended(&seawall(&["dump-log"])).0, 2);
    assert_eq!(
        dump(&write_kafka_file(dir.path(), b""), &[]),
        (0, String::new())
    );
}
