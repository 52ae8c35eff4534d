//! Factorisations by cuSOLVER, triangular systems by cuBLAS. What those do not take, or the CPU does quicker, is declined: the tensor floor then turns
//! to the CPU.
//!
//! The libraries' matrices lie column by column: to them, ours are transposed.

mod orthogonal;
mod solve;

use crate::cusolver::{Cublas, Cusolver};
use rushlight_core::backend::Linalg;
use rushlight_core::{DType, Error, Layout, Result, View};
use rushlight_gpu::driver::{DevicePtr, Factorisations, Handle};
use rushlight_gpu::lt::data;
use rushlight_gpu::{Gpu, Temporary};
use std::ffi::c_int;
use std::ops::Deref;
use std::sync::{Mutex, OnceLock};

/// A library's handle, used by one thread at a time. Lives as long as the process.
pub struct Library<A: 'static> {
    api: &'static A,
    handle: Mutex<Handles>,
}

struct Handles {
    handle: Handle,
    params: Handle,
}

// SAFETY: handles of the libraries, used under the lock.
unsafe impl Send for Handles {}

pub type Solver = Library<Cusolver>;
pub type Triangular = Library<Cublas>;

fn check(call: &str, code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::device(format!("{call} failed with status {code}"))) }
}

impl<A> Library<A> {
    fn handles(&self) -> std::sync::MutexGuard<'_, Handles> {
        self.handle.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Solver {
    fn new() -> Result<Self> {
        let api = Cusolver::get()?;
        let (mut handle, mut params) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: handles to write to.
        unsafe {
            check("cusolverDnCreate", (api.create)(&mut handle))?;
            check("cusolverDnCreateParams", (api.create_params)(&mut params))?;
        }
        Ok(Self { api, handle: Mutex::new(Handles { handle, params }) })
    }
}

impl Triangular {
    fn new() -> Result<Self> {
        let api = Cublas::get()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a handle to write to.
        check("cublasCreate", unsafe { (api.create)(&mut handle) })?;
        Ok(Self { api, handle: Mutex::new(Handles { handle, params: std::ptr::null_mut() }) })
    }
}

/// A batch of matrices of one size.
#[derive(Clone, Copy)]
struct Batch {
    count: usize,
    m: usize,
    n: usize,
    dtype: DType,
    /// Whether there is no batch, so that errors name no element of one.
    single: bool,
}

impl Batch {
    fn kind(&self) -> c_int {
        if self.dtype == DType::F64 { data::F64 } else { data::F32 }
    }

    /// Matrix `i` of those at `start`, of `elements` each.
    fn at(&self, start: DevicePtr, i: usize, elements: usize) -> DevicePtr {
        start + (i * elements * self.dtype.size()) as u64
    }

