//! How many connections there may be.
//!
//! Owns:     the counts in total, by address and by listener, and the rates of accepting.
//! Does not: accept or refuse; it answers whether there is room.
//! Counts are taken by the accepting thread and given back by any net thread.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::config::{ConnectionLimits, Limits};

/// Which limit a connection ran into.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Full {
    Total,
    Address,
}

/// Connections counted in total, by address and by listener.
#[derive(Debug)]
pub(crate) struct Counts {
    /// What descriptors allow, whatever is asked for.
    ceiling: usize,
    total_max: AtomicUsize,
    per_address_max: AtomicUsize,
    per_second_max: AtomicU32,
    by_address_max: HashMap<IpAddr, usize>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
    by_listener: HashMap<usize, usize>,
}

impl Counts {
    /// `descriptors` is the process's soft limit.
    pub(crate) fn new(limits: &Limits, descriptors: usize) -> Arc<Self> {
        let reserved = limits.descriptors_reserved.min(descriptors / 2);
        let counts = Self {
            ceiling: descriptors - reserved,
            total_max: AtomicUsize::new(0),
            per_address_max: AtomicUsize::new(0),
            per_second_max: AtomicU32::new(0),
            by_address_max: limits.connections_by_address.clone(),
            held: Mutex::new(Held::default()),
        };
        counts.limit(&limits.connections());
        Arc::new(counts)
    }

    /// Other limits hold for connections that come from now on.
    pub(crate) fn limit(&self, to: &ConnectionLimits) {
        let total = to.total.min(self.ceiling);
        self.total_max.store(total, Ordering::Relaxed);
        self.per_address_max
            .store(to.per_address, Ordering::Relaxed);
        self.per_second_max.store(to.per_second, Ordering::Relaxed);
    }

    /// How many may be accepted in a second.
    pub(crate) fn per_second_max(&self) -> u32 {
        self.per_second_max.load(Ordering::Relaxed)
    }

    /// The limit in force, after the reserve of descriptors.
    pub(crate) fn total_max(&self) -> usize {
        self.total_max.load(Ordering::Relaxed)
    }

    pub(crate) fn total(&self) -> usize {
        self.held.lock().total
    }

    pub(crate) fn of_listener(&self, listener: usize) -> usize {
        let held = self.held.lock();
        held.by_listener.get(&listener).copied().unwrap_or(0)
    }

    /// Counts a connection, if there is room for it. What its listener allows is for the acceptor to ask before
    /// it accepts.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr, listener: usize) -> Result<Place, Full> {
        let address = address.to_canonical();
        let own_max = self.by_address_max.get(&address).copied();
        let mut held = self.held.lock();
        if held.total >= self.total_max() {
            return Err(Full::Total);
        }
        let of_address = held.by_address.get(&address).copied().unwrap_or(0);
        if of_address >= own_max.unwrap_or_else(|| self.per_address_max.load(Ordering::Relaxed)) {
            return Err(Full::Address);
        }
        held.total += 1;
        held.by_address.insert(address, of_address + 1);
        *held.by_listener.entry(listener).or_default() += 1;
        Ok(Place {
            counts: Arc::clone(self),
            address,
            listener,
        })
    }
}

/// A counted connection; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    counts: Arc<Counts>,
    address: IpAddr,
    listener: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.counts.held.lock();
        held.total -= 1;
        if let Some(count) = held.by_listener.get_mut(&self.listener) {
            *count -= 1;
        }
        if let Some(count) = held.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                held.by_address.remove(&self.address);
            }
        }
    }
}

/// A token bucket whose size is one second's worth.
#[derive(Debug)]
pub(crate) struct Rate {
    per_second: u32,
    tokens: u32,
    filled_at: Instant,
}

impl Rate {
    pub(crate) fn new(per_second: u32, now: Instant) -> Self {
        Self {
            per_second: per_second.max(1),
            tokens: per_second.max(1),
            filled_at: now,
        }
    }

    /// Another pace from now on; nothing happens if it is the same.
    pub(crate) fn set(&mut self, per_second: u32) {
        self.per_second = per_second.max(1);
        self.tokens = self.tokens.min(self.per_second);
    }

    /// Takes a token, or says when to come again.
    pub(crate) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        if self.tokens == 0 {
            self.fill(now);
        }
        match self.tokens.checked_sub(1) {
            Some(left) => {
                self.tokens = left;
                Ok(())
            }
            None => Err(self.filled_at + self.token_interval()),
        }
    }

    /// A token that was taken for nothing.
    pub(crate) fn give_back(&mut self) {
        self.tokens = self.tokens.saturating_add(1).min(self.per_second);
    }

    fn token_interval(&self) -> Duration {
        Duration::from_secs(1) / self.per_second
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled_at);
        let tokens = passed.as_nanos() / self.token_interval().as_nanos().max(1);
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        if tokens > 0 {
            self.tokens = tokens.min(self.per_second);
            self.filled_at = now;
        }
    }
}

