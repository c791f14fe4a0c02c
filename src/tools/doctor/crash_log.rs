//! The log that a crash test writes: batches whose contents follow from their number, through the broker's own storage.
//!
//! Owns:     where that log is, its batches, the order append, sync, acknowledge.
//! Does not: print, or know how a run is checked (`crash_test`).
use crate::cluster::root;
use bytes::Bytes;
use seawall_storage::disk::{Disk, RealDisk};
use seawall_storage::{
    Attributes, Batch, BatchError, BatchHeader, BatchVerdict, LeaderEpoch, Log, LogConfig, Offered,
    Offset, OpenError, OpenOptions, PartitionIndex, ProducerEpoch, ProducerId, ProducerRules,
    Resources, Sequence, Stop, Timestamp, TopicId, TxnOrigin, WriteStop,
};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// Small, so that many segments begin and end in a run.
const SEGMENT_BYTES: u64 = 4 << 20;
const RULES: ProducerRules = ProducerRules {
    max_batch_bytes: 1 << 20,
    zstd: true,
    check_crc: true,
};

/// Why a run ended early. What was acknowledged before stays acknowledged.
#[derive(Debug)]
pub(super) enum CrashTestError {
    /// The disk's fault.
    Io(io::Error),
    /// The disk's fault: what it has cannot be a log of ours.
    Open(OpenError),
    /// The log takes no more: the disk failed a call before.
    Stopped,
    /// Ours.
    Batch(BatchError),
}

impl fmt::Display for CrashTestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Stopped => f.write_str("the log takes no appends after a failed call"),
            Self::Batch(error) => write!(f, "a batch of the test is refused: {error:?}"),
        }
    }
}

impl From<io::Error> for CrashTestError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A batch as it is known to whoever was told that it is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) offset: Offset,
    pub(super) crc: u32,
}

/// Where the log of a run is.
pub(super) fn folder(dir: &Path, run: Uuid) -> PathBuf {
    dir.join(format!("{}crash-test-{run}", root::PROBE_PREFIX))
}

/// Opens it as a broker does after a crash of the machine.
pub(super) fn open(dir: &Path, run: Uuid) -> Result<Log, OpenError> {
    let options = OpenOptions {
        topic_id: TopicId(run),
        partition: PartitionIndex(0),
        config: LogConfig {
            segment_bytes: SEGMENT_BYTES,
            ..LogConfig::default()
        },
        stop: Stop::Unclean,
        recovered_this_boot: false,
        now: now(),
        resources: Resources::new(16),
        progress: &|_| {},
    };
    Log::open(Arc::new(RealDisk), &folder(dir, run).join("0"), &options)
}

/// A log in the making.
pub(super) struct CrashLog {
    log: Log,
    number: u32,
    bytes: u64,
}

impl CrashLog {
    /// Makes the folder of a run, durably, and a log in it.
    pub(super) fn create(dir: &Path, run: Uuid) -> Result<Self, CrashTestError> {
        RealDisk.create_dir(&folder(dir, run))?;
        RealDisk.sync_dir(dir)?;
        let log = open(dir, run).map_err(CrashTestError::Open)?;
        Ok(Self {
            log,
            number: 0,
            bytes: 0,
        })
    }

    /// Bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes some batches and syncs them; what comes back is durable if the disk keeps its word.
    pub(super) fn group(&mut self) -> Result<Vec<Ack>, CrashTestError> {
        let mut rest = self.batches().map_err(CrashTestError::Batch)?;
        let mut acks = Vec::new();
        while !rest.is_empty() {
            let taken = self.append(&rest, &mut acks)?;
            rest.drain(..taken);
            if !rest.is_empty() {
                let new = self
                    .log
                    .roll_plan()
                    .run()
                    .map_err(|error| io::Error::other(error.to_string()))?;
                self.log.install(new).map_err(|_| CrashTestError::Stopped)?;
            }
        }
        if let Some(point) = self.log.flush_point() {
            point.file.sync_data()?;
            self.log.mark_synced(&point);
        }
        self.checkpoint()?;
        Ok(acks)
    }

