//! Random tensors. The same seed gives the same numbers on every device and with any number of threads.

use super::compare::where_;
use super::create::Options;
use crate::Tensor;
use crate::announce::announced;
use crate::autograd::{no_grad, record, recording};
use crate::capture::random_stream;
use crate::program::recipe;
use rushlight_core::backend::call;
use rushlight_core::rng::{Distribution, LONGEST_PERMUTATION, default_generator, permutation_words};
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Error, Generator, Result};

/// Words of the stream an element takes.
fn words(dtype: DType, distribution: Distribution) -> u64 {
    match (distribution, dtype) {
        (Distribution::Integers { .. }, _) | (_, DType::F64) => 2,
        _ => 1,
    }
}

impl Tensor {
    fn fill_random(&self, distribution: Distribution, generator: &Generator) -> Result<()> {
        if self.is_complex() {
            // The parts of a standard normal number have half its variance each.
            let distribution = match distribution {
                Distribution::Normal { mean, std } => Distribution::Normal { mean, std: std * 0.5f64.sqrt() },
                other => other,
            };
            return self.pairs()?.fill_random(distribution, generator);
        }
        // Rounded up to whole blocks of four words, pairs of normals included.
        let count = (self.numel() as u64).div_ceil(2) * 2 * words(self.dtype(), distribution);
        let stream = random_stream(generator, count, self.device())?;
        if self.numel() > 0 {
            self.run(call::Random { distribution, stream, out: self.engine_view() })?;
        }
        Ok(())
    }

    fn random_inplace(&self, name: &str, distribution: Distribution) -> Result<&Tensor> {
        self.check_inplace(name, &[self])?;
        if recording(&[self]) {
            // Ends the old value's history: no gradient flows to it.
            self.fill_(0)?;
        }
        self.fill_random(distribution, default_generator())?;
        self.changed_unrecorded();
        Ok(self)
    }

    fn random(
        name: &str,
        shape: &[usize],
        distribution: Distribution,
        default: DType,
        generator: &Generator,
        options: Options,
    ) -> Result<Tensor> {
        let dtype = options.dtype_or(default);
        if !dtype.is_differentiable()
            && !matches!(distribution, Distribution::Integers { .. } | Distribution::Bernoulli { .. })
        {
            return Err(Error::dtype(format!("{name}: not implemented for {dtype}; it makes floats")));
        }
        let out = options.uninit(shape, default)?;
        out.fill_random(distribution, generator)?;
        Ok(out)
    }

