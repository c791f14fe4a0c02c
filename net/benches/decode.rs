//! What it costs to get from bytes to a decoded Produce, and from a response to parts.

#![allow(missing_docs, reason = "criterion_group makes functions without")]

use std::hint::black_box;

use bytes::{BufMut, Bytes, BytesMut};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use seawall_net::bench::FrameFeed;
use seawall_net::wire::{
    FetchPartitionResponse, FetchResponse, FetchTopicResponse, ProduceRequest, RequestHeader,
};

/// A Produce v9 frame (with its length) for one partition.
fn produce_frame(records: usize) -> Bytes {
    let mut body = BytesMut::new();
    body.put_slice(b"\0\0\0\x09\0\0\0\x07\0\x0bbench-client\0");
    body.truncate(body.len() - 2);
    body.put_u8(0);
    body.put_slice(b"\0\xff\xff\0\0\x75\x30\x02\x0bbenchmarks\x02\0\0\0\0");
    put_varint(&mut body, records + 1);
    body.put_bytes(7, records);
    body.put_slice(b"\0\0\0");
    let mut frame = BytesMut::new();
    frame.put_u32(u32::try_from(body.len()).expect("a frame is small"));
    frame.put(body);
    frame.freeze()
}

fn put_varint(out: &mut BytesMut, mut value: usize) {
    while value >= 0x80 {
        out.put_u8(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    out.put_u8(u8::try_from(value).expect("seven bits"));
}

fn decode(frame: &Bytes) -> ProduceRequest {
    let (header, body_at) = RequestHeader::decode(frame).expect("a sound header");
    ProduceRequest::decode(&frame.slice(body_at..), header.api_version).expect("a sound body")
}

fn frames(c: &mut Criterion) {
    let mut group = c.benchmark_group("frame_from_64KiB_reads");
    for records in [1024, 16 * 1024, 1024 * 1024] {
        let stream = produce_frame(records);
        group.throughput(Throughput::Bytes(stream.len() as u64));
        group.bench_with_input(
            BenchmarkId::from_parameter(records),
            &stream,
            |b, stream| {
                let mut feed = FrameFeed::default();
                b.iter(|| black_box(feed.one_frame(stream)));
            },
        );
    }
    group.finish();
}

fn produce(c: &mut Criterion) {
    let mut group = c.benchmark_group("header_and_produce_decode");
    for records in [1024, 16 * 1024, 1024 * 1024] {
        let stream = produce_frame(records);
        let frame = stream.slice(4..);
        let decoded = decode(&frame);
        assert_eq!(
            decoded.topics[0].partitions[0]
                .records
                .as_ref()
                .map(Bytes::len),
            Some(records)
        );
        group.throughput(Throughput::Bytes(frame.len() as u64));
        group.bench_with_input(BenchmarkId::from_parameter(records), &frame, |b, frame| {
            b.iter(|| black_box(decode(frame)));
        });
    }
    group.finish();
}

fn fetch_response(c: &mut Criterion) {
    let records = Bytes::from(vec![7; 1024 * 1024]);
    let response = || FetchResponse {
        topics: vec![FetchTopicResponse {
            name: "benchmarks".into(),
            partitions: vec![FetchPartitionResponse {
                records: Some(records.clone().into()),
                ..FetchPartitionResponse::default()
            }],
            ..FetchTopicResponse::default()
        }],
        ..FetchResponse::default()
    };
    c.bench_function("fetch_response_of_1MiB", |b| {
        b.iter(|| black_box(response().encode(12)));
    });
}

criterion_group!(benches, frames, produce, fetch_response);
criterion_main!(benches);
