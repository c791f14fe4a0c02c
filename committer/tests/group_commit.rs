//! The promises of the flush gate, on a log whose disk the test holds still.

#![allow(clippy::unwrap_used)] // A test that cannot go on must stop.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use seawall_committer::{
    AckPolicy, Call, Chore, ChoreError, Committer, CommitterConfig, Failure, Gate, Group, Health,
    Log, Member, Refusal, Watchdog, Watched,
};

const PATIENCE: Duration = Duration::from_secs(30);

type Outcomes = Vec<(u64, Result<(), Refusal>)>;

/// A disk whose syncs wait until the test lets them go.
#[derive(Default)]
struct Shut {
    /// Syncs that may return; the others hang.
    allowed: u64,
    syncing: u64,
    syncs: u64,
    fails: Option<io::ErrorKind>,
    chores: u64,
    drains: u64,
    healed_end: u64,
}

struct FakeLog {
    gate: Gate<u64, u64>,
    shut: Mutex<Shut>,
    changed: Condvar,
    outcomes: Mutex<Outcomes>,
    health_changes: Mutex<u64>,
    owner: AtomicBool,
    watermarks: AtomicU64,
    chores: Mutex<Vec<(Chore, bool)>>,
}

impl FakeLog {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(0),
            shut: Mutex::new(Shut {
                allowed: u64::MAX,
                ..Shut::default()
            }),
            changed: Condvar::new(),
            outcomes: Mutex::default(),
            health_changes: Mutex::default(),
            owner: AtomicBool::new(true),
            watermarks: AtomicU64::new(0),
            chores: Mutex::default(),
        })
    }

    fn hold(&self, held: bool) {
        let mut shut = self.shut.lock().unwrap();
        shut.allowed = if held { shut.syncs } else { u64::MAX };
        self.changed.notify_all();
    }

    fn let_one_sync_return(&self) {
        self.shut.lock().unwrap().allowed += 1;
        self.changed.notify_all();
    }

    fn until<T>(&self, what: &str, mut ready: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut shut = self.shut.lock().unwrap();
        loop {
            drop(shut);
            if let Some(value) = ready(self) {
                return value;
            }
            shut = self.shut.lock().unwrap();
            assert!(Instant::now() < deadline, "never came: {what}");
            let step = Duration::from_millis(2);
            shut = self.changed.wait_timeout(shut, step).unwrap().0;
        }
    }

    fn until_syncing(&self, nth: u64) {
        self.until("a sync", |log| {
            (log.shut.lock().unwrap().syncing >= nth).then_some(())
        });
    }

    fn until_released(&self, count: usize) -> Outcomes {
        self.until("all releases", |log| {
            let outcomes = log.outcomes.lock().unwrap();
            (outcomes.len() >= count).then(|| outcomes.clone())
        })
    }
}

impl Watched for FakeLog {
    fn overdue(&self, _call: Call) {
        Committer::stall(self);
    }
    fn recovered(&self, _call: Call) {
        Committer::unstall(self);
    }
}

impl Log for FakeLog {
    type Point = u64;
    type Waiter = u64;

