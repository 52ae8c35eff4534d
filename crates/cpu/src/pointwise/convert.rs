//! Copies between any dtypes and strides: gather operands into contiguous chunks and store results.

#[cfg(target_arch = "x86_64")]
use crate::isa;
use crate::lane::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use rushlight_core::half::{bf16, f16};
use rushlight_core::{DType, Element, with_dtype};
use std::mem::{MaybeUninit, transmute_copy};

/// Copies `rows` times `cols` elements; strides (row, column) count elements. Source and destination do not overlap,
/// except that without a conversion they may be the same.
pub(crate) type Convert =
    unsafe fn(rows: usize, cols: usize, src: *const u8, src_strides: [usize; 2], dst: *mut u8, dst_strides: [usize; 2]);

/// Reads one element. A `bool` is read as a byte, so that no stored value is invalid.
///
/// # Safety
/// `p` points to an element of type `S`.
#[inline(always)]
unsafe fn load<S: Element>(p: *const S) -> S {
    if const { matches!(S::DTYPE, DType::Bool) } {
        // SAFETY: a `bool` is one byte.
        S::from_i64((unsafe { p.cast::<u8>().read() } != 0) as i64)
    } else {
        // SAFETY: the caller's.
        unsafe { p.read() }
    }
}

/// The value of `s` as an `f32`, where that is exact.
#[inline(always)]
fn widened<S: Element>(s: S) -> Option<f32> {
    // SAFETY: in each arm `S` is the type named.
    unsafe {
        Some(match S::DTYPE {
            DType::F32 => transmute_copy::<S, f32>(&s),
            DType::F16 => f16_to_f32(transmute_copy::<S, f16>(&s).to_bits()),
            DType::BF16 => bf16_to_f32(transmute_copy::<S, bf16>(&s).to_bits()),
            DType::I16 | DType::I8 | DType::U8 | DType::Bool => s.to_i64() as i32 as f32,
            _ => return None,
        })
    }
}

/// One element as PyTorch converts it.
#[inline(always)]
fn cast<S: Element, D: Element>(s: S) -> D {
    // SAFETY: in each arm `D` is the type named.
    unsafe {
        match (D::DTYPE, widened(s)) {
            (DType::Bool, Some(v)) => D::from_i64((v != 0.0) as i64),
            (DType::F16, Some(v)) => transmute_copy(&f16::from_bits(f32_to_f16(v))),
            (DType::BF16, Some(v)) => transmute_copy(&bf16::from_bits(f32_to_bf16(v))),
            (DType::F32, Some(v)) => transmute_copy(&v),
            (DType::F64, Some(v)) => transmute_copy(&(v as f64)),
            (_, Some(v)) if S::DTYPE.is_float() => D::from_i64(v as i64),
            _ if matches!(S::DTYPE, DType::F64) => D::from_f64(s.to_f64()),
            _ => D::from_i64(s.to_i64()),
        }
    }
}

/// Copies the element at `first` to `len` elements.
///
/// # Safety
/// `len` elements at `to`, which `first` is not one of.
#[inline(never)]
unsafe fn repeat<D: Copy>(first: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's.
    unsafe {
        let value = MaybeUninit::new(first.cast::<D>().read());
        std::slice::from_raw_parts_mut(to.cast::<MaybeUninit<D>>(), len).fill(value);
    }
}

/// [`repeat`] for a type of this size, compiled once for all of them.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn repeat_bits<D>(first: *const D, to: *mut D, len: usize) {
    let (first, to) = (first.cast(), to.cast());
    // SAFETY: the caller's.
    unsafe {
        match size_of::<D>() {
            1 => repeat::<u8>(first, to, len),
            2 => repeat::<u16>(first, to, len),
            4 => repeat::<u32>(first, to, len),
            _ => repeat::<u64>(first, to, len),
        }
    }
}

/// # Safety
/// As [`Convert`] says.
#[inline(always)]
unsafe fn convert<S: Copy, D: Copy>(
    rows: usize,
    cols: usize,
    src: *const u8,
    [src_row, src_col]: [usize; 2],
    dst: *mut u8,
    [dst_row, dst_col]: [usize; 2],
    read: impl Fn(*const S) -> D + Copy,
) {
    #[inline(always)]
    fn dense<S: Copy, D: Copy>(src: *const S, dst: &mut [MaybeUninit<D>], read: impl Fn(*const S) -> D) {
        // Without iterators: there is a copy of this loop for every pair of dtypes.
        let mut i = 0;
        while i < dst.len() {
            dst[i].write(read(src.wrapping_add(i)));
            i += 1;
        }
    }
    let (src, dst) = (src.cast::<S>(), dst.cast::<D>());
    // SAFETY: all offsets are those of elements the caller guarantees.
    unsafe {
        for r in 0..rows {
            let (src, dst) = (src.add(r * src_row), dst.add(r * dst_row));
            match (src_col, dst_col) {
                (1, 1) => dense(src, std::slice::from_raw_parts_mut(dst.cast(), cols), read),
                (0, 1) => {
                    let value = read(src);
                    repeat_bits(&raw const value, dst, cols);
                }
                _ => {
                    let mut c = 0;
                    while c < cols {
                        // Volatile: the compiler would add a vector loop for the stride of one, which is above.
                        let element = src.add(c * src_col).cast::<MaybeUninit<S>>().read_volatile();
                        dst.add(c * dst_col).write(read(element.as_ptr()));
                        c += 1;
                    }
                }
            }
        }
    }
}

