//! Complex numbers (`kernels/complex.cu`); their matrix products are the vendor's library's.

use crate::device::Gpu;
use crate::families::matmul::Gemm;
use crate::launch::kernel::{Defines, Family, Grid, Key, launch};
use rushlight_core::backend::{Complex, call};
use rushlight_core::{DType, Result, View};

const THREADS: usize = 256;

pub fn defines(op: Complex, dtype: DType) -> Defines {
    Defines::default().define("WIDE", 1).dtype("T", dtype).define("OP", op as u16)
}

/// The sizes of batched matrices of complex numbers: batch, rows, columns.
fn matrices(v: View) -> Option<[usize; 3]> {
    match *v.shape() {
        [batch, rows, columns, 2] => Some([batch, rows, columns]),
        _ => None,
    }
}

impl Gpu {
    /// See `call::Complex`; `false` where the library has no such product.
    pub fn complex(&self, c: &call::Complex<View>) -> Result<bool> {
        let (op, dtype, count) = (c.op, c.out.dtype(), c.out.numel() / 2);
        let dense = [c.a, c.b, c.out].iter().all(|v| v.layout().is_contiguous() && v.dtype() == dtype);
        if !dense || !matches!(dtype, DType::F32 | DType::F64) {
            return Ok(false);
        }
        if op == Complex::Product {
            return self.complex_product(c);
        }
        let fits = |v: View| v.numel() == c.out.numel() || v.numel() == 2;
        if op != Complex::Blocks && !(fits(c.a) && fits(c.b)) {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
        let [a, b, out] = [c.a, c.b, c.out].map(|v| v.ptr() as u64);
        if op == Complex::Blocks {
            let &[rows, n, 2] = c.a.shape() else { return Ok(false) };
            let count = rows * n;
            let function =
                self.function(Key::new(Family::Complex, "complex_blocks", [dtype as u16]), || defines(op, dtype))?;
            let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
            launch!(self, function, grid; a, out, count, n)?;
            return Ok(true);
        }
        let [a_step, b_step] = [c.a, c.b].map(|v| (v.numel() == c.out.numel()) as usize);
        let key = Key::new(Family::Complex, "complex_pairs", [op as u16, dtype as u16]);
        let function = self.function(key, || defines(op, dtype))?;
        let grid = Grid::line(count.div_ceil(THREADS), THREADS)?;
        launch!(self, function, grid; a, b, out, count, a_step, b_step)?;
        Ok(true)
    }

    fn complex_product(&self, c: &call::Complex<View>) -> Result<bool> {
        let (Some([batch, m, k]), Some([_, _, n])) = (matrices(c.a), matrices(c.b)) else { return Ok(false) };
        if c.out.shape() != [batch, m, n, 2] || [batch, m, n, k].contains(&0) {
            return Ok(false);
        }
        let [a, b, out] = [c.a, c.b, c.out].map(|v| v.ptr() as u64);
        self.gemm_library(&Gemm {
            a,
            a_strides: [m * k, k, 1],
            b,
            b_strides: [k * n, n, 1],
            out,
            out_strides: [m * n, n, 1],
            tf32: false,
            ..Gemm::plain(c.out.dtype().complex(), batch, m, n, k)
        })
    }
}
