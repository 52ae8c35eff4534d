//! QR, singular values and eigenvalues.

use super::{Batch, On, Room, Solver, address, turned, with};
use crate::cusolver::UPPER;
use rushlight_core::{DType, Result, View};
use rushlight_gpu::Temporary;
use std::ffi::{c_int, c_schar};

impl On<'_> {
    pub(super) fn qr(&self, solver: &'static Solver, b: &Batch, a: View, q: View, r: View) -> Result<()> {
        let (m, n, k) = (b.m, b.n, q.shape().last().copied().unwrap_or(0));
        let reflections = m.min(n);
        let tau = self.temporary(&[b.count, reflections], b.dtype)?;
        // Both of shape […, columns, rows]: by columns.
        let work = self.packed(with(a, &turned(a)))?;
        let (matrix, scales) = (address(work.view()), address(tau.view()));
        self.each(
            (solver, "cusolverDnXgeqrf", b),
            // SAFETY: matrices of m by n and room as asked for.
            |c, device, host| unsafe {
                let (kind, m, n) = (b.kind(), m as i64, n as i64);
                (c.api.geqrf_room)(c.handle, c.params, m, n, kind, matrix, m, kind, scales, kind, device, host)
            },
            // SAFETY: as above.
            |c, i, room, info| unsafe {
                let (kind, rows, columns) = (b.kind(), m as i64, n as i64);
                let (to, tau) = (b.at(matrix, i, m * n), b.at(scales, i, reflections));
                let Room { device, device_bytes, host, host_bytes } = *room;
                (c.api.geqrf)(
                    c.handle,
                    c.params,
                    rows,
                    columns,
                    kind,
                    to,
                    rows,
                    kind,
                    tau,
                    kind,
                    device,
                    device_bytes,
                    host,
                    host_bytes,
                    info,
                )
            },
        )?;
        let rank = work.view().layout.rank();
        let first = |t: &Temporary, dim: usize, count: usize| t.view().layout.slice(dim, 0, count, 1);
        // R: the first k rows, what lies below the diagonal aside.
        let head = first(&work, rank - 1, k).transpose(rank - 2, rank - 1);
        self.copy(with(work.view(), &head), r)?;
        self.keep_triangle(r, true)?;
        // Q, in as many columns as are wanted.
        let mut shape = a.shape().to_vec();
        (shape[rank - 2], shape[rank - 1]) = (k, m);
        let columns = self.temporary(&shape, b.dtype)?;
        let shared = k.min(n);
        self.copy(
            with(work.view(), &first(&work, rank - 2, shared)),
            with(columns.view(), &first(&columns, rank - 2, shared)),
        )?;
        let matrix = address(columns.view());
        let (rows, wanted, reflections) = (m as c_int, k as c_int, reflections as c_int);
        self.each(
            (solver, "cusolverDnOrgqr", b),
            |c, device, _| {
                let ask = if b.dtype == DType::F64 { c.api.dorgqr_room } else { c.api.sorgqr_room };
                let mut elements = 0;
                // SAFETY: matrices of m by k that hold as many reflections.
                let rc = unsafe { ask(c.handle, rows, wanted, reflections, matrix, rows, scales, &mut elements) };
                *device = elements.max(0) as usize * b.dtype.size();
                rc
            },
            |c, i, room, info| {
                let run = if b.dtype == DType::F64 { c.api.dorgqr } else { c.api.sorgqr };
                let (to, tau) = (b.at(matrix, i, m * k), b.at(scales, i, reflections as usize));
                let elements = (room.device_bytes / b.dtype.size()) as c_int;
                // SAFETY: as above, with the room asked for.
                unsafe { run(c.handle, rows, wanted, reflections, to, rows, tau, room.device, elements, info) }
            },
        )?;
        self.copy(with(columns.view(), &turned(columns.view())), q)
    }

    pub(super) fn svd(
        &self,
        solver: &'static Solver,
        b: &Batch,
        a: View,
        s: View,
        vectors: Option<[View; 2]>,
    ) -> Result<()> {
        let call = if vectors.is_some() { "linalg.svd" } else { "linalg.svdvals" };
        self.must_be_finite(call, b, a, false)?;
        // The routine wants matrices no wider than high. By columns a wide one of ours is high, and its U and V are our Vh and U by rows.
        let wide = b.m < b.n;
        let work = if wide { self.packed(a)? } else { self.packed(with(a, &turned(a)))? };
        let (rows, columns) = (b.m.max(b.n), b.m.min(b.n));
        let by_columns = |v: View| self.temporary(turned(v).shape(), b.dtype);
        let turned_vectors = match vectors {
            Some([u, vh]) if !wide => Some([by_columns(u)?, by_columns(vh)?]),
            _ => None,
        };
        let (u, vt) = match (&turned_vectors, vectors) {
            (Some([u, vt]), _) => (address(u.view()), address(vt.view())),
            (None, Some([u, vh])) => (address(vh), address(u)),
            (None, None) => (0, 0),
        };
        // Columns of the high side's vectors: as many as values, or all.
        let wanted = vectors
            .map_or(0, |[u, vh]| if wide { vh.shape()[vh.layout.rank() - 2] } else { *u.shape().last().unwrap_or(&0) });
        let job = match vectors {
            None => b'N',
            Some(_) if wanted == rows => b'A',
            Some(_) => b'S',
        } as c_schar;
        let (matrix, values) = (address(work.view()), address(s));
        let infos = self.each(
            (solver, "cusolverDnXgesvd", b),
            // SAFETY: matrices of these sizes and room as asked for.
            |c, device, host| unsafe {
                let (k, m, n) = (b.kind(), rows as i64, columns as i64);
                (c.api.gesvd_room)(
                    c.handle, c.params, job, job, m, n, k, matrix, m, k, values, k, u, m, k, vt, n, k, device, host,
                )
            },
            // SAFETY: as above.
            |c, i, room, info| unsafe {
                let (k, m, n, at) = (b.kind(), rows as i64, columns as i64, |start, size| b.at(start, i, size));
                let (from, s) = (at(matrix, rows * columns), at(values, columns));
                let (u, vt) = (at(u, rows * wanted), if vectors.is_some() { at(vt, columns * columns) } else { vt });
                let Room { device, device_bytes, host, host_bytes } = *room;
                (c.api.gesvd)(
                    c.handle,
                    c.params,
                    job,
                    job,
                    m,
                    n,
                    k,
                    from,
                    m,
                    k,
                    s,
                    k,
                    u,
                    m,
                    k,
                    vt,
                    n,
                    k,
                    device,
                    device_bytes,
                    host,
                    host_bytes,
                    info,
                )
            },
        )?;
        let why = "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated singular values.";
        b.all_well(call, &infos, |_| why.into())?;
        if let (Some(from), Some(to)) = (&turned_vectors, vectors) {
            for (from, to) in from.iter().zip(to) {
                self.copy(with(from.view(), &turned(from.view())), to)?;
            }
        }
        Ok(())
    }

    pub(super) fn eigh(
        &self,
        solver: &'static Solver,
        b: &Batch,
        a: View,
        values: View,
        vectors: Option<View>,
    ) -> Result<()> {
        let call = if vectors.is_some() { "linalg.eigh" } else { "linalg.eigvalsh" };
        self.must_be_finite(call, b, a, true)?;
        let work = self.packed(a)?;
        let (matrix, found, n) = (address(work.view()), address(values), b.n as i64);
        let job = vectors.is_some() as c_int;
        let infos = self.each(
            (solver, "cusolverDnXsyevd", b),
            // SAFETY: matrices of n by n and room as asked for. By columns, our lower triangle is the upper one.
            |c, device, host| unsafe {
                let k = b.kind();
                (c.api.syevd_room)(c.handle, c.params, job, UPPER, n, k, matrix, n, k, found, k, device, host)
            },
            // SAFETY: as above.
            |c, i, room, info| unsafe {
                let (k, from, to) = (b.kind(), b.at(matrix, i, b.n * b.n), b.at(found, i, b.n));
                let Room { device, device_bytes, host, host_bytes } = *room;
                (c.api.syevd)(
                    c.handle,
                    c.params,
                    job,
                    UPPER,
                    n,
                    k,
                    from,
                    n,
                    k,
                    to,
                    k,
                    device,
                    device_bytes,
                    host,
                    host_bytes,
                    info,
                )
            },
        )?;
        let why = "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated eigenvalues.";
        b.all_well(call, &infos, |_| why.into())?;
        match vectors {
            Some(to) => self.copy(with(work.view(), &turned(work.view())), to),
            None => Ok(()),
        }
    }
}
