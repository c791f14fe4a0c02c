//! Kafka's APIs: one table, one file each.
//!
//! Owns:     which APIs and versions we serve; dispatch, ApiVersions and the
//!           README's table come from [`TABLE`].
//! Does not: know partitions from the inside, files, or sockets.
//!
//! Handlers run on the net thread of their connection and hand blocking work
//! to a pool. Message types of the wire are named only here and in net.

mod acl_wire;
mod add_offsets_to_txn;
mod add_partitions_to_txn;
mod alter_client_quotas;
mod alter_configs;
mod alter_partition_reassignments;
mod alter_replica_log_dirs;
mod alter_user_scram_credentials;
mod api_versions;
pub mod codes;
mod consumer_group_describe;
mod consumer_group_heartbeat;
mod create_acls;
mod create_partitions;
mod create_topics;
mod delete_acls;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_acls;
mod describe_client_quotas;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_quorum;
mod describe_topic_partitions;
mod describe_transactions;
mod describe_user_scram_credentials;
mod elect_leaders;
mod end_txn;
pub mod error;
mod fetch;
mod find_coordinator;
mod gates;
mod gather;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_config_resources;
mod list_groups;
mod list_offsets;
mod list_partition_reassignments;
mod list_transactions;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod offset_rows;
mod operations;
mod produce;
mod quota_wire;
mod sasl_authenticate;
mod sasl_handshake;
mod service;
mod slot;
mod sync_group;
mod txn_offset_commit;
mod update_features;

pub use service::KafkaService;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use seawall_net::wire::messages::RequestResponsePair;
use seawall_net::wire::{self, StrBytes};
use seawall_net::{Class, CloseReason, ConnInfo, Flow, Request};
use seawall_storage::TopicId;

use crate::broker::Broker;
use crate::security::Session;
use crate::security::quota::Client;
use crate::txn::TxnError;
use crate::workers::Workers;
use codes::ErrorCode;
use slot::{Slot, Work};

/// One API as we serve it.
pub struct Api {
    /// Kafka's number of it.
    pub key: i16,
    /// Kafka's name of it.
    pub name: &'static str,
    /// Versions that are served.
    pub versions: RangeInclusive<i16>,
    /// Lowest version that ApiVersions tells. Differs from `versions` for
    /// Produce alone: old librdkafka refuses a broker that lacks v0 there.
    pub advertised_from: i16,
    /// How it is ordered on its connection.
    pub class: Class,
    /// Whether a client may call it before it has logged in.
    pub before_login: bool,
    /// What a client must be allowed to do.
    gate: gates::Gate,
    handle: fn(Call<'_>) -> Flow,
    /// Requests started since the start of the process.
    pub requests: AtomicU64,
    /// Errors it told.
    pub errors: codes::Told,
}

/// State of one connection.
pub struct Conn {
    info: ConnInfo,
    /// Who is at its other end.
    session: Session,
    /// Whether it may call more than what is allowed before a login.
    gate: service::Gate,
    /// The fetch that is waiting, so that it ends with the connection.
    parked: fetch::Parked,
}

/// One request with all that a handler needs.
struct Call<'a> {
    broker: &'a Arc<Broker>,
    conn: &'a mut Conn,
    api: &'static Api,
    request: Request,
    slot: Slot,
}

