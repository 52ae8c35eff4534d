//! Runs cases and compares with PyTorch's results.

use super::data::{Case, load};
use super::ops;
use rushlight_core::Result;
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{Backward, no_grad};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a whole family; panics with a list of failures.
pub fn family(name: &str) {
    let cases = load(name);
    let mut missing = BTreeSet::new();
    let mut wrong = Vec::new();
    let mut ran = 0;
    for case in &cases {
        let Some(op) = ops::find(&case.op) else {
            missing.insert(case.op.clone());
            continue;
        };
        ran += 1;
        let result = catch_unwind(AssertUnwindSafe(|| check(case, op))).unwrap_or_else(|_| Err("panicked".to_string()));
        if let Err(reason) = result {
            wrong.push(format!("{}: {reason}", case.id));
        }
    }
    println!("{name}: {ran} of {} cases ran, {} wrong", cases.len(), wrong.len());
    assert!(
        missing.is_empty() && wrong.is_empty(),
        "{name}: {} of {} cases wrong; no dispatch for {missing:?}\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

fn check(case: &Case, op: ops::Op) -> Result<(), String> {
    let outputs = op(&case.args).map_err(|e| format!("{e:?}"))?;
    let ignored = case.args.ignored();
    if !ignored.is_empty() {
        return Err(format!("the dispatch ignores arguments {ignored:?}"));
    }
    if outputs.len() != case.outputs.len() {
        return Err(format!("{} outputs, expected {}", outputs.len(), case.outputs.len()));
    }
    for (i, (got, want)) in outputs.iter().zip(&case.outputs).enumerate() {
        compare(got, want, case.rtol, case.atol).map_err(|e| format!("output {i}: {e}"))?;
    }
    let Some((dys, dxs)) = &case.grad else { return Ok(()) };
    for (i, (out, dy)) in outputs.iter().zip(dys).enumerate() {
        if let Some(dy) = dy
            && out.requires_grad()
        {
            let options = Backward::default().gradient(dy).retain_graph(i + 1 < outputs.len());
            out.backward_with(options).map_err(|e| format!("backward of output {i}: {e:?}"))?;
        }
    }
    for (i, (input, want)) in case.args.tensors().iter().zip(dxs).enumerate() {
        let Some(want) = want else { continue };
        let got = match input.grad() {
            Some(g) => g,
            None => want.zeros_like().map_err(|e| e.to_string())?,
        };
        compare(&got, want, case.rtol, case.atol).map_err(|e| format!("gradient of input {i}: {e}"))?;
    }
    Ok(())
}

/// Shapes, dtypes, integers and bools exactly; floats within the tolerance, NaN equal to NaN, infinities equal to
/// themselves.
pub fn compare(got: &Tensor, want: &Tensor, rtol: f64, atol: f64) -> Result<(), String> {
    if got.dtype() != want.dtype() || got.shape() != want.shape() {
        return Err(format!("{} {:?}, expected {} {:?}", got.dtype(), got.shape(), want.dtype(), want.shape()));
    }
    let values = |t: &Tensor| no_grad(|| t.to_vec::<f64>()).map_err(|e| e.to_string());
    let exact = |t: &Tensor| no_grad(|| t.to_vec::<i64>()).map_err(|e| e.to_string());
    if !got.dtype().is_float() {
        let (got, want) = (exact(got)?, exact(want)?);
        return match got.iter().zip(&want).position(|(a, b)| a != b) {
            Some(at) => Err(format!("{} at element {at}, expected {}", got[at], want[at])),
            None => Ok(()),
        };
    }
    let (got, want) = (values(got)?, values(want)?);
    let close =
        |a: f64, b: f64| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= atol + rtol * b.abs() && b.is_finite();
    let off: Vec<usize> = (0..got.len()).filter(|&i| !close(got[i], want[i])).collect();
    match off.first() {
        None => Ok(()),
        Some(&at) => {
            Err(format!("{} at element {at} ({} of {} off), expected {}", got[at], off.len(), got.len(), want[at]))
        }
    }
}
