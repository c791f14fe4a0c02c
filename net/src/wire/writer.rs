//! Writes the primitive types of the protocol, in both of their layouts.

use bytes::{BufMut, BytesMut};
use kafka_wire_core::{StrBytes, Uuid};

use super::WireError;

/// Appends to a buffer, in the plain or the flexible layout.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) buffer: BytesMut,
    pub(crate) flexible: bool,
}

impl Writer {
    pub(crate) fn new(flexible: bool, bytes_expected: usize) -> Self {
        Self {
            buffer: BytesMut::with_capacity(bytes_expected),
            flexible,
        }
    }

    pub(crate) fn i16(&mut self, value: i16) {
        self.buffer.put_i16(value);
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.buffer.put_i32(value);
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.buffer.put_i64(value);
    }

    pub(crate) fn uuid(&mut self, value: Uuid) {
        self.buffer.put_slice(value.as_bytes());
    }

    pub(crate) fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.buffer.put_u8(low_bits(value) | 0x80);
            value >>= 7;
        }
        self.buffer.put_u8(low_bits(value));
    }

    /// The length of a compact field, or null.
    fn compact_length(&mut self, length: Option<usize>) -> Result<(), WireError> {
        let more = match length {
            None => 0,
            Some(length) => u32::try_from(length)
                .ok()
                .and_then(|length| length.checked_add(1))
                .ok_or(WireError::NotEncodable("a length above 2^32"))?,
        };
        self.varint(more);
        Ok(())
    }

    /// The count of an array, or the length of a byte field; `None` is null.
    pub(crate) fn length(&mut self, length: Option<usize>) -> Result<(), WireError> {
        if self.flexible {
            return self.compact_length(length);
        }
        let length = match length {
            None => -1,
            Some(length) => {
                i32::try_from(length).map_err(|_| WireError::NotEncodable("a length above 2^31"))?
            }
        };
        self.i32(length);
        Ok(())
    }

    pub(crate) fn nullable_string(&mut self, value: Option<&StrBytes>) -> Result<(), WireError> {
        let length = value.map(StrBytes::len);
        if self.flexible {
            self.compact_length(length)?;
        } else {
            let length = length.map_or(Ok(-1), i16::try_from);
            self.i16(length.map_err(|_| WireError::NotEncodable("a string above 32,767 bytes"))?);
        }
        if let Some(value) = value {
            self.buffer.put_slice(value.as_bytes());
        }
        Ok(())
    }

    pub(crate) fn string(&mut self, value: &StrBytes) -> Result<(), WireError> {
        self.nullable_string(Some(value))
    }

    /// Writes tagged fields: how many there are, then each `(tag, payload)`, tags rising.
    pub(crate) fn tagged_fields(&mut self, fields: &[(u32, BytesMut)]) -> Result<(), WireError> {
        let too_long = |_| WireError::NotEncodable("a tagged field above 2^32");
        self.varint(u32::try_from(fields.len()).map_err(too_long)?);
        for (tag, payload) in fields {
            self.varint(*tag);
            self.varint(u32::try_from(payload.len()).map_err(too_long)?);
            self.buffer.put_slice(payload);
        }
        Ok(())
    }

    /// Says that there are no tagged fields, where the layout has them.
    pub(crate) fn no_tagged_fields(&mut self) {
        if self.flexible {
            self.buffer.put_u8(0);
        }
    }
}

/// The low seven bits.
fn low_bits(value: u32) -> u8 {
    let [.., low] = value.to_be_bytes();
    low & 0x7f
}
