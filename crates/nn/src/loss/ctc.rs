//! Connectionist temporal classification: the probability of a label sequence, over all its alignments with the input.

use crate::Module;
use rushlight_core::{Error, Result, setters};
use rushlight_tensor::autograd::{Context, Function, apply};
use rushlight_tensor::{CtcTargets, Reduction, Tensor, ctc_losses, where_};
use std::sync::Arc;

/// The negative log-likelihood of target sequences shorter than their inputs, alignment unknown.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::CTCLoss;
/// use rushlight::Tensor;
/// let log_probs = Tensor::zeros([4, 1, 3])?.log_softmax(-1)?;
/// let loss = CTCLoss::new().forward(&log_probs, &Tensor::new([[1i64, 2]])?, &[4], &[2])?;
/// // 15 of the 81 paths spell "1 2", and the mean is over the target's length.
/// assert!((loss.item::<f32>()? - (81f32 / 15.0).ln() / 2.0).abs() < 1e-6);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone, Module)]
pub struct CTCLoss {
    blank: usize,
    zero_infinity: bool,
    #[module(skip)]
    reduction: Reduction,
}

impl CTCLoss {
    /// The loss with PyTorch's defaults.
    pub fn new() -> Self {
        Self { blank: 0, zero_infinity: false, reduction: Reduction::Mean }
    }

    setters! {
        /// The blank class; 0 by default.
        blank: usize;
        /// Whether targets that are too long for their inputs cost nothing instead of infinity.
        zero_infinity: bool;
        /// How the sequences' losses are reduced; by default to their mean, after division by the target's length.
        reduction: Reduction;
    }

    /// The loss, see [`ctc_loss`].
    pub fn forward(
        &self,
        log_probs: &Tensor,
        targets: &Tensor,
        input_lengths: &[usize],
        target_lengths: &[usize],
    ) -> Result<Tensor> {
        let (blank, reduction, zero_infinity) = (self.blank, self.reduction, self.zero_infinity);
        ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
    }
}

impl Default for CTCLoss {
    fn default() -> Self {
        Self::new()
    }
}

/// The negative log-likelihood of target sequences, from log-probabilities `[length, batch, classes]` of `log_softmax`
/// (or `[length, classes]`, with one length each); targets are `[batch, longest]`, or concatenated.
///
/// As in PyTorch, the gradient is correct only for log-probabilities of `log_softmax`, and is not differentiable
/// again.
pub fn ctc_loss(
    log_probs: &Tensor,
    targets: &Tensor,
    input_lengths: &[usize],
    target_lengths: &[usize],
    blank: usize,
    reduction: Reduction,
    zero_infinity: bool,
) -> Result<Tensor> {
    if !log_probs.is_floating_point() {
        return Err(Error::dtype(format!("ctc_loss: log_probs must be of a float dtype, got {}", log_probs.dtype())));
    }
    let unbatched = log_probs.rank() == 2;
    let batched = if unbatched { log_probs.unsqueeze(1)? } else { log_probs.clone() };
    let &[steps, batch, classes] = batched.shape() else {
        return Err(Error::shape(format!(
            "ctc_loss: log_probs must be [length, batch, classes] or [length, classes], got {:?}",
            log_probs.shape()
        )));
    };
    if blank >= classes {
        return Err(Error::value(format!("ctc_loss: blank must be one of {classes} classes, got {blank}")));
    }
    if input_lengths.len() != batch || target_lengths.len() != batch {
        return Err(Error::value(format!(
            "ctc_loss: expected a length for each of {batch} inputs and targets, got {} input_lengths and {} target_lengths",
            input_lengths.len(),
            target_lengths.len()
        )));
    }
    if let Some(long) = input_lengths.iter().find(|&&n| n > steps) {
        return Err(Error::value(format!("ctc_loss: an input length is {long}, but log_probs has {steps} steps")));
    }
    let labels = labels(targets, target_lengths, classes, unbatched)?;
    let sequences = labels
        .into_iter()
        .zip(input_lengths)
        .map(|(target, &steps)| Sequence::new(&target, steps, classes, blank))
        .collect::<Result<Vec<_>>>()?;
    let states: Vec<_> = sequences.iter().map(|s| s.states.clone()).collect();
    let targets = CtcTargets { states: &states, steps: input_lengths, blank, zero_infinity };
    let mut loss = match ctc_losses(&batched, &targets)? {
        Some(loss) => loss,
        None => {
            let problem = Arc::new(Problem { sequences, steps, classes, zero_infinity });
            apply(Forward(problem), &[&batched])?.swap_remove(0)
        }
    };
    if zero_infinity {
        loss = where_(&loss.eq(f64::INFINITY)?, 0.0, &loss)?;
    }
    match reduction {
        Reduction::None if unbatched => loss.squeeze(0),
        Reduction::None => Ok(loss),
        Reduction::Sum => loss.sum(..),
        Reduction::Mean => {
            let lengths = target_lengths.iter().map(|&n| n.max(1) as f64);
            let lengths = Tensor::from_iter(lengths)?.to_dtype(loss.dtype())?.to(loss.device())?;
            loss.div(&lengths)?.mean(..)
        }
        Reduction::BatchMean => Err(Error::value("ctc_loss: batchmean is not a valid value for reduction")),
    }
}

