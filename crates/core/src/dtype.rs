//! Element types and PyTorch's promotion lattice.

use half::{bf16, f16};
use std::fmt;

/// The type of a tensor's elements.
///
/// ```
/// # mod rushlight { pub use rushlight_core::DType; }
/// use rushlight::DType;
/// assert_eq!(DType::F32.size(), 4);
/// assert_eq!(DType::I64.to_string(), "int64");
/// assert_eq!(DType::I64.promote(DType::F16), DType::F16);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DType {
    /// 32-bit float, the default.
    F32,
    /// 64-bit float.
    F64,
    /// IEEE half precision.
    F16,
    /// The upper half of an `f32`.
    BF16,
    /// 64-bit signed integer, the type of indices.
    I64,
    /// 32-bit signed integer.
    I32,
    /// 16-bit signed integer.
    I16,
    /// 8-bit signed integer.
    I8,
    /// 8-bit unsigned integer.
    U8,
    /// One byte, 0 or 1.
    Bool,
    /// 16-bit unsigned integer. This and the dtypes below are carried: see [`DType::is_carried`].
    U16,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit unsigned integer.
    U64,
    /// 8-bit float: 4 bits of exponent, 3 of mantissa, no infinities; conversion saturates.
    F8E4M3FN,
    /// 8-bit float: 5 bits of exponent, 2 of mantissa, with infinities.
    F8E5M2,
    /// 8-bit float: 4 bits of exponent, 3 of mantissa, no infinities, no negative zero.
    F8E4M3FNUZ,
    /// 8-bit float: 5 bits of exponent, 2 of mantissa, no infinities, no negative zero.
    F8E5M2FNUZ,
    /// Powers of two from 2^-127 to 2^127, unsigned: the scale of a block of smaller floats.
    F8E8M0FNU,
    /// Pairs of [`DType::F16`], real and imaginary part: storage only.
    C32,
    /// Pairs of [`DType::F32`], real and imaginary part.
    C64,
    /// Pairs of [`DType::F64`], real and imaginary part.
    C128,
}

use DType::*;

impl DType {
    /// Every dtype, in declaration order.
    pub const ALL: [DType; 21] = [
        F32, F64, F16, BF16, I64, I32, I16, I8, U8, Bool, U16, U32, U64, F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ,
        F8E8M0FNU, C32, C64, C128,
    ];

    /// The dtypes that engines have kernels for: all that are not [carried](DType::is_carried).
    pub const COMPUTED: [DType; 10] = [F32, F64, F16, BF16, I64, I32, I16, I8, U8, Bool];

    /// Whether engines only carry elements of this dtype: tensors of it are stored, moved and converted. Few ops
    /// compute with them, except that ops on complex numbers are made of ops on their parts.
    #[inline]
    pub const fn is_carried(self) -> bool {
        self as u8 >= U16 as u8
    }

    /// The dtype whose kernels move elements of this dtype, bit by bit: itself, for a carried dtype the integer of its
    /// size, for a complex one that of its parts.
    #[inline]
    pub const fn carrier(self) -> DType {
        match self {
            U16 => I16,
            U32 => I32,
            U64 => I64,
            F8E4M3FN | F8E5M2 | F8E4M3FNUZ | F8E5M2FNUZ | F8E8M0FNU => U8,
            other => other.real(),
        }
    }

    /// Whether elements are pairs of a real and an imaginary part.
    #[inline]
    pub const fn is_complex(self) -> bool {
        self as u8 >= C32 as u8
    }

    /// The dtype of a complex dtype's parts; other dtypes as they are.
    #[inline]
    pub const fn real(self) -> DType {
        match self {
            C32 => F16,
            C64 => F32,
            C128 => F64,
            other => other,
        }
    }

    /// The complex dtype whose parts hold elements of this dtype: `complex64` for all but `float16` and `float64`.
    #[inline]
    pub const fn complex(self) -> DType {
        match self {
            C32 | F16 => C32,
            C128 | F64 => C128,
            _ => C64,
        }
    }

    /// Whether tensors of this dtype can require gradients: floats and complex numbers.
    #[inline]
    pub const fn is_differentiable(self) -> bool {
        self.is_float() || self.is_complex()
    }

    /// Whether this is one of the 8-bit floats.
    #[inline]
    pub const fn is_float8(self) -> bool {
        self as u8 >= F8E4M3FN as u8 && self as u8 <= F8E8M0FNU as u8
    }

