//! Cross-entropy of logits with class indices; no probabilities are stored.

use crate::float::{Float, Scratch, expect, load_parameter, load_row, out_row, store_row, with_float};
use crate::multiversion;
use crate::pool::parallel_ranges;
use crate::simd::{Real, Simd, Vectors, fence, sweep, total};
use crate::softmax::{BLOCK, STREAM, block_stats, join_stats};
use rushlight_core::backend::CrossEntropy;
use rushlight_core::sync::SendPtr;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Element, Error, Result, View};
use std::sync::Mutex;

/// Minimum elements per task.
const GRAIN: usize = 1 << 15;

/// Loss of each row (weighted, zero if ignored), the weight it has in a mean, and the logarithm of the sum of
/// exponentials.
pub fn cross_entropy(spec: &CrossEntropy, loss: View, row_weight: View, lse: View) -> Result<()> {
    const OP: &str = "cross_entropy";
    let [rows, classes] = sizes(OP, spec)?;
    with_float!(OP, spec.logits.dtype(), T => {
        type A = <T as Float>::Acc;
        for (name, view) in [("loss", &loss), ("row_weight", &row_weight), ("lse", &lse)] {
            expect(OP, name, view, A::DTYPE, rows)?;
        }
        let weight = spec.weight.map(|w| load_parameter::<T>(OP, "weight", &w, classes)).transpose()?;
        let problem = Problem::<T>::new(spec, rows, classes, weight.as_deref());
        // SAFETY: sizes and dtypes were checked; outputs do not overlap inputs.
        unsafe { forward(&problem, loss.ptr().cast(), row_weight.ptr().cast(), lse.ptr().cast()) }
    })
}

/// Gradient with respect to the logits, from the gradient of each row's loss.
pub fn cross_entropy_backward(spec: &CrossEntropy, lse: View, dloss: View, dlogits: View) -> Result<()> {
    const OP: &str = "cross_entropy_backward";
    let [rows, classes] = sizes(OP, spec)?;
    expect(OP, "dlogits", &dlogits, spec.logits.dtype(), rows * classes)?;
    with_float!(OP, spec.logits.dtype(), T => {
        type A = <T as Float>::Acc;
        expect(OP, "lse", &lse, A::DTYPE, rows)?;
        expect(OP, "dloss", &dloss, A::DTYPE, rows)?;
        let weight = spec.weight.map(|w| load_parameter::<T>(OP, "weight", &w, classes)).transpose()?;
        let problem = Problem::<T>::new(spec, rows, classes, weight.as_deref());
        // SAFETY: sizes and dtypes were checked; outputs do not overlap inputs.
        unsafe { backward(&problem, lse.ptr().cast(), dloss.ptr().cast(), dlogits.ptr().cast()) }
    })
}

fn sizes(op: &str, spec: &CrossEntropy) -> Result<[usize; 2]> {
    let &[rows, classes] = spec.logits.shape() else {
        return Err(Error::shape(format!(
            "{op}: logits have shape {:?}, expected [rows, classes]",
            spec.logits.shape()
        )));
    };
    expect(op, "logits", &spec.logits, spec.logits.dtype(), rows * classes)?;
    expect(op, "target", &spec.target, DType::I64, rows)?;
    Ok([rows, classes])
}

/// The spec with raw pointers.
struct Problem<'a, T: Float> {
    rows: usize,
    classes: usize,
    logits: SendPtr<T>,
    target: SendPtr<i64>,
    weight: Option<&'a [T::Acc]>,
    weight_sum: f64,
    ignore_index: i64,
    smoothing: f64,
    log_probabilities: bool,
}

impl<'a, T: Float> Problem<'a, T> {
    fn new(spec: &CrossEntropy, rows: usize, classes: usize, weight: Option<&'a [T::Acc]>) -> Self {
        Self {
            rows,
            classes,
            logits: SendPtr::new(spec.logits.ptr().cast()),
            target: SendPtr::new(spec.target.ptr().cast()),
            weight,
            weight_sum: weight_sum::<T>(weight, classes),
            ignore_index: spec.ignore_index,
            smoothing: spec.label_smoothing,
            log_probabilities: spec.log_probabilities,
        }
    }

    /// The logarithm of the sum of exponentials of a row.
    ///
    /// # Safety
    /// The row is `x`.
    unsafe fn log_sum(&self, x: *const T, parts: &mut Vec<(T::Acc, T::Acc)>) -> f64 {
        if self.log_probabilities {
            return 0.0;
        }
        parts.clear();
        for at in (0..self.classes).step_by(BLOCK) {
            // SAFETY: the block is within the row.
            parts.push(unsafe { block_stats::<T>(x.add(at), BLOCK.min(self.classes - at)) });
        }
        let (max, sum) = join_stats(parts);
        max.to_f64() + sum.to_f64().ln()
    }

