//! What `verify` prints: one line for each thing found, and a summary; or the same as lines of JSON.
//!
//! Owns:     the form of the lines, the counts, and progress on a terminal.
//! Does not: decide what is damage.
use super::escape::Escaped;
use serde::Serialize;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often progress is shown.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    /// Whether it is damage, or only worth knowing.
    #[serde(rename = "kind", serialize_with = "kind")]
    pub(super) is_damage: bool,
    /// The file.
    #[serde(serialize_with = "lossy")]
    pub(super) file: PathBuf,
    /// A byte position in it.
    pub(super) position: Option<u64>,
    /// An offset of the log.
    pub(super) offset: Option<i64>,
    /// What it is.
    pub(super) what: String,
}

/// A path with odd bytes must not end the report.
pub(super) fn lossy<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

fn kind<S: serde::Serializer>(is_damage: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *is_damage { "damage" } else { "note" })
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_damage { "DAMAGE" } else { "note" };
        let file = Escaped(self.file.as_os_str().as_encoded_bytes());
        write!(f, "{kind} {file}")?;
        if let Some(position) = self.position {
            write!(f, " byte {position}")?;
        }
        if let Some(offset) = self.offset {
            write!(f, " offset {offset}")?;
        }
        write!(f, ": {}", Escaped(self.what.as_bytes()))
    }
}

/// How much was looked at, and what was found.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Totals {
    pub(super) topics: u64,
    pub(super) partitions: u64,
    pub(super) files: u64,
    pub(super) batches: u64,
    pub(super) bytes: u64,
    pub(super) damage: u64,
    pub(super) notes: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} topics, {} partitions, {} files, {} batches of {} bytes: ",
            self.topics, self.partitions, self.files, self.batches, self.bytes
        )?;
        match self.damage {
            0 => f.write_str("no damage")?,
            1 => f.write_str("1 place is DAMAGED")?,
            n => write!(f, "{n} places are DAMAGED")?,
        }
        match self.notes {
            0 => Ok(()),
            1 => f.write_str(", 1 note"),
            n => write!(f, ", {n} notes"),
        }
    }
}

#[derive(Serialize)]
struct Summary {
    kind: &'static str,
    #[serde(flatten)]
    totals: Totals,
}

/// Prints to `out`.
pub(super) struct Report<W: Write> {
    out: W,
    json: bool,
    pub(super) totals: Totals,
}

impl<W: Write> Report<W> {
    pub(super) fn new(out: W, json: bool) -> Self {
        Self {
            out,
            json,
            totals: Totals::default(),
        }
    }

    pub(super) fn line(&mut self, line: &Line) -> io::Result<()> {
        if line.is_damage {
            self.totals.damage += 1;
        } else {
            self.totals.notes += 1;
        }
        if self.json {
            serde_json::to_writer(&mut self.out, line)?;
            writeln!(self.out)
        } else {
            writeln!(self.out, "{line}")
        }
    }

    pub(super) fn summary(&mut self) -> io::Result<()> {
        if self.json {
            let totals = self.totals;
            let kind = "summary";
            serde_json::to_writer(&mut self.out, &Summary { kind, totals })?;
            writeln!(self.out)?;
        } else {
            writeln!(self.out, "{}", self.totals)?;
        }
        self.out.flush()
    }
}

/// One line on a terminal, written over and over; nothing anywhere else.
pub(super) struct Progress {
    shown: Option<Instant>,
    is_terminal: bool,
    bytes: u64,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            shown: None,
            is_terminal: io::stderr().is_terminal(),
            bytes: 0,
        }
    }

    pub(super) fn add(&mut self, bytes: u64, now_in: &Path) {
        self.bytes = self.bytes.saturating_add(bytes);
        if !self.is_terminal || self.shown.is_some_and(|at| at.elapsed() < PROGRESS_EVERY) {
            return;
        }
        self.shown = Some(Instant::now());
        // What cannot be shown is not missed.
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{} MiB, in {}",
            self.bytes >> 20,
            now_in.display()
        );
    }

    /// Takes the line away before something else is printed.
    pub(super) fn clear(&mut self) {
        if self.shown.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
