//! One log dir: its disk, its pools, its claim.
//!
//! Owns:     the worker pools of a mount, so that a mount that hangs takes its
//!           own pool down and no other's.
//! Does not: know which partitions live on it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seawall_committer::{Committer, CommitterConfig, Watchdog};
use seawall_storage::Resources;
use seawall_storage::disk::{Disk, RealDisk};

use crate::cleaner::{Cleaner, CleanerConfig};
use crate::cluster::{DirClaim, root};
use crate::counts::DirCounts;
use crate::partition::Partition;
use crate::queued::QueuedBytes;
use crate::reserve::Reserve;
use crate::workers::Workers;

/// Append workers of a log dir: on two cores one writes while the other one's
/// write is copied; more only hold more locks.
const APPEND_WORKERS: usize = 2;
/// Read workers of a log dir: reads of a cold file wait for the disk.
const READ_WORKERS: usize = 4;
/// Workers for state files and directories of a log dir.
const STATE_WORKERS: usize = 4;
/// Most committer threads of a log dir; beyond them partitions queue.
const COMMIT_THREADS_MAX: usize = 512;
/// How long a committer thread waits for work: longer than the pauses of a
/// busy partition, short enough that a quiet night shows no threads.
const COMMIT_IDLE: Duration = Duration::from_secs(30);
/// A log with this much not flushed is flushed though nobody waits.
const BACKGROUND_FLUSH_BYTES: u64 = 64 << 20;
/// Read handles of sealed segments kept open per log dir.
const HANDLES_MAX: usize = 512;

/// How often it is looked how much room there is.
const SPACE_INTERVAL: Duration = Duration::from_secs(10);

/// What a probe writes: one page.
const PROBE_BYTES: usize = 4096;

/// What the log dirs of a broker have in common.
pub struct LogDirOptions {
    /// Watches every I/O call.
    pub watchdog: Arc<Watchdog>,
    /// What may wait for the append workers of one dir.
    pub queued_bytes_max: u64,
    /// What compaction of one dir may use.
    pub cleaner: CleanerConfig,
}

/// Room on a file system.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// All of it.
    pub total_bytes: u64,
    /// What may still be used.
    pub usable_bytes: u64,
}

/// The full path of a log dir, as clients are told it.
pub fn shown_path(path: &Path) -> String {
    let full = std::path::absolute(path);
    full.as_deref()
        .unwrap_or(path)
        .to_string_lossy()
        .into_owned()
}

/// One log dir.
pub struct LogDir {
    /// Place in `log.dirs`; thread names carry it.
    pub index: usize,
    /// Its root.
    pub path: PathBuf,
    /// The file system under it.
    pub disk: Arc<dyn Disk>,
    /// Shared by all logs of this dir.
    pub resources: Arc<Resources>,
    /// Group commit of its partitions.
    pub committer: Arc<Committer<Partition>>,
    /// Append workers.
    pub appends: Arc<Workers>,
    /// Read workers.
    pub reads: Arc<Workers>,
    /// Directory work and state files.
    pub state: Arc<Workers>,
    /// Deletion by age and size; one thread, since nobody waits for it.
    pub maint: Arc<Workers>,
    /// Compaction.
    pub cleaner: Arc<Cleaner>,
    /// Watches every I/O call.
    pub watchdog: Arc<Watchdog>,
    /// The claim on the dir.
    pub claim: Arc<DirClaim>,
    /// What waits for its append workers.
    pub queued: QueuedBytes,
    /// Space kept back; while it is not there nothing is appended.
    pub reserve: Reserve,
    /// What happens here.
    pub counts: DirCounts,
    total_bytes: AtomicU64,
    unwell: AtomicUsize,
    failed: AtomicUsize,
    tail: AtomicBool,
    retaining: AtomicBool,
    looked_at_space: Mutex<Instant>,
}

