//! Fetch, in every version.

use bytes::Bytes;
use kafka_wire_core::TaggedFields;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use seawall_net::BodyPart;
use seawall_net::wire::messages::{fetch_request as reference, fetch_response as answer};
use seawall_net::wire::{
    AbortedTransaction, EpochEndOffset, FETCH_VERSION_MAX, FETCH_VERSION_MIN, FetchPartition,
    FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopic, FetchTopicResponse,
    ForgottenTopic, LeaderIdAndEpoch, StrBytes, Uuid,
};

use crate::agree_produce::node;
use crate::generate::{
    id, name, nullable_name, records, reference_decode, reference_encode, unknown_tags,
};

/// How many versions there are.
const VERSIONS: usize = (FETCH_VERSION_MAX - FETCH_VERSION_MIN + 1) as usize;

fn partition() -> impl Strategy<Value = FetchPartition> {
    (any::<[i32; 4]>(), any::<[i64; 2]>()).prop_map(|(ints, longs)| FetchPartition {
        index: ints[0],
        current_leader_epoch: ints[1],
        fetch_offset: longs[0],
        last_fetched_epoch: ints[2],
        log_start_offset: longs[1],
        partition_max_bytes: ints[3],
    })
}

fn request() -> impl Strategy<Value = FetchRequest> {
    let topic = (name(), id(), vec(partition(), 0..4)).prop_map(|(name, topic_id, partitions)| {
        FetchTopic {
            name,
            topic_id,
            partitions,
        }
    });
    let forgotten =
        (name(), id(), vec(any::<i32>(), 0..4)).prop_map(|(name, topic_id, partitions)| {
            ForgottenTopic {
                name,
                topic_id,
                partitions,
            }
        });
    let fixed = (any::<[i32; 6]>(), any::<i8>(), name());
    (fixed, vec(topic, 0..4), vec(forgotten, 0..3)).prop_map(
        |((ints, isolation_level, rack_id), topics, forgotten_topics)| FetchRequest {
            replica_id: ints[0],
            max_wait_ms: ints[1],
            min_bytes: ints[2],
            max_bytes: ints[3],
            isolation_level,
            session_id: ints[4],
            session_epoch: ints[5],
            topics,
            forgotten_topics,
            rack_id,
        },
    )
}

/// What a version cannot carry has its default after decoding.
fn as_of(mut request: FetchRequest, version: i16) -> FetchRequest {
    let key = |name: &mut StrBytes, topic_id: &mut Uuid| {
        if version >= 13 {
            *name = StrBytes::default();
        } else {
            *topic_id = Uuid::ZERO;
        }
    };
    for topic in &mut request.topics {
        key(&mut topic.name, &mut topic.topic_id);
        for partition in &mut topic.partitions {
            let missing = |since: i16| version < since;
            if missing(9) {
                partition.current_leader_epoch = -1;
            }
            if missing(12) {
                partition.last_fetched_epoch = -1;
            }
            if missing(5) {
                partition.log_start_offset = -1;
            }
        }
    }
    for topic in &mut request.forgotten_topics {
        key(&mut topic.name, &mut topic.topic_id);
    }
    if version < 7 {
        (request.session_id, request.session_epoch) = (0, -1);
        request.forgotten_topics.clear();
    }
    if version < 11 {
        request.rack_id = StrBytes::default();
    }
    request
}

#[derive(Debug)]
struct Extras {
    tags: TaggedFields,
    cluster_id: Option<StrBytes>,
    directory: Uuid,
    high_watermark: i64,
    replica_epoch: i64,
}

fn extras() -> impl Strategy<Value = Extras> {
    (
        unknown_tags(),
        nullable_name(),
        id(),
        any::<i64>(),
        any::<i64>(),
    )
        .prop_map(
            |(tags, cluster_id, directory, high_watermark, replica_epoch)| Extras {
                tags,
                cluster_id,
                directory,
                high_watermark,
                replica_epoch,
            },
        )
}

