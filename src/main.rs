//! `seawall`: a Kafka-wire-compatible broker for one machine and a filer.

mod admin;
mod api;
mod broker;
mod cli;
mod cluster;
mod config;
mod logdir;
mod metrics;
mod partition;
mod server;
mod timer;
mod topics;
mod tripwire;
mod workers;

use std::process::ExitCode;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use cli::{Cli, Command, ConfigCommand};
use config::{CommandLine, Config};
use server::Serving;

/// The configuration is wrong (sysexits.h, EX_CONFIG).
const EXIT_CONFIG: u8 = 78;

fn main() -> ExitCode {
    match Cli::parse().command() {
        Command::Serve(args) => serve(&args.into()),
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
    if let Some(warning) = config.warning() {
        log::warn!("{warning}");
    }
    // Taken before anything starts, so that no signal is missed.
    let signals = Signals::new([SIGTERM, SIGINT]);
    let started = signals.map_err(server::ServeError::System);
    let started = started.and_then(|signals| Ok((signals, Serving::start(config)?)));
    match started {
        Ok((signals, serving)) => run(signals, serving),
        Err(error) => {
            log::error!("not started: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut signals: Signals, serving: Serving) -> ExitCode {
    for addr in serving.addrs() {
        log::info!("listening on {addr}");
    }
    if let Some(addr) = serving.admin_addr() {
        log::info!("metrics on http://{addr}/metrics");
    }
    let signal = signals.forever().next();
    log::info!("stopping on signal {}", signal.unwrap_or(0));
    if serving.stop() {
        log::info!("stopped cleanly");
        ExitCode::SUCCESS
    } else {
        log::warn!("stopped uncleanly; the next start looks through the logs");
        ExitCode::FAILURE
    }
}