    /// Uniform in `[0, 1)`.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_core::{DType, rng::manual_seed}; }
    /// # use rushlight_tensor::Tensor;
    /// rushlight::manual_seed(1);
    /// let a = Tensor::rand([3])?;
    /// rushlight::manual_seed(1);
    /// assert!(a.equal(&Tensor::rand([3])?)?);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn rand(shape: impl AsRef<[usize]>) -> Result<Tensor> {
        Tensor::rand_with(shape, Options::default())
    }

    /// [`Tensor::rand`] of a dtype on a device.
    pub fn rand_with(shape: impl AsRef<[usize]>, options: impl Into<Options>) -> Result<Tensor> {
        Tensor::rand_from(default_generator(), shape, options)
    }

    /// [`Tensor::rand`] from a generator of one's own.
    #[doc(alias = "generator")]
    pub fn rand_from(generator: &Generator, shape: impl AsRef<[usize]>, options: impl Into<Options>) -> Result<Tensor> {
        let uniform = Distribution::Uniform { low: 0.0, high: 1.0 };
        Tensor::random("rand", shape.as_ref(), uniform, crate::default_dtype(), generator, options.into())
    }

    /// Standard normal, `float32`.
    pub fn randn(shape: impl AsRef<[usize]>) -> Result<Tensor> {
        Tensor::randn_with(shape, Options::default())
    }

    /// [`Tensor::randn`] of a dtype on a device.
    pub fn randn_with(shape: impl AsRef<[usize]>, options: impl Into<Options>) -> Result<Tensor> {
        Tensor::randn_from(default_generator(), shape, options)
    }

    /// [`Tensor::randn`] from a generator of one's own.
    #[doc(alias("generator", "normal"))]
    pub fn randn_from(
        generator: &Generator,
        shape: impl AsRef<[usize]>,
        options: impl Into<Options>,
    ) -> Result<Tensor> {
        let normal = Distribution::Normal { mean: 0.0, std: 1.0 };
        Tensor::random("randn", shape.as_ref(), normal, crate::default_dtype(), generator, options.into())
    }

    /// Integers in `[low, high)`, `int64`.
    pub fn randint(low: i64, high: i64, shape: impl AsRef<[usize]>) -> Result<Tensor> {
        Tensor::randint_with(low, high, shape, Options::default())
    }

    /// [`Tensor::randint`] of a dtype on a device.
    pub fn randint_with(
        low: i64,
        high: i64,
        shape: impl AsRef<[usize]>,
        options: impl Into<Options>,
    ) -> Result<Tensor> {
        if low >= high {
            return Err(Error::value(format!(
                "randint: expects 'low' to be less than 'high', but got {low} >= {high}"
            )));
        }
        let integers = Distribution::Integers { low, high };
        Tensor::random("randint", shape.as_ref(), integers, DType::I64, default_generator(), options.into())
    }

    /// The numbers `0..n` in random order, `int64`. The order of a seed is the same on every machine; it is not
    /// PyTorch's.
    #[doc(alias("permutation", "shuffle"))]
    pub fn randperm(n: usize) -> Result<Tensor> {
        Tensor::randperm_from(default_generator(), n)
    }

    /// [`Tensor::randperm`] from a generator of one's own.
    pub fn randperm_from(generator: &Generator, n: usize) -> Result<Tensor> {
        let out = Options::default().uninit(&[n], DType::I64)?;
        if n > LONGEST_PERMUTATION {
            let keys = Distribution::Integers { low: i64::MIN, high: i64::MAX };
            out.fill_random(keys, generator)?;
            return out.argsort(0, false);
        }
        let stream = generator.reserve(permutation_words(n));
        if n > 0 {
            out.run(call::Permutation { stream, out: out.engine_view() })?;
        }
        Ok(out)
    }

    /// Uniform in `[0, 1)` with this tensor's shape, dtype and device.
    pub fn rand_like(&self) -> Result<Tensor> {
        Tensor::rand_with(self.shape(), (self.dtype(), self.device()))
    }

    /// Standard normal with this tensor's shape, dtype and device.
    pub fn randn_like(&self) -> Result<Tensor> {
        Tensor::randn_with(self.shape(), (self.dtype(), self.device()))
    }

    /// Overwrites with uniform values.
    pub fn uniform_(&self, low: f64, high: f64) -> Result<&Tensor> {
        self.needs_float("uniform_")?;
        if !(low <= high && (high - low).is_finite()) {
            return Err(Error::value(format!(
                "uniform_: expects to return a [from, to) range, but found from={low} > to={high}"
            )));
        }
        self.random_inplace("uniform_", Distribution::Uniform { low, high })
    }

    /// Overwrites with normal values.
    pub fn normal_(&self, mean: f64, std: f64) -> Result<&Tensor> {
        self.needs_float("normal_")?;
        check_std(std)?;
        self.random_inplace("normal_", Distribution::Normal { mean, std })
    }

    /// Overwrites with ones of probability `p` and zeros.
    pub fn bernoulli_(&self, p: f64) -> Result<&Tensor> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::value(format!("bernoulli_: expects p to be in [0, 1], but got p={p}")));
        }
        self.random_inplace("bernoulli_", Distribution::Bernoulli { p })
    }

    /// Ones with the probabilities this tensor holds, and zeros.
    pub fn bernoulli(&self) -> Result<Tensor> {
        self.needs_float("bernoulli")?;
        no_grad(|| {
            // On a GPU the check would wait for the device.
            if self.device().is_cpu() && crate::capture::may_read(self.device()) {
                let valid = self.ge(0.0)?.bitwise_and(&self.le(1.0)?)?;
                if !valid.all(..)?.item::<bool>()? {
                    return Err(Error::value("bernoulli: expects all probabilities to be in [0, 1]"));
                }
            }
            let compute = if self.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
            let draw = Tensor::rand_with(self.shape(), (compute, self.device()))?;
            draw.lt(&self.to_dtype(compute)?)?.to_dtype(self.dtype())
        })
    }

    /// Normal values with element-wise mean and standard deviation, broadcast; differentiable by both.
    pub fn normal(mean: &Tensor, std: &Tensor) -> Result<Tensor> {
        if crate::capture::may_read(std.device()) && no_grad(|| std.lt(0.0)?.any(..)?.item::<bool>())? {
            return Err(Error::value("normal: expects all elements of std >= 0.0"));
        }
        let shape =
            rushlight_core::layout::broadcast_shapes(mean.shape(), std.shape()).map_err(|e| e.within("normal"))?;
        let noise = Tensor::randn_with(&shape, (mean.dtype().promote(std.dtype()), mean.device()))?;
        noise.mul(std)?.add(mean)
    }

    /// `count` indices per row (last dimension), drawn with probability proportional to the elements.
    #[doc(alias = "choice")]
    pub fn multinomial(&self, count: usize, replacement: bool) -> Result<Tensor> {
        self.needs_float("multinomial")?;
        if self.rank() == 0 || self.rank() > 2 {
            return Err(Error::shape(format!(
                "multinomial: expects a 1- or 2-dimensional tensor, got shape {:?}",
                self.shape()
            )));
        }
        let classes = self.shape()[self.rank() - 1];
        if count == 0 || (!replacement && count > classes) {
            return Err(Error::value(format!(
                "multinomial: cannot draw {count} samples from {classes} categories without replacement; draw fewer, at least one, or \
                 pass replacement"
            )));
        }
        no_grad(|| {
            let p = self.to_dtype(if self.dtype() == DType::F64 { DType::F64 } else { DType::F32 })?;
            let total = p.sum_dims([-1], true)?;
            if p.numel() > 0 && crate::capture::may_read(p.device()) {
                check_probabilities(&p, &total, if replacement { 0 } else { count })?;
            }
            if !replacement {
                // The largest of p / exponential noise: a draw without replacement.
                let noise = p.rand_like()?.rsub(1.0)?.log()?.neg()?;
                let score = where_(&p.gt(0.0)?, &p.div(&noise)?, -1.0)?;
                return Ok(score.topk(count, -1, true)?.1);
            }
            let cumulative = p.cumsum(-1)?.div(&total)?;
            let mut shape = p.shape().to_vec();
            let last = shape.len() - 1;
            shape[last] = count;
            let draw = Tensor::rand_with(&shape, (p.dtype(), p.device()))?;
            // The last class with a positive probability bounds rounding.
            cumulative.searchsorted(&draw, true)?.clamp_max(classes as i64 - 1)
        })
    }

    /// Zeros each element with probability `p` and scales the others by `1 / (1 - p)`, when training. The mask is not
    /// stored: backward makes the same random numbers again.
    pub fn dropout(&self, p: f64, training: bool) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::value(format!("dropout probability has to be between 0 and 1, but got {p}")));
        }
        self.needs_float("dropout")?;
        if !training || p == 0.0 {
            return Ok(self.clone());
        }
        announced!("nn.functional.dropout", [self, p, training]; self.dropout(p, training));
        if p == 1.0 {
            return self.mul(0.0);
        }
        if self.is_complex() {
            let ones = Tensor::full_with(self.shape(), 1.0, (self.dtype().real(), self.device()))?;
            return self.mul(&ones.dropout(p, true)?);
        }
        let stream = random_stream(default_generator(), self.numel() as u64, self.device())?;
        if self.is_contiguous() {
            return self.dropout_from(p, stream);
        }
        // The result keeps the order of the dimensions in memory, which is also the order of the random numbers.
        let order = self.preserved_order();
        let mut inverse = vec![0isize; order.len()];
        order.iter().enumerate().for_each(|(to, &from)| inverse[from] = to as isize);
        let order: Vec<isize> = order.iter().map(|&d| d as isize).collect();
        self.permute(&order)?.dropout_from(p, stream)?.permute(&inverse)
    }

    pub(crate) fn dropout_from(&self, p: f64, stream: rushlight_core::Philox) -> Result<Tensor> {
        let out = self.uninit_like(self.shape(), self.dtype())?;
        if out.numel() > 0 {
            self.run(call::Dropout { x: self.engine_view(), p, stream, out: out.engine_view() })?;
        }
        if recording(&[self]) {
            record("dropout", &[self], &out, move |_, dy| Ok(smallvec![Some(dy.dropout_from(p, stream)?)]))?;
        }
        Ok(out)
    }
}