fn to_reference(request: &FetchRequest, version: i16, extras: &Extras) -> reference::FetchRequest {
    let request = as_of(request.clone(), version);
    let flexible = version >= 12;
    let tags = if flexible {
        extras.tags.clone()
    } else {
        TaggedFields::default()
    };
    let mut out = reference::FetchRequest::default();
    if flexible {
        out.cluster_id = extras.cluster_id.clone();
    }
    if version >= 15 {
        out.replica_state.replica_id = request.replica_id;
        out.replica_state.replica_epoch = extras.replica_epoch;
    } else {
        out.replica_id = request.replica_id;
    }
    out.max_wait_ms = request.max_wait_ms;
    out.min_bytes = request.min_bytes;
    out.max_bytes = request.max_bytes;
    out.isolation_level = request.isolation_level;
    out.session_id = request.session_id;
    out.session_epoch = request.session_epoch;
    out.rack_id = request.rack_id.clone();
    out.unknown_tagged_fields = tags.clone();
    out.topics = topics_reference(&request.topics, version, extras, &tags);
    for topic in &request.forgotten_topics {
        let mut entry = reference::ForgottenTopic::default();
        entry.topic = topic.name.clone();
        entry.topic_id = topic.topic_id;
        entry.partitions = topic.partitions.clone();
        entry.unknown_tagged_fields = tags.clone();
        out.forgotten_topics_data.push(entry);
    }
    out
}

fn topics_reference(
    topics: &[FetchTopic],
    version: i16,
    extras: &Extras,
    tags: &TaggedFields,
) -> Vec<reference::FetchTopic> {
    let mut out = Vec::new();
    for topic in topics {
        let mut entry = reference::FetchTopic::default();
        entry.topic = topic.name.clone();
        entry.topic_id = topic.topic_id;
        entry.unknown_tagged_fields = tags.clone();
        for partition in &topic.partitions {
            let mut wanted = reference::FetchPartition::default();
            wanted.partition = partition.index;
            wanted.current_leader_epoch = partition.current_leader_epoch;
            wanted.fetch_offset = partition.fetch_offset;
            wanted.last_fetched_epoch = partition.last_fetched_epoch;
            wanted.log_start_offset = partition.log_start_offset;
            wanted.partition_max_bytes = partition.partition_max_bytes;
            wanted.unknown_tagged_fields = tags.clone();
            if version >= 17 {
                wanted.replica_directory_id = extras.directory;
            }
            if version >= 18 {
                wanted.high_watermark = extras.high_watermark;
            }
            entry.partitions.push(wanted);
        }
        out.push(entry);
    }
    out
}

proptest! {
    #[test]
    fn requests_decode_as_kafka_wire_encodes_them(request in request(), extras in extras()) {
        for version in FETCH_VERSION_MIN..=FETCH_VERSION_MAX {
            let bytes = reference_encode(&to_reference(&request, version, &extras), version);
            let decoded = FetchRequest::decode(&bytes, version).unwrap();
            prop_assert_eq!(decoded, as_of(request.clone(), version), "version {}", version);
        }
    }

    #[test]
    fn a_request_cut_anywhere_is_an_error(
        request in request(),
        extras in extras(),
        cut in any::<prop::sample::Index>(),
    ) {
        for version in FETCH_VERSION_MIN..=FETCH_VERSION_MAX {
            let bytes = reference_encode(&to_reference(&request, version, &extras), version);
            let cut = bytes.slice(..cut.index(bytes.len()));
            prop_assert!(FetchRequest::decode(&cut, version).is_err());
        }
    }

    #[test]
    fn responses_are_encoded_as_kafka_wire_does(
        responses in vec(response(), VERSIONS),
    ) {
        for (version, response) in (FETCH_VERSION_MIN..=FETCH_VERSION_MAX).zip(responses) {
            let theirs = reference_encode(&response_reference(&response, version), version);
            let ours = response.encode(version).unwrap().into_vec().unwrap();
            prop_assert_eq!(&ours, &theirs.to_vec(), "version {}", version);
            let _: answer::FetchResponse = reference_decode(&ours.into(), version);
        }
    }
}

fn answered_partition() -> impl Strategy<Value = FetchPartitionResponse> {
    let aborted = any::<[i64; 2]>().prop_map(|[producer_id, first_offset]| AbortedTransaction {
        producer_id,
        first_offset,
    });
    let diverging = (0..9_i32, any::<i64>())
        .prop_map(|(epoch, end_offset)| EpochEndOffset { epoch, end_offset });
    let leader = (0..9_i32, any::<i32>()).prop_map(|(leader_id, leader_epoch)| LeaderIdAndEpoch {
        leader_id,
        leader_epoch,
    });
    let tagged = (option::of(diverging), option::of(leader));
    let numbers = (any::<[i32; 2]>(), any::<i16>(), any::<[i64; 3]>());
    (numbers, tagged, option::of(vec(aborted, 0..3)), records()).prop_map(
        |((ints, error_code, longs), (diverging_epoch, current_leader), aborted, records)| {
            FetchPartitionResponse {
                index: ints[0],
                error_code,
                high_watermark: longs[0],
                last_stable_offset: longs[1],
                log_start_offset: longs[2],
                diverging_epoch,
                current_leader,
                aborted_transactions: aborted,
                preferred_read_replica: ints[1],
                records: records.map(BodyPart::from),
            }
        },
    )
}

