//! The settings that were made, each checked against its row, and what holds where none was made.
//!
//! Owns:     which source wins (command line over file, later line over earlier), the search for the nearest known
//!           key, the list of keys without a meaning.
//! Does not: give the values Rust types and names (`Config`, `TopicConfig` do).
//!
//! # Invariants
//! S1. Every value in `explicit` has passed the check of its row.
use super::broker_keys::BROKER_KEYS;
use super::error::{ConfigError, Fault, Origin, Problem};
use super::foreign_keys::{FOREIGN_KEYS, is_foreign};
use super::properties;
use super::spec::{Effect, KeySpec, Value};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// The key of how much is logged.
pub(crate) const LOG_LEVEL: &str = "logging.level";

/// Longest configuration file read: a Kafka file with every key and its documentation has 0.2 MiB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A setting somebody made.
#[derive(Debug, Clone)]
pub(crate) struct Explicit {
    /// As written, without white space around it.
    pub(crate) text: String,
    /// Checked.
    pub(crate) value: Value,
    /// Where.
    pub(crate) origin: Origin,
}

/// All settings of the broker.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    explicit: BTreeMap<&'static str, Explicit>,
    /// What was set for single listeners, by the whole key.
    of_listeners: BTreeMap<String, Explicit>,
    without_effect: BTreeMap<String, Origin>,
}

/// A key and its value before any check.
#[derive(Debug, Clone)]
pub(crate) struct RawSetting {
    /// The key as given.
    pub(crate) key: String,
    /// The value as given.
    pub(crate) value: String,
    /// Whether messages may not show the value.
    pub(crate) hidden: bool,
    /// Where.
    pub(crate) origin: Origin,
}

/// The row of a broker key.
pub(crate) fn broker_key(name: &str) -> Option<&'static KeySpec> {
    BROKER_KEYS.iter().find(|spec| spec.name == name)
}

/// What the keys of single listeners begin with.
const LISTENER_PREFIX: &str = "listener.name.";

/// The row behind a key of a single listener.
fn listener_key(key: &str) -> Option<&'static KeySpec> {
    let rest = key.strip_prefix(LISTENER_PREFIX)?;
    let rows = BROKER_KEYS.iter().filter(|spec| spec.per_listener);
    rows.filter(|spec| {
        rest.strip_suffix(spec.name)
            .is_some_and(|of| of.ends_with('.'))
    })
    .max_by_key(|spec| spec.name.len())
}

fn checked(spec: &'static KeySpec, raw: &RawSetting) -> Result<(String, Value), Fault> {
    let text = raw.value.trim().to_owned();
    match spec.parse(&text) {
        Ok(value) => Ok((text, value)),
        Err(error) => Err(Fault::BadValue {
            key: spec.name,
            value: (!spec.is_sensitive() && !raw.hidden).then_some(text),
            error,
        }),
    }
}

/// The settings of a file, in its order.
pub(crate) fn read_file(path: &Path) -> Result<Vec<RawSetting>, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let Some(bytes) = read_bounded(path).map_err(unreadable)? else {
        return Err(ConfigError::TooLarge {
            path: path.to_owned(),
            limit: FILE_BYTES_MAX,
        });
    };
    let shared: Arc<Path> = path.into();
    let at = |line| Origin::File {
        path: Arc::clone(&shared),
        line,
    };
    let entries = properties::parse(&properties::decode(&bytes)).map_err(|error| {
        let origin = Some(at(error.line));
        ConfigError::Problems(vec![Problem {
            origin,
            fault: Fault::BadEscape(error),
        }])
    })?;
    let raw = |e: properties::Entry| RawSetting {
        origin: at(e.line),
        key: e.key,
        value: e.value,
        hidden: false,
    };
    Ok(entries.into_iter().map(raw).collect())
}

/// The bytes of a file; `None` for one with more than `FILE_BYTES_MAX`.
pub(super) fn read_bounded(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    let fits = u64::try_from(bytes.len()).is_ok_and(|len| len <= FILE_BYTES_MAX);
    Ok(fits.then_some(bytes))
}

impl Settings {
    /// Checks settings in the order of rising precedence. All problems found are returned at once.
    #[cfg(test)]
    pub(crate) fn from_raw(raw: Vec<RawSetting>) -> Result<Settings, Vec<Problem>> {
        let (settings, problems) = Settings::checked(raw);
        if problems.is_empty() {
            Ok(settings)
        } else {
            Err(problems)
        }
    }

    /// As `from_raw`: what is right of the settings, and all problems found.
    pub(crate) fn checked(raw: Vec<RawSetting>) -> (Settings, Vec<Problem>) {
        let mut settings = Settings::default();
        let mut problems = Vec::new();
        for one in raw {
            let origin = one.origin.clone();
            if let Err(fault) = settings.put(one) {
                problems.push(Problem {
                    origin: Some(origin),
                    fault,
                });
            }
        }
        (settings, problems)
    }

