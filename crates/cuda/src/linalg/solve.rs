//! Systems of equations, determinants, inverses and Cholesky factors.

use super::{Batch, On, Room, Solver, Triangular, address, check, turned, with};
use crate::cusolver::{LOWER, RIGHT, UPPER};
use rushlight_core::{DType, Result, View};
use rushlight_gpu::Temporary;
use rushlight_gpu::driver::DevicePtr;
use std::ffi::{c_int, c_void};

impl On<'_> {
    /// Factors of the transposed matrices and the rows exchanged; what the routine says of each.
    pub(super) fn lu(&self, solver: &'static Solver, b: &Batch, a: View) -> Result<(Temporary, Temporary, Vec<i32>)> {
        let (factors, rows) = (self.packed(a)?, self.temporary(&[b.count, b.n], DType::I64)?);
        let (matrix, swaps, n) = (address(factors.view()), address(rows.view()), b.n as i64);
        let infos = self.each(
            (solver, "cusolverDnXgetrf", b),
            // SAFETY: matrices of n by n and room as asked for.
            |c, device, host| unsafe {
                let kind = b.kind();
                (c.api.getrf_room)(c.handle, c.params, n, n, kind, matrix, n, kind, device, host)
            },
            // SAFETY: as above.
            |c, i, room, info| unsafe {
                let (kind, to) = (b.kind(), b.at(matrix, i, b.n * b.n));
                let (swaps, Room { device, device_bytes, host, host_bytes }) = (swaps + (i * b.n * 8) as u64, room);
                (c.api.getrf)(
                    c.handle,
                    c.params,
                    n,
                    n,
                    kind,
                    to,
                    n,
                    swaps,
                    kind,
                    *device,
                    *device_bytes,
                    *host,
                    *host_bytes,
                    info,
                )
            },
        )?;
        Ok((factors, rows, infos))
    }

    /// Solves systems with the factors of [`lu`](Gpu::lu): with the transposed matrix, or the matrix itself; right-hand sides lie by columns.
    fn solve_factored(
        &self,
        (solver, b): (&'static Solver, &Batch),
        (factors, rows): (&Temporary, &Temporary),
        transposed: bool,
        (x, columns): (DevicePtr, usize),
    ) -> Result<()> {
        let (matrix, swaps, n) = (address(factors.view()), address(rows.view()), b.n as i64);
        self.each(
            (solver, "cusolverDnXgetrs", b),
            |_, _, _| 0,
            // SAFETY: factors and exchanges of n by n matrices; as many columns of n elements.
            |c, i, _, info| unsafe {
                let (kind, from) = (b.kind(), b.at(matrix, i, b.n * b.n));
                let (swaps, to) = (swaps + (i * b.n * 8) as u64, b.at(x, i, b.n * columns));
                let trans = !transposed as c_int;
                (c.api.getrs)(c.handle, c.params, trans, n, columns as i64, kind, from, n, swaps, kind, to, n, info)
            },
        )
        .map(drop)
    }

    pub(super) fn determinant(
        &self,
        solver: &'static Solver,
        b: &Batch,
        a: View,
        out: View,
        log: Option<View>,
    ) -> Result<()> {
        let (factors, rows, _) = self.lu(solver, b, a)?;
        self.multiply_diagonals(factors.view(), rows.view(), [b.count, b.n], out, log)
    }

    pub(super) fn inverse(&self, solver: &'static Solver, b: &Batch, a: View, out: View) -> Result<()> {
        let (factors, rows, infos) = self.lu(solver, b, a)?;
        b.all_well("linalg.inv", &infos, |info| {
            format!(
                "The diagonal element {info} is zero, the inversion could not be completed because the input matrix is singular."
            )
        })?;
        self.fill_identities(out, b.n)?;
        // The transposed matrix's inverse by columns is the matrix's by rows.
        self.solve_factored((solver, b), (&factors, &rows), true, (address(out), b.n))
    }

    pub(super) fn solve(&self, solver: &'static Solver, b: &Batch, a: View, rhs: View, x: View) -> Result<()> {
        let columns = rhs.shape().last().copied().unwrap_or(0);
        if columns == 0 {
            return Ok(());
        }
        let (factors, rows, infos) = self.lu(solver, b, a)?;
        let why = "The solver failed because the input matrix is singular.";
        b.all_well("torch.linalg.solve", &infos, |_| why.into())?;
        let by_columns = self.packed(with(rhs, &turned(rhs)))?;
        self.solve_factored((solver, b), (&factors, &rows), false, (address(by_columns.view()), columns))?;
        self.copy(with(by_columns.view(), &turned(by_columns.view())), x)
    }

    pub(super) fn solve_triangular(
        &self,
        library: &'static Triangular,
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
        self.copy(rhs, x)?;
        let (b, from, to) = (*b, address(a), address(x));
        // Transposed, the unknown stands on the left, and the other triangle is read.
        let (triangle, unit) = (if upper { LOWER } else { UPPER }, unitriangular as c_int);
        // A batch is told by where each of its matrices lies.
        let places = self.temporary(&[2, b.count], DType::I64)?;
        let list = address(places.view());
        let lists = [list, list + (b.count * size_of::<DevicePtr>()) as u64];
        if b.count > 1 {
            for (list, start, elements) in [(lists[0], from, b.n * b.n), (lists[1], to, b.n * columns)] {
                self.list_addresses(b.dtype, list, start, elements, b.count)?;
            }
        }
        self.submit(move |_, stream| {
            let (handles, api) = (library.handles(), library.api);
            let (n, columns, count) = (b.n as c_int, columns as c_int, b.count as c_int);
            let (wide, narrow) = (1.0f64, 1.0f32);
            let double = b.dtype == DType::F64;
            let one: *const c_void = if double { (&raw const wide).cast() } else { (&raw const narrow).cast() };
            let handle = handles.handle;
            // SAFETY: a handle and a stream of ours; matrices of n by n, and of n by as many columns, where the addresses say.
            let rc = unsafe {
                check("cublasSetStream", (api.set_stream)(handle, stream))?;
                if count == 1 {
                    let solve = if double { api.dtrsm_one } else { api.strsm_one };
                    solve(handle, RIGHT, triangle, 0, unit, columns, n, one, from, n, to, columns)
                } else {
                    let solve = if double { api.dtrsm } else { api.strsm };
                    let [from, to] = lists;
                    solve(handle, RIGHT, triangle, 0, unit, columns, n, one, from, n, to, columns, count)
                }
            };
            check("cublasTrsm", rc)
        })
    }

    pub(super) fn cholesky(&self, solver: &'static Solver, b: &Batch, a: View, l: View) -> Result<()> {
        // Quicker with the lower triangle as the library sees it.
        let work = self.packed(with(a, &turned(a)))?;
        let (matrix, n) = (address(work.view()), b.n as i64);
        let infos = self.each(
            (solver, "cusolverDnXpotrf", b),
            // SAFETY: matrices of n by n and room as asked for.
            |c, device, host| unsafe {
                let kind = b.kind();
                (c.api.potrf_room)(c.handle, c.params, LOWER, n, kind, matrix, n, kind, device, host)
            },
            // SAFETY: as above.
            |c, i, room, info| unsafe {
                let (kind, to) = (b.kind(), b.at(matrix, i, b.n * b.n));
                let Room { device, device_bytes, host, host_bytes } = *room;
                (c.api.potrf)(
                    c.handle,
                    c.params,
                    LOWER,
                    n,
                    kind,
                    to,
                    n,
                    kind,
                    device,
                    device_bytes,
                    host,
                    host_bytes,
                    info,
                )
            },
        )?;
        b.all_well("linalg.cholesky", &infos, |info| {
            format!(
                "The factorization could not be completed because the input is not positive-definite (the leading minor of order {info} is not \
                 positive-definite)."
            )
        })?;
        self.copy(with(work.view(), &turned(work.view())), l)?;
        self.keep_triangle(l, false)
    }
}
