//! The flush gate in every order that the model checker comes by: threads of the pool that idle out at any wait,
//! flushes that fail or hang, a watchdog for which any call may be overdue, rolls, healing, two logs and one thread.
//!
//! What is checked holds for every step, not only at the end: who is acknowledged is durable (D1), what can be seen is
//! durable (D2), no file is synced after a failed sync (D4), and everybody is told exactly once (C2). A lost wake-up is
//! a deadlock, which the checker reports. `SEAWALL_MODEL_RUNS` sets how many orders are tried of each scene.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seawall_committer::{
    AckPolicy, Call, Chore, ChoreError, Committer, CommitterConfig, Gate, Group, Health, Log,
    Member, Refusal, Watchdog, Watched,
};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

/// Tried of each scene on an ordinary day.
const RUNS: usize = 3_000;
/// Changes of priority in a run of the scheduler that looks for rare orders.
const DEPTH: usize = 4;
const NEVER: Duration = Duration::from_secs(1 << 30);

struct Told {
    policy: AckPolicy,
    duplicate: bool,
    range: (u64, u64),
    outcomes: Vec<Result<(), Refusal>>,
}

/// The medium below a log.
#[derive(Default)]
struct Medium {
    written: u64,
    durable: u64,
    /// A sync has failed, and the log is not healed.
    broken: bool,
    syncs_that_fail: u32,
}

#[derive(Default)]
struct Lane {
    end: u64,
    rolling: bool,
}

struct ModelLog {
    gate: Gate<u64, u64>,
    lane: Mutex<Lane>,
    rolled: Condvar,
    medium: Mutex<Medium>,
    told: Mutex<BTreeMap<u64, Told>>,
    threads: u64,
    threads_gone: AtomicU64,
}

impl ModelLog {
    fn new(threads: u64, syncs_that_fail: u32) -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(0),
            lane: Mutex::default(),
            rolled: Condvar::new(),
            medium: Mutex::new(Medium {
                syncs_that_fail,
                ..Medium::default()
            }),
            told: Mutex::default(),
            threads,
            threads_gone: AtomicU64::new(0),
        })
    }

    /// What an append worker does: nothing while the log is not well.
    fn append(self: &Arc<Self>, committer: &Arc<Committer<Self>>, policy: AckPolicy, count: u64) {
        let mut lane = self.lane.lock().unwrap();
        while lane.rolling {
            lane = self.rolled.wait(lane).unwrap();
        }
        if !self.gate.is_online() {
            return;
        }
        let range = (lane.end, lane.end + count);
        lane.end = range.1;
        self.medium.lock().unwrap().written = range.1;
        self.admit(committer, policy, range, false);
        drop(lane);
    }

    /// A duplicate of the first batch there is.
    fn repeat(self: &Arc<Self>, committer: &Arc<Committer<Self>>) {
        let lane = self.lane.lock().unwrap();
        let first = self.told.lock().unwrap().values().map(|t| t.range).min();
        if let Some(range) = first.filter(|_| self.gate.is_online() && !lane.rolling) {
            self.admit(committer, AckPolicy::Forced, range, true);
        }
        drop(lane);
    }

    fn admit(
        self: &Arc<Self>,
        committer: &Arc<Committer<Self>>,
        policy: AckPolicy,
        range: (u64, u64),
        duplicate: bool,
    ) {
        let mut told = self.told.lock().unwrap();
        let waiter = told.len() as u64;
        let outcomes = Vec::new();
        told.insert(
            waiter,
            Told {
                policy,
                duplicate,
                range,
                outcomes,
            },
        );
        drop(told);
        let written = self.medium.lock().unwrap().written;
        let new = if duplicate { 0 } else { range.1 - range.0 };
        let member = Member {
            policy,
            range,
            duplicate,
            waiter,
        };
        let group = Group {
            tail: (!duplicate).then_some(written),
            end: written,
            records: new,
            bytes: new,
            flush_interval: 1,
            members: vec![member],
        };
        committer.appended(self, group);
    }

    fn roll(self: &Arc<Self>, committer: &Arc<Committer<Self>>) {
        let mut lane = self.lane.lock().unwrap();
        if lane.rolling || !self.gate.is_online() {
            return;
        }
        lane.rolling = true;
        drop(lane);
        committer.request_chore(self, Chore::Roll);
    }

    /// Whether its threads have come to their end, everybody is told, nothing is under way, and it is well.
    fn is_done(&self) -> bool {
        let gone = self.threads_gone.load(Ordering::SeqCst) == self.threads;
        let told = self.told.lock().unwrap();
        let all = told.values().all(|told| !told.outcomes.is_empty());
        gone && all && !self.gate.is_flushing() && self.gate.is_online()
    }

    /// D2, at whatever moment.
    fn assert_visible_is_durable(&self, high_watermark: u64) {
        let durable = self.medium.lock().unwrap().durable;
        for told in self.told.lock().unwrap().values() {
            // A batch that was written with less may be visible before its copy is acknowledged.
            let forced = told.policy == AckPolicy::Forced && !told.duplicate;
            let visible = told.range.0 < high_watermark;
            assert!(
                !(forced && visible) || told.range.1 <= durable,
                "D2: {:?} is visible, {high_watermark} of {durable}",
                told.range
            );
        }
    }

    fn sync_medium(&self) -> io::Result<()> {
        let mut medium = self.medium.lock().unwrap();
        assert!(!medium.broken, "D4: synced again after a failure");
        let upto = medium.written;
        if medium.syncs_that_fail > 0 {
            medium.syncs_that_fail -= 1;
            medium.broken = true;
            return Err(io::ErrorKind::Other.into());
        }
        drop(medium);
        thread::yield_now();
        let mut medium = self.medium.lock().unwrap();
        medium.durable = medium.durable.max(upto);
        Ok(())
    }
}

