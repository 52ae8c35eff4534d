//! `torch.dtype`, and the default dtype.

use crate::error::type_error;
use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt};
use rushlight_core::DType;

/// The type of a tensor's elements. There is one object per dtype: compare with `is` or `==`.
#[pyclass(name = "dtype", module = "rushlight", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
pub struct PyDType(Known);

#[derive(PartialEq, Eq, Hash, Clone, Copy)]
enum Known {
    Core(DType),
    /// A PyTorch dtype that tensors do not support: it exists only as a name.
    Foreign(&'static Foreign),
}

/// Properties of a dtype that the core does not have.
#[derive(PartialEq, Eq, Hash)]
struct Foreign {
    name: &'static str,
    size: usize,
    kind: Number,
}

#[derive(PartialEq, Eq, Hash, Clone, Copy)]
enum Number {
    Float,
    Quantised {
        signed: bool,
    },
    /// Integers of less than a byte.
    Bits {
        signed: bool,
    },
}

macro_rules! foreign {
    ($($name:literal $size:literal $kind:expr;)*) => {
        static FOREIGN: &[Foreign] = &[$(Foreign { name: $name, size: $size, kind: $kind }),*];
    };
}

foreign! {
    "float4_e2m1fn_x2" 1 Number::Float;
    "qint8" 1 Number::Quantised { signed: true };
    "quint8" 1 Number::Quantised { signed: false };
    "qint32" 4 Number::Quantised { signed: true };
    "quint4x2" 1 Number::Quantised { signed: false };
    "quint2x4" 1 Number::Quantised { signed: false };
    "int1" 1 Number::Bits { signed: true };
    "int2" 1 Number::Bits { signed: true };
    "int3" 1 Number::Bits { signed: true };
    "int4" 1 Number::Bits { signed: true };
    "int5" 1 Number::Bits { signed: true };
    "int6" 1 Number::Bits { signed: true };
    "int7" 1 Number::Bits { signed: true };
    "uint1" 1 Number::Bits { signed: false };
    "uint2" 1 Number::Bits { signed: false };
    "uint3" 1 Number::Bits { signed: false };
    "uint4" 1 Number::Bits { signed: false };
    "uint5" 1 Number::Bits { signed: false };
    "uint6" 1 Number::Bits { signed: false };
    "uint7" 1 Number::Bits { signed: false };
}

/// Shorter names of complex dtypes.
const SHORT: [(&str, &str); 3] = [("chalf", "complex32"), ("cfloat", "complex64"), ("cdouble", "complex128")];

impl PyDType {
    /// The core's dtype, or an error with the reason.
    pub fn core(&self) -> PyResult<DType> {
        match self.0 {
            Known::Core(dtype) => Ok(dtype),
            Known::Foreign(f) => Err(PyNotImplementedError::new_err(match f.kind {
                Number::Float => {
                    format!(
                        "torch.{}: tensors of this dtype are not supported; use torch.float8_e4m3fn or torch.bfloat16",
                        f.name
                    )
                }
                Number::Quantised { .. } => format!("torch.{}: quantised tensors are not supported", f.name),
                Number::Bits { .. } => {
                    format!(
                        "torch.{}: integers of less than a byte are not supported; use torch.int8 or torch.uint8",
                        f.name
                    )
                }
            })),
        }
    }
}

static OBJECTS: PyOnceLock<Vec<Py<PyDType>>> = PyOnceLock::new();

/// The one object of a dtype.
pub fn object(py: Python<'_>, dtype: DType) -> PyResult<Py<PyDType>> {
    let all = OBJECTS.get_or_try_init(py, || {
        DType::ALL.iter().map(|&d| Py::new(py, PyDType(Known::Core(d)))).collect::<PyResult<_>>()
    })?;
    Ok(all[dtype as usize].clone_ref(py))
}

/// The dtype of new floating-point tensors.
#[inline]
pub fn default() -> DType {
    rushlight_tensor::default_dtype()
}

pub fn set_default(dtype: DType) -> PyResult<()> {
    rushlight_tensor::set_default_dtype(dtype).map_err(|_| {
        type_error(format!("only floating-point types are supported as the default type, got torch.{dtype}"))
    })
}

/// The dtype that an argument stands for: a `torch.dtype`, or one of the Python types that PyTorch takes for one.
pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    if let Ok(dtype) = object.cast::<PyDType>() {
        return Ok(Some(dtype.get().core()?));
    }
    let py = object.py();
    Ok(if object.is(py.get_type::<PyFloat>()) {
        Some(DType::F64)
    } else if object.is(py.get_type::<PyInt>()) {
        Some(DType::I64)
    } else if object.is(py.get_type::<PyBool>()) {
        Some(DType::Bool)
    } else if object.is(py.get_type::<PyComplex>()) {
        Some(DType::C128)
    } else {
        None
    })
}

