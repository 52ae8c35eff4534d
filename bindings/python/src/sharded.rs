//! The compiled part of `torch.distributed.tensor` and `torch.distributed.fsdp`: meshes, placements and their rules,
//! groups of sharded parameters. PyTorch's classes are in Python.

use crate::dist::{PyGroup, reduce_op};
use crate::dtype::PyDType;
use crate::error::{IntoPyResult, value_error};
use crate::tensor::{PyTensor, wrap};
use pyo3::prelude::*;
use rushlight_dist::dtensor::{self, Input, Linearity, Plan, Reduction, Rule};
use rushlight_dist::{DeviceMesh, Placement, ReduceOp, ShardGroup, ShardOptions, ZeroStage};
use rushlight_tensor::Tensor;
use std::sync::Arc;

/// A mesh of ranks.
#[pyclass(name = "_Mesh", module = "rushlight._C", frozen)]
struct PyMesh(Arc<DeviceMesh>);

#[pymethods]
impl PyMesh {
    #[new]
    fn new(
        ranks: Vec<usize>,
        shape: Vec<usize>,
        names: Vec<String>,
        rank: usize,
        groups: Vec<PyRef<'_, PyGroup>>,
    ) -> PyResult<Self> {
        let groups = groups.iter().map(|g| g.0.clone()).collect();
        Ok(Self(Arc::new(DeviceMesh::from_groups(ranks, shape, names, rank, groups).py()?)))
    }

    #[getter]
    fn coordinate(&self) -> Option<Vec<usize>> {
        self.0.coordinate().map(<[usize]>::to_vec)
    }
}

/// `S0`, `T0` (strided), `R`, `Psum`.
fn placement(text: &str) -> PyResult<Placement> {
    let bad = || value_error(format!("unknown placement {text}"));
    let (kind, rest) = text.split_at_checked(1).ok_or_else(bad)?;
    Ok(match kind {
        "S" => Placement::Shard(rest.parse().map_err(|_| bad())?),
        "T" => Placement::StridedShard(rest.parse().map_err(|_| bad())?),
        "R" => Placement::Replicate,
        "P" => Placement::Partial(reduce_op(rest)?),
        _ => return Err(bad()),
    })
}

fn text(placement: Placement) -> PyResult<String> {
    Ok(match placement {
        Placement::Shard(dim) => format!("S{dim}"),
        Placement::StridedShard(dim) => format!("T{dim}"),
        Placement::Replicate => "R".into(),
        Placement::Partial(ReduceOp::Mean) => "Pavg".into(),
        Placement::Partial(ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor) => {
            return Err(value_error("placements of bitwise reductions have no name"));
        }
        Placement::Partial(op) => format!("P{op}"),
    })
}

fn placements(all: &[String]) -> PyResult<Vec<Placement>> {
    all.iter().map(|p| placement(p)).collect()
}

fn texts(all: &[Placement]) -> PyResult<Vec<String>> {
    all.iter().map(|p| text(*p)).collect()
}

/// A local part under other placements.
#[pyfunction]
fn _redistribute<'py>(
    py: Python<'py>,
    local: &Bound<'py, PyTensor>,
    mesh: &PyMesh,
    shape: Vec<usize>,
    from: Vec<String>,
    to: Vec<String>,
) -> PyResult<Bound<'py, PyTensor>> {
    let (tensor, from, to) = (local.get().tensor(), placements(&from)?, placements(&to)?);
    wrap(py, py.detach(|| dtensor::redistribute(&tensor, &mesh.0, &shape, &from, &to)).py()?)
}

/// The same local part, whose gradient is brought from one placement to another.
#[pyfunction]
fn _regrade<'py>(
    py: Python<'py>,
    local: &Bound<'py, PyTensor>,
    mesh: &PyMesh,
    shape: Vec<usize>,
    from: Vec<String>,
    to: Vec<String>,
) -> PyResult<Bound<'py, PyTensor>> {
    let (from, to) = (placements(&from)?, placements(&to)?);
    wrap(py, dtensor::regrade(&local.get().tensor(), &mesh.0, &shape, &from, &to).py()?)
}

/// Offset and size of this rank's part along each dimension.
#[pyfunction]
fn _local_part(shape: Vec<usize>, mesh: &PyMesh, placed: Vec<String>) -> PyResult<Vec<(usize, usize)>> {
    dtensor::local_part(&shape, &mesh.0, &placements(&placed)?).py()
}

