//! Recording, differentiation, hooks and functions with a backward written in Python.

use crate::dtype::{self, PyDType};
use crate::error::{IntoPyResult, from_py, runtime_error};
use crate::graph::{self, PyNode, PyWeakNode};
use crate::tensor::{PyTensor, gradient_of, wrap, wrap_known};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use rushlight_tensor::autograd::{self, Backward, CallSites, Context, GradientEdge, HookHandle};
use rushlight_tensor::{Tensor, autocast_dtype, set_autocast};
use std::sync::Mutex;

/// Python's context managers restore the previous state themselves, so the Rust guards are leaked on purpose.
fn keep<T>(guard: T) {
    std::mem::forget(guard);
}

/// Turns recording of this thread on or off. Returns the previous state.
#[pyfunction]
fn _set_grad_enabled(enabled: bool) -> bool {
    let before = autograd::is_grad_enabled();
    keep(autograd::set_grad_enabled(enabled));
    before
}

#[pyfunction]
fn is_grad_enabled() -> bool {
    autograd::is_grad_enabled()
}

/// Turns inference mode of this thread on or off. Returns the previous state.
#[pyfunction]
fn _set_inference_mode(enabled: bool) -> bool {
    let before = autograd::is_inference_mode_enabled();
    keep(autograd::set_inference_mode(enabled));
    before
}

#[pyfunction]
fn is_inference_mode_enabled() -> bool {
    autograd::is_inference_mode_enabled()
}

#[pyfunction]
fn _set_detect_anomaly(enabled: bool) {
    autograd::set_call_sites(CallSites { current: python_stack, report: report_anomaly });
    autograd::set_detect_anomaly(enabled);
}

/// The Python stack of the present call, as `traceback` prints it.
fn python_stack() -> Option<String> {
    Python::attach(|py| py.import("rushlight.autograd._anomaly")?.call_method0("stack")?.extract()).ok()
}

/// Warns of a function that made NaN, with its stack.
fn report_anomaly(function: &str, forward: Option<&str>) {
    Python::attach(|py| {
        let warned =
            py.import("rushlight.autograd._anomaly").and_then(|m| m.call_method1("report", (function, forward)));
        if let Err(e) = warned {
            e.write_unraisable(py, None);
        }
    });
}

#[pyfunction]
fn is_anomaly_enabled() -> bool {
    autograd::is_anomaly_enabled()
}

/// Turns autocast of this thread on (a dtype) or off (`None`). Returns the previous state.
#[pyfunction]
#[pyo3(signature = (dtype))]
fn _set_autocast(py: Python<'_>, dtype: Option<&Bound<'_, PyDType>>) -> PyResult<Option<Py<PyDType>>> {
    let before = autocast_dtype();
    let guard = set_autocast(dtype.map(|d| d.get().core()).transpose()?).py()?;
    match dtype {
        Some(_) => keep(guard),
        // The outermost region ends: autocast was off before it and is off after it; dropping the guard drops the cache
        // of converted parameters.
        None => {
            keep(guard);
            drop(set_autocast(None).py()?);
        }
    }
    before.map(|d| dtype::object(py, d)).transpose()
}

#[pyfunction]
fn _autocast_dtype(py: Python<'_>) -> PyResult<Option<Py<PyDType>>> {
    autocast_dtype().map(|d| dtype::object(py, d)).transpose()
}

