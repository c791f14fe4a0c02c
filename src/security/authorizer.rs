//! May they? One question, asked by every API before it does or tells anything.
//!
//! Owns:     the decision from rules, super users and the default; the line and the count of each refusal.
//! Does not: know requests, or keep rules.
//!
//! Called from every thread; a check takes no lock, and without an authorizer it is a comparison.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seawall_storage::disk::Disk;

use super::acl::{Operation, Operations, Question, ResourceType, RuleStore};
use super::session::Session;
use crate::cluster::{Cluster, StateError};
use crate::config::AccessConfig;

/// Lines about refusals in one interval: enough to see what goes on, too few to fill a journal.
const LINES_MAX: u32 = 10;
const LINES_INTERVAL: Duration = Duration::from_secs(10);
/// Of a name in a log line; longer ones are no names of anything that exists.
const SHOWN_CHARS_MAX: usize = 256;

/// Who decides.
pub(crate) enum Authorizer {
    /// Nobody: everybody may do everything.
    Open,
    /// Rules, as Kafka's `StandardAuthorizer` reads them.
    Standard(Box<Standard>),
}

/// See [`Authorizer::Standard`].
pub(crate) struct Standard {
    /// The rules.
    pub(crate) rules: RuleStore,
    super_users: HashSet<String>,
    everyone_if_no_rule: bool,
    /// Refusals.
    pub(crate) denials: Denials,
}

impl Standard {
    /// `super_users` are names without `User:`; `everyone_if_no_rule` is what holds for a resource that
    /// no rule is about.
    pub(crate) fn new(
        rules: RuleStore,
        super_users: HashSet<String>,
        everyone_if_no_rule: bool,
    ) -> Self {
        Self {
            rules,
            super_users,
            everyone_if_no_rule,
            denials: Denials::default(),
        }
    }

    fn is_super(&self, session: &Session) -> bool {
        self.super_users.contains(session.principal.name())
    }

    fn operations(&self, session: &Session, resource: ResourceType, name: &str) -> Operations {
        if self.is_super(session) {
            return Operations::EVERY;
        }
        let found = self.rules.load().index.find(&Question {
            user: session.principal.name(),
            host: session.host,
            resource,
            name,
        });
        let allowed = if found.any_rule || !self.everyone_if_no_rule {
            found.allowed
        } else {
            Operations::EVERY
        };
        allowed.without(found.denied)
    }
}

impl Authorizer {
    /// The rules, where there are any.
    pub(crate) fn standard(&self) -> Option<&Standard> {
        match self {
            Self::Open => None,
            Self::Standard(standard) => Some(standard),
        }
    }

    /// The authorizer of a configuration.
    ///
    /// # Errors
    /// The rules cannot be read.
    pub(crate) fn open(
        config: &AccessConfig,
        cluster: &Cluster,
        disk: &Arc<dyn Disk>,
    ) -> Result<Self, StateError> {
        if !config.has_authorizer {
            return Ok(Self::Open);
        }
        let claim = Some(Arc::clone(&cluster.claim));
        let rules = RuleStore::open(Arc::clone(disk), &cluster.dir, claim)?;
        let users = config.super_users.clone();
        let standard = Standard::new(rules, users, config.everyone_if_no_rule);
        Ok(Self::Standard(Box::new(standard)))
    }

    /// What somebody may do to a resource.
    pub(crate) fn operations(
        &self,
        session: &Session,
        resource: ResourceType,
        name: &str,
    ) -> Operations {
        match self {
            Self::Open => Operations::EVERY,
            Self::Standard(standard) => standard.operations(session, resource, name),
        }
    }

    /// Whether somebody may do this; a refusal is not told to the log. For filtering what is shown.
    pub(crate) fn may_quietly(
        &self,
        session: &Session,
        operation: Operation,
        (resource, name): (ResourceType, &str),
    ) -> bool {
        match self {
            Self::Open => true,
            Self::Standard(standard) => standard.operations(session, resource, name).has(operation),
        }
    }

