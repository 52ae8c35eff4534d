//! Extensions in C++: tensors of Python as handles of the C interface and back, ops that `TORCH_LIBRARY` registers.
//!
//! This module contains the C interface and is named `librushlight.so` (`build.rs`). The loader finds that name among
//! the loaded libraries, so an extension's symbols are this module's, and a handle of C++ is Python's tensor itself.

use crate::error::IntoPyResult;
use crate::program::{object, value};
use crate::tensor::{as_tensor, wrap_known};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rushlight_c::{give, rl_tensor, take};
use rushlight_graph::library;

/// The tensor of a Python object, a new reference; null if the object is no tensor.
///
/// # Safety
/// `object` is a live object, and the caller has the GIL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_python_tensor(object: *mut ffi::PyObject) -> *mut rl_tensor {
    // SAFETY: by this function's contract.
    let object = unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), object) };
    as_tensor(&object).map_or(std::ptr::null_mut(), |tensor| give(tensor.get().tensor()))
}

/// The Python object of a tensor, a new reference; takes the handle over. Null: an exception is set.
///
/// # Safety
/// A handle that is not used again; the caller has the GIL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_python_object(tensor: *mut rl_tensor) -> *mut ffi::PyObject {
    // SAFETY: by this function's contract.
    let (py, tensor) = unsafe { (Python::assume_attached(), take(tensor)) };
    match wrap_known(py, tensor) {
        Ok(object) => object.into_ptr(),
        Err(error) => {
            error.restore(py);
            std::ptr::null_mut()
        }
    }
}

/// Calls an op of another library.
#[pyfunction]
fn _library_call<'py>(
    py: Python<'py>,
    name: &str,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let args = args.iter().map(|a| value(&a, 0)).collect::<PyResult<Vec<_>>>()?;
    let named = kwargs.iter().map(|(k, v)| Ok((k.extract()?, value(&v, 0)?))).collect::<PyResult<Vec<_>>>()?;
    let out = py.detach(|| library::call(name, args, named)).py()?;
    object(py, &out)
}

/// The schema of an op of another library.
#[pyfunction]
fn _library_schema(name: &str) -> Option<String> {
    library::find(name).map(|op| op.schema)
}

/// The schemas of all ops of other libraries.
#[pyfunction]
fn _library_schemas() -> Vec<String> {
    library::schemas()
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_library_call, module)?)?;
    module.add_function(wrap_pyfunction!(_library_schema, module)?)?;
    module.add_function(wrap_pyfunction!(_library_schemas, module)?)
}
