//! Whether something belongs to a transaction: questions that change nothing.
//!
//! Owns:     the answers, as pure functions.
//! Does not: lock or wait.

use super::machine::{TxnError, check_producer};
use super::state::{Phase, Producer, Txn, TxnPartition};

/// Whether a batch of that producer belongs to the transaction.
pub fn partition(
    txn: Option<&Txn>,
    producer: Producer,
    partition: &TxnPartition,
) -> Result<(), TxnError> {
    let txn = txn.ok_or(TxnError::UnknownProducer)?;
    check_producer(txn, producer)?;
    if txn.phase.decided().is_some() {
        return Err(TxnError::Concurrent);
    }
    if txn.phase == Phase::Ongoing && txn.partitions.contains(partition) {
        Ok(())
    } else {
        Err(TxnError::NotInTransaction)
    }
}

/// Whether offsets of that group belong to the transaction.
pub fn group(txn: Option<&Txn>, producer: Producer, group: &str) -> Result<(), TxnError> {
    let txn = txn.ok_or(TxnError::UnknownProducer)?;
    check_producer(txn, producer)?;
    if txn.phase.decided().is_some() {
        return Err(TxnError::Concurrent);
    }
    if txn.phase == Phase::Ongoing && txn.groups.contains(group) {
        Ok(())
    } else {
        Err(TxnError::NotInTransaction)
    }
}
