//! Products of half types whose rows do not start at multiples of 16 bytes. The library's kernels for them take several
//! times as long as others, so large products run on copies that are padded to whole vectors (`kernels/matmul.cu`).

use crate::device::{Gpu, Temporary};
use crate::families::matmul::Gemm;
use crate::launch::kernel::{Defines, Family, Grid, Key, launch};
use crate::vendor::driver::MatrixUnits;
use rushlight_core::{DType, Result};

/// Elements of a vector of 16 bytes.
const VECTOR: usize = 8;
/// Rates on compute capability 9.0, per second: operations of products of unaligned and of aligned rows, copied bytes.
const UNALIGNED_RATE: f64 = 140e12;
const ALIGNED_RATE: f64 = 500e12;
const COPY_RATE: f64 = 3e12;
/// Seconds that a launch takes at least.
const LAUNCH: f64 = 2.5e-6;
/// Maximum bytes of a copy.
const MOST: usize = 1 << 30;

/// A matrix in memory: the address, elements between rows, rows and columns.
#[derive(Clone, Copy, Debug)]
struct Rows {
    at: u64,
    stride: usize,
    rows: usize,
    columns: usize,
}

impl Rows {
    /// An operand of `rows` by `columns`, and whether it is transposed: its columns are rows in memory.
    fn of(at: u64, strides: [usize; 3], rows: usize, columns: usize) -> Option<(Self, bool)> {
        match strides {
            [_, stride, 1] => Some((Rows { at, stride, rows, columns }, false)),
            [_, 1, stride] => Some((Rows { at, stride, rows: columns, columns: rows }, true)),
            _ => None,
        }
    }

    fn is_aligned(self) -> bool {
        self.at.is_multiple_of(16) && self.stride.is_multiple_of(VECTOR) && self.columns.is_multiple_of(VECTOR)
    }
}

/// The padded sizes, and which matrices are copied: A, B, out.
struct Plan {
    m: usize,
    n: usize,
    k: usize,
    copied: [bool; 3],
}

impl Plan {
    /// `None` if the product is aligned, or copies do not pay.
    fn new(g: &Gemm) -> Option<Self> {
        let half = matches!(g.dtype, DType::F16 | DType::BF16);
        if !half || g.batch != 1 || g.gelu.is_some() || g.beta != 0.0 {
            return None;
        }
        let (a, a_turned) = Rows::of(g.a, g.a_strides, g.m, g.k)?;
        let (b, b_turned) = Rows::of(g.b, g.b_strides, g.k, g.n)?;
        let (out, out_turned) = Rows::of(g.out, g.out_strides, g.m, g.n)?;
        if out_turned || (a.is_aligned() && b.is_aligned() && out.is_aligned()) {
            return None;
        }
        let whole = |size: usize, is_inner: bool| if is_inner { size.next_multiple_of(VECTOR) } else { size };
        let (m, n, k) = (whole(g.m, a_turned), whole(g.n, true), whole(g.k, !a_turned || b_turned));
        let copied = [
            !a.is_aligned() || (m, k) != (g.m, g.k),
            !b.is_aligned() || (k, n) != (g.k, g.n),
            !out.is_aligned() || (m, n) != (g.m, g.n),
        ];
        let sizes = [(m, k, g.dtype), (k, n, g.dtype), (m, n, g.out_dtype)];
        let bytes = sizes.map(|(rows, columns, dtype)| rows.saturating_mul(columns).saturating_mul(dtype.size()));
        if (0..3).any(|i| copied[i] && bytes[i] > MOST) {
            return None;
        }
        let copies: usize = (0..3).filter(|&i| copied[i]).map(|i| 2 * bytes[i]).sum();
        let launches = copied.iter().filter(|c| **c).count() + (g.bias.is_some() && n != g.n) as usize;
        let operations = 2.0 * g.m as f64 * g.n as f64 * g.k as f64;
        let saved = operations / UNALIGNED_RATE - operations / ALIGNED_RATE;
        let cost = copies as f64 / COPY_RATE + launches as f64 * LAUNCH;
        (saved > 1.2 * cost).then_some(Plan { m, n, k, copied })
    }
}

