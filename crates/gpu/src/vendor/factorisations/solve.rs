//! Systems of equations, determinants, inverses and Cholesky factors.

use super::{Batch, Locked, On, Routine, Triangle, Triangular, address, lock, turned};
use crate::device::{Gpu, Temporary};
use crate::vendor::driver::DevicePtr;
use rushlight_core::{DType, Result, View};

impl On<'_> {
    /// LU factors of the transposed matrices, the row swaps, and the routine's status for each matrix.
    fn lu(&self, a: View) -> Result<(Temporary, Temporary, Vec<i32>)> {
        let kind = lock(self.solver).swaps();
        let (b, factors, rows) = (&self.b, self.packed(a)?, self.temporary(&[self.b.count, self.b.n], kind)?);
        let (matrix, swaps) = (address(factors.view()), address(rows.view()));
        let infos = self.each(|i| Routine::Getrf {
            n: b.n,
            a: b.at(matrix, i, b.n * b.n),
            swaps: swaps + (i * b.n * kind.size()) as u64,
        })?;
        Ok((factors, rows, infos))
    }

    /// Solves systems with the factors of [`lu`](On::lu): with the transposed matrix, or the matrix itself; right-hand
    /// sides are column-major.
    fn solve_factored(
        &self,
        (factors, rows): (&Temporary, &Temporary),
        transposed: bool,
        (x, columns): (DevicePtr, usize),
    ) -> Result<()> {
        let b = &self.b;
        let (matrix, swaps, size) = (address(factors.view()), address(rows.view()), rows.view().dtype().size());
        self.each(|i| Routine::Getrs {
            transposed: !transposed,
            n: b.n,
            columns,
            a: b.at(matrix, i, b.n * b.n),
            swaps: swaps + (i * b.n * size) as u64,
            x: b.at(x, i, b.n * columns),
        })
        .map(drop)
    }

    pub(super) fn determinant(&self, a: View, out: View, log: Option<View>) -> Result<()> {
        let (factors, mut rows, _) = self.lu(a)?;
        if rows.view().dtype() != DType::I64 {
            let wide = self.temporary(&[self.b.count, self.b.n], DType::I64)?;
            self.copy(rows.view(), wide.view())?;
            rows = wide;
        }
        self.multiply_diagonals(factors.view(), rows.view(), [self.b.count, self.b.n], out, log)
    }

    pub(super) fn inverse(&self, a: View, out: View) -> Result<()> {
        let (factors, rows, infos) = self.lu(a)?;
        self.b.all_well("linalg.inv", &infos, |info| {
            format!(
                "The diagonal element {info} is zero, the inversion could not be completed because the input matrix is singular."
            )
        })?;
        self.fill_identities(out, self.b.n)?;
        // The column-major inverse of the transposed matrix is the row-major inverse of the matrix.
        self.solve_factored((&factors, &rows), true, (address(out), self.b.n))
    }

    pub(super) fn solve(&self, a: View, rhs: View, x: View) -> Result<()> {
        let columns = rhs.shape().last().copied().unwrap_or(0);
        if columns == 0 {
            return Ok(());
        }
        let (factors, rows, infos) = self.lu(a)?;
        let why = "The solver failed because the input matrix is singular.";
        self.b.all_well("torch.linalg.solve", &infos, |_| why.into())?;
        let by_columns = self.packed(rhs.with_layout(&turned(rhs))?)?;
        self.solve_factored((&factors, &rows), false, (address(by_columns.view()), columns))?;
        self.copy(by_columns.view().with_layout(&turned(by_columns.view()))?, x)
    }

    pub(super) fn cholesky(&self, a: View, l: View) -> Result<()> {
        // Faster with the library's lower triangle.
        let (b, work) = (&self.b, self.packed(a.with_layout(&turned(a))?)?);
        let matrix = address(work.view());
        let infos = self.each(|i| Routine::Potrf { n: b.n, a: b.at(matrix, i, b.n * b.n) })?;
        b.all_well("linalg.cholesky", &infos, |info| {
            format!(
                "The factorization could not be completed because the input is not positive-definite (the leading minor of order {info} is not \
                 positive-definite)."
            )
        })?;
        self.copy(work.view().with_layout(&turned(work.view()))?, l)?;
        self.keep_triangle(l, false)
    }
}

/// `A X = rhs` with a triangular A. Transposed, the unknown is on the left, and the library reads the other triangle.
pub(super) fn triangular(
    gpu: &Gpu,
    library: &'static Locked<dyn Triangular>,
    b: &Batch,
    (upper, unitriangular): (bool, bool),
    a: View,
    rhs: View,
    x: View,
) -> Result<()> {
    let columns = rhs.shape().last().copied().unwrap_or(0);
    if columns == 0 {
        return Ok(());
    }
    if !lock(library).records() {
        gpu.refuse_recording("a triangular system")?;
    }
    gpu.copy(rhs, x)?;
    let mut t = Triangle {
        upper: !upper,
        unit: unitriangular,
        rows: columns,
        n: b.n,
        count: b.count,
        dtype: b.dtype,
        a: address(a),
        b: address(x),
    };
    // A batch is passed as a list of matrix addresses.
    let places = gpu.temporary(&[2, b.count], DType::I64)?;
    if b.count > 1 {
        let list = address(places.view());
        let lists = [list, list + (b.count * size_of::<DevicePtr>()) as u64];
        for (list, start, elements) in [(lists[0], t.a, b.n * b.n), (lists[1], t.b, b.n * columns)] {
            gpu.list_addresses(b.dtype, list, start, elements, b.count)?;
        }
        [t.a, t.b] = lists;
    }
    // SAFETY: the addresses are those of n by n matrices and of right-hand sides with n rows.
    gpu.submit(move |_, stream| unsafe { lock(library).solve(&t, stream) })
}
