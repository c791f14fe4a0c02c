//! Produce, in every version.

use bytes::Bytes;
use kafka_wire_core::TaggedFields;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use seawall_net::wire::messages::{produce_request as reference, produce_response as answer};
use seawall_net::wire::{
    LeaderIdAndEpoch, NodeEndpoint, PRODUCE_VERSION_MAX, PRODUCE_VERSION_MIN, ProducePartition,
    ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopic, ProduceTopicResponse,
    RecordError, StrBytes, Uuid,
};

use crate::generate::{
    id, name, nullable_name, records, reference_decode, reference_encode, unknown_tags,
};

fn request() -> impl Strategy<Value = ProduceRequest> {
    let partition =
        (any::<i32>(), records()).prop_map(|(index, records)| ProducePartition { index, records });
    let topic = (name(), id(), vec(partition, 0..4)).prop_map(|(name, topic_id, partitions)| {
        ProduceTopic {
            name,
            topic_id,
            partitions,
        }
    });
    let fixed = (nullable_name(), any::<i16>(), any::<i32>());
    (fixed, vec(topic, 0..4)).prop_map(|((transactional_id, acks, timeout_ms), topics)| {
        ProduceRequest {
            transactional_id,
            acks,
            timeout_ms,
            topics,
        }
    })
}

/// The same request as `kafka-wire` has it, with unknown tagged fields in every structure.
fn to_reference(
    request: &ProduceRequest,
    version: i16,
    tags: &TaggedFields,
) -> reference::ProduceRequest {
    let tags = if version >= 9 {
        tags.clone()
    } else {
        TaggedFields::default()
    };
    let mut out = reference::ProduceRequest::default();
    out.transactional_id = request.transactional_id.clone();
    out.acks = request.acks;
    out.timeout_ms = request.timeout_ms;
    out.unknown_tagged_fields = tags.clone();
    for topic in &request.topics {
        let mut data = reference::TopicProduceData::default();
        data.name = topic.name.clone();
        data.topic_id = topic.topic_id;
        data.unknown_tagged_fields = tags.clone();
        for partition in &topic.partitions {
            let mut entry = reference::PartitionProduceData::default();
            entry.index = partition.index;
            entry.records = partition.records.clone();
            entry.unknown_tagged_fields = tags.clone();
            data.partition_data.push(entry);
        }
        out.topic_data.push(data);
    }
    out
}

/// What a version cannot carry is not there after decoding.
fn as_of(mut request: ProduceRequest, version: i16) -> ProduceRequest {
    for topic in &mut request.topics {
        if version >= 13 {
            topic.name = StrBytes::default();
        } else {
            topic.topic_id = Uuid::ZERO;
        }
    }
    request
}

proptest! {
    #[test]
    fn requests_decode_as_kafka_wire_encodes_them(request in request(), tags in unknown_tags()) {
        for version in PRODUCE_VERSION_MIN..=PRODUCE_VERSION_MAX {
            let bytes = reference_encode(&to_reference(&request, version, &tags), version);
            let decoded = ProduceRequest::decode(&bytes, version).unwrap();
            prop_assert_eq!(decoded, as_of(request.clone(), version), "version {}", version);
        }
    }

    #[test]
    fn trailing_bytes_are_tolerated(request in request(), tail in vec(any::<u8>(), 1..20)) {
        for version in PRODUCE_VERSION_MIN..=PRODUCE_VERSION_MAX {
            let tags = TaggedFields::default();
            let mut bytes = reference_encode(&to_reference(&request, version, &tags), version).to_vec();
            bytes.extend_from_slice(&tail);
            let decoded = ProduceRequest::decode(&Bytes::from(bytes), version).unwrap();
            prop_assert_eq!(decoded, as_of(request.clone(), version));
        }
    }

    #[test]
    fn a_request_cut_anywhere_is_an_error(request in request(), cut in any::<prop::sample::Index>()) {
        for version in PRODUCE_VERSION_MIN..=PRODUCE_VERSION_MAX {
            let tags = TaggedFields::default();
            let bytes = reference_encode(&to_reference(&request, version, &tags), version);
            let cut = bytes.slice(..cut.index(bytes.len()));
            prop_assert!(ProduceRequest::decode(&cut, version).is_err());
        }
    }

    #[test]
    fn responses_are_encoded_as_kafka_wire_does(response in response()) {
        for version in PRODUCE_VERSION_MIN..=PRODUCE_VERSION_MAX {
            let ours = response.encode(version).unwrap().into_vec().unwrap();
            let theirs = reference_encode(&response_reference(&response, version), version);
            prop_assert_eq!(&ours, &theirs.to_vec(), "version {}", version);
            let _: answer::ProduceResponse = reference_decode(&ours.into(), version);
        }
    }
}

