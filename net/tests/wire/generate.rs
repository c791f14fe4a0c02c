//! Generated values, and helpers to encode and decode with `kafka-wire`.

use bytes::{Bytes, BytesMut};
use kafka_wire_core::{
    ApiVersion, DecodeLimits, Decoder, KafkaDecode, KafkaEncode, TaggedField, TaggedFields,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use seawall_net::wire::{StrBytes, Uuid};

pub(crate) fn reference_encode<T: KafkaEncode>(value: &T, version: i16) -> Bytes {
    let mut buffer = BytesMut::new();
    value
        .encode_into(&mut buffer, ApiVersion::new(version))
        .unwrap();
    buffer.freeze()
}

pub(crate) fn reference_decode<T: KafkaDecode>(bytes: &Bytes, version: i16) -> T {
    let mut decoder = Decoder::new(bytes.clone(), DecodeLimits::default()).unwrap();
    let value = T::decode(&mut decoder, ApiVersion::new(version)).unwrap();
    decoder.finish().unwrap();
    value
}

/// Names around the edge where a compact length needs a second byte (p07), and others.
pub(crate) fn name() -> impl Strategy<Value = StrBytes> {
    prop_oneof![
        Just(String::new()),
        "[a-z0-9._-]{1,12}",
        "[a-z]{125,130}",
        "[a-z]{249}",
        "[äöü☃]{1,9}",
    ]
    .prop_map(StrBytes::from)
}

pub(crate) fn nullable_name() -> impl Strategy<Value = Option<StrBytes>> {
    option::of(name())
}

pub(crate) fn id() -> impl Strategy<Value = Uuid> {
    any::<[u8; 16]>().prop_map(Uuid::from_bytes)
}

pub(crate) fn records() -> impl Strategy<Value = Option<Bytes>> {
    let lengths = prop_oneof![
        0..10_usize,
        120..136_usize,
        1_000..1_050_usize,
        16_380..16_390_usize
    ];
    option::of((lengths, any::<u8>()).prop_map(|(length, byte)| Bytes::from(vec![byte; length])))
}

/// Tagged fields with numbers that no schema of ours knows.
pub(crate) fn unknown_tags() -> impl Strategy<Value = TaggedFields> {
    let fields = vec((100..2_000_u32, vec(any::<u8>(), 0..200)), 0..3);
    fields.prop_map(|mut fields| {
        fields.sort_by_key(|(tag, _)| *tag);
        fields.dedup_by_key(|(tag, _)| *tag);
        let field = |(tag, payload): (u32, Vec<u8>)| TaggedField::new(tag, Bytes::from(payload));
        TaggedFields::from_sorted(fields.into_iter().map(field).collect()).unwrap()
    })
}
