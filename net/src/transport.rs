//! What lies between a socket and the frames.
//!
//! Owns:     the socket. Plaintext only; a TLS session becomes a second variant with its own
//!           buffers, behind the same methods.
//! Does not: retry, buffer or interpret.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

/// See the file comment.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
}

impl Transport {
    /// Registers once for both directions. mio's events are edges, so neither direction needs to be
    /// registered again, and waiting for writability costs nothing until a write was short.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Plain(stream) => {
                registry.register(stream, token, Interest::READABLE | Interest::WRITABLE)
            }
        }
    }

    pub(crate) fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => uninterrupted(|| stream.read_vectored(buffers)),
        }
    }

    pub(crate) fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => uninterrupted(|| stream.write_vectored(parts)),
        }
    }

    /// Tells the peer that nothing more will come.
    pub(crate) fn finish(&self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
