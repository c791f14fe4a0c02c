//! Topics: created, described. t01 to t07, t13.

use std::collections::BTreeMap;

use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::kafka_wire::create_topics_response::CreatableTopicResult;
use seawall_testkit::kafka_wire::describe_configs_request::DescribeConfigsResource;
use seawall_testkit::kafka_wire::describe_configs_response::DescribeConfigsResourceResult;
use seawall_testkit::kafka_wire::{
    CreateTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    DescribeTopicPartitionsRequest, MetadataRequest,
};
use seawall_testkit::kafka_wire_core::Uuid;
use seawall_testkit::requests::{self, TopicRef};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Raw};

use super::codes;
use crate::{broker, not_for_kafka, setup};

/// DescribeConfigs of a topic (type 2) or a broker (type 4).
pub(crate) fn describe(kind: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsRequest {
    let mut resource = DescribeConfigsResource::default();
    resource.resource_type = kind;
    resource.resource_name = name.into();
    resource.configuration_keys = keys.map(|keys| keys.iter().map(|key| (*key).into()).collect());
    let mut request = DescribeConfigsRequest::default();
    request.resources = vec![resource];
    request
}

fn configs_of(
    raw: &mut Raw,
    request: &DescribeConfigsRequest,
) -> BTreeMap<String, DescribeConfigsResourceResult> {
    let mut answer = raw.call::<DescribeConfigsRequest>(4, request);
    let result = answer.results.remove(0);
    assert_eq!(result.error_code, codes::NONE, "{:?}", result.error_message);
    result
        .configs
        .into_iter()
        .map(|config| (config.name.as_str().to_owned(), config))
        .collect()
}

pub(crate) fn create(raw: &mut Raw, name: &str) -> CreatableTopicResult {
    let request = requests::create_topics(vec![requests::topic(name, 1, &[])]);
    raw.call::<CreateTopicsRequest>(7, &request)
        .topics
        .remove(0)
}

#[test]
fn t01_topics_are_usable_when_create_topics_returns() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    let mut raw = broker.connect();
    let names: Vec<String> = (0..50).map(|_| broker.fresh("t01")).collect();
    let topics = names
        .iter()
        .map(|name| requests::topic(name, 1, &[]))
        .collect();
    let answer = raw.call::<CreateTopicsRequest>(7, &requests::create_topics(topics));
    assert!(
        answer
            .topics
            .iter()
            .all(|topic| topic.error_code == codes::NONE)
    );
    let ids: BTreeMap<&str, Uuid> = answer
        .topics
        .iter()
        .map(|topic| (topic.name.as_str(), topic.topic_id))
        .collect();
    for name in names.iter().rev() {
        let topic = TopicRef {
            name: name.clone(),
            id: ids[name.as_str()],
        };
        assert_eq!(
            calls::append(&mut raw, &topic, 0, BatchBuilder::of(&["x"]).build()),
            0,
            "{name}"
        );
    }
}

#[test]
fn t02_a_missing_topic_is_created_for_who_asks_by_metadata_and_allows_it() {
    let broker = setup()
        .set("auto.create.topics.enable", "true")
        .set("num.partitions", "3")
        .start();
    let mut raw = broker.connect();
    let mut request = requests::metadata(12, &["t02"]);
    let first = raw.call::<MetadataRequest>(12, &request).topics.remove(0);
    assert_eq!(
        first.error_code,
        codes::UNKNOWN_TOPIC_OR_PARTITION,
        "not allowed by the client"
    );
    request.allow_auto_topic_creation = true;
    let topic = wait::until_some("the topic is there", SOON, || {
        let topic = raw.call::<MetadataRequest>(12, &request).topics.remove(0);
        // LEADER_NOT_AVAILABLE and UNKNOWN_TOPIC_OR_PARTITION are what clients retry.
        assert!(
            [0, 3, 5].contains(&topic.error_code),
            "error {}",
            topic.error_code
        );
        (topic.error_code == codes::NONE).then_some(topic)
    });
    assert_eq!(topic.partitions.len(), 3);
    calls::until_usable(&mut raw, "t02", 3);
    let topic = TopicRef {
        name: "t02".to_owned(),
        id: topic.topic_id,
    };
    assert_eq!(
        calls::append(&mut raw, &topic, 2, BatchBuilder::of(&["x"]).build()),
        0
    );
}

