//! What can be wrong with bytes, or with a message that is to become bytes.

use std::fmt;

/// Why a message was not decoded (the peer's fault) or not encoded (ours). Nothing is left behind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WireError {
    /// Peer: the message ends before its field does.
    Truncated,
    /// Peer: a length or count that is negative where none may be, or above what is left.
    BadLength(i64),
    /// Peer: a varint of more than five bytes, or above 2^32 - 1.
    BadVarint,
    /// Peer: a string that is not UTF-8.
    NotUtf8,
    /// Peer: null where the schema allows none.
    NullNotAllowed,
    /// Peer: more topics and partitions than [`REQUEST_ENTRIES_MAX`](super::REQUEST_ENTRIES_MAX).
    TooManyEntries,
    /// Either: the codec has no such version of this message.
    UnsupportedVersion(i16),
    /// Ours: a value that this version of the message cannot carry.
    NotEncodable(&'static str),
    /// Peer: the generated decoder's verdict.
    Decode(kafka_wire_core::DecodeError),
    /// Ours: the generated encoder's verdict.
    Encode(kafka_wire_core::EncodeError),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the message ends too early"),
            Self::BadLength(length) => write!(f, "impossible length {length}"),
            Self::BadVarint => f.write_str("malformed varint"),
            Self::NotUtf8 => f.write_str("a string is not UTF-8"),
            Self::NullNotAllowed => f.write_str("null where none may be"),
            Self::TooManyEntries => f.write_str("too many topics and partitions"),
            Self::UnsupportedVersion(version) => write!(f, "unsupported version {version}"),
            Self::NotEncodable(what) => write!(f, "cannot be encoded: {what}"),
            Self::Decode(error) => error.fmt(f),
            Self::Encode(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WireError {}
