//! The file of a group: its name and its form.
//!
//! Owns:     the percent-encoding of group ids, and what stands in `__consumer_offsets/<group>.json`.
//! Does not: write (the store does) or decide what a group is.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::classic::ClassicRecord;
use super::consumer::ConsumerRecord;
use super::offsets::OffsetTable;

/// The folder, in `cluster.dir`.
pub(crate) const DIR: &str = "__consumer_offsets";
/// A file is read up to this size: 100,000 offsets with 4 KiB of metadata.
pub(crate) const BYTES_MAX: u64 = 512 << 20;
const SUFFIX: &str = ".json";
/// Longest name of a file on every file system we know.
const NAME_BYTES_MAX: usize = 255;
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

/// The name of a group's file; `None` if the id is too long for one.
pub(crate) fn name_of(group: &str) -> Option<String> {
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
    name.push_str(SUFFIX);
    (name.len() <= NAME_BYTES_MAX).then_some(name)
}

/// The group that a file belongs to; `None` if it is no file of ours.
pub(crate) fn group_of(name: &str) -> Option<String> {
    let encoded = name.strip_suffix(SUFFIX)?;
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' || encoded == EMPTY {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).ok()?);
    }
    let group = if encoded == EMPTY {
        String::new()
    } else {
        String::from_utf8(bytes).ok()?
    };
    // One group, one file: nothing but the canonical name counts.
    (name_of(&group).as_deref() == Some(name)).then_some(group)
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
            assert_eq!(name_of(group).as_deref(), Some(name));
            assert_eq!(group_of(name).as_deref(), Some(group), "{name}");
        }
    }

    #[test]
    fn an_id_too_long_for_a_file_has_none() {
        assert!(name_of(&"x".repeat(250)).is_some());
        assert_eq!(name_of(&"x".repeat(251)), None);
        assert_eq!(name_of(&"ä".repeat(50)), None);
    }

    #[test]
    fn other_files_belong_to_no_group() {
        for name in [
            "x",
            ".tmp-1",
            "%2.json",
            "%zz.json",
            "a%41.json",
            "a%2f.json",
            "%FF.json",
        ] {
            assert_eq!(group_of(name), None, "{name}");
        }
    }
}
