//! Reductions, running ones and order: errors, edges and second derivatives that PyTorch's recorded cases do not cover.

use rushlight_core::{DType, ErrorKind, Result};
use rushlight_tensor::autograd::{Backward, grad};
use rushlight_tensor::{
    Indexing, Tensor, block_diag, cartesian_prod, dstack, hstack, meshgrid, tril_indices, triu_indices, vstack,
};

fn vector(values: &[f64]) -> Result<Tensor> {
    Tensor::from_slice(values, [values.len()])
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("expected an error"),
        Err(e) => e.kind(),
    }
}

fn close(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{got:?} against {want:?}");
    for (a, b) in got.iter().zip(want) {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{got:?} against {want:?}");
    }
}

/// First and second derivatives of `f` (reduced to a scalar) against finite differences.
fn check(at: &[f64], shape: &[usize], f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
    let weigh = |t: &Tensor, phase: f64| -> Result<Tensor> {
        let w = Tensor::from_iter((0..t.numel()).map(|i| (i as f64 * 0.7 + phase).sin() + 1.5))?.reshape(t.shape())?;
        t.mul(&w)?.sum(..)
    };
    let slope = |values: &[f64], graph: bool| -> Result<(Tensor, Tensor)> {
        let x = vector(values)?.reshape(shape)?.detach().requires_grad_(true)?;
        let y = weigh(&f(&x)?, 0.3)?;
        let dx = grad(&[&y], &[&x], Backward::default().create_graph(graph))?.remove(0);
        Ok((x.clone(), dx.unwrap_or(x.zeros_like()?)))
    };
    let value = |values: &[f64]| weigh(&f(&vector(values)?.reshape(shape)?)?, 0.3)?.item::<f64>();
    let curve = |values: &[f64]| weigh(&slope(values, false)?.1, 1.1)?.item::<f64>();
    let numeric = |of: &dyn Fn(&[f64]) -> Result<f64>| -> Result<Vec<f64>> {
        let h = 1e-5;
        (0..at.len())
            .map(|i| {
                let (mut low, mut high) = (at.to_vec(), at.to_vec());
                low[i] -= h;
                high[i] += h;
                Ok((of(&high)? - of(&low)?) / (2.0 * h))
            })
            .collect()
    };
    let (x, dx) = slope(at, true)?;
    close(&dx.to_vec::<f64>()?, &numeric(&value)?, 1e-6);
    let second = if dx.requires_grad() {
        grad(&[&weigh(&dx, 1.1)?], &[&x], Backward::default().allow_unused(true))?.remove(0)
    } else {
        None
    };
    close(&second.unwrap_or(x.zeros_like()?).to_vec::<f64>()?, &numeric(&curve)?, 1e-5);
    Ok(())
}

const SIX: [f64; 6] = [0.8, -1.3, 0.4, 2.1, -0.6, 1.7];

#[test]
fn derivatives_of_reductions() -> Result<()> {
    check(&SIX, &[2, 3], |x| x.mean(1))?;
    check(&SIX, &[2, 3], |x| x.prod_dims([0], true))?;
    check(&SIX, &[2, 3], |x| x.prod(..))?;
    check(&SIX, &[2, 3], |x| x.var_dims([1], 1.0, false))?;
    check(&SIX, &[2, 3], |x| x.std_dims([0, 1], 0.0, true))?;
    check(&SIX, &[2, 3], |x| x.logsumexp([1], false))?;
    // The norm of order zero counts: nothing flows back through it.
    let x = Tensor::new([3.0f32, 0.0])?.requires_grad_(true)?;
    x.norm(0.0)?.backward()?;
    assert!(x.grad().is_none());
    for p in [0.5, 1.0, 1.5, 2.0, 3.0, f64::INFINITY, f64::NEG_INFINITY] {
        check(&SIX, &[2, 3], |x| x.norm_dims(p, [1], false))?;
    }
    check(&SIX, &[2, 3], |x| x.square()?.amax([1], false))?;
    check(&SIX, &[2, 3], |x| Ok(x.square()?.max_dim(0, true)?.0))?;
    check(&SIX, &[6], |x| x.square()?.median(..))?;
    check(&SIX, &[6], |x| x.square()?.quantile(0.3, None, false))?;
    Ok(())
}