    /// Whether somebody may do this; a refusal is counted and logged.
    pub(crate) fn may(
        &self,
        session: &Session,
        operation: Operation,
        (resource, name): (ResourceType, &str),
    ) -> bool {
        let Self::Standard(standard) = self else {
            return true;
        };
        let may = standard.operations(session, resource, name).has(operation);
        if !may {
            standard.denials.note(session, operation, (resource, name));
        }
        may
    }

    /// Another one whenever answers may have changed.
    pub(crate) fn version(&self) -> u64 {
        match self {
            Self::Open => 0,
            Self::Standard(standard) => standard.rules.load().version,
        }
    }

    /// Whether there is anything of that kind to which somebody may do this. No refusal is counted: what
    /// it is for has another way in, which counts.
    pub(crate) fn may_somewhere(
        &self,
        session: &Session,
        operation: Operation,
        resource: ResourceType,
    ) -> bool {
        let Self::Standard(standard) = self else {
            return true;
        };
        // A name that nothing has: where it is allowed everything without rules is.
        let anything = standard.operations(session, resource, "hardcode");
        let who = (session.principal.name(), session.host);
        let rules = standard.rules.load();
        anything.has(operation) || rules.index.allows_somewhere(who, resource, operation)
    }
}

/// Refusals: counted by what was asked, and told to the log at a bounded rate.
#[derive(Default)]
pub(crate) struct Denials {
    counts: [[AtomicU64; 16]; ResourceType::ALL_KINDS.len()],
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    since: Option<Instant>,
    written: u32,
    suppressed: u64,
}

impl Denials {
    fn note(
        &self,
        session: &Session,
        operation: Operation,
        (resource, name): (ResourceType, &str),
    ) {
        if let Some(count) = self.count(resource, operation) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        // A line that another thread is writing is enough.
        let suppressed = self.lines.try_lock().and_then(|mut lines| lines.allow());
        if let Some(suppressed) = suppressed {
            log::info!(
                "denied: {} from {} may not {} {} \"{}\" ({suppressed} such lines suppressed before)",
                shown(&session.principal.to_string()),
                session.host,
                operation.name(),
                resource.name(),
                shown(name),
            );
        }
    }

    fn count(&self, resource: ResourceType, operation: Operation) -> Option<&AtomicU64> {
        let place = ResourceType::ALL_KINDS
            .iter()
            .position(|kind| *kind == resource)?;
        let operation = usize::try_from(operation.code()).ok()?;
        self.counts.get(place)?.get(operation)
    }

    /// How often each thing was refused. The labels are Kafka's names, so their number is bounded.
    pub(crate) fn all(&self) -> impl Iterator<Item = (ResourceType, Operation, u64)> {
        let kinds = ResourceType::ALL_KINDS.iter().copied();
        let pairs = kinds.flat_map(|kind| {
            let operations = Operation::ALL_KINDS.iter().copied();
            operations.map(move |operation| (kind, operation))
        });
        pairs.filter_map(|(kind, operation)| {
            let count = self.count(kind, operation)?.load(Ordering::Relaxed);
            (count > 0).then_some((kind, operation, count))
        })
    }
}

impl Lines {
    /// How many were suppressed before, if a line may be written now.
    fn allow(&mut self) -> Option<u64> {
        let over = |since: Instant| since.elapsed() >= LINES_INTERVAL;
        if self.since.is_none_or(over) {
            self.since = Some(Instant::now());
            self.written = 0;
        }
        if self.written >= LINES_MAX {
            self.suppressed += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// A name for a log line: one line, whatever is in it.
pub(crate) fn shown(name: &str) -> String {
    let mut shown = String::new();
    for char in name.chars().take(SHOWN_CHARS_MAX) {
        // Writing to a string cannot fail.
        let _ = write!(shown, "{}", char.escape_debug());
    }
    if name.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}
