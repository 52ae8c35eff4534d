//! Reductions of bytes by dtype.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rushlight_core::DType;
pub use rushlight_core::backend::ReduceOp;

/// Plain data of one dtype.
trait Number: Copy {
    fn combine(self, other: Self, op: ReduceOp) -> Self;
}

macro_rules! float {
    ($($t:ty)*) => {$(impl Number for $t {
        #[inline(always)]
        fn combine(self, other: Self, op: ReduceOp) -> Self {
            match op {
                ReduceOp::Sum | ReduceOp::Mean => self + other,
                ReduceOp::Product => self * other,
                ReduceOp::Min => if other < self || other.is_nan() { other } else { self },
                ReduceOp::Max => if other > self || other.is_nan() { other } else { self },
                _ => self,
            }
        }
    })*};
}
float!(f32 f64);

macro_rules! integer {
    ($($t:ty)*) => {$(impl Number for $t {
        #[inline(always)]
        fn combine(self, other: Self, op: ReduceOp) -> Self {
            match op {
                ReduceOp::Sum | ReduceOp::Mean => self.wrapping_add(other),
                ReduceOp::Product => self.wrapping_mul(other),
                ReduceOp::Min => self.min(other),
                ReduceOp::Max => self.max(other),
                ReduceOp::BitAnd => self & other,
                ReduceOp::BitOr => self | other,
                ReduceOp::BitXor => self ^ other,
            }
        }
    })*};
}
integer!(i64 i32 i16 i8 u8);

/// A byte range of this process or of a shared segment. Its creator guarantees that the bytes exist while
/// it is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) ptr: *mut u8,
    pub(crate) len: usize,
}

// SAFETY: an address and a length; every use is unsafe and has its own reason.
unsafe impl Send for Span {}

impl Span {
    pub(crate) const EMPTY: Span = Span { ptr: std::ptr::NonNull::dangling().as_ptr(), len: 0 };

    pub(crate) fn of(bytes: &mut [u8]) -> Span {
        Span { ptr: bytes.as_mut_ptr(), len: bytes.len() }
    }

    /// A subrange, truncated at the end of the range.
    pub(crate) fn part(self, start: usize, len: usize) -> Span {
        let start = start.min(self.len);
        Span { ptr: self.ptr.wrapping_add(start), len: len.min(self.len - start) }
    }

    /// Copies as many bytes as both have.
    ///
    /// # Safety
    /// Both runs are valid and no other process or thread writes to either.
    pub(crate) unsafe fn copy_from(self, other: Span) {
        // SAFETY: by contract; `copy` allows overlap.
        unsafe { std::ptr::copy(other.ptr, self.ptr, self.len.min(other.len)) }
    }
}

/// `acc = acc op src`, element by element, over the shorter of the two.
///
/// # Safety
/// Both runs are valid, aligned for the dtype, do not overlap, and no thread writes to them meanwhile. `Bool` bytes are
/// 0 or 1.
pub(crate) unsafe fn reduce(dtype: DType, op: ReduceOp, acc: Span, src: Span) {
    // SAFETY: by contract.
    unsafe { combine::<false>(dtype, op, acc, src) }
}

/// `acc = src op acc`: the opposite order of [`reduce`], for ops that are not commutative.
///
/// # Safety
/// As for [`reduce`].
pub(crate) unsafe fn reduce_onto(dtype: DType, op: ReduceOp, acc: Span, src: Span) {
    // SAFETY: by contract.
    unsafe { combine::<true>(dtype, op, acc, src) }
}

unsafe fn combine<const SWAPPED: bool>(dtype: DType, op: ReduceOp, acc: Span, src: Span) {
    let n = acc.len.min(src.len) / dtype.size();
    // SAFETY: by the contract of `reduce`.
    unsafe {
        match dtype {
            DType::F32 => plain::<f32, SWAPPED>(op, acc, src, n),
            DType::F64 => plain::<f64, SWAPPED>(op, acc, src, n),
            DType::I64 => plain::<i64, false>(op, acc, src, n),
            DType::I32 => plain::<i32, false>(op, acc, src, n),
            DType::I16 => plain::<i16, false>(op, acc, src, n),
            DType::I8 => plain::<i8, false>(op, acc, src, n),
            DType::U8 => plain::<u8, false>(op, acc, src, n),
            DType::Bool => {
                // Sums of truth values are "any", products "all", as PyTorch has it.
                let op = match op {
                    ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Max => ReduceOp::BitOr,
                    ReduceOp::Product | ReduceOp::Min => ReduceOp::BitAnd,
                    op => op,
                };
                plain::<u8, false>(op, acc, src, n)
            }
            DType::F16 => halves::<f16, SWAPPED>(op, acc, src, n),
            DType::BF16 => halves::<bf16, SWAPPED>(op, acc, src, n),
            // Rejected earlier: there are no reductions of carried dtypes.
            _ => {}
        }
    }
}

