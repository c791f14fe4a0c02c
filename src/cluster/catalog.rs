//! The topics: which exist, where their partitions are, how they are configured.
//!
//! Owns:     the order of steps of every change, and the snapshot that everybody reads.
//! Does not: open logs, close files, count replicas, or know who asks.
//!
//! # Invariants
//! T1. A topic exists while `topics/<topic>.json` does: writing it is the last step of a creation, renaming it the
//!     first of a deletion.
//! T2. Nobody sees a topic before its row is durable, nor after its row's renaming is.
//! T3. A name is given out once: while a change of it runs, and while a directory of its last bearer stands in a log
//!     dir that is here, it is taken.
//! T4. A creation costs the same number of syncs however many partitions: four per log dir it uses, and two.
//!
//! Threads: `snapshot` and `load` take no lock. Everything else blocks on I/O and runs on `state-*` threads; the book's
//! lock is never held over I/O, so changes of different topics do not wait for each other.
use super::book::{Book, Spread, Taken};
use super::catalog_error::{ChangeError, CreateError};
use super::claim::DirClaim;
use super::ids::random_topic_id;
use super::log_dirs::{LogDirIndex, LogDirs};
use super::names::TopicName;
use super::open_catalog::{self, Finding, Opened};
use super::removal::{Progress, Removal, Standing};
use super::snapshot::{Snapshot, Topic, TopicDir};
use super::state_file::{self, StateError};
use super::stray::{Cleared, clear};
use super::topic_files::{
    ConfigFile, PARTITIONS_MAX, Stamp, TOPICS_DIR, TopicFile, row_path, store_config, store_stamps,
    tombstone_path,
};
use crate::config::{Settings, TopicConfig};
use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use seawall_storage::disk::Disk;
use seawall_storage::{PartitionIndex, TopicId};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A topic as somebody wants it.
#[derive(Debug, Clone)]
pub(crate) struct NewTopic<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// How many partitions; the caller has put in the broker's default.
    pub(crate) partitions: i32,
    /// What differs from the broker's configuration.
    pub(crate) overrides: BTreeMap<String, String>,
}

/// What became of topics under other settings.
#[derive(Debug, Default)]
pub(crate) struct Retaken {
    /// They go by them.
    pub(crate) changed: Vec<Arc<Topic>>,
    /// They go by the old ones until the change under way has ended well, or settings are taken again.
    pub(crate) busy: Vec<TopicName>,
}

/// Where a catalog stands and what it needs.
pub(super) struct CatalogPlace {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) cluster_dir: PathBuf,
    pub(super) cluster_claim: Arc<DirClaim>,
    pub(super) log_dirs: Arc<LogDirs>,
    pub(super) settings: Arc<Settings>,
}

/// All topics of the cluster.
pub(crate) struct Catalog {
    place: CatalogPlace,
    topics: PathBuf,
    settings: ArcSwap<Settings>,
    snapshot: ArcSwap<Snapshot>,
    book: Mutex<Book>,
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog")
            .field("topics", &self.topics)
            .finish_non_exhaustive()
    }
}

impl Catalog {
    /// Reads the catalog and puts right what crashes have left. The removal is to be driven to its end.
    pub(super) fn open(
        place: CatalogPlace,
    ) -> Result<(Catalog, Removal, Vec<Finding>), StateError> {
        let topics = place.cluster_dir.join(TOPICS_DIR);
        let opened = open_catalog::open(&*place.disk, &topics, &place.log_dirs, &place.settings)?;
        let Opened {
            topics: found,
            damaged,
            removal,
            findings,
        } = opened;
        let mut book = Book::default();
        for name in found.iter().map(|topic| &topic.name).chain(damaged.keys()) {
            book.names.insert(
                name.collision_key(),
                Taken {
                    name: name.clone(),
                    busy: false,
                },
            );
        }
        found.iter().for_each(|topic| book.count(topic));
        let snapshot = ArcSwap::from_pointee(Snapshot::new(found, damaged));
        Ok((
            Catalog {
                settings: ArcSwap::new(Arc::clone(&place.settings)),
                place,
                topics,
                snapshot,
                book: Mutex::new(book),
            },
            removal,
            findings,
        ))
    }

