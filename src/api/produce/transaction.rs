//! How a transactional batch gets into its transaction.
//!
//! Owns:     the question to the coordinator, and adding partitions for clients of
//!           version 2 (KIP-890), which add them by writing to them.
//! Does not: push batches.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use seawall_net::Flow;
use seawall_net::wire::{ProduceRequest, StrBytes};
use seawall_storage::TxnOrigin;

use super::super::codes::ErrorCode;
use super::super::{text, txn_code};
use super::{Offer, PartError, Passed, Pushing};
use crate::broker::Broker;
use crate::topics::Topic;
use crate::txn::{Command, Producer, TxnError, TxnPartition};

/// The lowest version that knows `TRANSACTION_ABORTABLE`.
const ABORTABLE_FROM: i16 = 11;
/// The lowest version that adds its partitions to the transaction.
const ADDS_FROM: i16 = 12;

/// A partition that has to be added first.
#[derive(Clone)]
pub(super) struct Addition {
    id: StrBytes,
    producer: Producer,
    partition: TxnPartition,
}

/// A transactional batch belongs to a transaction that its coordinator knows. The
/// round of markers is looked at before the coordinator is asked (P3 of storage's
/// producers).
pub(super) fn gate(
    broker: &Broker,
    request: &ProduceRequest,
    version: i16,
    topic: &Topic,
    passed: Passed,
) -> Offer {
    let header = passed.batch.header();
    if !header.attributes.is_transactional() {
        return Ok(passed);
    }
    let Some(id) = &request.transactional_id else {
        return Err(ErrorCode::TransactionalIdAuthorizationFailed.into());
    };
    let producer = Producer {
        id: header.producer_id,
        epoch: header.producer_epoch,
    };
    let partition = TxnPartition::new(&topic.name, topic.id, passed.partition.index);
    let round = passed.partition.view().marker_round();
    match broker.txns.verify(id.as_str(), producer, &partition) {
        Ok(()) => Ok(Passed {
            txn: TxnOrigin::VerifiedIn(round),
            ..passed
        }),
        Err(TxnError::NotInTransaction | TxnError::Concurrent) if version >= ADDS_FROM => {
            let to_add = Some(Addition {
                id: text(id.as_str()),
                producer,
                partition,
            });
            Ok(Passed { to_add, ..passed })
        }
        Err(error) => Err(refusal(error, version)),
    }
}

/// Old clients would take some codes for the end of everything, where they only
/// have to come again.
fn refusal(error: TxnError, version: i16) -> PartError {
    let code = match error {
        TxnError::NotInTransaction if version < ABORTABLE_FROM => ErrorCode::InvalidTxnState,
        TxnError::Concurrent | TxnError::Unavailable if version < ADDS_FROM => {
            ErrorCode::NotEnoughReplicas
        }
        error => txn_code(error, false),
    };
    code.into()
}

/// The place where the coordinator leaves its answer.
type Added = Arc<Mutex<Option<Result<(), TxnError>>>>;

impl Pushing {
    /// The partitions are added to the transaction, durably and all at once, before
    /// their batches may be written; the connection takes nothing further until then.
    pub(super) fn add_to_transaction(self) -> Flow {
        let additions = || self.left.iter().filter_map(|(_, offer)| to_add(offer));
        let Some(first) = additions().next().cloned() else {
            return self.go();
        };
        let ours = additions().filter(|addition| addition.producer == first.producer);
        let command = Command::Add {
            producer: first.producer,
            partitions: ours
                .map(|addition| addition.partition.clone())
                .collect::<BTreeSet<_>>(),
            group: None,
            v2: true,
        };
        let added = Added::default();
        let (told, unparker) = (Arc::clone(&added), self.unparker.clone());
        let reply = move |result: Result<Producer, TxnError>| {
            *told.lock() = Some(result.map(drop));
            unparker.wake();
        };
        let txns = &self.broker.txns;
        txns.submit(&self.broker, first.id.as_str(), command, Box::new(reply));
        self.added(first.producer, added)
    }

    fn added(mut self, producer: Producer, added: Added) -> Flow {
        let Some(result) = added.lock().take() else {
            // Not yet, or woken for another reason.
            return Flow::Park(Box::new(move || self.added(producer, added)));
        };
        for (_, offer) in &mut self.left {
            if to_add(offer).is_some_and(|addition| addition.producer == producer) {
                settle(offer, result);
            }
        }
        self.go()
    }
}

fn to_add(offer: &Offer) -> Option<&Addition> {
    offer
        .as_ref()
        .ok()
        .and_then(|passed| passed.to_add.as_ref())
}

fn settle(offer: &mut Offer, result: Result<(), TxnError>) {
    match (result, &mut *offer) {
        (Ok(()), Ok(passed)) => {
            passed.to_add = None;
            passed.txn = TxnOrigin::VerifiedIn(passed.partition.view().marker_round());
        }
        (Err(error), _) => *offer = Err(refusal(error, ADDS_FROM)),
        (Ok(()), Err(_)) => {}
    }
}
