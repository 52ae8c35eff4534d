//! Lists of tensors, one after the other.

use super::array::{Array, apply, choose};
use super::update::with_factor;
use crate::backend::{Reduce, View, call};
use crate::{Dims, Pointwise, Result};

/// Default body of [`ForeachNorm`](call::ForeachNorm).
pub fn foreach_norm(c: &call::ForeachNorm<View>) -> Result<()> {
    let call::ForeachNorm { p, ref xs, out } = *c;
    let out = Array::of(out);
    // The norm of the norms; for the 0-norm, their sum. Empty tensors are skipped.
    let xs: Vec<&View> = xs.iter().filter(|x| x.numel() > 0).collect();
    let norms = out.uninit(&[xs.len()], out.dtype())?;
    for (i, x) in xs.into_iter().enumerate() {
        let dims: Dims = (0..x.shape().len()).collect();
        let norm = Array::of(*x).wide()?.reduce(Reduce::Norm { p }, &dims)?;
        norm.reshape(&[])?.copy_to(&norms.select(0, i))?;
    }
    let joined = norms.reduce(if p == 0.0 { Reduce::Sum } else { Reduce::Norm { p } }, &[0])?;
    joined.reshape(out.shape())?.copy_to(&out)
}

/// Default body of [`ForeachScale`](call::ForeachScale).
pub fn foreach_scale(c: &call::ForeachScale<View>) -> Result<()> {
    let call::ForeachScale { factor, ref xs, found_inf } = *c;
    for &x in xs {
        let x = Array::of(x);
        if let Some(found) = found_inf {
            let dims: Dims = (0..x.shape().len()).collect();
            let found = Array::of(found);
            let finite = x.isfinite()?.reduce(Reduce::All, &dims)?.reshape(found.shape())?;
            choose(&finite, &found, 1.0, &found)?;
        }
        if let Some(factor) = factor {
            with_factor("foreach_scale", factor, |factor| apply(Pointwise::Mul, &[(&x).into(), factor], &x))?;
        }
    }
    Ok(())
}

/// Default body of [`ForeachCopy`](call::ForeachCopy).
pub fn foreach_copy(c: &call::ForeachCopy<View>) -> Result<()> {
    for (&from, &to) in c.from.iter().zip(&c.to) {
        if from.shape() == to.shape() {
            Array::of(from).copy_to(&Array::of(to))?;
            continue;
        }
        let shape = [from.numel()];
        Array::dense(from, &shape)?.copy_to(&Array::dense(to, &shape)?)?;
    }
    Ok(())
}
