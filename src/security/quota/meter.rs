//! Measuring: how much in the last seconds, and how long to wait until it is within the limit again.
//!
//! Owns:     Kafka's arithmetic of rates over samples, and its token bucket.
//! Does not: know who is measured, or read a clock.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Over how much time is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// `quota.window.num`
    pub(crate) samples: u32,
    /// `quota.window.size.seconds`
    pub(crate) sample: Duration,
}

impl Window {
    /// All of it.
    pub(crate) fn whole(self) -> Duration {
        self.sample * self.samples
    }

    /// The samples that are surely complete.
    pub(crate) fn complete(self) -> Duration {
        self.sample * self.samples.saturating_sub(1).max(1)
    }
}

/// A rate: the sum over the samples by the time they cover.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    samples: VecDeque<(Instant, f64)>,
}

impl Meter {
    /// Adds an amount; a negative one takes back what was added too much.
    pub(crate) fn record(&mut self, window: Window, now: Instant, amount: f64) {
        self.forget(window, now);
        match self.samples.back_mut() {
            Some((since, sum)) if now.saturating_duration_since(*since) < window.sample => {
                *sum += amount;
            }
            _ => self.samples.push_back((now, amount)),
        }
    }

    /// How long to do nothing, so that the rate is `bound` per second again.
    pub(crate) fn throttle(&mut self, window: Window, now: Instant, bound: f64) -> Duration {
        self.forget(window, now);
        let Some((oldest, _)) = self.samples.front() else {
            return Duration::ZERO;
        };
        let sum: f64 = self.samples.iter().map(|(_, sum)| sum).sum();
        let covered = covered(window, now.saturating_duration_since(*oldest));
        let rate = sum / covered.as_secs_f64();
        if rate <= bound || bound <= 0.0 {
            return Duration::ZERO;
        }
        let seconds = (rate - bound) / bound * covered.as_secs_f64();
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Whether nothing of it counts any more.
    pub(crate) fn is_idle(&mut self, window: Window, now: Instant) -> bool {
        self.forget(window, now);
        self.samples.is_empty()
    }

    fn forget(&mut self, window: Window, now: Instant) {
        let old = |since: Instant| now.saturating_duration_since(since) >= window.whole();
        while self.samples.front().is_some_and(|(since, _)| old(*since)) {
            self.samples.pop_front();
        }
    }
}

/// The time that a rate is over: at least all samples but one, as in Kafka, so that a first burst does
/// not count as a lasting one.
fn covered(window: Window, elapsed: Duration) -> Duration {
    let sample = window.sample.as_nanos().max(1);
    let full = elapsed.as_nanos() / sample;
    let missing = u128::from(window.samples.saturating_sub(1)).saturating_sub(full);
    let missing = u32::try_from(missing).unwrap_or(0);
    (elapsed + window.sample * missing).max(window.sample)
}

/// A token bucket that holds what may be done in one window (KIP-599).
#[derive(Debug)]
pub(crate) struct Tokens {
    left: f64,
    at: Option<Instant>,
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            left: 0.0,
            at: None,
        }
    }
}

impl Tokens {
    fn fill(&mut self, window: Window, now: Instant, per_second: f64) {
        let full = per_second * window.whole().as_secs_f64();
        let passed = self.at.map(|at| now.saturating_duration_since(at));
        self.left = match passed {
            None => full,
            Some(passed) => (self.left + per_second * passed.as_secs_f64()).min(full),
        };
        self.at = Some(now);
    }

    /// Whether something may be taken: what is there may be overdrawn once.
    pub(crate) fn has_some(&mut self, window: Window, now: Instant, per_second: f64) -> bool {
        self.fill(window, now, per_second);
        self.left >= 0.0
    }

    /// Takes an amount.
    pub(crate) fn take(&mut self, window: Window, now: Instant, (amount, rate): (f64, f64)) {
        self.fill(window, now, rate);
        self.left -= amount;
    }

    /// How long until nothing is overdrawn.
    pub(crate) fn throttle(&mut self, window: Window, now: Instant, per_second: f64) -> Duration {
        self.fill(window, now, per_second);
        if self.left >= 0.0 || per_second <= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.left / per_second).unwrap_or(Duration::MAX)
    }
}
