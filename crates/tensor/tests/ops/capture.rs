//! Which ops can be part of a captured step: all of them, forward and backward, except those whose results depend on
//! values that the host must read.
//!
//! The CPU records nothing: there each op runs with all transfers forbidden. `RUSHLIGHT_TEST_DEVICE=cuda` records each
//! op on the GPU.

use crate::support::{self, Case, ops};
use rushlight_core::{Device, ErrorKind, Result};
use rushlight_tensor::autograd::Backward;
use rushlight_tensor::capture::without_host;
use rushlight_tensor::{Capture, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// Ops that need the host, with the reason.
const NEED_THE_HOST: &[(&str, &str)] = &[
    ("bincount", "the result is as long as the largest value says"),
    ("det", "the derivative asks whether a matrix is singular"),
    ("lu", "pivots become a permutation on the host"),
    ("lu_solve", "pivots become a permutation on the host"),
    ("masked_scatter", "the true elements are counted"),
    ("masked_select", "the result is as long as there are true elements"),
    ("nonzero", "the result is as long as there are elements that are not zero"),
    ("one_hot", "the number of classes follows from the largest value"),
    ("unique", "the result is as long as there are values"),
    ("unique_consecutive", "the result is as long as there are runs"),
];

/// Ops that a GPU also rejects: it has no kernel for them, or leaves small factorisations to the CPU.
const NEED_THE_CPU: &[&str] =
    &["cholesky", "eigh", "eigvalsh", "histc", "inv", "logdet", "lstsq", "qr", "slogdet", "solve", "svd", "svdvals"];

/// Ops that AMD's engine rejects too: rocBLAS may allocate workspace inside a triangular solve, which a recording
/// forbids.
const NEED_THE_CPU_ON_HIP: &[&str] = &["solve_triangular"];

const FAMILIES: &[&str] = &[
    "activation",
    "attention",
    "binary",
    "compare",
    "conv",
    "creation",
    "index",
    "linalg",
    "loss",
    "matmul",
    "norm",
    "pad",
    "pointwise",
    "pool",
    "reduce",
    "resize",
    "scan",
    "scatter",
    "shape",
    "sort",
    "ternary",
];

/// An op and its gradients; returns its results.
fn run(case: &Case, op: ops::Op) -> Result<Vec<Tensor>> {
    let outputs = op(&case.args)?;
    let Some((dys, _)) = &case.grad else { return Ok(outputs) };
    for (i, (out, dy)) in outputs.iter().zip(dys).enumerate() {
        if let Some(dy) = dy
            && out.requires_grad()
        {
            out.backward_with(Backward::default().gradient(dy).retain_graph(i + 1 < outputs.len()))?;
        }
    }
    Ok(outputs)
}

/// The first case of each op, and one with gradients if there is one.
fn cases(family: &str) -> Vec<Case> {
    let mut seen: BTreeMap<String, bool> = BTreeMap::new();
    let mut chosen = Vec::new();
    for case in support::load(family) {
        let graded = case.grad.is_some();
        if seen.get(&case.op).is_none_or(|&before| graded && !before) {
            seen.insert(case.op.clone(), graded);
            chosen.push(case);
        }
    }
    chosen
}

/// Runs the case as part of a step; returns the error if that is rejected.
fn captured(case: &Case, op: ops::Op, device: Device) -> Result<()> {
    if device.is_cpu() {
        return without_host(|| run(case, op)).map(|_| ());
    }
    // A step that is warmed up once, then recorded.
    let mut capture = Capture::new().warmup(1);
    for _ in 0..2 {
        let before = [Tensor::zeros_with([1], device)?];
        capture.run(&before, |[_]| {
            case.args.tensors().iter().for_each(|t| t.zero_grad());
            run(case, op)
        })?;
    }
    Ok(())
}

#[test]
fn every_op_can_be_captured() {
    let device = support::data::device();
    let mut excused: BTreeSet<&str> = NEED_THE_HOST.iter().map(|&(name, _)| name).collect();
    if !device.is_cpu() {
        excused.extend(NEED_THE_CPU);
        if rushlight_engines::accelerator().is_some_and(|engine| engine.name() == "hip") {
            excused.extend(NEED_THE_CPU_ON_HIP);
        }
    }
    let (mut refused, mut met) = (BTreeMap::new(), BTreeSet::new());
    for case in FAMILIES.iter().flat_map(|family| cases(family)) {
        let Some(op) = ops::find(&case.op) else { continue };
        match captured(&case, op, device) {
            Err(e) if e.kind() == ErrorKind::Unsupported => {
                met.insert(case.op.clone());
                if !excused.contains(&case.op[..]) {
                    refused.insert(case.id.clone(), e.to_string());
                }
            }
            // Other tests compare the results.
            _ => {}
        }
    }
    assert!(refused.is_empty(), "{} ops cannot be captured:\n{refused:#?}", refused.len());
    let idle: Vec<&str> = excused.iter().copied().filter(|name| !met.contains(*name)).collect();
    assert!(idle.is_empty() || !device.is_cpu(), "{idle:?} can be captured after all: take them off the list");
}
