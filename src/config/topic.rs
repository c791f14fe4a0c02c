//! The configuration of one topic: what its owner set, and what therefore holds.
//!
//! Owns:     the check of overrides and the typed values that partitions act on.
//! Does not: store overrides (the catalog does) or answer requests.
//!
//! # Invariants
//! T1. A `TopicConfig` was checked: its values are in the ranges of `topic_keys`.
use super::settings::{Settings, nearest_among};
use super::spec::{KeySpec, Value, ValueError};
use super::topic_keys::TOPIC_KEYS;
use std::collections::BTreeMap;
use std::fmt;

/// What happens to old data. Both may be set, or neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CleanupPolicy {
    /// Segments are deleted by age and size.
    pub(crate) delete: bool,
    /// The last value of each key is kept.
    pub(crate) compact: bool,
}

/// Whose timestamp records carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimestampType {
    /// Their producer's.
    CreateTime,
    /// The broker's, at the append.
    LogAppendTime,
}

/// The topic keys as types. Times in milliseconds; a limit that is `None` does not exist.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TopicConfig {
    /// cleanup.policy
    pub(crate) cleanup_policy: CleanupPolicy,
    /// retention.ms
    pub(crate) retention_ms: Option<u64>,
    /// retention.bytes
    pub(crate) retention_bytes: Option<u64>,
    /// segment.bytes, or internal.segment.bytes where a test sets it
    pub(crate) segment_bytes: u64,
    /// segment.ms
    pub(crate) segment_ms: u64,
    /// segment.jitter.ms
    pub(crate) segment_jitter_ms: u64,
    /// index.interval.bytes
    pub(crate) index_interval_bytes: u64,
    /// flush.messages: the durability dial
    pub(crate) flush_messages: u64,
    /// flush.ms; `None` is never
    pub(crate) flush_ms: Option<u64>,
    /// max.message.bytes
    pub(crate) max_message_bytes: u64,
    /// message.timestamp.type
    pub(crate) timestamp_type: TimestampType,
    /// message.timestamp.before.max.ms
    pub(crate) timestamp_before_max_ms: u64,
    /// message.timestamp.after.max.ms
    pub(crate) timestamp_after_max_ms: u64,
    /// delete.retention.ms
    pub(crate) delete_retention_ms: u64,
    /// min.compaction.lag.ms
    pub(crate) min_compaction_lag_ms: u64,
    /// max.compaction.lag.ms
    pub(crate) max_compaction_lag_ms: u64,
    /// min.cleanable.dirty.ratio
    pub(crate) min_cleanable_dirty_ratio: f64,
    /// file.delete.delay.ms
    pub(crate) file_delete_delay_ms: u64,
    /// max.decompressed.message.bytes
    pub(crate) max_decompressed_message_bytes: u64,
    overrides: BTreeMap<String, String>,
}

/// Why a topic cannot have these overrides: the client's fault, INVALID_CONFIG. Nothing was changed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TopicConfigError {
    /// No such key.
    UnknownKey {
        /// As asked.
        key: String,
        /// The key that looks most like it.
        nearest: Option<&'static str>,
    },
    /// The value is null.
    Null {
        /// The key.
        key: String,
    },
    /// The value is not one of the key's.
    BadValue {
        /// The key.
        key: &'static str,
        /// As asked.
        value: String,
        /// What is wrong.
        error: ValueError,
    },
    /// Kafka could do it, and this broker does not.
    Refused {
        /// The key.
        key: &'static str,
        /// As asked.
        value: String,
        /// Why not.
        why: &'static str,
    },
}

impl fmt::Display for TopicConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopicConfigError::UnknownKey { key, nearest: None } => {
                write!(f, "Unknown topic config name: {key}")
            }
            TopicConfigError::UnknownKey {
                key,
                nearest: Some(near),
            } => {
                write!(f, "Unknown topic config name: {key}; did you mean {near}?")
            }
            TopicConfigError::Null { key } => {
                write!(f, "Null value not supported for topic config {key}")
            }
            TopicConfigError::BadValue { key, value, error } => {
                write!(f, "Invalid value {value} for configuration {key}: {error}")
            }
            TopicConfigError::Refused { key, value, why } => {
                write!(f, "Invalid value {value} for configuration {key}: {why}")
            }
        }
    }
}

impl std::error::Error for TopicConfigError {}

/// The row of a topic key.
pub(crate) fn topic_key(name: &str) -> Option<&'static KeySpec> {
    TOPIC_KEYS.iter().find(|spec| spec.name == name)
}

