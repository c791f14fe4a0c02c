//! ListPartitionReassignments: there are never any.

use seawall_net::Flow;
use seawall_net::wire::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use super::{Call, answer};

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer::<ListPartitionReassignmentsRequest>(call, |_, _| {
        ListPartitionReassignmentsResponse::default()
    })
}
