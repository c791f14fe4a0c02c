//! What the two APIs of client quotas share.
//!
//! Owns:     how their errors are told.

use super::Asked;
use super::codes::ErrorCode;
use crate::security::quota::{ChangeError, EntityError, Mutations};

/// Why limits are not what a client asked for.
pub(super) type Refusal = (ErrorCode, String);

/// An entity or a limit that cannot be.
pub(super) fn invalid(error: &EntityError) -> Refusal {
    (ErrorCode::InvalidRequest, error.to_string())
}

impl Asked<'_> {
    /// The mutations of the request, where limits are set.
    pub(super) fn mutations(&self, strict: bool) -> Option<Mutations<'_>> {
        let client = self.client.as_ref()?;
        Some(self.broker.quotas.mutations(client, strict))
    }
}

/// How a change failed.
pub(super) fn refusal(error: ChangeError) -> Refusal {
    let code = match error {
        ChangeError::TooMany => ErrorCode::InvalidRequest,
        ChangeError::NotFresh | ChangeError::State => ErrorCode::KafkaStorageError,
    };
    (code, error.to_string())
}
