//! Reading the catalog at start, and putting right what crashes have left (DESIGN 6.4).
//!
//! Owns:     the comparison of the catalog's rows with the stamps in the log dirs.
//! Does not: change a row; start or delete a topic.
//! Called once, by the thread that starts the broker, with every directory claimed.
use super::ids::LogDirId;
use super::log_dirs::{LogDirIndex, LogDirs};
use super::names::{TopicName, root};
use super::removal::Removal;
use super::snapshot::{PlaceFault, Topic, TopicDir};
use super::state_file::{StateError, remove_temps};
use super::stray::{Cleared, clear};
use super::topic_files::{
    CONFIG, ConfigFile, RowName, STAMP, TopicFile, load_config, load_stamp, tombstone_path,
};
use crate::config::{Settings, TopicConfig};
use seawall_storage::TopicId;
use seawall_storage::disk::Disk;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Something the operator should know about, found at start.
#[derive(Debug)]
pub(crate) enum Finding {
    /// A directory that did not belong where it was.
    Stray(Cleared),
    /// A directory that could not be cleared away now.
    StrayStays(StateError),
    /// A row of the catalog cannot be read: the topic is unknown, its name stays taken, its data stays.
    DamagedRow(Arc<StateError>),
    /// Partitions of a topic cannot be used.
    Offline {
        /// The topic.
        topic: TopicName,
        /// Why.
        fault: PlaceFault,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Stray(cleared) => write!(f, "{cleared}"),
            Finding::StrayStays(error) => write!(f, "a stray directory stays for now: {error}"),
            Finding::DamagedRow(error) => write!(f, "a topic is unusable: {error}"),
            Finding::Offline { topic, fault } => {
                write!(f, "topic {topic} has offline partitions: {fault}")
            }
        }
    }
}

/// What stands in the catalog.
pub(super) struct Opened {
    pub(super) topics: Vec<Arc<Topic>>,
    pub(super) damaged: HashMap<TopicName, Arc<StateError>>,
    pub(super) removal: Removal,
    pub(super) findings: Vec<Finding>,
}

/// Reads `topics`, a directory that exists.
pub(super) fn open(
    disk: &dyn Disk,
    topics: &Path,
    log_dirs: &LogDirs,
    settings: &Settings,
) -> Result<Opened, StateError> {
    let mut rows = Rows::read(disk, topics)?;
    let mut stamps = HashMap::new();
    let mut removal = Removal::default();
    for (dir, _) in log_dirs.present() {
        let mut scan = Scan {
            disk,
            root: &dir.path,
            rows: &mut rows,
            removal: &mut removal,
        };
        let found = scan.run().map_err(StateError::io(&dir.path))?;
        stamps.extend(
            found
                .into_iter()
                .map(|(name, state)| ((dir.index, name), state)),
        );
    }
    // What could not be cleared away may be of any deleted topic (R1).
    if !rows
        .findings
        .iter()
        .any(|finding| matches!(finding, Finding::StrayStays(_)))
    {
        removal.tombstones = rows.finished_tombstones(disk, topics, log_dirs);
    }
    let Rows {
        files,
        damaged,
        mut findings,
        ..
    } = rows;
    let mut opened = Vec::new();
    for (name, file) in files {
        let topic = Assembly {
            disk,
            log_dirs,
            settings,
            stamps: &stamps,
        }
        .topic(name, file);
        let faults = topic.dirs.iter().filter_map(|dir| dir.state.as_ref().err());
        findings.extend(faults.map(|fault| Finding::Offline {
            topic: topic.name.clone(),
            fault: fault.clone(),
        }));
        opened.push(Arc::new(topic));
    }
    Ok(Opened {
        topics: opened,
        damaged,
        removal,
        findings,
    })
}

/// The files of `topics/`.
struct Rows {
    files: BTreeMap<TopicName, TopicFile>,
    damaged: HashMap<TopicName, Arc<StateError>>,
    tombstones: HashSet<TopicId>,
    findings: Vec<Finding>,
}

impl Rows {
    fn read(disk: &dyn Disk, topics: &Path) -> Result<Rows, StateError> {
        remove_temps(disk, topics).map_err(StateError::io(topics))?;
        let mut rows = Rows {
            files: BTreeMap::new(),
            damaged: HashMap::new(),
            tombstones: HashSet::new(),
            findings: Vec::new(),
        };
        for entry in disk.list(topics).map_err(StateError::io(topics))? {
            match RowName::parse(&entry.name) {
                RowName::Topic(name) => rows.read_row(disk, &topics.join(&entry.name), name),
                RowName::Tombstone(id) => drop(rows.tombstones.insert(id)),
                RowName::Other => {}
            }
        }
        // A row beats a tombstone: missing or doubtful metadata never deletes data (D12).
        let catalogued: HashSet<TopicId> = rows.files.values().map(|file| file.id).collect();
        rows.tombstones.retain(|id| !catalogued.contains(id));
        Ok(rows)
    }

    fn read_row(&mut self, disk: &dyn Disk, path: &Path, name: TopicName) {
        match TopicFile::load(disk, path, Some(&name)) {
            Ok(file) => drop(self.files.insert(name, file)),
            Err(error) => {
                let error = Arc::new(error);
                self.findings.push(Finding::DamagedRow(Arc::clone(&error)));
                self.damaged.insert(name, error);
            }
        }
    }

    /// Tombstones that may go once the trash is gone: those of topics all of whose log dirs are here (R1).
    fn finished_tombstones(
        &self,
        disk: &dyn Disk,
        topics: &Path,
        log_dirs: &LogDirs,
    ) -> Vec<std::path::PathBuf> {
        let is_here = |id: &LogDirId| log_dirs.find(*id).is_some();
        let done = |path: &Path| match TopicFile::load(disk, path, None) {
            Ok(file) => file.log_dirs.iter().all(is_here),
            Err(_damaged) => log_dirs.missing().is_empty(),
        };
        let paths = self.tombstones.iter().map(|id| tombstone_path(topics, *id));
        paths.filter(|path| done(path)).collect()
    }
}