fn reduction(name: &str) -> PyResult<Reduction> {
    Ok(match name {
        "sum" => Reduction::Sum,
        "mean" => Reduction::Mean,
        "max" => Reduction::Max,
        "min" => Reduction::Min,
        "other" => Reduction::Other,
        _ => return Err(value_error(format!("unknown reduction {name}"))),
    })
}

/// A rule by its name, a word and numbers.
fn rule(kind: &str, word: &str, numbers: Vec<usize>, flag: bool) -> PyResult<Rule> {
    Ok(match kind {
        "pointwise" => Rule::Pointwise(match word {
            "sum" => Linearity::Sum,
            "product" => Linearity::Product,
            "first" => Linearity::First,
            _ => Linearity::None,
        }),
        "matmul" => Rule::MatMul,
        "linear" => Rule::Linear,
        "reduce" => Rule::Reduce { dims: numbers, keepdim: flag, how: reduction(word)? },
        "permute" => Rule::Permute(numbers),
        "view" => Rule::View(numbers),
        "along" => Rule::Along(numbers),
        "cat" => Rule::Cat(numbers.first().copied().unwrap_or(0)),
        "embedding" => Rule::Embedding,
        "attention" => Rule::Attention,
        "labels" => Rule::labels(word).py()?,
        "loss" => Rule::Loss(if word == "none" { None } else { Some(reduction(word)?) }),
        _ => return Err(value_error(format!("unknown sharding rule {kind}"))),
    })
}

/// How an op runs on local parts.
#[pyclass(name = "_Plan", module = "rushlight._C", frozen)]
struct PyPlan(Plan, Arc<DeviceMesh>);

#[pymethods]
impl PyPlan {
    /// The plan of an op: its name, its rule, and the shapes and placements of its distributed inputs.
    #[new]
    fn new(
        name: &str,
        how: (String, String, Vec<usize>, bool),
        inputs: Vec<(Vec<usize>, Vec<String>)>,
        mesh: &PyMesh,
    ) -> PyResult<Self> {
        let rule = rule(&how.0, &how.1, how.2, how.3)?;
        let inputs = inputs
            .into_iter()
            .map(|(shape, placed)| Ok(Input { shape, placements: placements(&placed)? }))
            .collect::<PyResult<Vec<_>>>()?;
        Ok(Self(dtensor::plan(name, &rule, &inputs, &mesh.0).py()?, mesh.0.clone()))
    }

    #[getter]
    fn inputs(&self) -> PyResult<Vec<Vec<String>>> {
        self.0.inputs.iter().map(|p| texts(p)).collect()
    }

    #[getter]
    fn output(&self) -> PyResult<Vec<String>> {
        texts(&self.0.output)
    }

    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.0.shape.clone()
    }

    #[getter]
    fn local(&self) -> Vec<usize> {
        self.0.local.clone()
    }

    /// The global shape of a result whose local part has a shape.
    fn whole(&self, name: &str, local: Vec<usize>) -> PyResult<Vec<usize>> {
        self.0.whole(name, &local).py()
    }

    /// Input `index` as the op needs it.
    fn prepare<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        local: &Bound<'py, PyTensor>,
        shape: Vec<usize>,
        from: Vec<String>,
    ) -> PyResult<Bound<'py, PyTensor>> {
        let (tensor, from) = (local.get().tensor(), placements(&from)?);
        let Some(to) = self.0.inputs.get(index) else {
            return Err(value_error(format!("the plan has no input {index}")));
        };
        wrap(py, py.detach(|| self.0.prepare(&tensor, &self.1, &shape, &from, to)).py()?)
    }
}

/// Parameters of a block, sharded over ranks.
#[pyclass(name = "_ShardGroup", module = "rushlight._C", frozen)]
struct PyShardGroup(Arc<ShardGroup>);

