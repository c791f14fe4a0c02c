//! The contract between the event loops and the broker above them.
//!
//! Owns:     the [`Service`] trait, requests, reply slots, and the reasons for a close.
//! Does not: read or write sockets.
//!
//! # Invariants
//! S1. A reply slot completes exactly once: by `reply`, `silent` or `close`, or by its drop, which
//!     closes the connection.
//! S2. All methods of [`Service`] run on the net thread that owns the connection, never two at once
//!     for one connection.
//! S3. Completing a slot and waking an unparker never block and may be done from any thread.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::body::ResponseBody;
use crate::mailbox::{ConnShared, Message, Outcome};
use crate::pipes::Pipes;
use crate::wire::RequestHeader;

/// What the broker does with connections and requests.
pub trait Service: Send + Sync + 'static {
    /// The broker's state of one connection.
    type Conn: Send;

    /// Whether a connection from that address, through that listener, may come in. Called on the
    /// accepting thread; must not block.
    fn admit(&self, address: IpAddr, listener: usize) -> Admission {
        let _ = (address, listener);
        Admission::Yes
    }

    /// A connection was accepted. `info` may be cloned and kept.
    fn opened(&self, info: &ConnInfo) -> Self::Conn;

    /// The TLS handshake of a connection is complete; nothing of it was read before. `certificate`
    /// is the peer's own in DER, checked against the trusted ones, if it sent one. Not called on a
    /// listener without TLS.
    fn secured(&self, conn: &mut Self::Conn, certificate: Option<&[u8]>) {
        let _ = (conn, certificate);
    }

    /// How a request is ordered against the others of its connection. Called once per request, when
    /// its frame is complete and nothing exclusive is in flight on the connection.
    fn class(&self, conn: &Self::Conn, header: &RequestHeader) -> Class;

    /// Starts a request. Requests of one connection are started in the order of their arrival.
    fn call(&self, conn: &mut Self::Conn, request: Request, slot: ReplySlot) -> Flow;

    /// Nothing more will be read from the peer (it finished sending, or the server drains), but it
    /// may still read. Long polls should answer at once with what they have: nobody may be waiting
    /// for the rest. Called at most once, before `closed`, on the connection's net thread.
    fn finished(&self, conn: &mut Self::Conn) {
        let _ = conn;
    }

    /// The connection is gone; slots completed from now on are dropped.
    fn closed(&self, conn: Self::Conn);
}

/// What becomes of a connection that was accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// It is served.
    Yes,
    /// It is held for so long, unread, and then closed: closed at once, it would only come again.
    CloseAfter(Duration),
}

/// How a request is ordered against the others of its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// May start while earlier pipelined requests are unanswered (Produce).
    Pipelined,
    /// Starts only when all earlier requests are answered, and nothing starts behind it before its
    /// own answer.
    Exclusive,
    /// Not served: earlier requests are answered, then the connection is closed.
    Refuse(CloseReason),
}

/// What became of a started request.
#[must_use = "a parked request must be handed back to the event loop"]
pub enum Flow {
    /// Nothing more to do on the net thread; the slot is or will be completed.
    Done,
    /// The request could be started in part only. The connection is not read and the closure runs,
    /// on the net thread, after [`Unparker::wake`]. It owns what is left, so it may return `Park`
    /// again. It is dropped without a run when the connection dies.
    Park(Box<dyn FnOnce() -> Flow + Send>),
}

/// One request frame.
#[derive(Debug)]
pub struct Request {
    /// The decoded header.
    pub header: RequestHeader,
    /// The frame behind the header. Its share of the byte budget is given back when the last slice
    /// of it is dropped, so what is kept for long must be copied.
    pub body: Bytes,
    /// When the last byte of the frame was read.
    pub received: Instant,
}

/// The duty to answer one request, completable from any thread.
#[must_use = "dropping a reply slot closes its connection"]
pub struct ReplySlot {
    conn: Arc<ConnShared>,
    seq: u64,
    open: bool,
}

impl ReplySlot {
    pub(crate) fn new(conn: Arc<ConnShared>, seq: u64) -> Self {
        Self {
            conn,
            seq,
            open: true,
        }
    }

    /// Answers the request. The reply leaves behind those of all earlier requests.
    pub fn reply(self, body: impl Into<ResponseBody>) {
        self.complete(Outcome::Reply(body.into()));
    }

    /// Answers the request and closes the connection behind that answer. Nothing further is started.
    pub fn reply_and_close(self, body: impl Into<ResponseBody>, why: CloseReason) {
        self.complete(Outcome::Last(body.into(), why));
    }

    /// Completes the request without an answer (acks=0).
    pub fn silent(self) {
        self.complete(Outcome::Silent);
    }

