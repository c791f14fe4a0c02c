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

/// Names that are taken, in the form in which they collide.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) names: HashMap<String, Taken>,
    /// Partitions per log dir: the next one goes where there are fewest.
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
    /// Adds partitions to a spread, each in the well dir where there are fewest, and counts them.
    pub(super) fn spread(
        &mut self,
        log_dirs: &LogDirs,
        mut spread: Spread,
        partitions: i32,
    ) -> Spread {
        let well = |sick_too: bool| {
            let present = log_dirs.present();
            let usable = present.filter(move |(_, dir)| sick_too || dir.claim.is_well());
            usable.map(|(dir, present)| (dir.index, present.id))
        };
        let mut here: Vec<_> = well(false).collect();
        if here.is_empty() {
            here = well(true).collect();
        }
        for _ in 0..partitions {
            let load = |index: &LogDirIndex| self.load.get(index).copied().unwrap_or(0);
            let Some(&(index, id)) = here.iter().min_by_key(|(index, _)| load(index)) else {
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
