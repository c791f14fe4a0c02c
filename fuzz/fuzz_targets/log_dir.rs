//! `cargo +nightly fuzz run log_dir`
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| seawall_fuzzing::run("log_dir", input));
