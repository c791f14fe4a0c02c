//! The protocol before any meaning: versions, names of every length, pipelines, stalls and resets. p01 to p14, without
//! the hostile bytes (`hostile.rs`) and what needs groups.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use seawall_testkit::calls::{self, create_topic};
use seawall_testkit::kafka_wire::*;
use seawall_testkit::ports::free_port;
use seawall_testkit::raw::{decode_response, request_payload};
use seawall_testkit::requests;
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Broker, Raw};

use super::codes;
use crate::{broker, not_for_kafka, setup, times};

const API_VERSIONS: i16 = 18;

/// (key, lowest version, highest version) of everything the broker advertises.
pub(crate) fn advertised(raw: &mut Raw) -> Vec<(i16, i16, i16)> {
    let answer = raw.call::<ApiVersionsRequest>(0, &ApiVersionsRequest::default());
    assert_eq!(answer.error_code, codes::NONE);
    answer
        .api_keys
        .iter()
        .map(|api| (api.api_key, api.min_version, api.max_version))
        .collect()
}

/// Error and (key, min, max) of an ApiVersions answer in version-0 form, read by hand.
fn version_0_form(frame: &Bytes) -> (i16, Vec<(i16, i16, i16)>) {
    let short = |at: usize| i16::from_be_bytes([frame[at], frame[at + 1]]);
    let count = usize::from(frame[9]);
    assert_eq!(&frame[6..9], [0, 0, 0], "an array of less than 256 entries");
    assert_eq!(frame.len(), 10 + 6 * count, "nothing but the array follows");
    let keys = (0..count)
        .map(|index| 10 + 6 * index)
        .map(|at| (short(at), short(at + 2), short(at + 4)))
        .collect();
    (short(4), keys)
}

#[test]
fn p01_api_versions_above_ours_is_answered_in_version_0_form_with_its_own_range() {
    let broker = broker();
    let mut raw = broker.connect();
    let ours = advertised(&mut raw)
        .into_iter()
        .find(|api| api.0 == API_VERSIONS)
        .expect("ApiVersions is advertised");
    for version in [ours.2 + 1, 99, i16::MAX, -1] {
        let correlation = raw.send_body(API_VERSIONS, version, true, b"\x02x\x02y\x00");
        let frame = raw
            .read_frame()
            .unwrap_or_else(|| panic!("closed on ApiVersions v{version}"));
        assert_eq!(frame[..4], correlation.to_be_bytes());
        let (error, keys) = version_0_form(&frame);
        assert_eq!(error, codes::UNSUPPORTED_VERSION, "v{version}");
        assert!(keys.contains(&ours), "v{version}: {keys:?} holds {ours:?}");
        // The client retries on the same connection.
        assert_eq!(
            raw.call::<ApiVersionsRequest>(0, &ApiVersionsRequest::default())
                .error_code,
            codes::NONE
        );
    }
}

/// Sends the default of a request; what the answer says, or `None` for a close.
fn probe<R>(raw: &mut Raw, version: i16) -> Option<String>
where
    R: RequestResponsePair + Default,
    R::Response: Debug,
{
    probe_with(raw, version, &R::default())
}

fn probe_with<R>(raw: &mut Raw, version: i16, request: &R) -> Option<String>
where
    R: RequestResponsePair,
    R::Response: Debug,
{
    let correlation = raw.send(version, request);
    let frame = raw.read_frame()?;
    Some(format!(
        "{:?}",
        decode_response::<R>(version, correlation, frame)
    ))
}