#[test]
fn t02_nothing_is_created_when_the_broker_does_not_allow_it() {
    let broker = setup().set("auto.create.topics.enable", "false").start();
    let mut raw = broker.connect();
    for version in [0, 4, 12] {
        let mut request = requests::metadata(version, &["t02"]);
        request.allow_auto_topic_creation = true;
        let topic = raw
            .call::<MetadataRequest>(version, &request)
            .topics
            .remove(0);
        assert_eq!(
            topic.error_code,
            codes::UNKNOWN_TOPIC_OR_PARTITION,
            "v{version}"
        );
    }
    assert_eq!(
        create(&mut raw, "t02").error_code,
        codes::NONE,
        "the name is still free"
    );
}

fn bad_names() -> Vec<String> {
    [
        "", "a b", "a/b", ".", "..", "h\u{e9}", "a\u{0}b", "a:b", "a\\b",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain(["x".repeat(250), "x".repeat(5_000)])
    .collect()
}

#[test]
fn t03_names_that_are_no_topic_names_are_refused_and_echoed() {
    let broker = broker();
    let mut raw = broker.connect();
    for name in bad_names() {
        let answer = create(&mut raw, &name);
        assert_eq!(
            (answer.error_code, answer.name.as_str()),
            (codes::INVALID_TOPIC, name.as_str()),
            "create {name:?}"
        );
    }
    let longest = format!("{:x<249}", broker.fresh("t03"));
    assert_eq!(create(&mut raw, &longest).error_code, codes::NONE);
}

#[test]
fn t03_names_that_are_no_topic_names_are_not_created_by_asking_for_them() {
    let broker = setup().set("auto.create.topics.enable", "true").start();
    let mut raw = broker.connect();
    for name in bad_names() {
        let mut request = requests::metadata(12, &[&name]);
        request.allow_auto_topic_creation = true;
        let topic = raw.call::<MetadataRequest>(12, &request).topics.remove(0);
        let echoed = topic.name.as_ref().map(|name| name.as_str());
        assert_eq!(
            (topic.error_code, echoed),
            (codes::INVALID_TOPIC, Some(name.as_str())),
            "metadata of {name:?}"
        );
    }
}

#[test]
fn t03_names_that_differ_only_in_dot_and_underscore_collide() {
    let broker = broker();
    let mut raw = broker.connect();
    let stem = broker.fresh("t03");
    assert_eq!(
        create(&mut raw, &format!("{stem}.a_b")).error_code,
        codes::NONE
    );
    for name in [format!("{stem}_a_b"), format!("{stem}.a.b")] {
        assert_eq!(
            create(&mut raw, &name).error_code,
            codes::INVALID_TOPIC,
            "{name}"
        );
    }
    assert_eq!(
        create(&mut raw, &format!("{stem}.a_b")).error_code,
        codes::TOPIC_ALREADY_EXISTS
    );
}

#[test]
fn t03_one_bad_topic_of_a_request_does_not_stop_the_others() {
    let broker = broker();
    let mut raw = broker.connect();
    let (good, twice) = (broker.fresh("t03"), broker.fresh("t03"));
    let topics = [&good, "a b", &twice, &twice]
        .map(|name| requests::topic(name, 1, &[]))
        .to_vec();
    let answer = raw.call::<CreateTopicsRequest>(7, &requests::create_topics(topics));
    let errors: BTreeMap<&str, i16> = answer
        .topics
        .iter()
        .map(|topic| (topic.name.as_str(), topic.error_code))
        .collect();
    let expected = [
        (good.as_str(), codes::NONE),
        ("a b", codes::INVALID_TOPIC),
        (&twice, codes::INVALID_REQUEST),
    ];
    assert_eq!(errors, BTreeMap::from(expected));
}

#[test]
fn t04_partitions_and_replication_of_minus_one_are_the_brokers_defaults() {
    let broker = setup().set("num.partitions", "3").start();
    let mut raw = broker.connect();
    for version in 4..=7 {
        let name = broker.fresh("t04");
        let mut topic = requests::topic(&name, -1, &[]);
        topic.replication_factor = -1;
        let answer =
            raw.call::<CreateTopicsRequest>(version, &requests::create_topics(vec![topic]));
        assert_eq!(answer.topics[0].error_code, codes::NONE, "v{version}");
        if version >= 5 {
            let got = (
                answer.topics[0].num_partitions,
                answer.topics[0].replication_factor,
            );
            assert_eq!(got, (3, 1), "v{version}");
        }
        calls::until_usable(&mut raw, &name, 3);
        let metadata = raw.call::<MetadataRequest>(12, &requests::metadata(12, &[&name]));
        assert_eq!(metadata.topics[0].partitions.len(), 3);
    }
}

#[test]
fn t04_partition_counts_that_make_no_sense_are_refused() {
    let broker = broker();
    let mut raw = broker.connect();
    for partitions in [0, -2, i32::MIN] {
        let topic = requests::topic(&broker.fresh("t04"), partitions, &[]);
        let answer = raw.call::<CreateTopicsRequest>(7, &requests::create_topics(vec![topic]));
        assert_eq!(
            answer.topics[0].error_code, 37,
            "INVALID_PARTITIONS for {partitions}"
        );
    }
    if broker.is_kafka() {
        return;
    }
    let topic = requests::topic("t04-huge", i32::MAX, &[]);
    let answer = raw.call::<CreateTopicsRequest>(7, &requests::create_topics(vec![topic]));
    assert_ne!(
        answer.topics[0].error_code,
        codes::NONE,
        "2^31-1 partitions"
    );
}

#[test]
fn t04_a_replication_factor_of_three_is_refused_or_reported_truthfully() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("t04");
    let mut topic = requests::topic(&name, 1, &[]);
    topic.replication_factor = 3;
    let answer = raw
        .call::<CreateTopicsRequest>(7, &requests::create_topics(vec![topic]))
        .topics
        .remove(0);
    // INVALID_REPLICATION_FACTOR, or accepted: then every answer says what there is, one replica.
    if answer.error_code == codes::NONE {
        let metadata = raw.call::<MetadataRequest>(12, &requests::metadata(12, &[&name]));
        let replicas = metadata.topics[0].partitions[0].replica_nodes.len();
        assert_eq!(
            (i16::try_from(replicas).ok(), replicas),
            (Some(answer.replication_factor), 1)
        );
    } else {
        assert_eq!(answer.error_code, 38);
    }
}

