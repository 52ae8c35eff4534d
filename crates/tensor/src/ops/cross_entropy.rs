//! Cross-entropy of logits and negative log-likelihood.

use super::loss::Reduction;
use super::norm::wide;
use crate::announce::announced;
use crate::autograd::{Saved, no_grad, record, recording};
use crate::program::recipe;
use crate::{Tensor, amp};
use rushlight_core::backend::{CrossEntropy, call};
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Dims, Error, Result, setters};

/// The optional arguments of [`Tensor::cross_entropy_with`] and [`Tensor::nll_loss`].
#[derive(Clone, Copy)]
pub struct CrossEntropyOptions<'a> {
    weight: Option<&'a Tensor>,
    ignore_index: i64,
    label_smoothing: f64,
    reduction: Reduction,
}

impl Default for CrossEntropyOptions<'_> {
    fn default() -> Self {
        Self { weight: None, ignore_index: -100, label_smoothing: 0.0, reduction: Reduction::Mean }
    }
}

impl<'a> CrossEntropyOptions<'a> {
    setters! {
        /// A weight per class.
        weight: into Option<&'a Tensor>;
        /// The class index to ignore; -100 by default.
        ignore_index: i64;
        /// Label smoothing: the share of the target spread over all classes, from 0 to 1; 0 by default.
        label_smoothing: f64;
        /// How the losses are reduced; by default to their mean. The mean over class indices is weighted.
        reduction: Reduction;
    }
}

/// The classes' dimension moved last and the others merged: `[rows, classes]`.
fn class_rows(x: &Tensor) -> Result<Tensor> {
    match x.rank() {
        1 => x.unsqueeze(0),
        2 => Ok(x.clone()),
        _ => x.movedim([1], [-1])?.reshape([-1, x.shape()[1] as isize]),
    }
}

/// Checks a target of class indices against `[N, C, d..]` or `[C]`, and gives it flat.
fn class_targets(name: &str, x: &Tensor, target: &Tensor) -> Result<Tensor> {
    if !matches!(target.dtype(), DType::I64 | DType::U8) {
        return Err(Error::dtype(format!(
            "{name}: expected target dtype to be int64 or uint8, but got {}",
            target.dtype()
        )));
    }
    let mut expected = Dims::from_slice(x.shape());
    expected.remove(usize::from(x.rank() > 1));
    if target.shape() != &expected[..] {
        if x.rank() <= 2 && target.rank() == 1 {
            return Err(Error::shape(format!(
                "{name}: expected input batch_size ({}) to match target batch_size ({})",
                x.shape()[0],
                target.shape()[0]
            )));
        }
        return Err(Error::shape(format!(
            "{name}: expected target size {:?}, got {:?}",
            &expected[..],
            target.shape()
        )));
    }
    target.to_dtype(DType::I64)?.contiguous()?.reshape([-1])
}

fn check_weight(name: &str, x: &Tensor, classes: usize, weight: Option<&Tensor>) -> Result<()> {
    let Some(weight) = weight else { return Ok(()) };
    x.same_device(weight, name)?;
    if weight.shape() != [classes] {
        return Err(Error::shape(format!(
            "{name}: weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of shape: {:?}",
            weight.shape()
        )));
    }
    if weight.dtype() != x.dtype() {
        return Err(Error::dtype(format!(
            "{name}: expected weight of dtype {} as the input, but got {}",
            x.dtype(),
            weight.dtype()
        )));
    }
    if weight.requires_grad() {
        return Err(Error::autograd(format!("{name}: the derivative for 'weight' is not implemented; detach it")));
    }
    Ok(())
}

/// Checks `x` and `target` for a loss over classes. Returns the number of classes.
fn check_classes(name: &str, x: &Tensor, target: &Tensor) -> Result<usize> {
    x.needs_float(name)?;
    x.same_device(target, name)?;
    match x.shape() {
        [] => Err(Error::shape(format!("{name}: expected an input of at least one dimension, the classes"))),
        [classes] | [_, classes, ..] => Ok(*classes),
    }
}

/// Losses of rows and their weights, in the dtype of statistics.
struct RowLosses {
    loss: Tensor,
    weight: Tensor,
}

impl RowLosses {
    /// The weighted mean. On a GPU one kernel, if rows are few.
    fn mean(self, dtype: DType) -> Result<Tensor> {
        let Self { loss, weight } = self;
        let out = recipe("weighted_mean", &[dtype as i64], [&loss, &weight], |[loss, weight]| {
            loss.sum(..)?.div(&weight.sum(..)?)?.to_dtype(dtype)
        })?;
        if recording(&[&loss]) {
            let (rows, wide) = (loss.numel(), loss.dtype());
            record("nll_loss", &[&loss], &out, move |_, dy| {
                Ok(smallvec![Some(dy.to_dtype(wide)?.div(&weight.sum(..)?)?.expand([rows])?)])
            })?;
        }
        Ok(out)
    }