    /// Appends as many as fit the segment and says how many those are.
    fn append(&mut self, group: &[Offered], acks: &mut Vec<Ack>) -> Result<usize, CrashTestError> {
        let outcome = self.log.append_group(group, now());
        self.bytes = self.bytes.saturating_add(outcome.bytes_written);
        let mut taken = 0;
        for (offered, verdict) in group.iter().zip(&outcome.verdicts) {
            match verdict {
                BatchVerdict::Appended { base, .. } => acks.push(Ack {
                    offset: *base,
                    crc: offered.batch.header().crc,
                }),
                BatchVerdict::Deferred => break,
                _ => {}
            }
            taken += 1;
        }
        match outcome.stopped {
            None => Ok(taken),
            Some(WriteStop::NoSpace(error) | WriteStop::Failed(error)) => Err(error.into()),
        }
    }

    fn checkpoint(&mut self) -> io::Result<()> {
        if !self.log.checkpoint_due(now()) {
            return Ok(());
        }
        let done = self
            .log
            .checkpoint_plan(now())
            .map(|plan| plan.run())
            .transpose()?;
        self.log.checkpoint_done(done);
        Ok(())
    }

    /// One to eight batches from a few bytes to some pages each.
    fn batches(&mut self) -> Result<Vec<Offered>, BatchError> {
        let first = self.number;
        let count = 1 + first % 8;
        self.number = first.wrapping_add(count);
        (first..self.number).map(offered).collect()
    }
}

fn offered(number: u32) -> Result<Offered, BatchError> {
    let lines = match number % 16 {
        0 => 2000,
        1..4 => 200,
        _ => 5,
    };
    Ok(Offered {
        batch: Batch::from_producer(&batch(number, lines), &RULES)?,
        append_time: None,
        keep: false,
        txn: TxnOrigin::Unverified,
    })
}

/// One record whose value is its number, over and over; so `dump-log` shows where the bytes of a damaged place come from.
fn batch(number: u32, lines: usize) -> Bytes {
    let payload = record(format!("{number:010}\n").repeat(lines).as_bytes());
    let records = i32::try_from(payload.len()).unwrap_or(i32::MAX);
    let mut header = BatchHeader {
        base_offset: Offset(0),
        // Counted from behind the length itself, which is the 12th byte (Kafka's documentation, "Record Batch").
        batch_length: records.saturating_add(49),
        leader_epoch: LeaderEpoch(-1),
        magic: 2,
        crc: 0,
        attributes: Attributes(0),
        last_offset_delta: 0,
        base_timestamp: Timestamp(0),
        max_timestamp: Timestamp(0),
        producer_id: ProducerId(-1),
        producer_epoch: ProducerEpoch(-1),
        base_sequence: Sequence(-1),
        record_count: 1,
    };
    // The checksum covers everything from the attributes on.
    header.crc = crc32c::crc32c_append(crc32c::crc32c(&header.encode()[21..]), &payload);
    [header.encode().as_slice(), &payload].concat().into()
}

/// A record without a key and headers, in the middle of a batch of one.
fn record(value: &[u8]) -> Vec<u8> {
    // Attributes 0, time delta 0, offset delta 0, no key (-1).
    let mut body = vec![0, 0, 0, 1];
    varint(&mut body, value.len());
    body.extend_from_slice(value);
    body.push(0);
    let mut out = Vec::with_capacity(body.len() + 5);
    varint(&mut out, body.len());
    out.append(&mut body);
    out
}

/// Zigzag of a number that is not negative, seven bits a byte.
fn varint(out: &mut Vec<u8>, value: usize) {
    let mut rest = value << 1;
    while rest > 0x7f {
        out.push(0x80 | u8::try_from(rest & 0x7f).unwrap_or_default());
        rest >>= 7;
    }
    out.push(u8::try_from(rest).unwrap_or_default());
}

fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_batch_of_a_run_is_acknowledged_once_in_order_and_across_segments() {
        let dir = tempfile::tempdir().unwrap();
        let run = Uuid::new_v4();
        let mut log = CrashLog::create(dir.path(), run).unwrap();
        let mut acks = Vec::new();
        while log.bytes() < 3 * SEGMENT_BYTES {
            acks.extend(log.group().unwrap());
        }
        drop(log);
        for (offset, ack) in (0..).zip(&acks) {
            assert_eq!(ack.offset, Offset(offset));
        }
        let segments = std::fs::read_dir(folder(dir.path(), run).join("0")).unwrap();
        let logs = segments.filter(|e| {
            e.as_ref()
                .unwrap()
                .path()
                .extension()
                .is_some_and(|x| x == "log")
        });
        assert!(logs.count() >= 3);
        assert_eq!(
            open(dir.path(), run).unwrap().end_offset().0,
            i64::try_from(acks.len()).unwrap()
        );
    }
}
