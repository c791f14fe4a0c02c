//! What is found where a topic's directory stands, or would stand, and does not belong there (DESIGN 6.4).
//!
//! Owns:     moving such a directory out of the way without ever deleting data whose identity is unknown (D12).
//! Does not: know which topics exist: the caller says which ids are deleted.
//! Called at start, at the creation and at the deletion of a topic, on threads that may block.
use super::ids::{random, to_text};
use super::names::{TopicName, root};
use super::state_file::{StateError, StateFault, TEMP_PREFIX};
use super::topic_files::{CONFIG, STAMP, load_stamp};
use seawall_storage::TopicId;
use seawall_storage::disk::{DirEntry, Disk};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What was done about a directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cleared {
    /// There was none.
    Nothing,
    /// It belonged to a deleted topic: it is trash now, under this path.
    Trash(PathBuf),
    /// It held nothing but what an interrupted creation leaves, and is gone.
    Removed(PathBuf),
    /// It held data of a topic that nobody knows: kept under this path.
    Lost(PathBuf),
    /// It is none of ours and stands where it stood.
    Foreign(PathBuf),
}

impl fmt::Display for Cleared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cleared::Nothing => write!(f, "nothing was there"),
            Cleared::Trash(path) => write!(
                f,
                "{} belongs to a deleted topic and is being removed",
                path.display()
            ),
            Cleared::Removed(path) => {
                write!(
                    f,
                    "{} was left by a creation that never happened, and was removed",
                    path.display()
                )
            }
            Cleared::Lost(path) => write!(
                f,
                "{} holds data of a topic that is not in the catalog: it is kept there, and nothing reads it",
                path.display()
            ),
            Cleared::Foreign(path) => write!(
                f,
                "{} was not made by this broker and is left alone",
                path.display()
            ),
        }
    }
}

/// Moves what stands at `<root>/<name>` out of the way, durably. An empty directory goes if `take_empty`.
pub(super) fn clear(
    disk: &dyn Disk,
    root: &Path,
    name: &TopicName,
    is_deleted: &dyn Fn(TopicId) -> bool,
    take_empty: bool,
) -> Result<Cleared, StateError> {
    let dir = root.join(name.as_str());
    let entries = match disk.list(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Cleared::Nothing),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Ok(Cleared::Foreign(dir));
        }
        listed => listed.map_err(StateError::io(&dir))?,
    };
    let holds_data = entries.iter().any(|entry| entry.is_dir);
    match load_stamp(disk, &dir) {
        Err(StateError {
            fault: StateFault::Io(error),
            path,
        }) => Err(StateError::io(&path)(error)),
        Ok(Some(stamp)) if is_deleted(stamp.id) => set_aside(disk, root, &dir).map(Cleared::Trash),
        Ok(Some(stamp)) if holds_data => lose(disk, root, &dir, &to_text(stamp.id.0)),
        Ok(Some(_)) => remove_empty(disk, root, dir, &entries),
        Err(_damaged) => lose(disk, root, &dir, &to_text(random())),
        Ok(None) if !holds_data && is_leftover(&entries, take_empty) => {
            remove_empty(disk, root, dir, &entries)
        }
        Ok(None) => Ok(Cleared::Foreign(dir)),
    }
}

/// Renames a directory to a name that says it is being deleted, durably.
pub(super) fn set_aside(disk: &dyn Disk, root: &Path, dir: &Path) -> Result<PathBuf, StateError> {
    let trash = root.join(format!("{}{}", root::TRASH_PREFIX, random()));
    disk.rename(dir, &trash)
        .and_then(|()| disk.sync_dir(root))
        .map_err(StateError::io(dir))?;
    Ok(trash)
}

fn lose(disk: &dyn Disk, root: &Path, dir: &Path, id: &str) -> Result<Cleared, StateError> {
    let mut lost = root.join(format!("{}{id}", root::LOST_PREFIX));
    if disk.list(&lost).is_ok() {
        lost = root.join(format!("{}{id}-{}", root::LOST_PREFIX, random()));
    }
    disk.rename(dir, &lost)
        .and_then(|()| disk.sync_dir(root))
        .map_err(StateError::io(dir))?;
    Ok(Cleared::Lost(lost))
}

/// Only files that a creation makes before it is done.
fn is_leftover(entries: &[DirEntry], take_empty: bool) -> bool {
    entries.iter().all(|entry| is_ours(&entry.name)) && (take_empty || !entries.is_empty())
}

fn is_ours(name: &str) -> bool {
    name == STAMP || name == CONFIG || name.starts_with(TEMP_PREFIX)
}

/// Removes our files, the stamp last, then the directory; one that has anything else stays.
fn remove_empty(
    disk: &dyn Disk,
    root: &Path,
    dir: PathBuf,
    entries: &[DirEntry],
) -> Result<Cleared, StateError> {
    if !entries.iter().all(|entry| is_ours(&entry.name)) {
        return Ok(Cleared::Foreign(dir));
    }
    let fail = StateError::io(&dir);
    let files = entries.iter().filter(|entry| entry.name != STAMP);
    let mut names: Vec<&str> = files.map(|entry| entry.name.as_str()).collect();
    names.extend(
        entries
            .iter()
            .any(|entry| entry.name == STAMP)
            .then_some(STAMP),
    );
    let removed = names
        .iter()
        .try_for_each(|name| disk.remove_file(&dir.join(name)));
    removed
        .and_then(|()| disk.remove_dir(&dir))
        .and_then(|()| disk.sync_dir(root))
        .map_err(fail)?;
    Ok(Cleared::Removed(dir))
}
