//! The table of all APIs for the walk of `access`: what each needs, and a request that needs exactly that.

use seawall_testkit::kafka_wire as wire;
use seawall_testkit::requests::{self, TopicRef};
use seawall_testkit::{BatchBuilder, Raw, calls};
use wire::*;

use super::access::{
    ALTER, ALTER_CONFIGS, CLUSTER, CLUSTER_ACTION, CREATE, DELETE, DESCRIBE, DESCRIBE_CONFIGS,
    GROUP, READ, TOPIC, TXN_ID, WRITE,
};

/// One way through one API.
pub(crate) struct Row {
    pub(crate) key: i16,
    /// Operation and resource; all of them are needed.
    pub(crate) needs: &'static [(i8, i8)],
    /// It leaves out what may not be seen, and refuses nothing.
    pub(crate) filters: bool,
    /// Asks about the topic, group, or transactional id "walled"; gives the answer in words.
    pub(crate) ask: fn(&mut Raw, &TopicRef) -> String,
}

const fn row(key: i16, needs: &'static [(i8, i8)], ask: fn(&mut Raw, &TopicRef) -> String) -> Row {
    Row {
        key,
        needs,
        filters: false,
        ask,
    }
}

const fn filters(
    key: i16,
    needs: &'static [(i8, i8)],
    ask: fn(&mut Raw, &TopicRef) -> String,
) -> Row {
    Row {
        filters: true,
        ..row(key, needs, ask)
    }
}

/// Sends a request that is filled in, at the version, and gives the answer in words.
macro_rules! ask {
    ($request:ident, $version:literal, |$r:ident, $topic:ident| $fill:block) => {
        |raw, $topic| {
            let _ = $topic;
            #[allow(unused_mut, reason = "some requests are sent as they are")]
            let mut $r = $request::default();
            $fill
            format!("{:?}", raw.call::<$request>($version, &$r))
        }
    };
}

const NAME: &str = "walled";
const BROKER: i8 = 4;

