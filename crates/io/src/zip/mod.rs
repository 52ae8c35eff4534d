//! Zip archives, as far as `.pt` and `.npz` files need them.

mod read;
mod write;

pub(crate) use read::{Archive, Entry, Method};
pub(crate) use write::Writer;

const LOCAL: u32 = 0x0403_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;

const LOCAL_LEN: usize = 30;
const END_LEN: usize = 22;
const END64_LEN: usize = 56;
const LOCATOR64_LEN: usize = 20;

/// Extra field with the 64-bit forms of sizes and offsets.
const ZIP64: u16 = 1;
/// General-purpose flags.
const ENCRYPTED: u16 = 1;
const HAS_DESCRIPTOR: u16 = 1 << 3;
const UTF8: u16 = 1 << 11;
