//! Topics changed after they were made: configs set, deleted, appended to; partitions added.

use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::kafka_wire::{
    AlterConfigsRequest, CreatePartitionsRequest, DescribeConfigsRequest,
    IncrementalAlterConfigsRequest, MetadataRequest,
};
use seawall_testkit::requests;
use seawall_testkit::{BatchBuilder, Raw};

use super::codes;
use super::topics::describe;
use crate::{broker, setup};

/// Value and source of one config of a topic.
fn config(raw: &mut Raw, topic: &str, key: &str) -> (String, i8) {
    let answer = raw.call::<DescribeConfigsRequest>(4, &describe(2, topic, Some(&[key])));
    let config = &answer.results[0].configs[0];
    (
        config.value.clone().unwrap_or_default().to_string(),
        config.config_source,
    )
}

/// Changes configs one by one; the error code.
fn change(raw: &mut Raw, topic: &str, changes: &[(&str, i8, Option<&str>)]) -> i16 {
    let request = requests::incremental_alter(topic, changes);
    let answer = raw
        .call::<IncrementalAlterConfigsRequest>(1, &request)
        .responses
        .remove(0);
    answer.error_code
}

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

#[test]
fn a_config_that_was_set_is_in_force_and_stays_over_a_restart() {
    let mut broker = setup().set("num.partitions", "1").start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "alter", 1, &[]);
    assert_eq!(
        change(
            &mut raw,
            "alter",
            &[("max.message.bytes", SET, Some("500"))]
        ),
        codes::NONE
    );
    for _ in 0..2 {
        assert_eq!(
            config(&mut raw, "alter", "max.message.bytes"),
            ("500".to_owned(), 1)
        );
        let large = calls::produce(&mut raw, &topic, 0, -1, BatchBuilder::sized(600).build());
        assert_eq!(large.error_code, codes::MESSAGE_TOO_LARGE);
        broker.crash_and_restart();
        raw = broker.connect();
        calls::until_usable(&mut raw, "alter", 1);
    }
    assert_eq!(
        change(&mut raw, "alter", &[("max.message.bytes", DELETE, None)]),
        codes::NONE
    );
    assert_eq!(
        config(&mut raw, "alter", "max.message.bytes"),
        ("1048588".to_owned(), 5)
    );
    assert_eq!(
        calls::append(&mut raw, &topic, 0, BatchBuilder::sized(600).build()),
        0
    );
}

#[test]
fn lists_are_appended_to_and_subtracted_from() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("alter");
    create_topic(&mut raw, &name, 1, &[]);
    for (operation, value, expected) in [
        (SET, "compact", "compact"),
        (APPEND, "delete", "compact,delete"),
        (SUBTRACT, "compact", "delete"),
    ] {
        assert_eq!(
            change(
                &mut raw,
                &name,
                &[("cleanup.policy", operation, Some(value))]
            ),
            codes::NONE
        );
        assert_eq!(config(&mut raw, &name, "cleanup.policy").0, expected);
    }
}

/// What it is, key, operation, value, error.
const SENSELESS: [(&str, &str, i8, Option<&str>, i16); 6] = [
    (
        "an unknown key",
        "no.such.key",
        SET,
        Some("1"),
        codes::INVALID_CONFIG,
    ),
    (
        "not a number",
        "retention.ms",
        SET,
        Some("soon"),
        codes::INVALID_CONFIG,
    ),
    (
        "a null value",
        "retention.ms",
        SET,
        None,
        codes::INVALID_REQUEST,
    ),
    (
        "appending to what is no list",
        "retention.ms",
        APPEND,
        Some("1"),
        codes::INVALID_CONFIG,
    ),
    (
        "deleting an unset key",
        "retention.bytes",
        DELETE,
        None,
        codes::NONE,
    ),
    (
        "deleting an unknown key",
        "no.such.key",
        DELETE,
        None,
        codes::NONE,
    ),
];

#[test]
fn changes_that_make_no_sense_are_refused_and_change_nothing() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("alter");
    create_topic(&mut raw, &name, 1, &[]);
    for (what, key, operation, value, expected) in SENSELESS {
        let got = change(&mut raw, &name, &[(key, operation, value)]);
        assert_eq!(got, expected, "{what}");
    }
    if !broker.is_kafka() {
        let unknown = change(&mut raw, &name, &[("retention.ms", 9, Some("1"))]);
        assert_eq!(unknown, codes::INVALID_REQUEST, "an unknown operation");
    }
    let twice = [
        ("retention.ms", SET, Some("1")),
        ("retention.ms", SET, Some("2")),
    ];
    assert_eq!(
        change(&mut raw, &name, &twice),
        codes::INVALID_REQUEST,
        "one key twice"
    );
    assert_eq!(
        change(&mut raw, "no-such-topic", &twice[..1]),
        codes::UNKNOWN_TOPIC_OR_PARTITION
    );
    assert_eq!(
        config(&mut raw, &name, "retention.ms"),
        ("604800000".to_owned(), 5)
    );
}

