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
use crate::cluster::state_file;

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

impl Slot {
    /// Reads the file of slot `number`. One that cannot be read is left alone; its
    /// transactional ids have no coordinator until it is repaired (S3).
    pub fn open(disk: &dyn Disk, dir: &Path, number: usize) -> Self {
        let path = dir.join(format!("slot-{number}.json"));
        let mut state = State::default();
        match state_file::load::<SlotFile>(disk, &path, FILE_BYTES_MAX) {
            Ok(None) => {}
            Ok(Some(file)) if file.slot != number => {
                log::error!("{} is the file of another slot", path.display());
                state.unreadable = true;
            }
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
        state_file::store(disk, &self.path, &content.0)
    }
}

/// What goes into a slot's file.
pub struct Content(SlotFile);

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
        let slot = Slot::open(&RealDisk, dir.path(), 3);
        let mut state = slot.state.lock();
        assert!(!state.unreadable);
        let txn = Txn::new(ProducerId::new(7), 1000, 5);
        let entry = Entry {
            txn: Some(txn.clone()),
            ..Entry::default()
        };
        state.entries.insert("x".into(), entry);
        let (content, _) = slot.snapshot(3, &mut state);
        slot.store(&RealDisk, &content).unwrap();
        let again = Slot::open(&RealDisk, dir.path(), 3);
        let state = again.state.lock();
        assert_eq!(state.entries.get("x").unwrap().txn, Some(txn));
        let path = dir.path().join("slot-3.json");
        std::fs::rename(&path, dir.path().join("slot-4.json")).unwrap();
        assert!(Slot::open(&RealDisk, dir.path(), 4).state.lock().unreadable);
        std::fs::write(&path, b"{}").unwrap();
        assert!(Slot::open(&RealDisk, dir.path(), 3).state.lock().unreadable);
    }
}
