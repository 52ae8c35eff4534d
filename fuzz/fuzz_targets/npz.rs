#![no_main]
#[path = "../../crates/data/tests/hostile/readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(readers::read("npz", bytes)));
