//! Kernels around a vendor's factorisations (`kernels/linalg.cu`).

use crate::device::Gpu;
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, launch};
use crate::vendor::driver::DevicePtr;
use rushlight_core::{DType, Result, View};

const THREADS: usize = 256;

pub fn defines(dtype: DType) -> Defines {
    Defines::default().define("WIDE", 1).dtype("T", dtype)
}

impl Gpu {
    fn linalg_kernel(&self, entry: &'static str, dtype: DType) -> Result<Function> {
        self.function(Key::new(Family::Linalg, entry, [dtype as u16]), || defines(dtype))
    }

    /// Keeps the upper or the lower triangles of row-major matrices and zeroes the rest.
    pub fn keep_triangle(&self, v: View, upper: bool) -> Result<()> {
        let (rank, count) = (v.layout().rank(), v.numel() as u64);
        let (rows, columns) = (v.shape()[rank - 2] as u64, v.shape()[rank - 1] as u64);
        let function = self.linalg_kernel("triangle", v.dtype())?;
        let (place, upper) = (v.ptr() as u64, upper as u32);
        launch!(self, function, Grid::line(v.numel().div_ceil(THREADS), THREADS)?; place, rows, columns, count, upper)
    }

    /// Determinants of `[count, n]` matrices from their LU factors and row swaps: the values, or their signs and
    /// logarithms.
    pub fn multiply_diagonals(
        &self,
        factors: View,
        swaps: View,
        [count, n]: [usize; 2],
        out: View,
        log: Option<View>,
    ) -> Result<()> {
        let function = self.linalg_kernel("determinant", factors.dtype())?;
        let (from, swaps, n) = (factors.ptr() as u64, swaps.ptr() as u64, n as u64);
        let (to, log) = (out.ptr() as u64, log.map_or(0, |log| log.ptr() as u64));
        launch!(self, function, Grid::line(count, 32)?; from, swaps, n, to, log)
    }

    /// Contiguous identity matrices of `n` rows.
    pub fn fill_identities(&self, out: View, n: usize) -> Result<()> {
        let function = self.linalg_kernel("identity", out.dtype())?;
        let (to, n, count) = (out.ptr() as u64, n as u64, out.numel() as u64);
        launch!(self, function, Grid::line(out.numel().div_ceil(THREADS), THREADS)?; to, n, count)
    }

    /// Writes for each of `count` contiguous matrices whether it, or its lower triangle, has a number that is not
    /// finite.
    pub fn find_not_finite(&self, a: View, [count, m, n]: [usize; 3], lower: bool, found: View) -> Result<()> {
        let function = self.linalg_kernel("not_finite", a.dtype())?;
        let (from, to) = (a.ptr() as u64, found.ptr() as u64);
        let (rows, columns, lower) = (m as u64, n as u64, lower as u32);
        launch!(self, function, Grid::line(count, THREADS)?; from, rows, columns, lower, to)
    }

    /// Writes the addresses of `count` matrices, of `elements` each from `start` on, to `list`.
    pub fn list_addresses(
        &self,
        dtype: DType,
        list: DevicePtr,
        start: DevicePtr,
        elements: usize,
        count: usize,
    ) -> Result<()> {
        let function = self.linalg_kernel("addresses", dtype)?;
        let (step, blocks, count) = ((elements * dtype.size()) as u64, count.div_ceil(THREADS), count as u64);
        launch!(self, function, Grid::line(blocks, THREADS)?; list, start, step, count)
    }
}
