//! The file of a group: its name and its form.
//!
//! Owns:     the percent-encoding of group ids, and what stands in `__consumer_offsets/<group>.json`.
//! Does not: write (the store does) or decide what a group is.

use std::path::Path;
use std::sync::Arc;

use seawall_storage::disk::Disk;
use serde::{Deserialize, Serialize};

use super::classic::ClassicRecord;
use super::consumer::ConsumerRecord;
use super::offsets::OffsetTable;
use crate::cluster::state_file::{self, StateError, StateFault};

/// The folder, in `cluster.dir`.
pub(crate) const DIR: &str = "__consumer_offsets";
/// A file is read up to this size: 100,000 offsets with 4 KiB of metadata.
const BYTES_MAX: u64 = 512 << 20;
const SUFFIX: &str = ".json";
/// Longest name of a file on every file system we know.
const NAME_BYTES_MAX: usize = 255;
/// Bytes of the encoded id that stand in the name of a long one.
const LONG_NAME_BYTES: usize = 200;
/// Parts them from the digest; no encoded id contains it.
const LONG: &str = "%%";
/// The namespace of the digests (UUID version 5: SHA-1).
const DIGEST_OF: uuid::Uuid = uuid::Uuid::NAMESPACE_OID;
/// Stands for the empty id, which some clients commit under.
const EMPTY: &str = "%";

/// Everything about one group that outlives the broker.
#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupFile {
    /// The id, as clients say it.
    pub(crate) group: Arc<str>,
    /// Since when it has had no members, by the broker's clock.
    pub(crate) empty_since_ms: i64,
    /// Who is in it.
    pub(crate) members: Members,
    /// What it has read.
    pub(crate) committed: Arc<OffsetTable>,
}

/// Who is in a group, by its protocol.
#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Members {
    /// JoinGroup and SyncGroup: the last generation.
    Classic(Arc<ClassicRecord>),
    /// ConsumerGroupHeartbeat (KIP-848).
    Consumer(ConsumerRecord),
}

/// The name of a group's file. The name of a long id tells how it begins, and a digest of it: the file has the rest.
pub(crate) fn name_of(group: &str) -> String {
    let mut name = encode(group);
    if name.len() + SUFFIX.len() > NAME_BYTES_MAX {
        let digest = uuid::Uuid::new_v5(&DIGEST_OF, group.as_bytes()).simple();
        name.truncate(LONG_NAME_BYTES);
        name = format!("{name}{LONG}{digest}");
    }
    name + SUFFIX
}

fn encode(group: &str) -> String {
    let mut name = String::with_capacity(group.len() + SUFFIX.len());
    for byte in group.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            name.push(char::from(byte));
        } else if byte == b'.' && !name.is_empty() {
            name.push('.');
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    if group.is_empty() {
        name.push_str(EMPTY);
    }
    name
}

/// Whether a file in the folder is that of a group.
pub(crate) fn is_group(name: &str) -> bool {
    name.ends_with(SUFFIX) && !name.starts_with('.')
}

/// Reads a file of the folder; `None` if it is gone.
///
/// # Errors
/// It cannot be read, or is damaged.
pub(crate) fn load(
    disk: &dyn Disk,
    path: &Path,
    name: &str,
) -> Result<Option<GroupFile>, StateError> {
    match state_file::load::<GroupFile>(disk, path, BYTES_MAX)? {
        // One group, one file: a copy under another name is none.
        Some(file) if name_of(&file.group) != name => Err(StateError {
            path: path.to_owned(),
            fault: StateFault::Contradiction { key: "group" },
        }),
        file => Ok(file),
    }
}

/// For `verify`.
pub(crate) fn check(disk: &dyn Disk, path: &Path, name: &str) -> Option<Result<bool, StateError>> {
    is_group(name).then(|| load(disk, path, name).map(|file| file.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g11_no_group_id_becomes_a_path() {
        for (group, name) in [
            ("", "%.json"),
            ("orders", "orders.json"),
            ("a.b_c-9", "a.b_c-9.json"),
            ("../../x", "%2E.%2F..%2Fx.json"),
            ("a/b", "a%2Fb.json"),
            (".hidden", "%2Ehidden.json"),
            ("%", "%25.json"),
            ("nul\0", "nul%00.json"),
            ("gruppe ä", "gruppe%20%C3%A4.json"),
        ] {
            assert_eq!(name_of(group), name);
            assert!(is_group(name));
        }
    }

    #[test]
    fn every_id_has_a_name_of_its_own_that_fits() {
        let longest = "x".repeat(250);
        assert_eq!(name_of(&longest), format!("{longest}.json"));
        let mut names = std::collections::HashSet::new();
        for length in [249, 250, 251, 252, 300, 32_767] {
            for letter in ["x", "y", "/", "\u{e4}"] {
                let name = name_of(&letter.repeat(length));
                assert!(
                    name.len() <= NAME_BYTES_MAX && !name.contains('/'),
                    "{name}"
                );
                assert!(names.insert(name));
            }
        }
    }

    #[test]
    fn other_files_belong_to_no_group() {
        for name in ["x", ".tmp-1", ".x.json"] {
            assert!(!is_group(name), "{name}");
        }
    }
}
