//! A TLS session between a socket and its plaintext.
//!
//! Owns:     the session of one connection, the bytes of it that wait on either side, and why it
//!           ended; the slot that new sessions take their settings from.
//! Does not: read files, choose certificates, or know what the plaintext means.
//! Runs on the net thread of its connection; a slot may be replaced from any thread.
//!
//! # Invariants
//! T1. A read shorter than asked for emptied the socket, as with a plain one.
//! T2. Nothing is fed to the session while plaintext waits in it: what it holds is one record.
//! T3. After a fault nothing is fed or encrypted any more; bytes of the peer, and those for it, are
//!     thrown away.
//! T4. What was decrypted before an error is handed out first, as a plain socket hands out what
//!     arrived before a reset; the error is told by the next read.
//! T5. What goes wrong with writing is found by who writes, not by who reads.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use arc_swap::ArcSwap;
use mio::net::TcpStream;
use rustls::{AlertDescription, CertificateError, Error, HandshakeKind, ServerConfig};

use crate::service::CloseReason;
use crate::transport::uninterrupted;

/// The first byte of a TLS connection: a handshake record.
const HANDSHAKE_RECORD: u8 = 0x16;

/// The TLS settings of a listener. Connections keep those they were accepted with.
pub struct TlsSlot(ArcSwap<ServerConfig>);

impl TlsSlot {
    /// A slot that holds these settings.
    #[must_use]
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self(ArcSwap::new(config))
    }

    /// New connections take these from now on.
    pub fn replace(&self, config: Arc<ServerConfig>) {
        self.0.store(config);
    }
}

impl fmt::Debug for TlsSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsSlot")
    }
}

/// See the file comment.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) stream: TcpStream,
    session: rustls::ServerConnection,
    /// Bytes from the socket that the session has not seen.
    stash: Vec<u8>,
    /// The first bytes looked like TLS.
    recognised: bool,
    /// The handshake is complete.
    secured: bool,
    /// ... and nobody was told yet.
    untold: bool,
    /// The peer will send nothing more.
    ended: bool,
    fault: Option<CloseReason>,
    /// Met behind plaintext that was handed out (T4).
    late: Option<io::Error>,
}

impl Tls {
    pub(crate) fn new(stream: TcpStream, slot: &TlsSlot) -> io::Result<Self> {
        let session = rustls::ServerConnection::new(slot.0.load_full());
        Ok(Self {
            stream,
            session: session.map_err(io::Error::other)?,
            stash: Vec::new(),
            recognised: false,
            secured: false,
            untold: false,
            ended: false,
            fault: None,
            late: None,
        })
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        !self.secured && self.fault.is_none()
    }

    /// Whether the handshake became complete since the last call.
    pub(crate) fn take_secured(&mut self) -> bool {
        std::mem::take(&mut self.untold)
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.session.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        let chain = self.session.peer_certificates()?;
        chain.first().map(AsRef::as_ref)
    }