pub(crate) static ROWS: &[Row] = &[
    row(0, &[(WRITE, TOPIC)], |raw, topic| {
        let batch = BatchBuilder::of(&["x"]).build();
        format!("{:?}", calls::produce(raw, topic, 0, -1, batch))
    }),
    row(0, &[(WRITE, TOPIC)], |raw, topic| {
        let batch = BatchBuilder::of(&["x"]).build();
        let request = requests::produce(13, topic, 1, vec![(0, Some(batch))]);
        format!("{:?}", raw.call::<ProduceRequest>(13, &request))
    }),
    row(0, &[(WRITE, TXN_ID), (WRITE, TOPIC)], |raw, topic| {
        let batch = BatchBuilder::of(&["x"]).build();
        let mut request = requests::produce(11, topic, -1, vec![(0, Some(batch))]);
        request.transactional_id = Some(NAME.into());
        format!("{:?}", raw.call::<ProduceRequest>(11, &request))
    }),
    row(1, &[(READ, TOPIC)], |raw, topic| {
        let from = [requests::FetchFrom::new(0, 0)];
        let request = requests::fetch(12, topic, requests::AT_ONCE, &from);
        format!("{:?}", raw.call::<FetchRequest>(12, &request))
    }),
    row(1, &[(READ, TOPIC)], |raw, topic| {
        let from = [requests::FetchFrom::new(0, 0)];
        let request = requests::fetch(16, topic, requests::AT_ONCE, &from);
        format!("{:?}", raw.call::<FetchRequest>(16, &request))
    }),
    row(2, &[(DESCRIBE, TOPIC)], |raw, _| {
        let request = requests::list_offsets(NAME, 0, -1);
        format!("{:?}", raw.call::<ListOffsetsRequest>(7, &request))
    }),
    row(3, &[(DESCRIBE, TOPIC)], |raw, _| {
        let request = requests::metadata(9, &[NAME]);
        format!("{:?}", raw.call::<MetadataRequest>(9, &request))
    }),
    filters(
        3,
        &[(DESCRIBE, TOPIC)],
        ask!(MetadataRequest, 12, |r, _topic| {
            r.topics = None;
        }),
    ),
    row(
        8,
        &[(READ, GROUP), (READ, TOPIC)],
        ask!(OffsetCommitRequest, 9, |r, _topic| {
            r.group_id = NAME.into();
            r.generation_id_or_member_epoch = -1;
            let mut topic = offset_commit_request::OffsetCommitRequestTopic::default();
            topic.name = NAME.into();
            topic.partitions = vec![Default::default()];
            r.topics = vec![topic];
        }),
    ),
    row(
        9,
        &[(DESCRIBE, GROUP), (DESCRIBE, TOPIC)],
        ask!(OffsetFetchRequest, 9, |r, _topic| {
            let mut topic = offset_fetch_request::OffsetFetchRequestTopics::default();
            topic.name = NAME.into();
            topic.partition_indexes = vec![0];
            let mut group = offset_fetch_request::OffsetFetchRequestGroup::default();
            group.group_id = NAME.into();
            group.topics = Some(vec![topic]);
            r.groups = vec![group];
        }),
    ),
    row(
        10,
        &[(DESCRIBE, GROUP)],
        ask!(FindCoordinatorRequest, 6, |r, _topic| {
            r.coordinator_keys = vec![NAME.into()];
        }),
    ),
    row(
        10,
        &[(DESCRIBE, TXN_ID)],
        ask!(FindCoordinatorRequest, 3, |r, _topic| {
            r.key = NAME.into();
            r.key_type = 1;
        }),
    ),
    row(
        11,
        &[(READ, GROUP)],
        ask!(JoinGroupRequest, 9, |r, _topic| {
            r.group_id = NAME.into();
            r.session_timeout_ms = 10_000;
        }),
    ),
    row(
        12,
        &[(READ, GROUP)],
        ask!(HeartbeatRequest, 4, |r, _topic| {
            r.group_id = NAME.into();
        }),
    ),
    row(
        13,
        &[(READ, GROUP)],
        ask!(LeaveGroupRequest, 5, |r, _topic| {
            r.group_id = NAME.into();
        }),
    ),
    row(
        14,
        &[(READ, GROUP)],
        ask!(SyncGroupRequest, 5, |r, _topic| {
            r.group_id = NAME.into();
        }),
    ),
    row(
        15,
        &[(DESCRIBE, GROUP)],
        ask!(DescribeGroupsRequest, 6, |r, _topic| {
            r.groups = vec![NAME.into()];
        }),
    ),
    filters(
        16,
        &[(DESCRIBE, GROUP)],
        ask!(ListGroupsRequest, 5, |r, _topic| {}),
    ),
    filters(
        16,
        &[(DESCRIBE, CLUSTER)],
        ask!(ListGroupsRequest, 5, |r, _topic| {}),
    ),
    filters(18, &[], ask!(ApiVersionsRequest, 0, |r, _topic| {})),
    row(19, &[(CREATE, TOPIC)], |raw, _| create(raw)),
    row(19, &[(CREATE, CLUSTER)], |raw, _| create(raw)),
    row(21, &[(DELETE, TOPIC)], |raw, _| {
        let request = requests::delete_records(NAME, &[(0, 0)]);
        format!("{:?}", raw.call::<DeleteRecordsRequest>(2, &request))
    }),
    row(
        22,
        &[(WRITE, TXN_ID)],
        ask!(InitProducerIdRequest, 5, |r, _topic| {
            r.transactional_id = Some(NAME.into());
            r.transaction_timeout_ms = 1_000;
            r.producer_id = -1;
            r.producer_epoch = -1;
        }),
    ),
    row(22, &[(IDEMPOTENT_WRITE, CLUSTER)], |raw, _| {
        new_producer(raw)
    }),
    row(22, &[(WRITE, TOPIC)], |raw, _| new_producer(raw)),
    row(23, &[(DESCRIBE, TOPIC)], |raw, _| {
        let request = requests::offset_for_leader_epoch(NAME, 0, 0);
        format!("{:?}", raw.call::<OffsetForLeaderEpochRequest>(4, &request))
    }),
    row(
        24,
        &[(WRITE, TXN_ID), (WRITE, TOPIC)],
        ask!(AddPartitionsToTxnRequest, 3, |r, _topic| {
            r.v3_and_below_transactional_id = NAME.into();
            r.v3_and_below_topics = vec![txn_topic()];
        }),
    ),
    row(
        24,
        // Brokers speak for their clients, whom they have asked.
        &[(CLUSTER_ACTION, CLUSTER)],
        ask!(AddPartitionsToTxnRequest, 5, |r, _topic| {
            let mut one = add_partitions_to_txn_request::AddPartitionsToTxnTransaction::default();
            one.transactional_id = NAME.into();
            one.topics = vec![txn_topic()];
            r.transactions = vec![one];
        }),
    ),
    row(
        25,
        &[(WRITE, TXN_ID), (READ, GROUP)],
        ask!(AddOffsetsToTxnRequest, 4, |r, _topic| {
            r.transactional_id = NAME.into();
            r.group_id = NAME.into();
        }),
    ),
    row(
        26,
        &[(WRITE, TXN_ID)],
        ask!(EndTxnRequest, 5, |r, _topic| {
            r.transactional_id = NAME.into();
        }),
    ),
    row(
        28,
        &[(WRITE, TXN_ID), (READ, GROUP), (READ, TOPIC)],
        ask!(TxnOffsetCommitRequest, 5, |r, _topic| {
            r.transactional_id = NAME.into();
            r.group_id = NAME.into();
            let mut topic = txn_offset_commit_request::TxnOffsetCommitRequestTopic::default();
            topic.name = NAME.into();
            topic.partitions = vec![Default::default()];
            r.topics = vec![topic];
        }),
    ),
    row(
        29,
        &[(DESCRIBE, CLUSTER)],
        ask!(DescribeAclsRequest, 3, |r, _topic| {
            r.resource_type_filter = 1;
            r.operation = 1;
            r.permission_type = 1;
        }),
    ),
    row(
        30,
        &[(ALTER, CLUSTER)],
        ask!(CreateAclsRequest, 3, |r, _topic| {
            r.creations = vec![Default::default()];
        }),
    ),
    row(
        31,
        &[(ALTER, CLUSTER)],
        ask!(DeleteAclsRequest, 3, |r, _topic| {
            r.filters = vec![Default::default()];
        }),
    ),
    row(32, &[(DESCRIBE_CONFIGS, TOPIC)], |raw, _| {
        describe_configs(raw, 2, NAME)
    }),
    row(32, &[(DESCRIBE_CONFIGS, CLUSTER)], |raw, _| {
        describe_configs(raw, BROKER, "1")
    }),
    row(32, &[(DESCRIBE_CONFIGS, GROUP)], |raw, _| {
        describe_configs(raw, 32, NAME)
    }),
    row(33, &[(ALTER_CONFIGS, TOPIC)], |raw, _| {
        let request = requests::alter_configs(NAME, &[]);
        format!("{:?}", raw.call::<AlterConfigsRequest>(2, &request))
    }),
    row(
        34,
        &[(ALTER, CLUSTER)],
        ask!(AlterReplicaLogDirsRequest, 2, |r, _topic| {
            let mut topic = alter_replica_log_dirs_request::AlterReplicaLogDirTopic::default();
            topic.name = NAME.into();
            topic.partitions = vec![0];
            let mut dir = alter_replica_log_dirs_request::AlterReplicaLogDir::default();
            dir.path = "/nowhere".into();
            dir.topics = vec![topic];
            r.dirs = vec![dir];
        }),
    ),
    row(
        35,
        &[(DESCRIBE, CLUSTER)],
        ask!(DescribeLogDirsRequest, 4, |r, _topic| {
            r.topics = None;
        }),
    ),
    row(37, &[(ALTER, TOPIC)], |raw, _| {
        let request = requests::create_partitions(NAME, 1);
        format!("{:?}", raw.call::<CreatePartitionsRequest>(3, &request))
    }),
    row(
        42,
        &[(DELETE, GROUP)],
        ask!(DeleteGroupsRequest, 2, |r, _topic| {
            r.groups_names = vec![NAME.into()];
        }),
    ),
    row(
        43,
        &[(ALTER, CLUSTER)],
        ask!(ElectLeadersRequest, 2, |r, _topic| {
            r.topic_partitions = Some(Vec::new());
        }),
    ),
    row(44, &[(ALTER_CONFIGS, TOPIC)], |raw, _| {
        incremental(raw, 2, NAME)
    }),
    row(44, &[(ALTER_CONFIGS, CLUSTER)], |raw, _| {
        incremental(raw, BROKER, "1")
    }),
    row(44, &[(ALTER_CONFIGS, GROUP)], |raw, _| {
        incremental(raw, 32, NAME)
    }),
    row(
        45,
        &[(ALTER, CLUSTER)],
        ask!(AlterPartitionReassignmentsRequest, 1, |r, _topic| {}),
    ),
    row(
        46,
        &[(DESCRIBE, CLUSTER)],
        ask!(ListPartitionReassignmentsRequest, 0, |r, _topic| {}),
    ),
    row(
        47,
        &[(DELETE, GROUP)],
        ask!(OffsetDeleteRequest, 0, |r, _topic| {
            r.group_id = NAME.into();
        }),
    ),
    row(
        48,
        &[(DESCRIBE_CONFIGS, CLUSTER)],
        ask!(DescribeClientQuotasRequest, 1, |r, _topic| {}),
    ),
    row(
        49,
        &[(ALTER_CONFIGS, CLUSTER)],
        ask!(AlterClientQuotasRequest, 1, |r, _topic| {
            let mut entity = alter_client_quotas_request::EntityData::default();
            entity.entity_type = "user".into();
            entity.entity_name = Some(NAME.into());
            let mut entry = alter_client_quotas_request::EntryData::default();
            entry.entity = vec![entity];
            r.entries = vec![entry];
        }),
    ),
    row(
        55,
        &[(DESCRIBE, CLUSTER)],
        ask!(DescribeQuorumRequest, 2, |r, _topic| {}),
    ),
    row(
        57,
        &[(ALTER, CLUSTER)],
        ask!(UpdateFeaturesRequest, 2, |r, _topic| {}),
    ),
    filters(60, &[(DESCRIBE, CLUSTER)], |raw, _| {
        let mut request = DescribeClusterRequest::default();
        request.include_cluster_authorized_operations = true;
        request.endpoint_type = 1;
        let answer = raw.call::<DescribeClusterRequest>(2, &request);
        let allowed = answer.cluster_authorized_operations;
        assert!([0, 1 << DESCRIBE].contains(&allowed), "{allowed}");
        format!("{answer:?}")
    }),
    row(
        61,
        &[(READ, TOPIC)],
        ask!(DescribeProducersRequest, 0, |r, _topic| {
            let mut topic = describe_producers_request::TopicRequest::default();
            topic.name = NAME.into();
            topic.partition_indexes = vec![0];
            r.topics = vec![topic];
        }),
    ),
    row(
        65,
        &[(DESCRIBE, TXN_ID)],
        ask!(DescribeTransactionsRequest, 0, |r, _topic| {
            r.transactional_ids = vec![NAME.into()];
        }),
    ),
    filters(
        66,
        &[(DESCRIBE, TXN_ID)],
        ask!(ListTransactionsRequest, 1, |r, _topic| {}),
    ),
    row(
        68,
        &[(READ, GROUP), (DESCRIBE, TOPIC)],
        ask!(ConsumerGroupHeartbeatRequest, 1, |r, _topic| {
            r.group_id = NAME.into();
            r.member_id = "m".into();
            // Refused further on: nobody is to join.
            r.member_epoch = 7;
            r.subscribed_topic_names = Some(vec![NAME.into()]);
        }),
    ),
    row(
        69,
        &[(DESCRIBE, GROUP)],
        ask!(ConsumerGroupDescribeRequest, 1, |r, _topic| {
            r.group_ids = vec![NAME.into()];
        }),
    ),
    row(
        74,
        &[(DESCRIBE_CONFIGS, CLUSTER)],
        ask!(ListConfigResourcesRequest, 1, |r, _topic| {}),
    ),
    row(
        75,
        &[(DESCRIBE, TOPIC)],
        ask!(DescribeTopicPartitionsRequest, 0, |r, _topic| {
            let mut topic = describe_topic_partitions_request::TopicRequest::default();
            topic.name = NAME.into();
            r.topics = vec![topic];
        }),
    ),
    filters(
        75,
        &[(DESCRIBE, TOPIC)],
        ask!(DescribeTopicPartitionsRequest, 0, |r, _topic| {
            r.response_partition_limit = 100;
        }),
    ),
    // Of a connection that has no login to begin.
    filters(
        17,
        &[],
        ask!(SaslHandshakeRequest, 1, |r, _topic| {
            r.mechanism = "PLAIN".into();
        }),
    ),
    filters(36, &[], ask!(SaslAuthenticateRequest, 2, |r, _topic| {})),
    row(
        50,
        &[(DESCRIBE, CLUSTER)],
        ask!(DescribeUserScramCredentialsRequest, 0, |r, _topic| {}),
    ),
    row(
        51,
        &[(ALTER, CLUSTER)],
        ask!(AlterUserScramCredentialsRequest, 0, |r, _topic| {
            let mut user = alter_user_scram_credentials_request::ScramCredentialDeletion::default();
            user.name = NAME.into();
            user.mechanism = 1;
            r.deletions = vec![user];
        }),
    ),
    // The last one: it does what it is about.
    row(20, &[(DELETE, TOPIC)], |raw, _| {
        let request = requests::delete_topics(5, &[NAME]);
        format!("{:?}", raw.call::<DeleteTopicsRequest>(5, &request))
    }),
];

