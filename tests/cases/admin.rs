//! Admin answers of a broker without replicas. t08, and what tools ask of reassignments, elections, quorum and features.

use seawall_testkit::calls::{append, create_topic};
use seawall_testkit::kafka_wire::{
    AlterPartitionReassignmentsRequest, DescribeLogDirsRequest, DescribeQuorumRequest,
    ElectLeadersRequest, ListConfigResourcesRequest, ListPartitionReassignmentsRequest,
    UpdateFeaturesRequest, alter_partition_reassignments_request, describe_log_dirs_request,
    describe_quorum_request, elect_leaders_request, list_partition_reassignments_request,
    update_features_request,
};
use seawall_testkit::{BatchBuilder, Raw};

use super::codes;
use crate::broker;

const SOME_TOPIC: &str = "admin";

fn log_dirs_of(topics: Option<&[(&str, &[i32])]>) -> DescribeLogDirsRequest {
    let mut request = DescribeLogDirsRequest::default();
    request.topics = topics.map(|topics| {
        let wanted = topics.iter().map(|(name, parts)| {
            let mut topic = describe_log_dirs_request::DescribableLogDirTopic::default();
            topic.topic = (*name).into();
            topic.partitions = parts.to_vec();
            topic
        });
        wanted.collect()
    });
    request
}

#[test]
fn t08_log_dirs_tell_sizes_of_partitions_and_of_the_file_system() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("t08");
    let topic = create_topic(&mut raw, &name, 3, &[("retention.ms", "-1")]);
    let batch = BatchBuilder::of(&["x"]).build();
    let bytes = i64::try_from(batch.len()).expect("small");
    append(&mut raw, &topic, 1, batch.clone());
    append(&mut raw, &topic, 1, batch);
    for version in 1..=5 {
        let mut sizes = |topics: Option<&[(&str, &[i32])]>| {
            let answer = raw.call::<DescribeLogDirsRequest>(version, &log_dirs_of(topics));
            assert_eq!(answer.error_code, codes::NONE);
            assert!(!answer.results.is_empty());
            let mut found = Vec::new();
            for dir in &answer.results {
                assert_eq!((dir.error_code, dir.is_cordoned), (codes::NONE, false));
                assert!(dir.log_dir.as_str().starts_with('/'), "{}", dir.log_dir);
                let known = version >= 4;
                assert_eq!((dir.total_bytes > 0, dir.usable_bytes > 0), (known, known));
                assert!(dir.usable_bytes <= dir.total_bytes);
                let rows = dir.topics.iter().flat_map(|topic| {
                    let parts = topic.partitions.iter();
                    parts.map(|part| {
                        assert_eq!((part.offset_lag, part.is_future_key), (0, false));
                        (
                            topic.name.as_str().to_owned(),
                            part.partition_index,
                            part.partition_size,
                        )
                    })
                });
                found.extend(rows);
            }
            found.sort();
            found
        };
        let row = |index, size| (name.clone(), index, size);
        let all: Vec<_> = vec![row(0, 0), row(1, 2 * bytes), row(2, 0)];
        assert_eq!(sizes(Some(&[(&name, &[0, 1, 2])])), all, "v{version}");
        assert_eq!(
            sizes(Some(&[(&name, &[1, 7]), ("nowhere", &[0])])),
            all[1..2]
        );
        assert_eq!(sizes(Some(&[])), []);
        let everything = sizes(None);
        assert!(all.iter().all(|row| everything.contains(row)));
    }
}

fn resources(raw: &mut Raw, version: i16, types: &[i8]) -> (i16, Vec<(i8, String)>) {
    let mut request = ListConfigResourcesRequest::default();
    request.resource_types = types.to_vec();
    let answer = raw.call::<ListConfigResourcesRequest>(version, &request);
    let rows = answer.config_resources.iter();
    let rows = rows.map(|r| (r.resource_type, r.resource_name.as_str().to_owned()));
    (answer.error_code, rows.collect())
}

