//! State files: JSON, written so that a crash leaves the old content or the new, never a mixture (DESIGN 6.1).
//!
//! Owns:     the sequence temp, fsync, rename, directory sync; the checksum; bounded reading; what is said when a file
//!           cannot be used.
//! Does not: know what a file means.
//! Called from any thread but one that holds a lock of the hot path.
use seawall_planted::planted;
use seawall_storage::disk::{Disk, DiskFile, RealDisk, read_full, write_all_at};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Every temporary file begins with this.
pub(crate) const TEMP_PREFIX: &str = ".tmp-";
/// The version of all our state files; a file with a higher one was written by a newer broker.
pub(crate) const FORMAT: u32 = 1;

const CHECKSUM_FIELD: &str = "crc32c";
const FORMAT_FIELD: &str = "format";
/// Names tried before giving up: a crash leaves a few, never this many.
const TEMP_NAMES_MAX: u32 = 10_000;

/// Why a state file cannot be used. The disk's or the operator's fault; the file was left as it is.
#[derive(Debug)]
pub(crate) struct StateError {
    /// The file.
    pub(crate) path: PathBuf,
    /// What is wrong with it.
    pub(crate) fault: StateFault,
}

/// What is wrong with a state file.
#[derive(Debug)]
pub(crate) enum StateFault {
    /// The system refused.
    Io(io::Error),
    /// It is larger than such a file can be.
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// It is not the JSON that it should be; the parser names key and place.
    Json(serde_json::Error),
    /// It is JSON, but its bytes are not those that were written.
    Checksum,
    /// A newer broker wrote it.
    Newer {
        /// Its format.
        format: u64,
    },
    /// A value in it contradicts where the file stands or what else it says.
    Contradiction {
        /// The key.
        key: &'static str,
    },
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.fault {
            StateFault::Io(error) => write!(f, "{path} cannot be read or written: {error}"),
            StateFault::TooLarge { limit } => write!(
                f,
                "{path} has more than {limit} bytes, so it is not what this broker wrote: restore it from a backup"
            ),
            StateFault::Json(error) => {
                write!(
                    f,
                    "{path} is damaged ({error}): restore it from a backup, or correct that place by hand"
                )
            }
            StateFault::Checksum => write!(
                f,
                "{path} is damaged (key '{CHECKSUM_FIELD}' does not match the rest): restore it from a backup; if it \
                 was changed by hand and is right, remove that key"
            ),
            StateFault::Newer { format } => write!(
                f,
                "{path} was written by a newer version (key '{FORMAT_FIELD}' is {format}, this one knows {FORMAT}): \
                 start that version"
            ),
            StateFault::Contradiction { key } => write!(
                f,
                "{path} is damaged (key '{key}' contradicts the rest or the file's name): restore it from a backup, or \
                 correct that key by hand and remove the key '{CHECKSUM_FIELD}'"
            ),
        }
    }
}

impl std::error::Error for StateError {}

impl StateError {
    /// For closures over a path.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> StateError + '_ {
        |error| StateError {
            path: path.to_owned(),
            fault: StateFault::Io(error),
        }
    }
}

/// Reads a file of at most `bytes_max` bytes; `None` where it does not exist.
pub(crate) fn load<T: DeserializeOwned>(
    disk: &dyn Disk,
    path: &Path,
    bytes_max: u64,
) -> Result<Option<T>, StateError> {
    let fail = |fault| StateError {
        path: path.to_owned(),
        fault,
    };
    match read_bounded(disk, path, bytes_max).map_err(fail)? {
        Some(bytes) => decode(&bytes).map(Some).map_err(fail),
        None => Ok(None),
    }
}

/// Whether a file that can be loaded carries a checksum: one that was made by hand does not.
pub(crate) fn has_checksum(disk: &dyn Disk, path: &Path, bytes_max: u64) -> bool {
    let bytes = read_bounded(disk, path, bytes_max).ok().flatten();
    let fields: Option<Map<String, Value>> =
        bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    fields.is_some_and(|fields| fields.contains_key(CHECKSUM_FIELD))
}

/// Replaces the file in one step that survives a power cut.
pub(crate) fn store<T: Serialize>(
    disk: &dyn Disk,
    path: &Path,
    value: &T,
) -> Result<(), StateError> {
    replace(disk, path, value)
        .and_then(|()| disk.sync_dir(parent(path)))
        .map_err(StateError::io(path))
}

/// As `store`, for secrets: nobody but the owner may read the file, at no time.
pub(crate) fn store_private<T: Serialize>(
    disk: &dyn Disk,
    path: &Path,
    value: &T,
) -> Result<(), StateError> {
    let create = |temp: &Path| disk.create_private(temp);
    replace_with(disk, path, value, &create)
        .and_then(|()| disk.sync_dir(parent(path)))
        .map_err(StateError::io(path))
}

/// Replaces the file; its name is durable after the next sync of its directory (D6), its content at once.
pub(crate) fn replace<T: Serialize>(disk: &dyn Disk, path: &Path, value: &T) -> io::Result<()> {
    replace_with(disk, path, value, &|temp| disk.create_new(temp))
}

/// Makes a file that does not exist yet.
type Create<'a> = dyn Fn(&Path) -> io::Result<Arc<dyn DiskFile>> + 'a;

