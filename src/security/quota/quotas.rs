//! Who has done how much, and for how long they are to be held up.
//!
//! Owns:     the meters of all who have a limit.
//! Does not: hold anybody up.
//!
//! # Invariants
//! M1. Memory is bounded however many names strangers make up: meters that measure nothing are forgotten,
//!     and beyond the most there can be all newcomers share one.
//! M2. Where no limit is set, nothing is measured: a request costs one relaxed load.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seawall_storage::disk::Disk;

use super::entity::QuotaKind;
use super::meter::{Meter, Tokens, Window};
use super::store::{Alteration, ChangeError, QuotaStore};
use super::table::Counting;
use crate::cluster::{Cluster, StateError};
use crate::config::AccessConfig;

/// Meters at a time (M1).
const METERS_MAX: usize = 50_000;
/// How often idle meters are looked for, when there is no room.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Percent in a nanosecond of a second.
const PERCENT_PER_NANOSECOND: f64 = 1e-7;

/// Who is measured.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    /// The user, without `User:`.
    pub(crate) user: Arc<str>,
    /// The client id; empty if there is none.
    pub(crate) id: Arc<str>,
}

/// Whose meter it is: of a user, a client id, both, or of all for whom there was no room.
type Owner = (QuotaKind, Option<Arc<str>>, Option<Arc<str>>);

/// See the module.
pub(crate) struct Quotas {
    store: QuotaStore,
    window: Window,
    mutation_window: Window,
    meters: Mutex<Meters>,
    /// Answers that told of a throttle time, by kind.
    throttled: [AtomicU64; 5],
}

#[derive(Debug, Default)]
struct Meters {
    all: HashMap<Owner, Arc<Mutex<Measure>>>,
    /// When it was last looked for idle ones.
    swept: Option<Instant>,
}

#[derive(Debug, Default)]
struct Measure {
    rate: Meter,
    tokens: Tokens,
    used: Option<Instant>,
}

impl Quotas {
    /// The quotas of a cluster.
    ///
    /// # Errors
    /// The limits cannot be read.
    pub(crate) fn open(
        config: &AccessConfig,
        cluster: &Cluster,
        disk: &Arc<dyn Disk>,
    ) -> Result<Self, StateError> {
        let claim = Some(Arc::clone(&cluster.claim));
        let store = QuotaStore::open(Arc::clone(disk), &cluster.dir, claim)?;
        Ok(Self::new(
            store,
            config.quota_window,
            config.mutation_window,
        ))
    }

    /// The window of client quotas, and that of controller mutations.
    pub(crate) fn new(store: QuotaStore, window: Window, mutation_window: Window) -> Self {
        Self {
            store,
            window,
            mutation_window,
            meters: Mutex::default(),
            throttled: Default::default(),
        }
    }

    /// The limits as they stand.
    pub(crate) fn store(&self) -> &QuotaStore {
        &self.store
    }

    /// Changes limits; they count from the next request on.
    ///
    /// # Errors
    /// None was changed.
    pub(crate) fn alter(&self, alterations: &[Alteration]) -> Result<(), ChangeError> {
        self.store.alter(alterations)
    }

    /// Whether any client has a limit (M2).
    pub(crate) fn has_limits(&self) -> bool {
        self.store.limits_clients()
    }

    /// How often each kind of limit held somebody up.
    pub(crate) fn throttled(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let kinds = [
            QuotaKind::ProducerByteRate,
            QuotaKind::ConsumerByteRate,
            QuotaKind::RequestPercentage,
            QuotaKind::ControllerMutationRate,
            QuotaKind::ConnectionCreationRate,
        ];
        let counts = kinds.into_iter().zip(&self.throttled);
        counts.map(|(kind, count)| (kind.name(), count.load(Ordering::Relaxed)))
    }

    fn count(&self, kind: QuotaKind, time: Duration) -> Duration {
        if !time.is_zero()
            && let Some(count) = self.throttled.get(kind as usize)
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
        time
    }

    /// Notes bytes that a client sent or got; says how long to hold it up.
    pub(crate) fn bytes(&self, client: &Client, kind: QuotaKind, bytes: usize) -> Duration {
        let Some((limit, measure)) = self.measure(client, kind) else {
            return Duration::ZERO;
        };
        let now = Instant::now();
        let mut measure = measure.lock();
        measure.rate.record(self.window, now, bytes as f64);
        let time = measure.rate.throttle(self.window, now, limit);
        drop(measure);
        self.count(kind, time)
    }

    /// Notes time that a client's request took of a thread.
    pub(crate) fn worked(&self, client: &Client, time: Duration) {
        if let Some((_, measure)) = self.measure(client, QuotaKind::RequestPercentage) {
            let percent = time.as_nanos() as f64 * PERCENT_PER_NANOSECOND;
            let mut measure = measure.lock();
            measure.rate.record(self.window, Instant::now(), percent);
        }
    }

    /// How long to hold a client up for the time that it took: one sample of the window at most, as in
    /// Kafka.
    pub(crate) fn work_throttle(&self, client: &Client) -> Duration {
        let kind = QuotaKind::RequestPercentage;
        let Some((limit, measure)) = self.measure(client, kind) else {
            return Duration::ZERO;
        };
        let mut measure = measure.lock();
        let time = measure.rate.throttle(self.window, Instant::now(), limit);
        drop(measure);
        self.count(kind, time.min(self.window.sample))
    }

