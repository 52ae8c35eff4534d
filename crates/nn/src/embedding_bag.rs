//! Sums, means and maxima of looked-up vectors.

use crate::embedding::{Table, check_dense, renormalize_rows};
use crate::python::{boolean, float};
use crate::{Forward, Module, Parameter, factory_options, locate};
use rushlight_core::{DType, Error, Result, setters};
use rushlight_tensor::{BagMode, Options, Tensor};

/// A table of vectors, looked up by bags of indices: sums, means or maxima come out.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{BagMode, EmbeddingBag, Forward};
/// use rushlight::Tensor;
/// let table = Tensor::new([[1.0f32], [2.0], [4.0]])?;
/// let bags = EmbeddingBag::from_pretrained(&table).mode(BagMode::Sum).build()?;
/// assert_eq!(bags.forward(&Tensor::new([[0i64, 1], [1, 2]])?)?.to_vec::<f32>()?, [3.0, 6.0]);
/// let (indices, offsets) = (Tensor::new([0i64, 1, 2])?, Tensor::new([0i64, 1])?);
/// assert_eq!(bags.forward_with(&indices, Some(&offsets), None)?.to_vec::<f32>()?, [1.0, 6.0]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Module)]
#[module(extra_repr = "Self::settings")]
pub struct EmbeddingBag {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Parameter,
    #[module(skip)]
    mode: BagMode,
    padding_idx: Option<usize>,
    max_norm: Option<f64>,
    norm_type: f64,
    scale_grad_by_freq: bool,
    include_last_offset: bool,
}

/// The options of an [`EmbeddingBag`].
#[derive(Clone)]
pub struct EmbeddingBagBuilder {
    table: Table,
    mode: BagMode,
    padding_idx: Option<isize>,
    freeze: bool,
    max_norm: Option<f64>,
    norm_type: f64,
    scale_grad_by_freq: bool,
    include_last_offset: bool,
    sparse: bool,
    options: Options,
}

impl EmbeddingBag {
    /// A table of `num_embeddings` vectors of length `embedding_dim`.
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> Result<Self> {
        Self::builder(num_embeddings, embedding_dim).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](EmbeddingBagBuilder::build).
    pub fn builder(num_embeddings: usize, embedding_dim: usize) -> EmbeddingBagBuilder {
        EmbeddingBagBuilder::of(Table::Random { num_embeddings, embedding_dim }, false)
    }

    /// A table with these rows, which are shared; frozen by default.
    pub fn from_pretrained(embeddings: &Tensor) -> EmbeddingBagBuilder {
        EmbeddingBagBuilder::of(Table::Given(embeddings.clone()), true)
    }

    /// The output for indices `[bags, length]`, or for indices in a row with the `offsets` at which bags begin.
    /// `per_sample_weights`, of the indices' shape, scale the vectors of a sum.
    pub fn forward_with(
        &self,
        indices: &Tensor,
        offsets: Option<&Tensor>,
        per_sample_weights: Option<&Tensor>,
    ) -> Result<Tensor> {
        locate(self, || {
            let name = "EmbeddingBag";
            if let Some(weights) = per_sample_weights {
                if self.mode != BagMode::Sum {
                    return Err(Error::unsupported(format!("{name}: per_sample_weights are for the mode sum alone")));
                }
                if weights.shape() != indices.shape() {
                    return Err(Error::shape(format!(
                        "{name}: per_sample_weights of shape {:?} must have the shape {:?} of the indices",
                        weights.shape(),
                        indices.shape()
                    )));
                }
            }
            let bounds = match (indices.shape(), offsets) {
                (&[_, length], None) if length > 0 => None,
                _ => Some(self.bounds(name, indices, offsets)?),
            };
            if let Some(max_norm) = self.max_norm {
                renormalize_rows(&self.weight, indices, max_norm, self.norm_type).map_err(|e| e.within(name))?;
            }
            let rows = |indices: &Tensor, scale: Option<&Tensor>| -> Result<Tensor> {
                let rows = self.weight.embedding(indices, None, self.scale_grad_by_freq).map_err(|e| e.within(name))?;
                scale.map_or(Ok(rows.clone()), |scale| rows.mul(&scale.unsqueeze(-1)?))
            };
            let kept = |indices: &Tensor| self.padding_idx.map(|padding| indices.ne(padding as i64)).transpose();
            let Some(bounds) = bounds else {
                // No sizes are read, so a step with bags of one length can be captured.
                return rows(indices, per_sample_weights)?.even_bags(self.mode, kept(indices)?.as_ref());
            };
            let owner: Vec<i64> =
                bounds.windows(2).enumerate().flat_map(|(i, b)| vec![i as i64; b[1] - b[0]]).collect();
            let owner = Tensor::from_slice(&owner, [owner.len()])?.to(indices.device())?;
            let indices = indices.reshape([-1isize])?;
            let scale = per_sample_weights.map(|w| w.reshape([-1isize])).transpose()?;
            rows(&indices, scale.as_ref())?.bags(self.mode, &owner, bounds.len() - 1, kept(&indices)?.as_ref())
        })
    }

