//! An fsync, a write or a read that does not return.

use std::time::Duration;

use seawall_faultfs::{Call, Fault, Standing};
use seawall_testkit::calls::{self, create_topic, end_offset};
use seawall_testkit::kafka_wire::{DeleteTopicsRequest, FetchRequest, MetadataRequest};
use seawall_testkit::metrics::{scrape, value};
use seawall_testkit::requests::{self, AT_ONCE, FetchFrom, FetchLimits, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{Broker, Raw};

use super::writer::Writer;
use crate::{codes, mounted, place};

/// Well above the stall timeout of these tests, well below what a client would notice.
const NOTICED: Duration = Duration::from_secs(5);

fn stalling(setup: seawall_testkit::Setup) -> seawall_testkit::Setup {
    setup.set("log.flush.stall.timeout.ms", "500")
}

/// A writer for each of the partitions, with ten records in each.
fn ten_in_each(raw: &mut Raw, topic: &TopicRef, partitions: i32) -> Vec<Writer> {
    let writers: Vec<Writer> = (0..partitions)
        .map(|partition| Writer::new(raw, topic, partition))
        .collect();
    for writer in &writers {
        append(raw, writer, 0..10);
    }
    writers
}

fn append(raw: &mut Raw, writer: &Writer, numbers: std::ops::Range<i32>) {
    for number in numbers {
        assert_eq!(
            writer.produce(raw, number),
            (codes::NONE, i64::from(number))
        );
    }
}

/// A partition is served to its readers, and metadata names it.
fn assert_readable(raw: &mut Raw, topic: &TopicRef, partition: i32, records: i64) {
    let data = calls::fetch(raw, topic, AT_ONCE, FetchFrom::new(partition, 0));
    assert_eq!(
        data.error_code,
        codes::NONE,
        "fetch of partition {partition}"
    );
    assert_eq!(data.high_watermark, records, "partition {partition}");
    let last = calls::whole_batches(&data)
        .last()
        .map(|batch| batch.last_offset());
    assert_eq!(last, Some(records - 1), "partition {partition}");
    let metadata = requests::metadata(12, &[topic.name.as_str()]);
    let answer = raw.call::<MetadataRequest>(12, &metadata);
    assert_eq!(answer.topics[0].error_code, codes::NONE);
    assert!(answer.topics[0].partitions.iter().all(|p| p.leader_id >= 0));
}

/// Sends the record that meets the hanging fsync, and sees its producer refused.
fn run_into(broker: &Broker, hang: &Standing, writer: &Writer) {
    let mut raw = broker.connect();
    let waiting = writer.send(&mut raw, 10, 30_000);
    hang.wait_for_hits(1, SOON);
    let (code, _) = Writer::answer(&mut raw, waiting);
    assert_eq!(
        code,
        codes::KAFKA_STORAGE_ERROR,
        "a producer that waits for the fsync"
    );
}

#[test]
fn a_hung_fsync_refuses_its_own_producers_and_nobody_else_notices() {
    refuses_its_own(Call::Sync);
}

#[test]
fn a_hung_write_refuses_its_own_producers_and_nobody_else_notices() {
    refuses_its_own(Call::Write);
}

fn refuses_its_own(call: Call) {
    let (fs, broker) = mounted(stalling);
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "hung", 4, &[]);
    let writers = ten_in_each(&mut raw, &topic, 4);
    let hang = fs.order(call, &place("hung", 0), Fault::Hang);
    run_into(&broker, &hang, &writers[0]);
    raw.patience(NOTICED);
    assert_eq!(
        writers[0].produce(&mut raw, 10).0,
        codes::KAFKA_STORAGE_ERROR,
        "a producer that comes later is refused at once"
    );
    for partition in 1..4 {
        let writer = &writers[usize::try_from(partition).expect("few")];
        append(&mut raw, writer, 10..30);
        assert_readable(&mut raw, &topic, partition, 30);
    }
    assert_readable(&mut raw, &topic, 0, 10);
    create_topic(&mut raw, "made-meanwhile", 1, &[]);
    hang.lift();
    assert_resumes(&broker, &topic, &writers[0]);
}

