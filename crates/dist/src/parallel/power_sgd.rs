//! PowerSGD: gradients are sent as products of two low-rank factors.
//!
//! Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization"
//! (2019). The approximation error is added to the next gradient.

use crate::comm::ReduceOp;
use crate::group::{Collective, ProcessGroup};
use rushlight_core::Result;
use rushlight_tensor::Tensor;

/// Keeps a column of zeros finite when it is normalised.
const TINY: f64 = 1e-30;
/// If less of a unit column is left, it is linearly dependent on those before it.
const NOISE: f64 = 1e-3;

/// How gradients are compressed.
#[derive(Clone, Copy, Debug)]
pub struct PowerSgd {
    /// Rank of the factors.
    pub rank: usize,
    /// A matrix is compressed if that saves more than this factor.
    pub min_compression: f64,
    /// Whether the approximation error is added to the next gradients.
    pub error_feedback: bool,
    /// Added to the length of a column that is normalised; the least number that keeps it finite if this is zero.
    pub epsilon: f64,
    /// Of the first factors, equal on all ranks.
    pub seed: u64,
}

impl Default for PowerSgd {
    fn default() -> Self {
        Self { rank: 1, min_compression: 2.0, error_feedback: true, epsilon: 0.0, seed: 0 }
    }
}

/// State of a bucket between iterations.
#[derive(Clone, Default)]
pub struct PowerSgdMemory {
    /// The approximation error.
    pub error: Option<Tensor>,
    /// The first factor of each compressed gradient, as sent last.
    pub firsts: Vec<Tensor>,
    /// The second factors, with which the next approximation begins; drawn anew if they do not fit.
    pub seconds: Vec<Tensor>,
}

