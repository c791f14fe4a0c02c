//! One net thread: its poll, its connections, its messages.
//!
//! Owns:     the connections of its thread, from adoption to close.
//! Does not: know frames or requests; that is the connection.
//! Runs on its own thread, `net-N`.
//!
//! # Invariants
//! E1. A place in the table is not given to another connection before the events at hand are done,
//!     so that no event meets the wrong connection.
//! E2. A panic in a connection's turn closes that connection; the loop goes on.
//! E3. The thread sleeps only when no message, no turn, no deadline and no beat is due.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use mio::{Events, Poll, Token};

use crate::acceptor::Acceptor;
use crate::budget::Budgets;
use crate::buffers::Pool;
use crate::config::NetConfig;
use crate::conn::{Conn, Context, Scratch, Turn};
use crate::mailbox::{Accepted, ConnKey, ConnShared, Mailbox, Message};
use crate::mutes::Mutes;
use crate::pipes::Pipes;
use crate::quota::LogLimit;
use crate::service::{CloseReason, ConnId, ConnInfo, Service};
use crate::spin::Spin;
use crate::stats::Counters;
use crate::transport::Transport;

/// The waker's token.
pub(crate) const WAKER: Token = Token(usize::MAX);
/// The first listener's token; those of the others are lower.
pub(crate) const FIRST_LISTENER: Token = Token(usize::MAX - 1);
/// Places end well below the tokens of listeners.
const PLACES_MAX: usize = 1 << 24;
/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// Messages handled before turns are run and the kernel is asked again.
const MESSAGES_PER_ROUND: usize = 1024;
/// A connection is not muted for longer, whatever the service says: clocks end somewhere.
const MUTE_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Deadlines are looked at this often at most; seconds are what they are about.
const TICK_MAX: Duration = Duration::from_secs(1);
/// ... and this often at least, when deadlines are short.
const TICK_MIN: Duration = Duration::from_millis(10);

/// What all net threads of a server share.
pub(crate) struct Common<S> {
    pub(crate) config: NetConfig,
    pub(crate) service: Arc<S>,
    pub(crate) budgets: Budgets,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pipes: Arc<Pipes>,
    pub(crate) next_conn: AtomicU64,
}

/// See the file comment.
pub(crate) struct EventLoop<S: Service> {
    poll: Poll,
    mailbox: Arc<Mailbox>,
    inbox: Receiver<Message>,
    acceptor: Option<Acceptor>,
    common: Arc<Common<S>>,
    pool: Arc<Pool>,
    conns: Vec<Option<Conn<S::Conn>>>,
    open: usize,
    free: Vec<usize>,
    /// Freed while events are at hand (E1).
    freed: Vec<usize>,
    /// Places whose turn it is.
    turns: VecDeque<usize>,
    mutes: Mutes,
    scratch: Scratch,
    spin: Spin,
    next_tick: Instant,
    tick: Duration,
    draining: bool,
    stopped: bool,
    log_limit: LogLimit,
}

impl<S: Service> EventLoop<S> {
    pub(crate) fn new(
        poll: Poll,
        (mailbox, inbox): (Arc<Mailbox>, Receiver<Message>),
        acceptor: Option<Acceptor>,
        common: Arc<Common<S>>,
    ) -> Self {
        let limits = &common.config.limits;
        let shortest = limits
            .frame_deadline
            .min(limits.idle_deadline)
            .min(limits.handshake_deadline)
            .min(limits.linger);
        let tick = (shortest / 4).clamp(TICK_MIN, TICK_MAX);
        Self {
            poll,
            mailbox,
            inbox,
            acceptor,
            common,
            pool: Pool::new(),
            conns: Vec::new(),
            open: 0,
            free: Vec::new(),
            freed: Vec::new(),
            turns: VecDeque::new(),
            mutes: Mutes::default(),
            scratch: Scratch::default(),
            spin: Spin::for_this_machine(),
            next_tick: Instant::now() + tick,
            tick,
            draining: false,
            stopped: false,
            log_limit: LogLimit::new(),
        }
    }

