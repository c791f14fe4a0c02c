//! For tests: a cluster in temporary directories that can be killed and opened again.
use super::test_disk::TestDisk;
use super::*;
use crate::config::{CommandLine, Config};
use seawall_storage::TopicId;
use std::collections::{BTreeMap, BTreeSet};
use tempfile::TempDir;

/// Directories that outlive brokers, and the disk they run on.
pub(super) struct Machine {
    pub(super) home: TempDir,
    pub(super) disk: TestDisk,
    pub(super) dirs: Vec<PathBuf>,
    pub(super) cluster_dir: Option<PathBuf>,
    pub(super) set: Vec<String>,
}

impl Machine {
    /// With this many log dirs; the first one holds the catalog.
    pub(super) fn new(dirs: usize) -> Machine {
        // Memory where there is some: these tests count syncs, they do not wait for them.
        let home = TempDir::new_in("/dev/shm")
            .or_else(|_| TempDir::new())
            .unwrap();
        let dirs = (0..dirs)
            .map(|n| home.path().join(format!("d{n}")))
            .collect();
        Machine {
            home,
            disk: TestDisk::default(),
            dirs,
            cluster_dir: None,
            set: Vec::new(),
        }
    }

    /// With the catalog in a directory of its own.
    pub(super) fn with_catalog_apart(dirs: usize) -> Machine {
        let mut machine = Machine::new(dirs);
        machine.cluster_dir = Some(machine.home.path().join("catalog"));
        machine
    }

    pub(super) fn options(&self) -> ClusterOptions {
        let line = CommandLine {
            set: self.set.clone(),
            ..CommandLine::default()
        };
        let config = Config::load(&line).unwrap();
        let mut options = ClusterOptions::new(&config, Arc::default(), Arc::new(|_| {}));
        options.log_dirs.clone_from(&self.dirs);
        options.cluster_dir.clone_from(&self.cluster_dir);
        options.disk = Arc::new(self.disk.clone());
        options
    }

    pub(super) fn start(&self) -> Cluster {
        self.disk.heal();
        self.try_start().unwrap()
    }

    pub(super) fn try_start(&self) -> Result<Cluster, ClusterError> {
        Cluster::open(&self.options())
    }

    /// Everything under the directories, as paths relative to them; identity and owner files left out.
    pub(super) fn tree(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for dir in self.dirs.iter().chain(&self.cluster_dir) {
            walk(self.home.path(), dir, &mut found);
        }
        let own = |path: &String| {
            [".lock", "log-dir.json", "owner-"]
                .iter()
                .any(|name| path.contains(name))
        };
        found.retain(|path| !own(path));
        found
    }

    /// What a log makes at its first append.
    pub(super) fn put_data(&self, dir: usize, topic: &str, partition: i32) {
        let path = self.dirs[dir].join(topic).join(partition.to_string());
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("00000001-00000000000000000000.log"), b"records").unwrap();
    }
}

fn walk(home: &Path, dir: &Path, found: &mut BTreeSet<String>) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        found.insert(
            path.strip_prefix(home)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned(),
        );
        walk(home, &path, found);
    }
}

/// Settings of a topic.
pub(super) fn overrides(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

impl Cluster {
    pub(super) fn create(&self, name: &str, partitions: i32) -> Result<Arc<Topic>, CreateError> {
        let overrides = overrides(&[("retention.ms", "5")]);
        self.catalog.create(&NewTopic {
            name,
            partitions,
            overrides,
        })
    }

    pub(super) fn id_of(&self, name: &str) -> Option<TopicId> {
        self.catalog.load().by_name(name).map(|topic| topic.id)
    }

    /// Deletes as a broker does whose logs are closed, up to the first error.
    pub(super) fn delete(&self, name: &str) -> Result<(), String> {
        let id = self.id_of(name).ok_or("unknown")?;
        let mut removal = self.catalog.delete(id).map_err(|error| error.to_string())?;
        match self.catalog.set_aside(&mut removal) {
            Progress::Stuck(error) => return Err(error.to_string()),
            Progress::NotFresh => return Err("not fresh".to_owned()),
            Progress::More | Progress::Done => {}
        }
        finish(&self.catalog, &mut removal)
    }

    pub(super) fn finish_removal(&mut self) -> Result<(), String> {
        finish(&self.catalog, &mut self.removal)
    }
}

fn finish(catalog: &Catalog, removal: &mut Removal) -> Result<(), String> {
    loop {
        match catalog.remove_step(removal, 2) {
            Progress::More => {}
            Progress::Stuck(error) => return Err(error.to_string()),
            Progress::NotFresh => return Err("not fresh".to_owned()),
            Progress::Done => return Ok(()),
        }
    }
}
