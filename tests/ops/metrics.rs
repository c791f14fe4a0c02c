//! `/metrics`, `/healthz` and `/readyz` of a broker that is well.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use seawall_testkit::calls::{append, create_topic, produce, read_from};
use seawall_testkit::groups::{Commit, until_coordinated};
use seawall_testkit::kafka_wire::DeleteTopicsRequest;
use seawall_testkit::metrics::{get, scrape, value};
use seawall_testkit::requests::{TopicRef, delete_topics};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker};

use crate::{setup, tree};

/// A broker with a topic of three partitions, two batches of two records in the first, a group that has read one.
fn used(set: &[(&str, &str)]) -> (Broker, TopicRef) {
    let setup = set
        .iter()
        .fold(setup(), |s, (key, value)| s.set(key, value));
    let broker = setup.start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "told", 3, &[]);
    for _ in 0..2 {
        append(&mut raw, &topic, 0, BatchBuilder::of(&["a", "b"]).build());
    }
    read_from(&mut raw, &topic, 0, 0);
    until_coordinated(&mut raw, "readers");
    assert_eq!(Commit::new("readers", "told", 0, 1).run(&mut raw, 8), 0);
    (broker, topic)
}

#[track_caller]
fn assert_tells(page: &str, sample: &str, expected: f64) {
    let told = value(page, sample);
    assert!(
        told.is_some_and(|told| (told - expected).abs() < 1e-9),
        "{sample} is {told:?}:\n{page}"
    );
}

/// What a broker tells that was used so, and asked once for a topic that is not there.
const TOLD: &[(&str, f64)] = &[
    ("seawall_ready", 1.0),
    ("seawall_starting", 0.0),
    ("seawall_partitions{state=\"online\"}", 3.0),
    ("seawall_partitions{state=\"offline\"}", 0.0),
    (
        "seawall_partition_state{topic=\"told\",partition=\"0\"}",
        0.0,
    ),
    (
        "seawall_partition_log_start_offset{topic=\"told\",partition=\"0\"}",
        0.0,
    ),
    (
        "seawall_partition_high_watermark_offset{topic=\"told\",partition=\"0\"}",
        4.0,
    ),
    (
        "seawall_partition_log_end_offset{topic=\"told\",partition=\"0\"}",
        4.0,
    ),
    (
        "seawall_partition_log_end_offset{topic=\"told\",partition=\"1\"}",
        0.0,
    ),
    (
        "seawall_group_committed_offset{group=\"readers\",topic=\"told\",partition=\"0\"}",
        1.0,
    ),
    (
        "seawall_group_lag{group=\"readers\",topic=\"told\",partition=\"0\"}",
        3.0,
    ),
    ("seawall_series_left_out", 0.0),
    ("seawall_appended_batches_total", 2.0),
    ("seawall_appended_records_total", 4.0),
    ("seawall_requests_total{api=\"Produce\"}", 3.0),
    ("seawall_produce_seconds_count", 3.0),
    (
        "seawall_errors_total{api=\"Produce\",code=\"UNKNOWN_TOPIC_OR_PARTITION\"}",
        1.0,
    ),
    ("seawall_log_dir_used", 1.0),
    ("seawall_log_dir_has_space", 1.0),
    ("seawall_refusals_total", 0.0),
    ("seawall_calls_in_flight{call=\"flush\"}", 0.0),
];

#[test]
fn what_happened_is_told() {
    let (broker, topic) = used(&[]);
    let mut raw = broker.connect();
    let nowhere = TopicRef {
        name: "nowhere".into(),
        ..topic
    };
    let refused = produce(&mut raw, &nowhere, 0, -1, BatchBuilder::of(&["x"]).build());
    assert_eq!(refused.error_code, 3);
    let page = scrape(broker.admin());
    for (sample, expected) in TOLD {
        assert_tells(&page, sample, *expected);
    }
    let over = |sample: &str, least: f64| {
        let told = value(&page, sample).unwrap_or(-1.0);
        assert!(told >= least, "{sample} is {told}, not {least}:\n{page}");
    };
    over("seawall_fsync_seconds_count", 2.0);
    over("seawall_group_commit_batches_sum", 2.0);
    over("seawall_append_seconds_count", 2.0);
    over("seawall_read_seconds_count", 1.0);
    over("seawall_fetch_seconds_count", 1.0);
    over("seawall_fetched_bytes_total", 100.0);
    over("seawall_appended_bytes_total", 100.0);
    over("seawall_connections", 1.0);
    over("seawall_received_bytes_total", 100.0);
    over("seawall_log_dir_free_bytes", 1.0);
    over("seawall_log_dir_size_bytes", 1.0);
}

#[test]
fn counters_do_not_fall_when_a_topic_goes() {
    let (broker, _) = used(&[]);
    let counters = |page: &str| -> BTreeMap<String, f64> {
        let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names = types.filter_map(|line| line.strip_suffix(" counter"));
        names
            .filter_map(|name| Some((name.to_owned(), value(page, name)?)))
            .collect()
    };
    let before = counters(&scrape(broker.admin()));
    assert!(before["seawall_flushes_total"] >= 2.0, "{before:?}");
    assert!(before["seawall_forced_acks_total"] >= 2.0, "{before:?}");
    let mut raw = broker.connect();
    let deleted = raw.call::<DeleteTopicsRequest>(6, &delete_topics(6, &["told"]));
    assert_eq!(deleted.responses[0].error_code, 0);
    let after = counters(&scrape(broker.admin()));
    for (name, was) in before {
        assert!(
            after[&name] >= was,
            "{name} fell from {was} to {}",
            after[&name]
        );
    }
}

