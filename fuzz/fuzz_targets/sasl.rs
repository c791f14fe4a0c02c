//! `cargo +nightly fuzz run sasl`
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| seawall_fuzzing::run("sasl", input));
