//! Fetch sessions (KIP-227): what readers want, kept between their polls.
//!
//! Owns:     which sessions there are, and which one makes room for another.
//! Does not: read partitions, or know the wire; `api::fetch` does.
//!
//! A session belongs to its id, not to a connection. Net threads open, find and
//! close sessions; whoever answers a fetch opens them, too.
//!
//! # Invariants
//! S1. There are never more than `slots` sessions.
//! S2. All sessions together hold at most `PARTITIONS_PER_SLOT` times `slots`
//!     partitions, and one holds at most `PARTITIONS_MAX`.
//! S3. The lock of the cache and that of a session are never held together.

mod session;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub use session::{Kept, PartKey, Seen, Session, SessionError, TopicKey, Wanted};

/// A session that was not used for this long makes room for any other one, and
/// one that exists for this long for a larger one; Kafka's number.
const EVICTION_AGE: Duration = Duration::from_secs(120);
/// Partitions per slot, on average: half a million, or some 110 MB, with the
/// thousand slots of the default. Kafka keeps no such bound.
const PARTITIONS_PER_SLOT: usize = 500;
/// Partitions of one session: more than one consumer reads, and a fraction of
/// what all may hold.
const PARTITIONS_MAX: usize = 100_000;

/// Names a session; 0 stands for none.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SessionId(i32);

impl SessionId {
    /// No session.
    pub const NONE: Self = Self(0);

    /// As it came from the wire; any number.
    pub fn new(id: i32) -> Self {
        Self(id)
    }

    /// As it goes on the wire.
    pub fn get(self) -> i32 {
        self.0
    }

    /// Hard to guess, since whoever knows an id may use the session.
    fn random() -> Self {
        let (_, random) = uuid::Uuid::new_v4().as_u64_pair();
        let id = i32::try_from(random & 0x7fff_ffff).unwrap_or(1);
        Self(id.max(1))
    }
}

/// The place of a fetch in its session; the next one is one higher.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SessionEpoch(i32);

impl SessionEpoch {
    /// The fetch that opens a session.
    pub const INITIAL: Self = Self(0);
    /// A fetch outside of any session.
    pub const FINAL: Self = Self(-1);

    /// As it came from the wire; any number.
    pub fn new(epoch: i32) -> Self {
        Self(epoch)
    }

    /// Whether the fetch names all that it wants.
    pub fn is_full(self) -> bool {
        self == Self::INITIAL || self == Self::FINAL
    }

    /// What follows. It goes round, but never through the two special ones.
    #[must_use]
    pub fn next(self) -> Self {
        match self.0 {
            ..0 => Self::FINAL,
            i32::MAX => Self(1),
            epoch => Self(epoch + 1),
        }
    }
}

/// Numbers for people.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Sessions that are open.
    pub sessions: usize,
    /// Partitions in them.
    pub partitions: usize,
    /// Sessions that had to make room for others.
    pub evictions: u64,
}

/// See the module.
pub struct FetchSessions {
    state: Mutex<State>,
}

struct State {
    slots: usize,
    sessions: HashMap<SessionId, Entry>,
    by_use: BTreeSet<(Instant, SessionId)>,
    /// Those that exist for long enough to make room for a larger one.
    by_size: BTreeSet<(usize, SessionId)>,
    partitions: usize,
    evictions: u64,
}

struct Entry {
    session: Arc<Session>,
    created: Instant,
    used: Instant,
    size: usize,
}

impl FetchSessions {
    /// Room for that many sessions; with 0 nobody gets one.
    pub fn new(slots: u32) -> Self {
        Self {
            state: Mutex::new(State {
                slots: usize::try_from(slots).unwrap_or(usize::MAX),
                sessions: HashMap::new(),
                by_use: BTreeSet::new(),
                by_size: BTreeSet::new(),
                partitions: 0,
                evictions: 0,
            }),
        }
    }

