//! Accepting connections and handing them to the net threads.
//!
//! Owns:     the listening sockets, the rate of accepting, one spare descriptor.
//! Does not: read or write connections.
//! Runs on net-0.
//!
//! # Invariants
//! A1. Whoever finds no room is closed at once; nobody waits half-open for us.
//! A2. A failure of `accept` that took no connection out of the queue is tried again only after a
//!     pause (d05).

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use nix::errno::Errno;
use socket2::SockRef;

use crate::config::Limits;
use crate::mailbox::{Accepted, Mailbox, Message};
use crate::quota::{Counts, LogLimit, Place, Rate};
use crate::service::Admission;
use crate::stats::Counters;

/// Connections accepted before those that are open get their turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Connections held before they are closed, so that their clients do not come again at once.
const TURNED_AWAY_MAX: usize = 1024;
/// ... and for how long at most, whatever the service says.
const TURNED_AWAY_TIME_MAX: Duration = Duration::from_secs(3_600);
/// The pause after a failure that will not pass by itself at once.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// See the file comment.
pub(crate) struct Acceptor {
    listeners: Vec<Listening>,
    mailboxes: Vec<Arc<Mailbox>>,
    next_mailbox: usize,
    rate: Rate,
    /// Given up for a moment when there is no descriptor left, so that the kernel's queue can be
    /// emptied politely.
    spare: Option<File>,
    paused_until: Option<Instant>,
    /// Held unread until their time, then closed.
    turned_away: BinaryHeap<TurnedAway>,
    log_limit: LogLimit,
    counts: Arc<Counts>,
    counters: Arc<Counters>,
}

struct Listening {
    socket: TcpListener,
    /// There may be connections in its queue.
    ready: bool,
}

/// Asks the service about a connection.
type Admit<'a> = &'a dyn Fn(IpAddr, usize) -> Admission;

struct TurnedAway {
    until: Reverse<Instant>,
    _stream: TcpStream,
    _place: Place,
}

impl PartialEq for TurnedAway {
    fn eq(&self, other: &Self) -> bool {
        self.until == other.until
    }
}

impl Eq for TurnedAway {}

impl PartialOrd for TurnedAway {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TurnedAway {
    fn cmp(&self, other: &Self) -> Ordering {
        self.until.cmp(&other.until)
    }
}

/// Why the queue of a listener was not emptied.
enum Stop {
    Empty,
    Turn,
    Pause(Instant),
}

impl Acceptor {
    pub(crate) fn new(
        sockets: Vec<TcpListener>,
        mailboxes: Vec<Arc<Mailbox>>,
        limits: &Limits,
        (counts, counters): (Arc<Counts>, Arc<Counters>),
    ) -> Self {
        let listening = |socket| Listening {
            socket,
            ready: true,
        };
        Self {
            listeners: sockets.into_iter().map(listening).collect(),
            mailboxes,
            next_mailbox: 0,
            rate: Rate::new(limits.connections_per_second_max, Instant::now()),
            spare: open_spare(),
            paused_until: None,
            turned_away: BinaryHeap::new(),
            log_limit: LogLimit::new(),
            counts,
            counters,
        }
    }

    /// Registers listener `n` as token `first - n`.
    pub(crate) fn register(&mut self, registry: &Registry, first: Token) -> io::Result<()> {
        for (index, listening) in self.listeners.iter_mut().enumerate() {
            let token = Token(first.0 - index);
            registry.register(&mut listening.socket, token, Interest::READABLE)?;
        }
        Ok(())
    }

    /// Notes that a listener has connections.
    pub(crate) fn ready(&mut self, listener: usize) {
        if let Some(listening) = self.listeners.get_mut(listener) {
            listening.ready = true;
        }
    }

    /// When [`Self::accept`] has something to do; `None` if only an event can tell.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        let any = self.listeners.iter().any(|listening| listening.ready);
        let accept = any.then(|| self.paused_until.unwrap_or(now));
        let close = self.turned_away.peek().map(|held| held.until.0);
        accept.into_iter().chain(close).min()
    }

