//! What a configuration key is: one row of a table, and how a text becomes a value of it.
//!
//! Owns:     `KeySpec`, `Value`, and the only conversion from text to a checked value.
//! Does not: know which keys exist (`broker_keys`, `topic_keys`) or where a text came from.
//!
//! # Invariants
//! K1. A `Value` made from a row has passed the range of that row.
//! K2. The default of a row parses by that row (a test walks both tables).
use std::fmt;

/// Kafka's types of configuration values, by the names that DescribeConfigs uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `true` or `false`, in any case.
    Boolean,
    /// A whole number of 32 bits.
    Int,
    /// A whole number of 64 bits.
    Long,
    /// A number with a fraction.
    Double,
    /// Any text.
    String,
    /// Texts separated by commas; a repeated one counts once, as in Kafka.
    List,
    /// A secret: never shown.
    Password,
}

impl Kind {
    /// The number of this type in DescribeConfigs answers (KIP-569).
    pub(crate) fn wire_code(self) -> i8 {
        match self {
            Kind::Boolean => 1,
            Kind::String => 2,
            Kind::Int => 3,
            Kind::Long => 5,
            Kind::Double => 6,
            Kind::List => 7,
            Kind::Password => 9,
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Kind::Boolean => "true or false",
            Kind::Int => "a whole number of 32 bits",
            Kind::Long => "a whole number of 64 bits",
            Kind::Double => "a number",
            Kind::String | Kind::Password => "a text",
            Kind::List => "a list separated by commas",
        }
    }
}

/// Which values of the right type are allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Range {
    /// Every value of the type.
    Any,
    /// Whole numbers from the first to the second, both included.
    Whole(i64, i64),
    /// Numbers from the first to the second, both included.
    Real(f64, f64),
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A list whose members are among these texts; it may be empty.
    Among(&'static [&'static str]),
    /// Not empty.
    NotEmpty,
}

/// What a key does here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The broker acts on it.
    Acts,
    /// It is checked, kept and described, and nothing acts on it (yet).
    Kept,
}

/// How a value of a broker key becomes the value of the topic key it stands behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// As it is.
    Same,
    /// Minutes to milliseconds.
    MinutesToMs,
    /// Hours to milliseconds.
    HoursToMs,
}

impl Scale {
    fn factor(self) -> i64 {
        match self {
            Scale::Same => 1,
            Scale::MinutesToMs => 60_000,
            Scale::HoursToMs => 3_600_000,
        }
    }

    /// The value in the unit of the key in front; negative numbers ("no limit") stay -1 as in Kafka.
    pub(crate) fn apply(self, value: &Value) -> Value {
        match value {
            Value::Whole(n) if self != Scale::Same && *n < 0 => Value::Whole(-1),
            Value::Whole(n) => Value::Whole(n.saturating_mul(self.factor())),
            other => other.clone(),
        }
    }
}

/// A broker key whose value is used where the key in front of it is not set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Synonym {
    /// The broker key.
    pub(crate) name: &'static str,
    /// Its unit.
    pub(crate) scale: Scale,
}

/// One row: everything we know about one key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeySpec {
    /// Kafka's name, or ours.
    pub(crate) name: &'static str,
    /// The type of its values.
    pub(crate) kind: Kind,
    /// The default as text; `None` is Kafka's null.
    pub(crate) default: Option<&'static str>,
    /// The values allowed.
    pub(crate) range: Range,
    /// What it does, for people.
    pub(crate) doc: &'static str,
    /// Whether it may be altered while the broker runs.
    pub(crate) dynamic: bool,
    /// Whether anything acts on it.
    pub(crate) effect: Effect,
    /// Ours: Kafka has no such key.
    pub(crate) ours: bool,
    /// For tests of Kafka and ours: accepted and never described.
    pub(crate) internal: bool,
    /// Whether a listener may have a value of its own (`listener.name.<l>.<key>`).
    pub(crate) per_listener: bool,
    /// Broker keys that stand behind this one, nearest first.
    pub(crate) synonyms: &'static [Synonym],
    /// How the key stands in the packaged file: `None` is a comment with the default.
    pub(crate) packaged: Option<&'static str>,
}

impl KeySpec {
    /// A row with nothing but name, type and default; the rest by the methods below.
    pub(crate) const fn new(
        name: &'static str,
        kind: Kind,
        default: Option<&'static str>,
    ) -> KeySpec {
        KeySpec {
            name,
            kind,
            default,
            range: Range::Any,
            doc: "",
            dynamic: false,
            effect: Effect::Acts,
            ours: false,
            internal: false,
            per_listener: false,
            synonyms: &[],
            packaged: None,
        }
    }

