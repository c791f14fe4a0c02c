//! What counting costs a batch that is written and flushed alone, and what a histogram costs by itself.
//!
//! Owns: the list of what is counted on that way. The broker is no library, so its histogram is compiled into this bench
//! as it is, and its counters, which are relaxed atomics, stand here again.

#![allow(
    dead_code,
    missing_docs,
    unused_imports,
    reason = "the bench needs a part of the file and not its tests, and criterion_group makes functions without comments"
)]

#[path = "../src/histogram.rs"]
mod histogram;

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use histogram::Histogram;

/// As in `counts::Count`.
#[derive(Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }
}

/// What such a batch touches: a Produce that starts and ends, an append, an fsync, a group of one.
struct Counted {
    requests: Count,
    batches: Count,
    records: Count,
    bytes: Count,
    produces: Histogram,
    writes: Histogram,
    fsyncs: Histogram,
    groups: Histogram,
}

impl Counted {
    fn new() -> Self {
        Self {
            requests: Count::default(),
            batches: Count::default(),
            records: Count::default(),
            bytes: Count::default(),
            produces: Histogram::of_times(),
            writes: Histogram::of_times(),
            fsyncs: Histogram::of_times(),
            groups: Histogram::of_counts(),
        }
    }

    /// The clock is read at both ends of the append and of the fsync; a request has its time of arrival anyway.
    fn batch(&self, received: Instant) {
        self.requests.add(1);
        let began = Instant::now();
        self.batches.add(1);
        self.records.add(black_box(10));
        self.bytes.add(black_box(1_000));
        self.writes.took(began.elapsed());
        let began = Instant::now();
        self.fsyncs.took(began.elapsed());
        self.groups.observe(black_box(1));
        self.produces.took(received.elapsed());
    }
}

fn bench(c: &mut Criterion) {
    let counted = Counted::new();
    let received = Instant::now();
    c.bench_function("everything that is counted of one batch", |b| {
        b.iter(|| counted.batch(black_box(received)));
    });
    let times = Histogram::of_times();
    c.bench_function("one number into a histogram", |b| {
        b.iter(|| times.observe(black_box(1_234_567)));
    });
    c.bench_function("a look at the clock", |b| b.iter(Instant::now));
}

criterion_group!(benches, bench);
criterion_main!(benches);
