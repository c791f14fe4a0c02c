//! One rule, with Kafka's numbers and names for its parts.
//!
//! Owns:     the kinds of resources, patterns, operations and permissions; what makes a rule valid.
//! Does not: decide anything.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Stands for every name, every host, and behind `User:` for everybody.
pub(crate) const WILDCARD: &str = "*";
/// The name of the one cluster.
pub(crate) const CLUSTER_NAME: &str = "kafka-cluster";
/// Longest name of a resource, a principal or a host in a rule: what a Kafka string of an older
/// version can hold.
const TEXT_BYTES_MAX: usize = 32_767;

macro_rules! kinds {
    ($(#[$doc:meta])* $kind:ident { $($variant:ident = $code:literal, $name:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub(crate) enum $kind {
            $(#[doc = $name] #[serde(rename = $name)] $variant,)*
        }

        #[allow(dead_code, reason = "not every list of names is told in logs or metrics")]
        impl $kind {
            /// The kind with that number on the wire.
            pub(crate) const fn of_code(code: i8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Its number on the wire.
            pub(crate) const fn code(self) -> i8 {
                match self {
                    $(Self::$variant => $code,)*
                }
            }

            /// Kafka's name of it.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// All of them.
            pub(crate) const ALL_KINDS: &[Self] = &[$(Self::$variant,)*];
        }
    };
}

kinds! {
    /// What a rule may be about. Delegation tokens and users are not among them: there are no tokens.
    ResourceType {
        Topic = 2, "TOPIC";
        Group = 3, "GROUP";
        Cluster = 4, "CLUSTER";
        TransactionalId = 5, "TRANSACTIONAL_ID";
    }
}

kinds! {
    /// How the name of a rule is to be read.
    PatternType {
        Literal = 3, "LITERAL";
        Prefixed = 4, "PREFIXED";
    }
}

kinds! {
    /// What somebody may do or not.
    Operation {
        All = 2, "ALL";
        Read = 3, "READ";
        Write = 4, "WRITE";
        Create = 5, "CREATE";
        Delete = 6, "DELETE";
        Alter = 7, "ALTER";
        Describe = 8, "DESCRIBE";
        ClusterAction = 9, "CLUSTER_ACTION";
        DescribeConfigs = 10, "DESCRIBE_CONFIGS";
        AlterConfigs = 11, "ALTER_CONFIGS";
        IdempotentWrite = 12, "IDEMPOTENT_WRITE";
        TwoPhaseCommit = 15, "TWO_PHASE_COMMIT";
    }
}

kinds! {
    /// Whether a rule lets in or keeps out.
    Permission {
        Deny = 2, "DENY";
        Allow = 3, "ALLOW";
    }
}

/// A set of operations: bit N is the operation with number N on the wire (KIP-430).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operations(u16);

impl Operations {
    /// No operation.
    pub(crate) const NONE: Self = Self(0);
    /// Every operation.
    pub(crate) const EVERY: Self = Self(u16::MAX);

    /// One operation; `ALL` is every one.
    pub(crate) const fn of(operation: Operation) -> Self {
        match operation {
            Operation::All => Self::EVERY,
            one => Self(1 << one.code()),
        }
    }

    /// The operations of both.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The operations of this set that are not in the other.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The operations in both sets.
    pub(crate) const fn within(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether that one is in the set.
    pub(crate) const fn has(self, operation: Operation) -> bool {
        self.0 & (1 << operation.code()) != 0
    }

    /// As the wire has it.
    pub(crate) fn bits(self) -> i32 {
        i32::from(self.0)
    }
}

/// What a rule that allows this one allows besides, as in Kafka. A rule that denies implies nothing.
pub(crate) const fn implied(operation: Operation) -> Operations {
    let also = match operation {
        Operation::Read | Operation::Write | Operation::Delete | Operation::Alter => {
            Operations::of(Operation::Describe)
        }
        Operation::AlterConfigs => Operations::of(Operation::DescribeConfigs),
        _ => Operations::NONE,
    };
    Operations::of(operation).and(also)
}

/// One rule. The order is that of `acls.json` and of DescribeAcls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Rule {
    /// What it is about.
    pub(crate) resource: ResourceType,
    /// How `name` is to be read.
    pub(crate) pattern: PatternType,
    /// Which one.
    pub(crate) name: String,
    /// Whom it concerns, as `User:name`.
    pub(crate) principal: String,
    /// From where: an address, or `*`.
    pub(crate) host: String,
    /// What they may do or not.
    pub(crate) operation: Operation,
    /// May or may not.
    pub(crate) permission: Permission,
}

/// Why a rule cannot be. The client's fault; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleError {
    /// Its resource has no name.
    EmptyName,
    /// The cluster has one name.
    ClusterName,
    /// The principal is not `Type:name`.
    Principal,
    /// There is no host.
    EmptyHost,
    /// A text is longer than can be.
    TooLong,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EmptyName => "Invalid empty resource name",
            Self::ClusterName => "The only valid name for the CLUSTER resource is kafka-cluster",
            Self::Principal => {
                "Could not parse principal: expected a string in format principalType:principalName"
            }
            Self::EmptyHost => "A rule names a host, or * for all of them",
            Self::TooLong => "A name in the rule is too long",
        })
    }
}

impl Rule {
    /// Says whether a rule that a client wants makes sense.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn check(&self) -> Result<(), RuleError> {
        let texts = [&self.name, &self.principal, &self.host];
        let kind_and_name = self.principal.split_once(':');
        if self.name.is_empty() {
            Err(RuleError::EmptyName)
        } else if self.resource == ResourceType::Cluster && self.name != CLUSTER_NAME {
            Err(RuleError::ClusterName)
        } else if !kind_and_name.is_some_and(|(kind, name)| !kind.is_empty() && !name.is_empty()) {
            Err(RuleError::Principal)
        } else if self.host.is_empty() {
            Err(RuleError::EmptyHost)
        } else if texts.iter().any(|text| text.len() > TEXT_BYTES_MAX) {
            Err(RuleError::TooLong)
        } else {
            Ok(())
        }
    }
}
