//! The certificates of a listener: read, checked, and read again when they change.
//!
//! Owns:     PEM files, the settings that TLS sessions begin with, when our certificate ends.
//! Does not: speak TLS; the event loops do.
//!
//! # Invariants
//! K1. What cannot be used never replaces what is in use.
//! K2. Sessions of before are not resumed after a change: they were made under other certificates.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::crypto::ring as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use seawall_net::TlsSlot;
use seawall_planted::planted;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::files::{self, Print};
use super::mapping::{self, MappingRules};
use crate::config::{ClientAuth, Pem, Tls, TlsVersion};

/// How long before its end a certificate is warned of.
const WARN_BEFORE_S: i64 = 30 * 24 * 3600;

/// Why a listener has no TLS. The operator's fault.
#[derive(Debug)]
pub(crate) enum TlsError {
    /// A file cannot be read.
    Read(PathBuf, io::Error),
    /// It is a Java key store.
    Jks(String),
    /// It is a PKCS12 store.
    Pkcs12(String),
    /// The private key has a password.
    EncryptedKey(String),
    /// There is no private key in it.
    NoKey(String),
    /// There is no certificate in it.
    NoCertificate(String),
    /// Key and certificate do not belong together, or are of a kind that cannot be used.
    Unusable(String, rustls::Error),
    /// The certificates to trust cannot be used.
    Untrustable(String, String),
    /// `ssl.principal.mapping.rules`
    Mapping(super::mapping::BadRule),
    /// The system gives no random bytes.
    Random,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "{} cannot be read: {error}", path.display()),
            Self::Jks(path) => write!(
                f,
                "{path} is a Java key store, and only PEM is read: keytool -importkeystore -srckeystore {path} \
                 -destkeystore {path}.p12 -deststoretype PKCS12 && openssl pkcs12 -in {path}.p12 -nodes -out {path}.pem"
            ),
            Self::Pkcs12(path) => write!(
                f,
                "{path} is a PKCS12 store, and only PEM is read: openssl pkcs12 -in {path} -nodes -out {path}.pem"
            ),
            Self::EncryptedKey(path) => write!(
                f,
                "the private key in {path} is encrypted: openssl pkey -in {path} -out {path}.key, and put that key in \
                 its place, readable for this broker only"
            ),
            Self::NoKey(path) => write!(f, "there is no private key (PEM) in {path}"),
            Self::NoCertificate(path) => write!(f, "there is no certificate (PEM) in {path}"),
            Self::Unusable(path, error) => {
                write!(f, "key and certificate in {path} cannot be used: {error}")
            }
            Self::Untrustable(path, error) => {
                write!(
                    f,
                    "the certificates to trust in {path} cannot be used: {error}"
                )
            }
            Self::Mapping(error) => write!(f, "ssl.principal.mapping.rules: {error}"),
            Self::Random => f.write_str("the system gives no random bytes"),
        }
    }
}

/// TLS of one listener.
pub(crate) struct TlsListener {
    settings: Tls,
    /// What its connections begin with.
    pub(crate) slot: Arc<TlsSlot>,
    /// From certificates to users.
    rules: MappingRules,
    /// Seconds since 1970.
    not_after_s: AtomicI64,
    /// For which end a warning was given.
    warned_s: AtomicI64,
    print: parking_lot::Mutex<Print>,
}

impl TlsListener {
    /// Reads everything.
    pub(crate) fn open(settings: &Tls) -> Result<Self, TlsError> {
        let rules = MappingRules::parse(&settings.mapping_rules).map_err(TlsError::Mapping)?;
        let print = files::print(&paths(settings));
        let (config, not_after_s) = load(settings)?;
        Ok(Self {
            settings: settings.clone(),
            slot: Arc::new(TlsSlot::new(Arc::new(config))),
            rules,
            not_after_s: AtomicI64::new(not_after_s),
            warned_s: AtomicI64::new(0),
            print: parking_lot::Mutex::new(print),
        })
    }

    /// The user that a client's certificate names; `None` if no rule makes one of it.
    pub(crate) fn user_of(&self, certificate: &[u8]) -> Option<String> {
        self.rules.apply(&mapping::subject(certificate)?)
    }

    /// When our certificate ends, in seconds since 1970.
    pub(crate) fn not_after_s(&self) -> i64 {
        self.not_after_s.load(Ordering::Relaxed)
    }

