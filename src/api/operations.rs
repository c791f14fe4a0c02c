//! The operations a client may be told it is allowed (KIP-430).
//!
//! Owns: the bits. Without an authorizer everybody may do all that a resource
//! knows, as in Kafka.

/// Not asked for.
pub(super) const NOT_ASKED: i32 = i32::MIN;

const READ: i32 = 1 << 3;
const WRITE: i32 = 1 << 4;
const CREATE: i32 = 1 << 5;
const DELETE: i32 = 1 << 6;
const ALTER: i32 = 1 << 7;
const DESCRIBE: i32 = 1 << 8;
const CLUSTER_ACTION: i32 = 1 << 9;
const DESCRIBE_CONFIGS: i32 = 1 << 10;
const ALTER_CONFIGS: i32 = 1 << 11;
const IDEMPOTENT_WRITE: i32 = 1 << 12;

/// On a topic.
pub(super) const ON_TOPIC: i32 =
    READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS;
/// On a group.
pub(super) const ON_GROUP: i32 = READ | DELETE | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS;
/// On the cluster.
pub(super) const ON_CLUSTER: i32 = CREATE
    | ALTER
    | DESCRIBE
    | CLUSTER_ACTION
    | DESCRIBE_CONFIGS
    | ALTER_CONFIGS
    | IDEMPOTENT_WRITE;

/// The field's value: `all` if the client asked.
pub(super) fn field(asked: bool, all: i32) -> i32 {
    if asked { all } else { NOT_ASKED }
}
