//! Sockets, frames and the wire codec.
//!
//! Owns:     event loops, frame assembly, reply order per connection, backpressure, connection
//!           limits, and every byte layout of the Kafka protocol (`wire`).
//! Does not: know files, partitions, groups, or what a request means; that is the [`Service`].
//!
//! See README.md for the thread table, the limits table and the invariants.

mod acceptor;
#[doc(hidden)]
pub mod bench;
mod body;
mod budget;
mod buffers;
mod config;
mod conn;
mod event_loop;
mod frame;
mod mailbox;
mod mutes;
mod pipes;
mod quota;
mod replies;
mod server;
mod service;
mod spin;
mod stats;
mod tls;
mod transport;
pub mod wire;

pub use body::{BodyPart, ResponseBody};
pub use pipes::{PIPED_BYTES_MAX, Piped, Pipes};
pub use spin::Spin;
pub use stats::{NetStats, TlsStats};
pub use tls::TlsSlot;

pub use config::{ConnectionLimits, Limits, Listener, ListenerLimits, NetConfig};
pub use server::{BoundServer, Drained, Server, StartError, Watch};
pub use service::{
    Admission, BARE_KEY, Class, CloseReason, ConnId, ConnInfo, Flow, ReplySlot, Request, Service,
    Unparker,
};
