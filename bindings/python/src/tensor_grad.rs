//! Autograd attributes of tensors: gradients, `backward`, `detach` and `data`.

use crate::dtype::{self, PyDType};
use crate::error::{IntoPyResult, runtime_error};
use crate::overrides;
use crate::tensor::{PyTensor, as_tensor, wrap};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rushlight_tensor::Tensor;

/// The values of a dict; other objects as they are.
fn values_of(inputs: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    match inputs.cast_exact::<PyDict>() {
        Ok(named) => Ok(named.values().into_any()),
        Err(_) => Ok(inputs),
    }
}

#[pymethods]
impl PyTensor {
    #[getter]
    fn requires_grad(&self) -> bool {
        self.with(Tensor::requires_grad)
    }

    #[setter]
    fn set_requires_grad(&self, value: bool) -> PyResult<()> {
        self.tensor().requires_grad_(value).py().map(|_| ())
    }

    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(slf: &Bound<'py, Self>, requires_grad: bool) -> PyResult<Bound<'py, Self>> {
        slf.get().set_requires_grad(requires_grad)?;
        Ok(slf.clone())
    }

    #[getter]
    fn is_leaf(&self) -> bool {
        self.with(Tensor::is_leaf)
    }

    #[getter]
    fn retains_grad(&self) -> bool {
        self.with(Tensor::retains_grad)
    }

    fn retain_grad(&self) -> PyResult<()> {
        self.with(Tensor::retain_grad).py()
    }

    #[getter]
    fn get_grad<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTensor>>> {
        let Some(grad) = self.with(Tensor::grad) else {
            self.grad.replace(None);
            return Ok(None);
        };
        let known = self.grad.with(|cached| match cached {
            Some(object) if object.get().with(|g| g.is_same(&grad)) => Some(object.clone_ref(py)),
            _ => None,
        });
        if let Some(object) = known {
            return Ok(Some(object.into_bound(py)));
        }
        let object = wrap(py, grad)?;
        self.grad.replace(Some(object.clone().unbind()));
        Ok(Some(object))
    }

    #[setter]
    fn set_grad(&self, grad: Option<Bound<'_, PyTensor>>) -> PyResult<()> {
        self.tensor().set_grad(grad.as_ref().map(|g| g.get().tensor())).py()?;
        self.grad.replace(grad.map(Bound::unbind));
        Ok(())
    }

    /// `del x.grad`: as `x.grad = None`.
    #[deleter]
    fn delete_grad(&self) -> PyResult<()> {
        self.forget_grad().py()
    }

    #[getter]
    fn get_grad_dtype(&self, py: Python<'_>) -> PyResult<Option<Py<PyDType>>> {
        self.with(Tensor::grad_dtype).map(|d| dtype::object(py, d)).transpose()
    }

    #[setter]
    fn set_grad_dtype(&self, dtype: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let dtype = match &dtype {
            None => None,
            Some(object) => Some(object.cast::<PyDType>().map_err(|_| {
                runtime_error(format!(
                    "grad_dtype must be a torch.dtype or None, but got {}",
                    object.get_type().name().map_or_else(|_| "another object".into(), |n| n.to_string())
                ))
            })?),
        };
        self.tensor().set_grad_dtype(dtype.map(|d| d.get().core()).transpose()?).py()
    }

    /// Adds the gradients of this tensor to the `.grad` of the leaves it depends on.
    #[pyo3(signature = (gradient=None, retain_graph=None, create_graph=false, inputs=None))]
    fn backward<'py>(
        slf: &Bound<'py, Self>,
        gradient: Option<Bound<'py, PyTensor>>,
        retain_graph: Option<bool>,
        create_graph: bool,
        inputs: Option<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let inputs = match inputs {
            None => None,
            Some(inputs) => Some(match as_tensor(&inputs) {
                Some(one) => vec![one.get().tensor()],
                None => values_of(inputs)?
                    .try_iter()?
                    .map(|t| Ok(t?.cast_into::<PyTensor>()?.get().tensor()))
                    .collect::<PyResult<_>>()?,
            }),
        };
        crate::autograd::backward(slf, gradient, retain_graph, create_graph, inputs)
    }

    #[getter]
    fn get_data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        match overrides::attribute("data", slf)? {
            Some(answer) => Ok(answer),
            None => Ok(wrap(slf.py(), slf.get().with(Tensor::data))?.into_any()),
        }
    }

    /// The object keeps its identity, gradient and hooks; its elements are replaced by another tensor's.
    #[setter]
    fn set_data(&self, data: &Bound<'_, PyTensor>) -> PyResult<()> {
        let (old, new) = (self.tensor(), data.get().tensor().detach());
        let new = new.requires_grad_(old.requires_grad()).py()?;
        if let Some(grad) = old.grad()
            && grad.shape() == new.shape()
            && grad.dtype() == new.dtype()
        {
            new.set_grad(Some(grad)).py()?;
        }
        self.replace(new);
        Ok(())
    }

    fn detach<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        match overrides::method("detach", slf, &[])? {
            Some(answer) => Ok(answer),
            None => Ok(wrap(slf.py(), slf.get().with(Tensor::detach))?.into_any()),
        }
    }

    fn detach_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        if slf.get().with(Tensor::is_view) {
            return Err(runtime_error(
                "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for training, and \
                 gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence detach_() cannot be called on \
                 these gradients.",
            ));
        }
        let detached = slf.get().with(Tensor::detach);
        slf.get().replace(detached);
        Ok(slf.clone())
    }
}
