//! A toy service over real sockets, and a client that speaks raw frames.
//!
//! The first byte of a request body says what the service does with it; see [`Toy::call`].

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use seawall_net::wire::RequestHeader;
use seawall_net::{
    Admission, Class, CloseReason, ConnInfo, Flow, Limits, Listener, NetConfig, ReplySlot, Request,
    ResponseBody, Server, Service, Unparker,
};

/// Produce v3: pipelined, header version 1.
pub(crate) const PIPELINED: (i16, i16) = (0, 3);
/// Metadata v1: exclusive, header version 1.
pub(crate) const EXCLUSIVE: (i16, i16) = (3, 1);
/// Metadata v12: exclusive, flexible.
pub(crate) const FLEXIBLE: (i16, i16) = (3, 12);
/// A key that the toy refuses.
pub(crate) const REFUSED: (i16, i16) = (99, 0);

/// No test waits longer than this for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What the service noted.
#[derive(Default)]
pub(crate) struct Toy {
    /// Slots of 'd' requests, with their payload, in order of arrival.
    pub(crate) deferred: Mutex<Vec<(Bytes, ReplySlot)>>,
    pub(crate) changed: Condvar,
    /// Payloads of all requests in the order in which they were started.
    pub(crate) started: Mutex<Vec<Vec<u8>>>,
    /// Parked connections wait for this.
    pub(crate) gate_open: AtomicBool,
    pub(crate) unparkers: Mutex<Vec<Unparker>>,
    pub(crate) resumes: AtomicUsize,
    pub(crate) opened: AtomicUsize,
    pub(crate) closed: AtomicUsize,
    pub(crate) finished: AtomicUsize,
    /// Every request is refused by a close.
    pub(crate) closes_all: AtomicBool,
    /// Frames are bounded by the limit before login unless this is set.
    pub(crate) logged_in: bool,
    /// Bodies are kept, so that their budget is.
    pub(crate) hoard: Mutex<Option<Vec<Bytes>>>,
    pub(crate) headers: Mutex<Vec<RequestHeader>>,
    /// Connections are turned away for so long.
    pub(crate) turns_away: Mutex<Option<Duration>>,
}

impl Toy {
    pub(crate) fn logged_in() -> Arc<Self> {
        Arc::new(Self {
            logged_in: true,
            ..Self::default()
        })
    }

    /// Waits until a condition of the deferred requests holds.
    pub(crate) fn wait_deferred(&self, count: usize) {
        let mut deferred = self.deferred.lock();
        let until = Instant::now() + PATIENCE;
        while deferred.len() < count {
            let timed_out = self.changed.wait_until(&mut deferred, until).timed_out();
            assert!(!timed_out, "only {} requests were deferred", deferred.len());
        }
    }

    pub(crate) fn take_deferred(&self) -> Vec<(Bytes, ReplySlot)> {
        std::mem::take(&mut self.deferred.lock())
    }

    pub(crate) fn started(&self) -> usize {
        self.started.lock().len()
    }

    pub(crate) fn open_gate(&self) {
        self.gate_open.store(true, Ordering::SeqCst);
        self.unparkers.lock().iter().for_each(Unparker::wake);
    }
}

/// Local wrapper, so that the trait can be implemented for a shared toy.
pub(crate) struct Shared(pub(crate) Arc<Toy>);

impl Service for Shared {
    type Conn = ();

    fn admit(&self, _: IpAddr, _: usize) -> Admission {
        let time = *self.0.turns_away.lock();
        time.map_or(Admission::Yes, Admission::CloseAfter)
    }

    fn opened(&self, info: &ConnInfo) {
        info.set_logged_in(self.0.logged_in);
        self.0.opened.fetch_add(1, Ordering::SeqCst);
    }

    fn class(&self, (): &(), header: &RequestHeader) -> Class {
        self.0.headers.lock().push(header.clone());
        match header.api_key {
            0 => Class::Pipelined,
            99 => Class::Refuse(CloseReason::Service("UNSUPPORTED_VERSION")),
            _ => Class::Exclusive,
        }
    }

    fn call(&self, (): &mut (), request: Request, slot: ReplySlot) -> Flow {
        let toy = &self.0;
        let body = request.body;
        toy.started.lock().push(body.to_vec());
        if let Some(hoard) = &mut *toy.hoard.lock() {
            hoard.push(body.clone());
        }
        let what = match body.first() {
            Some(&what) if !toy.closes_all.load(Ordering::SeqCst) => what,
            _ => {
                slot.close(CloseReason::Service("INVALID_REQUEST"));
                return Flow::Done;
            }
        };
        act(toy, what, body.slice(1..), slot)
    }