/// The last step of a reduction in one pass: `acc = acc + src`, divided by `ranks` for means, and the same to `copy`,
/// if there is one. `false`, with nothing done, for other dtypes and ops.
///
/// # Safety
/// As for [`reduce`]; `copy` overlaps neither and has room for as many bytes.
pub(crate) unsafe fn reduce_last(
    dtype: DType,
    op: ReduceOp,
    acc: Span,
    src: Span,
    copy: Option<Span>,
    ranks: usize,
) -> bool {
    macro_rules! run {
        ($t:ty) => {{
            let n = acc.len.min(src.len).min(copy.map_or(usize::MAX, |copy| copy.len)) / size_of::<$t>();
            // SAFETY: by contract.
            let (acc, src, copy) = unsafe {
                (
                    std::slice::from_raw_parts_mut(acc.ptr.cast::<$t>(), n),
                    std::slice::from_raw_parts(src.ptr.cast::<$t>(), n),
                    copy.map(|copy| std::slice::from_raw_parts_mut(copy.ptr.cast::<$t>(), n)),
                )
            };
            match (op, ranks.is_power_of_two()) {
                (ReduceOp::Sum, _) => last(acc, src, copy, |sum| sum),
                // The same result, and multiplication is faster.
                (_, true) => last(acc, src, copy, |sum| sum * (1.0 / ranks as $t)),
                (_, false) => last(acc, src, copy, |sum| sum / ranks as $t),
            }
            true
        }};
    }
    match (dtype, op) {
        (DType::F32, ReduceOp::Sum | ReduceOp::Mean) => run!(f32),
        (DType::F64, ReduceOp::Sum | ReduceOp::Mean) => run!(f64),
        _ => false,
    }
}

#[inline(always)]
fn last<T: Copy + std::ops::Add<Output = T>>(
    acc: &mut [T],
    src: &[T],
    copy: Option<&mut [T]>,
    finish: impl Fn(T) -> T,
) {
    match copy {
        None => acc.iter_mut().zip(src).for_each(|(a, s)| *a = finish(*a + *s)),
        Some(copy) => acc.iter_mut().zip(src).zip(copy).for_each(|((a, s), c)| {
            *a = finish(*a + *s);
            *c = *a;
        }),
    }
}

/// The op is matched outside the loops, so that each loop is vectorised.
unsafe fn plain<T: Number, const SWAPPED: bool>(op: ReduceOp, acc: Span, src: Span, n: usize) {
    // SAFETY: by the contract of `reduce`.
    let (acc, src) = unsafe {
        (std::slice::from_raw_parts_mut(acc.ptr.cast::<T>(), n), std::slice::from_raw_parts(src.ptr.cast::<T>(), n))
    };
    macro_rules! each {
        ($($op:ident)*) => {
            match op { $(ReduceOp::$op => for (a, s) in acc.iter_mut().zip(src) {
                *a = if SWAPPED { s.combine(*a, ReduceOp::$op) } else { a.combine(*s, ReduceOp::$op) }
            },)* }
        };
    }
    each!(Sum Mean Min Max Product BitAnd BitOr BitXor);
}

/// Half types are combined as `f32` and rounded once, a block at a time.
unsafe fn halves<T, const SWAPPED: bool>(op: ReduceOp, acc: Span, src: Span, n: usize)
where
    [T]: HalfFloatSliceExt,
{
    // SAFETY: by the contract of `reduce`.
    let (acc, src) = unsafe {
        (std::slice::from_raw_parts_mut(acc.ptr.cast::<T>(), n), std::slice::from_raw_parts(src.ptr.cast::<T>(), n))
    };
    let (mut wide, mut other) = ([0f32; 256], [0f32; 256]);
    for (a, s) in acc.chunks_mut(256).zip(src.chunks(256)) {
        let (wide, other) = (&mut wide[..a.len()], &mut other[..s.len()]);
        a.convert_to_f32_slice(wide);
        s.convert_to_f32_slice(other);
        let (x, y) = (
            Span { ptr: wide.as_mut_ptr().cast(), len: size_of_val(wide) },
            Span { ptr: other.as_mut_ptr().cast(), len: size_of_val(other) },
        );
        // SAFETY: two arrays of this frame.
        unsafe { plain::<f32, SWAPPED>(op, x, y, a.len()) };
        a.convert_from_f32_slice(wide);
    }
}