    /// Reads the files again if they have changed, or anyway. Blocks on the disk.
    pub(crate) fn refresh(&self, anyway: bool) {
        let now = files::print(&paths(&self.settings));
        let changed = std::mem::replace(&mut *self.print.lock(), now.clone()) != now;
        if !changed && !anyway {
            return;
        }
        let listener = &self.settings.listener;
        match load(&self.settings) {
            Ok((config, not_after_s)) => {
                if !planted("tls-certificate-kept") {
                    self.slot.replace(Arc::new(config));
                }
                self.not_after_s.store(not_after_s, Ordering::Relaxed);
                log::info!(
                    "listener {listener}: new connections use the certificates read just now"
                );
            }
            Err(error) => {
                log::error!("listener {listener} keeps the certificates it has: {error}"); // K1
            }
        }
    }

    /// Warns once of each certificate that ends soon.
    pub(crate) fn warn_of_end(&self) {
        let ends = self.not_after_s();
        let left = ends.saturating_sub(now_s());
        if left >= WARN_BEFORE_S || self.warned_s.swap(ends, Ordering::Relaxed) == ends {
            return;
        }
        let listener = &self.settings.listener;
        if left < 0 {
            log::error!("listener {listener}: the certificate has expired; clients refuse it");
        } else {
            let days = left / (24 * 3600);
            log::warn!(
                "listener {listener}: the certificate expires in {days} days; replace it before"
            );
        }
    }
}

fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

fn paths(settings: &Tls) -> Vec<&Path> {
    let sources = std::iter::once(&settings.key).chain(&settings.trusted);
    sources
        .filter_map(|pem| match pem {
            Pem::File(path) => Some(path.as_path()),
            Pem::Inline(_) => None,
        })
        .collect()
}

/// The settings of new sessions, and when our certificate ends.
fn load(settings: &Tls) -> Result<(ServerConfig, i64), TlsError> {
    let (place, text) = read(&settings.key, "ssl.keystore.key")?;
    let key = private_key(&place, &text)?;
    let chain = certificates(&place, &text)?;
    let not_after_s = chain.first().and_then(not_after).unwrap_or(0);
    let versions: Vec<&rustls::SupportedProtocolVersion> = settings
        .versions
        .iter()
        .map(|version| match version {
            TlsVersion::V12 => &rustls::version::TLS12,
            TlsVersion::V13 => &rustls::version::TLS13,
        })
        .collect();
    let unusable = |error| TlsError::Unusable(place.clone(), error);
    let builder = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()));
    let builder = builder
        .with_protocol_versions(&versions)
        .map_err(unusable)?;
    let builder = match verifier(settings)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    // K2: tickets are sealed with keys of this moment.
    config.ticketer = provider::Ticketer::new().map_err(|_| TlsError::Random)?;
    Ok((config, not_after_s))
}

fn verifier(settings: &Tls) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let Some(trusted) = settings
        .trusted
        .as_ref()
        .filter(|_| settings.client_auth != ClientAuth::None)
    else {
        return Ok(None);
    };
    let (place, text) = read(trusted, "ssl.truststore.certificates")?;
    let untrustable = |error: String| TlsError::Untrustable(place.clone(), error);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&place, &text)? {
        roots
            .add(certificate)
            .map_err(|error| untrustable(error.to_string()))?;
    }
    let provider = Arc::new(provider::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match settings.client_auth {
        ClientAuth::Requested => builder.allow_unauthenticated(),
        ClientAuth::Required if planted("tls-nobody-is-asked") => builder.allow_unauthenticated(),
        ClientAuth::Required | ClientAuth::None => builder,
    };
    let verifier = builder.build();
    verifier
        .map(Some)
        .map_err(|error| untrustable(error.to_string()))
}

/// The text of a PEM source, and how to call it in messages.
fn read(pem: &Pem, key: &str) -> Result<(String, Vec<u8>), TlsError> {
    let path = match pem {
        Pem::Inline(text) => return Ok((key.to_owned(), text.clone().into_bytes())),
        Pem::File(path) => path,
    };
    let text = files::read(path).map_err(|error| TlsError::Read(path.clone(), error))?;
    let place = path.display().to_string();
    if text.starts_with(&[0xfe, 0xed, 0xfe, 0xed]) {
        return Err(TlsError::Jks(place));
    }
    // DER begins with a sequence, PEM never does.
    if text.starts_with(&[0x30]) {
        return Err(TlsError::Pkcs12(place));
    }
    Ok((place, text))
}

fn private_key(place: &str, text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    let found = PrivateKeyDer::from_pem_slice(text);
    found.map_err(|_| {
        let text = String::from_utf8_lossy(text);
        if text.contains("ENCRYPTED") {
            TlsError::EncryptedKey(place.to_owned())
        } else {
            TlsError::NoKey(place.to_owned())
        }
    })
}

fn certificates(place: &str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let none = || TlsError::NoCertificate(place.to_owned());
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let all = all.map_err(|_| none())?;
    if all.is_empty() { Err(none()) } else { Ok(all) }
}

fn not_after(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}