impl LogDir {
    /// Starts the pools of a log dir that is claimed already.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start(
        index: usize,
        path: &Path,
        claim: Arc<DirClaim>,
        options: &LogDirOptions,
    ) -> io::Result<Arc<Self>> {
        let committer = CommitterConfig {
            name: format!("commit-{index}"),
            threads_max: COMMIT_THREADS_MAX,
            idle_timeout: COMMIT_IDLE,
            background_bytes: BACKGROUND_FLUSH_BYTES,
        };
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let reserve = Reserve::new(&disk, path);
        if reserve.restore().is_err() {
            log::error!("{}: full; no appends until there is space", path.display());
        }
        let log_dir = Arc::new(Self {
            index,
            path: path.to_owned(),
            disk,
            reserve,
            counts: DirCounts::new(),
            total_bytes: AtomicU64::new(0),
            unwell: AtomicUsize::new(0),
            resources: Resources::new(HANDLES_MAX),
            committer: Committer::new(committer, Arc::clone(&options.watchdog)),
            appends: Workers::start(&format!("append-{index}"), APPEND_WORKERS)?,
            reads: Workers::start(&format!("read-{index}"), READ_WORKERS)?,
            state: Workers::start(&format!("state-{index}"), STATE_WORKERS)?,
            maint: Workers::start(&format!("maint-{index}"), 1)?,
            cleaner: Cleaner::start(index, options.cleaner)?,
            watchdog: Arc::clone(&options.watchdog),
            claim,
            queued: QueuedBytes::new(options.queued_bytes_max),
            failed: AtomicUsize::new(0),
            tail: AtomicBool::new(false),
            retaining: AtomicBool::new(false),
            looked_at_space: Mutex::new(Instant::now()),
        });
        log_dir.look_at_space();
        Ok(log_dir)
    }

    /// Tells the catalog how much room there is. Blocks on the disk.
    pub fn look_at_space(&self) {
        match self.space() {
            Ok(space) => {
                self.claim.set_free_bytes(space.usable_bytes);
                self.total_bytes.store(space.total_bytes, Ordering::Relaxed);
            }
            Err(error) => log::warn!("{}: its space is not known: {error}", self.path.display()),
        }
    }

    /// How large its file system is, when it was last looked; 0 before that.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// What is due by the clock.
    pub fn sweep(self: &Arc<Self>) {
        let mut looked = self.looked_at_space.lock();
        if looked.elapsed() >= SPACE_INTERVAL {
            *looked = Instant::now();
            let dir = Arc::clone(self);
            self.maint.submit(move || dir.look_at_space());
        }
        drop(looked);
        if self.reserve.claim_restoring() {
            let dir = Arc::clone(self);
            self.state.submit(move || {
                if dir.reserve.restore().is_ok() {
                    log::info!("{}: there is space again", dir.path.display());
                }
            });
        }
    }

    /// Looks through these partitions for what is too old or too much, unless
    /// that still runs from the last time.
    pub fn retain(self: &Arc<Self>, partitions: Vec<Arc<Partition>>) {
        if self.retaining.swap(true, Ordering::AcqRel) {
            return;
        }
        let dir = Arc::clone(self);
        self.maint.submit(move || {
            for partition in partitions {
                partition.retain();
            }
            dir.retaining.store(false, Ordering::Release);
        });
    }

    /// A partition stalled or failed, or one that had is well again. New topics
    /// go elsewhere meanwhile.
    pub fn count_unwell(&self, unwell: bool) {
        let none = if unwell {
            self.unwell.fetch_add(1, Ordering::AcqRel);
            false
        } else {
            self.unwell.fetch_sub(1, Ordering::AcqRel) == 1
        };
        self.claim.set_well(none);
    }

    /// How many partitions have stalled or failed and are not well again.
    pub fn unwell(&self) -> u64 {
        self.unwell.load(Ordering::Acquire) as u64
    }

    /// Recovery found bytes behind a log's end. Until the first append hides
    /// them, a start may find a valid batch among them, which is no corruption:
    /// this broker never says that the dir is `recovered` (DESIGN 7).
    pub fn found_tail(&self) {
        self.tail.store(true, Ordering::Release);
    }

    /// See [`LogDir::found_tail`].
    pub fn has_tail(&self) -> bool {
        self.tail.load(Ordering::Acquire)
    }

    /// A partition failed, or one that had failed is well again. While any is
    /// Failed, a damaged batch that the next start finds need not be corruption
    /// (DESIGN 7), and the claim says so.
    pub fn count_failed(&self, failed: bool) {
        let whole = if failed {
            self.failed.fetch_add(1, Ordering::AcqRel);
            false
        } else {
            self.failed.fetch_sub(1, Ordering::AcqRel) == 1 && !self.has_tail()
        };
        if failed || whole {
            let claim = Arc::clone(&self.claim);
            self.state.submit(move || {
                if let Err(error) = claim.set_recovered(whole) {
                    log::warn!("{}: {error}", claim.dir().display());
                }
            });
        }
    }

    /// Its full path, as clients are told it.
    pub fn shown_path(&self) -> String {
        shown_path(&self.path)
    }

    /// How large its file system is, and what of it an unprivileged process may
    /// still use. Blocks on the disk.
    ///
    /// # Errors
    /// The file system does not tell.
    pub fn space(&self) -> io::Result<Space> {
        let found = nix::sys::statvfs::statvfs(&self.path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
        Ok(Space {
            total_bytes: bytes(found.blocks()),
            usable_bytes: bytes(found.blocks_available()),
        })
    }

    /// Whether the dir takes a write, a sync and an unlink.
    ///
    /// # Errors
    /// It does not; at most the probe's file is left.
    pub fn probe(&self) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(format!("{}{number}", root::PROBE_PREFIX));
        // One that an earlier process left is in the way.
        match self.disk.remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = self.disk.create_new(&path)?;
        let block = [0x5a_u8; PROBE_BYTES];
        let written = file.write_vectored_at(&[io::IoSlice::new(&block)], 0);
        let synced = written.and_then(|_| file.sync_data());
        drop(file);
        let removed = self.disk.remove_file(&path);
        synced.and(removed)
    }

    /// Ends everything that changes logs: appends and flushes, compaction and
    /// deletion. Says whether all of it was over before `deadline`.
    pub fn stop_changes(&self, deadline: Instant) -> bool {
        let compacted = self.cleaner.stop(deadline);
        let maintained = self.maint.stop(deadline);
        let appended = self.appends.stop(deadline);
        self.committer.stop(deadline) == 0 && appended && maintained && compacted
    }

    /// Ends the other pools; see [`LogDir::stop_changes`].
    pub fn stop(&self, deadline: Instant) -> bool {
        let stated = self.state.stop(deadline);
        self.reads.stop(deadline) && stated
    }
}
