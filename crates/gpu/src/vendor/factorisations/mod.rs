//! Factorisations and triangular systems by a vendor's libraries (cuSOLVER and cuBLAS, rocSOLVER and rocBLAS). Problems
//! that the libraries do not support, or that the CPU solves faster, return an error; the tensor layer then uses the
//! CPU.
//!
//! The libraries' matrices are column-major, so they see ours transposed.

mod orthogonal;
mod solve;

use crate::device::{Gpu, Temporary};
use crate::vendor::driver::{DevicePtr, Factorisations, Handle};
use rushlight_core::backend::Linalg;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Layout, Result, View};
use std::ops::Deref;
use std::sync::{Mutex, OnceLock};

/// A LAPACK routine on one dense column-major matrix, with the addresses that it reads and
/// writes.
#[derive(Clone, Copy, Debug)]
pub enum Routine {
    /// The Cholesky factor of an `n` by `n` matrix, in its lower triangle.
    Potrf { n: usize, a: DevicePtr },
    /// LU factors of an `n` by `n` matrix, and its row swaps ([`Solver::swaps`]).
    Getrf { n: usize, a: DevicePtr, swaps: DevicePtr },
    /// Solves systems with such factors, or with those of the transposed matrix, in place. Has no status.
    Getrs { transposed: bool, n: usize, columns: usize, a: DevicePtr, swaps: DevicePtr, x: DevicePtr },
    /// R and the reflections of Q of an `m` by `n` matrix, and the reflections' factors. Has no status.
    Geqrf { m: usize, n: usize, a: DevicePtr, tau: DevicePtr },
    /// The first `n` columns of Q from `k` reflections of `m` elements. Has no status.
    Orgqr { m: usize, n: usize, k: usize, a: DevicePtr, tau: DevicePtr },
    /// Eigenvalues of a symmetric matrix, whose upper triangle is read, and its eigenvectors in place.
    Syevd { vectors: bool, n: usize, a: DevicePtr, values: DevicePtr },
    /// Singular values and vectors of an `m` by `n` matrix, `m` at least `n`.
    Gesvd { vectors: Vectors, m: usize, n: usize, a: DevicePtr, values: DevicePtr, u: DevicePtr, vt: DevicePtr },
}

/// Singular vectors to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// None.
    Absent,
    /// As many as singular values.
    Reduced,
    /// All.
    Full,
}

/// Workspace of a routine.
pub struct Room {
    /// On the device.
    pub device: DevicePtr,
    /// Bytes on the device.
    pub device_bytes: usize,
    /// On the host.
    pub host: *mut u8,
    /// Bytes on the host.
    pub host_bytes: usize,
}

/// A library of factorisations for one device. Routines run on matrices of `f32` or `f64`, whose sizes fit 32 bits.
pub trait Solver: Send + 'static {
    /// Integer dtype of the row swaps of [`Routine::Getrf`]: `I32` or `I64`.
    fn swaps(&self) -> DType;
    /// Sets the stream of later routines.
    fn set_stream(&mut self, stream: Handle) -> Result<()>;
    /// Workspace bytes of a routine on the device and on the host.
    fn room(&mut self, routine: &Routine, dtype: DType) -> Result<[usize; 2]>;
    /// Runs a routine; its status for the matrix, zero on success, is written to `info`.
    ///
    /// # Safety
    /// The addresses hold arrays of the routine's sizes; the workspace is as large as
    /// [`room`](Solver::room) returned.
    unsafe fn run(&mut self, routine: &Routine, dtype: DType, room: &Room, info: DevicePtr) -> Result<()>;
}

/// `X A = B` for a batch, column-major, in place of B: a triangular A of `n` rows, B and X of `rows` rows.
#[derive(Clone, Copy, Debug)]
pub struct Triangle {
    pub upper: bool,
    /// Whether the diagonal is taken as ones.
    pub unit: bool,
    pub rows: usize,
    pub n: usize,
    pub count: usize,
    pub dtype: DType,
    /// Addresses of A and B; for a batch, addresses of lists of addresses.
    pub a: DevicePtr,
    pub b: DevicePtr,
}

/// A library of triangular systems for one device.
pub trait Triangular: Send + 'static {
    /// Whether its calls can be part of a recorded step.
    fn records(&self) -> bool;
    /// Solves a batch.
    ///
    /// # Safety
    /// The addresses hold matrices of these sizes.
    unsafe fn solve(&mut self, t: &Triangle, stream: Handle) -> Result<()>;
}

