//! Kafka's error codes that the tables of cases name.

pub(crate) const NONE: i16 = 0;
pub(crate) const OFFSET_OUT_OF_RANGE: i16 = 1;
pub(crate) const CORRUPT_MESSAGE: i16 = 2;
pub(crate) const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
pub(crate) const MESSAGE_TOO_LARGE: i16 = 10;
pub(crate) const INVALID_TOPIC: i16 = 17;
pub(crate) const UNSUPPORTED_VERSION: i16 = 35;
pub(crate) const TOPIC_ALREADY_EXISTS: i16 = 36;
pub(crate) const INVALID_CONFIG: i16 = 40;
pub(crate) const INVALID_REQUEST: i16 = 42;
pub(crate) const OUT_OF_ORDER_SEQUENCE: i16 = 45;
pub(crate) const INVALID_PRODUCER_EPOCH: i16 = 47;
pub(crate) const KAFKA_STORAGE_ERROR: i16 = 56;
pub(crate) const UNSUPPORTED_COMPRESSION: i16 = 76;
pub(crate) const INVALID_RECORD: i16 = 87;
pub(crate) const UNKNOWN_TOPIC_ID: i16 = 100;
pub(crate) const POLICY_VIOLATION: i16 = 44;
pub(crate) const INVALID_REPLICA_ASSIGNMENT: i16 = 39;
pub(crate) const ELECTION_NOT_NEEDED: i16 = 84;
pub(crate) const NO_REASSIGNMENT_IN_PROGRESS: i16 = 85;
pub(crate) const INVALID_UPDATE_VERSION: i16 = 95;
