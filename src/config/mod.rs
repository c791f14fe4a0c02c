//! Configuration: two tables, and everything that follows from them.
//!
//! Owns:     `Config` (what the broker acts on), `TopicConfig`, what DescribeConfigs tells, the packaged file.
//! Does not: open anything but the configuration file; know wire types.
//!
//! A new key is one row in `broker_keys` or `topic_keys` and, where something acts on it, one field here or in
//! `topic`. Everything is immutable once loaded and may be read from every thread.
mod access;
mod broker_keys;
mod default_file;
mod describe;
mod error;
mod foreign_keys;
mod listeners;
mod manual;
mod properties;
mod providers;
mod security;
mod settings;
mod spec;
mod topic;
mod topic_keys;

pub(crate) use access::{AccessConfig, own_number};
pub(crate) use default_file::default_file;
pub(crate) use describe::{ConfigEntry, describe_broker, describe_topic};
pub(crate) use error::{ConfigError, Fault, Origin, Problem};
pub(crate) use listeners::{Advertised, Listener};
pub(crate) use manual::manual;
use providers::Unresolved;
pub(crate) use security::{
    ClientAuth, ListenerSecurity, Mechanism, Oauth, Pem, Sasl, Tls, TlsVersion,
};
pub(crate) use settings::Settings;
pub(crate) use spec::Kind;
use spec::Value;
pub(crate) use topic::{TimestampType, TopicConfig, TopicConfigError};

use crate::groups::classic::ClassicLimits;
use crate::groups::consumer::{Assignor, ConsumerLimits};
use crate::groups::{GroupConfig, Limits, Migration};
use settings::{RawSetting, broker_key};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The number of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(i32);

impl NodeId {
    /// As it stands on the wire. The table keeps it from being negative.
    pub(crate) fn get(self) -> i32 {
        self.0
    }

    /// For tests and tools; a negative number becomes 0.
    pub(crate) fn new(id: i32) -> NodeId {
        NodeId(id.max(0))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What the command line says about the configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandLine {
    /// `--config`
    pub(crate) file: Option<PathBuf>,
    /// `--data-dir`: log.dirs
    pub(crate) data_dir: Option<PathBuf>,
    /// `--listen`: listeners, where a bare host:port is PLAINTEXT
    pub(crate) listen: Option<String>,
    /// `--set key=value`, in order
    pub(crate) set: Vec<String>,
}

/// What the broker acts on. Sizes in bytes, times in milliseconds.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// node.id or broker.id
    pub(crate) node_id: NodeId,
    /// broker.rack
    pub(crate) rack: Option<String>,
    /// listeners without those of a controller
    pub(crate) listeners: Vec<Listener>,
    /// advertised.listeners, one for each of `listeners`
    pub(crate) advertised: Vec<Advertised>,
    /// What each of `listeners` asks of its clients
    pub(crate) security: Vec<ListenerSecurity>,
    /// connection.failed.authentication.delay.ms
    pub(crate) failed_login_delay_ms: u64,
    /// admin.listener
    pub(crate) admin_listener: Option<Listener>,
    /// log.dirs or log.dir; at least one, no two the same
    pub(crate) log_dirs: Vec<PathBuf>,
    /// cluster.dir; `None`: `__cluster` in the first log dir
    pub(crate) cluster_dir: Option<PathBuf>,
    /// log.flush.stall.timeout.ms
    pub(crate) flush_stall_timeout_ms: u64,
    /// log.retention.check.interval.ms
    pub(crate) retention_check_interval_ms: u64,
    /// log.cleaner.enable
    pub(crate) cleaner_enabled: bool,
    /// log.cleaner.threads, for each log dir
    pub(crate) cleaner_threads: usize,
    /// log.cleaner.dedupe.buffer.size, for all threads
    pub(crate) cleaner_map_bytes_max: u64,
    /// log.cleaner.io.max.bytes.per.second
    pub(crate) cleaner_bytes_per_second: f64,
    /// log.cleaner.backoff.ms
    pub(crate) cleaner_backoff_ms: u64,
    /// num.partitions
    pub(crate) num_partitions: i32,
    /// replication.factor.any
    pub(crate) replication_factor_any: bool,
    /// auto.create.topics.enable
    pub(crate) auto_create_topics: bool,
    /// delete.topic.enable
    pub(crate) delete_topics: bool,
    /// producer.id.expiration.ms
    pub(crate) producer_id_expiration_ms: u64,
    /// transactional.id.expiration.ms
    pub(crate) transactional_id_expiration_ms: i64,
    /// transaction.max.timeout.ms
    pub(crate) transaction_timeout_max_ms: i64,
    /// Groups and committed offsets
    pub(crate) groups: GroupConfig,
    /// num.network.threads
    pub(crate) network_threads: usize,
    /// socket.request.max.bytes
    pub(crate) request_bytes_max: u32,
    /// sasl.server.max.receive.size
    pub(crate) request_before_login_bytes_max: u32,
    /// queued.max.request.bytes, never without a limit
    pub(crate) queued_request_bytes_max: u64,
    /// max.connections
    pub(crate) connections_max: u32,
    /// max.connections.per.ip
    pub(crate) connections_per_ip_max: u32,
    /// max.connection.creation.rate, per second
    pub(crate) connection_rate_max: u32,
    /// connections.max.idle.ms
    pub(crate) connections_idle_max_ms: u64,
    /// fetch.max.bytes
    pub(crate) fetch_bytes_max: u32,
    /// logging.level
    pub(crate) log_level: log::LevelFilter,
    /// metrics.series.max
    pub(crate) metric_series_max: u64,
    /// max.incremental.fetch.session.cache.slots
    pub(crate) fetch_sessions_max: u32,
    /// Who may do what
    pub(crate) access: AccessConfig,
    /// The checked settings themselves: the defaults of topics, DescribeConfigs
    pub(crate) settings: Arc<Settings>,
}

impl Config {
    /// Loads the file if there is one, lets the command line win, and checks everything.
    pub(crate) fn load(line: &CommandLine) -> Result<Config, ConfigError> {
        Config::load_with(line, Unresolved::Refused)
    }

