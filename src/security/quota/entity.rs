//! Whom a limit is for, and what it limits.
//!
//! Owns:     entities, kinds of limits with Kafka's names, and which go together.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Longest name in an entity: what a Kafka string of an older version can hold.
const NAME_BYTES_MAX: usize = 32_767;

/// The largest long, as near as a double comes to it.
const LONG_MAX: f64 = 9_223_372_036_854_775_807.0;
/// A number this near above a whole one is meant to be it.
const FRACTION_MAX: f64 = 1e-6;

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QuotaKind {
    /// Bytes of Produce requests per second.
    ProducerByteRate,
    /// Bytes of Fetch answers per second.
    ConsumerByteRate,
    /// Time of threads, in percent of one thread.
    RequestPercentage,
    /// Partitions created and deleted per second.
    ControllerMutationRate,
    /// Connections per second.
    ConnectionCreationRate,
}

impl QuotaKind {
    const ALL: [Self; 5] = [
        Self::ProducerByteRate,
        Self::ConsumerByteRate,
        Self::RequestPercentage,
        Self::ControllerMutationRate,
        Self::ConnectionCreationRate,
    ];

    /// Kafka's name of it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ProducerByteRate => "producer_byte_rate",
            Self::ConsumerByteRate => "consumer_byte_rate",
            Self::RequestPercentage => "request_percentage",
            Self::ControllerMutationRate => "controller_mutation_rate",
            Self::ConnectionCreationRate => "connection_creation_rate",
        }
    }

    /// Whether it can be limited to this: Kafka keeps bytes as a long, connections as an int, the others as doubles.
    ///
    /// # Errors
    /// It cannot.
    pub(crate) fn check(self, limit: f64) -> Result<(), EntityError> {
        let whole_up_to = match self {
            Self::ProducerByteRate | Self::ConsumerByteRate => Some(LONG_MAX),
            Self::ConnectionCreationRate => Some(f64::from(i32::MAX)),
            Self::RequestPercentage | Self::ControllerMutationRate => None,
        };
        if !limit.is_finite() || limit <= 0.0 {
            return Err(EntityError::BadValue(self.name()));
        }
        match whole_up_to {
            Some(most) if limit > most => Err(EntityError::TooLarge(self.name())),
            Some(_) if limit % 1.0 > FRACTION_MAX => Err(EntityError::Fraction(self.name())),
            _ => Ok(()),
        }
    }

    /// The kind of that name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A name in an entity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Name {
    /// Everybody who has no limit of their own.
    Default,
    /// One.
    Of(String),
}

/// Whom a limit is for: a user, a client id, both, or an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Entity {
    /// The user, without `User:`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) user: Option<Name>,
    /// The client id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) client_id: Option<Name>,
    /// The address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ip: Option<Name>,
}

/// Why an entity cannot be. The client's fault; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntityError {
    /// There is no part in it.
    Empty,
    /// Kafka knows no such part.
    UnknownType(String),
    /// A part stands there twice.
    Twice(String),
    /// An address stands alone.
    IpWithOthers,
    /// A name that is empty or too long.
    BadName,
    /// Not an address.
    BadIp(String),
    /// That limit is not for that entity.
    WrongKey(String),
    /// A limit that is no positive number.
    BadValue(&'static str),
    /// A limit beyond what its kind can be.
    TooLarge(&'static str),
    /// A limit that is to be a whole number.
    Fraction(&'static str),
}

impl fmt::Display for EntityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Invalid empty client quota entity"),
            Self::UnknownType(kind) => {
                write!(
                    f,
                    "Unhandled client quota entity type: {}",
                    kind.escape_debug()
                )
            }
            Self::Twice(kind) => {
                write!(f, "Entity type {} is named twice", kind.escape_debug())
            }
            Self::IpWithOthers => {
                f.write_str("Invalid quota entity combination: an ip stands alone")
            }
            Self::BadName => f.write_str("A name in a quota entity is empty or too long"),
            Self::BadIp(ip) => write!(f, "{} is not a valid IP address", ip.escape_debug()),
            Self::WrongKey(key) => write!(
                f,
                "Invalid configuration key {} for this quota entity",
                key.escape_debug()
            ),
            Self::BadValue(key) => write!(f, "Quota {key} must be greater than 0"),
            Self::TooLarge(key) => write!(f, "Proposed value for {key} is too large"),
            Self::Fraction(key) => write!(f, "{key} cannot be a fractional value."),
        }
    }
}

/// An address as connections have it: one text for each, IPv4 in its short form. What is none stays as it is.
pub(crate) fn canonical_ip(name: &str) -> String {
    match name.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().to_string(),
        Err(_) => name.to_owned(),
    }
}

impl Entity {
    /// The same, its address as connections have it.
    pub(crate) fn canonical(mut self) -> Self {
        if let Some(Name::Of(ip)) = &mut self.ip {
            *ip = canonical_ip(ip);
        }
        self
    }

    /// Adds a part as the wire has it; no name is the default.
    ///
    /// # Errors
    /// It is none that Kafka knows, or there twice.
    pub(crate) fn put(&mut self, kind: &str, name: Option<&str>) -> Result<(), EntityError> {
        let place = match kind {
            "user" => &mut self.user,
            "client-id" => &mut self.client_id,
            "ip" => &mut self.ip,
            other => return Err(EntityError::UnknownType(other.to_owned())),
        };
        if place.is_some() {
            return Err(EntityError::Twice(kind.to_owned()));
        }
        let name = match name {
            None => Name::Default,
            Some(name) if name.is_empty() || name.len() > NAME_BYTES_MAX => {
                return Err(EntityError::BadName);
            }
            Some(name) if kind == "ip" => Name::Of(canonical_ip(name)),
            Some(name) => Name::Of(name.to_owned()),
        };
        *place = Some(name);
        Ok(())
    }

    /// Says whether its parts go together.
    ///
    /// # Errors
    /// They do not.
    pub(crate) fn check(&self) -> Result<(), EntityError> {
        let is_client = self.user.is_some() || self.client_id.is_some();
        match &self.ip {
            None if is_client => Ok(()),
            None => Err(EntityError::Empty),
            Some(_) if is_client => Err(EntityError::IpWithOthers),
            Some(Name::Of(ip)) if ip.parse::<IpAddr>().is_err() => {
                Err(EntityError::BadIp(ip.clone()))
            }
            Some(_) => Ok(()),
        }
    }

    /// The kind of limit behind a key, if it is one of this entity's.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn kind_of(&self, key: &str) -> Result<QuotaKind, EntityError> {
        let kind = QuotaKind::of_name(key);
        let of_ip = |kind: &QuotaKind| *kind == QuotaKind::ConnectionCreationRate;
        kind.filter(|kind| of_ip(kind) == self.ip.is_some())
            .ok_or_else(|| EntityError::WrongKey(key.to_owned()))
    }

    /// Its parts as the wire has them.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&'static str, Option<&str>)> {
        let all = [
            ("user", &self.user),
            ("client-id", &self.client_id),
            ("ip", &self.ip),
        ];
        all.into_iter().filter_map(|(kind, name)| {
            Some(match name.as_ref()? {
                Name::Default => (kind, None),
                Name::Of(name) => (kind, Some(name.as_str())),
            })
        })
    }
}