fn response() -> impl Strategy<Value = ProduceResponse> {
    let record_error =
        (any::<i32>(), nullable_name()).prop_map(|(batch_index, message)| RecordError {
            batch_index,
            message,
        });
    let leader = (0..9_i32, any::<i32>()).prop_map(|(leader_id, leader_epoch)| LeaderIdAndEpoch {
        leader_id,
        leader_epoch,
    });
    let numbers = (any::<i32>(), any::<i16>(), any::<[i64; 3]>());
    let errors = (vec(record_error, 0..3), nullable_name(), option::of(leader));
    let partition = (numbers, errors).prop_map(
        |((index, error_code, longs), (record_errors, error_message, current_leader))| {
            let [base_offset, log_append_time_ms, log_start_offset] = longs;
            ProducePartitionResponse {
                index,
                error_code,
                base_offset,
                log_append_time_ms,
                log_start_offset,
                record_errors,
                error_message,
                current_leader,
            }
        },
    );
    let topic = (name(), id(), vec(partition, 0..4)).prop_map(|(name, topic_id, partitions)| {
        ProduceTopicResponse {
            name,
            topic_id,
            partitions,
        }
    });
    (vec(topic, 0..4), any::<i32>(), vec(node(), 0..3)).prop_map(
        |(topics, throttle_time_ms, node_endpoints)| ProduceResponse {
            topics,
            throttle_time_ms,
            node_endpoints,
        },
    )
}

pub(crate) fn node() -> impl Strategy<Value = NodeEndpoint> {
    (any::<i32>(), name(), any::<i32>(), nullable_name()).prop_map(|(node_id, host, port, rack)| {
        NodeEndpoint {
            node_id,
            host,
            port,
            rack,
        }
    })
}

fn response_reference(response: &ProduceResponse, version: i16) -> answer::ProduceResponse {
    let mut out = answer::ProduceResponse::default();
    out.throttle_time_ms = response.throttle_time_ms;
    for node in response.node_endpoints.iter().filter(|_| version >= 10) {
        let mut endpoint = answer::NodeEndpoint::default();
        endpoint.node_id = node.node_id;
        endpoint.host = node.host.clone();
        endpoint.port = node.port;
        endpoint.rack = node.rack.clone();
        out.node_endpoints.push(endpoint);
    }
    for topic in &response.topics {
        let mut entry = answer::TopicProduceResponse::default();
        entry.name = topic.name.clone();
        entry.topic_id = topic.topic_id;
        entry.partition_responses = topic
            .partitions
            .iter()
            .map(|partition| partition_reference(partition, version))
            .collect();
        out.responses.push(entry);
    }
    out
}

fn partition_reference(
    partition: &ProducePartitionResponse,
    version: i16,
) -> answer::PartitionProduceResponse {
    let mut out = answer::PartitionProduceResponse::default();
    out.index = partition.index;
    out.error_code = partition.error_code;
    out.base_offset = partition.base_offset;
    out.log_append_time_ms = partition.log_append_time_ms;
    out.log_start_offset = partition.log_start_offset;
    out.error_message = partition.error_message.clone();
    for error in &partition.record_errors {
        let mut entry = answer::BatchIndexAndErrorMessage::default();
        entry.batch_index = error.batch_index;
        entry.batch_index_error_message = error.message.clone();
        out.record_errors.push(entry);
    }
    if let Some(leader) = partition.current_leader.filter(|_| version >= 10) {
        out.current_leader.leader_id = leader.leader_id;
        out.current_leader.leader_epoch = leader.leader_epoch;
    }
    out
}

#[test]
fn records_are_slices_of_the_frame() {
    let mut request = reference::ProduceRequest::default();
    let mut topic = reference::TopicProduceData::default();
    topic.name = "topic".into();
    let mut partition = reference::PartitionProduceData::default();
    partition.records = Some(Bytes::from(vec![7; 5_000]));
    topic.partition_data.push(partition);
    request.topic_data.push(topic);
    let frame = reference_encode(&request, 9);
    let decoded = ProduceRequest::decode(&frame, 9).unwrap();
    let records = decoded.topics[0].partitions[0].records.as_ref().unwrap();
    assert!(frame.as_ptr_range().contains(&records.as_ptr()));
}

#[test]
fn old_versions_decode_without_a_transactional_id() {
    // acks 1, timeout 5, one topic "t", partition 3 with bytes "xy".
    let body = b"\0\x01\0\0\0\x05\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\x03\0\0\0\x02xy";
    for version in 0..3 {
        let decoded = ProduceRequest::decode(&Bytes::from_static(body), version).unwrap();
        assert_eq!((decoded.acks, decoded.timeout_ms), (1, 5));
        let partition = &decoded.topics[0].partitions[0];
        assert_eq!(
            (partition.index, partition.records.as_deref()),
            (3, Some(&b"xy"[..]))
        );
    }
}