/// Each target's labels.
fn labels(targets: &Tensor, lengths: &[usize], classes: usize, unbatched: bool) -> Result<Vec<Vec<usize>>> {
    if !targets.dtype().is_int() {
        return Err(Error::dtype(format!("ctc_loss: targets must be of an integer dtype, got {}", targets.dtype())));
    }
    let total = lengths.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
    let starts: Vec<usize> = match targets.shape() {
        &[all] if total == Some(all) || (unbatched && total.is_some_and(|n| n <= all)) => {
            lengths.iter().scan(0, |next, n| Some(std::mem::replace(next, *next + n))).collect()
        }
        &[rows, width] if !unbatched && rows == lengths.len() && lengths.iter().all(|&n| n <= width) => {
            (0..rows).map(|row| row * width).collect()
        }
        shape => {
            return Err(Error::shape(format!(
                "ctc_loss: targets must be [batch, longest] or all end to end, got shape {shape:?} for target_lengths {lengths:?}"
            )));
        }
    };
    let values = targets.to_vec::<i64>()?;
    let label = |&value: &i64| {
        usize::try_from(value)
            .ok()
            .filter(|&label| label < classes)
            .ok_or_else(|| Error::index(format!("ctc_loss: target {value} is out of bounds for {classes} classes")))
    };
    starts.iter().zip(lengths).map(|(&start, &n)| values[start..start + n].iter().map(label).collect()).collect()
}

/// A batch of sequences, whose log-probabilities are `[batch, steps, classes]`.
struct Problem {
    sequences: Vec<Sequence>,
    steps: usize,
    classes: usize,
    zero_infinity: bool,
}

impl Problem {
    /// Log-probabilities sequence by sequence. Computed in `f64`: sums of many exponentials cost little there and lose
    /// nothing.
    fn log_probs(&self, log_probs: &Tensor) -> Result<Vec<f64>> {
        log_probs.transpose(0, 1)?.to_vec()
    }

    fn size(&self) -> usize {
        self.steps * self.classes
    }
}

/// The losses, `[batch]`, from log-probabilities `[steps, batch, classes]`.
struct Forward(Arc<Problem>);

