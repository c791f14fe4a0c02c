//! The crash test: write and say what is durable; after the power cut, see whether it is.
//!
//! Owns:     the lines of a run, and the comparison.
//! Does not: write a log (`crash_log`).
//!
//! A run prints `run ID BOOT DIR`, then `ack OFFSET CRC` for every batch after the fsync that made it durable, so that another
//! machine can keep the lines: `ssh box seawall doctor /mnt/data --crash-test > acks`. The power is cut at any time. What a
//! check reads is what the broker's own recovery finds. In the same boot (`BOOT`, the kernel's id of it) that may come from
//! the page cache, and only a filer can have lost its power.
use super::crash_log::{Ack, CrashLog, CrashTestError, folder, open};
use super::{contents, mounts, space};
use crate::cluster::HostFacts;
use crate::tools::{Verdict, not_written};
use seawall_storage::{BatchHeader, Offset, ReadError, ReadSpec, ReadView};
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A run that nobody interrupts ends here, or where half of what was free is used: others need room, too.
const RUN_BYTES_MAX: u64 = 8 << 30;
/// Told one by one; the rest is counted.
const SHOWN_MAX: u64 = 20;

/// Writes until `length` is over, the disk refuses, or the power is cut.
pub(super) fn run(dir: &Path, length: Duration) -> Verdict {
    if let Some(why) = contents::taken(dir) {
        eprintln!("seawall: {}: {why}", dir.display());
        return Verdict::NotRun;
    }
    let run = Uuid::new_v4();
    eprintln!(
        "seawall: writing to {}; cut the power now",
        folder(dir, run).display()
    );
    match write(dir, run, length) {
        Ok(()) => {
            eprintln!(
                "seawall: ended after its time, or for want of room; the power is to be cut while it runs"
            );
            Verdict::Clean
        }
        Err(Ended::Output(error)) => not_written(&error),
        Err(Ended::Test(error)) => {
            eprintln!("seawall: {}: {error}", dir.display());
            Verdict::NotRun
        }
    }
}

enum Ended {
    Output(io::Error),
    Test(CrashTestError),
}

fn write(dir: &Path, run: Uuid, length: Duration) -> Result<(), Ended> {
    let room = space::space(dir).map_err(|error| Ended::Test(error.into()))?;
    let bytes_max = (room.free_bytes() / 2).min(RUN_BYTES_MAX);
    let mut log = CrashLog::create(dir, run).map_err(Ended::Test)?;
    let mut out = io::stdout().lock();
    let boot = this_boot();
    writeln!(out, "run {run} {boot} {}", dir.display()).map_err(Ended::Output)?;
    let started = Instant::now();
    while started.elapsed() < length && log.bytes() < bytes_max {
        let acks = log.group().map_err(Ended::Test)?;
        tell(&mut out, &acks).map_err(Ended::Output)?;
    }
    Ok(())
}

/// The kernel's id of this boot; none where it tells none.
fn this_boot() -> Uuid {
    HostFacts::read().boot_id.parse().unwrap_or_default()
}

/// One write for a group, so that a line is not held back in this process when the power goes.
fn tell(out: &mut impl Write, acks: &[Ack]) -> io::Result<()> {
    let lines: String = acks
        .iter()
        .map(|ack| format!("ack {} {:08x}\n", ack.offset, ack.crc))
        .collect();
    out.write_all(lines.as_bytes())?;
    out.flush()
}

/// Compares what was acknowledged with what is there.
pub(super) fn check(dir: &Path, lines: &Path) -> Verdict {
    let told = match read_lines(lines) {
        Ok(told) => told,
        Err(error) => {
            eprintln!("seawall: {}: {error}", lines.display());
            return Verdict::NotRun;
        }
    };
    match compare(dir, &told) {
        Ok(()) => passed(dir, &told),
        Err(loss) => {
            println!("LOST: {loss}");
            let folder = folder(dir, told.run);
            if folder.exists() {
                println!(
                    "{} stays as it is, for whoever looks into this.",
                    folder.display()
                );
            }
            Verdict::Damage
        }
    }
}

fn passed(dir: &Path, told: &Told) -> Verdict {
    println!(
        "All {} acknowledged batches are there, byte for byte.",
        told.acks.len()
    );
    if told.acks.is_empty() {
        println!("That proves nothing: let it run for longer before the cut.");
        return Verdict::NotRun;
    }
    if told.boot == this_boot() {
        println!(
            "This machine runs as it did when they were written: that proves nothing, unless the power of a filer was cut meanwhile."
        );
        let mount = mounts::mount_of(dir).ok().flatten();
        if !mount.is_some_and(|mount| mount.is_nfs()) {
            let folder = folder(dir, told.run);
            println!("{} stays, for a check after a cut.", folder.display());
            return Verdict::NotRun;
        }
    }
    let folder = folder(dir, told.run);
    if let Err(error) = fs::remove_dir_all(&folder) {
        eprintln!(
            "seawall: {} could not be removed: {error}",
            folder.display()
        );
    }
    Verdict::Clean
}

/// What a run said.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    run: Uuid,
    boot: Uuid,
    acks: Vec<Ack>,
}

/// Why the lines are not those of a run.
#[derive(Debug)]
enum LinesError {
    Io(io::Error),
    NoRun,
    Line(usize),
}

impl fmt::Display for LinesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NoRun => {
                f.write_str("the first line is not one of a crash test (run ID BOOT DIR)")
            }
            Self::Line(number) => write!(
                f,
                "line {number} is not one of a crash test (ack OFFSET CRC)"
            ),
        }
    }
}

