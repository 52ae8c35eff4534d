//! Products and quotients of complex numbers, part by part.

use super::array::Array;
use super::execute;
use crate::backend::call::{self, Numbers};
use crate::backend::{Activation, Complex, Operand, View};
use crate::{Error, Layout, Pointwise, Result};

/// The parts of numbers, expanded to `n` of them.
fn parts(x: View, n: usize) -> Result<[Layout; 2]> {
    let stride = if x.numel() == 2 { 0 } else { 2 };
    let part = |at: usize| Layout::strided(&[n], &[stride], x.layout().offset() + at);
    Ok([part(0)?, part(1)?])
}

fn row(op: Pointwise, inputs: &[View], params: &[f64], out: View) -> Result<()> {
    let inputs: Vec<Operand> = inputs.iter().map(|v| Operand::Tensor(*v)).collect();
    let params = Numbers::from(params);
    execute(call::Pointwise { op, compute: out.dtype().compute(), params, inputs: inputs[..].into(), out })
}

/// See [`Complex::Blocks`].
fn blocks(c: &call::Complex<View>) -> Result<()> {
    let &[rows, n, 2] = c.a.shape() else {
        return Err(Error::shape(format!("complex: blocks of {:?}", c.a.shape())));
    };
    let (from, to) = (c.a.layout().offset(), c.out.layout().offset());
    let part = |row: usize, at: usize| Layout::strided(&[rows, n], &[row, 2], at);
    let whole = Layout::strided(&[rows, 2 * n], &[4 * n, 1], to)?;
    let (re, im) = (part(2 * n, from)?, part(2 * n, from + 1)?);
    let (first, second) = (part(4 * n, to + 2 * n)?, part(4 * n, to + 2 * n + 1)?);
    let rows_of_a = Layout::strided(&[rows, 2 * n], &[2 * n, 1], from)?;
    execute(call::Copy { src: c.a.with_layout(&rows_of_a)?, out: c.out.with_layout(&whole)? })?;
    row(Pointwise::Neg, &[c.a.with_layout(&im)?], &[], c.out.with_layout(&first)?)?;
    execute(call::Copy { src: c.a.with_layout(&re)?, out: c.out.with_layout(&second)? })
}

/// See [`Complex::Product`]: rows of `a` are `2k` reals as they are, and with the blocks of `b` on the right the rows
/// of the result are `2n` reals in order.
fn product(c: &call::Complex<View>) -> Result<()> {
    let (&[batch, m, k, 2], &[_, _, n, 2]) = (c.a.shape(), c.b.shape()) else {
        return Err(Error::shape(format!("complex: a product of {:?} and {:?}", c.a.shape(), c.b.shape())));
    };
    let right = Array::scratch(c.out.storage().backend(), &[batch, 2 * k, 2 * n], c.out.dtype())?;
    let reals = |shape: &[usize], offset: usize| Ok::<_, Error>(Layout::contiguous(shape)?.with_offset(offset));
    let (of_a, of_b, of_out) = (c.a.layout().offset(), c.b.layout().offset(), c.out.layout().offset());
    if batch * k > 0 {
        let (rows, blocks) = (reals(&[batch * k, n, 2], of_b)?, reals(&[batch * k, 2, n, 2], 0)?);
        let (b, out) = (c.b.with_layout(&rows)?, right.view().with_layout(&blocks)?);
        execute(call::Complex { op: Complex::Blocks, a: b, b, out })?;
    }
    let (left, sums) = (reals(&[batch, m, 2 * k], of_a)?, reals(&[batch, m, 2 * n], of_out)?);
    let (a, out) = (c.a.with_layout(&left)?, c.out.with_layout(&sums)?);
    execute(call::MatMul { a, b: right.view(), out, bias: None, alpha: 1.0, beta: 0.0, activation: Activation::None })
}

/// See [`call::Complex`].
pub(super) fn complex(c: &call::Complex<View>) -> Result<()> {
    let n = c.out.numel() / 2;
    if n == 0 {
        return Ok(());
    }
    match c.op {
        Complex::Blocks => return blocks(c),
        Complex::Product => return product(c),
        _ => {}
    }
    let layouts = [parts(c.a, n)?, parts(c.b, n)?, parts(c.out, n)?];
    let [[ar, ai], [br, bi], [re, im]] = [
        [c.a.with_layout(&layouts[0][0])?, c.a.with_layout(&layouts[0][1])?],
        [c.b.with_layout(&layouts[1][0])?, c.b.with_layout(&layouts[1][1])?],
        [c.out.with_layout(&layouts[2][0])?, c.out.with_layout(&layouts[2][1])?],
    ];
    // The sign of the imaginary part of `b`.
    let sign = if c.op == Complex::Mul { 1.0 } else { -1.0 };
    row(Pointwise::Mul, &[ar, br], &[], re)?;
    row(Pointwise::Addcmul, &[re, ai, bi], &[-sign], re)?;
    row(Pointwise::Mul, &[ai, br], &[], im)?;
    row(Pointwise::Addcmul, &[im, ar, bi], &[sign], im)?;
    if c.op == Complex::Div {
        let size = Array::scratch(c.out.storage().backend(), &[n], c.out.dtype())?;
        row(Pointwise::Square, &[br], &[], size.view())?;
        row(Pointwise::Addcmul, &[size.view(), bi, bi], &[1.0], size.view())?;
        row(Pointwise::Div, &[re, size.view()], &[], re)?;
        row(Pointwise::Div, &[im, size.view()], &[], im)?;
    }
    Ok(())
}
