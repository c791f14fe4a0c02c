//! Peers that cost much and bring nothing: memory stays bounded, others are served, and each refusal has a reason.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::kafka_wire::{
    FindCoordinatorRequest, JoinGroupRequest, MetadataRequest, ProduceRequest, join_group_request,
    produce_request,
};
use seawall_testkit::requests::{self, FetchFrom, FetchLimits, TopicRef};
use seawall_testkit::{BatchBuilder, Broker, Bytes, Raw, metrics, wait};

use super::codes;
use crate::{broker, not_for_kafka, setup};

/// Connections that drip.
const DRIPPING: usize = 10_000;
const MIB_IN_KIB: u64 = 1024;
/// As many connections come from one address of loopback.
const PER_ADDRESS: usize = 2_000;

fn is_served(broker: &Broker) {
    let mut other = broker.connect();
    let answer = other.call::<MetadataRequest>(9, &requests::metadata(9, &[]));
    assert_eq!(answer.brokers.len(), 1);
}

pub(crate) fn closed(broker: &Broker, reason: &str) -> f64 {
    let page = metrics::scrape(broker.admin());
    let name = format!("seawall_connections_closed_total{{reason=\"{reason}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&name));
    line.expect("the counter").parse().expect("a number")
}

#[test]
fn ten_thousand_connections_that_drip_cost_less_than_200_mib_and_nobody_notices() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    is_served(&broker);
    let before = broker.proc_status("VmRSS");
    let mut dripping: Vec<Raw> = (0..DRIPPING)
        .map(|number| {
            let last = u8::try_from(10 + number / PER_ADDRESS).expect("few addresses");
            let host = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
            Raw::connect_from(host, broker.addr())
        })
        .collect();
    // A frame of half a megabyte, byte by byte: between two bytes of each, others are served.
    for byte in [0, 7, 0, 0, 0, 3] {
        for one in &mut dripping {
            assert!(one.send_bytes(&[byte]));
        }
        is_served(&broker);
    }
    wait::until("all are open", wait::SOON, || {
        let page = metrics::scrape(broker.admin());
        let open = metrics::value(&page, "seawall_connections");
        open.is_some_and(|open| open >= 10_000.0)
    });
    let grown = broker.proc_status("VmRSS").saturating_sub(before);
    println!("{DRIPPING} dripping connections: {grown} KiB");
    assert!(grown < 200 * MIB_IN_KIB, "{grown} KiB");
    is_served(&broker);
}

#[test]
fn a_produce_of_a_hundred_thousand_partitions_is_answered_row_by_row() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    let mut raw = broker.connect();
    raw.patience(Duration::from_secs(60));
    let topic = create_topic(&mut raw, "wide", 1, &[]);
    let before = broker.proc_status("VmRSS");
    let batch = BatchBuilder::of(&["x"]).build();
    let parts = (0..100_000).map(|index| (index, Some(batch.clone())));
    let request = requests::produce(calls::PRODUCE, &topic, -1, parts.collect());
    let answer = raw.call::<ProduceRequest>(calls::PRODUCE, &request);
    let rows = &answer.responses[0].partition_responses;
    assert_eq!(rows.len(), 100_000);
    assert_eq!(rows[0].error_code, codes::NONE);
    let unknown = codes::UNKNOWN_TOPIC_OR_PARTITION;
    assert!(rows[1..].iter().all(|row| row.error_code == unknown));
    let grown = broker.proc_status("VmRSS").saturating_sub(before);
    println!("100,000 partitions: {grown} KiB");
    assert!(grown < 200 * MIB_IN_KIB, "{grown} KiB");
    // More entries than any broker leads are refused before they are multiplied.
    let mut huge = ProduceRequest::default();
    huge.acks = -1;
    let mut data = produce_request::TopicProduceData::default();
    data.name = "wide".into();
    data.partition_data = vec![Default::default(); 200_001];
    huge.topic_data = vec![data];
    raw.send::<ProduceRequest>(calls::PRODUCE, &huge);
    raw.expect_closed("200,001 partitions");
    is_served(&broker);
    // It is counted when it is gone: a peer that was answered may read on for a second.
    wait::until("the refusal is counted", wait::SOON, || {
        closed(&broker, "refused_request") >= 1.0
    });
}

