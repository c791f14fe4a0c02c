//! All that holds, with where each value comes from: the answers of DescribeConfigs and of CreateTopics v5.
//!
//! Owns:     sources and synonyms (KIP-226), truthful about values that come from a key in another unit.
//! Does not: filter by the keys a client asked for, or know wire types.
use super::broker_keys::BROKER_KEYS;
use super::settings::{Settings, broker_key};
use super::spec::{KeySpec, Kind, Scale, Synonym, Value};
use super::topic::TopicConfig;
use super::topic_keys::TOPIC_KEYS;

/// Where a value comes from; the numbers are those of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigSource {
    /// Set on the topic.
    Topic,
    /// Set in the file or on the command line.
    StaticBroker,
    /// Nobody set it.
    Default,
}

impl ConfigSource {
    /// The number of this source in DescribeConfigs answers.
    pub(crate) fn wire_code(self) -> i8 {
        match self {
            ConfigSource::Topic => 1,
            ConfigSource::StaticBroker => 4,
            ConfigSource::Default => 5,
        }
    }
}

/// One place that gives, or would give, a key its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SynonymEntry {
    /// The key in that place.
    pub(crate) name: &'static str,
    /// Its value there, in that key's unit; `None` for a secret.
    pub(crate) value: Option<String>,
    /// Which place.
    pub(crate) source: ConfigSource,
}

/// One key, its value and its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigEntry {
    /// The key.
    pub(crate) name: &'static str,
    /// What holds; `None` is null, or a secret.
    pub(crate) value: Option<String>,
    /// Where it comes from.
    pub(crate) source: ConfigSource,
    /// Whether it cannot be altered while the broker runs.
    pub(crate) read_only: bool,
    /// Whether the value is a secret.
    pub(crate) is_sensitive: bool,
    /// The type.
    pub(crate) kind: Kind,
    /// For people.
    pub(crate) doc: &'static str,
    /// Who gives the value, nearest first.
    pub(crate) synonyms: Vec<SynonymEntry>,
}

/// Every key of a topic, by name.
pub(crate) fn describe_topic(settings: &Settings, topic: &TopicConfig) -> Vec<ConfigEntry> {
    let shown = TOPIC_KEYS.iter().filter(|spec| !spec.internal);
    shown
        .map(|spec| topic_entry(settings, topic, spec))
        .collect()
}

/// Every key of the broker that means something here.
pub(crate) fn describe_broker(settings: &Settings) -> Vec<ConfigEntry> {
    let mut entries: Vec<_> = BROKER_KEYS
        .iter()
        .map(|spec| broker_entry(settings, spec))
        .collect();
    entries.sort_by_key(|entry| entry.name);
    entries
}

fn topic_entry(settings: &Settings, topic: &TopicConfig, spec: &'static KeySpec) -> ConfigEntry {
    let mut synonyms = behind(settings, spec.synonyms);
    let own = topic
        .overrides()
        .get(spec.name)
        .and_then(|text| spec.parse(text).ok());
    let value = own.clone().unwrap_or_else(|| settings.effective(spec));
    if own.is_some() {
        let value = value.to_wire();
        synonyms.insert(
            0,
            SynonymEntry {
                name: spec.name,
                value,
                source: ConfigSource::Topic,
            },
        );
    }
    entry(spec, &value, synonyms, false)
}

fn broker_entry(settings: &Settings, spec: &'static KeySpec) -> ConfigEntry {
    let mut places = vec![Synonym {
        name: spec.name,
        scale: Scale::Same,
    }];
    places.extend_from_slice(spec.synonyms);
    let own = settings.explicit(spec.name).map(|set| set.value.clone());
    let value = own.unwrap_or_else(|| spec.default_value());
    // A key that is not set is shown as null, as in Kafka, although a key behind it holds: that one is a synonym.
    entry(spec, &value, behind(settings, &places), !spec.dynamic)
}

fn entry(
    spec: &'static KeySpec,
    value: &Value,
    synonyms: Vec<SynonymEntry>,
    read_only: bool,
) -> ConfigEntry {
    ConfigEntry {
        name: spec.name,
        value: shown(spec, value),
        source: synonyms
            .first()
            .map_or(ConfigSource::Default, |first| first.source),
        read_only,
        is_sensitive: spec.is_sensitive(),
        kind: spec.kind,
        doc: spec.doc,
        synonyms,
    }
}

