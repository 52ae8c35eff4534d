//! Rows of any floating dtype as rows of the type they are computed in.

use crate::multiversion;
use crate::simd::{Real, Vectors};
use half::{bf16, f16};
use rushlight_core::{DType, Element, Error, Result, View};
use std::mem::MaybeUninit;

/// A floating element and its compute type.
pub trait Float: Element {
    /// `f32` for the half types, else the type itself.
    type Acc: Real;
    /// Whether the two are the same.
    const WIDE: bool;
    /// Widens `n` elements.
    ///
    /// # Safety
    /// `n` elements at `src` and `dst`, which do not overlap; the CPU has level `I`.
    unsafe fn widen<I: Vectors>(src: *const Self, dst: *mut Self::Acc, n: usize);
    /// Rounds `n` elements, once.
    ///
    /// # Safety
    /// As for `widen`.
    unsafe fn narrow<I: Vectors>(src: *const Self::Acc, dst: *mut Self, n: usize);
}

macro_rules! wide {
    ($($t:ty)*) => {$(
        impl Float for $t {
            type Acc = $t;
            const WIDE: bool = true;
            #[inline(always)]
            unsafe fn widen<I: Vectors>(src: *const Self, dst: *mut Self, n: usize) {
                // SAFETY: by the caller's contract.
                unsafe { std::ptr::copy_nonoverlapping(src, dst, n) }
            }
            #[inline(always)]
            unsafe fn narrow<I: Vectors>(src: *const Self, dst: *mut Self, n: usize) {
                // SAFETY: by the caller's contract.
                unsafe { std::ptr::copy_nonoverlapping(src, dst, n) }
            }
        }
    )*};
}
wide!(f32 f64);

impl Float for f16 {
    type Acc = f32;
    const WIDE: bool = false;
    #[inline(always)]
    unsafe fn widen<I: Vectors>(src: *const Self, dst: *mut f32, n: usize) {
        // SAFETY: by the caller's contract.
        unsafe { I::widen_f16(src, dst, n) }
    }
    #[inline(always)]
    unsafe fn narrow<I: Vectors>(src: *const f32, dst: *mut Self, n: usize) {
        // SAFETY: by the caller's contract.
        unsafe { I::narrow_f16(src, dst, n) }
    }
}

impl Float for bf16 {
    type Acc = f32;
    const WIDE: bool = false;
    #[inline(always)]
    unsafe fn widen<I: Vectors>(src: *const Self, dst: *mut f32, n: usize) {
        for i in 0..n {
            // SAFETY: by the caller's contract.
            unsafe { *dst.add(i) = f32::from_bits(((*src.add(i)).to_bits() as u32) << 16) }
        }
    }
    #[inline(always)]
    unsafe fn narrow<I: Vectors>(src: *const f32, dst: *mut Self, n: usize) {
        #[cfg(target_arch = "aarch64")]
        if crate::isa::level() == crate::isa::Level::Bf16 {
            // SAFETY: by the caller's contract; the level has the instruction.
            return unsafe { crate::simd::neon::narrow_bf16(src, dst, n) };
        }
        for i in 0..n {
            // SAFETY: by the caller's contract.
            unsafe {
                let v = *src.add(i);
                let bits = v.to_bits();
                // To nearest, ties to even; a NaN keeps its top bits and stays one.
                let rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
                let nan = (bits >> 16) | 0x40;
                *dst.add(i) = bf16::from_bits(if v.is_nan() { nan } else { rounded } as u16);
            }
        }
    }
}

/// A row in the compute type: the source itself if its dtype allows, else `scratch` filled from it.
///
/// # Safety
/// `n` elements at `src`, and at `scratch` unless `T` is wide; the CPU has level `I`.
#[inline(always)]
pub unsafe fn load_row<T: Float, I: Vectors>(src: *const T, scratch: *mut T::Acc, n: usize) -> *const T::Acc {
    if T::WIDE {
        return src.cast();
    }
    // SAFETY: by the caller's contract.
    unsafe { T::widen::<I>(src, scratch, n) };
    scratch
}

/// The buffer for a row of results: the destination itself, or `scratch`, to be followed by [`store_row`].
#[inline(always)]
pub fn out_row<T: Float>(dst: *mut T, scratch: *mut T::Acc) -> *mut T::Acc {
    if T::WIDE { dst.cast() } else { scratch }
}

/// Rounds a row computed in scratch to its destination; no effect if it was computed in place.
///
/// # Safety
/// `n` elements at `dst`, and at `row`, which came from [`out_row`]; the CPU has level `I`.
#[inline(always)]
pub unsafe fn store_row<T: Float, I: Vectors>(row: *const T::Acc, dst: *mut T, n: usize) {
    if !T::WIDE {
        // SAFETY: by the caller's contract; scratch and destination are different memory.
        unsafe { T::narrow::<I>(row, dst, n) }
    }
}

#[inline(always)]
unsafe fn widen_kernel<T: Float, I: Vectors>(src: *const T, dst: *mut T::Acc, n: usize) {
    // SAFETY: by the caller's contract.
    unsafe { T::widen::<I>(src, dst, n) }
}
multiversion! {
    /// [`Float::widen`] at the level in use.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn widen<T: Float>(src: *const T, dst: *mut T::Acc, n: usize) = widen_kernel;
}