/// Checks the rows of `multinomial` with one value read from the device: `total` are their sums, and `count` of each
/// row's elements must be positive.
fn check_probabilities(p: &Tensor, total: &Tensor, count: usize) -> Result<()> {
    let fault = recipe("multinomial", &[count as i64], [p, total], |[p, total]| {
        let least = p.amin([-1], true)?;
        let positive = p.gt(0.0)?.to_dtype(p.dtype())?.sum_dims([-1], true)?;
        let few = where_(&positive.lt(count as i64)?, 1, 0)?;
        let empty = where_(&total.gt(0.0)?, &few, 2)?;
        // A sum is finite only if all elements are.
        let valid = total.isfinite()?.logical_and(&least.ge(0.0)?)?;
        where_(&valid, &empty, 3)?.amax(.., false)
    })?;
    match fault.item::<i64>()? {
        0 => Ok(()),
        1 => {
            Err(Error::value(format!("multinomial: a row has fewer than {count} categories with positive probability")))
        }
        2 => Err(Error::value("multinomial: each row needs a positive sum of probabilities")),
        _ => Err(Error::value("multinomial: probabilities must not be negative, infinite or NaN")),
    }
}

fn check_std(std: f64) -> Result<()> {
    if std >= 0.0 { Ok(()) } else { Err(Error::value(format!("normal_: expects std >= 0.0, but found std {std}"))) }
}
