//! Helpers of the kernel tests.

mod array;

pub use array::{Array, Rng};
use rushlight_core::sync::lock;

/// A floating dtype and its compute type.
pub trait Float: rushlight_core::Element {
    type Acc: rushlight_core::Element + PartialEq + std::fmt::Debug;
}
impl Float for f32 {
    type Acc = f32;
}
impl Float for f64 {
    type Acc = f64;
}
impl Float for half::f16 {
    type Acc = f32;
}
impl Float for half::bf16 {
    type Acc = f32;
}

use crate::{isa, pool};
use std::sync::{Mutex, MutexGuard};

/// Level and thread count are process-wide: tests that set them, or depend on them bit for bit, take turns.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    lock(&TURN)
}

/// Runs a test at each level this machine has.
pub fn at_every_level(test: impl Fn()) {
    let _turn = turn();
    for level in isa::Level::ALL {
        isa::force(level);
        test();
    }
}

/// Checks that a result is the same, bit for bit, with one thread and with several.
pub fn with_any_threads<R: PartialEq>(result: impl Fn() -> R) {
    let _turn = turn();
    let before = pool::num_threads();
    pool::set_num_threads(1);
    let one = result();
    pool::set_num_threads(3);
    let three = result();
    pool::set_num_threads(before);
    assert!(one == three, "the result depends on the number of threads");
}

/// Reproducible numbers in ±`scale`.
pub fn numbers<T: rushlight_core::Element>(seed: u64, n: usize, scale: f64) -> Vec<T> {
    let stream = rushlight_core::Philox { seed, offset: 0 };
    (0..n)
        .map(|i| T::from_f64((rushlight_core::rng::uniform_f32(stream.word(i as u64)) as f64 * 2.0 - 1.0) * scale))
        .collect()
}

/// The same as `f64`.
pub fn wide<T: rushlight_core::Element>(x: &[T]) -> Vec<f64> {
    x.iter().map(|v| v.to_f64()).collect()
}

/// Tolerance of a dtype, relative to values of about one.
pub fn tolerance<T: Float>() -> f64 {
    match T::DTYPE {
        rushlight_core::DType::F64 => 1e-12,
        rushlight_core::DType::F32 => 1e-5,
        rushlight_core::DType::F16 => 2e-3,
        _ => 1.5e-2,
    }
}

/// Compares with a tolerance relative to `1 + |want|`; NaN and infinities must match.
#[track_caller]
pub fn close<T: rushlight_core::Element>(got: &[T], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (got, &want)) in got.iter().zip(want).enumerate() {
        let got = got.to_f64();
        let same =
            got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= tolerance * (1.0 + want.abs());
        assert!(same, "element {i}: {got}, not {want}");
    }
}

/// Runs an expression with `$T` bound to each floating type in turn.
macro_rules! each_float {
    ($T:ident => $body:expr) => {{
        {
            type $T = f32;
            $body
        }
        {
            type $T = f64;
            $body
        }
        {
            type $T = half::f16;
            $body
        }
        {
            type $T = half::bf16;
            $body
        }
    }};
}
pub(crate) use each_float;
