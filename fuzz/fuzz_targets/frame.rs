//! `cargo +nightly fuzz run frame`
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| seawall_fuzzing::run("frame", input));
