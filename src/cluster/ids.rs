//! Identities: of the cluster, of log dirs, of topics, in the form that Kafka's tools show.
//!
//! Owns:     the text form of UUIDs (base64 of RFC 4648 section 5 without padding, 22 characters, as in
//!           `org.apache.kafka.common.Uuid`).
//! Does not: store anything.
use seawall_storage::TopicId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use uuid::Uuid;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const TEXT_LEN: usize = 22;

/// The id of a directory that holds data (or the catalog), for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LogDirId(pub(crate) Uuid);

/// The id of a cluster, as its clients see it. Kafka's own ids are UUIDs, but nothing depends on that.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ClusterId(String);

impl ClusterId {
    /// One that nobody has.
    pub(crate) fn random() -> ClusterId {
        ClusterId(to_text(random()))
    }

    /// As clients see it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl LogDirId {
    /// One that nobody has.
    pub(crate) fn random() -> LogDirId {
        LogDirId(random())
    }
}

impl fmt::Display for LogDirId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_text(self.0))
    }
}

impl Serialize for LogDirId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LogDirId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LogDirId, D::Error> {
        text_id(deserializer).map(LogDirId)
    }
}

/// A random id whose text does not begin with '-': it would look like an option on a command line.
pub(crate) fn random() -> Uuid {
    loop {
        let id = Uuid::new_v4();
        if !to_text(id).starts_with('-') {
            return id;
        }
    }
}

/// A topic id that nobody has.
pub(crate) fn random_topic_id() -> TopicId {
    TopicId(random())
}

/// The 22 characters that Kafka's tools show.
pub(crate) fn to_text(id: Uuid) -> String {
    // 128 bits and 4 of zero are 22 times 6.
    let bits = id.as_u128();
    let digit = |at: usize| {
        let six = if at == TEXT_LEN - 1 {
            bits << 4
        } else {
            bits >> (122 - 6 * at)
        } & 63;
        char::from(ALPHABET[usize::try_from(six).unwrap_or(0)])
    };
    (0..TEXT_LEN).map(digit).collect()
}

/// The reverse of [`to_text`].
pub(crate) fn from_text(text: &str) -> Option<Uuid> {
    if text.len() != TEXT_LEN {
        return None;
    }
    let mut bits: u128 = 0;
    for (at, byte) in text.bytes().enumerate() {
        let six = u128::try_from(ALPHABET.iter().position(|&c| c == byte)?).ok()?;
        if at == TEXT_LEN - 1 {
            return (six & 15 == 0).then_some(Uuid::from_u128(bits << 2 | six >> 4));
        }
        bits = bits << 6 | six;
    }
    None
}

fn text_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Uuid, D::Error> {
    let text = String::deserialize(deserializer)?;
    from_text(&text).ok_or_else(|| {
        serde::de::Error::custom(format!("'{text:.40}' is not an id of 22 characters"))
    })
}

/// For `#[serde(with = ..)]` on topic ids.
pub(crate) mod topic_id_text {
    use super::{Deserializer, Serializer, TopicId, text_id, to_text};

    pub(crate) fn serialize<S: Serializer>(id: &TopicId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_text(id.0))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<TopicId, D::Error> {
        text_id(deserializer).map(TopicId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_text_that_kafka_gives_them() {
        // Pairs printed by org.apache.kafka.common.Uuid of Kafka 4.4.
        for (text, bits) in [
            ("AAAAAAAAAAAAAAAAAAAAAA", 0),
            ("AAAAAAAAAAAAAAAAAAAAAQ", 1),
            ("_____________________w", u128::MAX),
            (
                "ASNFZ4mrze8BI0VniavN7w",
                0x0123_4567_89ab_cdef_0123_4567_89ab_cdef,
            ),
        ] {
            assert_eq!(to_text(Uuid::from_u128(bits)), text);
            assert_eq!(from_text(text), Some(Uuid::from_u128(bits)));
        }
        for text in [
            "",
            "AAAAAAAAAAAAAAAAAAAAAB",
            "AAAAAAAAAAAAAAAAAAAAA",
            "AAAAAAAAAAAAAAAAAAAA+A",
            "ääääääääääAA",
        ] {
            assert_eq!(from_text(text), None, "{text}");
        }
        for _ in 0..1000 {
            let id = random();
            assert_eq!(from_text(&to_text(id)), Some(id));
        }
    }
}
