//! `owner-<n>.json`: who owns a directory, and how its last owner left it.
//!
//! Owns:     the record's text, its place in the file (in place, always as long), the list of owner files.
//! Does not: decide who may own (`claim` does).
//! Called from the thread that opens a claim and from its `owner-*` thread.
//!
//! # Invariants
//! O1. Only the process that made a file writes it. Others read it, through a fresh open, and may remove old ones.
//! O2. A record that cannot be read says nothing: not released, not recovered, of an unknown host.
use super::names::{owner_number, root};
use super::state_file::FORMAT;
use nix::unistd::gethostname;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A record is padded to this many bytes: less than a disk's sector of 4 KiB, so that it is never torn in practice.
const RECORD_BYTES: usize = 1024;
const HOST_LEN_MAX: usize = 255;
/// Owner files that stay for people to look at, beside the newest.
const FILES_KEPT: u64 = 2;

/// This machine and this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostFacts {
    /// The machine's name.
    pub(crate) host: String,
    /// The kernel's id of this boot.
    pub(crate) boot_id: String,
    /// The process.
    pub(crate) pid: u32,
}

impl HostFacts {
    /// As the kernel tells them. Without a boot id every earlier owner counts as one of another boot.
    pub(crate) fn read() -> HostFacts {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let host = gethostname().ok().and_then(|name| name.into_string().ok());
        HostFacts {
            host: host
                .unwrap_or_else(|| "unknown".to_owned())
                .chars()
                .take(HOST_LEN_MAX)
                .collect(),
            boot_id: boot.trim().to_owned(),
            pid: std::process::id(),
        }
    }
}

/// What an owner says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OwnerRecord {
    format: u32,
    /// The machine.
    pub(crate) host: String,
    /// Its boot.
    pub(crate) boot_id: String,
    /// The process.
    pub(crate) pid: u32,
    /// Moves while the owner lives.
    pub(crate) beat: u64,
    /// Every partition here went through recovery in this boot, and none is Failed.
    pub(crate) recovered: bool,
    /// The owner stopped cleanly and is gone.
    pub(crate) released: bool,
}

impl OwnerRecord {
    /// The record of an owner that has just begun.
    pub(crate) fn new(facts: &HostFacts) -> OwnerRecord {
        OwnerRecord {
            format: FORMAT,
            host: facts.host.clone(),
            boot_id: facts.boot_id.clone(),
            pid: facts.pid,
            beat: 0,
            recovered: false,
            released: false,
        }
    }

    /// Whether the owner ran in this boot of this machine.
    pub(crate) fn is_of_boot(&self, facts: &HostFacts) -> bool {
        !facts.boot_id.is_empty() && self.boot_id == facts.boot_id
    }
}

impl fmt::Display for OwnerRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the broker with process id {} on host {}",
            self.pid, self.host
        )
    }
}

/// The path of owner `n`.
pub(crate) fn path_of(dir: &Path, n: u64) -> PathBuf {
    dir.join(format!("{}{n}.json", root::OWNER_PREFIX))
}

/// The numbers of all owner files, in no order.
pub(crate) fn numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        found.extend(entry?.file_name().to_str().and_then(owner_number));
    }
    Ok(found)
}

/// What the owner `n` says; `None` where that cannot be read (O2).
pub(crate) fn read(dir: &Path, n: u64) -> io::Result<Option<OwnerRecord>> {
    let mut text = Vec::new();
    let limit = u64::try_from(4 * RECORD_BYTES).unwrap_or(u64::MAX);
    File::open(path_of(dir, n))?
        .take(limit)
        .read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text).ok())
}

/// Makes the file of owner `n`, which must not exist: whoever makes it is owner `n`, on any file system.
pub(crate) fn create(dir: &Path, n: u64) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path_of(dir, n))
}

/// Opens the owner's own file anew, after an error: errors are reported once per descriptor.
pub(crate) fn reopen(dir: &Path, n: u64) -> io::Result<File> {
    OpenOptions::new().write(true).open(path_of(dir, n))
}

/// Writes the record in place and waits until it is stable.
pub(crate) fn write(file: &File, record: &OwnerRecord) -> io::Result<()> {
    let mut text = serde_json::to_vec(record)?;
    if text.len() >= RECORD_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    text.resize(RECORD_BYTES - 1, b' ');
    text.push(b'\n');
    file.write_all_at(&text, 0)?;
    file.sync_data()
}

/// Removes files of owners long gone. What cannot be removed stays: nothing depends on it.
pub(crate) fn remove_old(dir: &Path, numbers: &[u64], newest: u64) {
    for &n in numbers
        .iter()
        .filter(|&&n| n.saturating_add(FILES_KEPT) < newest)
    {
        if let Err(error) = std::fs::remove_file(path_of(dir, n)) {
            log::debug!("cannot remove {}: {error}", path_of(dir, n).display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_written_and_damage_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let record = OwnerRecord::new(&HostFacts {
            host: "h".repeat(255),
            boot_id: "b".into(),
            pid: u32::MAX,
        });
        let file = create(dir.path(), 7).unwrap();
        assert_eq!(read(dir.path(), 7).unwrap(), None, "nothing is written yet");
        write(&file, &record).unwrap();
        write(
            &file,
            &OwnerRecord {
                released: true,
                ..record.clone()
            },
        )
        .unwrap();
        assert_eq!(
            read(dir.path(), 7).unwrap(),
            Some(OwnerRecord {
                released: true,
                ..record
            })
        );
        assert!(create(dir.path(), 7).is_err(), "one process is owner 7");
        std::fs::write(path_of(dir.path(), 7), b"{\"host\":").unwrap();
        assert_eq!(read(dir.path(), 7).unwrap(), None);
        assert_eq!(numbers(dir.path()).unwrap(), [7]);
    }

    #[test]
    fn old_files_are_removed_and_the_last_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        for n in 1..=6 {
            create(dir.path(), n).unwrap();
        }
        remove_old(dir.path(), &[1, 2, 3, 4, 5, 6], 6);
        let mut left = numbers(dir.path()).unwrap();
        left.sort_unstable();
        assert_eq!(left, [4, 5, 6]);
    }
}