/// A vendor's libraries, opened on their first use.
pub trait Vendor: Send + Sync + 'static {
    /// The library of factorisations.
    fn solver(&self) -> Result<Box<dyn Solver>>;
    /// The library of triangular systems.
    fn triangular(&self) -> Result<Box<dyn Triangular>>;
}

/// A library's handle, used by one thread at a time.
type Locked<T> = Mutex<Box<T>>;

/// A batch of matrices of one size.
#[derive(Clone, Copy)]
struct Batch {
    count: usize,
    m: usize,
    n: usize,
    dtype: DType,
    /// Whether there are no batch dimensions, so that errors name no batch element.
    single: bool,
}

impl Batch {
    /// Matrix `i` of those at `start`, of `elements` each.
    fn at(&self, start: DevicePtr, i: usize, elements: usize) -> DevicePtr {
        start + (i * elements * self.dtype.size()) as u64
    }

    /// Returns an error for the first matrix with a nonzero status.
    fn all_well(&self, call: &str, infos: &[i32], why: impl Fn(i32) -> String) -> Result<()> {
        let Some((i, &info)) = infos.iter().enumerate().find(|&(_, &info)| info != 0) else { return Ok(()) };
        let element = if self.single { String::new() } else { format!("(Batch element {i}): ") };
        Err(Error::numerical(format!("{call}: {element}{}", why(info))))
    }
}

/// A transposed view.
fn turned(v: View) -> Layout {
    let rank = v.layout().rank();
    v.layout().transpose(rank - 2, rank - 1)
}

fn address(v: View) -> DevicePtr {
    v.ptr() as u64
}

/// `RUSHLIGHT_CUDA_SOLVER`: 0 selects the CPU, 1 the GPU, whatever the size.
fn choice() -> Option<bool> {
    static CHOICE: OnceLock<Option<bool>> = OnceLock::new();
    *CHOICE.get_or_init(|| match std::env::var("RUSHLIGHT_CUDA_SOLVER").as_deref() {
        Ok("0") => Some(false),
        Ok("1") => Some(true),
        Ok("") | Err(_) => None,
        Ok(value) => {
            rushlight_core::warn!("RUSHLIGHT_CUDA_SOLVER={value} is unknown (0, 1); choosing by size");
            None
        }
    })
}

/// Whether the GPU is faster than the CPU with copies both ways: measured on an H200 next to a CPU with 16 cores. The
/// solver is slow for small matrices and handles them one by one; the CPU handles one per core in parallel.
fn pays(op: Linalg, b: &Batch) -> bool {
    let least = match op {
        Linalg::SolveTriangular { .. } => 0,
        Linalg::Eigh => 32,
        Linalg::Svd { .. } => 256,
        _ => 128,
    };
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    choice().unwrap_or(b.m.min(b.n) >= least * (b.count.min(cores) / 2).max(1))
}

/// The libraries of one device, each opened on its first use.
pub struct Routines {
    vendor: &'static dyn Vendor,
    solver: OnceLock<Result<Locked<dyn Solver>>>,
    triangular: OnceLock<Result<Locked<dyn Triangular>>>,
}

impl Routines {
    /// A vendor's.
    pub fn new(vendor: &'static dyn Vendor) -> Self {
        Self { vendor, solver: OnceLock::new(), triangular: OnceLock::new() }
    }
}

