//! `seawall doctor`: is this directory a place for data that must not be lost, and how fast is it?
//!
//! Owns:     the order of the checks, what is printed, the quick part at the start of a broker.
//! Does not: know file systems (`substrate`), try things out (`probes`, `fsync`) or write logs (`crash_test`).
//!
//! # Invariants
//! O1. Everything it makes in a directory lies in one folder with a name of ours and is removed again, at a signal, too;
//!     only a crash test leaves its folder, until it was checked and was found whole. Kafka's directories get none.
//! O2. The quick part writes nothing and starts nothing but its own thread: it may hang, and then nobody notices.
mod contents;
mod crash_log;
mod crash_test;
mod drop_in;
mod finding;
mod fsync;
mod interrupt;
mod machine;
mod mounts;
mod probes;
mod space;
mod substrate;

use super::{Verdict, not_written};
use crate::config::{CommandLine, Config};
use clap::Args;
use finding::{Finding, Level, Report};
use probes::Scratch;
use seawall_storage::disk::RealDisk;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The options of `seawall doctor`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DoctorArgs {
    /// The directory; by default all that the configuration names.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The configuration file of the broker: its ports, and its directories if DIR is not given.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON, one object for each directory.
    #[arg(long)]
    json: bool,
    /// Write to DIR, and print what is durable, until the power is cut. Keep the output on another machine. A directory
    /// that a broker is running on, or Kafka's, is refused; half of the free space stays free.
    #[arg(long, requires = "dir", conflicts_with_all = ["json", "config"])]
    crash_test: bool,
    /// How long a crash test writes at most.
    #[arg(long, value_name = "N", requires = "crash_test", default_value_t = 600)]
    seconds: u64,
    /// After the power cut: look in DIR for everything that FILE, the output of a crash test, calls durable; - reads it
    /// from standard input. Exits with 0 if it is there, with 1 if something is missing, with 2 if that proves nothing: no
    /// power was cut, as far as can be told. On NFS the filer's may have been.
    #[arg(long, value_name = "FILE", requires = "dir", conflicts_with_all = ["json", "config", "crash_test"])]
    crash_test_verify: Option<PathBuf>,
}

/// Looks, and says how it is.
pub(crate) fn doctor(args: DoctorArgs) -> Verdict {
    if let (Some(dir), true) = (&args.dir, args.crash_test) {
        return crash_test::run(dir, Duration::from_secs(args.seconds));
    }
    if let (Some(dir), Some(lines)) = (&args.dir, &args.crash_test_verify) {
        return crash_test::check(dir, lines);
    }
    let line = CommandLine {
        file: args.config,
        ..CommandLine::default()
    };
    let config = match Config::load_for_tool(&line) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("seawall: {error}");
            return Verdict::NotRun;
        }
    };
    let dirs = args
        .dir
        .map_or_else(|| directories(&config), |dir| vec![dir]);
    let secrets = machine::secrets(&line);
    examine_all(&dirs, &config, &secrets, args.json).unwrap_or_else(|error| not_written(&error))
}

/// The worst of the directories decides.
fn examine_all(
    dirs: &[PathBuf],
    config: &Config,
    secrets: &[Finding],
    json: bool,
) -> io::Result<Verdict> {
    let mut out = io::stdout().lock();
    let mut verdict = Verdict::Clean;
    for dir in dirs {
        let dir = match dir.canonicalize() {
            Ok(dir) => dir,
            Err(error) => {
                eprintln!("seawall: {}: {error}", dir.display());
                verdict = Verdict::NotRun;
                continue;
            }
        };
        let mut report = examine(&dir);
        report.findings.extend(machine::ports(config));
        report.findings.extend(secrets.iter().cloned());
        if json {
            writeln!(out, "{}", report.json()?)?;
        } else {
            writeln!(out, "{report}")?;
        }
        if report.level() == Level::Refusal && verdict == Verdict::Clean {
            verdict = Verdict::Damage;
        }
    }
    Ok(verdict)
}

/// Every check there is.
fn examine(dir: &Path) -> Report {
    let mut report = look(dir);
    report.findings.extend(contents::contents(dir));
    if contents::is_foreign(dir) {
        return report;
    }
    match Scratch::new(dir) {
        Ok(scratch) => try_out(&scratch, &mut report),
        Err(error) => report.findings.push(
            Finding::refusal("write", format!("nothing can be written there: {error}"))
                .advice("Run this as the user of the service (runuser -u seawall -- seawall doctor ...), and give it the directory"),
        ),
    }
    report.drop_in = drop_in::drop_in(dir);
    report
}

fn try_out(scratch: &Scratch, report: &mut Report) {
    report.findings.extend(probes::probe(scratch));
    let remote = report.mount.as_ref().is_some_and(mounts::Mount::is_nfs);
    let room = report.space.as_ref().map_or(0, space::Space::free_bytes);
    match fsync::measure(&RealDisk, scratch.path(), room) {
        Ok(latencies) => {
            report.findings.extend(latencies.judge(remote));
            report.fsync = Some(latencies);
        }
        Err(error) => report.findings.push(Finding::refusal(
            "fsync",
            format!("a write or an fsync failed: {error}"),
        )),
    }
}

/// What can be seen without writing: the mount, the room, the machine.
fn look(dir: &Path) -> Report {
    let mut findings = Vec::new();
    let mount = mounts::mount_of(dir).ok().flatten();
    match &mount {
        Some(mount) => findings.extend(substrate::judge(mount)),
        None => findings.push(Finding::note(
            "fileSystem",
            "the system does not say what this directory is on",
        )),
    }
    if let Some(point) = mounts::promised_and_missing(dir) {
        let what = format!(
            "/etc/fstab has a mount for {}, and it is not mounted",
            point.display()
        );
        findings.push(
            Finding::refusal("mount", what)
                .advice("Mount it: what is written now would be hidden by it later"),
        );
    }
    let space = space::space(dir).ok();
    findings.extend(space.iter().flat_map(space::Space::judge));
    findings.extend(machine::quick());
    Report {
        dir: dir.to_owned(),
        mount,
        space,
        fsync: None,
        findings,
        drop_in: String::new(),
    }
}

/// All directories of a broker, each once.
fn directories(config: &Config) -> Vec<PathBuf> {
    let mut dirs = config.log_dirs.clone();
    dirs.extend(config.cluster_dir.clone());
    dirs
}

/// The quick part, for the log of a broker that starts: one line for each danger, from a thread `doctor` that ends
/// by itself, and that nobody waits for.
///
/// # Errors
/// The thread could not be started.
pub(crate) fn warn_at_start(config: &Config) -> io::Result<()> {
    let dirs = directories(config);
    let thread = std::thread::Builder::new().name("doctor".into());
    thread.spawn(move || warn_of(&dirs)).map(drop)
}

fn warn_of(dirs: &[PathBuf]) {
    for dir in dirs {
        // A directory that the broker will make stands on what is above it.
        let whole = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
        let above = whole.ancestors();
        let Some(there) = above.map(Path::canonicalize).find_map(Result::ok) else {
            continue;
        };
        for finding in look(&there).findings {
            if finding.level >= Level::Warning {
                log::warn!("{}: {}: {finding}", dir.display(), finding.check);
            }
        }
    }
}
