//! One of the fifty slots: its transactional ids in memory and in its file.
//!
//! Owns:     what is durable, what is on its way to the disk, who waits for what.
//! Does not: decide (the machine does), write (the driver calls [`Slot::store`]
//!           without a lock) or tell anybody anything.
//!
//! # Invariants
//! S1. One write of a slot runs at a time; changes that come meanwhile share the
//!     next one.
//! S2. What is asked is answered by what is durable: a transactional id whose
//!     change is on its way takes no further command until it is there. The one
//!     exception is the end of carrying out a decision, which needs no write: after
//!     a crash the decision is there and is carried out again.
//! S3. A slot whose file cannot be read answers nothing and is never written.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;
use seawall_storage::ProducerId;
use seawall_storage::disk::Disk;
use serde::{Deserialize, Serialize};

use super::machine::{Command, TxnError};
use super::state::{Producer, Txn};
use crate::cluster::StateError;
use crate::cluster::state_file::{self, StateFault};

/// Slots, as many as Kafka has partitions for this.
pub const SLOTS: usize = 50;
/// A larger file is not ours.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Who is told what came of a command.
pub type Reply = Box<dyn FnOnce(Result<Producer, TxnError>) + Send>;

/// A command and who asked.
pub struct Job {
    /// What.
    pub command: Command,
    /// A producer id, once the machine has asked for one.
    pub fresh: Option<ProducerId>,
    /// Who.
    pub reply: Reply,
}

/// One transactional id.
#[derive(Default)]
pub struct Entry {
    /// What holds (S2).
    pub txn: Option<Txn>,
    /// A change on its way to the disk.
    pub staged: Option<Txn>,
    /// Whether a change or a producer id is on its way.
    pub busy: bool,
    /// Commands that came meanwhile, and since when, in ms.
    pub waiting: VecDeque<(Job, i64)>,
    /// Commands that wait until a decision is carried out, and since when, in ms.
    pub held: Vec<(Job, i64)>,
    /// Offsets that were let into the transaction and are on their way to their
    /// group.
    pub staging: Arc<AtomicUsize>,
}

impl Entry {
    /// Whether nothing would be lost with it.
    pub fn is_nothing(&self) -> bool {
        let waits = !self.waiting.is_empty() || !self.held.is_empty();
        self.txn.is_none() && !self.busy && !waits
    }
}

/// An answer that waits for a write.
#[derive(Clone)]
pub struct Owed {
    /// Whose change it is.
    pub id: Arc<str>,
    /// Who is told; taken by who tells, once.
    pub reply: Arc<Mutex<Option<Reply>>>,
    /// What, if the write succeeds.
    pub answer: Result<Producer, TxnError>,
    /// Since when it waits, in ms.
    pub since_ms: i64,
}

impl Owed {
    /// Tells, unless that was done already.
    pub fn tell(&self, answer: Result<Producer, TxnError>) {
        let reply = self.reply.lock().take();
        if let Some(reply) = reply {
            reply(answer);
        }
    }
}

/// What the lock of a slot protects.
#[derive(Default)]
pub struct State {
    /// By transactional id.
    pub entries: HashMap<Arc<str>, Entry>,
    /// Answers that the next write lets out.
    pub owed: Vec<Owed>,
    /// Answers that the write under way lets out.
    pub writing_for: Vec<Owed>,
    /// A write is under way (S1).
    pub writing: bool,
    /// Memory is ahead of the file though nobody waits for it (S2).
    pub dirty: bool,
    /// S3.
    pub unreadable: bool,
}

/// See the module.
pub struct Slot {
    path: PathBuf,
    /// See [`State`].
    pub state: Mutex<State>,
}

/// `slot-N.json`
#[derive(Serialize, Deserialize)]
struct SlotFile {
    slot: usize,
    transactions: BTreeMap<String, Txn>,
}

/// The slot of a transactional id: FNV-1a, 32 bits, as the files' readers know it.
pub fn slot_of(id: &str) -> usize {
    let hash = id.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    usize::try_from(hash).unwrap_or(0) % SLOTS
}

/// The number in a file's name; `None` for the file of nobody.
fn number_of(name: &str) -> Option<usize> {
    let number = name.strip_prefix("slot-")?.strip_suffix(".json")?;
    let number: usize = number.parse().ok()?;
    (number < SLOTS && name == file_name(number)).then_some(number)
}

fn file_name(number: usize) -> String {
    format!("slot-{number}.json")
}

/// Reads the file of a slot; every transactional id must belong there.
fn load(disk: &dyn Disk, path: &Path, number: usize) -> Result<Option<SlotFile>, StateError> {
    let file = state_file::load::<SlotFile>(disk, path, FILE_BYTES_MAX)?;
    let misplaced = |file: &SlotFile| {
        let mut ids = file.transactions.keys();
        file.slot != number || ids.any(|id| slot_of(id) != number)
    };
    if file.as_ref().is_some_and(misplaced) {
        return Err(StateError {
            path: path.to_owned(),
            fault: StateFault::Contradiction { key: "slot" },
        });
    }
    Ok(file)
}