    fn put(&mut self, raw: RawSetting) -> Result<(), Fault> {
        if let Some(spec) = listener_key(&raw.key) {
            return self.put_of_listener(spec, raw);
        }
        let Some(spec) = broker_key(&raw.key) else {
            if !is_foreign(&raw.key) {
                let nearest = nearest(&raw.key);
                return Err(Fault::UnknownKey {
                    key: raw.key,
                    nearest,
                });
            }
            self.without_effect.insert(raw.key, raw.origin);
            return Ok(());
        };
        let (text, value) = checked(spec, &raw)?;
        let codec_asked = spec.name == "compression.type" && text != "producer";
        if spec.effect == Effect::Kept || codec_asked {
            self.without_effect.insert(raw.key, raw.origin.clone());
        }
        if !codec_asked {
            self.explicit.insert(
                spec.name,
                Explicit {
                    text,
                    value,
                    origin: raw.origin,
                },
            );
        }
        Ok(())
    }

    fn put_of_listener(&mut self, spec: &'static KeySpec, raw: RawSetting) -> Result<(), Fault> {
        let (text, value) = checked(spec, &raw)?;
        if spec.effect == Effect::Kept {
            self.without_effect
                .insert(raw.key.clone(), raw.origin.clone());
        }
        let origin = raw.origin;
        let explicit = Explicit {
            text,
            value,
            origin,
        };
        self.of_listeners.insert(raw.key, explicit);
        Ok(())
    }

    /// What was set for one listener (by its name, or by that and a mechanism: `out.plain`), if anything was.
    pub(crate) fn explicit_of_listener(&self, of: &str, name: &str) -> Option<&Explicit> {
        let of = of.to_ascii_lowercase();
        self.of_listeners
            .get(&format!("{LISTENER_PREFIX}{of}.{name}"))
    }

    /// What was set for the key, if anything was.
    pub(crate) fn explicit(&self, name: &str) -> Option<&Explicit> {
        self.explicit.get(name)
    }

    /// Keys that were set and have no effect here, by name.
    pub(crate) fn without_effect(&self) -> impl Iterator<Item = (&str, &Origin)> {
        let all = self.without_effect.iter();
        all.map(|(key, origin)| (key.as_str(), origin))
    }

    /// Keys whose values are others in `newer`.
    pub(crate) fn changes(&self, newer: &Settings) -> Vec<&'static str> {
        let value =
            |settings: &Settings, name| settings.explicit(name).map(|set| set.value.clone());
        let names = BROKER_KEYS.iter().map(|spec| spec.name);
        names
            .filter(|name| value(self, name) != value(newer, name))
            .collect()
    }

    /// Whether a change of the key is acted on while the broker runs.
    pub(crate) fn is_live(name: &str) -> bool {
        broker_key(name).is_some_and(|spec| spec.dynamic)
    }

    /// These settings, with those of `newer` for some keys.
    pub(crate) fn taking(&self, newer: &Settings, keys: &[&'static str]) -> Settings {
        let mut taken = self.clone();
        for key in keys {
            match newer.explicit.get(key) {
                Some(set) => taken.explicit.insert(key, set.clone()),
                None => taken.explicit.remove(key),
            };
        }
        taken
    }

    /// The key, with the file and line, or the option, where it was set.
    pub(crate) fn place(&self, name: &str) -> String {
        match self.explicit.get(name) {
            Some(set) => format!("{name}, {}", set.origin),
            None => format!("{name}, by default"),
        }
    }

    /// What holds for this row: its own setting, that of a key behind it, the default of either.
    pub(crate) fn effective(&self, spec: &KeySpec) -> Value {
        self.first_explicit(spec)
            .unwrap_or_else(|| self.default_of(spec))
    }

    fn first_explicit(&self, spec: &KeySpec) -> Option<Value> {
        if let Some(set) = self.explicit.get(spec.name) {
            return Some(set.value.clone());
        }
        let behind = spec.synonyms.iter();
        behind
            .filter_map(|s| Some(s.scale.apply(&self.explicit.get(s.name)?.value)))
            .next()
    }

    /// A row with a default of its own uses it; the others use that of the first key behind them that has one.
    fn default_of(&self, spec: &KeySpec) -> Value {
        if spec.default.is_some() {
            return spec.default_value();
        }
        let behind = spec.synonyms.iter();
        let defaults =
            behind.filter_map(|s| Some(s.scale.apply(&broker_key(s.name)?.default_value())));
        defaults
            .into_iter()
            .find(|value| *value != Value::Null)
            .unwrap_or(Value::Null)
    }
}

/// The known key nearest to a misspelt one, if one is near.
pub(crate) fn nearest(key: &str) -> Option<&'static str> {
    let ours = BROKER_KEYS.iter().map(|spec| spec.name);
    nearest_among(key, ours.chain(FOREIGN_KEYS.iter().copied()))
}