#[test]
fn a_client_that_sends_byte_by_byte_is_cut_and_the_next_one_served() {
    let broker = setup().start();
    let mut slow = TcpStream::connect(broker.admin()).expect("connect");
    let begun = b"GET /metrics HTTP/1.1\r\nX: ";
    slow.write_all(begun).expect("send");
    // As long as it waits for the broker to hang up, before it sends the next byte.
    let pause = Duration::from_millis(200);
    slow.set_read_timeout(Some(pause)).expect("a timeout");
    wait::until("it is cut", SOON, || {
        matches!(slow.read(&mut [0]), Ok(0)) || slow.write_all(b"x").is_err()
    });
    let ready = get(broker.admin(), "/readyz", "*/*").expect("an answer");
    assert_eq!(ready.status, 200);
}

#[test]
fn above_the_limit_partitions_and_offsets_are_counted_and_not_told_one_by_one() {
    let (broker, _) = used(&[("metrics.series.max", "2")]);
    let page = scrape(broker.admin());
    assert_eq!(value(&page, "seawall_partition_log_end_offset"), None);
    assert_eq!(value(&page, "seawall_partition_state"), None);
    assert_tells(&page, "seawall_series_left_out{of=\"partition\"}", 3.0);
    assert_tells(&page, "seawall_series_left_out{of=\"group\"}", 0.0);
    assert_tells(&page, "seawall_partitions{state=\"online\"}", 3.0);
    drop(broker);
    let (broker, _) = used(&[("metrics.series.max", "0")]);
    let page = scrape(broker.admin());
    assert_eq!(value(&page, "seawall_group_lag"), None);
    assert_tells(&page, "seawall_series_left_out{of=\"group\"}", 1.0);
}

#[test]
fn every_metric_of_the_list_is_on_the_page_and_no_other() {
    let (broker, _) = used(&[]);
    let list = tree("packaging/metrics.md");
    let rows = list.lines().filter(|line| line.starts_with("| `"));
    let listed: BTreeSet<(&str, &str)> = rows
        .filter_map(|row| {
            let mut cells = row.split(" | ");
            let name = cells.next()?.trim_start_matches("| ").trim_matches('`');
            Some((name, cells.next()?))
        })
        .collect();
    let page = scrape(broker.admin());
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let told: BTreeSet<(&str, &str)> = types.filter_map(|line| line.split_once(' ')).collect();
    assert!(told.len() > 50);
    assert_eq!(told, listed);
}

#[test]
fn openmetrics_is_told_to_who_asks_for_it() {
    let (broker, _) = used(&[]);
    let answer = get(broker.admin(), "/metrics", "application/openmetrics-text").expect("a page");
    assert!(
        answer
            .content_type
            .starts_with("application/openmetrics-text; version=1.0.0")
    );
    assert!(answer.body.ends_with("# EOF\n"));
    assert!(answer.body.contains("# TYPE seawall_requests counter\n"));
    assert!(
        answer
            .body
            .contains("\nseawall_requests_total{api=\"Produce\"} 2\n")
    );
    let plain = get(broker.admin(), "/metrics", "text/plain").expect("a page");
    assert!(plain.content_type.starts_with("text/plain; version=0.0.4"));
    assert!(!plain.body.contains("# EOF"));
}

#[test]
fn health_counts_partitions_and_names_the_log_dirs() {
    let (broker, _) = used(&[]);
    let answer = get(broker.admin(), "/healthz", "*/*").expect("a page");
    assert_eq!(
        (answer.status, answer.content_type.as_str()),
        (200, "application/json")
    );
    let page: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(page["status"], "ok");
    assert_eq!(page["phase"], "serving");
    assert_eq!(page["partitions"]["online"], 3);
    assert_eq!(page["unwell"], serde_json::json!([]));
    assert_eq!(page["logDirs"][0]["state"], "ok");
    assert_eq!(page["logDirs"][0]["path"], *broker.data().to_string_lossy());
    assert_eq!(page["notReady"], serde_json::Value::Null);
    let nothing = get(broker.admin(), "/nothing", "*/*").expect("a page");
    assert_eq!(nothing.status, 404);
}

#[test]
fn after_a_clean_stop_there_is_nothing_to_scan_and_after_a_crash_there_is() {
    let (mut broker, topic) = used(&[]);
    broker.stop_and_restart();
    let page = scrape(broker.admin());
    assert_tells(&page, "seawall_recovery_partitions", 3.0);
    assert_tells(&page, "seawall_recovery_partitions_opened", 3.0);
    assert_tells(&page, "seawall_recovery_read_bytes_total", 0.0);
    let batch = BatchBuilder::of(&["a", "b"]).build();
    let length = batch.len();
    append(&mut broker.connect(), &topic, 0, batch);
    broker.crash_and_restart();
    let page = scrape(broker.admin());
    assert_tells(&page, "seawall_recovery_partitions_opened", 3.0);
    let read = value(&page, "seawall_recovery_read_bytes_total");
    let least = u32::try_from(length).expect("small");
    assert!(read >= Some(f64::from(least)), "{read:?}");
}
