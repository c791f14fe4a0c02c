//! What lies between a socket and the frames.
//!
//! Owns:     the socket, bare or below a TLS session, behind the same methods.
//! Does not: retry, buffer plaintext or interpret.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use nix::libc::MSG_MORE;
use socket2::SockRef;

use crate::pipes::Piped;
use crate::service::CloseReason;
use crate::tls::{Tls, TlsSlot};

/// See the file comment.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<Tls>),
}

impl Transport {
    /// For a connection that was just accepted; with a slot, TLS begins.
    pub(crate) fn new(stream: TcpStream, tls: Option<&TlsSlot>) -> io::Result<Self> {
        Ok(match tls {
            None => Self::Plain(stream),
            Some(slot) => Self::Tls(Box::new(Tls::new(stream, slot)?)),
        })
    }

    /// Registers once for both directions. mio's events are edges, so neither direction needs to be
    /// registered again, and waiting for writability costs nothing until a write was short.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(tls) => &mut tls.stream,
        };
        registry.register(stream, token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Whether bytes go out as they are.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Fewer bytes than there is room for mean that the socket is empty. `sealed` is scratch space
    /// for what comes out of it encrypted.
    pub(crate) fn read_vectored(
        &mut self,
        buffers: &mut [IoSliceMut<'_>],
        sealed: &mut [u8],
    ) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => uninterrupted(|| stream.read_vectored(buffers)),
            Self::Tls(tls) => tls.read(buffers, sealed),
        }
    }

    /// `more`: something follows at once, which a packet need not be sent without.
    pub(crate) fn write_vectored(
        &mut self,
        parts: &[IoSlice<'_>],
        more: bool,
    ) -> io::Result<usize> {
        match self {
            Self::Plain(stream) if more => {
                let socket = SockRef::from(&*stream);
                uninterrupted(|| socket.send_vectored_with_flags(parts, MSG_MORE))
            }
            Self::Plain(stream) => uninterrupted(|| stream.write_vectored(parts)),
            Self::Tls(tls) => tls.write(parts),
        }
    }

    /// Moves bytes out of a pipe; only where they go out as they are.
    pub(crate) fn splice(&mut self, piped: &mut Piped) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => uninterrupted(|| piped.splice_into(stream.as_fd())),
            Self::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether the socket takes nothing more, after a write that took less than it was offered, or
    /// all of it.
    pub(crate) fn is_full(&self, short: bool) -> bool {
        match self {
            Self::Plain(_) => short,
            Self::Tls(tls) => tls.wants_write(),
        }
    }

    /// Whether bytes that nobody need offer again wait for the socket.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.wants_write(),
        }
    }

    /// Whether the end of the stream was met behind the bytes that were read last: the socket will
    /// not announce it again.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.has_ended(),
        }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.is_handshaking(),
        }
    }

    /// Whether a handshake became complete since the last call.
    pub(crate) fn take_secured(&mut self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.take_secured(),
        }
    }

    pub(crate) fn is_resumed(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.is_resumed(),
        }
    }

    /// The peer's own certificate in DER.
    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => tls.peer_certificate(),
        }
    }

    /// Why reading failed, where the socket is not to blame.
    pub(crate) fn fault(&self) -> Option<CloseReason> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => tls.fault(),
        }
    }

    /// Before a close at once: what TLS owes the peer, if the socket takes it.
    pub(crate) fn say_goodbye(&mut self) {
        if let Self::Tls(tls) = self {
            // A peer that is gone does not mind.
            drop(tls.finish());
        }
    }

    /// Tells the peer that nothing more will come.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.shutdown(Shutdown::Write),
            Self::Tls(tls) => tls.finish(),
        }
    }
}

/// Repeats a call that a signal cut short.
pub(crate) fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
