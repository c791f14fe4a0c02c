//! The compaction threads of one log dir.
//!
//! Owns:     the pool `compact-D`, the order in which partitions are compacted,
//!           how fast it may read, and counters of what was done.
//! Does not: know segments or keys (storage does) or locks of a partition.
//!
//! # Invariants
//! C1. One round at a time: a round looks at every partition and then compacts
//!     the due ones, the dirtiest first.
//! C2. At the stop, passes end at their next read or wait.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;
use seawall_storage::{CompactionStats, Throttle};

use crate::partition::Partition;
use crate::workers::Workers;

/// How much faster than allowed a pass may be before it waits.
const AHEAD_MIN: Duration = Duration::from_millis(10);
/// The longest pause in one go, so that a mistyped rate cannot stop it for ever.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// What compaction may use.
#[derive(Clone, Copy, Debug)]
pub struct CleanerConfig {
    /// `log.cleaner.threads`; none is no compaction.
    pub threads: usize,
    /// Memory of each thread's map of keys.
    pub map_bytes_max: u64,
    /// `log.cleaner.io.max.bytes.per.second`, for each thread.
    pub bytes_per_second: f64,
}

/// What was done since the start.
#[derive(Debug, Default)]
pub struct CleanerCounts {
    /// Passes that compacted something.
    pub passes: AtomicU64,
    /// Bytes of batches read.
    pub bytes_read: AtomicU64,
    /// Bytes that segments became smaller by.
    pub bytes_freed: AtomicU64,
    /// Records removed.
    pub records_removed: AtomicU64,
    /// Batches that stay as they are since nobody can read them.
    pub opaque_batches: AtomicU64,
    /// Runs of segments left alone since a batch is damaged.
    pub damaged: AtomicU64,
}

/// See the module.
pub struct Cleaner {
    config: CleanerConfig,
    /// The bits of `bytes_per_second` as it is now.
    pace: AtomicU64,
    pool: Arc<Workers>,
    /// Partitions of the round under way that are not done; C1.
    busy: AtomicUsize,
    looking: AtomicBool,
    stop: Mutex<Option<Sender<()>>>,
    stopped: Receiver<()>,
    /// What was done.
    pub counts: CleanerCounts,
}

impl Cleaner {
    /// Starts the threads.
    ///
    /// # Errors
    /// One could not be started.
    pub fn start(dir: usize, config: CleanerConfig) -> io::Result<Arc<Self>> {
        let (stop, stopped) = bounded(0);
        Ok(Arc::new(Self {
            config,
            pace: AtomicU64::new(config.bytes_per_second.to_bits()),
            pool: Workers::start(&format!("compact-{dir}"), config.threads)?,
            busy: AtomicUsize::new(0),
            looking: AtomicBool::new(false),
            stop: Mutex::new(Some(stop)),
            stopped,
            counts: CleanerCounts::default(),
        }))
    }

    /// Memory of one map of keys.
    pub fn map_bytes_max(&self) -> u64 {
        self.config.map_bytes_max
    }

    /// Passes that begin from now on may read so fast, each.
    pub fn set_pace(&self, bytes_per_second: f64) {
        self.pace
            .store(bytes_per_second.to_bits(), Ordering::Relaxed);
    }

    /// Begins a round over these partitions, unless one is under way (C1).
    pub fn round(self: &Arc<Self>, partitions: Vec<Arc<Partition>>) {
        if partitions.is_empty() || self.config.threads == 0 {
            return;
        }
        if self.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        // After `looking` is ours: who had it before has said how much there is to do.
        if self.busy.load(Ordering::Acquire) > 0 {
            self.looking.store(false, Ordering::Release);
            return;
        }
        let cleaner = Arc::clone(self);
        self.pool.submit(move || {
            let mut due: Vec<(f64, Arc<Partition>)> = Vec::new();
            for partition in partitions {
                if let Some(ratio) = partition.dirty_ratio() {
                    due.push((ratio, partition));
                }
            }
            due.sort_by(|a, b| b.0.total_cmp(&a.0));
            cleaner.busy.store(due.len(), Ordering::Release);
            for (_, partition) in due {
                let of = Arc::clone(&cleaner);
                cleaner.pool.submit(move || {
                    // Counted down even if the pass panics.
                    let _done = Done(&of);
                    partition.compact(&of);
                });
            }
            cleaner.looking.store(false, Ordering::Release);
        });
    }

    /// A pass read so much as its throttle says; `Err` when it shall end.
    pub fn pace(&self) -> Pace {
        Pace {
            bytes_per_second: f64::from_bits(self.pace.load(Ordering::Relaxed)),
            started: Instant::now(),
            bytes: 0.0,
            stopped: self.stopped.clone(),
        }
    }

    /// Adds up what a pass did.
    pub fn count(&self, stats: &CompactionStats) {
        let add = |to: &AtomicU64, n: u64| to.fetch_add(n, Ordering::Relaxed);
        add(&self.counts.passes, 1);
        add(&self.counts.bytes_read, stats.bytes_read);
        let freed = stats.bytes_before.saturating_sub(stats.bytes_after);
        add(&self.counts.bytes_freed, freed);
        add(&self.counts.records_removed, stats.records_removed);
        add(&self.counts.opaque_batches, stats.opaque_batches);
        add(&self.counts.damaged, stats.damaged);
    }

    /// Ends the threads. Says whether that was before `deadline`.
    pub fn stop(&self, deadline: Instant) -> bool {
        drop(self.stop.lock().take());
        self.pool.stop(deadline)
    }
}

struct Done<'a>(&'a Cleaner);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The speed of one pass.
pub struct Pace {
    bytes_per_second: f64,
    started: Instant,
    bytes: f64,
    stopped: Receiver<()>,
}

impl Pace {
    /// Waits for a moment; `false` when the pass shall end.
    pub fn wait(&self, pause: Duration) -> bool {
        self.stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout)
    }
}

impl Throttle for Pace {
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    fn took(&mut self, bytes: u64) -> io::Result<()> {
        self.bytes += bytes as f64;
        let due = self.bytes / self.bytes_per_second.max(1.0);
        let due = Duration::try_from_secs_f64(due).unwrap_or(PAUSE_MAX);
        let ahead = due.saturating_sub(self.started.elapsed());
        let pause = if ahead > AHEAD_MIN {
            ahead.min(PAUSE_MAX)
        } else {
            Duration::ZERO
        };
        if self.wait(pause) {
            Ok(())
        } else {
            Err(io::ErrorKind::Interrupted.into())
        }
    }
}
