//! How threads share the rows of a contiguous matrix: used by softmax, the row norms and cross-entropy.

use crate::launch::kernel::{Defines, Grid, wide_type};
use rushlight_core::{DType, Result};

/// Maximum vectors that a thread keeps in registers.
const MAX_STEPS: usize = 8;

/// Compile-time parameters of row kernels apart from the entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    pub dtype: DType,
    /// Elements per vector.
    pub lanes: u16,
    /// Threads per row.
    pub threads: u16,
    /// Vectors of a row that each thread keeps in registers; 0 if there are too many.
    pub steps: u16,
}

impl Rows {
    /// For rows of `columns` elements at these addresses.
    pub fn new(dtype: DType, columns: usize, addresses: &[u64]) -> Self {
        let width = 16 / dtype.size();
        let aligned = columns.is_multiple_of(width) && addresses.iter().all(|a| a.is_multiple_of(16));
        let lanes = if aligned { width } else { 1 };
        let vectors = columns / lanes;
        let threads = match vectors {
            0..=128 => 32,
            129..=512 => 128,
            513..=1024 => 256,
            1025..=2048 => 512,
            _ => 1024,
        };
        let steps = vectors.div_ceil(threads).max(1);
        let fits = steps <= MAX_STEPS && steps * lanes <= 32;
        Self { dtype, lanes: lanes as u16, threads: threads as u16, steps: if fits { steps as u16 } else { 0 } }
    }

    /// The same with one vector per thread and few idle threads, for short rows: for kernels that need many registers.
    pub fn spread(self, columns: usize) -> Self {
        match columns / (self.lanes as usize) {
            vectors @ 129..=256 => Self { threads: vectors.next_multiple_of(32) as u16, steps: 1, ..self },
            _ => self,
        }
    }

    pub fn tags(&self) -> [u16; 4] {
        [self.dtype as u16, self.lanes, self.threads, self.steps]
    }

    pub fn defines(&self) -> Defines {
        Defines::default()
            .define("ROW", 1)
            .define("WIDE", 1)
            .dtype("T", self.dtype)
            .define("W", wide_type(self.dtype))
            .define("LANES", self.lanes)
            .define("TPR", self.threads)
            .define("STEPS", self.steps)
    }

    /// Launch configuration for a number of rows.
    pub fn grid(&self, rows: usize) -> Result<Grid> {
        let threads = (self.threads as usize).max(128);
        Grid::line(rows.div_ceil(threads / self.threads as usize), threads)
    }
}