/// What a request of this key without any content gets.
pub(crate) fn probe_key(raw: &mut Raw, key: i16, version: i16) -> Option<String> {
    match key {
        0 => {
            let mut request = ProduceRequest::default();
            request.acks = -1;
            probe_with(raw, version, &request)
        }
        1 => probe::<FetchRequest>(raw, version),
        2 => probe::<ListOffsetsRequest>(raw, version),
        3 => probe::<MetadataRequest>(raw, version),
        8 => probe::<OffsetCommitRequest>(raw, version),
        9 => probe::<OffsetFetchRequest>(raw, version),
        10 => probe::<FindCoordinatorRequest>(raw, version),
        11 => probe::<JoinGroupRequest>(raw, version),
        12 => probe::<HeartbeatRequest>(raw, version),
        13 => probe::<LeaveGroupRequest>(raw, version),
        14 => probe::<SyncGroupRequest>(raw, version),
        15 => probe::<DescribeGroupsRequest>(raw, version),
        16 => probe::<ListGroupsRequest>(raw, version),
        17 => probe::<SaslHandshakeRequest>(raw, version),
        18 => probe::<ApiVersionsRequest>(raw, version),
        19 => probe::<CreateTopicsRequest>(raw, version),
        20 => probe::<DeleteTopicsRequest>(raw, version),
        21 => probe::<DeleteRecordsRequest>(raw, version),
        22 => probe::<InitProducerIdRequest>(raw, version),
        23 => probe::<OffsetForLeaderEpochRequest>(raw, version),
        24 => probe::<AddPartitionsToTxnRequest>(raw, version),
        25 => probe::<AddOffsetsToTxnRequest>(raw, version),
        26 => probe::<EndTxnRequest>(raw, version),
        28 => probe::<TxnOffsetCommitRequest>(raw, version),
        29 => probe::<DescribeAclsRequest>(raw, version),
        30 => probe::<CreateAclsRequest>(raw, version),
        31 => probe::<DeleteAclsRequest>(raw, version),
        32 => probe::<DescribeConfigsRequest>(raw, version),
        33 => probe::<AlterConfigsRequest>(raw, version),
        34 => probe::<AlterReplicaLogDirsRequest>(raw, version),
        35 => probe::<DescribeLogDirsRequest>(raw, version),
        36 => probe::<SaslAuthenticateRequest>(raw, version),
        37 => probe::<CreatePartitionsRequest>(raw, version),
        42 => probe::<DeleteGroupsRequest>(raw, version),
        43 => probe::<ElectLeadersRequest>(raw, version),
        44 => probe::<IncrementalAlterConfigsRequest>(raw, version),
        45 => probe::<AlterPartitionReassignmentsRequest>(raw, version),
        46 => probe::<ListPartitionReassignmentsRequest>(raw, version),
        47 => probe::<OffsetDeleteRequest>(raw, version),
        48 => probe::<DescribeClientQuotasRequest>(raw, version),
        49 => probe::<AlterClientQuotasRequest>(raw, version),
        50 => probe::<DescribeUserScramCredentialsRequest>(raw, version),
        51 => probe::<AlterUserScramCredentialsRequest>(raw, version),
        55 => probe::<DescribeQuorumRequest>(raw, version),
        57 => probe::<UpdateFeaturesRequest>(raw, version),
        60 => probe::<DescribeClusterRequest>(raw, version),
        61 => probe::<DescribeProducersRequest>(raw, version),
        65 => probe::<DescribeTransactionsRequest>(raw, version),
        66 => probe::<ListTransactionsRequest>(raw, version),
        68 => probe::<ConsumerGroupHeartbeatRequest>(raw, version),
        69 => probe::<ConsumerGroupDescribeRequest>(raw, version),
        74 => probe::<ListConfigResourcesRequest>(raw, version),
        75 => probe::<DescribeTopicPartitionsRequest>(raw, version),
        _ => panic!("key {key} is advertised, and this test does not know it"),
    }
}

const KNOWN: [i16; 48] = [
    17, 36, 50, 51, 0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25,
    26, 28, 32, 33, 34, 35, 37, 42, 43, 44, 45, 46, 47, 55, 57, 60, 61, 65, 66, 68, 69, 74, 75,
];

#[test]
fn p02_every_advertised_version_of_every_api_is_served() {
    let broker = broker();
    let mut raw = broker.connect();
    for (key, min, max) in advertised(&mut raw) {
        if broker.is_kafka() && !KNOWN.contains(&key) {
            continue;
        }
        // Produce is advertised from 0 for old librdkafka's sake, and served from 3.
        for version in if key == 0 { 3 } else { min }..=max {
            let answer = probe_key(&mut broker.connect(), key, version);
            let answer = answer.unwrap_or_else(|| panic!("closed on key {key} v{version}"));
            assert!(
                !answer.contains("error_code: 35"),
                "key {key} v{version}: {answer}"
            );
        }
    }
}

