//! How fast are batch parsing, group append, reading and opening; no sync is measured here (the committer's benches do).

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{Criterion, Throughput};
use seawall_storage::disk::RealDisk;
use seawall_storage::{
    Attributes, Batch, BatchHeader, BatchVerdict, LeaderEpoch, Log, LogConfig, Offered, Offset,
    OpenOptions, PartitionIndex, ProducerEpoch, ProducerId, ProducerRules, ReadSpec, Resources,
    Sequence, Stop, Timestamp, TopicId, TxnOrigin,
};

const RULES: ProducerRules = ProducerRules {
    max_batch_bytes: 1 << 24,
    zstd: true,
    check_crc: true,
};

/// One record of about `size` bytes; its inside is of no interest here.
fn batch_bytes(size: usize) -> Bytes {
    let payload = vec![b'x'; size];
    let mut header = BatchHeader {
        base_offset: Offset(0),
        batch_length: i32::try_from(size + 49).expect("small"),
        leader_epoch: LeaderEpoch(-1),
        magic: 2,
        crc: 0,
        attributes: Attributes(0),
        last_offset_delta: 0,
        base_timestamp: Timestamp(1),
        max_timestamp: Timestamp(1),
        producer_id: ProducerId(-1),
        producer_epoch: ProducerEpoch(-1),
        base_sequence: Sequence(-1),
        record_count: 1,
    };
    header.crc = crc32c::crc32c_append(crc32c::crc32c(&header.encode()[21..]), &payload);
    [header.encode().as_slice(), &payload].concat().into()
}

fn open(dir: &Path, resources: &Arc<Resources>, partition: i32) -> Log {
    let options = OpenOptions {
        topic_id: TopicId::default(),
        partition: PartitionIndex(partition),
        config: LogConfig {
            segment_bytes: 256 << 20,
            ..LogConfig::default()
        },
        stop: Stop::Clean,
        recovered_this_boot: true,
        now: Timestamp(1),
        resources: Arc::clone(resources),
        progress: &|_| {},
    };
    Log::open(Arc::new(RealDisk), dir, &options).expect("open")
}

/// Appends; at a roll the old segments are removed, so that the bench needs little space.
fn append(log: &mut Log, dir: &Path, group: &[Offered]) {
    let outcome = log.append_group(group, Timestamp(1));
    if outcome.verdicts.contains(&BatchVerdict::Deferred) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            std::fs::remove_file(entry.path()).expect("remove");
        }
        let new = log.roll_plan().run().expect("roll");
        log.install(new).expect("current");
    }
}

fn parse(c: &mut Criterion) {
    let mut group = c.benchmark_group("batch parse and CRC");
    for size in [1024, 16 * 1024, 1024 * 1024] {
        let bytes = batch_bytes(size);
        group.throughput(Throughput::Bytes(u64::try_from(size).expect("small")));
        group.bench_function(format!("{size} bytes"), |b| {
            b.iter(|| Batch::from_producer(black_box(&bytes), &RULES).expect("good"));
        });
    }
}

fn group_append(c: &mut Criterion) {
    let mut group = c.benchmark_group("group append");
    for (count, size) in [
        (1, 1024),
        (5, 1024),
        (50, 1024),
        (1, 16 * 1024),
        (50, 16 * 1024),
    ] {
        let temp = tempfile::tempdir().expect("temp dir");
        let dir = temp.path().join("0");
        let mut log = open(&dir, &Resources::new(16), 0);
        let batch = Batch::from_producer(&batch_bytes(size), &RULES).expect("good");
        let offered = vec![
            Offered {
                batch,
                append_time: None,
                keep: true,
                txn: TxnOrigin::Unverified,
            };
            count
        ];
        append(&mut log, &dir, &offered);
        group.throughput(Throughput::Bytes(
            u64::try_from(count * size).expect("small"),
        ));
        group.bench_function(format!("{count} x {size} bytes"), |b| {
            b.iter(|| append(&mut log, &dir, &offered));
        });
    }
}

fn read(c: &mut Criterion) {
    let temp = tempfile::tempdir().expect("temp dir");
    let dir = temp.path().join("0");
    let mut log = open(&dir, &Resources::new(16), 0);
    let batch = Batch::from_producer(&batch_bytes(16 * 1024), &RULES).expect("good");
    let offered = vec![
        Offered {
            batch,
            append_time: None,
            keep: true,
            txn: TxnOrigin::Unverified,
        };
        64
    ];
    for _ in 0..64 {
        append(&mut log, &dir, &offered);
    }
    let view = log.read_view();
    let mut next = Offset(0);
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Bytes(1 << 20));
    group.bench_function("1 MiB from the page cache", |b| {
        b.iter(|| {
            let spec = ReadSpec {
                from: next,
                upto: view.end_offset(),
                max_bytes: 1 << 20,
                at_least_one: true,
                gaps: false,
                check_crc: false,
            };
            let got = view.read(&spec).expect("read");
            next = if got.next < view.end_offset() {
                got.next
            } else {
                Offset(0)
            };
            black_box(got)
        });
    });
}

fn open_clean(c: &mut Criterion) {
    let temp = tempfile::tempdir().expect("temp dir");
    let resources = Resources::new(16);
    let batch = Batch::from_producer(&batch_bytes(1024), &RULES).expect("good");
    let offered = [Offered {
        batch,
        append_time: None,
        keep: true,
        txn: TxnOrigin::Unverified,
    }];
    for partition in 0..200 {
        let dir = temp.path().join(partition.to_string());
        let mut log = open(&dir, &resources, partition);
        append(&mut log, &dir, &offered);
        append(&mut log, &dir, &offered);
        log.close_plan().expect("changed").run().expect("close");
    }
    c.bench_function("open 200 cleanly closed partitions", |b| {
        b.iter(|| {
            let logs = (0..200).map(|p| open(&temp.path().join(p.to_string()), &resources, p));
            logs.collect::<Vec<_>>()
        });
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    parse(&mut criterion);
    group_append(&mut criterion);
    read(&mut criterion);
    open_clean(&mut criterion);
    criterion.final_summary();
}
