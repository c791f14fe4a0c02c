//! Batches as a producer would send them, and a log with the steps that its owner and committer would do.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use seawall_storage::disk::Disk;
use seawall_storage::{
    Attributes, Batch, BatchHeader, BatchVerdict, LeaderEpoch, Log, LogConfig, Marker, MarkerRound,
    MarkerValue, Offered, Offset, OpenError, OpenOptions, PartitionIndex, ProducerEpoch,
    ProducerId, ProducerRules, ReadSpec, Resources, Sequence, Stop, Timestamp, TopicId, TxnOrigin,
    TxnOutcome,
};

pub(crate) const TOPIC: u128 = 0x5ea;

fn varint(out: &mut Vec<u8>, value: i64) {
    let mut z = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while z >= 0x80 {
        out.push(u8::try_from(z & 0x7f).expect("7 bits") | 0x80);
        z >>= 7;
    }
    out.push(u8::try_from(z).expect("7 bits"));
}

/// One record: its timestamp relative to the batch, and its value.
pub(crate) type Rec = (i64, Vec<u8>);

pub(crate) fn record_bytes(records: &[Rec]) -> Vec<u8> {
    let mut out = Vec::new();
    for (delta, (time, value)) in records.iter().enumerate() {
        let mut body = vec![0];
        varint(&mut body, *time);
        varint(&mut body, i64::try_from(delta).expect("small"));
        varint(&mut body, -1);
        varint(&mut body, i64::try_from(value.len()).expect("small"));
        body.extend_from_slice(value);
        varint(&mut body, 0);
        varint(&mut out, i64::try_from(body.len()).expect("small"));
        out.extend_from_slice(&body);
    }
    out
}

/// A batch with these header fields and payload; length and CRC are filled in.
pub(crate) fn seal(mut header: BatchHeader, payload: &[u8]) -> Bytes {
    header.batch_length = i32::try_from(payload.len() + 49).expect("small");
    header.crc = crc32c::crc32c_append(crc32c::crc32c(&header.encode()[21..]), payload);
    [header.encode().as_slice(), payload].concat().into()
}

pub(crate) fn header(count: i32, time: i64) -> BatchHeader {
    BatchHeader {
        base_offset: Offset(0),
        batch_length: 0,
        leader_epoch: LeaderEpoch(-1),
        magic: 2,
        crc: 0,
        attributes: Attributes(0),
        last_offset_delta: count - 1,
        base_timestamp: Timestamp(time),
        max_timestamp: Timestamp(time),
        producer_id: ProducerId(-1),
        producer_epoch: ProducerEpoch(-1),
        base_sequence: Sequence(-1),
        record_count: count,
    }
}

/// `count` records whose values begin with `tag`, each of `size` bytes.
pub(crate) fn plain(tag: u32, count: i32, size: usize) -> Batch {
    let payload = payload(tag, count, size);
    parse(&seal(header(count, 1000 + i64::from(tag)), &payload))
}

pub(crate) fn payload(tag: u32, count: i32, size: usize) -> Vec<u8> {
    let records: Vec<Rec> = (0..count)
        .map(|i| {
            let mut value = format!("{tag}/{i}").into_bytes();
            value.resize(size.max(value.len()), b'x');
            (0, value)
        })
        .collect();
    record_bytes(&records)
}

pub(crate) fn idempotent(id: i64, epoch: i16, sequence: i32, count: i32) -> Batch {
    let tag = u32::try_from(sequence & 0xffff).expect("small");
    let fields = BatchHeader {
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(epoch),
        base_sequence: Sequence(sequence),
        ..header(count, 5000)
    };
    parse(&seal(fields, &payload(tag, count, 20)))
}

/// A batch of a transaction.
pub(crate) fn transactional(id: i64, epoch: i16, sequence: i32, count: i32) -> Batch {
    let plain = idempotent(id, epoch, sequence, count);
    let fields = BatchHeader {
        attributes: Attributes(1 << 4),
        ..*plain.header()
    };
    parse(&seal(fields, plain.payload()))
}

pub(crate) fn marker(id: i64, epoch: i16, outcome: TxnOutcome) -> Batch {
    let value = MarkerValue {
        outcome,
        coordinator_epoch: 0,
    };
    Marker {
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(epoch),
        value,
        time: Timestamp(6000),
    }
    .batch()
}

