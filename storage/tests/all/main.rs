//! Tests of the storage engine through its public face, named after the promises they keep.

mod basic;
mod batches;
mod compaction;
mod compaction_crash;
mod compaction_txns;
mod crash;
mod damage;
mod faults;
mod heal;
mod inspect;
mod producers;
mod records;
mod retention;
mod stretches;
mod support;
mod tails;
mod times;
mod transactions;
