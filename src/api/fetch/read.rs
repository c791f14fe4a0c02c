//! One round of reading for a fetch: a row for every partition asked.
//!
//! Owns:     the rows of a round and the bytes it may still return.
//! Does not: decide whether the rows are the answer; `wait` does.
//!
//! What needs no disk is answered by the calling thread; the rest is read by
//! the read workers of each log dir, all dirs at once, so that a dir that hangs
//! costs its own rows only.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use seawall_committer::{Call, Watched};
use seawall_net::wire::{AbortedTransaction, EpochEndOffset, FetchPartitionResponse};
use seawall_net::{BodyPart, PIPED_BYTES_MAX, Pipes};
use seawall_storage::{AbortedTxn, LeaderEpoch, Offset, ReadError, ReadSpec, ReadView};

use super::super::codes::ErrorCode;
use super::{Ask, AskedPart, TOPIC_IDS_FROM};
use crate::logdir::LogDir;
use crate::partition::Partition;
use crate::tripwire;

/// More than any answer holds, and small enough that the sum over all
/// partitions of a request fits.
const MORE_THAN_ANY_ANSWER: u64 = 1 << 40;

/// A pipe costs some ten microseconds more than it saves below this.
const PIPED_BYTES_MIN: usize = 64 * 1024;

/// Who takes the rows when the last one is there.
type Then = Box<dyn FnOnce(Vec<FetchPartitionResponse>) + Send>;

/// One round of reading.
pub(super) struct Round {
    ask: Arc<Ask>,
    state: Mutex<State>,
}

struct State {
    rows: Vec<Option<FetchPartitionResponse>>,
    bytes_left: usize,
    served_any: bool,
    /// Rows that are not there yet.
    open: usize,
    then: Option<Then>,
}

/// Parts of a fetch that have to be read from one log dir, in request order.
/// Workers take one after the other; a second one comes only where the first
/// hangs.
struct Group {
    round: Arc<Round>,
    dir: Arc<LogDir>,
    left: Mutex<VecDeque<usize>>,
}

/// One read under the eyes of the watchdog.
struct WatchedRead {
    group: Arc<Group>,
    place: usize,
    stand_in: AtomicBool,
}

impl Round {
    /// Starts a round; `then` gets the rows, perhaps before this returns.
    pub(super) fn start(
        ask: &Arc<Ask>,
        then: impl FnOnce(Vec<FetchPartitionResponse>) + Send + 'static,
    ) {
        let mut rows = Vec::with_capacity(ask.parts.len());
        let mut places: BTreeMap<usize, (Arc<LogDir>, VecDeque<usize>)> = BTreeMap::new();
        for (place, part) in ask.parts.iter().enumerate() {
            let row = part.row_without_reading(ask);
            if let (None, Ok(partition)) = (&row, &part.partition) {
                let dir = partition.dir();
                let group = places.entry(dir.index);
                let group = group.or_insert_with(|| (Arc::clone(dir), VecDeque::new()));
                group.1.push_back(place);
            }
            rows.push(row);
        }
        let open = rows.iter().filter(|row| row.is_none()).count();
        let round = Arc::new(Self {
            ask: Arc::clone(ask),
            state: Mutex::new(State {
                rows,
                bytes_left: ask.max_bytes,
                served_any: false,
                open,
                then: Some(Box::new(then)),
            }),
        });
        if open == 0 {
            return finish(round.state.lock());
        }
        for (dir, left) in places.into_values() {
            let group = Group {
                round: Arc::clone(&round),
                dir,
                left: Mutex::new(left),
            };
            Arc::new(group).submit();
        }
    }

    fn read_part(&self, part: &AskedPart, partition: &Partition) -> FetchPartitionResponse {
        let (max_bytes, at_least_one) = {
            let state = self.state.lock();
            (part.max_bytes().min(state.bytes_left), !state.served_any)
        };
        let view = partition.view();
        let spec = ReadSpec {
            from: part.wanted.offset,
            upto: part.limit_in(&self.ask, partition, &view),
            max_bytes,
            at_least_one,
            gaps: false,
            check_crc: true,
        };
        let read = tripwire::FETCH.around(|| self.read_batches(&view, &spec));
        match read {
            Ok(read) => part.row_of(&self.ask, partition, &view, read),
            Err(error) => part.read_error(partition, &error),
        }
    }

    /// Records that are asked for again go out of the page cache as they are; others are read, and looked at.
    fn read_batches(&self, view: &ReadView, spec: &ReadSpec) -> Result<Batches, ReadError> {
        if let Some(pipes) = &self.ask.pipes
            && let Some(piped) = piped(pipes, view, spec)?
        {
            return Ok(piped);
        }
        view.read(spec).map(|read| Batches {
            range: read.base..read.next,
            records: read.bytes.into(),
        })
    }

