//! Compares brokers that speak the Kafka protocol with each other and with the machine they run on.
//!
//! Owns:     the command line. `benches/compare/run` calls it; README.md says what the figures mean.

mod admin;
mod batch;
mod broker;
mod consume;
mod error;
mod experiment;
mod frame;
mod group_load;
mod groups;
mod handshakes;
mod identity;
mod link;
mod machine;
mod produce;
mod report;
mod scenario;
mod startup;
mod stats;
mod throughput;
mod tls;
mod transactions;
mod upkeep;
mod wait;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::admin::{Admin, Topic};
use crate::batch::Shape;
use crate::broker::Program;
use crate::consume::Consumer;
use crate::error::{Error, Result};
use crate::experiment::{Setting, VARIANTS};
use crate::produce::{Load, Run};
use crate::stats::Percentiles;
use crate::throughput::Plan;
use crate::transactions::Kind;

#[derive(Parser)]
#[command(
    name = "seawall-compare",
    about = "Load generator and comparison of Kafka-wire-compatible brokers"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the brokers, run every load in interleaved rounds, print figures and targets
    Compare(CompareArgs),
    /// One producing load against a running broker
    Produce(ProduceArgs),
    /// One consuming load against a running broker
    Consume(ConsumeArgs),
    /// Transactions against a running broker, beside the same records without transactions
    Transactions(TransactionArgs),
    /// Only the machine's own figures
    Machine(MachineArgs),
    /// Loads, handshakes and idle connections below TLS 1.3
    Tls(TlsArgs),
    /// What consumer groups and fetch sessions cost
    Groups(GroupsArgs),
    /// What compaction, retention, many segments and many partitions cost our own broker
    Upkeep(UpkeepArgs),
    /// A model of the write path: fsync inside or outside the partition lock, with and without a slow partition
    Experiment(ExperimentArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Loads with fsync, with acks=1, and the consumer
    Throughput,
    /// Memory and start times with many partitions
    Partitions,
}

#[derive(Args)]
struct CompareArgs {
    /// Our broker's program
    #[arg(long)]
    seawall: Option<PathBuf>,
    /// Passed to seawall as --set; may be repeated
    #[arg(long = "seawall-set", value_name = "KEY=VALUE")]
    seawall_set: Vec<String>,
    /// Directory with Kafka's jars
    #[arg(long)]
    kafka_libs: Option<PathBuf>,
    /// Directory for all data; it should be on the file system that matters
    #[arg(long)]
    work: PathBuf,
    /// Seconds per load, broker and round
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Seconds per load and broker before the first round
    #[arg(long, default_value_t = 2.0)]
    warm_up: f64,
    /// Number of rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Parts to run; all by default
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Partitions of the start-up part
    #[arg(long, default_value_t = 1000)]
    partitions: i32,
    /// Clean starts and starts after a kill, each
    #[arg(long, default_value_t = 2)]
    starts: usize,
    /// Size of the consumed topic, in MiB
    #[arg(long, default_value_t = 128)]
    consumed_mib: u64,
    /// A load ends early after this much, in MiB
    #[arg(long, default_value_t = 512)]
    load_mib_max: u64,
    /// Memory to touch and give back first, in GiB, so that no broker waits for a hypervisor's pages
    #[arg(long, default_value_t = 8)]
    touch_gib: usize,
    /// Producers use producer ids and sequences
    #[arg(long)]
    idempotent: bool,
    /// Also recover a large partition after kill -9
    #[arg(long)]
    full: bool,
    /// Size of that partition, in MiB
    #[arg(long, default_value_t = 10 * 1024)]
    full_mib: u64,
    /// Fail when a target is not reached
    #[arg(long)]
    strict: bool,
}

#[derive(Args)]
struct ProduceArgs {
    /// The broker
    #[arg(long, default_value = "127.0.0.1:9092")]
    addr: SocketAddr,
    /// Topic
    #[arg(long, default_value = "seawall-compare")]
    topic: String,
    /// Create the topic first
    #[arg(long)]
    create: bool,
    /// Create it with flush.messages=1
    #[arg(long)]
    flush: bool,
    /// Partitions to write to
    #[arg(long, default_value_t = 1)]
    partitions: i32,
    /// Connections, each a producer
    #[arg(long, default_value_t = 1)]
    connections: i32,
    /// Requests in flight per connection
    #[arg(long, default_value_t = 1)]
    in_flight: usize,
    /// Bytes per batch
    #[arg(long, default_value_t = 1024)]
    bytes: usize,
    /// Records per batch
    #[arg(long, default_value_t = 1)]
    records: i32,
    /// -1 or 1
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    acks: i16,
    /// Use producer ids and sequences
    #[arg(long)]
    idempotent: bool,
    /// Duration
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

#[derive(Args)]
struct ConsumeArgs {
    /// The broker
    #[arg(long, default_value = "127.0.0.1:9092")]
    addr: SocketAddr,
    /// Topic; partition 0 is read over and over
    #[arg(long, default_value = "seawall-compare")]
    topic: String,
    /// Bytes asked for per Fetch
    #[arg(long, default_value_t = scenario::FETCH_BYTES)]
    fetch_bytes: usize,
    /// Duration
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

#[derive(Args)]
struct TransactionArgs {
    /// The broker
    #[arg(long, default_value = "127.0.0.1:9092")]
    addr: SocketAddr,
    /// Producers
    #[arg(long, value_delimiter = ',', default_values_t = [1, 50])]
    producers: Vec<usize>,
    /// Partitions that each transaction writes to
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10])]
    partitions: Vec<i32>,
    /// Bytes per batch
    #[arg(long, default_value_t = 1024)]
    bytes: usize,
    /// Seconds per figure
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Times that every figure is taken, in turns
    #[arg(long, default_value_t = 1)]
    rounds: usize,
}