    /// Rows per task.
    fn grain(&self) -> usize {
        (GRAIN / self.classes.max(1)).max(1)
    }

    /// The class of a row, `None` if ignored. A class out of range is recorded.
    ///
    /// # Safety
    /// The row exists.
    unsafe fn class(&self, row: usize, bad: &BadTarget) -> Option<usize> {
        // SAFETY: by the caller's contract.
        let target = unsafe { crate::index::read_index(self.target.at(row)) };
        if target == self.ignore_index {
            return None;
        }
        let class = usize::try_from(target).ok().filter(|&c| c < self.classes);
        if class.is_none() {
            bad.note(row, target);
        }
        class
    }

    fn weight_of(&self, class: usize) -> f64 {
        self.weight.map_or(1.0, |w| w[class].to_f64())
    }
}

fn weight_sum<T: Float>(weight: Option<&[T::Acc]>, classes: usize) -> f64 {
    weight.map_or(classes as f64, |w| w.iter().fold(0.0, |sum, v| sum + v.to_f64()))
}

/// The first row with a target out of range, and that target.
#[derive(Default)]
struct BadTarget(Mutex<Option<(usize, i64)>>);

impl BadTarget {
    #[cold]
    fn note(&self, row: usize, target: i64) {
        let mut first = lock(&self.0);
        if first.is_none_or(|(r, _)| row < r) {
            *first = Some((row, target));
        }
    }

    fn result(self) -> Result<()> {
        match self.0.into_inner().unwrap_or_else(|e| e.into_inner()) {
            Some((_, target)) => Err(Error::index(format!("Target {target} is out of bounds."))),
            None => Ok(()),
        }
    }
}

/// # Safety
/// The problem's pointers have its sizes; `rows` elements at each output, which overlap nothing.
unsafe fn forward<T: Float>(
    p: &Problem<T>,
    loss: *mut T::Acc,
    row_weight: *mut T::Acc,
    lse: *mut T::Acc,
) -> Result<()> {
    let bad = BadTarget::default();
    let (loss, row_weight, lses) = (SendPtr::new(loss), SendPtr::new(row_weight), SendPtr::new(lse));
    parallel_ranges(p.rows, p.grain(), |from, to| {
        let mut parts = Vec::with_capacity(p.classes.div_ceil(BLOCK));
        for row in from..to {
            let x = p.logits.at(row * p.classes);
            // SAFETY: the row exists and is this task's; the class is in range.
            unsafe {
                let lse = p.log_sum(x, &mut parts);
                *lses.at(row) = T::Acc::lit(lse);
                let (mut value, mut weight) = (0.0, 0.0);
                if let Some(class) = p.class(row, &bad) {
                    weight = p.weight_of(class);
                    let plain = weight * (lse - (*x.add(class)).to_f64());
                    value = plain;
                    if p.smoothing > 0.0 {
                        let uniform = lse * p.weight_sum - weighted_sum::<T>(x, p.weight, p.classes);
                        value = (1.0 - p.smoothing) * plain + p.smoothing / p.classes as f64 * uniform;
                    }
                }
                *loss.at(row) = T::Acc::lit(value);
                *row_weight.at(row) = T::Acc::lit(weight);
            }
        }
    });
    bad.result()
}

/// # Safety
/// The problem's pointers have its sizes; `rows` elements at `lse` and `dloss`, `dlogits` as the logits, overlapping
/// nothing.
unsafe fn backward<T: Float>(p: &Problem<T>, lse: *const T::Acc, dloss: *const T::Acc, dlogits: *mut T) -> Result<()> {
    let bad = BadTarget::default();
    let (lse, dloss) = (SendPtr::new(lse.cast_mut()), SendPtr::new(dloss.cast_mut()));
    let dlogits = SendPtr::new(dlogits);
    let stream = p.rows * p.classes * size_of::<T>() > STREAM;
    parallel_ranges(p.rows, p.grain(), |from, to| {
        for row in from..to {
            let at = row * p.classes;
            // SAFETY: the row exists and is this task's; the class is in range.
            unsafe {
                let Some(class) = p.class(row, &bad) else {
                    std::slice::from_raw_parts_mut(dlogits.at(at), p.classes).fill(T::default());
                    continue;
                };
                let incoming = (*dloss.at(row)).to_f64();
                let plain = incoming * (1.0 - p.smoothing) * p.weight_of(class);
                if p.log_probabilities {
                    std::slice::from_raw_parts_mut(dlogits.at(at), p.classes).fill(T::default());
                    *dlogits.at(at + class) = T::from_f64(-plain);
                    continue;
                }
                let uniform = incoming * p.smoothing / p.classes as f64;
                let terms = Terms {
                    lse: *lse.at(row),
                    probability: T::Acc::lit(plain + uniform * p.weight_sum),
                    uniform: T::Acc::lit(uniform),
                    target: T::Acc::lit(plain),
                    class,
                    stream,
                };
                gradient::<T>(terms, p.logits.at(at), p.weight, dlogits.at(at), p.classes);
            }
        }
    });
    bad.result()
}

