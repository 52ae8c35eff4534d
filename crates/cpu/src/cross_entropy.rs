//! Cross-entropy of logits with class indices; no probabilities are stored.

use crate::float::{BLOCK, Float, each_block, expect, load_parameter, with_float};
use crate::multiversion;
use crate::pool::parallel_ranges;
use crate::simd::{Real, Simd, Vectors, fence, sweep, total};
use crate::softmax::{STREAM, block_stats, join_stats};
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
unsafe fn weighted_sum_kernel<R: Real, I: Vectors>(x: *const R, weight: Option<*const R>, n: usize) -> f64 {
    let mut sum = 0.0;
    for at in (0..n).step_by(BLOCK) {
        let len = BLOCK.min(n - at);
        let mut sums = [R::V::<I>::splat(R::ZERO); 4];
        // SAFETY: a block of `len` within the row and the weights.
        unsafe {
            let x = x.add(at);
            match weight {
                Some(w) => sweep!(R::V<I>, len, i, m, k => {
                    let w = R::V::<I>::get(w.add(at + i), m, R::ZERO);
                    sums[k] = R::V::<I>::get(x.add(i), m, R::ZERO).fma(w, sums[k]);
                }),
                None => sweep!(R::V<I>, len, i, m, k => {
                    sums[k] = sums[k] + R::V::<I>::get(x.add(i), m, R::ZERO);
                }),
            }
        }
        sum += total(sums).to_f64();
    }
    sum
}
multiversion! {
    unsafe fn wide_weighted_sum<R: Real>(x: *const R, weight: Option<*const R>, n: usize) -> f64 = weighted_sum_kernel;
}

/// Sum of a row, with weights if given.
///
/// # Safety
/// `n` elements at `x`, and weights.
unsafe fn weighted_sum<T: Float>(x: *const T, weight: Option<&[T::Acc]>, n: usize) -> f64 {
    let mut sum = 0.0;
    // SAFETY: the caller's promise.
    unsafe {
        each_block(n, [x], std::ptr::null_mut(), |at, n, [x], _| {
            sum += wide_weighted_sum(x, weight.map(|w| w.as_ptr().add(at)), n);
        });
    }
    sum
}

/// A row's gradient is `probability * exp(x - lse) - uniform * weight`, minus `target` at its class.
#[derive(Clone, Copy)]
struct Terms<R> {
    lse: R,
    probability: R,
    uniform: R,
    target: R,
    /// None of the row's, if it is not below its length.
    class: usize,
    stream: bool,
}

#[inline(always)]
unsafe fn gradient_kernel<R: Real, I: Vectors>(
    t: Terms<R>,
    x: *const R,
    weight: Option<*const R>,
    dx: *mut R,
    n: usize,
) {
    let (lse, probability) = (R::V::<I>::splat(t.lse), R::V::<I>::splat(t.probability));
    let uniform = R::V::<I>::splat(R::ZERO - t.uniform);
    for at in (0..n).step_by(BLOCK) {
        let len = BLOCK.min(n - at);
        // SAFETY: a block of `len` within the row and the weights.
        unsafe {
            let (x, dx) = (x.add(at), dx.add(at));
            let has_class = (at..at + len).contains(&t.class);
            // The class's element is changed afterwards, so its block must stay in cache.
            let stream = t.stream && !has_class && (dx as usize).is_multiple_of(size_of::<R::V<I>>());
            match weight {
                Some(w) => sweep!(R::V<I>, len, i, m => {
                    let w = R::V::<I>::get(w.add(at + i), m, R::ZERO);
                    let e = (R::V::<I>::get(x.add(i), m, R::ZERO) - lse).exp();
                    e.fma(probability, uniform * w).put(dx.add(i), m);
                }),
                None => sweep!(R::V<I>, len, i, m => {
                    let e = (R::V::<I>::get(x.add(i), m, R::ZERO) - lse).exp();
                    let v = e.fma(probability, uniform);
                    if stream && m == R::V::<I>::N { v.stream(dx.add(i)) } else { v.put(dx.add(i), m) }
                }),
            }
            if has_class {
                let at_class = dx.add(t.class - at);
                *at_class = *at_class - t.target;
            }
        }
    }
    if t.stream {
        fence();
    }
}
multiversion! {
    unsafe fn wide_gradient<R: Real>(t: Terms<R>, x: *const R, weight: Option<*const R>, dx: *mut R, n: usize) = gradient_kernel;
}

/// # Safety
/// `n` elements at `x` and `dx`, which do not overlap, and weights; the class is below `n`.
unsafe fn gradient<T: Float>(t: Terms<T::Acc>, x: *const T, weight: Option<&[T::Acc]>, dx: *mut T, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        each_block(n, [x], dx, |at, n, [x], dx| {
            // Of a class before the block nothing is left.
            let t = Terms { class: t.class.wrapping_sub(at), stream: t.stream && T::WIDE, ..t };
            wide_gradient(t, x, weight.map(|w| w.as_ptr().add(at)), dx, n);
        });
    }
}
