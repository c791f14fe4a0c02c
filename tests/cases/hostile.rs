//! Bytes that no client sends: p09, p10, and the section "Bytes" of what Kafka answers.

use bytes::{BufMut, Bytes, BytesMut};
use seawall_testkit::BatchBuilder;
use seawall_testkit::calls::create_topic;
use seawall_testkit::kafka_wire::{
    ApiVersionsRequest, DescribeClusterRequest, DescribeTopicPartitionsRequest, KafkaRequest,
    MetadataRequest,
};
use seawall_testkit::kafka_wire_core::ApiVersion;
use seawall_testkit::raw::{is_flexible, request_payload};
use seawall_testkit::requests::{self, AT_ONCE, FetchFrom, TopicRef};

use super::codes;
use super::protocol::advertised;
use crate::{broker, not_for_kafka, times};

/// What the broker may grow by under a storm of hostile frames, in KiB: allocators keep some.
const GROWTH_KIB_MAX: u64 = 64 * 1024;

/// Numbers that lie, as they stand in a 32-bit length, a 16-bit length, a compact length and a varint.
const LIES: [&[u8]; 7] = [
    &[0x7f, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xfe],
    &[0x80, 0x00, 0x00, 0x00],
    &[0x7f, 0xff],
    &[0xff, 0xfe],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
];

/// (key, version, whether it is flexible, body).
type RequestBody = (i16, i16, bool, Bytes);

/// A request of every kind with something in every array, so that there are lengths to lie about.
fn bodies(version_of: impl Fn(i16) -> Vec<i16>, topic: &TopicRef) -> Vec<RequestBody> {
    let mut all = Vec::new();
    for key in [0, 1, 2, 3, 18, 19, 20, 22, 23, 32, 33, 37, 44, 60, 75] {
        for version in version_of(key) {
            all.push(body(key, version, topic));
        }
    }
    all
}

fn body(key: i16, version: i16, topic: &TopicRef) -> RequestBody {
    let name = topic.name.as_str();
    match key {
        0 => {
            let records = Some(BatchBuilder::of(&["x"]).build());
            encoded(
                version,
                &requests::produce(version, topic, -1, vec![(0, records)]),
            )
        }
        1 => encoded(
            version,
            &requests::fetch(version, topic, AT_ONCE, &[FetchFrom::new(0, 0)]),
        ),
        2 => encoded(version, &requests::list_offsets(name, 0, -1)),
        3 => encoded(version, &requests::metadata(version, &[name])),
        18 => encoded(version, &ApiVersionsRequest::default()),
        19 => {
            let topic = requests::topic(name, 1, &[("retention.ms", "1")]);
            let mut request = requests::create_topics(vec![topic]);
            request.validate_only = true;
            encoded(version, &request)
        }
        20 => encoded(
            version,
            &requests::delete_topics(version, &["no-such-topic"]),
        ),
        22 => encoded(version, &requests::init_producer_id()),
        23 => encoded(version, &requests::offset_for_leader_epoch(name, 0, 0)),
        32 => encoded(
            version,
            &super::topics::describe(2, name, Some(&["a", "b"])),
        ),
        33 => encoded(
            version,
            &requests::alter_configs(name, &[("retention.ms", "1")]),
        ),
        37 => {
            // Many partitions are an honest wish and cost what they cost.
            let mut request = requests::create_partitions(name, 2);
            request.validate_only = true;
            encoded(version, &request)
        }
        44 => encoded(
            version,
            &requests::incremental_alter(name, &[("retention.ms", 0, Some("1"))]),
        ),
        60 => encoded(version, &DescribeClusterRequest::default()),
        75 => encoded(version, &DescribeTopicPartitionsRequest::default()),
        _ => panic!("no body for key {key}"),
    }
}

fn encoded<R: KafkaRequest>(version: i16, request: &R) -> RequestBody {
    let body = request
        .encode_to_bytes(ApiVersion::new(version))
        .expect("a body");
    (R::API_KEY.value(), version, is_flexible::<R>(version), body)
}

/// The same bytes with a lie written over them.
fn with_lie(body: &[u8], at: usize, lie: &[u8]) -> BytesMut {
    let mut lying = BytesMut::from(body);
    let end = body.len().min(at + lie.len());
    lying[at..end].copy_from_slice(&lie[..end - at]);
    lying
}

