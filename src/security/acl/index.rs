//! All rules, so that a check is a few look-ups however many there are.
//!
//! Owns:     the decision: deny before allow, implied operations, hosts, prefixes.
//! Does not: change. A change makes a new index, which is published whole.
//!
//! # Invariants
//! I1. Prefixes of one kind of resource are sorted, and each knows the longest other one that it begins
//!     with: all prefixes of a name are found by one binary search and that chain.
//! I2. What is denied is denied, whatever allows it.

use std::collections::HashMap;
use std::net::IpAddr;

use seawall_planted::planted;

use super::rule::{
    Operation, Operations, PatternType, Permission, ResourceType, Rule, WILDCARD, implied,
};

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    /// Who, without `User:`.
    pub(crate) user: &'a str,
    /// From where.
    pub(crate) host: IpAddr,
    /// What it is about.
    pub(crate) resource: ResourceType,
    /// Which one.
    pub(crate) name: &'a str,
}

/// What the rules say of a resource and somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// What is allowed, with what that implies.
    pub(crate) allowed: Operations,
    /// What is denied.
    pub(crate) denied: Operations,
    /// Whether any rule concerns the resource, whomever it is about.
    pub(crate) any_rule: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Index {
    kinds: [Kind; ResourceType::ALL_KINDS.len()],
}

/// The rules of one kind of resource.
#[derive(Debug, Default)]
struct Kind {
    literal: HashMap<Box<str>, Pattern>,
    every: Option<Pattern>,
    /// Sorted (I1).
    prefixes: Vec<Prefix>,
}

#[derive(Debug)]
struct Prefix {
    name: Box<str>,
    /// The place of the longest other prefix that this one begins with (I1).
    parent: Option<usize>,
    rules: Pattern,
}

/// The rules of one pattern, by whom they concern.
#[derive(Debug, Default)]
struct Pattern {
    by_user: HashMap<Box<str>, Grants>,
    everybody: Grants,
}

/// What is granted to somebody, by host.
#[derive(Debug, Default)]
struct Grants {
    from_anywhere: Grant,
    by_host: Vec<(IpAddr, Grant)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Grant {
    allowed: Operations,
    denied: Operations,
}

impl Index {
    /// The index of these rules.
    pub(crate) fn new<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Self {
        let mut index = Self::default();
        let mut prefixes: [HashMap<&str, Pattern>; ResourceType::ALL_KINDS.len()] =
            Default::default();
        for rule in rules {
            let place = place(rule.resource);
            let kind = &mut index.kinds[place];
            let pattern = match rule.pattern {
                PatternType::Literal if rule.name == WILDCARD => {
                    kind.every.get_or_insert_with(Pattern::default)
                }
                PatternType::Literal => kind.literal.entry(rule.name.as_str().into()).or_default(),
                PatternType::Prefixed => prefixes[place].entry(&rule.name).or_default(),
            };
            pattern.add(rule);
        }
        for (kind, prefixes) in index.kinds.iter_mut().zip(prefixes) {
            kind.prefixes = linked(prefixes);
        }
        index
    }

    /// What the rules say.
    pub(crate) fn find(&self, asked: &Question<'_>) -> Found {
        let kind = &self.kinds[place(asked.resource)];
        let mut found = Found::default();
        let literal = kind.literal.get(asked.name);
        for pattern in kind.every.iter().chain(literal) {
            pattern.look(asked, &mut found);
        }
        kind.each_prefix(asked.name, |pattern| pattern.look(asked, &mut found));
        found
    }

