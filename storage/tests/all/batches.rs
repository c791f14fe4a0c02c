//! What a producer may send as a batch: cases w01, w03, w04, w08, w09, w10 and Kafka 4.4's answers.

use bytes::Bytes;
use proptest::prelude::*;
use seawall_storage::{
    Attributes, Batch, BatchError, BatchHeader, LeaderEpoch, Offset, ProducerEpoch, ProducerId,
    ProducerRules, Sequence, Timestamp,
};

use crate::support::{header, payload, plain, seal};

fn rules() -> ProducerRules {
    ProducerRules {
        max_batch_bytes: 1 << 20,
        zstd: true,
        check_crc: true,
    }
}

fn check(bytes: &[u8], expected: Result<(), BatchError>) {
    let got = Batch::from_producer(&Bytes::copy_from_slice(bytes), &rules()).map(drop);
    assert_eq!(got, expected);
}

/// A good batch of three records with some header fields changed before it is sealed.
fn sealed(change: impl FnOnce(&mut BatchHeader)) -> Bytes {
    let mut fields = header(3, 1);
    change(&mut fields);
    seal(fields, &payload(1, 3, 10))
}

/// A good batch with some bytes changed after it was sealed.
fn patched(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut batch = sealed(|_| {}).to_vec();
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    batch
}

#[test]
fn w01_counts_that_do_not_agree_are_refused() {
    for delta in [0, -1, i32::MAX, 1, 3] {
        check(
            &sealed(|h| h.last_offset_delta = delta),
            Err(BatchError::BadCount),
        );
    }
    for count in [0, -1, i32::MIN, 2, i32::MAX] {
        check(
            &sealed(|h| h.record_count = count),
            Err(BatchError::BadCount),
        );
    }
    let many = sealed(|h| (h.record_count, h.last_offset_delta) = (1_000_000, 999_999));
    check(&many, Err(BatchError::BadCount));
    check(&seal(header(1, 1), &[]), Err(BatchError::BadCount));
}

#[test]
fn w01_impossible_lengths_are_corrupt_and_long_ones_are_half_batches() {
    for length in [0, -1, 13, 14, 48, i32::MIN] {
        check(
            &patched(8, &length.to_be_bytes()),
            Err(BatchError::ImpossibleLength(length)),
        );
    }
    for length in [1000, i32::MAX] {
        check(&patched(8, &length.to_be_bytes()), Err(BatchError::Short));
    }
    check(&[], Err(BatchError::Empty));
    for len in [1, 11, 16, 60] {
        check(&sealed(|_| {})[..len], Err(BatchError::Short));
    }
}

#[test]
fn w01_a_half_batch_behind_a_whole_one_is_dropped_and_another_whole_one_is_refused() {
    let good = sealed(|_| {});
    check(&[good.as_ref(), &good[..40]].concat(), Ok(()));
    check(&[good.as_ref(), &good[..good.len() - 1]].concat(), Ok(()));
    check(&[good.as_ref(), &good[..5]].concat(), Ok(()));
    check(
        &[good.as_ref(), good.as_ref()].concat(),
        Err(BatchError::MoreThanOne),
    );
    let taken = Batch::from_producer(&[good.as_ref(), &good[..40]].concat().into(), &rules())
        .expect("good");
    assert_eq!(taken.bytes(), &good);
}

#[test]
fn w03_other_formats_are_named() {
    for magic in [0, 1] {
        check(
            &patched(16, &[magic]),
            Err(BatchError::OldMagic(magic.cast_signed())),
        );
    }
    for magic in [3_u8, 127, 255] {
        check(
            &patched(16, &[magic]),
            Err(BatchError::UnknownMagic(magic.cast_signed())),
        );
    }
}

#[test]
fn w04_the_size_limit_is_on_the_batch_as_sent() {
    let good = sealed(|_| {});
    let len = u64::try_from(good.len()).expect("small");
    let at = |max_batch_bytes| {
        Batch::from_producer(
            &good,
            &ProducerRules {
                max_batch_bytes,
                ..rules()
            },
        )
        .map(drop)
    };
    assert_eq!(at(len), Ok(()));
    assert_eq!(
        at(len - 1),
        Err(BatchError::TooLarge {
            bytes: len,
            limit: len - 1
        })
    );
}