/// Where a gradient starts or is wanted: a tensor, or an output of a node.
#[derive(FromPyObject)]
enum Place<'py> {
    Tensor(Bound<'py, PyTensor>),
    Edge(Bound<'py, PyNode>, usize),
}

impl Place<'_> {
    fn edge(&self, number: usize) -> Result<GradientEdge> {
        match self {
            Place::Tensor(t) => t.get().with(Tensor::gradient_edge).ok_or_else(|| {
                Error::autograd(format!(
                    "One of the differentiated Tensors does not require grad: input {number}; call requires_grad_() on it before the forward"
                ))
            }),
            Place::Edge(node, output) => GradientEdge::new(node.get().node(), *output),
        }
    }

    /// This place and the gradient to start from.
    fn root(&self, number: usize, gradient: Option<&Tensor>) -> Result<(GradientEdge, Tensor)> {
        match (self, gradient) {
            (Place::Tensor(t), None)
                if t.get().dispatches() && t.get().with(|t| t.numel() == 1 && t.requires_grad()) =>
            {
                root(&t.get().tensor(), number, Some(&one_of_class(t).map_err(from_py)?))
            }
            (Place::Tensor(t), gradient) => root(&t.get().tensor(), number, gradient),
            (Place::Edge(node, output), Some(gradient)) => {
                Ok((GradientEdge::new(node.get().node(), *output)?, gradient.clone()))
            }
            (Place::Edge(..), None) => {
                Err(Error::autograd("a GradientEdge as output needs its gradient: pass grad_outputs or grad_tensors"))
            }
        }
    }
}

/// The gradient to start from at an object whose class handles its ops.
fn one_of_class(output: &Bound<'_, PyTensor>) -> PyResult<Tensor> {
    let ones = output.py().import("rushlight")?.call_method1("ones_like", (output,))?;
    Ok(gradient_of(ones.cast::<PyTensor>()?))
}

fn root(output: &Tensor, number: usize, gradient: Option<&Tensor>) -> Result<(GradientEdge, Tensor)> {
    if let Some(g) = gradient
        && g.shape() != output.shape()
    {
        return Err(Error::shape(format!(
            "Mismatch in shape: grad_output[{number}] has a shape of {:?} and output[{number}] has a shape of {:?}.",
            g.shape(),
            output.shape()
        )));
    }
    autograd::root(output, gradient)
}

