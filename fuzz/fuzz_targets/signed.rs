//! Runs the body `signed` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    ropeway_fuzz_bodies::signed(input);
});
