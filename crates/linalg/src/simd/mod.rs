//! Vector registers of `f32` and `f64`, and kernels compiled once for each instruction set.
//!
//! The widest set that the machine has is chosen once at run time; `RUSHLIGHT_CPU_ISA` (`portable`, `avx2`, `avx512`)
//! may name a lower one, as for the CPU engine.

pub mod kernels;
pub mod leaf;
pub mod product;

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

/// A vector register. Values exist only within kernels compiled for an instruction set that has the type.
pub trait Vector<T>: Copy {
    /// Elements in a register, a power of two.
    const LANES: usize;
    /// Columns of a product's tile: with three registers each, its sums are at most three quarters of the registers.
    const COLUMNS: usize;
    /// Whether a part of a register is read and written as fast as the whole.
    const MASKS: bool;
    /// Names the leading elements of a register.
    type Mask: Copy;
    /// The first `count` elements, at most [`Vector::LANES`].
    fn mask(count: usize) -> Self::Mask;
    fn splat(value: T) -> Self;
    /// # Safety
    /// [`Vector::LANES`] elements can be read at `from`.
    unsafe fn load(from: *const T) -> Self;
    /// # Safety
    /// [`Vector::LANES`] elements can be written at `to`.
    unsafe fn store(self, to: *mut T);
    /// Zero where the mask has no element.
    ///
    /// # Safety
    /// The mask's elements can be read at `from`.
    unsafe fn load_part(from: *const T, mask: Self::Mask) -> Self;
    /// # Safety
    /// The mask's elements can be written at `to`.
    unsafe fn store_part(self, to: *mut T, mask: Self::Mask);
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    /// `self * factor + add`, with a single rounding if the instruction set has FMA.
    fn mul_add(self, factor: Self, add: Self) -> Self;
    /// `add - self * factor`, with a single rounding if the instruction set has FMA.
    fn neg_mul_add(self, factor: Self, add: Self) -> Self;
    /// The sum of the elements.
    fn sum(self) -> T;
}

/// Portable registers: arrays that the compiler vectorises.
macro_rules! array_vector {
    ($($t:ident $lanes:literal)*) => {$(
        impl Vector<$t> for [$t; $lanes] {
            const LANES: usize = $lanes;
            const COLUMNS: usize = 4;
            const MASKS: bool = false;
            type Mask = usize;
            #[inline(always)]
            fn mask(count: usize) -> usize {
                count
            }
            #[inline(always)]
            unsafe fn load_part(from: *const $t, mask: usize) -> Self {
                let mut part = [0.0; $lanes];
                for lane in 0..$lanes {
                    if lane < mask {
                        // SAFETY: the caller's promise.
                        part[lane] = unsafe { *from.add(lane) };
                    }
                }
                part
            }
            #[inline(always)]
            unsafe fn store_part(self, to: *mut $t, mask: usize) {
                for lane in 0..$lanes {
                    if lane < mask {
                        // SAFETY: the caller's promise.
                        unsafe { *to.add(lane) = self[lane] };
                    }
                }
            }
            #[inline(always)]
            fn splat(value: $t) -> Self {
                [value; $lanes]
            }
            #[inline(always)]
            unsafe fn load(from: *const $t) -> Self {
                // SAFETY: the caller's promise; the alignment is not assumed.
                unsafe { from.cast::<Self>().read_unaligned() }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $t) {
                // SAFETY: as in `load`.
                unsafe { to.cast::<Self>().write_unaligned(self) }
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                std::array::from_fn(|i| self[i] + other[i])
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                std::array::from_fn(|i| self[i] - other[i])
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                std::array::from_fn(|i| self[i] * other[i])
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                std::array::from_fn(|i| self[i] / other[i])
            }
            #[inline(always)]
            fn mul_add(self, factor: Self, add: Self) -> Self {
                if cfg!(target_arch = "aarch64") {
                    std::array::from_fn(|i| self[i].mul_add(factor[i], add[i]))
                } else {
                    std::array::from_fn(|i| self[i] * factor[i] + add[i])
                }
            }
            #[inline(always)]
            fn neg_mul_add(self, factor: Self, add: Self) -> Self {
                if cfg!(target_arch = "aarch64") {
                    std::array::from_fn(|i| (-self[i]).mul_add(factor[i], add[i]))
                } else {
                    std::array::from_fn(|i| add[i] - self[i] * factor[i])
                }
            }
            #[inline(always)]
            fn sum(self) -> $t {
                self.iter().sum()
            }
        }
    )*};
}
array_vector!(f32 4 f64 2);

