//! Opening a log: where it ends, what is durable, what its producers did (DESIGN 7).
//!
//! Owns:     the order: sync, drop caches, scan, judge the end; and what an end means.
//! Does not: write, except that accepted bytes which the page cache may hold alone are written again in place.
//! Called by whoever opens a log; partitions are independent, so many may run in parallel.
//!
//! # Invariants
//! Y1. For undamaged files the result is the same with and without checkpoint and snapshot (D10).
//! Y2. What is accepted was read from the device and is synced before anyone may read it (D9).
//! Y3. Nothing is cut: the next append begins a new epoch's file, which hides the tail (D5).

mod inventory;
mod replay;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{CacheState, Disk, DiskFile, read_full};
use crate::log::{LastBatch, LogConfig};
use crate::names::SegmentName;
use crate::producers::Producers;
use crate::resources::Resources;
use crate::scan::{BadBatch, CHUNK_BYTES, Expect, Scan, Step};
use crate::segment::Segment;
use crate::transactions::Transactions;
use crate::trim::clip_epochs;
use crate::types::{
    LeaderEpoch, Offset, PartitionIndex, Position, Timestamp, TopicId, narrow, wide,
};
use crate::view::EpochStart;
use seawall_planted::planted;

use inventory::Inventory;
use replay::{Replay, Replayed, Start};

/// Read at once to see the first header of a file.
const PEEK_BYTES: u64 = 4096;

/// How the previous broker on this log dir stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It closed its logs.
    Clean,
    /// Anything else.
    Unclean,
}

/// What opening a log needs to know.
pub struct OpenOptions<'a> {
    /// The incarnation of the topic; foreign checkpoints and snapshots are ignored (D11).
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Its settings.
    pub config: LogConfig,
    /// How the previous broker stopped.
    pub stop: Stop,
    /// Whether every partition of the log dir has been through recovery in this very boot: then only a process died, the
    /// page cache is whole, and a bad batch with good ones behind it is corruption.
    pub recovered_this_boot: bool,
    /// The broker's clock.
    pub now: Timestamp,
    /// Shared handles and buffers.
    pub resources: Arc<Resources>,
    /// Called with the number of bytes scanned since its last call.
    pub progress: &'a dyn Fn(u64),
}

impl fmt::Debug for OpenOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("topic_id", &self.topic_id)
            .field("partition", &self.partition)
            .finish()
    }
}

/// Why a log cannot be opened. Nothing was changed; the partition is Offline until someone looks at it.
#[derive(Debug)]
pub enum OpenError {
    /// The disk's fault: a call failed.
    Io(io::Error),
    /// The disk's fault: `manifest.json` is there and is not what was written.
    ManifestDamaged,
    /// The disk's fault: bytes that were durable are not what was written.
    Corrupt {
        /// Which segment.
        segment: SegmentName,
        /// Where in its file.
        position: Position,
        /// The offset that should be there.
        offset: Offset,
        /// What is wrong.
        why: BadBatch,
    },
    /// The substrate lost acknowledged data: the log ends below what a checkpoint calls durable.
    DurabilityViolation {
        /// The end of the durable prefix.
        checkpoint: Offset,
        /// Where the log ends.
        log_end: Offset,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => write!(f, "cannot be read: {e}"),
            Self::ManifestDamaged => f.write_str("manifest.json is damaged"),
            Self::Corrupt {
                segment,
                position,
                offset,
                why,
            } => {
                write!(
                    f,
                    "segment {segment} is corrupt at byte {position} ({why:?}), expected offset {offset}"
                )
            }
            Self::DurabilityViolation {
                checkpoint,
                log_end,
            } => {
                write!(
                    f,
                    "durability violation: synced up to offset {checkpoint}, but the log ends at {log_end}"
                )
            }
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// What opening a log found; for people and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoverySummary {
    /// Bytes read and checked.
    pub scanned_bytes: u64,
    /// Bytes behind the log end in the last file; they stay as evidence, hidden by the next epoch's file.
    pub tail_bytes: u64,
    /// Why the log ends there.
    pub tail: Option<BadBatch>,
    /// There were segments and no manifest: the log start is the first base.
    pub manifest_missing: bool,
}

/// A log as it was found.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) epoch: LeaderEpoch,
    pub(crate) start: Offset,
    pub(crate) end: Offset,
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) epochs: Vec<EpochStart>,
    pub(crate) end_position: Position,
    pub(crate) last_batch: LastBatch,
    pub(crate) producers: Producers,
    pub(crate) txns: Transactions,
    pub(crate) sync_failed: bool,
    pub(crate) index_owed: Vec<Arc<Segment>>,
    pub(crate) hidden: Vec<Arc<Segment>>,
    pub(crate) garbage: Vec<Arc<Segment>>,
    /// The offset of the snapshot that was used; zero without one.
    pub(crate) snapshot_at: Offset,
    pub(crate) leftovers: Vec<String>,
    pub(crate) new_dir: bool,
    pub(crate) summary: RecoverySummary,
}

