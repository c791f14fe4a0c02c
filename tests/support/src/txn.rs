//! A transactional producer without a client library: each call at any version, answers as plain numbers.

use std::time::Duration;

use crate::requests::{self, FetchFrom, TopicRef};
use crate::wait;
use crate::{BatchBuilder, ParsedBatch, Raw, calls};
use kafka_wire::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_wire::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_wire::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeTransactionsRequest, EndTxnRequest,
    FetchRequest, FindCoordinatorRequest, InitProducerIdRequest, ProduceRequest,
    TxnOffsetCommitRequest,
};

/// Kafka's codes of a coordinator that has no time at the moment.
mod codes {
    pub(super) const NONE: i16 = 0;
    pub(super) const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
    pub(super) const COORDINATOR_NOT_AVAILABLE: i16 = 15;
    pub(super) const NOT_COORDINATOR: i16 = 16;
    pub(super) const CONCURRENT_TRANSACTIONS: i16 = 51;
}

/// How long a coordinator may be busy with the last transaction.
const BUSY: Duration = Duration::from_secs(30);
/// The attribute bit of a transactional batch.
const TRANSACTIONAL: i16 = 1 << 4;

/// One transactional producer.
#[derive(Clone, Debug)]
pub struct Tx {
    /// Transactional id.
    pub id: String,
    /// Producer id and epoch.
    pub producer: (i64, i16),
}

/// Calls until the coordinator is not busy with the last transaction, as clients do.
pub fn patiently<T>(mut call: impl FnMut() -> T, code: impl Fn(&T) -> i16) -> T {
    let busy = [
        codes::CONCURRENT_TRANSACTIONS,
        codes::COORDINATOR_LOAD_IN_PROGRESS,
        codes::COORDINATOR_NOT_AVAILABLE,
        codes::NOT_COORDINATOR,
    ];
    wait::until_some("the coordinator has time", BUSY, || {
        let answer = call();
        (!busy.contains(&code(&answer))).then_some(answer)
    })
}

/// Asks for the coordinator of a group (0) or a transactional id (1) until there is one: Kafka makes its topic then.
pub fn find_coordinator(raw: &mut Raw, kind: i8, key: &str) {
    let mut request = FindCoordinatorRequest::default();
    request.key = key.into();
    request.key_type = kind;
    let find = || raw.call::<FindCoordinatorRequest>(3, &request).error_code;
    assert_eq!(patiently(find, |code| *code), codes::NONE);
}

/// InitProducerId once: error code, id, epoch.
pub fn init_once(
    raw: &mut Raw,
    version: i16,
    id: &str,
    timeout_ms: i32,
    expected: (i64, i16),
) -> (i16, i64, i16) {
    let mut request = InitProducerIdRequest::default();
    request.transactional_id = Some(id.into());
    request.transaction_timeout_ms = timeout_ms;
    request.producer_id = -1;
    request.producer_epoch = -1;
    if version >= 3 {
        (request.producer_id, request.producer_epoch) = expected;
    }
    let answer = raw.call::<InitProducerIdRequest>(version, &request);
    (answer.error_code, answer.producer_id, answer.producer_epoch)
}

impl Tx {
    /// A producer that begins, fencing whoever had the id.
    pub fn begin(raw: &mut Raw, id: &str) -> Self {
        Self::begin_with_timeout(raw, id, 60_000)
    }

    /// The same, with a timeout for its transactions.
    ///
    /// # Panics
    /// When the broker refuses.
    pub fn begin_with_timeout(raw: &mut Raw, id: &str, timeout_ms: i32) -> Self {
        find_coordinator(raw, 1, id);
        let init = || init_once(raw, 4, id, timeout_ms, (-1, -1));
        let (code, producer, epoch) = patiently(init, |answer| answer.0);
        assert_eq!(code, codes::NONE, "InitProducerId of {id}");
        Self {
            id: id.to_owned(),
            producer: (producer, epoch),
        }
    }

    /// The same producer with another epoch.
    pub fn at_epoch(&self, epoch: i16) -> Self {
        Self {
            id: self.id.clone(),
            producer: (self.producer.0, epoch),
        }
    }

    /// The same producer with another transactional id.
    pub fn called(&self, id: &str) -> Self {
        Self {
            id: id.to_owned(),
            producer: self.producer,
        }
    }

    /// Goes on after an error (KIP-360): the error code; takes over the new epoch.
    pub fn init_again(&mut self, raw: &mut Raw) -> i16 {
        let (id, producer) = (self.id.clone(), self.producer);
        let init = || init_once(raw, 4, &id, 60_000, producer);
        let (code, producer, epoch) = patiently(init, |answer| answer.0);
        if code == codes::NONE {
            self.producer = (producer, epoch);
        }
        code
    }