    /// Whether the end of the stream, or an error, was met behind what was read last.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended || self.late.is_some()
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.session.wants_write()
    }

    pub(crate) fn fault(&self) -> Option<CloseReason> {
        self.fault
    }

    /// Fills the buffers with plaintext, by way of `sealed` (T1).
    pub(crate) fn read(
        &mut self,
        into: &mut [IoSliceMut<'_>],
        sealed: &mut [u8],
    ) -> io::Result<usize> {
        if let Some(error) = self.late.take() {
            return self.postpone(error, into, 0);
        }
        if self.fault.is_some() {
            return uninterrupted(|| self.stream.read(sealed));
        }
        let mut filled = 0;
        let opened = self.open(into, sealed, &mut filled);
        match opened {
            Ok(()) => Ok(filled),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && filled > 0 => Ok(filled),
            Err(error) => self.postpone(error, into, filled),
        }
    }

    /// Decrypts until the buffers are full or the stream has ended.
    fn open(
        &mut self,
        into: &mut [IoSliceMut<'_>],
        sealed: &mut [u8],
        filled: &mut usize,
    ) -> io::Result<()> {
        let wanted: usize = into.iter().map(|buffer| buffer.len()).sum();
        let stash = std::mem::take(&mut self.stash);
        let mut rest: &[u8] = &stash;
        loop {
            *filled = self.take_plain(into, *filled)?;
            if *filled == wanted || self.ended {
                self.stash = rest.to_vec();
                return Ok(());
            }
            if rest.is_empty() {
                rest = &[];
                match uninterrupted(|| self.stream.read(sealed))? {
                    0 => self.ended = true,
                    bytes => rest = &sealed[..bytes],
                }
            }
            rest = self.feed(rest)?;
        }
    }

    /// Keeps an error for the next read while there is plaintext from before it (T4).
    fn postpone(
        &mut self,
        error: io::Error,
        into: &mut [IoSliceMut<'_>],
        filled: usize,
    ) -> io::Result<usize> {
        // Records in front of a bad one were decrypted with it.
        let filled = self.take_plain(into, filled).unwrap_or(filled);
        if filled == 0 {
            return Err(error);
        }
        self.late = Some(error);
        Ok(filled)
    }

    /// Moves plaintext behind the first `filled` bytes of the buffers; gives how many are filled.
    fn take_plain(&mut self, into: &mut [IoSliceMut<'_>], mut filled: usize) -> io::Result<usize> {
        let mut begins = 0;
        for buffer in into.iter_mut() {
            let ends = begins + buffer.len();
            while filled < ends && !self.ended {
                match self.session.reader().read(&mut buffer[filled - begins..]) {
                    Ok(0) => self.ended = true,
                    Ok(bytes) => filled += bytes,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(filled),
                    Err(error) => return Err(error),
                }
            }
            begins = ends;
        }
        Ok(filled)
    }

    /// Shows the session bytes of the peer until it has plaintext (T2); gives what is left.
    fn feed<'a>(&mut self, mut bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        if !self.recognised
            && bytes
                .first()
                .is_some_and(|&first| first != HANDSHAKE_RECORD)
        {
            return self.fail(CloseReason::NotTls);
        }
        self.recognised |= !bytes.is_empty();
        while !bytes.is_empty() {
            self.session.read_tls(&mut bytes)?;
            let state = match self.session.process_new_packets() {
                Ok(state) => state,
                Err(error) => return self.fail(CloseReason::TlsRefused(reason(&error))),
            };
            if !self.secured && !self.session.is_handshaking() {
                self.secured = true;
                self.untold = true;
            }
            if state.plaintext_bytes_to_read() > 0 || state.peer_has_closed() {
                break;
            }
        }
        drop(self.flush()); // T5
        Ok(bytes)
    }

    /// Remembers a fault; an alert that tells the peer is on its way if the session has one.
    fn fail<T>(&mut self, why: CloseReason) -> io::Result<T> {
        self.fault = Some(why);
        drop(self.flush()); // T5
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Encrypts what the session takes at once and writes what the socket takes. What was encrypted
    /// and not written is told by [`Self::wants_write`].
    pub(crate) fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush()?;
        if self.fault.is_some() {
            return Ok(parts.iter().map(|part| part.len()).sum()); // T3
        }
        let bytes = self.session.writer().write_vectored(parts)?;
        self.flush_if_possible()?;
        Ok(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            uninterrupted(|| self.session.write_tls(&mut self.stream))?;
        }
        Ok(())
    }

    fn flush_if_possible(&mut self) -> io::Result<()> {
        match self.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    /// Tells the peer that nothing more will come.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if self.fault.is_none() {
            self.session.send_close_notify();
        }
        self.flush_if_possible()?;
        self.stream.shutdown(Shutdown::Write)
    }
}

/// In words for the log, without anything that the peer chose.
fn reason(error: &Error) -> &'static str {
    match error {
        Error::NoCertificatesPresented => {
            "the peer sent no certificate, and this listener wants one"
        }
        Error::InvalidCertificate(why) => certificate_reason(why),
        Error::AlertReceived(alert) => alert_reason(*alert),
        Error::PeerIncompatible(_) => "no protocol version or cipher suite in common",
        Error::InvalidMessage(_) | Error::DecryptError => "a damaged record",
        Error::PeerMisbehaved(_) | Error::InappropriateMessage { .. } => {
            "the peer does not keep to the protocol"
        }
        _ => "the handshake failed",
    }
}

fn certificate_reason(why: &CertificateError) -> &'static str {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the peer's certificate has expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the peer's certificate is not valid yet"
        }
        CertificateError::UnknownIssuer => {
            "the peer's certificate was issued by nobody in the trust store"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the peer's certificate is not meant for clients"
        }
        _ => "the peer's certificate is not valid",
    }
}

fn alert_reason(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::UnknownCA => "the peer does not trust who issued our certificate",
        AlertDescription::CertificateExpired => "the peer says that our certificate has expired",
        AlertDescription::CertificateUnknown | AlertDescription::BadCertificate => {
            "the peer does not accept our certificate (issuer, name or dates)"
        }
        AlertDescription::ProtocolVersion => "the peer does not speak our protocol versions",
        AlertDescription::HandshakeFailure => "the peer found no cipher suite in common",
        _ => "the peer refused the handshake",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::ring as provider;
    use rustls::server::ResolvesServerCertUsingSni;

    #[test]
    fn behind_a_fault_what_is_owed_is_written_and_the_rest_is_thrown_away() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        let slot = TlsSlot::new(Arc::new(config));
        let mut tls = Tls::new(TcpStream::from_std(stream), &slot).unwrap();
        // A handshake record without sense, that an alert answers.
        peer.write_all(b"\x16\x03\x01\x00\x05sense").unwrap();
        let (mut plain, mut sealed) = ([0; 64], [0; 64]);
        // The socket blocks here.
        let told = tls.read(&mut [IoSliceMut::new(&mut plain)], &mut sealed);
        assert_eq!(told.unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(matches!(tls.fault(), Some(CloseReason::TlsRefused(_))));
        // Nothing is offered when only the alert waited for the socket.
        assert_eq!(tls.write(&[]).unwrap(), 0);
        assert_eq!(tls.write(&[IoSlice::new(b"an answer")]).unwrap(), 9, "T3");
        tls.finish().unwrap();
        let mut told = Vec::new();
        peer.read_to_end(&mut told).unwrap();
        assert!(told.len() <= 7, "an alert at most: {told:?}");
    }
}
