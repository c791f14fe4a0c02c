//! EndTxn: commit or abort.
//!
//! Answered when the decision is durable; it is carried out afterwards, as in Kafka.

use seawall_net::Flow;
use seawall_net::wire;
use seawall_net::wire::messages::{EndTxnRequest, EndTxnResponse};
use seawall_storage::TxnOutcome;

use super::codes::ErrorCode;
use super::{Call, MALFORMED, reply, txn_code};
use crate::security::acl::Operation;
use crate::txn::{Command, Producer, TxnError};

/// The lowest version whose end of a transaction raises the epoch (KIP-890).
const V2_FROM: i16 = 5;
/// The lowest version that knows `PRODUCER_FENCED`.
const FENCED_FROM: i16 = 2;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<EndTxnRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let id = request.transactional_id.as_str();
    if let Err(code) = call.access().transactional_id(Operation::Write, id) {
        let mut refused = response(Err(TxnError::Unavailable), version);
        refused.error_code = code.code();
        reply(call.slot, &refused, version);
        return Flow::Done;
    }
    let command = Command::End {
        producer: Producer::new(request.producer_id, request.producer_epoch),
        outcome: if request.committed {
            TxnOutcome::Commit
        } else {
            TxnOutcome::Abort
        },
        v2: version >= V2_FROM,
    };
    let slot = call.slot;
    let answer = move |ended| reply(slot, &response(ended, version), version);
    let txns = &call.broker.txns;
    txns.submit(call.broker, id, command, Box::new(answer));
    Flow::Done
}

fn response(ended: Result<Producer, TxnError>, version: i16) -> EndTxnResponse {
    let mut response = EndTxnResponse::default();
    if version >= V2_FROM {
        response.producer_id = -1;
        response.producer_epoch = -1;
    }
    match ended {
        Ok(next) if version >= V2_FROM => {
            response.producer_id = next.id.get();
            response.producer_epoch = next.epoch.get();
        }
        Ok(_) => {}
        Err(error) => {
            let code: ErrorCode = txn_code(error, version >= FENCED_FROM);
            response.error_code = code.code();
        }
    }
    response
}
