//! A connection to a broker, bare or below TLS 1.3.
//!
//! Owns:     the socket, the session, sealed bytes that the session has not seen.
//! Does not: check certificates beyond the one that both brokers were given, or choose what is sent.
//!
//! # Invariants
//! L1. `WouldBlock` from a read means that the socket is empty and that no plaintext waits in the session.
//! L2. What a write took is on its way as far as the socket takes it; `flush` goes on with the rest.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mio::net::TcpStream;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};

use crate::error::{Doing, Error, Result};

const SILENCE_MAX: Duration = Duration::from_secs(30);
const SEND_BUFFER: usize = 1 << 20;
/// One read of the socket below TLS.
const SEALED_BYTES: usize = 128 * 1024;
/// The name in the brokers' certificate.
pub(crate) const SERVER: &str = "localhost";

/// Where a broker is, and how it is spoken to.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) addr: SocketAddr,
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl From<SocketAddr> for Door {
    fn from(addr: SocketAddr) -> Self {
        Self { addr, tls: None }
    }
}

/// One connection.
pub(crate) enum Link {
    Bare(TcpStream),
    Tls(Box<Sealed>),
}

/// A session and its socket.
pub(crate) struct Sealed {
    pub(crate) stream: TcpStream,
    session: ClientConnection,
    buffer: Vec<u8>,
    /// What of `buffer` the session has not seen.
    unseen: std::ops::Range<usize>,
}

impl Link {
    /// Connects, and completes the handshake if there is one; then the socket blocks or not.
    pub(crate) fn connect(door: &Door, blocking: bool) -> Result<Self> {
        let stream = std::net::TcpStream::connect(door.addr).doing("connect to the broker")?;
        stream.set_nodelay(true).doing("set TCP_NODELAY")?;
        stream
            .set_read_timeout(Some(SILENCE_MAX))
            .doing("set a timeout")?;
        setsockopt(&stream, sockopt::SndBuf, &SEND_BUFFER).doing("set SO_SNDBUF")?;
        let link = match &door.tls {
            None => Self::Bare(unblocked(stream, blocking)?),
            Some(config) => {
                let mut stream = stream;
                let session = shake_hands(&mut stream, Arc::clone(config))?;
                Self::Tls(Box::new(Sealed {
                    stream: unblocked(stream, blocking)?,
                    session,
                    buffer: vec![0; SEALED_BYTES],
                    unseen: 0..0,
                }))
            }
        };
        Ok(link)
    }

    /// The socket, to wait for.
    pub(crate) fn socket(&mut self) -> &mut TcpStream {
        match self {
            Self::Bare(stream) => stream,
            Self::Tls(sealed) => &mut sealed.stream,
        }
    }

    /// Whether a read that did not fill its buffer has emptied the socket.
    pub(crate) fn short_is_empty(&self) -> bool {
        matches!(self, Self::Bare(_))
    }

    /// Only the socket; what a client with many idle sessions would hold besides is none of the broker's.
    pub(crate) fn into_socket(self) -> TcpStream {
        match self {
            Self::Bare(stream) => stream,
            Self::Tls(sealed) => sealed.stream,
        }
    }

    /// Whether the session was resumed; its cipher suite. `None` without TLS.
    pub(crate) fn session(&self) -> Option<(bool, String)> {
        let Self::Tls(sealed) = self else {
            return None;
        };
        let suite = sealed.session.negotiated_cipher_suite()?;
        let resumed = sealed.session.handshake_kind() == Some(HandshakeKind::Resumed);
        Some((resumed, format!("{:?}", suite.suite())))
    }

    /// Tells the broker that nothing more comes, so that it does not see a connection cut.
    pub(crate) fn finish(mut self) {
        if let Self::Tls(sealed) = &mut self {
            sealed.session.send_close_notify();
            // A broker that is gone does not mind.
            drop(sealed.flush());
        }
    }
}

fn unblocked(stream: std::net::TcpStream, blocking: bool) -> Result<TcpStream> {
    stream
        .set_nonblocking(!blocking)
        .doing("set a connection to non-blocking")?;
    Ok(TcpStream::from_std(stream))
}

fn shake_hands(
    stream: &mut std::net::TcpStream,
    config: Arc<ClientConfig>,
) -> Result<ClientConnection> {
    let name = ServerName::try_from(SERVER).map_err(|_| Error::Usage("name of a server"))?;
    let session = ClientConnection::new(config, name).map_err(io::Error::other);
    let mut session = session.doing("begin a TLS session")?;
    while session.is_handshaking() {
        session.complete_io(stream).doing("shake hands")?;
    }
    Ok(session)
}

impl Read for Link {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Bare(stream) => stream.read(into),
            Self::Tls(sealed) => sealed.read(into),
        }
    }
}

impl Write for Link {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Bare(stream) => stream.write(from),
            Self::Tls(sealed) => sealed.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Bare(_) => Ok(()),
            Self::Tls(sealed) => sealed.flush(),
        }
    }
}

impl Sealed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(into) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            if self.unseen.is_empty() {
                let bytes = self.stream.read(&mut self.buffer)?; // L1
                if bytes == 0 {
                    return Ok(0);
                }
                self.unseen = 0..bytes;
            }
            let mut rest = &self.buffer[self.unseen.clone()];
            self.session.read_tls(&mut rest)?;
            self.unseen.start = self.unseen.end - rest.len();
            let seen = self.session.process_new_packets();
            seen.map_err(io::Error::other)?;
        }
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let bytes = self.session.writer().write(from)?;
        match self.flush() {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e),
            _ => Ok(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.stream) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
                Ok(_) => {}
            }
        }
        Ok(())
    }
}
