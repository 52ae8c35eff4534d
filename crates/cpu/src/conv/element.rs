//! Stored and computed element types, and the transposing copies between their layouts.

use super::product::{PANEL_BYTES, Product, product_f32, product_f64};
use crate::isa::Isa;
use rushlight_core::Element;
use rushlight_core::half::{bf16, f16};

/// A compute type of convolutions.
pub(super) trait Compute: Element + std::ops::AddAssign + std::ops::Mul<Output = Self> {
    /// Elements per row of a right-operand panel.
    const PANEL: usize = PANEL_BYTES / size_of::<Self>();

    /// # Safety
    /// As the formula of [`Product`] says.
    unsafe fn product(p: &Product<Self>);

    /// `dst[at[column] + row] = src[row·stride + column] (+ bias[column])`.
    ///
    /// # Safety
    /// Every address the formula names is valid; `at` has `columns` entries, `bias` as many or is null.
    unsafe fn transpose(t: &Transpose<Self>);
}

/// The operands of [`Compute::transpose`].
pub(super) struct Transpose<'a, E> {
    pub src: *const E,
    pub stride: usize,
    pub rows: usize,
    pub dst: *mut E,
    pub at: &'a [usize],
    pub bias: *const E,
}

/// A storage type of tensors.
pub(super) trait Storage: Copy + Send + Sync + 'static {
    type Compute: Compute;
    /// Whether the two types are the same, so that conversion is a copy.
    const DIRECT: bool;

    /// # Safety
    /// For both: `n` elements are valid at `src` and at `dst`, which do not overlap.
    unsafe fn widen(src: *const Self, dst: *mut Self::Compute, n: usize);
    unsafe fn narrow(src: *const Self::Compute, dst: *mut Self, n: usize);
}

impl Compute for f32 {
    #[inline]
    unsafe fn product(p: &Product<f32>) {
        // SAFETY: passed on.
        unsafe { product_f32(p) }
    }
    #[inline]
    unsafe fn transpose(t: &Transpose<f32>) {
        // SAFETY: passed on; the level says AVX-512 is there.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if crate::isa::level() == crate::isa::Level::Avx512 {
                return super::transpose::avx512(t);
            }
            transpose_plain(t)
        }
    }
}

impl Compute for f64 {
    #[inline]
    unsafe fn product(p: &Product<f64>) {
        // SAFETY: passed on.
        unsafe { product_f64(p) }
    }
    #[inline]
    unsafe fn transpose(t: &Transpose<f64>) {
        // SAFETY: passed on.
        unsafe { transpose_plain(t) }
    }
}

/// # Safety
/// As [`Compute::transpose`].
unsafe fn transpose_plain<E: Compute>(t: &Transpose<E>) {
    const BLOCK: usize = 16;
    for start in (0..t.at.len()).step_by(BLOCK) {
        let end = (start + BLOCK).min(t.at.len());
        for column in start..end {
            // SAFETY: the addresses are the formula's.
            unsafe {
                let dst = t.dst.add(t.at[column]);
                let bias = if t.bias.is_null() { E::default() } else { *t.bias.add(column) };
                for row in 0..t.rows {
                    let mut v = *t.src.add(row * t.stride + column);
                    v += bias;
                    *dst.add(row) = v;
                }
            }
        }
    }
}

macro_rules! direct {
    ($t:ty) => {
        impl Storage for $t {
            type Compute = $t;
            const DIRECT: bool = true;
            #[inline]
            unsafe fn widen(src: *const $t, dst: *mut $t, n: usize) {
                // SAFETY: the caller guarantees `n` elements on both sides.
                unsafe { std::ptr::copy_nonoverlapping(src, dst, n) }
            }
            #[inline]
            unsafe fn narrow(src: *const $t, dst: *mut $t, n: usize) {
                // SAFETY: the caller guarantees `n` elements on both sides.
                unsafe { std::ptr::copy_nonoverlapping(src, dst, n) }
            }
        }
    };
}
direct!(f32);
direct!(f64);

impl Storage for bf16 {
    type Compute = f32;
    const DIRECT: bool = false;
    #[inline]
    unsafe fn widen(src: *const bf16, dst: *mut f32, n: usize) {
        // SAFETY: passed on; `bf16` is a transparent `u16`.
        unsafe { widen_bf16(src.cast(), dst, n) }
    }
    #[inline]
    unsafe fn narrow(src: *const f32, dst: *mut bf16, n: usize) {
        // SAFETY: as above.
        unsafe { narrow_bf16(src, dst.cast(), n) }
    }
}

// The level only chooses the features the compiler vectorises with.
#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
unsafe fn widen_bf16_kernel<I: Isa>(src: *const u16, dst: *mut f32, n: usize) {
    for i in 0..n {
        // SAFETY: `i < n`.
        unsafe { *dst.add(i) = f32::from_bits(u32::from(*src.add(i)) << 16) }
    }
}