#[test]
fn p02_what_kafka_4_clients_use_is_advertised_and_no_telemetry() {
    let broker = broker();
    let keys = advertised(&mut broker.connect());
    // The highest versions of the Java client 4.4.0, without the unstable ones.
    let needed = [
        (0, 0, 13),
        (1, 4, 18),
        (2, 1, 10),
        (3, 0, 13),
        (18, 0, 4),
        (19, 2, 7),
        (20, 1, 6),
        (22, 0, 5),
        (23, 2, 4),
        (32, 1, 4),
        (60, 0, 2),
        (75, 0, 0),
    ];
    for (key, min, max) in needed {
        let (_, from, to) = keys
            .iter()
            .find(|api| api.0 == key)
            .unwrap_or_else(|| panic!("key {key} is missing"));
        assert!(
            *from <= min && *to >= max,
            "key {key}: advertised {from}..{to}, needed {min}..{max}"
        );
    }
    assert!(
        !keys.iter().any(|api| api.0 == 71 || api.0 == 72),
        "telemetry is not advertised"
    );
}

#[test]
fn p03_metadata_v9_without_asking_for_versions_first_is_served() {
    let broker = broker();
    let mut raw = broker.connect();
    let answer = raw.call::<MetadataRequest>(9, &requests::metadata(9, &[]));
    assert_eq!(answer.brokers.len(), 1);
    assert_eq!(answer.brokers[0].port, i32::from(broker.addr().port()));
}

#[test]
fn p04_a_thousand_connections_probe_at_once_and_none_is_closed() {
    let broker = broker();
    let mut all: Vec<Raw> = (0..1_000).map(|_| broker.connect()).collect();
    let metadata = requests::metadata(1, &[]);
    let sent: Vec<(i32, i32)> = all
        .iter_mut()
        .map(|raw| {
            (
                raw.send(0, &ApiVersionsRequest::default()),
                raw.send(1, &metadata),
            )
        })
        .collect();
    for (raw, (versions, metadata)) in all.iter_mut().zip(sent) {
        assert_eq!(
            raw.receive::<ApiVersionsRequest>(0, versions).error_code,
            codes::NONE
        );
        assert_eq!(raw.receive::<MetadataRequest>(1, metadata).brokers.len(), 1);
    }
}

#[test]
fn p05_the_lowest_advertised_versions_of_the_admin_apis_do_their_work() {
    let broker = broker();
    let mut raw = broker.connect();
    let lowest: Vec<(i16, i16)> = advertised(&mut raw)
        .into_iter()
        .map(|(key, min, _)| (key, min))
        .collect();
    let lowest = |key: i16| {
        lowest
            .iter()
            .find(|api| api.0 == key)
            .expect("advertised")
            .1
    };
    let name = broker.fresh("p05");
    let create = requests::create_topics(vec![requests::topic(&name, 2, &[])]);
    let created = raw.call::<CreateTopicsRequest>(lowest(19), &create);
    assert_eq!(created.topics[0].error_code, codes::NONE);
    calls::until_usable(&mut raw, &name, 2);
    let offsets = calls::list_offset_at(&mut raw, lowest(2), &name, 1, -1);
    assert_eq!((offsets.error_code, offsets.offset), (codes::NONE, 0));
    let described =
        raw.call::<DescribeConfigsRequest>(lowest(32), &super::topics::describe(2, &name, None));
    assert_eq!(described.results[0].error_code, codes::NONE);
    assert!(
        described.results[0]
            .configs
            .iter()
            .any(|config| config.name.as_str() == "retention.ms")
    );
    let delete = requests::delete_topics(lowest(20), &[&name]);
    let deleted = raw.call::<DeleteTopicsRequest>(lowest(20), &delete);
    assert_eq!(deleted.responses[0].error_code, codes::NONE);
}

#[test]
fn p07_metadata_with_topic_names_of_every_length_decodes_byte_exact() {
    // A broker of its own, since names of one letter are.
    let broker = setup().set("num.partitions", "1").start();
    let mut raw = broker.connect();
    let names: Vec<String> = (1..=249).map(|length| "n".repeat(length)).collect();
    let topics = names
        .iter()
        .map(|name| requests::topic(name, 1, &[]))
        .collect();
    let created = raw.call::<CreateTopicsRequest>(7, &requests::create_topics(topics));
    assert!(
        created
            .topics
            .iter()
            .all(|topic| topic.error_code == codes::NONE)
    );
    for version in 0..=13 {
        for name in &names {
            let answer =
                raw.call::<MetadataRequest>(version, &requests::metadata(version, &[name]));
            let got = answer.topics[0].name.as_ref().map(|name| name.as_str());
            assert_eq!(
                (answer.topics[0].error_code, got),
                (codes::NONE, Some(name.as_str())),
                "v{version}"
            );
        }
    }
    let all = raw.call::<MetadataRequest>(12, &all_topics());
    assert_eq!(all.topics.len(), 249);
}

