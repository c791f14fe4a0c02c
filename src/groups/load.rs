//! Reading the files of all groups at the start.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Groups;
use super::file::{self, GroupFile};
use super::group::Group;
use crate::cluster::state_file;

impl Groups {
    pub(super) fn load(&self) {
        let started = Instant::now();
        match self.names() {
            Ok(names) => names.iter().for_each(|name| self.load_one(name)),
            Err(error) => {
                // Whoever was told that there are no offsets would begin anew: M2 holds for good.
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
        let path = self.store.dir().join(name);
        if !file::is_group(name) {
            log::warn!("{}: not the file of a group", path.display());
            return;
        }
        match file::load(&**self.store.disk(), &path, name) {
            Ok(Some(file)) => self.take_in(file),
            Ok(None) => {}
            Err(error) => {
                log::error!("a group is offline: {error}");
                self.damaged.write().insert(name.to_owned());
            }
        }
    }

    fn take_in(&self, file: GroupFile) {
        let group = Group::from_file(file, &self.config.limits, Instant::now());
        let cell = self.cell(group);
        let name = Arc::clone(&cell.name);
        self.map.write().insert(name, Arc::clone(&cell));
        // Sessions of the members that were there run from now on.
        self.command(&cell, |group, fx| group.tick(&**self.topics.load(), fx));
    }
}
