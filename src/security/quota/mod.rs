//! How much somebody may do in a time (Kafka's client quotas).
//!
//! Owns:     the limits with their file, whose limit is whose, and the measuring.
//! Does not: hold anybody up: it says for how long, and the connection is muted (KIP-219).

mod entity;
mod meter;
mod quotas;
pub(crate) mod store;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use entity::{Entity, EntityError, QuotaKind, canonical_ip};
pub(crate) use meter::Window;
pub(crate) use quotas::{Client, Mutations, Quotas, millis};
#[cfg(test)]
pub(crate) use store::QuotaStore;
pub(crate) use store::{Alteration, ChangeError};
pub(crate) use table::{Match, Wanted};