    /// Accepts what there is, within the rate.
    pub(crate) fn accept(&mut self, now: Instant, admit: Admit<'_>) {
        while self
            .turned_away
            .peek()
            .is_some_and(|held| held.until.0 <= now)
        {
            self.turned_away.pop();
        }
        if self.paused_until.is_some_and(|until| now < until) {
            return;
        }
        self.paused_until = None;
        for listener in 0..self.listeners.len() {
            if !self.listeners[listener].ready {
                continue;
            }
            match self.accept_from(listener, now, admit) {
                Stop::Empty => self.listeners[listener].ready = false,
                Stop::Turn => {}
                Stop::Pause(until) => {
                    self.paused_until = Some(until);
                    return;
                }
            }
        }
    }

    fn accept_from(&mut self, listener: usize, now: Instant, admit: Admit<'_>) -> Stop {
        for _ in 0..ACCEPTS_PER_TURN {
            self.rate.set(self.counts.per_second_max());
            if let Err(again) = self.rate.take(now) {
                return Stop::Pause(again);
            }
            match self.listeners[listener].socket.accept() {
                Ok((stream, peer)) => match admit(peer.ip().to_canonical(), listener) {
                    Admission::Yes => self.hand_out(stream, peer, listener),
                    Admission::CloseAfter(time) => {
                        let until = now + time.min(TURNED_AWAY_TIME_MAX);
                        self.turn_away(stream, peer, until);
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Stop::Empty,
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    let refused = self.refuse_without_descriptor(listener, &error);
                    self.warn(&format!("cannot accept connections: {error}"));
                    if !refused {
                        return Stop::Pause(now + FAILURE_PAUSE);
                    }
                }
            }
        }
        Stop::Turn
    }

    fn hand_out(&mut self, stream: TcpStream, peer: SocketAddr, listener: usize) {
        let place = match self.counts.enter(peer.ip()) {
            Ok(place) => place,
            Err(full) => {
                self.counters.refused.add(1);
                drop(stream); // A1
                let max = self.counts.total_max();
                return self.warn(&format!(
                    "refused a connection from {peer}: {full:?} limit of connections reached \
                     ({max} in total)"
                ));
            }
        };
        // Replies are written as a whole; peers that vanish without a word are noticed.
        let socket = SockRef::from(&stream);
        if let Err(error) = stream.set_nodelay(true).and(socket.set_keepalive(true)) {
            log::debug!("no socket options for {peer}: {error}");
        }
        self.counters.accepted.add(1);
        self.next_mailbox = (self.next_mailbox + 1) % self.mailboxes.len().max(1);
        if let Some(mailbox) = self.mailboxes.get(self.next_mailbox) {
            mailbox.send(Message::Adopt(Accepted {
                stream,
                peer,
                listener,
                place,
            }));
        }
    }

    /// Holds a connection until its time; it counts as one meanwhile. Where there is no room to hold it,
    /// it is closed at once.
    fn turn_away(&mut self, stream: TcpStream, peer: SocketAddr, until: Instant) {
        self.counters.turned_away.add(1);
        if self.turned_away.len() < TURNED_AWAY_MAX
            && let Ok(place) = self.counts.enter(peer.ip())
        {
            self.turned_away.push(TurnedAway {
                until: Reverse(until),
                _stream: stream,
                _place: place,
            });
        }
        self.warn(&format!(
            "turned a connection from {peer} away: its address connects too often"
        ));
    }

    /// Without a descriptor the kernel keeps the connection in its queue, where the client waits in
    /// vain. The spare one serves to take it out and close it. Returns whether one was taken out.
    fn refuse_without_descriptor(&mut self, listener: usize, error: &io::Error) -> bool {
        let errno = error.raw_os_error().map(Errno::from_raw);
        if !matches!(errno, Some(Errno::EMFILE | Errno::ENFILE)) || self.spare.take().is_none() {
            return false;
        }
        let accepted = self.listeners[listener].socket.accept();
        let refused = accepted.is_ok();
        self.counters.refused.add(u64::from(refused));
        drop(accepted);
        self.spare = open_spare();
        refused
    }

    fn warn(&mut self, line: &str) {
        if let Some(suppressed) = self.log_limit.allow(Instant::now()) {
            log::warn!("{line} (and {suppressed} such lines before)");
        }
    }
}

/// The connection died in the queue; the next one is not concerned.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

fn open_spare() -> Option<File> {
    File::open("/dev/null").ok()
}
