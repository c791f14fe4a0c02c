//! One member of a consumer group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use regex::Regex;
use seawall_storage::TopicId;

use super::{Assignor, Partitions, Sight, TopicLookup, View};
use crate::groups::classic::Protocol;
use crate::groups::error::GroupError;

/// Longest regular expression, and the memory its automaton may take: Kafka has no limit, we have other clients.
const REGEX_BYTES_MAX: usize = 4096;
const REGEX_MEMORY_MAX: usize = 1 << 20;

/// The epoch of a static member that is away for a while.
pub(super) const AWAY: i32 = -2;

/// How far a member has come on its way to the target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Progress {
    /// It has what it is to have.
    Stable,
    /// It has not yet said that it has given partitions back.
    Unrevoked,
    /// Others have not yet given back what it is to have.
    Unreleased,
}

/// A subscription by regular expression. RE2's syntax, as in Kafka; the whole name must match.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) text: Arc<str>,
    regex: Regex,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Result<Self, GroupError> {
        if text.len() > REGEX_BYTES_MAX {
            return Err(GroupError::InvalidRegex);
        }
        let whole = format!("^(?:{text})$");
        let built = regex::RegexBuilder::new(&whole)
            .size_limit(REGEX_MEMORY_MAX)
            .build();
        Ok(Self {
            text: text.into(),
            regex: built.map_err(|_| GroupError::InvalidRegex)?,
        })
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name)
    }
}

/// What a member of the classic protocol has beside (KIP-848's online migration).
#[derive(Clone, Debug)]
pub(super) struct ClassicSide {
    pub(super) session_timeout: Duration,
    pub(super) protocols: Vec<Protocol>,
    /// It must join again by then.
    pub(super) join_by: Option<Instant>,
    /// It must ask for its assignment by then.
    pub(super) sync_by: Option<Instant>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) instance: Option<Arc<str>>,
    pub(super) rack: Option<Arc<str>>,
    pub(super) client_id: Arc<str>,
    pub(super) client_host: Arc<str>,
    pub(super) rebalance_timeout: Duration,
    /// Topics that it names.
    pub(super) names: BTreeSet<Arc<str>>,
    pub(super) pattern: Option<Pattern>,
    /// What it may see; not known between a restart and its next heartbeat.
    pub(super) view: Option<Arc<dyn View>>,
    /// How it saw the topics when they were matched.
    pub(super) sight: Option<Sight>,
    /// Topics that the pattern matches and the member may see.
    pub(super) matched: BTreeSet<Arc<str>>,
    pub(super) assignor: Option<Assignor>,
    pub(super) epoch: i32,
    pub(super) previous_epoch: i32,
    pub(super) progress: Progress,
    /// What it has, and since which epoch.
    pub(super) assigned: BTreeMap<TopicId, BTreeMap<i32, i32>>,
    /// What it is to give back.
    pub(super) revoking: Partitions,
    pub(super) expires: Instant,
    /// It must have given back by then.
    pub(super) revoke_by: Option<Instant>,
    pub(super) classic: Option<ClassicSide>,
}

impl Member {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            instance: None,
            rack: None,
            client_id: "".into(),
            client_host: "".into(),
            rebalance_timeout: Duration::ZERO,
            names: BTreeSet::new(),
            pattern: None,
            view: None,
            sight: None,
            matched: BTreeSet::new(),
            assignor: None,
            epoch: 0,
            previous_epoch: 0,
            progress: Progress::Stable,
            assigned: BTreeMap::new(),
            revoking: Partitions::new(),
            expires: now,
            revoke_by: None,
            classic: None,
        }
    }

    /// Whether it has a pattern and may see other topics than when that was matched.
    pub(super) fn sees_anew(&self) -> bool {
        let sight = self.view.as_ref().map(|view| view.sight());
        self.pattern.is_some() && sight.is_some() && sight != self.sight
    }

    /// Matches its pattern with what there is and what it may see. Where that is not known, nothing is new to it.
    pub(super) fn match_topics(&mut self, topics: &dyn TopicLookup) {
        let sight = self.view.as_ref().map(|view| view.sight());
        let sees = |name: &Arc<str>| match &self.view {
            Some(view) => view.sees(name),
            None => self.matched.contains(name),
        };
        self.matched = match &self.pattern {
            None => BTreeSet::new(),
            Some(pattern) => {
                let names = topics.names().into_iter();
                names
                    .filter(|name| pattern.matches(name) && sees(name))
                    .collect()
            }
        };
        self.sight = sight;
    }

    pub(super) fn reads(&self, topic: &str) -> bool {
        self.names.contains(topic) || self.matched.contains(topic)
    }

    /// Whether it has arrived at that assignment.
    pub(super) fn is_at(&self, epoch: i32) -> bool {
        self.epoch == epoch && self.progress == Progress::Stable
    }

    /// What nobody else may have: assigned, or not given back yet.
    pub(super) fn holds(&self) -> Vec<(TopicId, i32)> {
        let assigned = self.assigned.iter();
        let assigned = assigned.flat_map(|(topic, all)| all.keys().map(|p| (*topic, *p)));
        let revoking = self.revoking.iter();
        let revoking = revoking.flat_map(|(topic, all)| all.iter().map(|p| (*topic, *p)));
        assigned.chain(revoking).collect()
    }

    /// What it has, without the epochs.
    pub(super) fn partitions(&self) -> Partitions {
        let assigned = self.assigned.iter();
        assigned
            .map(|(topic, all)| (*topic, all.keys().copied().collect()))
            .collect()
    }
}
