//! How much room there is.
//!
//! Owns:     free bytes and inodes, and when they are few.
//! Does not: write.
use super::finding::Finding;
use nix::sys::statvfs::statvfs;
use serde::Serialize;
use std::io;
use std::path::Path;

/// Less than this, and a few segments fill it.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// Five for each partition, and one for each segment.
const FREE_INODES_MIN: u64 = 10_000;

/// The room of a file system, as it is for a process without privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Space {
    free_bytes: u64,
    total_bytes: u64,
    /// 0 in both where the file system has no fixed number.
    free_inodes: u64,
    total_inodes: u64,
}

/// Asks the file system.
pub(super) fn space(dir: &Path) -> io::Result<Space> {
    let stat = statvfs(dir)?;
    let block = stat.fragment_size();
    Ok(Space {
        free_bytes: stat.blocks_available().saturating_mul(block),
        total_bytes: stat.blocks().saturating_mul(block),
        free_inodes: stat.files_available(),
        total_inodes: stat.files(),
    })
}

impl Space {
    pub(super) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    pub(super) fn judge(&self) -> Vec<Finding> {
        let bytes = format!(
            "{} MiB of {} MiB are free",
            self.free_bytes >> 20,
            self.total_bytes >> 20
        );
        let bytes = if self.free_bytes < FREE_BYTES_MIN {
            Finding::warning("space", bytes).advice(
                "Partitions refuse appends while the disk is full, and go on by themselves after",
            )
        } else {
            Finding::fine("space", bytes)
        };
        let few = self.total_inodes > 0 && self.free_inodes < FREE_INODES_MIN;
        let inodes = few.then(|| {
            let what = format!(
                "{} of {} inodes are free",
                self.free_inodes, self.total_inodes
            );
            Finding::warning("inodes", what).advice(
                "A partition takes five files and one more for each segment, with its indexes four",
            )
        });
        std::iter::once(bytes).chain(inodes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn little_room_is_a_warning_and_no_number_of_inodes_is_none() {
        let worst = |space: Space| space.judge().iter().map(|f| f.level).max().unwrap();
        let roomy = Space {
            free_bytes: 1 << 40,
            total_bytes: 1 << 41,
            free_inodes: 0,
            total_inodes: 0,
        };
        assert_eq!(worst(roomy), Level::Fine);
        assert_eq!(
            worst(Space {
                free_bytes: 5,
                ..roomy
            }),
            Level::Warning
        );
        assert_eq!(
            worst(Space {
                total_inodes: 20_000,
                free_inodes: 9,
                ..roomy
            }),
            Level::Warning
        );
    }
}