fn response() -> impl Strategy<Value = FetchResponse> {
    let topic =
        (name(), id(), vec(answered_partition(), 0..4)).prop_map(|(name, topic_id, partitions)| {
            FetchTopicResponse {
                name,
                topic_id,
                partitions,
            }
        });
    let fixed = (any::<[i32; 2]>(), any::<i16>());
    (fixed, vec(topic, 0..3), vec(node(), 0..3)).prop_map(
        |((ints, error_code), topics, node_endpoints)| FetchResponse {
            throttle_time_ms: ints[0],
            error_code,
            session_id: ints[1],
            topics,
            node_endpoints,
        },
    )
}

fn response_reference(response: &FetchResponse, version: i16) -> answer::FetchResponse {
    let mut out = answer::FetchResponse::default();
    out.throttle_time_ms = response.throttle_time_ms;
    if version >= 7 {
        out.error_code = response.error_code;
        out.session_id = response.session_id;
    }
    for node in response.node_endpoints.iter().filter(|_| version >= 16) {
        let mut endpoint = answer::NodeEndpoint::default();
        endpoint.node_id = node.node_id;
        endpoint.host = node.host.clone();
        endpoint.port = node.port;
        endpoint.rack = node.rack.clone();
        out.node_endpoints.push(endpoint);
    }
    for topic in &response.topics {
        let mut entry = answer::FetchableTopicResponse::default();
        entry.topic = topic.name.clone();
        entry.topic_id = topic.topic_id;
        entry.partitions = topic
            .partitions
            .iter()
            .map(|partition| partition_reference(partition, version))
            .collect();
        out.responses.push(entry);
    }
    out
}

fn partition_reference(partition: &FetchPartitionResponse, version: i16) -> answer::PartitionData {
    let mut out = answer::PartitionData::default();
    out.partition_index = partition.index;
    out.error_code = partition.error_code;
    out.high_watermark = partition.high_watermark;
    out.last_stable_offset = partition.last_stable_offset;
    out.log_start_offset = partition.log_start_offset;
    out.aborted_transactions = partition.aborted_transactions.as_ref().map(|aborted| {
        let entry = |aborted: &AbortedTransaction| {
            let mut out = answer::AbortedTransaction::default();
            out.producer_id = aborted.producer_id;
            out.first_offset = aborted.first_offset;
            out
        };
        aborted.iter().map(entry).collect()
    });
    if version >= 11 {
        out.preferred_read_replica = partition.preferred_read_replica;
    }
    out.records = partition.records.as_ref().map(|part| match part {
        BodyPart::Bytes(bytes) => bytes.clone(),
        BodyPart::Piped(_) => unreachable!("none is made here"),
    });
    if version >= 12 {
        if let Some(diverging) = partition.diverging_epoch {
            out.diverging_epoch.epoch = diverging.epoch;
            out.diverging_epoch.end_offset = diverging.end_offset;
        }
        if let Some(leader) = partition.current_leader {
            out.current_leader.leader_id = leader.leader_id;
            out.current_leader.leader_epoch = leader.leader_epoch;
        }
    }
    out
}

#[test]
fn records_of_a_response_are_parts_and_not_copies() {
    let records = Bytes::from(vec![1; 100_000]);
    let partition = || FetchPartitionResponse {
        records: Some(records.clone().into()),
        ..FetchPartitionResponse::default()
    };
    let response = FetchResponse {
        topics: vec![FetchTopicResponse {
            partitions: vec![partition(), partition()],
            ..FetchTopicResponse::default()
        }],
        ..FetchResponse::default()
    };
    let parts: Vec<_> = response.encode(12).unwrap().into_parts().collect();
    assert_eq!(parts.len(), 5, "head, records, middle, records, end");
    for part in [&parts[1], &parts[3]] {
        assert!(matches!(part, BodyPart::Bytes(bytes) if bytes.as_ptr() == records.as_ptr()));
    }
}
