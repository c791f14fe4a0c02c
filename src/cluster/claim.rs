//! One broker per directory: taking a directory, showing that we live, and knowing when the claim has grown old.
//!
//! Owns:     the lock on `.lock`, our owner file, the `owner-<dir>` thread of a directory on a shared file system.
//! Does not: know what lies in the directory.
//!
//! On a local file system the lock decides, and nothing beats. On any other, a claim is fresh for 15 s from the start
//! of the last beat that came back, and nobody takes a directory over whose beat has not stood still for 30 s (6.6).
//!
//! # Invariants
//! W1. `fresh_until` is moved on only by a beat that began while the claim was fresh, or after this process has made
//!     the next owner file: O_EXCL asks the server, where a look at the directory may be answered from a cache.
//! W2. Once lost, never fresh again.
//!
//! Threads: `open`, `set_recovered`, `release` block on I/O. `is_fresh` takes no lock and does no I/O.
use super::dir_lock::{Lock, is_local, take_lock, try_lock};
use super::names::root;
use super::owner_file::{self, HostFacts, OwnerRecord};
use super::stop::StopSignal;
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;
use seawall_storage::disk::is_no_space;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long things take. Tests shorten them; the proportions stay.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnerTiming {
    /// Between two beats.
    pub(crate) beat: Duration,
    /// How long a beat must stand still before the directory is taken over.
    pub(crate) stand_still: Duration,
    /// How long a claim is fresh from the start of a beat.
    pub(crate) fresh: Duration,
    /// Between two looks at another owner's beat.
    pub(crate) look: Duration,
}

impl Default for OwnerTiming {
    fn default() -> OwnerTiming {
        OwnerTiming {
            beat: Duration::from_secs(5),
            stand_still: Duration::from_secs(30),
            fresh: Duration::from_secs(15),
            look: Duration::from_secs(1),
        }
    }
}

/// What a claim needs to know from outside.
#[derive(Clone)]
pub(crate) struct ClaimOptions {
    /// This machine and process.
    pub(crate) facts: HostFacts,
    /// How long things take.
    pub(crate) timing: OwnerTiming,
    /// Ends waiting for another owner.
    pub(crate) stop: Arc<StopSignal>,
    /// Called once, from the `owner-*` thread, when the directory is another's: the process must exit.
    pub(crate) on_lost: Arc<dyn Fn(&Path) + Send + Sync>,
    /// Treats every file system as shared (tests).
    pub(crate) always_shared: bool,
}

/// Why a directory is not ours. Nothing was changed, apart from the empty file `.lock` in a new directory.
#[derive(Debug)]
pub(crate) enum ClaimError {
    /// A broker that lives has it.
    Owned {
        /// The directory.
        dir: PathBuf,
        /// Who, if that can be read.
        owner: Option<OwnerRecord>,
    },
    /// The system refused.
    Io {
        /// The directory.
        dir: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// We were told to stop while waiting for the last owner's beat to stand still.
    Stopped {
        /// The directory.
        dir: PathBuf,
    },
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimError::Owned {
                dir,
                owner: Some(owner),
            } => {
                write!(
                    f,
                    "{} is in use by {owner}; one broker per directory",
                    dir.display()
                )
            }
            ClaimError::Owned { dir, owner: None } => {
                write!(
                    f,
                    "{} is in use by another process; one broker per directory",
                    dir.display()
                )
            }
            ClaimError::Io { dir, source } => {
                write!(f, "cannot take {} into use: {source}", dir.display())
            }
            ClaimError::Stopped { dir } => {
                write!(
                    f,
                    "told to stop while waiting for the last owner of {} to be provably gone",
                    dir.display()
                )
            }
        }
    }
}

impl std::error::Error for ClaimError {}

/// How the last owner left a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Predecessor {
    /// It stopped cleanly: checkpoints stand at the ends of logs.
    pub(crate) stopped_cleanly: bool,
    /// It ran in this boot and every partition had been through recovery: only a process has died since (DESIGN 7).
    pub(crate) recovered_this_boot: bool,
}