impl Function for Forward {
    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let log_probs = self.0.log_probs(inputs[0])?;
        let mut losses = vec![0.0; self.0.sequences.len()];
        in_parallel(&self.0.sequences, &mut losses, 1, |i, sequence, loss| {
            let log_probs = &log_probs[i * self.0.size()..][..self.0.size()];
            loss[0] = -sequence.log_likelihood(&sequence.alphas(log_probs));
        });
        ctx.save_for_backward(&[inputs[0]]);
        Ok(vec![Tensor::from_slice(&losses, [losses.len()])?.to_dtype(inputs[0].dtype())?.to(inputs[0].device())?])
    }

    fn backward(&self, saved: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let Some(dy) = &grads[0] else { return Ok(vec![None]) };
        Ok(apply(Backward(self.0.clone()), &[&saved[0], dy])?.into_iter().map(Some).collect())
    }

    fn name(&self) -> &'static str {
        "ctc_loss"
    }
}

/// The gradient of the log-probabilities.
struct Backward(Arc<Problem>);

impl Function for Backward {
    fn forward(&self, _: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let problem = &*self.0;
        let (log_probs, dy) = (problem.log_probs(inputs[0])?, inputs[1].to_vec::<f64>()?);
        let mut grads = vec![0.0; log_probs.len()];
        in_parallel(&problem.sequences, &mut grads, problem.size(), |i, sequence, grad| {
            sequence.gradient(&log_probs[i * problem.size()..][..problem.size()], dy[i], problem.zero_infinity, grad);
        });
        let shape = [problem.sequences.len(), problem.steps, problem.classes];
        let grads = Tensor::from_slice(&grads, shape)?.transpose(0, 1)?;
        Ok(vec![grads.to_dtype(inputs[0].dtype())?.to(inputs[0].device())?])
    }

    fn backward(&self, _: &[Tensor], _: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Err(Error::unsupported("ctc_loss: its gradient cannot be differentiated again"))
    }

    fn name(&self) -> &'static str {
        "ctc_loss_backward"
    }
}

/// A target to be aligned with the first `steps` of an input: its labels with blanks before, between and after.
struct Sequence {
    states: Vec<usize>,
    steps: usize,
    classes: usize,
}

impl Sequence {
    fn new(target: &[usize], steps: usize, classes: usize, blank: usize) -> Result<Self> {
        let mut states = Vec::with_capacity(2 * target.len() + 1);
        for &label in target {
            states.extend([blank, label]);
        }
        states.push(blank);
        if states.len().checked_mul(steps).is_none_or(|n| n > isize::MAX as usize / size_of::<f64>()) {
            return Err(Error::value(format!(
                "ctc_loss: {} labels over {steps} steps are more than memory can address",
                target.len()
            )));
        }
        Ok(Self { states, steps, classes })
    }

    /// Whether a path may go from state `from` to a later state `from + 2`, leaving out the blank between.
    fn skips(&self, from: usize) -> bool {
        self.states.get(from + 2).is_some_and(|label| *label != self.states[from])
    }

    /// For each step and state, the log-probability of all paths that have come there.
    fn alphas(&self, log_probs: &[f64]) -> Vec<f64> {
        let count = self.states.len();
        let mut alphas = vec![f64::NEG_INFINITY; self.steps * count];
        if self.steps == 0 {
            return alphas;
        }
        for s in 0..count.min(2) {
            alphas[s] = log_probs[self.states[s]];
        }
        for t in 1..self.steps {
            let (before, now) = alphas.split_at_mut(t * count);
            let before = &before[(t - 1) * count..];
            let now = &mut now[..count];
            let row = &log_probs[t * self.classes..];
            for s in 0..count {
                let stepped = if s > 0 { before[s - 1] } else { f64::NEG_INFINITY };
                let skipped = if s > 1 && self.skips(s - 2) { before[s - 2] } else { f64::NEG_INFINITY };
                now[s] = log_sum_exp(before[s], stepped, skipped) + row[self.states[s]];
            }
        }
        alphas
    }

