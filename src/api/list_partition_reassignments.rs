//! ListPartitionReassignments: there are never any.

use seawall_net::Flow;
use seawall_net::wire::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use super::{Call, answer};
use crate::security::acl::Operation;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer::<ListPartitionReassignmentsRequest>(call, |asked, _| {
        let mut response = ListPartitionReassignmentsResponse::default();
        if let Err(code) = asked.access().cluster(Operation::Describe) {
            response.error_code = code.code();
        }
        response
    })
}
