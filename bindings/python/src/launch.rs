//! The command `rushlight`, and its parts for `python -m rushlight.run`, `rushlight.ui` and `rushlight.top`.

use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;

/// Runs the command `rushlight`. `myself` is the command that starts it again on another node. Returns the exit code.
#[pyfunction]
fn _command(py: Python<'_>, arguments: Vec<OsString>, myself: Vec<OsString>) -> u8 {
    py.detach(|| rushlight_command::run(&arguments, &myself))
}

/// Runs a job by the arguments of `rushlight run`. `myself` is the command that starts the launcher again on another
/// node. Returns the exit code. A report of ranks that failed goes to `folder`.
#[pyfunction]
#[pyo3(signature = (arguments, myself, folder = None))]
fn _launch(py: Python<'_>, arguments: Vec<OsString>, myself: Vec<OsString>, folder: Option<PathBuf>) -> i32 {
    py.detach(|| rushlight_launch::run_with_report(&arguments, &myself, folder.as_deref()))
}

/// Shows runs in a browser, by the arguments of `rushlight ui`. Returns the exit code.
#[pyfunction]
fn _ui(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| rushlight_view::ui(&arguments))
}

/// Shows GPUs and processors, by the arguments of `rushlight top`. `myself` is the command that starts it again on
/// another node. Returns the exit code.
#[pyfunction]
fn _top(py: Python<'_>, arguments: Vec<OsString>, myself: Vec<OsString>) -> u8 {
    py.detach(|| rushlight_view::top(&arguments, &myself))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_command, module)?)?;
    module.add_function(wrap_pyfunction!(_launch, module)?)?;
    module.add_function(wrap_pyfunction!(_ui, module)?)?;
    module.add_function(wrap_pyfunction!(_top, module)?)
}
