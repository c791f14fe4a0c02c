//! AlterReplicaLogDirs: starts to move partitions between log dirs; they serve
//! meanwhile. DescribeLogDirs tells where they are.

use std::collections::BTreeMap;

use seawall_net::Flow;
use seawall_net::wire::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use seawall_net::wire::messages::{AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};
use crate::security::acl::Operation;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse {
    let may = asked.access().cluster(Operation::Alter);
    let mut topics: BTreeMap<String, Vec<AlterReplicaLogDirPartitionResult>> = BTreeMap::new();
    for dir in &request.dirs {
        for topic in &dir.topics {
            let rows = topics.entry(topic.name.as_str().to_owned()).or_default();
            for index in &topic.partitions {
                let mut row = AlterReplicaLogDirPartitionResult::default();
                row.partition_index = *index;
                let started =
                    may.and_then(|()| start(asked, dir.path.as_str(), topic.name.as_str(), *index));
                row.error_code = started.err().unwrap_or(ErrorCode::None).code();
                rows.push(row);
            }
        }
    }
    let mut response = AlterReplicaLogDirsResponse::default();
    for (name, partitions) in topics {
        let mut result = AlterReplicaLogDirTopicResult::default();
        result.topic_name = text(&name);
        result.partitions = partitions;
        response.results.push(result);
    }
    response
}

fn start(asked: &Asked<'_>, path: &str, topic: &str, index: i32) -> Result<(), ErrorCode> {
    let found = asked.broker.log_dir_named(path);
    let (to, dir) = found.ok_or(ErrorCode::LogDirNotFound)?;
    let dir = dir.ok_or(ErrorCode::KafkaStorageError)?;
    let map = asked.broker.topics.load();
    let partition = map.named(topic).and_then(|topic| topic.partition(index));
    let partition = partition.map_err(|error| ErrorCode::from(&error))?;
    asked.broker.start_move(partition, to, &dir);
    Ok(())
}
