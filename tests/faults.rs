//! The real broker on a file system that hangs, fails, runs full and loses its power, and under kill -9.
//!
//! What is expected comes from what producers were told and readers were shown, never from the broker. The file system
//! is the crate `seawall-faultfs` next to this file; it needs /dev/fuse.
//!
//! `SEAWALL_POWER_CUTS` and `SEAWALL_KILLS` set the rounds of the two loops, `SEAWALL_FAULT_SEED` repeats a run's cuts.

mod faults {
    mod disk_full;
    mod doctor;
    mod failed_calls;
    mod groups;
    mod health;
    mod hung_calls;
    mod kill_loop;
    mod load;
    mod log_dirs;
    mod model;
    mod moves;
    mod power_cuts;
    mod transactions;
    mod writer;
}

use std::{env, fs};

use seawall_faultfs::FaultFs;
use seawall_testkit::{Broker, Setup, disk};

/// Kafka's error codes as far as they matter here.
mod codes {
    pub(crate) const NONE: i16 = 0;
    pub(crate) const NOT_LEADER_OR_FOLLOWER: i16 = 6;
    pub(crate) const REQUEST_TIMED_OUT: i16 = 7;
    pub(crate) const OUT_OF_ORDER_SEQUENCE: i16 = 45;
    pub(crate) const KAFKA_STORAGE_ERROR: i16 = 56;
}

/// The data directory below the mount.
const DATA: &str = "data";

fn setup() -> Setup {
    // The records of these tests are dated 1970.
    Setup::new(env!("CARGO_BIN_EXE_seawall")).set("log.retention.ms", "-1")
}

/// How a broker on the mount is started.
fn setup_on(fs: &FaultFs) -> Setup {
    setup().on(&fs.path(DATA))
}

/// Where a partition lies, for orders.
fn place(topic: &str, partition: i32) -> String {
    format!("{DATA}/{topic}/{partition}/")
}

/// A fresh mount and a broker on it. The mount comes first, so that it goes last.
fn mounted(setup: impl FnOnce(Setup) -> Setup) -> (FaultFs, Broker) {
    let fs = FaultFs::mount(1);
    let broker = setup(setup_on(&fs)).start();
    (fs, broker)
}

/// Cuts the power under a killed broker. After a real cut the machine has another boot id, and that tells a broker that
/// more than its process may be gone; a simulated one must strike the claim of its owner file instead, that all of the
/// log went through recovery in this boot. (Another boot id in that file would make the start wait for half a minute.)
fn cut_power(fs: &FaultFs) {
    cut_power_under(fs, &[DATA]);
}

/// The same with these directories as claimed ones.
fn cut_power_under(fs: &FaultFs, claimed: &[&str]) {
    fs.power_cut();
    let all = claimed.iter().map(|dir| fs.path(dir));
    for file in all.flat_map(|dir| disk::files(&dir, ".json")) {
        let name = file.file_name().expect("a name").to_string_lossy();
        if name.starts_with("owner-") {
            let text = fs::read_to_string(&file).expect("read an owner file");
            let struck = text.replace("\"recovered\":true", "\"recovered\":false");
            fs::write(&file, struck).expect("write an owner file");
        }
    }
}

/// How many rounds a loop makes: `everyday`, or what the variable says (a night: thousands).
fn rounds(variable: &str, everyday: u32) -> u32 {
    match env::var(variable) {
        Err(_) => everyday,
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable}={text}: expected a number")),
    }
}

/// The seed of a run: another one each time, printed, and repeated with `SEAWALL_FAULT_SEED`.
fn seed() -> u64 {
    let fresh = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        u64::try_from(since.expect("after 1970").as_micros()).expect("before the year 500000")
    };
    let seed = env::var("SEAWALL_FAULT_SEED").map_or_else(
        |_| fresh(),
        |text| text.parse().expect("SEAWALL_FAULT_SEED is a number"),
    );
    eprintln!("SEAWALL_FAULT_SEED={seed}");
    seed
}
