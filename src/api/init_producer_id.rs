//! InitProducerId: an id for an idempotent producer.
//!
//! Ids come from blocks that are on stable storage before any id of them is
//! handed out, so none is ever given twice.

use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire::messages::{InitProducerIdRequest, InitProducerIdResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer_from};

pub(super) fn handle(call: Call<'_>) -> Flow {
    let broker = Arc::clone(call.broker);
    answer_from(call, &broker.state_workers(), respond)
}

fn respond(asked: &Asked<'_>, request: &InitProducerIdRequest) -> InitProducerIdResponse {
    let mut response = InitProducerIdResponse::default();
    response.producer_id = -1;
    response.producer_epoch = -1;
    response.ongoing_txn_producer_id = -1;
    response.ongoing_txn_producer_epoch = -1;
    match new_id(asked, request) {
        Ok(id) => {
            response.producer_id = id;
            response.producer_epoch = 0;
        }
        Err(code) => response.error_code = code.code(),
    }
    response
}

/// Without a transactional id every call gets a new id, whatever the producer
/// had (KIP-360 bumps epochs on the client's side there).
fn new_id(asked: &Asked<'_>, request: &InitProducerIdRequest) -> Result<i64, ErrorCode> {
    match request.transactional_id.as_ref().map(|id| id.as_str()) {
        None => {}
        Some("") => return Err(ErrorCode::InvalidRequest),
        // There is no transaction coordinator to ask.
        Some(_) => return Err(ErrorCode::CoordinatorNotAvailable),
    }
    asked.broker.new_producer_id().map_err(|error| {
        log::error!("no producer id could be handed out: {error}");
        ErrorCode::KafkaStorageError
    })
}
