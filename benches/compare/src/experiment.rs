//! An fsync inside or outside the partition lock: what it costs the others when one partition's disk is slow.
//!
//! Owns:     a model of the broker's write path with nothing but its waiting: lanes, a fixed pool of append workers, one
//!           committer per partition, clients that wait for the flush. Real files, real pwrite and fdatasync.
//! Does not: share code with the broker; it shows which shape of it is right. Point `--work` at the mount in question.
//!
//! # Locks, in the order in which they may be taken
//! `Log` (held over a pwrite; over the fsync only by `Variant::Inside`), then `Lane`. The run queue stands alone.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::{Doing, Error, Result};
use crate::stats::Percentiles;
use crate::wait;

const BATCH: [u8; 16 * 1024] = [0x5a; 16 * 1024];

/// When a flush excludes appends to the same log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// The committer holds the partition lock over the fsync; an append worker that comes by waits.
    Inside,
    /// The fsync runs without the lock; appends go on meanwhile.
    Outside,
    /// As `Outside`, but a lane is not given to a worker while its flush runs.
    Deferred,
}

/// All variants, in the order of the report.
pub(crate) const VARIANTS: [Variant; 3] = [Variant::Inside, Variant::Outside, Variant::Deferred];

/// Size of the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) partitions: usize,
    pub(crate) clients: usize,
    pub(crate) workers: usize,
    /// The first so many partitions have a slow disk.
    pub(crate) stalled: usize,
    /// Added to each of their flushes.
    pub(crate) stall: Duration,
    pub(crate) time: Duration,
}

impl Setting {
    fn is_slow(&self, index: usize) -> bool {
        index < self.stalled
    }

    /// Clients of a slow partition send at times of their own, as producers in the field do; in lockstep with the
    /// flushes none of them would ever meet one.
    fn pause(&self, index: usize, client: usize) -> Duration {
        let share = client as f64 / self.clients as f64;
        if self.is_slow(index) {
            self.stall.mul_f64(share)
        } else {
            Duration::ZERO
        }
    }
}

/// What one run yields.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Acknowledged batches per second, all healthy partitions together.
    pub(crate) healthy: f64,
    pub(crate) healthy_latency: Option<Percentiles>,
    /// The same of the slow ones.
    pub(crate) slow: f64,
}

/// Runs the model once in a directory of its own under `work`.
pub(crate) fn run(work: &Path, variant: Variant, setting: Setting) -> Result<Outcome> {
    let model = &Model::new(work, variant, setting)?;
    let mut latencies = (Vec::new(), Vec::new());
    let failure = Mutex::new(None);
    let keep = |done: Result<()>| {
        if let Err(e) = done {
            failure.lock().get_or_insert(e);
            model.stop();
        }
    };
    thread::scope(|scope| {
        for _ in 0..setting.workers {
            scope.spawn(|| keep(model.work()));
        }
        for partition in &model.partitions {
            scope.spawn(|| keep(model.commit(partition)));
        }
        let all = (0..setting.partitions).flat_map(|p| (0..setting.clients).map(move |c| (p, c)));
        let clients: Vec<_> = all
            .map(|(index, client)| {
                let pause = setting.pause(index, client);
                (index, scope.spawn(move || model.client(index, pause)))
            })
            .collect();
        wait::idle(setting.time);
        model.stop();
        for (index, thread) in clients {
            let of_client = thread.join().unwrap_or_default();
            let side = if setting.is_slow(index) {
                &mut latencies.1
            } else {
                &mut latencies.0
            };
            side.extend(of_client);
        }
    });
    if let Some(e) = failure.into_inner() {
        return Err(e);
    }
    let rate = |latencies: &Vec<Duration>| latencies.len() as f64 / setting.time.as_secs_f64();
    Ok(Outcome {
        healthy: rate(&latencies.0),
        slow: rate(&latencies.1),
        healthy_latency: Percentiles::of(latencies.0),
    })
}

struct Model {
    variant: Variant,
    partitions: Vec<Partition>,
    queue: Mutex<VecDeque<usize>>,
    queued: Condvar,
    stopped: AtomicBool,
    dir: PathBuf,
}

struct Partition {
    index: usize,
    stall: Duration,
    file: File,
    log: Mutex<Log>,
    lane: Mutex<Lane>,
    appended: Condvar,
    flushed: Condvar,
}

struct Log {
    at: u64,
}

/// Batches are numbered in the order of their arrival: flushed <= written <= offered.
#[derive(Default)]
struct Lane {
    offered: u64,
    written: u64,
    flushed: u64,
    /// In the run queue, or in a worker's hands.
    scheduled: bool,
    flushing: bool,
}

