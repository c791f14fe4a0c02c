//! Secrets that stand elsewhere: systemd's credentials, and Kafka's config providers.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use rustls::crypto::ring as provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use seawall_testkit::kafka_wire::ApiVersionsRequest;
use seawall_testkit::ports::free_port;
use seawall_testkit::raw::encode_frame;
use seawall_testkit::{Setup, tempfile};
use tempfile::TempDir;

use crate::setup;

/// What systemd makes of `LoadCredential=` lines, and a configuration that refers to it.
struct Unit {
    credentials: TempDir,
    files: TempDir,
    identity: rcgen::CertifiedKey<rcgen::KeyPair>,
    tls: SocketAddr,
}

impl Unit {
    fn new() -> Self {
        let names = vec!["localhost".to_owned()];
        Self {
            credentials: tempfile::tempdir().expect("a directory"),
            files: tempfile::tempdir().expect("a directory"),
            identity: rcgen::generate_simple_self_signed(names).expect("a certificate"),
            tls: SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())),
        }
    }

    fn key(&self) -> String {
        self.identity.signing_key.serialize_pem()
    }

    /// Key and certificate in one credential.
    fn load(&self, name: &str) {
        let pem = self.key() + &self.identity.cert.pem();
        fs::write(self.credentials.path().join(name), pem).expect("write");
    }

    /// The configuration file with these lines, `@@` standing for the credentials.
    fn configure(&self, lines: &str) -> std::path::PathBuf {
        let path = self.files.path().join("server.properties");
        let dir = self.credentials.path().display().to_string();
        fs::write(&path, lines.replace("@@", &dir)).expect("write");
        path
    }

    fn broker(&self, config: &Path) -> Setup {
        let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let listeners = format!("PLAINTEXT://{plain},SSL://{}", self.tls);
        let dir = self.credentials.path().to_string_lossy();
        let setup = setup().config(config).listening(plain);
        setup
            .set("listeners", &listeners)
            .env("CREDENTIALS_DIRECTORY", &dir)
    }

    /// A client that trusts this certificate and no other gets an answer.
    fn answers(&self) {
        let mut roots = RootCertStore::empty();
        roots.add(self.identity.cert.der().clone()).expect("a root");
        let config = ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(Arc::new(config), name).expect("a session");
        let mut stream = StreamOwned::new(session, TcpStream::connect(self.tls).expect("connect"));
        stream
            .write_all(&encode_frame(0, 7, &ApiVersionsRequest::default()))
            .expect("sent");
        let mut head = [0; 8];
        stream.read_exact(&mut head).expect("an answer");
        assert_eq!(head[4..], 7_i32.to_be_bytes());
    }
}

const FILE: &str = "ssl.keystore.location=${env:CREDENTIALS_DIRECTORY}/keystore.pem\n";

#[test]
fn a_key_file_comes_from_the_credentials_of_the_unit() {
    let unit = Unit::new();
    unit.load("keystore.pem");
    let _broker = unit.broker(&unit.configure(FILE)).start();
    unit.answers();
}

#[test]
fn the_key_itself_comes_from_a_file_by_kafkas_providers_and_is_never_shown() {
    let unit = Unit::new();
    let write = |name: &str, text: String| {
        fs::write(unit.credentials.path().join(name), text).expect("write");
    };
    write("key.pem", unit.key());
    let chain = unit.identity.cert.pem().replace('\n', "\\n");
    write("all.properties", format!("chain={chain}\n"));
    let config = unit.configure(
        "config.providers=secrets\n\
         config.providers.secrets.class=org.apache.kafka.common.config.provider.FileConfigProvider\n\
         ssl.keystore.key=${directory:@@:key.pem}\n\
         ssl.keystore.certificate.chain=${secrets:@@/all.properties:chain}\n\
         num.partitions=${env:SEAWALL_TEST_PARTITIONS}\n\
         logging.level=debug\n",
    );
    let setup = unit.broker(&config).env("SEAWALL_TEST_PARTITIONS", "3");
    let broker = setup.start();
    unit.answers();
    let secret = unit.key().lines().nth(1).expect("a line").to_owned();
    assert!(!broker.log().contains(&secret));
    // A secret in the place of something else is not shown by the error, either.
    let wrong = "num.partitions=${directory:@@:key.pem}\n";
    let (status, told) = unit.broker(&unit.configure(wrong)).start_expecting_exit();
    assert_eq!(status.code(), Some(78), "{told}");
    assert!(
        told.contains(":1: num.partitions: it must be") && !told.contains(&secret),
        "{told}"
    );
}

fn seawall(words: &[&str], credentials: Option<&Path>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(words).env_remove("CREDENTIALS_DIRECTORY");
    if let Some(dir) = credentials {
        command.env("CREDENTIALS_DIRECTORY", dir);
    }
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("run seawall");
    let told = [stdout, stderr].concat();
    (status.code(), String::from_utf8_lossy(&told).into_owned())
}

#[test]
fn a_missing_credential_is_named_by_the_start_the_check_and_the_doctor() {
    let unit = Unit::new();
    let config = unit.configure(&format!("{FILE}listeners=SSL://{}\n", unit.tls));
    let name = config.display().to_string();
    let check = ["config", "check", "--config", &name];
    let data = unit.files.path().display().to_string();
    let doctor = ["doctor", &data, "--config", &name];
    let unset = format!(
        "{name}:1: ssl.keystore.location=${{env:CREDENTIALS_DIRECTORY}}: the environment variable \
         CREDENTIALS_DIRECTORY is not set"
    );
    let file = unit.credentials.path().join("keystore.pem");
    let absent = format!("listener SSL: {} cannot be read", file.display());
    for (credentials, words) in [(None, &unset), (Some(unit.credentials.path()), &absent)] {
        for (command, status) in [(&check[..], 1), (&doctor[..], 0)] {
            let told = seawall(command, credentials);
            assert_eq!(told.0, Some(status), "{told:?}");
            assert!(
                told.1.contains(words.as_str()),
                "{words} is not in {}",
                told.1
            );
        }
    }
    assert!(seawall(&check, None).1.contains("LoadCredential="));
    let (status, told) = unit.broker(&config).start_expecting_exit();
    assert!(!status.success() && told.contains(&absent), "{told}");
    unit.load("keystore.pem");
    let told = seawall(&check, Some(unit.credentials.path()));
    assert_eq!(told.0, Some(0), "{told:?}");
    let told = seawall(&doctor, Some(unit.credentials.path()));
    assert!(!told.1.contains("secrets"), "{}", told.1);
}

#[test]
fn tools_that_need_no_secret_do_not_ask_for_it() {
    let unit = Unit::new();
    let data = unit.files.path().join("data");
    let config = unit.configure(&format!(
        "{FILE}log.dirs={}\nlisteners=SSL://:1\n",
        data.display()
    ));
    fs::create_dir(&data).expect("a directory");
    let name = config.display().to_string();
    let told = seawall(&["verify", "--config", &name], None);
    assert!(!told.1.contains("CREDENTIALS_DIRECTORY"), "{told:?}");
    let told = seawall(&["user", "list", "--config", &name], None);
    assert!(!told.1.contains("CREDENTIALS_DIRECTORY"), "{told:?}");
}
