//! Memory and start times: 1,000 partitions, and one partition of 10 GiB.
//!
//! Owns:     the order of writes, stops and kills. Brokers run alone here.
//! Does not: print tables.
//!
//! A broker counts as started when one connection gets the right end offset of every partition.

use std::path::Path;
use std::time::Duration;

use crate::admin::{Admin, Topic};
use crate::batch::{self, Shape};
use crate::broker::{Install, Program, Running};
use crate::error::Result;
use crate::machine;
use crate::produce;
use crate::scenario::ONE_KIB;
use crate::throughput::fill_load;
use crate::wait;

/// The topic of the many partitions.
pub(crate) const MANY_TOPIC: &str = "many";
const BIG_TOPIC: &str = "big";
const PARTITIONS_PER_REQUEST: i32 = 50;
/// How long a broker is left alone before its memory is read.
const IDLE: Duration = Duration::from_secs(3);

/// What the 1,000-partition part yields for one broker.
#[derive(Clone, Debug)]
pub(crate) struct Many {
    pub(crate) partitions: i32,
    pub(crate) create: Duration,
    pub(crate) resident_after_writes: u64,
    pub(crate) resident_after_start: u64,
    pub(crate) clean_stop: Duration,
    pub(crate) clean_starts: Vec<Duration>,
    pub(crate) crash_starts: Vec<Duration>,
}

/// Writes one 1 KiB batch into each partition, then reads memory, stops, starts, kills and starts again.
pub(crate) fn many(
    program: &Program,
    work: &Path,
    partitions: i32,
    repeats: usize,
) -> Result<Many> {
    eprintln!("{}: {partitions} partitions", program.name());
    let install = Install::fresh(program, work, "many")?;
    let mut running = install.start()?;
    running.ready(|admin| Ok(admin.brokers()? > 0))?;
    let create = create(&mut running, partitions)?;
    let mut written = 0;
    write_everywhere(&running, partitions, &mut written)?;
    let resident_after_writes = idle_memory(&running)?;

    let mut many = Many {
        partitions,
        create,
        resident_after_writes,
        resident_after_start: 0,
        clean_stop: Duration::ZERO,
        clean_starts: Vec::new(),
        crash_starts: Vec::new(),
    };
    for _ in 0..repeats {
        many.clean_stop = running.stop()?;
        running = install.start()?;
        let start = all_answer(&mut running, partitions, written)?;
        many.clean_starts.push(start);
        many.resident_after_start = idle_memory(&running)?;
    }
    for _ in 0..repeats {
        write_everywhere(&running, partitions, &mut written)?;
        running.crash()?;
        running = install.start()?;
        many.crash_starts
            .push(all_answer(&mut running, partitions, written)?);
    }
    running.crash()?;
    install.remove()?;
    Ok(many)
}

/// Creates it; the time until every partition answers.
pub(crate) fn create(running: &mut Running, partitions: i32) -> Result<Duration> {
    let started = std::time::Instant::now();
    Admin::connect(running.addr())?.create(Topic {
        name: MANY_TOPIC,
        partitions,
        flush: false,
    })?;
    all_answer(running, partitions, 0)?;
    Ok(started.elapsed())
}

/// Writes a 1 KiB batch into each of its partitions.
pub(crate) fn write_everywhere(
    running: &Running,
    partitions: i32,
    written: &mut i64,
) -> Result<()> {
    let batch = batch::build(ONE_KIB, 1)?;
    let mut admin = Admin::connect(running.addr())?;
    let mut from = 0;
    while from < partitions {
        let to = partitions.min(from + PARTITIONS_PER_REQUEST);
        admin.produce_to_all(MANY_TOPIC, from..to, &batch)?;
        from = to;
    }
    *written += i64::from(ONE_KIB.records);
    Ok(())
}

fn all_answer(running: &mut Running, partitions: i32, end: i64) -> Result<Duration> {
    running.ready(|admin| {
        let ends = admin.ends(MANY_TOPIC, partitions)?;
        Ok(ends.iter().all(|found| *found == end))
    })
}

fn idle_memory(running: &Running) -> Result<u64> {
    wait::idle(IDLE);
    running.resident()
}

/// What the 10 GiB part yields for one broker.
#[derive(Clone, Debug)]
pub(crate) struct Big {
    pub(crate) bytes: u64,
    pub(crate) start: Duration,
    /// Bytes that the process had read through system calls when it served.
    pub(crate) bytes_read: u64,
}

/// Fills one partition, kills the broker in the middle of its work, starts it.
pub(crate) fn big(program: &Program, work: &Path, bytes: u64) -> Result<Big> {
    eprintln!("{}: one partition of {} MiB", program.name(), bytes >> 20);
    let install = Install::fresh(program, work, "big")?;
    let mut running = install.start()?;
    running.ready(|admin| Ok(admin.brokers()? > 0))?;
    Admin::connect(running.addr())?.create(Topic {
        name: BIG_TOPIC,
        partitions: 1,
        flush: false,
    })?;
    running.ready(|admin| Ok(admin.ends(BIG_TOPIC, 1).is_ok()))?;
    let shape = Shape {
        bytes: 256 * 1024,
        records: 256,
    };
    let run = produce::run(running.addr(), &fill_load(BIG_TOPIC, bytes, shape))?;
    let end = i64::try_from(run.batches).unwrap_or(i64::MAX) * i64::from(shape.records);
    running.crash()?;
    machine::settle(work)?;
    running = install.start()?;
    let start = running.ready(|admin| Ok(admin.ends(BIG_TOPIC, 1)? == [end]))?;
    let bytes_read = running.bytes_read()?;
    running.crash()?;
    install.remove()?;
    Ok(Big {
        bytes: run.bytes,
        start,
        bytes_read,
    })
}
