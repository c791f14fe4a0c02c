//! How often a number fell into which range.
//!
//! Owns:     fixed ranges and their counts, as relaxed atomics: no lock, so it may stand on the hot path.
//! Does not: know what the numbers are, or how they are told (`metrics` does).
//!
//! Any thread observes; who reads sees each count as it is then, not all of one moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds for times, in nanoseconds: from a page cache to a client that gives up.
static TIMES: [u64; 18] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
];

/// Upper bounds for numbers of things.
static COUNTS: [u64; 12] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096];

/// See the module.
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than there are bounds: the last one has none.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// What a histogram held when it was read.
pub struct Observed {
    /// Upper bounds, in the unit of what was observed (nanoseconds for times).
    pub bounds: &'static [u64],
    /// How many fell below each bound and not below the one before; the last are beyond all.
    pub counts: Vec<u64>,
    /// All that was observed.
    pub sum: u64,
}

impl Histogram {
    /// For times.
    pub fn of_times() -> Self {
        Self::new(&TIMES)
    }

    /// For numbers of things.
    pub fn of_counts() -> Self {
        Self::new(&COUNTS)
    }

    fn new(bounds: &'static [u64]) -> Self {
        Self {
            bounds,
            buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Takes in one time.
    pub fn took(&self, time: Duration) {
        self.observe(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Takes in one number.
    pub fn observe(&self, number: u64) {
        let place = self.bounds.partition_point(|bound| *bound < number);
        if let Some(bucket) = self.buckets.get(place) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(number, Ordering::Relaxed);
    }

    /// How many numbers it took in.
    pub fn count(&self) -> u64 {
        let counts = self.buckets.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// All of them together.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// What it holds now.
    pub fn read(&self) -> Observed {
        let counts = self.buckets.iter();
        Observed {
            bounds: self.bounds,
            counts: counts.map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_falls_into_the_first_range_that_holds_it() {
        let sizes = Histogram::of_counts();
        for number in [0, 1, 2, 3, 4, 4096, 4097] {
            sizes.observe(number);
        }
        let seen = sizes.read();
        assert_eq!(seen.counts, [2, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(seen.sum, 8203);
        assert_eq!((sizes.count(), sizes.sum()), (7, 8203));
        assert!(seen.bounds.is_sorted());
    }

    #[test]
    fn a_time_is_counted_in_nanoseconds() {
        let times = Histogram::of_times();
        times.took(Duration::from_micros(50));
        times.took(Duration::from_secs(3600));
        let seen = times.read();
        assert_eq!((seen.counts[0], seen.counts[18]), (1, 1));
        assert!(seen.bounds.is_sorted());
    }
}
