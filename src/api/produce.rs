//! Produce: gates on the net thread, then one lane per partition.
//!
//! Owns:     the request from its frame to its answer: which parts are open,
//!           its deadline, the reply slot.
//! Does not: append or wait. A full lane parks the connection.
//!
//! # Invariants
//! R1. Every part is settled exactly once; the last one answers the request.
//! R2. A part that was given up at the deadline is never appended afterwards
//!     (`claim`), unless its append had begun.

mod transaction;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use seawall_committer::AckPolicy;
use seawall_net::wire::{
    ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopicResponse, RecordError,
    StrBytes, Uuid,
};
use seawall_net::{CloseReason, Flow, Unparker};
use seawall_storage::records::{DecodeSite, Limits as RecordLimits, Records};
use seawall_storage::{Batch, BatchError, ProducerRules, Timestamp, TxnOrigin};

use super::codes::ErrorCode;
use super::gates::Access;
use super::slot::{Slot, Work};
use super::{Call, MALFORMED, UNENCODABLE, text, topic_id_from_wire};
use crate::broker::Broker;
use crate::config::{TimestampType, TopicConfig};
use crate::counts::RequestCounts;
use crate::partition::{AppendError, LaneItem, Part, PartSink, Partition, Push, Stored, now};
use crate::security::acl::Operation;
use crate::security::quota::Client;
use crate::timer::Deadline;
use crate::topics::Topic;
use crate::tripwire;
use transaction::Addition;

/// What a failed acks=0 request does to its connection; the log tells more.
const SILENT_ERROR: CloseReason = CloseReason::Service("an acks=0 request failed");
/// The lowest version that knows zstd (KIP-110).
const ZSTD_FROM: i16 = 7;
/// The lowest version that names topics by id (KIP-516).
const TOPIC_IDS_FROM: i16 = 13;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = ProduceRequest::decode(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let unparker = call.conn.info.unparker();
    let client = call.client();
    let access = call.access();
    let (layout, offers) =
        tripwire::PRODUCE.around(|| gate(call.broker, access, &request, version));
    let answer = Answer::new(
        call.broker,
        &request,
        (version, call.request.received),
        layout,
        call.slot,
    );
    if request.acks != 0 {
        answer.arm(call.broker, call.request.received, request.timeout_ms);
    }
    let policy = AckPolicy::from_acks(request.acks);
    drop(request);
    answer.settle_empty();
    let pushing = Pushing::new(&answer, call.broker, policy, offers, unparker);
    Pushing { client, ..pushing }.go()
}

/// Where the answers of a request stand: topics, and their partitions.
struct Layout {
    topics: Vec<(StrBytes, Uuid, Vec<i32>)>,
}

/// A batch that passed the gates.
struct Passed {
    partition: Arc<Partition>,
    batch: Batch,
    /// The broker stamps it with the time of its append.
    stamp: bool,
    /// The topic is compacted and nobody has looked for keys yet.
    keys_unchecked: bool,
    /// How it stands to transactions.
    txn: TxnOrigin,
    /// The partition must be added to the transaction first.
    to_add: Option<Addition>,
}

/// A batch that passed the gates, or the reason why it did not.
type Offer = Result<Passed, PartError>;

/// Why one part of a request failed, with what the answer tells about it.
#[derive(Clone, Debug)]
struct PartError {
    code: ErrorCode,
    message: Option<String>,
    log_start: i64,
    /// The batch itself is at fault: `record_errors` names it (KIP-467).
    of_record: bool,
}

impl From<ErrorCode> for PartError {
    fn from(code: ErrorCode) -> Self {
        Self {
            code,
            message: None,
            log_start: -1,
            of_record: false,
        }
    }
}

fn gate(
    broker: &Broker,
    access: Access<'_>,
    request: &ProduceRequest,
    version: i16,
) -> (Layout, Vec<Offer>) {
    let id = request.transactional_id.as_ref();
    let as_whole = id.map_or(Ok(()), |id| {
        access.transactional_id(Operation::Write, id.as_str())
    });
    let map = broker.topics.load();
    let mut layout = Layout { topics: Vec::new() };
    let mut offers = Vec::new();
    for asked in &request.topics {
        let topic = as_whole.and_then(|()| {
            if version >= TOPIC_IDS_FROM {
                let id = topic_id_from_wire(asked.topic_id);
                access.with_id(&map, Operation::Write, id)
            } else {
                access.named(&map, Operation::Write, asked.name.as_str())
            }
        });
        for part in &asked.partitions {
            let records = part.records.as_ref();
            let offer = gate_part(request, version, topic, part.index, records);
            offers.push(offer.and_then(|passed| {
                let topic = topic?;
                transaction::gate(broker, request, version, topic, passed)
            }));
        }
        let indexes = asked.partitions.iter().map(|part| part.index).collect();
        layout
            .topics
            .push((text(asked.name.as_str()), asked.topic_id, indexes));
    }
    refuse_twins(&layout, &mut offers);
    (layout, offers)
}

