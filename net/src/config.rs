//! What a server is told at its start, and every limit it keeps.
//!
//! Owns:     names, numbers and reasons of the limits.
//! Does not: parse configuration files or check what a limit protects.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::tls::TlsSlot;

/// One mebibyte.
const MIB: usize = 1024 * 1024;

/// One address to listen on. Its place in [`NetConfig::listeners`] is its index in
/// [`ConnInfo::listener`](crate::ConnInfo::listener).
#[derive(Clone, Debug)]
pub struct Listener {
    /// The name for log lines, as in `listeners=NAME://host:port`.
    pub name: String,
    /// The address to bind; port 0 lets the kernel choose.
    pub addr: SocketAddr,
    /// What its connections are encrypted with; `None`: not at all.
    pub tls: Option<Arc<TlsSlot>>,
}

/// How a server is built.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// Number of event loops (`num.network.threads`); 0 counts as 1.
    pub threads: usize,
    /// What the server bounds.
    pub limits: Limits,
    /// Where it listens.
    pub listeners: Vec<Listener>,
}

/// How many connections there may be: what can change while they are served.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// See [`Limits::connections_max`].
    pub total: usize,
    /// See [`Limits::connections_per_address_max`].
    pub per_address: usize,
    /// See [`Limits::connections_per_second_max`].
    pub per_second: u32,
}

impl Limits {
    /// Those of them that are about the number of connections.
    #[must_use]
    pub fn connections(&self) -> ConnectionLimits {
        ConnectionLimits {
            total: self.connections_max,
            per_address: self.connections_per_address_max,
            per_second: self.connections_per_second_max,
        }
    }
}

/// Every bound of the network side. Defaults are those of [`Limits::default`].
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest frame of a connection that has not logged in: an ApiVersions or SASL request fits
    /// many times over, and a stranger can claim no more.
    pub frame_bytes_max_before_login: usize,
    /// Longest frame after login (`socket.request.max.bytes`).
    pub frame_bytes_max: usize,
    /// Bytes of all frames that are being read or are referenced anywhere. A frame reserves its
    /// whole length before its body is read; when nothing is reserved, one frame may always proceed.
    pub frames_in_flight_bytes_max: usize,
    /// The same of connections that have not logged in, which take no room from those that have.
    pub frames_in_flight_bytes_max_before_login: usize,
    /// Requests of one connection that were started and are not answered.
    pub requests_in_flight_max: usize,
    /// Bytes of replies queued on one connection above which it is not read any more.
    pub reply_bytes_queued_max: usize,
    /// Connections in total (`max.connections`). Lowered at start to what descriptors allow.
    pub connections_max: usize,
    /// Connections from one address (`max.connections.per.ip`).
    pub connections_per_address_max: usize,
    /// Other limits for certain addresses (`max.connections.per.ip.overrides`).
    pub connections_by_address: HashMap<IpAddr, usize>,
    /// Connections accepted per second (`max.connection.creation.rate`), with a burst of the same
    /// size; more wait in the kernel's backlog.
    pub connections_per_second_max: u32,
    /// What single listeners bound besides, by their index; one that is not there bounds nothing.
    pub by_listener: Vec<ListenerLimits>,
    /// Descriptors that connections never take, so that storage can always open a file. At most
    /// half of the process's soft limit is kept back.
    pub descriptors_reserved: usize,
    /// While other frames wait for room, one that holds room has this long, and after it must be on its
    /// way to be complete within `frame_deadline`.
    pub contended_frame_grace: Duration,
    /// A connection that moved no byte for this long, and waits for no answer of ours, is closed
    /// (`connections.max.idle.ms`).
    pub idle_deadline: Duration,
    /// A frame whose first byte arrived must be complete within this time.
    pub frame_deadline: Duration,
    /// A TLS handshake must be complete within this time after the connection was accepted.
    pub handshake_deadline: Duration,
    /// How long a connection that we close waits for the peer's end of stream, so that replies on
    /// their way are not destroyed by a reset.
    pub linger: Duration,
}

/// The bounds of one listener, beside those of the whole server. Who comes beyond them waits in the kernel's
/// backlog.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListenerLimits {
    /// Its connections (`listener.name.<l>.max.connections`).
    pub connections_max: Option<usize>,
    /// Those accepted per second, with a burst of the same size
    /// (`listener.name.<l>.max.connection.creation.rate`).
    pub connections_per_second_max: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max_before_login: 512 * 1024,
            frame_bytes_max: 100 * MIB,
            frames_in_flight_bytes_max: 256 * MIB,
            frames_in_flight_bytes_max_before_login: 32 * MIB,
            requests_in_flight_max: 128,
            reply_bytes_queued_max: 4 * MIB,
            connections_max: 8_192,
            connections_per_address_max: 4_096,
            connections_by_address: HashMap::new(),
            connections_per_second_max: 2_000,
            by_listener: Vec::new(),
            descriptors_reserved: 512,
            contended_frame_grace: Duration::from_secs(5),
            idle_deadline: Duration::from_secs(600),
            frame_deadline: Duration::from_secs(120),
            handshake_deadline: Duration::from_secs(30),
            linger: Duration::from_secs(1),
        }
    }
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            threads: 2,
            limits: Limits::default(),
            listeners: Vec::new(),
        }
    }
}
