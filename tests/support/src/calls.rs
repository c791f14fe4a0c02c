//! Whole conversations that most tests have: create a topic, produce a batch, fetch from an offset, ask for the end.
//!
//! Each asserts what makes the rest of the test meaningful, and leaves error codes of the call itself to the test.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use kafka_wire::fetch_response::PartitionData;
use kafka_wire::list_offsets_response::ListOffsetsPartitionResponse;
use kafka_wire::produce_response::PartitionProduceResponse;
use kafka_wire::{
    AlterReplicaLogDirsRequest, CreateTopicsRequest, DescribeLogDirsRequest, FetchRequest,
    InitProducerIdRequest, ListOffsetsRequest, ProduceRequest, alter_replica_log_dirs_request,
};

use crate::batch::ParsedBatch;
use crate::kafka;
use crate::raw::Raw;
use crate::requests::{self, FetchFrom, FetchLimits, TopicRef};
use crate::wait::{self, SOON};

/// The version of Produce that calls use when a test does not care: by topic name, with record errors.
pub const PRODUCE: i16 = 11;
/// The version of Fetch that calls use when a test does not care: by topic name, with sessions.
pub const FETCH: i16 = 12;
/// The version of ListOffsets that calls use when a test does not care.
pub const LIST_OFFSETS: i16 = 7;
/// The version of CreateTopics that calls use when a test does not care: with topic ids in the answer.
pub const CREATE_TOPICS: i16 = 7;

