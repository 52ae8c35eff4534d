//! Functions whose arguments or results are not only tensors and numbers.

use crate::device::{self, PyDevice};
use crate::dtype::{self, PyDType};
use crate::error::{IntoPyResult, type_error, value_error};
use crate::generator;
use crate::tensor::{PyTensor, wrap};
use crate::{construct, exchange};
use pyo3::prelude::*;
use rushlight_core::rng::default_generator;
use rushlight_core::{DType, Device};
use rushlight_tensor::{PrintOptions, printoptions};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

fn resolve(device: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Device>> {
    device.map(|d| PyDevice::from_object(d)?.resolve(d.py())).transpose()
}

/// A tensor with a copy of the data: a number, nested lists, an array or a tensor.
#[pyfunction]
#[pyo3(signature = (data, *, dtype=None, device=None, requires_grad=false, pin_memory=false))]
fn tensor<'py>(
    data: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    requires_grad: bool,
    pin_memory: bool,
) -> PyResult<Bound<'py, PyTensor>> {
    let made = construct::tensor(data, dtype::argument("tensor", dtype)?, resolve(device)?)?;
    let made = if pin_memory { device::pinned(&made).py()? } else { made };
    wrap(data.py(), made.requires_grad_(requires_grad).py()?)
}

/// The data as a tensor, sharing memory if possible.
#[pyfunction]
#[pyo3(signature = (data, dtype=None, device=None))]
fn as_tensor<'py>(
    data: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let made = construct::share(data, dtype::argument("as_tensor", dtype)?, resolve(device)?)?;
    if let Ok(same) = data.cast::<PyTensor>()
        && same.get().with(|t| t.is_same(&made))
    {
        return Ok(data.clone());
    }
    Ok(wrap(data.py(), made)?.into_any())
}

/// A tensor over the memory of a NumPy array.
#[pyfunction]
fn from_numpy<'py>(ndarray: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTensor>> {
    match exchange::from_array_interface(ndarray)? {
        Some(shared) if ndarray.hasattr("base")? => wrap(ndarray.py(), shared),
        _ => Err(type_error(format!("expected np.ndarray (got {})", ndarray.get_type().name()?))),
    }
}

#[pyfunction]
fn get_default_dtype(py: Python<'_>) -> PyResult<Py<PyDType>> {
    dtype::object(py, dtype::default())
}

#[pyfunction]
fn set_default_dtype(d: &Bound<'_, PyDType>) -> PyResult<()> {
    dtype::set_default(d.get().core()?)
}

#[pyfunction]
fn get_default_device() -> PyDevice {
    device::default().into()
}

#[pyfunction]
#[pyo3(signature = (device))]
fn set_default_device(device: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    device::set_default(resolve(device)?.unwrap_or_default());
    Ok(())
}

static FORKED: AtomicBool = AtomicBool::new(false);
static THREADS: AtomicUsize = AtomicUsize::new(1);

/// Before a fork: waits for running work and stops using the pool.
#[pyfunction]
fn _before_fork(py: Python<'_>) {
    THREADS.store(rushlight_cpu::pool::num_threads(), Relaxed);
    py.detach(|| rushlight_cpu::pool::set_num_threads(1));
}

/// After a fork: the parent continues as before, the child computes on one thread.
#[pyfunction]
fn _after_fork(child: bool) {
    match child {
        true => FORKED.store(true, Relaxed),
        false => rushlight_cpu::pool::set_num_threads(THREADS.load(Relaxed)),
    }
}

/// Whether the memory of `empty` is filled with NaN, or with the largest integer.
#[pyfunction]
fn _fill_fresh_memory(fill: bool) {
    crate::rows::create::fill_fresh_memory(fill);
}

/// The name of the instruction set that kernels use.
#[pyfunction]
fn _cpu_level() -> &'static str {
    rushlight_cpu::isa::level().name()
}

/// A message for each `RUSHLIGHT_…` variable that nothing reads.
#[pyfunction]
fn _unread_variables() -> Vec<String> {
    rushlight_settings::unread_variables()
}

#[pyfunction]
fn get_num_threads() -> usize {
    rushlight_cpu::pool::num_threads()
}

