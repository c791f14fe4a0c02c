//! How well the broker is, for machines and people.
//!
//! Owns:     the words for states of partitions, the form of `/healthz`.
//! Does not: wait for anybody: it reads what was published.

use std::path::Path;

use seawall_committer::{Failure, Health};
use serde_json::{Value, json};

use crate::broker::Broker;
use crate::running::Running;
use crate::startup::Phase;
use crate::topics::Slot;

/// Partitions that are told one by one, at most; the counts tell of the others.
const UNWELL_MAX: usize = 1000;

/// What a partition can do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// Serves.
    Online,
    /// A call to its disk hangs.
    Stalled,
    /// A call to its disk failed; it is healed by itself.
    Failed,
    /// It could not be opened.
    Offline,
}

impl State {
    /// All, by the numbers that metrics have for them.
    pub const ALL: [Self; 4] = [Self::Online, Self::Stalled, Self::Failed, Self::Offline];

    /// Its number.
    pub fn place(self) -> usize {
        self as usize
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Stalled => "stalled",
            Self::Failed => "failed",
            Self::Offline => "offline",
        }
    }
}

/// The state of a partition.
pub fn state_of(slot: &Slot) -> State {
    match slot {
        Slot::Open(partition) if partition.is_online() => State::Online,
        Slot::Open(partition) => match partition.health() {
            Health::Online => State::Online,
            Health::Stalled => State::Stalled,
            Health::Failed(_) => State::Failed,
        },
        Slot::Offline(_) => State::Offline,
    }
}

/// Why a partition is not online.
fn reason(slot: &Slot) -> String {
    match slot {
        Slot::Offline(why) => why.to_string(),
        Slot::Open(partition) => match partition.health() {
            Health::Online => String::new(),
            Health::Stalled => {
                "a call to the disk has not come back within log.flush.stall.timeout.ms".into()
            }
            Health::Failed(Failure::Io(kind)) => {
                format!("a write, sync or truncate failed: {kind}; healing is tried by itself")
            }
            Health::Failed(Failure::Panicked) => "its thread panicked (a bug)".into(),
            Health::Failed(Failure::NoThread) => "the system refused a thread".into(),
        },
    }
}

/// The page `/healthz`.
pub fn page(running: &Running) -> String {
    let phase = running.startup.phase();
    let recovery = running.startup.recovery();
    let mut page = json!({
        "phase": phase.name(),
        "uptimeSeconds": running.uptime().as_secs(),
        "recovery": {
            "partitions": recovery.partitions,
            "opened": recovery.opened,
            "bytesRead": recovery.bytes,
        },
        "eventLoops": { "silentSeconds": running.silence().as_secs() },
        "notReady": running.not_ready(),
    });
    let (mut status, mut unwell) = (status_of(phase), 0);
    if let Some(broker) = running.broker() {
        let (partitions, rows) = partitions(broker);
        unwell = rows.len();
        page["partitions"] = partitions;
        page["unwell"] = rows.into_iter().take(UNWELL_MAX).collect();
        page["unwellLeftOut"] = json!(unwell.saturating_sub(UNWELL_MAX));
        page["damagedTopics"] = broker.topics.load().damaged().collect();
        page["logDirs"] = broker.dir_facts().map(|dir| dir_row(&dir)).collect();
    }
    if status == "ok" && (unwell > 0 || has_absent_dir(running)) {
        status = "degraded";
    }
    page["status"] = json!(status);
    page.to_string()
}

fn status_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Claiming | Phase::Opening => "starting",
        Phase::Serving => "ok",
        Phase::Stopping => "stopping",
    }
}

fn has_absent_dir(running: &Running) -> bool {
    let mut dirs = running.broker().into_iter().flat_map(|b| b.dir_facts());
    dirs.any(|dir| dir.absence.is_some())
}

/// Partitions by state, and a row for each that is not well.
fn partitions(broker: &Broker) -> (Value, Vec<Value>) {
    let mut counts = [0_u64; State::ALL.len()];
    let mut rows = Vec::new();
    for topic in broker.topics.load().iter() {
        for (index, slot) in topic.partitions.iter().enumerate() {
            let state = state_of(slot);
            counts[state.place()] += 1;
            if state == State::Online {
                continue;
            }
            let dir = match slot {
                Slot::Open(partition) => Some(partition.dir().shown_path()),
                Slot::Offline(_) => None,
            };
            rows.push(json!({
                "topic": &*topic.name,
                "partition": index,
                "state": state.name(),
                "reason": reason(slot),
                "logDir": dir,
            }));
        }
    }
    let mut by_state = serde_json::Map::new();
    for (state, count) in State::ALL.into_iter().zip(counts) {
        by_state.insert(state.name().to_owned(), json!(count));
    }
    (Value::Object(by_state), rows)
}

/// What is known of one log dir.
pub struct DirFacts<'a> {
    /// Where it is.
    pub path: &'a Path,
    /// Why it is not used, if so.
    pub absence: Option<String>,
    /// Whether none of its partitions is stalled or failed.
    pub well: bool,
    /// Whether our claim on it is fresh.
    pub claim_fresh: bool,
    /// Whether there is space for appends.
    pub has_space: bool,
    /// What may still be used, when it was last looked; 0 before that.
    pub free_bytes: u64,
}

fn dir_row(dir: &DirFacts<'_>) -> Value {
    let reason = match &dir.absence {
        Some(why) => Some(why.clone()),
        None if !dir.claim_fresh => Some("the claim on it is not fresh".into()),
        None if !dir.has_space => Some("it is full: no appends until there is space".into()),
        None if !dir.well => Some("some of its partitions are stalled or failed".into()),
        None => None,
    };
    let state = match (&dir.absence, &reason) {
        (Some(_), _) => "absent",
        (None, Some(_)) => "unwell",
        (None, None) => "ok",
    };
    json!({
        "path": crate::logdir::shown_path(dir.path),
        "state": state,
        "reason": reason,
        "freeBytes": dir.free_bytes,
    })
}