/// An OffsetFetch v8 of groups with fifty topics each, none of which has a name or partitions: three bytes a topic.
fn groups_of_nothing(groups: u32) -> Vec<u8> {
    let mut body = Vec::new();
    let mut rest = groups + 1;
    while rest >= 0x80 {
        body.push(u8::try_from(rest & 0x7f).expect("seven bits") | 0x80);
        rest >>= 7;
    }
    body.push(u8::try_from(rest).expect("seven bits"));
    for _ in 0..groups {
        body.extend_from_slice(&[1, 51]);
        body.extend_from_slice(&[1, 1, 0].repeat(50));
        body.push(0);
    }
    body.extend_from_slice(&[0, 0]);
    body
}

#[test]
fn arrays_in_arrays_of_nothing_are_bounded() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    is_served(&broker);
    let before = broker.proc_status("VmHWM");
    // As much as is read, and much more than that.
    for groups in [13_000, 99_000] {
        let body = groups_of_nothing(groups);
        let mut raw = broker.connect();
        raw.patience(Duration::from_secs(120));
        raw.send_body(9, 8, true, &body);
        raw.finish_sending();
        while raw.read_frame().is_some() {}
        let grown = broker.proc_status("VmHWM").saturating_sub(before);
        println!("arrays in arrays, {} bytes: {grown} KiB", body.len());
        assert!(grown < 250 * MIB_IN_KIB, "{grown} KiB");
    }
    is_served(&broker);
    wait::until("the refusal is counted", wait::SOON, || {
        closed(&broker, "refused_request") >= 1.0
    });
}

#[test]
fn a_storm_of_metadata_from_readers_who_do_not_read_is_bounded() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    let mut admin = broker.connect();
    create_topic(&mut admin, "many", 1_000, &[]);
    is_served(&broker);
    let before = broker.proc_status("VmRSS");
    let mut storm: Vec<Raw> = (0..20).map(|_| broker.connect()).collect();
    let request = requests::metadata(9, &["many"]);
    // 20 times 500 times 30 KB would be 300 MB of answers.
    let mut sent = Vec::new();
    for raw in &mut storm {
        let first = raw.send::<MetadataRequest>(9, &request);
        for _ in 1..500 {
            raw.send::<MetadataRequest>(9, &request);
        }
        sent.push(first);
    }
    is_served(&broker);
    let grown = broker.proc_status("VmRSS").saturating_sub(before);
    println!("a storm of metadata: {grown} KiB");
    assert!(grown < 160 * MIB_IN_KIB, "{grown} KiB");
    for (raw, first) in storm.iter_mut().zip(sent) {
        let answer = raw.receive::<MetadataRequest>(9, first);
        assert_eq!(answer.topics[0].partitions.len(), 1_000);
    }
}

#[test]
fn slow_readers_of_a_gigabyte_hold_one_answer_each() {
    let broker = setup().set("fetch.max.bytes", "16777216").start();
    if not_for_kafka(&broker) {
        return;
    }
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "large", 1, &[]);
    let value = "x".repeat(900_000);
    let batch: Bytes = BatchBuilder::of(&[value.as_str()]).build();
    for _ in 0..40 {
        calls::append(&mut raw, &topic, 0, batch.clone());
    }
    let before = broker.proc_status("VmRSS");
    let limits = FetchLimits {
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: 1 << 30,
    };
    let from = FetchFrom {
        max_bytes: 1 << 30,
        ..FetchFrom::new(0, 0)
    };
    let request = requests::fetch(calls::FETCH, &topic, limits, &[from]);
    let mut slow: Vec<Raw> = (0..5).map(|_| broker.connect()).collect();
    type Fetch = seawall_testkit::kafka_wire::FetchRequest;
    let mut sent = Vec::new();
    for raw in &mut slow {
        let first = raw.send::<Fetch>(calls::FETCH, &request);
        for _ in 0..50 {
            raw.send::<Fetch>(calls::FETCH, &request);
        }
        sent.push(first);
    }
    is_served(&broker);
    assert_eq!(calls::end_offset(&mut raw, &topic, 0), 40);
    let grown = broker.proc_status("VmRSS").saturating_sub(before);
    println!("five slow readers: {grown} KiB");
    assert!(grown < 5 * 2 * 16 * MIB_IN_KIB, "{grown} KiB");
    for (raw, first) in slow.iter_mut().zip(sent) {
        let answer = raw.receive::<Fetch>(calls::FETCH, first);
        let data = &answer.responses[0].partitions[0];
        assert!(!calls::whole_batches(data).is_empty());
    }
}

