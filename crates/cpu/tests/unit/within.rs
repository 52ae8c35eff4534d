//! Modules of the library with white-box tests.
// They are linted with the library.
#![allow(unused, clippy::all)]

#[path = "../../src/alloc.rs"]
mod alloc;
#[path = "../../src/lane/mod.rs"]
mod lane;
#[path = "../../src/linalg.rs"]
mod linalg;
#[path = "../../src/pool/mod.rs"]
mod pool;
#[path = "../../src/simd/mod.rs"]
pub mod simd;
