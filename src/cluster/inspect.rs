//! The cluster's files as a tool sees them: nothing is taken, made, moved or repaired.
//!
//! Owns:     reading every identity, owner, catalog and stamp file, and comparing them with each other.
//! Does not: look into partitions (storage does), or take a claim: a broker may live in the same directories, so what
//!           is found may be in the making; whoever asks looks twice.
//! Called from tools, one thread.
use super::identity::{LOG_DIR_BYTES_MAX, LogDirFile, META_BYTES_MAX, Meta, Places, has_topics};
use super::ids::LogDirId;
use super::names::{TopicName, owner_number, root};
use super::owner_file::{HostFacts, OwnerRecord};
use super::producer_ids;
use super::state_file::{self, StateError, StateFault, TEMP_PREFIX};
use super::topic_files::{
    CONFIG, RowName, STAMP, TOPICS_DIR, TopicFile, load_config, load_stamp, row_path,
};
use crate::config::{Settings, TopicConfig};
use seawall_storage::disk::Disk;
use seawall_storage::{PartitionIndex, TopicId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Owner files are padded to less than this.
const OWNER_BYTES_MAX: u64 = 64 << 10;
/// The largest state file of the cluster that there may be.
const STATE_BYTES_MAX: u64 = 2 << 20;

/// Something that is wrong with a file of the cluster, or worth knowing.
#[derive(Debug)]
pub(crate) struct ClusterFinding {
    /// Whether bytes are not what was written, or files contradict each other.
    pub(crate) is_damage: bool,
    /// The file or directory.
    pub(crate) path: PathBuf,
    /// What it is.
    pub(crate) what: Trouble,
}

/// What is wrong.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The file cannot be used.
    State(StateError),
    /// It says something, but nothing says that it is what was written.
    NoChecksum,
    /// A file that must be there is not.
    Missing,
    /// It belongs to another cluster than the catalog.
    OtherCluster,
    /// `meta.json` does not know this log dir.
    UnknownLogDir(LogDirId),
    /// Another log dir has the same id.
    SameId(PathBuf),
    /// `meta.json` or a topic knows a log dir that is not here.
    AbsentLogDir(LogDirId),
    /// Another row has the same topic id.
    SameTopicId(TopicName),
    /// The stamp is of another incarnation.
    OtherTopic,
    /// The overrides are not valid in this version.
    Config(String),
    /// A topic's directory, and the catalog does not know the topic.
    NotInCatalog,
    /// A partition that the catalog does not put here.
    NotHere,
    /// An owner file that an owner left empty.
    EmptyOwner,
    /// The rest of a deleted topic.
    BeingDeleted,
    /// Set aside by a start: data of a topic that nobody knows.
    Lost,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::State(error) => {
                let text = error.to_string();
                let path = format!("{} ", error.path.display());
                f.write_str(text.strip_prefix(&path).unwrap_or(&text))
            }
            Trouble::NoChecksum => {
                f.write_str("carries no key 'crc32c': it was made by hand, or that key is damaged")
            }
            Trouble::Missing => f.write_str("is missing"),
            Trouble::OtherCluster => f.write_str("belongs to another cluster than the catalog"),
            Trouble::UnknownLogDir(id) => {
                write!(f, "has the id {id}, which meta.json does not know")
            }
            Trouble::SameId(other) => write!(f, "has the same id as {}", other.display()),
            Trouble::AbsentLogDir(id) => write!(f, "names the log dir {id}, which is not here"),
            Trouble::SameTopicId(other) => write!(f, "has the same topic id as {other}"),
            Trouble::OtherTopic => f.write_str("is of another topic than the catalog says"),
            Trouble::Config(why) => write!(f, "is not valid: {why}"),
            Trouble::NotInCatalog => {
                f.write_str("holds data of a topic that is not in the catalog")
            }
            Trouble::NotHere => f.write_str("is a partition that the catalog does not put here"),
            Trouble::EmptyOwner => f.write_str("is empty: its owner was interrupted"),
            Trouble::BeingDeleted => f.write_str("belongs to a deleted topic"),
            Trouble::Lost => f.write_str("was set aside: data of a topic that nobody knows"),
        }
    }
}

/// A partition that the catalog knows and whose log dir is here.
#[derive(Debug, Clone)]
pub(crate) struct PartitionPlace {
    /// Its topic.
    pub(crate) topic: TopicName,
    /// The incarnation.
    pub(crate) id: TopicId,
    /// Its number.
    pub(crate) partition: PartitionIndex,
    /// Its directory, which is made with its first file.
    pub(crate) dir: PathBuf,
    /// Whether at most a process has died since all logs of its log dir were whole.
    pub(crate) recovered_this_boot: bool,
}

