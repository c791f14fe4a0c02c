//! The log of the broker: one line for each event, on stderr.
//!
//! Owns:     the form of the lines, and how much is told.
//! Does not: know what is told. Nothing that a client stored, and no secret, is ever logged by anybody.
//!
//! Under systemd a line begins with its priority (`<6>`, sd-daemon(3)) and carries no time: the journal knows it.

use std::io::{self, IsTerminal, Write};

use env_logger::{Builder, Env};
use log::{Level, LevelFilter, Record};
use nix::sys::stat::fstat;

/// Sets the level of single parts, and beats `logging.level`.
const RUST_LOG: &str = "RUST_LOG";

/// Where the lines go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    /// systemd's journal.
    Journal,
    /// A terminal, where a line of progress may stand.
    Terminal,
    /// A file or a pipe.
    Plain,
}

impl Form {
    fn of_stderr() -> Self {
        if is_journal() {
            Self::Journal
        } else if io::stderr().is_terminal() {
            Self::Terminal
        } else {
            Self::Plain
        }
    }
}

/// Whether stderr is the journal itself, and not something that it was redirected to later.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let stderr = fstat(io::stderr());
    stderr.is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Begins to log; until [`set_level`] what `info` lets through.
pub fn start() {
    let form = Form::of_stderr();
    let mut builder = match std::env::var_os(RUST_LOG) {
        Some(_) => Builder::from_env(Env::default()),
        None => {
            let mut all = Builder::new();
            all.filter_level(LevelFilter::Trace);
            all
        }
    };
    builder.format(move |out, record| {
        let time = out.timestamp();
        write_line(out, form, &time, record)
    });
    builder.init();
    set_level(LevelFilter::Info);
}

/// How much is told from now on, unless the environment says it.
pub fn set_level(level: LevelFilter) {
    if std::env::var_os(RUST_LOG).is_none() {
        log::set_max_level(level);
    }
}

fn write_line(
    out: &mut impl Write,
    form: Form,
    time: &dyn std::fmt::Display,
    record: &Record<'_>,
) -> io::Result<()> {
    let (level, target) = (record.level(), record.target());
    let text = OneLine(record.args().to_string());
    match form {
        Form::Journal => writeln!(out, "<{}>{target}: {text}", priority(level)),
        Form::Terminal => writeln!(out, "\r\x1b[K[{time} {level:<5} {target}] {text}"),
        Form::Plain => writeln!(out, "[{time} {level:<5} {target}] {text}"),
    }
}

/// syslog(3)'s number.
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// A text whose control characters, line ends among them, are escaped: nobody who chooses a client id or a topic name
/// can write a line of the log.
struct OneLine(String);

impl std::fmt::Display for OneLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.0.contains(char::is_control) {
            return f.write_str(&self.0);
        }
        self.0.chars().try_for_each(|c| match c {
            c if c.is_control() => write!(f, "{}", c.escape_default()),
            c => write!(f, "{c}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(form: Form, text: &str) -> String {
        let mut out = Vec::new();
        let args = format_args!("{text}").to_string();
        let record = Record::builder();
        let mut record = record;
        let made = record.level(Level::Warn).target("seawall::x");
        write_line(
            &mut out,
            form,
            &"then",
            &made.args(format_args!("{args}")).build(),
        )
        .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_event_is_one_line_whatever_it_tells() {
        let nasty = "a\nb\r\x1b[31m\u{7f}é";
        assert_eq!(
            line(Form::Journal, nasty),
            "<4>seawall::x: a\\nb\\r\\u{1b}[31m\\u{7f}é\n"
        );
        assert_eq!(
            line(Form::Plain, nasty),
            "[then WARN  seawall::x] a\\nb\\r\\u{1b}[31m\\u{7f}é\n"
        );
        assert_eq!(
            line(Form::Terminal, "x"),
            "\r\x1b[K[then WARN  seawall::x] x\n"
        );
    }
}