#[test]
fn derivatives_of_scans_and_order() -> Result<()> {
    check(&SIX, &[2, 3], |x| x.square()?.cumsum(1))?;
    check(&SIX, &[2, 3], |x| x.cumprod(1))?;
    check(&SIX, &[6], |x| x.logcumsumexp(0))?;
    check(&SIX, &[6], |x| Ok(x.square()?.cummax(0)?.0))?;
    check(&SIX, &[2, 3], |x| Ok(x.square()?.sort(1, true)?.0))?;
    check(&SIX, &[2, 3], |x| Ok(x.square()?.topk(2, 1, true)?.0))?;
    check(&SIX, &[6], |x| Ok(x.square()?.kthvalue(2, 0, false)?.0))?;
    check(&SIX, &[6], |x| x.square()?.diff(2, 0, None, None))?;
    Ok(())
}

#[test]
fn derivatives_of_rearrangements() -> Result<()> {
    check(&SIX, &[2, 3], |x| x.square()?.flip([0, 1]))?;
    check(&SIX, &[2, 3], |x| x.square()?.roll([1, -1], [0, 1]))?;
    check(&SIX, &[2, 3], |x| x.square()?.repeat(&[2, 1, 2]))?;
    check(&SIX, &[2, 3], |x| x.square()?.tril(1))?;
    check(&SIX, &[2, 3], |x| x.square()?.diag_embed(1, 0, 2))?;
    check(&SIX, &[2, 3], |x| x.square()?.pad(&[1, -1, 0, 2], Default::default()))?;
    check(&SIX, &[2, 3], |x| x.pad(&[2, 1], rushlight_tensor::PadMode::Reflect)?.square())?;
    check(&SIX, &[2, 3], |x| x.kron(x))?;
    check(&SIX, &[2, 3], |x| x.cross(&x.square()?, 1))?;
    check(&SIX, &[6], |x| x.repeat_interleave(&Tensor::new([0i64, 1, 2, 0, 1, 3])?, Some(0))?.square())?;
    Ok(())
}

#[test]
fn products_with_zeros() -> Result<()> {
    check(&[2.0, 0.0, 3.0, 0.5], &[4], |x| x.prod(..))?;
    check(&[2.0, 0.0, 0.0, 0.5], &[2, 2], |x| x.prod(1))?;
    check(&[2.0, 0.0, 3.0, 0.5], &[2, 2], |x| x.prod(0))?;
    check(&[2.0, 0.0, 3.0, 0.0, 5.0], &[5], |x| x.cumprod(0))?;
    check(&[0.0, 2.0, 3.0, 4.0], &[2, 2], |x| x.cumprod(0))?;
    Ok(())
}

#[test]
fn gradients_of_means_are_views() -> Result<()> {
    let x = Tensor::ones([4, 8])?.requires_grad_(true)?;
    let dx = grad(&[&x.mean(..)?], &[&x], Backward::default())?.remove(0).unwrap();
    assert_eq!(dx.strides(), [0, 0]);
    assert_eq!(dx.to_vec::<f32>()?, [1.0 / 32.0; 32]);
    Ok(())
}

