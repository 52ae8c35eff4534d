//! Single ops, timed on one thread: those bound by the algorithm, not by memory.

use crate::cases::Case;
use rushlight::prelude::*;
use rushlight::{InterpolateMode, InterpolateOptions, PadMode};

/// Every case, for `list`. The name has the op and its sizes; `bench/torch_ops.py` has the PyTorch side.
pub const NAMES: &[&str] = &[
    "op_cdist",
    "op_cdist_batch",
    "op_cdist_few",
    "op_cdist_1",
    "op_cdist_backward",
    "op_index_add_1d",
    "op_index_add_rows",
    "op_index_add_columns",
    "op_index_put_add",
    "op_scatter_add_1d",
    "op_histc",
    "op_bincount",
    "op_bincount_weights",
    "op_roll_flat",
    "op_roll_rows",
    "op_roll_columns",
    "op_roll_both",
    "op_flip_rows",
    "op_flip_columns",
    "op_flip_both",
    "op_flip_image",
    "op_eigh_64",
    "op_eigh_256",
    "op_eigh_512",
    "op_eigvalsh_256",
    "op_svd_64",
    "op_svd_256",
    "op_svd_tall",
    "op_svdvals_256",
    "op_eigh_64x8",
    "op_eigh_64x16",
    "op_eigvalsh_64x8",
    "op_eigvalsh_64x16",
    "op_svd_64x8",
    "op_svd_64x16",
    "op_svdvals_64x8",
    "op_svdvals_64x16",
    "op_bilinear_layer",
    "op_bilinear",
    "op_bilinear_down",
    "op_bilinear_backward",
    "op_bicubic",
    "op_bicubic_backward",
    "op_nearest",
    "op_trilinear",
    "op_median",
    "op_median_rows",
    "op_median_columns",
    "op_median_i64",
    "op_nanmedian",
    "op_kthvalue",
    "op_kthvalue_rows",
    "op_quantile",
    "op_select",
    "op_take_1m",
    "op_take_rows",
    "op_take_pairs",
    "op_randperm_1m",
    "op_randperm_1k",
    "op_matmul_i64",
    "op_matmul_i32",
    "op_matmul_u8",
    "op_reflect",
];