/// Opens what is in `dir`.
pub(crate) fn recover(
    disk: &Arc<dyn Disk>,
    dir: &Arc<Path>,
    options: &OpenOptions<'_>,
) -> Result<Recovered, OpenError> {
    let inventory = Inventory::take(disk, dir, options)?;
    let (replayed, sync_failed) = if inventory.is_closed() {
        (Replayed::closed(&inventory), false)
    } else {
        recover_unclean(&inventory, options)?
    };
    check_minimum(&inventory, &replayed, sync_failed)?;
    Ok(assemble(inventory, replayed, sync_failed, options))
}

/// Sync, drop caches, scan (Y2). A sync that fails leaves a log that ends at what is known to be durable.
fn recover_unclean(
    inventory: &Inventory,
    options: &OpenOptions<'_>,
) -> Result<(Replayed, bool), OpenError> {
    let Some(last) = inventory.open_last()? else {
        return Ok((Replayed::closed(inventory), false));
    };
    let known = inventory.durable_position();
    let synced = if planted("recovery-not-synced") {
        Ok(())
    } else {
        last.sync_data()
    };
    let cache = if planted("cache-believed") {
        synced.map(|()| CacheState::Dropped)
    } else {
        synced.and_then(|()| last.drop_cache_from(known.0))
    };
    let cache = match cache {
        Ok(cache) => cache,
        Err(e) => return up_to_known(inventory, options, known, &e),
    };
    let replayed = replay(inventory, options, None)?;
    if cache == CacheState::MayStay
        && let Err(e) = write_again(&*last, known, replayed.end_position)
    {
        return up_to_known(inventory, options, known, &e);
    }
    Ok((replayed, false))
}

fn up_to_known(
    inventory: &Inventory,
    options: &OpenOptions<'_>,
    known: Position,
    error: &io::Error,
) -> Result<(Replayed, bool), OpenError> {
    log::error!(
        "{}: the last segment could not be synced ({error}); serving what was durable before",
        inventory.dir.display()
    );
    Ok((replay(inventory, options, Some(known))?, true))
}

/// Replays from the snapshot, or all headers if the snapshot does not fit the log.
fn replay(
    inventory: &Inventory,
    options: &OpenOptions<'_>,
    limit: Option<Position>,
) -> Result<Replayed, OpenError> {
    let run = |start: Start| {
        Replay {
            inventory,
            options,
            last_file_limit: limit,
        }
        .run(start)
    };
    if let Some(start) = inventory.start_with_snapshot()
        && let Some(replayed) = run(start)?
    {
        return Ok(replayed);
    }
    // Without a snapshot a run always has a result.
    run(inventory.start_without_snapshot())?.ok_or(OpenError::Io(io::ErrorKind::InvalidData.into()))
}

/// Pages that the system kept may be the only copy: a failed write-back leaves them clean. Writing them makes them dirty.
fn write_again(file: &dyn DiskFile, from: Position, to: Position) -> io::Result<()> {
    let mut at = from.0;
    let mut buf = vec![0; narrow(CHUNK_BYTES.min(to.since(from)))];
    while at < to.0 {
        let len = narrow(wide(buf.len()).min(to.0 - at));
        let read = read_full(file, &mut buf[..len], at)?;
        if read < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        crate::disk::write_all_at(file, &mut [io::IoSlice::new(&buf[..len])], at)
            .map_err(|e| e.error)?;
        at = at.saturating_add(wide(len));
    }
    if to > from { file.sync_data() } else { Ok(()) }
}

/// The checkpoint is the minimum of the log.
fn check_minimum(
    inventory: &Inventory,
    replayed: &Replayed,
    sync_failed: bool,
) -> Result<(), OpenError> {
    match &inventory.checkpoint {
        // Below the log start nothing is missed: deleted records need not have been durable.
        Some(checkpoint)
            if checkpoint.offset > replayed.end.max(inventory.log_start()) && !sync_failed =>
        {
            Err(OpenError::DurabilityViolation {
                checkpoint: checkpoint.offset,
                log_end: replayed.end,
            })
        }
        _ => Ok(()),
    }
}

