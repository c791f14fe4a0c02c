//! What is wrong with a configuration, and where it stands.
use super::properties::BadEscape;
use super::providers::ReferenceError;
use super::settings::broker_key;
use super::spec::ValueError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a setting was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// In a file, at a line counted from 1.
    File {
        /// The file.
        path: Arc<Path>,
        /// The line where the key begins.
        line: usize,
    },
    /// By this option of the command line.
    CommandLine(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::CommandLine(option) => write!(f, "{option}"),
        }
    }
}

/// Why there is no configuration. The operator's fault; nothing was started or written.
#[derive(Debug)]
pub(crate) enum ConfigError {
    /// The file could not be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is larger than a configuration can be.
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// The settings are wrong; all that were found.
    Problems(Vec<Problem>),
}

/// One wrong setting.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    /// Where it was made.
    pub(crate) origin: Option<Origin>,
    /// What is wrong.
    pub(crate) fault: Fault,
}

/// What is wrong with a setting.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// Neither Kafka nor we know the key.
    UnknownKey {
        /// The key.
        key: String,
        /// The known key that looks most like it.
        nearest: Option<&'static str>,
    },
    /// The value is not one of the key's.
    BadValue {
        /// The key.
        key: &'static str,
        /// The value as given; `None` where it is a secret.
        value: Option<String>,
        /// What is wrong.
        error: ValueError,
    },
    /// The value is of the right type, and something about it does not work here.
    Refused {
        /// The key.
        key: &'static str,
        /// The value, or the part of it.
        value: String,
        /// What is wrong and what would be right.
        why: &'static str,
    },
    /// A value stands elsewhere (`${provider:...}`), and is not there.
    Reference {
        /// The key.
        key: String,
        /// As it is written.
        reference: String,
        /// Why it leads nowhere.
        error: ReferenceError,
    },
    /// The line is not in the format of a properties file.
    BadEscape(BadEscape),
    /// `--set` without `=`.
    NoEquals(String),
}

impl Fault {
    /// What to do about it.
    pub(crate) fn way_out(&self) -> String {
        match self {
            Fault::UnknownKey {
                nearest: Some(near),
                ..
            } => format!("write {near}, or take the line out"),
            Fault::UnknownKey { nearest: None, .. } => {
                "take the line out; `seawall config default` prints every key".to_owned()
            }
            Fault::BadValue { key, .. } => {
                let default = broker_key(key).and_then(|spec| spec.default);
                let default = default.filter(|default| !default.is_empty());
                match default {
                    Some(default) => {
                        format!(
                            "correct the value, or take the line out for the default: {default}"
                        )
                    }
                    None => "correct the value, or take the line out".to_owned(),
                }
            }
            Fault::Refused { key, .. } => {
                format!("correct it; `seawall config default` says what {key} is")
            }
            Fault::Reference { error, .. } => error.way_out().to_owned(),
            Fault::BadEscape(_) => {
                "write \\\\ for a backslash, or \\u and four hexadecimal digits".to_owned()
            }
            Fault::NoEquals(_) => "write --set key=value".to_owned(),
        }
    }
}

impl ConfigError {
    /// One line for each thing that is wrong, with the way out.
    pub(crate) fn lines(&self) -> Vec<String> {
        let ConfigError::Problems(problems) = self else {
            return vec![self.to_string()];
        };
        let line = |problem: &Problem| format!("{problem} ({})", problem.fault.way_out());
        problems.iter().map(line).collect()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::UnknownKey {
                key,
                nearest: Some(near),
            } => {
                write!(f, "unknown key '{key}'; did you mean '{near}'?")
            }
            Fault::UnknownKey { key, nearest: None } => write!(f, "unknown key '{key}'"),
            Fault::BadValue {
                key,
                value: Some(value),
                error,
            } => write!(f, "{key}={value}: {error}"),
            Fault::BadValue {
                key,
                value: None,
                error,
            } => write!(f, "{key}: {error}"),
            Fault::Refused { key, value, why } => write!(f, "{key}={value}: {why}"),
            Fault::Reference {
                key,
                reference,
                error,
            } => write!(f, "{key}={reference}: {error}"),
            Fault::BadEscape(error) => write!(f, "{error}"),
            Fault::NoEquals(text) => write!(f, "'{text}' is not of the form key=value"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => write!(f, "{origin}: {}", self.fault),
            None => write!(f, "{}", self.fault),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Unreadable { path, source } => {
                write!(
                    f,
                    "cannot read the configuration {}: {source}",
                    path.display()
                )
            }
            ConfigError::TooLarge { path, limit } => {
                write!(
                    f,
                    "{} has more than {limit} bytes: that is no configuration",
                    path.display()
                )
            }
            ConfigError::Problems(problems) => {
                write!(f, "the configuration cannot be used")?;
                problems
                    .iter()
                    .try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl std::error::Error for ConfigError {}
