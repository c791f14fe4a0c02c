//! DescribeQuorum: this broker is the whole quorum. It keeps no metadata log,
//! so that there are no offsets to tell.

use seawall_net::Flow;
use seawall_net::wire::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use seawall_net::wire::messages::{DescribeQuorumRequest, DescribeQuorumResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};

/// Kafka's name of the log that its controllers agree on.
const METADATA_TOPIC: &str = "__cluster_metadata";
/// The lowest version that names nodes, and messages of errors.
const NODES_FROM: i16 = 2;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &DescribeQuorumRequest) -> DescribeQuorumResponse {
    let mut response = DescribeQuorumResponse::default();
    for topic in &request.topics {
        let mut result = TopicData::default();
        result.topic_name = text(topic.topic_name.as_str());
        for part in &topic.partitions {
            let known = topic.topic_name.as_str() == METADATA_TOPIC && part.partition_index == 0;
            result
                .partitions
                .push(row(asked, part.partition_index, known));
        }
        response.topics.push(result);
    }
    if asked.version >= NODES_FROM {
        response.nodes.push(node(asked));
    }
    response
}

fn row(asked: &Asked<'_>, index: i32, known: bool) -> PartitionData {
    let mut row = PartitionData::default();
    row.partition_index = index;
    if !known {
        row.error_code = ErrorCode::UnknownTopicOrPartition.code();
        return row;
    }
    row.leader_id = asked.broker.node_id();
    let mut voter = ReplicaState::default();
    voter.replica_id = asked.broker.node_id();
    if asked.version >= 1 {
        voter.last_fetch_timestamp = -1;
        voter.last_caught_up_timestamp = -1;
    }
    row.current_voters.push(voter);
    row
}

fn node(asked: &Asked<'_>) -> Node {
    let (host, port) = asked.broker.endpoint(asked.session);
    let mut listener = Listener::default();
    listener.name = text("CONTROLLER");
    listener.host = text(host);
    listener.port = port;
    let mut node = Node::default();
    node.node_id = asked.broker.node_id();
    node.listeners.push(listener);
    node
}
