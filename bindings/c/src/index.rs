//! Indexing: Python's `x[…]` and `x[…] = value`.

use crate::handle::{borrow, give, put, rl_tensor, slice};
use crate::status::rl_status;
use crate::values::*;
use rushlight_core::smallvec::SmallVec;
use rushlight_core::{Error, Result, Scalar};
use rushlight_tensor::{Arg, IndexItem, Tensor};

/// Kinds of entries of an index.
pub const RL_INDEX_INT: i32 = 0;
pub const RL_INDEX_SLICE: i32 = 1;
pub const RL_INDEX_NONE: i32 = 2;
pub const RL_INDEX_ELLIPSIS: i32 = 3;
pub const RL_INDEX_TENSOR: i32 = 4;
pub const RL_INDEX_BOOL: i32 = 5;

/// An entry of an index: a number, a slice, a new axis, an ellipsis, a tensor of indices or a mask, a truth value.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct rl_index {
    pub kind: i32,
    /// For slices: bit 0, `start` is given; bit 1, `stop` is given.
    pub given: i32,
    pub start: i64,
    pub stop: i64,
    pub step: i64,
    pub tensor: *const rl_tensor,
}

type Items = SmallVec<[IndexItem; 4]>;

unsafe fn items(target: &Tensor, entries: &[rl_index]) -> Result<Items> {
    entries
        .iter()
        .map(|entry| {
            Ok(match entry.kind {
                RL_INDEX_INT => IndexItem::Int(entry.start as isize),
                RL_INDEX_SLICE => {
                    let part = |bit: i32, value: i64| (entry.given & bit != 0).then_some(value as isize);
                    let step = usize::try_from(entry.step).ok().filter(|&s| s > 0);
                    let step = step.ok_or_else(|| Error::value("index: the step of a slice must be positive"))?;
                    IndexItem::Range { start: part(1, entry.start), end: part(2, entry.stop), step }
                }
                RL_INDEX_NONE => IndexItem::NewAxis,
                RL_INDEX_ELLIPSIS => IndexItem::Ellipsis,
                RL_INDEX_BOOL => IndexItem::Tensor(Tensor::new(entry.start != 0)?),
                RL_INDEX_TENSOR => {
                    // SAFETY: the caller's live handle.
                    let index = unsafe { borrow(entry.tensor)? };
                    IndexItem::Tensor(index.to(target.device())?)
                }
                other => return Err(Error::value(format!("index: there is no entry of kind {other}"))),
            })
        })
        .collect()
}

api! {
    /// The elements of an index: a view if it has no tensors.
    fn rl_index_get(
        tensor: *const rl_tensor, entries: *const rl_index, count: usize, out: *mut *mut rl_tensor,
    ) -> rl_status, try {
        // SAFETY: live handles, entries and a place for the result, as the header says.
        unsafe {
            let tensor = borrow(tensor)?;
            let items = items(&tensor, slice(entries, count))?;
            put(out, give(tensor.index(&items[..])?))
        }
    }
    /// Writes a tensor or a number to the elements of an index. With `accumulate`, adds a tensor to them.
    fn rl_index_put(
        tensor: *const rl_tensor, entries: *const rl_index, count: usize, value: *const rl_value, accumulate: bool,
    ) -> rl_status, try {
        // SAFETY: as above.
        unsafe {
            let tensor = borrow(tensor)?;
            let items = items(&tensor, slice(entries, count))?;
            let value = value.as_ref().ok_or_else(|| Error::value("index_put_: the value is null"))?;
            let held;
            let scalar = match value.kind {
                RL_BOOL => Scalar::Bool(value.data.integer != 0),
                RL_INT => Scalar::Int(value.data.integer),
                RL_FLOAT => Scalar::Float(value.data.number),
                RL_TENSOR => {
                    held = borrow(value.data.tensor)?;
                    if accumulate {
                        return tensor.index_put_(&items[..], &held, true).map(drop);
                    }
                    return tensor.index_assign(&items[..], Arg::Tensor(&held)).map(drop);
                }
                _ => return Err(Error::value("index_put_: the value must be a tensor or a number")),
            };
            if accumulate {
                return Err(Error::unsupported("index_put_: accumulate takes a tensor"));
            }
            tensor.index_assign(&items[..], Arg::Scalar(scalar)).map(drop)
        }
    }
}