    /// The session of that id.
    pub fn find(&self, id: SessionId) -> Option<Arc<Session>> {
        let state = self.state.lock();
        let entry = state.sessions.get(&id)?;
        Some(Arc::clone(&entry.session))
    }

    /// Opens a session for these partitions. [`SessionId::NONE`] if there is no
    /// room: then the reader goes on without one.
    pub fn open(&self, by_id: bool, parts: Vec<Kept>, now: Instant) -> SessionId {
        let size = parts.len();
        let made_room = self.state.lock().make_room(size, now);
        if !made_room {
            return SessionId::NONE;
        }
        // Filling a large one takes a while, and nobody should wait for that.
        let entry = Entry {
            session: Arc::new(Session::new(SessionId::random(), by_id, parts)),
            created: now,
            used: now,
            size,
        };
        let id = entry.session.id;
        let mut state = self.state.lock();
        if !state.fits(1, size) || state.sessions.contains_key(&id) {
            return SessionId::NONE;
        }
        state.put(entry, now);
        id
    }

    /// A session was used and holds `size` partitions now. `false` if there is
    /// no room for these any more: then it is closed.
    #[must_use]
    pub fn touch(&self, id: SessionId, size: usize, now: Instant) -> bool {
        let mut state = self.state.lock();
        // One that was evicted just now still answers the fetch in hand.
        let Some(mut entry) = state.remove(id) else {
            return true;
        };
        if !state.make_room(size, now) {
            return false;
        }
        entry.used = now;
        entry.size = size;
        state.put(entry, now);
        true
    }

    /// Ends a session, if there is one of that id.
    pub fn close(&self, id: SessionId) {
        if id == SessionId::NONE {
            return;
        }
        let gone = self.state.lock().remove(id);
        drop(gone);
    }

    /// Numbers for people.
    pub fn stats(&self) -> Stats {
        let state = self.state.lock();
        Stats {
            sessions: state.sessions.len(),
            partitions: state.partitions,
            evictions: state.evictions,
        }
    }
}

impl State {
    fn fits(&self, sessions: usize, partitions: usize) -> bool {
        let partitions_max = self.slots.saturating_mul(PARTITIONS_PER_SLOT);
        partitions <= PARTITIONS_MAX
            && self.sessions.len() + sessions <= self.slots
            && self.partitions + partitions <= partitions_max
    }

    /// S1, S2: evicts what may go, until one more session of `size` partitions
    /// fits. `false` if that is not enough.
    fn make_room(&mut self, size: usize, now: Instant) -> bool {
        if self.slots == 0 || size > PARTITIONS_MAX {
            return false;
        }
        while !self.fits(1, size) {
            let smaller_counts = self.sessions.len() >= self.slots;
            let stale = self.stale(now);
            let next = stale.or_else(|| self.smaller(size).filter(|_| smaller_counts));
            let Some(id) = next else { return false };
            drop(self.remove(id));
            self.evictions += 1;
        }
        true
    }

    fn stale(&self, now: Instant) -> Option<SessionId> {
        let (used, id) = self.by_use.first()?;
        (now.saturating_duration_since(*used) > EVICTION_AGE).then_some(*id)
    }

    fn smaller(&self, size: usize) -> Option<SessionId> {
        let (smallest, id) = self.by_size.first()?;
        (*smallest < size).then_some(*id)
    }

    fn put(&mut self, entry: Entry, now: Instant) {
        let id = entry.session.id;
        self.by_use.insert((entry.used, id));
        if now.saturating_duration_since(entry.created) > EVICTION_AGE {
            self.by_size.insert((entry.size, id));
        }
        self.partitions += entry.size;
        self.sessions.insert(id, entry);
    }

