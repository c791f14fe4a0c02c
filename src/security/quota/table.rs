//! All limits, and whose limit counts for whom.
//!
//! Owns:     Kafka's order of precedence, and the filter of DescribeClientQuotas.
//! Does not: change; a change makes a new table, which is published whole.

use std::collections::BTreeMap;
use std::net::IpAddr;

use seawall_planted::planted;

use super::entity::{Entity, Name, QuotaKind};

/// Limits by entity.
pub(crate) type Limits = BTreeMap<Entity, BTreeMap<QuotaKind, f64>>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Table(pub(crate) Limits);

/// A limit that counts, and who shares it: the user, the client id, or both together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counting {
    /// Per second, or percent.
    pub(crate) limit: f64,
    /// Every user has a measure of their own.
    pub(crate) by_user: bool,
    /// Every client id has a measure of its own.
    pub(crate) by_client: bool,
}

impl Table {
    fn limit(&self, entity: &Entity, kind: QuotaKind) -> Option<f64> {
        self.0.get(entity)?.get(&kind).copied()
    }

    /// The limit of a user with a client id: the most special one.
    pub(crate) fn of_client(&self, user: &str, client: &str, kind: QuotaKind) -> Option<Counting> {
        let user = || Some(Name::Of(user.to_owned()));
        let client = || Some(Name::Of(client.to_owned()));
        let default = || Some(Name::Default);
        let mut order = [
            (user(), client()),
            (user(), default()),
            (user(), None),
            (default(), client()),
            (default(), default()),
            (default(), None),
            (None, client()),
            (None, default()),
        ];
        if planted("quota-default-first") {
            order.reverse();
        }
        order.into_iter().find_map(|(user, client_id)| {
            let (by_user, by_client) = (user.is_some(), client_id.is_some());
            let ip = None;
            let entity = Entity {
                user,
                client_id,
                ip,
            };
            let limit = self.limit(&entity, kind)?;
            Some(Counting {
                limit,
                by_user,
                by_client,
            })
        })
    }

    /// Connections per second from an address.
    pub(crate) fn of_ip(&self, ip: IpAddr) -> Option<f64> {
        let of = |name| Entity {
            ip: Some(name),
            ..Entity::default()
        };
        let kind = QuotaKind::ConnectionCreationRate;
        self.limit(&of(Name::Of(ip.to_string())), kind)
            .or_else(|| self.limit(&of(Name::Default), kind))
    }

    /// The limits of the entities that are wanted; with `strict`, of those that have no other part.
    pub(crate) fn matching(
        &self,
        wanted: &[Wanted],
        strict: bool,
    ) -> Vec<(Entity, Vec<(QuotaKind, f64)>)> {
        let is_wanted = |entity: &Entity| {
            let parts = entity.parts().count();
            let all = wanted.iter().all(|wanted| wanted.matches(entity));
            all && (!strict || parts == wanted.len())
        };
        let rows = self.0.iter().filter(|(entity, _)| is_wanted(entity));
        rows.map(|(entity, limits)| {
            let limits = limits.iter().map(|(kind, limit)| (*kind, *limit));
            (entity.clone(), limits.collect())
        })
        .collect()
    }
}

/// How a name is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// This one.
    Exactly(String),
    /// The default.
    Default,
    /// Any, the default included.
    Any,
}

/// A part that is wanted of an entity.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// `user`, `client-id` or `ip`.
    pub(crate) kind: String,
    /// Its name.
    pub(crate) name: Match,
}

impl Wanted {
    fn matches(&self, entity: &Entity) -> bool {
        let mut parts = entity.parts();
        parts.any(|(kind, name)| {
            let names = match (&self.name, name) {
                (Match::Any, _) | (Match::Default, None) => true,
                (Match::Exactly(wanted), Some(name)) => wanted == name,
                (Match::Default, Some(_)) | (Match::Exactly(_), None) => false,
            };
            kind == self.kind && names
        })
    }
}
