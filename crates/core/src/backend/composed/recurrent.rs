//! Steps of recurrent networks, and products with GELU.

use super::array::{Array, apply};
use super::execute;
use crate::backend::{View, call};
use crate::{Pointwise, Result};

/// The four gates of `[batch, 4 * hidden]`.
fn gates<'a>(x: &Array<'a>) -> [Array<'a>; 4] {
    let hidden = x.shape()[1] / 4;
    [0, 1, 2, 3].map(|i| x.slice(1, i * hidden, hidden))
}

/// Default body of [`LstmCell`](call::LstmCell).
pub fn lstm_cell(c: &call::LstmCell<View>) -> Result<()> {
    let [input, forget, new, output] = gates(&Array::of(c.gates));
    for (gate, op) in [(&input, Pointwise::Sigmoid), (&forget, Pointwise::Sigmoid), (&new, Pointwise::Tanh)] {
        apply(op, &[gate.into()], gate)?;
    }
    apply(Pointwise::Sigmoid, &[(&output).into()], &output)?;
    let (cell, h) = (Array::of(c.c), Array::of(c.h));
    let kept = forget.mul(&Array::of(c.before))?;
    apply(Pointwise::Add, &[(&kept).into(), (&input.mul(&new)?).into()], &cell)?;
    apply(Pointwise::Mul, &[(&output).into(), (&cell.tanh()?).into()], &h)
}

/// Default body of [`LstmCellBackward`](call::LstmCellBackward).
pub fn lstm_cell_backward(c: &call::LstmCellBackward<View>) -> Result<()> {
    let [input, forget, new, output] = gates(&Array::of(c.gates));
    let [dinput, dforget, dnew, doutput] = gates(&Array::of(c.dgates));
    let mut dh = Array::of(c.dh).wide()?;
    if let Some(outer) = c.outer {
        dh = dh.add(&Array::of(outer))?;
    }
    let squashed = Array::of(c.c).tanh()?;
    // The derivatives of sigmoid and tanh, from their values.
    let sigmoid = |y: &Array| y.sub(&y.square()?);
    let tanh = |y: &Array| y.square()?.mul(-1.0)?.add(1.0);
    let dc = Array::of(c.dc);
    let total = dh.mul(&output)?.mul(&tanh(&squashed)?)?.add(&dc)?;
    let product = |a: &Array, b: &Array, out: &Array| apply(Pointwise::Mul, &[a.into(), b.into()], out);
    product(&dh.mul(&squashed)?, &sigmoid(&output)?, &doutput)?;
    product(&total.mul(&new)?, &sigmoid(&input)?, &dinput)?;
    product(&total.mul(&Array::of(c.before))?, &sigmoid(&forget)?, &dforget)?;
    product(&total.mul(&input)?, &tanh(&new)?, &dnew)?;
    product(&total, &forget, &dc)
}

/// Default body of [`MatMulGelu`](call::MatMulGelu): the product, then GELU.
pub fn matmul_gelu(c: &call::MatMulGelu<View>) -> Result<()> {
    execute(call::MatMul { out: c.kept, ..c.product })?;
    apply(Pointwise::GeluTanh, &[(&Array::of(c.kept)).into()], &Array::of(c.product.out))
}

/// Default body of [`MatMulGeluBackward`](call::MatMulGeluBackward): the product, GELU's derivative, sums.
pub fn matmul_gelu_backward(c: &call::MatMulGeluBackward<View>) -> Result<()> {
    execute(c.product)?;
    let out = c.product.out;
    let values = [Some(call::Operand::Tensor(out)), Some(call::Operand::Tensor(c.kept)), None, None, None];
    let op = Pointwise::GeluTanh;
    let compute = out.dtype().compute();
    execute(call::PointwiseGrad { op, wrt: 0, compute, params: Default::default(), values, out })?;
    Array::of(out).wide()?.sum(&[0, 1])?.copy_to(&Array::of(c.sums))
}
