//! PowerSGD: gradients are sent as products of two low-rank factors.
//!
//! Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization"
//! (2019). The approximation error is added to the next gradient.

use super::buckets::Bucket;
use crate::comm::ReduceOp;
use crate::group::{Collective, ProcessGroup};
use rushlight_core::Result;
use rushlight_tensor::Tensor;

/// A matrix is compressed if that saves at least this factor.
const MIN_COMPRESSION: usize = 2;
/// Keeps a column of zeros finite when it is normalised.
const TINY: f64 = 1e-30;
/// If less of a unit column is left, it is linearly dependent on those before it.
const NOISE: f64 = 1e-3;

/// State of a bucket between iterations.
pub(super) struct Memory {
    /// The approximation error.
    error: Tensor,
    /// The second factor of each compressed gradient, by its place in the bucket.
    factors: Vec<(usize, Tensor)>,
}

/// Rows and columns of a gradient as a matrix, and the rank of its approximation; `None` if compression does not pay.
fn matrix(shape: &[usize], rank: usize) -> Option<(usize, usize, usize)> {
    let (&rows, rest) = shape.split_first()?;
    let columns: usize = rest.iter().product();
    let rank = rank.min(rows).min(columns);
    (shape.len() > 1 && (rows + columns) * rank * MIN_COMPRESSION < rows * columns).then_some((rows, columns, rank))
}

/// Pseudo-random numbers, equal on all ranks.
fn start(columns: usize, rank: usize, place: usize, like: &Tensor) -> Result<Tensor> {
    let number = |i: usize| {
        let mut x = ((i + 1) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(place as u64);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let numbers: Vec<f64> = (0..columns * rank).map(number).collect();
    Tensor::from_slice(&numbers, [columns, rank])?.to_dtype(like.dtype())?.to(like.device())
}

/// Makes the columns orthonormal (Gram-Schmidt).
fn orthogonalise(matrix: &Tensor, rank: usize) -> Result<()> {
    for i in 0..rank {
        let column = matrix.narrow(1, i as isize, 1)?;
        let length = || column.square()?.sum_dims([0], true)?.sqrt();
        column.div_(&length()?.add(TINY)?)?;
        if i > 0 {
            // A column that depends on the earlier ones leaves only rounding noise, which is orthogonalised again, or
            // set to zero if nothing remains.
            let former = matrix.narrow(1, 0, i)?;
            column.sub_(&former.matmul(&former.transpose(0, 1)?.matmul(&column)?)?)?;
            let length = length()?;
            column.mul_(&length.gt(NOISE)?.to_dtype(matrix.dtype())?.div(&length.add(TINY)?)?)?;
        }
        if i + 1 < rank {
            let rest = matrix.narrow(1, i as isize + 1, rank - i - 1)?;
            let along = column.mul(&rest)?.sum_dims([0], true)?;
            rest.sub_(&column.mul(&along)?)?;
        }
    }
    Ok(())
}

/// Replaces a bucket's gradients by an approximation of their means.
pub(super) fn reduce(
    bucket: &Bucket,
    memory: &mut Option<Memory>,
    rank: usize,
    group: &dyn ProcessGroup,
) -> Result<()> {
    let flat = &bucket.flat;
    if memory.is_none() {
        let mut factors = Vec::new();
        for (place, (_, gradient)) in bucket.members.iter().enumerate() {
            if let Some((_, columns, rank)) = matrix(gradient.shape(), rank) {
                factors.push((place, start(columns, rank, place, flat)?));
            }
        }
        *memory = Some(Memory { error: flat.zeros_like()?, factors });
    }
    let Some(memory) = memory else { return Ok(()) };
    flat.add_(&memory.error)?;
    memory.error.copy_(flat)?;
    let mut whole: Vec<Tensor> = Vec::new();
    let mut matrices = Vec::new();
    for (place, (_, gradient)) in bucket.members.iter().enumerate() {
        match memory.factors.iter().find(|(p, _)| *p == place) {
            Some((_, second)) => {
                let (rows, columns) = (gradient.shape()[0], second.shape()[0]);
                matrices.push((gradient.reshape([rows, columns])?, second.clone()));
            }
            None => whole.push(gradient.clone()),
        }
    }
    if !whole.is_empty() {
        group.run(Collective::AllReduce { tensors: whole, op: ReduceOp::Mean })?;
    }
    if matrices.is_empty() {
        memory.error.zero_()?;
        return Ok(());
    }
    let mut firsts = Vec::with_capacity(matrices.len());
    for (gradient, second) in &matrices {
        orthogonalise(second, second.shape()[1])?;
        firsts.push(gradient.matmul(second)?);
    }
    group.run(Collective::AllReduce { tensors: firsts.clone(), op: ReduceOp::Mean })?;
    for (first, (gradient, second)) in firsts.iter().zip(&matrices) {
        orthogonalise(first, first.shape()[1])?;
        second.copy_(&gradient.transpose(0, 1)?.matmul(first)?)?;
    }
    let seconds = matrices.iter().map(|(_, second)| second.clone()).collect();
    group.run(Collective::AllReduce { tensors: seconds, op: ReduceOp::Mean })?;
    for (first, (gradient, second)) in firsts.iter().zip(&matrices) {
        gradient.copy_(&first.matmul(&second.transpose(0, 1)?)?)?;
    }
    // Gradients that were sent uncompressed have no error.
    memory.error.sub_(flat)?;
    for (place, (_, gradient)) in bucket.members.iter().enumerate() {
        if memory.factors.iter().all(|(p, _)| *p != place) {
            let start = gradient.layout().offset() - flat.layout().offset();
            memory.error.narrow(0, start as isize, gradient.numel())?.zero_()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_become_orthonormal() {
        let m = start(20, 3, 0, &Tensor::zeros([1]).unwrap()).unwrap();
        orthogonalise(&m, 3).unwrap();
        let product = m.transpose(0, 1).unwrap().matmul(&m).unwrap().to_vec::<f32>().unwrap();
        for (i, x) in product.iter().enumerate() {
            assert!((x - if i % 4 == 0 { 1.0 } else { 0.0 }).abs() < 1e-5, "{product:?}");
        }
        assert_eq!(matrix(&[100, 10, 5], 2), Some((100, 50, 2)));
        assert!(matrix(&[100], 2).is_none() && matrix(&[4, 4], 2).is_none());
    }
}
