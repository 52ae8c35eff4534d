//! Softmax and its logarithm.

use super::array::{Array, apply};
use crate::backend::{Reduce, View};
use crate::{Pointwise, Result};

/// Default body of [`Backend::softmax`](crate::Backend::softmax).
pub fn softmax(log: bool, dims: [usize; 3], x: View, y: View) -> Result<()> {
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

/// Default body of [`Backend::softmax_backward`](crate::Backend::softmax_backward).
pub fn softmax_backward(log: bool, dims: [usize; 3], dy: View, y: View, dx: View) -> Result<()> {
    let (dy, y, dx) = (Array::dense(dy, &dims)?, Array::dense(y, &dims)?, Array::dense(dx, &dims)?);
    if log {
        let share = y.exp()?.mul(&dy.wide()?.sum(&[1])?)?;
        apply(Pointwise::Sub, &[(&dy).into(), (&share).into()], &dx)
    } else {
        let slope = dy.sub(&dy.mul(&y)?.sum(&[1])?)?;
        apply(Pointwise::Mul, &[(&y).into(), (&slope).into()], &dx)
    }
}
