//! Exported models: programs of ops with their weights, as `torch.jit.load` and `torch.export` return them.

use crate::device::PyDevice;
use crate::dtype::{self, PyDType};
use crate::error::{IntoPyResult, type_error};
use crate::tensor::{as_tensor, wrap_known};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use rushlight_graph::{IValue, Model, extra_files, onnx};
use rushlight_io::records::Records;
use rushlight_tensor::state::StateDict;
use std::path::PathBuf;
use std::sync::PoisonError;

pub fn value(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<IValue> {
    if depth > 100 {
        return Err(type_error("arguments of a program are nested too deeply"));
    }
    if let Some(tensor) = as_tensor(object) {
        return Ok(IValue::Tensor(tensor.get().tensor()));
    }
    Ok(if object.is_none() {
        IValue::None
    } else if let Ok(b) = object.cast::<PyBool>() {
        IValue::Bool(b.is_true())
    } else if object.cast::<PyInt>().is_ok() {
        IValue::Int(object.extract()?)
    } else if object.cast::<PyFloat>().is_ok() {
        IValue::Float(object.extract()?)
    } else if let Ok(text) = object.cast::<PyString>() {
        IValue::from(text.extract::<String>()?.as_str())
    } else if object.cast::<PyList>().is_ok() || object.cast::<PyTuple>().is_ok() {
        let items = object.try_iter()?.map(|item| value(&item?, depth + 1)).collect::<PyResult<Vec<_>>>()?;
        if object.cast::<PyList>().is_ok() { IValue::list(items) } else { IValue::tuple(items) }
    } else if let Ok(dict) = object.cast::<PyDict>() {
        let entries = dict.iter().map(|(k, v)| Ok((value(&k, depth + 1)?, value(&v, depth + 1)?)));
        IValue::dict(entries.collect::<PyResult<Vec<_>>>()?)
    } else if let Ok(dtype) = object.cast::<PyDType>() {
        IValue::DType(dtype.get().core()?)
    } else if let Ok(device) = object.cast::<PyDevice>() {
        IValue::Device(device.get().resolve(object.py())?)
    } else {
        return Err(type_error(format!("a program does not take arguments of type {}", object.get_type().name()?)));
    })
}

pub fn object<'py>(py: Python<'py>, value: &IValue) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        IValue::None => py.None().into_bound(py),
        IValue::Bool(b) => PyBool::new(py, *b).to_owned().into_any(),
        IValue::Int(i) => i.into_pyobject(py)?.into_any(),
        IValue::Float(x) => x.into_pyobject(py)?.into_any(),
        IValue::Str(s) => PyString::new(py, s).into_any(),
        IValue::Tensor(t) => wrap_known(py, t.clone())?.into_any(),
        IValue::List(items) => {
            let items = items.lock().unwrap_or_else(PoisonError::into_inner).clone();
            PyList::new(py, items.iter().map(|v| object(py, v)).collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        IValue::Tuple(items) => {
            PyTuple::new(py, items.iter().map(|v| object(py, v)).collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        IValue::Dict(entries) => {
            let entries = entries.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let out = PyDict::new(py);
            for (k, v) in &entries {
                out.set_item(object(py, k)?, object(py, v)?)?;
            }
            out.into_any()
        }
        IValue::Object(found) => {
            let fields = PyDict::new(py);
            for (name, value) in found.fields() {
                fields.set_item(name, object(py, &value)?)?;
            }
            // Named tuples and other classes of a program.
            let class = py.import("types")?.getattr("SimpleNamespace")?;
            class.call((), Some(&fields))?
        }
        IValue::DType(d) => dtype::object(py, *d)?.into_bound(py).into_any(),
        IValue::Device(d) => py.import("rushlight")?.getattr("device")?.call1((d.to_string(),))?,
        IValue::Function(name) => PyString::new(py, name).into_any(),
    })
}

fn state_of(weights: &Bound<'_, PyDict>) -> PyResult<StateDict> {
    let mut state = StateDict::new();
    for (name, tensor) in weights.iter() {
        let tensor = as_tensor(&tensor).ok_or_else(|| type_error("weights must be tensors"))?.get().tensor();
        state.insert(name.extract()?, tensor);
    }
    Ok(state)
}

/// A program with its weights.
#[pyclass(name = "_Program", module = "rushlight._C", frozen)]
struct Program(Model);

#[pymethods]
impl Program {
    /// Reads a `.rlm` file, a TorchScript archive or an ONNX file.
    #[staticmethod]
    fn load(path: PathBuf) -> PyResult<Self> {
        Model::load(path).py().map(Self)
    }

    /// The same for bytes.
    #[staticmethod]
    fn from_bytes(bytes: &Bound<'_, PyBytes>) -> PyResult<Self> {
        Model::from_bytes(bytes.as_bytes()).py().map(Self)
    }

    /// Files beside the model in an archive, of a path or bytes; `None` for those it does not have.
    #[staticmethod]
    fn extra_files<'py>(
        py: Python<'py>,
        file: &Bound<'_, PyAny>,
        names: Vec<String>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let archive = match file.cast::<PyBytes>() {
            Ok(bytes) => Records::from_bytes(bytes.as_bytes()).py()?,
            Err(_) => Records::open(file.extract::<PathBuf>()?).py()?,
        };
        let found = extra_files(&archive, &names).py()?;
        Ok(found.into_iter().map(|bytes| bytes.map(|b| PyBytes::new(py, &b))).collect())
    }

    /// A program of text, with its weights by name.
    #[staticmethod]
    fn from_text(text: &str, weights: &Bound<'_, PyDict>) -> PyResult<Self> {
        Model::from_text(text, state_of(weights)?).py().map(Self)
    }

    /// A program of an archive's text, with the weights that it names.
    #[staticmethod]
    fn parse(text: &str, weights: &Bound<'_, PyDict>) -> PyResult<Self> {
        Model::parse(text, state_of(weights)?).py().map(Self)
    }

    /// The archive's text and weights.
    fn archive<'py>(&self, py: Python<'py>) -> PyResult<(String, Bound<'py, PyDict>)> {
        let (text, weights) = self.0.archive().py()?;
        let out = PyDict::new(py);
        for (name, tensor) in weights {
            out.set_item(name, wrap_known(py, tensor)?)?;
        }
        Ok((text, out))
    }

    /// Runs a function.
    fn call<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let args = args.iter().map(|a| value(&a, 0)).collect::<PyResult<Vec<_>>>()?;
        let named = kwargs.iter().map(|(k, v)| Ok((k.extract()?, value(&v, 0)?))).collect::<PyResult<Vec<_>>>()?;
        let out = py.detach(|| self.0.call(method, args, named)).py()?;
        object(py, &out)
    }

    /// Weights by name.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        for (name, tensor) in self.0.state_dict() {
            out.set_item(name, wrap_known(py, tensor)?)?;
        }
        Ok(out)
    }

    /// Names of the functions that can be called.
    fn methods(&self) -> Vec<String> {
        match &self.0.root {
            Some(root) => {
                let class = self.0.unit.class(&root.class);
                let names = class.iter().flat_map(|c| c.methods.iter());
                names.filter_map(|m| m.name.rsplit_once('.').map(|(_, n)| n.to_string())).collect()
            }
            None => self.0.unit.functions().map(|f| f.name.clone()).collect(),
        }
    }

    /// A field of the module.
    fn field<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.0.root.as_ref().and_then(|root| root.get(name));
        found.map(|v| object(py, &v)).transpose()
    }

    /// Sets `training` of the module and its submodules.
    fn train(&self, mode: bool) {
        self.0.train(mode);
    }

    /// The program as text.
    fn text(&self) -> PyResult<String> {
        self.0.text().py()
    }

    /// The program for inference: constants and batch norms folded.
    fn freeze(&self, py: Python<'_>) -> PyResult<Self> {
        py.detach(|| self.0.freeze()).py().map(Self)
    }

    /// The bytes of an ONNX file. Sizes that differ between the examples are dynamic.
    fn onnx<'py>(
        &self,
        py: Python<'py>,
        examples: Vec<Bound<'py, PyTuple>>,
        opset: i64,
        input_names: Vec<String>,
        output_names: Vec<String>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let list = |e: &Bound<'_, PyTuple>| e.iter().map(|a| value(&a, 0)).collect::<PyResult<Vec<_>>>();
        let examples = examples.iter().map(list).collect::<PyResult<Vec<_>>>()?;
        let options = onnx::out::Options { opset, input_names, output_names };
        let bytes = py.detach(|| onnx::out::export(&self.0, &examples, &options)).py()?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes a `.rlm` file, with further files beside the program.
    #[pyo3(signature = (path, extra=Vec::new()))]
    fn save(&self, py: Python<'_>, path: PathBuf, extra: Vec<(String, Vec<u8>)>) -> PyResult<()> {
        py.detach(|| self.0.save_with(path, &extra)).py()
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Program>()
}
