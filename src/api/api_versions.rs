//! ApiVersions: what we serve, from the table.

use seawall_net::Flow;
use seawall_net::wire;
use seawall_net::wire::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use seawall_net::wire::messages::{ApiVersionsRequest, ApiVersionsResponse};

use super::codes::ErrorCode;
use super::{Call, MALFORMED, TABLE, find, reply, text};

pub(super) const KEY: i16 = 18;
/// The finalized features never change, so their epoch never does.
const FEATURES_EPOCH: i64 = 0;
/// Transactions of version 2 (KIP-890).
const TRANSACTION_VERSION: &str = "transaction.version";
const TRANSACTION_VERSION_MAX: i16 = 2;

pub(super) fn handle(call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let served = find(KEY).is_some_and(|api| api.versions.contains(&version));
    if !served {
        reply(call.slot, &response(ErrorCode::UnsupportedVersion), 0);
        return Flow::Done;
    }
    let Ok(request) = wire::decode::<ApiVersionsRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let error = verdict(&call, &request, version);
    reply(call.slot, &response(error), version);
    Flow::Done
}

/// KIP-1242: a client says which broker it believes to talk to.
fn verdict(call: &Call<'_>, request: &ApiVersionsRequest, version: i16) -> ErrorCode {
    let names = [
        &request.client_software_name,
        &request.client_software_version,
    ];
    if version >= 3 && !names.iter().all(|name| is_software_name(name.as_str())) {
        return ErrorCode::InvalidRequest;
    }
    if version < 5 {
        return ErrorCode::None;
    }
    let cluster = request.cluster_id.as_ref().map(|id| id.as_str());
    if cluster.is_some_and(|id| id != call.broker.cluster_id()) {
        return ErrorCode::RebootstrapRequired;
    }
    if request.node_id >= 0 && request.node_id != call.broker.node_id() {
        return ErrorCode::InvalidRequest;
    }
    ErrorCode::None
}

/// KIP-511: `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?`.
fn is_software_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    let ends = [name.bytes().next(), name.bytes().last()];
    ends.iter()
        .all(|b| b.is_some_and(|b| b.is_ascii_alphanumeric()))
        && name.bytes().all(inner)
}

fn response(error: ErrorCode) -> ApiVersionsResponse {
    let mut response = ApiVersionsResponse::default();
    response.error_code = error.code();
    response.finalized_features_epoch = FEATURES_EPOCH;
    let mut supported = SupportedFeatureKey::default();
    supported.name = text(TRANSACTION_VERSION);
    supported.max_version = TRANSACTION_VERSION_MAX;
    response.supported_features = vec![supported];
    let mut finalized = FinalizedFeatureKey::default();
    finalized.name = text(TRANSACTION_VERSION);
    finalized.max_version_level = TRANSACTION_VERSION_MAX;
    finalized.min_version_level = TRANSACTION_VERSION_MAX;
    response.finalized_features = vec![finalized];
    response.api_keys = TABLE
        .iter()
        .map(|api| {
            let mut row = ApiVersion::default();
            row.api_key = api.key;
            row.min_version = api.advertised_from;
            row.max_version = *api.versions.end();
            row
        })
        .collect();
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_names_follow_kip_511() {
        for good in ["a", "apache-kafka-java", "1.0", "x.y-z9"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "ä", "."] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }

    #[test]
    fn an_error_still_tells_the_range_of_this_api() {
        let response = response(ErrorCode::UnsupportedVersion);
        assert!(response.api_keys.iter().any(|row| row.api_key == KEY));
    }
}