/// A directory that is ours.
pub(crate) struct DirClaim {
    dir: PathBuf,
    predecessor: Predecessor,
    on_shared_fs: bool,
    well: AtomicBool,
    /// Bytes free on its file system, when it was last looked; 0 before that.
    free_bytes: AtomicU64,
    shared: Arc<Shared>,
    beating: Mutex<Option<Beating>>,
}

struct Beating {
    stop: Arc<StopSignal>,
    ended: crossbeam_channel::Receiver<()>,
}

/// What the claim and its thread have in common.
struct Shared {
    dir: PathBuf,
    options: ClaimOptions,
    /// On the boot-time clock, in ms; `u64::MAX` where the lock decides.
    fresh_until_ms: AtomicU64,
    lost: AtomicBool,
    /// Rank: after every other lock of the broker; held over I/O, taken by nobody who must not wait.
    own: Mutex<Own>,
}

struct Own {
    n: u64,
    /// `None` after an error: opened anew before the next write.
    file: Option<File>,
    record: OwnerRecord,
    /// Held until the claim is dropped.
    lock: File,
}

impl fmt::Debug for DirClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirClaim")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl DirClaim {
    /// Takes an existing directory. `name` ends the name of its thread. On a shared file system this may wait for
    /// half a minute; it says so in the log.
    pub(crate) fn open(
        dir: &Path,
        name: &str,
        options: &ClaimOptions,
    ) -> Result<DirClaim, ClaimError> {
        let lock = take_lock(dir)?;
        let numbers = owner_file::numbers(dir).map_err(io_at(dir))?;
        let last = numbers.iter().copied().max();
        let record = match last {
            Some(n) => owner_file::read(dir, n).map_err(io_at(dir))?,
            None => None,
        };
        let shared_fs = options.always_shared || !is_local(dir);
        if let (Some(n), true) = (last, shared_fs) {
            wait_until_gone(dir, n, record.clone(), &lock, options)?;
        }
        let own = begin(dir, last, lock, options)?;
        owner_file::remove_old(dir, &numbers, own.n);
        let started = if shared_fs { now_ms() } else { u64::MAX };
        let shared = Arc::new(Shared::new(dir, options, own, started));
        let beating = shared_fs
            .then(|| start_beating(&shared, name))
            .transpose()
            .map_err(io_at(dir))?;
        let predecessor = predecessor(record.as_ref(), &options.facts);
        Ok(DirClaim {
            dir: dir.to_owned(),
            predecessor,
            on_shared_fs: shared_fs,
            well: AtomicBool::new(true),
            free_bytes: AtomicU64::new(0),
            shared,
            beating: Mutex::new(beating),
        })
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// How the last owner left it.
    pub(crate) fn predecessor(&self) -> Predecessor {
        self.predecessor
    }

    /// Whether partitions in it are well: new ones go where they are.
    pub(crate) fn set_well(&self, well: bool) {
        self.well.store(well, Ordering::Release);
    }

    /// Bytes free on its file system: new partitions go where there is room.
    pub(crate) fn set_free_bytes(&self, bytes: u64) {
        self.free_bytes.store(bytes, Ordering::Relaxed);
    }

    /// See [`DirClaim::set_free_bytes`].
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    /// See [`DirClaim::set_well`].
    pub(crate) fn is_well(&self) -> bool {
        self.well.load(Ordering::Acquire)
    }

    /// Whether its file system is, or may be, one over the network.
    pub(crate) fn is_shared(&self) -> bool {
        self.on_shared_fs
    }

    /// Whether we may write and acknowledge: no other broker can own the directory now (D7). No lock, no I/O.
    pub(crate) fn is_fresh(&self) -> bool {
        self.shared.is_fresh()
    }

    /// Writes whether every partition here is through recovery and none is Failed. Blocks on I/O.
    pub(crate) fn set_recovered(&self, recovered: bool) -> io::Result<()> {
        let mut own = self.shared.own.lock();
        if own.record.recovered == recovered {
            return Ok(());
        }
        own.record.recovered = recovered;
        own.write(&self.dir)
    }

    /// Gives the directory up after a clean stop: the next start need not wait and may trust the checkpoints.
    /// On an error the stop counts as unclean.
    pub(crate) fn release(&self, deadline: Duration) -> io::Result<()> {
        if let Some(beating) = self.beating.lock().take() {
            beating.stop.raise();
            // The thread drops its sender when it ends; nothing is ever sent.
            if beating.ended.recv_timeout(deadline)
                == Err(crossbeam_channel::RecvTimeoutError::Timeout)
            {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        if !self.is_fresh() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut own = self
            .shared
            .own
            .try_lock_for(deadline)
            .ok_or(io::ErrorKind::TimedOut)?;
        own.record.released = true;
        let written = own.write(&self.dir);
        self.shared.fresh_until_ms.store(0, Ordering::Release);
        self.shared.lost.store(true, Ordering::Release);
        written
    }
}

impl Drop for DirClaim {
    fn drop(&mut self) {
        if let Some(beating) = self.beating.lock().take() {
            beating.stop.raise();
        }
    }
}

fn predecessor(record: Option<&OwnerRecord>, facts: &HostFacts) -> Predecessor {
    Predecessor {
        stopped_cleanly: record.is_some_and(|r| r.released),
        recovered_this_boot: record.is_some_and(|r| r.recovered && r.is_of_boot(facts)),
    }
}

pub(super) fn io_at(dir: &Path) -> impl Fn(io::Error) -> ClaimError + '_ {
    |source| ClaimError::Io {
        dir: dir.to_owned(),
        source,
    }
}

/// Waits until the last owner is provably gone: its beat, read through fresh opens, has stood still for long enough
/// of our own clock. Moves twice: it lives. (Once may be the last write of one that died, arriving late.)
fn wait_until_gone(
    dir: &Path,
    n: u64,
    first: Option<OwnerRecord>,
    lock: &Lock,
    options: &ClaimOptions,
) -> Result<(), ClaimError> {
    let mut seen = first;
    let gone = |r: &OwnerRecord| r.released || (lock.held && r.is_of_boot(&options.facts));
    if seen.as_ref().is_some_and(gone) {
        return Ok(());
    }
    let who = seen
        .as_ref()
        .map_or("an unknown owner".to_owned(), ToString::to_string);
    let wait_s = options.timing.stand_still.as_secs();
    log::info!(
        "{} was last used by {who}: waiting {wait_s} s to see whether it is gone",
        dir.display()
    );
    let mut still_since = now_ms();
    let mut moves = 0;
    while now_ms().saturating_sub(still_since) < millis(options.timing.stand_still) {
        if options.stop.wait(options.timing.look) {
            return Err(ClaimError::Stopped {
                dir: dir.to_owned(),
            });
        }
        let now = owner_file::read(dir, n).map_err(io_at(dir))?;
        if now != seen {
            moves += 1;
            still_since = now_ms();
            seen = now;
        }
        if seen.as_ref().is_some_and(|r| r.released) {
            return Ok(());
        }
        if moves >= 2 {
            return Err(ClaimError::Owned {
                dir: dir.to_owned(),
                owner: seen,
            });
        }
    }
    Ok(())
}

/// Makes the next owner file. Whoever else made it was faster.
fn begin(
    dir: &Path,
    last: Option<u64>,
    lock: Lock,
    options: &ClaimOptions,
) -> Result<Own, ClaimError> {
    let n = last.map_or(0, |n| n.saturating_add(1));
    let created = with_reserve(dir, || owner_file::create(dir, n));
    let file = created.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => ClaimError::Owned {
            dir: dir.to_owned(),
            owner: owner_file::read(dir, n).ok().flatten(),
        },
        _ => io_at(dir)(source),
    })?;
    let mut own = Own {
        n,
        file: Some(file),
        record: OwnerRecord::new(&options.facts),
        lock: lock.file,
    };
    with_reserve(dir, || own.write(dir)).map_err(io_at(dir))?;
    File::open(dir)
        .and_then(|d| d.sync_all())
        .map_err(io_at(dir))?;
    Ok(own)
}