#[test]
fn t05_create_topics_v5_tells_all_effective_configs_with_their_sources() {
    let broker = broker();
    let mut raw = broker.connect();
    for version in 5..=7 {
        let topic = requests::topic(&broker.fresh("t05"), 2, &[("retention.ms", "123456")]);
        let answer = raw
            .call::<CreateTopicsRequest>(version, &requests::create_topics(vec![topic]))
            .topics
            .remove(0);
        assert_eq!((answer.num_partitions, answer.replication_factor), (2, 1));
        let configs = answer.configs.expect("configs");
        let of = |key: &str| {
            let config = configs.iter().find(|config| config.name.as_str() == key);
            let config = config.unwrap_or_else(|| panic!("{key} is missing at v{version}"));
            (
                config.value.as_ref().map(|value| value.as_str().to_owned()),
                config.config_source,
            )
        };
        assert_eq!(
            of("retention.ms"),
            (Some("123456".to_owned()), 1),
            "set on the topic"
        );
        assert_eq!(
            of("cleanup.policy"),
            (Some("delete".to_owned()), 5),
            "a default"
        );
        for key in [
            "segment.bytes",
            "max.message.bytes",
            "message.timestamp.type",
            "flush.messages",
            "min.insync.replicas",
        ] {
            of(key);
        }
    }
}

#[test]
fn t05_configs_that_are_unknown_null_or_no_numbers_are_refused() {
    let broker = broker();
    let mut raw = broker.connect();
    for (key, value) in [
        ("no.such.key", "1"),
        ("retention.ms", "soon"),
        ("cleanup.policy", "burn"),
        ("segment.bytes", "1"),
    ] {
        let topic = requests::topic(&broker.fresh("t05"), 1, &[(key, value)]);
        let answer = raw
            .call::<CreateTopicsRequest>(7, &requests::create_topics(vec![topic]))
            .topics
            .remove(0);
        assert_eq!(answer.error_code, codes::INVALID_CONFIG, "{key}={value}");
        assert!(
            answer.error_message.is_some_and(|text| text.contains(key)),
            "the message names {key}"
        );
    }
    let mut topic = requests::topic(&broker.fresh("t05"), 1, &[("retention.ms", "1")]);
    topic.configs[0].value = None;
    let answer = raw
        .call::<CreateTopicsRequest>(7, &requests::create_topics(vec![topic]))
        .topics
        .remove(0);
    assert_eq!(answer.error_code, codes::INVALID_CONFIG, "a null value");
}

