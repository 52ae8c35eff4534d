//! The engine's unit tests, as a program beside the library: tests inside it would have every kernel compiled a second
//! time.
//!
//! Most go through the engine's public modules. Small modules whose tests look inside them are compiled into this
//! program, with those tests; they find their neighbours under the names these have in the library.

use rushlight_cpu::{backend, isa, lane, multiversion, pool};

mod attention;
mod batch_norm;
mod conv;
mod copy;
mod cross_entropy;
mod engine;
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
