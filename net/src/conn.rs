//! One connection: from readable bytes to started requests, and from replies to written bytes.
//!
//! Owns:     the transport, the frame in assembly, the order of requests, the output.
//! Does not: poll, accept, or decide when it is its turn; that is the event loop.
//! Runs on the net thread that owns it.
//!
//! # Invariants
//! C1. Requests are started in the order of their arrival, and an exclusive one alone.
//! C2. A connection that may start nothing is not read: at most one read of [`SCRATCH_BYTES`] and
//!     one complete frame are held for it. Below TLS it is as much again that is still sealed, and
//!     what the session holds: a record that came, and 64 KiB that wait for the socket.
//! C3. The service's state is handed back exactly once, by `closed`.

mod clock;
mod read;
mod write;

use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::{Buf, Bytes};

use crate::budget::{Budgets, Permit};
use crate::buffers::Pool;
use crate::config::Limits;
use crate::frame::FrameReader;
use crate::mailbox::{ConnShared, Outcome};
use crate::quota::Place;
use crate::replies::{HeadForm, Output, Pending, ReplyHead};
use crate::service::{BARE_KEY, Class, CloseReason, Flow, ReplySlot, Request, Service};
use crate::stats::Counters;
use crate::transport::Transport;
use crate::wire::{self, RawHeader, RequestHeader};

/// Bytes read at once when no large frame is under way: several small requests in one call.
pub(crate) const SCRATCH_BYTES: usize = 64 * 1024;
/// Bytes of one connection read, or written, before others get their turn.
const TURN_BYTES: usize = 1024 * 1024;

/// Bytes of replies queued above which a connection that has not logged in is not read any more: what it may ask
/// for is short.
const STRANGER_REPLY_BYTES_MAX: usize = 64 * 1024;

/// The buffers that the connections of a thread read into, one at a time.
#[derive(Default)]
pub(crate) struct Scratch {
    /// What was read, as the client meant it.
    pub(crate) plain: Vec<u8>,
    /// What came out of the sockets of TLS connections.
    pub(crate) sealed: Vec<u8>,
}

impl Scratch {
    /// Makes the buffers at first use.
    pub(crate) fn make(&mut self) {
        if self.plain.is_empty() {
            self.plain = vec![0; SCRATCH_BYTES];
            self.sealed = vec![0; SCRATCH_BYTES];
        }
    }
}

/// What a connection needs from its thread.
pub(crate) struct Context<'a, S: Service> {
    pub(crate) service: &'a S,
    pub(crate) limits: &'a Limits,
    pub(crate) budgets: &'a Budgets,
    pub(crate) pool: &'a Arc<Pool>,
    pub(crate) counters: &'a Counters,
    pub(crate) now: Instant,
}

/// What the event loop is to do with the connection next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Turn {
    /// Wait for an event or a message.
    Wait,
    /// There is more to do, but others first.
    Again,
    /// Close it now.
    Close(CloseReason),
}

type Parked = Box<dyn FnOnce() -> Flow + Send>;

/// See the file comment.
pub(crate) struct Conn<C> {
    pub(crate) shared: Arc<ConnShared>,
    transport: Transport,
    /// The service's; `None` once it was handed back.
    state: Option<C>,
    reader: FrameReader,
    /// Bytes read while nothing may start; those before `carry_at` are used up.
    carry: Vec<u8>,
    carry_at: usize,
    /// An exclusive request that waits until the earlier ones are answered.
    held: Option<Request>,
    parked: Option<Parked>,
    pending: Pending,
    output: Output,
    exclusive: bool,
    waits_for_budget: bool,
    /// The socket may have bytes that were not read.
    readable: bool,
    /// The socket may take bytes.
    writable: bool,
    /// The kernel said that the peer's end of stream lies behind the bytes it has.
    end_announced: bool,
    /// The kernel said that the connection is broken.
    reset: bool,
    /// Close in order, for this reason: start nothing, answer what is started, write it.
    closing: Option<CloseReason>,
    /// Since when nothing can start, as the ends of turns saw it.
    blocked_since: Option<Instant>,
    /// Everything is written; the peer's end of stream is awaited until then.
    linger_until: Option<Instant>,
    replied: bool,
    /// Our last reply tells the peer of the end: it may close first.
    peer_knows: bool,
    /// Nothing is read or started before then.
    muted_until: Option<Instant>,
    /// The peer has left: no mute holds any more.
    mute_outlasted: bool,
    /// Since when the present frame is awaited from the peer.
    frame_since: Option<Instant>,
    moved_at: Instant,
    opened_at: Instant,
    client_id: Option<Arc<str>>,
    _place: Place,
}

