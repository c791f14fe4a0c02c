//! Reading the files of all groups at the start.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Groups;
use super::file::{self, GroupFile};
use super::group::Group;
use crate::cluster::state_file::{self, StateError, StateFault};

impl Groups {
    pub(super) fn load(&self) {
        let started = Instant::now();
        match self.names() {
            Ok(names) => names.iter().for_each(|name| self.load_one(name)),
            Err(error) => {
                // Whoever was told that there are no offsets would begin anew: D2 holds for good.
                log::error!(
                    "{}: groups cannot be read: {error}",
                    self.store.dir().display()
                );
                return;
            }
        }
        self.loading.store(false, Ordering::Release);
        if self.len() > 0 {
            log::info!(
                "{} groups were read in {:.1?}",
                self.len(),
                started.elapsed()
            );
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let (disk, dir) = (self.store.disk(), self.store.dir());
        match disk.create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => disk.sync_dir(state_file::parent(dir))?,
        }
        state_file::remove_temps(&**disk, dir)?;
        let entries = disk.list(dir)?.into_iter();
        Ok(entries
            .filter(|entry| !entry.is_dir)
            .map(|entry| entry.name)
            .collect())
    }

    fn load_one(&self, name: &str) {
        let Some(group) = file::group_of(name) else {
            log::warn!(
                "{}: not the file of a group",
                self.store.dir().join(name).display()
            );
            return;
        };
        let limits = &self.config.limits;
        let group = match self.read(name, &group) {
            Ok(Some(file)) => Group::from_file(file, limits, Instant::now()),
            Ok(None) => return,
            Err(error) => {
                log::error!("group {group:?} is offline: {error}");
                Group::damaged(group.into(), limits)
            }
        };
        let cell = self.cell(group);
        self.map
            .write()
            .insert(Arc::clone(&cell.name), Arc::clone(&cell));
        // Sessions of the members that were there run from now on.
        self.command(&cell, |group, fx| group.tick(&**self.topics.load(), fx));
    }

    fn read(&self, name: &str, group: &str) -> Result<Option<GroupFile>, StateError> {
        let path = self.store.dir().join(name);
        let file: Option<GroupFile> =
            state_file::load(&**self.store.disk(), &path, file::BYTES_MAX)?;
        match file {
            Some(file) if *file.group != *group => Err(StateError {
                path,
                fault: StateFault::Contradiction { key: "group" },
            }),
            file => Ok(file),
        }
    }
}
