//! What the doctor found, and how it is printed.
//!
//! Owns:     the levels, the verdict over all findings, the text and the JSON.
//! Does not: look at anything.
use super::fsync::Latencies;
use super::mounts::Mount;
use super::space::Space;
use crate::tools::report::lossy;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Level {
    /// As it should be.
    Fine,
    /// Worth knowing.
    Note,
    /// It works, with a danger or a cost that its owner should know.
    Warning,
    /// Acknowledged records would not be safe there.
    Refusal,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// How bad it is.
    pub(crate) level: Level,
    /// Its short name, for machines.
    pub(crate) check: &'static str,
    /// What was found.
    pub(crate) what: String,
    /// What to do about it; empty where nothing is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) advice: String,
}

impl Finding {
    pub(super) fn new(level: Level, check: &'static str, what: impl Into<String>) -> Self {
        Self {
            level,
            check,
            what: what.into(),
            advice: String::new(),
        }
    }

    pub(super) fn fine(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(Level::Fine, check, what)
    }

    pub(super) fn note(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(Level::Note, check, what)
    }

    pub(super) fn warning(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(Level::Warning, check, what)
    }

    pub(super) fn refusal(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(Level::Refusal, check, what)
    }

    /// The same with a way out.
    pub(super) fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.advice.is_empty() {
            return Ok(());
        }
        write!(f, ". {}", self.advice)
    }
}

/// Everything about one directory.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// The directory as it was asked for, made absolute.
    #[serde(serialize_with = "lossy")]
    pub(super) dir: PathBuf,
    /// What it stands on; `None` where the system does not say.
    pub(super) mount: Option<Mount>,
    /// How much there is left.
    pub(super) space: Option<Space>,
    /// What an fsync takes.
    pub(super) fsync: Option<Latencies>,
    /// All findings, in the order of the checks.
    pub(super) findings: Vec<Finding>,
    /// What the packaged unit needs to be told; empty below its own directory.
    pub(super) drop_in: String,
}

impl Report {
    /// The worst of the findings.
    pub(super) fn level(&self) -> Level {
        let levels = self.findings.iter().map(|finding| finding.level);
        levels.max().unwrap_or(Level::Fine)
    }

    /// In a word, for machines.
    fn verdict(&self) -> &'static str {
        match self.level() {
            Level::Fine | Level::Note => "fit",
            Level::Warning => "fitWithWarnings",
            Level::Refusal => "unfit",
        }
    }

    /// One line of JSON.
    pub(super) fn json(&self) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Whole<'a> {
            verdict: &'static str,
            #[serde(flatten)]
            report: &'a Report,
        }
        serde_json::to_string(&Whole {
            verdict: self.verdict(),
            report: self,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.dir.display())?;
        for finding in &self.findings {
            let word = match finding.level {
                Level::Fine => "  ok      ",
                Level::Note => "  note    ",
                Level::Warning => "  WARNING ",
                Level::Refusal => "  REFUSED ",
            };
            writeln!(f, "{word}{}: {}", finding.check, finding.what)?;
            if !finding.advice.is_empty() {
                writeln!(f, "            {}", finding.advice)?;
            }
        }
        if !self.drop_in.is_empty() {
            writeln!(
                f,
                "\n  The packaged service needs to know of this directory: `systemctl edit seawall`, and enter\n"
            )?;
            for line in self.drop_in.lines() {
                writeln!(f, "{}", format!("      {line}").trim_end())?;
            }
            writeln!(f)?;
        }
        f.write_str(match self.level() {
            Level::Fine | Level::Note => "Verdict: fit for data that must not be lost.",
            Level::Warning => "Verdict: usable; read the warnings first.",
            Level::Refusal => {
                "Verdict: NOT FIT. What is acknowledged there may be lost; see REFUSED above."
            }
        })
    }
}