    /// The first row for a place counts: a read that hung comes too late.
    fn put(&self, place: usize, row: FetchPartitionResponse) {
        let mut state = self.state.lock();
        let bytes = row.records.as_ref().map_or(0, BodyPart::len);
        match state.rows.get_mut(place) {
            Some(there @ None) => *there = Some(row),
            Some(Some(_)) | None => return,
        }
        state.bytes_left = state.bytes_left.saturating_sub(bytes);
        state.served_any |= bytes > 0;
        state.open -= 1;
        if state.open == 0 {
            finish(state);
        }
    }
}

/// Whole batches on their way out.
struct Batches {
    range: Range<Offset>,
    records: BodyPart,
}

/// The batches in a pipe, if so many are there and were checked before that a pipe is worth its calls.
fn piped(
    pipes: &Arc<Pipes>,
    view: &ReadView,
    spec: &ReadSpec,
) -> Result<Option<Batches>, ReadError> {
    let spec = ReadSpec {
        max_bytes: spec.max_bytes.min(PIPED_BYTES_MAX),
        ..*spec
    };
    let Some(stretch) = view.stretch(&spec, PIPED_BYTES_MIN)? else {
        return Ok(None);
    };
    let piped = pipes.filled(stretch.len(), |pipe, done| stretch.splice(done, pipe));
    Ok(piped.map(|piped| Batches {
        range: stretch.base..stretch.next,
        records: piped.into(),
    }))
}

/// The last row is there.
fn finish(mut state: MutexGuard<'_, State>) {
    let then = state.then.take();
    let rows = std::mem::take(&mut state.rows);
    drop(state);
    if let Some(then) = then {
        then(rows.into_iter().flatten().collect());
    }
}

impl Group {
    fn submit(self: Arc<Self>) {
        let reads = Arc::clone(&self.dir.reads);
        reads.submit(move || self.read());
    }

    fn read(self: Arc<Self>) {
        loop {
            let next = self.left.lock().pop_front();
            let Some(place) = next else { return };
            let Some(part) = self.round.ask.parts.get(place) else {
                return;
            };
            if let Ok(partition) = &part.partition {
                let watched = self.dir.watchdog.watch(self.watched(place), Call::Read);
                let began = Instant::now();
                let work = self.round.ask.work();
                let row = self.round.read_part(part, partition);
                drop(work);
                self.dir.counts.reads.took(began.elapsed());
                let bytes = row.records.as_ref().map_or(0, BodyPart::len);
                self.dir.counts.read_bytes.add(bytes as u64);
                if let Some(BodyPart::Piped(piped)) = &row.records {
                    self.dir.counts.piped_bytes.add(piped.len() as u64);
                }
                self.round.put(place, row);
                drop(watched);
            }
        }
    }

    fn watched(self: &Arc<Self>, place: usize) -> Arc<dyn Watched> {
        Arc::new(WatchedRead {
            group: Arc::clone(self),
            place,
            stand_in: AtomicBool::new(false),
        })
    }
}

/// A read that hangs costs its own row: it is answered as a storage error, and
/// another worker goes on with the rest.
impl Watched for WatchedRead {
    fn overdue(&self, _call: Call) {
        let stand_in = self.group.dir.reads.stand_in();
        self.stand_in.store(stand_in, Ordering::Release);
        if let Some(part) = self.group.round.ask.parts.get(self.place) {
            log::error!("a read of partition {} hangs", part.key.index);
            let row = part.error(ErrorCode::KafkaStorageError);
            self.group.round.put(self.place, row);
        }
        Arc::clone(&self.group).submit();
    }

    fn recovered(&self, _call: Call) {
        if self.stand_in.load(Ordering::Acquire) {
            self.group.dir.reads.dismiss();
        }
    }
}

fn aborted_to_wire(txn: &AbortedTxn) -> AbortedTransaction {
    AbortedTransaction {
        producer_id: txn.producer.get(),
        first_offset: txn.first_offset.get(),
    }
}

impl AskedPart {
    /// The row, if it needs no disk.
    fn row_without_reading(&self, ask: &Ask) -> Option<FetchPartitionResponse> {
        let partition = match &self.partition {
            Ok(partition) => partition,
            Err(missing) => return Some(self.error(missing.code)),
        };
        if partition.has_moved() {
            return Some(self.error(ErrorCode::NotLeaderOrFollower));
        }
        if partition.is_deleted() {
            let by_id = ask.version >= TOPIC_IDS_FROM;
            return Some(self.error(if by_id {
                ErrorCode::UnknownTopicId
            } else {
                ErrorCode::UnknownTopicOrPartition
            }));
        }
        let view = partition.view();
        if let Some(code) = self.epoch_error(view.leader_epoch()) {
            return Some(self.error(code));
        }
        if self.wanted.offset < view.start_offset() || self.wanted.offset > view.end_offset() {
            return Some(self.error(ErrorCode::OffsetOutOfRange));
        }
        if let Some(row) = self.divergence(ask, partition, &view) {
            return Some(row);
        }
        // Between the limit and the log end: nothing yet, and no error.
        let nothing = self.wanted.offset >= self.limit(ask, partition);
        nothing.then(|| self.good_row(ask, partition, &view))
    }