    fn remove(&mut self, id: SessionId) -> Option<Entry> {
        let entry = self.sessions.remove(&id)?;
        self.by_use.remove(&(entry.used, id));
        self.by_size.remove(&(entry.size, id));
        self.partitions -= entry.size;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_storage::Offset;

    const SECOND: Duration = Duration::from_secs(1);

    fn parts(count: i32) -> Vec<Kept> {
        let wanted = Wanted {
            offset: Offset::new(0),
            leader_epoch: -1,
            last_fetched_epoch: -1,
            max_bytes: 1,
        };
        let key = |index| PartKey {
            topic: TopicKey::Named("t".into()),
            index,
        };
        let kept = |index| Kept::new(key(index), wanted, Seen::default());
        (0..count).map(kept).collect()
    }

    #[test]
    fn a_full_cache_refuses_until_one_is_old_and_smaller_or_stale() {
        let sessions = FetchSessions::new(2);
        let start = Instant::now();
        let large = sessions.open(false, parts(9), start);
        let small = sessions.open(false, parts(3), start);
        assert_eq!(sessions.open(false, parts(5), start), SessionId::NONE);

        let old = start + EVICTION_AGE + SECOND;
        assert!(sessions.touch(large, 9, old) && sessions.touch(small, 3, old));
        let equal = sessions.open(false, parts(3), old);
        assert_eq!(equal, SessionId::NONE, "an equal one is not better");
        let larger = sessions.open(false, parts(4), old);
        assert_ne!(larger, SessionId::NONE);
        assert!(sessions.find(small).is_none() && sessions.find(large).is_some());

        // The new one is young: it stays, whatever comes.
        assert_eq!(
            sessions.open(false, parts(8), old + SECOND),
            SessionId::NONE
        );
        let later = old + EVICTION_AGE + SECOND;
        assert!(sessions.touch(larger, 4, later));
        let tiny = sessions.open(false, parts(1), later);
        assert_ne!(tiny, SessionId::NONE, "the large one was not used for long");
        assert!(sessions.find(large).is_none() && sessions.find(larger).is_some());
        let stats = Stats {
            sessions: 2,
            partitions: 5,
            evictions: 2,
        };
        assert_eq!(sessions.stats(), stats);
    }

    #[test]
    fn partitions_are_bounded_per_session_and_in_all() {
        let now = Instant::now();
        let sessions = FetchSessions::new(2);
        let first = sessions.open(false, parts(600), now);
        assert_ne!(first, SessionId::NONE);
        let second = sessions.open(false, parts(401), now);
        assert_eq!(second, SessionId::NONE, "1001 of 1000");
        let second = sessions.open(false, parts(400), now);
        assert_ne!(second, SessionId::NONE);
        assert!(!sessions.touch(first, 601, now), "it grew too large");
        assert!(sessions.find(first).is_none());
        assert_eq!(sessions.stats().partitions, 400);

        let sessions = FetchSessions::new(1_000);
        let too_many = i32::try_from(PARTITIONS_MAX).unwrap() + 1;
        assert_eq!(sessions.open(false, parts(too_many), now), SessionId::NONE);
        assert_eq!(sessions.stats(), Stats::default());
    }

    #[test]
    fn without_slots_nobody_gets_a_session() {
        let sessions = FetchSessions::new(0);
        assert_eq!(
            sessions.open(false, parts(1), Instant::now()),
            SessionId::NONE
        );
    }

    #[test]
    fn a_closed_session_is_gone_and_its_partitions_are_not_counted() {
        let sessions = FetchSessions::new(2);
        let now = Instant::now();
        let id = sessions.open(true, parts(7), now);
        sessions.close(id);
        sessions.close(id);
        assert!(sessions.find(id).is_none());
        assert_eq!(sessions.stats(), Stats::default());
        assert!(sessions.touch(id, 7, now), "the fetch in hand is answered");
        assert_eq!(sessions.stats(), Stats::default());
    }

    #[test]
    fn epochs_go_round_past_the_special_ones() {
        let next = |epoch| SessionEpoch::new(epoch).next();
        assert_eq!(next(0), SessionEpoch::new(1));
        assert_eq!(next(i32::MAX), SessionEpoch::new(1));
        assert_eq!(next(-1), SessionEpoch::FINAL);
        assert_eq!(next(-7), SessionEpoch::FINAL);
    }
}
