//! Tests of the storage engine through its public face, named after the promises they keep.

mod basic;
mod crash;
mod support;
