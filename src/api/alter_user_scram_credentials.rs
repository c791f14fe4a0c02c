//! AlterUserScramCredentials (KIP-554): users are added, given another password, removed.
//!
//! The password itself never comes here: the client salts it. All changes of a request are one write, and are answered
//! when it is on stable storage.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::sync::Arc;

use seawall_net::Flow;
use seawall_net::wire::messages::alter_user_scram_credentials_request::ScramCredentialUpsertion;
use seawall_net::wire::messages::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use seawall_net::wire::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
};

use super::codes::ErrorCode;
use super::{Asked, Call, answer_from, text};
use crate::security::acl::Operation;
use crate::security::sasl::scram::{Credential, Hash, ITERATIONS_MAX, ITERATIONS_MIN};
use crate::security::{CredentialsError, NAME_BYTES_MAX, UserKeys};

/// Longest salt that is kept; those of clients have some thirty bytes.
const SALT_BYTES_MAX: usize = 128;

/// The number of a mechanism in these two APIs.
pub(super) fn mechanism_code(hash: Hash) -> i8 {
    match hash {
        Hash::Sha256 => 1,
        Hash::Sha512 => 2,
    }
}

fn hash_of_code(code: i8) -> Option<Hash> {
    let all = [Hash::Sha256, Hash::Sha512];
    all.into_iter().find(|hash| mechanism_code(*hash) == code)
}

pub(super) fn handle(call: Call<'_>) -> Flow {
    let broker = Arc::clone(call.broker);
    answer_from(call, &broker.state_workers(), respond)
}

/// Why nothing of a user was changed.
type Refusal = (ErrorCode, &'static str);

fn respond(
    asked: &Asked<'_>,
    request: &AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse {
    if let Err(refused) = asked.access().cluster(Operation::Alter) {
        return all_refused(request, (refused, "Cluster authorization failed."));
    }
    let changes = changes(request);
    let changed = asked.broker.credentials.change(|users| {
        let results = changes.into_iter();
        let results = results.map(|(name, changes)| {
            let result = changes.and_then(|changes| apply(users, name, changes));
            (name, result)
        });
        results.collect::<Vec<_>>()
    });
    let mut response = AlterUserScramCredentialsResponse::default();
    response.results = match changed {
        Ok(results) => results
            .into_iter()
            .map(|(name, result)| row(name, result.err()))
            .collect(),
        Err(error) => {
            log::warn!("users are not changed: {error}");
            return all_refused(request, refusal_of(&error));
        }
    };
    response
}

fn all_refused(
    request: &AlterUserScramCredentialsRequest,
    refusal: Refusal,
) -> AlterUserScramCredentialsResponse {
    let mut names: Vec<&str> = names(request).collect();
    names.sort_unstable();
    names.dedup();
    let rows = names.into_iter().map(|name| row(name, Some(refusal)));
    let mut response = AlterUserScramCredentialsResponse::default();
    response.results = rows.collect();
    response
}

fn refusal_of(error: &CredentialsError) -> Refusal {
    match error {
        CredentialsError::TooMany => (ErrorCode::PolicyViolation, "There are too many users"),
        CredentialsError::State(_) | CredentialsError::NotFresh | CredentialsError::Random(_) => {
            (ErrorCode::KafkaStorageError, "The users cannot be written")
        }
    }
}

fn row(name: &str, refusal: Option<Refusal>) -> AlterUserScramCredentialsResult {
    let mut row = AlterUserScramCredentialsResult::default();
    row.user = text(name);
    if let Some((error, message)) = refusal {
        row.error_code = error.code();
        row.error_message = Some(text(message));
    }
    row
}

fn names(request: &AlterUserScramCredentialsRequest) -> impl Iterator<Item = &str> {
    let deletions = request.deletions.iter().map(|one| one.name.as_str());
    let upsertions = request.upsertions.iter().map(|one| one.name.as_str());
    deletions.chain(upsertions)
}

/// What is asked for each user: a credential, or `None` for its removal.
type Changes = HashMap<Hash, Option<Credential>>;

/// All that is asked, by user. What is wrong with one change holds for all of that user.
fn changes(request: &AlterUserScramCredentialsRequest) -> BTreeMap<&str, Result<Changes, Refusal>> {
    let mut all: BTreeMap<&str, Result<Changes, Refusal>> = BTreeMap::new();
    let deletions = request.deletions.iter().map(|one| {
        let hash = checked(one.name.as_str(), one.mechanism);
        (one.name.as_str(), hash.map(|hash| (hash, None)))
    });
    let upsertions = request.upsertions.iter().map(|one| {
        let hash = checked(one.name.as_str(), one.mechanism);
        let change = hash.and_then(|hash| Ok((hash, Some(credential(hash, one)?))));
        (one.name.as_str(), change)
    });
    for (name, change) in deletions.chain(upsertions) {
        let of_user = all.entry(name).or_insert_with(|| Ok(Changes::new()));
        let added = match (of_user.as_mut(), change) {
            (Err(_), _) => continue,
            (Ok(_), Err(refusal)) => Err(refusal),
            (Ok(changes), Ok((hash, change))) => match changes.insert(hash, change) {
                None => Ok(()),
                Some(_) => Err((
                    ErrorCode::DuplicateResource,
                    "A user credential cannot be altered twice in the same request",
                )),
            },
        };
        if let Err(refusal) = added {
            *of_user = Err(refusal);
        }
    }
    all
}

fn checked(name: &str, mechanism: i8) -> Result<Hash, Refusal> {
    if name.is_empty() {
        return Err((
            ErrorCode::UnacceptableCredential,
            "Username must not be empty",
        ));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err((ErrorCode::UnacceptableCredential, "Username is too long"));
    }
    hash_of_code(mechanism).ok_or((
        ErrorCode::UnsupportedSaslMechanism,
        "Unknown SCRAM mechanism",
    ))
}

fn credential(hash: Hash, asked: &ScramCredentialUpsertion) -> Result<Credential, Refusal> {
    let refuse = |why| Err((ErrorCode::UnacceptableCredential, why));
    let iterations = u32::try_from(asked.iterations).unwrap_or(0);
    let Some(rounds) = NonZeroU32::new(iterations).filter(|_| iterations >= ITERATIONS_MIN) else {
        return refuse("Too few iterations");
    };
    if iterations > ITERATIONS_MAX {
        return refuse("Too many iterations");
    }
    if asked.salt.is_empty() || asked.salt.len() > SALT_BYTES_MAX {
        return refuse("The salt is empty or too long");
    }
    if asked.salted_password.len() != hash.len() {
        return refuse("The salted password has not the length of its hash");
    }
    let salt = asked.salt.to_vec();
    Ok(Credential::of_salted(
        hash,
        &asked.salted_password,
        salt,
        rounds,
    ))
}

/// Changes a user, wholly or not at all.
fn apply(
    users: &mut BTreeMap<String, UserKeys>,
    name: &str,
    changes: Changes,
) -> Result<(), Refusal> {
    let mut keys = users.get(name).cloned().unwrap_or_default();
    for (hash, change) in changes {
        match change {
            Some(credential) => {
                keys.insert(hash, credential);
            }
            None if keys.remove(&hash).is_some() => {}
            None => {
                return Err((
                    ErrorCode::ResourceNotFound,
                    "Attempt to delete a user credential that does not exist",
                ));
            }
        }
    }
    if keys.is_empty() {
        users.remove(name);
    } else {
        users.insert(name.to_owned(), keys);
    }
    Ok(())
}