#[test]
fn p09_lengths_that_lie_in_every_request_cost_no_memory() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "p09", 1, &[]);
    let keys = advertised(&mut raw);
    let versions = |key: i16| {
        let (_, min, max) = *keys.iter().find(|api| api.0 == key).expect("advertised");
        let all: Vec<i16> = (if key == 0 { 3 } else { min }..=max).collect();
        // Every version at full length; the oldest and the newest every day.
        if times(0, 1) == 1 {
            all
        } else {
            vec![all[0], all[all.len() - 1]]
        }
    };
    let before = broker.proc_status("VmHWM");
    let mut sent = 0;
    for (key, version, flexible, body) in bodies(versions, &topic) {
        for lie in LIES {
            for at in 0..body.len() {
                let mut raw = broker.connect();
                raw.send_body(key, version, flexible, &with_lie(&body, at, lie));
                raw.finish_sending();
                // Answered or not, it must be read to its end before this side is gone.
                while raw.read_frame().is_some() {}
                sent += 1;
            }
        }
        advertised(&mut broker.connect());
    }
    let growth = broker.proc_status("VmHWM") - before;
    assert!(
        growth < GROWTH_KIB_MAX,
        "{growth} KiB more after {sent} lying requests"
    );
}

/// What it is, key, version, whether it is flexible, body.
const BEYOND_THE_FRAME: [(&str, i16, i16, bool, &[u8]); 12] = [
    (
        "Metadata v1, 2^31-1 topics",
        3,
        1,
        false,
        b"\x7f\xff\xff\xff",
    ),
    (
        "Metadata v1, a name of length -2",
        3,
        1,
        false,
        b"\0\0\0\x01\xff\xfe",
    ),
    (
        "Metadata v1, a name longer than the frame",
        3,
        1,
        false,
        b"\0\0\0\x01\x7f\xff",
    ),
    (
        "Metadata v9, 2^32-1 topics",
        3,
        9,
        true,
        b"\xff\xff\xff\xff\x0f",
    ),
    (
        "Metadata v9, an overlong varint",
        3,
        9,
        true,
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ),
    (
        "Metadata v9, a compact name of 2^32-2",
        3,
        9,
        true,
        b"\x02\xff\xff\xff\xff\x0f",
    ),
    (
        "CreateTopics v2, 2^31-1 topics",
        19,
        2,
        false,
        b"\x7f\xff\xff\xff\0\0\0\x01\0",
    ),
    (
        "CreateTopics v7, 2^31 topics",
        19,
        7,
        true,
        b"\xff\xff\xff\xff\x07\0\0\0\x01\0\0",
    ),
    (
        "ListOffsets v1, 2^31-1 topics",
        2,
        1,
        false,
        b"\xff\xff\xff\xff\x7f\xff\xff\xff",
    ),
    (
        "Produce v3, 2^31-1 topics",
        0,
        3,
        false,
        b"\xff\xff\xff\xff\0\0\0\x01\x7f\xff\xff\xff",
    ),
    ("Metadata v9, cut in the middle", 3, 9, true, b"\x02\x05"),
    ("Metadata v1, no body", 3, 1, false, b""),
];

#[test]
fn p09_counts_and_lengths_beyond_the_frame_close_the_connection() {
    let broker = broker();
    for (what, key, version, flexible, body) in BEYOND_THE_FRAME {
        let mut raw = broker.connect();
        raw.send_body(key, version, flexible, body);
        raw.expect_closed(what);
    }
    advertised(&mut broker.connect());
}

#[test]
fn p09_frame_lengths_that_lie_close_the_connection() {
    let broker = broker();
    for length in [-1, i32::MIN, i32::MAX, 0, 3] {
        let mut raw = broker.connect();
        raw.send_bytes(&length.to_be_bytes());
        raw.send_bytes(&[0; 16]);
        raw.expect_closed(&format!("a frame of length {length}"));
    }
}

#[test]
fn p10_frames_of_random_bytes_end_in_a_close_and_cost_nothing() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let before = broker.proc_status("VmHWM");
    for _ in 0..times(4_000, 100_000) {
        let mut raw = broker.connect();
        let length = 1 + random.below(300);
        let frame: Vec<u8> = (0..length).map(|_| random.byte()).collect();
        raw.send_frame(&frame);
        raw.finish_sending();
        // A frame that happens to be a request is answered first.
        while raw.read_frame().is_some() {}
    }
    let growth = broker.proc_status("VmHWM") - before;
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB more");
    advertised(&mut broker.connect());
}

#[test]
fn p10_random_bodies_below_a_valid_header_cost_nothing() {
    let broker = broker();
    if not_for_kafka(&broker) {
        return;
    }
    let keys = advertised(&mut broker.connect());
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let before = broker.proc_status("VmHWM");
    for round in 0..times(4_000, 100_000) {
        let (key, min, max) = keys[round % keys.len()];
        let version = if round % 2 == 0 { min } else { max };
        let body: Vec<u8> = (0..random.below(200)).map(|_| random.byte()).collect();
        let mut raw = broker.connect();
        raw.send_body(key, version, round % 4 < 2, &body);
        raw.finish_sending();
        while raw.read_frame().is_some() {}
    }
    advertised(&mut broker.connect());
    let growth = broker.proc_status("VmHWM") - before;
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB more");
}

