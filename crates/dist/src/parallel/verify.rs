//! Comparison of a module with the other ranks' before training.

use crate::group::{Objects, ProcessGroup};
use rushlight_core::{Error, Result};
use rushlight_nn::Module;

/// Checks that parameters and buffers have equal names, dtypes and shapes on all ranks. The error names the first
/// difference and the ranks.
pub(super) fn same_everywhere(module: &dyn Module, group: &dyn ProcessGroup) -> Result<()> {
    let parameters = module.named_parameters().into_iter().map(|(name, p)| {
        let frozen = if p.requires_grad() { "" } else { ", frozen" };
        format!("parameter {name}: {} {:?}{frozen}", p.dtype(), p.shape())
    });
    let buffers =
        module.named_buffers().into_iter().map(|(name, b)| format!("buffer {name}: {} {:?}", b.dtype(), b.shape()));
    let own: Vec<String> = parameters.chain(buffers).collect();
    let all = group.all_gather_object(own.join("\n").as_bytes())?;
    let first = String::from_utf8_lossy(&all[0]).into_owned();
    let mut differing = (1..all.len()).filter(|&rank| all[rank] != all[0]);
    let Some(rank) = differing.next() else { return Ok(()) };
    let others = differing.count();
    let text = String::from_utf8_lossy(&all[rank]).into_owned();
    let (mut a, mut b) = (first.lines(), text.lines());
    let (x, y) = loop {
        match (a.next(), b.next()) {
            (Some(x), Some(y)) if x == y => {}
            (None, None) => return Ok(()),
            (x, y) => break (x.unwrap_or("nothing more"), y.unwrap_or("nothing more")),
        }
    };
    let more = if others > 0 { format!(" ({others} more ranks differ from rank 0)") } else { String::new() };
    Err(Error::value(format!(
        "DistributedDataParallel: the ranks have different modules: rank 0 has {x}, rank {rank} has {y}{more}"
    )))
}
