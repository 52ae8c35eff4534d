//! Softmax and its logarithm.

use super::array::{Array, apply};
use crate::backend::{Reduce, View, call};
use crate::{Pointwise, Result};

/// Default body of [`Softmax`](call::Softmax).
pub fn softmax(c: &call::Softmax<View>) -> Result<()> {
    let call::Softmax { log, dims, x, y } = *c;
    let (x, y) = (Array::dense(x, &dims)?, Array::dense(y, &dims)?);
    if y.numel() == 0 {
        return Ok(());
    }
    let shifted = x.sub(&x.reduce(Reduce::Max, &[1])?)?;
    let exponentials = shifted.exp()?;
    let sum = exponentials.sum(&[1])?;
    if log {
        apply(Pointwise::Sub, &[(&shifted).into(), (&sum.log()?).into()], &y)
    } else {
        apply(Pointwise::Div, &[(&exponentials).into(), (&sum).into()], &y)
    }
}

/// Default body of [`SoftmaxBackward`](call::SoftmaxBackward).
pub fn softmax_backward(c: &call::SoftmaxBackward<View>) -> Result<()> {
    let call::SoftmaxBackward { log, dims, dy, y, dx } = *c;
    let (dy, y, dx) = (Array::dense(dy, &dims)?, Array::dense(y, &dims)?, Array::dense(dx, &dims)?);
    if log {
        let share = y.exp()?.mul(&dy.wide()?.sum(&[1])?)?;
        apply(Pointwise::Sub, &[(&dy).into(), (&share).into()], &dx)
    } else {
        let slope = dy.sub(&dy.mul(&y)?.sum(&[1])?)?;
        apply(Pointwise::Mul, &[(&y).into(), (&slope).into()], &dx)
    }
}