    /// The values allowed.
    pub(crate) const fn range(mut self, range: Range) -> KeySpec {
        self.range = range;
        self
    }

    /// Whole numbers from `min` on.
    pub(crate) const fn min(self, min: i64) -> KeySpec {
        self.range(Range::Whole(min, i64::MAX))
    }

    /// What it does.
    pub(crate) const fn doc(mut self, doc: &'static str) -> KeySpec {
        self.doc = doc;
        self
    }

    /// May be altered while the broker runs.
    pub(crate) const fn dynamic(mut self) -> KeySpec {
        self.dynamic = true;
        self
    }

    /// Checked, kept and described only.
    pub(crate) const fn kept(mut self) -> KeySpec {
        self.effect = Effect::Kept;
        self
    }

    /// A key of ours.
    pub(crate) const fn ours(mut self) -> KeySpec {
        self.ours = true;
        self
    }

    /// For tests only.
    pub(crate) const fn internal(mut self) -> KeySpec {
        self.internal = true;
        self
    }

    /// A listener may have a value of its own.
    pub(crate) const fn per_listener(mut self) -> KeySpec {
        self.per_listener = true;
        self
    }

    /// Broker keys that stand behind this one.
    pub(crate) const fn behind(mut self, synonyms: &'static [Synonym]) -> KeySpec {
        self.synonyms = synonyms;
        self
    }

    /// The value that the packaged file sets.
    pub(crate) const fn packaged(mut self, value: &'static str) -> KeySpec {
        self.packaged = Some(value);
        self
    }

    /// Whether its value must never be shown.
    pub(crate) fn is_sensitive(&self) -> bool {
        self.kind == Kind::Password
    }

    /// The default as a value; `Value::Null` where Kafka has null.
    pub(crate) fn default_value(&self) -> Value {
        match self.default {
            None => Value::Null,
            Some(text) => self.parse(text).unwrap_or(Value::Null),
        }
    }

    /// Reads a text as a value of this key.
    pub(crate) fn parse(&self, text: &str) -> Result<Value, ValueError> {
        let value = self.parse_kind(text.trim())?;
        self.check_range(&value)?;
        Ok(value)
    }

    fn parse_kind(&self, text: &str) -> Result<Value, ValueError> {
        let wrong = || ValueError::Type { kind: self.kind };
        Ok(match self.kind {
            Kind::Boolean if text.eq_ignore_ascii_case("true") => Value::Boolean(true),
            Kind::Boolean if text.eq_ignore_ascii_case("false") => Value::Boolean(false),
            Kind::Boolean => return Err(wrong()),
            Kind::Int => Value::Whole(text.parse::<i32>().map_err(|_| wrong())?.into()),
            Kind::Long => Value::Whole(text.parse::<i64>().map_err(|_| wrong())?),
            Kind::Double => Value::Real(parse_real(text).ok_or_else(wrong)?),
            Kind::String | Kind::Password => Value::Text(text.to_owned()),
            Kind::List => Value::List(split_list(text)),
        })
    }

    fn check_range(&self, value: &Value) -> Result<(), ValueError> {
        let fits = match (self.range, value) {
            (Range::Whole(min, max), Value::Whole(n)) => (min..=max).contains(n),
            (Range::Real(min, max), Value::Real(n)) => (min..=max).contains(n),
            (Range::OneOf(texts), Value::Text(text)) => texts.contains(&text.as_str()),
            (Range::Among(texts), Value::List(list)) => {
                list.iter().all(|item| texts.contains(&item.as_str()))
            }
            (Range::NotEmpty, Value::Text(text)) => !text.is_empty(),
            (Range::NotEmpty, Value::List(list)) => !list.is_empty(),
            _ => true,
        };
        if fits {
            Ok(())
        } else {
            Err(ValueError::Range { range: self.range })
        }
    }
}

fn parse_real(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|n| n.is_finite())
}

fn split_list(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut items: Vec<String> = Vec::new();
    for item in text.split(',').map(str::trim) {
        if !items.iter().any(|seen| seen == item) {
            items.push(item.to_owned());
        }
    }
    items
}

