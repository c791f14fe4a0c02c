//! The key and certificate that every broker of a run is given, and the client that trusts them.
//!
//! Owns:     one self-signed certificate on a P-256 key, made at each run.
//! Does not: choose a cipher suite: client and brokers have their defaults, TLS 1.3 alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::ring as provider;
use rustls::{ClientConfig, RootCertStore};

use crate::error::{Doing, Error, Result};
use crate::link::SERVER;

/// See the file comment.
pub(crate) struct Identity {
    /// PEM: the key, then the certificate.
    pub(crate) file: PathBuf,
    /// What clients begin their sessions with.
    pub(crate) client: Arc<ClientConfig>,
}

impl Identity {
    /// A new one, in a file in `dir`.
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        let (pem, certificate) = issue().map_err(io::Error::other).doing("make a key")?;
        let file = dir.join("broker.pem");
        fs::write(&file, pem).map_err(|source| Error::Path {
            doing: "write",
            path: file.clone(),
            source,
        })?;
        let client = client(&certificate).map_err(io::Error::other);
        let client = Arc::new(client.doing("trust a certificate")?);
        Ok(Self { file, client })
    }
}

fn issue() -> std::result::Result<(String, rcgen::Certificate), rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![SERVER.to_owned()])?.self_signed(&key)?;
    Ok((key.serialize_pem() + &certificate.pem(), certificate))
}

fn client(certificate: &rcgen::Certificate) -> std::result::Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone())?;
    let provider = Arc::new(provider::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