    /// Runs until it is stopped, or drained. May be called again after a panic.
    pub(crate) fn run(&mut self) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.is_done() {
            self.wait(&mut events);
            self.mailbox.beat();
            for event in &events {
                self.event(event);
                self.work();
            }
            self.accept();
            self.unmute();
            self.work();
            self.free.append(&mut self.freed); // E1
            self.check_deadlines();
        }
    }

    /// Closes what is left, at the end of the thread.
    pub(crate) fn close_all(&mut self) {
        for place in 0..self.conns.len() {
            if self.conns[place].as_ref().is_some_and(Conn::owes) {
                self.common.counters.cut.add(1);
            }
            self.close(place, CloseReason::ServerStops);
        }
    }

    fn is_done(&self) -> bool {
        self.stopped || (self.draining && self.open == 0)
    }

    /// Waits for events as long as nothing is due (E3).
    fn wait(&mut self, events: &mut Events) {
        if self.spin.is_on() && self.turns.is_empty() && self.look(events) {
            return;
        }
        self.mailbox.about_to_sleep();
        let now = Instant::now();
        let nothing = self.turns.is_empty() && self.inbox.is_empty();
        let timeout = if nothing && self.mailbox.has_beaten() {
            self.next_due(now)
                .map(|due| due.saturating_duration_since(now))
        } else {
            Some(Duration::ZERO)
        };
        poll_once(&mut self.poll, events, timeout, &mut self.stopped);
        self.mailbox.awake();
        if timeout != Some(Duration::ZERO) {
            self.spin.slept(now.elapsed());
        }
    }

    /// Looks for events and messages for a while, without announcing a sleep; says whether there are any.
    fn look(&mut self, events: &mut Events) -> bool {
        let (poll, inbox, stopped) = (&mut self.poll, &self.inbox, &mut self.stopped);
        let found = self.spin.look(|| {
            poll_once(poll, events, Some(Duration::ZERO), stopped);
            let found = !events.is_empty() || !inbox.is_empty() || *stopped;
            found.then_some(())
        });
        found.is_some()
    }

    fn next_due(&self, now: Instant) -> Option<Instant> {
        let tick = (self.open > 0).then_some(self.next_tick);
        let accept = self.acceptor.as_ref().and_then(|a| a.due(now));
        let unmute = self.mutes.due();
        tick.into_iter().chain(accept).chain(unmute).min()
    }

    fn event(&mut self, event: &mio::event::Event) {
        let token = event.token();
        if token == WAKER {
            return;
        }
        if token.0 > PLACES_MAX {
            if let Some(acceptor) = &mut self.acceptor {
                acceptor.ready(FIRST_LISTENER.0 - token.0);
            }
            return;
        }
        if let Some(Some(conn)) = self.conns.get_mut(token.0) {
            conn.ready(event);
            self.turns.push_back(token.0);
        }
    }

    fn accept(&mut self) {
        if let Some(acceptor) = &mut self.acceptor {
            let service = &self.common.service;
            acceptor.accept(Instant::now(), &|address, listener| {
                service.admit(address, listener)
            });
        }
    }

    fn mute(&mut self, key: ConnKey, time: Duration) {
        let until = Instant::now() + time.min(MUTE_MAX);
        if let Some(conn) = self.conn_at(key) {
            conn.mute(until);
            self.mutes.add(key, until);
            self.turns.push_back(key.place);
        }
    }

    /// Gives those a turn whose time is over (U1).
    fn unmute(&mut self) {
        let Some(_) = self.mutes.due() else { return };
        let now = Instant::now();
        while let Some((place, id)) = self.mutes.take(now) {
            let id = ConnId(id);
            if self.conn_at(ConnKey { place, id }).is_some() {
                self.turns.push_back(place);
            }
        }
    }

    /// Handles messages, then runs the turns that are due.
    fn work(&mut self) {
        for _ in 0..MESSAGES_PER_ROUND {
            let Ok(message) = self.inbox.try_recv() else {
                break;
            };
            self.message(message);
        }
        for _ in 0..self.turns.len() {
            if let Some(place) = self.turns.pop_front() {
                self.turn(place);
            }
        }
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Adopt(accepted) => self.adopt(accepted),
            Message::Complete(key, seq, outcome) => {
                self.with(key, |conn| conn.complete(seq, outcome));
            }
            Message::Mute(key, time) => self.mute(key, time),
            Message::Unpark(key) => self.with(key, Conn::unpark),
            Message::Grant(key, permit) => {
                let pool = Arc::clone(&self.pool);
                self.with(key, |conn| conn.grant(permit, &pool));
            }
            Message::Close(key, why) => {
                if self.conn_at(key).is_some() {
                    self.close(key.place, why);
                }
            }
            Message::Drain => self.drain(),
            Message::Stop => self.stopped = true,
        }
    }

    fn conn_at(&mut self, key: ConnKey) -> Option<&mut Conn<S::Conn>> {
        let conn = self.conns.get_mut(key.place)?.as_mut()?;
        (conn.shared.id == key.id).then_some(conn)
    }

    /// Does something to a connection that is still there, and gives it a turn.
    fn with(&mut self, key: ConnKey, act: impl FnOnce(&mut Conn<S::Conn>)) {
        let Some(conn) = self.conn_at(key) else {
            return;
        };
        match catch_unwind(AssertUnwindSafe(|| act(conn))) {
            Ok(()) => self.turns.push_back(key.place),
            Err(_) => self.panicked(key.place),
        }
    }

    /// Gives a connection its turn (E2).
    fn turn(&mut self, place: usize) {
        let Some(Some(conn)) = self.conns.get_mut(place) else {
            return;
        };
        self.scratch.make();
        let context = Context {
            service: &*self.common.service,
            limits: &self.common.config.limits,
            budgets: &self.common.budgets,
            pool: &self.pool,
            counters: &self.common.counters,
            now: Instant::now(),
        };
        let scratch = &mut self.scratch;
        match catch_unwind(AssertUnwindSafe(|| conn.turn(&context, scratch))) {
            Ok(Turn::Wait) => {}
            Ok(Turn::Again) => self.turns.push_back(place),
            Ok(Turn::Close(why)) => self.close(place, why),
            Err(_) => self.panicked(place),
        }
    }

    fn panicked(&mut self, place: usize) {
        self.common.counters.panics.add(1);
        self.close(place, CloseReason::ServicePanicked);
    }

    fn adopt(&mut self, accepted: Accepted) {
        if self.draining || self.open >= PLACES_MAX {
            return;
        }
        let place = self.free.pop().unwrap_or(self.conns.len());
        match self.open(accepted, place) {
            Some(conn) => {
                if place == self.conns.len() {
                    self.conns.push(None);
                }
                self.conns[place] = Some(conn);
                self.open += 1;
                self.turns.push_back(place);
            }
            None if place < self.conns.len() => self.free.push(place),
            None => {}
        }
    }

    fn open(&mut self, accepted: Accepted, place: usize) -> Option<Conn<S::Conn>> {
        let local = accepted.stream.local_addr().ok()?;
        let listener = self.common.config.listeners.get(accepted.listener);
        let tls = listener.and_then(|listener| listener.tls.as_deref());
        let mut transport = match Transport::new(accepted.stream, tls) {
            Ok(transport) => transport,
            Err(error) => {
                log::error!("no TLS session for a connection: {error}");
                return None;
            }
        };
        if let Err(error) = transport.register(self.poll.registry(), Token(place)) {
            log::error!("cannot register a connection: {error}");
            return None;
        }
        let limits = &self.common.config.limits;
        let id = self.common.next_conn.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(ConnShared {
            id: ConnId(id),
            place,
            listener: accepted.listener,
            peer: accepted.peer,
            local,
            mailbox: Arc::clone(&self.mailbox),
            pipes: transport.is_plain().then(|| Arc::clone(&self.common.pipes)),
            alive: AtomicBool::new(true),
            finished: AtomicBool::new(false),
            doomed: AtomicBool::new(false),
            unpark_queued: AtomicBool::new(false),
            bare: AtomicBool::new(false),
            frame_bytes_max: AtomicUsize::new(limits.frame_bytes_max_before_login),
            frame_bytes_by_login: [limits.frame_bytes_max_before_login, limits.frame_bytes_max],
            logged_in: AtomicBool::new(false),
        });
        let info = ConnInfo {
            conn: Arc::clone(&shared),
        };
        let service = &self.common.service;
        let Ok(state) = catch_unwind(AssertUnwindSafe(|| service.opened(&info))) else {
            self.common.counters.panics.add(1);
            return None;
        };
        let now = Instant::now();
        Some(Conn::new(shared, transport, accepted.place, state, now))
    }

    fn close(&mut self, place: usize, why: CloseReason) {
        let Some(mut conn) = self.conns.get_mut(place).and_then(Option::take) else {
            return;
        };
        self.open -= 1;
        self.freed.push(place);
        if self.open == 0 {
            self.pool.clear();
        }
        self.note_close(&conn.shared, why);
        if conn.waits_for_budget() {
            self.common.budgets.forget(conn.shared.key());
        }
        let service = &self.common.service;
        let handed_back = catch_unwind(AssertUnwindSafe(|| {
            if let Some(state) = conn.take_state() {
                service.closed(state);
            }
        }));
        if handed_back.is_err() {
            self.common.counters.panics.add(1);
        }
    }

    /// Says why a connection ended, once, and not for every stranger who sends garbage.
    fn note_close(&mut self, conn: &ConnShared, why: CloseReason) {
        if matches!(
            why,
            CloseReason::NotTls | CloseReason::TlsRefused(_) | CloseReason::HandshakeDeadline
        ) {
            self.common.counters.handshakes_failed.add(1);
        }
        self.common.counters.closed[why.place()].add(1);
        if why.is_peer_fault() {
            self.common.counters.peer_faults.add(1);
        }
        let level = why.log_level();
        if level > log::Level::Info {
            log::log!(level, "{} from {} ended: {why}", conn.id, conn.peer);
            return;
        }
        let listeners = &self.common.config.listeners;
        let listener = listeners
            .get(conn.listener)
            .map_or("", |listener| &listener.name);
        if let Some(suppressed) = self.log_limit.allow(Instant::now()) {
            log::log!(
                level,
                "closed {} from {} on listener {listener}: {why} \
                 ({suppressed} such lines suppressed before)",
                conn.id,
                conn.peer
            );
        }
    }

    fn drain(&mut self) {
        self.draining = true;
        self.acceptor = None;
        for place in 0..self.conns.len() {
            let Some(conn) = &mut self.conns[place] else {
                continue;
            };
            let service = &*self.common.service;
            match catch_unwind(AssertUnwindSafe(|| conn.drain(service))) {
                Ok(()) => self.turns.push_back(place),
                Err(_) => self.panicked(place),
            }
        }
    }

    fn check_deadlines(&mut self) {
        let now = Instant::now();
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + self.tick;
        self.pool.trim();
        let contended = [false, true].map(|known| self.common.budgets.of(known).waiting() > 0);
        for place in 0..self.conns.len() {
            let Some(conn) = &mut self.conns[place] else {
                continue;
            };
            let limits = &self.common.config.limits;
            if conn.outlast_mute(limits, now) {
                self.turns.push_back(place);
                continue;
            }
            let known = conn.shared.is_logged_in();
            let hogs = contended[usize::from(known)] && conn.hogs(limits, now);
            let overdue = conn.overdue(limits, now);
            match overdue.or(hogs.then_some(CloseReason::FrameDeadline)) {
                None => {}
                Some(why @ CloseReason::FrameDeadline) if !conn.lingers() => {
                    conn.close_in_order(why);
                    self.turns.push_back(place);
                }
                Some(why) => self.close(place, why),
            }
        }
    }
}

fn poll_once(poll: &mut Poll, events: &mut Events, timeout: Option<Duration>, failed: &mut bool) {
    match poll.poll(events, timeout) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => {
            log::error!("a net thread cannot poll: {error}");
            *failed = true;
        }
    }
}
