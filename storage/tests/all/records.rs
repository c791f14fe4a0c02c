//! The record decoder: all codecs, and what hostile payloads get.

use std::io::Write;

use bytes::Bytes;
use proptest::prelude::*;
use seawall_storage::records::{DecodeSite, Limits, Record, RecordError, Records, decoded_batches};
use seawall_storage::{Attributes, Batch, BatchHeader};

use crate::support::{header, parse, payload, seal};

fn compressed(codec: u16, count: i32, bytes: &[u8]) -> Batch {
    let fields = BatchHeader {
        attributes: Attributes(codec),
        ..header(count, 1000)
    };
    parse(&seal(fields, bytes))
}

fn decode(batch: &Batch, limits: &Limits) -> Result<Vec<Record>, RecordError> {
    Records::decode(batch, limits, DecodeSite::Tool)?.collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).expect("memory");
    out.finish().expect("memory")
}

fn snappy(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new()
        .compress_vec(bytes)
        .expect("memory")
}

/// The framing of the Java library, in blocks of `block` bytes.
fn java_snappy(bytes: &[u8], block: usize) -> Vec<u8> {
    let mut out = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for chunk in bytes.chunks(block) {
        let packed = snappy(chunk);
        out.extend_from_slice(&i32::try_from(packed.len()).expect("small").to_be_bytes());
        out.extend_from_slice(&packed);
    }
    out
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut out = lz4_flex::frame::FrameEncoder::new(Vec::new());
    out.write_all(bytes).expect("memory");
    out.finish().expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn all_codecs(bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let plain = bytes.to_vec();
    vec![
        (0, plain),
        (1, gzip(bytes)),
        (2, snappy(bytes)),
        (2, java_snappy(bytes, 100)),
        (3, lz4(bytes)),
        (4, zstd(bytes)),
    ]
}

#[test]
fn every_codec_gives_the_same_records() {
    let before = decoded_batches(DecodeSite::Tool);
    let expected =
        decode(&compressed(0, 20, &payload(3, 20, 50)), &Limits::default()).expect("plain");
    assert_eq!(expected.len(), 20);
    assert!(
        expected[19]
            .value
            .as_ref()
            .is_some_and(|v| v.starts_with(b"3/19"))
    );
    for (codec, bytes) in all_codecs(&payload(3, 20, 50)) {
        assert_eq!(
            decode(&compressed(codec, 20, &bytes), &Limits::default()).as_ref(),
            Ok(&expected),
            "codec {codec}"
        );
    }
    assert!(decoded_batches(DecodeSite::Tool) >= before + 7);
}

#[test]
fn a_bomb_stops_at_the_limit() {
    let limits = Limits { bytes_max: 1 << 16 };
    for (codec, bytes) in all_codecs(&vec![0; 1 << 20]).into_iter().skip(1) {
        assert_eq!(
            decode(&compressed(codec, 1, &bytes), &limits),
            Err(RecordError::TooLarge),
            "codec {codec}"
        );
    }
    let liar = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
    let big = Limits {
        bytes_max: u64::MAX,
    };
    assert_eq!(
        decode(&compressed(2, 1, &liar), &big),
        Err(RecordError::Decompress),
        "a claimed length allocates nothing"
    );
}

#[test]
fn wrong_counts_and_trailing_bytes_are_malformed() {
    let bytes = payload(1, 3, 5);
    for count in [1, 2, 4] {
        let got = decode(&compressed(1, count, &gzip(&bytes)), &Limits::default());
        assert_eq!(got, Err(RecordError::Malformed), "count {count}");
    }
    for len in 1..bytes.len() {
        let got = decode(&compressed(1, 3, &gzip(&bytes[..len])), &Limits::default());
        assert_eq!(got, Err(RecordError::Malformed), "cut at {len}");
    }
}

proptest! {
    #[test]
    fn garbage_payloads_never_panic(codec in 0_u16..5, bytes in prop::collection::vec(any::<u8>(), 1..300)) {
        let fields = BatchHeader { attributes: Attributes(codec), ..header(1, 1) };
        let batch = Batch::parse_one(&seal(fields, &bytes)).expect("whole");
        let _ = decode(&batch, &Limits { bytes_max: 1 << 16 });
    }

    #[test]
    fn damaged_compressed_payloads_never_panic(which in 0_usize..6, at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let (codec, mut bytes) = all_codecs(&payload(3, 20, 50)).swap_remove(which);
        let index = at.index(bytes.len());
        bytes[index] = byte;
        let fields = BatchHeader { attributes: Attributes(codec), ..header(20, 1) };
        let batch = Batch::parse_one(&seal(fields, &Bytes::from(bytes))).expect("whole");
        let _ = decode(&batch, &Limits { bytes_max: 1 << 20 });
    }
}

#[test]
fn headers_are_made_one_by_one() {
    // One record of a million empty headers: two bytes each, and no pair is made for any of them.
    let count = 1_000_000_i64;
    let mut body = vec![0, 0, 0, 1, 1];
    varint(&mut body, count);
    for _ in 0..count {
        body.extend([0, 1]);
    }
    let mut payload = Vec::new();
    varint(&mut payload, i64::try_from(body.len()).expect("small"));
    payload.extend(&body);
    let batch = parse(&seal(header(1, 0), &payload));
    let mut records =
        Records::decode(&batch, &Limits::default(), DecodeSite::Tool).expect("decodes");
    let record = records.next().expect("one").expect("whole");
    assert_eq!(record.headers.len(), 1_000_000);
    assert_eq!(record.headers.iter().count(), 1_000_000);
    assert!(records.next().is_none());
}

fn varint(out: &mut Vec<u8>, value: i64) {
    let mut zigzag = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while zigzag >= 0x80 {
        out.push(u8::try_from(zigzag & 0x7f).expect("seven bits") | 0x80);
        zigzag >>= 7;
    }
    out.push(u8::try_from(zigzag).expect("seven bits"));
}
