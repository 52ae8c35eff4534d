//! Cross-entropy with class indices.

use super::array::{Array, choose};
use super::execute;
use crate::backend::{CrossEntropy, Reduce, View, call};
use crate::{DType, Error, ErrorKind, Result};

/// Operands of both passes; one element per row is `[rows, 1]`.
struct Rows<'a> {
    /// `[rows, classes]`, in the dtype of statistics.
    logits: Array<'a>,
    /// The class of each row; an arbitrary one if the row is ignored.
    class: Array<'static>,
    /// The logit of that class.
    logit: Array<'static>,
    /// Whether the row is not ignored.
    counts: Array<'static>,
    /// The weight of its class.
    weight: Option<Array<'static>>,
    /// Sum of the weights of all classes, `[1, 1]`.
    weight_sum: Array<'static>,
    /// Weights of all classes, `[1, classes]`.
    weights: Option<Array<'a>>,
}

impl<'a> Rows<'a> {
    fn new(spec: &CrossEntropy<'a>) -> Result<Self> {
        let shape = spec.logits.shape();
        let (rows, classes) = (shape[0], shape[1]);
        let logits = Array::dense(spec.logits, &[rows, classes])?.wide()?;
        let target = Array::dense(spec.target, &[rows, 1])?;
        let counts = target.ne(spec.ignore_index)?;
        // Negative targets do not count from the end: they are mapped out of range, so that the engine reports them.
        let wanted = target.lt(0i64)?.choose(classes as i64, &target, DType::I64)?;
        let class = counts.choose(&wanted, 0i64, DType::I64)?;
        // The backward pass does not use it, but this checks the targets.
        let logit = pick(&logits, &class).map_err(|e| bad_target(spec, e))?;
        let weights = spec.weight.map(|w| Array::dense(w, &[1, classes])?.wide()).transpose()?;
        let weight_sum = match &weights {
            Some(weights) => weights.sum(&[1])?,
            None => logits.full(&[1, 1], logits.dtype(), classes as f64)?,
        };
        let weight = match &weights {
            Some(weights) => Some(pick(&weights.expand(&[rows, classes])?, &class)?),
            None => None,
        };
        Ok(Self { logits, class, logit, counts, weight, weight_sum, weights })
    }

    /// A number per row, times the weight of the row's class.
    fn weighted(&self, x: Array<'static>) -> Result<Array<'static>> {
        match &self.weight {
            Some(weight) => x.mul(weight),
            None => Ok(x),
        }
    }
}

/// `x[i, index[i]]` of each row.
fn pick(x: &Array, index: &Array) -> Result<Array<'static>> {
    let out = x.uninit(index.shape(), x.dtype())?;
    execute(call::Gather { x: x.view(), dim: 1, index: index.view(), out: out.view() })?;
    Ok(out)
}

/// An index error in terms of the targets.
fn bad_target(spec: &CrossEntropy, error: Error) -> Error {
    if error.kind() != ErrorKind::Index {
        return error;
    }
    let (rows, classes) = (spec.logits.shape()[0], spec.logits.shape()[1] as i64);
    let targets = Array::dense(spec.target, &[rows]).and_then(|target| target.download());
    let targets = targets.unwrap_or_default();
    let (targets, _) = targets.as_chunks::<8>();
    let mut targets = targets.iter().map(|bytes| i64::from_ne_bytes(*bytes));
    match targets.find(|t| *t != spec.ignore_index && !(0..classes).contains(t)) {
        Some(target) => Error::index(format!("Target {target} is out of bounds.")),
        None => error,
    }
}

/// Default body of [`CrossEntropy`](call::CrossEntropy).
pub fn cross_entropy(c: &call::CrossEntropy<View>) -> Result<()> {
    let call::CrossEntropy { of: ref spec, loss, row_weight, lse } = *c;
    let r = Rows::new(spec)?;
    let column = [spec.logits.shape()[0], 1];
    let sum = match spec.log_probabilities {
        true => r.logits.full(&column, r.logits.dtype(), 0.0)?,
        false => r.logits.reduce(Reduce::LogSumExp, &[1])?,
    };
    sum.copy_to(&Array::dense(lse, &column)?)?;
    let mut value = r.weighted(sum.sub(&r.logit)?)?;
    if spec.label_smoothing > 0.0 {
        let total = match &r.weights {
            Some(weights) => r.logits.mul(weights)?.sum(&[1])?,
            None => r.logits.sum(&[1])?,
        };
        let uniform = sum.mul(&r.weight_sum)?.sub(&total)?;
        let share = spec.label_smoothing / spec.logits.shape()[1] as f64;
        value = value.mul(1.0 - spec.label_smoothing)?.add(&uniform.mul(share)?)?;
    }
    let statistics = r.logits.dtype();
    r.counts.choose(&value, 0.0, statistics)?.copy_to(&Array::dense(loss, &column)?)?;
    let weight = match &r.weight {
        Some(weight) => r.counts.choose(weight, 0.0, statistics)?,
        None => r.counts.choose(1.0, 0.0, statistics)?,
    };
    weight.copy_to(&Array::dense(row_weight, &column)?)
}

/// Default body of [`CrossEntropyBackward`](call::CrossEntropyBackward).
pub fn cross_entropy_backward(c: &call::CrossEntropyBackward<View>) -> Result<()> {
    let call::CrossEntropyBackward { of: ref spec, lse, dloss, dlogits } = *c;
    let r = Rows::new(spec)?;
    let shape = r.logits.shape();
    let (rows, classes) = (shape[0], shape[1]);
    let (lse, dloss) = (Array::dense(lse, &[rows, 1])?, Array::dense(dloss, &[rows, 1])?);
    let dlogits = Array::dense(dlogits, &[rows, classes])?;
    // Gradient weights of the row's own class and of the uniform distribution.
    let plain = r.weighted(dloss.mul(1.0 - spec.label_smoothing)?)?;
    let uniform = dloss.mul(spec.label_smoothing / classes as f64)?;
    let scale = plain.add(&uniform.mul(&r.weight_sum)?)?;
    let mut d = match spec.log_probabilities {
        true => r.logits.full(&[rows, classes], r.logits.dtype(), 0.0)?,
        false => r.logits.sub(&lse)?.exp()?.mul(&scale)?,
    };
    if spec.label_smoothing > 0.0 {
        d = d.sub(&match &r.weights {
            Some(weights) => uniform.mul(weights)?,
            None => uniform,
        })?;
    }
    let own = r.logits.counting(classes)?.eq(&r.class)?;
    d = d.sub(&own.choose(&plain, 0.0, d.dtype())?)?;
    choose(&r.counts, &d, 0.0, &dlogits)
}
