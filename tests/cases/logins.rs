//! A broker with users, and a client's side of SASL by hand.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::process::{Command, Output, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};
use seawall_testkit::kafka_wire::*;
use seawall_testkit::ports::free_port;
use seawall_testkit::{Broker, Bytes, Raw};
use tempfile::TempDir;

use super::codes;
use crate::setup;

pub(crate) const ALICE: (&str, &str) = ("alice", "alice's secret");
pub(crate) const BOB: (&str, &str) = ("bob", "bob's secret");
pub(crate) const ALL_MECHANISMS: &str = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512";

/// A broker with a plaintext listener and one with SASL, and two users.
pub(crate) struct Guarded {
    pub(crate) broker: Broker,
    pub(crate) sasl: SocketAddr,
    _home: TempDir,
}

impl Guarded {
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let data = home.path().join("data");
        for (name, password) in [ALICE, BOB] {
            let added = user(&["add", name, "--password-stdin"], &data, password);
            assert!(added.status.success(), "{added:?}");
        }
        let [plain, sasl] =
            [free_port(), free_port()].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let listeners = format!("PLAINTEXT://{plain},SASL_PLAINTEXT://{sasl}");
        let mut setup = setup()
            .on(&data)
            .listening(plain)
            .set("listeners", &listeners)
            .set("sasl.enabled.mechanisms", ALL_MECHANISMS);
        for (key, value) in settings {
            setup = setup.set(key, value);
        }
        Self {
            broker: setup.start(),
            sasl,
            _home: home,
        }
    }

    /// A connection that has not logged in.
    pub(crate) fn connect(&self) -> Raw {
        Raw::connect(self.sasl)
    }

    /// A connection that has named its mechanism.
    pub(crate) fn begun(&self, mechanism: &str) -> Raw {
        let mut raw = self.connect();
        let answer = handshake(&mut raw, mechanism);
        assert_eq!(answer.error_code, codes::NONE);
        raw
    }
}

/// `seawall user ...` on a data directory.
pub(crate) fn user(words: &[&str], data: &std::path::Path, password: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_seawall"))
        .arg("user")
        .args(words)
        .arg("--data-dir")
        .arg(data)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start seawall user");
    let mut stdin = child.stdin.take().expect("its standard input");
    // One that refuses before it reads is gone already.
    writeln!(stdin, "{password}").ok();
    drop(stdin);
    child.wait_with_output().expect("its end")
}

pub(crate) fn handshake(raw: &mut Raw, mechanism: &str) -> SaslHandshakeResponse {
    let mut request = SaslHandshakeRequest::default();
    request.mechanism = mechanism.into();
    raw.call::<SaslHandshakeRequest>(1, &request)
}

pub(crate) fn token(raw: &mut Raw, token: &[u8]) -> SaslAuthenticateResponse {
    let mut request = SaslAuthenticateRequest::default();
    request.auth_bytes = Bytes::copy_from_slice(token);
    raw.call::<SaslAuthenticateRequest>(2, &request)
}

pub(crate) fn plain((user, password): (&str, &str)) -> Vec<u8> {
    format!("\0{user}\0{password}").into_bytes()
}

/// Whether the connection may do what needs a login.
pub(crate) fn may_ask_for_metadata(raw: &mut Raw) -> bool {
    let request = seawall_testkit::requests::metadata(9, &[]);
    raw.send(9, &request);
    raw.read_frame().is_some()
}

/// The client's side of SCRAM, from RFC 5802 and not from the broker.
pub(crate) struct Scram {
    hmac: hmac::Algorithm,
    pbkdf2: pbkdf2::Algorithm,
    digest: &'static digest::Algorithm,
    password: String,
    first_bare: String,
}

impl Scram {
    pub(crate) fn new(mechanism: &str, (user, password): (&str, &str)) -> Self {
        let long = mechanism.ends_with("512");
        Self {
            hmac: if long {
                hmac::HMAC_SHA512
            } else {
                hmac::HMAC_SHA256
            },
            pbkdf2: if long {
                pbkdf2::PBKDF2_HMAC_SHA512
            } else {
                pbkdf2::PBKDF2_HMAC_SHA256
            },
            digest: if long {
                &digest::SHA512
            } else {
                &digest::SHA256
            },
            password: password.to_owned(),
            first_bare: format!("n={user},r=clientnonce"),
        }
    }

    pub(crate) fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.first_bare).into_bytes()
    }

    fn mac(&self, key: &[u8], text: &[u8]) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(self.hmac, key), text)
            .as_ref()
            .to_vec()
    }

    /// The last message, and what the server must answer to it.
    pub(crate) fn last(&self, server_first: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (nonce, salt, rounds) = server_fields(server_first);
        let rounds = NonZeroU32::new(rounds).expect("rounds");
        let mut salted = vec![0; self.digest.output_len()];
        pbkdf2::derive(
            self.pbkdf2,
            rounds,
            &salt,
            self.password.as_bytes(),
            &mut salted,
        );
        let client_key = self.mac(&salted, b"Client Key");
        let stored_key = digest::digest(self.digest, &client_key);
        let without_proof = format!("c=biws,r={nonce}");
        let server_first = std::str::from_utf8(server_first).expect("text");
        let covered = format!("{},{server_first},{without_proof}", self.first_bare);
        let signature = self.mac(stored_key.as_ref(), covered.as_bytes());
        let proof: Vec<u8> = client_key
            .iter()
            .zip(&signature)
            .map(|(a, b)| a ^ b)
            .collect();
        let last = format!("{without_proof},p={}", BASE64.encode(proof));
        let server = self.mac(&self.mac(&salted, b"Server Key"), covered.as_bytes());
        let expected = format!("v={}", BASE64.encode(server));
        (last.into_bytes(), expected.into_bytes())
    }
}

/// Nonce, salt and rounds of a server's first message.
pub(crate) fn server_fields(message: &[u8]) -> (String, Vec<u8>, u32) {
    let text = std::str::from_utf8(message).expect("text");
    let fields: Vec<&str> = text.split(',').collect();
    let nonce = fields[0].strip_prefix("r=").expect("a nonce").to_owned();
    let salt = fields[1].strip_prefix("s=").expect("a salt");
    let rounds = fields[2].strip_prefix("i=").expect("rounds");
    let salt = BASE64.decode(salt).expect("base64");
    (nonce, salt, rounds.parse().expect("a number"))
}