/// Creates one topic.
///
/// # Panics
/// When the broker refuses.
pub fn create_topic(
    raw: &mut Raw,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> TopicRef {
    let request = requests::create_topics(vec![requests::topic(name, partitions, configs)]);
    let answer = raw.call::<CreateTopicsRequest>(CREATE_TOPICS, &request);
    let topic = &answer.topics[0];
    assert_eq!(
        topic.error_code, 0,
        "create {name}: {:?}",
        topic.error_message
    );
    until_usable(raw, name, topic.num_partitions);
    TopicRef {
        name: name.to_owned(),
        id: topic.topic_id,
    }
}

/// Kafka answers CreateTopics before its partitions have a leader: waits until they have. With our broker there is
/// nothing to wait for, and so nothing is waited for.
pub fn until_usable(raw: &mut Raw, name: &str, partitions: i32) {
    let partitions = if kafka::jars().is_some() {
        partitions
    } else {
        0
    };
    for partition in 0..partitions {
        wait::until("the partition has a leader", SOON, || {
            list_offset_at(raw, LIST_OFFSETS, name, partition, -1).error_code == 0
        });
    }
}

/// Produces to one partition and gives that partition's answer.
///
/// # Panics
/// When the answer is not about exactly that partition.
pub fn produce(
    raw: &mut Raw,
    topic: &TopicRef,
    partition: i32,
    acks: i16,
    records: Bytes,
) -> PartitionProduceResponse {
    produce_at(raw, PRODUCE, topic, acks, vec![(partition, Some(records))]).remove(0)
}

/// Produces to several partitions at a version of the request; gives the answers in the broker's order.
///
/// # Panics
/// When the answer is about another topic or another number of partitions.
pub fn produce_at(
    raw: &mut Raw,
    version: i16,
    topic: &TopicRef,
    acks: i16,
    parts: Vec<(i32, Option<Bytes>)>,
) -> Vec<PartitionProduceResponse> {
    let asked = parts.len();
    let request = requests::produce(version, topic, acks, parts);
    let mut answer = raw.call::<ProduceRequest>(version, &request);
    assert_eq!(answer.responses.len(), 1, "topics in the Produce answer");
    let answered = answer.responses.remove(0).partition_responses;
    assert_eq!(answered.len(), asked, "partitions in the Produce answer");
    answered
}

/// Produces with acks=all and gives the base offset.
///
/// # Panics
/// When the broker refuses.
pub fn append(raw: &mut Raw, topic: &TopicRef, partition: i32, records: Bytes) -> i64 {
    let answer = produce(raw, topic, partition, -1, records);
    assert_eq!(
        answer.error_code, 0,
        "produce to {}-{partition}: {:?}",
        topic.name, answer.error_message
    );
    answer.base_offset
}

/// Fetches from one partition.
///
/// # Panics
/// When the answer is not about exactly that partition.
pub fn fetch(
    raw: &mut Raw,
    topic: &TopicRef,
    limits: FetchLimits,
    from: FetchFrom,
) -> PartitionData {
    let request = requests::fetch(FETCH, topic, limits, &[from]);
    let mut answer = raw.call::<FetchRequest>(FETCH, &request);
    assert_eq!(answer.error_code, 0, "error of the whole Fetch");
    assert_eq!(answer.responses.len(), 1, "topics in the Fetch answer");
    let mut partitions = answer.responses.remove(0).partitions;
    assert_eq!(partitions.len(), 1, "partitions in the Fetch answer");
    partitions.remove(0)
}

/// Reads everything from `offset` to the end as whole batches.
///
/// # Panics
/// When the broker answers with an error, cuts a batch, or a checksum does not hold.
pub fn read_from(raw: &mut Raw, topic: &TopicRef, partition: i32, offset: i64) -> Vec<ParsedBatch> {
    let mut batches: Vec<ParsedBatch> = Vec::new();
    let mut next = offset;
    loop {
        let data = fetch(
            raw,
            topic,
            requests::AT_ONCE,
            FetchFrom::new(partition, next),
        );
        assert_eq!(
            data.error_code, 0,
            "fetch {}-{partition} at {next}",
            topic.name
        );
        let got = whole_batches(&data);
        let Some(last) = got.last() else {
            return batches;
        };
        next = last.last_offset() + 1;
        batches.extend(got);
    }
}

/// The batches of a fetched partition. Kafka cuts the last one at the limit; we promise not to.
///
/// # Panics
/// When one is cut or its checksum does not hold.
#[must_use]
pub fn whole_batches(data: &PartitionData) -> Vec<ParsedBatch> {
    let (batches, rest) = ParsedBatch::split(data.records.clone().unwrap_or_default());
    assert!(
        rest == 0 || kafka::jars().is_some(),
        "{rest} bytes of a cut batch"
    );
    assert!(
        batches.iter().all(ParsedBatch::crc_holds),
        "a fetched batch with a bad CRC"
    );
    batches
}

/// ListOffsets of one partition at a version of the request.
///
/// # Panics
/// When the answer is not about exactly that partition.
pub fn list_offset_at(
    raw: &mut Raw,
    version: i16,
    topic: &str,
    partition: i32,
    timestamp: i64,
) -> ListOffsetsPartitionResponse {
    let request = requests::list_offsets(topic, partition, timestamp);
    let mut answer = raw.call::<ListOffsetsRequest>(version, &request);
    answer.topics.remove(0).partitions.remove(0)
}

/// The end of a partition that readers see.
///
/// # Panics
/// When the broker answers with an error.
pub fn end_offset(raw: &mut Raw, topic: &TopicRef, partition: i32) -> i64 {
    let answer = list_offset_at(raw, LIST_OFFSETS, &topic.name, partition, -1);
    assert_eq!(
        answer.error_code, 0,
        "ListOffsets latest of {}-{partition}",
        topic.name
    );
    answer.offset
}

/// A new producer id and its epoch.
///
/// # Panics
/// When the broker refuses.
pub fn new_producer(raw: &mut Raw) -> (i64, i16) {
    let mut answer = raw.call::<InitProducerIdRequest>(4, &requests::init_producer_id());
    while kafka::jars().is_some() && answer.error_code == COORDINATOR_LOAD_IN_PROGRESS {
        answer = raw.call::<InitProducerIdRequest>(4, &requests::init_producer_id());
    }
    assert_eq!(answer.error_code, 0, "InitProducerId");
    (answer.producer_id, answer.producer_epoch)
}

/// What Kafka answers while it fetches a block of ids.
const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;

/// Asks for a partition to move to the log dir of that path; gives the error code.
///
/// # Panics
/// When the answer is about something else.
#[must_use]
pub fn move_partition(raw: &mut Raw, topic: &str, partition: i32, to: &Path) -> i16 {
    let mut wanted = alter_replica_log_dirs_request::AlterReplicaLogDirTopic::default();
    wanted.name = topic.into();
    wanted.partitions = vec![partition];
    let mut dir = alter_replica_log_dirs_request::AlterReplicaLogDir::default();
    dir.path = to.display().to_string().as_str().into();
    dir.topics = vec![wanted];
    let mut request = AlterReplicaLogDirsRequest::default();
    request.dirs = vec![dir];
    let answer = raw.call::<AlterReplicaLogDirsRequest>(2, &request);
    let row = &answer.results[0].partitions[0];
    assert_eq!(
        (answer.results[0].topic_name.as_str(), row.partition_index),
        (topic, partition)
    );
    row.error_code
}

/// Where DescribeLogDirs sees the only partition of a topic, and how large.
///
/// # Panics
/// When it is not in one place.
#[must_use]
pub fn place_of(raw: &mut Raw, topic: &str) -> (PathBuf, i64) {
    let mut request = DescribeLogDirsRequest::default();
    request.topics = None;
    let answer = raw.call::<DescribeLogDirsRequest>(4, &request);
    let found: Vec<(PathBuf, i64)> = answer
        .results
        .iter()
        .flat_map(|dir| {
            let topics = dir.topics.iter().filter(|t| t.name.as_str() == topic);
            topics.map(|t| {
                (
                    PathBuf::from(dir.log_dir.as_str()),
                    t.partitions[0].partition_size,
                )
            })
        })
        .collect();
    assert_eq!(found.len(), 1, "in one place: {found:?}");
    found[0].clone()
}
