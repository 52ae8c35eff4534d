//! The launcher, for `python -m rushlight.run`.

use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;

/// Runs a job by the arguments of `rushlight run`. `myself` is the command that starts the launcher again on another node. Returns the
/// exit code. A report of ranks that failed goes to `folder`.
#[pyfunction]
#[pyo3(signature = (arguments, myself, folder = None))]
fn _launch(py: Python<'_>, arguments: Vec<OsString>, myself: Vec<OsString>, folder: Option<PathBuf>) -> i32 {
    py.detach(|| rushlight_launch::run_with_report(&arguments, &myself, folder.as_deref()))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_launch, module)?)
}
