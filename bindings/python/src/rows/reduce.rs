//! Reductions: sums, extrema, statistics.

use crate::rows;
use crate::value::{Out, dims, size};
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::{Arg, Tensor};

/// An op over all elements, some dimensions, or with a dtype: the common forms of PyTorch's reductions.
fn reduce(
    input: &Tensor,
    dim: Option<&[i64]>,
    keepdim: bool,
    dtype: Option<DType>,
    plain: impl Fn(&Tensor, &[isize], bool) -> Result<Tensor>,
) -> Result<Tensor> {
    let converted;
    let converted_input = match dtype {
        Some(dtype) if dtype != input.dtype() => {
            converted = input.to_dtype(dtype)?;
            &converted
        }
        _ => input,
    };
    let out = plain(converted_input, &dims(dim.unwrap_or(&[])), keepdim)?;
    if let Some(dtype) = dtype {
        differentiable(input, dtype)?;
    }
    // Small integers and bool are summed as `int64`.
    if let Some(dtype) = dtype { out.to_dtype(dtype) } else { Ok(out) }
}

/// PyTorch reports an error for a recorded conversion to integers.
pub fn differentiable(input: &Tensor, dtype: DType) -> Result<()> {
    if !dtype.is_differentiable() && input.requires_grad() && rushlight_tensor::autograd::is_grad_enabled() {
        return Err(Error::autograd(format!(
            "autograd does not support dtype {dtype}: detach the input, or pass a float dtype"
        )));
    }
    Ok(())
}

fn truths(input: &Tensor, dim: Option<&[i64]>, keepdim: bool, all: bool) -> Result<Tensor> {
    match (dim, all) {
        // For these two an empty list of dimensions means no reduction, as in PyTorch.
        (Some([]), _) => match input.dtype() {
            DType::U8 => input.ne(0)?.to_dtype(DType::U8),
            _ => input.ne(0),
        },
        (dim, true) => input.all_dims(dims(dim.unwrap_or(&[])), keepdim),
        (dim, false) => input.any_dims(dims(dim.unwrap_or(&[])), keepdim),
    }
}

fn arg(input: &Tensor, dim: Option<i64>, keepdim: bool, largest: bool) -> Result<Tensor> {
    match (dim, largest) {
        (Some(dim), true) => input.argmax_dim(dim as isize, keepdim),
        (Some(dim), false) => input.argmin_dim(dim as isize, keepdim),
        (None, _) => {
            let found = if largest { input.argmax(..)? } else { input.argmin(..)? };
            if keepdim { found.reshape(&vec![1usize; input.rank()]) } else { Ok(found) }
        }
    }
}

const VALUES: &str = "values indices";

fn pair(found: (Tensor, Tensor)) -> Out {
    Out::Named(VALUES, vec![found.0, found.1])
}

fn prod(input: &Tensor, dim: Option<i64>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    let dim: Vec<i64> = dim.into_iter().collect();
    reduce(input, Some(&dim), keepdim, dtype, |t, d, k| t.prod_dims(d, k))
}

fn norm(input: &Tensor, p: f64, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    reduce(input, dim, keepdim, dtype, |t, d, k| t.norm_dims(p, d, k))
}

fn norm_word(input: &Tensor, p: &str, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    match p {
        "fro" => norm(input, 2.0, dim, keepdim, dtype),
        "inf" => norm(input, f64::INFINITY, dim, keepdim, dtype),
        "-inf" => norm(input, f64::NEG_INFINITY, dim, keepdim, dtype),
        "nuc" => {
            let pair = match dim {
                None if input.rank() == 2 => [0, 1],
                Some(&[a, b]) => [a as isize, b as isize],
                _ => return Err(Error::value("norm: the nuclear norm needs two dimensions")),
            };
            input.matrix_norm(rushlight_tensor::MatrixNorm::Nuc, pair, keepdim)
        }
        other => Err(Error::value(format!("norm: p must be a number, 'fro', 'nuc' or 'inf', not '{other}'"))),
    }
}

/// `correction` is the newer name of `unbiased`.
fn correction(unbiased: bool) -> f64 {
    unbiased as u8 as f64
}

fn var(input: &Tensor, dim: Option<&[i64]>, correction: f64, keepdim: bool, root: bool) -> Result<Tensor> {
    let dim = dims(dim.unwrap_or(&[]));
    if root { input.std_dims(&dim, correction, keepdim) } else { input.var_dims(&dim, correction, keepdim) }
}

