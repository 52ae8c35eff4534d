//! Dtypes by number: PyTorch's numbers of scalar types, which are fixed.

use rushlight_core::{DType, Error, Result};
use std::ffi::CStr;

/// The dtype of new tensors.
pub fn default() -> DType {
    rushlight_tensor::default_dtype()
}

pub fn set_default(dtype: DType) -> Result<()> {
    rushlight_tensor::set_default_dtype(dtype)
}

/// Numbers, dtypes and LibTorch's names.
pub const NUMBERS: [(i32, DType, &CStr); 21] = [
    (0, DType::U8, c"Byte"),
    (1, DType::I8, c"Char"),
    (2, DType::I16, c"Short"),
    (3, DType::I32, c"Int"),
    (4, DType::I64, c"Long"),
    (5, DType::F16, c"Half"),
    (6, DType::F32, c"Float"),
    (7, DType::F64, c"Double"),
    (8, DType::C32, c"ComplexHalf"),
    (9, DType::C64, c"ComplexFloat"),
    (10, DType::C128, c"ComplexDouble"),
    (11, DType::Bool, c"Bool"),
    (15, DType::BF16, c"BFloat16"),
    (23, DType::F8E5M2, c"Float8_e5m2"),
    (24, DType::F8E4M3FN, c"Float8_e4m3fn"),
    (25, DType::F8E5M2FNUZ, c"Float8_e5m2fnuz"),
    (26, DType::F8E4M3FNUZ, c"Float8_e4m3fnuz"),
    (27, DType::U16, c"UInt16"),
    (28, DType::U32, c"UInt32"),
    (29, DType::U64, c"UInt64"),
    (44, DType::F8E8M0FNU, c"Float8_e8m0fnu"),
];

/// The number of a dtype.
pub fn number(dtype: DType) -> i32 {
    NUMBERS.iter().find(|(_, d, _)| *d == dtype).map_or(-1, |(n, _, _)| *n)
}

/// The dtype of a number.
pub fn of(number: i32) -> Result<DType> {
    match NUMBERS.iter().find(|(n, _, _)| *n == number) {
        Some((_, dtype, _)) => Ok(*dtype),
        None => Err(Error::dtype(format!("there is no dtype number {number} here; quantised ones are not supported"))),
    }
}

/// LibTorch's name.
pub fn name(dtype: DType) -> &'static str {
    NUMBERS.iter().find(|(_, d, _)| *d == dtype).map_or("", |(_, _, name)| name.to_str().unwrap_or_default())
}