    /// All topics now, to keep.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// All topics now, for a short look: cheaper than `snapshot`.
    pub(crate) fn load(&self) -> Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    /// What holds on this broker for topics without overrides.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Other settings hold from now on. Topics that are being changed by somebody else take them over with that change.
    pub(crate) fn set_settings(&self, settings: Settings) -> Retaken {
        let settings = Arc::new(settings);
        self.settings.store(Arc::clone(&settings));
        // No I/O: nothing of a default stands in a file.
        let book = self.book.lock();
        let mut next = Snapshot::clone(&self.snapshot.load());
        let mut taken = Retaken::default();
        for topic in self.snapshot.load().topics() {
            let config = match TopicConfig::resolve(&settings, topic.config.overrides()) {
                Ok(config) if config == *topic.config => continue,
                Ok(config) => config,
                Err(error) => {
                    log::warn!("topic {} keeps its defaults: {error}", topic.name);
                    continue;
                }
            };
            let change = book.names.get(&topic.name.collision_key());
            if change.is_some_and(|change| change.busy) {
                taken.busy.push(topic.name.clone());
                continue;
            }
            let changed = Arc::new(topic.with_config(Arc::new(config), topic.revision));
            next.put(Arc::clone(&changed));
            taken.changed.push(changed);
        }
        self.snapshot.store(Arc::new(next));
        taken
    }

    /// Everything that a creation checks, without creating: for validate_only.
    pub(crate) fn check(
        &self,
        new: &NewTopic<'_>,
    ) -> Result<(TopicName, TopicConfig), CreateError> {
        let name = TopicName::parse(new.name).map_err(CreateError::Name)?;
        if let Some(taken) = self.book.lock().names.get(&name.collision_key()) {
            return Err(taken.refuse(&name));
        }
        if !(1..=PARTITIONS_MAX).contains(&new.partitions) {
            return Err(CreateError::Partitions);
        }
        let config =
            TopicConfig::resolve(&self.settings(), &new.overrides).map_err(CreateError::Config)?;
        Ok((name, config))
    }

    /// Creates a topic; when this returns it is durable, and usable by everybody (t01).
    pub(crate) fn create(&self, new: &NewTopic<'_>) -> Result<Arc<Topic>, CreateError> {
        let (name, config) = self.check(new)?;
        let dirs = self.reserve(&name, new.partitions)?;
        let topic = Topic {
            name,
            id: random_topic_id(),
            config: Arc::new(config),
            revision: 0,
            dirs: dirs.dirs,
            partitions: dirs.partitions,
        };
        match self.write_new(&topic) {
            Ok(()) => Ok(self.publish(topic)),
            Err(error) => {
                self.take_back(&topic, &error);
                Err(error)
            }
        }
    }

    /// Commits the deletion of a topic: it is gone for everybody when this returns, and its name is still taken. Close
    /// its logs, then call [`Catalog::set_aside`], which gives the name free, and [`Catalog::remove_step`] until it is
    /// done: a log that still makes files by name must never meet the directory of the next bearer of that name.
    pub(crate) fn delete(&self, id: TopicId) -> Result<Removal, ChangeError> {
        let topic = self.begin(id)?;
        if let Err(error) = self.rename_row(&topic) {
            self.end(&topic, matches!(error, ChangeError::InDoubt(_)));
            return Err(error);
        }
        self.book.lock().discount(&topic);
        self.vanish(&topic);
        Ok(self.removal_of(&topic))
    }

    /// Renames the directories of deleted topics aside and gives their names free. What cannot be renamed now is tried
    /// again by every [`Catalog::remove_step`].
    pub(crate) fn set_aside(&self, removal: &mut Removal) -> Progress {
        if !self.is_fresh() {
            return Progress::NotFresh;
        }
        let failed = removal.set_aside(&*self.place.disk);
        self.give_free(removal);
        failed.map_or(Progress::More, Progress::Stuck)
    }

    /// Removes at most `entries_max` files and directories of deleted topics. May be interrupted at any time: the
    /// rest is found at the next start.
    pub(crate) fn remove_step(&self, removal: &mut Removal, entries_max: usize) -> Progress {
        if !self.is_fresh() {
            return Progress::NotFresh;
        }
        let progress = removal.step(&*self.place.disk, entries_max);
        self.give_free(removal);
        progress
    }

