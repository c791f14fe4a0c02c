//! The files that make a topic: its row in the catalog, and its stamp and configuration in every log dir it uses.
//!
//! Owns:     their names and texts, and reading and writing each.
//! Does not: decide what is done in which order (`catalog`, `open_catalog`, `removal` do).
//!
//! ```text
//! <cluster>/topics/<topic>.json      id, partition -> log dir: the topic exists while this file does
//! <cluster>/topics/~<id>.json        the same, being deleted
//! <log dir>/<topic>/.topic-id.json   the incarnation that the directory belongs to
//! <log dir>/<topic>/.config.json     overrides, with a revision: of several log dirs the highest holds
//! ```
use super::ids::{LogDirId, from_text, to_text, topic_id_text};
use super::names::TopicName;
use super::state_file::{self, StateError, StateFault};
use seawall_storage::TopicId;
use seawall_storage::disk::Disk;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The stamp.
pub(super) const STAMP: &str = ".topic-id.json";
/// The overrides.
pub(super) const CONFIG: &str = ".config.json";
/// The folder of the catalog.
pub(super) const TOPICS_DIR: &str = "topics";

/// A topic may have this many partitions: each needs a lane, a log and two files sooner or later.
pub(crate) const PARTITIONS_MAX: i32 = 100_000;
/// Room for that many partitions of several digits.
const TOPIC_BYTES_MAX: u64 = 2 << 20;
const STAMP_BYTES_MAX: u64 = 64 << 10;
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// `topics/<topic>.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TopicFile {
    /// The name: the file's own may have been changed.
    pub(super) topic: String,
    /// The incarnation.
    #[serde(with = "topic_id_text")]
    pub(super) id: TopicId,
    /// The log dirs it uses.
    pub(super) log_dirs: Vec<LogDirId>,
    /// For each partition, the place of its log dir in `log_dirs`.
    pub(super) partitions: Vec<u16>,
}

/// `.topic-id.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stamp {
    /// The topic, for people.
    pub(super) topic: String,
    /// The incarnation.
    #[serde(with = "topic_id_text")]
    pub(super) id: TopicId,
    /// How many partitions the topic had when the stamp was written, in all log dirs; for people.
    pub(super) partitions: usize,
}

/// `.config.json`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigFile {
    /// One more at every change.
    pub(super) revision: u64,
    /// What the topic's owner set.
    pub(super) config: BTreeMap<String, String>,
}

impl TopicFile {
    /// Reads the row of a topic; the file must say the name it has.
    pub(super) fn load(
        disk: &dyn Disk,
        path: &Path,
        name: Option<&TopicName>,
    ) -> Result<TopicFile, StateError> {
        let bad = |key| StateError {
            path: path.to_owned(),
            fault: StateFault::Contradiction { key },
        };
        let found: Option<TopicFile> = state_file::load(disk, path, TOPIC_BYTES_MAX)?;
        let gone = || StateError {
            path: path.to_owned(),
            fault: StateFault::Io(io::ErrorKind::NotFound.into()),
        };
        let file = found.ok_or_else(gone)?;
        if TopicName::parse(&file.topic).is_err()
            || name.is_some_and(|name| name.as_str() != file.topic)
        {
            return Err(bad("topic"));
        }
        let count = file.partitions.len();
        if count == 0 || i32::try_from(count).map_or(true, |count| count > PARTITIONS_MAX) {
            return Err(bad("partitions"));
        }
        if file
            .partitions
            .iter()
            .any(|&at| usize::from(at) >= file.log_dirs.len())
        {
            return Err(bad("partitions"));
        }
        Ok(file)
    }
}

/// The path of a topic's row.
pub(super) fn row_path(topics: &Path, name: &TopicName) -> PathBuf {
    topics.join(format!("{name}.json"))
}

/// The path of the row of a topic that is being deleted.
pub(super) fn tombstone_path(topics: &Path, id: TopicId) -> PathBuf {
    topics.join(format!("~{}.json", to_text(id.0)))
}

