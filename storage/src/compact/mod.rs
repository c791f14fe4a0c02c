//! Compaction: of each key the latest record stays.
//!
//! Owns:     what is dirty, the map of keys, the rewriting of segments, and the swap of new files for old ones.
//! Does not: run threads, choose which log comes next, or touch the active segment.
//! Called from `compact-*` threads with a view of the log; only `Log::splice` and `Log::swapped` need the log itself.
//!
//! # Invariants
//! Z1. Compaction never changes which offsets a file covers: batches that are gone are stood for by an empty batch, so that
//!     a compacted segment is as gapless as any, and recovery, readers and `verify` need no other rule for it.
//! Z2. A record goes only if a later one of its key stays, if it is a tombstone whose horizon has passed, if it has no key,
//!     or if its transaction was aborted. A marker goes after the last batch of its transaction, and after its horizon.
//! Z3. Every mixture of old and new files, from the oldest on, is a right log: new files replace old ones in offset order,
//!     each durable before the next. So a tombstone never goes before what it deletes (KIP-534), whatever a crash leaves.
//! Z4. One rename makes a new file the segment: it has the name of the first segment of its run. What it holds beyond that
//!     segment's end is hidden by the next one (N1) until that is removed; those are removed one by one, oldest first, the
//!     directory synced after each: a moment later the new file shows exactly what the removed one held.
//! Z5. Only segments below the last one, below everything that may be taken back, and below a durable snapshot are
//!     touched: the checkpoint stays authentic and producers are remembered.
//! Z6. Where the progress file says that offsets are clean, all files that were replaced are gone. It is a hint (D10):
//!     without it everything is dirty again.

mod clean;
mod encode;
mod map;
mod progress;
mod swap;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;

use crate::batch::Batch;
use crate::log::{RELATIVE_OFFSET_MAX, SEGMENT_BYTES_MAX};
use crate::records::{Limits, raw_records};
use crate::resources::Resources;
use crate::scan::{CHUNK_BYTES, Expect, HEADER_CHUNK_BYTES, Scan, Step};
use crate::segment::Segment;
use crate::transactions::AbortedTxn;
use crate::txn_index::Fold;
use crate::types::{LeaderEpoch, Offset, Position, ProducerId, Timestamp};
use crate::view::ReadView;

use clean::{CleanError, Cleaner, Output, Rules, Source, is_aborted};
use map::OffsetMap;

pub use progress::{read_progress, write_progress};
pub use swap::{Rewritten, StaleRewrite, Swap};

/// The settings of one pass.
#[derive(Debug, Clone, Copy)]
pub struct CompactionRules {
    /// `min.cleanable.dirty.ratio`.
    pub dirty_ratio_min: f64,
    /// `min.compaction.lag.ms`.
    pub lag_min_ms: u64,
    /// `max.compaction.lag.ms`.
    pub lag_max_ms: u64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: u64,
    /// `segment.bytes`: small segments are joined up to this.
    pub segment_bytes: u64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u64,
    /// Memory of the map of keys.
    pub map_bytes_max: u64,
    /// What a batch may unpack to; a larger one stays as it is.
    pub batch_bytes_max: u64,
}

/// What of a log could be compacted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dirty {
    /// From where no key has been looked at.
    pub from: Offset,
    /// Up to where segments may be touched.
    pub upto: Offset,
    /// Bytes that are not compacted, by all that could be.
    pub ratio: f64,
    /// It is worth it, or due by `max.compaction.lag.ms`.
    pub is_due: bool,
}

/// What a pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Bytes of batches read to be rewritten.
    pub bytes_read: u64,
    /// Bytes of the segments that were replaced.
    pub bytes_before: u64,
    /// And of those that replaced them.
    pub bytes_after: u64,
    /// Records that went.
    pub records_removed: u64,
    /// Batches that stay as they are because their records cannot be read.
    pub opaque_batches: u64,
    /// Runs of segments that stay as they are because a batch in them is damaged.
    pub damaged: u64,
    /// Keys in the map, and its bytes.
    pub keys: u64,
    /// Memory of the map.
    pub map_bytes: u64,
}

