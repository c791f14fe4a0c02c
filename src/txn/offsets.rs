//! The offsets of groups in transactions: where the coordinator meets the groups.
//!
//! Owns:     nothing; the groups keep what is staged, durably, until it is ended.

use std::sync::Arc;

use seawall_storage::ProducerId;

use crate::broker::Broker;

/// Applies or drops what `producer` has staged in `group`. `done` is told, perhaps
/// before this returns, whether that is durable; it may be asked again any number of
/// times.
pub(super) fn end(
    broker: &Arc<Broker>,
    group: &str,
    producer: ProducerId,
    commit: bool,
    done: Box<dyn FnOnce(bool) + Send>,
) {
    let told = move |ended: Result<(), _>| done(ended.is_ok());
    broker
        .groups
        .end_transaction(group, producer.get(), commit, Box::new(told));
}
