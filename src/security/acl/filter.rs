//! Which rules somebody means, as DescribeAcls and DeleteAcls say it.
//!
//! Owns:     the match of a filter with a rule.

use super::rule::{Operation, PatternType, Permission, ResourceType, Rule, WILDCARD};

/// How the name of a filter is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameFilter {
    /// Rules of any pattern that have this very name.
    Any,
    /// Rules that concern a resource of this name.
    Match,
    /// Rules of this pattern that have this very name.
    Pattern(PatternType),
}

/// See the module. `None` is everything.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// Of this resource.
    pub(crate) resource: Option<ResourceType>,
    /// Of this name.
    pub(crate) name: Option<String>,
    /// How `name` is to be read.
    pub(crate) pattern: NameFilter,
    /// For this principal.
    pub(crate) principal: Option<String>,
    /// From this host.
    pub(crate) host: Option<String>,
    /// About this operation.
    pub(crate) operation: Option<Operation>,
    /// With this permission.
    pub(crate) permission: Option<Permission>,
    /// It asks for something that no rule here can be about, and so finds nothing.
    pub(crate) never: bool,
}

/// The number of a pattern type that stands for any.
const ANY_PATTERN: i8 = 1;
/// The number that stands for every pattern that concerns a name.
const MATCH_PATTERN: i8 = 2;

impl NameFilter {
    /// The one with that number on the wire.
    pub(crate) fn of_code(code: i8) -> Option<Self> {
        match code {
            ANY_PATTERN => Some(Self::Any),
            MATCH_PATTERN => Some(Self::Match),
            other => PatternType::of_code(other).map(Self::Pattern),
        }
    }
}

impl Filter {
    /// Whether the rule is among those meant.
    pub(crate) fn matches(&self, rule: &Rule) -> bool {
        fn is<T: PartialEq>(wanted: Option<&T>, there: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == there)
        }
        !self.never
            && is(self.resource.as_ref(), &rule.resource)
            && self.matches_name(rule)
            && is(self.principal.as_ref(), &rule.principal)
            && is(self.host.as_ref(), &rule.host)
            && is(self.operation.as_ref(), &rule.operation)
            && is(self.permission.as_ref(), &rule.permission)
    }

    fn matches_name(&self, rule: &Rule) -> bool {
        if let NameFilter::Pattern(pattern) = self.pattern
            && pattern != rule.pattern
        {
            return false;
        }
        let Some(name) = &self.name else { return true };
        match (self.pattern, rule.pattern) {
            (NameFilter::Any | NameFilter::Pattern(_), _) => *name == rule.name,
            (NameFilter::Match, PatternType::Literal) => {
                *name == rule.name || rule.name == WILDCARD
            }
            (NameFilter::Match, PatternType::Prefixed) => name.starts_with(&rule.name),
        }
    }
}