fn roots(places: &[Place<'_>], gradients: &[Option<Tensor>]) -> Result<Vec<(GradientEdge, Tensor)>> {
    let gradient = |i: usize| gradients.get(i).and_then(Option::as_ref);
    places.iter().enumerate().map(|(i, place)| place.root(i, gradient(i))).collect()
}

fn handles(tensors: &[Bound<'_, PyTensor>]) -> Vec<Tensor> {
    tensors.iter().map(|t| t.get().tensor()).collect()
}

fn optional(tensors: Vec<Option<Bound<'_, PyTensor>>>) -> Vec<Option<Tensor>> {
    tensors.into_iter().map(|t| t.map(|t| gradient_of(&t))).collect()
}

fn options(retain_graph: Option<bool>, create_graph: bool) -> Backward {
    let options = Backward::default().create_graph(create_graph);
    match retain_graph {
        Some(retain) => options.retain_graph(retain),
        None => options,
    }
}

/// Adds the gradients of tensors to the leaves they depend on, or only to the given inputs.
#[pyfunction]
#[pyo3(signature = (tensors, gradients, retain_graph=None, create_graph=false, inputs=None))]
fn _backward(
    py: Python<'_>,
    tensors: Vec<Place<'_>>,
    gradients: Vec<Option<Bound<'_, PyTensor>>>,
    retain_graph: Option<bool>,
    create_graph: bool,
    inputs: Option<Vec<Bound<'_, PyTensor>>>,
) -> PyResult<()> {
    let roots = roots(&tensors, &optional(gradients)).py()?;
    backward_from(py, roots, options(retain_graph, create_graph), inputs.map(|inputs| handles(&inputs)))
}

/// Calls `callback()` at the end of this thread's outermost running backward pass, if that pass succeeds.
#[pyfunction]
fn _queue_callback(callback: Py<PyAny>) -> PyResult<()> {
    autograd::queue_callback(move || Python::attach(|py| callback.call0(py)).map(drop).map_err(from_py)).py()
}

/// `Tensor.backward`.
pub fn backward<'py>(
    tensor: &Bound<'py, PyTensor>,
    gradient: Option<Bound<'py, PyTensor>>,
    retain_graph: Option<bool>,
    create_graph: bool,
    inputs: Option<Vec<Tensor>>,
) -> PyResult<()> {
    let gradient = gradient.map(|g| gradient_of(&g));
    let root = Place::Tensor(tensor.clone()).root(0, gradient.as_ref()).py()?;
    backward_from(tensor.py(), vec![root], options(retain_graph, create_graph), inputs)
}

fn backward_from(
    py: Python<'_>,
    roots: Vec<(GradientEdge, Tensor)>,
    options: Backward,
    inputs: Option<Vec<Tensor>>,
) -> PyResult<()> {
    let _hooks = HooksDuring::new();
    py.detach(|| {
        let _recording = autograd::set_grad_enabled(true);
        let Some(inputs) = &inputs else {
            return autograd::backward_from(roots, options, None).map(drop);
        };
        let wanted = inputs.iter().map(|t| {
            t.gradient_edge().ok_or_else(|| Error::autograd("One of the differentiated Tensors does not require grad"))
        });
        let wanted = wanted.collect::<Result<Vec<_>>>()?;
        let found = autograd::backward_from(roots, options.allow_unused(true), Some(&wanted))?;
        for (input, gradient) in inputs.iter().zip(found) {
            let Some(gradient) = gradient else { continue };
            input.add_gradient(&gradient)?;
        }
        Ok(())
    })
    .py()
}

/// Gradients of outputs by inputs.
#[pyfunction]
#[pyo3(signature = (outputs, inputs, gradients, retain_graph=None, create_graph=false, allow_unused=false))]
fn _grad<'py>(
    py: Python<'py>,
    outputs: Vec<Place<'py>>,
    inputs: Vec<Place<'py>>,
    gradients: Vec<Option<Bound<'py, PyTensor>>>,
    retain_graph: Option<bool>,
    create_graph: bool,
    allow_unused: bool,
) -> PyResult<Bound<'py, PyTuple>> {
    let roots = roots(&outputs, &optional(gradients)).py()?;
    let wanted = inputs.iter().enumerate().map(|(i, place)| place.edge(i)).collect::<Result<Vec<_>>>().py()?;
    let options = options(retain_graph, create_graph).allow_unused(allow_unused);
    let _hooks = HooksDuring::new();
    let found = py
        .detach(|| {
            let _recording = autograd::set_grad_enabled(true);
            autograd::backward_from(roots, options, Some(&wanted))
        })
        .py()?;
    let found = found.into_iter().map(|g| g.map(|g| wrap(py, g)).transpose()).collect::<PyResult<Vec<_>>>()?;
    PyTuple::new(py, found)
}

/// The leaves that outputs depend on, other than the given ones.
#[pyfunction]
fn _leaves<'py>(
    py: Python<'py>,
    outputs: Vec<Bound<'py, PyTensor>>,
    except: Vec<Bound<'py, PyTensor>>,
) -> PyResult<Vec<Bound<'py, PyTensor>>> {
    let (outputs, except) = (handles(&outputs), handles(&except));
    let found = autograd::leaves(&outputs.iter().collect::<Vec<_>>());
    found.into_iter().filter(|leaf| !except.iter().any(|t| t.is_same(leaf))).map(|leaf| wrap_known(py, leaf)).collect()
}

/// The handle that `register_hook` returns.
#[pyclass(name = "RemovableHandle", module = "rushlight", frozen)]
pub struct Handle(Mutex<Option<HookHandle>>);

impl From<HookHandle> for Handle {
    fn from(handle: HookHandle) -> Self {
        Self(Mutex::new(Some(handle)))
    }
}

#[pymethods]
impl Handle {
    fn remove(&self) {
        if let Some(handle) = lock(&self.0).take() {
            handle.remove();
        }
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.remove();
    }
}

