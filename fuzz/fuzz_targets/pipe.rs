//! Runs the body `pipe` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    ropeway_fuzz_bodies::pipe(input);
});