/// The same partition twice in one request: Kafka's clients never do that, and
/// one answer per partition could not tell the two apart.
fn refuse_twins(layout: &Layout, offers: &mut [Offer]) {
    let mut seen = std::collections::HashSet::new();
    let names = layout.topics.iter().flat_map(|(name, id, indexes)| {
        indexes
            .iter()
            .map(move |index| (name.as_str(), *id.as_bytes(), *index))
    });
    for (key, offer) in names.zip(offers) {
        if !seen.insert(key) {
            *offer = Err(ErrorCode::InvalidRequest.into());
        }
    }
}

fn gate_part(
    request: &ProduceRequest,
    version: i16,
    topic: Result<&Arc<Topic>, ErrorCode>,
    index: i32,
    records: Option<&Bytes>,
) -> Offer {
    if AckPolicy::from_acks(request.acks).is_none() {
        return Err(ErrorCode::InvalidRequiredAcks.into());
    }
    let topic = topic?;
    let partition = topic
        .partition(index)
        .map_err(|error| ErrorCode::from(&error))?;
    let config = topic.config.load();
    let rules = ProducerRules {
        max_batch_bytes: config.max_message_bytes,
        zstd: version >= ZSTD_FROM,
        check_crc: true,
    };
    let records = records.cloned().unwrap_or_default();
    let start = partition.view().start_offset().get();
    let batch = Batch::from_producer(&records, &rules).map_err(|error| bad_batch(&error, start))?;
    check_time(&config, &batch, start)?;
    Ok(Passed {
        partition: Arc::clone(partition),
        batch,
        stamp: config.timestamp_type == TimestampType::LogAppendTime,
        keys_unchecked: config.cleanup_policy.compact,
        txn: TxnOrigin::Unverified,
        to_add: None,
    })
}

fn bad_batch(error: &BatchError, start: i64) -> PartError {
    let code = ErrorCode::from(error);
    let of_record = code == ErrorCode::InvalidRecord;
    PartError {
        code,
        message: Some(error.to_string()),
        log_start: if of_record { start } else { -1 },
        of_record,
    }
}

/// `message.timestamp.before.max.ms` and `.after.max.ms`, by the header: the
/// batch is opaque, and its own times bound those of its records.
fn check_time(config: &TopicConfig, batch: &Batch, start: i64) -> Result<(), PartError> {
    let header = batch.header();
    if config.timestamp_type == TimestampType::LogAppendTime || header.base_timestamp.get() < 0 {
        return Ok(());
    }
    let now = now();
    let ahead = header.max_timestamp.since_ms(now);
    let behind = now.since_ms(header.base_timestamp);
    if exceeds(ahead, config.timestamp_after_max_ms)
        || exceeds(behind, config.timestamp_before_max_ms)
    {
        return Err(PartError {
            code: ErrorCode::InvalidTimestamp,
            message: Some("a timestamp is outside of the range that the topic allows".into()),
            log_start: start,
            of_record: true,
        });
    }
    Ok(())
}

fn exceeds(distance_ms: i64, max_ms: u64) -> bool {
    u64::try_from(distance_ms).is_ok_and(|distance| distance > max_ms)
}

/// What is left to push of a request; survives a full lane.
struct Pushing {
    answer: Arc<Answer>,
    broker: Arc<Broker>,
    policy: AckPolicy,
    left: VecDeque<(usize, Offer)>,
    unparker: Unparker,
    /// Who pays for what workers do, where limits are set.
    client: Option<Client>,
}

/// The place where a worker leaves what it found out about keys.
type KeyCheck = Arc<Mutex<Option<Result<(), PartError>>>>;

impl Pushing {
    fn new(
        answer: &Arc<Answer>,
        broker: &Arc<Broker>,
        policy: Option<AckPolicy>,
        offers: Vec<Offer>,
        unparker: Unparker,
    ) -> Self {
        Self {
            answer: Arc::clone(answer),
            broker: Arc::clone(broker),
            // An unknown policy has left no batch among the offers.
            policy: policy.unwrap_or(AckPolicy::Written),
            left: offers.into_iter().enumerate().collect(),
            unparker,
            client: None,
        }
    }