pub fn tensor_or_none(object: &Bound<'_, PyAny>, call: &str) -> PyResult<Option<Tensor>> {
    if object.is_none() {
        return Ok(None);
    }
    match object.cast::<PyTensor>() {
        Ok(t) => Ok(Some(gradient_of(t))),
        Err(_) => Err(runtime_error(format!(
            "{call}: expected a Tensor or None, got {}",
            object.get_type().name().map_or_else(|_| "an object".into(), |n| n.to_string())
        ))),
    }
}

#[pymethods]
impl PyTensor {
    /// Calls `hook(grad)` when this tensor's gradient is computed; a returned tensor replaces the gradient.
    fn register_hook(&self, hook: Py<PyAny>) -> PyResult<Handle> {
        let call = move |gradient: &Tensor| {
            Python::attach(|py| {
                let gradient = wrap(py, gradient.clone())?;
                tensor_or_none(hook.call1(py, (gradient,))?.bind(py), "hook")
            })
            .map_err(from_py)
        };
        Ok(Handle(Mutex::new(Some(self.tensor().register_hook(call).py()?))))
    }

    /// Calls `hook(parameter)` after each backward has added to this leaf's gradient.
    fn register_post_accumulate_grad_hook(slf: &Bound<'_, Self>, hook: Py<PyAny>) -> PyResult<Handle> {
        // A weak reference: the hook must not keep the object alive that owns the hook.
        let weak = slf.py().import("weakref")?.call_method1("ref", (slf,))?.unbind();
        let call = move |parameter: &Tensor| {
            Python::attach(|py| {
                let object = weak.call0(py)?;
                match object.is_none(py) {
                    false => hook.call1(py, (object,))?,
                    true => hook.call1(py, (wrap(py, parameter.clone())?,))?,
                };
                Ok(())
            })
            .map_err(from_py)
        };
        Ok(Handle(Mutex::new(Some(slf.get().tensor().register_post_accumulate_grad_hook(call).py()?))))
    }

    /// The node of the graph that made this tensor, or `None` for leaves.
    #[getter]
    fn _grad_node(&self) -> Option<PyNode> {
        self.with(Tensor::grad_node).map(PyNode::from)
    }

    /// The node and the number of its output where this tensor's gradient arrives.
    fn _gradient_edge(&self) -> PyResult<(PyNode, usize)> {
        match self.with(Tensor::gradient_edge) {
            Some(edge) => Ok((edge.node().into(), edge.output())),
            None => Err(runtime_error(
                "It is not possible to get the gradient edge for a Tensor that does not require gradients",
            )),
        }
    }

    /// The tensor that this one is a view of.
    #[getter]
    fn _base<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTensor>>> {
        self.with(Tensor::base).map(|base| wrap_known(py, base)).transpose()
    }

    fn _is_view(&self) -> bool {
        self.with(Tensor::base).is_some()
    }
}

/// A function whose forward has already run in Python and whose backward will.
struct PythonFunction {
    name: &'static str,
    /// Taken by `forward`: the node keeps this function, and an output in it would keep the node.
    made: Mutex<Made>,
    returns_views: bool,
    backward: Py<PyAny>,
}

/// What a forward in Python made and said.
#[derive(Default)]
struct Made {
    outputs: Vec<Tensor>,
    saved: Vec<Tensor>,
    dirty: Vec<Tensor>,
    constant: Vec<Tensor>,
}

impl autograd::Function for PythonFunction {
    fn forward(&self, ctx: &mut Context, _inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let made = std::mem::take(&mut *lock(&self.made));
        ctx.save_for_backward(&made.saved.iter().collect::<Vec<_>>());
        ctx.mark_dirty(&made.dirty.iter().collect::<Vec<_>>());
        ctx.mark_non_differentiable(&made.constant.iter().collect::<Vec<_>>());
        Ok(made.outputs)
    }