#[test]
fn alter_configs_puts_what_it_does_not_name_back_to_the_default() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("alter");
    create_topic(
        &mut raw,
        &name,
        1,
        &[("retention.ms", "1000"), ("flush.messages", "7")],
    );
    for version in 0..=2 {
        let request = requests::alter_configs(&name, &[("retention.ms", "2000")]);
        let answer = raw.call::<AlterConfigsRequest>(version, &request);
        assert_eq!(answer.responses[0].error_code, codes::NONE, "v{version}");
    }
    assert_eq!(
        config(&mut raw, &name, "retention.ms"),
        ("2000".to_owned(), 1)
    );
    assert_eq!(config(&mut raw, &name, "flush.messages").1, 5);
}

#[test]
fn partitions_are_added_and_take_records() {
    let mut broker = setup().set("num.partitions", "1").start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "grow", 2, &[]);
    calls::append(&mut raw, &topic, 1, BatchBuilder::of(&["before"]).build());
    for version in 0..=3 {
        let count = 3 + i32::from(version);
        let request = requests::create_partitions("grow", count);
        let answer = raw.call::<CreatePartitionsRequest>(version, &request);
        assert_eq!(answer.results[0].error_code, codes::NONE, "v{version}");
        calls::until_usable(&mut raw, "grow", count);
        assert_eq!(
            calls::append(
                &mut raw,
                &topic,
                count - 1,
                BatchBuilder::of(&["after"]).build()
            ),
            0
        );
    }
    broker.crash_and_restart();
    raw = broker.connect();
    let metadata = raw.call::<MetadataRequest>(12, &requests::metadata(12, &["grow"]));
    assert_eq!(metadata.topics[0].partitions.len(), 6);
    calls::until_usable(&mut raw, "grow", 6);
    assert!((1..6).all(|partition| calls::end_offset(&mut raw, &topic, partition) == 1));
}

#[test]
fn partitions_that_are_added_at_once_are_all_there() {
    let mut broker = setup().start();
    let mut raw = broker.connect();
    let mut others: Vec<Raw> = (0..3).map(|_| broker.connect()).collect();
    for round in 0..20 {
        let name = format!("at-once-{round}");
        let topic = create_topic(&mut raw, &name, 1, &[]);
        let sent: Vec<i32> = others
            .iter_mut()
            .zip([3, 5, 7])
            .map(|(other, count)| other.send(3, &requests::create_partitions(&name, count)))
            .collect();
        let told = others.iter_mut().zip(sent).zip([3, 5, 7]);
        let told = told.filter_map(|((other, sent), count)| {
            let answer = other.receive::<CreatePartitionsRequest>(3, sent);
            (answer.results[0].error_code == codes::NONE).then_some(count)
        });
        // Who was slower may find that there are more, or be told to come again.
        let most = told.max().expect("one of them succeeds");
        let metadata = raw.call::<MetadataRequest>(12, &requests::metadata(12, &[&name]));
        let count = i32::try_from(metadata.topics[0].partitions.len()).expect("few");
        assert_eq!(count, most);
        for partition in 0..count {
            let batch = BatchBuilder::of(&["x"]).build();
            assert_eq!(calls::append(&mut raw, &topic, partition, batch), 0);
        }
    }
    broker.crash_and_restart();
    let mut raw = broker.connect();
    let names: Vec<String> = (0..20).map(|round| format!("at-once-{round}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let metadata = raw.call::<MetadataRequest>(12, &requests::metadata(12, &names));
    assert!(
        metadata
            .topics
            .iter()
            .all(|topic| topic.partitions.len() >= 3)
    );
}

#[test]
fn partition_counts_that_do_not_grow_are_refused() {
    let broker = broker();
    let mut raw = broker.connect();
    let name = broker.fresh("grow");
    create_topic(&mut raw, &name, 2, &[]);
    let mut try_count = |topic: &str, count: i32| {
        let request = requests::create_partitions(topic, count);
        raw.call::<CreatePartitionsRequest>(3, &request)
            .results
            .remove(0)
            .error_code
    };
    // INVALID_PARTITIONS
    for count in [2, 1, 0, -1] {
        assert_eq!(try_count(&name, count), 37, "count {count}");
    }
    assert_eq!(
        try_count("no-such-topic", 3),
        codes::UNKNOWN_TOPIC_OR_PARTITION
    );
    let mut request = requests::create_partitions(&name, 5);
    request.validate_only = true;
    assert_eq!(
        raw.call::<CreatePartitionsRequest>(3, &request).results[0].error_code,
        codes::NONE
    );
    let metadata = raw.call::<MetadataRequest>(12, &requests::metadata(12, &[&name]));
    assert_eq!(
        metadata.topics[0].partitions.len(),
        2,
        "validate_only adds nothing"
    );
}
