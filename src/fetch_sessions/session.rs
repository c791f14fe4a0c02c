//! One fetch session: its partitions in the order in which they are read, and
//! what its reader was last told about each.
//!
//! Owns:     the rules of KIP-227 about epochs and about which partitions an
//!           incremental answer names.
//! Does not: know how many sessions there are, or read.
//!
//! # Invariants
//! P1. `order` and `places` hold the same partitions.
//! P2. A partition that has brought records is read last from then on, so that
//!     one that never runs dry does not starve the others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use seawall_storage::{Offset, TopicId};

use super::{SessionEpoch, SessionId};

/// A topic as its reader names it: all of a session in the same way.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum TopicKey {
    /// By name, up to version 12 of the request.
    Named(Arc<str>),
    /// By id (KIP-516).
    Id(TopicId),
}

/// A partition as its reader names it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PartKey {
    /// Its topic.
    pub topic: TopicKey,
    /// Its number.
    pub index: i32,
}

/// What is wanted of a partition, until the reader says otherwise.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Wanted {
    /// Where to read.
    pub offset: Offset,
    /// The leader epoch that the reader knows, or -1.
    pub leader_epoch: i32,
    /// The epoch of the last record that the reader has, or -1.
    pub last_fetched_epoch: i32,
    /// At most this much, the first batch apart; as it came from the wire.
    pub max_bytes: i32,
}

/// What an answer says about a partition, as far as sessions care.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Seen {
    /// The high watermark, -1 with an error.
    pub high_watermark: i64,
    /// The first offset of the log, -1 with an error.
    pub log_start: i64,
    /// Whether there are records.
    pub has_records: bool,
    /// Whether there is an error, or a divergence of epochs (KIP-595).
    pub is_exceptional: bool,
}

impl Default for Seen {
    /// Nothing was said yet.
    fn default() -> Self {
        Self {
            high_watermark: -1,
            log_start: -1,
            has_records: false,
            is_exceptional: false,
        }
    }
}

/// A partition of a session.
#[derive(Clone, Debug)]
pub struct Kept {
    key: PartKey,
    wanted: Wanted,
    told_high_watermark: i64,
    told_log_start: i64,
}

impl Kept {
    /// A partition, and what its reader was told about it.
    pub fn new(key: PartKey, wanted: Wanted, told: Seen) -> Self {
        Self {
            key,
            wanted,
            told_high_watermark: told.high_watermark,
            told_log_start: told.log_start,
        }
    }

    /// Whether an answer must name the partition; if so the reader knows then.
    fn tell(&mut self, seen: Seen) -> bool {
        let changed = self.told_high_watermark != seen.high_watermark
            || self.told_log_start != seen.log_start;
        // After an error everything is news, whatever it is.
        self.told_high_watermark = seen.high_watermark;
        self.told_log_start = seen.log_start;
        changed || seen.has_records || seen.is_exceptional
    }
}

/// Why a fetch cannot be part of its session. The client's fault, or the
/// session had to make room; nothing was changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SessionError {
    /// There is no session of that id.
    NotFound,
    /// Not the epoch that follows the last fetch.
    WrongEpoch,
    /// Opened by name and used by topic id, or the other way round.
    OtherTopicKeys,
}

/// A fetch that has become part of its session.
#[derive(Debug)]
pub struct Begun {
    /// The epoch that the session must still have when the answer is made.
    pub epoch: SessionEpoch,
    /// All that the session wants now, in the order in which it is read.
    pub parts: Vec<(PartKey, Wanted)>,
}

/// See the module.
pub struct Session {
    /// Its id.
    pub id: SessionId,
    by_id: bool,
    state: Mutex<State>,
}

struct State {
    epoch: SessionEpoch,
    next_place: u64,
    order: BTreeMap<u64, Kept>,
    places: HashMap<PartKey, u64>,
}

impl Session {
    /// A session that was opened by the fetch that is being answered.
    pub fn new(id: SessionId, by_id: bool, parts: Vec<Kept>) -> Self {
        let mut state = State {
            epoch: SessionEpoch::INITIAL.next(),
            next_place: 0,
            order: BTreeMap::new(),
            places: HashMap::with_capacity(parts.len()),
        };
        for kept in parts {
            state.append(kept);
        }
        Self {
            id,
            by_id,
            state: Mutex::new(state),
        }
    }