    /// As `load`, for programs beside a broker: what only its own unit can see, as credentials, is not asked for.
    pub(crate) fn load_for_tool(line: &CommandLine) -> Result<Config, ConfigError> {
        Config::load_with(line, Unresolved::Left)
    }

    fn load_with(line: &CommandLine, unresolved: Unresolved) -> Result<Config, ConfigError> {
        let mut raw = match &line.file {
            Some(path) => settings::read_file(path)?,
            None => Vec::new(),
        };
        raw.extend(line.raw()?);
        let (raw, mut problems) = providers::resolve(raw, unresolved);
        // What is not there would only be missed once more.
        let complete = problems.is_empty();
        let (settings, more) = Settings::checked(raw);
        problems.extend(more);
        // What is right is looked at as a whole in any case, so that all problems are told at once.
        match Config::from_settings(settings) {
            Ok(config) if problems.is_empty() => return Ok(config),
            Err(more) if complete => problems.extend(more),
            Ok(_) | Err(_) => {}
        }
        Err(ConfigError::Problems(problems))
    }

    /// One warning that lists all keys that were set and have no effect here.
    pub(crate) fn warning(&self) -> Option<String> {
        let keys: Vec<&str> = self.settings.without_effect().map(|row| row.0).collect();
        (!keys.is_empty()).then(|| {
            format!(
                "These settings have no effect in this broker: {}",
                keys.join(", ")
            )
        })
    }