// The level only chooses the features the compiler vectorises with.
#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
unsafe fn narrow_bf16_kernel<I: Isa>(src: *const f32, dst: *mut u16, n: usize) {
    for i in 0..n {
        // SAFETY: `i < n`.
        unsafe {
            let v = *src.add(i);
            let bits = v.to_bits();
            // Round to nearest, ties to even; a NaN keeps its sign and stays quiet.
            let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1))) >> 16;
            let nan = (bits >> 16) | 0x40;
            *dst.add(i) = if v.is_nan() { nan } else { rounded } as u16;
        }
    }
}

crate::multiversion! { unsafe fn widen_bf16(src: *const u16, dst: *mut f32, n: usize) = widen_bf16_kernel; }
crate::multiversion! { unsafe fn narrow_bf16(src: *const f32, dst: *mut u16, n: usize) = narrow_bf16_kernel; }

impl Storage for f16 {
    type Compute = f32;
    const DIRECT: bool = false;
    #[inline]
    unsafe fn widen(src: *const f16, dst: *mut f32, n: usize) {
        use rushlight_core::half::slice::HalfFloatSliceExt;
        // SAFETY: `n` elements on both sides, not overlapping.
        unsafe {
            std::slice::from_raw_parts(src, n).convert_to_f32_slice(std::slice::from_raw_parts_mut(dst, n));
        }
    }
    #[inline]
    unsafe fn narrow(src: *const f32, dst: *mut f16, n: usize) {
        use rushlight_core::half::slice::HalfFloatSliceExt;
        // SAFETY: `n` elements on both sides, not overlapping.
        unsafe {
            std::slice::from_raw_parts_mut(dst, n).convert_from_f32_slice(std::slice::from_raw_parts(src, n));
        }
    }
}

/// Rows per block of a transposing copy that also converts.
const STAGED: usize = 16;

/// [`Compute::transpose`] from stored elements, without bias.
///
/// # Safety
/// As [`Compute::transpose`].
pub(super) unsafe fn transpose_in<T: Storage>(
    src: *const T,
    stride: usize,
    rows: usize,
    dst: *mut T::Compute,
    at: &[usize],
) {
    let bias = std::ptr::null();
    if T::DIRECT {
        // SAFETY: the types are the same.
        return unsafe { T::Compute::transpose(&Transpose { src: src.cast(), stride, rows, dst, at, bias }) };
    }
    const WIDTH: usize = 64;
    let mut stage = [T::Compute::default(); STAGED * WIDTH];
    for row in (0..rows).step_by(STAGED) {
        let count = STAGED.min(rows - row);
        for column in (0..at.len()).step_by(WIDTH) {
            let width = WIDTH.min(at.len() - column);
            // SAFETY: the block is within the source; the destination addresses are the formula's.
            unsafe {
                for r in 0..count {
                    T::widen(src.add((row + r) * stride + column), stage.as_mut_ptr().add(r * WIDTH), width);
                }
                T::Compute::transpose(&Transpose {
                    src: stage.as_ptr(),
                    stride: WIDTH,
                    rows: count,
                    dst: dst.add(row),
                    at: &at[column..column + width],
                    bias,
                });
            }
        }
    }
}

/// [`Compute::transpose`] into stored elements: `dst[column·plane + row]`.
///
/// # Safety
/// As [`Compute::transpose`], with `at[column] = column·plane`.
pub(super) unsafe fn transpose_out<T: Storage>(
    src: *const T::Compute,
    stride: usize,
    rows: usize,
    columns: usize,
    dst: *mut T,
    plane: usize,
    bias: *const T::Compute,
) {
    let mut at = [0usize; STAGED];
    for column in (0..columns).step_by(STAGED) {
        let count = STAGED.min(columns - column);
        let bias = if bias.is_null() { bias } else { bias.wrapping_add(column) };
        // SAFETY: the block is within the source; the destination addresses are the formula's.
        unsafe {
            let (src, dst) = (src.add(column), dst.add(column * plane));
            if T::DIRECT {
                (0..count).for_each(|i| at[i] = i * plane);
                T::Compute::transpose(&Transpose { src, stride, rows, dst: dst.cast(), at: &at[..count], bias });
                continue;
            }
            const WIDTH: usize = 64;
            let mut stage = [T::Compute::default(); STAGED * WIDTH];
            (0..count).for_each(|i| at[i] = i * WIDTH);
            for row in (0..rows).step_by(WIDTH) {
                let width = WIDTH.min(rows - row);
                let src = src.add(row * stride);
                T::Compute::transpose(&Transpose {
                    src,
                    stride,
                    rows: width,
                    dst: stage.as_mut_ptr(),
                    at: &at[..count],
                    bias,
                });
                for i in 0..count {
                    T::narrow(stage.as_ptr().add(i * WIDTH), dst.add(i * plane + row), width);
                }
            }
        }
    }
}