/// Lets a few log lines through per interval and counts the rest.
#[derive(Debug)]
pub(crate) struct LogLimit {
    since: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Enough to see what goes on, too few to fill a journal.
    const LINES_MAX: u32 = 10;
    const INTERVAL: Duration = Duration::from_secs(10);

    pub(crate) fn new() -> Self {
        Self {
            since: None,
            lines: 0,
            suppressed: 0,
        }
    }

    /// Whether a line may be written; if so, how many were suppressed since the last one.
    pub(crate) fn allow(&mut self, now: Instant) -> Option<u64> {
        let over = |since| now.saturating_duration_since(since) >= Self::INTERVAL;
        if self.since.is_none_or(over) {
            self.since = Some(now);
            self.lines = 0;
        }
        if self.lines >= Self::LINES_MAX {
            self.suppressed += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(total: usize, per_address: usize, descriptors: usize) -> Arc<Counts> {
        let limits = Limits {
            connections_max: total,
            connections_per_address_max: per_address,
            descriptors_reserved: 100,
            ..Limits::default()
        };
        Counts::new(&limits, descriptors)
    }

    #[test]
    fn connections_are_bounded_in_total_and_by_address_and_given_back() {
        let counts = counts(3, 2, 10_000);
        let (a, b): (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
        let first = counts.enter(a, 0).unwrap();
        let _second = counts.enter(a, 0).unwrap();
        assert_eq!(counts.enter(a, 0).unwrap_err(), Full::Address);
        let _third = counts.enter(b, 0).unwrap();
        assert_eq!(counts.enter(b, 0).unwrap_err(), Full::Total);
        assert_eq!((counts.of_listener(0), counts.of_listener(1)), (3, 0));
        drop(first);
        assert_eq!(counts.of_listener(0), 2);
        assert!(counts.enter(a, 1).is_ok());
    }

    #[test]
    fn some_addresses_have_limits_of_their_own() {
        let (a, b): (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
        let limits = Limits {
            connections_per_address_max: 1,
            connections_by_address: HashMap::from([(a, 2), (b, 0)]),
            ..Limits::default()
        };
        let counts = Counts::new(&limits, 10_000);
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        let _held = (
            counts.enter(a, 0).unwrap(),
            counts.enter(mapped, 0).unwrap(),
        );
        assert_eq!(counts.enter(a, 0).unwrap_err(), Full::Address);
        assert_eq!(counts.enter(b, 0).unwrap_err(), Full::Address);
    }

    #[test]
    fn other_limits_hold_for_those_who_come_later() {
        let counts = counts(2, 2, 1_024);
        let a: IpAddr = [127, 0, 0, 1].into();
        let limit = |total, per_address| {
            counts.limit(&ConnectionLimits {
                total,
                per_address,
                per_second: 1,
            });
        };
        let _held = (counts.enter(a, 0).unwrap(), counts.enter(a, 0).unwrap());
        limit(1, 9);
        assert_eq!(counts.enter(a, 0).unwrap_err(), Full::Total, "those stay");
        limit(9, 1);
        assert_eq!(counts.enter(a, 0).unwrap_err(), Full::Address);
        limit(10_000, 9);
        assert!(counts.enter(a, 0).is_ok());
        assert_eq!(counts.total_max(), 924, "what descriptors allow");
        let start = Instant::now();
        let mut rate = Rate::new(10, start);
        rate.set(1);
        assert!(rate.take(start).is_ok() && rate.take(start).is_err());
    }

    #[test]
    fn d05_descriptors_are_kept_back_for_storage() {
        assert_eq!(counts(10_000, 10_000, 1_024).total_max(), 924);
        assert_eq!(counts(10_000, 10_000, 128).total_max(), 64, "half at most");
        assert_eq!(counts(50, 10_000, 1_024).total_max(), 50);
    }

    #[test]
    fn the_rate_allows_a_burst_and_then_its_pace() {
        let start = Instant::now();
        let mut rate = Rate::new(10, start);
        for _ in 0..10 {
            assert!(rate.take(start).is_ok());
        }
        let again = rate.take(start).unwrap_err();
        assert_eq!(again - start, Duration::from_millis(100));
        assert!(rate.take(again).is_ok());
        assert!(rate.take(again).is_err());
        rate.give_back();
        assert!(rate.take(again).is_ok());
        assert!(rate.take(start + Duration::from_secs(60)).is_ok());
    }

    #[test]
    fn log_lines_are_limited_and_the_rest_is_counted() {
        let start = Instant::now();
        let mut limit = LogLimit::new();
        let allowed = (0..100).filter(|_| limit.allow(start).is_some()).count();
        assert_eq!(allowed, 10);
        assert_eq!(limit.allow(start + LogLimit::INTERVAL), Some(90));
    }
}
