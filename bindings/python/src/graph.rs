//! Nodes of the recorded graph. `rushlight.autograd.graph` gives them PyTorch's classes.

use crate::autograd::{Handle, PythonHooks, tensor_or_none};
use crate::error::{IntoPyResult, from_py, runtime_error};
use crate::tensor::{PyTensor, wrap, wrap_known};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rushlight_core::Result;
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{GraphNode, SavedValue, WeakGraphNode};
use std::sync::Arc;

/// A node of the graph.
#[pyclass(name = "_GraphNode", module = "rushlight._C", frozen)]
pub struct PyNode(GraphNode);

impl From<GraphNode> for PyNode {
    fn from(node: GraphNode) -> Self {
        Self(node)
    }
}

/// A node that this object does not keep alive.
#[pyclass(name = "_WeakGraphNode", module = "rushlight._C", frozen)]
pub struct PyWeakNode(WeakGraphNode);

impl From<&GraphNode> for PyWeakNode {
    fn from(node: &GraphNode) -> Self {
        Self(node.downgrade())
    }
}

#[pymethods]
impl PyWeakNode {
    /// The node, or `None` if it is gone.
    fn __call__(&self) -> Option<PyNode> {
        self.0.upgrade().map(PyNode)
    }
}

/// A tensor that a step keeps.
#[pyclass(name = "_SavedValue", module = "rushlight._C", frozen)]
pub struct PySavedValue {
    node: WeakGraphNode,
    value: SavedValue,
}

#[pymethods]
impl PySavedValue {
    #[getter]
    fn tensor<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTensor>> {
        wrap_known(py, self.value.tensor.clone())
    }

    #[getter]
    fn output(&self) -> Option<usize> {
        self.value.output
    }

    /// Lets `pack` store the tensor in another form, which `unpack` restores.
    fn pack(&self, py: Python<'_>, pack: Py<PyAny>, unpack: Py<PyAny>) -> PyResult<()> {
        let Some(node) = self.node.upgrade() else {
            return Err(runtime_error("register_hooks: the step that saved the tensor is gone"));
        };
        let hooks = Arc::new(PythonHooks::new(pack, unpack));
        py.detach(|| node.pack_saved(&self.value, hooks)).py()
    }
}

/// Python's objects that a node keeps.
struct Attached {
    metadata: Py<PyDict>,
    context: Option<Py<PyAny>>,
}

/// Lets a node keep the context of a function written in Python.
pub fn keep_context(py: Python<'_>, node: &GraphNode, context: Py<PyAny>) {
    node.attach(Arc::new(Attached { metadata: PyDict::new(py).unbind(), context: Some(context) }));
}

fn attached(node: &GraphNode) -> Option<Arc<Attached>> {
    node.attachment().and_then(|any| any.downcast::<Attached>().ok())
}

/// Gradients as a tuple for a hook.
fn tuple<'py>(py: Python<'py>, gradients: &[Option<Tensor>]) -> PyResult<Bound<'py, PyTuple>> {
    let objects = gradients.iter().map(|g| g.clone().map(|g| wrap(py, g)).transpose());
    PyTuple::new(py, objects.collect::<PyResult<Vec<_>>>()?)
}

/// What a hook returned: nothing, one gradient, or a tuple of them.
fn returned(found: &Bound<'_, PyAny>, call: &str) -> PyResult<Option<Vec<Option<Tensor>>>> {
    if found.is_none() {
        return Ok(None);
    }
    match found.cast::<PyTuple>() {
        Ok(items) => items.iter().map(|item| tensor_or_none(&item, call)).collect::<PyResult<Vec<_>>>().map(Some),
        Err(_) => Ok(Some(vec![tensor_or_none(found, call)?])),
    }
}

impl PyNode {
    pub fn node(&self) -> &GraphNode {
        &self.0
    }
}

#[pymethods]
impl PyNode {
    #[getter]
    fn name(&self) -> String {
        self.0.name()
    }

    #[getter]
    fn id(&self) -> usize {
        self.0.id()
    }

    #[getter]
    fn sequence(&self) -> u64 {
        self.0.sequence()
    }

    #[getter]
    fn outputs(&self) -> usize {
        self.0.outputs()
    }

