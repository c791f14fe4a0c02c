//! A broker that serves, as the side door sees it.
//!
//! Owns:     the broker and its sockets, until the stop takes them apart.
//! Does not: start or stop anything; `server` does.

use std::sync::Arc;

use seawall_net::{NetStats, Server};

use crate::broker::Broker;

/// See the module.
pub struct Running {
    /// The broker.
    pub broker: Arc<Broker>,
    /// Its sockets.
    pub server: Server,
}

impl Running {
    /// Counters of the sockets.
    pub fn net_stats(&self) -> NetStats {
        self.server.stats()
    }
}
