//! `torch.profiler`: recording, its events, totals and files.

use crate::error::{IntoPyResult, runtime_error};
use crate::value::Value;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyString};
use rushlight_core::Error;
use rushlight_core::sync::lock;
use rushlight_tensor::Tensor;
use rushlight_tensor::profile::{self, Category, Options, Place, Span, Trace};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether ops record the Python frames of their callers.
static STACKS: AtomicBool = AtomicBool::new(false);

/// The span of an op of the table.
#[inline]
pub fn op_span(py: Python<'_>, name: &str, inplace: bool, values: &[Value]) -> Span {
    if !profile::is_on() {
        return profile::span(Category::Op, || "");
    }
    begin(
        py,
        || format!("aten::{}{}", name.trim_start_matches("r#"), if inplace { "_" } else { "" }),
        |note| {
            for value in values {
                match value {
                    Value::Tensor(tensor) => note(Some(tensor)),
                    Value::Tensors(tensors) => tensors.iter().for_each(|t| note(Some(t))),
                    Value::None => {}
                    _ => note(None),
                }
            }
        },
    )
}

/// The span of an operator: `__radd__` is `aten::add`.
#[inline]
pub fn operator_span(py: Python<'_>, name: &str, operands: &[Option<&Tensor>]) -> Span {
    if !profile::is_on() {
        return profile::span(Category::Op, || "");
    }
    begin(py, || format!("aten::{}", operator_name(name)), |note| operands.iter().for_each(|t| note(*t)))
}

fn operator_name(name: &str) -> String {
    let plain = name.trim_matches('_');
    let known = |n: &str| {
        let names = [
            ("add", "add"),
            ("sub", "sub"),
            ("mul", "mul"),
            ("truediv", "div"),
            ("floordiv", "floor_divide"),
            ("mod", "remainder"),
            ("and", "bitwise_and"),
            ("or", "bitwise_or"),
            ("xor", "bitwise_xor"),
            ("lshift", "bitwise_left_shift"),
            ("rshift", "bitwise_right_shift"),
            ("matmul", "matmul"),
            ("pow", "pow"),
            ("neg", "neg"),
            ("abs", "abs"),
            ("invert", "bitwise_not"),
            ("lt", "lt"),
            ("le", "le"),
            ("eq", "eq"),
            ("ne", "ne"),
            ("gt", "gt"),
            ("ge", "ge"),
        ];
        names.iter().find(|(from, _)| *from == n).map(|(_, to)| *to)
    };
    if let Some(name) = known(plain) {
        return name.into();
    }
    match plain.split_at_checked(1) {
        Some(("r", rest)) => known(rest).unwrap_or(rest).into(),
        Some(("i", rest)) => format!("{}_", known(rest).unwrap_or(rest)),
        _ => plain.into(),
    }
}

#[cold]
fn begin(py: Python<'_>, name: impl FnOnce() -> String, inputs: impl FnOnce(&mut dyn FnMut(Option<&Tensor>))) -> Span {
    let mut span = profile::span(Category::Op, name);
    if profile::shapes_wanted() {
        span.describe(|details| {
            inputs(&mut |input| match input {
                Some(tensor) => {
                    details.shapes.push(tensor.shape().to_vec());
                    details.dtypes.push(tensor.dtype().name());
                }
                None => {
                    details.shapes.push(Vec::new());
                    details.dtypes.push("Scalar");
                }
            });
        });
    }
    if STACKS.load(Relaxed)
        && let Ok(stack) = stack(py)
    {
        span.describe(|details| details.stack = stack);
    }
    span
}

/// The Python frames of the caller, innermost first.
fn stack(py: Python<'_>) -> PyResult<Vec<String>> {
    static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let function = FUNCTION
        .get_or_try_init(py, || Ok::<_, PyErr>(py.import("rushlight.profiler")?.getattr("_stack")?.unbind()))?;
    function.bind(py).call0()?.extract()
}

/// A named span of the program.
#[pyclass(name = "ProfilerSpan", module = "rushlight._C", frozen)]
pub struct PySpan(Mutex<Option<Span>>);

#[pymethods]
impl PySpan {
    #[new]
    fn new(py: Python<'_>, name: String) -> Self {
        let mut span = profile::record_function(name);
        if span.is_recorded()
            && STACKS.load(Relaxed)
            && let Ok(stack) = stack(py)
        {
            span.describe(|details| details.stack = stack);
        }
        Self(Mutex::new(Some(span)))
    }

    fn end(&self) {
        drop(lock(&self.0).take());
    }
}

/// The recorded trace.
#[pyclass(name = "ProfilerTrace", module = "rushlight._C", frozen)]
pub struct PyTrace(Trace);

