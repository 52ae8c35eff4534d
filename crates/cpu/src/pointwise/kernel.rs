//! Compiled loops: one per op, compute dtype and instruction-set level, over contiguous elements of one dtype.

use crate::isa::{self, Isa};
use crate::lane::{AnyAngle, LARGEST_ANGLE, LARGEST_ANGLE64, Lane};
use rushlight_core::rows::{BitsRow, CompareRow, Num, NumRow, RealRow, Row, TestRow, Visitor};
use rushlight_core::{DType, Element, Pointwise};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Maximum inputs of a kernel: a derivative's incoming gradient, three inputs and the output.
pub(super) const INPUTS: usize = 5;

/// `n` results from contiguous inputs. Inputs the op does not use still point to `n` readable elements; the output
/// overlaps none.
pub(super) type Kernel = unsafe fn(n: usize, inputs: &[*const u8; INPUTS], out: *mut u8, params: &[f64; 4]);

/// The computation of a kernel.
pub(super) trait Body: 'static {
    /// Type of the results.
    type Out: Copy;
    /// Whether a version for 512-bit vectors pays.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only AVX-512 has them"))]
    const WIDE: bool;
    /// An input that is an angle; vector code supports angles only up to a bound.
    const ANGLE: Option<Angle> = None;
    /// Result `i`.
    ///
    /// # Safety
    /// Every input points to more than `i` elements of the types the body reads.
    unsafe fn at<I: Isa>(inputs: &[*const u8; INPUTS], i: usize, params: &[f64; 4]) -> Self::Out;
}

/// The index of an angle input, and its type.
#[derive(Clone, Copy)]
pub(super) enum Angle {
    F32(usize),
    /// Its bound is passed along.
    F64(usize, f64),
}

impl Angle {
    /// Whether one of `n` angles is beyond the bound.
    ///
    /// # Safety
    /// The input has `n` elements of the angle's type.
    #[inline(always)]
    unsafe fn any_large(self, inputs: &[*const u8; INPUTS], n: usize) -> bool {
        // SAFETY: the caller's.
        unsafe {
            match self {
                Angle::F32(input) => std::slice::from_raw_parts(inputs[input].cast::<f32>(), n)
                    .iter()
                    .fold(false, |found, x| found | (x.abs() > LARGEST_ANGLE)),
                Angle::F64(input, bound) => std::slice::from_raw_parts(inputs[input].cast::<f64>(), n)
                    .iter()
                    .fold(false, |found, x| found | (x.abs() > bound)),
            }
        }
    }
}

/// `input`, if the op takes it as an angle in vector code.
const fn angle(op: Pointwise, dtype: DType, input: usize) -> Option<Angle> {
    use Pointwise::*;
    match (dtype, op) {
        (DType::F32, Sin | Cos | Tan | Sinc) => Some(Angle::F32(input)),
        (DType::F64, Sin | Cos) => Some(Angle::F64(input, LARGEST_ANGLE64)),
        // It multiplies by pi.
        (DType::F64, Sinc) => Some(Angle::F64(input, LARGEST_ANGLE64 / 4.0)),
        _ => None,
    }
}

/// Whether a version for 512-bit vectors pays: in `f32`, and in `f64` if the op is bound by arithmetic.
const fn wide(op: Pointwise, dtype: DType) -> bool {
    matches!(dtype, DType::F32) || angle(op, dtype, 0).is_some()
}

