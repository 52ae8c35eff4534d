use crate::support::args::Args;
use rushlight_core::Result;
use rushlight_tensor::Tensor;

type Over = fn(&Tensor, &[isize], bool) -> Result<Tensor>;

fn dims(a: &Args, f: Over) -> Result<Tensor> {
    f(a.t(0)?, &a.dims(1, "dim")?, a.flag(2, "keepdim", false)?)
}

/// An op over all elements, or along one dimension with indices.
fn along(
    a: &Args,
    whole: fn(&Tensor) -> Result<Tensor>,
    one: fn(&Tensor, isize, bool) -> Result<(Tensor, Tensor)>,
) -> Result<Vec<Tensor>> {
    match a.opt_dim(1, "dim")? {
        None => Ok(vec![whole(a.t(0)?)?]),
        Some(dim) => one(a.t(0)?, dim, a.flag(2, "keepdim", false)?).map(|(values, indices)| vec![values, indices]),
    }
}

fn place(
    a: &Args,
    whole: fn(&Tensor) -> Result<Tensor>,
    one: fn(&Tensor, isize, bool) -> Result<Tensor>,
) -> Result<Tensor> {
    match a.opt_dim(1, "dim")? {
        None => whole(a.t(0)?),
        Some(dim) => one(a.t(0)?, dim, a.flag(2, "keepdim", false)?),
    }
}

fn correction(a: &Args) -> Result<f64> {
    a.f64(usize::MAX, "correction", 1.0)
}

super::ops! {
    "sum" => |a| match a.dtype("dtype")? {
        Some(d) => a.t(0)?.sum_as(&a.dims(1, "dim")?, a.flag(2, "keepdim", false)?, d),
        None => dims(a, |x, d, k| x.sum_dims(d, k)),
    };
    "mean" => |a| match a.dtype("dtype")? {
        Some(d) => a.t(0)?.mean_as(&a.dims(1, "dim")?, a.flag(2, "keepdim", false)?, d),
        None => dims(a, |x, d, k| x.mean_dims(d, k)),
    };
    "prod" => |a| match a.dtype("dtype")? {
        Some(d) => a.t(0)?.prod_as(&a.dims(1, "dim")?, a.flag(2, "keepdim", false)?, d),
        None => dims(a, |x, d, k| x.prod_dims(d, k)),
    };
    "nansum" => |a| dims(a, |x, d, k| x.nansum_dims(d, k));
    "nanmean" => |a| dims(a, |x, d, k| x.nanmean_dims(d, k));
    "logsumexp" => |a| dims(a, |x, d, k| x.logsumexp(d, k));
    "amax" => |a| dims(a, |x, d, k| x.amax(d, k));
    "amin" => |a| dims(a, |x, d, k| x.amin(d, k));
    "any" => |a| dims(a, |x, d, k| x.any_dims(d, k));
    "all" => |a| dims(a, |x, d, k| x.all_dims(d, k));
    "count_nonzero" => |a| a.t(0)?.count_nonzero(&a.dims(1, "dim")?);
    "var" => |a| a.t(0)?.var_dims(&a.dims(1, "dim")?, correction(a)?, a.flag(3, "keepdim", false)?);
    "std" => |a| a.t(0)?.std_dims(&a.dims(1, "dim")?, correction(a)?, a.flag(3, "keepdim", false)?);
    "var_mean" => |a| a.t(0)?.var_mean(&a.dims(1, "dim")?, correction(a)?, a.flag(3, "keepdim", false)?);
    "max" => |a| along(a, |x| x.max(..), Tensor::max_dim);
    "min" => |a| along(a, |x| x.min(..), Tensor::min_dim);
    "median" => |a| along(a, |x| x.median(..), Tensor::median_dim);
    "nanmedian" => |a| along(a, |x| x.nanmedian(..), Tensor::nanmedian_dim);
    "aminmax" => |a| a.t(0)?.aminmax(a.opt_dim(1, "dim")?, a.flag(2, "keepdim", false)?);
    "argmax" => |a| place(a, |x| x.argmax(..), Tensor::argmax_dim);
    "argmin" => |a| place(a, |x| x.argmin(..), Tensor::argmin_dim);
    "norm" => |a| a.t(0)?.norm_dims(a.f64(1, "p", 2.0)?, &a.dims(2, "dim")?, a.flag(3, "keepdim", false)?);
    "vector_norm" => |a| a.t(0)?.vector_norm(a.f64(1, "ord", 2.0)?, &a.dims(2, "dim")?, a.flag(3, "keepdim", false)?);
}
