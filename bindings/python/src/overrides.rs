//! `__torch_function__`: calls that the class of an argument, or an active mode, overrides.
//!
//! Every entry point calls `answered` first. Tensors, parameters and plain values are recognised by the address of
//! their type, so a call without overrides costs a comparison per argument. The protocol itself is Python
//! (`rushlight.overrides`).

use crate::tensor::PyTensor;
use pyo3::PyTypeInfo;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

thread_local! {
    /// Modes on this thread's stack.
    static MODES: Cell<usize> = const { Cell::new(0) };
    /// Which overrides are enabled.
    static LEVEL: Cell<u8> = const { Cell::new(EVERYONE) };
    /// Whether classes handle ops by `__torch_dispatch__`.
    static DISPATCH: Cell<bool> = const { Cell::new(true) };
}

const NOBODY: u8 = 0;
const MODES_ONLY: u8 = 1;
const EVERYONE: u8 = 2;

/// Addresses of types without overrides; zero for unused entries.
static PLAIN: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

/// Whether an object's class has a `__torch_function__` that is not disabled.
fn answers(object: &Bound<'_, PyAny>) -> bool {
    let ty = object.get_type_ptr();
    // SAFETY: the type of a live object.
    if unsafe { ffi::PyType_GetFlags(ty) } & ffi::Py_TPFLAGS_HEAPTYPE == 0 {
        return false;
    }
    if PyTensor::type_object_raw(object.py()) == ty || PLAIN.iter().any(|p| p.load(Relaxed) == ty as usize) {
        return false;
    }
    let class = object.get_type();
    match class.getattr(pyo3::intern!(object.py(), "__torch_function__")) {
        Ok(found) => !found.is(disabled(object.py())) && !is_foreign(&found),
        Err(_) => false,
    }
}

/// Whether this is the method of a real PyTorch's tensors, which would call our function again. Both are in one process
/// where files and numbers are compared.
fn is_foreign(method: &Bound<'_, PyAny>) -> bool {
    let module = method.getattr(pyo3::intern!(method.py(), "__module__"));
    module.is_ok_and(|m| m.extract::<String>().is_ok_and(|m| m == "torch._tensor"))
}

fn disabled(py: Python<'_>) -> &'static Py<PyAny> {
    static DISABLED: pyo3::sync::PyOnceLock<Py<PyAny>> = pyo3::sync::PyOnceLock::new();
    DISABLED.get_or_init(py, || match wrap_pyfunction!(_disabled_torch_function_impl, py) {
        Ok(function) => function.into_any().unbind(),
        Err(_) => py.None(),
    })
}

/// Whether an argument overrides, or one in a list or tuple.
pub fn overridden(object: &Bound<'_, PyAny>) -> bool {
    let (by_class, by_dispatch) = (LEVEL.get() == EVERYONE, is_dispatch_on());
    if !by_class && !by_dispatch {
        return false;
    }
    let overrides = |item: &Bound<'_, PyAny>| by_class && answers(item) || by_dispatch && dispatches(item);
    if let Ok(items) = object.cast_exact::<PyTuple>() {
        return items.iter().any(|item| overrides(&item));
    }
    if let Ok(items) = object.cast_exact::<PyList>() {
        return items.iter().any(|item| overrides(&item));
    }
    overrides(object)
}

/// Whether some class handles ops by `__torch_dispatch__`.
static ANY_DISPATCH: AtomicBool = AtomicBool::new(false);

pub fn note_dispatch() {
    ANY_DISPATCH.store(true, Relaxed);
}

pub fn is_dispatch_on() -> bool {
    ANY_DISPATCH.load(Relaxed) && DISPATCH.get()
}

fn dispatches(object: &Bound<'_, PyAny>) -> bool {
    object.cast::<PyTensor>().is_ok_and(|t| t.get().dispatches())
}

/// Whether a class has a `__torch_dispatch__` of its own.
pub fn has_dispatch(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let name = pyo3::intern!(class.py(), "__torch_dispatch__");
    let Ok(found) = class.getattr(name) else { return Ok(false) };
    let base = class.py().get_type::<PyTensor>().getattr(name)?;
    Ok(!found.is(&base))
}

/// Whether the class of an object handles its ops by `__torch_dispatch__`.
#[pyfunction]
fn _dispatches(object: &Bound<'_, PyAny>) -> bool {
    is_dispatch_on() && dispatches(object)
}

/// Switches `__torch_dispatch__` of this thread. Returns the previous state.
#[pyfunction]
fn _set_dispatch_enabled(enabled: bool) -> bool {
    DISPATCH.replace(enabled)
}

/// Whether a mode of this thread intercepts every call.
#[inline]
pub fn watched() -> bool {
    MODES.get() > 0 && LEVEL.get() >= MODES_ONLY
}

/// The result of a mode or of an argument's class for a call of `function`.
pub fn answer<'py>(
    function: &Bound<'py, PyAny>,
    args: Bound<'py, PyTuple>,
    kwargs: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    py.import("rushlight.overrides")?.getattr("_answer")?.call1((function, args, kwargs))
}

