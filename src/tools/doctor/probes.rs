//! Whether the file system does what the broker builds on, tried out in a directory of its own that is removed again.
//!
//! Owns:     the probes and their directory.
//! Does not: measure (`fsync`) or know kinds of file systems (`substrate`).
use super::finding::Finding;
use super::interrupt;
use crate::cluster::{root, try_lock};
use nix::errno::Errno;
use seawall_storage::disk::{Disk, RealDisk};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// A reader looks this often, or more, while names are changed under it.
const RENAMES: usize = 300;
/// A server's clock may be this far from ours before somebody wonders.
const SKEW_MAX_S: u64 = 5;
/// A doctor is done within a minute, and clocks of filers are hours off at worst.
const LEFT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// A directory for probes; gone when this is dropped, whatever the probes left, and when a signal ends the process.
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes it in `dir`, by a name that a broker there knows not to touch and that nobody else has: process ids are
    /// the same in many containers. What earlier doctors had to leave goes.
    pub(super) fn new(dir: &Path) -> io::Result<Self> {
        sweep(dir, SystemTime::now());
        let path = dir.join(format!("{}{}", prefix(), Uuid::new_v4()));
        interrupt::remove_at_signals(&path)?;
        fs::create_dir(&path)?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn prefix() -> String {
    format!("{}doctor-", root::PROBE_PREFIX)
}

/// Removes the directories of doctors that were killed. Those that run may need theirs. What cannot be removed stays.
fn sweep(dir: &Path, now: SystemTime) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(&prefix());
        if ours && entry.metadata().is_ok_and(|found| is_left(&found, now)) {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

fn is_left(found: &Metadata, now: SystemTime) -> bool {
    let age = found.modified().map(|then| now.duration_since(then));
    found.is_dir() && matches!(age, Ok(Ok(age)) if age > LEFT_AFTER)
}

impl Drop for Scratch {
    fn drop(&mut self) {
        interrupt::wait_if_ending();
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!(
                "seawall: {} could not be removed: {error}",
                self.path.display()
            );
        }
    }
}

/// One probe: its name for machines, what it shows, and what it does.
struct Probe {
    check: &'static str,
    promise: &'static str,
    run: fn(&Path) -> io::Result<Result<(), String>>,
}

const PROBES: &[Probe] = &[
    Probe {
        check: "exclusive",
        promise: "a file that exists is not created again (O_EXCL)",
        run: exclusive,
    },
    Probe {
        check: "rename",
        promise: "a rename replaces a file at once for its readers",
        run: rename,
    },
    Probe {
        check: "readBack",
        promise: "what is written is read back through a fresh open",
        run: read_back,
    },
    Probe {
        check: "unlinked",
        promise: "an open file can be read after it is unlinked",
        run: unlinked,
    },
    Probe {
        check: "directorySync",
        promise: "names can be synced (fsync of a directory)",
        run: directory_sync,
    },
];

/// Runs all of them, in order.
pub(super) fn probe(scratch: &Scratch) -> Vec<Finding> {
    let dir = scratch.path();
    let mut found: Vec<Finding> = PROBES.iter().map(|probe| run(probe, dir)).collect();
    found.push(lock(dir));
    found.extend(server_clock(dir));
    found
}

fn run(probe: &Probe, dir: &Path) -> Finding {
    match (probe.run)(dir) {
        Ok(Ok(())) => Finding::fine(probe.check, probe.promise),
        Ok(Err(seen)) => {
            Finding::refusal(probe.check, format!("not so: {}; {seen}", probe.promise))
        }
        Err(error) => Finding::refusal(
            probe.check,
            format!("could not be tried: {}; {error}", probe.promise),
        ),
    }
}

fn exclusive(dir: &Path) -> io::Result<Result<(), String>> {
    let path = dir.join("exclusive");
    File::create_new(&path)?;
    Ok(match File::create_new(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(format!("the second attempt ended with: {error}")),
        Ok(_) => Err("it was created twice".into()),
    })
}

/// One thread renames new files onto a name, another one opens and reads it all the time: it must always find one of them,
/// whole.
fn rename(dir: &Path) -> io::Result<Result<(), String>> {
    let (target, fresh) = (dir.join("renamed"), dir.join("fresh"));
    fs::write(&target, text(0))?;
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| watch(&target, &done));
        let renamed = (1..=RENAMES).try_for_each(|number| {
            fs::write(&fresh, text(number))?;
            RealDisk.rename(&fresh, &target)
        });
        done.store(true, Ordering::Release);
        let seen = reader
            .join()
            .unwrap_or_else(|_| Err("the reader panicked".into()));
        renamed?;
        if fs::read_to_string(&target)? != text(RENAMES) {
            return Ok(Err("the last one is not the one that is there".into()));
        }
        Ok(seen)
    })
}

