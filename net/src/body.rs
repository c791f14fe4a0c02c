//! The body of a response.
//!
//! Owns:     its parts, in order.
//! Does not: frame or write them; the connection does.

use std::io;

use bytes::Bytes;

use crate::pipes::Piped;

/// A stretch of a body, in memory or in a pipe.
#[derive(Debug)]
pub enum BodyPart {
    /// In memory.
    Bytes(Bytes),
    /// On its way from a file.
    Piped(Piped),
}

impl BodyPart {
    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Piped(piped) => piped.len(),
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for BodyPart {
    fn default() -> Self {
        Self::Bytes(Bytes::new())
    }
}

impl From<Bytes> for BodyPart {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Piped> for BodyPart {
    fn from(piped: Piped) -> Self {
        Self::Piped(piped)
    }
}

/// The body of a response as parts that are written one behind the other without being copied. The
/// frame length, the correlation id and the header's tagged fields are added by the event loop.
#[derive(Debug, Default)]
pub struct ResponseBody {
    /// Empty if the body begins with a pipe.
    first: Bytes,
    rest: Vec<BodyPart>,
}

impl ResponseBody {
    /// An empty body.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part; an empty one is left out.
    pub fn push(&mut self, part: impl Into<BodyPart>) {
        match part.into() {
            part if part.is_empty() => {}
            BodyPart::Bytes(bytes) if self.is_empty() => self.first = bytes,
            part => self.rest.push(part),
        }
    }

    /// Bytes of all parts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.iter().map(BodyPart::len).sum::<usize>()
    }

    /// The first bytes, if its first part has that many.
    #[must_use]
    pub fn first_bytes<const N: usize>(&self) -> Option<[u8; N]> {
        self.first.first_chunk().copied()
    }

    /// The same body with other first bytes, if its first part has that many.
    #[must_use]
    pub fn with_first_bytes<const N: usize>(self, bytes: [u8; N]) -> Self {
        if self.first.len() < N {
            return self;
        }
        let mut changed = Self::from(Bytes::copy_from_slice(&bytes));
        changed.push(self.first.slice(N..));
        self.rest.into_iter().for_each(|part| changed.push(part));
        changed
    }

    /// Whether there is no byte in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.rest.is_empty()
    }

    /// The parts in order; none is empty.
    pub fn into_parts(self) -> impl Iterator<Item = BodyPart> {
        std::iter::once(BodyPart::Bytes(self.first))
            .chain(self.rest)
            .filter(|part| !part.is_empty())
    }

    /// All parts in one buffer, for tests.
    ///
    /// # Errors
    /// A pipe cannot be read.
    pub fn into_vec(self) -> io::Result<Vec<u8>> {
        let mut all = Vec::with_capacity(self.len());
        for part in self.into_parts() {
            match part {
                BodyPart::Bytes(bytes) => all.extend_from_slice(&bytes),
                BodyPart::Piped(piped) => all.extend(piped.into_vec()?),
            }
        }
        Ok(all)
    }
}

impl From<Bytes> for ResponseBody {
    fn from(first: Bytes) -> Self {
        Self {
            first,
            rest: Vec::new(),
        }
    }
}

impl From<Vec<u8>> for ResponseBody {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<Vec<Bytes>> for ResponseBody {
    fn from(parts: Vec<Bytes>) -> Self {
        let mut body = Self::new();
        parts.into_iter().for_each(|part| body.push(part));
        body
    }
}
