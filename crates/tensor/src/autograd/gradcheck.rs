//! Derivatives checked against finite differences.

use super::engine::{Backward, grad};
use super::mode;
use crate::Tensor;
use rushlight_core::{DType, Error, Result};

/// The outputs of a function to check: one tensor or several.
pub trait Outputs {
    /// The outputs in order.
    fn into_tensors(self) -> Vec<Tensor>;
}

impl Outputs for Tensor {
    fn into_tensors(self) -> Vec<Tensor> {
        vec![self]
    }
}

impl Outputs for Vec<Tensor> {
    fn into_tensors(self) -> Vec<Tensor> {
        self
    }
}

/// Step of the differences and tolerances, PyTorch's.
const DEFAULTS: (f64, f64, f64) = (1e-6, 1e-5, 1e-3);

/// Compares the derivatives that autograd gives for `f` at `inputs` with central differences, every output element by
/// every input element. Step and tolerances are PyTorch's; [`gradcheck_with`] takes others. Inputs that require
/// gradients must be `float64`, or differences would drown in rounding.
///
/// The error names input, output, element and both numbers.
///
/// ```
/// # mod rushlight { pub use rushlight_core::DType; pub use rushlight_tensor::*; }
/// use rushlight::{Tensor, autograd::gradcheck};
/// let x = Tensor::new_with([0.5, -1.5], rushlight::DType::F64)?.requires_grad_(true)?;
/// gradcheck(|xs| xs[0].sin()?.exp(), &[x.clone()])?;
/// // A derivative that is missing is found.
/// let broken = gradcheck(|xs| xs[0].mul(&xs[0].detach()), &[x]);
/// assert!(broken.unwrap_err().to_string().contains("input 0"));
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn gradcheck<O: Outputs>(f: impl Fn(&[Tensor]) -> Result<O>, inputs: &[Tensor]) -> Result<()> {
    let (eps, atol, rtol) = DEFAULTS;
    gradcheck_with(f, inputs, eps, atol, rtol)
}

/// [`gradcheck`] by differences of step `eps`, within `atol` plus `rtol` times the difference's size.
pub fn gradcheck_with<O: Outputs>(
    f: impl Fn(&[Tensor]) -> Result<O>,
    inputs: &[Tensor],
    eps: f64,
    atol: f64,
    rtol: f64,
) -> Result<()> {
    let f = |inputs: &[Tensor]| f(inputs).map(O::into_tensors);
    check("gradcheck", &f, inputs, eps, |a, n| (a - n).abs() <= atol + rtol * n.abs())
}

/// [`gradcheck`] of the derivatives of `f` themselves: whether they can be differentiated again, and rightly. The
/// gradients to start from are made up, and their part in the second derivative is checked too.
pub fn gradgradcheck<O: Outputs>(f: impl Fn(&[Tensor]) -> Result<O>, inputs: &[Tensor]) -> Result<()> {
    let (eps, atol, rtol) = DEFAULTS;
    gradgradcheck_with(f, inputs, eps, atol, rtol)
}

/// [`gradgradcheck`] with a step and tolerances of one's own.
pub fn gradgradcheck_with<O: Outputs>(
    f: impl Fn(&[Tensor]) -> Result<O>,
    inputs: &[Tensor],
    eps: f64,
    atol: f64,
    rtol: f64,
) -> Result<()> {
    let f = |inputs: &[Tensor]| f(inputs).map(O::into_tensors);
    let outputs = mode::enable_grad(|| f(inputs))?;
    let mut all = inputs.to_vec();
    for out in outputs.iter().filter(|o| o.requires_grad()) {
        // Any numbers of moderate size without a pattern.
        let made_up =
            Tensor::from_iter((0..out.numel()).map(|k| (1.3 * k as f64 + 0.7).cos()))?.reshape(out.shape())?;
        all.push(made_up.to_dtype(out.dtype())?.to(out.device())?.requires_grad_(true)?);
    }
    let count = inputs.len();
    let derivative = |all: &[Tensor]| -> Result<Vec<Tensor>> {
        let (inputs, gradients) = all.split_at(count);
        let outputs = f(inputs)?;
        let mut total: Option<Tensor> = None;
        for (out, dy) in outputs.iter().filter(|o| o.requires_grad()).zip(gradients) {
            let part = out.mul(dy)?.sum(..)?;
            total = Some(match total {
                Some(t) => t.add(&part)?,
                None => part,
            });
        }
        let wanted: Vec<&Tensor> = inputs.iter().filter(|t| t.requires_grad()).collect();
        let Some(total) = total else { return Ok(Vec::new()) };
        let found = grad(&[&total], &wanted, Backward::default().create_graph(true).allow_unused(true))?;
        found.into_iter().zip(wanted).map(|(g, input)| g.map_or_else(|| input.detach().zeros_like(), Ok)).collect()
    };
    check("gradgradcheck", &derivative, &all, eps, |a, n| (a - n).abs() <= atol + rtol * n.abs())
}

