//! `compaction.json`: up to which offset a log is compacted.
//!
//! Owns:     its encoding.
//! Does not: count: it is a hint (D10). Missing, damaged, foreign or beyond the log, everything is dirty again.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::manifest::STATE_BYTES_MAX;
use crate::names::COMPACTION;
use crate::state_file::{decode_json, encode_json, read_bounded, write_atomic};
use crate::types::{Offset, PartitionIndex, TopicId};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProgressJson {
    topic_id: String,
    partition: i32,
    clean_up_to: i64,
}

/// Up to where a log was compacted before; 0 if nobody knows.
pub fn read_progress(
    disk: &dyn Disk,
    dir: &Path,
    topic_id: TopicId,
    partition: PartitionIndex,
) -> Offset {
    let bytes = read_bounded(disk, &dir.join(COMPACTION), STATE_BYTES_MAX);
    let json: Option<ProgressJson> = bytes.ok().flatten().and_then(|b| decode_json(&b));
    let ours = json.filter(|j| j.topic_id == topic_id.to_string() && j.partition == partition.0);
    ours.map_or(Offset::ZERO, |j| Offset(j.clean_up_to.max(0)))
}

/// Everything before `clean` is compacted, and all files that were replaced are gone (Z6).
pub fn write_progress(
    disk: &dyn Disk,
    dir: &Path,
    topic_id: TopicId,
    partition: PartitionIndex,
    clean: Offset,
) -> io::Result<()> {
    let json = encode_json(&ProgressJson {
        topic_id: topic_id.to_string(),
        partition: partition.0,
        clean_up_to: clean.0,
    })?;
    write_atomic(disk, &dir.join(COMPACTION), &json)
}