    fn reduce(self, name: &str, reduction: Reduction, shape: &[usize], dtype: DType) -> Result<Tensor> {
        match reduction {
            Reduction::None => self.loss.reshape(shape)?.to_dtype(dtype),
            Reduction::Mean => self.mean(dtype),
            other => other.apply(name, self.loss)?.to_dtype(dtype),
        }
    }
}

/// What the fused family computes, beside its operands.
#[derive(Clone, Copy)]
struct Form {
    ignore_index: i64,
    label_smoothing: f64,
    /// Of log-probabilities instead of logits.
    log_probabilities: bool,
}

/// The operands of the fused family: `[rows, classes]`, `[rows]` and `[classes]`.
struct Operands {
    logits: Tensor,
    target: Tensor,
    weight: Option<Tensor>,
}

impl Operands {
    fn spec(&self, form: Form) -> CrossEntropy<'_> {
        let Form { ignore_index, label_smoothing, log_probabilities } = form;
        CrossEntropy {
            logits: self.logits.engine_view(),
            target: self.target.engine_view(),
            weight: self.weight.as_ref().map(|w| w.engine_view()),
            ignore_index,
            label_smoothing,
            log_probabilities,
        }
    }

    /// The weight each class has in each row's loss: `loss = -sum(goal * log_softmax(logits))`.
    fn goal(&self, Form { ignore_index, label_smoothing, .. }: Form) -> Result<Tensor> {
        let (classes, place) = (self.logits.shape()[1], (wide(self.logits.dtype()), self.logits.device()));
        no_grad(|| {
            let target = self.target.unsqueeze(1)?;
            let counts = target.ne(ignore_index)?.to_dtype(place.0)?;
            let hit = Tensor::arange_with(0, classes, 1, (DType::I64, place.1))?.eq(&target)?.to_dtype(place.0)?;
            let smooth = Tensor::full_with([classes], label_smoothing / classes as f64, place)?;
            let goal = hit.mul(1.0 - label_smoothing)?.add(&smooth)?.mul(&counts)?;
            let Some(weight) = &self.weight else { return Ok(goal) };
            goal.mul(&weight.to_dtype(place.0)?)
        })
    }

    /// The gradient by the logits as recorded ops.
    fn composed_backward(&self, dloss: &Tensor, form: Form) -> Result<Tensor> {
        let goal = self.goal(form)?;
        let slope = if form.log_probabilities {
            goal.neg()?
        } else {
            let likely = self.logits.to_dtype(goal.dtype())?.softmax(1)?;
            likely.mul(&goal.sum_dims([1], true)?)?.sub(&goal)?
        };
        slope.mul(&dloss.unsqueeze(1)?)?.to_dtype(self.logits.dtype())
    }
}

/// The fused family, recorded: the op `name`, of log-probabilities if that is `nll_loss`.
fn row_losses(name: &'static str, logits: &Tensor, target: Tensor, options: &CrossEntropyOptions) -> Result<RowLosses> {
    let &CrossEntropyOptions { ignore_index, label_smoothing, .. } = options;
    let form = Form { ignore_index, label_smoothing, log_probabilities: name == "nll_loss" };
    let weight = options.weight.map(|w| w.contiguous()).transpose()?;
    let operands = Operands { logits: logits.contiguous()?, target, weight };
    let logits = &operands.logits;
    let statistics = || logits.uninit_like(&logits.shape()[..1], wide(logits.dtype()));
    let (loss, row_weight, lse) = (statistics()?, statistics()?, statistics()?);
    if loss.numel() > 0 {
        let spec = operands.spec(form);
        let done = loss.run(call::CrossEntropy {
            of: spec,
            loss: loss.engine_view(),
            row_weight: row_weight.engine_view(),
            lse: lse.engine_view(),
        });
        done.map_err(|e| e.within(name))?;
    }
    if recording(&[logits]) {
        let (logits, target) = (Saved::input(logits), Saved::input(&operands.target));
        let weight = operands.weight.as_ref().map(Saved::input);
        record(name, &[&operands.logits], &loss, move |ctx, dloss| {
            let weight = weight.as_ref().map(|w| ctx.get(w)).transpose()?;
            let operands = Operands { logits: ctx.get(&logits)?, target: ctx.get(&target)?, weight };
            if ctx.recording() {
                return Ok(smallvec![Some(operands.composed_backward(dloss, form)?)]);
            }
            let dloss = dloss.contiguous()?;
            let dlogits = operands.logits.uninit_like(operands.logits.shape(), operands.logits.dtype())?;
            if dlogits.numel() > 0 {
                let spec = operands.spec(form);
                dlogits.run(call::CrossEntropyBackward {
                    of: spec,
                    lse: lse.engine_view(),
                    dloss: dloss.engine_view(),
                    dlogits: dlogits.engine_view(),
                })?;
            }
            Ok(smallvec![Some(dlogits)])
        })?;
    }
    Ok(RowLosses { loss, weight: row_weight })
}

