//! What upkeep costs: producing beside a compaction and a retention sweep, very many segments, very many partitions.
//!
//! Owns:     the order of the measurements and their lines of output.
//! Does not: judge. Only our own broker runs: each figure stands beside the same load without the upkeep.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::admin::{Admin, Topic};
use crate::broker::{Install, Program, Running};
use crate::error::Result;
use crate::produce::{self, Load, Run};
use crate::scenario::{ONE_KIB, SIXTEEN_KIB};
use crate::startup;
use crate::stats::Percentiles;
use crate::throughput::fill_load;
use crate::wait;

const LOADED: &str = "loaded";
const SEGMENTED: &str = "segmented";
/// A sweep every so often while its cost is measured.
const SWEEP_MS: u32 = 200;
/// An interval that never comes to its end here.
const NO_SWEEP_MS: u32 = 86_400_000;
/// How long a broker idles while the CPU time of its sweeps is counted.
const IDLE: Duration = Duration::from_secs(6);
const UPKEEP_MAX: Duration = Duration::from_secs(300);

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) time: Duration,
    pub(crate) rounds: usize,
    /// Size of what is compacted and of what is deleted, each.
    pub(crate) bytes: u64,
    pub(crate) segments: u64,
    pub(crate) partitions: i32,
}

/// Runs everything on fresh installations of `program`, which must be ours.
pub(crate) fn run(program: &Program, work: &Path, plan: Plan) -> Result<()> {
    beside(program, work, plan)?;
    segments(program, work, plan.segments)?;
    partitions(program, work, plan.partitions)
}

fn with_settings(program: &Program, more: &[String]) -> Program {
    let mut program = program.clone();
    if let Program::Seawall { set, .. } = &mut program {
        set.extend_from_slice(more);
    }
    program
}

fn sweeping_every(interval_ms: u32) -> Vec<String> {
    vec![
        format!("log.retention.check.interval.ms={interval_ms}"),
        "log.initial.task.delay.ms=0".to_owned(),
        "log.cleaner.backoff.ms=100".to_owned(),
        "log.segment.delete.delay.ms=0".to_owned(),
    ]
}

fn started(install: &Install) -> Result<Running> {
    let mut running = install.start()?;
    running.ready(|admin| Ok(admin.brokers()? > 0))?;
    Ok(running)
}

/// Producing with and without upkeep beside it, in turns.
fn beside(program: &Program, work: &Path, plan: Plan) -> Result<()> {
    let program = with_settings(program, &sweeping_every(SWEEP_MS));
    let install = Install::fresh(&program, work, "beside")?;
    let running = started(&install)?;
    let mut admin = Admin::connect(running.addr())?;
    admin.create(Topic {
        name: LOADED,
        partitions: 1,
        flush: true,
    })?;
    let mib = plan.bytes >> 20;
    println!(
        "producing beside a compaction of {mib} MiB and the deletion of {mib} MiB, both begun with the load"
    );
    println!(
        "{:<22} {:>7} {:>12} {:>12} {:>12} {:>12} {:>16} {:>16}",
        "load", "upkeep", "batches/s", "p50", "p99", "p99.9", "compacted in", "deleted in"
    );
    for (name, load) in loads(plan.time) {
        for round in 0..plan.rounds {
            let quiet = produce::run(running.addr(), &load)?;
            line(name, "no", quiet, None);
            let (busy, took) = busy(&running, &mut admin, &load, plan, round)?;
            line(name, "yes", busy, Some(took));
        }
    }
    running.stop()?;
    install.remove()
}