/// What the files say.
#[derive(Debug, Default)]
pub(crate) struct ClusterLook {
    /// Everything wrong and worth knowing.
    pub(crate) findings: Vec<ClusterFinding>,
    /// Every partition.
    pub(crate) partitions: Vec<PartitionPlace>,
    /// Every topic of the catalog.
    pub(crate) topics: Vec<TopicName>,
    /// Files that were read.
    pub(crate) files: u64,
}

/// Why nothing can be verified.
#[derive(Debug)]
pub(crate) enum LookError {
    /// The directory is Kafka's.
    KafkaData(PathBuf),
    /// There is no data of a broker.
    NoData(PathBuf),
}

impl fmt::Display for LookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LookError::KafkaData(dir) => {
                write!(f, "{} holds data of Apache Kafka", dir.display())
            }
            LookError::NoData(dir) => write!(f, "{} holds no data of a broker", dir.display()),
        }
    }
}

/// Looks at a file of a folder: whether it is there; `None` if it does not belong there.
pub(crate) type LoadState = fn(&dyn Disk, &Path, &str) -> Option<Result<bool, StateError>>;

/// A folder of state files in `cluster.dir` that others than the catalog write.
pub(crate) struct StateFolder {
    /// Its name.
    pub(crate) name: &'static str,
    /// How its files are read.
    pub(crate) load: LoadState,
}

/// Reads everything but the partitions.
pub(crate) fn look(
    disk: &dyn Disk,
    places: &Places,
    settings: &Settings,
    folders: &[StateFolder],
) -> Result<ClusterLook, LookError> {
    let catalog = places.catalog();
    let dirs = places.log_dirs.iter().chain(&places.cluster_dir);
    if let Some(dir) = dirs.clone().find(|d| d.join(root::KAFKA_META).exists()) {
        return Err(LookError::KafkaData(dir.clone()));
    }
    let looks_like_data =
        |dir: &&PathBuf| dir.join(root::LOG_DIR).exists() || dir.join(root::META).exists();
    if !catalog.join(root::META).exists() && dirs.clone().find(looks_like_data).is_none() {
        return Err(LookError::NoData(catalog));
    }
    let mut looker = Looker {
        disk,
        settings,
        look: ClusterLook::default(),
        dirs: Vec::new(),
    };
    let meta = looker.meta(&catalog);
    for dir in &places.log_dirs {
        looker.log_dir(dir, meta.as_ref());
    }
    looker.compare(&catalog, meta.as_ref());
    looker.producer_ids(&catalog);
    for folder in folders {
        looker.state_folder(&catalog.join(folder.name), folder.load);
    }
    let rows = looker.rows(&catalog.join(TOPICS_DIR));
    for (name, file) in &rows.files {
        looker.topic(&catalog, name, file);
    }
    for (at, _) in places.log_dirs.iter().enumerate() {
        looker.strays(at, &rows);
    }
    Ok(looker.look)
}

struct Looker<'a> {
    disk: &'a dyn Disk,
    settings: &'a Settings,
    look: ClusterLook,
    dirs: Vec<Dir>,
}

/// One configured log dir.
struct Dir {
    path: PathBuf,
    id: Option<LogDirId>,
    recovered_this_boot: bool,
}

#[derive(Default)]
struct Rows {
    files: BTreeMap<TopicName, TopicFile>,
    /// Their names are taken, whatever they were.
    damaged: HashSet<TopicName>,
    deleted: HashSet<TopicId>,
}

