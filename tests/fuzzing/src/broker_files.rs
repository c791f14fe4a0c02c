//! The parts of the broker that read state files, and what those need.
//!
//! Owns:     nothing: every line of them stands in `src/` of the broker.

#[path = "../../../src/cleaner.rs"]
pub(crate) mod cleaner;
#[path = "../../../src/cluster/mod.rs"]
pub(crate) mod cluster;
#[path = "../../../src/config/mod.rs"]
pub(crate) mod config;
#[path = "../../../src/counts.rs"]
pub(crate) mod counts;
#[path = "../../../src/groups/mod.rs"]
pub(crate) mod groups;
#[path = "../../../src/histogram.rs"]
pub(crate) mod histogram;
#[path = "../../../src/logdir.rs"]
pub(crate) mod logdir;
#[path = "../../../src/partition/mod.rs"]
pub(crate) mod partition;
#[path = "../../../src/queued.rs"]
pub(crate) mod queued;
#[path = "../../../src/reserve.rs"]
pub(crate) mod reserve;
#[path = "../../../src/security/mod.rs"]
pub(crate) mod security;
#[path = "../../../src/timer.rs"]
pub(crate) mod timer;
#[path = "../../../src/topics.rs"]
pub(crate) mod topics;
#[path = "../../../src/tripwire.rs"]
pub(crate) mod tripwire;
#[path = "txn_files.rs"]
pub(crate) mod txn;
#[path = "../../../src/workers.rs"]
pub(crate) mod workers;
