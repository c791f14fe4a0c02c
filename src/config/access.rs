//! What the configuration says about who may do what.
//!
//! Owns:     `AccessConfig`, and the form of `super.users`.

use std::collections::HashSet;

use super::{Fault, Problem, Reader, Settings};

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct AccessConfig {
    /// authorizer.class.name is set
    pub(crate) has_authorizer: bool,
    /// super.users, without `User:`
    pub(crate) super_users: HashSet<String>,
    /// allow.everyone.if.no.acl.found
    pub(crate) everyone_if_no_rule: bool,
}

pub(super) fn access_config(settings: &Settings) -> Result<AccessConfig, Vec<Problem>> {
    let get = Reader(settings);
    Ok(AccessConfig {
        has_authorizer: get.text("authorizer.class.name").is_some(),
        super_users: super_users(settings)?,
        everyone_if_no_rule: get.yes("allow.everyone.if.no.acl.found"),
    })
}

fn super_users(settings: &Settings) -> Result<HashSet<String>, Vec<Problem>> {
    const KEY: &str = "super.users";
    let text = Reader(settings).text(KEY).unwrap_or_default();
    let parts = text.split(';').map(str::trim);
    let mut users = HashSet::new();
    for part in parts.filter(|part| !part.is_empty()) {
        let Some(user) = part.strip_prefix("User:").filter(|user| !user.is_empty()) else {
            let origin = settings.explicit(KEY).map(|set| set.origin.clone());
            let why = "super users are written User:name, separated by semicolons";
            let fault = Fault::Refused {
                key: KEY,
                value: part.to_owned(),
                why,
            };
            return Err(vec![Problem { origin, fault }]);
        };
        users.insert(user.to_owned());
    }
    Ok(users)
}
