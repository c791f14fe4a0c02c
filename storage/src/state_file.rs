//! State files: written so that a crash leaves the old content or the new, never a mixture (DESIGN 6.1).
//!
//! Owns:     the sequence temp, fsync, rename, directory sync; JSON with its own checksum; bounded reading.
//! Does not: know what a file means.
//! Called from any thread but one that holds a lock of the hot path.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::disk::{Disk, read_full, write_all_at};
use crate::names::TEMP_PREFIX;
use crate::types::{narrow, wide};

/// Names tried before giving up; a crash can leave a few, never this many in a row.
const TEMP_NAMES_MAX: u32 = 10_000;
const CHECKSUM_FIELD: &str = "crc32c";

/// Replaces `path` by `bytes` in one step that survives a power cut.
pub fn write_atomic(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(disk, path, bytes, true)?;
    disk.sync_dir(parent(path))
}

/// Replaces several files of one directory, each in one step, in the given order, with one directory sync for all.
pub fn write_atomic_all(disk: &dyn Disk, dir: &Path, files: &[(&str, Vec<u8>)]) -> io::Result<()> {
    for (name, bytes) in files {
        replace(disk, &dir.join(name), bytes, true)?;
    }
    disk.sync_dir(dir)
}

/// Replaces a file that is never an authority: no reader sees a half, but a power cut may take it or leave garbage.
pub fn write_unsynced(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(disk, path, bytes, false)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new("."))
}

fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
    let temp = write_temp(disk, parent(path), bytes, sync)?;
    disk.rename(&temp, path)
        .inspect_err(|_| drop(disk.remove_file(&temp)))
}

fn write_temp(disk: &dyn Disk, dir: &Path, bytes: &[u8], sync: bool) -> io::Result<PathBuf> {
    let (temp, file) = create_temp(disk, dir)?;
    let written = write_all_at(&*file, &mut [io::IoSlice::new(bytes)], 0).map_err(|e| e.error);
    let done = written.and_then(|()| if sync { file.sync_data() } else { Ok(()) });
    done.inspect_err(|_| drop(disk.remove_file(&temp)))?;
    Ok(temp)
}

/// A new file under a temporary name that nothing else has.
pub(crate) fn create_temp(
    disk: &dyn Disk,
    dir: &Path,
) -> io::Result<(PathBuf, std::sync::Arc<dyn crate::disk::DiskFile>)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    for _ in 0..TEMP_NAMES_MAX {
        let temp = dir.join(format!(
            "{TEMP_PREFIX}{}",
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        match disk.create_new(&temp) {
            Ok(file) => return Ok((temp, file)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The content of a file of at most `bytes_max` bytes. `None`: it does not exist. A larger one is `InvalidData`.
pub fn read_bounded(disk: &dyn Disk, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open_read(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let len = file.len()?;
    if len > bytes_max {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; narrow(len)];
    let read = read_full(&*file, &mut bytes, 0)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// JSON of an object with a checksum over its other fields, so that a flipped bit never becomes another number.
pub fn encode_json<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let Value::Object(mut fields) = serde_json::to_value(value)? else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let sum = checksum(&fields)?;
    fields.insert(CHECKSUM_FIELD.to_owned(), sum.into());
    let mut bytes = serde_json::to_vec_pretty(&fields)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The reverse of [`encode_json`]; `None` if the bytes are anything else.
pub fn decode_json<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let Value::Object(mut fields) = serde_json::from_slice(bytes).ok()? else {
        return None;
    };
    let stored = fields.remove(CHECKSUM_FIELD)?;
    if stored.as_str()? != checksum(&fields).ok()? {
        return None;
    }
    serde_json::from_value(Value::Object(fields)).ok()
}

/// The fields are sorted by name, so the text is the same however the file was laid out.
fn checksum(fields: &Map<String, Value>) -> io::Result<String> {
    let text = serde_json::to_vec(fields)?;
    debug_assert!(
        wide(text.len()) < u64::from(u32::MAX),
        "state files are small"
    );
    Ok(format!("{:08x}", crc32c::crc32c(&text)))
}