const fn api(
    key: i16,
    name: &'static str,
    versions: RangeInclusive<i16>,
    handle: fn(Call<'_>) -> Flow,
) -> Api {
    Api {
        key,
        name,
        advertised_from: *versions.start(),
        versions,
        class: Class::Exclusive,
        before_login: false,
        gate: gates::of(key),
        handle,
        requests: AtomicU64::new(0),
        errors: codes::Told::new(),
    }
}

/// Every API we serve, by key.
pub static TABLE: [Api; 53] = [
    Api {
        class: Class::Pipelined,
        advertised_from: 0,
        ..api(0, "Produce", 3..=13, produce::handle)
    },
    api(1, "Fetch", 4..=18, fetch::handle),
    api(2, "ListOffsets", 1..=11, list_offsets::handle),
    api(3, "Metadata", 0..=13, metadata::handle),
    api(8, "OffsetCommit", 2..=10, offset_commit::handle),
    api(9, "OffsetFetch", 1..=10, offset_fetch::handle),
    api(10, "FindCoordinator", 0..=6, find_coordinator::handle),
    api(11, "JoinGroup", 0..=9, join_group::handle),
    api(12, "Heartbeat", 0..=4, heartbeat::handle),
    api(13, "LeaveGroup", 0..=5, leave_group::handle),
    api(14, "SyncGroup", 0..=5, sync_group::handle),
    api(15, "DescribeGroups", 0..=6, describe_groups::handle),
    api(16, "ListGroups", 0..=5, list_groups::handle),
    Api {
        before_login: true,
        ..api(17, "SaslHandshake", 0..=1, sasl_handshake::handle)
    },
    Api {
        before_login: true,
        ..api(18, "ApiVersions", 0..=5, api_versions::handle)
    },
    api(19, "CreateTopics", 2..=7, create_topics::handle),
    api(20, "DeleteTopics", 1..=6, delete_topics::handle),
    api(21, "DeleteRecords", 0..=2, delete_records::handle),
    api(22, "InitProducerId", 0..=6, init_producer_id::handle),
    api(
        23,
        "OffsetForLeaderEpoch",
        2..=4,
        offset_for_leader_epoch::handle,
    ),
    api(
        24,
        "AddPartitionsToTxn",
        0..=5,
        add_partitions_to_txn::handle,
    ),
    api(25, "AddOffsetsToTxn", 0..=4, add_offsets_to_txn::handle),
    api(26, "EndTxn", 0..=5, end_txn::handle),
    api(28, "TxnOffsetCommit", 0..=6, txn_offset_commit::handle),
    api(29, "DescribeAcls", 1..=3, describe_acls::handle),
    api(30, "CreateAcls", 1..=3, create_acls::handle),
    api(31, "DeleteAcls", 1..=3, delete_acls::handle),
    api(32, "DescribeConfigs", 1..=4, describe_configs::handle),
    api(33, "AlterConfigs", 0..=2, alter_configs::handle),
    api(
        34,
        "AlterReplicaLogDirs",
        1..=2,
        alter_replica_log_dirs::handle,
    ),
    api(35, "DescribeLogDirs", 1..=5, describe_log_dirs::handle),
    Api {
        before_login: true,
        ..api(36, "SaslAuthenticate", 0..=2, sasl_authenticate::handle)
    },
    api(37, "CreatePartitions", 0..=3, create_partitions::handle),
    api(42, "DeleteGroups", 0..=3, delete_groups::handle),
    api(43, "ElectLeaders", 0..=2, elect_leaders::handle),
    api(
        44,
        "IncrementalAlterConfigs",
        0..=1,
        incremental_alter_configs::handle,
    ),
    api(
        45,
        "AlterPartitionReassignments",
        0..=1,
        alter_partition_reassignments::handle,
    ),
    api(
        46,
        "ListPartitionReassignments",
        0..=0,
        list_partition_reassignments::handle,
    ),
    api(47, "OffsetDelete", 0..=0, offset_delete::handle),
    api(
        48,
        "DescribeClientQuotas",
        0..=1,
        describe_client_quotas::handle,
    ),
    api(49, "AlterClientQuotas", 0..=1, alter_client_quotas::handle),
    api(
        50,
        "DescribeUserScramCredentials",
        0..=0,
        describe_user_scram_credentials::handle,
    ),
    api(
        51,
        "AlterUserScramCredentials",
        0..=0,
        alter_user_scram_credentials::handle,
    ),
    api(55, "DescribeQuorum", 0..=2, describe_quorum::handle),
    api(57, "UpdateFeatures", 0..=2, update_features::handle),
    api(60, "DescribeCluster", 0..=2, describe_cluster::handle),
    api(61, "DescribeProducers", 0..=0, describe_producers::handle),
    api(
        65,
        "DescribeTransactions",
        0..=0,
        describe_transactions::handle,
    ),
    api(66, "ListTransactions", 0..=2, list_transactions::handle),
    api(
        68,
        "ConsumerGroupHeartbeat",
        0..=1,
        consumer_group_heartbeat::handle,
    ),
    api(
        69,
        "ConsumerGroupDescribe",
        0..=1,
        consumer_group_describe::handle,
    ),
    api(
        74,
        "ListConfigResources",
        0..=1,
        list_config_resources::handle,
    ),
    api(
        75,
        "DescribeTopicPartitions",
        0..=0,
        describe_topic_partitions::handle,
    ),
];

/// The row of an API key.
pub fn find(key: i16) -> Option<&'static Api> {
    TABLE.iter().find(|api| api.key == key)
}