    fn finished(&self, (): &mut ()) {
        self.0.finished.fetch_add(1, Ordering::SeqCst);
    }

    fn closed(&self, (): ()) {
        self.0.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn act(toy: &Arc<Toy>, what: u8, payload: Bytes, slot: ReplySlot) -> Flow {
    match what {
        b'e' => slot.reply(payload),
        b't' => {
            std::thread::spawn(move || slot.reply(payload));
        }
        b's' => slot.silent(),
        b'm' => {
            slot.mute(Duration::from_secs(3_600));
            slot.silent();
        }
        b'c' => slot.close(CloseReason::Service("INVALID_REQUEST")),
        b'l' => drop(slot),
        b'x' => panic!("planted"),
        // Holds the net thread up until the gate is open.
        b'w' => {
            eventually("the gate is open", || toy.gate_open.load(Ordering::SeqCst));
            slot.reply(payload);
        }
        b'b' => {
            let length = u32::from_be_bytes(payload[..4].try_into().unwrap());
            let part = Bytes::from(vec![b'B'; usize::try_from(length).unwrap() / 4]);
            slot.reply(ResponseBody::from(vec![part; 4]));
        }
        b'd' => {
            toy.deferred.lock().push((payload, slot));
            toy.changed.notify_all();
        }
        b'p' => {
            toy.unparkers.lock().push(slot.unparker());
            return push_on(Arc::clone(toy), payload, slot);
        }
        _ => slot.close(CloseReason::Service("UNKNOWN_SERVER_ERROR")),
    }
    Flow::Done
}

fn push_on(toy: Arc<Toy>, payload: Bytes, slot: ReplySlot) -> Flow {
    if toy.gate_open.load(Ordering::SeqCst) {
        slot.reply(payload);
        return Flow::Done;
    }
    Flow::Park(Box::new(move || {
        toy.resumes.fetch_add(1, Ordering::SeqCst);
        push_on(toy, payload, slot)
    }))
}

pub(crate) fn config(limits: Limits) -> NetConfig {
    NetConfig {
        threads: 2,
        limits,
        listeners: vec![Listener {
            tls: None,
            name: "TEST".into(),
            addr: "127.0.0.1:0".parse().unwrap(),
        }],
    }
}

pub(crate) fn start_with(toy: &Arc<Toy>, limits: Limits) -> Server {
    Server::start(config(limits), Arc::new(Shared(Arc::clone(toy)))).unwrap()
}

/// A server with default limits.
pub(crate) fn start() -> (Arc<Toy>, Server) {
    let toy = Toy::logged_in();
    let server = start_with(&toy, Limits::default());
    (toy, server)
}

/// The bytes of a request frame.
pub(crate) fn frame((key, version): (i16, i16), correlation: i32, body: &[u8]) -> Vec<u8> {
    let flexible = seawall_net::wire::request_is_flexible(key, version);
    let mut rest = Vec::new();
    rest.extend_from_slice(&key.to_be_bytes());
    rest.extend_from_slice(&version.to_be_bytes());
    rest.extend_from_slice(&correlation.to_be_bytes());
    rest.extend_from_slice(&[0, 3]);
    rest.extend_from_slice(b"toy");
    if flexible {
        rest.push(0);
    }
    rest.extend_from_slice(body);
    let mut bytes = u32::try_from(rest.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(rest);
    bytes
}

/// A client that never waits for ever.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    pub(crate) fn connect(server: &Server) -> Self {
        Self::connect_to(server.local_addrs()[0])
    }

    pub(crate) fn connect_to(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream }
    }

    pub(crate) fn send(&mut self, kind: (i16, i16), correlation: i32, body: &[u8]) {
        self.raw(&frame(kind, correlation, body));
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Correlation id and body of the next reply.
    pub(crate) fn reply(&mut self) -> (i32, Vec<u8>) {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).unwrap();
        let mut rest = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
        self.stream.read_exact(&mut rest).unwrap();
        let correlation = i32::from_be_bytes(rest[..4].try_into().unwrap());
        (correlation, rest.split_off(4))
    }

    /// Waits for the server's end of stream; returns what came before it.
    pub(crate) fn until_closed(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => rest,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => rest,
            Err(error) => panic!("the connection was not closed: {error}"),
        }
    }

    pub(crate) fn finish(&mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

/// Waits for a condition with a deadline; checks it again whenever other threads had a chance.
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "never happened: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Random bytes that are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next().to_be_bytes()[3]).collect()
    }

    pub(crate) fn below(&mut self, limit: u64) -> usize {
        usize::try_from(self.next() % limit).unwrap()
    }
}

/// Resident memory of this process in bytes.
pub(crate) fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}
