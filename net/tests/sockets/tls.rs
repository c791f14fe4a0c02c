//! What a socket promises, below TLS as well.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::ring as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use seawall_net::{Limits, Listener, NetConfig, Server, TlsSlot};

use crate::support::{Client, EXCLUSIVE, PIPELINED, Shared, Toy, eventually, frame};

/// One net thread with a plain listener and one of TLS.
struct Sealed {
    toy: Arc<Toy>,
    server: Server,
    client: Arc<ClientConfig>,
}

type Secure = StreamOwned<ClientConnection, TcpStream>;

impl Sealed {
    fn start() -> Self {
        let toy = Toy::logged_in();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let provider = Arc::new(provider::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = Some(Arc::new(TlsSlot::new(Arc::new(config))));
        let listener = |name: &str, tls| Listener {
            name: name.into(),
            addr: "127.0.0.1:0".parse().unwrap(),
            tls,
        };
        let config = NetConfig {
            threads: 1,
            limits: Limits::default(),
            listeners: vec![listener("PLAIN", None), listener("SEALED", tls)],
        };
        let server = Server::start(config, Arc::new(Shared(Arc::clone(&toy)))).unwrap();
        let client = Arc::new(client);
        Self {
            toy,
            server,
            client,
        }
    }

    /// A connection that is served.
    fn connect(&self) -> Secure {
        let stream = Client::connect_to(self.server.local_addrs()[1]).stream;
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::clone(&self.client), name).unwrap();
        let mut secure = StreamOwned::new(session, stream);
        secure.write_all(&frame(EXCLUSIVE, 1, b"e")).unwrap();
        let mut reply = [0; 8];
        secure.read_exact(&mut reply).unwrap();
        secure
    }

    /// Does something while the net thread is held up, so that it meets all of it at once.
    fn at_once(&self, act: impl FnOnce()) {
        let started = self.toy.started();
        let mut blocker = Client::connect(&self.server);
        blocker.send(EXCLUSIVE, 1, b"w");
        eventually("it is held up", || self.toy.started() == started + 1);
        act();
        self.toy.open_gate();
        blocker.reply();
    }
}

/// A TLS record of the right form that no key opens.
const BAD_RECORD: &[u8; 21] = b"\x17\x03\x03\x00\x10sixteen bytes...";

#[test]
fn what_arrived_before_a_reset_or_a_bad_record_is_started() {
    const REQUESTS: usize = 500;
    for bad_record in [false, true] {
        let sealed = Sealed::start();
        let mut secure = sealed.connect();
        let before = sealed.toy.started();
        sealed.at_once(|| {
            let one = frame(PIPELINED, 0, b"srecords");
            secure.write_all(&one.repeat(REQUESTS)).unwrap();
            secure.flush().unwrap();
            if bad_record {
                secure.sock.write_all(BAD_RECORD).unwrap();
            } else {
                let socket = socket2::SockRef::from(&secure.sock);
                socket.set_linger(Some(Duration::ZERO)).unwrap();
            }
            drop(secure);
        });
        eventually("all is closed", || sealed.server.stats().connections == 0);
        assert_eq!(sealed.toy.started(), before + 1 + REQUESTS, "{bad_record}");
    }
}
