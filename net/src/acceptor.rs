//! Accepting connections and handing them to the net threads.
//!
//! Owns:     the listening sockets, the rate of accepting, one spare descriptor.
//! Does not: read or write connections.
//! Runs on net-0.
//!
//! # Invariants
//! A1. Whoever finds no room is closed at once; nobody waits half-open for us.
//!     Only who comes to a listener that has reached a limit of its own waits in the kernel's queue.
//! A2. A failure of `accept` that took no connection out of the queue is tried again only after a
//!     pause (d05).

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
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
/// How soon a listener with all the connections it may have is looked at again: places are given back elsewhere.
const FULL_PAUSE: Duration = Duration::from_millis(20);
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
    connections_max: Option<usize>,
    rate: Option<Rate>,
    /// It has reached a limit of its own and waits.
    held_until: Option<Instant>,
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
    /// Nobody is accepted until then.
    Pause(Instant),
    /// Nobody from this listener is accepted until then.
    Hold(Instant),
}

impl Listening {
    fn is_due(&self, now: Instant) -> bool {
        self.ready && self.held_until.is_none_or(|until| until <= now)
    }

    /// The next connection is told by an event.
    fn emptied(&mut self) {
        self.ready = false;
        self.held_until = None;
    }

    /// Whether the kernel's queue holds somebody.
    fn has_waiting(&self) -> bool {
        let mut asked = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        // Without an answer, accepting will tell.
        poll(&mut asked, PollTimeout::ZERO).is_ok_and(|found| found > 0)
    }
}

impl Acceptor {
    pub(crate) fn new(
        sockets: Vec<TcpListener>,
        mailboxes: Vec<Arc<Mailbox>>,
        limits: &Limits,
        (counts, counters): (Arc<Counts>, Arc<Counters>),
    ) -> Self {
        let now = Instant::now();
        let listening = |(index, socket): (usize, TcpListener)| {
            let own = limits.by_listener.get(index).copied().unwrap_or_default();
            Listening {
                socket,
                ready: true,
                connections_max: own.connections_max,
                rate: own
                    .connections_per_second_max
                    .map(|max| Rate::new(max, now)),
                held_until: None,
            }
        };
        Self {
            listeners: sockets.into_iter().enumerate().map(listening).collect(),
            mailboxes,
            next_mailbox: 0,
            rate: Rate::new(limits.connections_per_second_max, now),
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
        let waiting = self.listeners.iter().filter(|listening| listening.ready);
        let first = waiting.map(|one| one.held_until.unwrap_or(now)).min();
        let accept = first.map(|first| self.paused_until.map_or(first, |until| until.max(first)));
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
            if !self.listeners[listener].is_due(now) {
                continue;
            }
            match self.accept_from(listener, now, admit) {
                Stop::Empty => self.listeners[listener].emptied(),
                Stop::Turn => {}
                Stop::Hold(until) if self.listeners[listener].has_waiting() => {
                    self.hold(listener, until);
                }
                Stop::Hold(_) => self.listeners[listener].emptied(),
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
            if let Err(stop) = self.permit(listener, now) {
                return stop;
            }
            match self.listeners[listener].socket.accept() {
                Ok((stream, peer)) => match admit(peer.ip().to_canonical(), listener) {
                    Admission::Yes => self.hand_out(stream, peer, listener),
                    Admission::CloseAfter(time) => {
                        let until = now + time.min(TURNED_AWAY_TIME_MAX);
                        self.turn_away(stream, (peer, listener), until);
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unused(listener);
                    return Stop::Empty;
                }
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

    /// Whether one more may be accepted now, by every rate and by the listener's own limit.
    fn permit(&mut self, listener: usize, now: Instant) -> Result<(), Stop> {
        let listening = &mut self.listeners[listener];
        let full = |max| self.counts.of_listener(listener) >= max;
        if listening.connections_max.is_some_and(full) {
            return Err(Stop::Hold(now + FULL_PAUSE));
        }
        if let Some(rate) = &mut listening.rate {
            rate.take(now).map_err(Stop::Hold)?;
        }
        self.rate.take(now).map_err(|again| {
            if let Some(rate) = &mut listening.rate {
                rate.give_back();
            }
            Stop::Pause(again)
        })
    }

    /// Nobody came for what was permitted.
    fn unused(&mut self, listener: usize) {
        self.rate.give_back();
        if let Some(rate) = &mut self.listeners[listener].rate {
            rate.give_back();
        }
    }

    /// Lets a listener wait; told and counted when it begins to.
    fn hold(&mut self, listener: usize, until: Instant) {
        let was_held = self.listeners[listener].held_until.replace(until).is_some();
        if !was_held {
            self.counters.held_back.add(1);
            self.warn(&format!(
                "listener {listener} has reached its own limit of connections; those who come wait"
            ));
        }
    }

    fn hand_out(&mut self, stream: TcpStream, peer: SocketAddr, listener: usize) {
        let place = match self.counts.enter(peer.ip(), listener) {
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
    fn turn_away(
        &mut self,
        stream: TcpStream,
        (peer, listener): (SocketAddr, usize),
        until: Instant,
    ) {
        self.counters.turned_away.add(1);
        if self.turned_away.len() < TURNED_AWAY_MAX
            && let Ok(place) = self.counts.enter(peer.ip(), listener)
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