#[test]
fn t05_validate_only_creates_nothing() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("t05");
    let mut request = requests::create_topics(vec![requests::topic(&name, 1, &[])]);
    request.validate_only = true;
    assert_eq!(
        raw.call::<CreateTopicsRequest>(7, &request).topics[0].error_code,
        codes::NONE
    );
    assert_eq!(
        create(&mut raw, &name).error_code,
        codes::NONE,
        "the name is still free"
    );
    assert_eq!(
        raw.call::<CreateTopicsRequest>(7, &request).topics[0].error_code,
        codes::TOPIC_ALREADY_EXISTS
    );
}

#[test]
fn t06_names_that_are_ours_inside_are_refused_and_make_no_directory() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    let mut raw = broker.connect();
    let before = names_in(&broker);
    for name in [
        "__cluster",
        ".lock",
        "log-dir.json",
        "owner-1.json",
        ".trash-x",
        ".lost-x",
        ".tmp-1",
    ] {
        let answer = create(&mut raw, name);
        assert_eq!(answer.error_code, codes::INVALID_TOPIC, "{name}");
    }
    let consumer_offsets = create(&mut raw, "__consumer_offsets").error_code;
    assert!(
        [codes::INVALID_TOPIC, codes::INVALID_REQUEST].contains(&consumer_offsets),
        "{consumer_offsets}"
    );
    assert_eq!(names_in(&broker), before);
}

fn names_in(broker: &Broker) -> Vec<String> {
    let entries = std::fs::read_dir(broker.data()).expect("the data directory");
    let names = entries.map(|entry| {
        entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    let mut names: Vec<String> = names.filter(|name| !name.starts_with("owner-")).collect();
    names.sort();
    names
}

#[test]
fn t07_describe_configs_answers_exactly_the_key_asked_for() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("t07");
    create_topic(&mut raw, &name, 1, &[]);
    let mut request = describe(2, &name, Some(&["retention.ms"]));
    request.include_synonyms = true;
    request.include_documentation = true;
    let configs = configs_of(&mut raw, &request);
    assert_eq!(configs.keys().collect::<Vec<_>>(), ["retention.ms"]);
    let retention = &configs["retention.ms"];
    assert_eq!(
        retention.value.as_ref().map(|value| value.as_str()),
        Some("604800000")
    );
    assert_eq!(retention.config_source, 5, "a default");
    assert_eq!(retention.config_type, 5, "a long");
    assert!(!retention.read_only && !retention.is_sensitive);
    assert!(
        retention
            .documentation
            .as_ref()
            .is_some_and(|text| text.len() > 20)
    );
}

#[test]
fn t07_synonyms_name_the_brokers_key_and_its_source() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("t07");
    create_topic(&mut raw, &name, 1, &[("segment.bytes", "1048576")]);
    let mut request = describe(2, &name, Some(&["max.message.bytes", "segment.bytes"]));
    request.include_synonyms = true;
    let configs = configs_of(&mut raw, &request);
    let synonyms = |key: &str| -> Vec<(String, i8)> {
        let all = configs[key].synonyms.iter();
        all.map(|synonym| (synonym.name.to_string(), synonym.source))
            .collect()
    };
    assert_eq!(
        synonyms("max.message.bytes"),
        [("message.max.bytes".to_owned(), 5)]
    );
    let expected = [
        ("segment.bytes".to_owned(), 1),
        ("log.segment.bytes".to_owned(), 5),
    ];
    assert_eq!(synonyms("segment.bytes"), expected);
}

#[test]
fn t07_a_config_set_on_the_topic_is_told_from_a_default() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("t07");
    create_topic(
        &mut raw,
        &name,
        1,
        &[("segment.bytes", "1048576"), ("cleanup.policy", "compact")],
    );
    let configs = configs_of(&mut raw, &describe(2, &name, None));
    assert_eq!(configs["segment.bytes"].config_source, 1);
    assert_eq!(
        configs["cleanup.policy"]
            .value
            .as_ref()
            .map(|value| value.as_str()),
        Some("compact")
    );
    assert_eq!(configs["max.message.bytes"].config_source, 5);
    let types = [
        "cleanup.policy",
        "segment.bytes",
        "preallocate",
        "retention.ms",
        "min.cleanable.dirty.ratio",
    ];
    let types = types.map(|key| {
        configs
            .get(key)
            .unwrap_or_else(|| panic!("{key}"))
            .config_type
    });
    assert_eq!(types, [7, 3, 1, 5, 6], "list, int, boolean, long, double");
    let missing = raw.call::<DescribeConfigsRequest>(4, &describe(2, "no-such-topic", None));
    assert_eq!(
        missing.results[0].error_code,
        codes::UNKNOWN_TOPIC_OR_PARTITION
    );
}