/// # Safety
/// As [`Kernel`] says.
#[inline(always)]
unsafe fn each<B: Body, I: Isa>(n: usize, inputs: &[*const u8; INPUTS], out: *mut u8, params: &[f64; 4]) {
    // As a unique reference, `out` tells the compiler that stores need no order against loads.
    #[inline(always)]
    unsafe fn fill<B: Body, I: Isa>(out: &mut [MaybeUninit<B::Out>], inputs: [*const u8; INPUTS], params: [f64; 4]) {
        // Without iterators: there is a copy of this loop for every op, dtype and level.
        let mut i = 0;
        while i < out.len() {
            // SAFETY: `i` is below the length, which the inputs have too.
            unsafe { out.get_unchecked_mut(i).write(B::at::<I>(&inputs, i, &params)) };
            i += 1;
        }
    }
    // SAFETY: the caller gives `n` writable elements that nothing else reads, and inputs as long.
    unsafe {
        let out = std::slice::from_raw_parts_mut(out.cast(), n);
        // A constant except for the few ops with angles, so that nothing is compiled twice for the others.
        if const { B::ANGLE.is_some() } && B::ANGLE.is_some_and(|angle| angle.any_large(inputs, n)) {
            return fill::<B, AnyAngle>(out, *inputs, *params);
        }
        fill::<B, I>(out, *inputs, *params)
    }
}

/// # Safety
/// As [`Kernel`] says.
unsafe fn portable<B: Body>(n: usize, inputs: &[*const u8; INPUTS], out: *mut u8, params: &[f64; 4]) {
    // SAFETY: the same contract.
    unsafe { each::<B, isa::Portable>(n, inputs, out, params) }
}

/// # Safety
/// As [`Kernel`] says, on a machine of level `Avx2`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn avx2<B: Body>(n: usize, inputs: &[*const u8; INPUTS], out: *mut u8, params: &[f64; 4]) {
    // SAFETY: the same contract.
    unsafe { each::<B, isa::Avx2>(n, inputs, out, params) }
}

/// # Safety
/// As [`Kernel`] says, on a machine of level `Avx512`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn avx512<B: Body>(n: usize, inputs: &[*const u8; INPUTS], out: *mut u8, params: &[f64; 4]) {
    // SAFETY: the same contract.
    unsafe { each::<B, isa::Avx512>(n, inputs, out, params) }
}

/// The kernel of a body for the level in use.
pub(super) fn compiled<B: Body>() -> Kernel {
    #[cfg(target_arch = "x86_64")]
    match isa::level() {
        isa::Level::Avx512 => return if B::WIDE { avx512::<B> } else { avx2::<B> },
        isa::Level::Avx2 => return avx2::<B>,
        isa::Level::Portable => {}
    }
    portable::<B>
}

/// A type ops are computed in.
pub(super) trait Compute: Element {
    fn num<O: NumRow, I: Isa>(x: [Self; 3], p: &[f64; 4]) -> Self;
    fn compare<O: CompareRow, I: Isa>(x: [Self; 3], p: &[f64; 4]) -> bool;
}
/// A float ops are computed in.
pub(super) trait ComputeReal: Compute {
    fn real<O: RealRow, I: Isa>(x: [Self; 3], p: &[f64; 4]) -> Self;
    fn test<O: TestRow, I: Isa>(x: [Self; 3], p: &[f64; 4]) -> bool;
    fn grad<O: Row, const WRT: usize, I: Isa>(dy: Self, x: [Self; 3], y: Self, p: &[f64; 4]) -> Self;
}
/// An integer ops are computed in.
pub(super) trait ComputeBits: Compute {
    fn bits<O: BitsRow, I: Isa>(x: [Self; 3]) -> Self;
}

#[inline(always)]
fn lanes<T: Copy, I: Isa>(x: [T; 3]) -> [Lane<T, I>; 3] {
    [Lane::new(x[0]), Lane::new(x[1]), Lane::new(x[2])]
}

#[inline(always)]
fn literals<N: Num>(p: &[f64; 4]) -> [N; 4] {
    [N::lit(p[0]), N::lit(p[1]), N::lit(p[2]), N::lit(p[3])]
}

macro_rules! compute {
    ($($t:ty)*) => {$(
        impl Compute for $t {
            #[inline(always)]
            fn num<O: NumRow, I: Isa>(x: [Self; 3], p: &[f64; 4]) -> Self {
                O::eval(lanes::<$t, I>(x), literals(p)).0
            }
            #[inline(always)]
            fn compare<O: CompareRow, I: Isa>(x: [Self; 3], p: &[f64; 4]) -> bool {
                O::eval(lanes::<$t, I>(x), literals(p))
            }
        }
    )*};
}
compute!(f32 f64 i64 i32 i16 i8 u8);

