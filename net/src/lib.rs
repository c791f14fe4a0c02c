//! Sockets, frames and the wire codec.
//!
//! Owns:     event loops, frame assembly, reply order per connection, backpressure, connection
//!           limits, and every byte layout of the Kafka protocol (`wire`).
//! Does not: know files, partitions, groups, or what a request means; that is the [`Service`].
//!
//! See README.md for the thread table, the limits table and the invariants.

mod budget;
mod config;
mod mailbox;
mod server;
mod service;
pub mod wire;

pub use config::{Limits, Listener, NetConfig};
pub use server::{BoundServer, Drained, NetStats, Server, StartError};
pub use service::{
    Class, CloseReason, ConnId, ConnInfo, Flow, ReplySlot, Request, ResponseBody, Service, Unparker,
};
