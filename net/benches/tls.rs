//! What TLS costs: handshakes, large answers, and the memory of connections that idle.
//!
//! `cargo bench -p seawall-net --bench tls`; client and server share the machine, so that each figure is of both.

#![allow(missing_docs, reason = "a program")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rcgen::{CertificateParams, KeyPair};
use rustls::client::Resumption;
use rustls::crypto::ring as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned,
    SupportedProtocolVersion,
};
use seawall_net::wire::RequestHeader;
use seawall_net::{
    Class, ConnInfo, Flow, Limits, Listener, NetConfig, ReplySlot, Request, Server, Service,
    TlsSlot,
};

const HANDSHAKES: usize = 2_000;
const ANSWERS: usize = 2_000;
const ANSWER_BYTES: usize = 1024 * 1024;
const IDLE_MAX: usize = 10_000;

/// Answers every request with the same bytes.
struct Answer(Bytes);

impl Service for Answer {
    type Conn = ();

    fn opened(&self, info: &ConnInfo) {
        info.set_logged_in(true);
    }

    fn class(&self, (): &(), _: &RequestHeader) -> Class {
        Class::Pipelined
    }

    fn call(&self, (): &mut (), _: Request, slot: ReplySlot) -> Flow {
        slot.reply(self.0.clone());
        Flow::Done
    }

    fn closed(&self, (): ()) {}
}

struct Place {
    server: Server,
    roots: RootCertStore,
}

impl Place {
    fn start() -> Self {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        let chain = vec![certificate.der().clone()];
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
        let provider = Arc::new(provider::default_provider());
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain.clone(), key)
            .expect("a certificate");
        config.ticketer = provider::Ticketer::new().expect("random bytes");
        let mut roots = RootCertStore::empty();
        roots.add(chain[0].clone()).expect("a root");
        let listener = |name: &str, tls| Listener {
            tls,
            name: name.to_owned(),
            addr: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        let slot = Arc::new(TlsSlot::new(Arc::new(config)));
        let config = NetConfig {
            threads: 1,
            limits: Limits {
                connections_max: 30_000,
                connections_per_address_max: 30_000,
                connections_per_second_max: 1_000_000,
                ..Limits::default()
            },
            listeners: vec![listener("PLAIN", None), listener("TLS", Some(slot))],
        };
        let service = Answer(Bytes::from(vec![7; ANSWER_BYTES]));
        let server = Server::start(config, Arc::new(service)).expect("a server on loopback");
        Self { server, roots }
    }

    fn client(&self, version: &'static SupportedProtocolVersion) -> ClientConfig {
        let provider = Arc::new(provider::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth()
    }

    fn tls(&self, config: &Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(Arc::clone(config), name).expect("a session");
        let mut stream = StreamOwned::new(session, self.plain(1));
        while stream.conn.is_handshaking() {
            stream
                .conn
                .complete_io(&mut stream.sock)
                .expect("a handshake");
        }
        stream
    }

    fn plain(&self, listener: usize) -> TcpStream {
        let stream = TcpStream::connect(self.server.local_addrs()[listener]).expect("connect");
        stream.set_nodelay(true).expect("TCP");
        stream
    }

    fn handshakes(&self, resumed: bool) {
        // Tickets of TLS 1.2 come within the handshake.
        let version = if resumed { &TLS12 } else { &TLS13 };
        let mut config = self.client(version);
        if !resumed {
            config.resumption = Resumption::disabled();
        }
        let config = Arc::new(config);
        let began = Instant::now();
        for _ in 0..HANDSHAKES {
            drop(self.tls(&config));
        }
        let kind = if resumed {
            "resumed (TLS 1.2)"
        } else {
            "full (TLS 1.3)"
        };
        println!(
            "{:>10.0} {kind} handshakes/s",
            per_second(HANDSHAKES, began)
        );
    }

    fn idle(&self, count: usize) {
        let mut config = self.client(&TLS13);
        config.resumption = Resumption::disabled();
        let config = Arc::new(config);
        let before = rss_kib();
        let plain: Vec<TcpStream> = (0..count).map(|_| self.plain(0)).collect();
        while self.server.stats().connections < count as u64 {
            std::thread::yield_now();
        }
        let with_plain = rss_kib();
        drop(plain);
        while self.server.stats().connections > 0 {
            std::thread::yield_now();
        }
        let between = rss_kib();
        // The client's sessions go at once: only sockets stay on its side.
        let sealed: Vec<TcpStream> = (0..count).map(|_| self.tls(&config).sock).collect();
        while self.server.stats().tls.handshakes < count as u64
            && self.server.stats().connections < count as u64
        {
            std::thread::yield_now();
        }
        let with_tls = rss_kib();
        drop(sealed);
        let each = |kib: u64| kib as f64 / count as f64;
        println!(
            "{:>10.1} KiB for each of {count} idle plain connections",
            each(with_plain - before)
        );
        println!(
            "{:>10.1} KiB for each of {count} idle TLS connections",
            each(with_tls.saturating_sub(between))
        );
    }
}

fn answers(stream: &mut (impl Read + Write), count: usize) {
    let request = b"\0\0\0\x0a\0\0\0\x03\0\0\0\x07\xff\xff";
    let mut frame = vec![0; ANSWER_BYTES + 8];
    for _ in 0..count {
        stream.write_all(request).expect("write");
        stream.read_exact(&mut frame).expect("read");
    }
}

fn throughput(name: &str, stream: &mut (impl Read + Write)) {
    answers(stream, ANSWERS / 10);
    let began = Instant::now();
    answers(stream, ANSWERS);
    println!(
        "{:>10.0} MiB/s of answers, {name}",
        per_second(ANSWERS, began)
    );
}

fn per_second(count: usize, since: Instant) -> f64 {
    count as f64 / since.elapsed().as_secs_f64()
}

fn rss_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn main() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("the hard limit");
    // Both ends of each connection are ours.
    let files = usize::try_from(hard).unwrap_or(usize::MAX);
    Place::start().idle(IDLE_MAX.min(files.saturating_sub(1_000) / 2));
    let place = Place::start();
    place.handshakes(false);
    place.handshakes(true);
    throughput("plain", &mut place.plain(0));
    throughput("TLS 1.3", &mut place.tls(&Arc::new(place.client(&TLS13))));
}
