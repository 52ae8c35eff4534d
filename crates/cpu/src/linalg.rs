//! Dense factorisations: batches of matrices over the thread pool, each matrix on one thread.

use crate::pool::parallel_for;
use rushlight_core::backend::{Linalg, View};
use rushlight_core::smallvec::SmallVec;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use rushlight_linalg as dense;
use std::sync::Mutex;

/// A factorisation of every matrix of a batch; see [`Linalg`] for the operands. Everything is contiguous, `f32` or
/// `f64`. [`Linalg::Svd`] and [`Linalg::Eigh`] with a single output give the values alone.
///
/// A failure is reported for the first failing matrix, by its index in the batch.
pub fn linalg(op: Linalg, inputs: &[View], outputs: &[View]) -> Result<()> {
    match inputs.first().map(|v| v.dtype()) {
        Some(DType::F32) => run::<f32>(op, inputs, outputs, DType::F32),
        Some(DType::F64) => run::<f64>(op, inputs, outputs, DType::F64),
        Some(other) => Err(Error::dtype(format!("{op:?}: expected float32 or float64, got {other}"))),
        None => Err(Error::value(format!("{op:?}: no input was given"))),
    }
}

/// Matrices one after the other.
struct Batch<T> {
    start: *mut T,
    /// Elements per matrix.
    size: usize,
}

// SAFETY: an address and a length; the tasks that share it touch different matrices (outputs) or only read (inputs).
unsafe impl<T> Sync for Batch<T> {}

impl<T> Batch<T> {
    fn new(view: &View, dtype: DType, batch: usize) -> Result<Self> {
        if view.dtype() != dtype || !view.layout().is_contiguous() || !view.numel().is_multiple_of(batch) {
            return Err(Error::value(format!(
                "linalg: an operand of {} {:?}, strides {:?}, does not fit a batch of {batch} contiguous {dtype} matrices",
                view.dtype(),
                view.shape(),
                view.strides()
            )));
        }
        Ok(Self { start: view.ptr().cast(), size: view.numel() / batch })
    }

    /// # Safety
    /// `from..to` is within the batch, and nothing writes to those matrices meanwhile.
    unsafe fn read(&self, from: usize, to: usize) -> &[T] {
        // SAFETY: a view is within its storage, is contiguous (checked) and aligned to its elements; the rest is
        // promised.
        unsafe { std::slice::from_raw_parts(self.start.add(from * self.size), (to - from) * self.size) }
    }

    /// # Safety
    /// `from..to` is within the batch, and nothing else uses those matrices meanwhile.
    #[allow(clippy::mut_from_ref)]
    unsafe fn write(&self, from: usize, to: usize) -> &mut [T] {
        // SAFETY: as in `read`; the bytes are initialised enough for floats, which have no invalid patterns.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from * self.size), (to - from) * self.size) }
    }
}

fn run<T: dense::Real + Send + Sync>(op: Linalg, inputs: &[View], outputs: &[View], dtype: DType) -> Result<()> {
    let shape = inputs[0].shape();
    let [lead @ .., m, n] = shape else {
        return Err(Error::shape(format!("{op:?}: expected matrices, got shape {shape:?}")));
    };
    let batch: usize = lead.iter().product();
    if batch == 0 {
        return Ok(());
    }
    let sizes = Sizes { m: *m, n: *n, rhs: inputs.get(1).and_then(|b| b.shape().last()).copied().unwrap_or(0) };
    let inputs = inputs.iter().map(|v| Batch::<T>::new(v, dtype, batch)).collect::<Result<SmallVec<[_; 2]>>>()?;
    let outputs = outputs.iter().map(|v| Batch::<T>::new(v, dtype, batch)).collect::<Result<SmallVec<[_; 3]>>>()?;
    // Slices whose size depends on the matrices alone, each large enough to pay for waking a thread.
    let grain = (100_000 / (m * n * m.max(n)).max(1)).max(1);
    let failure: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    parallel_for(batch.div_ceil(grain), |task| {
        let (from, to) = (task * grain, batch.min((task + 1) * grain));
        // SAFETY: tasks have disjoint ranges, and the engine's callers guarantee that outputs overlap neither each
        // other nor inputs.
        let (a, mut out): (SmallVec<[&[T]; 2]>, SmallVec<[&mut [T]; 3]>) = unsafe {
            (inputs.iter().map(|b| b.read(from, to)).collect(), outputs.iter().map(|b| b.write(from, to)).collect())
        };
        if let Err(e) = call(op, to - from, &sizes, &a, &mut out) {
            let mut first = lock(&failure);
            if first.as_ref().is_none_or(|(at, _)| from < *at) {
                *first = Some((from, e));
            }
        }
    });
    match failure.into_inner().unwrap_or_else(|e| e.into_inner()) {
        None => Ok(()),
        Some((from, e)) => Err(renumber(e, from, lead.is_empty())),
    }
}

struct Sizes {
    m: usize,
    n: usize,
    rhs: usize,
}

