//! Committed offsets while their disk hangs, fails, runs full or loses its power.

use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use seawall_faultfs::{Call, Errno, Fault, FaultFs};
use seawall_testkit::calls::create_topic;
use seawall_testkit::groups::{Commit, OffsetsOf};
use seawall_testkit::kafka_wire::OffsetCommitRequest;
use seawall_testkit::raw::decode_response;
use seawall_testkit::requests::TopicRef;
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{Broker, Raw};

use crate::{DATA, codes, cut_power, mounted, setup_on};

/// Where the files of groups lie, for orders.
const FILES: &str = "data/__cluster/__consumer_offsets/";
/// Error codes of a coordinator that cannot help at the moment.
const LOADING: i16 = 14;
const NOT_AVAILABLE: i16 = 15;

fn start() -> (FaultFs, Broker, Raw, TopicRef) {
    let (fs, broker) = mounted(|setup| setup.set("offsets.commit.timeout.ms", "700"));
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "read", 1, &[]);
    (fs, broker, raw, topic)
}

fn commit(raw: &mut Raw, group: &str, topic: &TopicRef, offset: i64) -> i16 {
    try_commit(raw, group, topic, offset).expect("an answer")
}

/// `None` if the broker went away.
fn try_commit(raw: &mut Raw, group: &str, topic: &TopicRef, offset: i64) -> Option<i16> {
    let request = Commit::new(group, &topic.name, 0, offset).request(8);
    let correlation = raw.send::<OffsetCommitRequest>(8, &request);
    let frame = raw.read_frame_unless_killed()?;
    let answer = decode_response::<OffsetCommitRequest>(8, correlation, frame);
    Some(answer.topics[0].partitions[0].error_code)
}

/// What a consumer would go on from; -1: from nowhere.
fn committed(raw: &mut Raw, group: &str, topic: &TopicRef) -> i64 {
    let (error, rows) = OffsetsOf::of(group, topic, &[0]).run(raw, 7);
    assert_eq!(error, codes::NONE);
    rows[0].offset
}

#[test]
fn a_commit_that_meets_a_hung_disk_is_told_in_time_and_reads_go_on() {
    let (fs, broker, mut raw, topic) = start();
    assert_eq!(commit(&mut raw, "g", &topic, 5), codes::NONE);
    let hang = fs.order(Call::Sync, FILES, Fault::Hang);
    let mut other = broker.connect();
    thread::scope(|threads| {
        let waits = threads.spawn(|| commit(&mut raw, "g", &topic, 6));
        hang.wait_for_hits(1, SOON);
        assert_eq!(
            committed(&mut other, "g", &topic),
            5,
            "nobody is shown what may be lost"
        );
        assert_eq!(waits.join().expect("a commit"), NOT_AVAILABLE);
    });
    hang.lift();
    wait::until("the late write counts", SOON, || {
        committed(&mut other, "g", &topic) == 6
    });
    assert_eq!(commit(&mut other, "g", &topic, 7), codes::NONE);
}

#[test]
fn a_commit_that_fails_is_refused_and_the_old_offset_stays() {
    let ways = [
        (Call::Sync, Errno::Io),
        (Call::SyncDir, Errno::Io),
        (Call::Write, Errno::NoSpace),
        (Call::Sync, Errno::Quota),
        (Call::Create, Errno::NoSpace),
        (Call::Rename, Errno::Stale),
    ];
    for (call, errno) in ways {
        let (fs, mut broker, mut raw, topic) = start();
        assert_eq!(commit(&mut raw, "g", &topic, 5), codes::NONE);
        let sick = fs.order(call, FILES, Fault::Fail(errno));
        let what = format!("{call:?} {errno:?}");
        assert_eq!(commit(&mut raw, "g", &topic, 6), NOT_AVAILABLE, "{what}");
        assert_eq!(committed(&mut raw, "g", &topic), 5, "{what}");
        sick.lift();
        assert_eq!(commit(&mut raw, "g", &topic, 7), codes::NONE, "{what}");
        broker.kill9();
        cut_power(&fs);
        broker.start_again();
        wait_loaded(&broker);
        assert_eq!(committed(&mut broker.connect(), "g", &topic), 7, "{what}");
    }
}

