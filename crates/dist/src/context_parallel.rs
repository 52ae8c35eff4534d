//! Context parallelism: attention over sequences that are split among ranks.
//!
//! [`ring_attention`] passes keys and values around the ranks while each computes its part; [`ulysses_attention`]
//! exchanges positions for heads, so that each rank has whole sequences of some heads. Both are recorded by autograd.

use crate::group::{Collective, P2p, ProcessGroup};
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::autograd::{Context, Function, apply, no_grad};
use rushlight_tensor::{AttentionOptions, Tensor};

use std::sync::Arc;

/// A score that no other is smaller than, without infinities in differences.
const MASKED: f64 = -1e30;

/// How a sequence is split among ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Rank `r` has the `r`-th of equal parts.
    Contiguous,
    /// Rank `r` of `n` has the parts `r` and `2n - 1 - r` of `2n`: under a causal mask all ranks have the same work.
    Balanced,
}

impl Order {
    /// Positions of a rank's tokens in a sequence of `length`, as pieces: start and size.
    fn pieces(self, length: usize, rank: usize, ranks: usize) -> Vec<(usize, usize)> {
        match self {
            Order::Contiguous => vec![(rank * (length / ranks), length / ranks)],
            Order::Balanced => {
                let part = length / (2 * ranks);
                vec![(rank * part, part), ((2 * ranks - 1 - rank) * part, part)]
            }
        }
    }

    /// This rank's part of a whole tensor along a dimension.
    pub fn split(self, whole: &Tensor, dim: isize, rank: usize, ranks: usize) -> Result<Tensor> {
        let length = whole.size(dim)?;
        let parts = if self == Order::Balanced { 2 * ranks } else { ranks };
        if !length.is_multiple_of(parts) {
            return Err(Error::value(format!(
                "context parallel: a sequence of {length} does not split into {parts} parts"
            )));
        }
        let pieces = self.pieces(length, rank, ranks).into_iter();
        let pieces = pieces.map(|(start, size)| whole.narrow(dim, start as isize, size)).collect::<Result<Vec<_>>>()?;
        Tensor::cat(&pieces.iter().collect::<Vec<_>>(), dim)
    }
}

/// Options of [`ring_attention`].
#[derive(Clone, Copy, Debug)]
pub struct RingOptions {
    /// Whether a query sees the keys at its position and before only.
    pub is_causal: bool,
    /// How the sequence is split among the ranks.
    pub order: Order,
    /// The factor of scores; one over the root of the size of a head if `None`.
    pub scale: Option<f64>,
}

impl Default for RingOptions {
    fn default() -> Self {
        Self { is_causal: false, order: Order::Contiguous, scale: None }
    }
}

/// A piece of queries against a piece of keys.
#[derive(Clone, Copy, PartialEq)]
enum Relation {
    /// All keys are seen.
    All,
    /// A key is seen by queries at its position and later.
    Causal,
}

/// Attention of a rank's queries over the keys and values of all ranks. Tensors are `[batch, heads, tokens, size]`, the
/// tokens split as the options say. Equal to attention of the whole sequence; sums are in 32 bits for shorter dtypes.
pub fn ring_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    options: RingOptions,
    group: &Arc<dyn ProcessGroup>,
) -> Result<Tensor> {
    let RingOptions { is_causal, order, scale } = options;
    if q.rank() != 4 || k.shape() != v.shape() || q.shape() != k.shape() {
        return Err(Error::shape(format!(
            "ring_attention: query {:?}, key {:?} and value {:?} should have one shape [batch, heads, tokens, size]",
            q.shape(),
            k.shape(),
            v.shape()
        )));
    }
    let parts = if order == Order::Balanced { 2 } else { 1 };
    if !q.shape()[2].is_multiple_of(parts) {
        return Err(Error::shape(format!("ring_attention: {} tokens are not two equal parts", q.shape()[2])));
    }
    let scale = scale.unwrap_or_else(|| 1.0 / (q.shape()[3] as f64).sqrt());
    let ring = Ring { group: group.clone(), is_causal, order, scale };
    apply(ring, &[q, k, v])?.pop().ok_or_else(|| Error::value("ring_attention: no output"))
}

struct Ring {
    group: Arc<dyn ProcessGroup>,
    is_causal: bool,
    order: Order,
    scale: f64,
}

/// The dtype of sums of products.
fn sum_dtype(t: &Tensor) -> DType {
    if matches!(t.dtype(), DType::F16 | DType::BF16) { DType::F32 } else { t.dtype() }
}

