//! The interleaved rounds: machine, broker A, broker B, machine, B, A, ...
//!
//! Owns:     the order of the measurements, and the proof that what was acknowledged is there.
//! Does not: print tables (`report.rs`).

use std::path::Path;
use std::time::Duration;

use crate::admin::{Admin, Topic};
use crate::batch::Shape;
use crate::broker::{self, Install, Program, Running};
use crate::consume::Consumer;
use crate::error::{Error, Result};
use crate::machine;
use crate::produce::{self, Load, Run};
use crate::scenario::{CONSUMED_TOPIC, FETCH_BYTES, Id, Machine, SIXTEEN_KIB, Scenario, TABLE};

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) time: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) rounds: usize,
    pub(crate) consumed_bytes: u64,
    pub(crate) bytes_max: u64,
    pub(crate) idempotent: bool,
}

/// One broker's turn at one scenario.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) run: Run,
    pub(crate) cpu_per_batch: Duration,
    /// What the load generator itself used per batch.
    pub(crate) load_cpu_per_batch: Duration,
}

/// All rounds of one scenario; `turns[broker][round]` belongs to `machine[round]`.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) scenario: Scenario,
    pub(crate) machine: Vec<Machine>,
    pub(crate) turns: Vec<Vec<Turn>>,
}

/// One broker in the comparison.
struct Contender {
    name: &'static str,
    install: Install,
    running: Running,
    /// Batches acknowledged per row of the table.
    acknowledged: [u64; TABLE.len()],
}

/// What the whole part yields.
pub(crate) struct Throughput {
    pub(crate) empty_starts: Vec<Duration>,
    /// Resident bytes after all loads.
    pub(crate) resident: Vec<u64>,
    pub(crate) measured: Vec<Measured>,
}

/// The brokers and what is done with them.
struct Stage<'a> {
    contenders: Vec<Contender>,
    work: &'a Path,
    plan: Plan,
}

/// Runs everything. `programs` are compared in that order.
pub(crate) fn run(programs: &[Program], work: &Path, plan: Plan) -> Result<Throughput> {
    let mut empty_starts = Vec::new();
    let mut contenders = Vec::new();
    for program in programs {
        let (contender, start) = set_up(program, work, plan)?;
        empty_starts.push(start);
        contenders.push(contender);
    }
    let mut stage = Stage {
        contenders,
        work,
        plan,
    };
    stage.warm_up()?;
    let measured = stage.rounds()?;
    let resident = stage.contenders.iter().map(|c| c.running.resident());
    let resident = resident.collect::<Result<_>>()?;
    stage.contenders.into_iter().try_for_each(finish)?;
    Ok(Throughput {
        empty_starts,
        resident,
        measured,
    })
}

fn set_up(program: &Program, work: &Path, plan: Plan) -> Result<(Contender, Duration)> {
    let name = program.name();
    eprintln!("{name}: start, create topics, write what will be consumed");
    let install = Install::fresh(program, work, "throughput")?;
    let mut running = install.start()?;
    let start = running.ready(|admin| Ok(admin.brokers()? > 0))?;
    let mut admin = Admin::connect(running.addr())?;
    for scenario in TABLE {
        admin.create(Topic {
            name: scenario.topic,
            partitions: scenario.partitions,
            flush: scenario.forced,
        })?;
        running.ready(|admin| Ok(admin.ends(scenario.topic, scenario.partitions).is_ok()))?;
    }
    fill_consumed(&running, plan)?;
    machine::settle(work)?;
    let contender = Contender {
        name,
        install,
        running,
        acknowledged: [0; TABLE.len()],
    };
    Ok((contender, start))
}

/// Writes the records for the consumer and reads them once with all checks.
fn fill_consumed(running: &Running, plan: Plan) -> Result<()> {
    let load = fill_load(CONSUMED_TOPIC, plan.consumed_bytes, SIXTEEN_KIB);
    let run = produce::run(running.addr(), &load)?;
    let end = Consumer::connect(running.addr(), CONSUMED_TOPIC, FETCH_BYTES)?.check_all()?;
    expect_end(run.batches, load.shape, end)
}

/// A load that writes a given number of bytes to one partition, as fast as it goes, acks=1.
pub(crate) fn fill_load(topic: &str, bytes: u64, shape: Shape) -> Load {
    Load {
        topic: topic.to_owned(),
        partitions: 1,
        connections: 4,
        in_flight: 4,
        shape,
        acks: 1,
        idempotent: false,
        time: Duration::from_secs(3600),
        batches_max: bytes / u64::try_from(shape.bytes).unwrap_or(1),
    }
}

