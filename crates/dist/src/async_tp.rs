//! Products whose communication overlaps them: asynchronous tensor parallelism.
//!
//! A matrix that is split among the ranks by rows goes around them part by part. Each rank multiplies the part that it
//! has while the next one is on its way ([`all_gather_matmul`]), or sends a sum of products on while it computes the
//! next product ([`matmul_reduce_scatter`]). [`gathered_linear`] and [`scattered_linear`] are layers made of them, and
//! each is the derivative of the other.

use crate::comm::ReduceOp;
use crate::group::{Collective, P2p, ProcessGroup, Work};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{Context, Function, apply, no_grad};
use std::sync::Arc;

/// The dimension whose parts go around; the last one is summed over.
fn rows_of(call: &str, x: &Tensor, dim: isize) -> Result<isize> {
    let rank = x.rank() as isize;
    let at = if dim < 0 { dim + rank } else { dim };
    if rank < 2 || !(0..rank - 1).contains(&at) {
        return Err(Error::value(format!(
            "{call}: dimension {dim} of {:?} should be one before the last, which the product sums over",
            x.shape()
        )));
    }
    Ok(at)
}

/// The ranks in a ring.
struct Ring<'a>(&'a dyn ProcessGroup);

impl Ring<'_> {
    /// Starts to send a tensor to the next rank and to receive one of the same shape from the rank before.
    fn pass(&self, tensor: &Tensor) -> Result<(Tensor, Work)> {
        let (rank, ranks) = (self.0.rank(), self.0.size());
        let received = Tensor::empty_with(tensor.shape(), (tensor.dtype(), tensor.device()))?;
        let all = vec![
            P2p { tensor: tensor.clone(), peer: (rank + 1) % ranks, tag: 0, sends: true },
            P2p { tensor: received.clone(), peer: (rank + ranks - 1) % ranks, tag: 0, sends: false },
        ];
        Ok((received, self.0.submit(Collective::P2p(all), true)?))
    }

    /// Calls `step` with every rank's part in turn; the next is on its way meanwhile.
    fn around(&self, part: &Tensor, mut step: impl FnMut(usize, &Tensor) -> Result<()>) -> Result<()> {
        let (rank, ranks) = (self.0.rank(), self.0.size());
        let mut current = part.detach().contiguous()?;
        for turn in 0..ranks {
            let coming = if turn + 1 < ranks { Some(self.pass(&current)?) } else { None };
            let done = step((rank + ranks - turn) % ranks, &current);
            if let Some((received, work)) = coming {
                // The part is on its way out of `current`, whatever has happened to the product.
                work.wait()?;
                current = received;
            }
            done?;
        }
        Ok(())
    }
}

/// The products of the whole of `shard`, which the ranks hold in equal parts along `dim`, with matrices of this rank;
/// and the whole, if `with_whole`.
pub fn all_gather_matmul(
    shard: &Tensor,
    matrices: &[&Tensor],
    dim: isize,
    with_whole: bool,
    group: &dyn ProcessGroup,
) -> Result<(Option<Tensor>, Vec<Tensor>)> {
    let dim = rows_of("all_gather_matmul", shard, dim)?;
    let ranks = group.size();
    let mut parts: Vec<Option<Tensor>> = vec![None; ranks];
    let mut products: Vec<Vec<Option<Tensor>>> = vec![vec![None; ranks]; matrices.len()];
    let matrices: Vec<Tensor> = matrices.iter().map(|m| m.detach()).collect();
    Ring(group).around(shard, |owner, part| {
        for (matrix, products) in matrices.iter().zip(&mut products) {
            products[owner] = Some(part.matmul(matrix)?);
        }
        if with_whole {
            parts[owner] = Some(part.clone());
        }
        Ok(())
    })?;
    let join = |parts: Vec<Option<Tensor>>| Tensor::cat(&parts.iter().flatten().collect::<Vec<_>>(), dim);
    let whole = with_whole.then(|| join(parts)).transpose()?;
    Ok((whole, products.into_iter().map(join).collect::<Result<_>>()?))
}

/// The sum over the ranks of `a @ b`, of which each rank gets its equal part along `dim`; their mean by
/// [`ReduceOp::Mean`].
pub fn matmul_reduce_scatter(
    a: &Tensor,
    b: &Tensor,
    op: ReduceOp,
    dim: isize,
    group: &dyn ProcessGroup,
) -> Result<Tensor> {
    let dim = rows_of("matmul_reduce_scatter", a, dim)?;
    if !matches!(op, ReduceOp::Sum | ReduceOp::Mean) {
        return Err(Error::unsupported(format!("matmul_reduce_scatter: sum and mean are supported, not {op}")));
    }
    let (rank, ranks, rows) = (group.rank(), group.size(), a.size(dim)?);
    if !rows.is_multiple_of(ranks) {
        return Err(Error::shape(format!(
            "matmul_reduce_scatter: dimension {dim} of {:?} does not split among {ranks} ranks",
            a.shape()
        )));
    }
    let (a, b, part) = (a.detach(), b.detach(), rows / ranks);
    let mut coming: Option<(Tensor, Work)> = None;
    // A rank's own part comes last: the sums of the others have gone around by then.
    for turn in 0..ranks {
        let owner = (rank + ranks - 1 - turn) % ranks;
        let product = a.narrow(dim, (owner * part) as isize, part).and_then(|rows| rows.matmul(&b));
        let received = coming.take().map(|(sum, work)| work.wait().map(|()| sum)).transpose()?;
        let sum = match received {
            Some(before) => {
                before.add_(&product?)?;
                before
            }
            None => product?,
        };
        if turn + 1 == ranks {
            return if op == ReduceOp::Mean { sum.div(ranks as f64) } else { Ok(sum) };
        }
        coming = Some(Ring(group).pass(&sum.contiguous()?)?);
    }
    Err(Error::value("matmul_reduce_scatter: a group without ranks"))
}

