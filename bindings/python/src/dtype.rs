//! `torch.dtype`, and the dtype that new tensors get.

use crate::error::type_error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use rushlight_core::DType;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The type of a tensor's elements. There is one object per dtype: compare with `is` or `==`.
#[pyclass(name = "dtype", module = "rushlight", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
pub struct PyDType(pub DType);

static OBJECTS: PyOnceLock<Vec<Py<PyDType>>> = PyOnceLock::new();
static DEFAULT: AtomicU8 = AtomicU8::new(DType::F32 as u8);

/// The one object of a dtype.
pub fn object(py: Python<'_>, dtype: DType) -> PyResult<Py<PyDType>> {
    let all =
        OBJECTS.get_or_try_init(py, || DType::ALL.iter().map(|&d| Py::new(py, PyDType(d))).collect::<PyResult<_>>())?;
    Ok(all[dtype as usize].clone_ref(py))
}

/// The dtype of new floating-point tensors.
#[inline]
pub fn default() -> DType {
    DType::ALL[DEFAULT.load(Relaxed) as usize]
}

pub fn set_default(dtype: DType) -> PyResult<()> {
    if !dtype.is_float() {
        return Err(type_error(format!(
            "only floating-point types are supported as the default type, got torch.{dtype}"
        )));
    }
    DEFAULT.store(dtype as u8, Relaxed);
    Ok(())
}

#[pymethods]
impl PyDType {
    fn __repr__(&self) -> String {
        format!("torch.{}", self.0)
    }

    fn __reduce__(&self) -> String {
        // A global of the package: pickle finds it by the class's module.
        self.0.name().to_string()
    }

    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }

    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_float()
    }

    #[getter]
    fn is_complex(&self) -> bool {
        false
    }

    #[getter]
    fn is_signed(&self) -> bool {
        !matches!(self.0, DType::U8 | DType::Bool)
    }
}

/// Names under which PyTorch offers its dtypes.
pub const NAMES: [(&str, DType); 18] = [
    ("float32", DType::F32),
    ("float", DType::F32),
    ("float64", DType::F64),
    ("double", DType::F64),
    ("float16", DType::F16),
    ("half", DType::F16),
    ("bfloat16", DType::BF16),
    ("int64", DType::I64),
    ("long", DType::I64),
    ("int32", DType::I32),
    ("int", DType::I32),
    ("int16", DType::I16),
    ("short", DType::I16),
    ("int8", DType::I8),
    ("uint8", DType::U8),
    ("bool", DType::Bool),
    ("char", DType::I8),
    ("byte", DType::U8),
];

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyDType>()?;
    // `torch.char` and `torch.byte` do not exist; the names serve `Tensor.char()` and `Tensor.byte()`.
    for (name, dtype) in &NAMES[..16] {
        module.add(*name, object(module.py(), *dtype)?)?;
    }
    Ok(())
}
