//! Binding, starting and stopping a server.
//!
//! Owns:     the net threads and their end.
//! Does not: accept, read or write.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use mio::net::TcpListener;
use mio::{Poll, Waker};
use nix::sys::resource::{Resource, getrlimit};
use socket2::{Domain, Protocol, Socket, Type};

use crate::acceptor::Acceptor;
use crate::budget::Budgets;
use crate::config::{ConnectionLimits, Listener, NetConfig};
use crate::event_loop::{Common, EventLoop, FIRST_LISTENER, WAKER};
use crate::mailbox::{Mailbox, Message};
use crate::pipes::Pipes;
use crate::quota::Counts;
use crate::service::Service;
use crate::stats::{Counters, NetStats, TlsStats};

/// Connections that the kernel queues until they are accepted; it caps this at
/// `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// A net thread that panicked this often (outside of any connection) is not started again.
const LOOP_PANICS_MAX: usize = 16;
/// How long threads may take to notice that they were stopped.
const STOP_GRACE: Duration = Duration::from_secs(1);

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

/// Sockets that are bound but accept nobody yet.
#[derive(Debug)]
pub struct BoundServer {
    config: NetConfig,
    sockets: Vec<TcpListener>,
    addrs: Vec<SocketAddr>,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Drained {
    /// Connections that were cut with requests unanswered or answers unwritten.
    pub connections_cut: u64,
    /// Net threads that did not end in time; anything but 0 makes the stop unclean.
    pub threads_stuck: usize,
}

/// A running server. Dropping it cuts all connections.
pub struct Server {
    addrs: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
    /// Disconnected when the last net thread has ended.
    ended: Receiver<()>,
    watch: Watch,
}

/// Counters of a server and the life signs of its threads; outlives the server.
#[derive(Clone)]
pub struct Watch {
    mailboxes: Vec<Arc<Mailbox>>,
    budgets: Budgets,
    counts: Arc<Counts>,
    counters: Arc<Counters>,
}

impl Watch {
    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> NetStats {
        let counters = &self.counters;
        NetStats {
            connections: self.counts.total() as u64,
            accepted: counters.accepted.get(),
            closed: std::array::from_fn(|place| counters.closed[place].get()),
            refused: counters.refused.get(),
            turned_away: counters.turned_away.get(),
            held_back: counters.held_back.get(),
            frames: counters.frames.get(),
            replies: counters.replies.get(),
            bytes_in: counters.bytes_in.get(),
            bytes_out: counters.bytes_out.get(),
            peer_faults: counters.peer_faults.get(),
            panics: counters.panics.get(),
            frame_bytes_reserved: self.budgets.used() as u64,
            frames_waiting: self.budgets.waiting() as u64,
            tls: TlsStats {
                handshakes: counters.handshakes.get(),
                resumed: counters.handshakes_resumed.get(),
                failed: counters.handshakes_failed.get(),
            },
        }
    }

    /// Asks every net thread to go round once more; [`Watch::silent`] tells who has not.
    pub fn ask_for_beats(&self) {
        for mailbox in &self.mailboxes {
            mailbox.ask_for_beat();
        }
    }