/// All rows of a tensor as one matrix.
fn matrix(x: &Tensor) -> Result<Tensor> {
    x.flatten(0, -2)
}

/// `weight.grad` grows by the products of rows' gradients and rows.
fn accumulate(total: &mut Option<Tensor>, dy: &Tensor, x: &Tensor) -> Result<()> {
    let product = matrix(dy)?.t()?.matmul(&matrix(x)?)?;
    match total {
        Some(total) => total.add_(&product).map(drop),
        None => {
            *total = Some(product);
            Ok(())
        }
    }
}

struct Gathered {
    group: Arc<dyn ProcessGroup>,
    dim: isize,
}

impl Function for Gathered {
    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let [x, weight] = inputs else { return Err(Error::value("gathered_linear: two inputs are expected")) };
        ctx.save_for_backward(&[x, weight]);
        Ok(all_gather_matmul(x, &[&weight.detach().t()?], self.dim, false, &*self.group)?.1)
    }

    fn backward(&self, saved: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let (Some(Some(dy)), [x, weight]) = (grads.first(), saved) else { return Ok(vec![None; 2]) };
        no_grad(|| {
            let dx = matmul_reduce_scatter(dy, weight, ReduceOp::Sum, self.dim, &*self.group)?;
            // The input goes around once more, so that no rank keeps the whole of it.
            let (rows, mut total) = (x.size(self.dim)?, None);
            Ring(&*self.group).around(x, |owner, part| {
                accumulate(&mut total, &dy.narrow(self.dim, (owner * rows) as isize, rows)?, part)
            })?;
            Ok(vec![Some(dx), total])
        })
    }

    fn name(&self) -> &'static str {
        "gathered_linear"
    }
}

struct Scattered {
    group: Arc<dyn ProcessGroup>,
    dim: isize,
}

impl Function for Scattered {
    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let [x, weight] = inputs else { return Err(Error::value("scattered_linear: two inputs are expected")) };
        ctx.save_for_backward(&[x, weight]);
        let weight = weight.detach().t()?;
        Ok(vec![matmul_reduce_scatter(x, &weight, ReduceOp::Sum, self.dim, &*self.group)?])
    }

    fn backward(&self, saved: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let (Some(Some(dy)), [x, weight]) = (grads.first(), saved) else { return Ok(vec![None; 2]) };
        no_grad(|| {
            let (ranks, rows) = (self.group.size(), dy.size(self.dim)?);
            let (mut parts, mut total) = (vec![None; ranks], None);
            Ring(&*self.group).around(dy, |owner, part| {
                parts[owner] = Some(part.matmul(weight)?);
                accumulate(&mut total, part, &x.narrow(self.dim, (owner * rows) as isize, rows)?)
            })?;
            Ok(vec![Some(Tensor::cat(&parts.iter().flatten().collect::<Vec<_>>(), self.dim)?), total])
        })
    }

    fn name(&self) -> &'static str {
        "scattered_linear"
    }
}

fn one(mut outputs: Vec<Tensor>) -> Result<Tensor> {
    outputs.pop().ok_or_else(|| Error::value("asynchronous tensor parallelism: no output"))
}

fn check(call: &str, x: &Tensor, weight: &Tensor) -> Result<()> {
    match (x.shape().last(), weight.shape()) {
        (Some(inner), [_, features]) if inner == features => Ok(()),
        _ => Err(Error::shape(format!(
            "{call}: input {:?} and weight {:?} cannot be multiplied",
            x.shape(),
            weight.shape()
        ))),
    }
}

/// `linear` of the whole input, of which each rank has an equal part along `dim`, with this rank's rows of the weight:
/// the features of the result are split among the ranks. Recorded by autograd.
pub fn gathered_linear(x: &Tensor, weight: &Tensor, dim: isize, group: &Arc<dyn ProcessGroup>) -> Result<Tensor> {
    let dim = rows_of("gathered_linear", x, dim)?;
    check("gathered_linear", x, weight)?;
    one(apply(Gathered { group: group.clone(), dim }, &[x, weight])?)
}

/// `linear` with input features that are split among the ranks, this rank's columns of the weight, and a result whose
/// equal parts along `dim` are split among the ranks. Recorded by autograd.
pub fn scattered_linear(x: &Tensor, weight: &Tensor, dim: isize, group: &Arc<dyn ProcessGroup>) -> Result<Tensor> {
    let dim = rows_of("scattered_linear", x, dim)?;
    check("scattered_linear", x, weight)?;
    one(apply(Scattered { group: group.clone(), dim }, &[x, weight])?)
}