    fn gate(&self) -> &Gate<u64, u64> {
        &self.gate
    }
    fn sync(&self, _point: &u64) -> io::Result<()> {
        let mut shut = self.shut.lock().unwrap();
        shut.syncing += 1;
        self.changed.notify_all();
        while shut.syncs >= shut.allowed {
            shut = self.changed.wait(shut).unwrap();
        }
        shut.syncs += 1;
        shut.fails.map_or(Ok(()), |kind| Err(kind.into()))
    }
    fn chore(self: &Arc<Self>, _chore: Chore) -> Result<u64, ChoreError> {
        let mut shut = self.shut.lock().unwrap();
        shut.chores += 1;
        match shut.fails {
            None => Ok(shut.healed_end),
            Some(io::ErrorKind::StorageFull) => {
                Err(ChoreError::NoSpace(io::ErrorKind::StorageFull.into()))
            }
            Some(kind) => Err(ChoreError::Failed(kind.into())),
        }
    }
    fn drain(self: &Arc<Self>) {
        self.shut.lock().unwrap().drains += 1;
        self.changed.notify_all();
    }
    fn chore_ended(self: &Arc<Self>, chore: Chore, no_space: bool) {
        self.chores.lock().unwrap().push((chore, no_space));
        self.changed.notify_all();
    }
    fn synced(self: &Arc<Self>, _point: &u64) {}
    fn is_owner(&self) -> bool {
        self.owner.load(Ordering::SeqCst)
    }
    fn release(&self, waiter: u64, outcome: Result<(), Refusal>) {
        self.outcomes.lock().unwrap().push((waiter, outcome));
        self.changed.notify_all();
    }
    fn advanced(&self, _high_watermark: u64) {
        self.watermarks.fetch_add(1, Ordering::SeqCst);
    }
    fn health_changed(&self) {
        *self.health_changes.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

struct Setup {
    log: Arc<FakeLog>,
    committer: Arc<Committer<FakeLog>>,
    watchdog: Arc<Watchdog>,
}

impl Setup {
    fn new(stall_timeout: Duration) -> Self {
        Self::with_idle(stall_timeout, Duration::from_secs(1))
    }

    fn with_idle(stall_timeout: Duration, idle_timeout: Duration) -> Self {
        let watchdog = Watchdog::start(stall_timeout).unwrap();
        let config = CommitterConfig {
            name: "commit-t".into(),
            threads_max: 4,
            idle_timeout,
            background_bytes: 64 << 20,
        };
        Self {
            log: FakeLog::new(),
            committer: Committer::new(config, Arc::clone(&watchdog)),
            watchdog,
        }
    }

    fn calm() -> Self {
        Self::new(Duration::from_secs(3600))
    }

    /// One batch of one record at each offset from `start`.
    fn append(&self, start: u64, policies: &[AckPolicy]) {
        self.append_dialled(start, policies, 1);
    }

    fn append_dialled(&self, start: u64, policies: &[AckPolicy], flush_interval: u64) {
        let members: Vec<_> = policies
            .iter()
            .zip(start..)
            .map(|(&policy, offset)| Member {
                policy,
                range: (offset, offset + 1),
                duplicate: false,
                waiter: offset,
            })
            .collect();
        let count = members.len() as u64;
        self.committer.appended(
            &self.log,
            Group {
                tail: Some(start + count),
                end: start + count,
                records: count,
                bytes: count,
                flush_interval,
                members,
            },
        );
    }

    fn duplicate(&self, offset: u64, end: u64, waiter: u64) {
        let member = Member {
            policy: AckPolicy::Forced,
            range: (offset, offset + 1),
            duplicate: true,
            waiter,
        };
        self.committer.appended(
            &self.log,
            Group {
                tail: None,
                end,
                records: 0,
                bytes: 0,
                flush_interval: 1,
                members: vec![member],
            },
        );
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.log.hold(false);
        assert_eq!(self.committer.stop(Instant::now() + PATIENCE), 0);
        self.watchdog.stop();
    }
}

use AckPolicy::{Forced, Written};

#[test]
fn a_forced_batch_is_neither_acknowledged_nor_visible_before_its_flush() {
    let t = Setup::calm();
    t.log.hold(true);
    t.append(0, &[Forced]);
    t.log.until_syncing(1);
    assert!(t.log.outcomes.lock().unwrap().is_empty(), "D1");
    assert_eq!(t.log.gate.high_watermark(), 0, "D2");
    t.log.hold(false);
    assert_eq!(t.log.until_released(1), [(0, Ok(()))]);
    assert_eq!(t.log.gate.high_watermark(), 1);
}

#[test]
fn written_batches_are_visible_at_once_and_never_flush() {
    let t = Setup::calm();
    t.append(0, &[Written, Written]);
    assert_eq!(t.log.until_released(2).len(), 2);
    assert_eq!(t.log.gate.high_watermark(), 2);
    assert_eq!(t.log.shut.lock().unwrap().syncing, 0);
    assert_eq!(t.log.gate.durable(), 0);
}

#[test]
fn a_written_batch_behind_a_forced_one_stays_hidden_until_that_one_is_durable() {
    let t = Setup::calm();
    t.log.hold(true);
    t.append(0, &[Written, Forced, Written]);
    t.log.until_syncing(1);
    assert_eq!(t.log.gate.high_watermark(), 1);
    t.log.hold(false);
    t.log.until_released(3);
    assert_eq!(t.log.gate.high_watermark(), 3);
}

#[test]
fn what_arrives_during_a_flush_shares_the_next_one() {
    let t = Setup::calm();
    t.log.hold(true);
    t.append(0, &[Forced]);
    t.log.until_syncing(1);
    for offset in 1..100 {
        t.append(offset, &[Forced]);
    }
    t.log.hold(false);
    let outcomes = t.log.until_released(100);
    assert!(outcomes.iter().all(|o| o.1.is_ok()));
    assert_eq!(
        t.log.shut.lock().unwrap().syncs,
        2,
        "one for the first, one for the 99 behind it"
    );
    assert!(t.log.watermarks.load(Ordering::SeqCst) <= 2);
}

#[test]
fn a_batch_written_during_a_flush_is_not_covered_by_it() {
    let t = Setup::calm();
    t.log.hold(true);
    t.append(0, &[Forced]);
    t.log.until_syncing(1);
    t.append(1, &[Forced]);
    t.log.let_one_sync_return();
    t.log.until_syncing(2);
    let outcomes = t.log.until_released(1);
    assert_eq!(outcomes, [(0, Ok(()))], "C3: the target is sampled before");
    assert_eq!(t.log.gate.high_watermark(), 1);
}

#[test]
fn a_duplicate_waits_for_the_flush_of_its_original_and_costs_none() {
    let t = Setup::calm();
    t.log.hold(true);
    t.append(0, &[Forced]);
    t.log.until_syncing(1);
    t.duplicate(0, 1, 77);
    assert!(t.log.outcomes.lock().unwrap().is_empty(), "D8");
    t.log.hold(false);
    t.log.until_released(2);
    assert_eq!(t.log.shut.lock().unwrap().syncs, 1);
}

#[test]
fn a_forced_duplicate_of_a_written_original_asks_for_a_flush() {
    let t = Setup::calm();
    t.append(0, &[Written]);
    t.duplicate(0, 1, 77);
    assert_eq!(t.log.until_released(2), [(0, Ok(())), (77, Ok(()))]);
    assert_eq!(t.log.shut.lock().unwrap().syncs, 1);
    t.duplicate(0, 1, 78);
    t.log.until_released(3);
    assert_eq!(t.log.shut.lock().unwrap().syncs, 1, "durable already");
}

#[test]
fn the_dial_lets_forced_batches_go_until_it_is_crossed() {
    let t = Setup::calm();
    t.append_dialled(0, &[Forced], 3);
    t.append_dialled(1, &[Forced], 3);
    assert_eq!(t.log.until_released(2).len(), 2);
    assert_eq!(t.log.shut.lock().unwrap().syncing, 0);
    assert_eq!(t.log.gate.high_watermark(), 2);
    t.append_dialled(2, &[Written], 3);
    assert_eq!(
        t.log.shut.lock().unwrap().syncing,
        0,
        "only a forced append triggers"
    );
    t.append_dialled(3, &[Forced], 3);
    t.log.until_released(4);
    assert_eq!(t.log.shut.lock().unwrap().syncs, 1);
}

#[test]
fn a_failed_flush_acknowledges_nobody_and_is_not_tried_again() {
    let t = Setup::calm();
    t.log.hold(true);
    t.append(0, &[Forced]);
    t.log.until_syncing(1);
    t.append(1, &[Forced]);
    t.log.shut.lock().unwrap().fails = Some(io::ErrorKind::InvalidData);
    t.log.hold(false);
    let failure = Failure::Io(io::ErrorKind::InvalidData);
    let refused = Err(Refusal::Failed(failure));
    assert_eq!(t.log.until_released(2), [(0, refused), (1, refused)]);
    assert_eq!(t.log.gate.high_watermark(), 0, "D4");
    t.append(2, &[Forced]);
    assert_eq!(t.log.until_released(3)[2], (2, refused));
    assert_eq!(t.log.shut.lock().unwrap().syncs, 1, "D4");
    assert_eq!(t.log.gate.health(), Health::Failed(failure));
}

#[test]
fn a_hung_flush_refuses_its_waiters_and_its_late_success_acknowledges_no_one_twice() {
    let t = Setup::new(Duration::from_millis(5));
    t.log.hold(true);
    t.append(0, &[Forced]);
    assert_eq!(t.log.until_released(1), [(0, Err(Refusal::Stalled))]);
    assert_eq!(t.log.gate.health(), Health::Stalled);
    t.log.hold(false);
    t.log.until("online", |log| {
        (log.gate.health() == Health::Online).then_some(())
    });
    assert_eq!(t.log.gate.high_watermark(), 1, "durable, so visible");
    assert_eq!(t.log.outcomes.lock().unwrap().len(), 1, "C2");
    t.log.until("told", |log| {
        (*log.health_changes.lock().unwrap() >= 2).then_some(())
    });
}

#[test]
fn a_claim_that_went_stale_during_the_flush_acknowledges_and_shows_nothing() {
    let t = Setup::calm();
    t.log.hold(true);
    t.append(0, &[Forced]);
    t.log.until_syncing(1);
    t.log.owner.store(false, Ordering::SeqCst);
    t.log.hold(false);
    assert_eq!(t.log.until_released(1), [(0, Err(Refusal::NotOwner))], "D7");
    assert_eq!(t.log.gate.high_watermark(), 0);
}

#[test]
fn a_roll_completes_what_waited_before_it() {
    let t = Setup::calm();
    t.log.hold(true);
    t.append(0, &[Forced]);
    t.log.until_syncing(1);
    t.append(1, &[Forced]);
    t.committer.request_chore(&t.log, Chore::Roll);
    t.log.hold(false);
    t.log.until_released(2);
    t.log.until("the roll", |log| {
        (*log.chores.lock().unwrap() == [(Chore::Roll, false)]).then_some(())
    });
    assert_eq!(t.log.gate.durable(), 2);
    assert_eq!(
        t.log.shut.lock().unwrap().syncs,
        1,
        "the roll synced the rest"
    );
}

#[test]
fn a_roll_without_space_leaves_the_log_online() {
    let t = Setup::calm();
    t.log.shut.lock().unwrap().fails = Some(io::ErrorKind::StorageFull);
    t.committer.request_chore(&t.log, Chore::Roll);
    t.log.until("the roll", |log| {
        (*log.chores.lock().unwrap() == [(Chore::Roll, true)]).then_some(())
    });
    assert_eq!(t.log.gate.health(), Health::Online);
}

#[test]
fn a_failed_log_is_healed_when_asked_and_goes_on() {
    let t = Setup::calm();
    t.log.hold(true);
    t.append(0, &[Written, Forced]);
    t.log.until_syncing(1);
    t.log.shut.lock().unwrap().fails = Some(io::ErrorKind::Other);
    t.log.hold(false);
    assert!(t.log.until_released(2)[1].1.is_err());
    assert!(!t.log.gate.is_online());
    t.committer.request_heal(&t.log);
    t.log.until("a try to heal", |log| {
        (log.shut.lock().unwrap().chores >= 1).then_some(())
    });
    assert!(!t.log.gate.is_online(), "the disk is not well yet");
    {
        let mut shut = t.log.shut.lock().unwrap();
        shut.fails = None;
        shut.healed_end = 2;
    }
    t.committer.request_heal(&t.log);
    t.log
        .until("online", |log| log.gate.is_online().then_some(()));
    assert_eq!(t.log.gate.high_watermark(), 2, "all of it is durable now");
    assert_eq!(t.log.gate.durable(), 2);
    t.append(2, &[Forced]);
    assert_eq!(t.log.until_released(3)[2], (2, Ok(())));
}

#[test]
fn a_drain_that_is_asked_for_is_done_even_behind_a_failure() {
    let drained = |log: &FakeLog| log.shut.lock().unwrap().drains;
    let t = Setup::calm();
    t.committer.request_drain(&t.log);
    t.log
        .until("a drain", |log| (drained(log) == 1).then_some(()));
    Committer::fail(&*t.log, Failure::Io(io::ErrorKind::Other));
    t.committer.request_drain(&t.log);
    t.committer.request_heal(&t.log);
    t.log.until("the drain behind the healing", |log| {
        (drained(log) == 2).then_some(())
    });
    assert!(t.log.gate.is_online(), "healed first");
}

#[test]
fn healing_is_for_failed_logs_only() {
    let t = Setup::calm();
    t.committer.request_heal(&t.log);
    t.append(0, &[Forced]);
    t.log.until_released(1);
    assert_eq!(t.log.shut.lock().unwrap().chores, 0);
}

#[test]
fn many_forced_producers_share_flushes_and_each_is_released_once() {
    let t = Setup::calm();
    let producers = 16;
    let each = 200;
    // The order of appends is the lane's business; here a lock stands for it.
    let end = Mutex::new(0_u64);
    std::thread::scope(|scope| {
        for _ in 0..producers {
            scope.spawn(|| {
                for _ in 0..each {
                    let mut end = end.lock().unwrap();
                    t.append(*end, &[Forced]);
                    *end += 1;
                }
            });
        }
    });
    let total = producers * each;
    let mut outcomes = t.log.until_released(usize::try_from(total).unwrap());
    outcomes.sort_by_key(|o| o.0);
    let expected: Outcomes = (0..total).map(|offset| (offset, Ok(()))).collect();
    assert_eq!(outcomes, expected);
    let syncs = t.log.shut.lock().unwrap().syncs;
    println!("{total} acks, {syncs} flushes");
    assert!(syncs < total, "flushes are shared");
    assert_eq!(t.log.gate.high_watermark(), total);
}

#[test]
fn no_flush_is_lost_behind_a_thread_that_idles_out() {
    let t = Setup::with_idle(Duration::from_secs(3600), Duration::from_nanos(1));
    for round in 0..500 {
        t.append(round, &[Forced]);
        t.log.until_released(usize::try_from(round).unwrap() + 1);
    }
    assert_eq!(t.log.gate.high_watermark(), 500);
}
