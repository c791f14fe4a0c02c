//! The table of broker keys that mean something here: Kafka 4.4's names and our own.
//!
//! Owns:     names, types, ranges, defaults, docs, and how each stands in the packaged file.
//! Does not: parse (`settings`) or list the keys that are accepted without a meaning (`foreign_keys`).
//!
//! The order is the order of the packaged file.
use super::spec::{KeySpec, Kind, Range, Scale, Synonym};

const LONG_MAX: &str = "9223372036854775807";
const CODECS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];
const TEN_THOUSAND: i64 = 10_000;

const fn row(name: &'static str, kind: Kind, default: &'static str) -> KeySpec {
    KeySpec::new(name, kind, Some(default))
}

const fn unset(name: &'static str, kind: Kind) -> KeySpec {
    KeySpec::new(name, kind, None)
}

const fn ms(name: &'static str) -> Synonym {
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

/// Every broker key that means something here.
pub(crate) static BROKER_KEYS: &[KeySpec] = &[
    // Who and where.
    row("node.id", Kind::Int, "1")
        .min(0)
        .packaged("1")
        .doc("The number of this broker, shown to clients."),
    row("broker.id", Kind::Int, "-1")
        .min(-1)
        .doc("The older name of node.id; -1 is not set."),
    unset("broker.rack", Kind::String)
        .doc("The rack shown to clients."),
    row("listeners", Kind::List, "PLAINTEXT://127.0.0.1:9092")
        .range(Range::NotEmpty)
        .packaged("PLAINTEXT://127.0.0.1:9092")
        .doc("Where clients connect, as NAME://host:port separated by commas. An empty host is every address of this machine. A listener for a controller is ignored."),
    unset("advertised.listeners", Kind::List)
        .doc("What clients are told to connect to, as NAME://host:port for each listener; by default what listeners says, with this machine's name in place of an empty or wildcard host."),
    row("listener.security.protocol.map", Kind::List, "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT")
        .doc("Which security protocol a listener name speaks, as NAME:PROTOCOL separated by commas."),
    unset("controller.listener.names", Kind::List)
        .doc("Listeners of these names are ignored: there is no controller."),
    row("admin.listener", Kind::String, "127.0.0.1:9192")
        .ours()
        .doc("host:port of the HTTP server with /metrics, /healthz and /readyz; empty for none."),
    row("logging.level", Kind::String, "info")
        .range(Range::OneOf(&["error", "warn", "info", "debug", "trace"]))
        .dynamic()
        .ours()
        .doc("How much is logged; RUST_LOG in the environment beats it."),
    row("metrics.series.max", Kind::Int, "10000")
        .min(0)
        .ours()
        .doc("Partitions, and committed offsets of groups, that /metrics tells one by one. With more partitions only those that are not well are told so."),
    row("config.providers", Kind::List, "")
        .doc("Further names of config providers, each with config.providers.<name>.class. Without any, a value may hold ${env:NAME}, ${directory:/path:file}, which is what stands in that file, and ${file:/path/of.properties:key}."),
    // Encryption and logins. Each of these may stand behind listener.name.<listener>. as well.
    row("ssl.keystore.type", Kind::String, "PEM")
        .per_listener()
        .doc("Only PEM; for stores of other types the start tells the command that converts them."),
    unset("ssl.keystore.location", Kind::String)
        .per_listener()
        .doc("A PEM file with the broker's private key (not encrypted) and its certificate chain, own certificate first. It is read again when it changes and on SIGHUP."),
    unset("ssl.keystore.key", Kind::Password)
        .per_listener()
        .doc("The private key itself, in PEM, in place of ssl.keystore.location."),
    unset("ssl.keystore.certificate.chain", Kind::Password)
        .per_listener()
        .doc("The certificate chain itself, in PEM, beside ssl.keystore.key."),
    unset("ssl.keystore.password", Kind::Password)
        .per_listener()
        .kept()
        .doc("Without effect: PEM files have no password."),
    unset("ssl.key.password", Kind::Password)
        .per_listener()
        .kept()
        .doc("Without effect: an encrypted key is refused with the command that decrypts it."),
    row("ssl.truststore.type", Kind::String, "PEM")
        .per_listener()
        .doc("Only PEM."),
    unset("ssl.truststore.location", Kind::String)
        .per_listener()
        .doc("A PEM file with the certificates of those who issue clients' certificates. It is read again like the key."),
    unset("ssl.truststore.certificates", Kind::Password)
        .per_listener()
        .doc("These certificates themselves, in PEM, in place of ssl.truststore.location."),
    unset("ssl.truststore.password", Kind::Password)
        .per_listener()
        .kept()
        .doc("Without effect: PEM files have no password."),
    row("ssl.client.auth", Kind::String, "none")
        .range(Range::OneOf(&["none", "requested", "required"]))
        .per_listener()
        .doc("Whether clients of SSL listeners show a certificate. For a SASL_SSL listener, only listener.name.<listener>.ssl.client.auth counts, as in Kafka."),
    row("ssl.enabled.protocols", Kind::List, "TLSv1.2,TLSv1.3")
        .range(Range::Among(&["TLSv1.2", "TLSv1.3"]))
        .per_listener()
        .doc("The versions of TLS that are spoken."),
    row("ssl.principal.mapping.rules", Kind::String, "DEFAULT")
        .per_listener()
        .doc("How the name in a client's certificate becomes the name of a user: RULE:pattern/replacement/[LU] and DEFAULT, separated by commas; the first that matches is used."),
    row("sasl.enabled.mechanisms", Kind::List, "SCRAM-SHA-256,SCRAM-SHA-512")
        .per_listener()
        .doc("How clients of SASL listeners may log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER."),
    row("connections.max.reauth.ms", Kind::Long, "0")
        .min(0)
        .per_listener()
        .doc("How long a login holds; a client that has not logged in again by then is closed at its next request. 0 is for ever, or as long as its token."),
    row("connection.failed.authentication.delay.ms", Kind::Int, "100")
        .range(Range::Whole(0, 60_000))
        .doc("How long the answer to a failed login is held back."),
    unset("sasl.oauthbearer.jwks.endpoint.url", Kind::String)
        .per_listener()
        .doc("file:///path of the JWKS file with the public keys of those who sign tokens. It is read again like the key."),
    unset("sasl.oauthbearer.expected.issuer", Kind::String)
        .per_listener()
        .doc("The issuer (iss) that tokens must name."),
    unset("sasl.oauthbearer.expected.audience", Kind::List)
        .per_listener()
        .doc("Tokens must be meant for one of these audiences (aud)."),
    row("sasl.oauthbearer.clock.skew.seconds", Kind::Int, "30")
        .range(Range::Whole(0, 3_600))
        .per_listener()
        .doc("How far the clock of those who issue tokens may differ from ours."),
    row("sasl.oauthbearer.sub.claim.name", Kind::String, "sub")
        .range(Range::NotEmpty)
        .per_listener()
        .doc("The claim of a token that holds the user's name."),
    // Data.
    unset("log.dirs", Kind::List)
        .packaged("/var/lib/seawall")
        .doc("The directories that hold the data, separated by commas. The first one also holds __cluster unless cluster.dir says otherwise."),
    row("log.dir", Kind::List, "./data")
        .range(Range::NotEmpty)
        .doc("Used where log.dirs is not set."),
    unset("cluster.dir", Kind::String)
        .ours()
        .doc("The directory that holds the identity of the cluster, the topic catalog and group offsets; by default __cluster in the first log dir."),
    row("num.recovery.threads.per.data.dir", Kind::Int, "2")
        .range(Range::Whole(1, 256))
        .kept()
        .doc("Threads per log dir that check partitions at start."),
    row("log.flush.stall.timeout.ms", Kind::Long, "20000")
        .range(Range::Whole(100, 3_600_000))
        .ours()
        .doc("A partition whose disk has not answered for this long refuses appends until it answers. Keep it below the clients' own request timeout of 30 s."),
    // Topics.
    row("num.partitions", Kind::Int, "1")
        .range(Range::Whole(1, TEN_THOUSAND))
        .packaged("1")
        .doc("Partitions of a topic that is created without a number of partitions."),
    row("default.replication.factor", Kind::Int, "1")
        .range(Range::Whole(1, 32_767))
        .kept()
        .doc("Without effect: there is one copy."),
    row("replication.factor.any", Kind::Boolean, "true")
        .ours()
        .doc("Whether a topic asked for with more than one replica is created (with one, as it is then described) or refused with INVALID_REPLICATION_FACTOR."),
    row("auto.create.topics.enable", Kind::Boolean, "true")
        .doc("Whether a topic is created when a client first asks for it."),
    row("delete.topic.enable", Kind::Boolean, "true")
        .doc("Whether topics can be deleted by clients."),
    row("message.max.bytes", Kind::Int, "1048588")
        .min(0)
        .dynamic()
        .doc("The largest record batch accepted (topics: max.message.bytes)."),
    row("compression.type", Kind::String, "producer")
        .range(Range::OneOf(CODECS))
        .doc("Only 'producer': batches are stored byte by byte as producers sent them."),
    row("log.message.timestamp.type", Kind::String, "CreateTime")
        .range(Range::OneOf(&["CreateTime", "LogAppendTime"]))
        .dynamic()
        .doc("Whose timestamp records carry (topics: message.timestamp.type)."),
    row("log.message.timestamp.before.max.ms", Kind::Long, LONG_MAX)
        .min(0)
        .dynamic()
        .kept()
        .doc("How far a record's timestamp may lie in the past (topics: message.timestamp.before.max.ms)."),
    row("log.message.timestamp.after.max.ms", Kind::Long, "3600000")
        .min(0)
        .dynamic()
        .kept()
        .doc("How far a record's timestamp may lie in the future (topics: message.timestamp.after.max.ms)."),
    // Durability.
    row("log.flush.interval.messages", Kind::Long, "1")
        .min(1)
        .dynamic()
        .doc("The durability dial (topics: flush.messages). 1: a record acknowledged with acks=all is on stable storage. Above 1, a power cut may take acknowledged records."),
    unset("log.flush.interval.ms", Kind::Long)
        .min(0)
        .dynamic()
        .behind(&[ms("log.flush.scheduler.interval.ms")])
        .doc("Unsynced records are flushed in the background after this time (topics: flush.ms)."),
    row("log.flush.scheduler.interval.ms", Kind::Long, LONG_MAX)
        .min(0)
        .doc("Used where log.flush.interval.ms is not set."),
    // Segments.
    row("log.segment.bytes", Kind::Int, "1073741824")
        .min(1_048_576)
        .dynamic()
        .doc("Size at which a new segment is begun (topics: segment.bytes)."),
    unset("log.roll.ms", Kind::Long)
        .min(1)
        .dynamic()
        .behind(&[hours("log.roll.hours")])
        .doc("Age at which a new segment is begun (topics: segment.ms)."),
    row("log.roll.hours", Kind::Int, "168")
        .min(1)
        .doc("Used where log.roll.ms is not set."),
    unset("log.roll.jitter.ms", Kind::Long)
        .min(0)
        .dynamic()
        .behind(&[hours("log.roll.jitter.hours")])
        .doc("At most this much is taken off that age at random (topics: segment.jitter.ms)."),
    row("log.roll.jitter.hours", Kind::Int, "0")
        .min(0)
        .doc("Used where log.roll.jitter.ms is not set."),
    row("log.index.interval.bytes", Kind::Int, "4096")
        .min(0)
        .dynamic()
        .doc("Bytes of log between two index entries (topics: index.interval.bytes)."),
    row("log.index.size.max.bytes", Kind::Int, "10485760")
        .min(4)
        .dynamic()
        .kept()
        .doc("Without effect: indexes grow as they need."),
    row("log.preallocate", Kind::Boolean, "false")
        .dynamic()
        .kept()
        .doc("Without effect: segments grow as they are written."),
    // Retention and compaction.
    row("log.cleanup.policy", Kind::List, "delete")
        .range(Range::Among(&["compact", "delete"]))
        .dynamic()
        .doc("What happens to old data (topics: cleanup.policy)."),
    unset("log.retention.ms", Kind::Long)
        .min(-1)
        .dynamic()
        .behind(&[
            Synonym { name: "log.retention.minutes", scale: Scale::MinutesToMs },
            hours("log.retention.hours"),
        ])
        .doc("How long records are kept; -1 is for ever (topics: retention.ms)."),
    unset("log.retention.minutes", Kind::Int)
        .min(-1)
        .doc("Used where log.retention.ms is not set."),
    row("log.retention.hours", Kind::Int, "168")
        .min(-1)
        .doc("Used where log.retention.ms and log.retention.minutes are not set."),
    row("log.retention.bytes", Kind::Long, "-1")
        .dynamic()
        .doc("How large a partition may grow; -1 is no limit (topics: retention.bytes)."),
    row("log.retention.check.interval.ms", Kind::Long, "300000")
        .min(1)
        .doc("How often it is looked for segments to delete."),
    row("log.segment.delete.delay.ms", Kind::Long, "60000")
        .min(0)
        .dynamic()
        .doc("How long a deleted segment's file stays (topics: file.delete.delay.ms)."),
    row("log.cleaner.enable", Kind::Boolean, "true")
        .doc("Whether compacted topics are compacted."),
    row("log.cleaner.threads", Kind::Int, "1")
        .range(Range::Whole(0, 64))
        .doc("Threads that compact, for each log dir."),
    row("log.cleaner.dedupe.buffer.size", Kind::Long, "134217728")
        .min(1_048_576)
        .doc("Memory for the keys of what is being compacted, in all threads together; 24 bytes a key."),
    row("log.cleaner.io.max.bytes.per.second", Kind::Double, "1.7976931348623157E308")
        .range(Range::Real(1.0, f64::MAX))
        .dynamic()
        .doc("How fast each compaction thread may read."),
    row("log.cleaner.backoff.ms", Kind::Long, "15000")
        .min(0)
        .dynamic()
        .doc("How often it is looked for something to compact."),
    row("log.cleaner.delete.retention.ms", Kind::Long, "86400000")
        .min(0)
        .dynamic()
        .doc("How long deletion markers stay readable (topics: delete.retention.ms)."),
    row("log.cleaner.min.compaction.lag.ms", Kind::Long, "0")
        .min(0)
        .dynamic()
        .doc("The shortest time a record stays uncompacted (topics: min.compaction.lag.ms)."),
    row("log.cleaner.max.compaction.lag.ms", Kind::Long, LONG_MAX)
        .min(1)
        .dynamic()
        .doc("The longest time a record stays out of reach of compaction (topics: max.compaction.lag.ms)."),
    row("log.cleaner.min.cleanable.ratio", Kind::Double, "0.5")
        .range(Range::Real(0.0, 1.0))
        .dynamic()
        .doc("How much must be uncompacted before compaction runs (topics: min.cleanable.dirty.ratio)."),
    row("max.decompressed.message.bytes", Kind::Int, "2147483639")
        .range(Range::Whole(1, 2_147_483_639))
        .dynamic()
        .doc("The largest record, decompressed, that is accepted where records are looked into."),
    row("min.insync.replicas", Kind::Int, "1")
        .min(1)
        .dynamic()
        .kept()
        .doc("Without effect: acks=all means stable storage here."),
    row("unclean.leader.election.enable", Kind::Boolean, "false")
        .dynamic()
        .kept()
        .doc("Without effect: there are no replicas to elect."),
    // Producers.
    row("producer.id.expiration.ms", Kind::Int, "86400000")
        .min(1)
        .dynamic()
        .doc("How long the sequence of a silent idempotent producer is remembered."),
    row("transactional.id.expiration.ms", Kind::Int, "604800000")
        .min(1)
        .doc("How long an unused transactional id is remembered."),
    row("transaction.max.timeout.ms", Kind::Int, "900000")
        .min(1)
        .doc("The longest transaction timeout that a producer may ask for."),
    // Groups.
    row("group.initial.rebalance.delay.ms", Kind::Int, "3000")
        .min(0)
        .doc("How long a group that was empty waits for more members before it assigns."),
    row("group.min.session.timeout.ms", Kind::Int, "6000")
        .min(0)
        .doc("The shortest session timeout that a member of a classic group may ask for."),
    row("group.max.session.timeout.ms", Kind::Int, "1800000")
        .min(0)
        .doc("The longest session timeout that a member of a classic group may ask for."),
    row("group.max.size", Kind::Int, "2147483647")
        .min(1)
        .doc("Members that a classic group may have."),
    row("group.consumer.session.timeout.ms", Kind::Int, "45000")
        .min(1)
        .doc("A member of a consumer group that is silent for this long is out."),
    row("group.consumer.heartbeat.interval.ms", Kind::Int, "5000")
        .min(1)
        .doc("How often members of consumer groups are told to send heartbeats."),
    row("group.consumer.max.size", Kind::Int, "2147483647")
        .min(1)
        .doc("Members that a consumer group may have."),
    row("group.consumer.assignment.interval.ms", Kind::Int, "1000")
        .min(0)
        .doc("The shortest time between two assignments of a consumer group."),
    row("group.consumer.assignors", Kind::List, "uniform,range")
        .range(Range::Among(&["uniform", "range"]))
        .doc("How consumer groups assign partitions; the first is used where members do not ask for one."),
    row("group.consumer.migration.policy", Kind::String, "bidirectional")
        .range(Range::OneOf(&["disabled", "upgrade", "downgrade", "bidirectional"]))
        .doc("Whether a group may change between the classic and the consumer protocol while members are in it."),
    row("offset.metadata.max.bytes", Kind::Int, "4096")
        .min(0)
        .doc("The longest text that may be committed with an offset."),
    row("offsets.retention.minutes", Kind::Int, "10080")
        .min(1)
        .doc("How long offsets of a group without members are remembered."),
    row("offsets.retention.check.interval.ms", Kind::Long, "600000")
        .min(1)
        .doc("How often it is looked for offsets to forget."),
    row("offsets.commit.timeout.ms", Kind::Int, "5000")
        .min(1)
        .doc("How long a commit may wait for the disk before the consumer is told to try again."),
    // Access.
    row("authorizer.class.name", Kind::String, "")
        .range(Range::OneOf(&["", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"]))
        .doc("Kafka's org.apache.kafka.metadata.authorizer.StandardAuthorizer turns rules (ACLs) on; empty: everybody who is let in may do everything. Other classes are an error, for a rule that nobody reads is an open door."),
    row("super.users", Kind::String, "")
        .doc("Principals that may do everything, whatever the rules say, as User:name separated by semicolons."),
    row("allow.everyone.if.no.acl.found", Kind::Boolean, "false")
        .doc("Whether everybody may do everything with a resource that no rule is about."),
    // Limits.
    row("num.network.threads", Kind::Int, "3")
        .range(Range::Whole(1, 256))
        .doc("Threads that read requests and write responses."),
    row("socket.request.max.bytes", Kind::Int, "104857600")
        .range(Range::Whole(1_024, 2_147_483_647))
        .doc("The largest request accepted from a connection that has logged in."),
    row("sasl.server.max.receive.size", Kind::Int, "524288")
        .range(Range::Whole(1_024, 2_147_483_647))
        .doc("The largest request accepted from a connection that must log in and has not."),
    row("queued.max.request.bytes", Kind::Long, "268435456")
        .min(-1)
        .doc("Bytes of requests in flight beyond which sockets are no longer read; -1 stands for the default."),
    row("max.connections", Kind::Int, "20000")
        .min(0)
        .per_listener()
        .dynamic()
        .doc("Connections open at a time; fewer where the limit of open files asks for it. listener.name.<listener>.max.connections bounds one listener besides: who comes beyond that waits until another leaves."),
    row("max.connections.per.ip", Kind::Int, "15000")
        .min(0)
        .dynamic()
        .doc("Connections open at a time from one address."),
    unset("max.connections.per.ip.overrides", Kind::List)
        .doc("Connections open at a time from certain addresses, as host:count separated by commas."),
    row("quota.window.num", Kind::Int, "11")
        .range(Range::Whole(2, 1_000))
        .doc("Samples over which rates of clients are measured."),
    row("quota.window.size.seconds", Kind::Int, "1")
        .range(Range::Whole(1, 3_600))
        .doc("How long each of those samples is."),
    row("controller.quota.window.num", Kind::Int, "11")
        .range(Range::Whole(1, 1_000))
        .doc("Samples over which the creation and deletion of partitions is measured."),
    row("controller.quota.window.size.seconds", Kind::Int, "1")
        .range(Range::Whole(1, 3_600))
        .doc("How long each of those samples is."),
    row("max.connection.creation.rate", Kind::Int, "10000")
        .min(0)
        .per_listener()
        .dynamic()
        .doc("Connections accepted per second; the others wait. listener.name.<listener>.max.connection.creation.rate bounds one listener besides."),
    row("connections.max.idle.ms", Kind::Long, "600000")
        .min(1)
        .doc("A connection without a request for this long is closed."),
    row("socket.listen.backlog.size", Kind::Int, "1024")
        .range(Range::Whole(1, 65_535))
        .kept()
        .doc("Connections the kernel keeps until they are accepted."),
    row("max.incremental.fetch.session.cache.slots", Kind::Int, "1000")
        .min(0)
        .doc("Readers whose wishes are remembered between their fetches; the others ask in full each time."),
    row("fetch.max.bytes", Kind::Int, "57671680")
        .min(1_024)
        .doc("The most bytes that one fetch answers, whatever the client asks for."),
];
