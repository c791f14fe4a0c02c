//! DescribeCluster: one broker, which is its own controller.

use seawall_net::Flow;
use seawall_net::wire::messages::describe_cluster_response::DescribeClusterBroker;
use seawall_net::wire::messages::{DescribeClusterRequest, DescribeClusterResponse};

use super::codes::ErrorCode;
use super::operations::{self, ON_CLUSTER};
use super::{Asked, Call, answer, text};

/// Endpoint type of brokers; the other one, controllers, we have none of
/// (KIP-919).
const BROKERS: i8 = 1;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(asked: &Asked<'_>, request: &DescribeClusterRequest) -> DescribeClusterResponse {
    let mut response = DescribeClusterResponse::default();
    response.endpoint_type = request.endpoint_type;
    if request.endpoint_type != BROKERS {
        response.error_code = ErrorCode::MismatchedEndpointType.code();
        response.error_message = Some(text("this is a broker, not a controller"));
        return response;
    }
    let (host, port) = asked.broker.endpoint(asked.session);
    let mut broker = DescribeClusterBroker::default();
    broker.broker_id = asked.broker.node_id();
    broker.host = text(host);
    broker.port = i32::from(port);
    broker.rack = asked.broker.config.rack.as_deref().map(text);
    response.brokers = vec![broker];
    response.cluster_id = text(asked.broker.cluster_id());
    response.controller_id = asked.broker.node_id();
    response.cluster_authorized_operations =
        operations::field(request.include_cluster_authorized_operations, ON_CLUSTER);
    response
}
