//! `seawall verify`: is everything on disk what was written?
//!
//! Owns:     which partitions are looked at, the second look, the exit status.
//! Does not: know the files (`cluster::inspect` and `seawall_storage::inspect` do).
//!
//! # Invariants
//! V1. Damage is told only if a second look finds it again: a broker that lives in the same directories may replace a
//!     file between two reads.
use super::report::{Line, Progress, Report};
use super::{Verdict, not_written};
use crate::cluster::Places;
use crate::cluster::inspect::{ClusterLook, PartitionPlace, StateFolder, look};
use crate::config::{CommandLine, Config};
use crate::groups::file as group_files;
use clap::Args;
use seawall_storage::disk::{Disk, RealDisk};
use seawall_storage::inspect::{InspectOptions, PartitionFacts, Severity, inspect_partition};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Lines kept of one partition: a file that is damaged everywhere is known to be.
const LINES_MAX: usize = 1000;

/// The options of `seawall verify`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct VerifyArgs {
    /// The configuration file of the broker; its log.dirs and cluster.dir are looked at.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the data is, if not where the configuration says.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Print JSON, one object per line.
    #[arg(long)]
    json: bool,
    /// Look only at these topics, or partitions of them.
    #[arg(value_name = "TOPIC[-PARTITION]")]
    only: Vec<String>,
}

/// Looks at everything and says how it is.
pub(crate) fn verify(args: VerifyArgs) -> Verdict {
    let line = CommandLine {
        file: args.config,
        data_dir: args.data_dir,
        ..CommandLine::default()
    };
    let config = match Config::load_for_tool(&line) {
        Ok(config) => config,
        Err(error) => return not_run(&error),
    };
    let out = BufWriter::new(io::stdout().lock());
    let mut run = Run {
        disk: &RealDisk,
        config: &config,
        only: &args.only,
        report: Report::new(out, args.json),
        progress: Progress::new(),
    };
    run.run().unwrap_or_else(|error| not_written(&error))
}

fn not_run(error: &dyn std::fmt::Display) -> Verdict {
    eprintln!("seawall verify: {error}");
    Verdict::NotRun
}

/// State of other parts in `cluster.dir`.
const STATE_FOLDERS: &[StateFolder] = &[
    StateFolder {
        name: group_files::DIR,
        load: group_files::check,
    },
    StateFolder {
        name: crate::txn::DIR,
        load: crate::txn::check_file,
    },
];

struct Run<'a, W: Write> {
    disk: &'a dyn Disk,
    config: &'a Config,
    only: &'a [String],
    report: Report<W>,
    progress: Progress,
}

