//! Two log dirs, of which one is sick.

use std::path::Path;
use std::time::Duration;

use seawall_faultfs::{Call, Errno, Fault, FaultFs, Standing};
use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::kafka_wire::{DeleteTopicsRequest, MetadataRequest};
use seawall_testkit::requests::{self, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Raw};

use super::writer::Writer;
use crate::{codes, setup};

const NOTICED: Duration = Duration::from_secs(5);

struct Two {
    broker: Broker,
    fs: FaultFs,
    sick: Writer,
    well: Writer,
    _plain: FaultFs,
}

/// A broker with a dir that will be sick and a plain one that holds the cluster's state, and a partition on each: both
/// have as much room, so that partitions are spread.
fn two_dirs() -> Two {
    let fs = FaultFs::mount(1);
    let plain = FaultFs::mount(2);
    let (a, b) = (fs.path("a"), plain.path("b"));
    let dirs = format!("{},{}", b.display(), a.display());
    let broker = setup()
        .set("log.dirs", &dirs)
        .set("log.flush.stall.timeout.ms", "500")
        .start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "spread", 4, &[]);
    for partition in 0..4 {
        calls::append(
            &mut raw,
            &topic,
            partition,
            BatchBuilder::of(&["first"]).build(),
        );
    }
    let on_a = partition_on(&a, &topic).expect("a partition on the dir that will be sick");
    let on_b = partition_on(&b, &topic).expect("a partition on the plain dir");
    let sick = Writer::new(&mut raw, &topic, on_a);
    let well = Writer::new(&mut raw, &topic, on_b);
    Two {
        broker,
        fs,
        sick,
        well,
        _plain: plain,
    }
}

fn partition_on(dir: &Path, topic: &TopicRef) -> Option<i32> {
    (0..4).find(|partition| dir.join(&topic.name).join(partition.to_string()).exists())
}

/// Produce, fetch and metadata of the well dir while the other one hangs.
fn assert_well(raw: &mut Raw, two: &Two, numbers: std::ops::Range<i32>) {
    for number in numbers {
        let offset = i64::from(number) + 1;
        assert_eq!(two.well.produce(raw, number), (codes::NONE, offset));
    }
    let answer = raw.call::<MetadataRequest>(12, &requests::metadata(12, &["spread"]));
    assert_eq!(answer.topics[0].partitions.len(), 4);
}

fn hang_everything(fs: &FaultFs) -> Vec<Standing> {
    [
        Call::Write,
        Call::Sync,
        Call::SyncDir,
        Call::Create,
        Call::Rename,
    ]
    .map(|call| fs.order(call, "", Fault::Hang))
    .into()
}

#[test]
fn topics_on_a_well_log_dir_do_not_notice_that_another_one_hangs() {
    let two = two_dirs();
    let mut raw = two.broker.connect();
    raw.patience(NOTICED);
    let hangs = hang_everything(&two.fs);
    let mut waiting = two.broker.connect();
    let refused = two.sick.send(&mut waiting, 0, 30_000);
    hangs[0].wait_for_hits(1, SOON);
    assert_well(&mut raw, &two, 0..30);
    assert_eq!(
        Writer::answer(&mut waiting, refused).0,
        codes::KAFKA_STORAGE_ERROR
    );
    assert_well(&mut raw, &two, 30..60);
    drop(hangs);
    wait::until("the other dir serves again", SOON, || {
        two.sick.produce(&mut waiting, 0) == (codes::NONE, 1)
    });
}

#[test]
fn a_topic_is_created_on_a_well_log_dir_while_another_one_hangs() {
    let two = two_dirs();
    let mut raw = two.broker.connect();
    let hangs = hang_everything(&two.fs);
    let mut waiting = two.broker.connect();
    let refused = two.sick.send(&mut waiting, 0, 30_000);
    assert_eq!(
        Writer::answer(&mut waiting, refused).0,
        codes::KAFKA_STORAGE_ERROR
    );
    raw.patience(NOTICED);
    for name in ["new-1", "new-2", "new-3"] {
        let topic = create_topic(&mut raw, name, 1, &[]);
        calls::append(&mut raw, &topic, 0, BatchBuilder::of(&["first"]).build());
    }
    drop(hangs);
}

/// Makes a topic of four partitions with a record each, and says whether the dir that was sick got one.
fn spread_again(two: &Two, raw: &mut Raw, name: &str) -> bool {
    let topic = create_topic(raw, name, 4, &[]);
    for partition in 0..4 {
        let batch = BatchBuilder::of(&["first"]).build();
        calls::append(raw, &topic, partition, batch);
    }
    partition_on(&two.fs.path("a"), &topic).is_some()
}

#[test]
fn a_log_dir_gets_topics_again_when_its_failed_partition_is_deleted() {
    let two = two_dirs();
    let mut raw = two.broker.connect();
    let fails = two
        .fs
        .order(Call::Sync, "a/spread/", Fault::Fail(Errno::Io));
    let (code, _) = two.sick.produce(&mut raw, 0);
    assert_eq!(code, codes::KAFKA_STORAGE_ERROR);
    assert!(
        !spread_again(&two, &mut raw, "meanwhile"),
        "a topic was put where a partition has failed"
    );
    let request = requests::delete_topics(6, &["spread"]);
    let answer = raw.call::<DeleteTopicsRequest>(6, &request);
    assert_eq!(answer.responses[0].error_code, codes::NONE);
    assert!(
        spread_again(&two, &mut raw, "after"),
        "nothing there is sick any more"
    );
    drop(fails);
}
