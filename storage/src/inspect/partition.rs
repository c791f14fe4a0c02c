//! Everything in the directory of one partition.
//!
//! Owns:     the order in which its files are looked at, and what a bad place means where it stands.
//! Does not: know the catalog or the broker's claim; its caller says what follows from them.
//!
//! # Invariants
//! V4. State files are read before the names, and names before lengths: what a living broker adds meanwhile is never
//!     missed by something older that speaks of it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{DirEntry, Disk, DiskFile};
use crate::names::{
    CHECKPOINT, COMPACTION, MANIFEST, SNAPSHOT, SegmentName, TEMP_PREFIX, split_visible,
};
use crate::scan::BadBatch;
use crate::types::{LeaderEpoch, Offset, PartitionIndex, Position, TopicId};

use super::finding::{Finding, Severity, What};
use super::index::{IndexAudit, Opened};
use super::state::States;
use super::txns::TxnAudit;
use super::walk::{Bad, FileWalk, Next, Rules, Seen, SeenBatch};

/// What its caller knows of a partition.
pub struct InspectOptions<'a> {
    /// The incarnation that it must belong to; `None`: not known.
    pub topic_id: Option<TopicId>,
    /// Its number.
    pub partition: PartitionIndex,
    /// Since every partition of this log dir was whole, at most a process has died: then a bad batch with a valid one
    /// behind it is damage even above the checkpoint.
    pub recovered_this_boot: bool,
    /// Called with the number of bytes read since its last call.
    pub progress: &'a dyn Fn(u64),
}

/// How much there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartitionFacts {
    /// Files that were looked into.
    pub files: u64,
    /// Good batches.
    pub batches: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The first offset that may be read.
    pub start: Offset,
    /// Where the log ends.
    pub end: Offset,
}

/// Looks at everything in `dir` and tells what it finds. A directory that does not exist is an empty log. The error: the
/// directory cannot be listed.
pub fn inspect_partition(
    disk: &dyn Disk,
    dir: &Path,
    options: &InspectOptions<'_>,
    tell: &mut dyn FnMut(Finding),
) -> io::Result<PartitionFacts> {
    let states = States::read(disk, dir, options);
    let entries = match disk.list(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed?,
    };
    let mut inspection = Inspection {
        disk,
        dir,
        options,
        facts: PartitionFacts {
            files: states.files,
            ..PartitionFacts::default()
        },
        states,
        tell,
        txns: TxnAudit::default(),
        first: Offset::ZERO,
        epoch: LeaderEpoch(0),
        whole: true,
    };
    inspection.names(&entries);
    let names = entries
        .iter()
        .filter_map(|e| SegmentName::parse_log(&e.name));
    let (visible, hidden) = split_visible(names.collect());
    for name in hidden {
        (inspection.tell)(Finding::note(name.log(), What::HiddenFile));
    }
    inspection.segments(&visible);
    Ok(inspection.finish(&visible))
}

struct Inspection<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    options: &'a InspectOptions<'a>,
    states: States,
    tell: &'a mut dyn FnMut(Finding),
    facts: PartitionFacts,
    txns: TxnAudit,
    /// Base of the first segment.
    first: Offset,
    /// Of the last good batch.
    epoch: LeaderEpoch,
    /// Every batch up to the log's end was good.
    whole: bool,
}

/// One visible segment.
struct Place {
    name: SegmentName,
    next: Option<SegmentName>,
    file: Arc<dyn DiskFile>,
    len: u64,
}

impl Place {
    fn end(&self) -> Offset {
        self.next.map_or(Offset(i64::MAX), |next| next.base)
    }
}

