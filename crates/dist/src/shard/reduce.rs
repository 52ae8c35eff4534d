//! Gradients of a group: reduced over its ranks in the background, one group at a time, while backward goes on.

use super::group::{ShardGroup, ZeroStage, lock};
use crate::comm::ReduceOp;
use crate::group::{Collective, Work};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{no_grad, queue_callback};
use std::cell::RefCell;
use std::sync::{Arc, Weak};

/// A reduction that is under way.
pub(super) struct Pending {
    work: Work,
    /// This rank's flat shard of the gradients.
    output: Tensor,
    shards: Vec<Tensor>,
    /// Which parameters had a gradient.
    used: Vec<bool>,
}

thread_local! {
    /// The group whose reduction this thread started last. It ends before the next begins, which bounds the memory.
    static LAST: RefCell<Weak<ShardGroup>> = const { RefCell::new(Weak::new()) };
}

/// Reduces the gradients of whole parameters and sets those of the shards, at the end of the backward pass at the
/// latest.
pub(super) fn reduce(group: &Arc<ShardGroup>, shards: &[Tensor], grads: &[Option<Tensor>]) -> Result<()> {
    await_end(group);
    let (stage, device, mean, dtype) = {
        let options = lock(&group.options);
        let dtype = options.reduce_dtype.or(options.param_dtype).unwrap_or(group.dtype);
        (options.stage, options.device, options.divide_by.is_none(), dtype)
    };
    if stage != ZeroStage::One {
        group.reshard();
    }
    no_grad(|| {
        let mut state = lock(&group.state);
        let silent = state.silent;
        let mut total = Vec::with_capacity(grads.len());
        for (grad, before) in grads.iter().zip(state.unsynced.iter_mut()) {
            // A gradient that is sent at once is converted where it is copied to be sent.
            let keep = silent || before.is_some();
            let grad = grad.as_ref().map(|g| if keep { g.detach().to_dtype(dtype) } else { Ok(g.detach()) });
            total.push(match (grad.transpose()?, before.take()) {
                (Some(grad), Some(before)) => Some(before.add(&grad)?),
                (grad, before) => grad.or(before),
            });
        }
        if silent {
            state.unsynced = total;
            return Ok(());
        }
        drop(state);
        let flat = group.layout.flatten_whole(&total, dtype, device)?;
        let used = total.iter().map(Option::is_some).collect();
        drop(total);
        if let Some(last) = LAST.with_borrow(Weak::upgrade) {
            finish(&last)?;
        }
        let inputs = (0..group.layout.ranks)
            .map(|rank| flat.narrow(0, rank as isize, 1)?.view([group.layout.shard]))
            .collect::<Result<Vec<_>>>()?;
        let output = Tensor::empty_with([group.layout.shard], (dtype, device))?;
        let op = if mean { ReduceOp::Mean } else { ReduceOp::Sum };
        let work = group.ranks.submit(Collective::ReduceScatter { output: output.clone(), inputs, op }, true)?;
        lock(&group.state).pending.push(Pending { work, output, shards: shards.to_vec(), used });
        LAST.set(Arc::downgrade(group));
        Ok(())
    })
}

/// Waits for a group's reductions and sets the gradients of its shards.
fn finish(group: &Arc<ShardGroup>) -> Result<()> {
    let (pending, local_only) = {
        let mut state = lock(&group.state);
        (std::mem::take(&mut state.pending), state.local_only)
    };
    let divide_by = lock(&group.options).divide_by;
    for Pending { work, mut output, shards, used } in pending {
        work.wait()?;
        let with_grad = || shards.iter().enumerate().filter(|(i, s)| used[*i] && s.requires_grad());
        let mut arrived = false;
        no_grad(|| {
            if let Some(replicas) = &group.replicas {
                let mut state = lock(&group.state);
                if let Some(before) = state.unreplicated.take() {
                    output = output.add(&before)?;
                }
                if local_only {
                    state.unreplicated = Some(output);
                    return Ok(());
                }
                drop(state);
                replicas.all_reduce(&output, if divide_by.is_none() { ReduceOp::Mean } else { ReduceOp::Sum })?;
            }
            if let Some(divisor) = divide_by {
                output = output.div(divisor)?;
            }
            let output = output.to_dtype(group.dtype)?;
            for (i, shard) in with_grad() {
                let grad = group.layout.part(i, &output)?.to(shard.device())?;
                match shard.grad() {
                    Some(before) => before.add_(&grad).map(drop)?,
                    None => shard.set_grad(Some(grad))?,
                }
            }
            arrived = true;
            Ok::<_, Error>(())
        })?;
        if arrived {
            // Once all gradients of the group are there: an update may start while backward goes on.
            with_grad().try_for_each(|(_, shard)| shard.run_post_accumulate_grad_hooks())?;
        }
    }
    Ok(())
}

/// Has the end of the current backward pass finish this group's reductions and free what it gathered in vain. Returns
/// whether there is such a pass.
pub(super) fn await_end(group: &Arc<ShardGroup>) -> bool {
    if std::mem::replace(&mut lock(&group.state).awaited, true) {
        return true;
    }
    let ended = Awaited(group.clone());
    let queued = queue_callback(move || {
        let group = ended.0.clone();
        drop(ended);
        finish(&group)?;
        if lock(&group.options).stage != ZeroStage::One {
            group.drop_gathered()?;
        }
        Ok(())
    });
    // Outside of a backward pass, as when a saved tensor is read, there is nothing to end.
    queued.is_ok()
}

/// A group whose reductions the end of a backward pass waits for; also one that fails lets go of it.
struct Awaited(Arc<ShardGroup>);

impl Drop for Awaited {
    fn drop(&mut self) {
        lock(&self.0.state).awaited = false;
    }
}