/// The partition is online again by itself; the refused record is there once, whoever retries it.
fn assert_resumes(broker: &Broker, topic: &TopicRef, writer: &Writer) {
    let mut raw = broker.connect();
    wait::until("the partition takes appends again", SOON, || {
        writer.produce(&mut raw, 10) == (codes::NONE, 10)
    });
    append(&mut raw, writer, 11..20);
    writer.assert_log_is(&mut raw, 20, "after the stall");
    assert_eq!(end_offset(&mut raw, topic, 0), 20);
}

#[test]
fn a_producer_with_less_patience_than_the_watchdog_is_timed_out_and_its_retry_is_no_copy() {
    let (fs, broker) = mounted(|setup| setup);
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "hung", 1, &[]);
    let writers = ten_in_each(&mut raw, &topic, 1);
    let hang = fs.order(Call::Sync, &place("hung", 0), Fault::Hang);
    let waiting = writers[0].send(&mut raw, 10, 300);
    let (code, _) = Writer::answer(&mut raw, waiting);
    assert_eq!(code, codes::REQUEST_TIMED_OUT);
    assert_eq!(
        end_offset(&mut raw, &topic, 0),
        10,
        "not shown before it is durable"
    );
    let retry = writers[0].send(&mut raw, 10, 300);
    let (code, _) = Writer::answer(&mut raw, retry);
    assert_eq!(
        code,
        codes::REQUEST_TIMED_OUT,
        "a duplicate of what is not durable"
    );
    let retry = writers[0].send(&mut raw, 10, 30_000);
    hang.wait_for_hits(1, SOON);
    hang.lift();
    assert_eq!(Writer::answer(&mut raw, retry), (codes::NONE, 10));
    append(&mut raw, &writers[0], 11..20);
    writers[0].assert_log_is(&mut raw, 20, "after the hang");
}

#[test]
fn many_hung_fsyncs_leave_the_other_partitions_their_threads() {
    leave_the_others_alone(Call::Sync);
}

#[test]
fn many_hung_writes_leave_the_other_partitions_their_threads() {
    leave_the_others_alone(Call::Write);
}

/// Six partitions of eight hang, each with a record in the hanging call and one behind it.
fn leave_the_others_alone(call: Call) {
    let (fs, broker) = mounted(stalling);
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "hung", 8, &[]);
    let writers = ten_in_each(&mut raw, &topic, 8);
    let (sick, well) = writers.split_at(6);
    let hangs: Vec<Standing> = (0..6)
        .map(|partition| fs.order(call, &place("hung", partition), Fault::Hang))
        .collect();
    let mut producers: Vec<Raw> = sick.iter().map(|_| broker.connect()).collect();
    let mut send = |number| -> Vec<i32> {
        let each = producers.iter_mut().zip(sick);
        each.map(|(raw, writer)| writer.send(raw, number, 30_000))
            .collect()
    };
    let first = send(10);
    if call == Call::Sync {
        // All are written; what comes now meets an fsync of its file.
        hangs.iter().for_each(|hang| hang.wait_for_hits(1, SOON));
    }
    let second = send(11);
    for answers in [first, second] {
        for (raw, correlation) in producers.iter_mut().zip(answers) {
            let (code, _) = Writer::answer(raw, correlation);
            assert_eq!(code, codes::KAFKA_STORAGE_ERROR);
        }
    }
    raw.patience(NOTICED);
    for writer in well {
        append(&mut raw, writer, 10..30);
    }
    drop(hangs);
    for writer in sick {
        wait::until("each partition takes appends again", SOON, || {
            writer.produce(&mut raw, 10).0 == codes::NONE
        });
        append(&mut raw, writer, 10..20);
        writer.assert_log_is(&mut raw, 20, "after the stall");
    }
}

#[test]
fn a_topic_is_deleted_while_its_fsync_hangs() {
    let (fs, broker) = mounted(stalling);
    let mut raw = broker.connect();
    let doomed = create_topic(&mut raw, "doomed", 1, &[]);
    let other = create_topic(&mut raw, "other", 1, &[]);
    let writer = ten_in_each(&mut raw, &doomed, 1).remove(0);
    let neighbour = ten_in_each(&mut raw, &other, 1).remove(0);
    let hang = fs.order(Call::Sync, &place("doomed", 0), Fault::Hang);
    run_into(&broker, &hang, &writer);
    let delete = requests::delete_topics(6, &["doomed"]);
    let correlation = raw.send(6, &delete);
    append(&mut broker.connect(), &neighbour, 10..30);
    hang.lift();
    let answer = raw.receive::<DeleteTopicsRequest>(6, correlation);
    assert_eq!(answer.responses[0].error_code, codes::NONE);
    wait::until("the directory is gone", SOON, || {
        let names = std::fs::read_dir(broker.data()).expect("list the data directory");
        names
            .map(|entry| entry.expect("an entry").file_name())
            .all(|name| {
                let name = name.to_string_lossy();
                name != "doomed" && !name.starts_with(".trash")
            })
    });
    append(&mut raw, &neighbour, 30..40);
}

