#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rushlight_dist::store::read_messages(bytes));