impl<W: Write> Run<'_, W> {
    /// The error: the output cannot be written.
    fn run(&mut self) -> io::Result<Verdict> {
        let places = Places {
            log_dirs: self.config.log_dirs.clone(),
            cluster_dir: self.config.cluster_dir.clone(),
        };
        let again = || look(self.disk, &places, &self.config.settings, STATE_FOLDERS);
        let found = match again() {
            Ok(found) => found,
            Err(error) => return Ok(not_run(&error)),
        };
        let mut lines = cluster_lines(&found);
        if lines.iter().any(|line| line.is_damage) {
            match again() {
                Ok(second) => lines = confirmed(&lines, cluster_lines(&second)),
                Err(error) => return Ok(not_run(&error)),
            }
        }
        let partitions = match select(&found, self.only) {
            Ok(partitions) => partitions,
            Err(unknown) => return Ok(not_run(&format_args!("no topic or partition {unknown}"))),
        };
        self.cluster(&found, &partitions, &lines)?;
        for place in partitions {
            self.partition(place)?;
        }
        self.progress.clear();
        self.report.summary()?;
        Ok(match self.report.totals.damage {
            0 => Verdict::Clean,
            _ => Verdict::Damage,
        })
    }

    /// What was found outside of partitions; where only some were asked for, only what concerns them.
    fn cluster(
        &mut self,
        found: &ClusterLook,
        partitions: &[&PartitionPlace],
        lines: &[Line],
    ) -> io::Result<()> {
        let topics: BTreeSet<&str> = partitions.iter().map(|p| p.topic.as_str()).collect();
        self.report.totals.topics = match self.only {
            [] => u64::try_from(found.topics.len()).unwrap_or(u64::MAX),
            _ => u64::try_from(topics.len()).unwrap_or(u64::MAX),
        };
        self.report.totals.files = found.files;
        let concerns = |line: &&Line| {
            let mut names = line.file.iter().filter_map(|part| part.to_str());
            self.only.is_empty()
                || names.any(|name| topics.contains(name.strip_suffix(".json").unwrap_or(name)))
        };
        let told: Vec<&Line> = lines.iter().filter(concerns).collect();
        told.into_iter().try_for_each(|line| self.report.line(line))
    }

    fn partition(&mut self, place: &PartitionPlace) -> io::Result<()> {
        let (mut facts, mut lines) = self.inspect(place);
        if lines.iter().any(|line| line.is_damage) {
            let (second_facts, second) = self.inspect(place);
            lines = confirmed(&lines, second);
            facts = second_facts;
        }
        self.progress.clear();
        let totals = &mut self.report.totals;
        totals.partitions += 1;
        totals.files += facts.files;
        totals.batches += facts.batches;
        totals.bytes += facts.bytes;
        lines.iter().try_for_each(|line| self.report.line(line))
    }

    fn inspect(&mut self, place: &PartitionPlace) -> (PartitionFacts, Vec<Line>) {
        let progress = RefCell::new(&mut self.progress);
        let options = InspectOptions {
            topic_id: Some(place.id),
            partition: place.partition,
            recovered_this_boot: place.recovered_this_boot,
            progress: &|bytes| progress.borrow_mut().add(bytes, &place.dir),
        };
        let mut lines = Vec::new();
        let mut left_out = 0_u64;
        let inspected = inspect_partition(self.disk, &place.dir, &options, &mut |finding| {
            if lines.len() >= LINES_MAX {
                left_out += 1;
                return;
            }
            lines.push(Line {
                is_damage: finding.severity == Severity::Damage,
                file: place.dir.join(&finding.file),
                position: finding.position.map(|p| p.0),
                offset: finding.offset.map(|o| o.0),
                what: finding.what.to_string(),
            });
        });
        if left_out > 0 {
            lines.push(whole_dir(place, false, "there is more of this"));
        }
        let facts = inspected.unwrap_or_else(|error| {
            let what = format!("cannot be listed: {error}");
            lines.push(whole_dir(place, true, &what));
            PartitionFacts::default()
        });
        (facts, lines)
    }
}

fn whole_dir(place: &PartitionPlace, is_damage: bool, what: &str) -> Line {
    Line {
        is_damage,
        file: place.dir.clone(),
        position: None,
        offset: None,
        what: what.to_owned(),
    }
}

fn cluster_lines(look: &ClusterLook) -> Vec<Line> {
    let line = |finding: &crate::cluster::inspect::ClusterFinding| Line {
        is_damage: finding.is_damage,
        file: finding.path.clone(),
        position: None,
        offset: None,
        what: finding.what.to_string(),
    };
    let mut lines: Vec<Line> = look.findings.iter().map(line).collect();
    // A directory that cannot be read is found once for each purpose.
    lines.dedup();
    lines
}

/// The second look's notes, and the damage that the first look has seen at the same place (V1).
fn confirmed(first: &[Line], second: Vec<Line>) -> Vec<Line> {
    let seen: BTreeSet<_> = first
        .iter()
        .filter(|line| line.is_damage)
        .map(|line| (&line.file, line.position, line.offset))
        .collect();
    let is_seen = |line: &Line| seen.contains(&(&line.file, line.position, line.offset));
    second
        .into_iter()
        .filter(|line| !line.is_damage || is_seen(line))
        .collect()
}

/// The partitions that were asked for; all without a word. A topic's full name beats topic and partition. The error: what
/// does not exist.
fn select<'a>(look: &'a ClusterLook, only: &[String]) -> Result<Vec<&'a PartitionPlace>, String> {
    let mut picked = Vec::new();
    for word in only {
        let is_topic = look.topics.iter().any(|topic| topic.as_str() == word);
        let of = |place: &&PartitionPlace| {
            let topic = place.topic.as_str();
            if is_topic {
                topic == word
            } else {
                format!("{topic}-{}", place.partition) == *word
            }
        };
        let before = picked.len();
        picked.extend(look.partitions.iter().filter(of));
        if picked.len() == before && !is_topic {
            return Err(word.clone());
        }
    }
    if only.is_empty() {
        picked = look.partitions.iter().collect();
    }
    Ok(picked)
}