#[test]
fn config_resources_are_topics_and_this_broker() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("resources");
    create_topic(&mut raw, &name, 1, &[]);
    assert_eq!(resources(&mut raw, 0, &[]), (codes::NONE, vec![]));
    let (error, topics) = resources(&mut raw, 1, &[2]);
    assert_eq!(error, codes::NONE);
    assert!(topics.contains(&(2, name.clone())), "{topics:?}");
    let id = "1".to_owned();
    let (_, nodes) = resources(&mut raw, 1, &[4]);
    assert_eq!(nodes, [(4, id.clone())]);
    let (_, loggers) = resources(&mut raw, 1, &[8]);
    assert_eq!(loggers, [(8, id.clone())]);
    for none in [16, 32] {
        assert_eq!(resources(&mut raw, 1, &[none]), (codes::NONE, vec![]));
    }
    let (error, all) = resources(&mut raw, 1, &[]);
    assert_eq!(error, codes::NONE);
    for row in [(2, name), (4, id.clone()), (8, id)] {
        assert!(all.contains(&row), "{row:?} in {all:?}");
    }
    for unknown in [0, 1, 3, 99] {
        let (error, none) = resources(&mut raw, 1, &[unknown]);
        assert_eq!(
            (error, none),
            (codes::UNSUPPORTED_VERSION, vec![]),
            "{unknown}"
        );
    }
}

fn elect(
    raw: &mut Raw,
    version: i16,
    kind: i8,
    of: Option<&[(&str, i32)]>,
) -> Vec<(String, i32, i16)> {
    let mut request = ElectLeadersRequest::default();
    request.election_type = kind;
    request.timeout_ms = 10_000;
    request.topic_partitions = of.map(|parts| {
        let wanted = parts.iter().map(|(name, index)| {
            let mut topic = elect_leaders_request::TopicPartitions::default();
            topic.topic = (*name).into();
            topic.partitions = vec![*index];
            topic
        });
        wanted.collect()
    });
    let answer = raw.call::<ElectLeadersRequest>(version, &request);
    assert_eq!(answer.error_code, codes::NONE);
    let rows = answer.replica_election_results.iter().flat_map(|topic| {
        let parts = topic.partition_result.iter();
        parts.map(|p| {
            (
                topic.topic.as_str().to_owned(),
                p.partition_id,
                p.error_code,
            )
        })
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort();
    rows
}

#[test]
fn an_election_is_never_needed() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("elect");
    create_topic(&mut raw, &name, 2, &[]);
    for (version, kind) in [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)] {
        let asked: [(&str, i32); 3] = [(&name, 1), (&name, 5), ("nowhere", 0)];
        let expected = [
            (name.clone(), 1, codes::ELECTION_NOT_NEEDED),
            (name.clone(), 5, codes::UNKNOWN_TOPIC_OR_PARTITION),
            ("nowhere".to_owned(), 0, codes::UNKNOWN_TOPIC_OR_PARTITION),
        ];
        assert_eq!(elect(&mut raw, version, kind, Some(&asked)), expected);
        assert_eq!(
            elect(&mut raw, version, kind, None),
            [],
            "those that need none are left out"
        );
    }
}

fn reassign(raw: &mut Raw, version: i16, name: &str, index: i32, to: Option<&[i32]>) -> i16 {
    let mut part = alter_partition_reassignments_request::ReassignablePartition::default();
    part.partition_index = index;
    part.replicas = to.map(<[i32]>::to_vec);
    let mut topic = alter_partition_reassignments_request::ReassignableTopic::default();
    topic.name = name.into();
    topic.partitions = vec![part];
    let mut request = AlterPartitionReassignmentsRequest::default();
    request.topics = vec![topic];
    request.timeout_ms = 10_000;
    let answer = raw.call::<AlterPartitionReassignmentsRequest>(version, &request);
    assert_eq!(answer.error_code, codes::NONE, "{:?}", answer.error_message);
    let row = &answer.responses[0].partitions[0];
    assert_eq!(
        (answer.responses[0].name.as_str(), row.partition_index),
        (name, index)
    );
    row.error_code
}