pub(crate) fn parse(bytes: &Bytes) -> Batch {
    let rules = ProducerRules {
        max_batch_bytes: 1 << 30,
        zstd: true,
        check_crc: true,
    };
    Batch::from_producer(bytes, &rules).expect("a good batch")
}

/// What a log is opened with.
pub(crate) struct Setup {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) config: LogConfig,
    pub(crate) resources: Arc<Resources>,
    pub(crate) recovered_this_boot: bool,
}

impl Setup {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path) -> Self {
        let config = LogConfig {
            segment_bytes: 2000,
            index_interval_bytes: 256,
            ..LogConfig::default()
        };
        Self {
            disk,
            dir: dir.to_owned(),
            config,
            resources: Resources::new(16),
            recovered_this_boot: false,
        }
    }

    pub(crate) fn try_open(&self, stop: Stop) -> Result<Log, OpenError> {
        let options = OpenOptions {
            topic_id: TopicId(uuid::Uuid::from_u128(TOPIC)),
            partition: PartitionIndex(3),
            config: self.config,
            stop,
            recovered_this_boot: self.recovered_this_boot,
            now: Timestamp(1_000_000),
            resources: Arc::clone(&self.resources),
            progress: &|_| {},
        };
        Log::open(Arc::clone(&self.disk), &self.dir, &options)
    }

    pub(crate) fn open(&self, stop: Stop) -> Log {
        self.try_open(stop).expect("the log opens")
    }
}

pub(crate) fn offered(batch: &Batch) -> Offered {
    Offered {
        batch: batch.clone(),
        append_time: None,
        keep: true,
        txn: if batch.header().attributes.is_control() {
            TxnOrigin::Marker { again: false }
        } else {
            TxnOrigin::VerifiedIn(MarkerRound(u64::MAX))
        },
    }
}

/// Appends one group as its owner and committer would: rolls where the log asks for it.
pub(crate) fn append(log: &mut Log, batches: &[Batch]) -> Vec<BatchVerdict> {
    let mut waiting: Vec<Offered> = batches.iter().map(offered).collect();
    let mut verdicts = Vec::new();
    loop {
        let outcome = log.append_group(&waiting, Timestamp(2_000_000));
        assert!(outcome.stopped.is_none(), "{:?}", outcome.stopped);
        let done = outcome
            .verdicts
            .iter()
            .take_while(|v| **v != BatchVerdict::Deferred)
            .count();
        verdicts.extend_from_slice(&outcome.verdicts[..done]);
        waiting.drain(..done);
        if waiting.is_empty() {
            return verdicts;
        }
        roll(log);
    }
}

pub(crate) fn roll(log: &mut Log) {
    let new = log.roll_plan().run().expect("roll");
    log.install(new).expect("nothing happened in between");
}

pub(crate) fn flush(log: &mut Log) {
    if let Some(point) = log.flush_point() {
        point.file.sync_data().expect("sync");
        log.mark_synced(&point);
    }
}

pub(crate) fn close(log: &Log) {
    if let Some(plan) = log.close_plan() {
        plan.run().expect("close");
    }
}

pub(crate) fn spec(from: i64, max_bytes: usize) -> ReadSpec {
    ReadSpec {
        from: Offset(from),
        upto: Offset(i64::MAX),
        max_bytes,
        at_least_one: true,
        gaps: true,
        check_crc: true,
    }
}

/// All batches from `from` to the end, in reads of `max_bytes`.
pub(crate) fn read_all(log: &Log, from: i64, max_bytes: usize) -> Vec<Batch> {
    let view = log.read_view();
    let mut next = Offset(from);
    let mut batches = Vec::new();
    while next < view.end_offset() {
        let got = view.read(&spec(next.0, max_bytes)).expect("read");
        assert!(
            !got.bytes.is_empty(),
            "nothing at {next} of {}",
            view.end_offset()
        );
        let mut rest = got.bytes.clone();
        while !rest.is_empty() {
            let batch = Batch::parse_one(&rest).expect("whole batches");
            batch.check_crc().expect("crc");
            rest = rest.slice(batch.len()..);
            batches.push(batch);
        }
        next = got.next;
    }
    batches
}

/// Offsets are contiguous from `from` to the log end.
pub(crate) fn assert_contiguous(batches: &[Batch], from: i64, end: Offset) {
    let mut next = Offset(from);
    for batch in batches {
        assert_eq!(batch.header().base_offset, next);
        next = batch.header().next_offset();
    }
    assert_eq!(next, end);
}
