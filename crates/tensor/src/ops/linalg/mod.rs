//! Linear algebra: determinants, solvers and factorisations of batches of matrices, with PyTorch's names.
//!
//! Derivatives are tensor expressions of the results, so they can be differentiated again. Those of singular or
//! eigenvectors exist only where the values are distinct.

mod complex;
mod factor;
mod ldl;
mod lu;
mod norm;
mod solve;
mod spectral;

pub use lu::lu_unpack;
pub use norm::MatrixNorm;
pub use solve::{RankTolerance, SolveTriangular};

use crate::Tensor;
use crate::autograd::no_grad;
use rushlight_core::backend::{Linalg, call};
use rushlight_core::{DType, Device, Dims, Error, ErrorKind, Result};

/// Checks the operands that all ops of the family require.
fn check_matrices(call: &str, a: &Tensor) -> Result<()> {
    if !a.dtype().is_float() {
        return Err(Error::dtype(format!(
            "{call}: not implemented for {}: expected a floating point or complex tensor as input",
            a.dtype()
        )));
    }
    if !matches!(a.dtype(), DType::F32 | DType::F64) {
        return Err(Error::dtype(format!(
            "{call}: not implemented for {}: low precision dtypes not supported; convert it with to_dtype",
            a.dtype()
        )));
    }
    if a.rank() < 2 {
        return Err(Error::shape(format!(
            "{call}: The input tensor A must have at least 2 dimensions, got shape {:?}",
            a.shape()
        )));
    }
    Ok(())
}

fn check_square(call: &str, a: &Tensor) -> Result<()> {
    check_matrices(call, a)?;
    let (m, n) = sizes(a);
    if m != n {
        return Err(Error::shape(format!(
            "{call}: A must be batches of square matrices, but they are {m} by {n} matrices"
        )));
    }
    Ok(())
}

/// Whether these are empty matrices of halves. PyTorch refuses halves only where there are elements to compute with.
fn is_empty_half(a: &Tensor) -> bool {
    a.rank() >= 2 && a.numel() == 0 && matches!(a.dtype(), DType::F16 | DType::BF16)
}

/// Rows and columns.
fn sizes(a: &Tensor) -> (usize, usize) {
    match a.shape() {
        [.., m, n] => (*m, *n),
        _ => (1, 1),
    }
}

/// The sizes before the last two, followed by others.
fn batched(a: &Tensor, tail: &[usize]) -> Dims {
    let mut out = Dims::from_slice(&a.shape()[..a.rank().saturating_sub(2)]);
    out.extend_from_slice(tail);
    out
}

/// Runs a factorisation, not recorded. The CPU computes what an engine declines. Matrices come out column-major,
/// as PyTorch's do (LAPACK's order).
fn run(op: Linalg, inputs: &[&Tensor], outputs: &[Dims]) -> Result<Vec<Tensor>> {
    no_grad(|| {
        if let Some(halves) = inputs.first().filter(|t| matches!(t.dtype(), DType::F16 | DType::BF16)) {
            // Only empty matrices get here: the results do not depend on elements.
            let single = inputs.iter().map(|t| t.to_dtype(DType::F32)).collect::<Result<Vec<_>>>()?;
            let found = run(op, &single.iter().collect::<Vec<_>>(), outputs)?;
            return found.iter().map(|t| t.to_dtype(halves.dtype())).collect();
        }
        let Some(home) = inputs.first().map(|t| t.device()) else {
            return Err(Error::value(format!("{op:?}: no input was given")));
        };
        let outs: Vec<Tensor> = match run_on(home, op, inputs, outputs) {
            Err(e) if e.kind() == ErrorKind::Unsupported && !home.is_cpu() => {
                run_on(Device::Cpu, op, inputs, outputs)?.iter().map(|t| t.to(home)).collect::<Result<_>>()
            }
            done => done,
        }?;
        let rank = inputs.iter().map(|t| t.rank()).max().unwrap_or(0);
        outs.into_iter().map(|t| if t.rank() == rank { column_major(&t) } else { Ok(t) }).collect()
    })
}

fn run_on(device: Device, op: Linalg, inputs: &[&Tensor], outputs: &[Dims]) -> Result<Vec<Tensor>> {
    let inputs = inputs.iter().map(|t| t.to(device)?.contiguous()).collect::<Result<Vec<_>>>()?;
    let Some(first) = inputs.first() else { return Ok(Vec::new()) };
    let outs = outputs.iter().map(|shape| first.uninit_like(shape, first.dtype())).collect::<Result<Vec<_>>>()?;
    let (from, to): (Vec<_>, Vec<_>) =
        (inputs.iter().map(|t| t.engine_view()).collect(), outs.iter().map(|t| t.engine_view()).collect());
    first.run(call::Linalg { op, inputs: call::List::from_slice(&from), outputs: call::List::from_slice(&to) })?;
    Ok(outs)
}

impl Tensor {
    /// Matrices transposed: the last two dimensions swapped. PyTorch's `.mT`.
    pub fn mt(&self) -> Result<Tensor> {
        if self.rank() < 2 {
            return Err(Error::shape(format!("mT: expected at least 2 dimensions, got shape {:?}", self.shape())));
        }
        self.transpose(-2, -1)
    }
}

/// Matrices with adjacent columns, LAPACK's order.
fn column_major(t: &Tensor) -> Result<Tensor> {
    t.mt()?.contiguous()?.mt()
}

/// `(x + xᵀ) / 2`.
fn symmetric(x: &Tensor) -> Result<Tensor> {
    x.add(&x.mt()?)?.mul(0.5)
}

/// Each matrix times its factor.
fn scaled(factor: &Tensor, matrices: &Tensor) -> Result<Tensor> {
    factor.unsqueeze(-1)?.unsqueeze(-1)?.mul(matrices)
}