/// xorshift64*: the same bytes in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[test]
fn unknown_keys_and_versions_are_closed() {
    let broker = broker();
    for (key, version) in [
        (999, 0),
        (-1, 0),
        (i16::MAX, i16::MAX),
        (3, 99),
        (3, -1),
        (1, 3),
        (0, 14),
        (1, 99),
    ] {
        let mut raw = broker.connect();
        raw.send_body(key, version, false, &[0; 16]);
        raw.expect_closed(&format!("key {key} v{version}"));
    }
}

#[test]
fn bytes_after_a_request_are_accepted() {
    let broker = broker();
    let mut raw = broker.connect();
    for (key, version, flexible, body) in [(3, 1, false, vec![0, 0, 0, 0]), (18, 0, false, vec![])]
    {
        let body = [body.as_slice(), b"and more"].concat();
        let correlation = raw.send_body(key, version, flexible, &body);
        let answer = raw
            .read_frame()
            .unwrap_or_else(|| panic!("closed on key {key} with trailing bytes"));
        assert_eq!(answer[..4], correlation.to_be_bytes());
    }
}

#[test]
fn client_ids_that_are_not_utf_8_null_or_long_are_accepted() {
    let broker = broker();
    let mut raw = broker.connect();
    let long = vec![b'c'; 20_000];
    for client in [
        Some(b"\xff\xfe\x80".as_slice()),
        None,
        Some(b"".as_slice()),
        Some(&long),
    ] {
        let mut payload = BytesMut::new();
        payload.put_i16(3);
        payload.put_i16(1);
        payload.put_i32(5);
        payload.put_i16(client.map_or(-1, |id| i16::try_from(id.len()).expect("short")));
        payload.put_slice(client.unwrap_or_default());
        payload.put_i32(0);
        raw.send_frame(&payload);
        let answer = raw.read_frame().unwrap_or_else(|| {
            panic!(
                "closed on a client id of {:?} bytes",
                client.map(<[u8]>::len)
            )
        });
        assert_eq!(answer[..4], 5_i32.to_be_bytes());
    }
}

#[test]
fn unknown_tagged_fields_are_accepted() {
    let broker = broker();
    let mut raw = broker.connect();
    // Metadata v9: no topics, three flags, then two tagged fields that nobody knows.
    let body = [1, 0, 0, 0, 2, 0x63, 1, 7, 0x64, 0];
    let correlation = raw.send_body(3, 9, true, &body);
    let answer = raw.read_frame().expect("an answer");
    assert_eq!(answer[..4], correlation.to_be_bytes());
    // The same in the request's header.
    let mut payload = BytesMut::from(&request_payload((3, 9), 8, false, &[])[..]);
    payload.put_slice(&[1, 0x63, 1, 7]);
    payload.put_slice(&[1, 0, 0, 0, 0]);
    raw.send_frame(&payload);
    assert_eq!(
        raw.read_frame().expect("an answer")[..4],
        8_i32.to_be_bytes()
    );
}

#[test]
fn api_versions_may_be_sent_again_and_checks_whom_it_is_meant_for() {
    let broker = broker();
    let mut raw = broker.connect();
    for _ in 0..3 {
        advertised(&mut raw);
    }
    if !advertised(&mut raw)
        .iter()
        .any(|api| api.0 == 18 && api.2 >= 5)
    {
        return;
    }
    let mut wrong_cluster = ApiVersionsRequest::default();
    wrong_cluster.client_software_name = "test".into();
    wrong_cluster.client_software_version = "1".into();
    wrong_cluster.cluster_id = Some("another".into());
    wrong_cluster.node_id = raw
        .call::<MetadataRequest>(12, &requests::metadata(12, &[]))
        .brokers[0]
        .node_id;
    assert_eq!(
        raw.call::<ApiVersionsRequest>(5, &wrong_cluster).error_code,
        129
    );
}

#[test]
fn bad_client_software_names_are_refused() {
    let broker = broker();
    let mut raw = broker.connect();
    for (name, version) in [("", "1"), ("a b", "1"), ("x", ""), ("x", "1;2")] {
        let mut request = ApiVersionsRequest::default();
        request.client_software_name = name.into();
        request.client_software_version = version.into();
        let answer = raw.call::<ApiVersionsRequest>(3, &request);
        assert_eq!(
            answer.error_code,
            codes::INVALID_REQUEST,
            "name {name:?}, version {version:?}"
        );
    }
}
