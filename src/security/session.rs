//! Who is at the other end of a connection.
//!
//! Owns:     the name a connection goes by, from where, through which listener.
//! Does not: check a password or decide what somebody may do.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Somebody, as rules and logs name them: `User:alice`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Principal {
    /// The name behind `User:`, which is the only kind there is.
    name: Arc<str>,
}

impl Principal {
    /// Whoever comes through a listener that asks for no name, as in Kafka.
    pub(crate) fn anonymous() -> Self {
        Self::user("ANONYMOUS")
    }

    /// The user of that name.
    pub(crate) fn user(name: &str) -> Self {
        Self { name: name.into() }
    }

    /// The name without its kind.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "User:{}", self.name)
    }
}

/// What is known of a connection's peer. Made anew when it logs in again; a
/// request keeps the one it came with.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// As whom it logged in.
    pub(crate) principal: Principal,
    /// From where; IPv4 in its short form.
    pub(crate) host: IpAddr,
    /// Through which listener: its index in the configuration.
    pub(crate) listener: usize,
}