impl Looker<'_> {
    fn tell(&mut self, is_damage: bool, path: impl Into<PathBuf>, what: Trouble) {
        self.look.findings.push(ClusterFinding {
            is_damage,
            path: path.into(),
            what,
        });
    }

    fn damage(&mut self, path: impl Into<PathBuf>, what: Trouble) {
        self.tell(true, path, what);
    }

    /// The value, or a finding; a missing file is one as well.
    fn must<T>(&mut self, path: &Path, read: Result<Option<T>, StateError>) -> Option<T> {
        self.look.files += 1;
        match read {
            Ok(Some(value)) => {
                if !state_file::has_checksum(self.disk, path, STATE_BYTES_MAX) {
                    self.tell(false, path, Trouble::NoChecksum);
                }
                return Some(value);
            }
            Ok(None) => self.damage(path, Trouble::Missing),
            Err(error) => self.damage(path, Trouble::State(error)),
        }
        None
    }

    fn list(&mut self, dir: &Path) -> Vec<seawall_storage::disk::DirEntry> {
        match self.disk.list(dir) {
            Ok(mut entries) => {
                entries.sort();
                entries
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                self.damage(dir, Trouble::State(StateError::io(dir)(error)));
                Vec::new()
            }
        }
    }

    fn meta(&mut self, catalog: &Path) -> Option<Meta> {
        let path = catalog.join(root::META);
        let read = state_file::load(self.disk, &path, META_BYTES_MAX);
        self.must(&path, read)
    }

    fn log_dir(&mut self, dir: &Path, meta: Option<&Meta>) {
        let path = dir.join(root::LOG_DIR);
        let read = state_file::load(self.disk, &path, LOG_DIR_BYTES_MAX);
        let file: Option<LogDirFile> = match read {
            // A start will make it, unless topics show that it was there.
            Ok(None) if !has_topics(self.disk, dir).unwrap_or(true) => None,
            read => self.must(&path, read),
        };
        if let (Some(file), Some(meta)) = (&file, meta) {
            if file.cluster_id != meta.cluster_id {
                self.damage(&path, Trouble::OtherCluster);
            } else if !meta.log_dirs.contains(&file.id) {
                self.damage(&path, Trouble::UnknownLogDir(file.id));
            }
        }
        let id = file.map(|file| file.id);
        let same = self
            .dirs
            .iter()
            .find(|other| id.is_some() && other.id == id);
        if let Some(other) = same.map(|other| other.path.clone()) {
            self.damage(&path, Trouble::SameId(other));
        }
        let recovered_this_boot = self.owners(dir);
        self.dirs.push(Dir {
            path: dir.to_owned(),
            id,
            recovered_this_boot,
        });
    }

    /// Every owner file; whether the newest says that in this boot every log was whole.
    fn owners(&mut self, dir: &Path) -> bool {
        let mut newest: Option<(u64, bool)> = None;
        for entry in self.list(dir) {
            let Some(n) = owner_number(&entry.name) else {
                continue;
            };
            let path = dir.join(&entry.name);
            let recovered = self
                .owner(&path)
                .is_some_and(|record| record.recovered && record.is_of_boot(&HostFacts::read()));
            if newest.is_none_or(|(newest, _)| newest < n) {
                newest = Some((n, recovered));
            }
        }
        newest.is_some_and(|(_, recovered)| recovered)
    }

    fn owner(&mut self, path: &Path) -> Option<OwnerRecord> {
        self.look.files += 1;
        if self.disk.file_len(path).is_ok_and(|len| len == 0) {
            self.tell(false, path, Trouble::EmptyOwner);
            return None;
        }
        match state_file::load(self.disk, path, OWNER_BYTES_MAX) {
            Ok(record) => record,
            Err(error) => {
                self.damage(path, Trouble::State(error));
                None
            }
        }
    }

    /// Log dirs that the cluster knows and that are not here.
    fn compare(&mut self, catalog: &Path, meta: Option<&Meta>) {
        let known = meta.map_or(&[][..], |meta| &meta.log_dirs);
        for id in known {
            if !self.dirs.iter().any(|dir| dir.id == Some(*id)) {
                self.damage(catalog.join(root::META), Trouble::AbsentLogDir(*id));
            }
        }
    }

    fn producer_ids(&mut self, catalog: &Path) {
        let dir = catalog.join(producer_ids::DIR);
        let mut any = false;
        for entry in self.list(&dir) {
            if !producer_ids::is_block(&entry.name) {
                continue;
            }
            any = true;
            let path = dir.join(&entry.name);
            let read = producer_ids::load_end(self.disk, &path);
            self.must(&path, read);
        }
        if !any {
            self.damage(dir.join("broker-*.json"), Trouble::Missing);
        }
    }

    /// A folder may be missing: it is made when it is needed.
    fn state_folder(&mut self, dir: &Path, load: LoadState) {
        for entry in self.list(dir) {
            let path = dir.join(&entry.name);
            if let Some(read) = load(self.disk, &path, &entry.name) {
                self.must(&path, read.map(|there| there.then_some(())));
            }
        }
    }

    fn rows(&mut self, topics: &Path) -> Rows {
        let mut rows = Rows::default();
        let mut ids: HashMap<TopicId, TopicName> = HashMap::new();
        for entry in self.list(topics) {
            let path = topics.join(&entry.name);
            match RowName::parse(&entry.name) {
                RowName::Topic(name) => {
                    let read = TopicFile::load(self.disk, &path, Some(&name)).map(Some);
                    let Some(file) = self.must(&path, read) else {
                        rows.damaged.insert(name);
                        continue;
                    };
                    if let Some(other) = ids.insert(file.id, name.clone()) {
                        self.damage(&path, Trouble::SameTopicId(other));
                    }
                    rows.files.insert(name, file);
                }
                RowName::Tombstone(id) => {
                    rows.deleted.insert(id);
                    self.tell(false, path, Trouble::BeingDeleted);
                }
                RowName::Other => {}
            }
        }
        self.look.topics = rows.files.keys().cloned().collect();
        rows
    }

    fn topic(&mut self, catalog: &Path, name: &TopicName, file: &TopicFile) {
        let row = row_path(&catalog.join(TOPICS_DIR), name);
        for (at, id) in file.log_dirs.iter().enumerate() {
            let Some(dir) = self.dirs.iter().position(|dir| dir.id == Some(*id)) else {
                self.damage(&row, Trouble::AbsentLogDir(*id));
                continue;
            };
            self.topic_dir(dir, name, file);
            let (path, recovered_this_boot) = (
                self.dirs[dir].path.join(name.as_str()),
                self.dirs[dir].recovered_this_boot,
            );
            let numbers = file.partitions.iter().zip(0..);
            let here = numbers.filter(|(place, _)| usize::from(**place) == at);
            self.look
                .partitions
                .extend(here.map(|(_, n)| PartitionPlace {
                    topic: name.clone(),
                    id: file.id,
                    partition: PartitionIndex(n),
                    dir: path.join(n.to_string()),
                    recovered_this_boot,
                }));
        }
    }

    /// Stamp and overrides of a topic in a log dir.
    fn topic_dir(&mut self, dir: usize, name: &TopicName, file: &TopicFile) {
        let path = self.dirs[dir].path.join(name.as_str());
        let read = load_stamp(self.disk, &path);
        if let Some(stamp) = self.must(&path.join(STAMP), read)
            && stamp.id != file.id
        {
            self.damage(path.join(STAMP), Trouble::OtherTopic);
        }
        let read = load_config(self.disk, &path);
        if let Some(config) = self.must(&path.join(CONFIG), read)
            && let Err(error) = TopicConfig::resolve(self.settings, &config.config)
        {
            self.damage(path.join(CONFIG), Trouble::Config(error.to_string()));
        }
    }

    /// What stands in a log dir and is in no row.
    fn strays(&mut self, at: usize, rows: &Rows) {
        let (base, id) = (self.dirs[at].path.clone(), self.dirs[at].id);
        for entry in self.list(&base) {
            let path = base.join(&entry.name);
            if !entry.is_dir || entry.name.starts_with(TEMP_PREFIX) {
                continue;
            }
            if entry.name.starts_with(root::TRASH_PREFIX) {
                self.tell(false, path, Trouble::BeingDeleted);
            } else if entry.name.starts_with(root::LOST_PREFIX) {
                self.tell(false, path, Trouble::Lost);
            } else if let Ok(name) = TopicName::parse(&entry.name) {
                match rows.files.get(&name) {
                    Some(file) => self.misplaced(&path, id, file),
                    None if rows.damaged.contains(&name) => {}
                    None => self.stray(&path, rows),
                }
            }
        }
    }

    /// Partition directories that the catalog does not put here.
    fn misplaced(&mut self, topic: &Path, id: Option<LogDirId>, file: &TopicFile) {
        for entry in self.list(topic).iter().filter(|entry| entry.is_dir) {
            let number = entry.name.parse::<usize>().ok();
            let place = number.and_then(|n| file.partitions.get(n));
            let right = place.and_then(|at| file.log_dirs.get(usize::from(*at)));
            if right.is_none() || right.copied() != id {
                self.tell(false, topic.join(&entry.name), Trouble::NotHere);
            }
        }
    }

    /// A directory with a stamp and with data, of a topic that the catalog does not know.
    fn stray(&mut self, topic: &Path, rows: &Rows) {
        let stamp = match load_stamp(self.disk, topic) {
            Ok(None) => return,
            Ok(Some(stamp)) => stamp,
            Err(error) => {
                let gone = matches!(&error.fault, StateFault::Io(e) if e.kind() == io::ErrorKind::NotFound);
                if !gone {
                    self.damage(topic.join(STAMP), Trouble::State(error));
                }
                return;
            }
        };
        if rows.deleted.contains(&stamp.id) {
            self.tell(false, topic, Trouble::BeingDeleted);
        } else if self.list(topic).iter().any(|entry| entry.is_dir) {
            self.damage(topic, Trouble::NotInCatalog);
        }
    }
}