    /// Where the bags begin in the flat indices, and the end of the last.
    fn bounds(&self, name: &str, indices: &Tensor, offsets: Option<&Tensor>) -> Result<Vec<usize>> {
        let total = indices.numel();
        match (indices.shape(), offsets) {
            (&[bags, length], None) => {
                let mut bounds = Vec::new();
                // Bags without indices cost no memory but their bounds.
                bounds
                    .try_reserve_exact(bags.saturating_add(1))
                    .map_err(|_| Error::out_of_memory(format!("{name}: no memory for {bags} bags")))?;
                bounds.extend((0..=bags).map(|i| i * length));
                Ok(bounds)
            }
            ([_], Some(offsets)) if offsets.rank() == 1 => {
                let given = offsets.to_dtype(DType::I64)?.to_vec::<i64>()?;
                let mut bounds = Vec::with_capacity(given.len() + 1);
                for offset in given {
                    let next =
                        usize::try_from(offset).ok().filter(|&o| o <= total && o >= *bounds.last().unwrap_or(&0));
                    bounds.push(next.ok_or_else(|| {
                        Error::value(format!(
                            "{name}: offsets must not decrease and must be within the {total} indices, but {offset} is among them"
                        ))
                    })?);
                }
                if self.include_last_offset {
                    if bounds.last() != Some(&total) {
                        return Err(Error::value(format!(
                            "{name}: with include_last_offset the last offset must be the number of indices, {total}"
                        )));
                    }
                } else {
                    bounds.push(total);
                }
                if bounds[0] != 0 {
                    return Err(Error::value(format!("{name}: offsets must begin with 0, the first bag")));
                }
                Ok(bounds)
            }
            (shape, offsets) => Err(Error::shape(format!(
                "{name}: takes indices [bags, length] alone, or indices in one dimension with offsets in one dimension, got indices of shape \
                 {shape:?} and offsets of shape {:?}",
                offsets.map(|o| o.shape().to_vec())
            ))),
        }
    }

    fn settings(&self) -> String {
        let mut text = self.weight.shape().iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        if let Some(max_norm) = self.max_norm {
            text += &format!(", max_norm={}", float(max_norm));
        }
        if self.norm_type != 2.0 {
            text += &format!(", norm_type={}", float(self.norm_type));
        }
        if self.scale_grad_by_freq {
            text += &format!(", scale_grad_by_freq={}", boolean(true));
        }
        text += &format!(", mode='{}'", self.mode.name());
        if let Some(row) = self.padding_idx {
            text += &format!(", padding_idx={row}");
        }
        text
    }
}

factory_options!(EmbeddingBagBuilder);

impl EmbeddingBagBuilder {
    fn of(table: Table, freeze: bool) -> Self {
        Self {
            table,
            mode: BagMode::Mean,
            padding_idx: None,
            freeze,
            max_norm: None,
            norm_type: 2.0,
            scale_grad_by_freq: false,
            include_last_offset: false,
            sparse: false,
            options: Options::default(),
        }
    }

    /// How the vectors of a bag are reduced; to their mean by default.
    pub fn mode(mut self, mode: BagMode) -> Self {
        self.mode = mode;
        self
    }

    /// An index that counts for nothing; counted from the end if negative.
    pub fn padding_idx(mut self, padding_idx: isize) -> Self {
        self.padding_idx = Some(padding_idx);
        self
    }

    /// Whether the table is not learned.
    pub fn freeze(mut self, freeze: bool) -> Self {
        self.freeze = freeze;
        self
    }

    /// The largest norm of a row: lookup scales longer rows down in place.
    pub fn max_norm(mut self, max_norm: f64) -> Self {
        self.max_norm = Some(max_norm);
        self
    }

    setters! {
        /// The `p` of the norm for [`EmbeddingBagBuilder::max_norm`]; 2 by default.
        norm_type: f64;
        /// Whether a row's gradient is divided by its number of lookups; false by default, not for maxima.
        scale_grad_by_freq: bool;
        /// Whether the last offset is the end of the last bag, not the beginning of another; false by default.
        include_last_offset: bool;
        /// Sparse gradients, which are not supported: [`EmbeddingBagBuilder::build`] returns an error.
        sparse: bool;
    }

    /// Makes the layer; a new table is standard normal. A given one keeps its dtype and device.
    pub fn build(self) -> Result<EmbeddingBag> {
        check_dense("EmbeddingBag", self.sparse)?;
        if self.scale_grad_by_freq && self.mode == BagMode::Max {
            return Err(Error::unsupported("EmbeddingBag: scale_grad_by_freq is for the modes sum and mean"));
        }
        let (weight, padding_idx) = self.table.build("EmbeddingBag", self.padding_idx, self.freeze, self.options)?;
        Ok(EmbeddingBag {
            weight,
            mode: self.mode,
            padding_idx,
            max_norm: self.max_norm,
            norm_type: self.norm_type,
            scale_grad_by_freq: self.scale_grad_by_freq,
            include_last_offset: self.include_last_offset,
        })
    }
}

impl Forward for EmbeddingBag {
    /// For indices `[bags, length]`; see [`EmbeddingBag::forward_with`] for others.
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        self.forward_with(indices, None, None)
    }
}