#[test]
fn t13_the_brokers_own_configs_are_described() {
    let broker = setup().set("num.partitions", "7").start();
    let mut raw = broker.connect();
    let cluster = raw.call::<DescribeClusterRequest>(0, &DescribeClusterRequest::default());
    let node = cluster.brokers[0].broker_id.to_string();
    let configs = configs_of(&mut raw, &describe(4, &node, None));
    for key in [
        "num.partitions",
        "log.retention.hours",
        "log.retention.bytes",
        "message.max.bytes",
        "auto.create.topics.enable",
    ] {
        assert!(configs.contains_key(key), "{key} is missing");
    }
    let partitions = &configs["num.partitions"];
    assert_eq!(
        partitions.value.as_ref().map(|value| value.as_str()),
        Some("7")
    );
    assert_eq!(
        partitions.config_source, 4,
        "from the broker's own configuration"
    );
    let one = configs_of(&mut raw, &describe(4, &node, Some(&["message.max.bytes"])));
    assert_eq!(one.keys().collect::<Vec<_>>(), ["message.max.bytes"]);
}

#[test]
fn the_cluster_and_its_topics_are_described_the_same_by_every_api() {
    let mut broker = setup().set("num.partitions", "1").start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "described", 3, &[]);
    for round in 0..2 {
        let metadata = raw.call::<MetadataRequest>(12, &requests::metadata(12, &["described"]));
        let cluster = raw.call::<DescribeClusterRequest>(0, &DescribeClusterRequest::default());
        assert_eq!(
            metadata.cluster_id.as_ref(),
            Some(&cluster.cluster_id),
            "round {round}"
        );
        assert_eq!(metadata.controller_id, cluster.controller_id);
        let node = metadata.brokers[0].node_id;
        assert_eq!(
            (cluster.brokers.len(), cluster.brokers[0].broker_id),
            (1, node)
        );
        assert_eq!(metadata.topics[0].topic_id, topic.id);
        let mut request = DescribeTopicPartitionsRequest::default();
        request.topics = vec![Default::default()];
        request.topics[0].name = "described".into();
        let described = raw.call::<DescribeTopicPartitionsRequest>(0, &request);
        assert_eq!(described.topics[0].topic_id, topic.id);
        assert_eq!(described.topics[0].partitions.len(), 3);
        for partition in &described.topics[0].partitions {
            let got = (
                partition.error_code,
                partition.leader_id,
                &partition.replica_nodes[..],
                &partition.isr_nodes[..],
            );
            assert_eq!(got, (codes::NONE, node, &[node][..], &[node][..]));
        }
        broker.stop_and_restart();
        raw = broker.connect();
    }
}

#[test]
fn describe_topic_partitions_pages_as_kafka_does() {
    let broker = broker();
    let mut raw = broker.connect();
    let stem = broker.fresh("pages");
    let names = ["a", "b"].map(|end| format!("{stem}-{end}"));
    for name in &names {
        create_topic(&mut raw, name, 3, &[]);
    }
    let mut request = DescribeTopicPartitionsRequest::default();
    request.topics = vec![Default::default(), Default::default()];
    request.topics[0].name = names[1].as_str().into();
    request.topics[1].name = names[0].as_str().into();
    let mut seen = Vec::new();
    for limit in [2, 0, -1, 2, 2] {
        request.response_partition_limit = limit;
        let answer = raw.call::<DescribeTopicPartitionsRequest>(0, &request);
        for topic in &answer.topics {
            let name = topic.name.clone().unwrap_or_default().to_string();
            seen.extend(
                topic
                    .partitions
                    .iter()
                    .map(|partition| (name.clone(), partition.partition_index)),
            );
        }
        let Some(cursor) = answer.next_cursor else {
            break;
        };
        let mut next =
            seawall_testkit::kafka_wire::describe_topic_partitions_request::Cursor::default();
        next.topic_name = cursor.topic_name;
        next.partition_index = cursor.partition_index;
        request.cursor = Some(next);
    }
    let expected: Vec<(String, i32)> = names
        .iter()
        .flat_map(|name| (0..3).map(|p| (name.clone(), p)))
        .collect();
    assert_eq!(
        seen, expected,
        "topics sorted, limits 2, 1 (for 0), 1 (for -1), 2"
    );
}