/// Slows a pass down, or ends it.
pub trait Throttle {
    /// So many bytes were read.
    ///
    /// # Errors
    /// The pass shall end.
    fn took(&mut self, bytes: u64) -> io::Result<()>;
}

impl ReadView {
    /// What could be compacted of a log that is clean up to `clean`. `upto`: nothing at or behind it may be touched (the last
    /// stable offset and the newest durable snapshot).
    pub fn dirty(
        &self,
        clean: Offset,
        rules: &CompactionRules,
        now: Timestamp,
        upto: Offset,
    ) -> io::Result<Option<Dirty>> {
        let from = clean.max(self.start);
        let mut sum = (0_u64, 0_u64);
        let mut end = None;
        for (index, segment) in self.sealed().iter().enumerate() {
            let next = self.segments[index + 1].name.base;
            if next > upto || self.is_young(segment, next, rules, now)? {
                break;
            }
            let place = if next <= from { &mut sum.0 } else { &mut sum.1 };
            *place = place.saturating_add(segment.bytes()?);
            end = Some(next);
        }
        let Some(upto) = end.filter(|end| *end > from) else {
            return Ok(None);
        };
        let ratio = share(sum.1, sum.0.saturating_add(sum.1));
        let overdue = self.is_overdue(from, rules, now)?;
        Ok(Some(Dirty {
            from,
            upto,
            ratio,
            is_due: overdue || ratio >= rules.dirty_ratio_min,
        }))
    }

    fn is_young(
        &self,
        segment: &Segment,
        end: Offset,
        rules: &CompactionRules,
        now: Timestamp,
    ) -> io::Result<bool> {
        let lag = i64::try_from(rules.lag_min_ms).unwrap_or(i64::MAX);
        Ok(lag > 0 && now.since_ms(segment.newest(&self.resources, end)?) < lag)
    }

    /// Whether the oldest dirty record waits for too long.
    fn is_overdue(
        &self,
        from: Offset,
        rules: &CompactionRules,
        now: Timestamp,
    ) -> io::Result<bool> {
        let lag = i64::try_from(rules.lag_max_ms).unwrap_or(i64::MAX);
        if lag == i64::MAX {
            return Ok(false);
        }
        let Some(part) = self.segment_of(from).and_then(|index| self.part(index)) else {
            return Ok(false);
        };
        let open = part.segment.open(&self.resources)?;
        let reach = self.reach(&part, &open);
        let floor = part.segment.floor(&reach, from)?;
        let expect = Expect {
            offset: floor.offset,
            end: part.end,
        };
        let scan = Scan::new(&*open.file, open.len, HEADER_CHUNK_BYTES);
        let mut scan = scan.from(floor.position, expect);
        while let Step::Batch(found) = scan.next_header()? {
            if found.header.next_offset() > from {
                return Ok(now.since_ms(found.header.max_timestamp) > lag);
            }
        }
        Ok(false)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share of bytes needs no more than 52 bits"
)]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// What a pass is about.
#[derive(Debug, Clone)]
pub struct CompactionTask {
    /// What is dirty.
    pub dirty: Dirty,
    /// The settings.
    pub rules: CompactionRules,
    /// Base offsets of batches that producers may still be asked about (`Log::remembered_batches`).
    pub keep: HashSet<Offset>,
    /// The broker's clock.
    pub now: Timestamp,
}

fn by_producer(aborted: Vec<AbortedTxn>) -> HashMap<ProducerId, Vec<AbortedTxn>> {
    let mut all: HashMap<ProducerId, Vec<AbortedTxn>> = HashMap::new();
    for txn in aborted {
        all.entry(txn.producer).or_default().push(txn);
    }
    all
}

