//! Request headers, versions 1 and 2.

use std::sync::Arc;

use super::reader::Reader;
use super::{WireError, tables};

/// What stands before the body of every request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RequestHeader {
    /// Which API is called.
    pub api_key: i16,
    /// In which version.
    pub api_version: i16,
    /// The number that the response carries.
    pub correlation_id: i32,
    /// The client's name for itself. Bytes that are not UTF-8 are replaced: Kafka accepts them.
    pub client_id: Option<Arc<str>>,
}

/// A header that borrows from its frame, and where the body begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RawHeader<'a> {
    pub(crate) api_key: i16,
    pub(crate) api_version: i16,
    pub(crate) correlation_id: i32,
    pub(crate) client_id: Option<&'a [u8]>,
    pub(crate) body_at: usize,
}

/// Bytes of the shortest header: key, version, correlation id, and the length of no client id. Shorter frames are
/// refused before they are read.
pub(crate) const HEADER_BYTES_MIN: usize = 10;

impl<'a> RawHeader<'a> {
    /// Decodes the header at the begin of a frame. A newer ApiVersions than ours has the same
    /// header as ours, so that it can be answered with an error.
    pub(crate) fn decode(frame: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(frame);
        let api_key = reader.i16()?;
        let api_version = reader.i16()?;
        let correlation_id = reader.i32()?;
        let client_id = match reader.i16()? {
            length if length < 0 => None,
            length => Some(reader.take(usize::try_from(length).unwrap_or(0))?),
        };
        if tables::request_is_flexible(api_key, api_version) {
            reader.skip_tagged_fields()?;
        }
        Ok(Self {
            api_key,
            api_version,
            correlation_id,
            client_id,
            body_at: frame.len() - reader.remaining(),
        })
    }
}

impl RequestHeader {
    /// Decodes the header of a frame (without its length) and tells where the body begins.
    pub fn decode(frame: &[u8]) -> Result<(Self, usize), WireError> {
        let raw = RawHeader::decode(frame)?;
        let client_id = raw.client_id.map(|id| String::from_utf8_lossy(id).into());
        Ok((Self::from_raw(&raw, client_id), raw.body_at))
    }

    pub(crate) fn from_raw(raw: &RawHeader<'_>, client_id: Option<Arc<str>>) -> Self {
        Self {
            api_key: raw.api_key,
            api_version: raw.api_version,
            correlation_id: raw.correlation_id,
            client_id,
        }
    }
}
