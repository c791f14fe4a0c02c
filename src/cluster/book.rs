//! Which names are taken, and how many partitions each log dir has.
//!
//! Owns:     the collision of names, the choice of a log dir.
//! Does not: lock itself or touch a disk: the catalog holds it under a lock that is never held over I/O.
use super::catalog_error::CreateError;
use super::ids::LogDirId;
use super::log_dirs::{LogDirIndex, LogDirs};
use super::names::TopicName;
use super::snapshot::{Topic, TopicDir};
use std::collections::HashMap;

/// A dir that lacks at most this part of the largest free space counts as having as much.
const AS_ROOMY: u64 = 10;

/// Names that are taken, in the form in which they collide.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) names: HashMap<String, Taken>,
    /// Partitions per log dir: of roomy ones, the next one goes where there are fewest.
    pub(super) load: HashMap<LogDirIndex, usize>,
}

#[derive(Debug)]
pub(super) struct Taken {
    pub(super) name: TopicName,
    pub(super) busy: bool,
}

/// Log dirs and, for each partition, which of them.
#[derive(Debug, Default)]
pub(super) struct Spread {
    pub(super) dirs: Vec<TopicDir>,
    pub(super) partitions: Vec<u16>,
}

impl Spread {
    fn add(&mut self, id: LogDirId, index: LogDirIndex) {
        let known = self.dirs.iter().position(|dir| dir.id == id);
        let at = known.unwrap_or_else(|| {
            self.dirs.push(TopicDir {
                id,
                state: Ok(index),
            });
            self.dirs.len() - 1
        });
        self.partitions.push(u16::try_from(at).unwrap_or(u16::MAX));
    }
}

impl Taken {
    pub(super) fn refuse(&self, name: &TopicName) -> CreateError {
        if self.name == *name {
            CreateError::Exists
        } else {
            CreateError::Collision(self.name.clone())
        }
    }
}

impl Book {
    /// Adds partitions to a spread, and counts them. Each goes into one of the well dirs with the most free space; among
    /// those that have about as much (often they share a file system) into the one where there are fewest.
    pub(super) fn spread(
        &mut self,
        log_dirs: &LogDirs,
        mut spread: Spread,
        partitions: i32,
    ) -> Spread {
        let well = |sick_too: bool| {
            let present = log_dirs.present();
            let usable = present.filter(move |(_, dir)| sick_too || dir.claim.is_well());
            usable.map(|(dir, present)| (dir.index, present.id, present.claim.free_bytes()))
        };
        let mut here: Vec<_> = well(false).collect();
        if here.is_empty() {
            here = well(true).collect();
        }
        let most = here.iter().map(|dir| dir.2).max().unwrap_or(0);
        let roomy = |free: u64| free >= most - most / AS_ROOMY;
        for _ in 0..partitions {
            let load = |index: &LogDirIndex| self.load.get(index).copied().unwrap_or(0);
            let candidates = here.iter().filter(|dir| roomy(dir.2));
            let Some(&(index, id, _)) = candidates.min_by_key(|dir| load(&dir.0)) else {
                break;
            };
            *self.load.entry(index).or_default() += 1;
            spread.add(id, index);
        }
        spread
    }

    pub(super) fn count(&mut self, topic: &Topic) {
        for index in topic.places().filter_map(|(_, place)| place.ok()) {
            *self.load.entry(index).or_default() += 1;
        }
    }

    pub(super) fn discount(&mut self, topic: &Topic) {
        for index in topic.places().filter_map(|(_, place)| place.ok()) {
            let load = self.load.entry(index).or_default();
            *load = load.saturating_sub(1);
        }
    }
}