/// For `verify`: whether the file of a slot is there and sound; `None` for other files.
pub fn check_file(disk: &dyn Disk, path: &Path, name: &str) -> Option<Result<bool, StateError>> {
    let number = number_of(name)?;
    Some(load(disk, path, number).map(|file| file.is_some()))
}

impl Slot {
    /// Reads the file of slot `number`. One that cannot be read is left alone; its
    /// transactional ids have no coordinator until it is repaired (S3).
    pub fn open(disk: &dyn Disk, dir: &Path, number: usize) -> Self {
        let path = dir.join(file_name(number));
        let mut state = State::default();
        match load(disk, &path, number) {
            Ok(None) => {}
            Ok(Some(file)) => {
                for (id, txn) in file.transactions {
                    let entry = Entry {
                        txn: Some(txn),
                        ..Entry::default()
                    };
                    state.entries.insert(id.into(), entry);
                }
            }
            Err(error) => {
                log::error!("transactions cannot go on: {error}");
                state.unreadable = true;
            }
        }
        Self {
            path,
            state: Mutex::new(state),
        }
    }

    /// What the file has to say when all that is staged holds. Takes the answers
    /// that wait for it.
    pub fn snapshot(&self, number: usize, state: &mut State) -> (Content, Vec<Owed>) {
        let transactions = state.entries.iter().filter_map(|(id, entry)| {
            let txn = entry.staged.as_ref().or(entry.txn.as_ref())?;
            Some((id.to_string(), txn.clone()))
        });
        let file = SlotFile {
            slot: number,
            transactions: transactions.collect(),
        };
        state.dirty = false;
        let owed = std::mem::take(&mut state.owed);
        state.writing_for.clone_from(&owed);
        (Content(file), owed)
    }

    /// Writes the file. Blocks on the disk; only who set `writing` may call it (S1).
    ///
    /// # Errors
    /// Whether the old or the new content is on disk is not known; the next write
    /// settles it.
    pub fn store(&self, disk: &dyn Disk, content: &Content) -> Result<(), StateError> {
        if content.bytes_at_most() > FILE_BYTES_MAX {
            // What could not be read again must not be written.
            return Err(StateError {
                path: self.path.clone(),
                fault: StateFault::TooLarge {
                    limit: FILE_BYTES_MAX,
                },
            });
        }
        state_file::store(disk, &self.path, &content.0)
    }
}

/// What goes into a slot's file.
pub struct Content(SlotFile);

impl Content {
    /// Bytes of the file, at most: any byte of a name may need six.
    fn bytes_at_most(&self) -> u64 {
        let name = |name: &str| 6 * name.len() + 100;
        let txn = |id: &String, txn: &Txn| {
            let partitions = txn.partitions.iter().map(|p| name(&p.topic));
            let groups = txn.groups.iter().map(|group| name(group));
            name(id) + 500 + partitions.chain(groups).sum::<usize>()
        };
        let all = self.0.transactions.iter();
        let sum: usize = all.map(|(id, one)| txn(id, one)).sum();
        u64::try_from(sum).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_storage::disk::RealDisk;

    #[test]
    fn slots_are_found_by_fnv_1a() {
        // The hash's published test vectors: "", "a", "foobar".
        for (id, hash) in [
            ("", 0x811c_9dc5_u32),
            ("a", 0xe40c_292c),
            ("foobar", 0xbf9c_f968),
        ] {
            assert_eq!(slot_of(id), usize::try_from(hash % 50).unwrap(), "{id}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_taken_for_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let number = slot_of("x");
        let slot = Slot::open(&RealDisk, dir.path(), number);
        let mut state = slot.state.lock();
        assert!(!state.unreadable);
        let txn = Txn::new(ProducerId::new(7), 1000, 5);
        let entry = Entry {
            txn: Some(txn.clone()),
            ..Entry::default()
        };
        state.entries.insert("x".into(), entry);
        let (content, _) = slot.snapshot(number, &mut state);
        slot.store(&RealDisk, &content).unwrap();
        let again = Slot::open(&RealDisk, dir.path(), number);
        let state = again.state.lock();
        assert_eq!(state.entries.get("x").unwrap().txn, Some(txn));
        let other = (number + 1) % SLOTS;
        let path = dir.path().join(file_name(number));
        std::fs::rename(&path, dir.path().join(file_name(other))).unwrap();
        let moved = Slot::open(&RealDisk, dir.path(), other);
        assert!(moved.state.lock().unreadable);
        std::fs::write(&path, b"{}").unwrap();
        let empty = Slot::open(&RealDisk, dir.path(), number);
        assert!(empty.state.lock().unreadable);
    }

    #[test]
    fn only_files_of_slots_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let look = |name: &str| check_file(&RealDisk, &dir.path().join(name), name);
        for name in ["slot-50.json", "slot-07.json", "slot-1", "x.json", ".tmp-1"] {
            assert!(look(name).is_none(), "{name}");
        }
        assert!(!look("slot-49.json").unwrap().unwrap());
        std::fs::write(dir.path().join("slot-7.json"), b"{}").unwrap();
        assert!(look("slot-7.json").unwrap().is_err());
    }
}
