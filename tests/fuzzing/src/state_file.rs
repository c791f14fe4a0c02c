//! State files as a disk or a hand may leave them: groups, transactions, rules, limits, users, the catalog.
//!
//! A file without a checksum is one that was made by hand, and is read on: so what is changed in it is met.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use seawall_storage::disk::{Disk, RealDisk, SimDisk};
use tempfile::TempDir;

use crate::cluster::Places;
use crate::cluster::inspect;
use crate::config::{CommandLine, Config};
use crate::groups::file as group_file;
use crate::groups::group::Group;
use crate::security::acl::{Question, ResourceType, RuleStore};
use crate::security::credentials;
use crate::security::quota::QuotaKind;
use crate::security::quota::store::QuotaStore;
use crate::txn::slot::{self, Slot};

const DIR: &str = "/cluster";

/// What is done with a file.
enum Kind {
    /// It is read as a group of that file name, and the group is brought to life.
    Group,
    /// It is read as the slot of that number.
    Slot(usize),
    Rules,
    Limits,
    Users,
    /// It stands below a log dir, and everything there is read.
    Catalog,
}

/// A file that is as it should be, by its path below the log dir.
struct Seed {
    path: &'static str,
    kind: Kind,
    content: &'static str,
}

static SEEDS: [Seed; 12] = [
    Seed {
        path: "g.json",
        kind: Kind::Group,
        content: r#"{"committed":{"offsets":{"t":{"id":"a316d3c8-1d57-4621-9c9b-a7fa6c8458dc","partitions":{"1":{"committedMs":1796037466516,"leaderEpoch":0,"metadata":"","offset":1}}}}},"emptySinceMs":0,"format":1,"group":"g","members":{"classic":{"generation":1,"leader":"m-1","members":{"m-1":{"assignment":"00000000000100017400000002000000000000000100000000","clientHost":"/127.0.0.1","clientId":"c","instance":null,"protocols":[["range","0003000000010001740000000000000000ffffffff0000"]],"rebalanceTimeoutMs":300000,"sessionTimeoutMs":45000}},"protocol":"range","protocolType":"consumer"}}}"#,
    },
    Seed {
        path: "n.json",
        kind: Kind::Group,
        content: r#"{"committed":{"offsets":{}},"emptySinceMs":0,"format":1,"group":"n","members":{"consumer":{"assignmentEpoch":2,"epoch":2,"members":{"tLAplyDFSlu4+AaWjqKYZw":{"assigned":{"a316d3c8-1d57-4621-9c9b-a7fa6c8458dc":{"0":2,"1":2}},"assignor":null,"classic":null,"clientHost":"/127.0.0.1","clientId":"c","epoch":2,"instance":null,"matched":[],"previousEpoch":0,"rack":null,"rebalanceTimeoutMs":300000,"regex":null,"revoking":{},"state":"stable","target":{"a316d3c8-1d57-4621-9c9b-a7fa6c8458dc":[0,1]},"topics":["t"]}}}}}"#,
    },
    Seed {
        path: "slot-45.json",
        kind: Kind::Slot(45),
        content: r#"{"format":1,"slot":45,"transactions":{"x":{"groups":[],"lastEpoch":-1,"nextProducerId":-1,"partitions":[{"id":"oxbTyB1XRiGcm6f6bIRY3A","partition":1,"topic":"t"}],"phase":"Ongoing","previousProducerId":-1,"producerEpoch":0,"producerId":0,"startedMs":1796037463309,"timeoutMs":60000,"updatedMs":1796037463309,"v2":false}}}"#,
    },
    Seed {
        path: "acls.json",
        kind: Kind::Rules,
        content: r#"{"format":1,"acls":[{"resource":"TOPIC","pattern":"LITERAL","name":"t","principal":"User:a","host":"*","operation":"READ","permission":"ALLOW"},{"resource":"GROUP","pattern":"PREFIXED","name":"g-","principal":"User:*","host":"127.0.0.1","operation":"ALL","permission":"DENY"}]}"#,
    },
    Seed {
        path: "quotas.json",
        kind: Kind::Limits,
        content: r#"{"format":1,"quotas":[{"entity":{"user":{"of":"a"},"clientId":"default"},"limits":{"producer_byte_rate":1024.5,"request_percentage":1e300}}]}"#,
    },
    Seed {
        path: "credentials.json",
        kind: Kind::Users,
        content: r#"{"format":1,"secret":"t/IdneL6X869aNPMaOsLdAQmwxMy5HIJlTGlJL0KGrU=","users":{"alice":{"SCRAM-SHA-256":{"iterations":4096,"salt":"MDEyMzQ1Njc4OWFiY2RlZg==","serverKey":"VpYlBuxyzeCI1KnctrefdljpB1mk3Gp7sBI/t11+NkQ=","storedKey":"bpSY5Ze9NUH+I35LC3gVq+DpBfK46iXBxvhAKqVu9pE="}}}}"#,
    },
    Seed {
        path: "__cluster/meta.json",
        kind: Kind::Catalog,
        content: r#"{"clusterId":"8qV280wlS8eMSC5cG7HWqQ","format":1,"logDirs":["hOUO-ox9QE2gtU2yuLwFQw"]}"#,
    },
    Seed {
        path: "__cluster/topics/t.json",
        kind: Kind::Catalog,
        content: r#"{"format":1,"id":"oxbTyB1XRiGcm6f6bIRY3A","logDirs":["hOUO-ox9QE2gtU2yuLwFQw"],"partitions":[0,0],"topic":"t"}"#,
    },
    Seed {
        path: "__cluster/producer_ids/broker-1.json",
        kind: Kind::Catalog,
        content: r#"{"end":1000,"first":0,"format":1}"#,
    },
    Seed {
        path: "log-dir.json",
        kind: Kind::Catalog,
        content: r#"{"clusterId":"8qV280wlS8eMSC5cG7HWqQ","format":1,"id":"hOUO-ox9QE2gtU2yuLwFQw"}"#,
    },
    Seed {
        path: "t/.topic-id.json",
        kind: Kind::Catalog,
        content: r#"{"format":1,"id":"oxbTyB1XRiGcm6f6bIRY3A","partitions":2,"topic":"t"}"#,
    },
    Seed {
        path: "t/.config.json",
        kind: Kind::Catalog,
        content: r#"{"config":{"cleanup.policy":"compact"},"format":1,"revision":0}"#,
    },
];

