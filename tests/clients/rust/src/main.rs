//! librdkafka through the `rdkafka` crate: the verbs that every client program of these tests has.
//!
//! `write` prints how many records have been acknowledged (`acked N`) as it goes, for tests that kill the broker meanwhile.

use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, str};

use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

type Outcome = Result<(), Box<dyn Error>>;

const PATIENCE: Duration = Duration::from_secs(60);
/// A broker that is killed and started again keeps a producer waiting for longer than that.
const DELIVERY_MS: &str = "300000";

/// Counts what the broker acknowledged and what it refused.
#[derive(Default)]
struct Deliveries {
    acked: AtomicU64,
    failed: AtomicU64,
    progress: bool,
}

#[derive(Clone)]
struct Counting(Arc<Deliveries>);

impl ClientContext for Counting {}

impl ProducerContext for Counting {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        match result {
            Ok(_) => {
                let acked = self.0.acked.fetch_add(1, Ordering::SeqCst) + 1;
                if self.0.progress && acked.is_multiple_of(10_000) {
                    println!("acked {acked}");
                }
            }
            Err((error, _)) => {
                eprintln!("delivery: {error}");
                self.0.failed.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

struct Write1<'a> {
    topic: &'a str,
    codec: &'a str,
    acks: &'a str,
    file: &'a str,
    progress: bool,
}

fn write(bootstrap: &str, job: &Write1<'_>) -> Outcome {
    let counts = Arc::new(Deliveries {
        progress: job.progress,
        ..Deliveries::default()
    });
    let idempotent = job.acks == "idem";
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("compression.codec", job.codec)
        .set("acks", if idempotent { "all" } else { job.acks })
        .set(
            "enable.idempotence",
            if idempotent { "true" } else { "false" },
        )
        .set("message.timeout.ms", DELIVERY_MS)
        .set("reconnect.backoff.max.ms", "500")
        .set("queue.buffering.max.messages", "100000")
        .set("linger.ms", "5");
    let producer: ThreadedProducer<Counting> =
        config.create_with_context(Counting(counts.clone()))?;
    let mut sent = 0;
    for line in lines(&fs::read(job.file)?) {
        send(&producer, job.topic, line)?;
        sent += 1;
    }
    producer.flush(Duration::from_secs(300))?;
    let (acked, failed) = (
        counts.acked.load(Ordering::SeqCst),
        counts.failed.load(Ordering::SeqCst),
    );
    if acked != sent || failed != 0 {
        return Err(format!("{sent} sent, {acked} acknowledged, {failed} failed").into());
    }
    Ok(())
}

/// The lines of a file without their newlines, whatever bytes they hold.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    whole.split(|byte| *byte == b'\n')
}

/// Queues a record; when the queue is full, waits for room by serving delivery reports.
fn send(producer: &ThreadedProducer<Counting>, topic: &str, line: &[u8]) -> Outcome {
    let deadline = Instant::now() + PATIENCE * 5;
    let mut record = BaseRecord::<(), [u8]>::to(topic).partition(0).payload(line);
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back))
                if Instant::now() < deadline =>
            {
                record = back;
                producer.flush(Duration::from_millis(50)).ok();
            }
            Err((error, _)) => return Err(error.into()),
        }
    }
}

fn read(bootstrap: &str, job: &[&str]) -> Outcome {
    let [topic, partition, offset, count, out] = job else {
        return Err("read: five arguments".into());
    };
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "unused-since-partitions-are-assigned")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .create()?;
    let mut wanted = TopicPartitionList::new();
    wanted.add_partition_offset(topic, partition.parse()?, Offset::Offset(offset.parse()?))?;
    consumer.assign(&wanted)?;
    let mut out = BufWriter::new(File::create(out)?);
    let mut left: u64 = count.parse()?;
    let mut deadline = Instant::now() + PATIENCE;
    while left > 0 {
        match consumer.poll(Duration::from_millis(200)) {
            Some(message) => {
                out.write_all(message?.payload().unwrap_or_default())?;
                out.write_all(b"\n")?;
                left -= 1;
                deadline = Instant::now() + PATIENCE;
            }
            None if Instant::now() > deadline => {
                return Err(format!("{left} records still missing").into());
            }
            None => {}
        }
    }
    out.flush()?;
    Ok(())
}

fn run(bootstrap: &str, verb: &str, job: &[&str], progress: bool) -> Outcome {
    match (verb, job) {
        ("write", [topic, codec, acks, file]) => write(
            bootstrap,
            &Write1 {
                topic,
                codec,
                acks,
                file,
                progress,
            },
        ),
        ("read", job) => read(bootstrap, job),
        _ => Err(format!("{verb} with {} arguments", job.len()).into()),
    }
}

fn jobs(bootstrap: &str, file: &str) -> Outcome {
    for (number, line) in fs::read_to_string(file)?.lines().enumerate() {
        let words: Vec<&str> = line.split('\t').collect();
        match run(bootstrap, words[0], &words[1..], false) {
            Ok(()) => println!("ok\t{number}"),
            Err(error) => println!("fail\t{number}\t{error}"),
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let verb = args.first().map_or("", String::as_str);
    let given: HashMap<&str, &str> = args[1..]
        .chunks_exact(2)
        .map(|pair| (pair[0].trim_start_matches('-'), pair[1].as_str()))
        .collect();
    let option = |name: &str| given.get(name).copied().unwrap_or_default();
    let outcome = match verb {
        "jobs" => jobs(option("bootstrap"), option("file")),
        "write" => run(
            option("bootstrap"),
            verb,
            &["topic", "codec", "acks", "file"].map(option),
            true,
        ),
        _ => run(
            option("bootstrap"),
            verb,
            &["topic", "partition", "offset", "count", "out"].map(option),
            true,
        ),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
