//! What group commit costs beside the fsync: the same appends on a disk whose
//! sync returns at once, waited for one by one and in groups.

#![allow(missing_docs, clippy::unwrap_used)] // A bench that cannot go on must stop.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use seawall_committer::{
    AckPolicy, Call, Chore, ChoreError, Committer, CommitterConfig, Gate, Group, Log, Member,
    Refusal, Watchdog, Watched,
};

struct NullLog {
    gate: Gate<u64, u64>,
    released: Mutex<Sender<u64>>,
}

impl Watched for NullLog {
    fn overdue(&self, _call: Call) {
        Committer::stall(self);
    }
    fn recovered(&self, _call: Call) {
        Committer::unstall(self);
    }
}

impl Log for NullLog {
    type Point = u64;
    type Waiter = u64;

    fn gate(&self) -> &Gate<u64, u64> {
        &self.gate
    }
    fn sync(&self, _point: &u64) -> io::Result<()> {
        Ok(())
    }
    fn chore(self: &Arc<Self>, _chore: Chore) -> Result<u64, ChoreError> {
        Ok(0)
    }
    fn drain(self: &Arc<Self>) {}
    fn chore_ended(self: &Arc<Self>, _chore: Chore, _no_space: bool) {}
    fn synced(self: &Arc<Self>, _point: &u64) {}
    fn is_owner(&self) -> bool {
        true
    }
    fn release(&self, waiter: u64, outcome: Result<(), Refusal>) {
        outcome.unwrap();
        self.released.lock().unwrap().send(waiter).unwrap();
    }
    fn advanced(&self, _high_watermark: u64) {}
    fn health_changed(&self) {}
}

struct Setup {
    log: Arc<NullLog>,
    released: Receiver<u64>,
    end: u64,
}

fn append(committer: &Arc<Committer<NullLog>>, t: &mut Setup, batches: u64) {
    let members = (t.end..t.end + batches).map(|offset| Member {
        policy: AckPolicy::Forced,
        range: (offset, offset + 1),
        duplicate: false,
        waiter: offset,
    });
    let members = members.collect();
    t.end += batches;
    let group = Group {
        tail: Some(t.end),
        end: t.end,
        records: batches,
        bytes: batches,
        flush_interval: 1,
        members,
    };
    committer.appended(&t.log, group);
    for _ in 0..batches {
        t.released.recv().unwrap();
    }
}

fn commit(c: &mut Criterion) {
    let watchdog = Watchdog::start(Duration::from_secs(60)).unwrap();
    let config = CommitterConfig {
        name: "commit-b".into(),
        threads_max: 4,
        idle_timeout: Duration::from_secs(5),
        background_bytes: u64::MAX,
    };
    let committer = Committer::new(config, Arc::clone(&watchdog));
    let mut group = c.benchmark_group("commit");
    for batches in [1, 50, 500] {
        group.throughput(Throughput::Elements(batches));
        group.bench_function(format!("group of {batches}"), |b| {
            let (sender, released) = channel();
            let log = Arc::new(NullLog {
                gate: Gate::new(0),
                released: Mutex::new(sender),
            });
            let mut t = Setup {
                log,
                released,
                end: 0,
            };
            b.iter_batched(
                || (),
                |()| append(&committer, &mut t, batches),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
    committer.stop(Instant::now() + Duration::from_secs(10));
    watchdog.stop();
}

criterion_group!(benches, commit);
criterion_main!(benches);
