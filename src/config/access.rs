//! What the configuration says about who may do what.
//!
//! Owns:     `AccessConfig`, and the form of `super.users`.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, ToSocketAddrs};
use std::time::Duration;

use super::{Fault, Problem, Reader, Settings, Value};
use crate::security::quota::Window;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct AccessConfig {
    /// authorizer.class.name is set
    pub(crate) has_authorizer: bool,
    /// super.users, without `User:`
    pub(crate) super_users: HashSet<String>,
    /// allow.everyone.if.no.acl.found
    pub(crate) everyone_if_no_rule: bool,
    /// quota.window.num, quota.window.size.seconds
    pub(crate) quota_window: Window,
    /// controller.quota.window.num, controller.quota.window.size.seconds
    pub(crate) mutation_window: Window,
    /// max.connections.per.ip.overrides
    pub(crate) connections_by_ip: HashMap<IpAddr, u32>,
}

pub(super) fn access_config(settings: &Settings) -> Result<AccessConfig, Vec<Problem>> {
    let get = Reader(settings);
    let seconds = |key| Duration::from_secs(get.number(key));
    Ok(AccessConfig {
        has_authorizer: get.text("authorizer.class.name").is_some(),
        super_users: super_users(settings)?,
        everyone_if_no_rule: get.yes("allow.everyone.if.no.acl.found"),
        quota_window: Window {
            samples: get.number("quota.window.num"),
            sample: seconds("quota.window.size.seconds"),
        },
        mutation_window: Window {
            samples: get.number("controller.quota.window.num"),
            sample: seconds("controller.quota.window.size.seconds"),
        },
        connections_by_ip: connections_by_ip(settings)?,
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

/// What a listener has of its own under a key of [`Settings`] that is a number; beside the broker's, not in its place.
pub(crate) fn own_number(settings: &Settings, listener: &str, key: &str) -> Option<u32> {
    match &settings.explicit_of_listener(listener, key)?.value {
        Value::Whole(number) => u32::try_from(*number).ok(),
        _ => None,
    }
}

/// `host:count` separated by commas; a host may be a name.
fn connections_by_ip(settings: &Settings) -> Result<HashMap<IpAddr, u32>, Vec<Problem>> {
    const KEY: &str = "max.connections.per.ip.overrides";
    let Value::List(list) = Reader(settings).value(KEY) else {
        return Ok(HashMap::new());
    };
    let mut counts = HashMap::new();
    for part in list.iter().filter(|part| !part.is_empty()) {
        let found = part.rsplit_once(':').and_then(|(host, count)| {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let addresses = (host, 0).to_socket_addrs().ok()?;
            Some((addresses, count.parse::<u32>().ok()?))
        });
        let Some((addresses, count)) = found else {
            let origin = settings.explicit(KEY).map(|set| set.origin.clone());
            let why = "overrides are written host:count, separated by commas";
            let fault = Fault::Refused {
                key: KEY,
                value: part.clone(),
                why,
            };
            return Err(vec![Problem { origin, fault }]);
        };
        counts.extend(addresses.map(|address| (address.ip().to_canonical(), count)));
    }
    Ok(counts)
}