/// The contents by number; all have one length.
fn text(number: usize) -> String {
    format!("{number:08}").repeat(64)
}

fn watch(target: &Path, done: &AtomicBool) -> Result<(), String> {
    while !done.load(Ordering::Acquire) {
        let seen = fs::read_to_string(target).map_err(|error| format!("a reader got: {error}"))?;
        let number = seen.get(..8).and_then(|digits| digits.parse().ok());
        if number.is_none_or(|number: usize| text(number) != seen) {
            return Err(format!("a reader found {} bytes of no version", seen.len()));
        }
    }
    Ok(())
}

fn read_back(dir: &Path) -> io::Result<Result<(), String>> {
    let path = dir.join("back");
    let mut file = File::create_new(&path)?;
    file.write_all(text(7).as_bytes())?;
    file.sync_data()?;
    file.set_len(9)?;
    file.set_len(12)?;
    let seen = fs::read(&path)?;
    let good = seen == b"000000070\0\0\0";
    Ok(good.then_some(()).ok_or_else(|| format!("read {seen:?}")))
}

fn unlinked(dir: &Path) -> io::Result<Result<(), String>> {
    let path = dir.join("unlinked");
    fs::write(&path, text(3))?;
    let mut file = File::open(&path)?;
    RealDisk.remove_file(&path)?;
    let mut seen = String::new();
    let read = file.read_to_string(&mut seen);
    let good = read.is_ok() && seen == text(3);
    Ok(good
        .then_some(())
        .ok_or_else(|| format!("read {} bytes, {read:?}", seen.len())))
}

fn directory_sync(dir: &Path) -> io::Result<Result<(), String>> {
    RealDisk.sync_dir(dir).map(Ok)
}

/// Without locks the owner files still keep a second broker out, a little later.
fn lock(dir: &Path) -> Finding {
    const CHECK: &str = "lock";
    let path = dir.join("lock");
    let open = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
    };
    let (first, second) = match (open(), open()) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(error), _) | (_, Err(error)) => {
            return Finding::refusal(CHECK, format!("no file to lock: {error}"));
        }
    };
    match (try_lock(&first), try_lock(&second)) {
        (Ok(()), Err(Errno::EAGAIN | Errno::EACCES)) => {
            Finding::fine(CHECK, "a lock keeps a second one out (OFD lock)")
        }
        (Ok(()), Ok(())) => Finding::refusal(CHECK, "two locks on one file were both granted"),
        (Ok(()), Err(errno)) | (Err(errno), _) => {
            let what =
                format!("no lock can be had: {errno}; only owner files keep a second broker out");
            Finding::warning(CHECK, what)
                .advice("Mount with locks; for NFSv3, rpc.statd must run on both sides")
        }
    }
}

/// Files are stamped by whoever keeps them.
fn server_clock(dir: &Path) -> Option<Finding> {
    let path = dir.join("clock");
    let stamped = File::create_new(&path).and_then(|mut file| {
        file.write_all(b"x")?;
        file.sync_all()?;
        fs::metadata(&path)?.modified()
    });
    let now = SystemTime::now();
    let stamped = stamped.ok()?;
    let apart = now
        .duration_since(stamped)
        .unwrap_or_else(|error| error.duration())
        .as_secs();
    (apart > SKEW_MAX_S).then(|| {
        Finding::note(
            "serverClock",
            format!("this machine's clock and the file system's are {apart} s apart"),
        )
        .advice("Run NTP on both, or the age of segments is wrong after a restart")
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_good_directory_passes_and_nothing_is_left_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let found = probe(&Scratch::new(dir.path()).unwrap());
        assert!(found.iter().all(|f| f.level == Level::Fine), "{found:?}");
        assert_eq!(found.len(), PROBES.len() + 1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn doctors_in_one_directory_do_not_meet_and_old_leftovers_go() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join(".probe-doctor-7");
        fs::create_dir_all(left.join("in it")).unwrap();
        fs::write(dir.path().join(".probe-doctor-file"), "").unwrap();
        fs::create_dir(dir.path().join(".probe-crash-test-7")).unwrap();
        let names = || fs::read_dir(dir.path()).unwrap().count();
        let (one, other) = (Scratch::new(dir.path()), Scratch::new(dir.path()));
        assert_eq!((one.is_ok(), other.is_ok(), names()), (true, true, 5));
        let later = SystemTime::now() + 2 * LEFT_AFTER;
        sweep(dir.path(), later);
        assert!(!left.exists());
        assert_eq!(names(), 2, "what is no directory of a doctor stays");
    }

    #[test]
    fn a_reader_that_sees_half_a_file_is_heard() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("x");
        fs::write(&target, &text(5)[..100]).unwrap();
        assert!(watch(&target, &AtomicBool::new(false)).is_err());
        fs::remove_file(&target).unwrap();
        assert!(watch(&target, &AtomicBool::new(false)).is_err());
    }
}
