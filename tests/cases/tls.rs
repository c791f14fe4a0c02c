//! TLS: versions, resumption, certificates of clients, certificates that change, and what does not speak TLS.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::crypto::ring as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use seawall_testkit::kafka_wire::{ApiVersionsRequest, CreateTopicsRequest, MetadataRequest};
use seawall_testkit::ports::free_port;
use seawall_testkit::raw::{decode_response, encode_frame};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{Broker, Bytes, Raw, metrics, requests};
use tempfile::TempDir;

use super::codes;
use crate::setup;

/// Somebody who issues certificates.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
struct Identity {
    chain: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    fn issue(&self, name: &str, until_year: i32) -> Identity {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Sea, and wall");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until_year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity {
            chain: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Identity {
    fn write(&self, path: &Path) {
        let temp = path.with_extension("new");
        fs::write(&temp, format!("{}{}", self.key, self.chain)).expect("write");
        fs::rename(&temp, path).expect("put it in place");
    }
}

/// A broker with a listener of TLS beside a plaintext one.
struct Sealed {
    broker: Broker,
    tls: SocketAddr,
    authority: Authority,
    key_file: PathBuf,
    _home: TempDir,
}

impl Sealed {
    fn start(settings: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let authority = Authority::new("the authority");
        let key_file = home.path().join("server.pem");
        authority.issue("the server", 2090).write(&key_file);
        let trust = home.path().join("trust.pem");
        fs::write(&trust, &authority.pem).expect("write");
        let [plain, tls] =
            [free_port(), free_port()].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let mut setup = setup()
            .listening(plain)
            .set("listeners", &format!("PLAINTEXT://{plain},SSL://{tls}"))
            .set("ssl.keystore.location", &key_file.to_string_lossy())
            .set("ssl.truststore.location", &trust.to_string_lossy());
        for (key, value) in settings {
            setup = setup.set(key, value);
        }
        Self {
            broker: setup.start(),
            tls,
            authority,
            key_file,
            _home: home,
        }
    }

    fn client(&self, identity: Option<&Identity>) -> ClientConfig {
        client_config(&self.authority, identity, rustls::ALL_VERSIONS)
    }

    fn connect(&self, config: ClientConfig) -> Secure {
        Secure::connect(self.tls, Arc::new(config))
    }

    fn hang_up(&self) {
        let pid = i32::try_from(self.broker.pid()).expect("a pid");
        kill(Pid::from_raw(pid), Signal::SIGHUP).expect("send SIGHUP");
    }

    fn metric(&self, name: &str) -> f64 {
        let text = metrics::scrape(self.broker.admin());
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).expect(name)
    }
}

fn client_config(
    authority: &Authority,
    identity: Option<&Identity>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("PEM");
    roots.add(root).expect("a root");
    let builder = ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots);
    let Some(identity) = identity else {
        return builder.with_no_client_auth();
    };
    let chain = CertificateDer::pem_slice_iter(identity.chain.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("PEM");
    builder.with_client_auth_cert(chain, key).expect("a key")
}

/// A connection by TLS.
struct Secure(StreamOwned<ClientConnection, TcpStream>);

impl Secure {
    fn connect(addr: SocketAddr, config: Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(config, name).expect("a session");
        let stream = TcpStream::connect(addr).expect("connect");
        stream.set_read_timeout(Some(SOON)).expect("a timeout");
        Self(StreamOwned::new(session, stream))
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.0.write_all(frame)?;
        self.0.flush()
    }

    fn frame(&mut self) -> io::Result<Bytes> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length)).expect("a length")];
        self.0.read_exact(&mut frame)?;
        Ok(frame.into())
    }

    /// Asks for the versions; an error says why TLS did not let it.
    fn ask(&mut self) -> io::Result<()> {
        self.send(&encode_frame(0, 7, &ApiVersionsRequest::default()))?;
        let answer = decode_response::<ApiVersionsRequest>(0, 7, self.frame()?);
        assert!(answer.api_keys.len() > 40);
        Ok(())
    }
}

fn refusal(sealed: &Sealed, config: ClientConfig) -> String {
    let asked = sealed.connect(config).ask();
    asked.expect_err("refused").to_string()
}

#[test]
fn both_versions_are_spoken_and_sessions_are_resumed() {
    let sealed = Sealed::start(&[]);
    for version in rustls::ALL_VERSIONS {
        let config = Arc::new(client_config(&sealed.authority, None, &[version]));
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut secure = Secure::connect(sealed.tls, Arc::clone(&config));
            secure.ask().expect("an answer");
            assert_eq!(secure.0.conn.protocol_version(), Some(version.version));
            assert_eq!(secure.0.conn.handshake_kind(), Some(kind));
        }
    }
    assert_eq!(sealed.metric("seawall_tls_handshakes_total"), 4.0);
    assert_eq!(sealed.metric("seawall_tls_handshakes_resumed_total"), 2.0);
    let ends = sealed.metric("seawall_tls_certificate_expiry_timestamp_seconds");
    assert_eq!(ends, 3_786_912_000.0, "2090-01-01");
}

