//! InitProducerId: an id and an epoch for a producer.
//!
//! Ids come from blocks that are on stable storage before any id of them is
//! handed out, so none is ever given twice.

use std::sync::Arc;

use seawall_net::wire::StrBytes;
use seawall_net::wire::messages::{InitProducerIdRequest, InitProducerIdResponse};
use seawall_net::{Flow, wire};

use super::codes::ErrorCode;
use super::gates::Access;
use super::{Call, MALFORMED, reply, txn_code};
use crate::broker::Broker;
use crate::security::acl::Operation;
use crate::txn::{Command, Producer, TxnError};

/// The lowest version that knows `PRODUCER_FENCED`.
const FENCED_FROM: i16 = 4;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<InitProducerIdRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let may = allowed(call.access(), request.transactional_id.as_ref());
    let slot = call.slot;
    let answer = move |found: Result<Producer, ErrorCode>| {
        reply(slot, &response(found), version);
    };
    if let Err(code) = may {
        answer(Err(code));
        return Flow::Done;
    }
    if request.enable2_pc || request.keep_prepared_txn {
        // Two-phase commit over several systems is switched off (KIP-939).
        answer(Err(ErrorCode::TransactionalIdAuthorizationFailed));
        return Flow::Done;
    }
    let Some(id) = &request.transactional_id else {
        let broker = Arc::clone(call.broker);
        let pool = broker.state_workers();
        pool.submit(move || answer(new_id(&broker)));
        return Flow::Done;
    };
    let expected = match (request.producer_id, request.producer_epoch) {
        (-1, -1) => None,
        (-1, _) | (_, -1) => {
            answer(Err(ErrorCode::InvalidRequest));
            return Flow::Done;
        }
        (id, epoch) => Some(Producer::new(id, epoch)),
    };
    let command = Command::Init {
        timeout_ms: request.transaction_timeout_ms,
        expected,
    };
    let told = move |found: Result<Producer, TxnError>| {
        answer(found.map_err(|error| txn_code(error, version >= FENCED_FROM)));
    };
    let txns = &call.broker.txns;
    txns.submit(call.broker, id.as_str(), command, Box::new(told));
    Flow::Done
}

/// Who may write to any topic may write to it idempotently, as in Kafka.
fn allowed(access: Access<'_>, id: Option<&StrBytes>) -> Result<(), ErrorCode> {
    match id {
        Some(id) => access.transactional_id(Operation::Write, id.as_str()),
        None if access.some_topic(Operation::Write) => Ok(()),
        None => access.cluster(Operation::IdempotentWrite),
    }
}

fn response(found: Result<Producer, ErrorCode>) -> InitProducerIdResponse {
    let mut response = InitProducerIdResponse::default();
    response.producer_id = -1;
    response.producer_epoch = -1;
    response.ongoing_txn_producer_id = -1;
    response.ongoing_txn_producer_epoch = -1;
    match found {
        Ok(producer) => {
            response.producer_id = producer.id.get();
            response.producer_epoch = producer.epoch.get();
        }
        Err(code) => response.error_code = code.code(),
    }
    response
}

/// Without a transactional id every call gets a new id, whatever the producer
/// had (KIP-360 bumps epochs on the client's side there).
fn new_id(broker: &Broker) -> Result<Producer, ErrorCode> {
    let id = broker.fresh_producer_id().map_err(|error| {
        log::error!("no producer id could be handed out: {error}");
        ErrorCode::KafkaStorageError
    })?;
    Ok(Producer::new(id.get(), 0))
}
