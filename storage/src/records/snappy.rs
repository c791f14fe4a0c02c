//! Snappy as Kafka clients send it: raw, or in the framing of the Java library.
//!
//! Owns:     telling the two apart and bounding what comes out.
//! Does not: know records.
//!
//! The Java framing: `\x82SNAPPY\0`, two i32 versions, then blocks of (i32 big-endian length, raw snappy).

use bytes::Bytes;

use super::{Limits, RecordError};
use crate::types::{narrow, wide};

const JAVA_MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
const JAVA_HEADER_BYTES: usize = 16;
/// Snappy cannot pack more than this many bytes into one; a block that claims more lies.
const RATIO_MAX: u64 = 64;

pub(super) fn decompress(payload: &[u8], limits: &Limits) -> Result<Bytes, RecordError> {
    let mut out = Vec::new();
    if payload.starts_with(JAVA_MAGIC) {
        let mut rest = payload
            .get(JAVA_HEADER_BYTES..)
            .ok_or(RecordError::Decompress)?;
        while let Some((len, tail)) = rest.split_first_chunk::<4>() {
            let len =
                usize::try_from(i32::from_be_bytes(*len)).map_err(|_| RecordError::Decompress)?;
            let (block, tail) = tail.split_at_checked(len).ok_or(RecordError::Decompress)?;
            append(block, &mut out, limits)?;
            rest = tail;
        }
        if !rest.is_empty() {
            return Err(RecordError::Decompress);
        }
    } else {
        append(payload, &mut out, limits)?;
    }
    Ok(out.into())
}

fn append(block: &[u8], out: &mut Vec<u8>, limits: &Limits) -> Result<(), RecordError> {
    let claimed = wide(snap::raw::decompress_len(block).map_err(|_| RecordError::Decompress)?);
    if claimed > limits.bytes_max.saturating_sub(wide(out.len())) {
        return Err(RecordError::TooLarge);
    }
    if claimed > wide(block.len()).saturating_mul(RATIO_MAX) {
        return Err(RecordError::Decompress);
    }
    let start = out.len();
    out.resize(start + narrow(claimed), 0);
    let written = snap::raw::Decoder::new().decompress(block, &mut out[start..]);
    written
        .map(|n| out.truncate(start + n))
        .map_err(|_| RecordError::Decompress)
}
