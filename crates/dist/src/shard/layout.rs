//! Where the parameters of a group lie in its flat buffers.
//!
//! Parameters are split along their first dimension into as many chunks of rows as there are ranks, padded to equal
//! size, or along another dimension that the ranks divide. A rank's shards lie one after the other in a flat buffer;
//! gathered, the buffer has one such row for each rank.

use rushlight_core::{DType, Device, Error, Result};
use rushlight_tensor::Tensor;

/// One parameter.
pub(super) struct Slot {
    pub(super) shape: Vec<usize>,
    /// The dimension that is split.
    dim: usize,
    /// Elements of the dimensions before it.
    outer: usize,
    /// Rows of a chunk.
    rows: usize,
    /// Elements of a row: of the dimensions after it.
    row: usize,
    /// Elements before it in a rank's flat shard.
    start: usize,
    /// Elements before it in the buffer of whole parameters.
    whole: usize,
}

/// The layout of a group of parameters.
pub(super) struct FlatLayout {
    pub(super) slots: Vec<Slot>,
    pub(super) ranks: usize,
    rank: usize,
    /// Elements of a rank's flat shard.
    pub(super) shard: usize,
}

/// Parameters begin at multiples of this many elements, so that kernels find aligned rows.
const ALIGNMENT: usize = 16;

impl Slot {
    /// The length of the dimension that is split. A scalar is one row.
    fn length(&self) -> usize {
        self.shape.get(self.dim).copied().unwrap_or(1)
    }

    /// Elements of a chunk.
    fn chunk(&self) -> usize {
        self.outer * self.rows * self.row
    }
}

impl FlatLayout {
    /// The layout of parameters of these shapes, each split along a dimension.
    pub(super) fn new(shapes: &[Vec<usize>], dims: &[usize], ranks: usize, rank: usize) -> Result<Self> {
        let (mut start, mut whole, mut slots) = (0, 0, Vec::new());
        for (shape, &dim) in shapes.iter().zip(dims) {
            if dim > 0 && !shape.get(dim).is_some_and(|n| n.is_multiple_of(ranks)) {
                return Err(Error::shape(format!(
                    "shard: dimension {dim} of a parameter of shape {shape:?} is not a multiple of {ranks} ranks; only \
                     the first dimension may be split unevenly"
                )));
            }
            let outer = shape[..dim].iter().product();
            let row = shape.get(dim + 1..).map_or(1, |rest| rest.iter().product());
            let mut slot = Slot { shape: shape.clone(), dim, outer, rows: 0, row, start, whole };
            slot.rows = slot.length().div_ceil(ranks);
            start += slot.chunk();
            whole += (slot.chunk() * ranks).next_multiple_of(ALIGNMENT);
            slots.push(slot);
        }
        Ok(Self { slots, ranks, rank, shard: start })
    }

    /// The layout of one of the parameters alone.
    pub(super) fn only(&self, index: usize) -> Result<Self> {
        let slot = &self.slots[index];
        Self::new(std::slice::from_ref(&slot.shape), &[slot.dim], self.ranks, self.rank)
    }

    /// Elements of the buffer of whole parameters, padding included.
    pub(super) fn whole(&self) -> usize {
        self.slots.last().map_or(0, |s| s.whole + (s.chunk() * self.ranks).next_multiple_of(ALIGNMENT))
    }

    /// The rows of a rank.
    fn rows_of(slot: &Slot, rank: usize) -> (usize, usize) {
        let begin = (slot.rows * rank).min(slot.length());
        (begin, slot.rows.min(slot.length() - begin))
    }

    /// The shape of this rank's shard of a parameter.
    pub(super) fn shard_shape(&self, index: usize) -> Vec<usize> {
        let slot = &self.slots[index];
        let mut shape = slot.shape.clone();
        match shape.get_mut(slot.dim) {
            Some(length) => *length = Self::rows_of(slot, self.rank).1,
            None => shape = vec![Self::rows_of(slot, self.rank).1],
        }
        shape
    }

    /// This rank's shard of a whole parameter, copied.
    pub(super) fn cut(&self, index: usize, whole: &Tensor) -> Result<Tensor> {
        let slot = &self.slots[index];
        if whole.shape() != slot.shape {
            return Err(Error::shape(format!("shard: a tensor of shape {:?} for {:?}", whole.shape(), slot.shape)));
        }
        let whole = if slot.shape.is_empty() { whole.reshape([1])? } else { whole.clone() };
        let (begin, rows) = Self::rows_of(slot, self.rank);
        whole.detach().narrow(slot.dim as isize, begin as isize, rows)?.copy()
    }

    /// This rank's flat shard of all parameters.
    pub(super) fn flatten(&self, shards: &[Tensor], dtype: DType, device: Device) -> Result<Tensor> {
        let flat = Tensor::zeros_with([self.shard], (dtype, device))?;
        for (slot, shard) in self.slots.iter().zip(shards) {
            let count = shard.numel();
            if count > 0 {
                let shard = shard.detach().to(device)?.to_dtype(dtype)?.reshape([count])?;
                flat.narrow(0, slot.start as isize, count)?.copy_(&shard)?;
            }
        }
        Ok(flat)
    }

