//! A cursor over untrusted bytes.
//!
//! Every length is compared with what is left before anything is done with it (W1).

use bytes::Bytes;
use kafka_wire_core::{StrBytes, Uuid};

use super::{REQUEST_ENTRIES_MAX, WireError};

/// See the file comment.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.left.len()
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, left) = self
            .left
            .split_at_checked(length)
            .ok_or(WireError::Truncated)?;
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, left) = self
            .left
            .split_first_chunk::<N>()
            .ok_or(WireError::Truncated)?;
        self.left = left;
        Ok(*taken)
    }

    pub(crate) fn i8(&mut self) -> Result<i8, WireError> {
        self.array().map(i8::from_be_bytes)
    }

    pub(crate) fn i16(&mut self) -> Result<i16, WireError> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, WireError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, WireError> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn uuid(&mut self) -> Result<Uuid, WireError> {
        self.array().map(Uuid::from_bytes)
    }

    /// An unsigned varint of at most five bytes and 32 bits; longer ones are refused, whatever
    /// their value.
    pub(crate) fn varint(&mut self) -> Result<u32, WireError> {
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && byte > 0x0f {
                return Err(WireError::BadVarint);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::BadVarint)
    }

    /// A compact length: 0 is null, else one more than the length.
    fn compact_length(&mut self) -> Result<Option<usize>, WireError> {
        match self.varint()? {
            0 => Ok(None),
            more => usize::try_from(more - 1)
                .map(Some)
                .map_err(|_| WireError::BadLength(i64::from(more))),
        }
    }

    /// A plain length: -1 is null.
    fn plain_length(length: i32) -> Result<Option<usize>, WireError> {
        match length {
            -1 => Ok(None),
            length => usize::try_from(length)
                .map(Some)
                .map_err(|_| WireError::BadLength(i64::from(length))),
        }
    }

    pub(crate) fn nullable_string(
        &mut self,
        body: &Bytes,
        flexible: bool,
    ) -> Result<Option<StrBytes>, WireError> {
        let length = if flexible {
            self.compact_length()?
        } else {
            let length = self.i16()?;
            Self::plain_length(i32::from(length))?
        };
        let Some(length) = length else {
            return Ok(None);
        };
        let bytes = body.slice_ref(self.take(length)?);
        let string = StrBytes::try_from(bytes).map_err(|_| WireError::NotUtf8)?;
        Ok(Some(string))
    }

    pub(crate) fn string(&mut self, body: &Bytes, flexible: bool) -> Result<StrBytes, WireError> {
        self.nullable_string(body, flexible)?
            .ok_or(WireError::NullNotAllowed)
    }

    /// Bytes as a slice of `body`, which this reader must be reading.
    pub(crate) fn nullable_bytes(
        &mut self,
        body: &Bytes,
        flexible: bool,
    ) -> Result<Option<Bytes>, WireError> {
        let length = if flexible {
            self.compact_length()?
        } else {
            let length = self.i32()?;
            Self::plain_length(length)?
        };
        length
            .map(|length| self.take(length).map(|bytes| body.slice_ref(bytes)))
            .transpose()
    }

    /// The count of an array whose elements have at least `element_bytes_min` bytes each, so that
    /// no count passes that the bytes left cannot back.
    pub(crate) fn count(
        &mut self,
        flexible: bool,
        element_bytes_min: usize,
    ) -> Result<usize, WireError> {
        let count = if flexible {
            self.compact_length()?
        } else {
            let count = self.i32()?;
            Self::plain_length(count)?
        };
        let count = count.ok_or(WireError::NullNotAllowed)?;
        match count.checked_mul(element_bytes_min) {
            Some(bytes) if bytes <= self.remaining() => Ok(count),
            _ => Err(WireError::Truncated),
        }
    }

    pub(crate) fn skip_tagged_fields(&mut self) -> Result<(), WireError> {
        self.tagged_fields(|_, _| Ok(()))
    }

    /// Hands each tagged field to `known`; what that does not read is skipped. Order and repetition
    /// are not checked, as in Kafka.
    pub(crate) fn tagged_fields(
        &mut self,
        mut known: impl FnMut(u32, &mut Reader<'a>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        for _ in 0..self.varint()? {
            let tag = self.varint()?;
            let length = self.varint()?;
            let length =
                usize::try_from(length).map_err(|_| WireError::BadLength(i64::from(length)))?;
            known(tag, &mut Reader::new(self.take(length)?))?;
        }
        Ok(())
    }

    /// Tagged fields where the version has them.
    pub(crate) fn skip_tagged_fields_if(&mut self, flexible: bool) -> Result<(), WireError> {
        if flexible {
            self.skip_tagged_fields()?;
        }
        Ok(())
    }
}

/// Counts the topics and partitions of one request against
/// [`REQUEST_ENTRIES_MAX`](super::REQUEST_ENTRIES_MAX).
#[derive(Debug)]
pub(crate) struct Entries {
    left: usize,
}

impl Entries {
    pub(crate) fn new() -> Self {
        Self {
            left: REQUEST_ENTRIES_MAX,
        }
    }

    /// Reads a count and takes it from what is left.
    pub(crate) fn count(
        &mut self,
        reader: &mut Reader<'_>,
        flexible: bool,
        element_bytes_min: usize,
    ) -> Result<usize, WireError> {
        let count = reader.count(flexible, element_bytes_min)?;
        self.left = self
            .left
            .checked_sub(count)
            .ok_or(WireError::TooManyEntries)?;
        Ok(count)
    }
}
