//! What the broker needs of the machine itself: descriptors, a clock, its ports.
//!
//! Owns:     those checks.
//! Does not: look at directories.
use super::finding::{Finding, Level};
use crate::config::{CommandLine, Config, ConfigError, Listener};
use crate::security::{Doors, exposure};
use nix::sys::resource::{Resource, getrlimit};
use std::io;
use std::net::TcpListener;
use std::time::{Duration, SystemTime};

/// One for each partition that is written, each connection, and the files that stay open for readers.
const DESCRIPTORS_MIN: u64 = 4_096;
/// For thousands of partitions.
const DESCRIPTORS_ENOUGH: u64 = 65_536;
/// Files come from machines whose clocks are a little ahead.
const CLOCK_SLACK: Duration = Duration::from_secs(24 * 3600);

/// The part that starts with every broker.
pub(super) fn quick() -> Vec<Finding> {
    descriptors().into_iter().chain(clock()).collect()
}

/// Whether each listener, and the HTTP port, can be had, and whether others can come to them unasked.
pub(super) fn ports(config: &Config) -> Vec<Finding> {
    config
        .listeners
        .iter()
        .chain(&config.admin_listener)
        .filter_map(port)
        .chain(exposure::warning(config).map(|what| Finding::new(Level::Warning, "exposure", what)))
        .collect()
}

/// Whether what the configuration refers to can be read: credentials, keys, certificates. That is seen with the eyes of
/// whoever runs this, and so it is no refusal.
pub(super) fn secrets(line: &CommandLine) -> Vec<Finding> {
    let missing = |what: String, way_out: &str| Finding::warning("secrets", what).advice(way_out);
    match Config::load(line) {
        Err(ConfigError::Problems(problems)) => problems
            .iter()
            .map(|problem| missing(problem.to_string(), &problem.fault.way_out()))
            .collect(),
        Err(other) => vec![missing(other.to_string(), "correct the path")],
        Ok(config) => match Doors::open(&config) {
            Ok(_) => Vec::new(),
            Err(error) => vec![missing(error.to_string(), error.way_out())],
        },
    }
}

fn descriptors() -> Option<Finding> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let what = format!("{hard} files may be open at once");
    if hard >= DESCRIPTORS_ENOUGH {
        return Some(Finding::fine("descriptors", what));
    }
    let level = if hard < DESCRIPTORS_MIN {
        Level::Warning
    } else {
        Level::Note
    };
    Some(
        Finding::new(level, "descriptors", what)
            .advice("Set LimitNOFILE=1048576 in the unit, or ulimit -Hn"),
    )
}

/// Records without a time of their own, retention and timeouts go by it. The binary cannot be from the future.
fn clock() -> Option<Finding> {
    let built = std::env::current_exe()
        .and_then(|exe| exe.metadata()?.modified())
        .ok()?;
    let behind = built.duration_since(SystemTime::now()).unwrap_or_default();
    Some(if behind > CLOCK_SLACK {
        let what = format!(
            "the clock is at least {} days behind",
            behind.as_secs() / 86_400
        );
        Finding::warning("clock", what)
            .advice("Set it (timedatectl) before records are stamped with it")
    } else {
        Finding::fine("clock", "the clock is not behind this program's own file")
    })
}

fn port(listener: &Listener) -> Option<Finding> {
    let name = format!("{} {}:{}", listener.name, listener.host, listener.port);
    let bound = listener
        .addrs()
        .and_then(|addrs| TcpListener::bind(addrs.as_slice()));
    Some(match bound {
        Ok(_) => Finding::fine("port", format!("{name} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Finding::note("port", format!("{name} is in use")).advice(
                "By a running broker, or by something that must be stopped first (ss -ltnp)",
            )
        }
        Err(error) => Finding::warning("port", format!("{name} cannot be had: {error}")),
    })
}
