//! Every request that is decoded, in every version.

use bytes::Bytes;
use seawall_net::wire::{self, FetchRequest, ProduceRequest, messages as m};

/// A decoder of one request: version and body.
type Decode = fn(i16, &Bytes);
/// A request that its client would send without anything to say.
type Encode = fn(i16) -> Option<Bytes>;

macro_rules! requests {
    ($($request:ident)*) => {
        /// The requests that are decoded here, by name.
        pub static API_NAMES: &[&str] = &["Produce", "Fetch", $(stringify!($request)),*];

        static DECODERS: &[Decode] = &[
            |version, body| drop(ProduceRequest::decode(body, version)),
            |version, body| drop(FetchRequest::decode(body, version)),
            $(|version, body| drop(wire::decode::<m::$request>(body, version)),)*
        ];

        static ENCODERS: &[Encode] = &[
            |version| wire::encode(&m::ProduceRequest::default(), version).ok(),
            |version| wire::encode(&m::FetchRequest::default(), version).ok(),
            $(|version| wire::encode(&m::$request::default(), version).ok(),)*
        ];
    };
}

requests! {
    ListOffsetsRequest MetadataRequest OffsetCommitRequest OffsetFetchRequest FindCoordinatorRequest
    JoinGroupRequest HeartbeatRequest LeaveGroupRequest SyncGroupRequest DescribeGroupsRequest
    ListGroupsRequest SaslHandshakeRequest ApiVersionsRequest CreateTopicsRequest DeleteTopicsRequest
    DeleteRecordsRequest InitProducerIdRequest OffsetForLeaderEpochRequest AddPartitionsToTxnRequest
    AddOffsetsToTxnRequest EndTxnRequest TxnOffsetCommitRequest DescribeAclsRequest CreateAclsRequest
    DeleteAclsRequest DescribeConfigsRequest AlterConfigsRequest AlterReplicaLogDirsRequest
    DescribeLogDirsRequest SaslAuthenticateRequest CreatePartitionsRequest DeleteGroupsRequest
    ElectLeadersRequest IncrementalAlterConfigsRequest AlterPartitionReassignmentsRequest
    ListPartitionReassignmentsRequest OffsetDeleteRequest DescribeClientQuotasRequest
    AlterClientQuotasRequest DescribeUserScramCredentialsRequest AlterUserScramCredentialsRequest
    DescribeQuorumRequest UpdateFeaturesRequest DescribeClusterRequest DescribeProducersRequest
    DescribeTransactionsRequest ListTransactionsRequest ConsumerGroupHeartbeatRequest
    ConsumerGroupDescribeRequest ListConfigResourcesRequest DescribeTopicPartitionsRequest
}

/// The first byte names the request, the second its version, the others are its body.
pub(crate) fn request(input: &[u8]) {
    let [which, version, body @ ..] = input else {
        return;
    };
    let decode = DECODERS[usize::from(*which) % DECODERS.len()];
    decode(i16::from(*version), &Bytes::copy_from_slice(body));
}

/// An input of the target for one request in one version, if there is that version.
#[must_use]
pub fn seed(which: usize, version: u8) -> Option<Vec<u8>> {
    let body = ENCODERS.get(which)?(i16::from(version))?;
    let mut input = vec![u8::try_from(which).ok()?, version];
    input.extend_from_slice(&body);
    Some(input)
}
