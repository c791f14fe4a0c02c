//! An fsync or a write that returns an error.

use seawall_faultfs::{Call, Errno, Fault, FaultFs};
use seawall_testkit::calls::{self, create_topic, end_offset};
use seawall_testkit::metrics::{scrape, value};
use seawall_testkit::requests::{AT_ONCE, FetchFrom, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Raw};

use super::writer::Writer;
use crate::{codes, cut_power, mounted, place, setup_on};

/// A partition whose eleventh record met a failing fsync, beside one that is well.
struct Failed {
    raw: Raw,
    topic: TopicRef,
    sick: Writer,
    well: Writer,
}

fn fail_the_eleventh(fs: &FaultFs, broker: &Broker, call: Call, fault: Fault) -> Failed {
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "failed", 2, &[]);
    let sick = Writer::new(&mut raw, &topic, 0);
    let well = Writer::new(&mut raw, &topic, 1);
    append(&mut raw, &sick, 0..10);
    append(&mut raw, &well, 0..10);
    let order = fs.order_times(call, &place("failed", 0), fault, 1);
    let (code, _) = sick.produce(&mut raw, 10);
    assert_eq!(
        code,
        codes::KAFKA_STORAGE_ERROR,
        "a producer that waited for the fsync"
    );
    assert_eq!(order.hits(), 1);
    Failed {
        raw,
        topic,
        sick,
        well,
    }
}

fn append(raw: &mut Raw, writer: &Writer, numbers: std::ops::Range<i32>) {
    for number in numbers {
        assert_eq!(
            writer.produce(raw, number),
            (codes::NONE, i64::from(number))
        );
    }
}

/// Retries the refused record until it is taken, and then sees every record once, in order, at its offset.
fn assert_goes_on(failed: &mut Failed, what: &str) {
    let raw = &mut failed.raw;
    assert_eq!(failed.sick.produce(raw, 10), (codes::NONE, 10), "{what}");
    append(raw, &failed.sick, 11..20);
    failed.sick.assert_log_is(raw, 20, what);
}

#[test]
fn a_failed_fsync_refuses_its_producers_and_leaves_readers_and_neighbours_alone() {
    let (fs, broker) = mounted(|setup| setup);
    let mut failed = fail_the_eleventh(&fs, &broker, Call::Sync, Fault::Fail(Errno::Io));
    let raw = &mut failed.raw;
    let data = calls::fetch(raw, &failed.topic, AT_ONCE, FetchFrom::new(0, 0));
    assert_eq!(data.error_code, codes::NONE);
    assert!(
        calls::whole_batches(&data).len() >= 10,
        "what was acknowledged is read"
    );
    append(raw, &failed.well, 10..20);
    failed.well.assert_log_is(raw, 20, "a neighbour");
}

#[test]
fn a_restart_after_a_failed_fsync_has_everything_acknowledged() {
    let ways = [
        (Call::Sync, Fault::Fail(Errno::Io)),
        (Call::Sync, Fault::FailAndEvict(Errno::Io)),
        (Call::Write, Fault::Fail(Errno::Io)),
    ];
    for (call, fault) in ways {
        let (fs, mut broker) = mounted(|setup| setup);
        let mut failed = fail_the_eleventh(&fs, &broker, call, fault);
        broker.kill9();
        broker.start_again();
        failed.raw = broker.connect();
        assert_goes_on(&mut failed, &format!("{call:?} {fault:?}"));
    }
}

#[test]
fn what_a_restart_accepts_after_a_failed_fsync_is_durable() {
    let (fs, mut broker) = mounted(|setup| setup);
    let mut failed = fail_the_eleventh(&fs, &broker, Call::Sync, Fault::Fail(Errno::Io));
    broker.kill9();
    broker.start_again();
    failed.raw = broker.connect();
    // The retry of a record that recovery found in the page cache is acknowledged; then the cache goes.
    assert_goes_on(&mut failed, "before the power cut");
    broker.kill9();
    cut_power(&fs);
    broker.start_again();
    failed
        .sick
        .assert_log_is(&mut broker.connect(), 20, "after the power cut");
}

#[test]
fn a_power_cut_after_a_failed_fsync_loses_nothing_acknowledged() {
    for _ in 0..4 {
        let (fs, mut broker) = mounted(|setup| setup);
        let mut failed = fail_the_eleventh(&fs, &broker, Call::Sync, Fault::Fail(Errno::Io));
        broker.kill9();
        cut_power(&fs);
        broker.start_again();
        failed.raw = broker.connect();
        assert_goes_on(&mut failed, "after the power cut");
    }
}

#[test]
fn a_failed_partition_heals_by_itself() {
    for errno in [Errno::Io, Errno::Stale, Errno::NoSpace, Errno::Quota] {
        heals(Call::Sync, Fault::Fail(errno));
        heals(Call::Sync, Fault::FailAndEvict(errno));
    }
    heals(Call::Write, Fault::Fail(Errno::Io));
    heals(Call::Write, Fault::Fail(Errno::Stale));
}

