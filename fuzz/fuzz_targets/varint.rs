//! Runs the body `varint` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    ropeway_fuzz_bodies::varint(input);
});
