//! What can go wrong while measuring. Every variant ends the run: a figure from a broken run is worse than none.

use std::fmt;
use std::io;
use std::path::PathBuf;

use kafka_wire_core::{DecodeError, EncodeError};

/// Result of everything in this program.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a measurement was given up.
#[derive(Debug)]
pub(crate) enum Error {
    /// A system call of ours failed.
    Io {
        doing: &'static str,
        source: io::Error,
    },
    /// A file or program could not be used.
    Path {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A request of ours could not be encoded: our fault.
    Encode(EncodeError),
    /// The broker's answer could not be decoded: the broker's fault.
    Decode(DecodeError),
    /// The broker answered with an error code.
    Code { api: &'static str, code: i16 },
    /// The broker's answer is well-formed but untrue.
    Wrong {
        what: &'static str,
        expected: i64,
        found: i64,
    },
    /// The answer does not have the layout that its version prescribes.
    Malformed { what: &'static str },
    /// Nothing happened for too long.
    Timeout { waiting_for: &'static str },
    /// A broker process ended by itself.
    Exited { name: &'static str, log: PathBuf },
    /// The command line asks for something impossible.
    Usage(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { doing, source } => write!(f, "{doing}: {source}"),
            Error::Path {
                doing,
                path,
                source,
            } => write!(f, "{doing} {}: {source}", path.display()),
            Error::Encode(e) => write!(f, "cannot encode a request: {e}"),
            Error::Decode(e) => write!(f, "cannot decode an answer: {e}"),
            Error::Code { api, code } => write!(f, "{api} was answered with error code {code}"),
            Error::Wrong {
                what,
                expected,
                found,
            } => write!(f, "wrong {what}: expected {expected}, found {found}"),
            Error::Malformed { what } => write!(f, "malformed {what}"),
            Error::Timeout { waiting_for } => write!(f, "gave up waiting for {waiting_for}"),
            Error::Exited { name, log } => {
                write!(f, "{name} ended by itself; see {}", log.display())
            }
            Error::Usage(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<EncodeError> for Error {
    fn from(e: EncodeError) -> Self {
        Error::Encode(e)
    }
}

impl From<DecodeError> for Error {
    fn from(e: DecodeError) -> Self {
        Error::Decode(e)
    }
}

/// Gives an `io::Error` the action it interrupted.
pub(crate) trait Doing<T> {
    /// Names what was being done.
    fn doing(self, doing: &'static str) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T> {
        self.map_err(|source| Error::Io { doing, source })
    }
}

impl<T> Doing<T> for nix::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T> {
        self.map_err(io::Error::from).doing(doing)
    }
}