    /// Pushes until a lane is full. Runs on the net thread.
    fn go(mut self) -> Flow {
        while let Some((index, offer)) = self.left.pop_front() {
            match offer {
                Err(error) => self.answer.finish(index, Err(error), |_| {}),
                Ok(passed) if passed.keys_unchecked => return self.check_keys(index, passed),
                Ok(passed) if passed.to_add.is_some() => {
                    self.left.push_front((index, Ok(passed)));
                    return self.add_to_transaction();
                }
                Ok(passed) => {
                    if let Some(back) = self.push(index, passed) {
                        self.left.push_front((index, Ok(back)));
                        return Flow::Park(Box::new(move || self.go()));
                    }
                }
            }
        }
        Flow::Done
    }

    /// Gives the batch back if the lane is full.
    fn push(&self, index: usize, passed: Passed) -> Option<Passed> {
        let item = LaneItem {
            batch: passed.batch,
            policy: self.policy,
            stamp: passed.stamp,
            txn: passed.txn,
            part: Part::new(Arc::clone(&self.answer) as Arc<dyn PartSink>, index),
        };
        match passed.partition.offer(item, &self.unparker) {
            Push::Queued { .. } => None,
            Push::Refused(item, error) => {
                item.part.settle(Err(error));
                None
            }
            Push::Full(item) => Some(Passed {
                batch: item.batch,
                ..passed
            }),
        }
    }

    /// Keys are looked for off the hot path, by a worker; the connection takes
    /// nothing further until it is back, so that order is kept.
    fn check_keys(self, index: usize, passed: Passed) -> Flow {
        let found = KeyCheck::default();
        let (told, unparker) = (Arc::clone(&found), self.unparker.clone());
        let (batch, start) = (passed.batch.clone(), passed.partition.view().start_offset());
        let (client, broker) = (self.client.clone(), Arc::clone(&self.broker));
        self.broker.workers().submit(move || {
            let _work = client.as_ref().map(|who| Work::of(&broker, who));
            *told.lock() = Some(keys_of(&batch, start.get()));
            unparker.wake();
        });
        Flow::Park(Box::new(move || self.keys_checked(index, passed, found)))
    }

    fn keys_checked(mut self, index: usize, passed: Passed, found: KeyCheck) -> Flow {
        let verdict = found.lock().take();
        let offer = match verdict {
            // Woken for another reason.
            None => return Flow::Park(Box::new(move || self.keys_checked(index, passed, found))),
            Some(Err(error)) => Err(error),
            Some(Ok(())) => Ok(Passed {
                keys_unchecked: false,
                ..passed
            }),
        };
        self.left.push_front((index, offer));
        self.go()
    }
}

/// A compacted topic keeps the latest record of each key: one without a key
/// has no place there. A payload that cannot be read has none either.
fn keys_of(batch: &Batch, start: i64) -> Result<(), PartError> {
    let refusal = |message: String| PartError {
        code: ErrorCode::InvalidRecord,
        message: Some(message),
        log_start: start,
        of_record: true,
    };
    let site = DecodeSite::CompactedProduce;
    let records = Records::decode(batch, &RecordLimits::default(), site);
    for record in records.map_err(|error| refusal(error.to_string()))? {
        let record = record.map_err(|error| refusal(error.to_string()))?;
        if record.key.is_none() {
            let message = "Compacted topic cannot accept message without key.";
            return Err(refusal(message.into()));
        }
    }
    Ok(())
}

/// The answer of a request while its parts are settled.
struct Answer {
    version: i16,
    acks: i16,
    received: Instant,
    broker: Arc<Broker>,
    state: Mutex<AnswerState>,
}

struct AnswerState {
    layout: Layout,
    outcomes: Vec<Option<Result<Stored, PartError>>>,
    open: usize,
    slot: Option<Slot>,
    deadline: Option<Deadline>,
}

impl Answer {
    fn new(
        broker: &Arc<Broker>,
        request: &ProduceRequest,
        (version, received): (i16, Instant),
        layout: Layout,
        slot: Slot,
    ) -> Arc<Self> {
        let parts = layout.topics.iter().map(|topic| topic.2.len()).sum();
        Arc::new(Self {
            version,
            acks: request.acks,
            received,
            broker: Arc::clone(broker),
            state: Mutex::new(AnswerState {
                layout,
                outcomes: vec![None; parts],
                open: parts,
                slot: Some(slot),
                deadline: None,
            }),
        })
    }

    /// A produce waits at most its own timeout, from the end of its frame.
    fn arm(self: &Arc<Self>, broker: &Broker, received: Instant, timeout_ms: i32) {
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let answer = Arc::clone(self);
        let deadline = broker
            .timer
            .at(received + timeout, move || answer.time_out());
        let mut state = self.state.lock();
        // The timer may have been faster.
        if state.slot.is_some() {
            state.deadline = Some(deadline);
        }
    }