    /// A fetch in the session: takes over what it changes.
    ///
    /// # Errors
    /// It is no part of this session; nothing was changed.
    pub fn begin(
        &self,
        epoch: SessionEpoch,
        by_id: bool,
        wanted: Vec<(PartKey, Wanted)>,
        forgotten: &[PartKey],
    ) -> Result<Begun, SessionError> {
        let mut state = self.state.lock();
        if state.epoch != epoch {
            return Err(SessionError::WrongEpoch);
        }
        if self.by_id != by_id {
            return Err(SessionError::OtherTopicKeys);
        }
        for (key, wanted) in wanted {
            state.want(key, wanted);
        }
        for key in forgotten {
            state.forget(key);
        }
        if !state.order.is_empty() {
            state.epoch = epoch.next();
        }
        let parts = state.order.values();
        Ok(Begun {
            epoch: state.epoch,
            parts: parts.map(|kept| (kept.key.clone(), kept.wanted)).collect(),
        })
    }

    /// Which rows the answer to a fetch must have, in their order.
    ///
    /// # Errors
    /// Another fetch of this session came in between.
    pub fn choose<'a>(
        &self,
        epoch: SessionEpoch,
        rows: impl Iterator<Item = (&'a PartKey, Seen)>,
    ) -> Result<Vec<bool>, SessionError> {
        let mut state = self.state.lock();
        if state.epoch != epoch {
            return Err(SessionError::WrongEpoch);
        }
        Ok(rows.map(|(key, seen)| state.tell(key, seen)).collect())
    }
}

impl State {
    fn append(&mut self, kept: Kept) {
        let place = self.next_place;
        self.next_place += 1;
        // The last one counts where a partition is named twice.
        if let Some(before) = self.places.insert(kept.key.clone(), place) {
            self.order.remove(&before);
        }
        self.order.insert(place, kept);
    }

    fn want(&mut self, key: PartKey, wanted: Wanted) {
        let place = self.places.get(&key);
        match place.and_then(|place| self.order.get_mut(place)) {
            Some(kept) => kept.wanted = wanted,
            None => self.append(Kept::new(key, wanted, Seen::default())),
        }
    }

    fn forget(&mut self, key: &PartKey) {
        if let Some(place) = self.places.remove(key) {
            self.order.remove(&place);
        }
    }