fn check(
    call: &str,
    f: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[Tensor],
    eps: f64,
    close: impl Fn(f64, f64) -> bool,
) -> Result<()> {
    let _mode = mode::set_grad_enabled(true);
    let wanted: Vec<usize> = (0..inputs.len()).filter(|&i| inputs[i].requires_grad()).collect();
    if wanted.is_empty() {
        return Err(Error::value(format!(
            "{call}: expects at least one input tensor to require gradient, but none of them does"
        )));
    }
    if let Some(&i) = wanted.iter().find(|&&i| inputs[i].dtype() != DType::F64) {
        return Err(Error::dtype(format!(
            "{call}: input {i} requires gradient and is {}; differences need float64",
            inputs[i].dtype()
        )));
    }
    let outputs = f(inputs)?;
    let numerical = differences(f, inputs, &wanted, &outputs, eps)?;
    // As in PyTorch, an output without a recorded graph (such as updated statistics) is skipped if other outputs have
    // one.
    let none_recorded = !outputs.iter().any(|out| out.requires_grad());
    let checked = |out: &Tensor| out.dtype().is_float() && (none_recorded || out.requires_grad());
    for (o, out) in outputs.iter().enumerate().filter(|(_, out)| checked(out)) {
        for k in 0..out.numel() {
            let rows = row(out, k, inputs, &wanted)?;
            for ((&i, row), numerical) in wanted.iter().zip(&rows).zip(&numerical) {
                for (j, &analytical) in row.iter().enumerate() {
                    let expected = numerical[j][o][k];
                    if !close(analytical, expected) {
                        return Err(Error::autograd(format!(
                            "{call}: Jacobian mismatch for output {o} with respect to input {i}: element {k} of the output by element {j} \
                             of the input is {analytical} by autograd and {expected} by differences"
                        )));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Derivatives of element `k` of an output by every element of each wanted input.
fn row(out: &Tensor, k: usize, inputs: &[Tensor], wanted: &[usize]) -> Result<Vec<Vec<f64>>> {
    let zeros = |i: &usize| vec![0.0; inputs[*i].numel()];
    if !out.requires_grad() {
        return Ok(wanted.iter().map(zeros).collect());
    }
    let mut unit = vec![0.0; out.numel()];
    unit[k] = 1.0;
    let unit = Tensor::from_slice(&unit, out.shape())?.to_dtype(out.dtype())?.to(out.device())?;
    let targets: Vec<&Tensor> = wanted.iter().map(|&i| &inputs[i]).collect();
    let options = Backward::default().gradient(&unit).retain_graph(true).allow_unused(true);
    let found = grad(&[out], &targets, options)?;
    found.into_iter().zip(wanted).map(|(g, i)| g.map_or_else(|| Ok(zeros(i)), |g| g.to_vec())).collect()
}

/// Central differences: by wanted input, by its element, by output, by its element.
fn differences(
    f: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[Tensor],
    wanted: &[usize],
    outputs: &[Tensor],
    eps: f64,
) -> Result<Vec<Vec<Vec<Vec<f64>>>>> {
    let evaluate = |i: usize, values: &[f64]| -> Result<Vec<Vec<f64>>> {
        let mut moved: Vec<Tensor> = inputs.to_vec();
        moved[i] = Tensor::from_slice(values, inputs[i].shape())?.to(inputs[i].device())?.requires_grad_(true)?;
        let results = f(&moved)?;
        if results.len() != outputs.len() || results.iter().zip(outputs).any(|(a, b)| a.shape() != b.shape()) {
            return Err(Error::value("gradcheck: the function gave outputs of other shapes at a nearby point"));
        }
        results.iter().map(|t| if t.dtype().is_float() { t.to_vec() } else { Ok(Vec::new()) }).collect()
    };
    let mut all = Vec::new();
    for &i in wanted {
        let mut values = inputs[i].to_vec::<f64>()?;
        let mut by_element = Vec::new();
        for j in 0..values.len() {
            let here = values[j];
            values[j] = here + eps;
            let above = evaluate(i, &values)?;
            values[j] = here - eps;
            let below = evaluate(i, &values)?;
            values[j] = here;
            let slope = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| (a - b) / (2.0 * eps)).collect();
            by_element.push(above.iter().zip(&below).map(slope).collect());
        }
        all.push(by_element);
    }
    Ok(all)
}