    /// The nodes of the inputs with the numbers of their outputs.
    #[getter]
    fn inputs(&self) -> Vec<(Option<PyNode>, usize)> {
        let pair = |edge: Option<(GraphNode, usize)>| match edge {
            Some((node, slot)) => (Some(PyNode(node)), slot),
            None => (None, 0),
        };
        self.0.next_functions().into_iter().map(pair).collect()
    }

    /// The leaf whose gradient this node accumulates.
    #[getter]
    fn variable<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTensor>>> {
        self.0.variable().map(|leaf| wrap_known(py, leaf)).transpose()
    }

    /// A dictionary for the user's own data, kept as long as the node.
    #[getter]
    fn metadata(&self, py: Python<'_>) -> Py<PyDict> {
        if let Some(attached) = attached(&self.0) {
            return attached.metadata.clone_ref(py);
        }
        let metadata = PyDict::new(py).unbind();
        self.0.attach(Arc::new(Attached { metadata: metadata.clone_ref(py), context: None }));
        metadata
    }

    /// The context of a function written in Python.
    #[getter]
    fn context(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        attached(&self.0).and_then(|a| a.context.as_ref().map(|c| c.clone_ref(py)))
    }

    /// What a function written in Python keeps for its backward; `None` once it was freed.
    fn saved_tensors<'py>(&self, py: Python<'py>) -> PyResult<Option<Vec<Bound<'py, PyTensor>>>> {
        let saved = self.0.saved_tensors().py()?;
        saved.map(|saved| saved.into_iter().map(|t| wrap_known(py, t)).collect()).transpose()
    }

    /// What a built-in step keeps for its backward, from gradients of its outputs, which are not used otherwise: each
    /// tensor, and which output of the step it is.
    fn saved_values(&self, py: Python<'_>, gradients: Vec<Option<Bound<'_, PyTensor>>>) -> PyResult<Vec<PySavedValue>> {
        let gradients = gradients.iter().map(|g| g.as_ref().map(|g| g.get().tensor())).collect();
        let values = py.detach(|| self.0.saved_values(gradients)).py()?;
        Ok(values.into_iter().map(|value| PySavedValue { node: self.0.downgrade(), value }).collect())
    }

    /// A handle that does not keep the node alive.
    fn weak(&self) -> PyWeakNode {
        PyWeakNode::from(&self.0)
    }

    /// Calls `hook(grad_outputs)` before the node runs; a returned tuple replaces the gradients.
    fn register_prehook(&self, hook: Py<PyAny>) -> Handle {
        let call = move |gradients: &[Option<Tensor>]| -> Result<_> {
            Python::attach(|py| returned(hook.call1(py, (tuple(py, gradients)?,))?.bind(py), "pre-hook"))
                .map_err(from_py)
        };
        self.0.register_prehook(call).into()
    }

    /// Calls `hook(grad_inputs, grad_outputs)` after the node has run; a returned tuple replaces `grad_inputs`.
    fn register_hook(&self, hook: Py<PyAny>) -> Handle {
        let call = move |inputs: &[Option<Tensor>], outputs: &[Option<Tensor>]| -> Result<_> {
            Python::attach(|py| returned(hook.call1(py, (tuple(py, inputs)?, tuple(py, outputs)?))?.bind(py), "hook"))
                .map_err(from_py)
        };
        self.0.register_hook(call).into()
    }

    /// Runs the node alone: gradients of its inputs from those of its outputs.
    #[pyo3(signature = (*gradients))]
    fn call<'py>(&self, py: Python<'py>, gradients: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let gradients = gradients.iter().map(|g| tensor_or_none(&g, "grad_fn")).collect::<PyResult<Vec<_>>>()?;
        let found = py.detach(|| self.0.call(gradients)).py()?;
        match &found[..] {
            [Some(one)] => Ok(wrap(py, one.clone())?.into_any()),
            [None] | [] => Ok(py.None().into_bound(py)),
            many => Ok(tuple(py, many)?.into_any()),
        }
    }

    /// Nodes are compared by the objects of `rushlight.autograd.graph`.
    fn __hash__(&self) -> PyResult<isize> {
        Err(runtime_error("_GraphNode: use its id"))
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyWeakNode>()?;
    module.add_class::<PySavedValue>()?;
    module.add_class::<PyNode>()
}