    /// Fails for the first matrix that a routine said something of.
    fn all_well(&self, call: &str, infos: &[i32], why: impl Fn(i32) -> String) -> Result<()> {
        let Some((i, &info)) = infos.iter().enumerate().find(|&(_, &info)| info != 0) else { return Ok(()) };
        let element = if self.single { String::new() } else { format!("(Batch element {i}): ") };
        Err(Error::numerical(format!("{call}: {element}{}", why(info))))
    }
}

/// Memory that a routine asks for.
struct Room {
    device: DevicePtr,
    device_bytes: usize,
    host: *mut u8,
    host_bytes: usize,
}

/// What every routine is called by and with.
struct Call {
    api: &'static Cusolver,
    handle: Handle,
    params: Handle,
}

/// A view with rows for columns.
fn turned(v: View) -> Layout {
    let rank = v.layout.rank();
    v.layout.transpose(rank - 2, rank - 1)
}

fn with<'a>(v: View<'a>, layout: &'a Layout) -> View<'a> {
    View { layout, ..v }
}

fn address(v: View) -> DevicePtr {
    v.ptr() as u64
}

/// `RUSHLIGHT_CUDA_SOLVER`: 0 for the CPU, 1 for the GPU, whatever the size.
fn choice() -> Option<bool> {
    static CHOICE: OnceLock<Option<bool>> = OnceLock::new();
    *CHOICE.get_or_init(|| match std::env::var("RUSHLIGHT_CUDA_SOLVER").as_deref() {
        Ok("0") => Some(false),
        Ok("1") => Some(true),
        Ok("") | Err(_) => None,
        Ok(value) => {
            eprintln!("rushlight: RUSHLIGHT_CUDA_SOLVER={value} is unknown (0, 1); choosing by size");
            None
        }
    })
}

/// Whether the GPU is quicker than the CPU with copies both ways: measured on an H200 beside a CPU of 16 cores. The solver takes long for small matrices,
/// and takes them one by one where the CPU takes as many at once as it has cores.
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
#[derive(Default)]
pub struct Routines {
    solver: OnceLock<Result<Solver>>,
    triangular: OnceLock<Result<Triangular>>,
}

impl Factorisations for Routines {
    /// A factorisation of every matrix of a batch; see [`Linalg`]. Where it is declined, the error says so.
    fn linalg(&'static self, gpu: &Gpu, op: Linalg, inputs: &[View], outputs: &[View]) -> Result<()> {
        let declined = || Error::unsupported(format!("{op:?} is not computed on {}; use the CPU", gpu.device()));
        let Some(a) = inputs.first().filter(|a| a.layout.rank() >= 2) else { return Err(declined()) };
        let (lead, rank) = (a.shape(), a.layout.rank());
        let (m, n) = (lead[rank - 2], lead[rank - 1]);
        let b = Batch { count: lead[..rank - 2].iter().product(), m, n, dtype: a.dtype, single: rank == 2 };
        let fits = matches!(a.dtype, DType::F32 | DType::F64)
            && [m, n, b.count].iter().all(|&size| size > 0)
            && inputs.iter().chain(outputs).all(|v| v.dtype == a.dtype && v.layout.is_contiguous())
            && inputs.iter().flat_map(|v| v.shape()).all(|&size| size <= i32::MAX as usize);
        if !fits || !pays(op, &b) {
            return Err(declined());
        }
        let on = On(gpu);
        if let (Linalg::SolveTriangular { upper, unitriangular }, [a, rhs], [x]) = (op, inputs, outputs) {
            let new = || gpu.driver.relaxed(Triangular::new);
            let library = self.triangular.get_or_init(new).as_ref().map_err(|_| declined())?;
            return on.solve_triangular(library, &b, (upper, unitriangular), *a, *rhs, *x);
        }
        let solver = self.solver.get_or_init(Solver::new).as_ref().map_err(|_| declined())?;
        gpu.refuse_recording(&format!("{op:?}, a factorisation,"))?;
        match (op, inputs, outputs) {
            (Linalg::Det, [a], [det]) => on.determinant(solver, &b, *a, *det, None),
            (Linalg::Slogdet, [a], [sign, log]) => on.determinant(solver, &b, *a, *sign, Some(*log)),
            (Linalg::Inv, [a], [out]) => on.inverse(solver, &b, *a, *out),
            (Linalg::Solve, [a, rhs], [x]) => on.solve(solver, &b, *a, *rhs, *x),
            (Linalg::Cholesky, [a], [l]) => on.cholesky(solver, &b, *a, *l),
            (Linalg::Qr { .. }, [a], [q, r]) => on.qr(solver, &b, *a, *q, *r),
            (Linalg::Svd { .. }, [a], [u, s, vh]) => on.svd(solver, &b, *a, *s, Some([*u, *vh])),
            (Linalg::Svd { .. }, [a], [s]) => on.svd(solver, &b, *a, *s, None),
            (Linalg::Eigh, [a], [values, vectors]) => on.eigh(solver, &b, *a, *values, Some(*vectors)),
            (Linalg::Eigh, [a], [values]) => on.eigh(solver, &b, *a, *values, None),
            _ => Err(declined()),
        }
    }
}

/// A device as the routines see it.
struct On<'a>(&'a Gpu);

impl Deref for On<'_> {
    type Target = Gpu;

    fn deref(&self) -> &Gpu {
        self.0
    }
}

impl On<'_> {
    /// Runs a routine on every matrix, with the memory it asks for, and waits: what it says of each.
    fn each(
        &self,
        (solver, name, batch): (&'static Solver, &str, &Batch),
        ask: impl FnOnce(&Call, &mut usize, &mut usize) -> c_int,
        run: impl Fn(&Call, usize, &Room, DevicePtr) -> c_int,
    ) -> Result<Vec<i32>> {
        let infos = self.temporary(&[batch.count], DType::I32)?;
        let (stream, handles) = (self.stream()?, solver.handles());
        let call = Call { api: solver.api, handle: handles.handle, params: handles.params };
        // SAFETY: a handle and a stream of ours.
        check("cusolverDnSetStream", unsafe { (call.api.set_stream)(call.handle, stream) })?;
        let (mut device_bytes, mut host_bytes) = (0, 0);
        check(name, ask(&call, &mut device_bytes, &mut host_bytes))?;
        let scratch = self.scratch(device_bytes)?;
        let mut host = vec![0u8; host_bytes];
        let room = Room { device: scratch.ptr, device_bytes, host: host.as_mut_ptr(), host_bytes };
        for i in 0..batch.count {
            let info = address(infos.view()) + (i * size_of::<c_int>()) as u64;
            check(name, run(&call, i, &room, info))?;
        }
        drop(handles);
        self.said(&infos, batch)
    }

    /// What was said of each matrix.
    fn said(&self, infos: &Temporary, batch: &Batch) -> Result<Vec<i32>> {
        let mut bytes = vec![0u8; size_of::<c_int>() * batch.count];
        self.read(address(infos.view()), &mut bytes)?;
        Ok(bytes.chunks_exact(4).map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// Fails if a matrix, or its lower triangle, has a number that is not finite: routines that iterate would not end well.
    fn must_be_finite(&self, call: &str, b: &Batch, a: View, lower: bool) -> Result<()> {
        let found = self.temporary(&[b.count], DType::I32)?;
        self.find_not_finite(a, [b.count, b.m, b.n], lower, found.view())?;
        let why = "The algorithm failed to converge because the input matrix contained non-finite values.";
        b.all_well(call, &self.said(&found, b)?, |_| why.into())
    }
}