/// What was set in these places first, then their defaults.
fn behind(settings: &Settings, places: &[Synonym]) -> Vec<SynonymEntry> {
    let specs: Vec<&'static KeySpec> = places
        .iter()
        .filter_map(|place| broker_key(place.name))
        .collect();
    let set = specs.iter().filter_map(|spec| {
        let value = &settings.explicit(spec.name)?.value;
        Some(SynonymEntry {
            name: spec.name,
            value: shown(spec, value),
            source: ConfigSource::StaticBroker,
        })
    });
    let defaults = specs
        .iter()
        .filter(|spec| spec.default.is_some())
        .map(|spec| {
            let value = shown(spec, &spec.default_value());
            SynonymEntry {
                name: spec.name,
                value,
                source: ConfigSource::Default,
            }
        });
    set.chain(defaults).collect()
}

fn shown(spec: &KeySpec, value: &Value) -> Option<String> {
    if spec.is_sensitive() {
        None
    } else {
        value.to_wire()
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::Origin;
    use super::super::settings::RawSetting;
    use super::*;
    use std::collections::BTreeMap;

    fn broker(pairs: &[(&str, &str)]) -> Settings {
        let one = |&(key, value): &(&str, &str)| RawSetting {
            key: key.to_owned(),
            value: value.to_owned(),
            hidden: false,
            origin: Origin::CommandLine("--set"),
        };
        Settings::from_raw(pairs.iter().map(one).collect()).unwrap()
    }

    fn topic_entry_of(settings: &Settings, own: &[(&str, &str)], name: &str) -> ConfigEntry {
        let own: BTreeMap<_, _> = own
            .iter()
            .map(|&(k, v)| (k.to_owned(), v.to_owned()))
            .collect();
        let topic = TopicConfig::resolve(settings, &own).unwrap();
        describe_topic(settings, &topic)
            .into_iter()
            .find(|e| e.name == name)
            .unwrap()
    }

    #[track_caller]
    fn check(
        entry: &ConfigEntry,
        value: Option<&str>,
        source: ConfigSource,
        synonyms: &[(&str, &str, i8)],
    ) {
        assert_eq!(
            (entry.value.as_deref(), entry.source),
            (value, source),
            "{}",
            entry.name
        );
        let got: Vec<_> = entry
            .synonyms
            .iter()
            .map(|s| {
                (
                    s.name,
                    s.value.as_deref().unwrap_or("null"),
                    s.source.wire_code(),
                )
            })
            .collect();
        assert_eq!(got, synonyms);
    }

    #[test]
    fn t07_an_untouched_topic_has_defaults_with_their_synonyms() {
        let plain = Settings::default();
        let segment = topic_entry_of(&plain, &[], "segment.bytes");
        check(
            &segment,
            Some("1073741824"),
            ConfigSource::Default,
            &[("log.segment.bytes", "1073741824", 5)],
        );
        assert!(!segment.read_only && segment.kind.wire_code() == 3 && !segment.doc.is_empty());
        let retention = topic_entry_of(&plain, &[], "retention.ms");
        check(
            &retention,
            Some("604800000"),
            ConfigSource::Default,
            &[("log.retention.hours", "168", 5)],
        );
    }

    #[test]
    fn t05_sources_tell_who_set_a_value() {
        let settings = broker(&[("log.retention.hours", "2")]);
        let inherited = topic_entry_of(&settings, &[], "retention.ms");
        let behind = [
            ("log.retention.hours", "2", 4),
            ("log.retention.hours", "168", 5),
        ];
        check(
            &inherited,
            Some("7200000"),
            ConfigSource::StaticBroker,
            &behind,
        );
        let own = topic_entry_of(&settings, &[("retention.ms", "5")], "retention.ms");
        let all = [("retention.ms", "5", 1), behind[0], behind[1]];
        check(&own, Some("5"), ConfigSource::Topic, &all);
    }

    #[test]
    fn t13_the_broker_describes_what_tools_look_for() {
        let entries = describe_broker(&broker(&[("num.partitions", "3")]));
        let find = |name: &str| entries.iter().find(|e| e.name == name).unwrap();
        for name in [
            "log.retention.ms",
            "log.retention.hours",
            "message.max.bytes",
            "auto.create.topics.enable",
        ] {
            find(name);
        }
        let behind = [("num.partitions", "3", 4), ("num.partitions", "1", 5)];
        check(
            find("num.partitions"),
            Some("3"),
            ConfigSource::StaticBroker,
            &behind,
        );
        check(
            find("log.retention.ms"),
            None,
            ConfigSource::Default,
            &[("log.retention.hours", "168", 5)],
        );
        assert!(find("node.id").read_only && !find("message.max.bytes").read_only);
        assert!(entries.is_sorted_by_key(|e| e.name));
    }

    #[test]
    fn keys_for_tests_are_not_described() {
        let topic = TopicConfig::resolve(&Settings::default(), &BTreeMap::new()).unwrap();
        let entries = describe_topic(&Settings::default(), &topic);
        assert!(entries.iter().all(|e| e.name != "internal.segment.bytes"));
    }
}