/// One pass over a log.
#[derive(Debug)]
pub struct Compaction {
    resources: Arc<Resources>,
    rules: CompactionRules,
    now: Timestamp,
    keep: HashSet<Offset>,
    map: OffsetMap,
    map_end: Offset,
    /// Segments that were not looked at yet, and where they end. Those that were are let go, or they could not be removed.
    left: VecDeque<(Arc<Segment>, Offset)>,
    opaque: bool,
    aborted: HashMap<ProducerId, Vec<AbortedTxn>>,
    fold: Fold,
    /// No run that could not be read lies behind: the fold knows all transactions.
    fold_is_whole: bool,
    /// What it did so far.
    pub stats: Stats,
}

impl Compaction {
    /// Reads the keys of what is dirty, as many as the map holds. `None`: there is nothing that could be compacted.
    pub fn begin(
        view: &ReadView,
        task: CompactionTask,
        throttle: &mut dyn Throttle,
    ) -> io::Result<Option<Self>> {
        let CompactionTask {
            dirty,
            rules,
            keep,
            now,
        } = task;
        let records = u64::try_from(dirty.upto.since(dirty.from)).unwrap_or(0);
        let mut pass = Self {
            resources: Arc::clone(&view.resources),
            rules,
            now,
            keep,
            map: OffsetMap::new(rules.map_bytes_max, records),
            map_end: dirty.from,
            left: VecDeque::new(),
            opaque: false,
            aborted: by_producer(view.aborted_in(view.start, dirty.upto)?),
            fold: Fold::default(),
            fold_is_whole: true,
            stats: Stats::default(),
        };
        pass.read_keys(view, &dirty, throttle)?;
        let ends = view.segments.iter().skip(1).map(|next| next.name.base);
        let sealed = view.sealed().iter().cloned().zip(ends);
        let touched = sealed.take_while(|(segment, _)| segment.name.base < pass.map_end);
        pass.left = touched.collect();
        pass.stats.keys = crate::types::wide(pass.map.len());
        pass.stats.map_bytes = pass.map.bytes();
        Ok((pass.map_end > dirty.from).then_some(pass))
    }

    /// Everything before it is clean when the pass is over.
    pub fn end(&self) -> Offset {
        self.map_end
    }

    fn limits(&self) -> Limits {
        Limits {
            bytes_max: self.rules.batch_bytes_max,
        }
    }

    fn read_keys(
        &mut self,
        view: &ReadView,
        dirty: &Dirty,
        throttle: &mut dyn Throttle,
    ) -> io::Result<()> {
        let mut index = view.segment_of(dirty.from).unwrap_or(0);
        while let Some(part) = view
            .part(index)
            .filter(|p| p.segment.name.base < dirty.upto)
        {
            let open = part.segment.open(&view.resources)?;
            let expect = Expect {
                offset: part.segment.name.base,
                end: part.end,
            };
            let scan = Scan::new(&*open.file, open.len, CHUNK_BYTES);
            let mut scan = scan.from(Position::ZERO, expect);
            while scan.expect.offset < part.end {
                let epochs = (LeaderEpoch::NONE, part.segment.name.epoch);
                if !self.take_keys(&mut scan, epochs, dirty.from, throttle)? {
                    return Ok(());
                }
            }
            self.map_end = self.map_end.max(part.end);
            index += 1;
        }
        Ok(())
    }

    /// The keys of one batch; `false`: the map ends here.
    fn take_keys(
        &mut self,
        scan: &mut Scan<'_>,
        epochs: (LeaderEpoch, LeaderEpoch),
        from: Offset,
        throttle: &mut dyn Throttle,
    ) -> io::Result<bool> {
        let Step::Batch(found) = scan.next_valid(epochs)? else {
            self.stats.damaged += 1;
            return Ok(false);
        };
        throttle.took(found.end.since(found.position))?;
        let header = found.header;
        if header.next_offset() <= from {
            return Ok(true);
        }
        if header.attributes.is_control() || is_aborted(&self.aborted, &header) {
            self.map_end = self.map_end.max(header.next_offset());
            return Ok(true);
        }
        let bytes = bytes::Bytes::copy_from_slice(scan.whole(&found)?.unwrap_or_default());
        let Ok(batch) = Batch::parse_one(&bytes) else {
            return Ok(false);
        };
        // Keys that cannot be read supersede nobody.
        let records = raw_records(&batch, &self.limits()).unwrap_or_default();
        for record in records {
            let offset = header.base_offset.plus(i64::from(record.offset_delta));
            let Some(key) = record.key.filter(|_| offset >= from) else {
                continue;
            };
            if self.map.put(&key, offset).is_err() {
                self.map_end = self.map_end.max(offset);
                return Ok(false);
            }
        }
        self.map_end = self.map_end.max(header.next_offset());
        Ok(true)
    }