fn wait_loaded(broker: &Broker) {
    let mut raw = broker.connect();
    wait::until("the groups are read", SOON, || {
        OffsetsOf::all("g").run(&mut raw, 7).0 != LOADING
    });
}

#[test]
fn no_committed_offset_is_lost_to_a_power_cut() {
    const GROUPS: usize = 8;
    for round in 0..3 {
        let fs = FaultFs::mount(round);
        let mut broker = setup_on(&fs).start();
        let topic = create_topic(&mut broker.connect(), "read", 1, &[]);
        let told: Vec<AtomicI64> = (0..GROUPS).map(|_| AtomicI64::new(-1)).collect();
        thread::scope(|threads| {
            for (group, told) in told.iter().enumerate() {
                let (mut raw, topic) = (broker.connect(), &topic);
                threads.spawn(move || {
                    for offset in 0.. {
                        // The broker is killed in the middle of it.
                        match try_commit(&mut raw, &format!("g{group}"), topic, offset) {
                            Some(codes::NONE) => told.store(offset, Ordering::SeqCst),
                            _ => return,
                        }
                    }
                });
            }
            wait::until("every group has committed", SOON, || {
                told.iter().all(|told| told.load(Ordering::SeqCst) > 20)
            });
            broker.kill9();
        });
        cut_power(&fs);
        broker.start_again();
        wait_loaded(&broker);
        let mut raw = broker.connect();
        for (group, told) in told.iter().enumerate() {
            let (told, kept) = (
                told.load(Ordering::SeqCst),
                committed(&mut raw, &format!("g{group}"), &topic),
            );
            assert!(kept == told || kept == told + 1, "told {told}, kept {kept}");
        }
    }
}

#[test]
fn g01_while_groups_are_read_everybody_is_told_to_come_again() {
    let (fs, mut broker, mut raw, topic) = start();
    assert_eq!(commit(&mut raw, "g", &topic, 5), codes::NONE);
    broker.shut_down();
    let hang = fs.order(Call::Read, FILES, Fault::Hang);
    fs.evict(DATA);
    broker.start_again();
    let mut raw = broker.connect();
    hang.wait_for_hits(1, SOON);
    for version in 1..=10 {
        let (error, rows) = OffsetsOf::of("g", &topic, &[0]).run(&mut raw, version);
        let row = rows.first().map(|row| (row.error, row.offset));
        if version == 1 {
            assert_eq!(row, Some((LOADING, -1)), "in every row");
        } else {
            assert_eq!(error, LOADING, "v{version}");
        }
    }
    assert_eq!(commit(&mut raw, "g", &topic, 6), LOADING);
    hang.lift();
    wait_loaded(&broker);
    assert_eq!(committed(&mut raw, "g", &topic), 5);
}

#[test]
fn a_damaged_file_takes_its_own_group_offline_and_stays_as_it_is() {
    let (fs, mut broker, mut raw, topic) = start();
    assert_eq!(commit(&mut raw, "sick", &topic, 5), codes::NONE);
    assert_eq!(commit(&mut raw, "well", &topic, 6), codes::NONE);
    broker.shut_down();
    let file = fs.path(FILES).join("sick.json");
    let damaged = std::fs::read_to_string(&file)
        .expect("read it")
        .replace("\"offset\":5", "\"offset\":4");
    std::fs::write(&file, &damaged).expect("damage it");
    assert_verify_names_it(&fs);
    broker.start_again();
    wait_loaded(&broker);
    let mut raw = broker.connect();
    assert_eq!(committed(&mut raw, "well", &topic), 6);
    let (error, _) = OffsetsOf::of("sick", &topic, &[0]).run(&mut raw, 7);
    assert_eq!(error, NOT_AVAILABLE);
    assert_eq!(commit(&mut raw, "sick", &topic, 7), NOT_AVAILABLE);
    assert_eq!(std::fs::read_to_string(&file).expect("read it"), damaged);
}

fn assert_verify_names_it(fs: &FaultFs) {
    let verify = Command::new(env!("CARGO_BIN_EXE_seawall"))
        .args(["verify", "--data-dir"])
        .arg(fs.path(DATA))
        .output()
        .expect("run verify");
    let told = String::from_utf8_lossy(&verify.stdout);
    assert_eq!(verify.status.code(), Some(1), "{told}");
    assert!(
        told.contains("sick.json") && !told.contains("well.json"),
        "{told}"
    );
}