    /// Whether there is a resource of that kind, present or to come, to which somebody may do this: one
    /// that some rule allows and none denies.
    pub(crate) fn allows_somewhere(
        &self,
        (user, host): (&str, IpAddr),
        resource: ResourceType,
        operation: Operation,
    ) -> bool {
        let kind = &self.kinds[place(resource)];
        let grant = |pattern: &Pattern| pattern.of(user, host);
        let every = kind.every.as_ref().map(grant).unwrap_or_default();
        if every.denied.has(operation) {
            return false;
        }
        let denied_by_prefix = |name: &str| {
            let mut denied = false;
            kind.each_prefix(name, |pattern| {
                denied |= grant(pattern).denied.has(operation);
            });
            denied
        };
        let literal = kind.literal.iter().any(|(name, pattern)| {
            let grant = grant(pattern);
            let here = grant.allowed.has(operation) && !grant.denied.has(operation);
            here && !denied_by_prefix(name)
        });
        let prefixed = |prefix: &Prefix| {
            grant(&prefix.rules).allowed.has(operation) && !denied_by_prefix(&prefix.name)
        };
        every.allowed.has(operation) || literal || kind.prefixes.iter().any(prefixed)
    }
}

impl Kind {
    /// Calls for the rules of every prefix of a name (I1).
    fn each_prefix<'a>(&'a self, name: &str, mut call: impl FnMut(&'a Pattern)) {
        let after = self
            .prefixes
            .partition_point(|prefix| &*prefix.name <= name);
        let mut next = after.checked_sub(1);
        while let Some(prefix) = next.and_then(|place| self.prefixes.get(place)) {
            if name.starts_with(&*prefix.name) {
                call(&prefix.rules);
            }
            next = prefix
                .parent
                .filter(|_| !planted("acl-nearest-prefix-only"));
        }
    }
}

/// Sorts prefixes and links each with the longest one that it begins with.
fn linked(prefixes: HashMap<&str, Pattern>) -> Vec<Prefix> {
    let mut sorted: Vec<(&str, Pattern)> = prefixes.into_iter().collect();
    sorted.sort_by_key(|(name, _)| *name);
    let mut all: Vec<Prefix> = Vec::with_capacity(sorted.len());
    for (name, rules) in sorted {
        let mut parent = all.len().checked_sub(1);
        while let Some(prefix) = parent.and_then(|place| all.get(place)) {
            if name.starts_with(&*prefix.name) {
                break;
            }
            parent = prefix.parent;
        }
        all.push(Prefix {
            name: name.into(),
            parent,
            rules,
        });
    }
    all
}

impl Pattern {
    fn add(&mut self, rule: &Rule) {
        // Kinds of principals other than users have no sessions here: such a rule counts as there,
        // and concerns nobody.
        let Some(user) = rule.principal.strip_prefix("User:") else {
            return;
        };
        let grants = if user == WILDCARD {
            &mut self.everybody
        } else {
            self.by_user.entry(user.into()).or_default()
        };
        grants.add(rule);
    }

    fn of(&self, user: &str, host: IpAddr) -> Grant {
        let own = self.by_user.get(user).into_iter();
        let mut sum = Grant::default();
        for grants in own.chain([&self.everybody]) {
            grants.add_to(&mut sum, host);
        }
        sum
    }

    fn look(&self, asked: &Question<'_>, found: &mut Found) {
        let grant = self.of(asked.user, asked.host);
        found.any_rule = true;
        found.allowed = found.allowed.and(grant.allowed);
        if !planted("acl-deny-ignored") {
            found.denied = found.denied.and(grant.denied);
        }
    }
}

impl Grants {
    fn add(&mut self, rule: &Rule) {
        if rule.host == WILDCARD {
            return self.from_anywhere.add(rule);
        }
        // What is no address is kept, described, and matches nobody, as in Kafka.
        let Ok(host) = rule.host.parse::<IpAddr>() else {
            return;
        };
        let host = host.to_canonical();
        match self.by_host.iter_mut().find(|(known, _)| *known == host) {
            Some((_, grant)) => grant.add(rule),
            None => {
                let mut grant = Grant::default();
                grant.add(rule);
                self.by_host.push((host, grant));
            }
        }
    }

    fn add_to(&self, sum: &mut Grant, host: IpAddr) {
        sum.join(self.from_anywhere);
        for (_, grant) in self
            .by_host
            .iter()
            .filter(|(known, _)| *known == host || planted("acl-any-host"))
        {
            sum.join(*grant);
        }
    }
}

impl Grant {
    fn add(&mut self, rule: &Rule) {
        match rule.permission {
            Permission::Allow => self.allowed = self.allowed.and(implied(rule.operation)),
            Permission::Deny => self.denied = self.denied.and(Operations::of(rule.operation)),
        }
    }

    fn join(&mut self, other: Self) {
        self.allowed = self.allowed.and(other.allowed);
        self.denied = self.denied.and(other.denied);
    }
}

fn place(resource: ResourceType) -> usize {
    match resource {
        ResourceType::Topic => 0,
        ResourceType::Group => 1,
        ResourceType::Cluster => 2,
        ResourceType::TransactionalId => 3,
    }
}