macro_rules! levels {
    ($portable:ident $avx2:ident $picked:ident <$($G:ident: $bound:path),*> $S:ty, $D:ty, $read:expr) => {
        /// # Safety
        /// As [`Convert`] says.
        unsafe fn $portable<$($G: $bound),*>(r: usize, c: usize, s: *const u8, ss: [usize; 2], d: *mut u8, ds: [usize; 2]) {
            // SAFETY: the same contract.
            unsafe { convert::<$S, $D>(r, c, s, ss, d, ds, $read) }
        }
        /// # Safety
        /// As [`Convert`] says, on a machine of level `Avx2`.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
        unsafe fn $avx2<$($G: $bound),*>(r: usize, c: usize, s: *const u8, ss: [usize; 2], d: *mut u8, ds: [usize; 2]) {
            // SAFETY: the same contract.
            unsafe { convert::<$S, $D>(r, c, s, ss, d, ds, $read) }
        }
        fn $picked<$($G: $bound),*>() -> Convert {
            #[cfg(target_arch = "x86_64")]
            if isa::level() >= isa::Level::Avx2 {
                return $avx2::<$($G),*>;
            }
            $portable::<$($G),*>
        }
    };
}
// `convert` reads through pointers to elements the caller guarantees.
levels!(cast_portable cast_avx2 casting <S: Element, D: Element> S, D, |p| cast::<S, D>(load(p)));
levels!(move_portable move_avx2 moving <T: Copy> T, T, |p: *const T| p.read());

/// The copy of elements of `size` bytes as they are.
///
/// # Safety
/// As [`Convert`] says.
unsafe fn same<T: Copy>(rows: usize, cols: usize, src: *const u8, ss: [usize; 2], dst: *mut u8, ds: [usize; 2]) {
    // SAFETY: the same contract; runs may be one and the same memory.
    unsafe {
        if ss[1] == 1 && ds[1] == 1 {
            let (src, dst) = (src.cast::<T>(), dst.cast::<T>());
            for r in 0..rows {
                src.add(r * ss[0]).copy_to(dst.add(r * ds[0]), cols);
            }
        } else if std::ptr::eq(src, dst) {
            // Copied onto itself.
        } else {
            moving::<T>()(rows, cols, src, ss, dst, ds)
        }
    }
}

/// The function that copies elements of dtype `from` to elements of dtype `to`.
pub(crate) fn converter(from: DType, to: DType) -> Convert {
    if from == to {
        return match from.size() {
            1 => same::<u8>,
            2 => same::<u16>,
            4 => same::<u32>,
            _ => same::<u64>,
        };
    }
    #[cfg(target_arch = "aarch64")]
    if let Some(converter) = neon::converter(from, to) {
        return converter;
    }
    with_dtype!(from, S => with_dtype!(to, D => casting::<S, D>()))
}

/// Conversions that NEON and the level of bf16 have instructions for, which the compiler does not make of arithmetic on
/// bits.
#[cfg(target_arch = "aarch64")]
mod neon {
    use super::{Convert, casting};
    use crate::isa::{Level, Neon, level};
    use crate::simd::Vectors;
    use crate::simd::neon::narrow_bf16;
    use rushlight_core::DType;
    use rushlight_core::half::{bf16, f16};

    macro_rules! rows {
        ($($name:ident $S:ty, $D:ty, $f:path;)*) => {$(
            /// # Safety
            /// As [`Convert`] says, on a machine with the instructions.
            unsafe fn $name(rows: usize, cols: usize, src: *const u8, ss: [usize; 2], dst: *mut u8, ds: [usize; 2]) {
                // SAFETY: the same contract.
                unsafe {
                    if ss[1] != 1 || ds[1] != 1 {
                        return casting::<$S, $D>()(rows, cols, src, ss, dst, ds);
                    }
                    for r in 0..rows {
                        $f(src.cast::<$S>().add(r * ss[0]), dst.cast::<$D>().add(r * ds[0]), cols);
                    }
                }
            }
        )*};
    }
    rows! {
        widen_f16 f16, f32, Neon::widen_f16;
        narrow_f16 f32, f16, Neon::narrow_f16;
        narrow_to_bf16 f32, bf16, narrow_bf16;
    }

    pub(super) fn converter(from: DType, to: DType) -> Option<Convert> {
        match (from, to, level()) {
            (.., Level::Portable) => None,
            (DType::F16, DType::F32, _) => Some(widen_f16),
            (DType::F32, DType::F16, _) => Some(narrow_f16),
            (DType::F32, DType::BF16, Level::Bf16) => Some(narrow_to_bf16),
            _ => None,
        }
    }
}
