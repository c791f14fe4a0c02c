//! DescribeTransactions: where transactional ids stand.

use seawall_net::Flow;
use seawall_net::wire::messages::describe_transactions_response::{TopicData, TransactionState};
use seawall_net::wire::messages::{DescribeTransactionsRequest, DescribeTransactionsResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text, txn_code};
use crate::security::acl::Operation;
use crate::txn::{Txn, TxnPartition};

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(
    asked: &Asked<'_>,
    request: &DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    let mut response = DescribeTransactionsResponse::default();
    let ids = request.transactional_ids.iter();
    response.transaction_states = ids.map(|id| row(asked, id.as_str())).collect();
    response
}

fn row(asked: &Asked<'_>, id: &str) -> TransactionState {
    let mut row = TransactionState::default();
    row.transactional_id = text(id);
    if id.is_empty() {
        row.error_code = ErrorCode::InvalidRequest.code();
        return row;
    }
    if let Err(code) = asked.access().transactional_id(Operation::Describe, id) {
        row.error_code = code.code();
        return row;
    }
    match asked.broker.txns.get(id) {
        Ok(Some(txn)) => fill(asked, &mut row, &txn),
        Ok(None) => row.error_code = ErrorCode::TransactionalIdNotFound.code(),
        Err(error) => row.error_code = txn_code(error, true).code(),
    }
    row
}

fn fill(asked: &Asked<'_>, row: &mut TransactionState, txn: &Txn) {
    let producer = txn.producer();
    row.transaction_state = text(txn.phase.name());
    row.transaction_timeout_ms = txn.timeout_ms;
    row.transaction_start_time_ms = txn.started_ms;
    row.producer_id = producer.id.get();
    row.producer_epoch = producer.epoch.get();
    let access = asked.access();
    let is_shown = |partition: &&TxnPartition| access.sees_topic(&partition.topic);
    for partition in txn.partitions.iter().filter(is_shown) {
        let name = partition.topic.as_str();
        let index = partition.index().get();
        match row
            .topics
            .last_mut()
            .filter(|topic| topic.topic.as_str() == name)
        {
            Some(topic) => topic.partitions.push(index),
            None => {
                let mut topic = TopicData::default();
                topic.topic = text(name);
                topic.partitions = vec![index];
                row.topics.push(topic);
            }
        }
    }
}