impl Model {
    fn new(work: &Path, variant: Variant, setting: Setting) -> Result<Self> {
        let dir = work.join("experiment");
        fs::create_dir_all(&dir).map_err(|source| Error::Path {
            doing: "create",
            path: dir.clone(),
            source,
        })?;
        let partition = |index| {
            let slow = setting.is_slow(index);
            Partition::new(
                &dir,
                index,
                if slow { setting.stall } else { Duration::ZERO },
            )
        };
        Ok(Self {
            variant,
            partitions: (0..setting.partitions)
                .map(partition)
                .collect::<Result<_>>()?,
            queue: Mutex::new(VecDeque::new()),
            queued: Condvar::new(),
            stopped: AtomicBool::new(false),
            dir,
        })
    }

    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Wakes everybody. Each lock is taken once, so that nobody is between looking at the flag and waiting.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        drop(self.queue.lock());
        self.queued.notify_all();
        for partition in &self.partitions {
            drop(partition.lane.lock());
            partition.appended.notify_all();
            partition.flushed.notify_all();
        }
    }

    /// A producer with one request in flight; returns the time that each took.
    fn client(&self, index: usize, pause: Duration) -> Vec<Duration> {
        let partition = &self.partitions[index];
        let mut latencies = Vec::new();
        while !self.stopped() {
            wait::idle(pause);
            let offered = Instant::now();
            let mut lane = partition.lane.lock();
            lane.offered += 1;
            let mine = lane.offered;
            self.schedule(index, &mut lane);
            while lane.flushed < mine && !self.stopped() {
                partition.flushed.wait(&mut lane);
            }
            if lane.flushed >= mine {
                latencies.push(offered.elapsed());
            }
        }
        latencies
    }

    /// Puts a lane with work into the run queue, once.
    fn schedule(&self, index: usize, lane: &mut Lane) {
        let held = self.variant == Variant::Deferred && lane.flushing;
        if lane.scheduled || held || lane.written == lane.offered {
            return;
        }
        lane.scheduled = true;
        self.queue.lock().push_back(index);
        self.queued.notify_one();
    }

    /// An append worker.
    fn work(&self) -> Result<()> {
        while let Some(index) = self.next() {
            let partition = &self.partitions[index];
            partition.append()?;
            let mut lane = partition.lane.lock();
            lane.scheduled = false;
            self.schedule(index, &mut lane);
        }
        Ok(())
    }

    fn next(&self) -> Option<usize> {
        let mut queue = self.queue.lock();
        while queue.is_empty() && !self.stopped() {
            self.queued.wait(&mut queue);
        }
        if self.stopped() {
            None
        } else {
            queue.pop_front()
        }
    }

    /// A committer.
    fn commit(&self, partition: &Partition) -> Result<()> {
        loop {
            let target = {
                let mut lane = partition.lane.lock();
                while lane.flushed == lane.written && !self.stopped() {
                    partition.appended.wait(&mut lane);
                }
                lane.flushing = true;
                lane.written
            };
            if self.stopped() {
                return Ok(());
            }
            partition.flush(self.variant)?;
            let mut lane = partition.lane.lock();
            lane.flushing = false;
            lane.flushed = target;
            partition.flushed.notify_all();
            self.schedule(partition.index, &mut lane);
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // Scratch files that stay are only in the way.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Partition {
    fn new(dir: &Path, index: usize, stall: Duration) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        Ok(Self {
            index,
            stall,
            file: options
                .open(dir.join(index.to_string()))
                .doing("create a scratch file")?,
            log: Mutex::new(Log { at: 0 }),
            lane: Mutex::new(Lane::default()),
            appended: Condvar::new(),
            flushed: Condvar::new(),
        })
    }

    /// Writes everything that is queued.
    fn append(&self) -> Result<()> {
        let mut log = self.log.lock();
        let (from, to) = {
            let lane = self.lane.lock();
            (lane.written, lane.offered)
        };
        for _ in from..to {
            self.file
                .write_all_at(&BATCH, log.at)
                .doing("write a scratch file")?;
            log.at += u64::try_from(BATCH.len()).unwrap_or_default();
        }
        drop(log);
        self.lane.lock().written = to;
        self.appended.notify_one();
        Ok(())
    }

    fn flush(&self, variant: Variant) -> Result<()> {
        let held = (variant == Variant::Inside).then(|| self.log.lock());
        self.file.sync_data().doing("sync a scratch file")?;
        wait::idle(self.stall);
        drop(held);
        Ok(())
    }
}
