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
/// The lowest version that tells a throttle time.
const THROTTLE_FROM: i16 = 1;
/// The lowest version that tells of features (KIP-584).
const FEATURES_FROM: i16 = 3;
/// Features whose level clients look at before they use a protocol: name, and the level that is supported and in force.
const FEATURES: &[(&str, i16)] = &[("group.version", 1), ("transaction.version", 2)];
/// The finalized features have not changed since the cluster was made.
const FEATURES_EPOCH: i64 = 0;

pub(super) fn handle(mut call: Call<'_>) -> Flow {
    let version = call.request.header.api_version;
    let served = find(KEY).is_some_and(|api| api.versions.contains(&version));
    if !served {
        reply(call.slot, &response(ErrorCode::UnsupportedVersion, 0), 0);
        return Flow::Done;
    }
    let Ok(request) = wire::decode::<ApiVersionsRequest>(&call.request.body, version) else {
        call.slot.close(MALFORMED);
        return Flow::Done;
    };
    let error = verdict(&call, &request, version);
    let mut response = response(error, version);
    let ms = call.slot.pay();
    if version >= THROTTLE_FROM {
        response.throttle_time_ms = ms;
    }
    reply(call.slot, &response, version);
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

fn response(error: ErrorCode, version: i16) -> ApiVersionsResponse {
    let mut response = ApiVersionsResponse::default();
    response.error_code = error.code();
    if version >= FEATURES_FROM {
        add_features(&mut response);
    }
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

fn add_features(response: &mut ApiVersionsResponse) {
    response.finalized_features_epoch = FEATURES_EPOCH;
    for (name, level) in FEATURES {
        let mut supported = SupportedFeatureKey::default();
        supported.name = text(name);
        supported.max_version = *level;
        response.supported_features.push(supported);
        let mut finalized = FinalizedFeatureKey::default();
        finalized.name = text(name);
        finalized.max_version_level = *level;
        finalized.min_version_level = *level;
        response.finalized_features.push(finalized);
    }
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
        let response = response(ErrorCode::UnsupportedVersion, 0);
        assert!(response.api_keys.iter().any(|row| row.api_key == KEY));
    }
}
