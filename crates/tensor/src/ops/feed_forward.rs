//! A feed-forward block as one op: its GELU happens within the products where the engine has such ones.

use super::matmul::{gradient_columns, gradient_dtype, gradient_product};
use crate::autograd::{Backward, Ctx, Grads, Saved, grad, no_grad, record, recording};
use crate::program::recipe;
use crate::{Tensor, amp};
use rushlight_core::backend::{MatMul, call};
use rushlight_core::smallvec::smallvec;
use rushlight_core::{Dims, Error, Result};

/// Saved values of backward.
struct Block {
    /// The input, both weights and the first bias.
    inputs: [Saved; 4],
    /// The hidden values, before GELU and after, `[1, rows, hidden]`.
    before: Tensor,
    hidden: Tensor,
}

/// `a @ b + bias` into `out`, all of them batches of one matrix.
fn product<'a>(a: &'a Tensor, b: &'a Tensor, bias: Option<&'a Tensor>, out: &'a Tensor) -> MatMul<'a> {
    let plain = MatMul::plain(a.engine_view(), b.engine_view(), out.engine_view());
    MatMul { bias: bias.map(|t| t.engine_view()), ..plain }
}

impl Block {
    fn backward(&self, ctx: &Ctx, dy: &Tensor) -> Result<Grads> {
        let [x, weight1, weight2, bias1] = [&self.inputs[0], &self.inputs[1], &self.inputs[2], &self.inputs[3]];
        let (x, weight1, weight2) = (ctx.get(x)?, ctx.get(weight1)?, ctx.get(weight2)?);
        let (rows, size, hidden) = (self.before.shape()[1], weight1.shape()[1], weight1.shape()[0]);
        let (flat, dy) = (x.reshape([rows, size])?, dy.reshape([rows, weight2.shape()[0]])?);
        let (inner, db1) = match self.through_gelu(ctx, &dy, &weight2)? {
            Some(found) => found,
            None => {
                let before = flat.linear(&weight1, Some(&ctx.get(bias1)?))?;
                let inner = gelu_gradient(&before, &dy.mm(&weight2)?, ctx.recording())?;
                let sums = inner.sum(0)?;
                (inner, sums)
            }
        };
        let after = if ctx.recording() {
            flat.linear(&weight1, Some(&ctx.get(bias1)?))?.gelu_tanh()?
        } else {
            self.hidden.reshape([rows, hidden])?
        };
        let wanted = |i: usize, make: &dyn Fn() -> Result<Tensor>| ctx.needs(i).then(make).transpose();
        Ok(smallvec![
            wanted(0, &|| gradient_product(ctx, 0, &inner, &weight1, x.shape()))?,
            wanted(1, &|| gradient_product(ctx, 1, &inner.transpose(0, 1)?, &flat, weight1.shape()))?,
            ctx.needs(2).then_some(db1),
            wanted(3, &|| gradient_product(ctx, 3, &dy.transpose(0, 1)?, &after, weight2.shape()))?,
            wanted(4, &|| gradient_columns(ctx, 4, &dy))?,
        ])
    }

    /// The gradient by the hidden values before GELU and its columns' sums, by the engine; not recorded.
    fn through_gelu(&self, ctx: &Ctx, dy: &Tensor, weight2: &Tensor) -> Result<Option<(Tensor, Tensor)>> {
        if ctx.recording() {
            return Ok(None);
        }
        let inner = self.before.uninit_like(self.before.shape(), dy.dtype())?;
        let sums = inner.uninit_like(&[1, 1, inner.shape()[2]], gradient_dtype(ctx, 2, dy))?;
        let (dy, weight2) = (dy.contiguous()?.unsqueeze(0)?, weight2.unsqueeze(0)?);
        let product = product(&dy, &weight2, None, &inner);
        let (kept, columns) = (self.before.engine_view(), sums.engine_view());
        inner.run(call::MatMulGeluBackward { product, kept, sums: columns })?;
        Ok(Some((inner.squeeze(0)?, sums.reshape([inner.shape()[2]])?)))
    }
}

/// `dy` times the derivative of GELU at `x`.
fn gelu_gradient(x: &Tensor, dy: &Tensor, record: bool) -> Result<Tensor> {
    let x = if record { x.clone() } else { x.detach().requires_grad_(true)? };
    let y = crate::autograd::enable_grad(|| x.gelu_tanh())?;
    let found = grad(&[&y], &[&x], Backward::default().gradient(dy).create_graph(record))?;
    found.into_iter().next().flatten().ok_or_else(|| Error::autograd("feed_forward: GELU has no gradient"))
}