/// The parts of an AVX2 register of `$t`: a mask has the sign bits of the elements that it names.
#[cfg(target_arch = "x86_64")]
macro_rules! avx2_parts {
    ($name:ident $t:ident $integer:ident $lanes:literal $load:ident $store:ident) => {
        macro_rules! $name {
            ($_:ident) => {
                const COLUMNS: usize = 4;
                type Mask = __m256i;
                #[inline(always)]
                fn mask(count: usize) -> __m256i {
                    const WINDOW: [$integer; 2 * $lanes] = {
                        let mut window = [0; 2 * $lanes];
                        let mut i = 0;
                        while i < $lanes {
                            window[i] = -1;
                            i += 1;
                        }
                        window
                    };
                    // SAFETY: a register from `$lanes - count` on is within the window.
                    unsafe { _mm256_loadu_si256(WINDOW.as_ptr().add($lanes - count.min($lanes)).cast()) }
                }
                #[inline(always)]
                unsafe fn load_part(from: *const $t, mask: __m256i) -> Self {
                    unsafe { $load(from, mask) }
                }
                #[inline(always)]
                unsafe fn store_part(self, to: *mut $t, mask: __m256i) {
                    unsafe { $store(to, mask, self) }
                }
            };
        }
    };
}

/// The parts of an AVX-512 register of `$t`: a mask has a bit for each element.
#[cfg(target_arch = "x86_64")]
macro_rules! avx512_parts {
    ($name:ident $t:ident $mask:ident $lanes:literal $load:ident $store:ident) => {
        macro_rules! $name {
            ($_:ident) => {
                const COLUMNS: usize = 8;
                type Mask = $mask;
                #[inline(always)]
                fn mask(count: usize) -> $mask {
                    ((1u32 << count.min($lanes)) - 1) as $mask
                }
                #[inline(always)]
                unsafe fn load_part(from: *const $t, mask: $mask) -> Self {
                    unsafe { $load(mask, from) }
                }
                #[inline(always)]
                unsafe fn store_part(self, to: *mut $t, mask: $mask) {
                    unsafe { $store(to, mask, self) }
                }
            };
        }
    };
}
#[cfg(target_arch = "x86_64")]
avx2_parts!(parts256_f32 f32 i32 8 _mm256_maskload_ps _mm256_maskstore_ps);
#[cfg(target_arch = "x86_64")]
avx2_parts!(parts256_f64 f64 i64 4 _mm256_maskload_pd _mm256_maskstore_pd);
#[cfg(target_arch = "x86_64")]
avx512_parts!(parts512_f32 f32 __mmask16 16 _mm512_maskz_loadu_ps _mm512_mask_storeu_ps);
#[cfg(target_arch = "x86_64")]
avx512_parts!(parts512_f64 f64 __mmask8 8 _mm512_maskz_loadu_pd _mm512_mask_storeu_pd);

#[cfg(target_arch = "x86_64")]
macro_rules! x86_vector {
    ($($v:ident $t:ident $lanes:literal: $splat:ident $load:ident $store:ident $add:ident $sub:ident $mul:ident $div:ident
       $fma:ident $fnma:ident $parts:ident;)*) => {$(
        // SAFETY of the block's intrinsics: kernels with these types are compiled for the features that
        // `level` has found, and no other code names the types.
        impl Vector<$t> for $v {
            const LANES: usize = $lanes;
            const MASKS: bool = true;
            $parts!($t);
            #[inline(always)]
            fn splat(value: $t) -> Self {
                unsafe { $splat(value) }
            }
            #[inline(always)]
            unsafe fn load(from: *const $t) -> Self {
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $t) {
                unsafe { $store(to, self) }
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                unsafe { $add(self, other) }
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                unsafe { $sub(self, other) }
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                unsafe { $mul(self, other) }
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                unsafe { $div(self, other) }
            }
            #[inline(always)]
            fn mul_add(self, factor: Self, add: Self) -> Self {
                unsafe { $fma(self, factor, add) }
            }
            #[inline(always)]
            fn neg_mul_add(self, factor: Self, add: Self) -> Self {
                unsafe { $fnma(self, factor, add) }
            }
            #[inline(always)]
            fn sum(self) -> $t {
                let mut lanes = [0.0; $lanes];
                unsafe { $store(lanes.as_mut_ptr(), self) };
                // Adds halves pairwise, which gives the shortest dependency chain.
                let mut width = $lanes / 2;
                while width > 0 {
                    for i in 0..width {
                        lanes[i] += lanes[i + width];
                    }
                    width /= 2;
                }
                lanes[0]
            }
        }
    )*};
}
#[cfg(target_arch = "x86_64")]
x86_vector! {
    __m256 f32 8: _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_add_ps _mm256_sub_ps _mm256_mul_ps
        _mm256_div_ps _mm256_fmadd_ps _mm256_fnmadd_ps parts256_f32;
    __m256d f64 4: _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_add_pd _mm256_sub_pd _mm256_mul_pd
        _mm256_div_pd _mm256_fmadd_pd _mm256_fnmadd_pd parts256_f64;
    __m512 f32 16: _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_add_ps _mm512_sub_ps _mm512_mul_ps
        _mm512_div_ps _mm512_fmadd_ps _mm512_fnmadd_ps parts512_f32;
    __m512d f64 8: _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_add_pd _mm512_sub_pd _mm512_mul_pd
        _mm512_div_pd _mm512_fmadd_pd _mm512_fnmadd_pd parts512_f64;
}

