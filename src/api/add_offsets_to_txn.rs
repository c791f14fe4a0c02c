//! AddOffsetsToTxn: a transaction will commit offsets of a group.

use std::collections::BTreeSet;

use seawall_net::Flow;
use seawall_net::wire;
use seawall_net::wire::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};

use super::{Call, MALFORMED, reply, txn_code};
use crate::security::acl::Operation;
use crate::txn::{Command, Producer};

/// The lowest version that knows `PRODUCER_FENCED`.
const FENCED_FROM: i16 = 2;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<AddOffsetsToTxnRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let access = call.access();
    let may = access
        .transactional_id(Operation::Write, request.transactional_id.as_str())
        .and_then(|()| access.group(Operation::Read, request.group_id.as_str()));
    if let Err(code) = may {
        let mut refused = AddOffsetsToTxnResponse::default();
        refused.error_code = code.code();
        reply(call.slot, &refused, version);
        return Flow::Done;
    }
    let command = Command::Add {
        producer: Producer::new(request.producer_id, request.producer_epoch),
        partitions: BTreeSet::new(),
        group: Some(request.group_id.as_str().to_owned()),
        v2: false,
    };
    let slot = call.slot;
    let answer = move |added: Result<Producer, _>| {
        let mut response = AddOffsetsToTxnResponse::default();
        if let Err(error) = added {
            response.error_code = txn_code(error, version >= FENCED_FROM).code();
        }
        reply(slot, &response, version);
    };
    let id = request.transactional_id.as_str();
    let txns = &call.broker.txns;
    txns.submit(call.broker, id, command, Box::new(answer));
    Flow::Done
}