    /// AddPartitionsToTxn up to v3, once: the code of each partition.
    pub fn add_once(
        &self,
        raw: &mut Raw,
        version: i16,
        topic: &str,
        partitions: &[i32],
    ) -> Vec<i16> {
        let mut one = AddPartitionsToTxnTopic::default();
        one.name = topic.into();
        one.partitions = partitions.to_vec();
        let mut request = AddPartitionsToTxnRequest::default();
        request.v3_and_below_transactional_id = self.id.as_str().into();
        (
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        ) = self.producer;
        request.v3_and_below_topics = vec![one];
        let answer = raw.call::<AddPartitionsToTxnRequest>(version, &request);
        let topics = answer.results_by_topic_v3_and_below.into_iter();
        let rows = topics.flat_map(|topic| topic.results_by_partition);
        let mut rows: Vec<_> = rows
            .map(|row| (row.partition_index, row.partition_error_code))
            .collect();
        rows.sort_unstable();
        rows.into_iter().map(|row| row.1).collect()
    }

    /// AddPartitionsToTxn v3 of one partition, patiently.
    pub fn add(&self, raw: &mut Raw, topic: &TopicRef, partition: i32) -> i16 {
        patiently(
            || self.add_once(raw, 3, &topic.name, &[partition])[0],
            |code| *code,
        )
    }

    /// AddOffsetsToTxn, patiently.
    pub fn add_offsets(&self, raw: &mut Raw, version: i16, group: &str) -> i16 {
        let mut request = AddOffsetsToTxnRequest::default();
        request.transactional_id = self.id.as_str().into();
        (request.producer_id, request.producer_epoch) = self.producer;
        request.group_id = group.into();
        let call = || {
            let answer = raw.call::<AddOffsetsToTxnRequest>(version, &request);
            answer.error_code
        };
        patiently(call, |code| *code)
    }

    /// TxnOffsetCommit of one offset, patiently.
    pub fn commit_offset(
        &self,
        raw: &mut Raw,
        version: i16,
        group: &str,
        (topic, partition, offset): (&str, i32, i64),
    ) -> i16 {
        let mut row = TxnOffsetCommitRequestPartition::default();
        row.partition_index = partition;
        row.committed_offset = offset;
        row.committed_metadata = Some("".into());
        let mut rows = TxnOffsetCommitRequestTopic::default();
        rows.name = topic.into();
        rows.partitions = vec![row];
        let mut request = TxnOffsetCommitRequest::default();
        request.transactional_id = self.id.as_str().into();
        request.group_id = group.into();
        (request.producer_id, request.producer_epoch) = self.producer;
        request.generation_id_or_member_epoch = -1;
        request.topics = vec![rows];
        let call = || {
            let answer = raw.call::<TxnOffsetCommitRequest>(version, &request);
            answer.topics[0].partitions[0].error_code
        };
        patiently(call, |code| *code)
    }

    /// Produces one record of the transaction, once: error code and offset.
    pub fn send_once(
        &self,
        raw: &mut Raw,
        version: i16,
        (topic, partition): (&TopicRef, i32),
        sequence: i32,
    ) -> (i16, i64) {
        let batch = BatchBuilder::of(&[&format!("{}/{sequence}", self.id)])
            .producer(self.producer.0, self.producer.1, sequence)
            .attribute_bits(TRANSACTIONAL)
            .build();
        let parts = vec![(partition, Some(batch))];
        let mut request = requests::produce(version, topic, -1, parts);
        request.transactional_id = Some(self.id.as_str().into());
        let answer = raw.call::<ProduceRequest>(version, &request);
        let row = &answer.responses[0].partition_responses[0];
        (row.error_code, row.base_offset)
    }

    /// Produces one record by a client of version 1, with an epoch that stays.
    pub fn send(&self, raw: &mut Raw, to: (&TopicRef, i32), sequence: i32) -> (i16, i64) {
        patiently(
            || self.send_once(raw, calls::PRODUCE, to, sequence),
            |answer| answer.0,
        )
    }

    /// Produces one record by a client of version 2: the partition is added by it.
    pub fn send_v2(&self, raw: &mut Raw, to: (&TopicRef, i32), sequence: i32) -> (i16, i64) {
        patiently(|| self.send_once(raw, 12, to, sequence), |answer| answer.0)
    }

    /// The first record of a transaction in a partition, by a client of version 2.
    ///
    /// # Panics
    /// When the broker refuses or is gone.
    pub fn send_once_or_panic(&self, raw: &mut Raw, to: (&TopicRef, i32)) -> (i16, i64) {
        let sent = self.send_v2(raw, to, 0);
        assert_eq!(sent.0, codes::NONE);
        sent
    }

