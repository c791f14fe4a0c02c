//! `cargo +nightly fuzz run state_file`
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| seawall_fuzzing::run("state_file", input));
