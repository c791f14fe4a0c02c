//! Names that a topic may have.
//!
//! Owns:     Kafka's rules (`org.apache.kafka.common.internals.Topic`), and the one list of names of ours that stand
//!           in the root of a log dir beside the topics' directories.
//! Does not: know which topics exist (the catalog does, and refuses collisions).
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The file name of `topics/<topic>.json` must not exceed 255 bytes.
const NAME_LEN_MAX: usize = 249;

/// Files of ours in a log dir's root (or in `cluster.dir`).
pub(crate) mod root {
    /// The catalog, where it has no volume of its own.
    pub(crate) const CLUSTER_DIR: &str = "__cluster";
    /// One live broker per directory.
    pub(crate) const LOCK: &str = ".lock";
    /// The directory's own id and its cluster's.
    pub(crate) const LOG_DIR: &str = "log-dir.json";
    /// Who owned the directory: `owner-<n>.json`.
    pub(crate) const OWNER_PREFIX: &str = "owner-";
    /// Deleted things on their way.
    pub(crate) const TRASH_PREFIX: &str = ".trash-";
    /// Data whose topic nobody knows.
    pub(crate) const LOST_PREFIX: &str = ".lost-";
    /// Space that is given up when the disk is full.
    pub(crate) const RESERVE: &str = ".reserve";
    /// Written, synced and removed to see whether the disk is well.
    pub(crate) const PROBE_PREFIX: &str = ".probe-";
    /// Kafka's own identity file: a directory that has it is Kafka's.
    pub(crate) const KAFKA_META: &str = "meta.properties";
    /// The cluster's identity, in `cluster.dir`.
    pub(crate) const META: &str = "meta.json";
}

const OWN_NAMES: &[&str] = &[
    root::CLUSTER_DIR,
    root::LOCK,
    root::LOG_DIR,
    root::RESERVE,
    root::KAFKA_META,
    root::META,
];
const OWN_PREFIXES: &[&str] = &[
    root::TRASH_PREFIX,
    root::LOST_PREFIX,
    root::PROBE_PREFIX,
    super::state_file::TEMP_PREFIX,
    ".nfs",
];
const INTERNAL_NAMES: &[&str] = &[
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
];

/// A name that a topic may have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopicName(Arc<str>);

/// Why a topic cannot have a name: the client's fault, INVALID_TOPIC_EXCEPTION (17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TopicNameError {
    /// It has no characters.
    Empty,
    /// It has more than 249 characters.
    TooLong,
    /// It is "." or "..".
    Dots,
    /// It has a character that is no ASCII letter, digit, '.', '_' or '-'.
    Character,
    /// The broker uses it itself.
    Reserved,
}

impl fmt::Display for TopicNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TopicNameError::Empty => "the empty string is not allowed",
            TopicNameError::TooLong => "the length of name is longer than the max allowed length 249",
            TopicNameError::Dots => "'.' or '..' is not allowed",
            TopicNameError::Character => {
                "it contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
            }
            TopicNameError::Reserved => "the broker uses this name itself",
        })
    }
}

impl std::error::Error for TopicNameError {}

impl TopicName {
    /// Checks a name from a client or from a disk.
    pub(crate) fn parse(name: &str) -> Result<TopicName, TopicNameError> {
        if name.is_empty() {
            return Err(TopicNameError::Empty);
        }
        if name == "." || name == ".." {
            return Err(TopicNameError::Dots);
        }
        if name.len() > NAME_LEN_MAX {
            return Err(TopicNameError::TooLong);
        }
        if !name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        {
            return Err(TopicNameError::Character);
        }
        if is_reserved(name) {
            return Err(TopicNameError::Reserved);
        }
        Ok(TopicName(name.into()))
    }

    /// As it stands on the wire.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Names that are equal in this form collide: metrics write '.' as '_'.
    pub(crate) fn collision_key(&self) -> String {
        self.0.replace('.', "_")
    }
}

/// Maps keyed by names are asked with the texts of requests: equality, order and hash are those of the text.
impl Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_reserved(name: &str) -> bool {
    OWN_NAMES.contains(&name)
        || INTERNAL_NAMES.contains(&name)
        || OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || owner_number(name).is_some()
}

/// The `n` of `owner-<n>.json`.
pub(crate) fn owner_number(name: &str) -> Option<u64> {
    let digits = name
        .strip_prefix(root::OWNER_PREFIX)?
        .strip_suffix(".json")?;
    let canonical = digits == "0" || !digits.starts_with('0');
    (canonical && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t03_names_are_allowed_as_in_kafka() {
        let longest = "x".repeat(249);
        for name in [
            longest.as_str(),
            "a",
            "A.b_c-9",
            "...",
            ".a",
            "a.",
            "owner-x.json",
            "owner-01.json",
            "__x",
        ] {
            assert_eq!(
                TopicName::parse(name).map(|n| n.as_str().to_owned()),
                Ok(name.to_owned())
            );
        }
        let too_long = "x".repeat(250);
        for (name, error) in [
            ("", TopicNameError::Empty),
            (".", TopicNameError::Dots),
            ("..", TopicNameError::Dots),
            (too_long.as_str(), TopicNameError::TooLong),
            ("a b", TopicNameError::Character),
            ("a/b", TopicNameError::Character),
            ("tópico", TopicNameError::Character),
            ("a\0", TopicNameError::Character),
            ("~x", TopicNameError::Character),
        ] {
            assert_eq!(TopicName::parse(name), Err(error), "{name}");
        }
    }

    #[test]
    fn t06_names_that_the_broker_uses_itself_are_no_topics() {
        for name in [
            "__cluster",
            "__consumer_offsets",
            "__transaction_state",
            ".lock",
            "log-dir.json",
            "owner-0.json",
            "owner-18.json",
            ".trash-x",
            ".lost-x",
            ".tmp-1",
            ".reserve",
            ".probe-1",
            "meta.json",
            "meta.properties",
        ] {
            assert_eq!(
                TopicName::parse(name),
                Err(TopicNameError::Reserved),
                "{name}"
            );
        }
    }
}
