//! The catalog on a disk that forgets what was not synced.
use super::catalog::{Catalog, CatalogPlace, NewTopic};
use super::claim::{ClaimOptions, DirClaim, OwnerTiming};
use super::ids::LogDirId;
use super::log_dirs::{LogDir, LogDirIndex, LogDirs, PresentDir};
use super::owner_file::HostFacts;
use super::removal::Removal;
use super::topic_files::TOPICS_DIR;
use crate::config::Settings;
use seawall_storage::disk::{Crash, Disk, Fault, FaultAt, SimDisk};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DIRS: usize = 2;

/// Claims on the real disk that stay fresh for ever.
struct Claims {
    dirs: Vec<Arc<DirClaim>>,
    _home: tempfile::TempDir,
}

/// Two log dirs on a simulated disk.
struct Simulated<'a> {
    disk: SimDisk,
    claims: &'a Claims,
    ids: Vec<LogDirId>,
}

impl Claims {
    fn new() -> Claims {
        let home = tempfile::tempdir().unwrap();
        let options = ClaimOptions {
            facts: HostFacts::read(),
            timing: OwnerTiming::default(),
            stop: Arc::default(),
            on_lost: Arc::new(|_| {}),
            always_shared: false,
        };
        let claim = |n: usize| {
            let dir = home.path().join(n.to_string());
            std::fs::create_dir(&dir).unwrap();
            Arc::new(DirClaim::open(&dir, "t", &options).unwrap())
        };
        let dirs = (0..DIRS).map(claim).collect();
        Claims { dirs, _home: home }
    }
}

impl Simulated<'_> {
    fn new(claims: &Claims) -> Simulated<'_> {
        let disk = SimDisk::new();
        let topics = cluster_dir().join(TOPICS_DIR);
        for dir in [cluster_dir(), topics, root(0), root(1)] {
            disk.create_dir(&dir).unwrap();
            disk.sync_dir(dir.parent().unwrap()).unwrap();
        }
        let ids = (0..DIRS).map(|_| LogDirId::random()).collect();
        Simulated { disk, claims, ids }
    }

    fn open(&self) -> (Catalog, Removal) {
        let dir = |n: usize| LogDir {
            index: LogDirIndex(n),
            path: root(n),
            state: Ok(PresentDir {
                id: self.ids[n],
                claim: Arc::clone(&self.claims.dirs[n]),
            }),
        };
        let place = CatalogPlace {
            disk: Arc::new(self.disk.clone()),
            cluster_dir: cluster_dir(),
            cluster_claim: Arc::clone(&self.claims.dirs[0]),
            log_dirs: Arc::new(LogDirs::new((0..DIRS).map(dir).collect(), Vec::new())),
            settings: Arc::new(Settings::default()),
        };
        let (catalog, removal, _) = Catalog::open(place).unwrap();
        (catalog, removal)
    }

    fn cut_power_at(&self, step: u64) {
        self.disk.inject(FaultAt {
            op: None,
            after: step,
            fault: Fault::PowerCut,
        });
    }

    /// What is there beside the directories of an empty cluster. An empty directory of a creation that never happened
    /// may be anybody's; the next creation takes it.
    fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        self.names_under(Path::new("/"), &mut left);
        let usual = ["/c", "/c/topics", "/d0", "/d1", "/d0/t", "/d1/t"];
        left.retain(|path| !usual.contains(&path.as_str()));
        left
    }

    fn names_under(&self, dir: &Path, found: &mut Vec<String>) {
        for entry in self.disk.list(dir).unwrap_or_default() {
            let path = dir.join(&entry.name);
            found.push(path.to_str().unwrap().to_owned());
            if entry.is_dir {
                self.names_under(&path, found);
            }
        }
    }
}

fn cluster_dir() -> PathBuf {
    PathBuf::from("/c")
}

fn root(n: usize) -> PathBuf {
    PathBuf::from(format!("/d{n}"))
}

fn create(catalog: &Catalog) -> bool {
    let overrides = BTreeMap::from([("retention.ms".to_owned(), "5".to_owned())]);
    let new = NewTopic {
        name: "t",
        partitions: 4,
        overrides,
    };
    catalog.create(&new).is_ok()
}

/// The commit of a deletion; the simulated disk cannot rename directories, so nothing is set aside.
fn delete(catalog: &Catalog) -> bool {
    let id = catalog.load().by_name("t").unwrap().id;
    catalog.delete(id).is_ok()
}

#[track_caller]
fn check_whole_or_absent(catalog: &Catalog, context: &str) -> bool {
    let snapshot = catalog.snapshot();
    assert_eq!(snapshot.damaged_names().count(), 0, "{context}");
    let Some(topic) = snapshot.by_name("t") else {
        return false;
    };
    assert!(topic.places().all(|(_, place)| place.is_ok()), "{context}");
    assert_eq!(topic.config.retention_ms, Some(5), "{context}");
    true
}

fn crashes() -> impl Iterator<Item = Crash> {
    [Crash::KeepAll, Crash::LoseAll]
        .into_iter()
        .chain((0..20).map(Crash::Random))
}

/// Cuts the power at every step of `change`, in every way, and says what was there afterwards.
fn at_every_power_cut(
    prepare: impl Fn(&Catalog),
    change: impl Fn(&Catalog) -> bool,
    judge: impl Fn(&Simulated<'_>, &Catalog, (bool, bool), &str),
) {
    let claims = Claims::new();
    for crash in crashes() {
        for step in 0.. {
            let machine = Simulated::new(&claims);
            prepare(&machine.open().0);
            machine.cut_power_at(step);
            let done = change(&machine.open().0);
            let cut = !machine.disk.clear_faults();
            machine.disk.restart(crash);
            let context = format!("{crash:?} at step {step}");
            let (catalog, _) = machine.open();
            let there = check_whole_or_absent(&catalog, &context);
            judge(&machine, &catalog, (done, there), &context);
            if !cut {
                assert!(done && step > 1, "{context}");
                break;
            }
        }
    }
}

#[test]
fn a_topic_whose_creation_was_answered_survives_a_power_cut_and_a_half_one_never_appears() {
    at_every_power_cut(
        |_| {},
        create,
        |machine, catalog, (done, there), context| {
            assert!(there || !done, "T2 {context}");
            if !there {
                assert_eq!(machine.left(), [""; 0], "{context}");
                assert!(create(catalog), "{context}");
            }
        },
    );
}

#[test]
fn a_topic_whose_deletion_was_answered_never_comes_back_after_a_power_cut() {
    let prepare = |catalog: &Catalog| assert!(create(catalog));
    at_every_power_cut(prepare, delete, |_, _, (done, there), context| {
        assert!(!(there && done), "T2 {context}");
    });
}
