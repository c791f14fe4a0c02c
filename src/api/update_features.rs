//! UpdateFeatures: this broker has no features with levels, so that none can
//! be changed.

use seawall_net::Flow;
use seawall_net::wire::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};

use super::codes::ErrorCode;
use super::{Call, answer, text};

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer::<UpdateFeaturesRequest>(call, |_, request| respond(request))
}

fn respond(request: &UpdateFeaturesRequest) -> UpdateFeaturesResponse {
    let mut response = UpdateFeaturesResponse::default();
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