/// The method passed to overrides for an operator: PyTorch's operators are these methods under another name.
fn known_as(name: &str) -> &str {
    match name {
        "__add__" | "__radd__" => "add",
        "__iadd__" => "add_",
        "__sub__" => "sub",
        "__isub__" => "sub_",
        "__mul__" | "__rmul__" => "mul",
        "__imul__" => "mul_",
        "__truediv__" => "div",
        "__itruediv__" => "div_",
        "__mod__" => "remainder",
        "__matmul__" => "matmul",
        "__neg__" => "neg",
        "__abs__" => "abs",
        "__lt__" => "lt",
        "__le__" => "le",
        "__eq__" => "eq",
        "__ne__" => "ne",
        "__gt__" => "gt",
        "__ge__" => "ge",
        name => name,
    }
}

/// The result of overriding a method; `None` if nothing overrides it.
pub fn method<'py>(
    name: &str,
    slf: &Bound<'py, PyTensor>,
    others: &[&Bound<'py, PyAny>],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !watched() && !overridden(slf) && !others.iter().any(|o| overridden(o)) {
        return Ok(None);
    }
    let py = slf.py();
    let function = py.get_type::<PyTensor>().getattr(known_as(name))?;
    let args = PyTuple::new(py, std::iter::once(slf.as_any()).chain(others.iter().copied()).collect::<Vec<_>>())?;
    answer(&function, args, PyDict::new(py)).map(Some)
}

/// The same for an attribute, passed to overrides as `Tensor.name.__get__`.
pub fn attribute<'py>(name: &str, slf: &Bound<'py, PyTensor>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !watched() && !overridden(slf) {
        return Ok(None);
    }
    let py = slf.py();
    let function = py.get_type::<PyTensor>().getattr(name)?.getattr("__get__")?;
    answer(&function, PyTuple::new(py, [slf])?, PyDict::new(py)).map(Some)
}

/// Whether any of the arguments, or a mode, overrides.
#[pyfunction]
fn _has_torch_function(args: &Bound<'_, PyTuple>) -> bool {
    watched() || args.iter().any(|o| overridden(&o))
}

/// Whether an object's class overrides calls.
#[pyfunction]
fn _answers(object: &Bound<'_, PyAny>) -> bool {
    answers(object)
}

/// Registers tensor classes without overrides.
#[pyfunction]
fn _plain_types(types: Vec<Bound<'_, PyType>>) {
    for ty in types {
        let address = ty.as_ptr() as usize;
        if let Some(free) = PLAIN.iter().find(|p| matches!(p.load(Relaxed), a if a == 0 || a == address)) {
            free.store(address, Relaxed);
            // The type must stay alive, so that its address is not reused.
            std::mem::forget(ty);
        }
    }
}

/// Sets the number of modes on this thread's stack. Returns the previous one.
#[pyfunction]
fn _set_function_modes(count: usize) -> usize {
    MODES.replace(count)
}

/// Sets which overrides are enabled: 0 none, 1 modes, 2 classes too. Returns the previous value.
#[pyfunction]
fn _set_function_level(level: u8) -> u8 {
    LEVEL.replace(level)
}

#[pyfunction]
fn _is_torch_function_enabled() -> bool {
    LEVEL.get() == EVERYONE
}

#[pyfunction]
fn _is_torch_function_all_disabled() -> bool {
    LEVEL.get() == NOBODY
}

/// The value of `__torch_function__` for classes without overrides.
#[pyfunction]
#[pyo3(signature = (func, types, args=None, kwargs=None))]
fn _disabled_torch_function_impl<'py>(
    func: &Bound<'py, PyAny>,
    types: &Bound<'py, PyAny>,
    args: Option<Bound<'py, PyTuple>>,
    kwargs: Option<Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _ = types;
    let before = LEVEL.replace(MODES_ONLY.min(LEVEL.get()));
    let result = func.call(args.unwrap_or_else(|| PyTuple::empty(func.py())), kwargs.as_ref());
    LEVEL.set(before);
    result
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("_disabled_torch_function_impl", disabled(py))?;
    macro_rules! functions {
        ($($name:ident),* $(,)?) => { $(module.add_function(wrap_pyfunction!($name, module)?)?;)* };
    }
    functions!(
        _has_torch_function,
        _answers,
        _dispatches,
        _set_dispatch_enabled,
        _plain_types,
        _set_function_modes,
        _set_function_level,
        _is_torch_function_enabled,
        _is_torch_function_all_disabled,
    );
    for ty in [
        py.get_type::<crate::dtype::PyDType>(),
        py.get_type::<crate::device::PyDevice>(),
        py.get_type::<crate::generator::PyGenerator>(),
    ] {
        _plain_types(vec![ty]);
    }
    Ok(())
}