    fn from_settings(settings: Settings) -> Result<Config, Vec<Problem>> {
        let get = Reader(&settings);
        let (listeners, advertised) = listeners::listeners(&settings)?;
        let security = security::listeners(&settings, &listeners)?;
        Ok(Config {
            node_id: node_id(&settings)?,
            rack: get.text("broker.rack"),
            listeners,
            advertised,
            security,
            failed_login_delay_ms: get.number("connection.failed.authentication.delay.ms"),
            admin_listener: listeners::admin_listener(&settings)?,
            log_dirs: log_dirs(&settings)?,
            cluster_dir: get.text("cluster.dir").map(PathBuf::from),
            flush_stall_timeout_ms: get.number("log.flush.stall.timeout.ms"),
            retention_check_interval_ms: get.number("log.retention.check.interval.ms"),
            cleaner_enabled: get.yes("log.cleaner.enable"),
            cleaner_threads: get.number("log.cleaner.threads"),
            cleaner_map_bytes_max: get.number("log.cleaner.dedupe.buffer.size"),
            cleaner_bytes_per_second: get.real("log.cleaner.io.max.bytes.per.second"),
            cleaner_backoff_ms: get.number("log.cleaner.backoff.ms"),
            num_partitions: get.number("num.partitions"),
            replication_factor_any: get.yes("replication.factor.any"),
            auto_create_topics: get.yes("auto.create.topics.enable"),
            delete_topics: get.yes("delete.topic.enable"),
            producer_id_expiration_ms: get.number("producer.id.expiration.ms"),
            transactional_id_expiration_ms: get.number("transactional.id.expiration.ms"),
            transaction_timeout_max_ms: get.number("transaction.max.timeout.ms"),
            groups: group_config(&get),
            network_threads: get.number("num.network.threads"),
            request_bytes_max: get.number("socket.request.max.bytes"),
            request_before_login_bytes_max: get.number("sasl.server.max.receive.size"),
            queued_request_bytes_max: queued_request_bytes_max(&settings),
            connections_max: get.number("max.connections"),
            connections_per_ip_max: get.number("max.connections.per.ip"),
            connection_rate_max: get.number("max.connection.creation.rate"),
            connections_idle_max_ms: get.number("connections.max.idle.ms"),
            fetch_bytes_max: get.number("fetch.max.bytes"),
            fetch_sessions_max: get.number("max.incremental.fetch.session.cache.slots"),
            log_level: log_level(&get),
            metric_series_max: get.number("metrics.series.max"),
            access: access::access_config(&settings)?,
            settings: Arc::new(settings),
        })
    }
}

impl CommandLine {
    /// The settings that the options stand for, `--set` last: it is the most explicit.
    fn raw(&self) -> Result<Vec<RawSetting>, ConfigError> {
        let mut raw = Vec::new();
        let mut put = |key: &str, value: String, option| {
            raw.push(RawSetting {
                key: key.to_owned(),
                value,
                hidden: false,
                origin: Origin::CommandLine(option),
            });
        };
        if let Some(dir) = &self.data_dir {
            put("log.dirs", dir.to_string_lossy().into_owned(), "--data-dir");
        }
        if let Some(listen) = &self.listen {
            let bare = !listen.contains("://");
            let value = if bare {
                format!("PLAINTEXT://{listen}")
            } else {
                listen.clone()
            };
            put("listeners", value, "--listen");
        }
        for text in &self.set {
            let Some((key, value)) = text.split_once('=') else {
                let origin = Some(Origin::CommandLine("--set"));
                return Err(ConfigError::Problems(vec![Problem {
                    origin,
                    fault: Fault::NoEquals(text.clone()),
                }]));
            };
            put(key.trim(), value.to_owned(), "--set");
        }
        Ok(raw)
    }
}

/// Reads rows as Rust types. The ranges of the table make the conversions succeed; a test loads every row.
struct Reader<'a>(&'a Settings);

impl Reader<'_> {
    fn value(&self, key: &'static str) -> Value {
        self.0
            .effective(broker_key(key).expect("a row of the table of broker keys"))
    }

    fn number<N: TryFrom<i64> + Bounded>(&self, key: &'static str) -> N {
        match self.value(key) {
            Value::Whole(n) => N::try_from(n).unwrap_or(N::LARGEST),
            _ => N::LARGEST,
        }
    }

    fn real(&self, key: &'static str) -> f64 {
        match self.value(key) {
            Value::Real(n) => n,
            _ => f64::MAX,
        }
    }

    fn yes(&self, key: &'static str) -> bool {
        self.value(key) == Value::Boolean(true)
    }

    fn text(&self, key: &'static str) -> Option<String> {
        self.value(key).to_wire().filter(|text| !text.is_empty())
    }
}

/// Types that have a largest value: what a number becomes that cannot be held, or that means "no limit".
trait Bounded {
    const LARGEST: Self;
}

impl Bounded for i32 {
    const LARGEST: Self = i32::MAX;
}

impl Bounded for i64 {
    const LARGEST: Self = i64::MAX;
}

impl Bounded for u32 {
    const LARGEST: Self = u32::MAX;
}

impl Bounded for u64 {
    const LARGEST: Self = u64::MAX;
}

impl Bounded for usize {
    const LARGEST: Self = usize::MAX;
}

