//! What a vendor's crate implements and builds on: the driver, the run-time compiler, and optional libraries.
//!
//! CUDA and HIP name the same functions with other prefixes, so the calls themselves are written once, here.

pub mod calls;
pub mod conv_library;
pub mod driver;
pub mod factorisations;
pub mod fft;
pub mod library;
pub mod lt;
pub mod nccl;
pub mod rtc;