    fn backward(&self, saved: &[Tensor], gradients: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Python::attach(|py| {
            let list = |tensors: Vec<Option<Tensor>>| {
                let objects =
                    tensors.into_iter().map(|t| t.map(|t| wrap(py, t)).transpose()).collect::<PyResult<Vec<_>>>()?;
                PyList::new(py, objects)
            };
            let saved = list(saved.iter().cloned().map(Some).collect())?;
            let gradients = list(gradients.to_vec())?;
            let found = self.backward.call1(py, (saved, gradients))?;
            found.bind(py).try_iter()?.map(|g| tensor_or_none(&g?, "backward")).collect::<PyResult<Vec<_>>>()
        })
        .map_err(from_py)
    }

    fn returns_views(&self) -> bool {
        self.returns_views
    }

    fn name(&self) -> &'static str {
        self.name
    }
}

/// Records outputs that a Python function computed from tensors: `dirty` ones are inputs that it changed in place,
/// `constant` ones have no gradient. `backward(saved, gradients)` gives one gradient (or `None`) per input. The node
/// keeps `context`. Returns the outputs and a handle to the node.
#[pyfunction]
fn _record_function<'py>(
    py: Python<'py>,
    name: &str,
    inputs: Vec<Bound<'py, PyTensor>>,
    outputs: Vec<Bound<'py, PyTensor>>,
    saved: Vec<Bound<'py, PyTensor>>,
    dirty: Vec<Bound<'py, PyTensor>>,
    constant: Vec<Bound<'py, PyTensor>>,
    returns_views: bool,
    backward: Py<PyAny>,
    context: Py<PyAny>,
) -> PyResult<(Vec<Bound<'py, PyTensor>>, Option<PyWeakNode>)> {
    let function = PythonFunction {
        name: intern(name),
        made: Mutex::new(Made {
            outputs: handles(&outputs),
            saved: handles(&saved),
            dirty: handles(&dirty),
            constant: handles(&constant),
        }),
        returns_views,
        backward,
    };
    let inputs = handles(&inputs);
    let (recorded, node) = autograd::apply_with_node(function, &inputs.iter().collect::<Vec<_>>()).py()?;
    let weak = node.map(|node| {
        graph::keep_context(py, &node, context);
        PyWeakNode::from(&node)
    });
    let objects = outputs.into_iter().zip(recorded).map(|(given, found)| {
        let kept = given.get().with(|t| t.is_same(&found));
        if kept { Ok(given) } else { wrap(py, found) }
    });
    Ok((objects.collect::<PyResult<_>>()?, weak))
}

/// `saved_tensors_hooks` of Python functions. `pack` may return any object.
pub struct PythonHooks {
    pack: Py<PyAny>,
    unpack: Py<PyAny>,
}

impl PythonHooks {
    pub fn new(pack: Py<PyAny>, unpack: Py<PyAny>) -> Self {
        Self { pack, unpack }
    }
}

impl autograd::SavedTensorsHooks for PythonHooks {
    fn pack(&self, tensor: &Tensor) -> Result<Box<dyn std::any::Any + Send + Sync>> {
        Python::attach(|py| {
            let packed = self.pack.call1(py, (wrap(py, tensor.clone())?,))?;
            Ok(Box::new(packed) as Box<dyn std::any::Any + Send + Sync>)
        })
        .map_err(from_py)
    }

    fn unpack(&self, packed: &(dyn std::any::Any + Send + Sync)) -> Result<Tensor> {
        let Some(packed) = packed.downcast_ref::<Py<PyAny>>() else {
            return Err(Error::value("saved_tensors_hooks: the object to unpack was not made by pack"));
        };
        Python::attach(|py| {
            let found = self.unpack.call1(py, (packed.clone_ref(py),))?;
            tensor_or_none(found.bind(py), "unpack_hook")?.ok_or_else(|| {
                PyTypeError::new_err("saved_tensors_hooks: the unpack hook must return a Tensor, not None")
            })
        })
        .map_err(from_py)
    }
}