#[test]
fn each_kind_of_refusal_is_counted_by_its_reason() {
    let broker = setup().set("connections.max.idle.ms", "900").start();
    if not_for_kafka(&broker) {
        return;
    }
    for (bytes, reason) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "http"),
        (
            &[0x16, 3, 1, 0, 0xff, 1, 0, 0, 1, 3, 3, 0][..],
            "tls_on_plaintext",
        ),
        (&[0x7f, 0xff, 0xff, 0xff][..], "frame_too_long"),
        (&[0x80, 0, 0, 0][..], "frame_too_short"),
        (&[0, 0, 0, 2][..], "frame_too_short"),
        (
            &[0, 0, 0, 10, 0, 3, 0, 9, 0, 0, 0, 1, 0x7f, 0xff][..],
            "bad_header",
        ),
        (
            &[0, 0, 0, 10, 0x7f, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff][..],
            "refused_request",
        ),
        (&[0, 0, 0, 10, 0, 3][..], "frame_deadline"),
        (&[][..], "idle"),
    ] {
        let before = closed(&broker, reason);
        let mut raw = broker.connect();
        raw.send_bytes(bytes);
        raw.expect_closed(reason);
        wait::until(reason, wait::SOON, || closed(&broker, reason) > before);
    }
}

#[test]
fn names_of_strangers_become_no_path_no_log_line_and_no_label() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    let names = [
        "../../evil",
        "/etc/evil",
        "evil\nERROR forged",
        "evil\"} 1\nforged_total 1",
        ".",
        "..",
        "con\0evil",
        "\u{202e}evil",
    ];
    for name in names {
        let mut raw = broker.connect().as_client(name);
        let answer = raw.call::<MetadataRequest>(9, &{
            let mut request = requests::metadata(9, &[name]);
            request.allow_auto_topic_creation = true;
            request
        });
        assert_eq!(
            answer.topics[0].error_code,
            codes::INVALID_TOPIC,
            "{name:?}"
        );
        join(&mut raw, name);
        super::access_walk::open_transaction(&mut raw, name);
        let mut find = FindCoordinatorRequest::default();
        find.coordinator_keys = vec![name.into()];
        raw.call::<FindCoordinatorRequest>(6, &find);
        let topic = TopicRef {
            name: name.to_owned(),
            id: Default::default(),
        };
        let batch = BatchBuilder::of(&["x"]).build();
        let answer = calls::produce(&mut raw, &topic, 0, -1, batch);
        assert_ne!(answer.error_code, codes::NONE, "{name:?}");
    }
    let page = metrics::scrape(broker.admin());
    assert!(!page.contains("evil") && !page.contains("forged"), "{page}");
    let log = broker.log();
    assert!(
        !log.lines().any(|line| line.starts_with("ERROR forged")),
        "{log}"
    );
    assert!(!log.contains('\u{202e}') && !log.contains('\0'), "{log}");
    let mut found = Vec::new();
    files_below(broker.data(), &mut found);
    let outside = broker.data().join("../../evil");
    assert!(!outside.exists() && !std::path::Path::new("/etc/evil").exists());
    assert!(found.len() > 3, "{found:?}");
    for path in &found {
        let name = path.file_name().expect("a name").to_string_lossy();
        let sound = name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-~%=+@".contains(c));
        assert!(sound, "a file of a stranger's name: {path:?}");
    }
}

fn join(raw: &mut Raw, group: &str) {
    let mut protocol = join_group_request::JoinGroupRequestProtocol::default();
    protocol.name = group.into();
    let mut join = JoinGroupRequest::default();
    join.group_id = group.into();
    join.session_timeout_ms = 10_000;
    join.rebalance_timeout_ms = 10_000;
    join.protocol_type = "consumer".into();
    join.protocols = vec![protocol];
    // It is asked to come again with its id; the group's name has been everywhere by then.
    raw.call::<JoinGroupRequest>(4, &join);
    super::access_walk::commit(raw, group);
}

fn files_below(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files_below(&path, found);
        }
        found.push(path);
    }
}
