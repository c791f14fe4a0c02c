//! `seawall`: a Kafka-wire-compatible broker for one machine and a filer.

mod admin;
mod api;
mod broker;
mod cleaner;
mod cli;
mod cluster;
mod config;
mod counts;
mod fetch_sessions;
mod groups;
mod health;
mod heart;
mod histogram;
mod logdir;
mod logging;
mod metrics;
mod partition;
mod queued;
mod reload;
mod reserve;
mod running;
mod security;
mod server;
mod startup;
mod systemd;
mod timer;
mod tools;
mod topics;
mod tripwire;
mod txn;
mod workers;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use crossbeam_channel::{Receiver, bounded, select_biased};
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
        Command::Config { what } => match what {
            ConfigCommand::Check(args) => tools::config_check(&args.into()).into(),
            ConfigCommand::Default => print(&config::default_file()),
            ConfigCommand::Metrics => print(&metrics::listing()),
        },
    }
}

fn print(text: &str) -> ExitCode {
    print!("{text}");
    ExitCode::SUCCESS
}

fn serve(line: &CommandLine) -> ExitCode {
    logging::start();
    let config = match Config::load(line) {
        Ok(config) => config,
        Err(error) => {
            for problem in error.lines() {
                log::error!("{problem}");
            }
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    logging::set_level(config.log_level);
    raise_descriptor_limit();
    if let Some(warning) = config.warning() {
        log::warn!("{warning}");
    }
    let stop = Arc::new(StopSignal::default());
    let started = watch_signals(Arc::clone(&stop)).map_err(server::ServeError::System);
    let started = started.and_then(|signals| Ok((signals, Serving::start(config, stop)?)));
    match started {
        Ok((signals, serving)) => run(line, &signals, serving),
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

/// What came from outside. A burst of either is one.
struct Asked {
    stop: Receiver<i32>,
    reload: Receiver<()>,
}

/// Starts the thread `signals` before anything else, so that none is missed.
/// The first signal to stop raises `stop`, too. SIGHUP stops a broker on a terminal,
/// for the terminal has gone; any other reads its configuration again.
fn watch_signals(stop: Arc<StopSignal>) -> std::io::Result<Asked> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let on_terminal = std::io::stderr().is_terminal();
    let (stops, stopped) = bounded(1);
    let (reloads, reload) = bounded(1);
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                // What is asked already need not be asked again.
                if signal == SIGHUP && !on_terminal {
                    let _ = reloads.try_send(());
                    continue;
                }
                stop.raise();
                let _ = stops.try_send(signal);
            }
        })?;
    Ok(Asked {
        stop: stopped,
        reload,
    })
}

fn run(line: &CommandLine, asked: &Asked, serving: Serving) -> ExitCode {
    for addr in serving.addrs() {
        log::info!("listening on {addr}");
    }
    if let Some(addr) = serving.admin_addr() {
        log::info!("metrics on http://{addr}/metrics");
    }
    let signal = loop {
        select_biased! {
            recv(asked.stop) -> signal => break signal.unwrap_or(SIGTERM),
            recv(asked.reload) -> reload => match reload {
                Ok(()) => reload::reload(line, &serving),
                Err(_) => break SIGTERM,
            },
        }
    };
    systemd::stopping();
    log::info!("stopping on signal {signal}");
    if serving.stop() {
        log::info!("stopped cleanly");
        ExitCode::SUCCESS
    } else {
        log::warn!("stopped uncleanly; the next start looks through the logs");
        ExitCode::FAILURE
    }
}
