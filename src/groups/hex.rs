//! Opaque bytes in a state file.

use std::fmt::Write;

use bytes::Bytes;

/// Two digits per byte.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes of a text; what is no hexadecimal number is left out: a person changed the file.
pub(super) fn decode(text: &str) -> Bytes {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
        .collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}