fn call<T: dense::Real>(op: Linalg, count: usize, s: &Sizes, inputs: &[&[T]], outputs: &mut [&mut [T]]) -> Result<()> {
    let Sizes { m, n, rhs } = *s;
    match (op, inputs, outputs) {
        (Linalg::Det, [a], [det]) => dense::det(count, n, a, det),
        (Linalg::Slogdet, [a], [sign, log]) => dense::slogdet(count, n, a, sign, log),
        (Linalg::Inv, [a], [out]) => dense::inv(count, n, a, out),
        (Linalg::Solve, [a, b], [x]) => dense::solve(count, n, rhs, a, b, x),
        (Linalg::SolveTriangular { upper, unitriangular }, [a, b], [x]) => {
            dense::solve_triangular(count, n, rhs, a, b, x, upper, unitriangular)
        }
        (Linalg::Cholesky, [a], [l]) => dense::cholesky(count, n, a, l),
        (Linalg::Qr { complete }, [a], [q, r]) => dense::qr(count, m, n, a, q, r, complete),
        (Linalg::Svd { full_matrices }, [a], [u, s, vh]) => dense::svd(count, m, n, a, u, s, vh, full_matrices),
        (Linalg::Svd { .. }, [a], [s]) => dense::svdvals(count, m, n, a, s),
        (Linalg::Eigh, [a], [values, vectors]) => dense::eigh(count, n, a, values, vectors, true),
        (Linalg::Eigh, [a], [values]) => dense::eigvalsh(count, n, a, values, true),
        (Linalg::LuFactor, [a], [lu, pivots, info]) => {
            let factors = dense::lu_factor(count, m, n, a)?;
            lu.copy_from_slice(&factors.lu);
            write_numbers(&factors.pivots, pivots);
            write_numbers(&factors.infos, info);
            Ok(())
        }
        (Linalg::Geqrf, [a], [out, tau]) => dense::geqrf(count, m, n, a, out, tau),
        (Linalg::LdlFactor, [a], [ld, pivots, info]) => {
            let (mut numbers, mut infos) = (vec![0; pivots.len()], vec![0; count]);
            dense::ldl_factor(count, n, a, ld, &mut numbers, &mut infos)?;
            write_numbers(&numbers, pivots);
            write_numbers(&infos, info);
            Ok(())
        }
        // The shape of the first input is that of the solution.
        (Linalg::LdlSolve, [b, ld, pivots], [x]) => {
            let numbers: Vec<i32> = pivots.iter().map(|p| p.to_pivot()).collect();
            dense::ldl_solve(count, m, n, ld, &numbers, b, x)
        }
        (Linalg::Lstsq, [a, b], [x]) => dense::lstsq(count, m, n, rhs, a, b, None, x, &mut vec![0; count]),
        (_, inputs, outputs) => Err(Error::value(format!(
            "{op:?}: wrong number of operands: {} inputs, {} outputs",
            inputs.len(),
            outputs.len()
        ))),
    }
}

/// Pivots as numbers of the element type.
fn write_numbers<T: dense::Real>(numbers: &[i32], out: &mut [T]) {
    for (out, &number) in out.iter_mut().zip(numbers) {
        *out = T::from_pivot(number);
    }
}

/// Renumbers a slice's error to the whole batch. Without batch dimensions PyTorch names no element.
fn renumber(e: Error, from: usize, unbatched: bool) -> Error {
    const BEFORE: &str = "(Batch element ";
    const AFTER: &str = "): ";
    let message = e.to_string();
    let parts = message.split_once(BEFORE).and_then(|(head, rest)| {
        let (number, tail) = rest.split_once(AFTER)?;
        Some((head, number.parse::<usize>().ok()?, tail))
    });
    match parts {
        None => e,
        Some((head, _, tail)) if unbatched => Error::new(e.kind(), format!("{head}{tail}")),
        Some((head, i, tail)) => Error::new(e.kind(), format!("{head}{BEFORE}{}{AFTER}{tail}", from + i)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_count_from_the_start_of_the_batch() {
        let error = || Error::numerical("linalg.inv: (Batch element 3): The diagonal element 2 is zero.");
        assert_eq!(
            renumber(error(), 40, false).to_string(),
            "linalg.inv: (Batch element 43): The diagonal element 2 is zero."
        );
        assert_eq!(renumber(error(), 0, true).to_string(), "linalg.inv: The diagonal element 2 is zero.");
        assert_eq!(renumber(Error::value("a: b"), 7, false).to_string(), "a: b");
    }

    #[test]
    fn operands_are_counted() {
        let sizes = Sizes { m: 1, n: 1, rhs: 0 };
        assert!(call::<f32>(Linalg::Det, 1, &sizes, &[&[2.0]], &mut []).is_err());
        let mut out = [0.0f32];
        assert!(call(Linalg::Det, 1, &sizes, &[&[2.0]], &mut [&mut out]).is_ok());
        assert_eq!(out, [2.0]);
    }
}
