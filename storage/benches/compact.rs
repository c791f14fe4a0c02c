//! How fast a log is compacted, and what its map of keys takes; no sync is waited for beyond those of the swap.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use criterion::{Criterion, Throughput};
use seawall_storage::disk::RealDisk;
use seawall_storage::{
    Attributes, Batch, BatchHeader, Compaction, CompactionRules, CompactionTask, LeaderEpoch, Log,
    LogConfig, Offered, Offset, OpenOptions, PartitionIndex, ProducerEpoch, ProducerId, Resources,
    Sequence, Stop, Throttle, Timestamp, TopicId, TxnOrigin,
};

const SEGMENT_BYTES: u64 = 16 << 20;
const LOG_BYTES: usize = 64 << 20;
const VALUE_BYTES: usize = 500;
const BATCH_RECORDS: i32 = 30;

struct Unhurried;

impl Throttle for Unhurried {
    fn took(&mut self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
}

fn varint(out: &mut Vec<u8>, value: usize) {
    let mut zigzag = value << 1;
    while zigzag >= 0x80 {
        out.push(u8::try_from(zigzag & 0x7f).expect("7 bits") | 0x80);
        zigzag >>= 7;
    }
    out.push(u8::try_from(zigzag).expect("7 bits"));
}

fn batch(next: &mut usize, keys: usize) -> Batch {
    let mut payload = Vec::new();
    for delta in 0..BATCH_RECORDS {
        let key = format!("key-{:08}", *next * 7919 % keys);
        *next += 1;
        let mut body = vec![0, 0];
        varint(&mut body, usize::try_from(delta).expect("small"));
        varint(&mut body, key.len());
        body.extend_from_slice(key.as_bytes());
        varint(&mut body, VALUE_BYTES);
        body.resize(body.len() + VALUE_BYTES, b'x');
        body.push(0);
        varint(&mut payload, body.len());
        payload.extend_from_slice(&body);
    }
    let mut header = BatchHeader {
        base_offset: Offset(0),
        batch_length: i32::try_from(payload.len() + 49).expect("small"),
        leader_epoch: LeaderEpoch(-1),
        magic: 2,
        crc: 0,
        attributes: Attributes(0),
        last_offset_delta: BATCH_RECORDS - 1,
        base_timestamp: Timestamp(1),
        max_timestamp: Timestamp(1),
        producer_id: ProducerId(-1),
        producer_epoch: ProducerEpoch(-1),
        base_sequence: Sequence(-1),
        record_count: BATCH_RECORDS,
    };
    header.crc = crc32c::crc32c_append(crc32c::crc32c(&header.encode()[21..]), &payload);
    let bytes: Bytes = [header.encode().as_slice(), &payload].concat().into();
    Batch::parse_one(&bytes).expect("a batch")
}

fn open(dir: &Path) -> Log {
    let options = OpenOptions {
        topic_id: TopicId::default(),
        partition: PartitionIndex(0),
        config: LogConfig {
            segment_bytes: SEGMENT_BYTES,
            ..LogConfig::default()
        },
        stop: Stop::Clean,
        recovered_this_boot: true,
        now: Timestamp(1),
        resources: Resources::new(64),
        progress: &|_| {},
    };
    Log::open(Arc::new(RealDisk), dir, &options).expect("open")
}

fn roll(log: &mut Log) {
    let new = log.roll_plan().run().expect("roll");
    log.install(new).expect("fresh");
}

/// A log of `LOG_BYTES` in which each of `keys` comes again and again.
fn fill(dir: &Path, keys: usize) -> Log {
    let mut log = open(dir);
    roll(&mut log);
    let (mut next, mut bytes) = (0, 0);
    while bytes < LOG_BYTES {
        let batch = batch(&mut next, keys);
        bytes += batch.len();
        let offered = Offered {
            batch,
            append_time: None,
            keep: false,
            txn: TxnOrigin::Unverified,
        };
        if log
            .append_group(std::slice::from_ref(&offered), Timestamp(1))
            .bytes_written
            == 0
        {
            roll(&mut log);
            let again = log.append_group(&[offered], Timestamp(1));
            assert!(again.bytes_written > 0);
        }
    }
    roll(&mut log);
    log
}

fn compact(log: &mut Log) -> (u64, u64) {
    let rules = CompactionRules {
        dirty_ratio_min: 0.0,
        lag_min_ms: 0,
        lag_max_ms: u64::MAX,
        delete_retention_ms: 0,
        segment_bytes: SEGMENT_BYTES,
        index_interval_bytes: 4096,
        map_bytes_max: 128 << 20,
        batch_bytes_max: 64 << 20,
    };
    let view = log.read_view();
    let end = view.last_base();
    let dirty = view.dirty(Offset(0), &rules, Timestamp(1), end);
    let task = CompactionTask {
        dirty: dirty.expect("sizes").expect("dirty"),
        rules,
        keep: log.remembered_batches().into_iter().collect(),
        now: Timestamp(1),
    };
    let begun = Compaction::begin(&view, task, &mut Unhurried);
    drop(view);
    let mut pass = begun.expect("keys").expect("dirty");
    while let Some(run) = pass.next_run(&mut Unhurried).expect("rewritten") {
        let mut swap = log.splice(run).expect("nobody else is here");
        swap.run().expect("swapped");
        log.swapped(&swap);
    }
    (pass.stats.bytes_read, pass.stats.map_bytes)
}

fn main() {
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let mut group = criterion.benchmark_group("compact");
    group.throughput(Throughput::Bytes(LOG_BYTES as u64));
    for keys in [1_000, 100_000] {
        let name = format!("{keys} keys, 500-byte values");
        group.bench_function(&name, |bencher| {
            bencher.iter_custom(|rounds| {
                let mut spent = std::time::Duration::ZERO;
                for _ in 0..rounds {
                    let home = tempfile::tempdir().expect("a directory");
                    let mut log = fill(&home.path().join("0"), keys);
                    let started = Instant::now();
                    let (read, map) = compact(&mut log);
                    spent += started.elapsed();
                    assert!(
                        usize::try_from(read).expect("it fits") >= LOG_BYTES && map < 128 << 20
                    );
                    println!("{keys} keys: read {read} bytes, the map took {map} bytes");
                }
                spent
            });
        });
    }
    group.finish();
    criterion.final_summary();
}