fn all_topics() -> MetadataRequest {
    let mut request = MetadataRequest::default();
    request.topics = None;
    request
}

#[test]
fn p08_http_and_tls_on_the_port_are_closed_and_named_in_the_log() {
    let broker = broker();
    let tls_hello = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
        &[7; 506],
    ]
    .concat();
    let strangers: [(&str, &[u8]); 4] = [
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("HTTP", b"POST /topics HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("TLS", &tls_hello),
        ("TLS", &tls_hello[..5]),
    ];
    for (what, hello) in strangers {
        let mut raw = broker.connect();
        let from = raw
            .stream()
            .local_addr()
            .expect("an address")
            .ip()
            .to_string();
        raw.send_bytes(hello);
        raw.expect_closed(what);
        if !broker.is_kafka() {
            wait::until(&format!("the log names {what} and {from}"), SOON, || {
                broker
                    .log()
                    .lines()
                    .any(|line| line.contains(what) && line.contains(&from))
            });
        }
    }
}

#[test]
fn p08_a_thousand_strangers_do_not_fill_the_log() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    for _ in 0..1_000 {
        let mut raw = broker.connect();
        raw.send_bytes(b"GET / HTTP/1.1\r\n\r\n");
        raw.expect_closed("HTTP");
    }
    let lines = broker
        .log()
        .lines()
        .filter(|line| line.contains("HTTP"))
        .count();
    assert!(
        (1..100).contains(&lines),
        "{lines} log lines about 1,000 strangers"
    );
}

#[test]
fn p11_a_frame_that_arrives_byte_by_byte_is_served() {
    let broker = broker();
    let mut raw = broker.connect();
    let payload = request_payload((API_VERSIONS, 0), 77, false, b"");
    let mut frame = BytesMut::new();
    frame.put_i32(i32::try_from(payload.len()).expect("small"));
    frame.extend_from_slice(&payload);
    for byte in &frame {
        assert!(raw.send_bytes(&[*byte]));
        // Another connection's round trip keeps the bytes apart.
        advertised(&mut broker.connect());
    }
    let answer = raw.read_frame().expect("an answer");
    assert_eq!(answer[..4], 77_i32.to_be_bytes());
}

#[test]
fn p11_a_connection_that_idles_beyond_the_deadline_is_closed() {
    let broker = setup().set("connections.max.idle.ms", "1000").start();
    let mut idle = broker.connect();
    advertised(&mut idle);
    idle.expect_closed("an idle connection");
}

/// The deadline of a started frame is two minutes, so this is for the full length.
#[test]
fn p11_a_frame_that_stalls_beyond_the_deadline_is_closed() {
    if times(0, 1) == 0 {
        return;
    }
    let broker = broker();
    let mut raw = broker.connect();
    raw.patience(Duration::from_secs(150));
    raw.send_bytes(&[0, 0, 0, 100, 0, 18, 0, 0]);
    raw.expect_closed("half a frame and then nothing");
}

#[test]
fn p12_the_same_broker_on_ipv6_and_under_an_advertised_name() {
    let (six, four) = (free_port(), free_port());
    let advertised = format!("SIX://[::1]:{six},FOUR://broker.example:{four}");
    let broker = setup()
        .set(
            "listeners",
            &format!("SIX://[::1]:{six},FOUR://0.0.0.0:{four}"),
        )
        .set("advertised.listeners", &advertised)
        .set(
            "listener.security.protocol.map",
            "SIX:PLAINTEXT,FOUR:PLAINTEXT",
        )
        .set("inter.broker.listener.name", "FOUR")
        .listening(SocketAddr::from(([127, 0, 0, 1], four)))
        .start();
    let metadata = requests::metadata(9, &[]);
    let by_six = Raw::connect(format!("[::1]:{six}").parse().expect("an address"))
        .call::<MetadataRequest>(9, &metadata);
    let by_four = broker.connect().call::<MetadataRequest>(9, &metadata);
    assert_eq!(by_six.brokers[0].node_id, by_four.brokers[0].node_id);
    let at = |answer: &seawall_testkit::kafka_wire::MetadataResponse| {
        (
            answer.brokers[0].host.as_str().to_owned(),
            answer.brokers[0].port,
        )
    };
    assert_eq!(at(&by_six), ("::1".to_owned(), i32::from(six)));
    assert_eq!(at(&by_four), ("broker.example".to_owned(), i32::from(four)));
}

