//! The engine's unit tests, as a separate program: tests inside it would have every kernel compiled a second
//! time.
//!
//! Most use the engine's public modules. Small modules with white-box tests are compiled into this program, together
//! with those tests; their imports resolve to the library's modules of the same names.

use rushlight_cpu::{backend, isa, lane, multiversion, pool};

mod attention;
mod batch_norm;
mod conv;
mod copy;
mod cross_entropy;
mod engine;
mod fft;
mod gather;
mod gemm;
mod index;
mod pointwise;
mod pool2d;
mod random;
mod reduce;
mod row_norm;
mod scan;
mod softmax;
mod sort;
mod testing;
mod update;
mod within;

// The conversions that `pointwise` compiles into this program use it.
#[cfg(target_arch = "aarch64")]
use within::simd;