    fn tell(&mut self, key: &PartKey, seen: Seen) -> bool {
        let place = self.places.get(key).copied();
        let Some((place, kept)) = place.and_then(|p| Some((p, self.order.get_mut(&p)?))) else {
            return false;
        };
        let must = kept.tell(seen);
        if seen.has_records
            && let Some(kept) = self.order.remove(&place)
        {
            self.append(kept);
        }
        must
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: SessionEpoch = SessionEpoch(1);

    fn key(index: i32) -> PartKey {
        PartKey {
            topic: TopicKey::Named("t".into()),
            index,
        }
    }

    fn at(offset: i64) -> Wanted {
        Wanted {
            offset: Offset::new(offset),
            leader_epoch: -1,
            last_fetched_epoch: -1,
            max_bytes: 1,
        }
    }

    fn idle(high_watermark: i64) -> Seen {
        Seen {
            high_watermark,
            log_start: 0,
            ..Seen::default()
        }
    }

    fn records(high_watermark: i64) -> Seen {
        Seen {
            has_records: true,
            ..idle(high_watermark)
        }
    }

    fn error() -> Seen {
        Seen {
            is_exceptional: true,
            ..Seen::default()
        }
    }

    /// A session of partitions 0, 1 and 2, which are empty.
    fn session() -> Session {
        let parts = (0..3).map(|index| Kept::new(key(index), at(0), idle(0)));
        Session::new(SessionId(7), false, parts.collect())
    }

    /// One fetch that changes nothing: what is read in which order, and which
    /// rows the answer has if the read brings these.
    fn poll(session: &Session, epoch: SessionEpoch, seen: &[Seen]) -> (Vec<i32>, Vec<bool>) {
        let begun = session.begin(epoch, false, Vec::new(), &[]).unwrap();
        let order = begun.parts.iter().map(|(key, _)| key.index).collect();
        let rows = begun
            .parts
            .iter()
            .map(|(key, _)| key)
            .zip(seen.iter().copied());
        (order, session.choose(begun.epoch, rows).unwrap())
    }

    #[test]
    fn only_what_changed_is_told_and_only_once() {
        let session = session();
        let (_, told) = poll(&session, FIRST, &[idle(0), idle(5), idle(0)]);
        assert_eq!(told, [false, true, false]);
        let (_, told) = poll(&session, FIRST.next(), &[idle(0), idle(5), idle(0)]);
        assert_eq!(told, [false, false, false]);
        let moved_start = Seen {
            log_start: 2,
            ..idle(5)
        };
        let epoch = FIRST.next().next();
        let (_, told) = poll(&session, epoch, &[idle(0), moved_start, idle(0)]);
        assert_eq!(told, [false, true, false]);
    }

    #[test]
    fn errors_are_told_every_time_and_their_end_once() {
        let session = session();
        let mut epoch = FIRST;
        for (seen, told) in [
            (error(), true),
            (error(), true),
            (idle(0), true),
            (idle(0), false),
        ] {
            let (_, rows) = poll(&session, epoch, &[seen, idle(0), idle(0)]);
            assert_eq!(rows, [told, false, false], "{seen:?}");
            epoch = epoch.next();
        }
    }

    #[test]
    fn who_brought_records_is_read_last() {
        let session = session();
        let (order, _) = poll(&session, FIRST, &[records(9), records(9), idle(0)]);
        assert_eq!(order, [0, 1, 2]);
        let (order, told) = poll(&session, FIRST.next(), &[records(1), idle(9), records(9)]);
        assert_eq!((order, told), (vec![2, 0, 1], vec![true, false, true]));
        let (order, _) = poll(&session, FIRST.next().next(), &[idle(9), idle(9), idle(9)]);
        assert_eq!(order, [0, 2, 1]);
    }

    #[test]
    fn partitions_come_change_and_go() {
        let session = session();
        let wanted = vec![(key(1), at(7)), (key(5), at(3))];
        let begun = session
            .begin(FIRST, false, wanted, &[key(0), key(99)])
            .unwrap();
        let expected = [(key(1), at(7)), (key(2), at(0)), (key(5), at(3))];
        assert_eq!(begun.parts, expected);
        let wanted = vec![(key(6), at(1))];
        let all = [key(1), key(2), key(5), key(6)];
        let begun = session.begin(begun.epoch, false, wanted, &all).unwrap();
        assert!(begun.parts.is_empty(), "forgetting counts after wanting");
    }

    #[test]
    fn a_fetch_that_does_not_follow_the_last_one_changes_nothing() {
        let session = session();
        let begin = |epoch, by_id| session.begin(epoch, by_id, vec![(key(8), at(0))], &[]);
        for epoch in [SessionEpoch(2), SessionEpoch(-2), SessionEpoch(i32::MAX)] {
            assert_eq!(begin(epoch, false).unwrap_err(), SessionError::WrongEpoch);
        }
        assert_eq!(
            begin(FIRST, true).unwrap_err(),
            SessionError::OtherTopicKeys
        );
        let (order, _) = poll(&session, FIRST, &[]);
        assert_eq!(order, [0, 1, 2]);
    }

    #[test]
    fn an_answer_overtaken_by_the_next_fetch_is_refused() {
        let session = session();
        let first = session.begin(FIRST, false, Vec::new(), &[]).unwrap();
        let second = session.begin(first.epoch, false, Vec::new(), &[]).unwrap();
        let key = key(0);
        let row = std::iter::once((&key, records(1)));
        assert_eq!(
            session.choose(first.epoch, row).unwrap_err(),
            SessionError::WrongEpoch
        );
        let row = std::iter::once((&key, records(1)));
        assert_eq!(session.choose(second.epoch, row).unwrap(), [true]);
    }
}
