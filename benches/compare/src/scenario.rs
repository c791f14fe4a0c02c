//! The table of loads that are compared, each with the machine's limit for it.
//!
//! Owns:     what is measured. Adding a load is one row.
//! Does not: measure.

use std::time::Duration;

use crate::batch::Shape;
use crate::produce::Load;

/// One request of one producer.
pub(crate) const ONE_KIB: Shape = Shape {
    bytes: 1024,
    records: 1,
};
/// A full batch of a producer with Kafka's default `batch.size`.
pub(crate) const SIXTEEN_KIB: Shape = Shape {
    bytes: 16 * 1024,
    records: 16,
};
/// Bytes asked for by one Fetch.
pub(crate) const FETCH_BYTES: usize = 1 << 20;
/// Name of the topic that is consumed.
pub(crate) const CONSUMED_TOPIC: &str = "consumed";
/// C: the cores that broker and load share in the formulas.
pub(crate) const CORES: f64 = 2.0;

/// Names a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    OneForced,
    FiveForced,
    FiftyForced,
    FiftyForcedSpread,
    OneWritten,
    FiftyWritten,
    FiftyWrittenSpread,
    Consume,
}

/// A load and how it is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) id: Id,
    pub(crate) title: &'static str,
    pub(crate) topic: &'static str,
    pub(crate) connections: i32,
    pub(crate) in_flight: usize,
    pub(crate) partitions: i32,
    pub(crate) shape: Shape,
    /// acks=all and a topic with `flush.messages=1`; else acks=1 and a topic with defaults.
    pub(crate) forced: bool,
}

/// Fsync loads first: what acks=1 leaves to be written back would disturb them.
pub(crate) const TABLE: [Scenario; 8] = [
    row(
        Id::OneForced,
        "1 producer, 1 KiB, 1 in flight, acks=all, fsync",
        "one-forced",
    ),
    row(
        Id::FiveForced,
        "1 producer, 1 KiB, 5 in flight, acks=all, fsync",
        "five-forced",
    ),
    row(
        Id::FiftyForced,
        "50 producers, 16 KiB, 1 partition, acks=all, fsync",
        "fifty-forced",
    ),
    row(
        Id::FiftyForcedSpread,
        "50 producers, 16 KiB, 50 partitions, acks=all, fsync",
        "spread-forced",
    ),
    row(
        Id::OneWritten,
        "1 producer, 1 KiB, 1 in flight, acks=1",
        "one-written",
    ),
    row(
        Id::FiftyWritten,
        "50 producers, 16 KiB, 1 partition, acks=1",
        "fifty-written",
    ),
    row(
        Id::FiftyWrittenSpread,
        "50 producers, 16 KiB, 50 partitions, acks=1",
        "spread-written",
    ),
    row(
        Id::Consume,
        "1 consumer, 1 MiB fetches from page cache",
        CONSUMED_TOPIC,
    ),
];

const fn row(id: Id, title: &'static str, topic: &'static str) -> Scenario {
    let many = matches!(
        id,
        Id::FiftyForced | Id::FiftyForcedSpread | Id::FiftyWritten | Id::FiftyWrittenSpread
    );
    let spread = matches!(id, Id::FiftyForcedSpread | Id::FiftyWrittenSpread);
    Scenario {
        id,
        title,
        topic,
        connections: if many { 50 } else { 1 },
        in_flight: if matches!(id, Id::FiveForced) { 5 } else { 1 },
        partitions: if spread { 50 } else { 1 },
        shape: if many { SIXTEEN_KIB } else { ONE_KIB },
        forced: matches!(
            id,
            Id::OneForced | Id::FiveForced | Id::FiftyForced | Id::FiftyForcedSpread
        ),
    }
}

impl Scenario {
    /// The load of this row; meaningless for `Consume`.
    pub(crate) fn load(&self, time: Duration, bytes_max: u64, idempotent: bool) -> Load {
        let batch = u64::try_from(self.shape.bytes).unwrap_or(1);
        Load {
            topic: self.topic.to_owned(),
            partitions: self.partitions,
            connections: self.connections,
            in_flight: self.in_flight,
            shape: self.shape,
            acks: if self.forced { -1 } else { 1 },
            idempotent,
            time,
            batches_max: bytes_max / batch,
        }
    }

    /// Bytes that one fsync covers at best: one batch of every producer.
    pub(crate) fn group_bytes(&self) -> usize {
        self.shape.bytes * usize::try_from(self.connections).unwrap_or(1)
    }
}

/// What the machine did right before and after the brokers had their turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Machine {
    /// R
    pub(crate) round_trip: Duration,
    /// D of the scenario's group
    pub(crate) sync: Duration,
    /// W, bytes/s
    pub(crate) stream: f64,
    /// plain pwrite of the same stream, batches/s
    pub(crate) plain: f64,
}

impl Machine {
    /// The middle between two looks.
    pub(crate) fn mean(self, other: Self) -> Self {
        Self {
            round_trip: (self.round_trip + other.round_trip) / 2,
            sync: (self.sync + other.sync) / 2,
            stream: f64::midpoint(self.stream, other.stream),
            plain: f64::midpoint(self.plain, other.plain),
        }
    }
}

/// The limit in batches (or fetches) per second, with `cpu` = c, the broker's CPU time per batch.
pub(crate) fn limit(scenario: &Scenario, machine: &Machine, cpu: Duration) -> f64 {
    let r = machine.round_trip.as_secs_f64();
    let d = machine.sync.as_secs_f64();
    let n = f64::from(scenario.connections);
    match scenario.id {
        Id::OneForced | Id::FiveForced => 1.0 / (r + d),
        Id::FiftyForced | Id::FiftyForcedSpread => n / (d + n * cpu.as_secs_f64() / CORES),
        Id::OneWritten | Id::FiftyWritten | Id::FiftyWrittenSpread => machine.plain,
        Id::Consume => 1.0 / (r + FETCH_BYTES as f64 / machine.stream),
    }
}

/// How the limit is written in reports.
pub(crate) fn formula(id: Id) -> &'static str {
    match id {
        Id::OneForced | Id::FiveForced => "1/(R + D(1 KiB))",
        Id::FiftyForced | Id::FiftyForcedSpread => "N/(D(N x 16 KiB) + N c/C)",
        Id::OneWritten | Id::FiftyWritten | Id::FiftyWrittenSpread => "plain pwrite",
        Id::Consume => "1/(R + s/W)",
    }
}