/// A checked value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Not set, and no default.
    Null,
    /// Of `Kind::Boolean`.
    Boolean(bool),
    /// Of `Kind::Int` and `Kind::Long`.
    Whole(i64),
    /// Of `Kind::Double`.
    Real(f64),
    /// Of `Kind::String` and `Kind::Password`.
    Text(String),
    /// Of `Kind::List`.
    List(Vec<String>),
}

impl Value {
    /// As DescribeConfigs shows it; `None` for null.
    pub(crate) fn to_wire(&self) -> Option<String> {
        match self {
            Value::Null => None,
            Value::List(list) => Some(list.join(",")),
            Value::Boolean(yes) => Some(yes.to_string()),
            Value::Whole(n) => Some(n.to_string()),
            Value::Real(n) => Some(format!("{n:?}")),
            Value::Text(text) => Some(text.clone()),
        }
    }
}

/// Why a text is no value of its key. The peer's or the file's fault; nothing was changed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ValueError {
    /// Not of the type.
    Type {
        /// The type wanted.
        kind: Kind,
    },
    /// Of the type, but not allowed.
    Range {
        /// What is allowed.
        range: Range,
    },
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueError::Type { kind } => write!(f, "it must be {}", kind.noun()),
            ValueError::Range { range } => write!(f, "it must be {range}"),
        }
    }
}

impl std::error::Error for ValueError {}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Range::Any => write!(f, "anything"),
            Range::Whole(min, i64::MAX) => write!(f, "{min} or more"),
            Range::Whole(min, max) => write!(f, "from {min} to {max}"),
            Range::Real(min, max) => write!(f, "from {min} to {max}"),
            Range::OneOf(texts) => write!(f, "one of {}", texts.join(", ")),
            Range::Among(texts) => write!(f, "a list of {}", texts.join(", ")),
            Range::NotEmpty => write!(f, "given"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spec: &KeySpec, text: &str, expected: Result<Value, &str>) {
        let got = spec.parse(text).map_err(|e| e.to_string());
        assert_eq!(got, expected.map_err(str::to_owned), "{text:?}");
    }

    #[test]
    fn texts_become_values_only_within_type_and_range() {
        let int = KeySpec::new("i", Kind::Int, None).range(Range::Whole(1, 9));
        check(&int, " 5 ", Ok(Value::Whole(5)));
        check(&int, "+7", Ok(Value::Whole(7)));
        check(&int, "0", Err("it must be from 1 to 9"));
        check(&int, "0x7", Err("it must be a whole number of 32 bits"));
        check(&int, "", Err("it must be a whole number of 32 bits"));
        check(
            &int,
            "2147483648",
            Err("it must be a whole number of 32 bits"),
        );
        let long = KeySpec::new("l", Kind::Long, None).min(-1);
        check(&long, "9223372036854775807", Ok(Value::Whole(i64::MAX)));
        check(
            &long,
            "9223372036854775808",
            Err("it must be a whole number of 64 bits"),
        );
        check(&long, "-2", Err("it must be -1 or more"));
        let real = KeySpec::new("d", Kind::Double, None).range(Range::Real(0.0, 1.0));
        check(&real, ".5", Ok(Value::Real(0.5)));
        check(&real, "NaN", Err("it must be a number"));
        check(&real, "1.5", Err("it must be from 0 to 1"));
        let list = KeySpec::new("p", Kind::List, None).range(Range::Among(&["a", "b"]));
        check(
            &list,
            " a , b ",
            Ok(Value::List(vec!["a".into(), "b".into()])),
        );
        check(&list, "a,a", Ok(Value::List(vec!["a".into()])));
        check(&list, "", Ok(Value::List(Vec::new())));
        check(&list, "A", Err("it must be a list of a, b"));
        check(&list, "a,", Err("it must be a list of a, b"));
        let yes = KeySpec::new("b", Kind::Boolean, None);
        check(&yes, "TRUE", Ok(Value::Boolean(true)));
        check(&yes, "yes", Err("it must be true or false"));
    }

    #[test]
    fn hours_and_minutes_become_milliseconds_and_no_limit_stays_no_limit() {
        assert_eq!(
            Scale::HoursToMs.apply(&Value::Whole(168)),
            Value::Whole(604_800_000)
        );
        assert_eq!(
            Scale::MinutesToMs.apply(&Value::Whole(2)),
            Value::Whole(120_000)
        );
        assert_eq!(Scale::HoursToMs.apply(&Value::Whole(-1)), Value::Whole(-1));
        assert_eq!(Scale::Same.apply(&Value::Whole(-2)), Value::Whole(-2));
    }
}
