//! Masks: positions of nonzero elements, selection by mask, one-hot rows, and embedding lookup.

use super::index::{Place, Plan, index_read, index_write};
use crate::Tensor;
use crate::announce::announced;
use crate::autograd::{Saved, record, recording};
use rushlight_core::backend::call;
use rushlight_core::layout::broadcast_shapes;
use rushlight_core::smallvec::smallvec;
use rushlight_core::{DType, Device, Error, Result};
use std::sync::Arc;

fn check_mask(name: &str, mask: &Tensor) -> Result<()> {
    if mask.dtype() == DType::Bool {
        return Ok(());
    }
    Err(Error::dtype(format!("{name}: expected a bool tensor for mask, got {}", mask.dtype())))
}

impl Tensor {
    /// Coordinates of the elements that are not zero, one row each, in row-major order.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let x = Tensor::new([[0i64, 1], [2, 0]])?;
    /// assert_eq!(x.nonzero()?.to_vec::<i64>()?, [0, 1, 1, 0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn nonzero(&self) -> Result<Tensor> {
        crate::capture::refuse("nonzero (which masks and unique use)", self.device())?;
        self.visitable("nonzero")?;
        if self.is_complex() {
            return self.ne(0)?.nonzero();
        }
        let count = if self.numel() == 0 { 0 } else { self.count_nonzero(..)?.item::<i64>()? as usize };
        // A dimension's indices are contiguous, as in PyTorch: nonzero_tuple returns contiguous vectors.
        let out = match self.rank() {
            0 | 1 => self.uninit_like(&[count, self.rank()], DType::I64)?,
            rank => {
                let by_dimension = self.uninit_like(&[rank, count], DType::I64)?;
                let turned = by_dimension.layout().transpose(0, 1);
                Tensor::from_parts(by_dimension.storage().clone(), turned, DType::I64, Default::default())
            }
        };
        if out.numel() > 0 {
            self.run(call::NonZero { x: self.engine_view(), out: out.engine_view() })?;
        }
        Ok(out)
    }

    /// [`Tensor::nonzero`] as one vector per dimension, ready to index with: PyTorch's `nonzero(as_tuple=True)`.
    pub fn nonzero_tuple(&self) -> Result<Vec<Tensor>> {
        self.at_least_1d()?.nonzero()?.unbind(1)
    }

    /// Another name of [`Tensor::nonzero`].
    pub fn argwhere(&self) -> Result<Tensor> {
        self.nonzero()
    }

    /// The elements where the mask holds, as a vector; both broadcast.
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        check_mask("masked_select", mask)?;
        self.same_device(mask, "masked_select")?;
        let shape = broadcast_shapes(self.shape(), mask.shape()).map_err(|e| e.within("masked_select"))?;
        let places = mask.expand(&shape)?.reshape([-1isize])?.nonzero()?.select(1, 0)?;
        let flat = self.expand(&shape)?.reshape([-1isize])?;
        index_read("masked_select", &flat, Arc::new(Plan::along(&flat, 0, &places)?))
    }

    /// `self` with the elements where the mask holds replaced, in order, by the first elements of `source`.
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        check_mask("masked_scatter", mask)?;
        self.same_device(mask, "masked_scatter")?;
        let shape = broadcast_shapes(self.shape(), mask.shape()).map_err(|e| e.within("masked_scatter"))?;
        let places = mask.expand(&shape)?.reshape([-1isize])?.nonzero()?.select(1, 0)?;
        if source.numel() < places.numel() {
            return Err(Error::shape(format!(
                "masked_scatter: expected source to have at least as many elements as the mask has ones, but got {} and {}",
                source.numel(),
                places.numel()
            )));
        }
        let flat = self.expand(&shape)?.reshape([-1isize])?;
        let values = source.reshape([-1isize])?.narrow(0, 0, places.numel())?;
        let plan = Arc::new(Plan::along(&flat, 0, &places)?);
        index_write("masked_scatter", &flat, plan, &values, false, Place::Copy)?.reshape(&shape)
    }

    /// [`Tensor::masked_scatter`] in place.
    pub fn masked_scatter_(&self, mask: &Tensor, source: &Tensor) -> Result<&Tensor> {
        self.copy_(&self.masked_scatter(mask, source)?)
    }

    /// Class indices as rows of zeros with a one at the class, as a new last dimension. By default the number of
    /// classes is the largest index plus one.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// assert_eq!(Tensor::new([0i64, 2])?.one_hot(None)?.to_vec::<i64>()?, [1, 0, 0, 0, 0, 1]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn one_hot(&self, num_classes: Option<usize>) -> Result<Tensor> {
        if !self.dtype().is_int() {
            return Err(Error::dtype(format!(
                "one_hot is only applicable to index tensors of integers, got {}",
                self.dtype()
            )));
        }
        if let Some(classes) = num_classes {
            announced!("nn.functional.one_hot", [self, classes]; self.one_hot(num_classes));
        }
        // As PyTorch on a GPU: with the number of classes given, nothing is read from the device.
        let read = num_classes.is_none() || self.device() == Device::Cpu && crate::capture::may_read(Device::Cpu);
        let top = if self.numel() == 0 || !read { -1 } else { self.max(..)?.item::<i64>()? };
        if self.numel() > 0 && read && self.min(..)?.item::<i64>()? < 0 {
            return Err(Error::value("one_hot: class values must be non-negative"));
        }
        let classes = match num_classes {
            Some(n) if n > 0 => n,
            Some(_) => return Err(Error::value("one_hot: num_classes should be positive")),
            None if self.numel() == 0 => {
                return Err(Error::value("one_hot: can not infer total number of classes from empty tensor"));
            }
            None => top as usize + 1,
        };
        if top >= classes as i64 {
            return Err(Error::value(format!(
                "one_hot: class values must be smaller than num_classes, but {top} is among {classes} classes"
            )));
        }
        let mut shape = self.shape().to_vec();
        shape.push(classes);
        let out = Tensor::zeros_with(&shape, (DType::I64, self.device()))?;
        out.scatter_(-1, &self.to_index("one_hot")?.unsqueeze(-1)?, 1)?;
        Ok(out)
    }

    /// Rows of this `[rows, width]` table at the indices, which give the result's leading dimensions. The row
    /// `padding_idx` gets no gradient; with `scale_grad_by_freq` a row's gradient is divided by its number of
    /// occurrences.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let table = Tensor::arange(0.0, 6.0, 1.0)?.reshape([3, 2])?;
    /// let rows = table.embedding(&Tensor::new([[2i64, 0]])?, None, false)?;
    /// assert_eq!(rows.shape(), [1, 2, 2]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    pub fn embedding(&self, indices: &Tensor, padding_idx: Option<isize>, scale_grad_by_freq: bool) -> Result<Tensor> {
        let name = "embedding";
        announced!(
            "nn.functional.embedding", [indices, self, padding_idx], scale_grad_by_freq = scale_grad_by_freq;
            self.embedding(indices, padding_idx, scale_grad_by_freq)
        );
        if self.rank() != 2 {
            return Err(Error::shape(format!("{name}: 'weight' must be 2-D, got shape {:?}", self.shape())));
        }
        self.same_device(indices, name)?;
        let rows = self.shape()[0];
        let padding = match padding_idx {
            Some(p) if p >= rows as isize || p < -(rows as isize) => {
                return Err(Error::value(format!("{name}: padding_idx {p} must be within the {rows} rows of weight")));
            }
            Some(p) if p < 0 => Some(p + rows as isize),
            other => other,
        };
        let indices = indices.to_index(name)?;
        // An engine would count negative indices from the end; here they are mistakes. Elsewhere the check would stall
        // the device.
        let checked = self.device() == Device::Cpu && crate::capture::may_read(Device::Cpu) && indices.numel() > 0;
        if checked && indices.min(..)?.item::<i64>()? < 0 {
            return Err(Error::index(format!("{name}: index out of range in self: indices must not be negative")));
        }
        let plan = Arc::new(Plan::along(self, 0, &indices)?);
        let out = crate::autograd::no_grad(|| index_read(name, self, plan.clone()))?;
        if recording(&[self]) {
            let (shape, saved) = (self.shape().to_vec(), Saved::input(&indices));
            record(name, &[self], &out, move |ctx, dy| {
                let indices = ctx.get(&saved)?;
                let mut dy = dy.clone();
                if scale_grad_by_freq {
                    let counts = indices.reshape([-1isize])?.bincount(None, shape[0])?;
                    dy = dy.div(&counts.take(&indices)?.unsqueeze(-1)?)?;
                }
                if let Some(p) = padding
                    && ctx.recording()
                {
                    dy = dy.masked_fill(&indices.eq(p as i64)?.unsqueeze(-1)?, 0.0)?;
                }
                let zeros = Tensor::zeros_with(&shape, (dy.dtype(), dy.device()))?;
                let grad = index_write("index_put", &zeros, plan.clone(), &dy, true, Place::Own)?;
                if let Some(p) = padding
                    && !ctx.recording()
                {
                    grad.select(0, p)?.zero_()?;
                }
                Ok(smallvec![Some(grad)])
            })?;
        }
        Ok(out)
    }
}