/// Pseudo-random numbers, equal on all ranks.
fn start(columns: usize, rank: usize, seed: u64, like: &Tensor) -> Result<Tensor> {
    let number = |i: usize| {
        let mut x = ((i + 1) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(seed);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let numbers: Vec<f64> = (0..columns * rank).map(number).collect();
    Tensor::from_slice(&numbers, [columns, rank])?.to_dtype(like.dtype())?.to(like.device())
}

impl PowerSgd {
    /// Rows and columns of a gradient as a matrix, if compression pays.
    fn matrix(&self, shape: &[usize]) -> Option<(usize, usize)> {
        let (&rows, rest) = shape.split_first()?;
        let columns: usize = rest.iter().product();
        let sent = ((rows + columns) * self.rank.min(rows).min(columns)) as f64;
        (shape.len() > 1 && sent > 0.0 && sent * self.min_compression < (rows * columns) as f64)
            .then_some((rows, columns))
    }

    /// Makes the columns orthonormal (Gram-Schmidt).
    fn orthogonalise(&self, matrix: &Tensor) -> Result<()> {
        let (rank, tiny) = (matrix.shape()[1], if self.epsilon == 0.0 { TINY } else { self.epsilon });
        for i in 0..rank {
            let column = matrix.narrow(1, i as isize, 1)?;
            let length = || column.square()?.sum_dims([0], true)?.sqrt();
            column.div_(&length()?.add(tiny)?)?;
            if i > 0 {
                // A column that depends on the earlier ones leaves only rounding noise, which is orthogonalised again,
                // or set to zero if nothing remains.
                let former = matrix.narrow(1, 0, i)?;
                column.sub_(&former.matmul(&former.transpose(0, 1)?.matmul(&column)?)?)?;
                let length = length()?;
                column.mul_(&length.gt(NOISE)?.to_dtype(matrix.dtype())?.div(&length.add(tiny)?)?)?;
            }
            if i + 1 < rank {
                let rest = matrix.narrow(1, i as isize + 1, rank - i - 1)?;
                let along = column.mul(&rest)?.sum_dims([0], true)?;
                rest.sub_(&column.mul(&along)?)?;
            }
        }
        Ok(())
    }

    /// Replaces matrices by approximations of their means. Keeps the factors; returns the number of elements sent.
    fn exchange(&self, matrices: &[Tensor], memory: &mut PowerSgdMemory, group: &dyn ProcessGroup) -> Result<usize> {
        let fits = |second: &Tensor, m: &Tensor| {
            second.shape() == [m.shape()[1], self.rank.min(m.shape()[0]).min(m.shape()[1])]
        };
        if memory.seconds.len() != matrices.len() || !memory.seconds.iter().zip(matrices).all(|(q, m)| fits(q, m)) {
            let first = |(place, m): (usize, &Tensor)| {
                let (rows, columns) = (m.shape()[0], m.shape()[1]);
                start(columns, self.rank.min(rows).min(columns), self.seed.wrapping_add(place as u64), m)
            };
            memory.seconds = matrices.iter().enumerate().map(first).collect::<Result<_>>()?;
        }
        if matrices.is_empty() {
            memory.firsts.clear();
            return Ok(0);
        }
        let mean =
            |tensors: &[Tensor]| group.run(Collective::AllReduce { tensors: tensors.to_vec(), op: ReduceOp::Mean });
        let mut firsts = Vec::with_capacity(matrices.len());
        for (m, second) in matrices.iter().zip(&memory.seconds) {
            self.orthogonalise(second)?;
            firsts.push(m.matmul(second)?);
        }
        mean(&firsts)?;
        for ((m, first), second) in matrices.iter().zip(&firsts).zip(&memory.seconds) {
            self.orthogonalise(first)?;
            second.copy_(&m.transpose(0, 1)?.matmul(first)?)?;
        }
        mean(&memory.seconds)?;
        for ((m, first), second) in matrices.iter().zip(&firsts).zip(&memory.seconds) {
            m.copy_(&first.matmul(&second.transpose(0, 1)?)?)?;
        }
        memory.firsts = firsts;
        Ok(memory.firsts.iter().chain(&memory.seconds).map(Tensor::numel).sum())
    }

    /// Adds the error of the last time to the bucket, if errors are kept, and returns its memory with a copy of the
    /// bucket: always the same memory, as a captured step needs it.
    fn with_error(&self, flat: &Tensor, memory: &mut PowerSgdMemory) -> Result<Option<Tensor>> {
        if !self.error_feedback {
            return Ok(None);
        }
        let error = match memory.error.take().filter(|error| error.shape() == flat.shape()) {
            Some(error) => error,
            None => flat.zeros_like()?,
        };
        flat.add_(&error)?;
        error.copy_(flat)?;
        Ok(Some(error))
    }

    /// Replaces the gradients of a bucket, views of `flat`, by an approximation of their means: matrices by products of
    /// factors, what is small as it is. Returns the number of elements sent.
    pub fn reduce(
        &self,
        flat: &Tensor,
        gradients: &[&Tensor],
        memory: &mut PowerSgdMemory,
        group: &dyn ProcessGroup,
    ) -> Result<usize> {
        let before = self.with_error(flat, memory)?;
        let (mut whole, mut matrices) = (Vec::new(), Vec::new());
        for gradient in gradients {
            match self.matrix(gradient.shape()) {
                Some((rows, columns)) => matrices.push(gradient.reshape([rows, columns])?),
                None => whole.push((*gradient).clone()),
            }
        }
        if !whole.is_empty() {
            group.run(Collective::AllReduce { tensors: whole.clone(), op: ReduceOp::Mean })?;
        }
        let sent = self.exchange(&matrices, memory, group)?;
        if let Some(error) = before {
            error.sub_(flat)?;
            // Gradients that were sent uncompressed have no error: their means differ by what the other ranks had.
            for gradient in &whole {
                let start = gradient.layout().offset() - flat.layout().offset();
                error.narrow(0, start as isize, gradient.numel())?.zero_()?;
            }
            memory.error = Some(error);
        }
        Ok(sent + whole.iter().map(Tensor::numel).sum::<usize>())
    }

    /// [`PowerSgd::reduce`] of the whole bucket as one square matrix: fewer messages, less accurate.
    pub fn reduce_as_square(
        &self,
        flat: &Tensor,
        memory: &mut PowerSgdMemory,
        group: &dyn ProcessGroup,
    ) -> Result<usize> {
        let numel = flat.numel();
        let before = self.with_error(flat, memory)?;
        let floor = numel.isqrt();
        let side = if floor * floor == numel { floor } else { floor + 1 };
        let square = Tensor::zeros_with([side * side], (flat.dtype(), flat.device()))?;
        square.narrow(0, 0, numel)?.copy_(flat)?;
        let sent = self.exchange(&[square.reshape([side, side])?], memory, group)?;
        flat.copy_(&square.narrow(0, 0, numel)?)?;
        if let Some(error) = before {
            error.sub_(flat)?;
            memory.error = Some(error);
        }
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_become_orthonormal() {
        let power = PowerSgd { rank: 2, ..Default::default() };
        let m = start(20, 3, 0, &Tensor::zeros([1]).unwrap()).unwrap();
        power.orthogonalise(&m).unwrap();
        let product = m.transpose(0, 1).unwrap().matmul(&m).unwrap().to_vec::<f32>().unwrap();
        for (i, x) in product.iter().enumerate() {
            assert!((x - if i % 4 == 0 { 1.0 } else { 0.0 }).abs() < 1e-5, "{product:?}");
        }
        assert_eq!(power.matrix(&[100, 10, 5]), Some((100, 50)));
        assert!(power.matrix(&[100]).is_none() && power.matrix(&[4, 4]).is_none());
    }
}
