//! UpdateFeatures: this broker has no features with levels, so that none can
//! be changed.

use seawall_net::Flow;
use seawall_net::wire::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};

use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};
use crate::security::acl::Operation;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer::<UpdateFeaturesRequest>(call, respond)
}

fn respond(asked: &Asked<'_>, request: &UpdateFeaturesRequest) -> UpdateFeaturesResponse {
    let mut response = UpdateFeaturesResponse::default();
    if let Err(code) = asked.access().cluster(Operation::Alter) {
        response.error_code = code.code();
        return response;
    }
    if let Some(update) = request.feature_updates.first() {
        let message = format!(
            "The update failed for all features since this broker does not have the feature {}.",
            update.feature.as_str()
        );
        response.error_code = ErrorCode::InvalidUpdateVersion.code();
        response.error_message = Some(text(&message));
    }
    response
}
