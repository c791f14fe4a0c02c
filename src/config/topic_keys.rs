//! The table of topic keys: Kafka 4.4's, with our default where section 4 of the design sets one.
//!
//! Owns:     names, types, ranges, defaults, the broker keys behind them, and what each does here.
//! Does not: parse or store; `topic` does.
use super::spec::{KeySpec, Kind, Range, Scale, Synonym};

const LONG_MAX: &str = "9223372036854775807";
const CODECS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];

const fn same(name: &'static str) -> Synonym {
    Synonym {
        name,
        scale: Scale::Same,
    }
}

const fn hours(name: &'static str) -> Synonym {
    Synonym {
        name,
        scale: Scale::HoursToMs,
    }
}

const fn minutes(name: &'static str) -> Synonym {
    Synonym {
        name,
        scale: Scale::MinutesToMs,
    }
}

const fn row(name: &'static str, kind: Kind, default: &'static str) -> KeySpec {
    KeySpec::new(name, kind, Some(default)).dynamic()
}

/// Every key a topic may carry, by name.
pub(crate) static TOPIC_KEYS: &[KeySpec] = &[
    row("cleanup.policy", Kind::List, "delete")
        .range(Range::Among(&["compact", "delete"]))
        .behind(&[same("log.cleanup.policy")])
        .doc("What happens to old data: 'delete' drops segments by age and size, 'compact' keeps the last value of each key, both may be combined."),
    row("compression.gzip.level", Kind::Int, "-1")
        .range(Range::Whole(-1, 9))
        .behind(&[same("compression.gzip.level")])
        .kept()
        .doc("Without effect: batches are stored as producers compressed them."),
    row("compression.lz4.level", Kind::Int, "9")
        .range(Range::Whole(1, 17))
        .behind(&[same("compression.lz4.level")])
        .kept()
        .doc("Without effect: batches are stored as producers compressed them."),
    row("compression.type", Kind::String, "producer")
        .range(Range::OneOf(CODECS))
        .behind(&[same("compression.type")])
        .doc("Only 'producer': batches are stored byte by byte as producers sent them."),
    row("compression.zstd.level", Kind::Int, "3")
        .range(Range::Whole(-131_072, 22))
        .behind(&[same("compression.zstd.level")])
        .kept()
        .doc("Without effect: batches are stored as producers compressed them."),
    row("delete.retention.ms", Kind::Long, "86400000")
        .min(0)
        .behind(&[same("log.cleaner.delete.retention.ms")])
        .doc("How long a deletion marker of a compacted topic stays readable."),
    row("errors.deadletterqueue.group.enable", Kind::Boolean, "false")
        .kept()
        .doc("Whether share groups may use the topic for undeliverable records."),
    row("file.delete.delay.ms", Kind::Long, "60000")
        .min(0)
        .behind(&[same("log.segment.delete.delay.ms")])
        .doc("How long a file that is no longer part of the log stays before it is unlinked."),
    row("flush.messages", Kind::Long, "1")
        .min(1)
        .behind(&[same("log.flush.interval.messages")])
        .doc("The durability dial: acks=all waits for an fsync when this many records were written since the last one. At 1 every acknowledged record is on stable storage; above 1 a power cut may take acknowledged records."),
    row("flush.ms", Kind::Long, LONG_MAX)
        .min(0)
        .behind(&[same("log.flush.interval.ms"), same("log.flush.scheduler.interval.ms")])
        .doc("A log with unsynced records is flushed in the background after this time; no acknowledgement waits for it."),
    row("follower.replication.throttled.replicas", Kind::List, "")
        .kept()
        .doc("Without effect: there are no replicas."),
    row("index.interval.bytes", Kind::Int, "4096")
        .min(0)
        .behind(&[same("log.index.interval.bytes")])
        .doc("Bytes of log between two entries of the offset and time indexes."),
    KeySpec::new("internal.segment.bytes", Kind::Int, None)
        .range(Range::Whole(1, i64::MAX))
        .internal()
        .doc("Size of a segment without the lower bound of segment.bytes, for tests."),
    row("leader.replication.throttled.replicas", Kind::List, "")
        .kept()
        .doc("Without effect: there are no replicas."),
    row("local.retention.bytes", Kind::Long, "-2")
        .min(-2)
        .behind(&[same("log.local.retention.bytes")])
        .kept()
        .doc("Without effect: there is no tiered storage."),
    row("local.retention.ms", Kind::Long, "-2")
        .min(-2)
        .behind(&[same("log.local.retention.ms")])
        .kept()
        .doc("Without effect: there is no tiered storage."),
    row("max.compaction.lag.ms", Kind::Long, LONG_MAX)
        .min(1)
        .behind(&[same("log.cleaner.max.compaction.lag.ms")])
        .doc("The longest time a record stays out of reach of compaction."),
    row("max.decompressed.message.bytes", Kind::Int, "2147483639")
        .range(Range::Whole(1, 2_147_483_639))
        .behind(&[same("max.decompressed.message.bytes")])
        .doc("The largest record, decompressed, that is accepted where records are looked into."),
    row("max.message.bytes", Kind::Int, "1048588")
        .min(0)
        .behind(&[same("message.max.bytes")])
        .doc("The largest record batch accepted, in bytes as sent (after compression)."),
    row("message.timestamp.after.max.ms", Kind::Long, "3600000")
        .min(0)
        .behind(&[same("log.message.timestamp.after.max.ms")])
        .kept()
        .doc("How far a record's timestamp may lie in the future of the broker's clock."),
    row("message.timestamp.before.max.ms", Kind::Long, LONG_MAX)
        .min(0)
        .behind(&[same("log.message.timestamp.before.max.ms")])
        .kept()
        .doc("How far a record's timestamp may lie in the past of the broker's clock."),
    row("message.timestamp.type", Kind::String, "CreateTime")
        .range(Range::OneOf(&["CreateTime", "LogAppendTime"]))
        .behind(&[same("log.message.timestamp.type")])
        .doc("Whose timestamp a record carries: its producer's (CreateTime) or the broker's (LogAppendTime)."),
    row("min.cleanable.dirty.ratio", Kind::Double, "0.5")
        .range(Range::Real(0.0, 1.0))
        .behind(&[same("log.cleaner.min.cleanable.ratio")])
        .doc("How much of a compacted log must be uncompacted before compaction runs."),
    row("min.compaction.lag.ms", Kind::Long, "0")
        .min(0)
        .behind(&[same("log.cleaner.min.compaction.lag.ms")])
        .doc("The shortest time a record stays uncompacted."),
    row("min.insync.replicas", Kind::Int, "1")
        .min(1)
        .behind(&[same("min.insync.replicas")])
        .kept()
        .doc("Without effect: the one copy is the truth, acks=all means that it is on stable storage."),
    row("preallocate", Kind::Boolean, "false")
        .behind(&[same("log.preallocate")])
        .kept()
        .doc("Without effect: segments grow as they are written."),
    row("remote.copy.lag.bytes", Kind::Long, "-1")
        .min(-1)
        .behind(&[same("log.remote.copy.lag.bytes")])
        .kept()
        .doc("Without effect: there is no tiered storage."),
    row("remote.copy.lag.ms", Kind::Long, "0")
        .min(-1)
        .behind(&[same("log.remote.copy.lag.ms")])
        .kept()
        .doc("Without effect: there is no tiered storage."),
    row("remote.log.copy.disable", Kind::Boolean, "false")
        .kept()
        .doc("Without effect: there is no tiered storage."),
    row("remote.log.delete.on.disable", Kind::Boolean, "false")
        .kept()
        .doc("Without effect: there is no tiered storage."),
    row("remote.storage.enable", Kind::Boolean, "false")
        .doc("Only 'false': there is no tiered storage."),
    row("retention.bytes", Kind::Long, "-1")
        .behind(&[same("log.retention.bytes")])
        .doc("Old segments are deleted when a partition is larger than this; -1 is no limit."),
    row("retention.ms", Kind::Long, "604800000")
        .min(-1)
        .behind(&[same("log.retention.ms"), minutes("log.retention.minutes"), hours("log.retention.hours")])
        .doc("Segments whose newest record is older than this are deleted, the last one too; a record dated ahead is as old as its append. -1 is no limit."),
    row("segment.bytes", Kind::Int, "1073741824")
        .min(1_048_576)
        .behind(&[same("log.segment.bytes")])
        .doc("A segment that would grow beyond this is closed and a new one begun."),
    row("segment.index.bytes", Kind::Int, "10485760")
        .min(4)
        .behind(&[same("log.index.size.max.bytes")])
        .kept()
        .doc("Without effect: indexes grow as they need."),
    row("segment.jitter.ms", Kind::Long, "0")
        .min(0)
        .behind(&[same("log.roll.jitter.ms"), hours("log.roll.jitter.hours")])
        .doc("At most this much is taken off segment.ms at random, so that segments do not all roll at once."),
    row("segment.ms", Kind::Long, "604800000")
        .min(1)
        .behind(&[same("log.roll.ms"), hours("log.roll.hours")])
        .doc("A segment that was begun this long ago is closed, full or not, so that retention and compaction reach it."),
    row("unclean.leader.election.enable", Kind::Boolean, "false")
        .behind(&[same("unclean.leader.election.enable")])
        .kept()
        .doc("Without effect: there are no replicas to elect."),
];
