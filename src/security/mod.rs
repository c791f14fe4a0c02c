//! Who may connect, as whom, and what they may do.
//!
//! Owns:     principals and sessions.
//! Does not: know requests; `src/api` asks.

mod session;

pub(crate) use session::{Principal, Session};