    /// Net threads that have not gone round since they were last asked.
    #[must_use]
    pub fn silent(&self) -> usize {
        let silent = |mailbox: &&Arc<Mailbox>| !mailbox.has_beaten();
        self.mailboxes.iter().filter(silent).count()
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch of {} net threads", self.mailboxes.len())
    }
}

impl Server {
    /// Binds all listeners, so that a caller learns the addresses before anybody is accepted.
    pub fn bind(config: NetConfig) -> Result<BoundServer, StartError> {
        if config.listeners.is_empty() {
            return Err(StartError::NoListener);
        }
        let mut sockets = Vec::new();
        let mut addrs = Vec::new();
        for listener in &config.listeners {
            let failed = |error| StartError::Bind {
                addr: listener.addr,
                error,
            };
            let socket = listen(listener, &config.listeners).map_err(failed)?;
            addrs.push(socket.local_addr().map_err(failed)?);
            sockets.push(socket);
        }
        Ok(BoundServer {
            config,
            sockets,
            addrs,
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

    /// Connections that there may be, after the reserve of descriptors.
    #[must_use]
    pub fn connections_max(&self) -> usize {
        self.watch.counts.total_max()
    }

    /// Other limits for connections that come from now on; those that are there stay.
    pub fn limit_connections(&self, to: &ConnectionLimits) {
        self.watch.counts.limit(to);
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> NetStats {
        self.watch.stats()
    }

    /// What can be known of the server without having it.
    #[must_use]
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Stops accepting and reading, answers what is started, closes, and joins the threads; what is
    /// not answered at the deadline is cut.
    pub fn drain(mut self, deadline: Duration) -> Drained {
        self.stop(deadline)
    }

    fn stop(&mut self, deadline: Duration) -> Drained {
        self.tell(|| Message::Drain);
        if !self.wait_for_end(deadline) {
            self.tell(|| Message::Stop);
            self.wait_for_end(STOP_GRACE);
        }
        let (ended, stuck): (Vec<_>, Vec<_>) =
            self.threads.drain(..).partition(JoinHandle::is_finished);
        for thread in ended {
            // Its panics were caught and counted.
            drop(thread.join());
        }
        Drained {
            connections_cut: self.watch.counters.cut.get(),
            threads_stuck: stuck.len(),
        }
    }

    fn tell(&self, message: impl Fn() -> Message) {
        for mailbox in &self.watch.mailboxes {
            mailbox.send(message());
        }
    }

    /// Whether all threads ended in time.
    fn wait_for_end(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let nobody_sends = self.ended.recv_deadline(until);
        if nobody_sends != Err(crossbeam_channel::RecvTimeoutError::Disconnected) {
            return false;
        }
        // The channel goes a few instructions before the thread does.
        while !self.threads.iter().all(JoinHandle::is_finished) && Instant::now() < until {
            thread::yield_now();
        }
        true
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.stop(Duration::ZERO);
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server on {:?}", self.addrs)
    }
}

impl BoundServer {
    /// The bound addresses, in the order of the listeners.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Starts the net threads and accepts.
    pub fn start<S: Service>(self, service: Arc<S>) -> Result<Server, StartError> {
        self.start_threads(service).map_err(StartError::System)
    }

    fn start_threads<S: Service>(self, service: Arc<S>) -> io::Result<Server> {
        let counts = Counts::new(&self.config.limits, descriptors());
        let budgets = Budgets::new(&self.config.limits);
        let counters = Arc::new(Counters::default());
        let posts = (0..self.config.threads.max(1))
            .map(|_| Post::new())
            .collect::<io::Result<Vec<_>>>()?;
        let mailboxes: Vec<_> = posts.iter().map(|post| Arc::clone(&post.mailbox)).collect();
        let both = (Arc::clone(&counts), Arc::clone(&counters));
        let mut acceptor =
            Acceptor::new(self.sockets, mailboxes.clone(), &self.config.limits, both);
        if let Some(first) = posts.first() {
            acceptor.register(first.poll.registry(), FIRST_LISTENER)?;
        }
        let common = Arc::new(Common {
            config: self.config,
            service,
            budgets: budgets.clone(),
            counters: Arc::clone(&counters),
            pipes: Pipes::new(),
            next_conn: AtomicU64::new(1),
        });
        let (alive, ended) = bounded(0);
        let mut server = Server {
            addrs: self.addrs,
            threads: Vec::new(),
            ended,
            watch: Watch {
                mailboxes,
                budgets,
                counts,
                counters,
            },
        };
        let mut acceptor = Some(acceptor);
        for (index, post) in posts.into_iter().enumerate() {
            // If one cannot be started, dropping the server stops the others.
            let common = Arc::clone(&common);
            let thread = post.start(index, acceptor.take(), common, alive.clone())?;
            server.threads.push(thread);
        }
        Ok(server)
    }
}

/// A net thread before it runs.
struct Post {
    poll: Poll,
    mailbox: Arc<Mailbox>,
    inbox: Receiver<Message>,
}

impl Post {
    fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let (mailbox, inbox) = Mailbox::new(waker);
        Ok(Self {
            poll,
            mailbox,
            inbox,
        })
    }

    fn start<S: Service>(
        self,
        index: usize,
        acceptor: Option<Acceptor>,
        common: Arc<Common<S>>,
        alive: Sender<()>,
    ) -> io::Result<JoinHandle<()>> {
        let name = format!("net-{index}");
        thread::Builder::new().name(name).spawn(move || {
            let mail = (self.mailbox, self.inbox);
            let mut event_loop = EventLoop::new(self.poll, mail, acceptor, common);
            guarded(&mut event_loop);
            drop(event_loop);
            drop(alive);
        })
    }
}

/// Runs a loop to its end. A panic in it costs the connection it was at, if any, and not the
/// process; a loop that panics again and again ends.
fn guarded<S: Service>(event_loop: &mut EventLoop<S>) {
    for _ in 0..LOOP_PANICS_MAX {
        if catch_unwind(AssertUnwindSafe(|| event_loop.run())).is_ok() {
            break;
        }
        log::error!("a network thread panicked and goes on (a bug)");
    }
    event_loop.close_all();
}

/// The process's soft limit of descriptors.
fn descriptors() -> usize {
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    usize::try_from(soft).unwrap_or(usize::MAX)
}

fn listen(listener: &Listener, all: &[Listener]) -> io::Result<TcpListener> {
    let addr = listener.addr;
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        // `[::]` serves IPv4 as well, as in Kafka, unless somebody else listens there.
        let taken = |other: &Listener| other.addr.is_ipv4() && other.addr.port() == addr.port();
        socket.set_only_v6(all.iter().any(taken))?;
    }
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(TcpListener::from_std(socket.into()))
}