impl Gpu {
    /// Runs a product of unaligned rows on padded copies. Returns whether it did: not where the library is faster.
    pub(super) fn padded_product(&self, g: &Gemm) -> Result<bool> {
        if !matches!(self.matrix_units, MatrixUnits::TensorCores(_)) {
            return Ok(false);
        }
        let Some(Plan { m, n, k, copied }) = Plan::new(g) else { return Ok(false) };
        let mut padded = Gemm { m, n, k, ..*g };
        let operand =
            |at, strides, sizes: [usize; 2], whole: [usize; 2], copied| -> Result<Option<(Temporary, bool)>> {
                let Some((from, turned)) = Rows::of(at, strides, sizes[0], sizes[1]).filter(|_| copied) else {
                    return Ok(None);
                };
                let shape = if turned { [whole[1], whole[0]] } else { whole };
                let to = self.temporary(&shape, g.dtype)?;
                let rows = Rows { at: to.view().ptr() as u64, stride: shape[1], rows: shape[0], columns: shape[1] };
                self.move_rows(from, rows, g.dtype)?;
                Ok(Some((to, turned)))
            };
        let strides = |(to, turned): &(Temporary, bool)| {
            let columns = to.view().shape()[1];
            if *turned { [0, 1, columns] } else { [0, columns, 1] }
        };
        let a = operand(g.a, g.a_strides, [g.m, g.k], [m, k], copied[0])?;
        let b = operand(g.b, g.b_strides, [g.k, g.n], [k, n], copied[1])?;
        if let Some(a) = &a {
            (padded.a, padded.a_strides) = (a.0.view().ptr() as u64, strides(a));
        }
        if let Some(b) = &b {
            (padded.b, padded.b_strides) = (b.0.view().ptr() as u64, strides(b));
        }
        let bias = match g.bias.filter(|_| n != g.n) {
            Some((at, stride)) => {
                let to = self.temporary(&[n], g.dtype)?;
                let column = |at, stride, rows| Rows { at, stride, rows, columns: 1 };
                self.move_rows(column(at, stride, g.n), column(to.view().ptr() as u64, 1, n), g.dtype)?;
                Some(to)
            }
            None => None,
        };
        if let Some(bias) = &bias {
            padded.bias = Some((bias.view().ptr() as u64, 1));
        }
        let out = if copied[2] { Some(self.temporary(&[m, n], g.out_dtype)?) } else { None };
        if let Some(out) = &out {
            (padded.out, padded.out_strides) = (out.view().ptr() as u64, [0, n, 1]);
        }
        if !self.gemm_library(&padded)? {
            return Ok(false);
        }
        if let Some(out) = &out {
            let from = Rows { at: out.view().ptr() as u64, stride: n, rows: g.m, columns: g.n };
            self.move_rows(from, Rows { at: g.out, stride: g.out_strides[1], ..from }, g.out_dtype)?;
        }
        Ok(true)
    }

    /// Copies rows to where there may be more and longer ones, which end with zeros.
    fn move_rows(&self, from: Rows, to: Rows, dtype: DType) -> Result<()> {
        let bytes = |elements: usize| elements * dtype.size();
        let fits = |lanes: usize| {
            let is_whole = |x: Rows| {
                x.columns.is_multiple_of(lanes)
                    && x.stride.is_multiple_of(lanes)
                    && (x.at as usize).is_multiple_of(bytes(lanes))
            };
            is_whole(from) && is_whole(to)
        };
        let lanes = [VECTOR, 4, 2].into_iter().find(|&lanes| bytes(lanes) <= 16 && fits(lanes)).unwrap_or(1);
        let key = Key::new(Family::MatMul, "move_rows", [dtype as u16, lanes as u16]);
        let function = self.function(key, || move_defines(dtype, lanes))?;
        let count = to.rows * (to.columns / lanes);
        let (x, y, x_stride, y_stride) = (from.at, to.at, from.stride as u64, to.stride as u64);
        let sizes = [from.rows, from.columns, to.columns / lanes].map(|n| n as u64);
        let grid = Grid::line(count.div_ceil(256 * 4), 256)?;
        launch!(self, function, grid; x, y, x_stride, y_stride, sizes, count)
    }
}

/// Definitions of the copy of rows, for the catalogue as well.
pub fn move_defines(dtype: DType, lanes: usize) -> Defines {
    Defines::default()
        .define("MOVE", 1)
        .define("WIDE", 1)
        .dtype("T", dtype)
        .define("LANES", lanes)
        .define("ACTIVATION", 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A product of row-major matrices, or of the right one's transpose, at aligned addresses.
    fn product(m: usize, n: usize, k: usize, turned: bool) -> Gemm {
        let b_strides = if turned { [0, 1, k] } else { [0, n, 1] };
        Gemm { a_strides: [0, k, 1], b_strides, out_strides: [0, n, 1], ..Gemm::plain(DType::BF16, 1, m, n, k) }
    }

    fn planned(g: Gemm) -> Option<([usize; 3], [bool; 3])> {
        Plan::new(&g).map(|p| ([p.m, p.n, p.k], p.copied))
    }

    #[test]
    fn large_products_of_unaligned_rows_are_padded() {
        // The rows of both operands, then those of the result.
        assert_eq!(planned(product(49152, 384, 196, true)), Some(([49152, 384, 200], [true, true, false])));
        assert_eq!(planned(product(49152, 196, 384, true)), Some(([49152, 200, 384], [false, true, true])));
        assert_eq!(planned(product(49152, 196, 384, false)), Some(([49152, 200, 384], [false, true, true])));
        // A transposed left side has rows of `m` elements.
        let turned = Gemm { a_strides: [0, 1, 196], ..product(196, 384, 49152, false) };
        assert_eq!(planned(turned), Some(([200, 384, 49152], [true, false, true])));
    }

    #[test]
    fn other_products_run_as_they_are() {
        assert_eq!(planned(product(49152, 384, 192, true)), None, "aligned");
        assert_eq!(planned(product(64, 100, 100, true)), None, "small");
        assert_eq!(planned(Gemm { beta: 1.0, ..product(49152, 196, 384, true) }), None, "adds to its output");
        assert_eq!(planned(Gemm { dtype: DType::F32, ..product(49152, 384, 196, true) }), None, "no tensor cores");
        assert_eq!(planned(product(1 << 20, 1001, 384, true)), None, "a copy of more than MOST bytes");
    }
}
