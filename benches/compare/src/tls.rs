//! What TLS 1.3 costs both brokers, which were given the same certificate: loads, handshakes, idle connections.
//!
//! Owns:     the order of the measurements, their lines of output, and the targets.
//! Does not: send (`produce.rs`, `consume.rs`, `handshakes.rs`).

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;

use crate::admin::{Admin, Topic};
use crate::broker::{self, Install, Program, Running};
use crate::consume::Consumer;
use crate::error::Result;
use crate::handshakes;
use crate::identity::Identity;
use crate::link::{Door, Link};
use crate::machine;
use crate::produce::{self, Run};
use crate::scenario::{CONSUMED_TOPIC, FETCH_BYTES, Id, SIXTEEN_KIB, Scenario, TABLE};
use crate::stats::{Percentiles, Spread};
use crate::throughput::{self, Plan, Turn};
use crate::wait;

/// Kafka's rate times this is the target of each load.
const TARGET: f64 = 1.5;
/// The rows of the table that run below TLS.
const LOADS: [Id; 5] = [
    Id::FiftyForced,
    Id::FiftyForcedSpread,
    Id::FiftyWritten,
    Id::FiftyWrittenSpread,
    Id::Consume,
];
/// How long the broker is left alone before its memory is read.
const SETTLE: Duration = Duration::from_secs(3);

/// What of this is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Producing and consuming
    Loads,
    /// Full and resumed
    Handshakes,
    /// Memory of connections that stay open
    Idle,
}

/// What is done in one turn.
#[derive(Clone, Copy)]
enum Task {
    Load(Scenario),
    Handshakes { resume: bool },
}

impl Task {
    fn all(wanted: &dyn Fn(Part) -> bool) -> Vec<Self> {
        let loads = TABLE.into_iter().filter(|row| LOADS.contains(&row.id));
        let shakes = [false, true].map(|resume| Self::Handshakes { resume });
        let loads = loads.map(Self::Load).filter(|_| wanted(Part::Loads));
        let shakes = shakes.into_iter().filter(|_| wanted(Part::Handshakes));
        loads.chain(shakes).collect()
    }

    fn title(self) -> &'static str {
        match self {
            Self::Load(scenario) => scenario.title,
            Self::Handshakes { resume: false } => "full handshakes, 8 at a time",
            Self::Handshakes { resume: true } => "resumed handshakes, 8 at a time",
        }
    }
}

/// One broker in the comparison.
struct Contender {
    name: &'static str,
    install: Install,
    running: Running,
    door: Door,
    /// Batches acknowledged per task.
    acknowledged: Vec<u64>,
}

/// All turns: by task, by broker, by round.
type Turns = Vec<Vec<Vec<Turn>>>;

/// What is run, and for how long.
pub(crate) struct Setting<'a> {
    pub(crate) programs: &'a [Program],
    pub(crate) work: &'a Path,
    pub(crate) plan: Plan,
    /// Connections that idle.
    pub(crate) idle: usize,
    pub(crate) only: &'a [Part],
}

/// Runs everything that is wanted; whether every target was reached.
pub(crate) fn run(setting: &Setting<'_>) -> Result<bool> {
    let wanted = |part| setting.only.is_empty() || setting.only.contains(&part);
    let identity = Identity::create(setting.work)?;
    let tasks = Task::all(&wanted);
    let mut reached = true;
    if !tasks.is_empty() {
        let mut contenders = Vec::new();
        for program in setting.programs {
            contenders.push(set_up(program, setting, &identity, &tasks)?);
        }
        let turns = rounds(&mut contenders, setting, &tasks)?;
        let names: Vec<&'static str> = contenders.iter().map(|c| c.name).collect();
        for contender in contenders {
            finish(contender, &tasks)?;
        }
        reached = tables(&names, &tasks, &turns);
    }
    if wanted(Part::Idle) {
        idle_connections(setting, &identity)?;
    }
    Ok(reached)
}

/// Round 0 warms up and does not count; the order of the brokers alternates.
fn rounds(contenders: &mut [Contender], setting: &Setting<'_>, tasks: &[Task]) -> Result<Turns> {
    let plan = setting.plan;
    let warm_up = Plan {
        time: plan.warm_up,
        ..plan
    };
    let mut turns: Turns = vec![vec![Vec::new(); contenders.len()]; tasks.len()];
    for round in 0..=plan.rounds {
        for (row, task) in tasks.iter().enumerate() {
            let mut order: Vec<usize> = (0..contenders.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let counted = if round == 0 { warm_up } else { plan };
                let turn = take_turn(&mut contenders[index], row, *task, counted)?;
                let (name, rate) = (contenders[index].name, turn.run.rate());
                eprintln!("{round} {:<52} {name:<8} {rate:>9.0}/s", task.title());
                if round > 0 {
                    turns[row][index].push(turn);
                }
                settle_after(*task, setting.work)?;
            }
        }
    }
    Ok(turns)
}