    /// Closes the connection once the earlier requests are answered. Nothing further is started.
    pub fn close(self, why: CloseReason) {
        self.complete(Outcome::Close(why));
    }

    /// Has the connection not be read for so long from now on, and nothing started on it. Said before
    /// the slot is completed, it holds for whatever stands behind this request.
    pub fn mute(&self, time: Duration) {
        let conn = &self.conn;
        conn.mailbox.send(Message::Mute(conn.key(), time));
    }

    /// Whether an answer could still be delivered.
    #[must_use]
    pub fn conn_alive(&self) -> bool {
        self.conn.alive.load(Ordering::Acquire)
    }

    /// A handle to resume this connection when the request had to be parked.
    #[must_use]
    pub fn unparker(&self) -> Unparker {
        Unparker {
            conn: Arc::clone(&self.conn),
        }
    }

    /// Identity and controls of the connection.
    #[must_use]
    pub fn conn(&self) -> ConnInfo {
        ConnInfo {
            conn: Arc::clone(&self.conn),
        }
    }

    fn complete(mut self, outcome: Outcome) {
        self.open = false;
        self.conn.complete(self.seq, outcome);
    }
}

impl Drop for ReplySlot {
    fn drop(&mut self) {
        if self.open {
            self.conn
                .complete(self.seq, Outcome::Close(CloseReason::SlotDropped));
        }
    }
}

impl fmt::Debug for ReplySlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplySlot({}, request {})", self.conn.id, self.seq)
    }
}

/// Resumes a parked connection. Waking one that is not parked does nothing.
#[derive(Clone)]
pub struct Unparker {
    conn: Arc<ConnShared>,
}

impl Unparker {
    /// Has the parked closure run on its net thread. Wakes in a burst are one.
    pub fn wake(&self) {
        self.conn.unpark();
    }

    /// The connection that it resumes.
    #[must_use]
    pub fn conn_id(&self) -> ConnId {
        self.conn.id
    }
}

impl fmt::Debug for Unparker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unparker({})", self.conn.id)
    }
}

/// The API key of a frame without a header, see [`ConnInfo::set_bare`]. No request has it.
pub const BARE_KEY: i16 = i16::MIN;

/// Number of a connection, unique in the life of a server.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConnId(pub u64);

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.0)
    }
}

/// Identity and controls of one connection; cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct ConnInfo {
    pub(crate) conn: Arc<ConnShared>,
}

impl ConnInfo {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> ConnId {
        self.conn.id
    }

    /// Index of its listener in the configuration.
    #[must_use]
    pub fn listener(&self) -> usize {
        self.conn.listener
    }

    /// The peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.conn.peer
    }

    /// The address at which the peer reached us.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.conn.local
    }

    /// The pipes that may carry records into this connection; none where bytes are looked at on their way.
    #[must_use]
    pub fn pipes(&self) -> Option<&Arc<Pipes>> {
        self.conn.pipes.as_ref()
    }

    /// Whether an answer could still be delivered.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.conn.alive.load(Ordering::Acquire)
    }

    /// Whether nothing more will be read from the peer, see [`Service::finished`].
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.conn.finished.load(Ordering::Acquire)
    }

    /// Allows frames up to the limit after login, or takes that back. A connection begins with the
    /// limit before login; a listener without login calls this in [`Service::opened`].
    pub fn set_logged_in(&self, yes: bool) {
        self.conn.set_logged_in(yes);
    }

    /// Says whether the next frames have no header, as the tokens of a SASL exchange that began
    /// with version 0 of SaslHandshake: such a frame is a request of [`BARE_KEY`], and its answer
    /// has no header either. To be called before the slot of the frame
    /// before is completed.
    pub fn set_bare(&self, yes: bool) {
        self.conn.bare.store(yes, Ordering::Relaxed);
    }

    /// Sets the longest frame, from the next frame on.
    pub fn set_frame_bytes_max(&self, bytes: usize) {
        self.conn.frame_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// A handle to resume the connection when a request had to be parked.
    #[must_use]
    pub fn unparker(&self) -> Unparker {
        Unparker {
            conn: Arc::clone(&self.conn),
        }
    }

    /// Closes the connection now, whatever is in flight (an expired login, an administrator).
    pub fn close(&self, why: CloseReason) {
        self.conn.mailbox.send(Message::Close(self.conn.key(), why));
    }
}

impl fmt::Debug for ConnInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.conn.id, self.conn.peer)
    }
}

