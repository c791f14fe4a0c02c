//! Moving partitions between log dirs.
//!
//! Owns:     the order of copy, catalog and service.
//! Does not: copy (the partition does) or persist (the catalog does).
//!
//! The catalog's row is the commit: before it the old files serve, after it the
//! copy does, whatever a crash leaves of the other. A row in doubt leaves the
//! partition offline until a restart reads what became of it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seawall_storage::PartitionIndex;
use seawall_storage::disk::Disk;

use super::Broker;
use crate::cluster::{ChangeError, LogDirIndex};
use crate::logdir::LogDir;
use crate::partition::{Held, Partition};
use crate::topics::{Slot, Topic};

/// How long to wait for readers of a partition that has moved.
const READERS: Duration = Duration::from_secs(60);

/// A partition that has moved, and its old files.
struct Old {
    partition: Arc<Partition>,
    since: Instant,
    removing: bool,
}

/// All of them.
#[derive(Default)]
pub(super) struct Moved(Mutex<Vec<Old>>);

impl Moved {
    /// Whether old files of this partition are where it shall move to.
    fn is_in_the_way(&self, partition: &Partition, dir: &Arc<LogDir>) -> bool {
        let all = self.0.lock();
        all.iter().any(|old| {
            Arc::ptr_eq(old.partition.dir(), dir)
                && old.partition.topic == partition.topic
                && old.partition.index == partition.index
        })
    }

    fn forget(&self, partition: &Arc<Partition>) {
        self.0
            .lock()
            .retain(|old| !Arc::ptr_eq(&old.partition, partition));
    }
}

impl Broker {
    /// Where a log dir with this full path stands; `None`: there is none.
    pub fn log_dir_named(&self, path: &str) -> Option<(LogDirIndex, Option<Arc<LogDir>>)> {
        let mut all = self.log_dirs().enumerate();
        let path = path.trim_end_matches('/');
        let (index, (_, dir)) = all.find(|(_, (shown, _))| shown == path)?;
        Some((LogDirIndex(index), dir.cloned()))
    }

    /// Starts to move a partition; it serves meanwhile. Where it is already,
    /// nothing happens.
    pub fn start_move(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        to: LogDirIndex,
        dir: &Arc<LogDir>,
    ) {
        if Arc::ptr_eq(partition.dir(), dir) {
            return;
        }
        let (broker, partition, dir) = (Arc::clone(self), Arc::clone(partition), Arc::clone(dir));
        Arc::clone(&dir.state).submit(move || {
            let (topic, index) = (Arc::clone(&partition.topic), partition.index);
            match broker.move_partition(&partition, to, &dir) {
                Ok(true) => log::info!("{topic}-{index} moved to {}", dir.path.display()),
                Ok(false) => log::warn!("{topic}-{index} is not moved: it is busy or not well"),
                Err(error) => log::warn!("{topic}-{index} stays where it is: {error}"),
            }
        });
    }

    fn move_partition(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        to: LogDirIndex,
        dir: &Arc<LogDir>,
    ) -> Result<bool, String> {
        let text = |error: io::Error| error.to_string();
        let Some(moving) = partition.begin_move() else {
            return Ok(false);
        };
        let map = self.topics.load_full();
        let topic = map.named(&partition.topic);
        let serves = topic.and_then(|topic| topic.partition(partition.index.get()));
        let (Ok(topic), true) = (topic, serves.is_ok_and(|p| Arc::ptr_eq(p, partition))) else {
            return Ok(false);
        };
        if self.moved.is_in_the_way(partition, dir) {
            return Ok(false);
        }
        let catalog = &self.cluster.catalog;
        let placed = catalog.add_dir(topic.id, to);
        placed.map_err(|error| error.to_string())?;
        let home = dir.path.join(&*partition.topic);
        let name = home.join(partition.index.to_string());
        let temp = home.join(format!(".move-{}", partition.index));
        // The catalog says that this partition is not here: what is, was left by a
        // move that did not come to its end, or that went away from here.
        for left in [&temp, &name] {
            remove_all(&*dir.disk, left).map_err(text)?;
        }
        let mut copy = moving.copy_into(&dir.disk, &temp).map_err(text)?;
        copy.copy_most().map_err(text)?;
        let held = copy.finish(&name).map_err(text)?;
        let entry = match catalog.set_place(topic.id, partition.index, to) {
            Ok(entry) => entry,
            Err(error) => {
                if let ChangeError::InDoubt(_) = error {
                    self.give_up(topic, partition.index, held);
                }
                return Err(error.to_string());
            }
        };
        self.moved.0.lock().push(Old {
            partition: Arc::clone(partition),
            since: Instant::now(),
            removing: false,
        });
        let slot = self.open_moved(&entry, partition.index, to);
        self.put_in_service(topic, partition.index, slot);
        let at = usize::try_from(partition.index.get()).unwrap_or(usize::MAX);
        self.settle_config(topic.id, at, 1);
        held.moved();
        Ok(true)
    }

    /// Which files serve after a restart is not known. Both are the same now, and
    /// nothing may be appended to either: it could be the wrong one.
    fn give_up(&self, topic: &Topic, index: PartitionIndex, held: Held) {
        let why =
            "where it is stored will be known after a restart: its move could not be recorded";
        self.put_in_service(topic, index, Slot::Offline(why.into()));
        held.moved();
    }

    fn put_in_service(&self, topic: &Topic, index: PartitionIndex, slot: Slot) {
        self.topics
            .update(topic.id, |now| now.set_slot(index, slot));
    }

    /// Starts the removal of the files of partitions that have moved and that
    /// nobody reads any more.
    pub(super) fn drive_moved(self: &Arc<Self>) {
        let mut all = self.moved.0.lock();
        for old in all.iter_mut().filter(|old| !old.removing) {
            let let_go = Arc::strong_count(&old.partition) == 1;
            if let_go || old.since.elapsed() > READERS {
                old.removing = true;
                let (broker, partition) = (Arc::clone(self), Arc::clone(&old.partition));
                let maint = Arc::clone(&old.partition.dir().maint);
                maint.submit(move || broker.remove_old(&partition));
            }
        }
    }

    /// While the topic exists: its directory is another's otherwise (D11), and
    /// the deletion took the files along.
    fn remove_old(&self, partition: &Arc<Partition>) {
        let map = self.topics.load_full();
        let topic = map.named(&partition.topic).ok();
        let same = topic.filter(|topic| topic.id == partition.topic_id());
        let now = same.and_then(|topic| topic.partition(partition.index.get()).ok());
        if let Some(now) = now.filter(|now| !Arc::ptr_eq(now.dir(), partition.dir()))
            && let Some(_exists) = now.making_files()
            && let Err(error) = remove_all(&*partition.dir().disk, partition.path())
        {
            let path = partition.path().display();
            log::warn!("{path}: its partition has moved; it stays for now: {error}");
        }
        self.moved.forget(partition);
    }
}

/// A directory of files, if it is there.
fn remove_all(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let entries = match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed?,
    };
    for entry in entries {
        disk.remove_file(&dir.join(entry.name))?;
    }
    disk.remove_dir(dir)
}
