//! Softmax and its logarithm (`kernels/softmax.cu`).

use crate::device::Gpu;
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, launch, wide_type};
use crate::launch::rows::Rows;
use rushlight_core::{DType, Error, Result, View};

const THREADS: usize = 256;

impl Gpu {
    fn softmax_rows(&self, entry: &'static str, log: bool, rows: Rows) -> Result<Function> {
        let [a, b, c, d] = rows.tags();
        let key = Key::new(Family::Softmax, entry, [log as u16, a, b, c, d]);
        self.function(key, || rows.defines().define("LOG", log as u8))
    }

    fn softmax_columns(&self, entry: &'static str, log: bool, dtype: DType) -> Result<Function> {
        let key = Key::new(Family::Softmax, entry, [log as u16, dtype as u16]);
        self.function(key, || column_defines(log, dtype))
    }

    pub fn softmax(&self, log: bool, dims: [usize; 3], x: View, y: View) -> Result<()> {
        float("softmax", x.dtype())?;
        let [outer, n, inner] = dims;
        if outer * n * inner == 0 {
            return Ok(());
        }
        let (from, to) = (x.ptr() as u64, y.ptr() as u64);
        if inner == 1 {
            let rows = Rows::new(x.dtype(), n, &[from, to]);
            let function = self.softmax_rows("softmax", log, rows)?;
            return launch!(self, function, rows.grid(outer)?; from, to, outer, n);
        }
        let function = self.softmax_columns("softmax_columns", log, x.dtype())?;
        let grid = Grid::line((outer * inner).div_ceil(THREADS), THREADS)?;
        launch!(self, function, grid; from, to, outer, n, inner)
    }

    pub fn softmax_backward(&self, log: bool, dims: [usize; 3], dy: View, y: View, dx: View) -> Result<()> {
        float("softmax_backward", y.dtype())?;
        let [outer, n, inner] = dims;
        if outer * n * inner == 0 {
            return Ok(());
        }
        let (g, v, to) = (dy.ptr() as u64, y.ptr() as u64, dx.ptr() as u64);
        if inner == 1 {
            let rows = Rows::new(y.dtype(), n, &[g, v, to]);
            let function = self.softmax_rows("softmax_backward", log, rows)?;
            return launch!(self, function, rows.grid(outer)?; g, v, to, outer, n);
        }
        let function = self.softmax_columns("softmax_columns_backward", log, y.dtype())?;
        let grid = Grid::line((outer * inner).div_ceil(THREADS), THREADS)?;
        launch!(self, function, grid; g, v, to, outer, n, inner)
    }
}

/// Returns an error unless a dtype is a float.
pub fn float(call: &str, dtype: DType) -> Result<()> {
    if dtype.is_float() { Ok(()) } else { Err(Error::dtype(format!("{call} takes floats, not {dtype}"))) }
}

pub fn column_defines(log: bool, dtype: DType) -> Defines {
    Defines::default()
        .define("COLUMN", 1)
        .define("WIDE", 1)
        .dtype("T", dtype)
        .define("W", wide_type(dtype))
        .define("LOG", log as u8)
}