/// Active hooks for saved tensors of this thread; the innermost last. Python's contexts are properly nested.
#[pyfunction]
fn _push_saved_tensors_hooks(pack: Py<PyAny>, unpack: Py<PyAny>) {
    let guard = autograd::saved_tensors_hooks(std::sync::Arc::new(PythonHooks { pack, unpack }));
    SAVED_TENSORS.with_borrow_mut(|guards| guards.push(guard));
}

/// Hooks of Rust, until `_pop_saved_tensors_hooks`.
#[cfg(target_os = "linux")]
pub fn push_saved_tensors_hooks(hooks: std::sync::Arc<dyn autograd::SavedTensorsHooks>) {
    let guard = autograd::saved_tensors_hooks(hooks);
    SAVED_TENSORS.with_borrow_mut(|guards| guards.push(guard));
}

/// Keeps saved tensors on the CPU.
#[pyfunction]
fn _push_save_on_cpu(pin_memory: bool) {
    let guard = autograd::save_on_cpu(pin_memory);
    SAVED_TENSORS.with_borrow_mut(|guards| guards.push(guard));
}

#[pyfunction]
fn _pop_saved_tensors_hooks() {
    let last = SAVED_TENSORS.with_borrow_mut(Vec::pop);
    drop(last);
}

/// The number of the backward pass under way, -1 outside of one.
#[pyfunction]
fn _current_graph_task_id() -> i64 {
    autograd::current_pass().map_or(-1, |pass| pass.id as i64)
}

/// Whether a backward pass that is started now within another one may add to `.grad`, as that one does.
#[pyfunction]
fn _is_checkpoint_valid() -> bool {
    autograd::current_pass().is_none_or(|pass| !pass.is_to_inputs)
}

/// Removes hooks that were pushed during a backward pass when it ends.
struct HooksDuring(usize);

impl HooksDuring {
    fn new() -> Self {
        Self(SAVED_TENSORS.with_borrow(Vec::len))
    }
}

impl Drop for HooksDuring {
    fn drop(&mut self) {
        let pushed = SAVED_TENSORS.with_borrow_mut(|guards| guards.split_off(self.0.min(guards.len())));
        drop(pushed);
    }
}

thread_local! {
    static SAVED_TENSORS: std::cell::RefCell<Vec<autograd::SavedTensorsGuard>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Names of functions are leaked; a program has few.
fn intern(name: &str) -> &'static str {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = lock(&NAMES);
    match names.iter().find(|n| **n == name) {
        Some(known) => known,
        None => {
            let new: &'static str = Box::leak(name.to_string().into_boxed_str());
            names.push(new);
            new
        }
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Handle>()?;
    module.add_function(wrap_pyfunction!(_set_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(is_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(_set_inference_mode, module)?)?;
    module.add_function(wrap_pyfunction!(is_inference_mode_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(_set_detect_anomaly, module)?)?;
    module.add_function(wrap_pyfunction!(is_anomaly_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(_set_autocast, module)?)?;
    module.add_function(wrap_pyfunction!(_autocast_dtype, module)?)?;
    module.add_function(wrap_pyfunction!(_backward, module)?)?;
    module.add_function(wrap_pyfunction!(_queue_callback, module)?)?;
    module.add_function(wrap_pyfunction!(_grad, module)?)?;
    module.add_function(wrap_pyfunction!(_leaves, module)?)?;
    module.add_function(wrap_pyfunction!(_record_function, module)?)?;
    module.add_function(wrap_pyfunction!(_push_saved_tensors_hooks, module)?)?;
    module.add_function(wrap_pyfunction!(_push_save_on_cpu, module)?)?;
    module.add_function(wrap_pyfunction!(_pop_saved_tensors_hooks, module)?)?;
    module.add_function(wrap_pyfunction!(_current_graph_task_id, module)?)?;
    module.add_function(wrap_pyfunction!(_is_checkpoint_valid, module)?)?;
    Ok(())
}