fn quantile(
    input: &Tensor,
    q: Arg,
    dim: Option<i64>,
    keepdim: bool,
    interpolation: &str,
    ignore_nan: bool,
) -> Result<Tensor> {
    if input.numel() == 0 {
        return Err(Error::value("quantile() input tensor must be non-empty"));
    }
    if !["linear", "lower", "higher", "nearest", "midpoint"].contains(&interpolation) {
        return Err(Error::value(format!(
            "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )));
    }
    if !matches!(input.dtype(), DType::F32 | DType::F64) {
        return Err(Error::value(format!(
            "quantile() input tensor must be either float or double dtype, not {}",
            input.dtype()
        )));
    }
    let of = |q: f64| -> Result<Tensor> {
        match (interpolation, ignore_nan) {
            ("linear", false) if input.rank() > 0 => input.quantile(q, dim.map(|d| d as isize), keepdim),
            _ => by_rank(input, q, dim, keepdim, interpolation, ignore_nan),
        }
    };
    match q {
        Arg::Scalar(q) => of(q.to_f64()),
        Arg::Tensor(q) if q.rank() == 0 => of(q.item::<f64>()?),
        Arg::Tensor(q) if q.rank() == 1 => {
            let parts = q.to_vec::<f64>()?.into_iter().map(of).collect::<Result<Vec<_>>>()?;
            // The quantiles of one row lie beside each other, as in PyTorch.
            rushlight_tensor::stack(&parts.iter().collect::<Vec<_>>(), -1)?.movedim([-1], [0])
        }
        Arg::Tensor(_) => Err(Error::shape("quantile() q must be a scalar or 1D tensor")),
    }
}

/// A quantile by the sorted elements of each row. A row with a NaN has the last element, which is one, unless NaNs are
/// ignored: then the ranks count the others.
fn by_rank(
    input: &Tensor,
    q: f64,
    dim: Option<i64>,
    keepdim: bool,
    interpolation: &str,
    ignore_nan: bool,
) -> Result<Tensor> {
    if !(0.0..=1.0).contains(&q) {
        return Err(Error::value(format!("quantile() q values must be in the range [0, 1], but got {q}")));
    }
    let (x, d) = match dim {
        Some(d) if input.rank() > 0 => (input.clone(), d as isize),
        _ => (input.reshape([-1isize])?, 0),
    };
    let last = x.size(d)?.checked_sub(1).ok_or_else(|| Error::value("quantile() input tensor must be non-empty"))?;
    let (sorted, _) = x.sort(d, false)?;
    let nan = x.detach().isnan()?;
    let ranks = if ignore_nan {
        let others = nan.logical_not()?.sum_dims([d], true)?;
        others.sub(1)?.to_dtype(DType::F64)?.mul(q)?.clamp_min(0.0)?
    } else {
        let nan = nan.any_dims([d], true)?;
        let plain = Tensor::full_with(nan.shape(), q * last as f64, (DType::F64, x.device()))?;
        plain.masked_fill(&nan, last as f64)?
    };
    let at = |ranks: &Tensor| sorted.gather(d, &ranks.to_dtype(DType::I64)?);
    let found = match interpolation {
        "lower" => at(&ranks.floor()?)?,
        "higher" => at(&ranks.ceil()?)?,
        "nearest" => at(&ranks.round()?)?,
        "midpoint" => at(&ranks.floor()?)?.lerp(&at(&ranks.ceil()?)?, 0.5)?,
        _ => {
            let floor = ranks.floor()?;
            at(&floor)?.lerp(&at(&ranks.ceil()?)?, &ranks.sub(&floor)?.to_dtype(input.dtype())?)?
        }
    };
    match (dim, keepdim) {
        _ if input.rank() == 0 => found.reshape([0usize; 0]),
        (Some(_), true) => Ok(found),
        (Some(_), false) => found.squeeze(d),
        (None, true) => found.reshape(&vec![1usize; input.rank()]),
        (None, false) => found.reshape([0usize; 0]),
    }
}

fn mode(input: &Tensor, dim: i64, keepdim: bool) -> Result<Out> {
    let dim = dim as isize;
    if input.rank() == 0 {
        input.reshape([1usize])?.size(dim)?;
        return Ok(pair((input.clone(), Tensor::zeros_with([], (DType::I64, input.device()))?)));
    }
    // The longest run of equal elements in sorted order; of equally long runs the smallest value.
    let (sorted, order) = input.sort(dim, false)?;
    let n = input.size(dim)?;
    if n == 0 {
        return Err(Error::index("mode(): Expected reduction dim to have non-zero size."));
    }
    let mut counts = sorted.detach().full_like(1)?.to_dtype(DType::I64)?;
    let mut same = counts.to_dtype(DType::Bool)?;
    for k in 1..n {
        let equal = sorted.narrow(dim, k as isize, n - k)?.eq(&sorted.narrow(dim, 0, n - k)?)?;
        same = same.narrow(dim, 1, n - k)?.logical_and(&equal)?;
        let run = rushlight_tensor::cat(&[&counts.narrow(dim, 0, k)?.zeros_like()?, &same.to_dtype(DType::I64)?], dim)?;
        counts = counts.add(&run)?;
    }
    let best = counts.argmax_dim(dim, true)?;
    let (mut values, mut indices) = (sorted.gather(dim, &best)?, order.gather(dim, &best)?);
    if !keepdim {
        (values, indices) = (values.squeeze(dim)?, indices.squeeze(dim)?);
    }
    Ok(pair((values, indices)))
}

fn dims_or_all(input: &Tensor, dim: Option<&[i64]>) -> Vec<isize> {
    match dim {
        Some(dim) if !dim.is_empty() => dim.iter().map(|&d| d as isize).collect(),
        _ => (0..input.rank() as isize).collect(),
    }
}

/// PyTorch has no kernel for integers.
fn nanmean(input: &Tensor, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    if !input.dtype().is_differentiable() {
        return Err(Error::unsupported(format!(
            "nanmean(): expected input to have floating point or complex dtype but got {}",
            input.dtype()
        )));
    }
    reduce(input, dim, keepdim, dtype, |t, d, k| t.nanmean_dims(d, k))
}

rows! { ROWS:
    /// Sum of elements.
    sum [Torch Method] "sum(Tensor input, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)"
        |input: &Tensor, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>| reduce(input, dim, keepdim, dtype, |t, d, k| t.sum_dims(d, k));
    /// Sum of elements that are not NaN.
    nansum [Torch Method] "nansum(Tensor input, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)"
        |input: &Tensor, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>| reduce(input, dim, keepdim, dtype, |t, d, k| t.nansum_dims(d, k));
    /// Mean of elements.
    mean [Torch Method] "mean(Tensor input, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)"
        |input: &Tensor, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>| reduce(input, dim, keepdim, dtype, |t, d, k| t.mean_dims(d, k));
    /// Mean of elements that are not NaN.
    nanmean [Torch Method] "nanmean(Tensor input, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)"
        |input: &Tensor, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>| nanmean(input, dim, keepdim, dtype);
    /// Product of elements.
    prod [Torch Method]
        "prod(Tensor input, *, dtype? dtype=None)" |input: &Tensor, dtype: Option<DType>| prod(input, None, false, dtype),
        "prod(Tensor input, int dim, bool keepdim=False, *, dtype? dtype=None)"
            |input: &Tensor, dim: i64, keepdim: bool, dtype: Option<DType>| prod(input, Some(dim), keepdim, dtype);
    /// The exclusive or of the elements' 64 bits, as `uint64`.
    hash_tensor [Torch Method] "hash_tensor(Tensor input, int[1]? dim=None, *, bool keepdim=False, int mode=0)"
        |input: &Tensor, dim: Option<&[i64]>, keepdim: bool, mode: i64| {
            if mode != 0 {
                return Err(Error::value(format!("Unknown hash_tensor mode: {mode}")));
            }
            input.hash_tensor(dims(dim.unwrap_or(&[])), keepdim)
        };
    /// Logarithm of the sum of exponentials.
    logsumexp [Torch Method Special] "logsumexp(Tensor input, int[1] dim, bool keepdim=False)" |input: &Tensor, dim: &[i64], keepdim: bool|
        input.logsumexp(dims(dim), keepdim);
    /// Whether any element is true.
    any [Torch Method] "any(Tensor input, int[1]? dim=None, bool keepdim=False)" |input: &Tensor, dim: Option<&[i64]>, keepdim: bool|
        truths(input, dim, keepdim, false);
    /// Whether all elements are true.
    all [Torch Method] "all(Tensor input, int[1]? dim=None, bool keepdim=False)" |input: &Tensor, dim: Option<&[i64]>, keepdim: bool|
        truths(input, dim, keepdim, true);
    /// Number of nonzero elements.
    count_nonzero [Torch Method] "count_nonzero(Tensor input, int[1]? dim=None)" |input: &Tensor, dim: Option<&[i64]>|
        input.count_nonzero(dims_or_all(input, dim));
    /// The largest element; with a dimension its indices too; of two tensors, the larger elements.
    max [Torch Method]
        "max(Tensor input)" |input: &Tensor| input.max(..),
        "max(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.maximum(other),
        "max(Tensor input, int dim, bool keepdim=False)" |input: &Tensor, dim: isize, keepdim: bool| input.max_dim(dim, keepdim).map(pair);
    /// The smallest element; with a dimension its indices too; of two tensors, the smaller elements.
    min [Torch Method]
        "min(Tensor input)" |input: &Tensor| input.min(..),
        "min(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.minimum(other),
        "min(Tensor input, int dim, bool keepdim=False)" |input: &Tensor, dim: isize, keepdim: bool| input.min_dim(dim, keepdim).map(pair);
    /// The largest elements; equal elements share the gradient.
    amax [Torch Method] "amax(Tensor input, int[1]? dim=(), bool keepdim=False)"
        |input: &Tensor, dim: Option<&[i64]>, keepdim: bool| input.amax(dims(dim.unwrap_or(&[])), keepdim);
    /// The smallest elements; equal elements share the gradient.
    amin [Torch Method] "amin(Tensor input, int[1]? dim=(), bool keepdim=False)"
        |input: &Tensor, dim: Option<&[i64]>, keepdim: bool| input.amin(dims(dim.unwrap_or(&[])), keepdim);
    /// The smallest and the largest elements.
    aminmax [Torch Method] "aminmax(Tensor input, *, int? dim=None, bool keepdim=False)" |input: &Tensor, dim: Option<isize>, keepdim: bool|
        input.aminmax(dim, keepdim).map(|(low, high)| Out::Named("min max", vec![low, high]));
    /// Index of the largest element.
    argmax [Torch Method] "argmax(Tensor input, int? dim=None, bool keepdim=False)" |input: &Tensor, dim: Option<i64>, keepdim: bool| arg(input, dim, keepdim, true);
    /// Index of the smallest element.
    argmin [Torch Method] "argmin(Tensor input, int? dim=None, bool keepdim=False)" |input: &Tensor, dim: Option<i64>, keepdim: bool| arg(input, dim, keepdim, false);
    /// Variance.
    var [Torch Method]
        "var(Tensor input, int[1]? dim, bool unbiased, bool keepdim=False)" |input: &Tensor, dim: Option<&[i64]>, unbiased: bool, keepdim: bool|
            var(input, dim, correction(unbiased), keepdim, false),
        "var(Tensor input, bool unbiased)" |input: &Tensor, unbiased: bool| input.var_dims(.., correction(unbiased), false),
        "var(Tensor input, int[1]? dim=None, *, Number? correction=1, bool keepdim=False)" |input: &Tensor, dim: Option<&[i64]>, correction: Option<f64>, keepdim: bool|
            var(input, dim, correction.unwrap_or(1.0), keepdim, false),
        "var(Tensor input, int[1]? dim=None, bool keepdim=False, *, bool unbiased=True)" |input: &Tensor, dim: Option<&[i64]>, keepdim: bool, unbiased: bool|
            var(input, dim, correction(unbiased), keepdim, false);
    /// Standard deviation.
    std [Torch Method]
        "std(Tensor input, int[1]? dim, bool unbiased, bool keepdim=False)" |input: &Tensor, dim: Option<&[i64]>, unbiased: bool, keepdim: bool|
            var(input, dim, correction(unbiased), keepdim, true),
        "std(Tensor input, bool unbiased)" |input: &Tensor, unbiased: bool| input.std_dims(.., correction(unbiased), false),
        "std(Tensor input, int[1]? dim=None, *, Number? correction=1, bool keepdim=False)" |input: &Tensor, dim: Option<&[i64]>, correction: Option<f64>, keepdim: bool|
            var(input, dim, correction.unwrap_or(1.0), keepdim, true),
        "std(Tensor input, int[1]? dim=None, bool keepdim=False, *, bool unbiased=True)" |input: &Tensor, dim: Option<&[i64]>, keepdim: bool, unbiased: bool|
            var(input, dim, correction(unbiased), keepdim, true);
    /// Variance and mean.
    var_mean [Torch]
        "var_mean(Tensor input, int[1]? dim=None, *, Number? correction=1, bool keepdim=False)" |input: &Tensor, dim: Option<&[i64]>, correction: Option<f64>, keepdim: bool|
            input.var_mean(dims(dim.unwrap_or(&[])), correction.unwrap_or(1.0), keepdim),
        "var_mean(Tensor input, int[1]? dim, bool unbiased, bool keepdim=False)" |input: &Tensor, dim: Option<&[i64]>, unbiased: bool, keepdim: bool|
            input.var_mean(dims(dim.unwrap_or(&[])), correction(unbiased), keepdim),
        "var_mean(Tensor input, bool unbiased)" |input: &Tensor, unbiased: bool| input.var_mean([], correction(unbiased), false);
    /// Standard deviation and mean.
    std_mean [Torch]
        "std_mean(Tensor input, int[1]? dim=None, *, Number? correction=1, bool keepdim=False)" |input: &Tensor, dim: Option<&[i64]>, correction: Option<f64>, keepdim: bool|
            input.std_mean(dims(dim.unwrap_or(&[])), correction.unwrap_or(1.0), keepdim),
        "std_mean(Tensor input, int[1]? dim, bool unbiased, bool keepdim=False)" |input: &Tensor, dim: Option<&[i64]>, unbiased: bool, keepdim: bool|
            input.std_mean(dims(dim.unwrap_or(&[])), correction(unbiased), keepdim),
        "std_mean(Tensor input, bool unbiased)" |input: &Tensor, unbiased: bool| input.std_mean([], correction(unbiased), false);
    /// A norm of the elements.
    norm [Torch Method]
        "norm(Tensor input, Number? p=2, int[1]? dim=None, bool keepdim=False, dtype? dtype=None)"
            |input: &Tensor, p: Option<f64>, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>| norm(input, p.unwrap_or(2.0), dim, keepdim, dtype),
        "norm(Tensor input, str p, int[1]? dim=None, bool keepdim=False, dtype? dtype=None)"
            |input: &Tensor, p: &str, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>| norm_word(input, p, dim, keepdim, dtype);
    /// The median: the lower one of an even number of elements.
    median [Torch Method]
        "median(Tensor input)" |input: &Tensor| input.median(..),
        "median(Tensor input, int dim, bool keepdim=False)" |input: &Tensor, dim: isize, keepdim: bool| input.median_dim(dim, keepdim).map(pair);
    /// The median of elements that are not NaN.
    nanmedian [Torch Method]
        "nanmedian(Tensor input)" |input: &Tensor| input.nanmedian(..),
        "nanmedian(Tensor input, int dim, bool keepdim=False)" |input: &Tensor, dim: isize, keepdim: bool| input.nanmedian_dim(dim, keepdim).map(pair);
    /// The most frequent element.
    mode [Torch Method] "mode(Tensor input, int dim=-1, bool keepdim=False)" |input: &Tensor, dim: i64, keepdim: bool| mode(input, dim, keepdim);
    /// Quantiles, linearly interpolated.
    quantile [Torch Method] "quantile(Tensor input, Tensor|Number q, int? dim=None, bool keepdim=False, *, str interpolation='linear')"
        |input: &Tensor, q: Arg, dim: Option<i64>, keepdim: bool, interpolation: &str| quantile(input, q, dim, keepdim, interpolation, false);
    /// Quantiles of elements that are not NaN.
    nanquantile [Torch Method] "nanquantile(Tensor input, Tensor|Number q, int? dim=None, bool keepdim=False, *, str interpolation='linear')"
        |input: &Tensor, q: Arg, dim: Option<i64>, keepdim: bool, interpolation: &str| quantile(input, q, dim, keepdim, interpolation, true);
    /// The k-th smallest elements.
    kthvalue [Torch Method] "kthvalue(Tensor input, int k, int dim=-1, bool keepdim=False)" |input: &Tensor, k: i64, dim: isize, keepdim: bool|
        input.kthvalue(size(k, "kthvalue: k")?, dim, keepdim).map(pair);
    /// Sum of the diagonal.
    trace [Torch Method] "trace(Tensor input)" |input: &Tensor| input.trace();
    /// Sums broadcast dimensions to the given size.
    sum_to_size [Method] "sum_to_size(Tensor input, int... size)" |input: &Tensor, size: crate::value::Sizes| {
        let sums = input.sum_to_size(&size.0)?;
        // Sums of bools and small integers are `int64`, also those of one element.
        if (sums.shape() != input.shape() || size.0.is_empty()) && !sums.dtype().is_differentiable() { sums.to_dtype(DType::I64) } else { Ok(sums) }
    };
    /// The p-norm of the difference.
    dist [Torch Method] "dist(Tensor input, Tensor other, Number p=2)" |input: &Tensor, other: &Tensor, p: f64| input.sub(other)?.norm(p);
    /// Covariances of variables stored in rows.
    cov [Torch Method] "cov(Tensor input, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None)"
        |input: &Tensor, correction: i64, fweights: Option<&Tensor>, aweights: Option<&Tensor>| cov(input, correction, fweights, aweights);
    /// Correlations of variables stored in rows.
    corrcoef [Torch Method] "corrcoef(Tensor input)" |input: &Tensor| corrcoef(input);
    /// Counts of elements between limits, in bins of equal width.
    histc [Torch Method] "histc(Tensor input, int bins=100, Number min=0, Number max=0)" |input: &Tensor, bins: i64, min: f64, max: f64|
        input.histc(size(bins, "histc: bins")?, min, max);
    /// Counts of each number from zero on.
    bincount [Torch Method] "bincount(Tensor input, Tensor? weights=None, int minlength=0)" |input: &Tensor, weights: Option<&Tensor>, minlength: i64|
        input.bincount(weights, size(minlength, "bincount: minlength")?);
}

fn cov(input: &Tensor, correction: i64, fweights: Option<&Tensor>, aweights: Option<&Tensor>) -> Result<Tensor> {
    if input.rank() > 2 {
        return Err(Error::shape(format!(
            "cov(): expected input to have two or fewer dimensions but got an input with {} dimensions",
            input.rank()
        )));
    }
    if input.dtype() == DType::Bool {
        return Err(Error::dtype("cov(): not implemented for bool"));
    }
    let float = if input.dtype().is_differentiable() { input.dtype() } else { crate::dtype::default() };
    let x = input.to_dtype(float)?;
    let x = if x.rank() < 2 { x.reshape([1, x.numel() as isize])? } else { x };
    let mut weights: Option<Tensor> = None;
    for w in [fweights, aweights].into_iter().flatten() {
        // In their own dtypes: weights of a higher precision than the input's raise the result's.
        weights = Some(match weights {
            Some(known) => known.mul(w)?,
            None => w.clone(),
        });
    }
    let count = x.size(1)? as f64;
    // Sums of weights stay tensors: weights may require gradients.
    let total = match &weights {
        Some(w) => w.sum(..)?,
        None => Tensor::full_with([], count, (float.real(), x.device()))?,
    };
    let mean = match &weights {
        Some(w) => x.mul(w)?.sum_dims([1], true)?.div(&total)?,
        None => x.mean_dims([1], true)?,
    };
    let centred = x.sub(&mean)?;
    let divisor = match (&weights, aweights) {
        (Some(w), Some(a)) if correction != 0 => {
            let share = w.mul(a)?.sum(..)?.div(&total)?;
            total.sub(&share.mul(correction as f64)?)?
        }
        _ => total.sub(correction as f64)?,
    };
    let weighted = match &weights {
        Some(w) => centred.mul(w)?,
        None => centred.clone(),
    };
    let out = weighted.matmul(&centred.t()?.conj()?)?.div(&divisor.clamp_min(0.0)?)?;
    out.squeeze(..)
}

fn corrcoef(input: &Tensor) -> Result<Tensor> {
    let c = cov(input, 1, None, None)?;
    if c.rank() == 0 {
        return c.div(&c);
    }
    let deviation = c.diagonal(0, 0, 1)?.real()?.sqrt()?;
    let shares = c.div(&deviation.unsqueeze(1)?)?.div(&deviation.unsqueeze(0)?)?;
    match c.is_complex() {
        true => rushlight_tensor::complex(&shares.real()?.clamp(-1.0, 1.0)?, &shares.imag()?.clamp(-1.0, 1.0)?),
        false => shares.clamp(-1.0, 1.0),
    }
}
