//! A disk without space, under load (d04).

use std::time::Duration;

use seawall_faultfs::{Errno, FaultFs};
use seawall_testkit::calls::{self, create_topic, end_offset};
use seawall_testkit::kafka_wire::{DeleteRecordsRequest, DeleteTopicsRequest};
use seawall_testkit::requests::{self, AT_ONCE, FetchFrom, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Raw};

use super::writer::Writer;
use crate::{codes, cut_power, mounted};

/// What is left when the load starts.
const ROOM: usize = 1 << 20;
const RECORD: usize = 20_000;
const EARLIEST: i64 = -2;

/// Appends with five in flight until the disk is full; gives how many records were acknowledged. They are the first
/// ones: nothing behind a refused record was taken.
fn fill(raw: &mut Raw, writer: &Writer) -> i32 {
    let most = i32::try_from(2 * ROOM / RECORD).expect("few");
    for first in (0..most).step_by(5) {
        let numbers = first..first + 5;
        let sent: Vec<i32> = numbers
            .clone()
            .map(|n| writer.send(raw, n, 30_000))
            .collect();
        let answers: Vec<(i16, i64)> = sent
            .into_iter()
            .map(|sent| Writer::answer(raw, sent))
            .collect();
        let taken = answers
            .iter()
            .take_while(|(code, _)| *code == codes::NONE)
            .count();
        for (number, answer) in numbers.zip(&answers[..taken]) {
            assert_eq!(*answer, (codes::NONE, i64::from(number)));
        }
        let Some(((refused, _), behind)) = answers[taken..].split_first() else {
            continue;
        };
        assert_eq!(
            *refused,
            codes::KAFKA_STORAGE_ERROR,
            "an append on a full disk"
        );
        let refusals = [codes::KAFKA_STORAGE_ERROR, codes::OUT_OF_ORDER_SEQUENCE];
        assert!(
            behind.iter().all(|(code, _)| refusals.contains(code)),
            "{behind:?}"
        );
        return first + i32::try_from(taken).expect("five at most");
    }
    panic!("the disk never became full");
}

/// The broker comes first, so that it goes before its mount.
struct Full {
    broker: Broker,
    fs: FaultFs,
    raw: Raw,
    topic: TopicRef,
    victim: TopicRef,
    writer: Writer,
    acknowledged: i32,
}

/// A full disk: one topic that filled it, one whose deletion frees some of it.
fn full(errno: Errno) -> Full {
    let (fs, broker) = mounted(|setup| setup.set("log.segment.delete.delay.ms", "0"));
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "load", 1, &[]);
    let victim = create_topic(&mut raw, "victim", 1, &[]);
    // More than a broker would hold back for itself.
    for _ in 0..8 {
        calls::append(&mut raw, &victim, 0, BatchBuilder::sized(900_000).build());
    }
    let writer = Writer::new(&mut raw, &topic, 0).padded(RECORD);
    fs.set_capacity(Some(fs.used() + ROOM), errno);
    let acknowledged = fill(&mut raw, &writer);
    Full {
        fs,
        broker,
        raw,
        topic,
        victim,
        writer,
        acknowledged,
    }
}

/// Everything acknowledged is read; nothing half-written is.
fn assert_readable(full: &mut Full, what: &str) {
    full.writer
        .assert_log_is(&mut full.raw, full.acknowledged, what);
    let data = calls::fetch(&mut full.raw, &full.victim, AT_ONCE, FetchFrom::new(0, 0));
    assert_eq!(
        data.error_code,
        codes::NONE,
        "{what}: fetch from another topic"
    );
}

/// The refused record is taken by itself once there is space, at the next offset, and others behind it. The broker may give
/// its reserve up and take it back meanwhile.
fn assert_resumes(full: &mut Full, what: &str) {
    let (raw, writer) = (&mut full.raw, &full.writer);
    let next = full.acknowledged;
    for number in next..next + 10 {
        wait::until(&format!("{what}: appends are taken again"), SOON, || {
            let (code, offset) = writer.produce(raw, number);
            let taken = (code, offset) == (codes::NONE, i64::from(number));
            assert!(taken || code == codes::KAFKA_STORAGE_ERROR, "{code}");
            taken
        });
    }
    full.acknowledged = next + 10;
    writer.assert_log_is(raw, full.acknowledged, what);
}

#[test]
fn a_full_disk_refuses_appends_is_read_and_resumes_when_space_is_back() {
    for errno in [Errno::NoSpace, Errno::Quota] {
        let what = format!("{errno:?}");
        let mut full = full(errno);
        assert_readable(&mut full, &what);
        full.raw.patience(Duration::from_secs(5));
        for _ in 0..10 {
            let (code, _) = full.writer.produce(&mut full.raw, full.acknowledged);
            assert_eq!(code, codes::KAFKA_STORAGE_ERROR, "{what}: still full");
        }
        assert_readable(&mut full, &what);
        full.fs.set_capacity(None, errno);
        assert_resumes(&mut full, &what);
        full.broker.kill9();
        cut_power(&full.fs);
        full.broker.start_again();
        full.raw = full.broker.connect();
        assert_readable(&mut full, &format!("{what}, then a power cut"));
    }
}

#[test]
fn deleting_a_topic_on_a_full_disk_makes_space() {
    let mut full = full(Errno::NoSpace);
    let delete = requests::delete_topics(6, &[full.victim.name.as_str()]);
    let answer = full.raw.call::<DeleteTopicsRequest>(6, &delete);
    assert_eq!(
        answer.responses[0].error_code,
        codes::NONE,
        "delete on a full disk"
    );
    assert_resumes(&mut full, "after a deletion");
    assert_eq!(
        end_offset(&mut full.raw, &full.topic, 0),
        i64::from(full.acknowledged)
    );
}

#[test]
fn deleting_records_on_a_full_disk_makes_space() {
    let mut full = full(Errno::NoSpace);
    let delete = requests::delete_records(&full.victim.name, &[(0, -1)]);
    let answer = full.raw.call::<DeleteRecordsRequest>(2, &delete);
    let row = &answer.topics[0].partitions[0];
    assert_eq!((row.error_code, row.low_watermark), (codes::NONE, 8));
    assert_resumes(&mut full, "after DeleteRecords");
    full.broker.kill9();
    full.broker.start_again();
    full.raw = full.broker.connect();
    let start = calls::list_offset_at(
        &mut full.raw,
        calls::LIST_OFFSETS,
        &full.victim.name,
        0,
        EARLIEST,
    );
    assert_eq!(start.offset, 8);
    full.writer
        .assert_log_is(&mut full.raw, full.acknowledged, "after a restart");
}

#[test]
fn a_start_on_a_full_disk_serves_reads() {
    let mut full = full(Errno::NoSpace);
    full.fs.set_capacity(Some(full.fs.used()), Errno::NoSpace);
    full.broker.kill9();
    full.broker.start_again();
    full.raw = full.broker.connect();
    assert_readable(&mut full, "after a start on a full disk");
    full.fs.set_capacity(None, Errno::NoSpace);
    assert_resumes(&mut full, "after a start on a full disk");
}
