//! `seawall config check`: would a broker start with this configuration?
//!
//! Owns:     what is printed about each problem, the exit status.
//! Does not: know what is right (`config` and `security` do), or look at the machine: `seawall doctor` does.
use super::{Verdict, not_written};
use crate::config::{CommandLine, Config, ConfigError};
use crate::security::{Doors, SecurityError};
use std::io::{self, Write};

/// Looks at a configuration and says what is wrong with it, and what to do.
pub(crate) fn config_check(line: &CommandLine) -> Verdict {
    let mut out = io::stdout().lock();
    let told = match Config::load(line) {
        Ok(config) => match Doors::open(&config) {
            Ok(_) => tell_fine(&mut out, line, &config),
            Err(error) => tell_shut(&mut out, &error),
        },
        Err(error) => tell_problems(&mut out, &error),
    };
    told.and_then(|verdict| out.flush().map(|()| verdict))
        .unwrap_or_else(|error| not_written(&error))
}

fn tell_fine(out: &mut impl Write, line: &CommandLine, config: &Config) -> io::Result<Verdict> {
    for (key, origin) in config.settings.without_effect() {
        writeln!(out, "{origin}: {key} has no effect in this broker")?;
    }
    match &line.file {
        Some(path) => writeln!(out, "{}: fine", path.display())?,
        None => writeln!(out, "the defaults and the command line: fine")?,
    }
    Ok(Verdict::Clean)
}

/// Keys or certificates that a listener cannot do without.
fn tell_shut(out: &mut impl Write, error: &SecurityError) -> io::Result<Verdict> {
    writeln!(out, "{error}\n    {}\n1 problem", error.way_out())?;
    Ok(Verdict::Damage)
}

fn tell_problems(out: &mut impl Write, error: &ConfigError) -> io::Result<Verdict> {
    let ConfigError::Problems(problems) = error else {
        writeln!(out, "{error}")?;
        return Ok(Verdict::NotRun);
    };
    for problem in problems {
        writeln!(out, "{problem}\n    {}", problem.fault.way_out())?;
    }
    let count = problems.len();
    let noun = if count == 1 { "problem" } else { "problems" };
    writeln!(out, "{count} {noun}")?;
    Ok(Verdict::Damage)
}