fn heals(call: Call, fault: Fault) {
    let what = format!("{call:?} {fault:?}");
    let (fs, mut broker) = mounted(|setup| setup);
    let mut failed = fail_the_eleventh(&fs, &broker, call, fault);
    let raw = &mut failed.raw;
    wait::until(
        &format!("the partition takes appends again after {what}"),
        SOON,
        || failed.sick.produce(raw, 10) == (codes::NONE, 10),
    );
    assert_goes_on(&mut failed, &what);
    assert_eq!(end_offset(&mut failed.raw, &failed.topic, 0), 20, "{what}");
    broker.kill9();
    cut_power(&fs);
    broker.start_again();
    failed.sick.assert_log_is(
        &mut broker.connect(),
        20,
        &format!("{what}, then a power cut"),
    );
}

#[test]
fn a_first_segment_that_finds_no_space_is_tried_again() {
    for call in [Call::Create, Call::SyncDir] {
        for errno in [Errno::NoSpace, Errno::Quota] {
            let what = format!("{call:?} {errno:?}");
            let (fs, broker) = mounted(|setup| setup);
            let mut raw = broker.connect();
            let topic = create_topic(&mut raw, "failed", 1, &[]);
            let writer = Writer::new(&mut raw, &topic, 0);
            let order = fs.order_times(call, &place("failed", 0), Fault::Fail(errno), 1);
            assert_eq!(
                writer.produce(&mut raw, 0).0,
                codes::KAFKA_STORAGE_ERROR,
                "{what}"
            );
            assert_eq!(order.hits(), 1, "{what}");
            append(&mut raw, &writer, 0..10);
            writer.assert_log_is(&mut raw, 10, &what);
        }
    }
}

#[test]
fn a_partition_heals_when_its_disk_is_well_again_and_not_before() {
    let (fs, broker) = mounted(|setup| setup);
    let mut failed = fail_the_eleventh(&fs, &broker, Call::Sync, Fault::Fail(Errno::Io));
    let raw = &mut failed.raw;
    let sick = fs.order(Call::Sync, "", Fault::Fail(Errno::Io));
    sick.wait_for_hits(3, SOON);
    let (code, _) = failed.sick.produce(raw, 10);
    assert_eq!(code, codes::KAFKA_STORAGE_ERROR, "the disk is still sick");
    let data = calls::fetch(raw, &failed.topic, AT_ONCE, FetchFrom::new(0, 0));
    assert_eq!(data.error_code, codes::NONE);
    assert_eq!(
        calls::whole_batches(&data).len(),
        10,
        "what was acknowledged is read"
    );
    sick.lift();
    wait::until("the partition takes appends again", SOON, || {
        failed.sick.produce(raw, 10) == (codes::NONE, 10)
    });
    assert_goes_on(&mut failed, "after the disk was sick for a while");
}

#[test]
fn what_was_healed_is_durable_before_it_is_acknowledged() {
    for seed in 0..6 {
        let fs = FaultFs::mount(seed);
        let mut broker = setup_on(&fs).start();
        let mut failed = fail_the_eleventh(&fs, &broker, Call::Sync, Fault::Fail(Errno::Io));
        let raw = &mut failed.raw;
        wait::until("the refused record is acknowledged", SOON, || {
            failed.sick.produce(raw, 10) == (codes::NONE, 10)
        });
        broker.kill9();
        cut_power(&fs);
        broker.start_again();
        let raw = &mut broker.connect();
        failed
            .sick
            .assert_log_is(raw, 11, &format!("seed {seed}, after the power cut"));
    }
}

#[test]
fn an_fsync_that_fails_at_a_roll_is_counted() {
    let (fs, broker) = mounted(|setup| setup);
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "rolled", 1, &[("segment.bytes", "1048576")]);
    let large = || BatchBuilder::of(&["x".repeat(700_000).as_str()]).build();
    let told = |name: &str| value(&scrape(broker.admin()), name).expect(name);
    // Nothing asks for a flush, so that the first fsync of the log is the one of its roll.
    assert_eq!(
        calls::produce(&mut raw, &topic, 0, 1, large()).error_code,
        codes::NONE
    );
    let before = told("seawall_fsync_seconds_count");
    let order = fs.order_times(Call::Sync, &place("rolled", 0), Fault::Fail(Errno::Io), 1);
    let refused = calls::produce(&mut raw, &topic, 0, 1, large()).error_code;
    assert_eq!(refused, codes::KAFKA_STORAGE_ERROR);
    assert_eq!(order.hits(), 1);
    assert!((told("seawall_fsync_failures_total") - 1.0).abs() < 1e-9);
    assert!(told("seawall_fsync_seconds_count") > before);
}
