//! Expert parallelism: a mixture's experts split among ranks, tokens sent to the ranks of their experts and back.

use crate::group::ProcessGroup;
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{Context, Function, apply, no_grad};
use std::sync::Arc;

/// Tokens on their way: how to bring the experts' outputs back. See [`dispatch`].
pub struct Dispatch {
    group: Arc<dyn ProcessGroup>,
    /// Tokens in the order of their experts: `order[i]` is the row of the token sent as `i`.
    order: Tensor,
    /// From received rows, grouped by sender, to rows grouped by expert.
    regroup: Tensor,
    sent: Vec<usize>,
    received: Vec<usize>,
    counts: Vec<usize>,
}

/// Sends each row of `tokens` to the rank of its expert. `experts` are split evenly: rank `r` of `n` has those from
/// `r * experts / n` on. `chosen` is each row's expert (`int64`); for several experts a token, repeat its row.
/// Returns the rows for this rank's experts, grouped by expert: [`Dispatch::counts`] says how many each has. Recorded
/// by autograd.
pub fn dispatch(
    tokens: &Tensor,
    chosen: &Tensor,
    experts: usize,
    group: &Arc<dyn ProcessGroup>,
) -> Result<(Tensor, Dispatch)> {
    let (ranks, rows) = (group.size(), tokens.shape().first().copied().unwrap_or(0));
    if tokens.rank() != 2 || chosen.shape() != [rows] || chosen.dtype() != DType::I64 {
        return Err(Error::shape(format!(
            "expert_parallel::dispatch: tokens {:?} and chosen {} {:?}; expected [rows, size] and int64 [rows]",
            tokens.shape(),
            chosen.dtype(),
            chosen.shape()
        )));
    }
    if experts == 0 || !experts.is_multiple_of(ranks) {
        return Err(Error::value(format!(
            "expert_parallel::dispatch: {experts} experts do not split among {ranks} ranks"
        )));
    }
    let own = experts / ranks;
    let chosen = chosen.to_vec::<i64>()?;
    let mut lists: Vec<Vec<i64>> = vec![Vec::new(); experts];
    for (row, &expert) in chosen.iter().enumerate() {
        let list = usize::try_from(expert).ok().and_then(|expert| lists.get_mut(expert));
        let wrong = || Error::index(format!("expert_parallel::dispatch: row {row} has expert {expert} of {experts}"));
        list.ok_or_else(wrong)?.push(row as i64);
    }
    let mine: Vec<i64> = lists.iter().map(|list| list.len() as i64).collect();
    let order: Vec<i64> = lists.concat();
    // Counts of every rank's rows for each of this rank's experts.
    let counted = Tensor::from_slice(&mine, [experts])?;
    let theirs = counted.zeros_like()?;
    group.all_to_all_single(&theirs, &counted, None, None)?;
    let theirs: Vec<usize> = theirs.to_vec::<i64>()?.into_iter().map(|n| n.max(0) as usize).collect();
    let sums = |numbers: &[usize]| numbers.chunks(own).map(|part| part.iter().sum()).collect::<Vec<usize>>();
    let sent = sums(&mine.iter().map(|&n| n as usize).collect::<Vec<_>>());
    let received = sums(&theirs);
    // Received rows come by sender, then by expert.
    let mut starts = Vec::with_capacity(theirs.len());
    let mut at = 0;
    for n in &theirs {
        starts.push(at);
        at += n;
    }
    let (mut regroup, mut counts) = (Vec::with_capacity(at), vec![0; own]);
    for expert in 0..own {
        for sender in 0..ranks {
            let slot = sender * own + expert;
            regroup.extend((starts[slot]..starts[slot] + theirs[slot]).map(|row| row as i64));
            counts[expert] += theirs[slot];
        }
    }
    let index = |rows: &[i64]| Tensor::from_slice(rows, [rows.len()])?.to(tokens.device());
    let way =
        Dispatch { group: group.clone(), order: index(&order)?, regroup: index(&regroup)?, sent, received, counts };
    let sorted = tokens.index_select(0, &way.order)?;
    let arrived = way.exchange(&sorted, false)?;
    Ok((arrived.index_select(0, &way.regroup)?, way))
}

impl Dispatch {
    /// Rows of each of this rank's experts.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    fn exchange(&self, x: &Tensor, back: bool) -> Result<Tensor> {
        let (sent, received) = (self.sent.clone(), self.received.clone());
        let (from, to) = if back { (received, sent) } else { (sent, received) };
        let rows = Rows { group: self.group.clone(), from, to };
        apply(rows, &[x])?.pop().ok_or_else(|| Error::value("expert_parallel: no output"))
    }

    /// Brings the outputs for the rows that [`dispatch`] returned back to their ranks, in the order of the tokens.
    pub fn combine(&self, outputs: &Tensor) -> Result<Tensor> {
        let rows: usize = self.received.iter().sum();
        if outputs.shape().first() != Some(&rows) {
            return Err(Error::shape(format!(
                "expert_parallel::combine: outputs {:?}; expected one for each of {rows} rows",
                outputs.shape()
            )));
        }
        let by_sender = outputs.index_select(0, &inverse(&self.regroup)?)?;
        let home = self.exchange(&by_sender, true)?;
        home.index_select(0, &inverse(&self.order)?)
    }
}

/// The inverse of a permutation.
fn inverse(order: &Tensor) -> Result<Tensor> {
    let rows = order.to_vec::<i64>()?;
    let mut back = vec![0i64; rows.len()];
    for (i, &row) in rows.iter().enumerate() {
        back[row as usize] = i as i64;
    }
    Tensor::from_slice(&back, [back.len()])?.to(order.device())
}

/// An exchange of rows, as many as each rank has for each other.
struct Rows {
    group: Arc<dyn ProcessGroup>,
    from: Vec<usize>,
    to: Vec<usize>,
}

impl Rows {
    fn run(&self, x: &Tensor, from: &[usize], to: &[usize]) -> Result<Tensor> {
        let x = x.detach().contiguous()?;
        let mut shape = x.shape().to_vec();
        shape[0] = to.iter().sum();
        let out = Tensor::empty_with(&shape[..], (x.dtype(), x.device()))?;
        self.group.all_to_all_single(&out, &x, Some(to), Some(from))?;
        Ok(out)
    }
}

impl Function for Rows {
    fn forward(&self, _: &mut Context, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![self.run(inputs[0], &self.from, &self.to)?])
    }

    fn backward(&self, _: &[Tensor], grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![grads[0].as_ref().map(|dy| no_grad(|| self.run(dy, &self.to, &self.from))).transpose()?])
    }

    fn name(&self) -> &'static str {
        "all_to_all"
    }
}