    /// Replaces the overrides of a topic; durable and in force when this returns.
    pub(crate) fn set_overrides(
        &self,
        id: TopicId,
        overrides: &BTreeMap<String, String>,
    ) -> Result<Arc<Topic>, ChangeError> {
        let config =
            TopicConfig::resolve(&self.settings(), overrides).map_err(ChangeError::Config)?;
        let topic = self.begin(id)?;
        let revision = topic.revision.saturating_add(1);
        let file = ConfigFile {
            revision,
            config: overrides.clone(),
        };
        let written = self.write_config(&topic, &file);
        // After a failure the old values hold, under a revision that the next change exceeds.
        let config = if written.is_ok() {
            Arc::new(config)
        } else {
            Arc::clone(&topic.config)
        };
        let changed = self.publish(topic.with_config(config, revision));
        written.map(|()| changed)
    }

    /// Adds partitions up to a total; durable and usable when this returns. Tells how many there were.
    pub(crate) fn add_partitions(
        &self,
        id: TopicId,
        total: i32,
    ) -> Result<(Arc<Topic>, usize), ChangeError> {
        let topic = self.begin(id)?;
        let added = total
            .checked_sub(topic.partition_count())
            .filter(|&n| n > 0 && total <= PARTITIONS_MAX);
        let grown = match added {
            None => Err(ChangeError::Partitions),
            Some(added) => self.grow(&topic, added),
        };
        match grown {
            Err(error) => {
                self.end(&topic, matches!(error, ChangeError::InDoubt(_)));
                Err(error)
            }
            Ok(grown) => Ok((self.publish(grown), topic.partitions.len())),
        }
    }

    /// Makes a topic's directory in a log dir, if it did not use it yet; without partitions there.
    pub(crate) fn add_dir(&self, id: TopicId, to: LogDirIndex) -> Result<(), ChangeError> {
        let topic = self.begin(id)?;
        if topic.uses(to) {
            self.end(&topic, false);
            return Ok(());
        }
        self.replaced(&topic, topic.with_dir(&self.place.log_dirs, to))
            .map(drop)
    }

    /// The files of a partition are in another log dir from here on; `add_dir` was called before.
    pub(crate) fn set_place(
        &self,
        id: TopicId,
        index: PartitionIndex,
        to: LogDirIndex,
    ) -> Result<Arc<Topic>, ChangeError> {
        let topic = self.begin(id)?;
        self.replaced(&topic, topic.with_place(index, to))
    }

    /// Writes another place of a topic's partitions; in force when this returns.
    fn replaced(
        &self,
        topic: &Arc<Topic>,
        spread: Option<Spread>,
    ) -> Result<Arc<Topic>, ChangeError> {
        let Some(spread) = spread else {
            self.end(topic, false);
            return Err(ChangeError::Unusable);
        };
        let placed = topic.with_partitions(spread);
        let config = ConfigFile {
            revision: topic.revision,
            config: topic.config.overrides().clone(),
        };
        if let Err(error) = self.write_grown(topic, &placed, &config) {
            self.end(topic, matches!(error, ChangeError::InDoubt(_)));
            return Err(error);
        }
        let mut book = self.book.lock();
        book.discount(topic);
        book.count(&placed);
        drop(book);
        Ok(self.publish(placed))
    }

    /// Takes the name and chooses log dirs: each partition goes where there are fewest.
    fn reserve(&self, name: &TopicName, partitions: i32) -> Result<Spread, CreateError> {
        if !self.place.cluster_claim.is_fresh() {
            return Err(CreateError::NotFresh);
        }
        let mut book = self.book.lock();
        if let Some(taken) = book.names.get(&name.collision_key()) {
            return Err(taken.refuse(name));
        }
        let spread = book.spread(&self.place.log_dirs, Spread::default(), partitions);
        if spread.dirs.is_empty() {
            return Err(CreateError::NoLogDir);
        }
        book.names.insert(
            name.collision_key(),
            Taken {
                name: name.clone(),
                busy: true,
            },
        );
        Ok(spread)
    }

