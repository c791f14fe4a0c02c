//! What the three ACL APIs share: rules and filters between the wire and us.
//!
//! Owns:     the numbers for "any", and what is said of resources that have no rules here.

use seawall_net::wire::StrBytes;

use super::codes::ErrorCode;
use crate::broker::Broker;
use crate::security::Authorizer;
use crate::security::acl::{
    ChangeError, Filter, NameFilter, Operation, PatternType, Permission, ResourceType, Rule,
    RuleStore,
};

/// Stands for everything in a filter.
const ANY: i8 = 1;
/// Kinds of resources that Kafka has and this broker has not.
const DELEGATION_TOKEN: i8 = 6;
const USER: i8 = 7;
/// Operations on those.
const TOKEN_OPERATIONS: [i8; 2] = [13, 14];

/// What is said where there is no authorizer.
pub(super) const NO_AUTHORIZER: &str = "No Authorizer is configured.";

/// Why rules are not what a client asked for.
pub(super) type Refusal = (ErrorCode, String);

/// The rules, if an authorizer reads any.
pub(super) fn rules(broker: &Broker) -> Result<&RuleStore, Refusal> {
    match &*broker.authorizer {
        Authorizer::Standard(standard) => Ok(&standard.rules),
        Authorizer::Open => Err((ErrorCode::SecurityDisabled, NO_AUTHORIZER.into())),
    }
}

/// How a change failed, for the client.
pub(super) fn refusal(error: &ChangeError) -> Refusal {
    let code = match error {
        ChangeError::TooMany => ErrorCode::InvalidRequest,
        ChangeError::NotFresh | ChangeError::State => ErrorCode::KafkaStorageError,
    };
    (code, error.to_string())
}

fn invalid(message: impl Into<String>) -> Refusal {
    (ErrorCode::InvalidRequest, message.into())
}

/// A rule or a filter as the wire has it.
pub(super) struct Parts<'a> {
    pub(super) resource: i8,
    pub(super) name: Option<&'a StrBytes>,
    pub(super) pattern: i8,
    pub(super) principal: Option<&'a StrBytes>,
    pub(super) host: Option<&'a StrBytes>,
    pub(super) operation: i8,
    pub(super) permission: i8,
}

impl Parts<'_> {
    /// The rule, if it can be one.
    pub(super) fn rule(&self) -> Result<Rule, Refusal> {
        let text = |text: Option<&StrBytes>| text.map_or("", |text| text.as_str()).to_owned();
        if let DELEGATION_TOKEN | USER = self.resource {
            let why = "This broker has no delegation tokens, and so no rules about \
                       DELEGATION_TOKEN and USER resources.";
            return Err(invalid(why));
        }
        let unknown = |what: &str, code: i8| invalid(format!("Invalid {what}: {code}"));
        let resource = ResourceType::of_code(self.resource);
        let pattern = PatternType::of_code(self.pattern);
        let operation = Operation::of_code(self.operation);
        let permission = Permission::of_code(self.permission);
        let rule = Rule {
            resource: resource.ok_or_else(|| unknown("resourceType", self.resource))?,
            pattern: pattern.ok_or_else(|| unknown("patternType", self.pattern))?,
            name: text(self.name),
            principal: text(self.principal),
            host: text(self.host),
            operation: operation.ok_or_else(|| unknown("operation", self.operation))?,
            permission: permission.ok_or_else(|| unknown("permissionType", self.permission))?,
        };
        rule.check().map_err(|error| invalid(error.to_string()))?;
        Ok(rule)
    }

    /// The filter, if its numbers are known.
    pub(super) fn filter(&self) -> Result<Filter, Refusal> {
        let text = |text: Option<&StrBytes>| text.map(|text| text.as_str().to_owned());
        let unknown = || invalid("The filter must not contain UNKNOWN elements.");
        let tokens = matches!(self.resource, DELEGATION_TOKEN | USER);
        let token_operation = TOKEN_OPERATIONS.contains(&self.operation);
        let resource = (!tokens).then_some(self.resource);
        let operation = (!token_operation).then_some(self.operation);
        Ok(Filter {
            resource: known(resource, ResourceType::of_code).ok_or_else(unknown)?,
            name: text(self.name),
            pattern: NameFilter::of_code(self.pattern).ok_or_else(unknown)?,
            principal: text(self.principal),
            host: text(self.host),
            operation: known(operation, Operation::of_code).ok_or_else(unknown)?,
            permission: known(Some(self.permission), Permission::of_code).ok_or_else(unknown)?,
            never: tokens || token_operation,
        })
    }
}

/// The kind that a filter asks for, or any; nothing for a number that stands for neither.
fn known<T>(code: Option<i8>, of_code: impl Fn(i8) -> Option<T>) -> Option<Option<T>> {
    match code {
        None | Some(ANY) => Some(None),
        Some(code) => of_code(code).map(Some),
    }
}