/// Why a connection ended. Who is at fault stands at each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CloseReason {
    /// The peer closed in order; nobody's fault.
    PeerClosed,
    /// The peer reset the connection, or the network did.
    PeerReset,
    /// Peer: a frame longer than the connection's limit.
    FrameTooLong {
        /// What the length field said.
        claimed: i32,
        /// The limit in force, in bytes.
        max: usize,
    },
    /// Peer: a frame length that is negative or too short for a header.
    FrameTooShort {
        /// What the length field said.
        claimed: i32,
    },
    /// Peer: an HTTP request on a Kafka port.
    Http,
    /// Peer: a TLS hello on a plaintext port.
    Tls,
    /// Peer: no TLS on a port that wants it.
    NotTls,
    /// Either side refused the other in the TLS handshake, or a TLS record was damaged; in words for
    /// the log.
    TlsRefused(&'static str),
    /// Peer: the TLS handshake was not complete in time.
    HandshakeDeadline,
    /// Peer: a request header that cannot be decoded.
    BadHeader,
    /// Peer: a frame that was not complete in time.
    FrameDeadline,
    /// Nobody: no byte moved for the idle deadline.
    Idle,
    /// Ours: the service let a reply slot drop.
    SlotDropped,
    /// Ours: the service panicked.
    ServicePanicked,
    /// Ours: a reply longer than a frame can be.
    ReplyTooLong,
    /// The server stops.
    ServerStops,
    /// The service's own reason, in words for the log.
    Service(&'static str),
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerClosed => f.write_str("closed by the peer"),
            Self::PeerReset => f.write_str("reset by the peer"),
            Self::FrameTooLong { claimed, max } => {
                write!(f, "a frame of {claimed} bytes is above the limit of {max}")
            }
            Self::FrameTooShort { claimed } => {
                write!(f, "a frame of {claimed} bytes cannot hold a request header")
            }
            Self::Http => f.write_str("this is a Kafka port and the peer speaks HTTP"),
            Self::Tls => f.write_str("this is a plaintext port and the peer speaks TLS"),
            Self::NotTls => f.write_str("this port wants TLS and the peer speaks something else"),
            Self::TlsRefused(why) => write!(f, "TLS: {why}"),
            Self::HandshakeDeadline => f.write_str("the TLS handshake was not complete in time"),
            Self::BadHeader => f.write_str("the request header cannot be decoded"),
            Self::FrameDeadline => f.write_str("a frame was not complete in time"),
            Self::Idle => f.write_str("idle"),
            Self::SlotDropped => f.write_str("a request was dropped without an answer (a bug)"),
            Self::ServicePanicked => f.write_str("its handler panicked (a bug)"),
            Self::ReplyTooLong => f.write_str("a reply is too long for a frame (a bug)"),
            Self::ServerStops => f.write_str("the server stops"),
            Self::Service(why) => f.write_str(why),
        }
    }
}

impl CloseReason {
    /// The reason in a word, for counters: there are as many as [`Self::LABELS`].
    #[must_use]
    pub fn label(&self) -> &'static str {
        Self::LABELS[self.place()]
    }

    /// All labels.
    pub const LABELS: [&'static str; 17] = [
        "peer_closed",
        "peer_reset",
        "frame_too_long",
        "frame_too_short",
        "http",
        "tls_on_plaintext",
        "bad_header",
        "frame_deadline",
        "idle",
        "slot_dropped",
        "panicked",
        "reply_too_long",
        "server_stops",
        "refused_request",
        "not_tls",
        "tls_refused",
        "handshake_deadline",
    ];

    pub(crate) fn place(&self) -> usize {
        match self {
            Self::PeerClosed => 0,
            Self::PeerReset => 1,
            Self::FrameTooLong { .. } => 2,
            Self::FrameTooShort { .. } => 3,
            Self::Http => 4,
            Self::Tls => 5,
            Self::BadHeader => 6,
            Self::FrameDeadline => 7,
            Self::Idle => 8,
            Self::SlotDropped => 9,
            Self::ServicePanicked => 10,
            Self::ReplyTooLong => 11,
            Self::ServerStops => 12,
            Self::Service(_) => 13,
            Self::NotTls => 14,
            Self::TlsRefused(_) => 15,
            Self::HandshakeDeadline => 16,
        }
    }

    /// Whether the peer did something that a sound client does not do.
    #[must_use]
    pub fn is_peer_fault(&self) -> bool {
        matches!(
            self,
            Self::FrameTooLong { .. }
                | Self::FrameTooShort { .. }
                | Self::Http
                | Self::Tls
                | Self::NotTls
                | Self::TlsRefused(_)
                | Self::HandshakeDeadline
                | Self::BadHeader
                | Self::FrameDeadline
        )
    }

    /// How much an operator should hear of it.
    pub(crate) fn log_level(&self) -> log::Level {
        match self {
            Self::SlotDropped | Self::ServicePanicked | Self::ReplyTooLong => log::Level::Error,
            Self::Service(_) => log::Level::Info,
            fault if fault.is_peer_fault() => log::Level::Warn,
            _ => log::Level::Debug,
        }
    }
}