    /// The log-probability of the target.
    fn log_likelihood(&self, alphas: &[f64]) -> f64 {
        if self.steps == 0 {
            // Nothing spells the empty target only.
            return if self.states.len() == 1 { 0.0 } else { f64::NEG_INFINITY };
        }
        let last = &alphas[alphas.len() - self.states.len()..];
        match last {
            [.., label, blank] => log_sum_exp(*label, *blank, f64::NEG_INFINITY),
            [blank] => *blank,
            [] => f64::NEG_INFINITY,
        }
    }

    /// `dy` times the loss's gradient, into `grad`, which is zero.
    fn gradient(&self, log_probs: &[f64], dy: f64, zero_infinity: bool, grad: &mut [f64]) {
        let count = self.states.len();
        let alphas = self.alphas(log_probs);
        let log_likelihood = self.log_likelihood(&alphas);
        if zero_infinity && log_likelihood == f64::NEG_INFINITY {
            return;
        }
        // For each state, the log-probability of all paths that continue from there, this step included.
        let mut betas = vec![f64::NEG_INFINITY; count];
        let mut next = betas.clone();
        let mut through = vec![f64::NEG_INFINITY; self.classes];
        for t in (0..self.steps).rev() {
            let row = &log_probs[t * self.classes..][..self.classes];
            for s in 0..count {
                let label = row[self.states[s]];
                betas[s] = if t + 1 == self.steps {
                    if s + 2 >= count { label } else { f64::NEG_INFINITY }
                } else {
                    let stepped = if s + 1 < count { next[s + 1] } else { f64::NEG_INFINITY };
                    let skipped = if self.skips(s) { next[s + 2] } else { f64::NEG_INFINITY };
                    log_sum_exp(next[s], stepped, skipped) + label
                };
            }
            // All paths through a class at this step; alpha and beta both count the step's own probability.
            through.fill(f64::NEG_INFINITY);
            for (s, (&alpha, &beta)) in alphas[t * count..][..count].iter().zip(&betas).enumerate() {
                let sum = &mut through[self.states[s]];
                *sum = log_sum_exp(*sum, alpha + beta, f64::NEG_INFINITY);
            }
            for ((grad, &log_prob), &through) in grad[t * self.classes..].iter_mut().zip(row).zip(&through) {
                *grad = dy * (log_prob.exp() - (through - log_likelihood - log_prob).exp());
            }
            std::mem::swap(&mut betas, &mut next);
        }
    }
}

/// `log(exp(a) + exp(b) + exp(c))`.
fn log_sum_exp(a: f64, b: f64, c: f64) -> f64 {
    let max = a.max(b).max(c);
    if max == f64::NEG_INFINITY {
        return max;
    }
    max + ((a - max).exp() + (b - max).exp() + (c - max).exp()).ln()
}

/// Calls `work` with each sequence and its part of `out`, of `size` elements, on several threads where that pays.
fn in_parallel(
    sequences: &[Sequence],
    out: &mut [f64],
    size: usize,
    work: impl Fn(usize, &Sequence, &mut [f64]) + Sync,
) {
    /// About a millisecond's worth: far more than starting a thread costs.
    const CELLS_PER_THREAD: usize = 30_000;
    let cells: usize = sequences.iter().map(|s| s.steps.saturating_mul(s.states.len())).sum();
    let available = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = (cells / CELLS_PER_THREAD).clamp(1, available).min(sequences.len().max(1));
    let share = sequences.len().div_ceil(threads).max(1);
    let run = |first: usize, sequences: &[Sequence], out: &mut [f64]| {
        for (i, sequence) in sequences.iter().enumerate() {
            work(first + i, sequence, &mut out[i * size..][..size]);
        }
    };
    std::thread::scope(|scope| {
        let mut parts: Vec<_> =
            sequences.chunks(share).zip(out.chunks_mut((share * size).max(1))).enumerate().collect();
        let own = parts.pop();
        for (part, (sequences, out)) in parts {
            scope.spawn(move || run(part * share, sequences, out));
        }
        if let Some((part, (sequences, out))) = own {
            run(part * share, sequences, out);
        }
    });
}
