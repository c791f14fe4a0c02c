//! Binding, starting and stopping a server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::{NetConfig, Service};

/// Why a server did not start. Nothing is left running.
#[derive(Debug)]
pub enum StartError {
    /// Operator: the address cannot be bound (in use, not ours, not permitted).
    Bind {
        /// The address as configured.
        addr: SocketAddr,
        /// What the kernel said.
        error: io::Error,
    },
    /// Operator: no listener is configured.
    NoListener,
    /// The system refused an epoll instance, an eventfd or a thread.
    System(io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bind { addr, error } => write!(f, "cannot listen on {addr}: {error}"),
            Self::NoListener => f.write_str("no listener is configured"),
            Self::System(error) => write!(f, "cannot start the network threads: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Sockets that are bound but do not accept yet.
#[derive(Debug)]
pub struct BoundServer {
    config: NetConfig,
    addrs: Vec<SocketAddr>,
}

impl BoundServer {
    /// The bound addresses, in the order of the listeners.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Starts the net threads and accepts.
    pub fn start<S: Service>(self, service: Arc<S>) -> Result<Server, StartError> {
        let _ = (self.config, service);
        Ok(Server { addrs: self.addrs })
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    addrs: Vec<SocketAddr>,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Drained {
    /// Connections that were cut with requests unanswered.
    pub connections_cut: usize,
    /// Net threads that did not end in time; anything but 0 makes the stop unclean.
    pub threads_stuck: usize,
}

/// Counters since the start, and gauges of now.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NetStats {
    /// Connections open now.
    pub connections: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused by a limit or for want of descriptors.
    pub refused: u64,
    /// Complete frames read.
    pub frames: u64,
    /// Replies handed to the kernel in full.
    pub replies: u64,
    /// Bytes read from sockets.
    pub bytes_in: u64,
    /// Bytes written to sockets.
    pub bytes_out: u64,
    /// Connections closed for a fault of the peer (bad frame, header, deadline).
    pub peer_faults: u64,
    /// Bytes of frames reserved now.
    pub frame_bytes_reserved: u64,
    /// Frames that wait for the byte budget now.
    pub frames_waiting: u64,
}

impl Server {
    /// Binds all listeners, so that a caller learns the addresses before it accepts anybody.
    pub fn bind(config: NetConfig) -> Result<BoundServer, StartError> {
        Ok(BoundServer {
            config,
            addrs: Vec::new(),
        })
    }

    /// Binds and starts.
    pub fn start<S: Service>(config: NetConfig, service: Arc<S>) -> Result<Self, StartError> {
        Self::bind(config)?.start(service)
    }

    /// The bound addresses, in the order of the listeners.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> NetStats {
        NetStats::default()
    }

    /// Stops accepting and reading, answers what is in flight, closes, and joins the threads; what
    /// is not answered at the deadline is cut.
    pub fn drain(self, deadline: Duration) -> Drained {
        let _ = deadline;
        Drained::default()
    }
}
