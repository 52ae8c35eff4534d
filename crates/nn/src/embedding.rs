//! Tables of vectors, looked up by index.

use crate::python::{boolean, float};
use crate::{Forward, Module, Parameter, factory_options, init, locate};
use rushlight_core::{Error, Result, setters};
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::{Options, Tensor};

/// A table of vectors, looked up by index.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_nn as nn; }
/// use rushlight::nn::{Embedding, Forward};
/// use rushlight::Tensor;
/// let table = Embedding::builder(10, 4).padding_idx(0).build()?;
/// assert_eq!(table.forward(&Tensor::new([[1i64, 2, 0]])?)?.shape(), [1, 3, 4]);
/// assert_eq!(table.weight.i(0)?.sum(..)?.item::<f32>()?, 0.0);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Module)]
#[module(extra_repr = "Self::settings")]
pub struct Embedding {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Parameter,
    padding_idx: Option<usize>,
    max_norm: Option<f64>,
    norm_type: f64,
    scale_grad_by_freq: bool,
}

/// The options of an [`Embedding`].
#[derive(Clone)]
pub struct EmbeddingBuilder {
    table: Table,
    padding_idx: Option<isize>,
    freeze: bool,
    max_norm: Option<f64>,
    norm_type: f64,
    scale_grad_by_freq: bool,
    sparse: bool,
    options: Options,
}

/// Source of an embedding's initial values.
#[derive(Clone)]
pub(crate) enum Table {
    Random { num_embeddings: usize, embedding_dim: usize },
    Given(Tensor),
}

impl Table {
    /// The weight, with the row for padding at zero if it is random, and that row counted from the front.
    pub(crate) fn build(
        &self,
        name: &str,
        padding_idx: Option<isize>,
        freeze: bool,
        options: Options,
    ) -> Result<(Parameter, Option<usize>)> {
        let weight = match self {
            &Table::Random { num_embeddings, embedding_dim } => {
                let weight = Tensor::empty_with([num_embeddings, embedding_dim], options)?;
                init::normal_(&weight, 0.0, 1.0)?;
                weight
            }
            Table::Given(weight) if weight.rank() == 2 => weight.clone(),
            Table::Given(weight) => {
                return Err(Error::shape(format!(
                    "{name}: embeddings are expected to be 2-dimensional, got shape {:?}",
                    weight.shape()
                )));
            }
        };
        let rows = weight.shape()[0];
        let padding = match padding_idx {
            None => None,
            Some(index) => {
                let row = if index < 0 { index.checked_add_unsigned(rows) } else { Some(index) };
                let row = row.and_then(|row| usize::try_from(row).ok()).filter(|&row| row < rows);
                Some(row.ok_or_else(|| {
                    Error::value(format!("{name}: padding_idx {index} must be within num_embeddings {rows}"))
                })?)
            }
        };
        if let (Some(row), Table::Random { .. }) = (padding, self) {
            no_grad(|| weight.select(0, row as isize)?.zero_().map(|_| ()))?;
        }
        let weight = Parameter::new(&weight)?;
        if freeze {
            weight.tensor().clone().requires_grad_(false)?;
        }
        Ok((weight, padding))
    }
}

/// Sparse gradients exist nowhere in this library.
pub(crate) fn check_dense(name: &str, sparse: bool) -> Result<()> {
    if sparse {
        return Err(Error::unsupported(format!("{name}: sparse gradients are not supported; leave sparse at false")));
    }
    Ok(())
}

/// Rows that the indices name are scaled down, in place, to a norm of at most `max_norm`.
pub(crate) fn renormalize_rows(weight: &Tensor, indices: &Tensor, max_norm: f64, norm_type: f64) -> Result<()> {
    if indices.numel() == 0 {
        return Ok(());
    }
    no_grad(|| {
        let named = indices.reshape([-1isize])?.unique()?;
        let rows = weight.detach().index_select(0, &named)?;
        let norms = rows.norm_dims(norm_type, [1], true)?;
        // PyTorch's guard against division by zero.
        let scale = norms.add(1e-7)?.rdiv(max_norm)?;
        let scale = scale.where_self(&norms.gt(max_norm)?, 1.0)?;
        weight.detach().index_copy_(0, &named, &rows.mul(&scale)?).map(|_| ())
    })
}

impl Embedding {
    /// A table of `num_embeddings` vectors of length `embedding_dim`.
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> Result<Self> {
        Self::builder(num_embeddings, embedding_dim).build()
    }

    /// [`new`](Self::new) with options, to be followed by [`build`](EmbeddingBuilder::build).
    pub fn builder(num_embeddings: usize, embedding_dim: usize) -> EmbeddingBuilder {
        EmbeddingBuilder::of(Table::Random { num_embeddings, embedding_dim }, false)
    }

    /// A table with these rows, which are shared; frozen by default.
    pub fn from_pretrained(embeddings: &Tensor) -> EmbeddingBuilder {
        EmbeddingBuilder::of(Table::Given(embeddings.clone()), true)
    }

    fn settings(&self) -> String {
        let mut text = self.weight.shape().iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        if let Some(row) = self.padding_idx {
            text += &format!(", padding_idx={row}");
        }
        if let Some(max_norm) = self.max_norm {
            text += &format!(", max_norm={}", float(max_norm));
        }
        if self.norm_type != 2.0 {
            text += &format!(", norm_type={}", float(self.norm_type));
        }
        if self.scale_grad_by_freq {
            text += &format!(", scale_grad_by_freq={}", boolean(true));
        }
        text
    }
}

factory_options!(EmbeddingBuilder);

impl EmbeddingBuilder {
    fn of(table: Table, freeze: bool) -> Self {
        Self {
            table,
            padding_idx: None,
            freeze,
            max_norm: None,
            norm_type: 2.0,
            scale_grad_by_freq: false,
            sparse: false,
            options: Options::default(),
        }
    }

    /// A row that is zero at first and gets no gradient; counted from the end if negative.
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
        /// The `p` of the norm for [`EmbeddingBuilder::max_norm`]; 2 by default.
        norm_type: f64;
        /// Whether a row's gradient is divided by its number of lookups; false by default.
        scale_grad_by_freq: bool;
        /// Sparse gradients, which are not supported: [`EmbeddingBuilder::build`] returns an error.
        sparse: bool;
    }

    /// Makes the layer; a new table is standard normal. A given one keeps its dtype and device.
    pub fn build(self) -> Result<Embedding> {
        check_dense("Embedding", self.sparse)?;
        let (weight, padding_idx) = self.table.build("Embedding", self.padding_idx, self.freeze, self.options)?;
        Ok(Embedding {
            weight,
            padding_idx,
            max_norm: self.max_norm,
            norm_type: self.norm_type,
            scale_grad_by_freq: self.scale_grad_by_freq,
        })
    }
}

impl Forward for Embedding {
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        locate(self, || {
            if let Some(max_norm) = self.max_norm {
                renormalize_rows(&self.weight, indices, max_norm, self.norm_type).map_err(|e| e.within("Embedding"))?;
            }
            self.weight.embedding(indices, self.padding_idx.map(|row| row as isize), self.scale_grad_by_freq)
        })
    }
}
