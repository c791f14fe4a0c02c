//! Who may connect, as whom, and what they may do.
//!
//! Owns:     principals and sessions, rules and quotas with their files in `__cluster`.
//! Does not: know requests; `src/api` asks.

pub(crate) mod acl;
mod authorizer;
pub(crate) mod quota;
mod session;

pub(crate) use authorizer::Authorizer;
pub(crate) use session::{Principal, Session};