#[pyfunction]
fn set_num_threads(int: &Bound<'_, PyAny>) -> PyResult<()> {
    match crate::convert::int(int)? {
        // In a forked process the pool's threads are gone, and one of them may have held its lock.
        Some(n @ 1..) if FORKED.load(Relaxed) && n > 1 => {
            let text = c"rushlight: a forked process computes with one thread";
            PyErr::warn(int.py(), &int.py().get_type::<pyo3::exceptions::PyUserWarning>(), text, 1)
        }
        Some(n @ 1..) => {
            if n as usize != rushlight_cpu::pool::num_threads() {
                rushlight_cpu::pool::set_num_threads(n as usize);
            }
            Ok(())
        }
        Some(_) => Err(crate::error::runtime_error("Expected number of threads to be positive")),
        None => Err(crate::error::runtime_error(format!(
            "set_num_threads expects an int, but got {}",
            int.get_type().name()?
        ))),
    }
}

#[pyfunction]
fn _manual_seed(seed: &Bound<'_, PyAny>) -> PyResult<()> {
    default_generator().manual_seed(generator::seed(seed)?);
    Ok(())
}

/// Seeds the default generator with an unpredictable number, and returns it.
#[pyfunction]
fn seed() -> u64 {
    let seed = generator::fresh_seed();
    default_generator().manual_seed(seed);
    seed
}

#[pyfunction]
fn initial_seed() -> u64 {
    default_generator().initial_seed()
}

#[pyfunction]
fn get_rng_state(py: Python<'_>) -> PyResult<Bound<'_, PyTensor>> {
    wrap(py, generator::state(default_generator()).py()?)
}

#[pyfunction]
fn set_rng_state(new_state: &Bound<'_, PyTensor>) -> PyResult<()> {
    generator::set_state(default_generator(), &new_state.get().tensor())
}

/// Print options that are given; `profile` sets the others.
#[pyfunction]
#[pyo3(signature = (precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None))]
fn set_printoptions(
    precision: Option<usize>,
    threshold: Option<f64>,
    edgeitems: Option<usize>,
    linewidth: Option<usize>,
    profile: Option<&str>,
    sci_mode: Option<bool>,
) -> PyResult<()> {
    let mut options = match profile {
        None => printoptions(),
        Some("default") => PrintOptions::default(),
        Some("short") => {
            PrintOptions { precision: 2, threshold: 1000, edgeitems: 2, linewidth: 80, ..Default::default() }
        }
        Some("full") => {
            PrintOptions { precision: 4, threshold: usize::MAX, edgeitems: 3, linewidth: 80, ..Default::default() }
        }
        Some(other) => return Err(value_error(format!("profile must be 'default', 'short' or 'full', not '{other}'"))),
    };
    options.precision = precision.unwrap_or(options.precision);
    // `threshold=float("inf")` disables summarisation.
    options.threshold = threshold.map_or(options.threshold, |t| t as usize);
    options.edgeitems = edgeitems.unwrap_or(options.edgeitems);
    options.linewidth = linewidth.unwrap_or(options.linewidth);
    options.sci_mode = sci_mode;
    rushlight_tensor::set_printoptions(options);
    Ok(())
}

#[pyfunction]
fn promote_types(py: Python<'_>, type1: &Bound<'_, PyDType>, type2: &Bound<'_, PyDType>) -> PyResult<Py<PyDType>> {
    let (a, b) = (type1.get().core()?, type2.get().core()?);
    if !a.promotes(b) {
        return Err(crate::error::to_py(rushlight_tensor::unpromoted(a, b)));
    }
    dtype::object(py, a.promote(b))
}

#[pyfunction]
fn can_cast(from_: &Bound<'_, PyDType>, to: &Bound<'_, PyDType>) -> PyResult<bool> {
    let (from, to) = (from_.get().core()?, to.get().core()?);
    Ok(from.category() <= to.category() && !(to == DType::U8 && from.is_int() && from != DType::U8) || from == to)
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! functions {
        ($($name:path),* $(,)?) => { $(module.add_function(wrap_pyfunction!($name, module)?)?;)* };
    }
    functions!(
        tensor,
        as_tensor,
        from_numpy,
        exchange::frombuffer,
        get_default_dtype,
        set_default_dtype,
        get_default_device,
        set_default_device,
        _fill_fresh_memory,
        _cpu_level,
        _unread_variables,
        get_num_threads,
        set_num_threads,
        _before_fork,
        _after_fork,
        _manual_seed,
        seed,
        initial_seed,
        get_rng_state,
        set_rng_state,
        set_printoptions,
        promote_types,
        can_cast,
    );
    Ok(())
}