/// The registers of an element type, by instruction set.
pub trait Registers: Sized {
    type Portable: Vector<Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx2: Vector<Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx512: Vector<Self>;
}

impl Registers for f32 {
    type Portable = [f32; 4];
    #[cfg(target_arch = "x86_64")]
    type Avx2 = __m256;
    #[cfg(target_arch = "x86_64")]
    type Avx512 = __m512;
}

impl Registers for f64 {
    type Portable = [f64; 2];
    #[cfg(target_arch = "x86_64")]
    type Avx2 = __m256d;
    #[cfg(target_arch = "x86_64")]
    type Avx512 = __m512d;
}

/// The instruction set the kernels use.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Portable,
    Avx2,
    Avx512,
}

/// The highest level of the machine that `RUSHLIGHT_CPU_ISA` allows. The CPU engine reports unknown names.
#[cfg(target_arch = "x86_64")]
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let v3 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let v4 = v3
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        let best = match (v4, v3) {
            (true, _) => Level::Avx512,
            (_, true) => Level::Avx2,
            _ => Level::Portable,
        };
        let allowed = match std::env::var("RUSHLIGHT_CPU_ISA").as_deref() {
            Ok("portable") => Level::Portable,
            Ok("avx2") => Level::Avx2,
            _ => Level::Avx512,
        };
        best.min(allowed)
    })
}

/// Declares `fn $name`, which calls `$kernel::<T, V>`, an `#[inline(always)]` function, compiled for the level in use
/// with `V` the registers of that level.
macro_rules! vectorised {
    ($(
        $(#[$meta:meta])*
        pub fn $name:ident<T>($($arg:ident : $type:ty),* $(,)?) $(-> $result:ty)? = $kernel:ident;
    )*) => {$(
        $(#[$meta])*
        pub fn $name<T: $crate::real::Scalar>($($arg: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                use $crate::simd::{Level, level};
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512<T: $crate::real::Scalar>($($arg: $type),*) $(-> $result)? {
                    $kernel::<T, T::Avx512>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2<T: $crate::real::Scalar>($($arg: $type),*) $(-> $result)? {
                    $kernel::<T, T::Avx2>($($arg),*)
                }
                match level() {
                    // SAFETY: `level` is never above what the machine has.
                    Level::Avx512 => return unsafe { avx512::<T>($($arg),*) },
                    // SAFETY: as above.
                    Level::Avx2 => return unsafe { avx2::<T>($($arg),*) },
                    Level::Portable => {}
                }
            }
            $kernel::<T, T::Portable>($($arg),*)
        }
    )*};
}
pub(crate) use vectorised;

/// Elements of a cache line, and of the widest register, of `f32`: rows of workspace matrices are padded to a multiple.
pub const PAD: usize = 16;

/// `n` rounded up to a multiple of [`PAD`].
pub fn padded(n: usize) -> usize {
    n.next_multiple_of(PAD)
}

/// A zeroed slice aligned to a cache line, so that no load crosses two lines.
pub struct Aligned<T> {
    memory: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Copy + Default> Aligned<T> {
    pub fn new(len: usize) -> Self {
        let memory = vec![T::default(); len + PAD];
        let start = memory.as_ptr().align_offset(64).min(PAD);
        Self { memory, start, len }
    }
}

impl<T> std::ops::Deref for Aligned<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl<T> std::ops::DerefMut for Aligned<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory[self.start..self.start + self.len]
    }
}