/// Refuses a log that does not end where the acknowledgements do.
pub(crate) fn expect_end(batches: u64, shape: Shape, found: i64) -> Result<()> {
    let expected = i64::try_from(batches).unwrap_or(i64::MAX) * i64::from(shape.records);
    if expected == found {
        return Ok(());
    }
    Err(Error::Wrong {
        what: "end of the log after everything was acknowledged",
        expected,
        found,
    })
}

impl Stage<'_> {
    /// One uncounted turn of everything: just-in-time compilers, first segments, page cache.
    fn warm_up(&mut self) -> Result<()> {
        eprintln!("warm-up");
        let plan = Plan {
            time: self.plan.warm_up,
            ..self.plan
        };
        for (row, scenario) in TABLE.iter().enumerate() {
            for contender in &mut self.contenders {
                take_turn(contender, row, plan)?;
                settle_after(scenario, self.work)?;
            }
        }
        Ok(())
    }

    fn rounds(&mut self) -> Result<Vec<Measured>> {
        let empty = |scenario| Measured {
            scenario,
            machine: Vec::new(),
            turns: vec![Vec::new(); self.contenders.len()],
        };
        let mut measured: Vec<Measured> = TABLE.into_iter().map(empty).collect();
        for round in 0..self.plan.rounds {
            eprintln!("round {} of {}", round + 1, self.plan.rounds);
            for (row, out) in measured.iter_mut().enumerate() {
                self.play(row, round, out)?;
            }
        }
        Ok(measured)
    }

    /// Each broker's turn, in an order that alternates from round to round, between two turns of the machine.
    fn play(&mut self, row: usize, round: usize, out: &mut Measured) -> Result<()> {
        let scenario = out.scenario;
        let before = self.machine(&scenario)?;
        let mut order: Vec<usize> = (0..self.contenders.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let contender = &mut self.contenders[index];
            let turn = take_turn(contender, row, self.plan)?;
            let (title, name, rate) = (scenario.title, contender.name, turn.run.rate());
            eprintln!("  {title:<52} {name:<8} {rate:>9.0}/s");
            out.turns[index].push(turn);
            settle_after(&scenario, self.work)?;
        }
        out.machine.push(before.mean(self.machine(&scenario)?));
        Ok(())
    }

    fn machine(&self, scenario: &Scenario) -> Result<Machine> {
        let machine = measure_machine(scenario, self.work, self.plan)?;
        settle_after(scenario, self.work)?;
        Ok(machine)
    }
}

fn take_turn(contender: &mut Contender, row: usize, plan: Plan) -> Result<Turn> {
    let scenario = &TABLE[row];
    let addr = contender.running.addr();
    let before = (contender.running.cpu()?, broker::own_cpu()?);
    let run = if scenario.id == Id::Consume {
        Consumer::connect(addr, scenario.topic, FETCH_BYTES)?.run(plan.time)?
    } else {
        let load = scenario.load(plan.time, plan.bytes_max, plan.idempotent);
        let run = produce::run(addr, &load)?;
        contender.acknowledged[row] += run.batches;
        run
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

/// A broker still writing back what acks=1 left would slow down the next load.
pub(crate) fn settle_after(scenario: &Scenario, work: &Path) -> Result<()> {
    if scenario.forced || scenario.id == Id::Consume {
        return Ok(());
    }
    machine::settle(work)
}

fn measure_machine(scenario: &Scenario, work: &Path, plan: Plan) -> Result<Machine> {
    let time = plan.time / 4;
    let mut machine = Machine {
        round_trip: machine::round_trip(scenario.shape.bytes, time)?,
        ..Machine::default()
    };
    if scenario.forced {
        machine.sync = machine::sync(work, scenario.group_bytes(), time)?;
    } else if scenario.id == Id::Consume {
        machine.stream = machine::stream(FETCH_BYTES, time)?;
    } else {
        let bytes = u64::try_from(scenario.shape.bytes).unwrap_or(1);
        let writes_max = plan.bytes_max / bytes;
        machine.plain =
            machine::plain_write(work, scenario.shape.bytes, plan.time / 2, writes_max)?;
    }
    Ok(machine)
}

/// Proves that each log holds exactly what was acknowledged, then removes the broker.
fn finish(contender: Contender) -> Result<()> {
    let mut admin = Admin::connect(contender.running.addr())?;
    for (scenario, batches) in TABLE.iter().zip(contender.acknowledged) {
        if scenario.id != Id::Consume {
            let ends = admin.ends(scenario.topic, scenario.partitions)?;
            expect_end(batches, scenario.shape, ends.iter().sum())?;
        }
    }
    contender.running.stop()?;
    contender.install.remove()
}