macro_rules! compute_real {
    ($($t:ty)*) => {$(
        impl ComputeReal for $t {
            #[inline(always)]
            fn real<O: RealRow, I: Isa>(x: [Self; 3], p: &[f64; 4]) -> Self {
                O::eval(lanes::<$t, I>(x), literals(p)).0
            }
            #[inline(always)]
            fn test<O: TestRow, I: Isa>(x: [Self; 3], p: &[f64; 4]) -> bool {
                O::eval(lanes::<$t, I>(x), literals(p))
            }
            #[inline(always)]
            fn grad<O: Row, const WRT: usize, I: Isa>(dy: Self, x: [Self; 3], y: Self, p: &[f64; 4]) -> Self {
                O::grad::<Lane<$t, I>, WRT>(Lane::new(dy), lanes(x), Lane::new(y), literals(p)).0
            }
        }
    )*};
}
compute_real!(f32 f64);

macro_rules! compute_bits {
    ($($t:ty)*) => {$(
        impl ComputeBits for $t {
            #[inline(always)]
            fn bits<O: BitsRow, I: Isa>(x: [Self; 3]) -> Self {
                O::eval(lanes::<$t, I>(x)).0
            }
        }
    )*};
}
compute_bits!(i64 i32 i16 i8 u8);

/// The inputs of op `O` at `i`, padded to three.
///
/// # Safety
/// As [`Body::at`] says.
#[inline(always)]
unsafe fn load<O: Row, T: Element>(inputs: &[*const u8; INPUTS], i: usize) -> [T; 3] {
    let used = const { O::OP.inputs().len() };
    // SAFETY: the caller's.
    let at = |k: usize| if k < used { unsafe { inputs[k].cast::<T>().add(i).read() } } else { T::default() };
    [at(0), at(1), at(2)]
}

macro_rules! body {
    ($Name:ident, $Row:ident, $Type:ident, $Out:ty, $T:ident, |$x:ident, $p:ident| $value:expr) => {
        struct $Name<O, T>(PhantomData<(O, T)>);
        impl<O: $Row, $T: $Type> Body for $Name<O, $T> {
            type Out = $Out;
            const WIDE: bool = wide(O::OP, $T::DTYPE);
            const ANGLE: Option<Angle> = angle(O::OP, $T::DTYPE, 0);
            #[inline(always)]
            unsafe fn at<I: Isa>(inputs: &[*const u8; INPUTS], i: usize, $p: &[f64; 4]) -> $Out {
                // SAFETY: the caller's.
                let $x = unsafe { load::<O, $T>(inputs, i) };
                $value
            }
        }
    };
}
body!(NumBody, NumRow, Compute, T, T, |x, p| T::num::<O, I>(x, p));
body!(CompareBody, CompareRow, Compute, bool, T, |x, p| T::compare::<O, I>(x, p));
body!(RealBody, RealRow, ComputeReal, T, T, |x, p| T::real::<O, I>(x, p));
body!(TestBody, TestRow, ComputeReal, bool, T, |x, p| T::test::<O, I>(x, p));
body!(BitsBody, BitsRow, ComputeBits, T, T, |x, _p| T::bits::<O, I>(x));

struct GradBody<O, T, const WRT: usize>(PhantomData<(O, T)>);
impl<O: Row, T: ComputeReal, const WRT: usize> Body for GradBody<O, T, WRT> {
    type Out = T;
    const WIDE: bool = wide(O::OP, T::DTYPE);
    const ANGLE: Option<Angle> = angle(O::OP, T::DTYPE, 1);
    #[inline(always)]
    unsafe fn at<I: Isa>(inputs: &[*const u8; INPUTS], i: usize, p: &[f64; 4]) -> T {
        // SAFETY: the caller's.
        let at = |k: usize| unsafe { inputs[k].cast::<T>().add(i).read() };
        T::grad::<O, WRT, I>(at(0), [at(1), at(2), at(3)], at(4), p)
    }
}

