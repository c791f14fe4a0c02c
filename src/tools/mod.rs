//! Commands that work on data without being a broker.
//!
//! Owns:     `seawall verify`, `dump-log`, `doctor`, `config check` and `user`: what they print and how they exit.
//! Does not: talk to a broker, or (but for `user`) change data, take a lock or a claim.
//! Called from `main`, one thread.

mod config_check;
mod doctor;
mod dump_log;
mod escape;
mod papers;
mod report;
mod user;
mod verify;

pub(crate) use config_check::config_check;
pub(crate) use doctor::{DoctorArgs, doctor, warn_at_start};
pub(crate) use dump_log::{DumpArgs, dump_log};
pub(crate) use papers::papers;
pub(crate) use user::{UserCommand, user};
pub(crate) use verify::{VerifyArgs, verify};

use std::io;
use std::process::ExitCode;

/// How a tool ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everything is as it should be.
    Clean,
    /// Something is damaged.
    Damage,
    /// The tool could not do its work.
    NotRun,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> ExitCode {
        ExitCode::from(match verdict {
            Verdict::Clean => 0,
            Verdict::Damage => 1,
            Verdict::NotRun => 2,
        })
    }
}

/// What is left to say when the output cannot be written: nothing, if its reader has gone.
fn not_written(error: &io::Error) -> Verdict {
    if error.kind() != io::ErrorKind::BrokenPipe {
        eprintln!("seawall: the output cannot be written: {error}");
    }
    Verdict::NotRun
}
