//! The numbers of a log, each with its own type and the few operations that make sense.
//!
//! Owns:     the newtypes and their arithmetic (saturating: a number from a client or a disk never panics).
//! Does not: know where a number came from; the caller says whose fault a bad one is.
//! Called from any thread.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl $name {
            /// Wraps a plain number.
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// The plain number.
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// The number of a record in its partition.
    Offset(i64)
}
number! {
    /// The number of a leadership; it grows with every start of a broker that appends.
    LeaderEpoch(i32)
}
number! {
    /// The id of an idempotent producer; -1 on the wire means none.
    ProducerId(i64)
}
number! {
    /// The epoch of a producer id.
    ProducerEpoch(i16)
}
number! {
    /// The number of a record of one producer in one partition; after 2^31-1 comes 0.
    Sequence(i32)
}
number! {
    /// A byte position in a file.
    Position(u64)
}
number! {
    /// Milliseconds since 1970; -1 means none.
    Timestamp(i64)
}
number! {
    /// The index of a partition in its topic.
    PartitionIndex(i32)
}

/// The identity of one incarnation of a topic; a name is not an identity (D11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub uuid::Uuid);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Offset {
    /// The first offset of any log.
    pub const ZERO: Self = Self(0);

    /// The offset `count` records further.
    #[must_use]
    pub const fn plus(self, count: i64) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// How many records lie between `base` and this offset.
    pub const fn since(self, base: Self) -> i64 {
        self.0.saturating_sub(base.0)
    }
}

impl LeaderEpoch {
    /// No epoch is known (-1 on the wire).
    pub const NONE: Self = Self(-1);

    /// The epoch that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl ProducerId {
    /// The batch has no producer id.
    pub const NONE: Self = Self(-1);
}

impl ProducerEpoch {
    /// The batch has no producer epoch.
    pub const NONE: Self = Self(-1);
}

impl Timestamp {
    /// No timestamp.
    pub const NONE: Self = Self(-1);

    /// Milliseconds from `earlier` to this time; negative when the clock went back.
    pub const fn since_ms(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Sequence {
    /// The batch has no sequence.
    pub const NONE: Self = Self(-1);

    /// The sequence `count` records further; it wraps from 2^31-1 to 0.
    #[must_use]
    pub fn plus(self, count: i32) -> Self {
        let sum = i64::from(self.0) + i64::from(count);
        Self(i32::try_from(sum & i64::from(i32::MAX)).unwrap_or(0))
    }

    /// Whether `next` is the sequence that follows this one.
    pub fn is_followed_by(self, next: Self) -> bool {
        self.plus(1) == next
    }
}

impl Position {
    /// The start of a file.
    pub const ZERO: Self = Self(0);

    /// The position `bytes` further.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }

    /// Bytes between `earlier` and this position; 0 if it is not earlier.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Widens a length in memory for arithmetic with file positions.
pub(crate) fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// Narrows a length to memory size; what does not fit becomes the largest, which no allocation follows.
pub(crate) fn narrow(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w11_sequence_wraps_from_the_largest_to_zero() {
        assert_eq!(Sequence(i32::MAX).plus(1), Sequence(0));
        assert_eq!(Sequence(i32::MAX - 1).plus(3), Sequence(1));
        assert!(Sequence(i32::MAX).is_followed_by(Sequence(0)));
        assert!(Sequence::NONE.is_followed_by(Sequence(0)));
        assert!(!Sequence(156).is_followed_by(Sequence(158)));
    }
}