#[test]
fn p13_a_client_that_does_not_read_is_not_read_from_and_gets_its_answers_in_order() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("p13"), 500, &[]);
    let count = i32::try_from(times(4_000, 10_000)).expect("few");
    let mut writer = raw.second_handle();
    writer.patience(Duration::from_secs(120));
    let request = requests::metadata(12, &[&topic.name]);
    let sender = std::thread::spawn(move || {
        (0..count)
            .map(|_| writer.send(12, &request))
            .collect::<Vec<i32>>()
    });
    if !broker.is_kafka() {
        assert_reading_stops(&broker);
    }
    let first = raw.next_correlation();
    for expected in first..first + count {
        let answer = raw.receive::<MetadataRequest>(12, expected);
        assert_eq!(answer.topics[0].partitions.len(), 500);
    }
    assert_eq!(
        sender.join().expect("the sender").last(),
        Some(&(first + count - 1))
    );
}

/// 10,000 answers of 20 KB would be 200 MB; the broker holds a fraction of that and no longer grows.
fn assert_reading_stops(broker: &Broker) {
    let mut last = 0;
    let mut still = 0;
    wait::until("memory no longer grows", SOON, || {
        let now = broker.proc_status("VmRSS");
        still = if now == last { still + 1 } else { 0 };
        last = now;
        still > 50
    });
    assert!(
        last < 100 * 1024,
        "{last} KiB resident while a client reads nothing"
    );
}

#[test]
fn p14_a_reset_in_the_middle_of_a_produce_leaves_the_batch_wholly_there_or_absent() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("p14"), 1, &[]);
    let batch = BatchBuilder::sized(50_000).build();
    let request = requests::produce(calls::PRODUCE, &topic, -1, vec![(0, Some(batch.clone()))]);
    let frame = seawall_testkit::raw::encode_frame(calls::PRODUCE, 1, &request);
    let rounds = times(200, 5_000);
    for round in 0..rounds {
        let cut = frame.len() * round / rounds;
        let mut doomed = broker.connect();
        doomed.send_bytes(&frame[..cut]);
        doomed.reset();
    }
    for _ in 0..rounds {
        let mut doomed = broker.connect();
        doomed.send_bytes(&frame);
        doomed.reset();
    }
    calls::append(&mut raw, &topic, 0, batch.clone());
    let stored = calls::read_from(&mut raw, &topic, 0, 0);
    assert!(stored.iter().all(|kept| kept.bytes.len() == batch.len()));
    if !broker.is_kafka() {
        let open = || {
            std::fs::read_dir(format!("/proc/{}/fd", broker.pid()))
                .expect("descriptors")
                .count()
        };
        wait::until("all descriptors are closed", SOON, || open() < 100);
    }
}

#[test]
fn pipelined_requests_of_any_kind_are_answered_in_order() {
    let broker = broker();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, &broker.fresh("pipeline"), 1, &[]);
    for round in 0..50 {
        let records = vec![(0, Some(BatchBuilder::of(&["x"]).build()))];
        let produce = raw.send(
            calls::PRODUCE,
            &requests::produce(calls::PRODUCE, &topic, -1, records),
        );
        let latest = raw.send(
            calls::LIST_OFFSETS,
            &requests::list_offsets(&topic.name, 0, -1),
        );
        let versions = raw.send(0, &ApiVersionsRequest::default());
        let produced = raw.receive::<ProduceRequest>(calls::PRODUCE, produce);
        assert_eq!(
            produced.responses[0].partition_responses[0].base_offset,
            round
        );
        // Executed after the Produce before it, on this connection.
        let end = raw.receive::<ListOffsetsRequest>(calls::LIST_OFFSETS, latest);
        assert_eq!(end.topics[0].partitions[0].offset, round + 1);
        raw.receive::<ApiVersionsRequest>(0, versions);
    }
}