#[test]
fn w09_control_bits_and_half_producer_fields_are_refused() {
    check(
        &sealed(|h| h.attributes = Attributes(0x20)),
        Err(BatchError::ControlBatch),
    );
    check(
        &sealed(|h| h.attributes = Attributes(0x10)),
        Err(BatchError::TransactionalWithoutProducer),
    );
    let producer = |epoch, sequence| {
        sealed(|h| {
            h.producer_id = ProducerId(5);
            h.producer_epoch = ProducerEpoch(epoch);
            h.base_sequence = Sequence(sequence);
        })
    };
    check(&producer(0, -1), Err(BatchError::ProducerWithoutSequence));
    check(&producer(-1, 0), Err(BatchError::ProducerWithoutSequence));
    check(&producer(0, i32::MAX), Ok(()));
    check(
        &sealed(|h| h.base_offset = Offset(1)),
        Err(BatchError::BaseOffsetNotZero(Offset(1))),
    );
}

#[test]
fn w10_unknown_codecs_are_refused_and_unknown_bits_are_not() {
    for codec in 5..8 {
        check(
            &sealed(|h| h.attributes = Attributes(codec)),
            Err(BatchError::UnsupportedCodec),
        );
    }
    check(&sealed(|h| h.attributes = Attributes(0xff40)), Ok(()));
    let zstd = sealed(|h| h.attributes = Attributes(4));
    check(&zstd, Ok(()));
    let old = ProducerRules {
        zstd: false,
        ..rules()
    };
    assert_eq!(
        Batch::from_producer(&zstd, &old).map(drop),
        Err(BatchError::UnsupportedCodec)
    );
}

#[test]
fn a_wrong_checksum_is_found_at_every_byte_that_it_covers() {
    let good = sealed(|_| {});
    for at in 17..good.len() {
        let mut bad = good.to_vec();
        bad[at] ^= 0x40;
        check(&bad, Err(BatchError::CrcMismatch));
    }
    for at in 12..16 {
        check(&patched(at, &[9]), Ok(()));
    }
    let later = ProducerRules {
        check_crc: false,
        ..rules()
    };
    let batch = Batch::from_producer(&patched(100, &[0]).into(), &later).expect("not checked here");
    assert_eq!(batch.check_crc(), Err(BatchError::CrcMismatch));
}

#[test]
fn w08_log_append_time_sets_bit_time_and_checksum() {
    let batch = plain(1, 3, 10);
    let stored = |time| {
        let header = batch.stored_header(Offset(77), LeaderEpoch(4), time);
        Batch::parse_one(
            &[header.encode().as_slice(), batch.payload()]
                .concat()
                .into(),
        )
        .expect("whole")
    };
    let appended = stored(Some(Timestamp(123_456)));
    assert_eq!(appended.check_crc(), Ok(()));
    assert!(appended.header().attributes.is_log_append_time());
    assert_eq!(appended.header().max_timestamp, Timestamp(123_456));
    let created = stored(None);
    assert_eq!(
        (created.check_crc(), created.header().crc),
        (Ok(()), batch.header().crc)
    );
    assert_eq!(
        (created.header().base_offset, created.header().leader_epoch),
        (Offset(77), LeaderEpoch(4))
    );
}

#[test]
fn a_stray_append_time_bit_is_cleared_with_a_new_checksum() {
    let stray = sealed(|h| h.attributes = Attributes(8));
    let batch = Batch::from_producer(&stray, &rules()).expect("accepted");
    let header = batch.stored_header(Offset(0), LeaderEpoch(0), None);
    let stored = Batch::parse_one(
        &[header.encode().as_slice(), batch.payload()]
            .concat()
            .into(),
    )
    .expect("whole");
    assert!(!stored.header().attributes.is_log_append_time());
    assert_eq!(stored.check_crc(), Ok(()));
}

proptest! {
    #[test]
    fn garbage_never_panics_the_parser(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Batch::from_producer(&bytes.into(), &rules());
    }

    #[test]
    fn changed_bytes_are_refused_or_lie_outside_of_the_checksum(at in 0_usize..61, byte in any::<u8>()) {
        let good = sealed(|_| {});
        let bad = patched(at, &[byte]);
        let taken = Batch::from_producer(&bad.clone().into(), &rules());
        prop_assert_eq!(taken.is_ok(), bad == good.as_ref() || (12..16).contains(&at));
    }

    #[test]
    fn headers_round_trip(bytes in prop::array::uniform32(any::<u8>()), rest in prop::array::uniform29(any::<u8>())) {
        let mut raw = [0; 61];
        raw[..32].copy_from_slice(&bytes);
        raw[32..].copy_from_slice(&rest);
        prop_assert_eq!(BatchHeader::decode(&raw).encode(), raw);
    }
}