/// Why a connection is closed when its peer sends what no client should.
const MALFORMED: CloseReason = CloseReason::Service("the request cannot be decoded");
/// Ours: a response that its own codec refuses.
const UNENCODABLE: CloseReason = CloseReason::Service("a response cannot be encoded (a bug)");

/// Answers an API whose handler does no blocking work.
fn answer<R>(call: Call<'_>, handle: impl FnOnce(&Asked<'_>, &R) -> R::Response) -> Flow
where
    R: RequestResponsePair,
{
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<R>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let asked = Asked {
        broker: call.broker,
        session: &call.conn.session,
        api: call.api,
        client: call.client(),
        version,
    };
    reply(call.slot, &handle(&asked, &request), version);
    Flow::Done
}

/// Answers an API whose handler blocks on the disk, from `pool`.
fn answer_from<R>(
    call: Call<'_>,
    pool: &Workers,
    handle: impl FnOnce(&Asked<'_>, &R) -> R::Response + Send + 'static,
) -> Flow
where
    R: RequestResponsePair + Send + 'static,
{
    let version = call.request.header.api_version;
    let Ok(request) = wire::decode::<R>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let broker = Arc::clone(call.broker);
    let session = call.conn.session.clone();
    let client = call.client();
    let (slot, api) = (call.slot, call.api);
    pool.submit(move || {
        let _work = client.as_ref().map(|who| Work::of(&broker, who));
        let asked = Asked {
            broker: &broker,
            session: &session,
            api,
            client,
            version,
        };
        reply(slot, &handle(&asked, &request), version);
    });
    Flow::Done
}

/// Who asks, and in which version.
struct Asked<'a> {
    broker: &'a Arc<Broker>,
    session: &'a Session,
    api: &'static Api,
    /// Who pays, where limits are set.
    client: Option<Client>,
    version: i16,
}

fn reply<M>(slot: Slot, response: &M, version: i16)
where
    M: wire::messages::KafkaMessage,
{
    match wire::encode(response, version) {
        Ok(body) => slot.reply(body),
        Err(error) => {
            log::error!("{}: {error}", M::NAME);
            slot.close(UNENCODABLE);
        }
    }
}

/// The code for a refused transaction. Where a version does not know
/// `PRODUCER_FENCED`, it is told of an invalid epoch.
fn txn_code(error: TxnError, knows_fenced: bool) -> ErrorCode {
    match error {
        TxnError::Fenced if !knows_fenced => ErrorCode::InvalidProducerEpoch,
        error => ErrorCode::from(&error),
    }
}

fn topic_id_to_wire(id: TopicId) -> wire::Uuid {
    wire::Uuid::from_bytes(*id.0.as_bytes())
}

fn topic_id_from_wire(id: wire::Uuid) -> TopicId {
    TopicId(uuid::Uuid::from_bytes(*id.as_bytes()))
}

/// A string of ours for the wire. What came from a request is copied, so that
/// an answer that waits does not keep the frame.
fn text(text: &str) -> StrBytes {
    StrBytes::from(text)
}

/// Says that the table and the codec agree on keys and names.
#[cfg(test)]
mod tests {
    use super::*;
    use wire::messages::API_DESCRIPTORS;

    #[test]
    fn every_row_is_an_api_that_the_codec_knows_in_all_its_versions() {
        for api in &TABLE {
            let known = API_DESCRIPTORS
                .iter()
                .find(|known| known.api_key.value() == api.key)
                .unwrap();
            assert_eq!(known.request.name, format!("{}Request", api.name));
            let versions = known.supported_versions;
            assert!(
                versions.min().value() <= *api.versions.start(),
                "{}",
                api.name
            );
            assert!(
                versions.max().value() >= *api.versions.end(),
                "{}",
                api.name
            );
            assert!(api.advertised_from <= *api.versions.start());
        }
    }

    #[test]
    fn rows_are_sorted_and_unique() {
        assert!(TABLE.windows(2).all(|pair| pair[0].key < pair[1].key));
    }
}