    /// Bytes per element.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            C128 => 16,
            F64 | I64 | U64 | C64 => 8,
            F32 | I32 | U32 | C32 => 4,
            F16 | BF16 | I16 | U16 => 2,
            I8 | U8 | Bool | F8E4M3FN | F8E5M2 | F8E4M3FNUZ | F8E5M2FNUZ | F8E8M0FNU => 1,
        }
    }

    /// PyTorch's name without the `torch.` prefix.
    pub const fn name(self) -> &'static str {
        match self {
            F32 => "float32",
            F64 => "float64",
            F16 => "float16",
            BF16 => "bfloat16",
            I64 => "int64",
            I32 => "int32",
            I16 => "int16",
            I8 => "int8",
            U8 => "uint8",
            Bool => "bool",
            U16 => "uint16",
            U32 => "uint32",
            U64 => "uint64",
            F8E4M3FN => "float8_e4m3fn",
            F8E5M2 => "float8_e5m2",
            F8E4M3FNUZ => "float8_e4m3fnuz",
            F8E5M2FNUZ => "float8_e5m2fnuz",
            F8E8M0FNU => "float8_e8m0fnu",
            C32 => "complex32",
            C64 => "complex64",
            C128 => "complex128",
        }
    }

    /// Whether this is a floating type.
    #[inline]
    pub const fn is_float(self) -> bool {
        matches!(self, F32 | F64 | F16 | BF16) || self.is_float8()
    }

    /// Whether this is an integer type; `bool` is not.
    pub const fn is_int(self) -> bool {
        matches!(self, I64 | I32 | I16 | I8 | U8 | U16 | U32 | U64)
    }

    /// The type arithmetic is carried out in: half types widen to `f32`, `bool` to `u8`. Engines have no arithmetic of
    /// carried dtypes.
    #[inline]
    pub const fn compute(self) -> DType {
        match self {
            F16 | BF16 => F32,
            Bool => U8,
            other => other,
        }
    }

    /// 0 for bool, 1 for integers, 2 for floats, 3 for complex numbers: operands of a higher category win over scalars
    /// of a lower one.
    #[inline]
    pub const fn category(self) -> u8 {
        match self {
            Bool => 0,
            I64 | I32 | I16 | I8 | U8 | U16 | U32 | U64 => 1,
            C32 | C64 | C128 => 3,
            _ => 2,
        }
    }

    /// Whether tensors of the two dtypes combine at all: an 8-bit float only with its own dtype, an unsigned integer
    /// above 8 bits with its own and with wider floats.
    pub const fn promotes(self, other: DType) -> bool {
        self as u8 == other as u8
            || !self.is_narrow() && !other.is_narrow()
            || !self.is_float8() && !other.is_float8() && (self.is_float() || other.is_float())
    }

    /// Whether this is a carried dtype of real numbers.
    const fn is_narrow(self) -> bool {
        self.is_carried() && !self.is_complex()
    }

    /// The dtype two tensors of these dtypes combine in, by PyTorch's table; meaningful only where they
    /// [combine](DType::promotes).
    pub const fn promote(self, other: DType) -> DType {
        match (self, other) {
            _ if self as u8 == other as u8 => self,
            (Bool, x) | (x, Bool) => x,
            // A complex dtype keeps its width among integers.
            (C32 | C64 | C128, x) | (x, C32 | C64 | C128) if x.is_int() => {
                if self.is_complex() {
                    self
                } else {
                    other
                }
            }
            (C32 | C64 | C128, _) | (_, C32 | C64 | C128) => self.real().promote(other.real()).complex(),
            (F64, _) | (_, F64) => F64,
            (F32, _) | (_, F32) => F32,
            (F16, BF16) | (BF16, F16) => F32,
            (F16, _) | (_, F16) => F16,
            (BF16, _) | (_, BF16) => BF16,
            (I64, _) | (_, I64) => I64,
            (I32, _) | (_, I32) => I32,
            (I16, _) | (_, I16) => I16,
            (I8, U8) | (U8, I8) => I16,
            (I8, _) | (_, I8) => I8,
            _ => self,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that can be a tensor's element.
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + fmt::Debug + PartialEq + 'static {
    /// The dtype of tensors with this element.
    const DTYPE: DType;
    /// Conversion as by PyTorch's `.to(dtype)`: floats truncate to integers, anything non-zero is true.
    fn from_f64(v: f64) -> Self;
    /// Conversion from an integer, wrapping as PyTorch does.
    fn from_i64(v: i64) -> Self;
    /// Widening to `f64`.
    fn to_f64(self) -> f64;
    /// Truncation to `i64`.
    fn to_i64(self) -> i64;
}

macro_rules! element {
    ($($t:ty, $d:ident, $v:ident => $from_f:expr, $i:ident => $from_i:expr, $s:ident => $to_f:expr, $to_i:expr;)*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$d;
            #[inline(always)] fn from_f64($v: f64) -> Self { $from_f }
            #[inline(always)] fn from_i64($i: i64) -> Self { $from_i }
            #[inline(always)] fn to_f64(self) -> f64 { let $s = self; $to_f }
            #[inline(always)] fn to_i64(self) -> i64 { let $s = self; $to_i }
        }
    )*};
}

