//! Tables for people: what was measured, and which targets are reached.
//!
//! Owns:     the targets, as the project set them.
//! Does not: measure.

use std::time::Duration;

use crate::scenario::{self, Id, Machine, TABLE};
use crate::startup::{Big, Many};
use crate::stats::{Percentiles, Spread};
use crate::throughput::{Measured, Throughput, Turn};

const OURS: &str = "seawall";
const THEIRS: &str = "kafka";

/// Prints the machine's figures and, per scenario, one line per broker.
pub(crate) fn figures(names: &[&'static str], all: &Throughput) {
    println!("\n== Start without topics, resident memory after all loads");
    for (index, name) in names.iter().enumerate() {
        let start = all.empty_starts[index].as_secs_f64();
        println!(
            "{name:<10} {start:>8.2} s {:>8.1} MB",
            mb(all.resident[index])
        );
    }
    for measured in &all.measured {
        println!("\n== {}", measured.scenario.title);
        machine_line(measured);
        println!(
            "{:<10} {:>30} {:>9} {:>9} {:>9} {:>9} {:>12} {:>10} {:>9}",
            "",
            "batches/s  min / median / max",
            "MB/s",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "CPU us/batch",
            "(load us)",
            "of limit"
        );
        for (name, turns) in names.iter().zip(&measured.turns) {
            broker_line(name, measured, turns);
        }
    }
}

fn machine_line(measured: &Measured) {
    let pick = |f: fn(&Machine) -> f64| Spread::of(measured.machine.iter().map(f));
    let micros = |label: &str, spread: Option<Spread>| {
        if let Some(s) = spread.filter(|s| s.max > 0.0) {
            print!(
                "   {label} {:.0} / {:.0} / {:.0} us",
                s.min, s.median, s.max
            );
        }
    };
    print!("machine:");
    micros("R", pick(|m| m.round_trip.as_secs_f64() * 1e6));
    micros("D", pick(|m| m.sync.as_secs_f64() * 1e6));
    if let Some(s) = pick(|m| m.stream).filter(|s| s.max > 0.0) {
        print!(
            "   W {:.2} / {:.2} / {:.2} GB/s",
            s.min / 1e9,
            s.median / 1e9,
            s.max / 1e9
        );
    }
    if let Some(s) = pick(|m| m.plain).filter(|s| s.max > 0.0) {
        print!("   pwrite {:.0} / {:.0} / {:.0} /s", s.min, s.median, s.max);
    }
    println!("   limit: {}", scenario::formula(measured.scenario.id));
}

fn broker_line(name: &str, measured: &Measured, turns: &[Turn]) {
    let Some(rate) = Spread::of(turns.iter().map(|t| t.run.rate())) else {
        return;
    };
    let latencies = turns.iter().flat_map(|t| t.run.latencies.iter().copied());
    let Some(p) = Percentiles::of(latencies.collect()) else {
        return;
    };
    let median = |values: Vec<f64>| Spread::of(values).map_or(f64::NAN, |s| s.median);
    let millis = |d: Duration| d.as_secs_f64() * 1e3;
    let cpu = turns.iter().map(|t| t.cpu_per_batch.as_secs_f64() * 1e6);
    let load = turns
        .iter()
        .map(|t| t.load_cpu_per_batch.as_secs_f64() * 1e6);
    println!(
        "{name:<10} {:>9.0} {:>10.0} {:>10.0} {:>8.1} {:>9.3} {:>9.3} {:>9.3} {:>12.1} {:>10.1} {:>7.0} %",
        rate.min,
        rate.median,
        rate.max,
        median(turns.iter().map(|t| t.run.bytes_rate() / 1e6).collect()),
        millis(p.p50),
        millis(p.p99),
        millis(p.p999),
        median(cpu.collect()),
        median(load.collect()),
        median(fractions(measured, turns)) * 100.0
    );
}

/// Per round, the share of the machine's limit that was measured in that same round.
fn fractions(measured: &Measured, turns: &[Turn]) -> Vec<f64> {
    let pairs = turns.iter().zip(&measured.machine);
    pairs
        .map(|(turn, machine)| {
            turn.run.rate() / scenario::limit(&measured.scenario, machine, turn.cpu_per_batch)
        })
        .collect()
}

/// Prints the start times and memory of each broker.
pub(crate) fn startups(names: &[&'static str], many: &[Many], big: &[Big]) {
    for (name, m) in names.iter().zip(many) {
        println!(
            "\n== {name}: {} partitions, one 1 KiB batch in each",
            m.partitions
        );
        println!("create              {:>8.2} s", m.create.as_secs_f64());
        println!(
            "resident            {:>8.1} MB after writing, {:.1} MB after a clean start",
            mb(m.resident_after_writes),
            mb(m.resident_after_start)
        );
        println!("clean stop          {:>8.2} s", m.clean_stop.as_secs_f64());
        println!("start after a stop  {}", seconds(&m.clean_starts));
        println!("start after kill -9 {}", seconds(&m.crash_starts));
    }
    for (name, b) in names.iter().zip(big) {
        println!(
            "\n== {name}: start after kill -9 with {:.1} GiB in one partition: {:.2} s, {:.1} MiB read",
            b.bytes as f64 / f64::from(1 << 30),
            b.start.as_secs_f64(),
            mib(b.bytes_read)
        );
    }
}

fn seconds(times: &[Duration]) -> String {
    let each: Vec<String> = times
        .iter()
        .map(|t| format!("{:.3}", t.as_secs_f64()))
        .collect();
    format!("{:>8} s", each.join(" / "))
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Everything that was measured, by broker.
pub(crate) struct Results<'a> {
    pub(crate) names: &'a [&'static str],
    pub(crate) throughput: Option<&'a Throughput>,
    pub(crate) many: &'a [Many],
    pub(crate) big: &'a [Big],
}

/// One line of the table of targets.
struct Line {
    what: String,
    target: f64,
    found: Option<Spread>,
    unit: &'static str,
    at_least: bool,
}

impl Line {
    fn at_least(
        what: impl Into<String>,
        target: f64,
        unit: &'static str,
        found: Option<Spread>,
    ) -> Self {
        Self {
            what: what.into(),
            target,
            found,
            unit,
            at_least: true,
        }
    }

    fn at_most(
        what: impl Into<String>,
        target: f64,
        unit: &'static str,
        found: Option<Spread>,
    ) -> Self {
        Self {
            what: what.into(),
            target,
            found,
            unit,
            at_least: false,
        }
    }

    fn reached(&self) -> Option<bool> {
        let found = self.found?.median;
        Some(if self.at_least {
            found >= self.target
        } else {
            found <= self.target
        })
    }

    fn print(&self) {
        let sign = if self.at_least { ">=" } else { "<=" };
        let (target, unit) = (self.target, self.unit);
        let target = format!("{sign} {target:.2}{unit}");
        let found = match self.found {
            Some(s) => format!("{:.2}{unit}  [{:.2} .. {:.2}]", s.median, s.min, s.max),
            None => "-".to_owned(),
        };
        let verdict = match self.reached() {
            Some(true) => "reached",
            Some(false) => "NOT reached",
            None => "not measured",
        };
        println!("{:<83} {target:>11}   {found:<34} {verdict}", self.what);
    }
}

/// Prints each target with what was found; returns whether every target that could be judged is reached.
pub(crate) fn targets(results: &Results<'_>) -> bool {
    let mut lines = Vec::new();
    if let Some(all) = results.throughput {
        lines.extend(limit_lines(results, all));
        lines.extend(ratio_lines(results, all));
    }
    lines.extend(startup_lines(results));
    println!(
        "\n== Targets of seawall (median of the rounds [min .. max]; fractions and ratios are taken per round)"
    );
    lines.iter().for_each(Line::print);
    lines.iter().all(|line| line.reached() != Some(false))
}

fn limit_lines(results: &Results<'_>, all: &Throughput) -> Vec<Line> {
    let percent = |id: Id, factor: f64| {
        let measured = row(all, id);
        let turns = turns(results, measured, OURS)?;
        Spread::of(fractions(measured, turns).into_iter().map(|f| f * factor))
    };
    let of_one = paired(
        rates(results, row(all, Id::FiveForced), OURS),
        rates(results, row(all, Id::OneForced), OURS),
    );
    vec![
        Line::at_least(
            "1 producer, 1 in flight, of 1/(R + D(1 KiB))",
            60.0,
            " %",
            percent(Id::OneForced, 100.0),
        ),
        Line::at_least(
            "1 producer, 5 in flight, of 1/(R + D(1 KiB)): 3 x 60 %",
            180.0,
            " %",
            percent(Id::FiveForced, 100.0),
        ),
        Line::at_least("   the same, of our own 1 in flight", 3.0, " x", of_one),
        Line::at_least(
            "50 x 16 KiB, 1 partition, of N/(D(N x 16 KiB) + N c/C)",
            60.0,
            " %",
            percent(Id::FiftyForced, 100.0),
        ),
        Line::at_least(
            "50 x 16 KiB, 50 partitions, of the same",
            40.0,
            " %",
            percent(Id::FiftyForcedSpread, 100.0),
        ),
        Line::at_least(
            "consume 1 MiB fetches, of s/(R + s/W)",
            50.0,
            " %",
            percent(Id::Consume, 100.0),
        ),
    ]
}

fn ratio_lines(results: &Results<'_>, all: &Throughput) -> Vec<Line> {
    let ratio = |id: Id| {
        let measured = row(all, id);
        paired(
            rates(results, measured, OURS),
            rates(results, measured, THEIRS),
        )
    };
    let mut lines = vec![
        Line::at_least(
            "Kafka ratio: 1 producer, 1 in flight, fsync",
            2.0,
            " x",
            ratio(Id::OneForced),
        ),
        Line::at_least(
            "Kafka ratio: 1 producer, 5 in flight, fsync",
            6.0,
            " x",
            ratio(Id::FiveForced),
        ),
        Line::at_least(
            "Kafka ratio: 50 x 16 KiB, 1 partition, fsync",
            8.0,
            " x",
            ratio(Id::FiftyForced),
        ),
        Line::at_least(
            "Kafka ratio: 50 x 16 KiB, 50 partitions, fsync",
            4.0,
            " x",
            ratio(Id::FiftyForcedSpread),
        ),
    ];
    lines.push(written_line(results, all, Id::OneWritten, 1.3));
    lines.push(written_line(results, all, Id::FiftyWritten, 2.5));
    lines.push(written_line(results, all, Id::FiftyWrittenSpread, 2.5));
    lines.push(Line::at_least(
        "Kafka ratio: consume",
        1.2,
        " x",
        ratio(Id::Consume),
    ));
    let headline = |forced: Id, written: Id| {
        paired(
            rates(results, row(all, forced), OURS),
            rates(results, row(all, written), THEIRS),
        )
    };
    lines.push(Line::at_least(
        "headline: our fsynced acks=all / Kafka's acks=1, 50, 1 partition",
        1.0,
        " x",
        headline(Id::FiftyForced, Id::FiftyWritten),
    ));
    lines.push(Line::at_least(
        "headline: our fsynced acks=all / Kafka's acks=1, 50 partitions",
        1.0,
        " x",
        headline(Id::FiftyForcedSpread, Id::FiftyWrittenSpread),
    ));
    lines
}

/// acks=1: a ratio to Kafka, or 60 % of plain pwrite where that is less.
fn written_line(results: &Results<'_>, all: &Throughput, id: Id, target: f64) -> Line {
    let measured = row(all, id);
    let title = measured.scenario.title;
    let ours = rates(results, measured, OURS);
    let theirs = rates(results, measured, THEIRS);
    let plain: Vec<f64> = measured.machine.iter().map(|m| m.plain).collect();
    let middle = |values: &[f64]| Spread::of(values.iter().copied()).map(|s| s.median);
    let pwrite_is_less = match (middle(&theirs), middle(&plain)) {
        (Some(theirs), Some(plain)) => plain * 0.6 < theirs * target,
        _ => true,
    };
    if pwrite_is_less {
        let percent = paired(ours, plain).map(|s| Spread {
            min: s.min * 100.0,
            median: s.median * 100.0,
            max: s.max * 100.0,
        });
        Line::at_least(
            format!("{title}: of plain pwrite (less than {target} x Kafka)"),
            60.0,
            " %",
            percent,
        )
    } else {
        Line::at_least(
            format!("Kafka ratio: {title}"),
            target,
            " x",
            paired(ours, theirs),
        )
    }
}

fn startup_lines(results: &Results<'_>) -> Vec<Line> {
    let ours = results.names.iter().position(|n| *n == OURS);
    let theirs = results.names.iter().position(|n| *n == THEIRS);
    let many = ours.and_then(|i| results.many.get(i));
    let kafka = theirs.and_then(|i| results.many.get(i));
    let big = ours.and_then(|i| results.big.get(i));
    let secs = |times: &Vec<Duration>| Spread::of(times.iter().map(Duration::as_secs_f64));
    let memory = |m: &Many| {
        Spread::of([mb(m.resident_after_writes), mb(m.resident_after_start)])
            .map(|s| Spread { median: s.max, ..s })
    };
    let mut lines = Vec::new();
    if !results.many.is_empty() {
        lines.push(Line::at_most(
            "resident, 1,000 partitions, idle (the larger of two)",
            40.0,
            " MB",
            many.and_then(memory),
        ));
        lines.push(Line::at_most(
            "start after a clean stop, 1,000 partitions",
            0.5,
            " s",
            many.and_then(|m| secs(&m.clean_starts)),
        ));
        let crash = many.zip(kafka).and_then(|(m, k)| {
            let ours: Vec<f64> = m.crash_starts.iter().map(Duration::as_secs_f64).collect();
            paired(
                ours,
                k.crash_starts.iter().map(Duration::as_secs_f64).collect(),
            )
        });
        lines.push(Line::at_most(
            "start after kill -9, 1,000 partitions, of Kafka's time",
            1.0,
            " x",
            crash,
        ));
    }
    if !results.big.is_empty() {
        lines.push(Line::at_most(
            "read to recover one large partition",
            64.0,
            " MiB",
            big.and_then(|b| Spread::of([mib(b.bytes_read)])),
        ));
    }
    lines
}

fn row(all: &Throughput, id: Id) -> &Measured {
    let index = TABLE.iter().position(|s| s.id == id).unwrap_or_default();
    &all.measured[index]
}

fn turns<'a>(results: &Results<'_>, measured: &'a Measured, name: &str) -> Option<&'a [Turn]> {
    let index = results.names.iter().position(|n| *n == name)?;
    measured.turns.get(index).map(Vec::as_slice)
}

fn rates(results: &Results<'_>, measured: &Measured, name: &str) -> Vec<f64> {
    turns(results, measured, name)
        .unwrap_or_default()
        .iter()
        .map(|t| t.run.rate())
        .collect()
}

/// Ratios round by round: both sides of one ratio ran within seconds of each other.
fn paired(above: Vec<f64>, below: Vec<f64>) -> Option<Spread> {
    Spread::of(above.into_iter().zip(below).map(|(a, b)| a / b))
}