fn read_lines(path: &Path) -> Result<Told, LinesError> {
    if path == Path::new("-") {
        return parse(io::stdin().lock());
    }
    parse(BufReader::new(
        fs::File::open(path).map_err(LinesError::Io)?,
    ))
}

/// A last line without its end was cut with the power, and says nothing.
fn parse(mut input: impl BufRead) -> Result<Told, LinesError> {
    let mut next = || {
        let mut line = String::new();
        input.read_line(&mut line).map_err(LinesError::Io)?;
        Ok(line
            .strip_suffix('\n')
            .map(|line| line.trim_end_matches('\r').to_owned()))
    };
    let first = next()?.ok_or(LinesError::NoRun)?;
    let mut ids = first.strip_prefix("run ").map(|rest| rest.split(' '));
    let mut id = || ids.as_mut()?.next()?.parse().ok();
    let (run, boot) = id().zip(id()).ok_or(LinesError::NoRun)?;
    let mut acks = Vec::new();
    while let Some(line) = next()? {
        acks.push(ack(&line).ok_or(LinesError::Line(acks.len() + 2))?);
    }
    Ok(Told { run, boot, acks })
}

fn ack(line: &str) -> Option<Ack> {
    let (offset, crc) = line.strip_prefix("ack ")?.split_once(' ')?;
    Some(Ack {
        offset: Offset(offset.parse().ok()?),
        crc: u32::from_str_radix(crc, 16).ok()?,
    })
}

/// What is missing.
#[derive(Debug)]
enum Loss {
    Folder(PathBuf),
    Open(seawall_storage::OpenError),
    Batches { lost: u64, of: usize, first: String },
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "{} is gone with everything in it", path.display()),
            Self::Open(error) => write!(f, "the log cannot be opened: {error}"),
            Self::Batches { lost, of, first } => {
                write!(f, "{lost} of {of} acknowledged batches. {first}")
            }
        }
    }
}

fn compare(dir: &Path, told: &Told) -> Result<(), Loss> {
    let folder = folder(dir, told.run);
    if !folder.exists() {
        return Err(Loss::Folder(folder));
    }
    let view = open(dir, told.run).map_err(Loss::Open)?.read_view();
    let (mut lost, mut first) = (0, String::new());
    for ack in &told.acks {
        if let Err(why) = look_up(&view, ack) {
            lost += 1;
            if lost <= SHOWN_MAX {
                println!("offset {}: {why}", ack.offset);
            }
            if first.is_empty() {
                first = format!("The log ends at offset {}", view.end_offset());
            }
        }
    }
    let of = told.acks.len();
    if lost == 0 {
        Ok(())
    } else {
        Err(Loss::Batches { lost, of, first })
    }
}

fn look_up(view: &ReadView, ack: &Ack) -> Result<(), String> {
    let found = view.read(&ReadSpec {
        from: ack.offset,
        upto: view.end_offset(),
        max_bytes: 1,
        at_least_one: true,
        gaps: true,
        check_crc: true,
    });
    let batches = match found {
        Ok(batches) => batches,
        Err(ReadError::OutOfRange { .. }) => return Err("gone".into()),
        Err(error) => return Err(error.to_string()),
    };
    match BatchHeader::peek(&batches.bytes) {
        Some(header) if header.base_offset == ack.offset && header.crc == ack.crc => Ok(()),
        Some(_) => Err("another batch stands there".into()),
        None => Err("gone".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str =
        "run 67e55044-10b1-426f-9247-bb680e5fe0c8 a3bb189e-8bf9-4c4f-9d3a-5d2f8c1b7e60 /mnt/a b\n";

    #[test]
    fn lines_are_read_up_to_the_one_that_was_cut() {
        let told =
            parse(format!("{RUN}ack 0 0000000f\nack 1 ffffffff\nack 2 0").as_bytes()).unwrap();
        let ack = |offset, crc| Ack {
            offset: Offset(offset),
            crc,
        };
        assert_eq!(told.acks, [ack(0, 15), ack(1, u32::MAX)]);
        for bad in [
            "",
            "run x /\n",
            "run 67e55044-10b1-426f-9247-bb680e5fe0c8 /mnt\n",
            "ack 0 1\n",
            &format!("{RUN}ack 0\n"),
            &format!("{RUN}hello\nack 0 1\n"),
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_whole_log_passes_and_any_loss_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let run = Uuid::new_v4();
        let mut log = CrashLog::create(dir.path(), run).unwrap();
        let mut acks = Vec::new();
        while acks.len() < 100 {
            acks.extend(log.group().unwrap());
        }
        drop(log);
        let boot = Uuid::nil();
        let mut told = Told { run, boot, acks };
        compare(dir.path(), &told).unwrap();
        told.acks[50].crc ^= 1;
        assert!(matches!(
            compare(dir.path(), &told),
            Err(Loss::Batches { lost: 1, .. })
        ));
        told.acks[50].crc ^= 1;
        let next = Offset(i64::try_from(told.acks.len()).unwrap());
        told.acks.push(Ack {
            offset: next,
            crc: 0,
        });
        assert!(matches!(
            compare(dir.path(), &told),
            Err(Loss::Batches { lost: 1, .. })
        ));
        fs::remove_dir_all(folder(dir.path(), run)).unwrap();
        assert!(matches!(compare(dir.path(), &told), Err(Loss::Folder(_))));
    }
}