impl Watched for ModelLog {
    fn overdue(&self, _: Call) {
        Committer::stall(self);
    }
    fn recovered(&self, _: Call) {
        Committer::unstall(self);
    }
}

impl Log for ModelLog {
    type Point = u64;
    type Waiter = u64;

    fn gate(&self) -> &Gate<u64, u64> {
        &self.gate
    }

    fn sync(&self, _: &u64) -> io::Result<()> {
        self.sync_medium()
    }

    fn chore(self: &Arc<Self>, chore: Chore) -> Result<u64, ChoreError> {
        if chore == Chore::Roll {
            self.sync_medium().map_err(ChoreError::Failed)?;
            return Ok(self.medium.lock().unwrap().written);
        }
        // Healing holds the log's own lock: nothing is appended.
        let lane = self.lane.lock().unwrap();
        let mut medium = self.medium.lock().unwrap();
        medium.durable = lane.end;
        medium.broken = false;
        Ok(lane.end)
    }

    fn drain(self: &Arc<Self>) {}

    fn chore_ended(self: &Arc<Self>, _: Chore, _: bool) {
        // A roll that meets a failure ends with the healing that takes its place.
        self.lane.lock().unwrap().rolling = false;
        self.rolled.notify_all();
    }

    fn synced(self: &Arc<Self>, point: &u64) {
        assert!(self.medium.lock().unwrap().durable >= *point);
    }

    fn is_owner(&self) -> bool {
        true
    }

    fn release(&self, waiter: u64, outcome: Result<(), Refusal>) {
        let durable = self.medium.lock().unwrap().durable;
        let mut all = self.told.lock().unwrap();
        let told = all.get_mut(&waiter).unwrap();
        let promised = told.policy == AckPolicy::Forced && outcome.is_ok();
        assert!(!promised || told.range.1 <= durable, "D1");
        told.outcomes.push(outcome);
        assert_eq!(told.outcomes.len(), 1, "C2");
    }

    fn advanced(&self, high_watermark: u64) {
        self.assert_visible_is_durable(high_watermark);
    }

    fn health_changed(&self) {}
}

/// What happens in a run, all at once.
#[derive(Clone, Copy)]
struct Scene {
    logs: usize,
    writers: u64,
    appends: u64,
    syncs_that_fail: u32,
    /// How long a call may take before it is overdue; at zero any may be.
    stall_timeout: Duration,
    rolls: bool,
}

impl Scene {
    fn threads(self) -> u64 {
        1 + self.writers + u64::from(self.rolls)
    }
}

const PLAIN: Scene = Scene {
    logs: 1,
    writers: 2,
    appends: 2,
    syncs_that_fail: 0,
    stall_timeout: NEVER,
    rolls: false,
};