/// `condition ? a : b` over elements of the size of `T`.
pub(super) struct SelectBody<T>(PhantomData<T>);
impl<T: Copy + 'static> Body for SelectBody<T> {
    type Out = T;
    const WIDE: bool = true;
    #[inline(always)]
    unsafe fn at<I: Isa>(inputs: &[*const u8; INPUTS], i: usize, _: &[f64; 4]) -> T {
        // SAFETY: the caller's; the condition is read as a byte, whatever is stored there.
        unsafe {
            let (a, b) = (inputs[1].cast::<T>().add(i).read(), inputs[2].cast::<T>().add(i).read());
            if inputs[0].add(i).read() != 0 { a } else { b }
        }
    }
}

/// Finds the kernel of an op's value for a compute dtype, and the dtype it gives.
struct Value(DType);

macro_rules! by_dtype {
    ($dtype:expr, $Body:ident<$O:ident>, $($D:ident $t:ty),*) => {
        match $dtype {
            $(DType::$D => Some(compiled::<$Body<$O, $t>>()),)*
            _ => None,
        }
    };
}

impl Visitor for Value {
    type Out = Option<Kernel>;
    fn num<O: NumRow>(self) -> Self::Out {
        by_dtype!(self.0, NumBody<O>, F32 f32, F64 f64, I64 i64, I32 i32, I16 i16, I8 i8, U8 u8)
    }
    fn real<O: RealRow>(self) -> Self::Out {
        by_dtype!(self.0, RealBody<O>, F32 f32, F64 f64)
    }
    fn compare<O: CompareRow>(self) -> Self::Out {
        by_dtype!(self.0, CompareBody<O>, F32 f32, F64 f64, I64 i64, I32 i32, I16 i16, I8 i8, U8 u8)
    }
    fn test<O: TestRow>(self) -> Self::Out {
        by_dtype!(self.0, TestBody<O>, F32 f32, F64 f64)
    }
    fn bits<O: BitsRow>(self) -> Self::Out {
        by_dtype!(self.0, BitsBody<O>, I64 i64, I32 i32, I16 i16, I8 i8, U8 u8)
    }
}

/// Finds the kernel of a derivative.
struct Derivative {
    wrt: usize,
    compute: DType,
}

impl Derivative {
    fn row<O: Row>(self) -> Option<Kernel> {
        match self.wrt {
            0 => self.by::<O, 0>(),
            1 => self.by::<O, 1>(),
            2 => self.by::<O, 2>(),
            _ => None,
        }
    }

    fn by<O: Row, const WRT: usize>(self) -> Option<Kernel> {
        // A constant condition: nothing is compiled for inputs without a derivative.
        if const { WRT < O::OP.grad_text().len() } {
            match self.compute {
                DType::F32 => Some(compiled::<GradBody<O, f32, WRT>>()),
                DType::F64 => Some(compiled::<GradBody<O, f64, WRT>>()),
                _ => None,
            }
        } else {
            None
        }
    }
}

impl Visitor for Derivative {
    type Out = Option<Kernel>;
    fn num<O: NumRow>(self) -> Self::Out {
        self.row::<O>()
    }
    fn real<O: RealRow>(self) -> Self::Out {
        self.row::<O>()
    }
    fn compare<O: CompareRow>(self) -> Self::Out {
        self.row::<O>()
    }
    fn test<O: TestRow>(self) -> Self::Out {
        self.row::<O>()
    }
    fn bits<O: BitsRow>(self) -> Self::Out {
        self.row::<O>()
    }
}

/// The kernel of an op computed in `compute`, if there is one.
pub(super) fn value(op: Pointwise, compute: DType) -> Option<Kernel> {
    op.visit(Value(compute))
}

/// The kernel of an op's derivative by input `wrt`, if there is one.
pub(super) fn derivative(op: Pointwise, wrt: usize, compute: DType) -> Option<Kernel> {
    op.visit(Derivative { wrt, compute })
}
