//! DescribeUserScramCredentials (KIP-554): who may log in by SCRAM, and with how many rounds. Never a key.

use std::collections::HashSet;

use seawall_net::Flow;
use seawall_net::wire::messages::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
use seawall_net::wire::messages::{
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
};

use super::alter_user_scram_credentials::mechanism_code;
use super::codes::ErrorCode;
use super::{Asked, Call, answer, text};
use crate::security::UserKeys;

pub(super) fn handle(call: Call<'_>) -> Flow {
    answer(call, respond)
}

fn respond(
    asked: &Asked<'_>,
    request: &DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse {
    let users = asked.broker.credentials.load();
    let mut response = DescribeUserScramCredentialsResponse::default();
    let wanted = request.users.as_deref().unwrap_or_default();
    if wanted.is_empty() {
        response.results = users.iter().map(|(name, keys)| known(name, keys)).collect();
        return response;
    }
    let mut seen = HashSet::new();
    let mut repeated = HashSet::new();
    for user in wanted {
        if !seen.insert(user.name.as_str()) {
            repeated.insert(user.name.as_str());
        }
    }
    let mut told = HashSet::new();
    let names = wanted.iter().map(|user| user.name.as_str());
    let names = names.filter(|name| told.insert(*name));
    response.results = names
        .map(|name| match users.get(name) {
            _ if repeated.contains(name) => failed(
                name,
                ErrorCode::DuplicateResource,
                "Cannot describe SCRAM credentials for the same user twice in a single request",
            ),
            Some(keys) => known(name, keys),
            None => failed(
                name,
                ErrorCode::ResourceNotFound,
                "Attempt to describe a user credential that does not exist",
            ),
        })
        .collect();
    response
}

fn known(name: &str, keys: &UserKeys) -> DescribeUserScramCredentialsResult {
    let mut result = DescribeUserScramCredentialsResult::default();
    result.user = text(name);
    let infos = keys.iter().map(|(hash, credential)| {
        let mut info = CredentialInfo::default();
        info.mechanism = mechanism_code(*hash);
        info.iterations = i32::try_from(credential.iterations.get()).unwrap_or(i32::MAX);
        info
    });
    result.credential_infos = infos.collect();
    result
}

fn failed(name: &str, error: ErrorCode, why: &str) -> DescribeUserScramCredentialsResult {
    let mut result = DescribeUserScramCredentialsResult::default();
    result.user = text(name);
    result.error_code = error.code();
    result.error_message = Some(text(&format!("{why}: {name}")));
    result
}