    /// The most bytes that a consumer may get at once without a wait of more than a window.
    pub(crate) fn fetch_bytes_max(&self, client: &Client) -> Option<usize> {
        let table = self.store.load();
        let kind = QuotaKind::ConsumerByteRate;
        let counting = table.of_client(&client.user, &client.id, kind)?;
        let bytes = counting.limit * self.window.complete().as_secs_f64();
        // Beyond 2^53 it is no limit.
        Some(if bytes >= 9e15 {
            usize::MAX
        } else {
            format!("{:.0}", bytes.max(1.0))
                .parse()
                .unwrap_or(usize::MAX)
        })
    }

    /// The mutations of one request.
    pub(crate) fn mutations<'a>(&'a self, client: &Client, strict: bool) -> Mutations<'a> {
        Mutations {
            quotas: self,
            counted: self.measure(client, QuotaKind::ControllerMutationRate),
            strict,
            until: Cell::new(None),
        }
    }

    /// Whether an address may connect once more, or for how long to hold it up: one sample of the window at
    /// most, as in Kafka.
    pub(crate) fn connect(&self, address: IpAddr) -> Duration {
        if !self.store.limits_addresses() {
            return Duration::ZERO;
        }
        let Some(limit) = self.store.load().of_ip(address) else {
            return Duration::ZERO;
        };
        let kind = QuotaKind::ConnectionCreationRate;
        let name: Arc<str> = address.to_string().into();
        let measure = self.meter((kind, Some(name), None));
        let now = Instant::now();
        let mut measure = measure.lock();
        measure.rate.record(self.window, now, 1.0);
        let time = measure.rate.throttle(self.window, now, limit);
        if !time.is_zero() {
            // It did not come in.
            measure.rate.record(self.window, now, -1.0);
        }
        drop(measure);
        self.count(kind, time.min(self.window.sample))
    }

    fn measure(&self, client: &Client, kind: QuotaKind) -> Option<(f64, Arc<Mutex<Measure>>)> {
        let table = self.store.load();
        let Counting {
            limit,
            by_user,
            by_client,
        } = table.of_client(&client.user, &client.id, kind)?;
        let user = by_user.then(|| Arc::clone(&client.user));
        let id = by_client.then(|| Arc::clone(&client.id));
        Some((limit, self.meter((kind, user, id))))
    }

    /// How many meters there are.
    #[cfg(test)]
    pub(super) fn meters_len(&self) -> usize {
        self.meters.lock().all.len()
    }

    /// M1.
    fn meter(&self, owner: Owner) -> Arc<Mutex<Measure>> {
        let now = Instant::now();
        let mut meters = self.meters.lock();
        if meters.all.len() >= METERS_MAX && !meters.all.contains_key(&owner) {
            let lasts = self.window.whole().max(self.mutation_window.whole());
            meters.sweep(now, lasts, self.window);
            if meters.all.len() >= METERS_MAX {
                let shared = (owner.0, None, None);
                return Arc::clone(meters.all.entry(shared).or_default());
            }
        }
        let measure = Arc::clone(meters.all.entry(owner).or_default());
        drop(meters);
        measure.lock().used = Some(now);
        measure
    }
}

impl Meters {
    /// Forgets the idle ones; newcomers in a crowd do not each look through all.
    fn sweep(&mut self, now: Instant, lasts: Duration, window: Window) {
        let recently = |at| now.saturating_duration_since(at) < SWEEP_INTERVAL;
        if !self.swept.is_some_and(recently) {
            self.swept = Some(now);
            self.all
                .retain(|_, measure| measure.lock().is_used(now, lasts, window));
        }
    }
}

impl Measure {
    fn is_used(&mut self, now: Instant, lasts: Duration, window: Window) -> bool {
        let recently = |at| now.saturating_duration_since(at) < lasts;
        self.used.is_some_and(recently) || !self.rate.is_idle(window, now)
    }
}

/// See [`Quotas::mutations`].
pub(crate) struct Mutations<'a> {
    quotas: &'a Quotas,
    counted: Option<(f64, Arc<Mutex<Measure>>)>,
    strict: bool,
    /// Until when the client is to be held up.
    until: Cell<Option<Instant>>,
}

impl Mutations<'_> {
    /// Takes the right to create or delete so many partitions. Old clients get it always, and are held up
    /// afterwards; new ones are held up where something was refused, as in Kafka.
    pub(crate) fn take(&self, partitions: usize) -> bool {
        let Some((limit, measure)) = &self.counted else {
            return true;
        };
        let (window, now) = (self.quotas.mutation_window, Instant::now());
        let tokens = &mut measure.lock().tokens;
        let is_refused = self.strict && !tokens.has_some(window, now, *limit);
        if !is_refused {
            tokens.take(window, now, (partitions as f64, *limit));
        }
        if is_refused || !self.strict {
            let time = tokens.throttle(window, now, *limit);
            self.until.set(now.checked_add(time));
        }
        !is_refused
    }

    /// How long the client is to be held up, in milliseconds.
    pub(crate) fn throttle_ms(&self) -> i32 {
        let Some(until) = self.until.get() else {
            return 0;
        };
        let time = until.saturating_duration_since(Instant::now());
        let time = self.quotas.count(QuotaKind::ControllerMutationRate, time);
        millis(time)
    }
}

/// Whole milliseconds, as the wire has them; a part of one counts as one.
pub(crate) fn millis(time: Duration) -> i32 {
    let millis = time.as_nanos().div_ceil(1_000_000);
    i32::try_from(millis).unwrap_or(i32::MAX)
}
