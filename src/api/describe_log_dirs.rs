//! DescribeLogDirs: what lies where, and how much room there is.
//!
//! Each log dir looks at its own files, in its own pool; the last one answers.
//! One that does not come back in time is told as offline.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seawall_net::Flow;
use seawall_net::wire::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use seawall_net::wire::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use seawall_net::wire::{self, StrBytes};

use super::codes::ErrorCode;
use super::slot::Slot;
use super::{Call, MALFORMED, reply, text};
use crate::logdir::LogDir;
use crate::partition::Partition;
use crate::security::acl::Operation;
use crate::timer::Deadline;

/// The lowest version that can say that it is refused.
const ERROR_FROM: i16 = 3;
/// The lowest version that tells the size of the file system (KIP-827).
const SPACE_FROM: i16 = 4;
/// How long a log dir may take to look at its files.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<DescribeLogDirsRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    if let Err(code) = call.access().cluster(Operation::Describe) {
        let mut refused = DescribeLogDirsResponse::default();
        if version >= ERROR_FROM {
            refused.error_code = code.code();
        }
        reply(call.slot, &refused, version);
        return Flow::Done;
    }
    let wanted = Wanted::new(&request);
    let dirs: Vec<_> = call.broker.log_dirs().collect();
    let gather = Arc::new(Gather {
        version,
        state: Mutex::new(State {
            rows: dirs.iter().map(|(path, _)| offline(path)).collect(),
            left: dirs.len(),
            slot: Some(call.slot),
            deadline: None,
        }),
    });
    let late = Arc::clone(&gather);
    let deadline = call
        .broker
        .timer
        .at(Instant::now() + PATIENCE, move || late.finish());
    gather.state.lock().deadline = Some(deadline);
    let map = call.broker.topics.load();
    for (place, (_, dir)) in dirs.into_iter().enumerate() {
        let Some(dir) = dir else {
            gather.came(place, None);
            continue;
        };
        let open = map.iter().flat_map(|topic| topic.open_partitions());
        let here = open.filter(|p| Arc::ptr_eq(p.dir(), dir) && wanted.has(p));
        let here: Vec<_> = here.cloned().collect();
        let (gather, of) = (Arc::clone(&gather), Arc::clone(dir));
        dir.state.submit(move || {
            let row = look(&of, &here, version);
            gather.came(place, Some(row));
        });
    }
    Flow::Done
}

/// Which partitions are asked for.
struct Wanted(Option<HashMap<String, Vec<i32>>>);

impl Wanted {
    fn new(request: &DescribeLogDirsRequest) -> Self {
        let topics = request.topics.as_ref().map(|topics| {
            let mut all: HashMap<String, Vec<i32>> = HashMap::new();
            for topic in topics {
                let parts = all.entry(topic.topic.as_str().to_owned()).or_default();
                parts.extend_from_slice(&topic.partitions);
            }
            all
        });
        Self(topics)
    }

    fn has(&self, partition: &Partition) -> bool {
        let Some(topics) = &self.0 else { return true };
        let parts = topics.get(&*partition.topic);
        parts.is_some_and(|parts| parts.contains(&partition.index.get()))
    }
}

/// The answer in the making.
struct Gather {
    version: i16,
    state: Mutex<State>,
}

struct State {
    rows: Vec<DescribeLogDirsResult>,
    left: usize,
    slot: Option<Slot>,
    deadline: Option<Deadline>,
}

impl Gather {
    /// A log dir has looked, or is not there.
    fn came(&self, place: usize, row: Option<DescribeLogDirsResult>) {
        let mut state = self.state.lock();
        if let (Some(row), Some(there)) = (row, state.rows.get_mut(place)) {
            *there = row;
        }
        state.left = state.left.saturating_sub(1);
        let all = state.left == 0;
        drop(state);
        if all {
            self.finish();
        }
    }

    fn finish(&self) {
        let mut state = self.state.lock();
        let slot = state.slot.take();
        let deadline = state.deadline.take();
        let mut response = DescribeLogDirsResponse::default();
        response.results = std::mem::take(&mut state.rows);
        drop(state);
        drop(deadline);
        if let Some(slot) = slot {
            reply(slot, &response, self.version);
        }
    }
}

fn offline(path: &str) -> DescribeLogDirsResult {
    let mut row = DescribeLogDirsResult::default();
    row.error_code = ErrorCode::KafkaStorageError.code();
    row.log_dir = text(path);
    row
}

fn look(dir: &LogDir, partitions: &[Arc<Partition>], version: i16) -> DescribeLogDirsResult {
    let mut row = DescribeLogDirsResult::default();
    row.log_dir = text(&dir.shown_path());
    if version >= SPACE_FROM {
        // A size that cannot be had is told as -1, which is the default.
        if let Ok(space) = dir.space() {
            row.total_bytes = i64::try_from(space.total_bytes).unwrap_or(i64::MAX);
            row.usable_bytes = i64::try_from(space.usable_bytes).unwrap_or(i64::MAX);
        }
    }
    let mut topics: HashMap<&str, Vec<DescribeLogDirsPartition>> = HashMap::new();
    for partition in partitions {
        let rows = topics.entry(&partition.topic).or_default();
        rows.push(size_of(partition));
    }
    row.topics = topics.into_iter().map(topic).collect();
    row
}

fn size_of(partition: &Partition) -> DescribeLogDirsPartition {
    let mut row = DescribeLogDirsPartition::default();
    row.partition_index = partition.index.get();
    let size = partition.view().size_bytes().unwrap_or(0);
    row.partition_size = i64::try_from(size).unwrap_or(i64::MAX);
    row
}

fn topic((name, partitions): (&str, Vec<DescribeLogDirsPartition>)) -> DescribeLogDirsTopic {
    let mut topic = DescribeLogDirsTopic::default();
    topic.name = StrBytes::from(name);
    topic.partitions = partitions;
    topic
}