#[test]
fn a_version_that_is_not_enabled_is_refused() {
    let sealed = Sealed::start(&[("ssl.enabled.protocols", "TLSv1.3")]);
    let old = client_config(&sealed.authority, None, &[&rustls::version::TLS12]);
    let words = refusal(&sealed, old);
    assert!(words.contains("ProtocolVersion"), "{words}");
    sealed
        .connect(sealed.client(None))
        .ask()
        .expect("an answer");
}

#[test]
fn large_requests_and_answers_cross_whole_while_many_wait() {
    let sealed = Sealed::start(&[]);
    let mut secure = sealed.connect(sealed.client(None));
    let names: Vec<String> = (0..4000)
        .map(|n| format!("missing-topic-number-{n:06}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let request = seawall_testkit::requests::metadata(9, &names);
    let mut frames = Vec::new();
    for correlation in 1..=40 {
        frames.extend_from_slice(&encode_frame(9, correlation, &request));
    }
    let mut reader = Secure(secure.0);
    reader.send(&frames).expect("sent");
    for correlation in 1..=40 {
        let frame = reader.frame().expect("an answer");
        let answer = decode_response::<MetadataRequest>(9, correlation, frame);
        assert_eq!(answer.topics.len(), names.len());
        assert_eq!(
            answer.topics[3999].name.as_ref().expect("a name").as_str(),
            names[3999]
        );
    }
    secure = reader;
    secure.0.conn.send_close_notify();
    secure.0.flush().expect("flushed");
    let mut rest = Vec::new();
    secure
        .0
        .read_to_end(&mut rest)
        .expect("the broker closes in order, too");
    assert!(rest.is_empty());
}

#[test]
fn clients_without_a_good_certificate_are_refused_where_one_is_required() {
    let sealed = Sealed::start(&[("ssl.client.auth", "required")]);
    let authority = &sealed.authority;
    let good = authority.issue("alice", 2090);
    sealed
        .connect(sealed.client(Some(&good)))
        .ask()
        .expect("let in");
    let other = Authority::new("the authority");
    for (identity, words) in [
        (None, "CertificateRequired"),
        (Some(authority.issue("late", 2021)), "CertificateExpired"),
        (Some(other.issue("stranger", 2090)), "UnknownCA"),
    ] {
        let told = refusal(&sealed, sealed.client(identity.as_ref()));
        let decrypted = told.contains("DecryptError") && words == "UnknownCA";
        assert!(told.contains(words) || decrypted, "{words}: {told}");
    }
    wait::until("each is counted", SOON, || {
        sealed.metric("seawall_tls_handshakes_failed_total") >= 3.0
    });
    let log = sealed.broker.log();
    assert!(
        log.contains("wants one") && log.contains("has expired"),
        "{log}"
    );
}

#[test]
fn a_certificate_is_welcome_where_it_is_requested_and_a_bad_one_is_not() {
    let sealed = Sealed::start(&[("ssl.client.auth", "requested")]);
    sealed.connect(sealed.client(None)).ask().expect("let in");
    let late = sealed.authority.issue("late", 2021);
    refusal(&sealed, sealed.client(Some(&late)));
}

#[test]
fn a_rule_makes_the_user_and_whom_none_makes_a_user_of_is_not_let_in() {
    // The comma of the organisation is escaped, and the name comes first, as Java writes it.
    let rules = "RULE:^CN=(alice|carol),O=Sea\\\\, and wall$/$1/U";
    let sealed = Sealed::start(&[
        ("ssl.client.auth", "required"),
        ("ssl.principal.mapping.rules", rules),
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ("super.users", "User:ALICE"),
    ]);
    // Each is the user that the rule makes, and no other.
    for (name, code) in [
        ("alice", codes::NONE),
        ("carol", codes::TOPIC_AUTHORIZATION_FAILED),
    ] {
        let identity = sealed.authority.issue(name, 2090);
        let mut secure = sealed.connect(sealed.client(Some(&identity)));
        let topics = vec![requests::topic(name, 1, &[])];
        let request = requests::create_topics(topics);
        secure.send(&encode_frame(7, 1, &request)).expect("let in");
        let answer = secure.frame().expect("an answer");
        let answer = decode_response::<CreateTopicsRequest>(7, 1, answer);
        assert_eq!(answer.topics[0].error_code, code, "{name}");
    }
    let bob = sealed.authority.issue("bob", 2090);
    refusal(&sealed, sealed.client(Some(&bob)));
    wait::until("it says why", SOON, || {
        sealed.broker.log().contains("no rule makes a user")
    });
}

/// The serial number of the certificate that new connections see.
fn served(sealed: &Sealed) -> Vec<u8> {
    let mut secure = sealed.connect(sealed.client(None));
    secure.ask().expect("an answer");
    let chain = secure.0.conn.peer_certificates().expect("a certificate");
    chain[0].to_vec()
}

#[test]
fn a_new_certificate_is_taken_without_dropping_anybody_and_a_bad_one_is_not() {
    let sealed = Sealed::start(&[]);
    let mut before = sealed.connect(sealed.client(None));
    before.ask().expect("an answer");
    let first = served(&sealed);
    sealed
        .authority
        .issue("the next", 2091)
        .write(&sealed.key_file);
    wait::until("new connections see it, without a signal", SOON, || {
        served(&sealed) != first
    });
    before.ask().expect("the old connection goes on");
    let second = served(&sealed);
    for bad in [
        "",
        "no PEM at all",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        fs::write(&sealed.key_file, bad).expect("write");
        let said = || {
            sealed
                .broker
                .log()
                .matches("keeps the certificates")
                .count()
        };
        let so_far = said();
        sealed.hang_up();
        wait::until("it says so", SOON, || said() > so_far);
        assert_eq!(served(&sealed), second, "{bad:?}");
    }
    before.ask().expect("still");
}

#[test]
fn what_is_no_tls_is_named_and_closed() {
    let sealed = Sealed::start(&[]);
    let mut raw = Raw::connect(sealed.tls);
    raw.send(0, &ApiVersionsRequest::default());
    raw.expect_closed("plaintext on a TLS port");
    wait::until("it is named", SOON, || {
        sealed.broker.log().contains("speaks something else")
    });
    // A hello on the plaintext port is named as well.
    let config = Arc::new(sealed.client(None));
    let mut secure = Secure::connect(sealed.broker.addr(), config);
    secure.ask().expect_err("no TLS here");
    wait::until("it is named", SOON, || {
        sealed.broker.log().contains("speaks TLS")
    });
}

#[test]
fn thousands_of_half_open_handshakes_hold_up_nobody_and_are_counted_when_they_time_out() {
    const STRANGERS: usize = 3_000;
    let sealed = Sealed::start(&[("connections.max.idle.ms", "5000")]);
    let config = Arc::new(sealed.client(None));
    Secure::connect(sealed.tls, Arc::clone(&config))
        .ask()
        .expect("served");
    let mut hello = Vec::new();
    let name = ServerName::try_from("localhost").expect("a name");
    let mut session = ClientConnection::new(Arc::clone(&config), name).expect("a session");
    session.write_tls(&mut hello).expect("a hello");
    let before = sealed.broker.proc_status("VmRSS");
    // Nothing; the begin of a record; half of a hello; all of it, and then nothing.
    let parts = [0, 3, hello.len() / 2, hello.len()];
    let mut strangers: Vec<Raw> = (0..STRANGERS).map(|_| Raw::connect(sealed.tls)).collect();
    for (raw, part) in strangers.iter_mut().zip(parts.into_iter().cycle()) {
        raw.send_bytes(&hello[..part]);
    }
    for _ in 0..10 {
        let mut other = Secure::connect(sealed.tls, Arc::clone(&config));
        other.ask().expect("served beside them");
    }
    let grown = sealed.broker.proc_status("VmRSS").saturating_sub(before);
    println!("{STRANGERS} half-open handshakes: {grown} KiB");
    assert!(grown < 100 * 1024, "{grown} KiB");
    let late = "seawall_connections_closed_total{reason=\"handshake_deadline\"}";
    wait::until("all are timed out", 6 * SOON, || {
        sealed.metric(late) >= 3_000.0
    });
    let failed = sealed.metric("seawall_tls_handshakes_failed_total");
    assert!(failed >= 3_000.0, "{failed}");
    Secure::connect(sealed.tls, config).ask().expect("served");
}

#[test]
fn stores_that_cannot_be_read_are_refused_with_the_way_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let authority = Authority::new("a");
    let identity = authority.issue("server", 2090);
    let other = authority.issue("other", 2090);
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for (bytes, words) in [
        (
            vec![0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2],
            "keytool -importkeystore",
        ),
        (vec![0x30, 0x82, 1, 0], "openssl pkcs12 -in"),
        (
            format!("{encrypted}{}", identity.chain).into_bytes(),
            "openssl pkey -in",
        ),
        (identity.chain.clone().into_bytes(), "no private key"),
        (identity.key.clone().into_bytes(), "no certificate"),
        (
            format!("{}{}", other.key, identity.chain).into_bytes(),
            "cannot be used",
        ),
    ] {
        fs::write(&path, bytes).expect("write");
        let listeners = format!("SSL://127.0.0.1:{}", free_port());
        let (status, log) = setup()
            .set("listeners", &listeners)
            .set("ssl.keystore.location", &path.to_string_lossy())
            .start_expecting_exit();
        assert!(!status.success() && log.contains(words), "{words}: {log}");
    }
    let (status, log) = setup()
        .set("listeners", "SSL://127.0.0.1:0")
        .set("ssl.keystore.location", "/x.jks")
        .set("ssl.keystore.type", "JKS")
        .start_expecting_exit();
    assert!(
        !status.success() && log.contains("keytool -importkeystore"),
        "{log}"
    );
}