#[test]
fn partitions_are_reassigned_to_this_broker_only() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("reassign");
    create_topic(&mut raw, &name, 1, &[]);
    for version in 0..=1 {
        let mut check = |name: &str, index, to: Option<&[i32]>, error| {
            let got = reassign(&mut raw, version, name, index, to);
            assert_eq!(got, error, "v{version} {name}-{index} to {to:?}");
        };
        check(&name, 0, Some(&[1]), codes::NONE);
        check(&name, 0, None, codes::NO_REASSIGNMENT_IN_PROGRESS);
        check(&name, 0, Some(&[2]), codes::INVALID_REPLICA_ASSIGNMENT);
        check(&name, 0, Some(&[1, 2]), codes::INVALID_REPLICA_ASSIGNMENT);
        check(&name, 0, Some(&[1, 1]), codes::INVALID_REPLICA_ASSIGNMENT);
        check(&name, 0, Some(&[]), codes::INVALID_REPLICA_ASSIGNMENT);
        check(&name, 0, Some(&[-1]), codes::INVALID_REPLICA_ASSIGNMENT);
        check(&name, 9, Some(&[1]), codes::UNKNOWN_TOPIC_OR_PARTITION);
        check("nowhere", 0, Some(&[1]), codes::UNKNOWN_TOPIC_OR_PARTITION);
        check("nowhere", 0, None, codes::UNKNOWN_TOPIC_OR_PARTITION);
    }
    for named in [false, true] {
        let mut topic =
            list_partition_reassignments_request::ListPartitionReassignmentsTopics::default();
        topic.name = name.as_str().into();
        topic.partition_indexes = vec![0, 9];
        let mut request = ListPartitionReassignmentsRequest::default();
        request.topics = named.then(|| vec![topic]);
        let answer = raw.call::<ListPartitionReassignmentsRequest>(0, &request);
        assert_eq!((answer.error_code, answer.topics.len()), (codes::NONE, 0));
    }
}

#[test]
fn the_quorum_is_this_broker() {
    let broker = broker();
    let mut raw = broker.connect();
    for version in 0..=2 {
        for (topic, index, error) in [
            ("__cluster_metadata", 0, codes::NONE),
            ("__cluster_metadata", 1, codes::UNKNOWN_TOPIC_OR_PARTITION),
            (SOME_TOPIC, 0, codes::UNKNOWN_TOPIC_OR_PARTITION),
        ] {
            let mut part = describe_quorum_request::PartitionData::default();
            part.partition_index = index;
            let mut wanted = describe_quorum_request::TopicData::default();
            wanted.topic_name = topic.into();
            wanted.partitions = vec![part];
            let mut request = DescribeQuorumRequest::default();
            request.topics = vec![wanted];
            let answer = raw.call::<DescribeQuorumRequest>(version, &request);
            assert_eq!(answer.error_code, codes::NONE, "v{version}");
            let row = &answer.topics[0].partitions[0];
            assert_eq!(
                (row.partition_index, row.error_code),
                (index, error),
                "{topic}"
            );
            if error == codes::NONE {
                assert_eq!(row.leader_id, 1);
                let voters: Vec<i32> = row.current_voters.iter().map(|v| v.replica_id).collect();
                assert_eq!(voters, [1]);
                assert!(row.observers.is_empty());
            }
        }
    }
}

#[test]
fn features_that_are_not_there_are_not_changed() {
    let broker = broker();
    let mut raw = broker.connect();
    for version in 0..=2 {
        let mut update = update_features_request::FeatureUpdateKey::default();
        update.feature = "nothing.version".into();
        update.max_version_level = 1;
        if version >= 1 {
            update.upgrade_type = 1;
        }
        let mut request = UpdateFeaturesRequest::default();
        request.feature_updates = vec![update];
        request.timeout_ms = 10_000;
        let answer = raw.call::<UpdateFeaturesRequest>(version, &request);
        assert_eq!(answer.error_code, codes::INVALID_UPDATE_VERSION);
        assert!(answer.results.is_empty());
        let message = answer.error_message.expect("a message");
        assert!(message.as_str().contains("nothing.version"), "{message}");
    }
}
