//! Rules: who may do what to which resource from where (Kafka's ACLs).
//!
//! Owns:     what a rule is, which rules a filter means, the index that answers a check, the file.
//! Does not: know requests, or who is asking; `super::authorizer` puts the two together.

mod filter;
mod index;
mod rule;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use filter::{Filter, NameFilter};
pub(crate) use index::Question;
pub(crate) use rule::{
    CLUSTER_NAME, Operation, Operations, PatternType, Permission, ResourceType, Rule,
};
pub(crate) use store::{ChangeError, RuleStore};