/// [`of`] a keyword argument of a function.
pub fn argument(call: &str, object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<DType>> {
    let Some(object) = object.filter(|o| !o.is_none()) else { return Ok(None) };
    match of(object)? {
        Some(dtype) => Ok(Some(dtype)),
        None => Err(type_error(format!(
            "{call}(): argument 'dtype' must be torch.dtype, not {}",
            crate::bind::type_name(object)
        ))),
    }
}

/// Whether elements of a dtype can be negative.
pub fn is_signed(dtype: DType) -> bool {
    !matches!(dtype, DType::U8 | DType::Bool | DType::U16 | DType::U32 | DType::U64 | DType::F8E8M0FNU)
}

/// PyTorch's name of a dtype in its messages about scalar types.
pub fn scalar_type(dtype: DType) -> String {
    match dtype {
        DType::BF16 => "BFloat16".into(),
        DType::U16 | DType::U32 | DType::U64 => dtype.name().replace("uint", "UInt"),
        DType::C32 => "ComplexHalf".into(),
        DType::C64 => "ComplexFloat".into(),
        DType::C128 => "ComplexDouble".into(),
        other => other.name().replace("float", "Float"),
    }
}

#[pymethods]
impl PyDType {
    fn __repr__(&self) -> String {
        format!("torch.{}", self.__reduce__())
    }

    fn __reduce__(&self) -> &'static str {
        // A global of the package: pickle finds it through the class's module.
        match self.0 {
            Known::Core(dtype) => dtype.name(),
            Known::Foreign(f) => f.name,
        }
    }

    #[getter]
    fn itemsize(&self) -> usize {
        match self.0 {
            Known::Core(dtype) => dtype.size(),
            Known::Foreign(f) => f.size,
        }
    }

    #[getter]
    fn is_floating_point(&self) -> bool {
        match self.0 {
            Known::Core(dtype) => dtype.is_float(),
            Known::Foreign(f) => f.kind == Number::Float,
        }
    }

    #[getter]
    fn is_complex(&self) -> bool {
        matches!(self.0, Known::Core(dtype) if dtype.is_complex())
    }

    #[getter]
    fn is_signed(&self) -> bool {
        match self.0 {
            Known::Core(dtype) => is_signed(dtype),
            Known::Foreign(f) => {
                !matches!(f.kind, Number::Quantised { signed: false } | Number::Bits { signed: false })
            }
        }
    }

    /// The real dtype with as many bits as each half of a complex number.
    fn to_real(slf: &Bound<'_, Self>) -> PyResult<Py<PyDType>> {
        match slf.get().0 {
            Known::Core(dtype) => object(slf.py(), dtype.real()),
            _ => Ok(slf.clone().unbind()),
        }
    }

    /// The complex dtype whose parts hold numbers of this dtype.
    fn to_complex(slf: &Bound<'_, Self>) -> PyResult<Py<PyDType>> {
        object(slf.py(), slf.get().core()?.complex())
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
    // `torch.char` and `torch.byte` do not exist; the names are used for `Tensor.char()` and `Tensor.byte()`.
    for (name, dtype) in &NAMES[..16] {
        module.add(*name, object(module.py(), *dtype)?)?;
    }
    let carried = DType::ALL.into_iter().filter(|d| d.is_carried());
    for dtype in carried.clone() {
        module.add(dtype.name(), object(module.py(), dtype)?)?;
    }
    for foreign in FOREIGN {
        module.add(foreign.name, Py::new(module.py(), PyDType(Known::Foreign(foreign)))?)?;
    }
    for (short, name) in SHORT {
        module.add(short, module.getattr(name)?)?;
    }
    let short = SHORT.iter().map(|(short, _)| *short);
    let names: Vec<&str> = FOREIGN.iter().map(|f| f.name).chain(short).chain(carried.map(DType::name)).collect();
    module.add("_further_dtypes", names)?;
    Ok(())
}
