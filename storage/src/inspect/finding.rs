//! What an inspection says.
//!
//! Owns:     the kinds of findings and their words.
//! Does not: decide which of them applies.

use std::fmt;
use std::io;

use crate::names::SegmentName;
use crate::scan::BadBatch;
use crate::types::{Offset, Position, ProducerId};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Bytes are not what was written, or files contradict each other.
    Damage,
    /// What a crash or a living broker leaves; nothing is lost.
    Note,
}

/// One thing that was found in a partition's directory.
#[derive(Debug)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Name of the file.
    pub file: String,
    /// Where in it.
    pub position: Option<Position>,
    /// The offset in the log that it is about.
    pub offset: Option<Offset>,
    /// What it is.
    pub what: What,
}

impl Finding {
    pub(super) fn damage(file: impl Into<String>, what: What) -> Self {
        Self {
            severity: Severity::Damage,
            file: file.into(),
            position: None,
            offset: None,
            what,
        }
    }

    pub(super) fn note(file: impl Into<String>, what: What) -> Self {
        Self {
            severity: Severity::Note,
            ..Self::damage(file, what)
        }
    }

    #[must_use]
    pub(super) fn at(self, position: Position, offset: Offset) -> Self {
        Self {
            position: Some(position),
            offset: Some(offset),
            ..self
        }
    }
}

/// What is wrong, or worth knowing.
#[derive(Debug)]
pub enum What {
    /// The system refused to read.
    Io(io::Error),
    /// No good batch is where one must be.
    Batch {
        /// Why.
        why: BadBatch,
        /// So many bytes, the bad place among them, cannot be told into batches.
        unknown_bytes: u64,
    },
    /// A segment ends before its successor begins.
    EndsEarly {
        /// Its successor.
        next: SegmentName,
    },
    /// The last file ends in bytes that belong to no batch: what a crash leaves. The next epoch's file hides them.
    Tail {
        /// Why the first of them is no batch.
        why: BadBatch,
        /// How many.
        bytes: u64,
        /// Whether all of them are zero.
        zeros: bool,
        /// A valid batch behind the bad place: written, but not synced before a power cut.
        valid_behind: Option<Position>,
    },
    /// Bytes at the end of a file that a newer epoch's file hides.
    HiddenTail {
        /// How many.
        bytes: u64,
        /// The file that hides them.
        by: SegmentName,
    },
    /// A file that is not read any more: a newer epoch's file begins at or below its base.
    HiddenFile,
    /// The log ends below what the checkpoint calls durable: acknowledged data is lost.
    EndsBelowCheckpoint {
        /// What was durable.
        durable: Offset,
        /// Where the log ends.
        end: Offset,
    },
    /// A state file is not what was written.
    NotAsWritten,
    /// A state file is of another topic or partition.
    OfAnotherPartition,
    /// The checkpoint does not name a batch of the log.
    CheckpointNamesNoBatch,
    /// A state file names an offset beyond the log's end.
    BeyondEnd {
        /// Which.
        offset: Offset,
        /// The end.
        end: Offset,
    },
    /// The producer snapshot remembers a batch that is not in the log like that.
    SnapshotBatch {
        /// Of which producer.
        producer: ProducerId,
    },
    /// An index entry does not match the log.
    IndexEntry,
    /// The checksum over both index files does not match.
    IndexSum,
    /// The sizes of the two index files do not fit each other.
    IndexSize,
    /// What a `.txnindex` says of aborted transactions does not match the log.
    TxnIndexEntry,
    /// The index files of a segment are missing.
    IndexMissing,
    /// The index files cover only a part of the segment.
    IndexShort,
    /// What a crash left of a state file in the making.
    Leftover,
    /// A file that this broker does not write here.
    Stranger,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot be read: {error}"),
            Self::Batch { why, unknown_bytes } => {
                f.write_str(reason(*why))?;
                match unknown_bytes {
                    0 => Ok(()),
                    n => write!(f, "; {n} bytes from here on cannot be told into batches"),
                }
            }
            Self::EndsEarly { next } => {
                write!(f, "the file ends here, but its successor is {}", next.log())
            }
            Self::Tail {
                why,
                bytes,
                zeros,
                valid_behind,
            } => tail(f, *why, (*bytes, *zeros), *valid_behind),
            Self::HiddenTail { bytes, by } => write!(
                f,
                "a tail of {bytes} bytes, never read: {} begins here",
                by.log()
            ),
            Self::HiddenFile => {
                f.write_str("never read: a file of a newer epoch begins at or below its base")
            }
            Self::EndsBelowCheckpoint { durable, end } => write!(
                f,
                "acknowledged data is lost: durable up to offset {durable}, the log ends at {end}"
            ),
            Self::BeyondEnd { offset, end } => {
                write!(f, "names offset {offset}, the log ends at {end}")
            }
            Self::SnapshotBatch { producer } => write!(
                f,
                "remembers a batch of producer {producer} that is not in the log like that"
            ),
            other => f.write_str(fixed(other)),
        }
    }
}

fn fixed(what: &What) -> &'static str {
    match what {
        What::NotAsWritten => {
            "damaged: its checksum does not match, or it is not what is written there"
        }
        What::OfAnotherPartition => "belongs to another topic or partition",
        What::CheckpointNamesNoBatch => "does not name a batch of the log",
        What::IndexEntry => "the entry does not match the log (the index will be rebuilt)",
        What::IndexSum => "the checksum of the index does not match (it will be rebuilt)",
        What::IndexSize => "the sizes of the index files do not match (they will be rebuilt)",
        What::TxnIndexEntry => {
            "its aborted transactions are not those of the log (it will be rebuilt)"
        }
        What::IndexMissing => "its index is missing (it will be rebuilt)",
        What::IndexShort => "covers only a part of the segment (it will be rebuilt)",
        What::Leftover => "left of a state file in the making",
        _ => "not a file of this broker",
    }
}

fn reason(why: BadBatch) -> &'static str {
    match why {
        BadBatch::Short => "the file ends inside a batch",
        BadBatch::Impossible => "no batch can begin like this",
        BadBatch::OutOfSequence => "the offset or the leader epoch of the batch does not follow",
        BadBatch::Crc => "the checksum of the batch does not match",
    }
}

fn tail(
    f: &mut fmt::Formatter<'_>,
    why: BadBatch,
    (bytes, zeros): (u64, bool),
    valid_behind: Option<Position>,
) -> fmt::Result {
    write!(f, "the log ends here; the {bytes} bytes behind are ")?;
    if zeros {
        return f.write_str("zeros");
    }
    write!(f, "the tail of a crash ({})", reason(why))?;
    match valid_behind {
        Some(at) => write!(f, ", with a valid batch at byte {at}"),
        None => Ok(()),
    }
}

impl fmt::Display for BadBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(reason(*self))
    }
}
