//! Conversion of errors between Rust and Python.

use pyo3::exceptions::{
    PyIndexError, PyNotImplementedError, PyOSError, PyRuntimeError, PyTimeoutError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use rushlight_core::{Error, ErrorKind};
use std::cell::RefCell;

thread_local! {
    /// An exception raised by Python code that Rust called (a hook, a custom function). Rust's error cannot carry it,
    /// so it is stored here until that error reaches Python again.
    static PENDING: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

pyo3::create_exception!(rushlight, LinAlgError, PyRuntimeError, "A matrix that an algorithm cannot handle.");

pyo3::create_exception!(rushlight, OutOfMemoryError, PyRuntimeError, "A device that has no more memory.");

/// The core's phrases for an unsupported dtype, for which PyTorch raises `NotImplementedError`. Mismatched dtypes raise
/// `RuntimeError`.
const DTYPE_NOT_TAKEN: [&str; 4] =
    ["not implemented for", "is not defined for", "needs a floating dtype", "takes floats, not"];

/// Words of errors about real and complex operands, for which PyTorch raises `TypeError`.
const OF_COMPLEX: [&str; 3] =
    ["is only supported for complex tensors", "tensors with non-complex dtypes", "expects a real input tensor"];

/// Advice in Rust's terms, and its translation to Python's.
const WORDS: [(&str, &str); 33] = [
    (
        "trying to backward through the graph a second time: the values",
        "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed): the values",
    ),
    ("Pass Backward::default().retain_graph(true)", "Specify retain_graph=True"),
    ("Backward::default().retain_graph(true)", "retain_graph=True"),
    ("Set allow_unused(true)", "Set allow_unused=True"),
    (
        "post accumulate grad hooks can be registered only on",
        "post accumulate grad hooks cannot be registered on non-leaf tensors, only on",
    ),
    ("to_dtype(DType::F32)", ".float()"),
    ("with to_dtype", "with .to(dtype)"),
    ("use mean_as", "pass dtype"),
    (".to(device)", ".to(device)"),
    ("LoadOptions::max_inflated", "max_inflated"),
    ("sizes of tensors must match except in dimension", "Sizes of tensors must match except in dimension"),
    ("than memory can address", "than memory can address: Storage size calculation overflowed"),
    ("exceed the address space", "exceed the address space: Storage size calculation overflowed"),
    ("eye: n must not be negative, got", "n must be greater or equal to 0, got"),
    (
        "tensor_split: expected at least a 1-dimensional tensor",
        "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims",
    ),
    ("chunk: expects", "chunk expects"),
    ("fliplr: input must be >= 2-d", "Input must be >= 2-d."),
    ("flipud: input must be >= 1-d", "Input must be >= 1-d."),
    ("unfold: size must not be negative, got -1", "size is -1 but must be >= 0"),
    ("eye: m must not be negative, got", "m must be greater or equal to 0, got"),
    ("uniform_: expects to", "uniform_ expects to"),
    (": expected 2D (unbatched)", ": Expected 2D (unbatched)"),
    (": expected 3D (unbatched)", ": Expected 3D (unbatched)"),
    (": expected 4D (unbatched)", ": Expected 4D (unbatched)"),
    ("they must be as many", "movedim: Invalid source or destination dims: they must be as many"),
    ("masked_select: expected a bool tensor for mask", "masked_select: expected BoolTensor for mask"),
    ("nonzero(): Expected out tensor to have dtype int64", "nonzero(): Expected out tensor to have scalar type Long"),
    (": using a target size", ": Using a target size"),
    (
        "pow: integers to negative integer powers are not allowed;",
        "Integers to negative integer powers are not allowed.",
    ),
    (
        "heaviside: expected tensors of one dtype,",
        "heaviside is not yet implemented for tensors with different dtypes. Expected one dtype,",
    ),
    (
        "baddbmm: self and mat2 must have the same dtype",
        "Input dtypes must be the same: self and mat2 must have the same dtype",
    ),
    ("nanmean: not implemented for", "nanmean(): expected input to have floating point or complex dtype but got"),
    (
        "addcdiv: integer division with addcdiv is not supported",
        "Integer division with addcdiv is no longer supported, and in a future release addcdiv will perform a true division of tensor1 and tensor2",
    ),
];

/// Translates the core's message to Python's terms.
fn in_python(message: String) -> String {
    let mut message = message;
    for (rust, python) in WORDS {
        if message.contains(rust) {
            message = message.replace(rust, python);
        }
    }
    if message.contains("pool") {
        message = message.replace(": expected ", ": Expected ");
    }
    match broadcast_mismatch(&message) {
        Some(words) => format!("{words} ({message})"),
        None => message,
    }
}

/// PyTorch's sentence for shapes that do not broadcast, which libraries look for.
fn broadcast_mismatch(message: &str) -> Option<String> {
    let (before, after) = message.split_once(" do not broadcast: size ")?;
    let (_, shapes) = before.split_once("shapes ")?;
    let ranks = shapes.split(" and ").map(|shape| if shape == "[]" { 0 } else { shape.split(',').count() });
    let rank = ranks.max()?;
    let (first, after) = after.split_once(" against ")?;
    let (second, after) = after.split_once(" at dimension ")?;
    let from_right: usize = after.split_once(" from the right")?.0.parse().ok()?;
    let dimension = rank.checked_sub(from_right)?;
    Some(format!(
        "The size of tensor a ({first}) must match the size of tensor b ({second}) at non-singleton dimension {dimension}"
    ))
}

/// The exception PyTorch would raise.
pub fn to_py(error: Error) -> PyErr {
    if let Some(raised) = PENDING.with_borrow_mut(Option::take) {
        return raised;
    }
    let message = in_python(error.to_string());
    match error.kind() {
        ErrorKind::DType if OF_COMPLEX.iter().any(|words| message.contains(words)) => PyTypeError::new_err(message),
        ErrorKind::DType if DTYPE_NOT_TAKEN.iter().any(|words| message.contains(words)) => {
            PyNotImplementedError::new_err(message)
        }
        ErrorKind::Index => PyIndexError::new_err(message),
        ErrorKind::Value if message.contains("ZeroDivisionError") => PyRuntimeError::new_err("ZeroDivisionError"),
        ErrorKind::OutOfMemory => OutOfMemoryError::new_err(message),
        ErrorKind::Unsupported => PyNotImplementedError::new_err(message),
        ErrorKind::Io => PyOSError::new_err(message),
        ErrorKind::Timeout => PyTimeoutError::new_err(message),
        ErrorKind::Numerical => LinAlgError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

/// A Python exception as an error that passes through Rust and becomes the same exception again.
pub fn from_py(error: PyErr) -> Error {
    let message = Python::attach(|py| error.value(py).to_string());
    PENDING.with_borrow_mut(|pending| *pending = Some(error));
    Error::autograd(message)
}

/// An error that becomes a `ValueError`. The core has one kind for values; PyTorch raises a `RuntimeError` for most of
/// them.
pub fn value(message: impl Into<String>) -> Error {
    let message = message.into();
    PENDING.with_borrow_mut(|pending| *pending = Some(PyValueError::new_err(message.clone())));
    Error::value(message)
}

/// `Result`s of the core as `PyResult`s.
pub trait IntoPyResult<T> {
    /// The value, or PyTorch's exception.
    fn py(self) -> PyResult<T>;
}

impl<T> IntoPyResult<T> for rushlight_core::Result<T> {
    #[inline]
    fn py(self) -> PyResult<T> {
        self.map_err(to_py)
    }
}

pub fn type_error(message: impl Into<String>) -> PyErr {
    PyTypeError::new_err(message.into())
}

pub fn value_error(message: impl Into<String>) -> PyErr {
    PyValueError::new_err(message.into())
}

pub fn runtime_error(message: impl Into<String>) -> PyErr {
    PyRuntimeError::new_err(message.into())
}