    /// Stamps in every log dir, then the row (T1).
    fn write_new(&self, topic: &Topic) -> Result<(), CreateError> {
        let config = ConfigFile {
            revision: 0,
            config: topic.config.overrides().clone(),
        };
        for index in topic.dirs.iter().filter_map(|dir| dir.state.as_ref().ok()) {
            self.write_stamps(*index, topic, &config)?;
        }
        let disk = &*self.place.disk;
        let path = row_path(&self.topics, &topic.name);
        if let Err(error) = state_file::replace(disk, &path, &topic.row()) {
            let error = StateError::io(&path)(error);
            // A call that failed may have done its work, on a network above all.
            return match disk.remove_file(&path) {
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => {
                    Err(CreateError::Disk(error))
                }
                _ => Err(CreateError::InDoubt(error)),
            };
        }
        let synced = disk.sync_dir(&self.topics);
        synced.map_err(|error| CreateError::InDoubt(StateError::io(&path)(error)))
    }

    fn write_stamps(
        &self,
        index: LogDirIndex,
        topic: &Topic,
        config: &ConfigFile,
    ) -> Result<(), CreateError> {
        let disk = &*self.place.disk;
        let root = self.fresh_root(index).ok_or(CreateError::NotFresh)?;
        match clear(disk, root, &topic.name, &|_| false, true).map_err(CreateError::Disk)? {
            Cleared::Nothing => {}
            Cleared::Foreign(path) => return Err(CreateError::Occupied(path)),
            cleared => log::warn!("before topic {} was created: {cleared}", topic.name),
        }
        let dir = root.join(topic.name.as_str());
        disk.create_dir(&dir)
            .map_err(|error| CreateError::Disk(StateError::io(&dir)(error)))?;
        let stamp = topic.stamp();
        store_stamps(disk, &dir, &stamp, config).map_err(CreateError::Disk)?;
        disk.sync_dir(root)
            .map_err(|error| CreateError::Disk(StateError::io(root)(error)))
    }

    /// After a failed creation: whether the row was not written is made sure, and then its stamps are removed.
    fn take_back(&self, topic: &Topic, error: &CreateError) {
        let disk = &*self.place.disk;
        if matches!(error, CreateError::InDoubt(_)) {
            self.end(topic, true);
            return;
        }
        for root in topic
            .dirs
            .iter()
            .filter_map(|dir| self.place.log_dirs.path(*dir.state.as_ref().ok()?))
        {
            // Whatever stays is a stray without data, cleared at the next creation or start.
            if let Err(error) = clear(disk, root, &topic.name, &|_| false, true) {
                log::warn!(
                    "of topic {}, whose creation failed, something stays: {error}",
                    topic.name
                );
            }
        }
        let mut book = self.book.lock();
        book.discount(topic);
        book.names.remove(&topic.name.collision_key());
    }

    fn rename_row(&self, topic: &Topic) -> Result<(), ChangeError> {
        let disk = &*self.place.disk;
        let (row, tombstone) = (
            row_path(&self.topics, &topic.name),
            tombstone_path(&self.topics, topic.id),
        );
        disk.rename(&row, &tombstone)
            .map_err(|error| ChangeError::Disk(StateError::io(&row)(error)))?;
        let Err(error) = disk.sync_dir(&self.topics) else {
            return Ok(());
        };
        let error = StateError::io(&row)(error);
        match disk.rename(&tombstone, &row) {
            Ok(()) => Err(ChangeError::Disk(error)),
            Err(_) => Err(ChangeError::InDoubt(error)),
        }
    }

    fn removal_of(&self, topic: &Topic) -> Removal {
        let here = topic
            .dirs
            .iter()
            .filter_map(|dir| self.place.log_dirs.find(dir.id));
        let roots = here.filter_map(|index| self.place.log_dirs.path(index));
        let standing = |root: &Path| Standing {
            root: root.to_owned(),
            name: topic.name.clone(),
            id: topic.id,
        };
        let all_here = topic
            .dirs
            .iter()
            .all(|dir| self.place.log_dirs.find(dir.id).is_some());
        Removal {
            standing: roots.map(standing).collect(),
            trash: Vec::new(),
            tombstones: all_here
                .then(|| tombstone_path(&self.topics, topic.id))
                .into_iter()
                .collect(),
            holds: vec![topic.name.clone()],
        }
    }

