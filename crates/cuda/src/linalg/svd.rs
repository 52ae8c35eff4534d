//! Singular values: by Jacobi's rotations, which is quicker, and where those do not converge by QR steps.

use super::{Batch, Call, Room, Solver, address, turned, with};
use crate::device::{Gpu, Temporary};
use crate::driver::DevicePtr;
use rushlight_core::{DType, Result, View};
use std::ffi::{c_int, c_schar};

/// A decomposition as the library is asked for it: of matrices no wider than high, by columns. A wide one of ours, by rows, is such a one transposed, and
/// its left vectors are our right ones.
#[derive(Clone, Copy)]
struct Problem {
    rows: usize,
    columns: usize,
    /// Left vectors; none if only values are asked for.
    wanted: usize,
    matrix: DevicePtr,
    values: DevicePtr,
    left: DevicePtr,
    right: DevicePtr,
}

impl Problem {
    /// Matrix `i` of a batch.
    fn at(self, b: &Batch, i: usize) -> Self {
        let right = if self.wanted > 0 { self.columns * self.columns } else { 0 };
        Problem {
            matrix: b.at(self.matrix, i, self.rows * self.columns),
            values: b.at(self.values, i, self.columns),
            left: b.at(self.left, i, self.rows * self.wanted),
            right: b.at(self.right, i, right),
            ..self
        }
    }

    fn whole(&self) -> bool {
        self.wanted == self.rows
    }
}

/// Jacobi's rotations: the right vectors come by columns.
mod jacobi {
    use super::*;

    fn shape(p: &Problem) -> (c_int, c_int, c_int, c_int) {
        ((p.wanted > 0) as c_int, !p.whole() as c_int, p.rows as c_int, p.columns as c_int)
    }

    pub fn ask(c: &Call, b: &Batch, p: &Problem, bytes: &mut usize) -> c_int {
        let (vectors, few, m, n) = shape(p);
        let ask = if b.dtype == DType::F64 { c.api.dgesvdj_room } else { c.api.sgesvdj_room };
        let mut elements = 0;
        // SAFETY: matrices of these sizes.
        let rc = unsafe {
            ask(c.handle, vectors, few, m, n, p.matrix, m, p.values, p.left, m, p.right, n, &mut elements, c.rotations)
        };
        *bytes = elements.max(0) as usize * b.dtype.size();
        rc
    }

    pub fn run(c: &Call, b: &Batch, p: &Problem, room: &Room, info: DevicePtr) -> c_int {
        let (vectors, few, m, n) = shape(p);
        let run = if b.dtype == DType::F64 { c.api.dgesvdj } else { c.api.sgesvdj };
        let elements = (room.device_bytes / b.dtype.size()) as c_int;
        let (work, rotations) = (room.device, c.rotations);
        // SAFETY: matrices of these sizes and the room asked for.
        unsafe {
            #[rustfmt::skip]
            let rc = run(c.handle, vectors, few, m, n, p.matrix, m, p.values, p.left, m, p.right, n, work, elements, info, rotations);
            rc
        }
    }
}

/// QR steps: the right vectors come transposed.
mod steps {
    use super::*;

    fn shape(b: &Batch, p: &Problem) -> (c_schar, i64, i64, c_int) {
        let job = if p.wanted == 0 {
            b'N'
        } else if p.whole() {
            b'A'
        } else {
            b'S'
        };
        (job as c_schar, p.rows as i64, p.columns as i64, b.kind())
    }

    pub fn ask(c: &Call, b: &Batch, p: &Problem, device: &mut usize, host: &mut usize) -> c_int {
        let (job, m, n, k) = shape(b, p);
        let (handle, params) = (c.handle, c.params);
        // SAFETY: matrices of these sizes.
        unsafe {
            #[rustfmt::skip]
            let rc = (c.api.gesvd_room)(
                handle, params, job, job, m, n, k, p.matrix, m, k, p.values, k, p.left, m, k, p.right, n, k, device, host,
            );
            rc
        }
    }

    pub fn run(c: &Call, b: &Batch, p: &Problem, room: &Room, info: DevicePtr) -> c_int {
        let (job, m, n, k) = shape(b, p);
        let Room { device, device_bytes, host, host_bytes } = *room;
        // SAFETY: matrices of these sizes and the room asked for.
        unsafe {
            #[rustfmt::skip]
            let rc = (c.api.gesvd)(
                c.handle, c.params, job, job, m, n, k, p.matrix, m, k, p.values, k, p.left, m, k, p.right, n, k,
                device, device_bytes, host, host_bytes, info,
            );
            rc
        }
    }
}

impl Gpu {
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
        let mut infos = self.decompose(solver, b, a, s, vectors, true)?;
        if infos.iter().any(|&info| info != 0) {
            infos = self.decompose(solver, b, a, s, vectors, false)?;
        }
        let why = "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated singular values.";
        b.all_well(call, &infos, |_| why.into())
    }

    /// By rotations or by QR steps; what the routine says of each matrix.
    fn decompose(
        &self,
        solver: &'static Solver,
        b: &Batch,
        a: View,
        s: View,
        vectors: Option<[View; 2]>,
        rotations: bool,
    ) -> Result<Vec<i32>> {
        let wide = b.m < b.n;
        let work = if wide { self.packed(a)? } else { self.packed(with(a, &turned(a)))? };
        let sides = vectors.map(|[u, vh]| if wide { [vh, u] } else { [u, vh] });
        // Vectors that come by columns where ours lie by rows, or the other way round, are turned afterwards.
        let turn = [!wide, wide == rotations];
        let mut found: [Option<Temporary>; 2] = [None, None];
        for (side, found) in found.iter_mut().enumerate() {
            if let Some(views) = sides.filter(|_| turn[side]) {
                *found = Some(self.temporary(turned(views[side]).shape(), b.dtype)?);
            }
        }
        let place = |side: usize| match (&found[side], sides) {
            (Some(found), _) => address(found.view()),
            (None, views) => views.map_or(0, |views| address(views[side])),
        };
        let wanted = |[left, _]: [View; 2]| left.shape()[left.layout.rank() - if wide { 2 } else { 1 }];
        let problem = Problem {
            rows: b.m.max(b.n),
            columns: b.m.min(b.n),
            wanted: sides.map_or(0, wanted),
            matrix: address(work.view()),
            values: address(s),
            left: place(0),
            right: place(1),
        };
        let infos = if rotations {
            self.each(
                (solver, "cusolverDnGesvdj", b),
                |c, device, _| jacobi::ask(c, b, &problem, device),
                |c, i, room, info| jacobi::run(c, b, &problem.at(b, i), room, info),
            )?
        } else {
            self.each(
                (solver, "cusolverDnXgesvd", b),
                |c, device, host| steps::ask(c, b, &problem, device, host),
                |c, i, room, info| steps::run(c, b, &problem.at(b, i), room, info),
            )?
        };
        for (found, to) in found.iter().zip(sides.iter().flatten()) {
            if let Some(found) = found {
                self.copy(with(found.view(), &turned(found.view())), *to)?;
            }
        }
        Ok(infos)
    }
}