/// Tries again without the reserve if there is no space: a full disk can be
/// started from (DESIGN 5).
fn with_reserve<T>(dir: &Path, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match write() {
        Err(error) if is_no_space(&error) => {
            log::warn!("{} is full: its reserve is given up", dir.display());
            // What is not there gives no space; the second try tells.
            drop(std::fs::remove_file(dir.join(root::RESERVE)));
            write()
        }
        other => other,
    }
}

fn start_beating(shared: &Arc<Shared>, name: &str) -> io::Result<Beating> {
    let stop = Arc::new(StopSignal::default());
    let (sender, ended) = crossbeam_channel::bounded::<()>(1);
    let (thread_stop, thread_shared) = (Arc::clone(&stop), Arc::clone(shared));
    std::thread::Builder::new()
        .name(format!("owner-{name}"))
        .spawn(move || {
            while !thread_stop.wait(thread_shared.options.timing.beat) {
                if thread_shared.beat() == Beat::Lost {
                    (thread_shared.options.on_lost)(&thread_shared.dir);
                    break;
                }
            }
            drop(sender);
        })?;
    Ok(Beating { stop, ended })
}

#[derive(Debug, PartialEq, Eq)]
enum Beat {
    Alive,
    NotBack,
    Lost,
}

impl Shared {
    fn new(dir: &Path, options: &ClaimOptions, own: Own, started_ms: u64) -> Shared {
        let fresh_until_ms = started_ms
            .saturating_add(millis(options.timing.fresh))
            .into();
        let lost = AtomicBool::new(false);
        Shared {
            dir: dir.to_owned(),
            options: options.clone(),
            fresh_until_ms,
            lost,
            own: Mutex::new(own),
        }
    }