fn handles(tensors: &[Bound<'_, PyTensor>]) -> Vec<Tensor> {
    tensors.iter().map(|t| t.get().tensor()).collect()
}

fn dtype(dtype: Option<&Bound<'_, PyDType>>) -> PyResult<Option<rushlight_core::DType>> {
    dtype.map(|d| d.get().core()).transpose()
}

#[pymethods]
impl PyShardGroup {
    #[new]
    #[pyo3(signature = (shapes, dims, dtype_of_shards, ranks, replicas=None, param_dtype=None, reduce_dtype=None))]
    fn new(
        shapes: Vec<Vec<usize>>,
        dims: Vec<usize>,
        dtype_of_shards: &Bound<'_, PyDType>,
        ranks: &PyGroup,
        replicas: Option<&PyGroup>,
        param_dtype: Option<&Bound<'_, PyDType>>,
        reduce_dtype: Option<&Bound<'_, PyDType>>,
    ) -> PyResult<Self> {
        let options = ShardOptions {
            param_dtype: dtype(param_dtype)?,
            reduce_dtype: dtype(reduce_dtype)?,
            ..ShardOptions::default()
        };
        let replicas = replicas.map(|g| g.0.clone());
        let dtype = dtype_of_shards.get().core()?;
        let made = ShardGroup::along(&shapes, &dims, dtype, ranks.0.clone(), replicas, options);
        Ok(Self(made.py()?))
    }

    /// Sets the ranks that keep parts of the parameters between the passes; none if `None`.
    #[pyo3(signature = (ranks))]
    fn keep_among(&self, ranks: Option<&PyGroup>) {
        let ranks = ranks.map(|g| g.0.clone());
        self.0.configure(|options| options.keep_among = ranks);
    }

    /// Sets when gathered parameters are freed: 1, 2 or 3 as ZeRO's stages.
    fn set_stage(&self, stage: usize) -> PyResult<()> {
        let stage = match stage {
            1 => ZeroStage::One,
            2 => ZeroStage::Two,
            3 => ZeroStage::Three,
            _ => return Err(value_error(format!("ZeRO has no stage {stage}"))),
        };
        self.0.configure(|options| options.stage = stage);
        Ok(())
    }

    /// Sets where the block runs: on the device of a tensor.
    fn set_device_of(&self, tensor: &Bound<'_, PyTensor>) {
        let device = tensor.get().tensor().device();
        self.0.configure(|options| options.device = device);
    }

    #[pyo3(signature = (divisor))]
    fn set_divisor(&self, divisor: Option<f64>) {
        self.0.configure(|options| options.divide_by = divisor);
    }

    fn set_sync(&self, sync: bool) {
        self.0.set_sync(sync);
    }

    fn set_all_reduce(&self, all_reduce: bool) {
        self.0.set_all_reduce(all_reduce);
    }

    fn set_forward_prefetch(&self, groups: Vec<PyRef<'_, PyShardGroup>>) {
        let groups: Vec<_> = groups.iter().map(|g| g.0.clone()).collect();
        self.0.set_prefetch(Some(&groups), None);
    }

    fn set_backward_prefetch(&self, groups: Vec<PyRef<'_, PyShardGroup>>) {
        let groups: Vec<_> = groups.iter().map(|g| g.0.clone()).collect();
        self.0.set_prefetch(None, Some(&groups));
    }

    #[getter]
    fn is_gathered(&self) -> bool {
        self.0.is_gathered()
    }

    #[getter]
    fn gathers(&self) -> usize {
        self.0.gathers()
    }

    #[getter]
    fn gathered_bytes(&self) -> usize {
        self.0.gathered_bytes()
    }

    fn cut<'py>(&self, py: Python<'py>, index: usize, whole: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyTensor>> {
        wrap(py, self.0.cut(index, &whole.get().tensor()).py()?)
    }

    fn prefetch(&self, py: Python<'_>, shards: Vec<Bound<'_, PyTensor>>) -> PyResult<()> {
        let shards = handles(&shards);
        py.detach(|| self.0.prefetch(&shards)).py()
    }

    /// The whole parameters.
    fn unshard<'py>(&self, py: Python<'py>, shards: Vec<Bound<'py, PyTensor>>) -> PyResult<Vec<Bound<'py, PyTensor>>> {
        let shards = handles(&shards);
        py.detach(|| self.0.unshard(&shards)).py()?.into_iter().map(|t| wrap(py, t)).collect()
    }

    fn reshard(&self) {
        self.0.reshard();
    }

    fn after_forward(&self) -> PyResult<()> {
        self.0.after_forward().py()
    }

    /// Until `_pop_saved_tensors_hooks`, ops keep no memory of the gathered parameters.
    fn push_places(&self) {
        crate::autograd::push_saved_tensors_hooks(self.0.places());
    }
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyMesh>()?;
    module.add_class::<PyPlan>()?;
    module.add_class::<PyShardGroup>()?;
    module.add_function(wrap_pyfunction!(_redistribute, module)?)?;
    module.add_function(wrap_pyfunction!(_regrade, module)?)?;
    module.add_function(wrap_pyfunction!(_local_part, module)?)
}