#[test]
fn a_read_that_hangs_is_an_error_and_the_other_partitions_are_read() {
    let (fs, broker) = mounted(stalling);
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "hung", 2, &[]);
    let writers = ten_in_each(&mut raw, &topic, 2);
    let hang = fs.order(Call::Read, &place("hung", 0), Fault::Hang);
    let limits = FetchLimits {
        max_wait_ms: 500,
        ..AT_ONCE
    };
    let both = [FetchFrom::new(0, 0), FetchFrom::new(1, 0)];
    let answer = raw.call::<FetchRequest>(
        calls::FETCH,
        &requests::fetch(calls::FETCH, &topic, limits, &both),
    );
    let codes_of: Vec<i16> = answer.responses[0]
        .partitions
        .iter()
        .map(|p| p.error_code)
        .collect();
    assert_eq!(codes_of, [codes::KAFKA_STORAGE_ERROR, codes::NONE]);
    assert_eq!(
        calls::whole_batches(&answer.responses[0].partitions[1]).len(),
        10
    );
    append(&mut raw, &writers[0], 10..20);
    hang.lift();
    writers[0].assert_log_is(&mut raw, 20, "after the hang");
}

#[test]
fn many_hung_reads_leave_the_others_their_threads() {
    let (fs, broker) = mounted(stalling);
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "hung", 2, &[]);
    let writers = ten_in_each(&mut raw, &topic, 2);
    let hang = fs.order(Call::Read, &place("hung", 0), Fault::Hang);
    let limits = FetchLimits {
        max_wait_ms: 500,
        ..AT_ONCE
    };
    let request = requests::fetch(calls::FETCH, &topic, limits, &[FetchFrom::new(0, 0)]);
    let mut readers: Vec<Raw> = (0..8).map(|_| broker.connect()).collect();
    let sent: Vec<i32> = readers
        .iter_mut()
        .map(|reader| reader.send(calls::FETCH, &request))
        .collect();
    for (reader, correlation) in readers.iter_mut().zip(sent) {
        let answer = reader.receive::<FetchRequest>(calls::FETCH, correlation);
        let code = answer.responses[0].partitions[0].error_code;
        assert_eq!(code, codes::KAFKA_STORAGE_ERROR, "a read that hangs");
    }
    raw.patience(NOTICED);
    assert_readable(&mut raw, &topic, 1, 10);
    hang.lift();
    writers[0].assert_log_is(&mut raw, 10, "after the hang");
}

#[test]
fn a_batch_that_timed_out_is_not_counted_again_when_its_partition_stalls() {
    let (fs, broker) = mounted(stalling);
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "hung", 1, &[]);
    let writer = Writer::new(&mut raw, &topic, 0);
    append(&mut raw, &writer, 0..1);
    let told = |name: &str| value(&scrape(broker.admin()), name).expect("a sample");
    let hang = fs.order(Call::Sync, &place("hung", 0), Fault::Hang);
    let waiting = writer.send(&mut raw, 1, 100);
    let (code, _) = Writer::answer(&mut raw, waiting);
    assert_eq!(code, codes::REQUEST_TIMED_OUT);
    wait::until("it stalls", SOON, || {
        told("seawall_partitions{state=\"stalled\"}") > 0.5
    });
    hang.lift();
    wait::until("it is back", SOON, || {
        told("seawall_partitions_online") > 0.5
    });
    let refused = |reason: &str| told(&format!("seawall_refusals_total{{reason=\"{reason}\"}}"));
    assert!((refused("timed_out") - 1.0).abs() < 1e-9);
    assert!((told("seawall_refusals_total") - 1.0).abs() < 1e-9);
}