const IDEMPOTENT_WRITE: i8 = 12;

fn txn_topic() -> add_partitions_to_txn_request::AddPartitionsToTxnTopic {
    let mut topic = add_partitions_to_txn_request::AddPartitionsToTxnTopic::default();
    topic.name = NAME.into();
    topic.partitions = vec![0];
    topic
}

fn create(raw: &mut Raw) -> String {
    // It is there already: who may create it learns that, and nobody else.
    let request = requests::create_topics(vec![requests::topic(NAME, 1, &[])]);
    format!("{:?}", raw.call::<CreateTopicsRequest>(7, &request))
}

fn new_producer(raw: &mut Raw) -> String {
    let request = requests::init_producer_id();
    format!("{:?}", raw.call::<InitProducerIdRequest>(4, &request))
}

fn describe_configs(raw: &mut Raw, kind: i8, name: &str) -> String {
    let mut resource = describe_configs_request::DescribeConfigsResource::default();
    resource.resource_type = kind;
    resource.resource_name = name.into();
    let mut request = DescribeConfigsRequest::default();
    request.resources = vec![resource];
    format!("{:?}", raw.call::<DescribeConfigsRequest>(4, &request))
}

fn incremental(raw: &mut Raw, kind: i8, name: &str) -> String {
    let mut resource = incremental_alter_configs_request::AlterConfigsResource::default();
    resource.resource_type = kind;
    resource.resource_name = name.into();
    let mut request = IncrementalAlterConfigsRequest::default();
    request.resources = vec![resource];
    format!(
        "{:?}",
        raw.call::<IncrementalAlterConfigsRequest>(1, &request)
    )
}

/// Gives a transactional id a producer.
pub(crate) fn open_transaction(raw: &mut Raw, id: &str) -> i16 {
    let mut request = InitProducerIdRequest::default();
    request.transactional_id = Some(id.into());
    request.transaction_timeout_ms = 60_000;
    request.producer_id = -1;
    request.producer_epoch = -1;
    raw.call::<InitProducerIdRequest>(4, &request).error_code
}

/// Commits an offset of the topic "walled" for a group, as somebody who is no member.
pub(crate) fn commit(raw: &mut Raw, group: &str) -> i16 {
    let mut topic = offset_commit_request::OffsetCommitRequestTopic::default();
    topic.name = NAME.into();
    topic.partitions = vec![Default::default()];
    let mut request = OffsetCommitRequest::default();
    request.group_id = group.into();
    request.generation_id_or_member_epoch = -1;
    request.topics = vec![topic];
    let answer = raw.call::<OffsetCommitRequest>(8, &request);
    answer.topics[0].partitions[0].error_code
}