fn set_up(
    program: &Program,
    setting: &Setting<'_>,
    identity: &Identity,
    tasks: &[Task],
) -> Result<Contender> {
    let name = program.name();
    eprintln!("{name}: start, create topics, write what will be consumed");
    let install = Install::with_tls(program, setting.work, "tls", identity)?;
    let mut running = install.start()?;
    running.ready(|admin| Ok(admin.brokers()? > 0))?;
    let mut admin = Admin::connect(running.addr())?;
    for task in tasks {
        let Task::Load(scenario) = task else { continue };
        admin.create(Topic {
            name: scenario.topic,
            partitions: scenario.partitions,
            flush: scenario.forced,
        })?;
        running.ready(|admin| Ok(admin.ends(scenario.topic, scenario.partitions).is_ok()))?;
    }
    let door = running.sealed()?;
    if setting.only.is_empty() || setting.only.contains(&Part::Loads) {
        fill(&door, setting.plan)?;
    }
    if let Some((_, suite)) = Link::connect(&door, true)?.session() {
        println!("{name}: {suite}");
    }
    machine::settle(setting.work)?;
    Ok(Contender {
        name,
        install,
        running,
        door,
        acknowledged: vec![0; tasks.len()],
    })
}

/// Writes the records for the consumer and reads them once with all checks.
fn fill(door: &Door, plan: Plan) -> Result<()> {
    let load = throughput::fill_load(CONSUMED_TOPIC, plan.consumed_bytes, SIXTEEN_KIB);
    let filled = produce::run(door.clone(), &load)?;
    let end = Consumer::connect(door.clone(), CONSUMED_TOPIC, FETCH_BYTES)?.check_all()?;
    throughput::expect_end(filled.batches, load.shape, end)
}

fn take_turn(contender: &mut Contender, row: usize, task: Task, plan: Plan) -> Result<Turn> {
    let before = (contender.running.cpu()?, broker::own_cpu()?);
    let run = match task {
        Task::Handshakes { resume } => shake_hands(contender, resume, plan.time)?,
        Task::Load(scenario) if scenario.id == Id::Consume => {
            Consumer::connect(contender.door.clone(), scenario.topic, FETCH_BYTES)?
                .run(plan.time)?
        }
        Task::Load(scenario) => {
            let load = scenario.load(plan.time, plan.bytes_max, plan.idempotent);
            let run = produce::run(contender.door.clone(), &load)?;
            contender.acknowledged[row] += run.batches;
            run
        }
    };
    let cpu = contender.running.cpu()? - before.0;
    let load_cpu = broker::own_cpu()? - before.1;
    let batches = (run.batches as f64).max(1.0);
    Ok(Turn {
        run,
        cpu_per_batch: cpu.div_f64(batches),
        load_cpu_per_batch: load_cpu.div_f64(batches),
    })
}

fn shake_hands(contender: &Contender, resume: bool, time: Duration) -> Result<Run> {
    let (run, resumed) = handshakes::run(&contender.door, resume, time)?;
    // The first of each client has no ticket yet.
    let first_ones = u64::try_from(handshakes::AT_A_TIME).unwrap_or_default();
    let expected = if resume { run.batches - first_ones } else { 0 };
    if resumed != expected {
        let name = contender.name;
        println!(
            "{name}: {resumed} of {} handshakes were resumed, {expected} were expected",
            run.batches
        );
    }
    Ok(run)
}

/// A broker still writing back what acks=1 left would slow down the next load.
fn settle_after(task: Task, work: &Path) -> Result<()> {
    match task {
        Task::Load(scenario) => throughput::settle_after(&scenario, work),
        Task::Handshakes { .. } => Ok(()),
    }
}

/// Proves that each log holds exactly what was acknowledged, then removes the broker.
fn finish(contender: Contender, tasks: &[Task]) -> Result<()> {
    let mut admin = Admin::connect(contender.running.addr())?;
    for (task, batches) in tasks.iter().zip(contender.acknowledged) {
        if let Task::Load(scenario) = task
            && scenario.id != Id::Consume
        {
            let ends = admin.ends(scenario.topic, scenario.partitions)?;
            throughput::expect_end(batches, scenario.shape, ends.iter().sum())?;
        }
    }
    contender.running.stop()?;
    contender.install.remove()
}