/// The name nearest to a misspelt one, if one is within a third of its length.
pub(crate) fn nearest_among(
    key: &str,
    names: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    // Longer than any key and its typing errors; the distance costs the product of the lengths.
    if key.len() > 100 {
        return None;
    }
    let folded = key.to_ascii_lowercase().replace(['_', '-'], ".");
    let best = names.map(|name| (distance(&folded, name), name)).min()?;
    (best.0 <= key.len().div_ceil(3)).then_some(best.1)
}

/// Levenshtein's distance in bytes: keys are ASCII.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::topic_keys::TOPIC_KEYS;

    fn raw(pairs: &[(&str, &str)]) -> Vec<RawSetting> {
        let one = |&(key, value): &(&str, &str)| RawSetting {
            key: key.to_owned(),
            value: value.to_owned(),
            hidden: false,
            origin: Origin::CommandLine("--set"),
        };
        pairs.iter().map(one).collect()
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        for (typed, meant) in [
            ("num.partition", Some("num.partitions")),
            ("log.retension.hours", Some("log.retention.hours")),
            ("log_dirs", Some("log.dirs")),
            ("ssl.keystore.locaton", Some("ssl.keystore.location")),
            ("something.else.altogether.that.is.far", None),
            (&"x".repeat(5000), None),
        ] {
            let problems = Settings::from_raw(raw(&[(typed, "1")])).unwrap_err();
            let expected = Fault::UnknownKey {
                key: typed.to_owned(),
                nearest: meant,
            };
            assert_eq!(problems[0].fault, expected);
        }
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let all = raw(&[
            ("num.partitions", "0"),
            ("nope", "1"),
            ("log.roll.ms", "x"),
            ("node.id", "3"),
        ]);
        assert_eq!(Settings::from_raw(all).unwrap_err().len(), 3);
    }

    #[test]
    fn the_later_setting_wins_and_a_nearer_key_beats_a_later_one() {
        let set = Settings::from_raw(raw(&[
            ("num.partitions", "3"),
            ("num.partitions", "5"),
            ("log.retention.ms", "7"),
            ("log.retention.hours", "1"),
        ]))
        .unwrap();
        let value = |name| set.effective(broker_key(name).unwrap());
        assert_eq!(value("num.partitions"), Value::Whole(5));
        assert_eq!(value("log.retention.ms"), Value::Whole(7));
        assert_eq!(value("log.roll.ms"), Value::Whole(604_800_000));
    }

    #[test]
    fn only_keys_that_are_acted_on_at_once_are_taken_over() {
        let before = Settings::from_raw(raw(&[("log.retention.ms", "7"), ("node.id", "3")]));
        let after = Settings::from_raw(raw(&[("log.segment.bytes", "1048577"), ("node.id", "4")]));
        let (before, after) = (before.unwrap(), after.unwrap());
        let mut changed = before.changes(&after);
        changed.sort_unstable();
        assert_eq!(
            changed,
            ["log.retention.ms", "log.segment.bytes", "node.id"]
        );
        changed.retain(|key| Settings::is_live(key));
        assert_eq!(changed, ["log.retention.ms", "log.segment.bytes"]);
        let taken = before.taking(&after, &changed);
        assert_eq!(taken.changes(&after), ["node.id"]);
    }

    #[test]
    fn what_is_marked_as_dynamic_is_taken_over_while_the_broker_runs() {
        // A reload hands on the defaults of topics and these, and nothing else.
        const OTHERS: [&str; 7] = [
            LOG_LEVEL,
            "log.cleaner.backoff.ms",
            "log.cleaner.io.max.bytes.per.second",
            "max.connection.creation.rate",
            "max.connections",
            "max.connections.per.ip",
            "producer.id.expiration.ms",
        ];
        let is_default = |name| {
            let of = |topic: &KeySpec| topic.synonyms.iter().any(|s| s.name == name);
            TOPIC_KEYS.iter().any(of)
        };
        for spec in BROKER_KEYS.iter().filter(|spec| spec.dynamic) {
            let name = spec.name;
            assert!(OTHERS.contains(&name) || is_default(name), "{name}");
        }
    }

    #[test]
    fn keys_without_a_meaning_are_accepted_and_listed() {
        let set = Settings::from_raw(raw(&[
            ("process.roles", "broker,controller"),
            ("zookeeper.connect", "localhost:2181"),
            ("min.insync.replicas", "2"),
            ("compression.type", "zstd"),
            ("num.partitions", "2"),
        ]))
        .unwrap();
        let listed: Vec<_> = set.without_effect().map(|row| row.0).collect();
        assert_eq!(
            listed,
            [
                "compression.type",
                "min.insync.replicas",
                "process.roles",
                "zookeeper.connect"
            ]
        );
        assert!(
            set.explicit("compression.type").is_none(),
            "what is described is what is done"
        );
    }
}
