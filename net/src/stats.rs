//! Counters of the network side, as plain numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the start. Written by net threads, read by anyone.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted: Counter,
    pub(crate) closed: [Counter; 17],
    pub(crate) refused: Counter,
    pub(crate) turned_away: Counter,
    pub(crate) held_back: Counter,
    pub(crate) frames: Counter,
    pub(crate) replies: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) peer_faults: Counter,
    pub(crate) panics: Counter,
    pub(crate) cut: Counter,
    pub(crate) handshakes: Counter,
    pub(crate) handshakes_resumed: Counter,
    pub(crate) handshakes_failed: Counter,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn add_bytes(&self, bytes: usize) {
        self.add(bytes as u64);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters since the start, and gauges of now.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NetStats {
    /// Connections open now.
    pub connections: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed, by [`CloseReason::LABELS`](crate::CloseReason::LABELS).
    pub closed: [u64; 17],
    /// Connections refused by a limit or for want of descriptors.
    pub refused: u64,
    /// Connections that the service did not admit.
    pub turned_away: u64,
    /// Times that a listener began to let connections wait, for a limit of its own.
    pub held_back: u64,
    /// Complete frames read.
    pub frames: u64,
    /// Replies put into a connection's output.
    pub replies: u64,
    /// Bytes read from sockets.
    pub bytes_in: u64,
    /// Bytes written to sockets.
    pub bytes_out: u64,
    /// Connections closed for a fault of the peer (bad frame, header, deadline).
    pub peer_faults: u64,
    /// Panics caught on net threads; anything but 0 is a bug.
    pub panics: u64,
    /// Bytes of frames reserved now.
    pub frame_bytes_reserved: u64,
    /// Frames that wait for the byte budget now.
    pub frames_waiting: u64,
    /// TLS handshakes.
    pub tls: TlsStats,
}

/// What became of TLS handshakes since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TlsStats {
    /// Complete, resumed ones included.
    pub handshakes: u64,
    /// Those that took up an earlier session.
    pub resumed: u64,
    /// Refused by either side, or not complete in time.
    pub failed: u64,
}