impl Tensor {
    /// Mean cross-entropy of logits `[N, C, ..]` (or `[C]`) with class indices or probabilities; see
    /// [`Tensor::cross_entropy_with`].
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let logits = Tensor::zeros([3, 10])?.requires_grad_(true)?;
    /// let loss = logits.cross_entropy(&Tensor::new([1i64, 2, 3])?)?;
    /// assert!((loss.item::<f64>()? - 10f64.ln()).abs() < 1e-6);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn cross_entropy(&self, target: &Tensor) -> Result<Tensor> {
        self.cross_entropy_with(target, &CrossEntropyOptions::default())
    }

    /// Cross-entropy of logits `[N, C, ..]` (or `[C]`) with class indices of that shape without `C`, or probabilities
    /// of that shape.
    pub fn cross_entropy_with(&self, target: &Tensor, options: &CrossEntropyOptions) -> Result<Tensor> {
        if let Some(cast) = amp::full() {
            // The kernels compute half types in full precision: with class indices, only the result must be `f32`.
            let half = matches!(self.dtype(), DType::F16 | DType::BF16);
            if half && options.weight.is_none() && !target.is_floating_point() {
                return cast.run(|| self.cross_entropy_as(target, options, DType::F32));
            }
            let weight = cast.of_option(options.weight)?;
            let options = options.weight(weight.as_ref());
            return cast.run(|| cast.of(self)?.cross_entropy_with(&cast.of(target)?, &options));
        }
        let &CrossEntropyOptions { weight, ignore_index, label_smoothing, reduction } = options;
        announced!(
            "nn.functional.cross_entropy", [self, target], weight = weight, ignore_index = ignore_index,
            reduction = reduction, label_smoothing = label_smoothing;
            self.cross_entropy_with(target, options)
        );
        self.cross_entropy_as(target, options, self.dtype())
    }

    /// Cross-entropy with a result of another dtype, where the target holds class indices.
    fn cross_entropy_as(&self, target: &Tensor, options: &CrossEntropyOptions, dtype: DType) -> Result<Tensor> {
        let name = "cross_entropy";
        let classes = check_classes(name, self, target)?;
        if !(0.0..=1.0).contains(&options.label_smoothing) {
            return Err(Error::value(format!(
                "{name}: label_smoothing must be between 0.0 and 1.0. Got: {}",
                options.label_smoothing
            )));
        }
        if target.shape() == self.shape() && target.dtype().is_float() {
            return self.soft_cross_entropy(target, classes, options);
        }
        check_weight(name, self, classes, options.weight)?;
        let flat = class_targets(name, self, target)?;
        row_losses(name, &class_rows(self)?, flat, options)?.reduce(name, options.reduction, target.shape(), dtype)
    }

    fn soft_cross_entropy(&self, target: &Tensor, classes: usize, options: &CrossEntropyOptions) -> Result<Tensor> {
        let dim = isize::from(self.rank() > 1);
        let mut goal = target.clone();
        if options.label_smoothing > 0.0 {
            goal = goal.mul(1.0 - options.label_smoothing)?.add(options.label_smoothing / classes as f64)?;
        }
        if let Some(weight) = options.weight {
            if weight.shape() != [classes] {
                return Err(Error::shape(format!(
                    "cross_entropy: weight tensor should be defined either for all {classes} classes or no classes but got weight tensor \
                     of shape: {:?}",
                    weight.shape()
                )));
            }
            let mut shape: Dims = smallvec![1; self.rank() - dim as usize];
            shape[0] = classes;
            goal = goal.mul(&weight.reshape(&shape)?)?;
        }
        let loss = self.log_softmax(dim)?.mul(&goal)?.sum(dim)?.neg()?;
        match options.reduction {
            // Every position counts as one, whatever the weights.
            Reduction::Mean => loss.sum(..)?.div(loss.numel() as f64),
            other => other.apply("cross_entropy", loss),
        }
    }

    /// Negative log-likelihood of class indices under log-probabilities `[N, C, ..]` (or `[C]`).
    pub fn nll_loss(&self, target: &Tensor, options: &CrossEntropyOptions) -> Result<Tensor> {
        let name = "nll_loss";
        if let Some(cast) = amp::full() {
            let weight = cast.of_option(options.weight)?;
            let options = options.weight(weight.as_ref());
            return cast.run(|| cast.of(self)?.nll_loss(target, &options));
        }
        let classes = check_classes(name, self, target)?;
        if options.label_smoothing != 0.0 {
            return Err(Error::value(format!("{name}: takes no label_smoothing; use cross_entropy_with")));
        }
        check_weight(name, self, classes, options.weight)?;
        let flat = class_targets(name, self, target)?;
        row_losses(name, &class_rows(self)?, flat, options)?.reduce(
            name,
            options.reduction,
            target.shape(),
            self.dtype(),
        )
    }
}