    /// Rewrites the next run of segments that changes; `None` at the end of the pass. Each must be swapped in before the
    /// next is asked for (Z3).
    pub fn next_run(&mut self, throttle: &mut dyn Throttle) -> io::Result<Option<Rewritten>> {
        loop {
            let run: Vec<_> = self.left.drain(..self.run_length()).collect();
            if run.is_empty() {
                return Ok(None);
            }
            if let Some(rewritten) = self.rewrite(run, throttle)? {
                return Ok(Some(rewritten));
            }
        }
    }

    /// How many segments from the next one on fit one file: neighbours of one epoch (recovery reads epochs from names).
    fn run_length(&self) -> usize {
        let mut left = self.left.iter();
        let Some((first, _)) = left.next() else {
            return 0;
        };
        let limit = self.rules.segment_bytes.min(SEGMENT_BYTES_MAX);
        let (mut bytes, mut count) = (first.bytes().unwrap_or(u64::MAX), 1);
        for (segment, end) in left {
            bytes = bytes.saturating_add(segment.bytes().unwrap_or(u64::MAX));
            let fits = segment.name.epoch == first.name.epoch
                && bytes <= limit
                && end.since(first.name.base) <= RELATIVE_OFFSET_MAX;
            if !fits {
                break;
            }
            count += 1;
        }
        count
    }

    fn rewrite(
        &mut self,
        run: Vec<(Arc<Segment>, Offset)>,
        throttle: &mut dyn Throttle,
    ) -> io::Result<Option<Rewritten>> {
        let mut sources = Vec::with_capacity(run.len());
        for (segment, end) in &run {
            let open = segment.open(&self.resources)?;
            sources.push(Source {
                name: segment.name,
                file: Arc::clone(&open.file),
                len: open.len,
                end: *end,
            });
        }
        let (Some(first), Some((segment, _))) = (sources.first(), run.first()) else {
            return Ok(None);
        };
        let (disk, dir) = (Arc::clone(&segment.disk), Arc::clone(&segment.dir));
        let out = Output::new(&*disk, &dir, first, self.rules.index_interval_bytes);
        let mut cleaner = Cleaner {
            rules: Rules {
                map: &self.map,
                map_end: self.map_end,
                now: self.now,
                delete_retention_ms: i64::try_from(self.rules.delete_retention_ms)
                    .unwrap_or(i64::MAX),
                keep: &self.keep,
                aborted: &self.aborted,
                limits: Limits {
                    bytes_max: self.rules.batch_bytes_max,
                },
            },
            stats: &mut self.stats,
            opaque: &mut self.opaque,
            fold: &mut self.fold,
            throttle,
        };
        let new = match cleaner.run(out, &sources) {
            Ok(Some(new)) => new,
            Ok(None) => return Ok(None),
            Err(CleanError::Io(error)) => return Err(error),
            Err(CleanError::Corrupt(name, position)) => {
                log::error!(
                    "{}: {name} is damaged at byte {position} and is not compacted",
                    dir.display()
                );
                self.stats.damaged += 1;
                self.opaque = true;
                self.fold_is_whole = false;
                return Ok(None);
            }
        };
        let end = sources.last().map_or(first.end, |s| s.end);
        let old = run.into_iter().map(|(segment, _)| segment).collect();
        let rewritten = Rewritten::new(old, new, end, self.fold_is_whole)?;
        self.stats.bytes_before += rewritten.bytes_before();
        self.stats.bytes_after += rewritten.bytes_after();
        Ok(Some(rewritten))
    }
}
