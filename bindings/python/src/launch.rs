//! The launcher, for `python -m rushlight.run`.

use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs a job by the arguments of `rushlight run`. `myself` is the command that starts the launcher again on another node. Returns the
/// exit code.
#[pyfunction]
fn _launch(py: Python<'_>, arguments: Vec<OsString>, myself: Vec<OsString>) -> i32 {
    py.detach(|| rushlight_launch::run(&arguments, &myself))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_launch, module)?)
}
