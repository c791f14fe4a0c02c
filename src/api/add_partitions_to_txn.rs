//! AddPartitionsToTxn: a transaction reaches more partitions.
//!
//! Clients send one transaction (up to version 3); brokers of Kafka send many, or
//! only ask whether partitions were added (from version 4).

use std::collections::BTreeSet;
use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire;
use seawall_net::wire::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use seawall_net::wire::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use seawall_net::wire::messages::{AddPartitionsToTxnRequest, AddPartitionsToTxnResponse};
use seawall_storage::PartitionIndex;

use super::codes::ErrorCode;
use super::gates::{self, Access};
use super::gather::Gather;
use super::{Call, MALFORMED, reply, txn_code};
use crate::broker::Broker;
use crate::security::acl::Operation;
use crate::txn::{Command, Producer, TxnError, TxnPartition};

/// The lowest version with many transactions in one request.
const BATCH_FROM: i16 = 4;
/// The lowest version that knows `PRODUCER_FENCED`.
const FENCED_FROM: i16 = 2;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<AddPartitionsToTxnRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let access = call.access();
    if version >= BATCH_FROM
        && let Err(code) = access.cluster(Operation::ClusterAction)
    {
        let mut refused = AddPartitionsToTxnResponse::default();
        refused.error_code = code.code();
        reply(call.slot, &refused, version);
        return Flow::Done;
    }
    let access = gates::access(call.broker, call.conn, call.api);
    let slot = call.slot;
    let response = AddPartitionsToTxnResponse::default();
    let gather = Gather::new(response, move |response| reply(slot, &response, version));
    if version < BATCH_FROM {
        let mut one = AddPartitionsToTxnTransaction::default();
        one.transactional_id = request.v3_and_below_transactional_id;
        one.producer_id = request.v3_and_below_producer_id;
        one.producer_epoch = request.v3_and_below_producer_epoch;
        one.topics = request.v3_and_below_topics;
        add(call.broker, access, (&one, version), move |rows| {
            gather.with(|response| response.results_by_topic_v3_and_below = rows);
        });
        return Flow::Done;
    }
    for (place, one) in request.transactions.into_iter().enumerate() {
        let mut result = AddPartitionsToTxnResult::default();
        result.transactional_id = one.transactional_id.clone();
        gather.with(|response| response.results_by_transaction.push(result));
        let gather = Arc::clone(&gather);
        add(call.broker, access, (&one, version), move |rows| {
            gather.with(|response| {
                if let Some(result) = response.results_by_transaction.get_mut(place) {
                    result.topic_results = rows;
                }
            });
        });
    }
    Flow::Done
}

/// Adds the partitions of one transaction, or looks whether they were added.
fn add(
    broker: &Arc<Broker>,
    access: Access<'_>,
    (one, version): (&AddPartitionsToTxnTransaction, i16),
    then: impl FnOnce(Vec<AddPartitionsToTxnTopicResult>) + Send + 'static,
) {
    let id = one.transactional_id.as_str();
    // Brokers act for their clients, whom they have asked: their leave is the cluster's.
    let client = (version < BATCH_FROM).then_some(access);
    let may = client.map_or(Ok(()), |client| {
        client.transactional_id(Operation::Write, id)
    });
    let found = find_all(broker, client, may, &one.topics);
    let mut rows = rows(&one.topics, &found);
    // One that is not there spoils the others: nothing is added.
    if may.is_err() || found.iter().any(Result::is_err) {
        return then(rows);
    }
    let partitions: Vec<TxnPartition> = found.into_iter().flatten().collect();
    let producer = Producer::new(one.producer_id, one.producer_epoch);
    let known = move |error| txn_code(error, version >= FENCED_FROM);
    if one.verify_only {
        let verified = partitions
            .iter()
            .map(|partition| broker.txns.verify(id, producer, partition));
        fill(&mut rows, verified.map(|result| result.map_err(known)));
        return then(rows);
    }
    let count = partitions.len();
    let command = Command::Add {
        producer,
        partitions: partitions.into_iter().collect::<BTreeSet<_>>(),
        group: None,
        v2: version > BATCH_FROM,
    };
    let answer = move |added: Result<Producer, TxnError>| {
        let result = added.map(drop).map_err(known);
        fill(&mut rows, std::iter::repeat_n(result, count));
        then(rows);
    };
    broker.txns.submit(broker, id, command, Box::new(answer));
}

fn find_all(
    broker: &Broker,
    client: Option<Access<'_>>,
    may: Result<(), ErrorCode>,
    topics: &[AddPartitionsToTxnTopic],
) -> Vec<Result<TxnPartition, ErrorCode>> {
    let map = broker.topics.load();
    let mut all = Vec::new();
    for topic in topics {
        let name = topic.name.as_str();
        let found = may.and_then(|()| match client {
            Some(access) => access.named(&map, Operation::Write, name),
            None => map.named(name).map_err(|error| ErrorCode::from(&error)),
        });
        for index in &topic.partitions {
            all.push(found.and_then(|topic| {
                let there = topic.has_partition(*index);
                let partition = TxnPartition::new(&topic.name, topic.id, PartitionIndex(*index));
                there
                    .then_some(partition)
                    .ok_or(ErrorCode::UnknownTopicOrPartition)
            }));
        }
    }
    all
}

/// A row for each partition asked; where one is not there, that is what it says, and
/// the others say that they were not tried.
fn rows(
    topics: &[AddPartitionsToTxnTopic],
    found: &[Result<TxnPartition, ErrorCode>],
) -> Vec<AddPartitionsToTxnTopicResult> {
    let spoiled = found.iter().any(Result::is_err);
    let mut codes = found.iter().map(|found| match found {
        Err(code) => *code,
        Ok(_) if spoiled => ErrorCode::OperationNotAttempted,
        Ok(_) => ErrorCode::None,
    });
    let row = |topic: &AddPartitionsToTxnTopic| {
        let mut result = AddPartitionsToTxnTopicResult::default();
        result.name = super::text(topic.name.as_str());
        let indexes = topic.partitions.iter().zip(&mut codes);
        result.results_by_partition = indexes
            .map(|(index, code)| {
                let mut row = AddPartitionsToTxnPartitionResult::default();
                row.partition_index = *index;
                row.partition_error_code = code.code();
                row
            })
            .collect();
        result
    };
    topics.iter().map(row).collect()
}

fn fill(
    rows: &mut [AddPartitionsToTxnTopicResult],
    results: impl Iterator<Item = Result<(), ErrorCode>>,
) {
    let places = rows
        .iter_mut()
        .flat_map(|topic| &mut topic.results_by_partition);
    for (row, result) in places.zip(results) {
        row.partition_error_code = result.err().unwrap_or(ErrorCode::None).code();
    }
}
