//! `seawall`: a Kafka-wire-compatible broker for one machine and a filer.

mod admin;
mod api;
mod broker;
mod cleaner;
mod cli;
mod cluster;
mod config;
mod fetch_sessions;
mod groups;
mod logdir;
mod metrics;
mod partition;
mod queued;
mod reserve;
mod running;
mod security;
mod server;
mod timer;
mod tools;
mod topics;
mod tripwire;
mod txn;
mod workers;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use crossbeam_channel::Receiver;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use cli::{Cli, Command, ConfigCommand};
use cluster::StopSignal;
use config::{CommandLine, Config};
use server::Serving;

/// The configuration is wrong (sysexits.h, EX_CONFIG).
const EXIT_CONFIG: u8 = 78;

fn main() -> ExitCode {
    match Cli::parse().command() {
        Command::Serve(args) => serve(&args.into()),
        Command::Verify(args) => tools::verify(args).into(),
        Command::DumpLog(args) => tools::dump_log(&args).into(),
        Command::User { what } => tools::user(what).into(),
        Command::Doctor(args) => tools::doctor(args).into(),
        Command::Papers { to } => tools::papers(&to).into(),
        Command::Config {
            what: ConfigCommand::Default,
        } => {
            print!("{}", config::default_file());
            ExitCode::SUCCESS
        }
    }
}

fn serve(line: &CommandLine) -> ExitCode {
    let logger = env_logger::Env::default().default_filter_or("info");
    env_logger::Builder::from_env(logger).init();
    let config = match Config::load(line) {
        Ok(config) => config,
        Err(error) => {
            log::error!("{error}");
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    raise_descriptor_limit();
    if let Some(warning) = config.warning() {
        log::warn!("{warning}");
    }
    tools::warn_at_start(&config);
    let stop = Arc::new(StopSignal::default());
    let reload = Arc::new(AtomicBool::new(false));
    let started =
        watch_signals(Arc::clone(&stop), Arc::clone(&reload)).map_err(server::ServeError::System);
    let started = started.and_then(|signals| Ok((signals, Serving::start(config, stop, reload)?)));
    match started {
        Ok((signals, serving)) => run(&signals, serving),
        Err(error) => {
            log::error!("not started: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Every partition with data and every connection takes a descriptor; the soft
/// limit is a default for programs that use select(2), which we do not.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::RLIMIT_NOFILE);
    let raised = limit.and_then(|(soft, hard)| match soft < hard {
        true => setrlimit(Resource::RLIMIT_NOFILE, hard, hard),
        false => Ok(()),
    });
    if let Err(error) = raised {
        log::warn!("the limit of open files stays as it is: {error}");
    }
}

/// Starts the thread `signals` before anything else, so that none is missed.
/// The first signal raises `stop` and comes out of the channel; SIGHUP raises `reload`.
fn watch_signals(stop: Arc<StopSignal>, reload: Arc<AtomicBool>) -> std::io::Result<Receiver<i32>> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let (sender, receiver) = crossbeam_channel::bounded(1);
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                if signal == SIGHUP {
                    reload.store(true, Ordering::Release);
                    continue;
                }
                stop.raise();
                // A second signal has nobody to tell any more.
                let _ = sender.try_send(signal);
            }
        })?;
    Ok(receiver)
}

fn run(signals: &Receiver<i32>, serving: Serving) -> ExitCode {
    for addr in serving.addrs() {
        log::info!("listening on {addr}");
    }
    if let Some(addr) = serving.admin_addr() {
        log::info!("metrics on http://{addr}/metrics");
    }
    let signal = signals.recv().unwrap_or(SIGTERM);
    log::info!("stopping on signal {signal}");
    if serving.stop() {
        log::info!("stopped cleanly");
        ExitCode::SUCCESS
    } else {
        log::warn!("stopped uncleanly; the next start looks through the logs");
        ExitCode::FAILURE
    }
}