element! {
    f32,  F32,  v => v as f32,                i => i as f32,               s => s as f64, s as i64;
    f64,  F64,  v => v,                       i => i as f64,               s => s, s as i64;
    f16,  F16,  v => f16::from_f64(v),        i => f16::from_f64(i as f64), s => s.to_f64(), s.to_f64() as i64;
    bf16, BF16, v => bf16::from_f64(v),       i => bf16::from_f64(i as f64), s => s.to_f64(), s.to_f64() as i64;
    i64,  I64,  v => v as i64,                i => i,                      s => s as f64, s;
    i32,  I32,  v => v as i64 as i32,         i => i as i32,               s => s as f64, s as i64;
    i16,  I16,  v => v as i64 as i16,         i => i as i16,               s => s as f64, s as i64;
    i8,   I8,   v => v as i64 as i8,          i => i as i8,                s => s as f64, s as i64;
    u8,   U8,   v => v as i64 as u8,          i => i as u8,                s => s as f64, s as i64;
    bool, Bool, v => v != 0.0,                i => i != 0,                 s => s as u8 as f64, s as i64;
    u16,  U16,  v => v as i64 as u16,         i => i as u16,               s => s as f64, s as i64;
    u32,  U32,  v => v as i64 as u32,         i => i as u32,               s => s as f64, s as i64;
    u64,  U64,  v => u64_from_f64(v),         i => i as u64,               s => s as f64, s as i64;
}

/// An element of a `bool` tensor as engines read it: any byte, true unless zero. A view of another dtype, or another
/// library, may have written bytes that are no Rust `bool`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub struct Truth(u8);

impl PartialEq for Truth {
    fn eq(&self, other: &Self) -> bool {
        (self.0 != 0) == (other.0 != 0)
    }
}

impl sealed::Sealed for Truth {}

impl Element for Truth {
    const DTYPE: DType = DType::Bool;
    #[inline(always)]
    fn from_f64(v: f64) -> Self {
        Truth((v != 0.0) as u8)
    }
    #[inline(always)]
    fn from_i64(v: i64) -> Self {
        Truth((v != 0) as u8)
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        (self.0 != 0) as u8 as f64
    }
    #[inline(always)]
    fn to_i64(self) -> i64 {
        (self.0 != 0) as i64
    }
}

/// A float truncated to 64 bits. As in PyTorch, a negative one wraps.
fn u64_from_f64(v: f64) -> u64 {
    if v < (1u64 << 63) as f64 { v as i64 as u64 } else { v as u64 }
}

/// Runs an expression with `$T` bound to the Rust type of a run-time [`DType`], or of its [carrier](DType::carrier).
///
/// ```
/// use rushlight_core::{with_dtype, DType};
/// let bytes = with_dtype!(DType::I16, T => std::mem::size_of::<T>());
/// assert_eq!(bytes, 2);
/// ```
#[macro_export]
macro_rules! with_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $crate::DType::carrier($dtype) {
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::DType::F64 => {
                type $T = f64;
                $body
            }
            $crate::DType::F16 => {
                type $T = $crate::half::f16;
                $body
            }
            $crate::DType::BF16 => {
                type $T = $crate::half::bf16;
                $body
            }
            $crate::DType::I64 => {
                type $T = i64;
                $body
            }
            $crate::DType::I32 => {
                type $T = i32;
                $body
            }
            $crate::DType::I16 => {
                type $T = i16;
                $body
            }
            $crate::DType::I8 => {
                type $T = i8;
                $body
            }
            $crate::DType::U8 => {
                type $T = u8;
                $body
            }
            // No dtype's carrier is carried: this is `bool`, read as any byte.
            _ => {
                type $T = $crate::Truth;
                $body
            }
        }
    };
}
