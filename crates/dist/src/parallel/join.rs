//! `join`: uneven inputs, when some ranks run out of data before others.

use super::reducer::Reducer;
use crate::comm::ReduceOp;
use crate::group::{Collective, ProcessGroup};
use rushlight_core::Result;
use rushlight_tensor::Tensor;

/// Ends the mode in which every iteration begins with a count of the ranks that still have data.
pub(super) struct Joining<'a>(&'a Reducer);

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        self.0.set_joins(false);
    }
}

pub(super) fn enter(reducer: &Reducer) -> Joining<'_> {
    reducer.set_joins(true);
    Joining(reducer)
}

/// Number of ranks that begin an iteration now, and the first of them.
pub(super) fn count_active(group: &dyn ProcessGroup, active: bool) -> Result<(usize, usize)> {
    let flags = Tensor::zeros([group.size()])?;
    let own = Tensor::new([active as u8 as f32])?;
    group.all_gather_into_tensor(&flags, &own)?;
    let flags = flags.to_vec::<f32>()?;
    let first = flags.iter().position(|&f| f != 0.0).unwrap_or(0);
    Ok((flags.iter().filter(|&&f| f != 0.0).count(), first))
}

/// Shadows the others' collectives until no rank has data, then copies the state of a rank that was among the last.
pub(super) fn shadow(reducer: &Reducer, buffers: &[Tensor], state: Vec<Tensor>) -> Result<()> {
    let group = reducer.group();
    let mut last = None;
    loop {
        let (active, first) = count_active(&**group, false)?;
        if active == 0 {
            break;
        }
        last = Some(first);
        if !buffers.is_empty() && group.size() > 1 {
            group.run(Collective::Broadcast { tensors: buffers.iter().map(Tensor::detach).collect(), root: 0 })?;
        }
        reducer.shadow()?;
    }
    // Ranks that trained to the end agree with the others on the first of them.
    let mine = Tensor::new([last.map_or(group.size() as f32, |first| first as f32)])?;
    group.all_reduce(&mine, ReduceOp::Min)?;
    let root = mine.item::<f64>()? as usize;
    if root < group.size() && !state.is_empty() {
        group.run(Collective::Broadcast { tensors: state, root })?;
    }
    Ok(())
}
