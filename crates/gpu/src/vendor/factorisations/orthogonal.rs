//! QR, singular values and eigenvalues.

use super::{On, Routine, Vectors, address, turned};
use crate::device::Temporary;
use rushlight_core::{Result, View};

impl On<'_> {
    pub(super) fn qr(&self, a: View, q: View, r: View) -> Result<()> {
        let b = &self.b;
        let (m, n, k) = (b.m, b.n, q.shape().last().copied().unwrap_or(0));
        let reflections = m.min(n);
        let tau = self.temporary(&[b.count, reflections], b.dtype)?;
        // Both of shape […, columns, rows]: column-major.
        let work = self.packed(a.with_layout(&turned(a))?)?;
        let (matrix, scales) = (address(work.view()), address(tau.view()));
        self.each(|i| Routine::Geqrf { m, n, a: b.at(matrix, i, m * n), tau: b.at(scales, i, reflections) })?;
        let rank = work.view().layout().rank();
        let first = |t: &Temporary, dim: usize, count: usize| t.view().layout().slice(dim, 0, count, 1);
        // R: the upper triangle of the first k rows.
        let head = first(&work, rank - 1, k).transpose(rank - 2, rank - 1);
        self.copy(work.view().with_layout(&head)?, r)?;
        self.keep_triangle(r, true)?;
        // Q, with the requested number of columns.
        let mut shape = a.shape().to_vec();
        (shape[rank - 2], shape[rank - 1]) = (k, m);
        let columns = self.temporary(&shape, b.dtype)?;
        let shared = k.min(n);
        self.copy(
            work.view().with_layout(&first(&work, rank - 2, shared))?,
            columns.view().with_layout(&first(&columns, rank - 2, shared))?,
        )?;
        let matrix = address(columns.view());
        self.each(|i| Routine::Orgqr {
            m,
            n: k,
            k: reflections,
            a: b.at(matrix, i, m * k),
            tau: b.at(scales, i, reflections),
        })?;
        self.copy(columns.view().with_layout(&turned(columns.view()))?, q)
    }

    pub(super) fn svd(&self, a: View, s: View, vectors: Option<[View; 2]>) -> Result<()> {
        let b = &self.b;
        let call = if vectors.is_some() { "linalg.svd" } else { "linalg.svdvals" };
        self.must_be_finite(call, a, false)?;
        // The routine needs at least as many rows as columns. Read as column-major, a wide row-major matrix is tall,
        // and its U and V are our row-major Vh and U.
        let wide = b.m < b.n;
        let work = if wide { self.packed(a)? } else { self.packed(a.with_layout(&turned(a))?)? };
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
        // Number of vectors of the taller side: as many as values, or all.
        let wanted =
            vectors.map_or(
                0,
                |[u, vh]| if wide { vh.shape()[vh.layout().rank() - 2] } else { *u.shape().last().unwrap_or(&0) },
            );
        let kind = match vectors {
            None => Vectors::Absent,
            Some(_) if wanted == rows => Vectors::Full,
            Some(_) => Vectors::Reduced,
        };
        let (matrix, values) = (address(work.view()), address(s));
        let infos = self.each(|i| Routine::Gesvd {
            vectors: kind,
            m: rows,
            n: columns,
            a: b.at(matrix, i, rows * columns),
            values: b.at(values, i, columns),
            u: b.at(u, i, rows * wanted),
            vt: if vectors.is_some() { b.at(vt, i, columns * columns) } else { vt },
        })?;
        let why = "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated singular values.";
        b.all_well(call, &infos, |_| why.into())?;
        if let (Some(from), Some(to)) = (&turned_vectors, vectors) {
            for (from, to) in from.iter().zip(to) {
                self.copy(from.view().with_layout(&turned(from.view()))?, to)?;
            }
        }
        Ok(())
    }

    pub(super) fn eigh(&self, a: View, values: View, vectors: Option<View>) -> Result<()> {
        let b = &self.b;
        let call = if vectors.is_some() { "linalg.eigh" } else { "linalg.eigvalsh" };
        self.must_be_finite(call, a, true)?;
        let work = self.packed(a)?;
        let (matrix, found) = (address(work.view()), address(values));
        // In column-major order our lower triangle is the upper one.
        let infos = self.each(|i| Routine::Syevd {
            vectors: vectors.is_some(),
            n: b.n,
            a: b.at(matrix, i, b.n * b.n),
            values: b.at(found, i, b.n),
        })?;
        let why = "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated eigenvalues.";
        b.all_well(call, &infos, |_| why.into())?;
        match vectors {
            Some(to) => self.copy(work.view().with_layout(&turned(work.view()))?, to),
            None => Ok(()),
        }
    }
}
