//! What producers were told and readers were shown, and what therefore must be in the log after a crash.
//!
//! Owns:     the promises of one partition, and the check of a whole log against them.
//! Does not: ask the broker what it promised.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use seawall_testkit::calls;
use seawall_testkit::requests::TopicRef;
use seawall_testkit::{Bytes, ParsedBatch, Raw};

/// What can take records back that were promised less than durability.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Crash {
    /// Only the process dies: nothing visible goes.
    Process,
    /// A power cut may take what only acks=1 promised; its offsets then come back under a higher leader epoch.
    Power,
}

/// A record by its bytes (a batch of one, without the header that the broker may stamp).
pub(crate) type Print = u64;

pub(crate) fn print_of(payload: &[u8]) -> Print {
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    hasher.finish()
}

/// A record as its producer sent it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Sent {
    writer: usize,
    number: i32,
    forced: bool,
}

#[derive(Default)]
struct Promises {
    /// By offset: must be there for ever.
    must: BTreeMap<i64, Print>,
    /// By offset, with the leader epoch a reader saw: visible, but only promised by acks=1.
    may: BTreeMap<i64, (Print, Option<i32>)>,
    sent: HashMap<Print, Sent>,
    acknowledged: u64,
}

/// See the module.
pub(crate) struct Ledger {
    crash: Crash,
    promises: Mutex<Promises>,
}

impl Ledger {
    pub(crate) fn new(crash: Crash) -> Self {
        Self {
            crash,
            promises: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Promises> {
        self.promises.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many answers producers with acks=all have got.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.lock().acknowledged
    }

    /// How many records are promised for ever.
    pub(crate) fn kept(&self) -> usize {
        self.lock().must.len()
    }

    /// Before a batch is sent.
    pub(crate) fn sends(&self, writer: usize, number: i32, forced: bool, payload: &[u8]) {
        let sent = Sent {
            writer,
            number,
            forced,
        };
        let before = self.lock().sent.insert(print_of(payload), sent);
        assert!(
            before.is_none_or(|before| before == sent),
            "the test made a record twice"
        );
    }

    /// A producer was told this offset.
    pub(crate) fn told(&self, offset: i64, payload: &[u8]) {
        let mut promises = self.lock();
        let print = print_of(payload);
        promises.promise(self.crash, offset, print, None);
        promises.acknowledged += u64::from(promises.sent[&print].forced);
    }

    /// A reader was shown this batch.
    pub(crate) fn shown(&self, batch: &ParsedBatch) {
        let print = print_of(&batch.payload());
        let epoch = Some(batch.leader_epoch());
        self.lock()
            .promise(self.crash, batch.base_offset(), print, epoch);
    }

    /// Reads the whole partition and holds it against what was promised. What a started broker shows is promised from
    /// then on, whatever the acks were: recovery synced it. Gives the end of the log.
    pub(crate) fn check(&self, raw: &mut Raw, topic: &TopicRef, partition: i32, what: &str) -> i64 {
        let log = calls::read_from(raw, topic, partition, 0);
        let what = format!("{what}, {}-{partition}", topic.name);
        let mut promises = self.lock();
        promises.check_offsets(&log, &what);
        promises.check_content(&log, &what);
        promises.check_copies(&log, &what);
        for batch in &log {
            promises
                .must
                .insert(batch.base_offset(), print_of(&batch.payload()));
        }
        promises.may.clear();
        i64::try_from(log.len()).expect("few")
    }
}

impl Promises {
    fn promise(&mut self, crash: Crash, offset: i64, print: Print, epoch: Option<i32>) {
        let sent = *self.sent.get(&print).unwrap_or_else(|| {
            panic!("the bytes at offset {offset} were never sent");
        });
        let known = self
            .must
            .get(&offset)
            .or(self.may.get(&offset).map(|(print, _)| print));
        if let Some(known) = known {
            let known = self.sent[known];
            assert_eq!(
                sent, known,
                "the record at the visible offset {offset} changed"
            );
        }
        if sent.forced || crash == Crash::Process {
            self.must.insert(offset, print);
        } else {
            let seen = self.may.entry(offset).or_insert((print, epoch));
            seen.1 = seen.1.or(epoch);
        }
    }

    /// Offsets start at 0 and have no gaps.
    fn check_offsets(&self, log: &[ParsedBatch], what: &str) {
        for (expected, batch) in (0_i64..).zip(log) {
            assert_eq!(
                (batch.base_offset(), batch.count()),
                (expected, 1),
                "{what}: offsets"
            );
        }
    }

    fn check_content(&self, log: &[ParsedBatch], what: &str) {
        let at = |offset: i64| log.get(usize::try_from(offset).expect("an offset"));
        for (offset, print) in &self.must {
            let there = at(*offset).map(|batch| print_of(&batch.payload()));
            assert_eq!(
                there.map(|there| self.sent.get(&there)),
                Some(self.sent.get(print)),
                "{what}: what is there at offset {offset} of {}, and what was promised",
                log.len()
            );
        }
        for (offset, (print, epoch)) in &self.may {
            let Some(batch) = at(*offset).filter(|batch| print_of(&batch.payload()) != *print)
            else {
                continue;
            };
            assert!(
                epoch.is_none_or(|epoch| batch.leader_epoch() > epoch),
                "{what}: offset {offset} came back with other bytes under the same leader epoch"
            );
        }
    }

    /// Every record was sent, none is there twice, and those of an idempotent producer are there from the first on, in
    /// order.
    fn check_copies(&self, log: &[ParsedBatch], what: &str) {
        let mut next: HashMap<usize, i32> = HashMap::new();
        for batch in log {
            let sent = self.sent.get(&print_of(&batch.payload()));
            let sent = sent.unwrap_or_else(|| panic!("{what}: a record that nobody sent"));
            let expected = next.entry(sent.writer).or_insert(0);
            if sent.forced {
                assert_eq!(
                    sent.number, *expected,
                    "{what}: the order of producer {}",
                    sent.writer
                );
            } else {
                assert!(
                    sent.number >= *expected,
                    "{what}: {sent:?} is there twice or out of order"
                );
            }
            *expected = sent.number + 1;
        }
    }
}

/// The bytes of a batch that the broker does not touch.
pub(crate) fn payload(batch: &Bytes) -> Bytes {
    batch.slice(seawall_testkit::batch::HEADER_LEN..)
}