fn loads(time: Duration) -> [(&'static str, Load); 2] {
    let load = |connections, shape| Load {
        topic: LOADED.to_owned(),
        partitions: 1,
        connections,
        in_flight: 1,
        shape,
        acks: -1,
        idempotent: false,
        time,
        batches_max: u64::MAX,
    };
    [
        ("1 x 1 KiB, fsync", load(1, ONE_KIB)),
        ("50 x 16 KiB, fsync", load(50, SIXTEEN_KIB)),
    ]
}

/// How long compaction and deletion took.
type Took = (Duration, Duration);

fn busy(
    running: &Running,
    admin: &mut Admin,
    load: &Load,
    plan: Plan,
    round: usize,
) -> Result<(Run, Took)> {
    let suffix = format!("{}-{}-{round}", load.connections, load.shape.bytes);
    let (dirty, old) = (format!("dirty-{suffix}"), format!("old-{suffix}"));
    for topic in [&dirty, &old] {
        let configs = [("segment.bytes", "16777216"), ("retention.ms", "-1")];
        admin.create_with(topic, 1, &configs)?;
        let fill = Load {
            connections: 50,
            ..fill_load(topic, plan.bytes, SIXTEEN_KIB)
        };
        produce::run(running.addr(), &fill)?;
    }
    admin.configure(&dirty, "min.cleanable.dirty.ratio", "0.01")?;
    admin.configure(&dirty, "cleanup.policy", "compact")?;
    admin.configure(&old, "retention.bytes", "1")?;
    let begun = Instant::now();
    let done = produce::run(running.addr(), load)?;
    let smaller = |admin: &mut Admin, topic: &str| -> Result<Duration> {
        wait::until("upkeep to end", UPKEEP_MAX, || {
            let small = admin.size(topic)? < plan.bytes / 4;
            Ok(small.then(|| begun.elapsed()))
        })
    };
    let took = (smaller(admin, &dirty)?, smaller(admin, &old)?);
    Ok((done, took))
}

fn line(name: &str, upkeep: &str, run: Run, took: Option<Took>) {
    let rate = run.rate();
    let took = took.map_or((String::new(), String::new()), |(a, b)| {
        (format!("{a:.2?}"), format!("{b:.2?}"))
    });
    if let Some(p) = Percentiles::of(run.latencies) {
        println!(
            "{name:<22} {upkeep:>7} {rate:>12.0} {:>12.2?} {:>12.2?} {:>12.2?} {:>16} {:>16}",
            p.p50, p.p99, p.p999, took.0, took.1
        );
    }
}

/// One topic with very many segments.
fn segments(program: &Program, work: &Path, count: u64) -> Result<()> {
    let quiet = with_settings(program, &sweeping_every(NO_SWEEP_MS));
    let install = Install::fresh(&quiet, work, "segments")?;
    let running = started(&install)?;
    let mut admin = Admin::connect(running.addr())?;
    // Every batch finds its segment full.
    let configs = [("internal.segment.bytes", "1024"), ("retention.ms", "-1")];
    admin.create_with(SEGMENTED, 1, &configs)?;
    let one_at_a_time = Load {
        connections: 1,
        in_flight: 1,
        batches_max: count,
        ..fill_load(SEGMENTED, 0, ONE_KIB)
    };
    let written = produce::run(running.addr(), &one_at_a_time)?;
    println!(
        "\none topic with {count} segments, each of one 1 KiB batch: {:.0} rolls a second",
        written.rate()
    );
    let ends =
        |admin: &mut Admin| Ok(admin.ends(SEGMENTED, 1)? == [i64::try_from(count).unwrap_or(0)]);
    running.stop()?;
    let mut running = install.start()?;
    println!("start after a stop  {:>12.2?}", running.ready(ends)?);
    running.crash()?;
    running = install.start()?;
    println!("start after a kill  {:>12.2?}", running.ready(ends)?);
    wait::idle(IDLE);
    println!("resident            {:>9} MiB", running.resident()? >> 20);
    running.stop()?;
    sweeps(program, install, ends, Some(SEGMENTED))
}

/// A broker with very many partitions.
fn partitions(program: &Program, work: &Path, count: i32) -> Result<()> {
    let many = startup::many(program, work, count, 1)?;
    println!("\n{count} partitions, one 1 KiB batch in each");
    for (what, took) in [
        ("creation", Some(many.create)),
        ("stop", Some(many.clean_stop)),
        ("start after a stop", many.clean_starts.first().copied()),
        ("start after a kill", many.crash_starts.first().copied()),
    ] {
        println!("{what:<19} {:>12.2?}", took.unwrap_or_default());
    }
    println!(
        "resident            {:>9} MiB",
        many.resident_after_start >> 20
    );
    let quiet = with_settings(program, &sweeping_every(NO_SWEEP_MS));
    let install = Install::fresh(&quiet, work, "swept")?;
    let mut running = started(&install)?;
    startup::create(&mut running, count)?;
    startup::write_everywhere(&running, count, &mut 0)?;
    running.stop()?;
    let all = move |admin: &mut Admin| {
        let ends = admin.ends(startup::MANY_TOPIC, count)?;
        Ok(ends.iter().all(|end| *end == i64::from(ONE_KIB.records)))
    };
    sweeps(program, install, all, None)
}

/// The CPU time of a retention sweep, as what an idle broker uses with sweeps and without; and how long it takes to
/// delete everything of `deleted`.
fn sweeps(
    program: &Program,
    install: Install,
    serves: impl Fn(&mut Admin) -> Result<bool> + Copy,
    deleted: Option<&str>,
) -> Result<()> {
    let mut used = Vec::new();
    let mut installs = install;
    for interval in [NO_SWEEP_MS, SWEEP_MS] {
        installs = installs.run_by(&with_settings(program, &sweeping_every(interval)));
        let mut running = installs.start()?;
        running.ready(serves)?;
        wait::idle(IDLE);
        let before = running.cpu()?;
        wait::idle(IDLE);
        used.push(running.cpu()?.saturating_sub(before));
        if interval == SWEEP_MS
            && let Some(topic) = deleted
        {
            delete_all(&running, topic)?;
        }
        running.stop()?;
    }
    let count = u32::try_from(IDLE.as_millis()).unwrap_or(1) / SWEEP_MS;
    if let [without, with] = used[..] {
        println!(
            "CPU of a sweep      {:>12.2?}",
            with.saturating_sub(without) / count
        );
        println!(
            "CPU idle, no sweep  {:>11.2} %",
            100.0 * without.as_secs_f64() / IDLE.as_secs_f64()
        );
    }
    installs.remove()
}

fn delete_all(running: &Running, topic: &str) -> Result<()> {
    let mut admin = Admin::connect(running.addr())?;
    admin.configure(topic, "retention.bytes", "1")?;
    let begun = Instant::now();
    let took = wait::until("segments to go", UPKEEP_MAX, || {
        let small = admin.size(topic)? < 8 * 1024;
        Ok(small.then(|| begun.elapsed()))
    })?;
    println!("deleted by size in  {took:>12.2?}");
    Ok(())
}