    /// Copies gathered shards to the buffer of whole parameters.
    pub(super) fn unflatten(&self, gathered: &Tensor, whole: &Tensor) -> Result<()> {
        let by_rank = gathered.reshape([self.ranks, self.shard])?;
        for slot in &self.slots {
            let (chunk, inner) = (slot.chunk(), slot.rows * slot.row);
            if chunk > 0 {
                let to = whole.narrow(0, slot.whole as isize, chunk * self.ranks)?;
                let from = by_rank.narrow(1, slot.start as isize, chunk)?.view([self.ranks, slot.outer, inner])?;
                to.view([slot.outer, self.ranks, inner])?.copy_(&from.transpose(0, 1)?)?;
            }
        }
        Ok(())
    }

    /// A parameter within the buffer of whole parameters.
    pub(super) fn parameter(&self, index: usize, whole: &Tensor) -> Result<Tensor> {
        let slot = &self.slots[index];
        let count = slot.shape.iter().product();
        whole.narrow(0, slot.whole as isize, count)?.view(&slot.shape[..])
    }

    /// Gradients of whole parameters, one row for each rank; zeros for those without.
    pub(super) fn flatten_whole(&self, grads: &[Option<Tensor>], dtype: DType, device: Device) -> Result<Tensor> {
        let flat = Tensor::zeros_with([self.ranks, self.shard], (dtype, device))?;
        for (slot, grad) in self.slots.iter().zip(grads) {
            let Some(grad) = grad else { continue };
            let grad = if slot.shape.is_empty() { grad.reshape([1])? } else { grad.clone() };
            for rank in 0..self.ranks {
                let (begin, rows) = Self::rows_of(slot, rank);
                let count = slot.outer * rows * slot.row;
                if count > 0 {
                    let part = grad.narrow(slot.dim as isize, begin as isize, rows)?.reshape([count])?;
                    flat.narrow(0, rank as isize, 1)?
                        .view([self.shard])?
                        .narrow(0, slot.start as isize, count)?
                        .copy_(&part)?;
                }
            }
        }
        Ok(flat)
    }

    /// This rank's shard of a parameter within its flat shard.
    pub(super) fn part(&self, index: usize, flat: &Tensor) -> Result<Tensor> {
        let shape = self.shard_shape(index);
        let count = shape.iter().product();
        flat.narrow(0, self.slots[index].start as isize, count)?.view(&shape[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_of_uneven_parameters_come_back() {
        let shapes = [vec![3, 2], vec![5], vec![], vec![1, 4], vec![3, 8, 2], vec![2, 4]];
        let dims = [0, 0, 0, 0, 1, 1];
        let values: Vec<Tensor> =
            shapes.iter().enumerate().map(|(i, s)| Tensor::rand(&s[..]).unwrap().add(i as f64).unwrap()).collect();
        let flats: Vec<Tensor> = (0..4)
            .map(|rank| {
                let layout = FlatLayout::new(&shapes, &dims, 4, rank).unwrap();
                let shards: Vec<Tensor> = values.iter().enumerate().map(|(i, v)| layout.cut(i, v).unwrap()).collect();
                for (i, shard) in shards.iter().enumerate() {
                    assert_eq!(shard.shape(), layout.shard_shape(i));
                }
                layout.flatten(&shards, DType::F32, Device::Cpu).unwrap()
            })
            .collect();
        let layout = FlatLayout::new(&shapes, &dims, 4, 0).unwrap();
        let gathered = Tensor::cat(&flats.iter().collect::<Vec<_>>(), 0).unwrap();
        let whole = Tensor::zeros([layout.whole()]).unwrap();
        layout.unflatten(&gathered, &whole).unwrap();
        for (i, value) in values.iter().enumerate() {
            let back = layout.parameter(i, &whole).unwrap();
            assert_eq!(back.shape(), value.shape());
            assert_eq!(back.to_vec::<f32>().unwrap(), value.to_vec::<f32>().unwrap());
        }
        let some: Vec<Option<Tensor>> = values.iter().cloned().map(Some).collect();
        let flat = layout.flatten_whole(&some, DType::F32, Device::Cpu).unwrap();
        assert_eq!(flat.to_vec::<f32>().unwrap(), gathered.to_vec::<f32>().unwrap());
    }

    #[test]
    fn only_the_first_dimension_is_split_unevenly() {
        let uneven = FlatLayout::new(&[vec![4, 6]], &[1], 4, 0).err().map(|e| e.to_string());
        assert!(uneven.is_some_and(|e| e.contains("dimension 1")));
        assert!(FlatLayout::new(&[vec![4]], &[1], 2, 0).is_err(), "there is no such dimension");
    }
}