    /// Gives names free of whose bearers nothing stands any more (T3).
    fn give_free(&self, removal: &mut Removal) {
        let mut book = self.book.lock();
        let stands = |name: &TopicName| removal.standing.iter().any(|one| one.name == *name);
        let (held, free): (Vec<_>, Vec<_>) = std::mem::take(&mut removal.holds)
            .into_iter()
            .partition(stands);
        removal.holds = held;
        for name in free {
            book.names.remove(&name.collision_key());
        }
    }

    /// Writes the overrides in every log dir of the topic. If one fails, a restart may find the old ones or the new.
    fn write_config(&self, topic: &Topic, file: &ConfigFile) -> Result<(), ChangeError> {
        let mut dirs = Vec::new();
        for dir in &topic.dirs {
            let index = dir.state.as_ref().map_err(|_| ChangeError::Unusable)?;
            dirs.push(
                self.fresh_root(*index)
                    .ok_or(ChangeError::NotFresh)?
                    .join(topic.name.as_str()),
            );
        }
        dirs.iter()
            .try_for_each(|dir| store_config(&*self.place.disk, dir, file))
            .map_err(ChangeError::InDoubt)
    }

    /// Stamps in log dirs that are new to the topic, then the row.
    fn grow(&self, topic: &Topic, added: i32) -> Result<Topic, ChangeError> {
        if topic.dirs.iter().any(|dir| dir.state.is_err()) {
            return Err(ChangeError::Unusable);
        }
        let before = Spread {
            dirs: topic.dirs.clone(),
            partitions: topic.partitions.clone(),
        };
        let spread = self.book.lock().spread(&self.place.log_dirs, before, added);
        let grown = topic.with_partitions(spread);
        let config = ConfigFile {
            revision: topic.revision,
            config: topic.config.overrides().clone(),
        };
        let result = self.write_grown(topic, &grown, &config);
        if let Err(error) = result {
            let mut book = self.book.lock();
            book.discount(&grown);
            book.count(topic);
            return Err(error);
        }
        Ok(grown)
    }

    fn write_grown(
        &self,
        topic: &Topic,
        grown: &Topic,
        config: &ConfigFile,
    ) -> Result<(), ChangeError> {
        for dir in &grown.dirs[topic.dirs.len()..] {
            let index = dir.state.as_ref().map_err(|_| ChangeError::Unusable)?;
            self.write_stamps(*index, grown, config)
                .map_err(|error| match error {
                    CreateError::Disk(error) => ChangeError::Disk(error),
                    CreateError::NotFresh => ChangeError::NotFresh,
                    _ => ChangeError::Unusable,
                })?;
        }
        self.write_row(topic, grown)
    }

    /// Writes the row of a topic that has changed. After a failure the old one stands again, so that a restart finds
    /// what is in force now; where that cannot be made sure, the change is in doubt.
    fn write_row(&self, old: &Topic, new: &Topic) -> Result<(), ChangeError> {
        let disk = &*self.place.disk;
        let path = row_path(&self.topics, &old.name);
        let Err(error) = state_file::store(disk, &path, &new.row()) else {
            return Ok(());
        };
        let stands = TopicFile::load(disk, &path, Some(&old.name));
        if matches!(stands, Ok(row) if row == old.row()) {
            return Err(ChangeError::Disk(error));
        }
        match state_file::store(disk, &path, &old.row()) {
            Ok(()) => Err(ChangeError::Disk(error)),
            Err(again) => Err(ChangeError::InDoubt(again)),
        }
    }

    /// Whether every directory that is here is ours for sure.
    fn is_fresh(&self) -> bool {
        let mut claims = self
            .place
            .log_dirs
            .present()
            .map(|(_, present)| &present.claim);
        self.place.cluster_claim.is_fresh() && claims.all(|claim| claim.is_fresh())
    }

    /// The root of a log dir that we own for sure at this moment.
    fn fresh_root(&self, index: LogDirIndex) -> Option<&Path> {
        let claim = self.place.log_dirs.claim(index)?;
        claim
            .is_fresh()
            .then(|| self.place.log_dirs.path(index))
            .flatten()
    }