impl Tensor {
    /// A transformer's feed-forward block: `gelu_tanh(self @ weight1.T + bias1) @ weight2.T + bias2`. Equals the
    /// composed ops. On a GPU in half precision, the products' epilogues compute GELU, its gradient and the first
    /// bias's.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let (x, w1, w2) = (Tensor::ones([2, 3])?, Tensor::ones([12, 3])?, Tensor::ones([3, 12])?);
    /// let (b1, b2) = (Tensor::zeros([12])?, Tensor::zeros([3])?);
    /// let y = x.feed_forward(&w1, &b1, &w2, &b2)?;
    /// assert_eq!(y.to_vec::<f32>()?, x.linear(&w1, Some(&b1))?.gelu_tanh()?.linear(&w2, Some(&b2))?.to_vec::<f32>()?);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn feed_forward(&self, weight1: &Tensor, bias1: &Tensor, weight2: &Tensor, bias2: &Tensor) -> Result<Tensor> {
        if let Some(cast) = amp::lower() {
            let (w1, b1, w2, b2) = (cast.of(weight1)?, cast.of(bias1)?, cast.of(weight2)?, cast.of(bias2)?);
            return cast.run(|| cast.of(self)?.feed_forward(&w1, &b1, &w2, &b2));
        }
        if let Some(out) = self.feed_forward_fused(weight1, bias1, weight2, bias2)? {
            return Ok(out);
        }
        self.linear(weight1, Some(bias1))?.gelu_tanh()?.linear(weight2, Some(bias2))
    }

    /// The block with GELU within the products, recorded; `None` where that is not for them, or not needed.
    fn feed_forward_fused(&self, w1: &Tensor, b1: &Tensor, w2: &Tensor, b2: &Tensor) -> Result<Option<Tensor>> {
        let inputs = [self, w1, b1, w2, b2];
        let (&[hidden, size], &[out, width], Some((&last, lead))) = (w1.shape(), w2.shape(), self.shape().split_last())
        else {
            return Ok(None);
        };
        let alike = |t: &Tensor| t.dtype() == self.dtype() && t.device() == self.device();
        // Biases of other shapes broadcast: that is for the ops one by one.
        let plain = b1.shape() == [hidden] && b2.shape() == [out];
        let fits = last == size && width == hidden && plain && inputs.iter().all(|t| alike(t));
        if !fits || self.numel() == 0 || !recording(&inputs) {
            return Ok(None);
        }
        let rows: usize = lead.iter().product();
        let (before, hidden, out) = no_grad(|| -> Result<(Tensor, Tensor, Tensor)> {
            let before = self.uninit_like(&[1, rows, hidden], self.dtype())?;
            let after = self.uninit_like(&[1, rows, hidden], self.dtype())?;
            let (x, transposed) = (self.reshape([1, rows, size])?, w1.transpose(0, 1)?.unsqueeze(0)?);
            let product = product(&x, &transposed, Some(b1), &after);
            self.run(call::MatMulGelu { product, kept: before.engine_view() })?;
            let mut shape = Dims::from_slice(lead);
            shape.push(hidden);
            let out = after.reshape(&shape)?.linear(w2, Some(b2))?;
            Ok((before, after, out))
        })?;
        let kept = [Saved::input(self), Saved::input(w1), Saved::input(w2), Saved::input(b1)];
        let block = Block { inputs: kept, before, hidden };
        record("feed_forward", &inputs, &out, move |ctx, dy| block.backward(ctx, dy))?;
        Ok(Some(out))
    }
}

impl Tensor {
    /// The first half along a dimension, times the sigmoid of the second.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// assert_eq!(Tensor::new([3.0f32, 0.0])?.glu(0)?.to_vec::<f32>()?, [1.5]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn glu(&self, dim: isize) -> Result<Tensor> {
        if self.rank() == 0 {
            return Err(Error::shape("glu does not support scalars because halving size must be even"));
        }
        let n = self.size(dim)?;
        if n % 2 != 0 {
            return Err(Error::shape(format!("Halving dimension must be even, but dimension {dim} is size {n}")));
        }
        let gated = |[x]: [&Tensor; 1]| match &x.split(n / 2, dim)?[..] {
            [a, b] => a.mul(&b.sigmoid()?),
            _ => x.copy(),
        };
        if recording(&[self]) { gated([self]) } else { recipe("glu", &[dim as i64], [self], gated) }
    }
}