impl Inspection<'_> {
    /// Names that are no segments.
    fn names(&mut self, entries: &[DirEntry]) {
        let known = [MANIFEST, CHECKPOINT, SNAPSHOT, COMPACTION];
        for entry in entries.iter().filter(|e| !known.contains(&e.name.as_str())) {
            let stem = entry.name.rsplit_once('.');
            let ours = stem.is_some_and(|(stem, ext)| {
                SegmentName::parse(stem).is_some()
                    && ["log", "index", "timeindex", "txnindex"].contains(&ext)
            });
            if entry.name.starts_with(TEMP_PREFIX) {
                (self.tell)(Finding::note(entry.name.clone(), What::Leftover));
            } else if !ours {
                (self.tell)(Finding::note(entry.name.clone(), What::Stranger));
            }
        }
    }

    fn segments(&mut self, visible: &[SegmentName]) {
        self.first = visible.first().map_or(Offset::ZERO, |name| name.base);
        self.facts.end = self.first;
        for (at, name) in visible.iter().enumerate() {
            let next = visible.get(at + 1).copied();
            if let Err(error) = self.segment(*name, next) {
                self.unreadable(*name, error);
            }
        }
    }

    fn unreadable(&mut self, name: SegmentName, error: io::Error) {
        // Retention or a deletion came in between: it is not a part of the log any more.
        let gone = error.kind() == io::ErrorKind::NotFound
            && self.disk.file_len(&self.dir.join(name.log())).is_err();
        self.whole = false;
        if !gone {
            (self.tell)(Finding::damage(name.log(), What::Io(error)));
        }
    }

    fn segment(&mut self, name: SegmentName, next: Option<SegmentName>) -> io::Result<()> {
        let index = IndexAudit::open(self.disk, self.dir, name)?;
        let file = self.disk.open_read(&self.dir.join(name.log()))?;
        let len = file.len()?;
        self.facts.files += 1;
        let place = Place {
            name,
            next,
            file: Arc::clone(&file),
            len,
        };
        let mut audit = match index {
            Opened::Audit(audit) => Some(audit),
            Opened::Finding(finding) => {
                (self.tell)(finding);
                None
            }
            Opened::Missing => {
                if next.is_some() {
                    (self.tell)(Finding::note(name.log(), What::IndexMissing));
                }
                None
            }
        };
        let end = self.walk(&place, audit.as_deref_mut())?;
        let offsets = (self.first, self.facts.end);
        let finding = self
            .txns
            .segment_end((self.disk, self.dir), &name, offsets)?;
        finding.into_iter().for_each(&mut self.tell);
        if let Some(audit) = audit {
            self.facts.files += 2;
            let findings = audit.finish(self.facts.end, (next.is_none(), end.0 < len))?;
            findings.into_iter().for_each(&mut self.tell);
        }
        Ok(())
    }

    /// Gives the place where the walk ended.
    fn walk(&mut self, place: &Place, mut audit: Option<&mut IndexAudit>) -> io::Result<Position> {
        let rules = Rules {
            first: place.name.base,
            end: place.end(),
            without_gaps: true,
            epochs: Some((self.epoch, place.name.epoch)),
        };
        let mut walk = FileWalk::new(&*place.file, place.len, rules);
        self.facts.end = place.name.base;
        let mut damaged = false;
        while let Some(seen) = walk.step()? {
            match seen {
                Seen::Batch(batch) => {
                    self.txns.batch(&walk, &batch)?;
                    self.accept(place, &batch, audit.as_deref_mut())?;
                }
                Seen::Bad(bad) => {
                    damaged = true;
                    self.txns.lose_track();
                    if let Some(audit) = audit.as_deref_mut() {
                        audit.lose_track();
                    }
                    if !self.judge(place, &mut walk, &bad)? {
                        break;
                    }
                }
            }
        }
        self.epoch = self.epoch.max(walk.epoch());
        self.segment_end(place, walk.position(), damaged);
        Ok(walk.position())
    }

    fn accept(
        &mut self,
        place: &Place,
        batch: &SeenBatch,
        audit: Option<&mut IndexAudit>,
    ) -> io::Result<()> {
        let bytes = batch.end.since(batch.position);
        self.facts.batches += 1;
        self.facts.bytes = self.facts.bytes.saturating_add(bytes);
        self.facts.end = batch.header.next_offset();
        self.states.batch(&place.name, batch);
        (self.options.progress)(bytes);
        audit.map_or(Ok(()), |audit| audit.batch(&batch.header, batch.position))
    }

    /// What a bad place means; `false`: nothing behind it is looked at.
    fn judge(&mut self, place: &Place, walk: &mut FileWalk<'_>, bad: &Bad) -> io::Result<bool> {
        let settled = place.next.is_some() || bad.offset < self.states.durable();
        if settled {
            return self.corrupt(place, walk, bad);
        }
        let valid_behind = walk.search(bad, place.name.epoch)?;
        if valid_behind.is_some() && self.options.recovered_this_boot {
            self.whole = false;
            self.tell_bad(place, bad, 0);
            return Ok(true);
        }
        // A living broker is just writing there.
        let growing = bad.why == BadBatch::Short && place.file.len()? > place.len;
        if !growing {
            let what = What::Tail {
                why: bad.why,
                bytes: place.len.saturating_sub(bad.position.0),
                zeros: matches!(bad.next, Next::Unknown { zeros: true, .. }),
                valid_behind,
            };
            (self.tell)(Finding::note(place.name.log(), what).at(bad.position, bad.offset));
        }
        Ok(false)
    }

    /// A bad place below an offset that is durable. The walk goes on behind it, if need be at the next valid batch.
    fn corrupt(&mut self, place: &Place, walk: &mut FileWalk<'_>, bad: &Bad) -> io::Result<bool> {
        self.whole = false;
        let (unknown_bytes, go_on) = match bad.next {
            Next::Batch(_) => (0, true),
            Next::End => (0, false),
            Next::Unknown { bytes, .. } => match walk.search(bad, place.name.epoch)? {
                Some(at) => (at.since(bad.position), true),
                None => (bytes, false),
            },
        };
        self.tell_bad(place, bad, unknown_bytes);
        Ok(go_on)
    }

    fn tell_bad(&mut self, place: &Place, bad: &Bad, unknown_bytes: u64) {
        let what = What::Batch {
            why: bad.why,
            unknown_bytes,
        };
        let needed = place
            .next
            .is_none_or(|next| next.base > self.states.log_start());
        let severity = if needed {
            Severity::Damage
        } else {
            Severity::Note
        };
        let finding = Finding {
            severity,
            ..Finding::damage(place.name.log(), what)
        };
        (self.tell)(finding.at(bad.position, bad.offset));
    }

    /// A segment must reach its successor's base, and what it has beyond that is hidden.
    fn segment_end(&mut self, place: &Place, position: Position, damaged: bool) {
        let Some(next) = place.next else { return };
        let end = self.facts.end;
        if end == next.base {
            let bytes = place.len.saturating_sub(position.0);
            if bytes > 0 && !damaged {
                let what = What::HiddenTail { bytes, by: next };
                (self.tell)(Finding::note(place.name.log(), what).at(position, end));
            }
        } else if !damaged && next.base > self.states.log_start() {
            self.whole = false;
            let what = What::EndsEarly { next };
            (self.tell)(Finding::damage(place.name.log(), what).at(position, end));
        }
    }

    fn finish(mut self, visible: &[SegmentName]) -> PartitionFacts {
        self.states.visible(visible);
        let first = visible.first().map_or(Offset::ZERO, |name| name.base);
        self.facts.start = self.states.log_start().max(first);
        self.facts.end = self.facts.end.max(self.facts.start);
        let (start, end) = (first, self.facts.end);
        let findings = self.states.finish(start, end, self.whole);
        findings.into_iter().for_each(&mut self.tell);
        self.facts
    }
}