#[inline(always)]
unsafe fn narrow_kernel<T: Float, I: Vectors>(src: *const T::Acc, dst: *mut T, n: usize) {
    // SAFETY: by the caller's contract.
    unsafe { T::narrow::<I>(src, dst, n) }
}
multiversion! {
    /// [`Float::narrow`] at the level in use.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn narrow<T: Float>(src: *const T::Acc, dst: *mut T, n: usize) = narrow_kernel;
}

/// Elements of half types that are widened at a time.
pub const BLOCK: usize = 1 << 12;

/// Calls `f(at, len, rows, out)` for parts of `n` elements from `at` on, in the compute type, so that a kernel is
/// compiled for that alone: all of it at once, where it lies, unless `T` is a half type. Elements of a half type are
/// widened block by block, and what `f` has written to `out`, which then is the first of the rows, is rounded to `to`.
/// With `to` null nothing is written.
///
/// # Safety
/// `n` elements at each of `from` and at `to`, unless it is null.
#[inline(always)]
pub unsafe fn each_block<T: Float, const IN: usize>(
    n: usize,
    from: [*const T; IN],
    to: *mut T,
    mut f: impl FnMut(usize, usize, [*const T::Acc; IN], *mut T::Acc),
) {
    if T::WIDE {
        return f(0, n, from.map(|p| p.cast()), to.cast());
    }
    let mut scratch = [const { Scratch::<T::Acc, BLOCK>::new() }; IN];
    let rows = scratch.each_mut().map(|s| s.as_mut_ptr());
    for at in (0..n).step_by(BLOCK) {
        let len = BLOCK.min(n - at);
        // SAFETY: a block of at most `BLOCK` within `n`.
        unsafe {
            for i in 0..IN {
                widen(from[i].add(at), rows[i], len);
            }
            f(at, len, rows.map(|p| p.cast_const()), rows[0]);
            if !to.is_null() {
                narrow(rows[0].cast_const(), to.add(at), len);
            }
        }
    }
}

/// Runs an expression with `$T` bound to the type of a floating dtype; an error for others.
macro_rules! with_float {
    ($op:expr, $dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            rushlight_core::DType::F32 => {
                type $T = f32;
                $body
            }
            rushlight_core::DType::F64 => {
                type $T = f64;
                $body
            }
            rushlight_core::DType::F16 => {
                type $T = half::f16;
                $body
            }
            rushlight_core::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            other => Err(rushlight_core::Error::dtype(format!("{}: not implemented for {other}", $op))),
        }
    };
}
pub(crate) use with_float;

/// Returns an error unless a contiguous view has the dtype and size that a kernel assumes.
pub fn expect(op: &str, what: &str, view: &View, dtype: DType, numel: usize) -> Result<()> {
    if view.dtype() != dtype {
        return Err(Error::dtype(format!("{op}: {what} is {}, expected {dtype}", view.dtype())));
    }
    if view.numel() != numel {
        return Err(Error::shape(format!("{op}: {what} has {} elements, expected {numel}", view.numel())));
    }
    if !view.layout().is_contiguous() {
        return Err(Error::value(format!("{op}: {what} is not contiguous")));
    }
    Ok(())
}

/// A copy of a contiguous parameter in the compute type, from that type or the element type `T`. It is a copy because
/// shared memory must not be borrowed as a slice: another thread may write to it.
pub fn load_parameter<T: Float>(op: &str, what: &str, view: &View, numel: usize) -> Result<Vec<T::Acc>> {
    let mut out = vec![T::Acc::ZERO; numel];
    if view.dtype() == T::Acc::DTYPE {
        expect(op, what, view, T::Acc::DTYPE, numel)?;
        // SAFETY: `numel` elements of the compute type at the view and in `out`.
        unsafe { std::ptr::copy_nonoverlapping(view.ptr().cast::<T::Acc>(), out.as_mut_ptr(), numel) };
        return Ok(out);
    }
    expect(op, what, view, T::DTYPE, numel)?;
    // SAFETY: `numel` elements of `T` at the view, of the compute type in `out`.
    unsafe { widen(view.ptr().cast::<T>(), out.as_mut_ptr(), numel) };
    Ok(out)
}

/// The reverse of [`load_parameter`].
pub fn store_parameter<T: Float>(op: &str, what: &str, values: &[T::Acc], view: &View) -> Result<()> {
    if view.dtype() == T::DTYPE {
        expect(op, what, view, T::DTYPE, values.len())?;
        // SAFETY: as many elements of `T` at the view.
        unsafe { narrow(values.as_ptr(), view.ptr().cast::<T>(), values.len()) };
    } else {
        expect(op, what, view, T::Acc::DTYPE, values.len())?;
        // SAFETY: as many elements of the compute type at the view.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), view.ptr().cast::<T::Acc>(), values.len()) };
    }
    Ok(())
}

/// An uninitialised block of numbers on the stack.
pub struct Scratch<R, const N: usize>(MaybeUninit<[R; N]>);

impl<R: Real, const N: usize> Scratch<R, N> {
    /// Room.
    #[inline(always)]
    pub const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// Its first element.
    #[inline(always)]
    pub fn as_mut_ptr(&mut self) -> *mut R {
        self.0.as_mut_ptr().cast()
    }
}
