//! Bytes that lie (p09, p10): errors, no panic, no allocation beyond what is there.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use seawall_net::wire::messages::{API_DESCRIPTORS, MetadataRequest, ProduceRequest as Generated};
use seawall_net::wire::{
    FetchRequest, ProduceRequest, RequestHeader, WireError, decode, encode, request_is_flexible,
    response_header_is_flexible,
};

const PRODUCE: std::ops::RangeInclusive<i16> = -1..=15;
const FETCH: std::ops::RangeInclusive<i16> = -1..=20;

fn decode_everything(bytes: &Bytes) {
    for version in PRODUCE {
        let _ = ProduceRequest::decode(bytes, version);
    }
    for version in FETCH {
        let _ = FetchRequest::decode(bytes, version);
    }
    let _ = RequestHeader::decode(bytes);
    let _ = decode::<MetadataRequest>(bytes, 12);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn p10_random_bytes_never_panic(bytes in vec(any::<u8>(), 0..400)) {
        decode_everything(&bytes.into());
    }

    /// Random bytes rarely get past the first length; these do.
    #[test]
    fn p10_plausible_bytes_never_panic(
        bytes in vec(prop_oneof![Just(0), Just(1), Just(2), Just(0x7f), Just(0xff), 0..16_u8], 0..400),
    ) {
        decode_everything(&bytes.into());
    }
}

fn check_refused(what: &str, version: i16, body: &[u8], why: &WireError) {
    let body = Bytes::copy_from_slice(body);
    let produce = ProduceRequest::decode(&body, version);
    assert_eq!(produce.as_ref(), Err(why), "{what}");
}

#[test]
fn p09_lengths_that_lie_are_refused() {
    use WireError::{BadLength, NullNotAllowed, Truncated};
    let cases: &[(&str, &[u8], WireError)] = &[
        ("string length -2", b"\xff\xfe", BadLength(-2)),
        ("string beyond the frame", b"\x7f\xff", Truncated),
        (
            "topic count 2^31-1",
            b"\xff\xff\0\x01\0\0\0\x01\x7f\xff\xff\xffabcd",
            Truncated,
        ),
        (
            "null topics",
            b"\xff\xff\0\x01\0\0\0\x01\xff\xff\xff\xff",
            NullNotAllowed,
        ),
        (
            "topic count -2",
            b"\xff\xff\0\x01\0\0\0\x01\xff\xff\xff\xfe",
            BadLength(-2),
        ),
        (
            "null topic name",
            b"\xff\xff\0\x01\0\0\0\x01\0\0\0\x01\xff\xff\0\0\0\0",
            NullNotAllowed,
        ),
        (
            "a name that is not UTF-8",
            b"\0\x01\xff\0\x01\0\0\0\x01\0\0\0\0",
            WireError::NotUtf8,
        ),
        (
            "records beyond the frame",
            b"\xff\xff\0\x01\0\0\0\x01\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0\x7f\xff\xff\xffab",
            Truncated,
        ),
        (
            "records length -2",
            b"\xff\xff\0\x01\0\0\0\x01\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0\xff\xff\xff\xfeab",
            BadLength(-2),
        ),
        ("nothing", b"", Truncated),
    ];
    for (what, body, why) in cases {
        check_refused(what, 3, body, why);
    }
}

#[test]
fn p09_compact_lengths_that_lie_are_refused() {
    use WireError::{BadVarint, NullNotAllowed, Truncated};
    let cases: &[(&str, &[u8], WireError)] = &[
        ("length 2^32-1", b"\xff\xff\xff\xff\x0f", Truncated),
        (
            "varint of six bytes",
            b"\x80\x80\x80\x80\x80\x00",
            BadVarint,
        ),
        ("varint above 2^32", b"\xff\xff\xff\xff\x1f", BadVarint),
        (
            "topic count",
            b"\0\0\x01\0\0\0\x01\xff\xff\xff\xff\x07abcd",
            Truncated,
        ),
        ("null topics", b"\0\0\x01\0\0\0\x01\0", NullNotAllowed),
        (
            "tag count 2^32-1",
            b"\0\0\x01\0\0\0\x01\x01\xff\xff\xff\xff\x0f",
            Truncated,
        ),
        (
            "tag beyond the frame",
            b"\0\0\x01\0\0\0\x01\x01\x01\x05\x7fab",
            Truncated,
        ),
    ];
    for (what, body, why) in cases {
        check_refused(what, 9, body, why);
    }
}