type AverageRow = (String, Vec<Vec<usize>>, usize, [f64; 4], [i64; 4], u64, bool, bool);
type EventRow = (String, &'static str, f64, f64, bool, u64, usize, Vec<Vec<usize>>, Vec<String>, [i64; 2], u64);

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[pymethods]
impl PyTrace {
    /// Rows: name, shapes, count, times (host, own host, device, own device), memory (the same order), operations, of a
    /// device, an annotation.
    fn averages(&self, py: Python<'_>, by_shape: bool) -> Vec<AverageRow> {
        let averages = py.detach(|| self.0.key_averages(by_shape));
        let row = |a: profile::Average| {
            let times = [us(a.cpu_total), us(a.self_cpu), us(a.device_total), us(a.self_device)];
            let memory = [a.memory[0], a.self_memory[0], a.memory[1], a.self_memory[1]];
            (a.name, a.shapes, a.count, times, memory, a.flops, a.is_device, a.is_annotation)
        };
        averages.into_iter().map(row).collect()
    }

    /// Rows: name, category, begin and end in microseconds after the trace's begin, of a device, thread or stream,
    /// device's index, shapes, stack, memory, operations.
    fn events(&self) -> Vec<EventRow> {
        let begin = self.0.begin;
        let row = |e: &profile::Event| {
            let (on_device, thread, index) = match e.place {
                Place::Thread(thread) => (false, thread, 0),
                Place::Device(_, index, stream) => (true, stream, index),
            };
            let d = e.details.as_deref().cloned().unwrap_or_default();
            let times = (us(e.start.saturating_sub(begin)), us(e.end.saturating_sub(begin)));
            let name = e.name.to_string();
            (name, e.category.name(), times.0, times.1, on_device, thread, index, d.shapes, d.stack, d.memory, d.flops)
        };
        self.0.events.iter().map(row).collect()
    }

    fn device_label(&self) -> String {
        self.0.device_label()
    }

    fn export_chrome_trace(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.export_chrome_trace(path)).map_err(|e| Error::io(e.to_string())).py()
    }

    fn export_memory_timeline(&self, path: PathBuf, device: bool) -> PyResult<()> {
        self.0.export_memory_timeline(path, device).map_err(|e| runtime_error(e.to_string()))
    }

    fn memory_timeline(&self, device: bool) -> (Vec<u64>, Vec<u64>) {
        self.0.memory_timeline(device)
    }

    #[getter]
    fn begin(&self) -> u64 {
        self.0.begin
    }

    #[getter]
    fn dropped(&self) -> usize {
        self.0.dropped
    }

    /// Concatenates this trace and a later one.
    fn joined(&self, later: &PyTrace) -> PyTrace {
        let mut out = self.0.clone();
        out.events.extend(later.0.events.iter().cloned());
        out.memory.extend(later.0.memory.iter().copied());
        out.threads.extend(later.0.threads.clone());
        out.end = later.0.end;
        out.dropped += later.0.dropped;
        PyTrace(out)
    }
}

/// Starts recording.
#[pyfunction]
fn _profiler_start(shapes: bool, memory: bool, devices: bool, stacks: bool) -> PyResult<()> {
    profile::prepare();
    profile::start(Options { shapes, memory, devices }).map_err(runtime_error)?;
    STACKS.store(stacks, Relaxed);
    Ok(())
}

/// Ends recording.
#[pyfunction]
fn _profiler_stop(py: Python<'_>) -> PyTrace {
    STACKS.store(false, Relaxed);
    PyTrace(py.detach(profile::stop))
}

/// Whether the profiler records.
#[pyfunction]
fn _profiler_is_on() -> bool {
    profile::is_on()
}

/// Nanoseconds of the profiler's clock.
#[pyfunction]
fn _profiler_clock() -> u64 {
    profile::clock()
}

/// Records a span that is over.
#[pyfunction]
fn _profiler_add(name: String, start: u64, end: u64) {
    profile::add_span(Category::Annotation, name, start, end, None);
}

/// The rows as text.
#[pyfunction]
fn _profiler_table(rows: Vec<AverageRow>, sort_by: &str, limit: usize, device: &str) -> String {
    let ns = |us: f64| (us * 1e3) as u64;
    let average = |(name, shapes, count, t, m, flops, is_device, is_annotation): AverageRow| profile::Average {
        name,
        shapes,
        count,
        cpu_total: ns(t[0]),
        self_cpu: ns(t[1]),
        device_total: ns(t[2]),
        self_device: ns(t[3]),
        memory: [m[0], m[2]],
        self_memory: [m[1], m[3]],
        flops,
        is_device,
        is_annotation,
    };
    profile::table(&rows.into_iter().map(average).collect::<Vec<_>>(), sort_by, limit, device)
}

/// Where the time of a trace's steps went, as text.
#[pyfunction]
fn _profiler_summary(path: PathBuf) -> PyResult<String> {
    profile::summary::Summary::read(path).map(|s| s.to_string()).map_err(runtime_error)
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySpan>()?;
    module.add_class::<PyTrace>()?;
    let keys = profile::SORT_KEYS.map(|key| PyString::new(module.py(), key));
    module.add("_profiler_sort_keys", PyList::new(module.py(), keys)?)?;
    module.add_function(wrap_pyfunction!(_profiler_start, module)?)?;
    module.add_function(wrap_pyfunction!(_profiler_stop, module)?)?;
    module.add_function(wrap_pyfunction!(_profiler_is_on, module)?)?;
    module.add_function(wrap_pyfunction!(_profiler_clock, module)?)?;
    module.add_function(wrap_pyfunction!(_profiler_add, module)?)?;
    module.add_function(wrap_pyfunction!(_profiler_table, module)?)?;
    module.add_function(wrap_pyfunction!(_profiler_summary, module)?)
}