/// Checks one override as it comes from a client; `None` is a null on the wire.
pub(crate) fn check_override(key: &str, value: Option<&str>) -> Result<Value, TopicConfigError> {
    let Some(spec) = topic_key(key) else {
        let nearest = nearest_among(key, TOPIC_KEYS.iter().map(|spec| spec.name));
        return Err(TopicConfigError::UnknownKey {
            key: key.to_owned(),
            nearest,
        });
    };
    let Some(text) = value else {
        return Err(TopicConfigError::Null {
            key: key.to_owned(),
        });
    };
    let parsed = spec
        .parse(text)
        .map_err(|error| TopicConfigError::BadValue {
            key: spec.name,
            value: text.to_owned(),
            error,
        })?;
    match refusal(spec.name, &parsed) {
        None => Ok(parsed),
        Some(why) => Err(TopicConfigError::Refused {
            key: spec.name,
            value: text.to_owned(),
            why,
        }),
    }
}

/// What Kafka offers and this broker does not: said when it is asked for, not found out later.
fn refusal(key: &'static str, value: &Value) -> Option<&'static str> {
    match (key, value) {
        ("compression.type", Value::Text(codec)) if codec != "producer" => Some(
            "this broker keeps what producers send, byte by byte, and never recompresses it; use 'producer'",
        ),
        ("remote.storage.enable", Value::Boolean(true)) => {
            Some("this broker has no tiered storage")
        }
        _ => None,
    }
}

impl TopicConfig {
    /// What holds for a topic with these overrides on this broker.
    pub(crate) fn resolve(
        settings: &Settings,
        overrides: &BTreeMap<String, String>,
    ) -> Result<TopicConfig, TopicConfigError> {
        let mut set = BTreeMap::new();
        for (key, text) in overrides {
            set.insert(key.as_str(), check_override(key, Some(text))?);
        }
        Ok(Effective { settings, set }.typed(overrides.clone()))
    }

    /// What holds for a topic without overrides.
    pub(crate) fn defaults(settings: &Settings) -> TopicConfig {
        Effective {
            settings,
            set: BTreeMap::new(),
        }
        .typed(BTreeMap::new())
    }

    /// What the topic's owner set.
    pub(crate) fn overrides(&self) -> &BTreeMap<String, String> {
        &self.overrides
    }
}

/// Looks values up: the topic's own, else the broker's.
struct Effective<'a> {
    settings: &'a Settings,
    set: BTreeMap<&'a str, Value>,
}