#[derive(Args)]
struct MachineArgs {
    /// Directory for scratch files
    #[arg(long)]
    work: PathBuf,
    /// Seconds per figure
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

#[derive(Args)]
struct GroupsArgs {
    /// Our broker's program
    #[arg(long)]
    seawall: Option<PathBuf>,
    /// Directory with Kafka's jars
    #[arg(long)]
    kafka_libs: Option<PathBuf>,
    /// Directory for all data; it should be on the file system that matters
    #[arg(long)]
    work: PathBuf,
    /// Seconds per figure
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
}

#[derive(Args)]
struct TlsArgs {
    /// Our broker's program
    #[arg(long)]
    seawall: Option<PathBuf>,
    /// Passed to seawall as --set; may be repeated
    #[arg(long = "seawall-set", value_name = "KEY=VALUE")]
    seawall_set: Vec<String>,
    /// Directory with Kafka's jars
    #[arg(long)]
    kafka_libs: Option<PathBuf>,
    /// Directory for all data; it should be on the file system that matters
    #[arg(long)]
    work: PathBuf,
    /// Seconds per load, broker and round
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Seconds per load and broker before the first round
    #[arg(long, default_value_t = 2.0)]
    warm_up: f64,
    /// Number of rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Size of the consumed topic, in MiB
    #[arg(long, default_value_t = 128)]
    consumed_mib: u64,
    /// A load ends early after this much, in MiB
    #[arg(long, default_value_t = 512)]
    load_mib_max: u64,
    /// Connections that idle
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// Parts to run; all by default
    #[arg(long, value_delimiter = ',')]
    only: Vec<tls::Part>,
    /// Fail when a target is not reached
    #[arg(long)]
    strict: bool,
}

#[derive(Args)]
struct UpkeepArgs {
    /// Our broker's program
    #[arg(long)]
    seawall: PathBuf,
    /// Directory for all data; it should be on the file system that matters
    #[arg(long)]
    work: PathBuf,
    /// Seconds per load
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Times that every load runs without upkeep and with it
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// What is compacted, and what is deleted, beside one load, in MiB
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Segments of the topic with many
    #[arg(long, default_value_t = 10_000)]
    segments: u64,
    /// Partitions of the broker with many
    #[arg(long, default_value_t = 10_000)]
    partitions: i32,
}

#[derive(Args)]
struct ExperimentArgs {
    /// Directory for scratch files, on the mount in question
    #[arg(long)]
    work: PathBuf,
    /// Partitions, each with its committer
    #[arg(long, default_value_t = 50)]
    partitions: usize,
    /// Producers per partition, one 16 KiB batch in flight each
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Append workers
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Slow partitions in the runs that have any
    #[arg(long, default_value_t = 1)]
    stalled: usize,
    /// What is added to each of their flushes
    #[arg(long, default_value_t = 500)]
    stall_ms: u64,
    /// Seconds per run
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Times that every variant runs, in turns
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Compare(args) => compare(&args),
        Command::Produce(args) => produce(args).map(|()| true),
        Command::Consume(args) => consume(&args).map(|()| true),
        Command::Transactions(args) => transactions(&args).map(|()| true),
        Command::Machine(args) => machine(&args).map(|()| true),
        Command::Groups(args) => groups(&args).map(|()| true),
        Command::Tls(args) => tls(&args),
        Command::Upkeep(args) => upkeep(&args).map(|()| true),
        Command::Experiment(args) => experiment(&args).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(e) => {
            eprintln!("seawall-compare: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the run counts as passed.
fn compare(args: &CompareArgs) -> Result<bool> {
    let programs = programs(
        args.seawall.as_ref(),
        &args.seawall_set,
        args.kafka_libs.as_ref(),
    )?;
    let names: Vec<&'static str> = programs.iter().map(Program::name).collect();
    let wanted = |part| args.only.is_empty() || args.only.contains(&part);
    let work = prepare(&args.work)?;
    let mut throughput = None;
    if wanted(Part::Throughput) {
        machine::touch_memory(args.touch_gib)?;
        let done = throughput::run(&programs, &work, plan(args)?)?;
        report::figures(&names, &done);
        throughput = Some(done);
    }
    let (mut many, mut big) = (Vec::new(), Vec::new());
    for program in &programs {
        if wanted(Part::Partitions) {
            many.push(startup::many(program, &work, args.partitions, args.starts)?);
        }
        if args.full {
            big.push(startup::big(program, &work, args.full_mib << 20)?);
        }
    }
    report::startups(&names, &many, &big);
    let reached = report::targets(&report::Results {
        names: &names,
        throughput: throughput.as_ref(),
        many: &many,
        big: &big,
    });
    Ok(reached || !args.strict)
}

fn programs(
    seawall: Option<&PathBuf>,
    set: &[String],
    kafka_libs: Option<&PathBuf>,
) -> Result<Vec<Program>> {
    let seawall = seawall.map(|binary| Program::Seawall {
        binary: binary.clone(),
        set: set.to_vec(),
    });
    let kafka = kafka_libs.map(|libs| Program::Kafka { libs: libs.clone() });
    let programs: Vec<Program> = seawall.into_iter().chain(kafka).collect();
    if programs.is_empty() {
        return Err(Error::Usage("give --seawall, --kafka-libs or both"));
    }
    Ok(programs)
}

fn plan(args: &CompareArgs) -> Result<Plan> {
    Ok(Plan {
        time: seconds(args.seconds)?,
        warm_up: seconds(args.warm_up)?,
        rounds: args.rounds,
        consumed_bytes: args.consumed_mib << 20,
        bytes_max: args.load_mib_max << 20,
        idempotent: args.idempotent,
    })
}

fn produce(args: ProduceArgs) -> Result<()> {
    if args.acks == 0 {
        return Err(Error::Usage("acks=0 has no answer to measure"));
    }
    if args.create {
        create(args.addr, &args.topic, args.partitions, args.flush)?;
    }
    let run = produce::run(
        args.addr,
        &Load {
            topic: args.topic,
            partitions: args.partitions,
            connections: args.connections,
            in_flight: args.in_flight,
            shape: Shape {
                bytes: args.bytes,
                records: args.records,
            },
            acks: args.acks,
            idempotent: args.idempotent,
            time: seconds(args.seconds)?,
            batches_max: u64::MAX,
        },
    )?;
    print_run("batches", run);
    Ok(())
}

fn consume(args: &ConsumeArgs) -> Result<()> {
    let mut consumer = Consumer::connect(args.addr, &args.topic, args.fetch_bytes)?;
    println!("end offset {}", consumer.check_all()?);
    print_run("fetches", consumer.run(seconds(args.seconds)?)?);
    Ok(())
}

fn transactions(args: &TransactionArgs) -> Result<()> {
    let heads = [
        "kind",
        "producers",
        "partitions",
        "per s",
        "p50 ms",
        "p99 ms",
        "end p50",
        "end p99",
    ];
    let pid = std::process::id();
    println!("{}", heads.map(|head| format!("{head:>10}")).join(" "));
    for round in 0..args.rounds {
        for &producers in &args.producers {
            for &partitions in &args.partitions {
                for kind in [Kind::Plain, Kind::V1, Kind::V2] {
                    let topic = format!("txn-{pid}-{producers}-{partitions}-{kind:?}-{round}");
                    create(args.addr, &topic, partitions, true)?;
                    let load = transactions::Load {
                        topic,
                        kind,
                        producers,
                        partitions,
                        shape: Shape {
                            bytes: args.bytes,
                            records: 1,
                        },
                        time: seconds(args.seconds)?,
                    };
                    print_transactions(&load, transactions::run(args.addr, &load)?);
                }
            }
        }
    }
    Ok(())
}

fn print_transactions(load: &transactions::Load, run: transactions::Run) {
    let millis = |latencies| {
        let found = Percentiles::of(latencies);
        let pair = found.map_or([f64::NAN; 2], |p| {
            [p.p50, p.p99].map(|d| d.as_secs_f64() * 1e3)
        });
        format!("{:>10.2} {:>10.2}", pair[0], pair[1])
    };
    println!(
        "{:>10} {:>10} {:>10} {:>10.0} {} {}",
        format!("{:?}", load.kind),
        load.producers,
        load.partitions,
        run.count as f64 / load.time.as_secs_f64(),
        millis(run.whole),
        millis(run.end),
    );
}

/// Creates a topic and waits until it serves.
fn create(addr: SocketAddr, topic: &str, partitions: i32, flush: bool) -> Result<()> {
    let mut admin = Admin::connect(addr)?;
    admin.create(Topic {
        name: topic,
        partitions,
        flush,
    })?;
    wait::until("the topic to serve", Duration::from_secs(30), || {
        Ok(admin.ends(topic, partitions).ok())
    })?;
    Ok(())
}

fn machine(args: &MachineArgs) -> Result<()> {
    let (work, time) = (prepare(&args.work)?, seconds(args.seconds)?);
    let round_trip = machine::round_trip(1024, time)?;
    println!("R              {round_trip:>12.1?}");
    for bytes in [1024, 16 * 1024, 50 * 16 * 1024] {
        let sync = machine::sync(&work, bytes, time)?;
        println!("D({:>3} KiB)     {sync:>12.1?}", bytes / 1024);
    }
    for bytes in [1024, 16 * 1024] {
        let writes_max = (512 << 20) / u64::try_from(bytes).unwrap_or(1);
        let rate = machine::plain_write(&work, bytes, time, writes_max)?;
        println!("pwrite {:>3} KiB {rate:>12.0} /s", bytes / 1024);
    }
    let stream = machine::stream(scenario::FETCH_BYTES, time)?;
    println!("W              {:>12.2} GB/s", stream / 1e9);
    Ok(())
}

fn groups(args: &GroupsArgs) -> Result<()> {
    let programs = programs(args.seawall.as_ref(), &[], args.kafka_libs.as_ref())?;
    groups::run(&programs, &prepare(&args.work)?, seconds(args.seconds)?)
}

fn tls(args: &TlsArgs) -> Result<bool> {
    let programs = programs(
        args.seawall.as_ref(),
        &args.seawall_set,
        args.kafka_libs.as_ref(),
    )?;
    let plan = Plan {
        time: seconds(args.seconds)?,
        warm_up: seconds(args.warm_up)?,
        rounds: args.rounds,
        consumed_bytes: args.consumed_mib << 20,
        bytes_max: args.load_mib_max << 20,
        idempotent: false,
    };
    let reached = tls::run(&tls::Setting {
        programs: &programs,
        work: &prepare(&args.work)?,
        plan,
        idle: args.idle,
        only: &args.only,
    })?;
    Ok(reached || !args.strict)
}

fn upkeep(args: &UpkeepArgs) -> Result<()> {
    let program = Program::Seawall {
        binary: args.seawall.clone(),
        set: Vec::new(),
    };
    let plan = upkeep::Plan {
        time: seconds(args.seconds)?,
        rounds: args.rounds,
        bytes: args.mib << 20,
        segments: args.segments,
        partitions: args.partitions,
    };
    upkeep::run(&program, &prepare(&args.work)?, plan)
}

fn experiment(args: &ExperimentArgs) -> Result<()> {
    let work = prepare(&args.work)?;
    let time = seconds(args.seconds)?;
    println!(
        "{:<10} {:>6} {:>18} {:>12} {:>12} {:>14}",
        "fsync", "slow", "healthy batches/s", "p50 ms", "p99 ms", "slow batches/s"
    );
    for round in 0..args.rounds * 2 {
        let stalled = if round % 2 == 0 { 0 } else { args.stalled };
        for variant in VARIANTS {
            let setting = Setting {
                partitions: args.partitions,
                clients: args.clients,
                workers: args.workers,
                stalled,
                stall: Duration::from_millis(args.stall_ms),
                time,
            };
            let found = experiment::run(&work, variant, setting)?;
            let millis = |pick: fn(&Percentiles) -> Duration| {
                let p = found.healthy_latency.as_ref();
                p.map_or(f64::NAN, |p| pick(p).as_secs_f64() * 1e3)
            };
            println!(
                "{:<10} {stalled:>6} {:>18.0} {:>12.2} {:>12.2} {:>14.0}",
                format!("{variant:?}"),
                found.healthy,
                millis(|p| p.p50),
                millis(|p| p.p99),
                found.slow
            );
        }
    }
    Ok(())
}

fn print_run(unit: &str, run: Run) {
    let (rate, bytes) = (run.rate(), run.bytes_rate() / 1e6);
    print!("{rate:.0} {unit}/s  {bytes:.1} MB/s");
    if let Some(p) = Percentiles::of(run.latencies) {
        print!(
            "  p50 {:.1?}  p99 {:.1?}  p99.9 {:.1?}",
            p.p50, p.p99, p.p999
        );
    }
    println!();
}

fn prepare(work: &Path) -> Result<PathBuf> {
    let made = fs::create_dir_all(work).and_then(|()| work.canonicalize());
    made.map_err(|source| Error::Path {
        doing: "create",
        path: work.to_path_buf(),
        source,
    })
}

fn seconds(value: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| Error::Usage("a duration must not be negative"))
}