    fn is_fresh(&self) -> bool {
        let until = self.fresh_until_ms.load(Ordering::Acquire);
        !self.lost.load(Ordering::Acquire) && (until == u64::MAX || now_ms() < until)
    }

    /// One beat. A claim that was not fresh all the time begins anew as the next owner (W1).
    fn beat(&self) -> Beat {
        let started = now_ms();
        let mut own = self.own.lock();
        own.record.beat = own.record.beat.wrapping_add(1);
        if let Err(error) = own.write(&self.dir) {
            log::warn!(
                "cannot show that this broker owns {}: {error}",
                self.dir.display()
            );
            own.file = None;
            return Beat::NotBack;
        }
        if self.is_fresh() {
            self.publish(started);
            return Beat::Alive;
        }
        self.begin_anew(&mut own)
    }

    fn begin_anew(&self, own: &mut Own) -> Beat {
        if matches!(try_lock(&own.lock), Err(Errno::EAGAIN | Errno::EACCES)) {
            return self.lose();
        }
        let started = now_ms();
        let next = own.n.saturating_add(1);
        match owner_file::create(&self.dir, next) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return self.lose(),
            Err(error) => {
                log::warn!("cannot take {} into use again: {error}", self.dir.display());
                return Beat::NotBack;
            }
            Ok(file) => (own.n, own.file) = (next, Some(file)),
        }
        if let Err(error) = own.write(&self.dir) {
            log::warn!("cannot take {} into use again: {error}", self.dir.display());
            own.file = None;
            return Beat::NotBack;
        }
        log::info!("{} answers again and is still ours", self.dir.display());
        self.publish(started);
        Beat::Alive
    }

    fn publish(&self, started_ms: u64) {
        let until = started_ms.saturating_add(millis(self.options.timing.fresh));
        self.fresh_until_ms.store(until, Ordering::Release);
    }

    fn lose(&self) -> Beat {
        self.lost.store(true, Ordering::Release);
        log::error!(
            "{} belongs to another broker now: this one must stop",
            self.dir.display()
        );
        Beat::Lost
    }
}

impl Own {
    fn write(&mut self, dir: &Path) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => owner_file::reopen(dir, self.n)?,
        };
        owner_file::write(&file, &self.record)?;
        self.file = Some(file);
        Ok(())
    }
}

/// Time since the machine booted, including the time it slept: a claim must not stay fresh over a nap.
fn now_ms() -> u64 {
    let Ok(now) = clock_gettime(ClockId::CLOCK_BOOTTIME) else {
        return u64::MAX - 1;
    };
    millis(Duration::from(now))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