    /// KIP-320: who asks under another epoch has old metadata.
    fn epoch_error(&self, ours: LeaderEpoch) -> Option<ErrorCode> {
        match self.wanted.leader_epoch {
            ..0 => None,
            asked if asked < ours.get() => Some(ErrorCode::FencedLeaderEpoch),
            asked if asked > ours.get() => Some(ErrorCode::UnknownLeaderEpoch),
            _ => None,
        }
    }

    /// KIP-595: a reader whose last epoch ended earlier here learns where.
    fn divergence(
        &self,
        ask: &Ask,
        partition: &Partition,
        view: &ReadView,
    ) -> Option<FetchPartitionResponse> {
        if self.wanted.last_fetched_epoch < 0 {
            return None;
        }
        let asked = LeaderEpoch::new(self.wanted.last_fetched_epoch);
        let Some((epoch, end)) = view.end_offset_for_epoch(asked) else {
            return Some(self.error(ErrorCode::OffsetOutOfRange));
        };
        if epoch == asked && end >= self.wanted.offset {
            return None;
        }
        let mut row = self.good_row(ask, partition, view);
        row.diverging_epoch = Some(EpochEndOffset {
            epoch: epoch.get(),
            end_offset: end.get(),
        });
        Some(row)
    }

    /// Where reading ends for this fetch.
    pub(super) fn limit(&self, ask: &Ask, partition: &Partition) -> Offset {
        self.limit_in(ask, partition, &partition.view())
    }

    /// The same for what is read with `view`.
    fn limit_in(&self, ask: &Ask, partition: &Partition, view: &ReadView) -> Offset {
        if ask.read_committed {
            partition.stable_in(view)
        } else {
            partition.high_watermark()
        }
    }

    /// What was read, and for readers of committed records what of it was aborted.
    fn row_of(
        &self,
        ask: &Ask,
        partition: &Partition,
        view: &ReadView,
        read: Batches,
    ) -> FetchPartitionResponse {
        let mut row = self.good_row(ask, partition, view);
        if ask.read_committed && !read.records.is_empty() {
            match view.aborted_in(read.range.start, read.range.end) {
                Ok(aborted) => {
                    let aborted = aborted.iter().map(aborted_to_wire);
                    row.aborted_transactions = Some(aborted.collect());
                }
                Err(error) => return self.read_error(partition, &ReadError::Io(error)),
            }
        }
        row.records = Some(read.records);
        row
    }

    fn good_row(
        &self,
        ask: &Ask,
        partition: &Partition,
        view: &ReadView,
    ) -> FetchPartitionResponse {
        FetchPartitionResponse {
            index: self.key.index,
            high_watermark: partition.high_watermark().get(),
            last_stable_offset: partition.last_stable_offset().get(),
            log_start_offset: view.start_offset().get(),
            aborted_transactions: ask.read_committed.then(Vec::new),
            records: Some(BodyPart::default()),
            ..FetchPartitionResponse::default()
        }
    }

    fn read_error(&self, partition: &Partition, error: &ReadError) -> FetchPartitionResponse {
        log::error!(
            "{}-{}: a read failed: {error:?}",
            partition.topic,
            partition.index
        );
        self.error(ErrorCode::from(error))
    }

    fn error(&self, code: ErrorCode) -> FetchPartitionResponse {
        FetchPartitionResponse {
            index: self.key.index,
            error_code: code.code(),
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            aborted_transactions: Some(Vec::new()),
            records: Some(BodyPart::default()),
            ..FetchPartitionResponse::default()
        }
    }

    /// Bytes that may be readable, at most; more than anybody waits for where
    /// there is an error to tell.
    pub(super) fn ready_bytes(&self, ask: &Ask) -> u64 {
        let Ok(partition) = &self.partition else {
            return 0;
        };
        if partition.is_deleted() {
            return MORE_THAN_ANY_ANSWER;
        }
        let limit = self.limit(ask, partition);
        let view = partition.view();
        let bytes = view.bytes_between_at_most(self.wanted.offset, limit);
        bytes.min(MORE_THAN_ANY_ANSWER)
    }

    fn max_bytes(&self) -> usize {
        usize::try_from(self.wanted.max_bytes).unwrap_or(0)
    }
}
