//! Pipeline schedules for `torch.distributed.pipelining`, and backward passes in two parts.

use crate::convert;
use crate::error::{to_py, type_error, value_error};
use crate::tensor::{PyTensor, wrap};
use pyo3::prelude::*;
use rushlight_dist::pipeline::{Action, Costs, Phase, Schedule, SplitBackward};
use rushlight_dist::plan;
use rushlight_tensor::Tensor;
use std::sync::Mutex;

/// A schedule, generated and verified by the core.
#[pyclass(name = "_PipelineSchedule", module = "rushlight._C", frozen)]
struct PySchedule(Schedule);

fn phase(letter: &str) -> PyResult<Phase> {
    match letter {
        "F" => Ok(Phase::Forward),
        "B" => Ok(Phase::Backward),
        "I" => Ok(Phase::InputGrad),
        "W" => Ok(Phase::WeightGrad),
        _ => Err(value_error(format!("'{letter}' is no action of a pipeline: F, B, I and W are"))),
    }
}

#[pymethods]
impl PySchedule {
    #[staticmethod]
    fn by_name(name: &str, ranks: usize, stages_per_rank: usize, microbatches: usize) -> PyResult<Self> {
        Schedule::by_name(name, ranks, stages_per_rank, microbatches).map(Self).map_err(to_py)
    }

    /// A schedule of given actions: a stage, a letter and a microbatch each.
    #[staticmethod]
    fn of(
        name: &str,
        microbatches: usize,
        placement: Vec<usize>,
        lists: Vec<Vec<(usize, String, usize)>>,
    ) -> PyResult<Self> {
        let action = |(stage, letter, microbatch): (usize, String, usize)| {
            Ok(Action { stage, phase: phase(&letter)?, microbatch })
        };
        let lists = lists
            .into_iter()
            .map(|list| list.into_iter().map(action).collect::<PyResult<Vec<_>>>())
            .collect::<PyResult<Vec<_>>>()?;
        Schedule::new(name, microbatches, placement, lists).map(Self).map_err(to_py)
    }

    #[getter]
    fn placement(&self) -> Vec<usize> {
        self.0.placement().to_vec()
    }

    /// The actions of a rank.
    fn actions(&self, rank: usize) -> PyResult<Vec<(usize, char, usize)>> {
        let list = self.0.actions().get(rank).ok_or_else(|| value_error(format!("there is no rank {rank}")))?;
        Ok(list.iter().map(|action| (action.stage, action.phase.letter(), action.microbatch)).collect())
    }

    /// Messages from one rank to another, in order: the stages they go from and to, and the microbatch.
    fn messages(&self, from: usize, to: usize) -> PyResult<Vec<(usize, usize, usize)>> {
        if from.max(to) >= self.0.ranks() {
            return Err(value_error(format!("there is no rank {}", from.max(to))));
        }
        Ok(self.0.messages(from, to).into_iter().map(|m| (m.from, m.to, m.microbatch)).collect())
    }

    fn chart(&self) -> PyResult<String> {
        self.0.chart(&Costs::default()).map_err(to_py)
    }

    /// The idle share, and the most activations held by a rank.
    fn simulate(&self) -> PyResult<(f64, usize)> {
        let simulated = self.0.simulate(&Costs::default()).map_err(to_py)?;
        Ok((simulated.bubble(), simulated.peak.into_iter().max().unwrap_or(0)))
    }
}

/// The second part of a backward pass.
#[pyclass(name = "_SplitBackward", module = "rushlight._C", frozen)]
struct PySplit(Mutex<Option<SplitBackward>>);

#[pymethods]
impl PySplit {
    /// Adds the gradients of the weights.
    fn weights(&self, py: Python<'_>) -> PyResult<()> {
        let rest = self.0.lock().unwrap_or_else(|e| e.into_inner()).take();
        let rest = rest.ok_or_else(|| value_error("the gradients of the weights were computed before"))?;
        py.detach(|| rest.weights()).map_err(to_py)
    }
}

/// The gradients of inputs only, and the rest of the backward pass.
#[pyfunction]
fn _split_backward(
    py: Python<'_>,
    outputs: &Bound<'_, PyAny>,
    gradients: Vec<Option<Bound<'_, PyTensor>>>,
    inputs: &Bound<'_, PyAny>,
) -> PyResult<(Vec<Option<Py<PyAny>>>, PySplit)> {
    let list = |object| convert::tensors(object)?.ok_or_else(|| type_error("a list of tensors is expected"));
    let (outputs, inputs): (Vec<Tensor>, Vec<Tensor>) = (list(outputs)?, list(inputs)?);
    let gradients: Vec<Option<Tensor>> = gradients.into_iter().map(|g| g.map(|g| g.get().tensor())).collect();
    let (found, rest) = py
        .detach(|| {
            let pairs: Vec<_> = outputs.iter().zip(gradients.iter().map(Option::as_ref)).collect();
            SplitBackward::inputs(&pairs, &inputs.iter().collect::<Vec<_>>())
        })
        .map_err(to_py)?;
    let found = found
        .into_iter()
        .map(|t| t.map(|t| Ok(wrap(py, t)?.into_any().unbind())).transpose())
        .collect::<PyResult<Vec<_>>>()?;
    Ok((found, PySplit(Mutex::new(Some(rest)))))
}

/// The first layer of each stage of a split by costs.
#[pyfunction]
fn _balance(costs: Vec<f64>, stages: usize) -> PyResult<Vec<usize>> {
    rushlight_dist::pipeline::balance(&costs, stages).map_err(to_py)
}

/// Bytes of a rank by `rushlight plan`, without its margin, and bytes that are offloaded: of a GPT of (layers, width,
/// heads, vocabulary, tokens), over a mesh of (data, tensor, pipeline), with (sequences of a microbatch, microbatches).
#[pyfunction]
fn _plan_memory(
    model: (usize, usize, usize, usize, usize),
    mesh: (usize, usize, usize),
    zero: usize,
    rows: (usize, usize),
    precision: &str,
    offload: bool,
    recompute: bool,
) -> PyResult<(f64, f64)> {
    let (layers, hidden, heads, vocabulary, sequence) = model;
    let ((data, tensor, pipeline), (microbatch, microbatches), ffn) = (mesh, rows, 4 * hidden);
    let kv_heads = heads;
    let (name, gated, tied) = ("a GPT", false, false);
    let model = plan::Model { name, layers, hidden, ffn, gated, tied, heads, kv_heads, vocabulary, sequence };
    let machine = plan::Machine::named("h100").ok_or_else(|| value_error("there is no machine 'h100'"))?;
    let precision = plan::Precision::named(precision).ok_or_else(|| value_error("the precision is bf16 or f32"))?;
    let devices = data * tensor * pipeline;
    let job = plan::Job { model, machine, devices, batch: data * microbatch * microbatches, precision };
    let recompute = if recompute { plan::Recompute::Full } else { plan::Recompute::None };
    let strategy = plan::Strategy { data, tensor, pipeline, zero, microbatch, recompute, offload };
    let found = plan::estimate(&job, strategy).map_err(to_py)?;
    Ok((found.peak, found.host))
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySchedule>()?;
    module.add_class::<PySplit>()?;
    module.add_function(wrap_pyfunction!(_balance, module)?)?;
    module.add_function(wrap_pyfunction!(_plan_memory, module)?)?;
    module.add_function(wrap_pyfunction!(_split_backward, module)?)
}
