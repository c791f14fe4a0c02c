//! What an acknowledgement promises, as one byte.

/// The durability contract between one produce request and the broker.
///
/// The byte value is what our inner interfaces carry; Kafka's `acks` maps onto
/// it in [`AckPolicy::from_acks`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum AckPolicy {
    /// No reply, ever. On an error the connection is closed.
    None = 0,
    /// In the log. Must never trigger a flush.
    Written = 1,
    /// A flush that began after the bytes were written has succeeded.
    Forced = 2,
}

impl AckPolicy {
    /// The policy for Kafka's `acks` field; `None` for a value Kafka refuses
    /// with `INVALID_REQUIRED_ACKS`.
    #[must_use]
    pub const fn from_acks(acks: i16) -> Option<Self> {
        match acks {
            0 => Some(Self::None),
            1 => Some(Self::Written),
            -1 => Some(Self::Forced),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kafkas_three_values_have_a_policy() {
        assert_eq!(AckPolicy::from_acks(0), Some(AckPolicy::None));
        assert_eq!(AckPolicy::from_acks(1), Some(AckPolicy::Written));
        assert_eq!(AckPolicy::from_acks(-1), Some(AckPolicy::Forced));
        assert_eq!(AckPolicy::from_acks(2), None);
        assert_eq!(AckPolicy::from_acks(-2), None);
    }
}
