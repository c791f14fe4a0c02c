//! Of the coordinator of transactions only its files: the rest needs the whole broker.

#[path = "../../../src/txn/machine.rs"]
pub(crate) mod machine;
#[path = "../../../src/txn/slot.rs"]
pub(crate) mod slot;
#[path = "../../../src/txn/state.rs"]
pub(crate) mod state;