#[test]
fn ties_share_or_go_to_the_first() -> Result<()> {
    let x = vector(&[3.0, 1.0, 3.0, 1.0])?.requires_grad_(true)?;
    let of = |y: Tensor| -> Result<Vec<f64>> { grad(&[&y], &[&x], Backward::default())?.remove(0).unwrap().to_vec() };
    assert_eq!(of(x.max(..)?)?, [0.5, 0.0, 0.5, 0.0]);
    assert_eq!(of(x.amin([0], false)?)?, [0.0, 0.5, 0.0, 0.5]);
    assert_eq!(of(x.max(0)?.0)?, [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(of(x.median(..)?)?, [0.0, 0.5, 0.0, 0.5]);
    Ok(())
}

#[test]
fn dtypes_of_results() -> Result<()> {
    let small = Tensor::new([100i8, 100, 100])?;
    assert_eq!(small.sum(..)?.item::<i64>()?, 300);
    assert_eq!(small.prod(..)?.dtype(), DType::I64);
    assert_eq!(small.cumsum(0)?.to_vec::<i64>()?, [100, 200, 300]);
    assert_eq!(small.sum_as([], false, DType::I32)?.dtype(), DType::I32);
    assert_eq!(small.mean_as([], false, DType::F64)?.item::<f64>()?, 100.0);
    assert_eq!(small.max(..)?.dtype(), DType::I8);
    assert_eq!(small.ne(0)?.sum(..)?.item::<i64>()?, 3);
    assert_eq!(small.to_dtype(DType::U8)?.any(..)?.dtype(), DType::U8);
    assert_eq!(small.logsumexp([0], false)?.dtype(), DType::F32);
    assert_eq!(small.bincount(Some(&vector(&[0.5, 1.0, 2.0])?), 0)?.select(0, 100)?.item::<f64>()?, 3.5);
    Ok(())
}

#[test]
fn wrong_reductions_are_errors() -> Result<()> {
    let (x, whole, none) = (Tensor::ones([2, 3])?, Tensor::arange(0, 3, 1)?, Tensor::zeros([0, 3])?);
    assert_eq!(kind(whole.mean(..)), ErrorKind::DType);
    assert_eq!(kind(whole.var(..)), ErrorKind::DType);
    assert_eq!(kind(whole.norm(2.0)), ErrorKind::DType);
    assert_eq!(kind(x.sum(2)), ErrorKind::Index);
    assert_eq!(kind(x.sum([0, -2])), ErrorKind::Value);
    assert_eq!(kind(none.max(..)), ErrorKind::Value);
    assert_eq!(kind(none.amax([0], false)), ErrorKind::Index);
    assert_eq!(none.amax([1], false)?.shape(), [0]);
    assert_eq!(kind(none.max(0)), ErrorKind::Index);
    assert_eq!(none.max(1)?.0.shape(), [0]);
    assert_eq!(kind(none.argmin(..)), ErrorKind::Index);
    assert_eq!(kind(none.norm(f64::INFINITY)), ErrorKind::Value);
    assert!(none.mean(..)?.item::<f32>()?.is_nan());
    assert!(none.median(..)?.item::<f32>()?.is_nan());
    assert_eq!(none.prod(..)?.item::<f32>()?, 1.0);
    assert_eq!(kind(x.topk(4, 1, true)), ErrorKind::Value);
    assert_eq!(kind(x.kthvalue(0, 1, false)), ErrorKind::Value);
    assert_eq!(kind(x.kthvalue(4, 1, false)), ErrorKind::Value);
    assert_eq!(kind(x.quantile(1.5, None, false)), ErrorKind::Value);
    assert_eq!(kind(x.trace().and_then(|_| whole.trace())), ErrorKind::Shape);
    assert_eq!(kind(x.bincount(None, 0)), ErrorKind::DType);
    assert_eq!(kind(Tensor::new([1i64, -1])?.bincount(None, 0)), ErrorKind::Value);
    assert_eq!(kind(x.histc(0, 0.0, 1.0)), ErrorKind::Value);
    assert_eq!(kind(x.searchsorted(&Tensor::ones([3, 3])?, false)), ErrorKind::Shape);
    assert_eq!(kind(x.searchsorted(&whole, false)), ErrorKind::Shape);
    let edges = vector(&[3.0, 1.0])?;
    assert_eq!(kind(edges.searchsorted_with_sorter(&edges, false, &Tensor::new([0i64])?)), ErrorKind::Shape);
    assert_eq!(kind(edges.searchsorted_with_sorter(&edges, false, &Tensor::new([1i64, 7])?)), ErrorKind::Index);
    assert_eq!(kind(Tensor::ones([2, 0])?.unique_dim(0)), ErrorKind::Shape);
    assert_eq!(kind(Tensor::ones([2, 2])?.unique_dim(2)), ErrorKind::Index);
    assert_eq!(kind(Tensor::scalar(1)?.diff(1, 0, None, None)), ErrorKind::Shape);
    Ok(())
}

#[test]
fn order_and_counts() -> Result<()> {
    let x = Tensor::new([[2.0f32, 1.0, f32::NAN], [3.0, 3.0, 0.0]])?;
    assert_eq!(x.msort()?.select(1, 0)?.to_vec::<f32>()?, [2.0, 3.0]);
    assert_eq!(x.median(1)?.1.to_vec::<i64>()?, [2, 0]);
    assert_eq!(x.nanmedian_dim(1, true)?.0.to_vec::<f32>()?, [1.0, 3.0]);
    assert!(x.quantile(0.5, Some(1), false)?.to_vec::<f32>()?[0].is_nan());
    assert_eq!(vector(&[4.0, 1.0, 2.0, 3.0])?.quantile(0.25, None, true)?.to_vec::<f64>()?, [1.75]);
    let (low, high) = x.nan_to_num(None, None, None)?.aminmax(None, false)?;
    assert_eq!((low.item::<f32>()?, high.item::<f32>()?), (0.0, 3.0));
    let y = Tensor::new([[5i64, 7], [9, 5]])?;
    assert_eq!(y.isin(&Tensor::new([5i64, 9])?)?.to_vec::<bool>()?, [true, false, true, true]);
    assert_eq!(y.isin(&Tensor::zeros([0])?)?.to_vec::<bool>()?, [false; 4]);
    let runs = Tensor::new([1i64, 1, 2, 1])?.unique_consecutive_full()?;
    assert_eq!(runs.values.to_vec::<i64>()?, [1, 2, 1]);
    assert_eq!(runs.inverse.to_vec::<i64>()?, [0, 0, 1, 2]);
    assert_eq!(runs.counts.to_vec::<i64>()?, [2, 1, 1]);
    let (deviation, mean) = vector(&[1.0, 3.0])?.std_mean([], 0.0, false)?;
    assert_eq!((deviation.item::<f64>()?, mean.item::<f64>()?), (1.0, 2.0));
    assert_eq!(
        Tensor::new_with([[3.0, 0.0], [0.0, 4.0]], rushlight_core::DType::F64)?
            .frobenius_norm([-2, -1], false)?
            .item::<f64>()?,
        5.0
    );
    Ok(())
}

#[test]
fn joining() -> Result<()> {
    let (a, b) = (Tensor::new([1i64, 2])?, Tensor::new([3i64, 4])?);
    assert_eq!(hstack(&[&a, &b])?.shape(), [4]);
    assert_eq!(vstack(&[&a, &b])?.to_vec::<i64>()?, [1, 2, 3, 4]);
    assert_eq!(dstack(&[&a, &b])?.to_vec::<i64>()?, [1, 3, 2, 4]);
    assert_eq!(hstack(&[&a.unsqueeze(1)?, &b.unsqueeze(1)?])?.to_vec::<i64>()?, [1, 3, 2, 4]);
    assert_eq!(cartesian_prod(&[&a, &b])?.to_vec::<i64>()?, [1, 3, 1, 4, 2, 3, 2, 4]);
    let blocks = block_diag(&[&a, &Tensor::scalar(5)?, &b.unsqueeze(1)?])?;
    assert_eq!(blocks.to_vec::<i64>()?, [1, 2, 0, 0, 0, 0, 5, 0, 0, 0, 0, 3, 0, 0, 0, 4]);
    assert_eq!(tril_indices(2, 3, 0)?.to_vec::<i64>()?, [0, 1, 1, 0, 0, 1]);
    assert_eq!(triu_indices(2, 2, 1)?.to_vec::<i64>()?, [0, 1]);
    assert_eq!(kind(hstack(&[])), ErrorKind::Value);
    assert_eq!(kind(meshgrid(&[&a, &Tensor::ones([2, 2])?], Indexing::Ij)), ErrorKind::Shape);
    let x = Tensor::arange(0, 4, 1)?.reshape([2, 2])?;
    assert_eq!(x.rot90(1, [0, 1])?.to_vec::<i64>()?, [1, 3, 0, 2]);
    assert!(!x.repeat(&[1, 1])?.shares_storage(&x) && !x.flip([])?.shares_storage(&x));
    Ok(())
}