    /// Takes a topic for a change.
    fn begin(&self, id: TopicId) -> Result<Arc<Topic>, ChangeError> {
        if !self.place.cluster_claim.is_fresh() {
            return Err(ChangeError::NotFresh);
        }
        let mut book = self.book.lock();
        // Under the lock: a change that ended just now has published before it gave the name back.
        let topic = self
            .snapshot
            .load()
            .by_id(id)
            .cloned()
            .ok_or(ChangeError::Unknown)?;
        match book.names.get_mut(&topic.name.collision_key()) {
            Some(taken) if !taken.busy && taken.name == topic.name => taken.busy = true,
            _ => return Err(ChangeError::Busy),
        }
        Ok(topic)
    }

    /// Gives a topic back after a change that did not happen; one in doubt stays taken until a restart.
    fn end(&self, topic: &Topic, in_doubt: bool) {
        if let Some(taken) = self.book.lock().names.get_mut(&topic.name.collision_key()) {
            taken.busy = in_doubt;
        }
    }

    /// Shows a change to everybody and gives the topic back. Under the lock, so that no change of settings is missed:
    /// those that came while this topic was busy hold from here on.
    fn publish(&self, topic: Topic) -> Arc<Topic> {
        let mut book = self.book.lock();
        let config = TopicConfig::resolve(&self.settings(), topic.config.overrides());
        let topic = Arc::new(match config {
            Ok(config) if config != *topic.config => {
                topic.with_config(Arc::new(config), topic.revision)
            }
            _ => topic,
        });
        let mut next = Snapshot::clone(&self.snapshot.load());
        next.put(Arc::clone(&topic));
        self.snapshot.store(Arc::new(next));
        if let Some(taken) = book.names.get_mut(&topic.name.collision_key()) {
            taken.busy = false;
        }
        topic
    }

    /// Takes a topic out of sight; its name stays busy.
    fn vanish(&self, topic: &Topic) {
        let _book = self.book.lock();
        let mut next = Snapshot::clone(&self.snapshot.load());
        next.remove(topic);
        self.snapshot.store(Arc::new(next));
    }
}

impl Topic {
    fn row(&self) -> TopicFile {
        TopicFile {
            topic: self.name.as_str().to_owned(),
            id: self.id,
            log_dirs: self.dirs.iter().map(|dir| dir.id).collect(),
            partitions: self.partitions.clone(),
        }
    }

    fn stamp(&self) -> Stamp {
        Stamp {
            topic: self.name.as_str().to_owned(),
            id: self.id,
            partitions: self.partitions.len(),
        }
    }

    fn with_config(&self, config: Arc<TopicConfig>, revision: u64) -> Topic {
        Topic {
            name: self.name.clone(),
            id: self.id,
            config,
            revision,
            dirs: self.dirs.clone(),
            partitions: self.partitions.clone(),
        }
    }

    fn uses(&self, index: LogDirIndex) -> bool {
        let mut dirs = self.dirs.iter();
        dirs.any(|dir| matches!(dir.state, Ok(there) if there == index))
    }

    /// `None`: that log dir is not here.
    fn with_dir(&self, log_dirs: &LogDirs, to: LogDirIndex) -> Option<Spread> {
        let mut dirs = self.dirs.clone();
        let (_, present) = log_dirs.present().find(|(dir, _)| dir.index == to)?;
        dirs.push(TopicDir {
            id: present.id,
            state: Ok(to),
        });
        Some(Spread {
            dirs,
            partitions: self.partitions.clone(),
        })
    }

    /// `None`: there is no such partition, or the topic does not use that log dir.
    fn with_place(&self, index: PartitionIndex, to: LogDirIndex) -> Option<Spread> {
        let mut dirs = self.dirs.iter();
        let at = dirs.position(|dir| matches!(dir.state, Ok(index) if index == to))?;
        let mut partitions = self.partitions.clone();
        *partitions.get_mut(usize::try_from(index.get()).ok()?)? = u16::try_from(at).ok()?;
        Some(Spread {
            dirs: self.dirs.clone(),
            partitions,
        })
    }

    fn with_partitions(&self, spread: Spread) -> Topic {
        Topic {
            name: self.name.clone(),
            id: self.id,
            config: Arc::clone(&self.config),
            revision: self.revision,
            dirs: spread.dirs,
            partitions: spread.partitions,
        }
    }
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