    fn time_out(&self) {
        let open: Vec<usize> = {
            let state = self.state.lock();
            let outcomes = state.outcomes.iter().enumerate();
            outcomes.filter(|o| o.1.is_none()).map(|o| o.0).collect()
        };
        for index in open {
            let outcome = Err(ErrorCode::RequestTimedOut.into());
            self.finish(index, outcome, RequestCounts::time_out);
        }
    }

    /// A request without any part is complete at once.
    fn settle_empty(&self) {
        let state = self.state.lock();
        if state.open == 0 {
            self.answer(state);
        }
    }

    /// R1. What comes second is not counted either: a batch has one outcome.
    fn finish(
        &self,
        index: usize,
        outcome: Result<Stored, PartError>,
        count: impl FnOnce(&RequestCounts),
    ) {
        let mut state = self.state.lock();
        match state.outcomes.get_mut(index) {
            Some(place @ None) => *place = Some(outcome),
            Some(Some(_)) | None => return,
        }
        count(&self.broker.counts);
        state.open -= 1;
        if state.open == 0 {
            self.answer(state);
        }
    }

    fn answer(&self, mut state: parking_lot::MutexGuard<'_, AnswerState>) {
        let slot = state.slot.take();
        let deadline = state.deadline.take();
        let layout = std::mem::replace(&mut state.layout, Layout { topics: Vec::new() });
        let outcomes = std::mem::take(&mut state.outcomes);
        drop(state);
        drop(deadline);
        let Some(mut slot) = slot else { return };
        self.broker.counts.produces.took(self.received.elapsed());
        if self.acks == 0 {
            return answer_silently(slot, &outcomes);
        }
        let mut response = response(layout, outcomes);
        response.throttle_time_ms = slot.pay_for_produce();
        match response.encode(self.version) {
            Ok(body) => slot.reply(body),
            Err(error) => {
                log::error!("Produce: {error}");
                slot.close(UNENCODABLE);
            }
        }
    }
}

impl PartSink for Answer {
    fn claim(&self, index: usize) -> bool {
        let state = self.state.lock();
        matches!(state.outcomes.get(index), Some(None))
    }

    fn settle(&self, index: usize, outcome: Result<Stored, AppendError>) {
        let refused = outcome.as_ref().err().cloned();
        let outcome = outcome.map_err(|error| append_error(&error));
        self.finish(index, outcome, |counts| {
            refused.iter().for_each(|error| counts.refuse(error));
        });
    }
}

fn append_error(error: &AppendError) -> PartError {
    PartError::from(ErrorCode::from(error))
}

/// acks=0: no answer, ever; an error closes the connection, since nothing else
/// can tell the producer.
fn answer_silently(slot: Slot, outcomes: &[Option<Result<Stored, PartError>>]) {
    let failed = outcomes.iter().flatten().find_map(|o| o.as_ref().err());
    match failed {
        None => slot.silent(),
        Some(error) => {
            log::info!(
                "closing {:?}: its acks=0 request failed with {}",
                slot.conn(),
                error.code.name()
            );
            slot.close(SILENT_ERROR);
        }
    }
}

fn response(layout: Layout, outcomes: Vec<Option<Result<Stored, PartError>>>) -> ProduceResponse {
    let mut outcomes = outcomes.into_iter();
    let topics = layout
        .topics
        .into_iter()
        .map(|(name, topic_id, indexes)| ProduceTopicResponse {
            name,
            topic_id,
            partitions: indexes
                .into_iter()
                .map(|index| row(index, outcomes.next().flatten()))
                .collect(),
        })
        .collect();
    ProduceResponse {
        topics,
        ..ProduceResponse::default()
    }
}

fn row(index: i32, outcome: Option<Result<Stored, PartError>>) -> ProducePartitionResponse {
    let mut row = ProducePartitionResponse {
        index,
        ..ProducePartitionResponse::default()
    };
    match outcome {
        Some(Ok(stored)) => {
            row.base_offset = stored.base_offset.get();
            row.log_append_time_ms = stored.append_time.map_or(-1, Timestamp::get);
            row.log_start_offset = stored.log_start.get();
        }
        Some(Err(error)) => fill_error(&mut row, error),
        // Every part is settled before the answer is made (R1).
        None => fill_error(&mut row, ErrorCode::UnknownServerError.into()),
    }
    row
}

fn fill_error(row: &mut ProducePartitionResponse, error: PartError) {
    row.error_code = error.code.code();
    row.base_offset = -1;
    row.log_append_time_ms = -1;
    row.log_start_offset = error.log_start;
    let message = error.message.map(StrBytes::from);
    if error.of_record {
        row.record_errors = vec![RecordError {
            batch_index: 0,
            message: message.clone(),
        }];
    }
    row.error_message = message;
}