/// Divides floats.
///
/// # Safety
/// As for [`reduce`].
pub(crate) unsafe fn divide(dtype: DType, acc: Span, by: f64) {
    let n = acc.len / dtype.size();
    macro_rules! run {
        ($t:ty, $v:ident => $e:expr) => {
            // SAFETY: by contract.
            for $v in unsafe { std::slice::from_raw_parts_mut(acc.ptr.cast::<$t>(), n) } {
                *$v = $e;
            }
        };
    }
    match dtype {
        DType::F32 => run!(f32, v => *v / by as f32),
        DType::F64 => run!(f64, v => *v / by),
        DType::F16 => run!(f16, v => f16::from_f32(v.to_f32() / by as f32)),
        DType::BF16 => run!(bf16, v => bf16::from_f32(v.to_f32() / by as f32)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T: Copy>(dtype: DType, op: ReduceOp, mut a: Vec<T>, mut b: Vec<T>) -> Vec<T> {
        let (x, y) = (
            Span { ptr: a.as_mut_ptr().cast(), len: size_of_val(&a[..]) },
            Span { ptr: b.as_mut_ptr().cast(), len: size_of_val(&b[..]) },
        );
        // SAFETY: two vectors of this frame.
        unsafe { reduce(dtype, op, x, y) };
        a
    }

    #[test]
    fn every_op() {
        assert_eq!(run(DType::F32, ReduceOp::Sum, vec![1.0f32, 2.0], vec![3.0, 4.0]), [4.0, 6.0]);
        assert_eq!(run(DType::F64, ReduceOp::Product, vec![2.0f64], vec![3.0]), [6.0]);
        assert!(run(DType::F32, ReduceOp::Max, vec![1.0f32], vec![f32::NAN])[0].is_nan());
        assert!(run(DType::F32, ReduceOp::Min, vec![f32::NAN], vec![1.0f32])[0].is_nan());
        assert_eq!(run(DType::I8, ReduceOp::Sum, vec![127i8], vec![1]), [-128]);
        assert_eq!(run(DType::I64, ReduceOp::BitXor, vec![6i64], vec![3]), [5]);
        assert_eq!(run(DType::U8, ReduceOp::BitAnd, vec![6u8], vec![3]), [2]);
        assert_eq!(run(DType::Bool, ReduceOp::Sum, vec![1u8, 0], vec![1, 0]), [1, 0]);
        assert_eq!(run(DType::Bool, ReduceOp::Product, vec![1u8, 1], vec![1, 0]), [1, 0]);
        let half = |v: f32| bf16::from_f32(v);
        assert_eq!(run(DType::BF16, ReduceOp::Sum, vec![half(1.5); 300], vec![half(2.0); 300]), vec![half(3.5); 300]);
        assert_eq!(run(DType::F16, ReduceOp::Max, vec![f16::ONE], vec![f16::NEG_ONE]), [f16::ONE]);
        assert!(ReduceOp::Mean.check(DType::I32).is_err() && ReduceOp::BitOr.check(DType::F32).is_err());
    }

    #[test]
    fn both_ranks_of_a_pair_agree() {
        let (mut a, mut b) = (vec![0.0f32, 1.0], vec![-0.0f32, 2.0]);
        let (mut c, mut d) = (a.clone(), b.clone());
        let span = |v: &mut Vec<f32>| Span { ptr: v.as_mut_ptr().cast(), len: 4 * v.len() };
        // SAFETY: vectors of this frame.
        unsafe {
            reduce(DType::F32, ReduceOp::Min, span(&mut a), span(&mut b));
            reduce_onto(DType::F32, ReduceOp::Min, span(&mut d), span(&mut c));
        }
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&a), bits(&d));
    }

    #[test]
    fn the_last_step_in_one_pass() {
        let (mut a, mut b, mut c) = (vec![1.0f32, 2.0, 5.0], vec![3.0f32, 4.0, 7.0], vec![0.0f32; 3]);
        let span = |v: &mut Vec<f32>| Span { ptr: v.as_mut_ptr().cast(), len: 4 * v.len() };
        let (x, y, z) = (span(&mut a), span(&mut b), span(&mut c));
        // SAFETY: three vectors of this frame.
        assert!(unsafe { reduce_last(DType::F32, ReduceOp::Mean, x, y, Some(z), 2) });
        assert_eq!((a, c), (vec![2.0, 3.0, 6.0], vec![2.0, 3.0, 6.0]));
        // SAFETY: nothing is done.
        assert!(!unsafe { reduce_last(DType::I32, ReduceOp::Sum, Span::EMPTY, Span::EMPTY, None, 2) });
    }

    #[test]
    fn spans_are_cut_at_their_end() {
        let mut bytes = [1u8, 2, 3];
        let span = Span::of(&mut bytes);
        assert_eq!((span.part(1, 9).len, span.part(5, 1).len), (2, 0));
    }
}