/// What a topic's directory in one log dir says about itself.
type StampState = Result<(), PlaceFault>;

/// One log dir, entry by entry.
struct Scan<'a> {
    disk: &'a dyn Disk,
    root: &'a Path,
    rows: &'a mut Rows,
    removal: &'a mut Removal,
}

impl Scan<'_> {
    /// The stamps of catalogued topics here; everything else is cleared away.
    fn run(&mut self) -> std::io::Result<HashMap<TopicName, StampState>> {
        remove_temps(self.disk, self.root)?;
        let mut stamps = HashMap::new();
        for entry in self.disk.list(self.root)? {
            if !entry.is_dir {
                continue;
            }
            if entry.name.starts_with(root::TRASH_PREFIX) {
                self.removal.trash.push(self.root.join(&entry.name));
            }
            if let Ok(name) = TopicName::parse(&entry.name) {
                stamps.extend(self.look(&name).map(|state| (name, state)));
            }
        }
        Ok(stamps)
    }

    fn look(&mut self, name: &TopicName) -> Option<StampState> {
        if self.rows.damaged.contains_key(name) {
            return None;
        }
        let dir = self.root.join(name.as_str());
        let stamp = load_stamp(self.disk, &dir);
        if let Some(file) = self.rows.files.get(name) {
            match stamp {
                Ok(Some(stamp)) if stamp.id == file.id => return Some(Ok(())),
                Err(error) => return Some(Err(PlaceFault::Unreadable(Arc::new(error)))),
                Ok(None) => return None,
                Ok(Some(_other)) => {}
            }
        }
        self.clear(name);
        None
    }

    fn clear(&mut self, name: &TopicName) {
        let tombstones = &self.rows.tombstones;
        match clear(
            self.disk,
            self.root,
            name,
            &|id| tombstones.contains(&id),
            false,
        ) {
            Ok(Cleared::Trash(trash)) => self.removal.trash.push(trash),
            Ok(Cleared::Nothing | Cleared::Foreign(_)) => {}
            Ok(cleared) => self.rows.findings.push(Finding::Stray(cleared)),
            Err(error) => self.rows.findings.push(Finding::StrayStays(error)),
        }
    }
}

/// Makes a topic of its row and of what its directories say.
struct Assembly<'a> {
    disk: &'a dyn Disk,
    log_dirs: &'a LogDirs,
    settings: &'a Settings,
    stamps: &'a HashMap<(LogDirIndex, TopicName), StampState>,
}

impl Assembly<'_> {
    fn topic(&self, name: TopicName, file: TopicFile) -> Topic {
        let mut dirs: Vec<TopicDir> = file
            .log_dirs
            .iter()
            .map(|&id| self.dir(&name, id))
            .collect();
        let (config, revision) = self.config(&name, &mut dirs);
        Topic {
            name,
            id: file.id,
            config: Arc::new(config),
            revision,
            dirs,
            partitions: file.partitions,
        }
    }

    fn dir(&self, name: &TopicName, id: LogDirId) -> TopicDir {
        let Some(index) = self.log_dirs.find(id) else {
            return TopicDir {
                id,
                state: Err(PlaceFault::DirAbsent(id)),
            };
        };
        let state = match self.stamps.get(&(index, name.clone())) {
            Some(Ok(())) => Ok(index),
            Some(Err(fault)) => Err(fault.clone()),
            None => Err(PlaceFault::StampMissing(self.path(index, name).join(STAMP))),
        };
        TopicDir { id, state }
    }

    fn path(&self, index: LogDirIndex, name: &TopicName) -> std::path::PathBuf {
        self.log_dirs
            .path(index)
            .unwrap_or_else(|| Path::new(""))
            .join(name.as_str())
    }

    /// The overrides of the highest revision found. Where none can be used, no partition can.
    fn config(&self, name: &TopicName, dirs: &mut [TopicDir]) -> (TopicConfig, u64) {
        match self.find_config(name, dirs) {
            Ok((config, revision)) => (config, revision),
            Err(fault) => {
                dirs.iter_mut()
                    .filter(|dir| dir.state.is_ok())
                    .for_each(|dir| dir.state = Err(fault.clone()));
                (TopicConfig::defaults(self.settings), 0)
            }
        }
    }

    fn find_config(
        &self,
        name: &TopicName,
        dirs: &[TopicDir],
    ) -> Result<(TopicConfig, u64), PlaceFault> {
        let mut best: Option<ConfigFile> = None;
        let mut fault = None;
        for index in dirs.iter().filter_map(|dir| dir.state.as_ref().ok()) {
            let path = self.path(*index, name);
            match load_config(self.disk, &path) {
                Ok(Some(file))
                    if best
                        .as_ref()
                        .is_none_or(|best| best.revision < file.revision) =>
                {
                    best = Some(file);
                }
                Ok(Some(_older)) => {}
                Ok(None) => fault = Some(PlaceFault::ConfigMissing(path.join(CONFIG))),
                Err(error) => fault = Some(PlaceFault::Unreadable(Arc::new(error))),
            }
        }
        match (best, fault) {
            (Some(file), _) => {
                let config = TopicConfig::resolve(self.settings, &file.config)
                    .map_err(PlaceFault::Config)?;
                Ok((config, file.revision))
            }
            (None, Some(fault)) => Err(fault),
            (None, None) => Ok((TopicConfig::defaults(self.settings), 0)),
        }
    }
}