/// A case of this module, or `None`.
pub fn prepare(name: &str) -> Result<Option<Case>> {
    let Some(op) = name.strip_prefix("op_") else { return Ok(None) };
    let floats = |shape: &[usize]| Tensor::randn(shape);
    let indices = |high: i64, n: usize| Tensor::randint(0, high, [n]);
    const MILLION: usize = 1 << 20;
    Ok(Some(match op {
        "cdist" => pair(floats(&[1000, 64])?, floats(&[1000, 64])?, |a, b| a.cdist(b, 2.0)),
        "cdist_batch" => pair(floats(&[32, 100, 16])?, floats(&[32, 100, 16])?, |a, b| a.cdist(b, 2.0)),
        "cdist_few" => pair(floats(&[20, 64])?, floats(&[24, 64])?, |a, b| a.cdist(b, 2.0)),
        "cdist_1" => pair(floats(&[500, 64])?, floats(&[500, 64])?, |a, b| a.cdist(b, 1.0)),
        "cdist_backward" => {
            let (a, b) = (floats(&[500, 64])?.requires_grad_(true)?, floats(&[500, 64])?.requires_grad_(true)?);
            let dy = floats(&[500, 500])?;
            Box::new(move || grad(&[&a.cdist(&b, 2.0)?], &[&a, &b], Backward::default().gradient(&dy)).map(|_| ()))
        }
        "index_add_1d" => index_add(&[100_000], 0, MILLION)?,
        "index_add_rows" => index_add(&[10_000, 64], 0, 20_000)?,
        "index_add_columns" => index_add(&[64, 10_000], 1, 20_000)?,
        "index_put_add" => {
            let (x, i, v) = (floats(&[100_000])?, indices(100_000, MILLION)?, floats(&[MILLION])?);
            Box::new(move || x.index_put_(&i, &v, true).map(|_| ()))
        }
        "scatter_add_1d" => {
            let (x, i, v) = (floats(&[100_000])?, indices(100_000, MILLION)?, floats(&[MILLION])?);
            Box::new(move || x.scatter_add_(0, &i, &v).map(|_| ()))
        }
        "histc" => one(floats(&[MILLION])?, |x| x.histc(100, -3.0, 3.0)),
        "bincount" => one(indices(1000, MILLION)?, |x| x.bincount(None, 0)),
        "bincount_weights" => pair(indices(1000, MILLION)?, floats(&[MILLION])?, |x, w| x.bincount(Some(w), 0)),
        "roll_flat" => one(floats(&[1024, 1024])?, |x| x.roll([777], [])),
        "roll_rows" => one(floats(&[1024, 1024])?, |x| x.roll([100], [0])),
        "roll_columns" => one(floats(&[1024, 1024])?, |x| x.roll([100], [1])),
        "roll_both" => one(floats(&[64, 96, 28, 28])?, |x| x.roll([3, 3], [2, 3])),
        "flip_rows" => one(floats(&[1024, 1024])?, |x| x.flip([0])),
        "flip_columns" => one(floats(&[1024, 1024])?, |x| x.flip([1])),
        "flip_both" => one(floats(&[1024, 1024])?, |x| x.flip([0, 1])),
        "flip_image" => one(floats(&[64, 3, 64, 64])?, |x| x.flip([3])),
        "eigh_64" | "eigh_256" | "eigh_512" => one(symmetric(op)?, |x| Ok(x.eigh(false)?.1)),
        "eigvalsh_256" => one(symmetric(op)?, |x| x.eigvalsh(false)),
        "svd_64" => one(floats(&[64, 64])?, |x| Ok(x.svd(false)?.0)),
        "svd_256" => one(floats(&[256, 256])?, |x| Ok(x.svd(false)?.0)),
        "svd_tall" => one(floats(&[1000, 100])?, |x| Ok(x.svd(false)?.0)),
        "svdvals_256" => one(floats(&[256, 256])?, Tensor::svdvals),
        "eigh_64x8" => one(symmetric_batch(8)?, |x| Ok(x.eigh(false)?.1)),
        "eigh_64x16" => one(symmetric_batch(16)?, |x| Ok(x.eigh(false)?.1)),
        "eigvalsh_64x8" => one(symmetric_batch(8)?, |x| x.eigvalsh(false)),
        "eigvalsh_64x16" => one(symmetric_batch(16)?, |x| x.eigvalsh(false)),
        "svd_64x8" => one(floats(&[64, 8, 8])?, |x| Ok(x.svd(true)?.0)),
        "svd_64x16" => one(floats(&[64, 16, 16])?, |x| Ok(x.svd(true)?.0)),
        "svdvals_64x8" => one(floats(&[64, 8, 8])?, Tensor::svdvals),
        "svdvals_64x16" => one(floats(&[64, 16, 16])?, Tensor::svdvals),
        "bilinear_layer" => {
            let (a, b, w) = (floats(&[128, 64])?, floats(&[128, 64])?, floats(&[64, 64, 64])?);
            Box::new(move || a.bilinear(&b, &w, None).map(|_| ()))
        }
        "bilinear" => resize(&[8, 32, 64, 64], InterpolateMode::Bilinear, &[128, 128], false)?,
        "bilinear_down" => resize(&[8, 3, 224, 224], InterpolateMode::Bilinear, &[96, 96], false)?,
        "bilinear_backward" => resize(&[8, 32, 64, 64], InterpolateMode::Bilinear, &[128, 128], true)?,
        "bicubic" => resize(&[8, 32, 64, 64], InterpolateMode::Bicubic, &[128, 128], false)?,
        "bicubic_backward" => resize(&[8, 32, 64, 64], InterpolateMode::Bicubic, &[128, 128], true)?,
        "nearest" => resize(&[8, 32, 64, 64], InterpolateMode::Nearest, &[128, 128], false)?,
        "trilinear" => resize(&[2, 8, 16, 32, 32], InterpolateMode::Trilinear, &[32, 64, 64], false)?,
        "median" => one(floats(&[MILLION])?, |x| x.median(..)),
        "median_rows" => one(floats(&[1000, 1000])?, |x| Ok(x.median(1)?.0)),
        "median_columns" => one(floats(&[1000, 1000])?, |x| Ok(x.median(0)?.0)),
        "median_i64" => one(indices(1 << 40, MILLION)?, |x| x.median(..)),
        "nanmedian" => one(floats(&[1000, 1000])?, |x| Ok(x.nanmedian(1)?.0)),
        "kthvalue" => one(floats(&[MILLION])?, |x| Ok(x.kthvalue(1000, 0, false)?.0)),
        "kthvalue_rows" => one(floats(&[1000, 1000])?, |x| Ok(x.kthvalue(500, 1, false)?.0)),
        "quantile" => one(floats(&[MILLION])?, |x| x.quantile(0.9, None, false)),
        "select" => one(floats(&[1000, 64])?, |x| x.i(500)),
        "take_1m" => pair(floats(&[MILLION])?, indices(MILLION as i64, MILLION)?, picked),
        "take_rows" => pair(floats(&[10_000, 64])?, indices(10_000, 20_000)?, picked),
        "take_pairs" => {
            let (x, i, j) = (floats(&[1000, 1000])?, indices(1000, 100_000)?, indices(1000, 100_000)?);
            Box::new(move || x.i((&i, &j)).map(|_| ()))
        }
        "randperm_1m" => Box::new(|| Tensor::randperm(MILLION).map(|_| ())),
        "randperm_1k" => Box::new(|| Tensor::randperm(1000).map(|_| ())),
        "matmul_i64" => integer_product(DType::I64)?,
        "matmul_i32" => integer_product(DType::I32)?,
        "matmul_u8" => integer_product(DType::U8)?,
        "reflect" => one(floats(&[16, 32, 64, 64])?, |x| x.pad(&[1, 1, 1, 1], PadMode::Reflect)),
        _ => return Err(Error::value(format!("unknown case '{name}'"))),
    }))
}