fn assemble(
    inventory: Inventory,
    replayed: Replayed,
    sync_failed: bool,
    options: &OpenOptions<'_>,
) -> Recovered {
    let start = inventory.log_start();
    // Offsets below the log start are never given out again, even if what was deleted by DeleteRecords was not durable.
    let end = replayed.end.max(start);
    let epoch = if planted("epoch-not-raised") {
        inventory.epoch_max.max(LeaderEpoch(0))
    } else {
        inventory.epoch_max.next()
    };
    let epochs = &epoch_starts(
        &inventory.segments,
        EpochStart { epoch, start: end },
        options,
    );
    let summary = RecoverySummary {
        manifest_missing: inventory.manifest_missing(),
        ..replayed.summary
    };
    report(&inventory, options, &summary, end);
    let snapshot_at = if replayed.with_snapshot {
        inventory.snapshot.as_ref().map_or(Offset::ZERO, |s| s.0)
    } else {
        Offset::ZERO
    };
    let mut segments = inventory.segments;
    if let (Some(live), Some(last)) = (replayed.live, segments.last_mut()) {
        *last = Arc::new(last.with(None, Some(live)));
    }
    for segment in &mut segments {
        if let Some(txns) = replayed.txns.get(&segment.name) {
            let known = segment.with(None, segment.live.clone());
            *segment = Arc::new(known.with_txns(Some(Arc::clone(txns))));
        }
    }
    let open = replayed.producers.open();
    let index_owed = segments
        .iter()
        .filter(|s| replayed.scanned.contains(&s.name))
        .cloned()
        .collect();
    Recovered {
        epoch,
        start,
        end,
        segments,
        epochs: clip_epochs(epochs, start),
        end_position: replayed.end_position,
        last_batch: replayed.last_batch,
        txns: Transactions::new(open, replayed.aborted),
        producers: replayed.producers,
        sync_failed,
        index_owed,
        hidden: inventory.hidden,
        garbage: inventory.garbage,
        snapshot_at,
        leftovers: inventory.leftovers,
        new_dir: inventory.new_dir,
        summary,
    }
}

/// Epochs begin where the first file of each does, or the first batch of theirs in it; the present one at the log end.
fn epoch_starts(
    segments: &[Arc<Segment>],
    present: EpochStart,
    options: &OpenOptions<'_>,
) -> Vec<EpochStart> {
    let mut epochs: Vec<EpochStart> = Vec::new();
    for (i, segment) in segments.iter().enumerate() {
        let epoch = segment.name.epoch;
        if epochs.last().is_none_or(|e| e.epoch < epoch) {
            let end = segments.get(i + 1).map_or(present.start, |s| s.name.base);
            let start = first_of_its_epoch(segment, end, options);
            epochs.push(EpochStart { epoch, start });
        }
    }
    epochs.push(present);
    // A file in which a healed tail is all there is adds an epoch without any offset.
    epochs.dedup_by(|later, earlier| {
        let empty = later.start <= earlier.start;
        if empty {
            *earlier = *later;
        }
        empty
    });
    epochs
}

/// A healed tail keeps the epochs under which it was written (DESIGN 5): the file's own begins behind it.
fn first_of_its_epoch(segment: &Segment, end: Offset, options: &OpenOptions<'_>) -> Offset {
    let name = segment.name;
    if name.epoch == LeaderEpoch(0) {
        return name.base;
    }
    let Ok(open) = segment.open(&options.resources) else {
        return name.base;
    };
    let expect = Expect {
        offset: name.base,
        end,
    };
    let mut scan = Scan::new(&*open.file, open.len, PEEK_BYTES).from(Position::ZERO, expect);
    loop {
        match scan.next_header() {
            Ok(Step::Batch(found)) if found.header.leader_epoch < name.epoch => {}
            Ok(Step::Batch(found)) => return found.header.base_offset,
            _ => return scan.expect.offset.min(end),
        }
    }
}

fn report(
    inventory: &Inventory,
    options: &OpenOptions<'_>,
    summary: &RecoverySummary,
    end: Offset,
) {
    let dir = inventory.dir.display();
    if let Some(why) = summary.tail {
        log::warn!(
            "{dir}: the log ends at offset {end}; {} bytes behind it are not whole batches ({why:?}) and stay unread",
            summary.tail_bytes
        );
    }
    if summary.manifest_missing && options.stop == Stop::Clean {
        log::warn!(
            "{dir}: no manifest.json; the log starts at its first segment, offset {}",
            inventory.log_start()
        );
    }
}
