//! What consumers of the classic protocol tell each other through the coordinator (Kafka's
//! `ConsumerProtocolSubscription` and `ConsumerProtocolAssignment`).
//!
//! A coordinator passes these bytes on unread. It looks into them to learn which topics a group reads, and
//! to let consumers of both protocols share a group (KIP-848).
//!
//! The first two bytes are a version; every later version only appends fields, so a newer one is read as far
//! as it is known, as in Kafka.

use bytes::{BufMut, Bytes, BytesMut};

use super::WireError;
use super::reader::Reader;

/// Topics and partitions of each.
pub type TopicPartitions = Vec<(String, Vec<i32>)>;

/// What a member wants.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Subscription {
    /// The topics it reads.
    pub topics: Vec<String>,
    /// For its assignor alone.
    pub user_data: Option<Bytes>,
    /// What it has and would keep; empty before version 1.
    pub owned: TopicPartitions,
    /// Of its last assignment; -1 before version 2.
    pub generation: i32,
    /// Where it runs; `None` before version 3.
    pub rack: Option<String>,
}

/// Where a version that only consumers know can be met in one that all know: assignments have no other.
const ASSIGNMENT_VERSION: i16 = 0;

/// Reads a subscription.
///
/// # Errors
/// The bytes are not one.
pub fn decode_subscription(bytes: &Bytes) -> Result<Subscription, WireError> {
    let mut reader = Reader::new(bytes);
    let version = version(&mut reader)?;
    let topics = reader.count(false, 2)?;
    let topics = (0..topics).map(|_| text(&mut reader, bytes));
    let mut subscription = Subscription {
        topics: topics.collect::<Result<_, _>>()?,
        user_data: reader.nullable_bytes(bytes, false)?,
        generation: -1,
        ..Subscription::default()
    };
    if version >= 1 {
        subscription.owned = topic_partitions(&mut reader, bytes)?;
    }
    if version >= 2 {
        subscription.generation = reader.i32()?;
    }
    if version >= 3 {
        let rack = reader.nullable_string(bytes, false)?;
        subscription.rack = rack.map(|rack| rack.as_str().to_owned());
    }
    Ok(subscription)
}

/// Reads an assignment.
///
/// # Errors
/// The bytes are not one.
pub fn decode_assignment(bytes: &Bytes) -> Result<TopicPartitions, WireError> {
    let mut reader = Reader::new(bytes);
    version(&mut reader)?;
    topic_partitions(&mut reader, bytes)
}

/// Writes an assignment. Names longer than 32,767 bytes, which no topic has, are left out.
#[must_use]
pub fn encode_assignment(assignment: &TopicPartitions) -> Bytes {
    let named = assignment.iter();
    let named =
        named.filter_map(|(name, list)| Some((name, i16::try_from(name.len()).ok()?, list)));
    let mut bytes = BytesMut::new();
    bytes.put_i16(ASSIGNMENT_VERSION);
    bytes.put_i32(count(named.clone().count()));
    for (name, length, partitions) in named {
        bytes.put_i16(length);
        bytes.put_slice(name.as_bytes());
        bytes.put_i32(count(partitions.len()));
        partitions
            .iter()
            .for_each(|partition| bytes.put_i32(*partition));
    }
    // No user data.
    bytes.put_i32(-1);
    bytes.freeze()
}

fn count(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

fn version(reader: &mut Reader<'_>) -> Result<i16, WireError> {
    let version = reader.i16()?;
    if version < 0 {
        return Err(WireError::UnsupportedVersion(version));
    }
    Ok(version)
}

fn text(reader: &mut Reader<'_>, bytes: &Bytes) -> Result<String, WireError> {
    Ok(reader.string(bytes, false)?.as_str().to_owned())
}

fn topic_partitions(reader: &mut Reader<'_>, bytes: &Bytes) -> Result<TopicPartitions, WireError> {
    let topics = reader.count(false, 6)?;
    let one = |reader: &mut Reader<'_>| {
        let name = text(reader, bytes)?;
        let partitions = reader.count(false, 4)?;
        let partitions = (0..partitions).map(|_| reader.i32());
        Ok((name, partitions.collect::<Result<_, _>>()?))
    };
    (0..topics).map(|_| one(reader)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the Java client writes it: version 3, topics a and b, owning a-1, generation 7, rack r.
    const JAVA: &[u8] = b"\0\x03\0\0\0\x02\0\x01a\0\x01b\xff\xff\xff\xff\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\x01\0\0\0\x07\0\x01r";

    #[test]
    fn a_subscription_is_read_in_every_version() {
        let whole = decode_subscription(&Bytes::from_static(JAVA)).unwrap();
        assert_eq!(whole.topics, ["a", "b"]);
        assert_eq!(whole.owned, [("a".to_owned(), vec![1])]);
        assert_eq!((whole.generation, whole.rack.as_deref()), (7, Some("r")));
        for (version, length) in [(0_u8, 16), (1, 31), (2, 35), (3, 38), (9, 38)] {
            let mut bytes = JAVA[..length].to_vec();
            bytes[1] = version;
            let read = decode_subscription(&bytes.into()).unwrap();
            assert_eq!(read.topics, ["a", "b"], "{version}");
            assert_eq!(read.owned.len(), usize::from(version >= 1), "{version}");
        }
    }

    #[test]
    fn what_is_no_subscription_is_refused_and_nothing_panics() {
        for cut in 0..JAVA.len() {
            assert!(
                decode_subscription(&Bytes::from_static(&JAVA[..cut])).is_err(),
                "{cut}"
            );
        }
        let huge = b"\0\x03\x7f\xff\xff\xff";
        assert!(decode_subscription(&Bytes::from_static(huge)).is_err());
    }

    #[test]
    fn an_assignment_comes_back_as_it_was() {
        let assignment = vec![("a".to_owned(), vec![0, 2]), ("b".to_owned(), vec![])];
        let bytes = encode_assignment(&assignment);
        assert_eq!(decode_assignment(&bytes), Ok(assignment));
    }
}