impl Factorisations for Routines {
    /// A factorisation of every matrix of a batch; see [`Linalg`]. Returns an error if the CPU should compute it.
    fn linalg(&'static self, gpu: &Gpu, op: Linalg, inputs: &[View], outputs: &[View]) -> Result<()> {
        let declined = || Error::unsupported(format!("{op:?} is not computed on {}; use the CPU", gpu.device()));
        let Some(a) = inputs.first().filter(|a| a.layout().rank() >= 2) else { return Err(declined()) };
        let (lead, rank) = (a.shape(), a.layout().rank());
        let (m, n) = (lead[rank - 2], lead[rank - 1]);
        let b = Batch { count: lead[..rank - 2].iter().product(), m, n, dtype: a.dtype(), single: rank == 2 };
        let fits = matches!(a.dtype(), DType::F32 | DType::F64)
            && [m, n, b.count].iter().all(|&size| size > 0)
            && inputs.iter().chain(outputs).all(|v| v.dtype() == a.dtype() && v.layout().is_contiguous())
            && inputs.iter().flat_map(|v| v.shape()).all(|&size| size <= i32::MAX as usize);
        if !fits || !pays(op, &b) {
            return Err(declined());
        }
        if let (Linalg::SolveTriangular { upper, unitriangular }, [a, rhs], [x]) = (op, inputs, outputs) {
            let new = || gpu.driver.relaxed(|| self.vendor.triangular()).map(Mutex::new);
            let library = self.triangular.get_or_init(new).as_ref().map_err(|_| declined())?;
            return solve::triangular(gpu, library, &b, (upper, unitriangular), *a, *rhs, *x);
        }
        let new = || self.vendor.solver().map(Mutex::new);
        let solver = self.solver.get_or_init(new).as_ref().map_err(|_| declined())?;
        gpu.refuse_recording(&format!("{op:?}, a factorisation,"))?;
        let on = On { gpu, solver, b };
        match (op, inputs, outputs) {
            (Linalg::Det, [a], [det]) => on.determinant(*a, *det, None),
            (Linalg::Slogdet, [a], [sign, log]) => on.determinant(*a, *sign, Some(*log)),
            (Linalg::Inv, [a], [out]) => on.inverse(*a, *out),
            (Linalg::Solve, [a, rhs], [x]) => on.solve(*a, *rhs, *x),
            (Linalg::Cholesky, [a], [l]) => on.cholesky(*a, *l),
            (Linalg::Qr { .. }, [a], [q, r]) => on.qr(*a, *q, *r),
            (Linalg::Svd { .. }, [a], [u, s, vh]) => on.svd(*a, *s, Some([*u, *vh])),
            (Linalg::Svd { .. }, [a], [s]) => on.svd(*a, *s, None),
            (Linalg::Eigh, [a], [values, vectors]) => on.eigh(*a, *values, Some(*vectors)),
            (Linalg::Eigh, [a], [values]) => on.eigh(*a, *values, None),
            _ => Err(declined()),
        }
    }
}

/// A batch on a device.
struct On<'a> {
    gpu: &'a Gpu,
    solver: &'a Locked<dyn Solver>,
    b: Batch,
}

impl Deref for On<'_> {
    type Target = Gpu;

    fn deref(&self) -> &Gpu {
        self.gpu
    }
}

impl On<'_> {
    /// Runs a routine on every matrix with its workspace, waits, and returns the status of each.
    fn each(&self, routine: impl Fn(usize) -> Routine) -> Result<Vec<i32>> {
        let infos = self.temporary(&[self.b.count], DType::I32)?;
        let stream = self.stream()?;
        let mut solver = lock(self.solver);
        solver.set_stream(stream)?;
        let [device_bytes, host_bytes] = solver.room(&routine(0), self.b.dtype)?;
        let scratch = self.scratch(device_bytes)?;
        let mut host = vec![0u8; host_bytes];
        let room = Room { device: scratch.ptr, device_bytes, host: host.as_mut_ptr(), host_bytes };
        for i in 0..self.b.count {
            let info = address(infos.view()) + (i * size_of::<i32>()) as u64;
            // SAFETY: the callers' matrices have the given sizes, and the workspace has the requested size.
            unsafe { solver.run(&routine(i), self.b.dtype, &room, info)? };
        }
        drop(solver);
        self.said(&infos)
    }

    /// The status of each matrix.
    fn said(&self, infos: &Temporary) -> Result<Vec<i32>> {
        let mut bytes = vec![0u8; size_of::<i32>() * self.b.count];
        self.read(address(infos.view()), &mut bytes)?;
        Ok(bytes.chunks_exact(4).map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// Fails if a matrix, or its lower triangle, has a non-finite number: iterative routines would not terminate
    /// well.
    fn must_be_finite(&self, call: &str, a: View, lower: bool) -> Result<()> {
        let b = &self.b;
        let found = self.temporary(&[b.count], DType::I32)?;
        self.find_not_finite(a, [b.count, b.m, b.n], lower, found.view())?;
        let why = "The algorithm failed to converge because the input matrix contained non-finite values.";
        b.all_well(call, &self.said(&found)?, |_| why.into())
    }
}