/// Every kind of file as it should be, with a name for each.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let seed = |(place, seed): (usize, &Seed)| {
        let place = u8::try_from(place).unwrap_or_default();
        let bytes = [&[place], seed.content.as_bytes()].concat();
        (seed.path.replace('/', "-"), bytes)
    };
    SEEDS.iter().enumerate().map(seed).collect()
}

/// The first byte names the file, the others are its content.
pub(crate) fn state_file(input: &[u8]) {
    // Refused or not, it ends.
    let _ = accepts(input);
}

/// Whether the file is taken for what it says it is.
#[must_use]
pub fn accepts(input: &[u8]) -> bool {
    let Some((which, content)) = input.split_first() else {
        return false;
    };
    let seed = &SEEDS[usize::from(*which) % SEEDS.len()];
    let sim = SimDisk::new();
    // It is there.
    let _ = sim.create_dir(Path::new(DIR));
    let path = Path::new(DIR).join(seed.path);
    if !matches!(seed.kind, Kind::Catalog) {
        sim.put(&path, content);
    }
    match seed.kind {
        Kind::Group => group(&sim, &path, seed.path),
        Kind::Slot(number) => transactions(&sim, number),
        Kind::Rules => rules(sim),
        Kind::Limits => limits(sim),
        Kind::Users => users(&sim, &path),
        Kind::Catalog => catalog(seed, content),
    }
}

fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| Config::load(&CommandLine::default()).expect("the defaults"))
}

fn group(disk: &dyn Disk, path: &Path, name: &str) -> bool {
    let Ok(Some(file)) = group_file::load(disk, path, name) else {
        return false;
    };
    let group = Group::from_file(file, &config().groups.limits, Instant::now());
    !group.is_gone()
}

fn transactions(disk: &dyn Disk, number: usize) -> bool {
    let path = Path::new(DIR).join(format!("slot-{number}.json"));
    let checked = slot::check_file(disk, &path, &format!("slot-{number}.json"));
    drop(Slot::open(disk, Path::new(DIR), number));
    matches!(checked, Some(Ok(true)))
}

fn rules(disk: SimDisk) -> bool {
    let Ok(store) = RuleStore::open(Arc::new(disk), Path::new(DIR), None) else {
        return false;
    };
    let asked = Question {
        user: "a",
        host: IpAddr::V4(Ipv4Addr::LOCALHOST),
        resource: ResourceType::Topic,
        name: "t",
    };
    let _ = store.load().index.find(&asked);
    store.len() > 0
}

fn limits(disk: SimDisk) -> bool {
    let Ok(store) = QuotaStore::open(Arc::new(disk), Path::new(DIR), None) else {
        return false;
    };
    let table = store.load();
    let counting = table.of_client("a", "c", QuotaKind::ProducerByteRate);
    assert!(counting.is_none_or(|counting| !counting.limit.is_nan()));
    store.limits_clients()
}

fn users(disk: &dyn Disk, path: &Path) -> bool {
    let Ok(Some(users)) = credentials::read(disk, path) else {
        return false;
    };
    users.iter().all(|(name, _)| users.get(name).is_some())
}

/// A log dir on a real disk, for the reader of catalogs looks for more than its files.
fn catalog(seed: &Seed, content: &[u8]) -> bool {
    static HOME: OnceLock<TempDir> = OnceLock::new();
    let home = HOME.get_or_init(|| {
        let home = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new());
        let home = home.expect("a directory");
        let seeds = SEEDS.iter().filter(|s| matches!(s.kind, Kind::Catalog));
        seeds.for_each(|seed| put(&home.path().join(seed.path), seed.content.as_bytes()));
        home
    });
    let path = home.path().join(seed.path);
    put(&path, content);
    let places = Places {
        log_dirs: vec![PathBuf::from(home.path())],
        cluster_dir: None,
    };
    let found = inspect::look(&RealDisk, &places, &config().settings, &[]);
    put(&path, seed.content.as_bytes());
    found.is_ok_and(|found| found.findings.iter().all(|finding| !finding.is_damage))
}

fn put(path: &Path, content: &[u8]) {
    let parent = path.parent().expect("a folder");
    fs::create_dir_all(parent).expect("a folder");
    fs::write(path, content).expect("write");
}