#[inline(always)]
unsafe fn weighted_sum_kernel<T: Float, I: Vectors>(x: *const T, weight: Option<&[T::Acc]>, n: usize) -> f64 {
    type V<T, I> = <<T as Float>::Acc as Real>::V<I>;
    let mut scratch = Scratch::<T::Acc, BLOCK>::new();
    let mut sum = 0.0;
    for at in (0..n).step_by(BLOCK) {
        let len = BLOCK.min(n - at);
        let mut sums = [V::<T, I>::splat(T::Acc::ZERO); 4];
        // SAFETY: a block of `len` within the row and the weights.
        unsafe {
            let x = load_row::<T, I>(x.add(at), scratch.as_mut_ptr(), len);
            match weight {
                Some(w) => sweep!(V<T, I>, len, i, m, k => {
                    let w = V::<T, I>::get(w.as_ptr().add(at + i), m, T::Acc::ZERO);
                    sums[k] = V::<T, I>::get(x.add(i), m, T::Acc::ZERO).fma(w, sums[k]);
                }),
                None => sweep!(V<T, I>, len, i, m, k => {
                    sums[k] = sums[k] + V::<T, I>::get(x.add(i), m, T::Acc::ZERO);
                }),
            }
        }
        sum += total(sums).to_f64();
    }
    sum
}
multiversion! {
    /// Sum of a row, with weights if given.
    ///
    /// # Safety
    /// `n` elements at `x`, and weights.
    unsafe fn weighted_sum<T: Float>(x: *const T, weight: Option<&[T::Acc]>, n: usize) -> f64 = weighted_sum_kernel;
}

/// A row's gradient is `probability * exp(x - lse) - uniform * weight`, minus `target` at its class.
#[derive(Clone, Copy)]
struct Terms<R> {
    lse: R,
    probability: R,
    uniform: R,
    target: R,
    class: usize,
    stream: bool,
}

#[inline(always)]
unsafe fn gradient_kernel<T: Float, I: Vectors>(
    t: Terms<T::Acc>,
    x: *const T,
    weight: Option<&[T::Acc]>,
    dx: *mut T,
    n: usize,
) {
    type V<T, I> = <<T as Float>::Acc as Real>::V<I>;
    let mut scratch = Scratch::<T::Acc, BLOCK>::new();
    let (lse, probability) = (V::<T, I>::splat(t.lse), V::<T, I>::splat(t.probability));
    let uniform = V::<T, I>::splat(T::Acc::ZERO - t.uniform);
    for at in (0..n).step_by(BLOCK) {
        let len = BLOCK.min(n - at);
        // SAFETY: a block of `len` within the row and the weights.
        unsafe {
            let dx = dx.add(at);
            let x = load_row::<T, I>(x.add(at), scratch.as_mut_ptr(), len);
            let out = out_row(dx, scratch.as_mut_ptr());
            let has_class = (at..at + len).contains(&t.class);
            // The class's element is changed afterwards, so its block must stay in cache.
            let stream = t.stream && T::WIDE && !has_class && (out as usize).is_multiple_of(size_of::<V<T, I>>());
            match weight {
                Some(w) => sweep!(V<T, I>, len, i, m => {
                    let w = V::<T, I>::get(w.as_ptr().add(at + i), m, T::Acc::ZERO);
                    let e = (V::<T, I>::get(x.add(i), m, T::Acc::ZERO) - lse).exp();
                    e.fma(probability, uniform * w).put(out.add(i), m);
                }),
                None => sweep!(V<T, I>, len, i, m => {
                    let e = (V::<T, I>::get(x.add(i), m, T::Acc::ZERO) - lse).exp();
                    let v = e.fma(probability, uniform);
                    if stream && m == V::<T, I>::N { v.stream(out.add(i)) } else { v.put(out.add(i), m) }
                }),
            }
            if has_class {
                let at_class = out.add(t.class - at);
                *at_class = *at_class - t.target;
            }
            store_row::<T, I>(out, dx, len);
        }
    }
    if t.stream {
        fence();
    }
}
multiversion! {
    /// # Safety
    /// `n` elements at `x` and `dx`, which do not overlap, and weights; the class is below `n`.
    unsafe fn gradient<T: Float>(t: Terms<T::Acc>, x: *const T, weight: Option<&[T::Acc]>, dx: *mut T, n: usize) = gradient_kernel;
}