impl<C> Conn<C> {
    pub(crate) fn new(
        shared: Arc<ConnShared>,
        transport: Transport,
        place: Place,
        state: C,
        now: Instant,
    ) -> Self {
        Self {
            shared,
            transport,
            state: Some(state),
            reader: FrameReader::default(),
            carry: Vec::new(),
            carry_at: 0,
            held: None,
            parked: None,
            pending: Pending::default(),
            output: Output::default(),
            exclusive: false,
            waits_for_budget: false,
            readable: true,
            writable: true,
            end_announced: false,
            reset: false,
            closing: None,
            blocked_since: None,
            linger_until: None,
            replied: false,
            peer_knows: false,
            muted_until: None,
            mute_outlasted: false,
            frame_since: None,
            moved_at: now,
            opened_at: now,
            client_id: None,
            _place: place,
        }
    }

    /// Whether requests are started and not answered, or answers not written.
    pub(crate) fn owes(&self) -> bool {
        !self.pending.is_empty()
            || !self.output.is_empty()
            || self.transport.wants_write()
            || self.parked.is_some()
    }

    pub(crate) fn waits_for_budget(&self) -> bool {
        self.waits_for_budget
    }

    /// Takes the service's state out, for the end (C3).
    pub(crate) fn take_state(&mut self) -> Option<C> {
        self.shared.alive.store(false, Ordering::Release);
        self.parked = None;
        self.held = None;
        self.state.take()
    }

    /// Notes readiness. The rest happens in [`Self::turn`].
    pub(crate) fn ready(&mut self, event: &mio::event::Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.writable |= event.is_writable() || event.is_error();
        self.end_announced |= event.is_read_closed();
        self.reset |= event.is_error();
    }

    /// Notes the end of a request.
    pub(crate) fn complete(&mut self, seq: u64, outcome: Outcome) {
        self.pending.complete(seq, outcome);
    }

    /// Nothing is read or started before `until`.
    pub(crate) fn mute(&mut self, until: Instant) {
        if !self.mute_outlasted {
            self.muted_until = self.muted_until.max(Some(until));
        }
    }

    /// Hands over the permit that the connection waited for.
    pub(crate) fn grant(&mut self, permit: Permit, pool: &Arc<Pool>) {
        self.waits_for_budget = false;
        self.reader.grant(permit, pool);
    }

    /// Runs the parked request on.
    pub(crate) fn unpark(&mut self) {
        self.shared.unpark_queued.store(false, Ordering::Release);
        if let Some(parked) = self.parked.take() {
            self.settle(parked());
        }
    }

    /// Starts nothing more, answers what is started, then closes. A frame in assembly gives its room back
    /// at once.
    pub(crate) fn close_in_order(&mut self, why: CloseReason) {
        self.closing.get_or_insert(why);
        self.held = None;
        self.carry = Vec::new();
        self.reader = FrameReader::default();
    }

    /// The server stops: starts nothing more, and tells the service not to wait for more.
    pub(crate) fn drain<S: Service<Conn = C>>(&mut self, service: &S) {
        self.close_in_order(CloseReason::ServerStops);
        self.announce_end(service);
    }