fn tables(names: &[&'static str], tasks: &[Task], turns: &[Vec<Vec<Turn>>]) -> bool {
    let mut reached = true;
    for (task, of_task) in tasks.iter().zip(turns) {
        println!("\n== TLS 1.3: {}", task.title());
        println!(
            "{:<10} {:>30} {:>9} {:>9} {:>9} {:>12} {:>10} {:>12}",
            "",
            "per s  min / median / max",
            "MB/s",
            "p50 ms",
            "p99 ms",
            "CPU us each",
            "(load us)",
            "load of 1 core"
        );
        for (name, of_broker) in names.iter().zip(of_task) {
            line(name, of_broker);
        }
        let [ours, theirs] = &of_task[..] else {
            continue;
        };
        let pairs = ours.iter().zip(theirs);
        let ratios = pairs.map(|(ours, theirs)| ours.run.rate() / theirs.run.rate());
        if let Some(ratio) = Spread::of(ratios) {
            let good = ratio.median >= TARGET;
            reached &= good || matches!(task, Task::Handshakes { .. });
            println!(
                "ratio      {:>9.2} {:>10.2} {:>10.2}   target {TARGET}: {}",
                ratio.min,
                ratio.median,
                ratio.max,
                if good { "reached" } else { "not reached" }
            );
        }
    }
    reached
}

fn line(name: &str, turns: &[Turn]) {
    let Some(rate) = Spread::of(turns.iter().map(|t| t.run.rate())) else {
        return;
    };
    let latencies = turns.iter().flat_map(|t| t.run.latencies.iter().copied());
    let Some(p) = Percentiles::of(latencies.collect()) else {
        return;
    };
    let median = |pick: fn(&Turn) -> f64| {
        Spread::of(turns.iter().map(pick)).map_or(f64::NAN, |spread| spread.median)
    };
    println!(
        "{name:<10} {:>9.0} {:>10.0} {:>10.0} {:>8.1} {:>9.3} {:>9.3} {:>12.1} {:>10.1} {:>12.0} %",
        rate.min,
        rate.median,
        rate.max,
        median(|t| t.run.bytes_rate() / 1e6),
        p.p50.as_secs_f64() * 1e3,
        p.p99.as_secs_f64() * 1e3,
        median(|t| t.cpu_per_batch.as_secs_f64() * 1e6),
        median(|t| t.load_cpu_per_batch.as_secs_f64() * 1e6),
        median(|t| t.load_cpu_per_batch.as_secs_f64() * t.run.rate() * 100.0),
    );
}

/// Fresh brokers: what a heap has already taken from the system would hide what connections take.
fn idle_connections(setting: &Setting<'_>, identity: &Identity) -> Result<()> {
    let count = setting.idle;
    println!("\n== {count} idle connections, each of which has had one answer");
    println!(
        "{:<10} {:>6} {:>22} {:>26} {:>10}",
        "", "TLS", "KiB each (VmRSS)", "KiB each (live heap)", "dropped"
    );
    for program in setting.programs {
        for sealed in [false, true] {
            let install = Install::with_tls(program, setting.work, "idle", identity)?;
            let mut running = install.start()?;
            running.ready(|admin| Ok(admin.brokers()? > 0))?;
            let door = if sealed {
                running.sealed()?
            } else {
                Door::from(running.addr())
            };
            idle_line(program, &running, &door, count)?;
            running.stop()?;
            install.remove()?;
        }
    }
    Ok(())
}

fn idle_line(program: &Program, running: &Running, door: &Door, count: usize) -> Result<()> {
    wait::idle(SETTLE);
    let before = (running.resident()?, running.live_heap());
    let mut sockets = handshakes::idle(door, count)?;
    wait::idle(SETTLE);
    let after = (running.resident()?, running.live_heap());
    let each =
        |before: u64, after: u64| after.saturating_sub(before) as f64 / 1024.0 / count as f64;
    let heap = before.1.zip(after.1).map(|(b, a)| each(b, a));
    println!(
        "{:<10} {:>6} {:>22.1} {:>26} {:>10}",
        program.name(),
        if door.tls.is_some() { "yes" } else { "no" },
        each(before.0, after.0),
        heap.map_or_else(|| "-".to_owned(), |kib| format!("{kib:.1}")),
        handshakes::closed(&mut sockets)
    );
    Ok(())
}