/// What a file in the catalog's folder is.
#[derive(Debug, PartialEq)]
pub(super) enum RowName {
    /// A topic.
    Topic(TopicName),
    /// A topic that is being deleted.
    Tombstone(TopicId),
    /// None of ours.
    Other,
}

impl RowName {
    /// Reads a file's name.
    pub(super) fn parse(file: &str) -> RowName {
        let Some(stem) = file.strip_suffix(".json") else {
            return RowName::Other;
        };
        if let Some(id) = stem.strip_prefix('~').and_then(from_text) {
            return RowName::Tombstone(TopicId(id));
        }
        TopicName::parse(stem).map_or(RowName::Other, RowName::Topic)
    }
}

/// The stamp of a directory; `None` where it has none.
pub(super) fn load_stamp(disk: &dyn Disk, dir: &Path) -> Result<Option<Stamp>, StateError> {
    state_file::load(disk, &dir.join(STAMP), STAMP_BYTES_MAX)
}

/// The overrides in a directory; `None` where there is no file.
pub(super) fn load_config(disk: &dyn Disk, dir: &Path) -> Result<Option<ConfigFile>, StateError> {
    state_file::load(disk, &dir.join(CONFIG), CONFIG_BYTES_MAX)
}

/// Writes stamp and overrides with one sync of the directory: a stamp that is there has its overrides beside it.
pub(super) fn store_stamps(
    disk: &dyn Disk,
    dir: &Path,
    stamp: &Stamp,
    config: &ConfigFile,
) -> Result<(), StateError> {
    state_file::replace(disk, &dir.join(CONFIG), config).map_err(StateError::io(dir))?;
    state_file::replace(disk, &dir.join(STAMP), stamp).map_err(StateError::io(dir))?;
    disk.sync_dir(dir).map_err(StateError::io(dir))
}

/// Replaces the overrides.
pub(super) fn store_config(
    disk: &dyn Disk,
    dir: &Path,
    config: &ConfigFile,
) -> Result<(), StateError> {
    state_file::store(disk, &dir.join(CONFIG), config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_storage::disk::RealDisk;
    use uuid::Uuid;

    #[test]
    fn names_of_rows_are_told_apart() {
        let id = TopicId(Uuid::from_u128(5));
        let tombstone = tombstone_path(Path::new(""), id);
        assert_eq!(
            RowName::parse(tombstone.to_str().unwrap()),
            RowName::Tombstone(id)
        );
        let name = TopicName::parse("a.json").unwrap();
        assert_eq!(
            RowName::parse(row_path(Path::new(""), &name).to_str().unwrap()),
            RowName::Topic(name)
        );
        for other in [
            ".tmp-1",
            "x",
            "~x.json",
            ".json",
            "a b.json",
            "__cluster.json",
        ] {
            assert_eq!(RowName::parse(other), RowName::Other, "{other}");
        }
    }

    #[test]
    fn a_row_that_contradicts_itself_is_refused_with_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.json");
        let good = TopicFile {
            topic: "t".to_owned(),
            id: TopicId(Uuid::from_u128(5)),
            log_dirs: vec![LogDirId(Uuid::from_u128(9))],
            partitions: vec![0, 0],
        };
        let name = TopicName::parse("t").unwrap();
        let with = |change: fn(&mut TopicFile)| {
            let mut file = good.clone();
            change(&mut file);
            state_file::store(&RealDisk, &path, &file).unwrap();
            TopicFile::load(&RealDisk, &path, Some(&name)).map_err(|e| e.to_string())
        };
        assert_eq!(with(|_| {}), Ok(good.clone()));
        assert!(
            with(|f| f.topic = "u".to_owned())
                .unwrap_err()
                .contains("'topic'")
        );
        assert!(
            with(|f| f.partitions.clear())
                .unwrap_err()
                .contains("'partitions'")
        );
        assert!(
            with(|f| f.partitions[1] = 1)
                .unwrap_err()
                .contains("'partitions'")
        );
    }
}