    /// EndTxn, once: error code and the producer that the answer names.
    pub fn end_once(&self, raw: &mut Raw, version: i16, commit: bool) -> (i16, (i64, i16)) {
        let mut request = EndTxnRequest::default();
        request.transactional_id = self.id.as_str().into();
        (request.producer_id, request.producer_epoch) = self.producer;
        request.committed = commit;
        let answer = raw.call::<EndTxnRequest>(version, &request);
        let next = (answer.producer_id, answer.producer_epoch);
        (answer.error_code, next)
    }

    /// EndTxn by a client of version 1, patiently.
    pub fn end(&self, raw: &mut Raw, commit: bool) -> i16 {
        patiently(|| self.end_once(raw, 4, commit), |answer| answer.0).0
    }

    /// EndTxn by a client of version 2, patiently; takes over what it is told.
    pub fn end_v2(&mut self, raw: &mut Raw, commit: bool) -> i16 {
        let (code, next) = patiently(|| self.end_once(raw, 5, commit), |answer| answer.0);
        if code == codes::NONE {
            self.producer = next;
        }
        code
    }

    /// DescribeTransactions: error code, state, producer id and epoch, partitions.
    pub fn describe(&self, raw: &mut Raw) -> (i16, String, (i64, i16), usize) {
        let mut request = DescribeTransactionsRequest::default();
        request.transactional_ids = vec![self.id.as_str().into()];
        let answer = raw.call::<DescribeTransactionsRequest>(0, &request);
        let row = &answer.transaction_states[0];
        let ours = row
            .topics
            .iter()
            .filter(|topic| !topic.topic.as_str().starts_with("__"));
        (
            row.error_code,
            row.transaction_state.as_str().to_owned(),
            (row.producer_id, row.producer_epoch),
            ours.map(|topic| topic.partitions.len()).sum(),
        )
    }

    /// Waits until the decision is carried out.
    pub fn settled(&self, raw: &mut Raw) -> String {
        wait::until_some("the decision is carried out", BUSY, || {
            let state = self.describe(raw).1;
            (!state.starts_with("Prepare")).then_some(state)
        })
    }
}

/// What a reader of committed records gets from an offset on.
#[derive(Debug)]
pub struct Committed {
    /// Error code.
    pub code: i16,
    /// High watermark.
    pub high_watermark: i64,
    /// Last stable offset.
    pub last_stable: i64,
    /// Producer id and first offset.
    pub aborted: Vec<(i64, i64)>,
    /// Batches, markers among them.
    pub batches: Vec<ParsedBatch>,
}

/// Fetches what is committed of partition 0, from an offset on.
pub fn fetch_committed(raw: &mut Raw, topic: &TopicRef, offset: i64) -> Committed {
    let parts = [FetchFrom::new(0, offset)];
    let mut request = requests::fetch(calls::FETCH, topic, requests::AT_ONCE, &parts);
    request.isolation_level = 1;
    let mut answer = raw.call::<FetchRequest>(calls::FETCH, &request);
    let row = answer.responses.remove(0).partitions.remove(0);
    let (batches, _) = ParsedBatch::split(row.records.unwrap_or_default());
    let aborted = row.aborted_transactions.unwrap_or_default();
    Committed {
        code: row.error_code,
        high_watermark: row.high_watermark,
        last_stable: row.last_stable_offset,
        aborted: aborted
            .iter()
            .map(|txn| (txn.producer_id, txn.first_offset))
            .collect(),
        batches,
    }
}

/// Everything a reader of committed records gets of partition 0, in as many fetches as the broker likes: base offsets of
/// batches, and producer id and first offset of what was aborted.
pub fn read_committed(raw: &mut Raw, topic: &TopicRef) -> (Vec<i64>, Vec<(i64, i64)>) {
    let (mut offsets, mut aborted) = (Vec::new(), Vec::new());
    let mut next = 0;
    loop {
        let got = fetch_committed(raw, topic, next);
        assert_eq!(got.code, codes::NONE);
        let Some(last) = got.batches.last() else {
            assert_eq!(
                next, got.last_stable,
                "nothing before the last stable offset"
            );
            return (offsets, aborted);
        };
        next = last.last_offset() + 1;
        offsets.extend(got.batches.iter().map(|batch| batch.base_offset()));
        aborted.extend(
            got.aborted
                .into_iter()
                .filter(|a| !aborted.contains(a))
                .collect::<Vec<_>>(),
        );
    }
}