impl Ring {
    /// Pairs of pieces of this rank's queries and of another rank's keys that see each other: where each starts in its
    /// rank's tokens, the size of a piece, and how.
    fn pairs(&self, tokens: usize, other: usize) -> Vec<(usize, usize, usize, Relation)> {
        let (rank, ranks) = (self.group.rank(), self.group.size());
        let local = |who: usize| {
            let mut at = 0;
            self.order
                .pieces(tokens * ranks, who, ranks)
                .into_iter()
                .map(move |(start, size)| {
                    at += size;
                    (start, at - size, size)
                })
                .collect::<Vec<_>>()
        };
        let mut found = Vec::new();
        for (q_start, q_at, size) in local(rank) {
            for (k_start, k_at, _) in local(other) {
                let relation = match (self.is_causal, q_start.cmp(&k_start)) {
                    (false, _) | (true, std::cmp::Ordering::Greater) => Relation::All,
                    (true, std::cmp::Ordering::Equal) => Relation::Causal,
                    (true, std::cmp::Ordering::Less) => continue,
                };
                found.push((q_at, k_at, size, relation));
            }
        }
        found
    }

    fn scores(&self, q: &Tensor, k: &Tensor, relation: Relation) -> Result<Tensor> {
        let scores = q.matmul(&k.transpose(-1, -2)?)?.to_dtype(sum_dtype(q))?.mul(self.scale)?;
        if relation == Relation::All {
            return Ok(scores);
        }
        let n = scores.size(-1)?;
        let at = Tensor::arange_with(0, n as i64, 1, (DType::I64, q.device()))?;
        let hidden = at.unsqueeze(0)?.gt(&at.unsqueeze(1)?)?;
        scores.masked_fill(&hidden, MASKED)
    }

    /// Starts to send tensors to the next rank and to receive as many from the one before.
    fn pass(&self, tensors: &[Tensor]) -> Result<(Vec<Tensor>, crate::group::Work)> {
        let (rank, ranks) = (self.group.rank(), self.group.size());
        let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        let received = tensors.iter().map(Tensor::zeros_like).collect::<Result<Vec<_>>>()?;
        let mut all = Vec::new();
        for (i, (tensor, place)) in tensors.iter().zip(&received).enumerate() {
            all.push(P2p { tensor: tensor.clone(), peer: next, tag: i as u32, sends: true });
            all.push(P2p { tensor: place.clone(), peer: before, tag: i as u32, sends: false });
        }
        let work = self.group.submit(Collective::P2p(all), true)?;
        Ok((received, work))
    }

    /// Calls `step` with every rank's tensors in turn; the next are on their way meanwhile.
    fn around(&self, tensors: Vec<Tensor>, mut step: impl FnMut(usize, &[Tensor]) -> Result<()>) -> Result<()> {
        let (rank, ranks) = (self.group.rank(), self.group.size());
        let mut current = tensors;
        for turn in 0..ranks {
            let coming = if turn + 1 < ranks { Some(self.pass(&current)?) } else { None };
            step((rank + ranks - turn) % ranks, &current)?;
            if let Some((received, work)) = coming {
                work.wait()?;
                current = received;
            }
        }
        Ok(())
    }
}

impl Function for Ring {
    fn forward(&self, ctx: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let [q, k, v] = inputs else { return Err(Error::value("ring_attention: three inputs are expected")) };
        let (q, k, v) = (q.detach().contiguous()?, k.detach().contiguous()?, v.detach().contiguous()?);
        let tokens = q.size(2)?;
        let (dtype, sums) = (q.dtype(), sum_dtype(&q));
        let out = Tensor::zeros_with(q.shape(), (sums, q.device()))?;
        let total = Tensor::full_with([q.size(0)?, q.size(1)?, tokens, 1], MASKED, (sums, q.device()))?;
        self.around(vec![k.clone(), v.clone()], |other, kv| {
            for (q_at, k_at, size, relation) in self.pairs(tokens, other) {
                let piece = |t: &Tensor, at: usize| t.narrow(2, at as isize, size);
                let scores = self.scores(&piece(&q, q_at)?, &piece(&kv[0], k_at)?, relation)?;
                let sum = scores.logsumexp(-1, true)?;
                let part = scores.sub(&sum)?.exp()?.to_dtype(dtype)?.matmul(&piece(&kv[1], k_at)?)?.to_dtype(sums)?;
                let (old_sum, old) = (piece(&total, q_at)?, piece(&out, q_at)?);
                let new_sum = old_sum.logaddexp(&sum)?;
                let merged = old.mul(&old_sum.sub(&new_sum)?.exp()?)?.add(&part.mul(&sum.sub(&new_sum)?.exp()?)?)?;
                old.copy_(&merged)?;
                old_sum.copy_(&new_sum)?;
            }
            Ok(())
        })?;
        let result = out.to_dtype(dtype)?;
        ctx.save_for_backward(&[&q, &k, &v, &result, &total]);
        Ok(vec![result])
    }