fn replace_with<T: Serialize>(
    disk: &dyn Disk,
    path: &Path,
    value: &T,
    create: &Create<'_>,
) -> io::Result<()> {
    let (temp, file) = create_temp(create, parent(path))?;
    let written = encode(value).and_then(|bytes| {
        write_all_at(&*file, &mut [io::IoSlice::new(&bytes)], 0).map_err(|ended| ended.error)?;
        if planted("temp-not-synced") {
            return Ok(());
        }
        file.sync_data()
    });
    drop(file);
    let renamed = written.and_then(|()| disk.rename(&temp, path));
    renamed.inspect_err(|_| drop(disk.remove_file(&temp)))
}

/// Removes what crashes have left of temporary files in a directory.
pub(crate) fn remove_temps(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    for entry in disk.list(dir)? {
        if !entry.is_dir && entry.name.starts_with(TEMP_PREFIX) {
            disk.remove_file(&dir.join(entry.name))?;
        }
    }
    Ok(())
}

/// The directory that a path stands in.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."))
}

/// The disk that everything but tests runs on.
pub(crate) fn real_disk() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

fn create_temp(create: &Create<'_>, dir: &Path) -> io::Result<(PathBuf, Arc<dyn DiskFile>)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    for _ in 0..TEMP_NAMES_MAX {
        let temp = dir.join(format!(
            "{TEMP_PREFIX}{}",
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        match create(&temp) {
            Ok(file) => return Ok((temp, file)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn read_bounded(
    disk: &dyn Disk,
    path: &Path,
    bytes_max: u64,
) -> Result<Option<Vec<u8>>, StateFault> {
    let file = match disk.open_read(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(StateFault::Io(e)),
    };
    let too_large = || StateFault::TooLarge { limit: bytes_max };
    let len = file.len().map_err(StateFault::Io)?;
    let len = usize::try_from(len)
        .ok()
        .filter(|_| len <= bytes_max)
        .ok_or_else(too_large)?;
    let mut bytes = vec![0; len];
    let read = read_full(&*file, &mut bytes, 0).map_err(StateFault::Io)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

fn encode<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let Value::Object(mut fields) = serde_json::to_value(value)? else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    fields.insert(FORMAT_FIELD.to_owned(), FORMAT.into());
    let sum = checksum(&fields)?;
    fields.insert(CHECKSUM_FIELD.to_owned(), sum.into());
    let mut bytes = serde_json::to_vec(&fields)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// A file without a checksum was made by hand and is believed; one with a wrong checksum is not.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StateFault> {
    let mut fields: Map<String, Value> = serde_json::from_slice(bytes).map_err(StateFault::Json)?;
    if let Some(format) = fields
        .get(FORMAT_FIELD)
        .and_then(Value::as_u64)
        .filter(|&f| f > FORMAT.into())
    {
        return Err(StateFault::Newer { format });
    }
    if let Some(stored) = fields.remove(CHECKSUM_FIELD) {
        let right = checksum(&fields).ok();
        if right.is_none() || stored.as_str() != right.as_deref() {
            return Err(StateFault::Checksum);
        }
    }
    serde_json::from_value(Value::Object(fields)).map_err(StateFault::Json)
}

/// Fields are sorted by name, so the sum is the same however the text was laid out.
fn checksum(fields: &Map<String, Value>) -> io::Result<String> {
    Ok(format!(
        "{:08x}",
        crc32c::crc32c(&serde_json::to_vec(fields)?)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Small {
        name: String,
        number: u32,
    }

    fn small() -> Small {
        Small {
            name: "x".to_owned(),
            number: 7,
        }
    }

    #[track_caller]
    fn check(bytes: &[u8], word: &str) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.json");
        std::fs::write(&path, bytes).unwrap();
        let error = load::<Small>(&RealDisk, &path, 200)
            .unwrap_err()
            .to_string();
        assert!(error.contains(word) && error.contains("f.json"), "{error}");
    }

    #[test]
    fn what_is_stored_is_loaded_and_no_temp_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.json");
        assert_eq!(load::<Small>(&RealDisk, &path, 200).unwrap(), None);
        store(&RealDisk, &path, &small()).unwrap();
        assert_eq!(load::<Small>(&RealDisk, &path, 200).unwrap(), Some(small()));
        assert_eq!(RealDisk.list(dir.path()).unwrap().len(), 1);
    }

    #[test]
    fn d09_every_flipped_bit_of_a_state_file_is_noticed() {
        let good = encode(&small()).unwrap();
        for at in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[at / 8] ^= 1 << (at % 8);
            // The line end, and letters of keys that turn a field into an unknown one beside a missing checksum.
            if let Ok(read) = decode::<Small>(&bad) {
                assert_eq!(read, small(), "bit {at}");
            }
        }
    }

    #[test]
    fn d17_a_damaged_file_is_named_with_the_key_and_the_way_out() {
        check(b"", "restore it");
        check(b"[1]", "restore it");
        check(br#"{"name":"x"}"#, "number");
        check(br#"{"name":"x","number":-1}"#, "restore it");
        check(br#"{"name":"x","number":7,"crc32c":"00000000"}"#, "crc32c");
        check(br#"{"format":2,"name":"x","number":7}"#, "newer version");
        check(&[b'['; 150], "restore it");
        check(&[b' '; 300], "more than 200 bytes");
    }

    #[test]
    fn a_file_made_by_hand_without_a_checksum_is_believed() {
        assert_eq!(
            decode::<Small>(br#"{"number":7,"name":"x"}"#).unwrap(),
            small()
        );
    }
}