    /// Does all that can be done without waiting: moves replies into the output, writes, reads,
    /// starts requests.
    pub(crate) fn turn<S>(&mut self, context: &Context<'_, S>, scratch: &mut Scratch) -> Turn
    where
        S: Service<Conn = C>,
    {
        if self.linger_until.is_some() {
            return self.discard(scratch);
        }
        let written = self.write_replies(context);
        if written != Turn::Wait {
            return written;
        }
        self.muted_until = self.muted_until.filter(|until| context.now < *until);
        self.unblock(context.now);
        let read = self.read(context, scratch);
        let blocked = !self.may_start(context.limits);
        self.blocked_since = blocked.then(|| self.blocked_since.unwrap_or(context.now));
        self.note_frame(context.now);
        match read {
            Turn::Wait if self.reset && !self.has_unstarted() => {
                Turn::Close(CloseReason::PeerReset)
            }
            Turn::Wait if self.is_finished() => self.finish(context),
            turn => turn,
        }
    }

    /// Whether another request may be started, and so whether bytes may be read (C1, C2).
    fn may_start(&self, limits: &Limits) -> bool {
        self.closing.is_none()
            && !self.is_doomed()
            && self.parked.is_none()
            && self.held.is_none()
            && !self.waits_for_budget
            && !self.exclusive
            && self.muted_until.is_none()
            && self.pending.len() < limits.requests_in_flight_max.max(1)
            && self.output.len() < self.reply_bytes_queued_max(limits).max(1)
    }

    fn reply_bytes_queued_max(&self, limits: &Limits) -> usize {
        let max = limits.reply_bytes_queued_max;
        if self.shared.is_logged_in() {
            max
        } else {
            max.min(STRANGER_REPLY_BYTES_MAX)
        }
    }

    /// Time in which we did not read is not the peer's.
    fn unblock(&mut self, now: Instant) {
        if self.blocked_since.is_some() {
            self.frame_since = self.frame_since.map(|_| now);
        }
    }

    /// A request that is started asked for a close; nothing more may start.
    fn is_doomed(&self) -> bool {
        self.shared.doomed.load(Ordering::Acquire)
    }

    fn note_frame(&mut self, now: Instant) {
        if !self.reader.in_frame() {
            self.frame_since = None;
        } else if self.frame_since.is_none() {
            self.frame_since = Some(now);
        }
    }

    /// Whether requests arrived that are not started yet. They outlive a broken connection: those
    /// without an answer were sent by somebody who need not be there any more (acks=0).
    fn has_unstarted(&self) -> bool {
        self.held.is_some() || !self.carry.is_empty()
    }

    /// Nothing is left to start, to answer or to write, and nothing more is to come.
    fn is_finished(&self) -> bool {
        self.closing.is_some() && !self.owes()
    }

    /// Ends a connection that is finished: waits for the peer's end of stream if a reset could
    /// destroy replies on their way, and closes at once otherwise.
    fn finish<S: Service<Conn = C>>(&mut self, context: &Context<'_, S>) -> Turn {
        let why = self.closing.unwrap_or(CloseReason::PeerClosed);
        let peer_waits = why != CloseReason::PeerClosed && self.replied;
        if !peer_waits {
            self.transport.say_goodbye();
            return Turn::Close(why);
        }
        // Some clients throw away a reply that an end of stream follows on the heels.
        if !self.peer_knows && self.transport.finish().is_err() {
            return Turn::Close(why);
        }
        if let Some(state) = self.take_state() {
            context.service.closed(state);
        }
        self.linger_until = Some(context.now + context.limits.linger);
        self.readable = true;
        Turn::Again
    }

    /// Reads and forgets, until the peer's end of stream.
    fn discard(&mut self, scratch: &mut Scratch) -> Turn {
        let why = self.closing.unwrap_or(CloseReason::PeerClosed);
        match self.transport.read_vectored(
            &mut [IoSliceMut::new(&mut scratch.plain)],
            &mut scratch.sealed,
        ) {
            Ok(0) => Turn::Close(why),
            Ok(_) => Turn::Again,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Turn::Wait,
            Err(_) => Turn::Close(why),
        }
    }
}

/// Requests.
impl<C> Conn<C> {
    fn frame<S>(&mut self, context: &Context<'_, S>, mut frame: Bytes)
    where
        S: Service<Conn = C>,
    {
        context.counters.frames.add(1);
        self.frame_since = None;
        if self.shared.bare.load(Ordering::Relaxed) {
            return self.bare_frame(context, frame);
        }
        let Ok(raw) = RawHeader::decode(&frame) else {
            return self.close_in_order(CloseReason::BadHeader);
        };
        let client_id = self.client_id_of(&raw);
        let header = RequestHeader::from_raw(&raw, client_id);
        let body_at = raw.body_at;
        frame.advance(body_at);
        self.take(context, header, frame);
    }

    /// A frame without a header, see [`crate::ConnInfo::set_bare`].
    fn bare_frame<S>(&mut self, context: &Context<'_, S>, body: Bytes)
    where
        S: Service<Conn = C>,
    {
        let header = RequestHeader {
            api_key: BARE_KEY,
            api_version: 0,
            correlation_id: 0,
            client_id: self.client_id.clone(),
        };
        self.take(context, header, body);
    }

    /// Starts a request, or keeps it until it may start.
    fn take<S>(&mut self, context: &Context<'_, S>, header: RequestHeader, body: Bytes)
    where
        S: Service<Conn = C>,
    {
        let Some(state) = &self.state else {
            return;
        };
        let class = context.service.class(state, &header);
        let request = Request {
            header,
            body,
            received: context.now,
        };
        match class {
            Class::Refuse(why) => self.close_in_order(why),
            Class::Exclusive if !self.pending.is_empty() => self.held = Some(request),
            class => self.start(context, request, class),
        }
    }

    /// The client's name, shared by all requests that say the same.
    fn client_id_of(&mut self, raw: &RawHeader<'_>) -> Option<Arc<str>> {
        let bytes = raw.client_id?;
        if self.client_id.as_deref().map(str::as_bytes) != Some(bytes) {
            self.client_id = Some(String::from_utf8_lossy(bytes).into());
        }
        self.client_id.clone()
    }

    /// Starts the request that waited for the earlier ones, once they are answered.
    fn start_held<S: Service<Conn = C>>(&mut self, context: &Context<'_, S>) {
        if self.pending.is_empty()
            && self.muted_until.is_none()
            && !self.is_doomed()
            && let Some(request) = self.held.take()
        {
            self.start(context, request, Class::Exclusive);
        }
    }

    fn start<S>(&mut self, context: &Context<'_, S>, request: Request, class: Class)
    where
        S: Service<Conn = C>,
    {
        let Some(state) = &mut self.state else {
            return;
        };
        let header = &request.header;
        let seq = self.pending.push(ReplyHead {
            correlation_id: header.correlation_id,
            form: form_of(header),
        });
        self.exclusive = class == Class::Exclusive;
        let slot = ReplySlot::new(Arc::clone(&self.shared), seq);
        let flow = context.service.call(state, request, slot);
        self.settle(flow);
    }

    fn settle(&mut self, flow: Flow) {
        match flow {
            Flow::Done => {}
            Flow::Park(parked) => self.parked = Some(parked),
        }
    }
}

fn form_of(header: &RequestHeader) -> HeadForm {
    if header.api_key == BARE_KEY {
        HeadForm::Bare
    } else if wire::response_header_is_flexible(header.api_key, header.api_version) {
        HeadForm::Flexible
    } else {
        HeadForm::Plain
    }
}

impl<C> Drop for Conn<C> {
    fn drop(&mut self) {
        self.shared.alive.store(false, Ordering::Release);
    }
}