    fn backward(&self, saved: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let (Some(Some(dy)), [q, k, v, out, total]) = (grads.first(), saved) else { return Ok(vec![None; 3]) };
        no_grad(|| {
            let dy = dy.contiguous()?;
            let tokens = q.size(2)?;
            let (dtype, sums) = (q.dtype(), sum_dtype(q));
            let delta = dy.to_dtype(sums)?.mul(&out.to_dtype(sums)?)?.sum_dims(-1, true)?;
            let zeros = |t: &Tensor| Tensor::zeros_with(t.shape(), (sums, t.device()));
            let dq = zeros(q)?;
            // The gradients of keys and values go around with them, one pass behind, and end at home.
            let (mut dk, mut dv) = (zeros(k)?, zeros(v)?);
            let ranks = self.group.size();
            let mut current = vec![k.clone(), v.clone()];
            for turn in 0..ranks {
                let other = (self.group.rank() + ranks - turn) % ranks;
                let coming = if turn + 1 < ranks { Some(self.pass(&current)?) } else { None };
                for (q_at, k_at, size, relation) in self.pairs(tokens, other) {
                    let piece = |t: &Tensor, at: usize| t.narrow(2, at as isize, size);
                    let (qp, kp, vp) = (piece(q, q_at)?, piece(&current[0], k_at)?, piece(&current[1], k_at)?);
                    let dyp = piece(&dy, q_at)?;
                    let p = self.scores(&qp, &kp, relation)?.sub(&piece(total, q_at)?)?.exp()?;
                    let add = |to: &Tensor, at: usize, product: Tensor| -> Result<()> {
                        piece(to, at)?.add_(&product.to_dtype(sums)?).map(drop)
                    };
                    add(&dv, k_at, p.to_dtype(dtype)?.transpose(-1, -2)?.matmul(&dyp)?)?;
                    let dp = dyp.matmul(&vp.transpose(-1, -2)?)?.to_dtype(sums)?;
                    let ds = p.mul(&dp.sub(&piece(&delta, q_at)?)?)?.mul(self.scale)?.to_dtype(dtype)?;
                    add(&dq, q_at, ds.matmul(&kp)?)?;
                    add(&dk, k_at, ds.transpose(-1, -2)?.matmul(&qp)?)?;
                }
                if let Some((received, work)) = coming {
                    work.wait()?;
                    current = received;
                }
                if ranks > 1 {
                    let (received, work) = self.pass(&[dk.clone(), dv.clone()])?;
                    work.wait()?;
                    [dk, dv] =
                        <[Tensor; 2]>::try_from(received).map_err(|_| Error::value("ring_attention: gradients"))?;
                }
            }
            [dq, dk, dv].into_iter().map(|g| g.to_dtype(dtype).map(Some)).collect()
        })
    }

    fn name(&self) -> &'static str {
        "ring_attention"
    }
}

/// Exchanges tensors of equal size among all ranks: dimension `from` is split among the ranks and dimension `to`
/// gathered. Recorded by autograd, whose backward is the exchange in the other direction.
pub fn all_to_all_dims(x: &Tensor, from: isize, to: isize, group: &Arc<dyn ProcessGroup>) -> Result<Tensor> {
    let rank = x.rank() as isize;
    let (from, to) = (from.rem_euclid(rank.max(1)), to.rem_euclid(rank.max(1)));
    let size = x.size(from)?;
    if !size.is_multiple_of(group.size()) {
        return Err(Error::shape(format!(
            "all_to_all_dims: dimension {from} of size {size} does not split among {} ranks",
            group.size()
        )));
    }
    let exchange = Exchange { group: group.clone(), from, to };
    apply(exchange, &[x])?.pop().ok_or_else(|| Error::value("all_to_all_dims: no output"))
}

struct Exchange {
    group: Arc<dyn ProcessGroup>,
    from: isize,
    to: isize,
}

impl Exchange {
    fn run(&self, x: &Tensor, from: isize, to: isize) -> Result<Tensor> {
        let ranks = self.group.size();
        let part = x.size(from)? / ranks;
        let inputs = (0..ranks)
            .map(|r| x.detach().narrow(from, (r * part) as isize, part)?.contiguous())
            .collect::<Result<Vec<_>>>()?;
        let outputs = inputs.iter().map(Tensor::zeros_like).collect::<Result<Vec<_>>>()?;
        self.group.all_to_all(&outputs, &inputs)?;
        Tensor::cat(&outputs.iter().collect::<Vec<_>>(), to)
    }
}

impl Function for Exchange {
    fn forward(&self, _: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![self.run(inputs[0], self.from, self.to)?])
    }

    fn backward(&self, _: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![grads[0].as_ref().map(|dy| no_grad(|| self.run(dy, self.to, self.from))).transpose()?])
    }

    fn name(&self) -> &'static str {
        "all_to_all"
    }
}

/// Attention over a sequence split in contiguous parts, by Ulysses' exchange: each rank computes whole sequences of its
/// share of the heads, with the fused kernels.
pub fn ulysses_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    options: AttentionOptions<'_>,
    group: &Arc<dyn ProcessGroup>,
) -> Result<Tensor> {
    let [q, k, v] = [q, k, v].map(|t| all_to_all_dims(t, 1, 2, group));
    let out = q?.scaled_dot_product_attention(&k?, &v?, &options)?;
    all_to_all_dims(&out, 2, 1, group)
}