fn play(scene: Scene) {
    let watchdog = Watchdog::start(scene.stall_timeout).unwrap();
    let config = CommitterConfig {
        name: "commit".into(),
        threads_max: 1,
        idle_timeout: NEVER,
        background_bytes: u64::MAX,
    };
    let committer = Committer::new(config, Arc::clone(&watchdog));
    let logs: Vec<_> = (0..scene.logs)
        .map(|_| ModelLog::new(scene.threads(), scene.syncs_that_fail))
        .collect();
    let threads: Vec<_> = logs
        .iter()
        .flat_map(|log| cast(scene, log, &committer))
        .collect();
    // As the sweep of the broker does, again and again.
    while !logs.iter().all(|log| log.is_done()) {
        for log in &logs {
            if matches!(log.gate.health(), Health::Failed(_)) {
                committer.request_heal(log);
            }
        }
        thread::yield_now();
    }
    for thread in threads {
        thread.join().unwrap();
    }
    // In the model a wait may time out at once.
    while committer.stop(Instant::now()) > 0 {}
    watchdog.stop();
    for log in &logs {
        curtain(log, scene);
    }
}

type Part = Box<dyn FnOnce(&Arc<ModelLog>, &Arc<Committer<ModelLog>>) + Send>;

/// The threads that work on one log; each says when it is through.
fn cast(
    scene: Scene,
    log: &Arc<ModelLog>,
    committer: &Arc<Committer<ModelLog>>,
) -> Vec<thread::JoinHandle<()>> {
    let enter = |part: Part| {
        let (log, committer) = (Arc::clone(log), Arc::clone(committer));
        thread::spawn(move || {
            part(&log, &committer);
            log.threads_gone.fetch_add(1, Ordering::SeqCst);
        })
    };
    let mut threads = vec![enter(Box::new(|log, _| read(log)))];
    for writer in 0..scene.writers {
        threads.push(enter(Box::new(move |log, committer| {
            write(scene, writer, log, committer);
        })));
    }
    if scene.rolls {
        threads.push(enter(Box::new(|log, committer| log.roll(committer))));
    }
    threads
}

fn write(scene: Scene, writer: u64, log: &Arc<ModelLog>, committer: &Arc<Committer<ModelLog>>) {
    for n in 0..scene.appends {
        let policy = if (writer + n) % 3 == 2 {
            AckPolicy::Written
        } else {
            AckPolicy::Forced
        };
        log.append(committer, policy, 1 + n);
    }
    log.repeat(committer);
}

fn read(log: &ModelLog) {
    let mut before = 0;
    for _ in 0..3 {
        let now = log.gate.high_watermark();
        assert!(now >= before, "G2");
        log.assert_visible_is_durable(now);
        before = now;
    }
}

fn curtain(log: &ModelLog, scene: Scene) {
    for told in log.told.lock().unwrap().values() {
        assert_eq!(told.outcomes.len(), 1, "C2: told at the end of everything");
        if scene.syncs_that_fail == 0 && scene.stall_timeout == NEVER {
            assert_eq!(told.outcomes, [Ok(())]);
        }
    }
    assert_eq!(log.gate.health(), Health::Online);
    let end = log.lane.lock().unwrap().end;
    assert_eq!(log.gate.high_watermark(), end, "all is visible at the end");
}

fn check(scene: Scene) {
    let everything = std::env::var_os("SEAWALL_TEST_FULL").is_some();
    let ordinary = if everything { RUNS * 100 } else { RUNS };
    let runs = std::env::var("SEAWALL_MODEL_RUNS").map_or(ordinary, |runs| runs.parse().unwrap());
    shuttle::check_random(move || play(scene), runs);
    shuttle::check_pct(move || play(scene), runs, DEPTH);
    eprintln!("{} orders", 2 * runs);
}

#[test]
fn group_commit_keeps_its_promises_in_any_order() {
    check(PLAIN);
}

#[test]
fn logs_that_share_a_thread_are_all_flushed() {
    check(Scene {
        logs: 2,
        writers: 1,
        ..PLAIN
    });
}

#[test]
fn a_roll_among_the_appends_breaks_no_promise() {
    check(Scene {
        rolls: true,
        ..PLAIN
    });
}

#[test]
fn a_flush_that_fails_breaks_no_promise_and_is_healed() {
    check(Scene {
        syncs_that_fail: 1,
        ..PLAIN
    });
}

#[test]
fn a_roll_or_a_flush_that_fails_breaks_no_promise() {
    check(Scene {
        syncs_that_fail: 1,
        rolls: true,
        ..PLAIN
    });
}

#[test]
fn calls_that_are_overdue_at_any_moment_break_no_promise() {
    check(Scene {
        stall_timeout: Duration::ZERO,
        ..PLAIN
    });
}

#[test]
fn calls_that_are_overdue_and_fail_break_no_promise() {
    check(Scene {
        stall_timeout: Duration::ZERO,
        syncs_that_fail: 1,
        rolls: true,
        ..PLAIN
    });
}