impl Effective<'_> {
    fn value(&self, key: &'static str) -> Value {
        let own = self.set.get(key).cloned();
        own.unwrap_or_else(|| {
            self.settings
                .effective(topic_key(key).expect("a row of the table of topic keys"))
        })
    }

    /// A number that cannot be negative; negative is "no limit".
    fn limit(&self, key: &'static str) -> Option<u64> {
        match self.value(key) {
            Value::Whole(n) => u64::try_from(n).ok(),
            _ => None,
        }
    }

    fn count(&self, key: &'static str) -> u64 {
        self.limit(key).unwrap_or(u64::MAX)
    }

    fn cleanup_policy(&self) -> CleanupPolicy {
        let Value::List(list) = self.value("cleanup.policy") else {
            return CleanupPolicy {
                delete: true,
                compact: false,
            };
        };
        let has = |name| list.iter().any(|item| item == name);
        CleanupPolicy {
            delete: has("delete"),
            compact: has("compact"),
        }
    }

    fn timestamp_type(&self) -> TimestampType {
        match self.value("message.timestamp.type") {
            Value::Text(text) if text == "LogAppendTime" => TimestampType::LogAppendTime,
            _ => TimestampType::CreateTime,
        }
    }

    fn ratio(&self) -> f64 {
        match self.value("min.cleanable.dirty.ratio") {
            Value::Real(ratio) => ratio,
            _ => 0.5,
        }
    }

    fn typed(&self, overrides: BTreeMap<String, String>) -> TopicConfig {
        let never = u64::try_from(i64::MAX).unwrap_or(u64::MAX);
        TopicConfig {
            cleanup_policy: self.cleanup_policy(),
            retention_ms: self.limit("retention.ms"),
            retention_bytes: self.limit("retention.bytes"),
            segment_bytes: self
                .limit("internal.segment.bytes")
                .unwrap_or_else(|| self.count("segment.bytes")),
            segment_ms: self.count("segment.ms"),
            segment_jitter_ms: self.count("segment.jitter.ms"),
            index_interval_bytes: self.count("index.interval.bytes"),
            flush_messages: self.count("flush.messages"),
            flush_ms: self.limit("flush.ms").filter(|&ms| ms != never),
            max_message_bytes: self.count("max.message.bytes"),
            timestamp_type: self.timestamp_type(),
            timestamp_before_max_ms: self.count("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: self.count("message.timestamp.after.max.ms"),
            delete_retention_ms: self.count("delete.retention.ms"),
            min_compaction_lag_ms: self.count("min.compaction.lag.ms"),
            max_compaction_lag_ms: self.count("max.compaction.lag.ms"),
            min_cleanable_dirty_ratio: self.ratio(),
            file_delete_delay_ms: self.count("file.delete.delay.ms"),
            max_decompressed_message_bytes: self.count("max.decompressed.message.bytes"),
            overrides,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::Origin;
    use super::super::settings::RawSetting;
    use super::*;

    fn broker(pairs: &[(&str, &str)]) -> Settings {
        let one = |&(key, value): &(&str, &str)| RawSetting {
            key: key.to_owned(),
            value: value.to_owned(),
            hidden: false,
            origin: Origin::CommandLine("--set"),
        };
        Settings::from_raw(pairs.iter().map(one).collect()).unwrap()
    }

    fn resolve(
        settings: &Settings,
        pairs: &[(&str, &str)],
    ) -> Result<TopicConfig, TopicConfigError> {
        let own = pairs
            .iter()
            .map(|&(k, v)| (k.to_owned(), v.to_owned()))
            .collect();
        TopicConfig::resolve(settings, &own)
    }

    #[test]
    fn a_topic_without_overrides_follows_the_broker_and_the_broker_its_defaults() {
        let plain = resolve(&Settings::default(), &[]).unwrap();
        assert_eq!(plain.retention_ms, Some(604_800_000));
        assert_eq!(plain.retention_bytes, None);
        assert_eq!(
            (plain.segment_bytes, plain.segment_ms),
            (1 << 30, 604_800_000)
        );
        assert_eq!(
            (plain.flush_messages, plain.flush_ms),
            (1, None),
            "acks=all is an fsync by default"
        );
        assert_eq!(plain.max_message_bytes, 1_048_588);
        let settings = broker(&[
            ("log.retention.hours", "2"),
            ("log.flush.interval.messages", "100"),
            ("log.roll.hours", "1"),
            ("log.flush.scheduler.interval.ms", "500"),
        ]);
        let set = resolve(
            &settings,
            &[("flush.messages", "7"), ("retention.bytes", "9")],
        )
        .unwrap();
        assert_eq!(set.retention_ms, Some(7_200_000));
        assert_eq!(set.flush_messages, 7);
        assert_eq!(set.flush_ms, Some(500));
        assert_eq!(set.segment_ms, 3_600_000);
        assert_eq!(set.retention_bytes, Some(9));
        assert_eq!(set.overrides().len(), 2);
    }

    #[test]
    fn t10_compaction_is_accepted_and_kept() {
        let policy = |text| {
            resolve(&Settings::default(), &[("cleanup.policy", text)])
                .unwrap()
                .cleanup_policy
        };
        assert_eq!(
            policy("compact"),
            CleanupPolicy {
                delete: false,
                compact: true
            }
        );
        assert_eq!(
            policy("compact, delete"),
            CleanupPolicy {
                delete: true,
                compact: true
            }
        );
    }

    #[test]
    fn w13_a_codec_asked_of_the_topic_is_refused_with_the_reason() {
        let error = resolve(&Settings::default(), &[("compression.type", "zstd")]).unwrap_err();
        assert!(
            error.to_string().contains("keeps what producers send"),
            "{error}"
        );
        assert!(resolve(&Settings::default(), &[("compression.type", "producer")]).is_ok());
    }

    #[test]
    fn overrides_that_kafka_refuses_are_refused_with_the_key() {
        for (key, value) in [
            ("nope", "1"),
            ("retension.ms", "1"),
            ("segment.bytes", "1000"),
            ("retention.ms", "-2"),
            ("cleanup.policy", "Compact"),
            ("message.timestamp.type", "createtime"),
            ("flush.messages", "0"),
            ("max.compaction.lag.ms", "0"),
            ("compression.type", "none"),
            ("remote.storage.enable", "true"),
        ] {
            let error = resolve(&Settings::default(), &[(key, value)]).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
        let null = check_override("retention.ms", None).unwrap_err();
        assert_eq!(
            null,
            TopicConfigError::Null {
                key: "retention.ms".to_owned()
            }
        );
    }

    #[test]
    fn tests_may_have_tiny_segments() {
        assert_eq!(
            resolve(&Settings::default(), &[("internal.segment.bytes", "500")])
                .unwrap()
                .segment_bytes,
            500
        );
    }
}
