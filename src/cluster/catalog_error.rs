//! Why a topic was not created, changed or deleted: who is at fault, and what was left behind.
use super::names::{TopicName, TopicNameError};
use super::state_file::StateError;
use super::topic_files::PARTITIONS_MAX;
use crate::config::TopicConfigError;
use std::fmt;
use std::path::PathBuf;

/// Why a topic was not created.
#[derive(Debug)]
pub(crate) enum CreateError {
    /// The client's fault: no topic can have this name.
    Name(TopicNameError),
    /// The client's fault: only '.' and '_' tell this name from that of a topic.
    Collision(TopicName),
    /// There is such a topic, or it is being created or deleted just now.
    Exists,
    /// The client's fault: no topic can have so many partitions, or so few.
    Partitions,
    /// The client's fault.
    Config(TopicConfigError),
    /// Another broker may own the directories by now. Nothing was written.
    NotFresh,
    /// No log dir is here.
    NoLogDir,
    /// Something that is not ours stands where the topic's directory should be. Nothing was left behind.
    Occupied(PathBuf),
    /// The disk's fault. What was written will be removed, now or at the next start.
    Disk(StateError),
    /// The disk's fault, and whether the topic exists will be known after a restart. Its name stays taken.
    InDoubt(StateError),
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::Name(error) => write!(f, "Topic name is invalid: {error}"),
            CreateError::Collision(other) => {
                write!(
                    f,
                    "the name collides with topic {other}: only '.' and '_' differ"
                )
            }
            CreateError::Exists => write!(
                f,
                "a topic with this name exists, or is just being created or deleted"
            ),
            CreateError::Partitions => write!(
                f,
                "the number of partitions must be from 1 to {PARTITIONS_MAX}"
            ),
            CreateError::Config(error) => write!(f, "{error}"),
            CreateError::NotFresh => write!(
                f,
                "this broker cannot be sure to own its directories at the moment"
            ),
            CreateError::NoLogDir => write!(f, "no log dir is usable"),
            CreateError::Occupied(path) => write!(
                f,
                "{} exists and was not made by this broker",
                path.display()
            ),
            CreateError::Disk(error) => write!(f, "{error}"),
            CreateError::InDoubt(error) => {
                write!(
                    f,
                    "whether the topic exists will be known after a restart: {error}"
                )
            }
        }
    }
}

impl std::error::Error for CreateError {}

/// Why a topic was not changed or deleted.
#[derive(Debug)]
pub(crate) enum ChangeError {
    /// There is no such topic (any more).
    Unknown,
    /// Another change of it runs. Try again.
    Busy,
    /// The client's fault.
    Config(TopicConfigError),
    /// The client's fault: partitions can only be added, up to the limit.
    Partitions,
    /// Another broker may own the directories by now. Nothing was written.
    NotFresh,
    /// A log dir that must be written is not here, or the topic is damaged there. Nothing was written.
    Unusable,
    /// The disk's fault. Nothing was changed.
    Disk(StateError),
    /// The disk's fault, and what holds will be known after a restart.
    InDoubt(StateError),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::Unknown => write!(f, "there is no such topic"),
            ChangeError::Busy => write!(f, "another change of this topic is under way"),
            ChangeError::Config(error) => write!(f, "{error}"),
            ChangeError::Partitions => {
                write!(
                    f,
                    "partitions can only be added, and there can be {PARTITIONS_MAX} of them"
                )
            }
            ChangeError::NotFresh => write!(
                f,
                "this broker cannot be sure to own its directories at the moment"
            ),
            ChangeError::Unusable => write!(f, "a log dir of this topic is absent or damaged"),
            ChangeError::Disk(error) => write!(f, "{error}"),
            ChangeError::InDoubt(error) => {
                write!(f, "what holds will be known after a restart: {error}")
            }
        }
    }
}

impl std::error::Error for ChangeError {}
