//! Dtypes by PyTorch's numbers, which archives contain.

use rushlight_core::{DType, Error, Result};

/// The dtype of new tensors.
pub fn default() -> DType {
    DType::F32
}

const NUMBERS: [(i64, DType); 17] = [
    (0, DType::U8),
    (1, DType::I8),
    (2, DType::I16),
    (3, DType::I32),
    (4, DType::I64),
    (5, DType::F16),
    (6, DType::F32),
    (7, DType::F64),
    (11, DType::Bool),
    (15, DType::BF16),
    (23, DType::F8E5M2),
    (24, DType::F8E4M3FN),
    (25, DType::F8E5M2FNUZ),
    (26, DType::F8E4M3FNUZ),
    (27, DType::U16),
    (28, DType::U32),
    (29, DType::U64),
];

/// The number of a dtype; -1 if it has none.
pub fn number(dtype: DType) -> i32 {
    NUMBERS.iter().find(|(_, d)| *d == dtype).map_or(-1, |(n, _)| *n as i32)
}

/// The dtype of a number.
pub fn of(number: i64) -> Result<DType> {
    let found = NUMBERS.iter().find(|(n, _)| *n == number).map(|(_, d)| *d);
    found.ok_or_else(|| {
        Error::dtype(format!("there is no dtype number {number} here; quantised ones are not supported"))
    })
}

/// The dtype of a name, such as `float32` or `long`.
pub fn named(name: &str) -> Option<DType> {
    let name = match name {
        "float" => "float32",
        "double" => "float64",
        "half" => "float16",
        "long" => "int64",
        "int" => "int32",
        "short" => "int16",
        name => name,
    };
    DType::ALL.into_iter().find(|d| d.name() == name)
}
