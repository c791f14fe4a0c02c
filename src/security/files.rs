//! Files of operators: certificates and keys of others.
//!
//! Owns:     bounded reading, and whether a file is another than before.
//! Does not: know what is in them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Longest file that is read: thousands of certificates.
const BYTES_MAX: u64 = 4 << 20;

/// What tells one state of some files from another; `None` for one that is not there.
pub(crate) type Print = Vec<Option<(u64, u64, i64, i64)>>;

/// The state of these files.
pub(crate) fn print(paths: &[&Path]) -> Print {
    let one = |path: &&Path| {
        let of = fs::metadata(path).ok()?;
        Some((of.ino(), of.len(), of.mtime(), of.mtime_nsec()))
    };
    paths.iter().map(one).collect()
}

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= BYTES_MAX) {
        Ok(bytes)
    } else {
        Err(io::Error::other(format!(
            "it has more than {BYTES_MAX} bytes"
        )))
    }
}