fn one(x: Tensor, f: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Case {
    Box::new(move || f(&x).map(|_| ()))
}

fn pair(a: Tensor, b: Tensor, f: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + 'static) -> Case {
    Box::new(move || f(&a, &b).map(|_| ()))
}

fn picked(x: &Tensor, index: &Tensor) -> Result<Tensor> {
    x.i(index)
}

fn index_add(shape: &[usize], dim: usize, count: usize) -> Result<Case> {
    let mut source = shape.to_vec();
    source[dim] = count;
    let (x, v) = (Tensor::randn(shape)?, Tensor::randn(&source)?);
    let i = Tensor::randint(0, shape[dim] as i64, [count])?;
    Ok(Box::new(move || x.index_add_(dim as isize, &i, &v, 1).map(|_| ())))
}

/// 64 random symmetric matrices.
fn symmetric_batch(n: usize) -> Result<Tensor> {
    let x = Tensor::randn([64, n, n])?;
    x.add(&x.transpose(-2, -1)?)
}

/// A random symmetric matrix of the size that the name ends in.
fn symmetric(op: &str) -> Result<Tensor> {
    let n: usize = op.rsplit('_').next().and_then(|n| n.parse().ok()).unwrap_or(1);
    let x = Tensor::randn([n, n])?;
    x.add(&x.transpose(0, 1)?)
}

fn resize(shape: &[usize], mode: InterpolateMode, size: &[usize], backward: bool) -> Result<Case> {
    let x = Tensor::randn(shape)?;
    let options = InterpolateOptions::size(size).mode(mode);
    if !backward {
        return Ok(one(x, move |x| x.interpolate(&options)));
    }
    let x = x.requires_grad_(true)?;
    let dy = x.interpolate(&options)?.randn_like()?;
    Ok(Box::new(move || grad(&[&x.interpolate(&options)?], &[&x], Backward::default().gradient(&dy)).map(|_| ())))
}

fn integer_product(dtype: DType) -> Result<Case> {
    let make = || Tensor::randint(0, 100, [256, 256])?.to_dtype(dtype);
    Ok(pair(make()?, make()?, |a, b| a.matmul(b)))
}