#[test]
fn a_frame_full_of_empty_entries_is_refused_before_it_is_multiplied() {
    // Three bytes each: an empty name, no partitions, no tagged fields.
    let topics = 1_000_000_u32;
    let mut body = b"\0\0\x01\0\0\0\x01".to_vec();
    let mut count = topics + 1;
    while count >= 0x80 {
        body.push(u8::try_from(count & 0x7f).unwrap() | 0x80);
        count >>= 7;
    }
    body.push(u8::try_from(count).unwrap());
    body.extend([1, 1, 0].repeat(usize::try_from(topics).unwrap()));
    let decoded = ProduceRequest::decode(&body.into(), 9);
    assert_eq!(decoded, Err(WireError::TooManyEntries));
}

#[test]
fn versions_that_we_do_not_have_are_refused() {
    let body = Bytes::from_static(&[0; 64]);
    for version in [i16::MIN, -1, 14, i16::MAX] {
        let decoded = ProduceRequest::decode(&body, version);
        assert_eq!(decoded, Err(WireError::UnsupportedVersion(version)));
    }
    for version in [i16::MIN, -1, 3, 19, i16::MAX] {
        let decoded = FetchRequest::decode(&body, version);
        assert_eq!(decoded, Err(WireError::UnsupportedVersion(version)));
    }
}

#[test]
fn repeated_and_unordered_unknown_tags_are_tolerated() {
    let body = Bytes::from_static(b"\0\0\x01\0\0\0\x01\x01\x03\x09\x01x\x05\x00\x09\x01y");
    let decoded = ProduceRequest::decode(&body, 9).unwrap();
    assert_eq!((decoded.acks, decoded.timeout_ms), (1, 1));
}

#[test]
fn the_generic_decoder_tolerates_trailing_bytes() {
    let mut bytes = encode(&MetadataRequest::default(), 12).unwrap().to_vec();
    bytes.extend_from_slice(b"trailing");
    let decoded: MetadataRequest = decode(&bytes.into(), 12).unwrap();
    assert_eq!(decoded, MetadataRequest::default());
}

#[test]
fn the_generic_decoder_refuses_counts_that_lie() {
    for body in [
        &b"\x7f\xff\xff\xff"[..],
        b"\xff\xff\xff\xff",
        b"\xff\xff\xff\xfe",
    ] {
        let decoded = decode::<MetadataRequest>(&Bytes::copy_from_slice(body), 0);
        assert!(decoded.is_err(), "{body:?}: {decoded:?}");
    }
    assert!(decode::<Generated>(&Bytes::new(), 99).is_err());
}

#[test]
fn headers_are_flexible_exactly_where_the_schemas_say() {
    for api in API_DESCRIPTORS {
        let key = api.api_key.value();
        let versions = api.supported_versions.min().value()..=api.supported_versions.max().value();
        for version in versions {
            let at = kafka_wire_core::ApiVersion::new(version);
            let flexible = |range: Option<kafka_wire_core::VersionRange>| {
                range.is_some_and(|range| range.contains(at))
            };
            assert_eq!(
                request_is_flexible(key, version),
                flexible(api.request.flexible_versions),
                "request {key} v{version}"
            );
            assert_eq!(
                response_header_is_flexible(key, version),
                key != 18 && flexible(api.response.flexible_versions),
                "response {key} v{version}"
            );
        }
    }
    assert!(!request_is_flexible(7, 0), "ControlledShutdown is unknown");
    assert!(!request_is_flexible(-1, 0) && !request_is_flexible(i16::MAX, 9));
    assert!(request_is_flexible(18, 99), "p01: newer than ours");
}

#[test]
fn a_header_of_a_newer_api_versions_is_decoded() {
    let frame = b"\0\x12\0\x63\0\0\0\x07\0\x03toy\0\x04lib\x031.0\0";
    let (header, body_at) = RequestHeader::decode(frame).unwrap();
    assert_eq!((header.api_key, header.api_version), (18, 99));
    assert_eq!(header.correlation_id, 7);
    assert_eq!(header.client_id.as_deref(), Some("toy"));
    assert_eq!(&frame[body_at..], b"\x04lib\x031.0\0");
}