/// The table allows the names of levels and no others.
fn log_level(get: &Reader<'_>) -> log::LevelFilter {
    let level = get.text(settings::LOG_LEVEL);
    let level = level.and_then(|level| level.parse().ok());
    level.unwrap_or(log::LevelFilter::Info)
}

/// `node.id`, or its older name; both only where they agree.
fn node_id(settings: &Settings) -> Result<NodeId, Vec<Problem>> {
    let get = Reader(settings);
    let (node, broker): (i32, i32) = (get.number("node.id"), get.number("broker.id"));
    let Some(older) = settings.explicit("broker.id").filter(|_| broker >= 0) else {
        return Ok(NodeId::new(node));
    };
    if settings.explicit("node.id").is_some() && node != broker {
        let why = "node.id is set to another number; one of the two is enough";
        let fault = Fault::Refused {
            key: "broker.id",
            value: older.text.clone(),
            why,
        };
        return Err(vec![Problem {
            origin: Some(older.origin.clone()),
            fault,
        }]);
    }
    Ok(NodeId::new(broker))
}

fn log_dirs(settings: &Settings) -> Result<Vec<PathBuf>, Vec<Problem>> {
    let get = Reader(settings);
    let (key, value) = match get.value("log.dirs") {
        Value::List(list) if !list.is_empty() => ("log.dirs", Value::List(list)),
        _ => ("log.dir", get.value("log.dir")),
    };
    let Value::List(list) = value else {
        return Ok(vec![PathBuf::from("./data")]);
    };
    let dirs: Vec<PathBuf> = list.iter().map(PathBuf::from).collect();
    let same = |at: usize| {
        dirs[..at]
            .iter()
            .any(|earlier| normal(earlier) == normal(&dirs[at]))
    };
    let wrong = (0..dirs.len()).find_map(|at| {
        let why = if list[at].is_empty() {
            Some("a directory has no name")
        } else {
            None
        };
        why.or_else(|| same(at).then_some("a directory is listed twice"))
    });
    let Some(why) = wrong else { return Ok(dirs) };
    let origin = settings.explicit(key).map(|set| set.origin.clone());
    Err(vec![Problem {
        origin,
        fault: Fault::Refused {
            key,
            value: list.join(","),
            why,
        },
    }])
}

fn normal(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| !matches!(part, std::path::Component::CurDir))
        .collect()
}

fn group_limits(get: &Reader<'_>) -> Limits {
    let ms = |key| Duration::from_millis(get.number(key));
    let assignors = match get.value("group.consumer.assignors") {
        Value::List(list) => list
            .iter()
            .filter_map(|name| Assignor::of_name(name))
            .collect(),
        _ => Vec::new(),
    };
    let policy = get
        .text("group.consumer.migration.policy")
        .unwrap_or_default();
    Limits {
        classic: ClassicLimits {
            initial_delay: ms("group.initial.rebalance.delay.ms"),
            members_max: get.number("group.max.size"),
        },
        consumer: Arc::new(ConsumerLimits {
            session_timeout: ms("group.consumer.session.timeout.ms"),
            heartbeat_interval: ms("group.consumer.heartbeat.interval.ms"),
            members_max: get.number("group.consumer.max.size"),
            assignment_interval: ms("group.consumer.assignment.interval.ms"),
            assignors,
        }),
        migration: Migration::of_name(&policy),
    }
}

fn group_config(get: &Reader<'_>) -> GroupConfig {
    let ms = |key| Duration::from_millis(get.number(key));
    GroupConfig {
        limits: Arc::new(group_limits(get)),
        session_timeout: ms("group.min.session.timeout.ms")..=ms("group.max.session.timeout.ms"),
        metadata_bytes_max: get.number("offset.metadata.max.bytes"),
        retention: Duration::from_secs(get.number::<u64>("offsets.retention.minutes") * 60),
        retention_check: ms("offsets.retention.check.interval.ms"),
        commit_timeout: ms("offsets.commit.timeout.ms"),
    }
}

/// Kafka's -1 is "no limit"; memory has one, so it is our default.
fn queued_request_bytes_max(settings: &Settings) -> u64 {
    let spec = broker_key("queued.max.request.bytes").expect("a row of the table of broker keys");
    let whole = |value| match value {
        Value::Whole(n) => u64::try_from(n).ok(),
        _ => None,
    };
    whole(settings.effective(spec))
        .or_else(|| whole(spec.default_value()))
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
