//! Matrix products by cuBLASLt or hipBLASLt, with bias, ReLU and GELU fused. The libraries have the same functions and
//! different constants for the same attributes: a vendor's crate provides both in a [`Table`].

use crate::device::Gpu;
use crate::families::matmul::{Gelu, Gemm};
use crate::launch::recent::Recent;
use crate::vendor::driver::{DevicePtr, Handle, Products, Rest};
use rushlight_core::backend::Activation;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard};

/// Maximum words of the library's heuristic result for a product.
const ANSWER: usize = 16;

type Set = unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> i32;
type Create = unsafe extern "C" fn(*mut Handle) -> i32;
type Destroy = unsafe extern "C" fn(Handle) -> i32;

/// A library's functions and constants.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "named as the library's functions are")]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Prefix of its functions' names.
    pub prefix: &'static str,
    pub create: Create,
    pub desc_create: unsafe extern "C" fn(*mut Handle, c_int, c_int) -> i32,
    pub desc_set: Set,
    pub desc_destroy: Destroy,
    pub layout_create: unsafe extern "C" fn(*mut Handle, c_int, u64, u64, i64) -> i32,
    pub layout_set: Set,
    pub layout_destroy: Destroy,
    pub preference_create: Create,
    pub preference_set: Set,
    pub preference_destroy: Destroy,
    pub heuristic: Heuristic,
    pub matmul: Matmul,
    pub numbers: Numbers,
}

/// `…MatmulAlgoGetHeuristic`.
pub type Heuristic =
    unsafe extern "C" fn(Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut c_void, *mut c_int) -> i32;

/// `…Matmul`.
pub type Matmul = unsafe extern "C" fn(
    Handle,
    Handle,
    *const c_void,
    DevicePtr,
    Handle,
    DevicePtr,
    Handle,
    *const c_void,
    DevicePtr,
    Handle,
    DevicePtr,
    Handle,
    *const c_void,
    DevicePtr,
    usize,
    Handle,
) -> i32;

/// Constants that differ between the libraries. Data types and epilogues are the same in both.
#[derive(Clone, Copy)]
pub struct Numbers {
    /// Types of computation: `f32`, `f64`, TF32.
    pub compute: [i32; 3],
    /// Operations: none, transpose.
    pub operations: [i32; 2],
    /// Attributes of a product: transposes of A and of B, epilogue, bias pointer, auxiliary pointer and leading
    /// dimension.
    pub desc: [i32; 6],
    /// Attribute of the bias's type, if it must be set.
    pub bias_type: Option<i32>,
    /// Attributes of a matrix: batch count, batch stride.
    pub layout: [i32; 2],
    /// Preference for the alignment of A, followed by those of B, C and D, if the library has one.
    pub alignment: Option<i32>,
    /// Words of an algorithm; the size of its workspace follows them.
    pub algorithm_words: usize,
    /// Whether products of `f64` are supported.
    pub doubles: bool,
    /// Whether products of complex numbers are supported.
    pub complex: bool,
}

/// `cudaDataType_t` and `hipDataType`.
pub mod data {
    /// `…_R_32F`.
    pub const F32: i32 = 0;
    /// `…_R_64F`.
    pub const F64: i32 = 1;
    /// `…_C_32F`.
    pub const C64: i32 = 4;
    /// `…_C_64F`.
    pub const C128: i32 = 5;
    /// `…_R_16F`.
    pub const F16: i32 = 2;
    /// `…_R_16BF`.
    pub const BF16: i32 = 14;
}

/// `…LtEpilogue_t`; the bias is a flag in it.
mod epilogue {
    pub const NONE: i32 = 1;
    pub const RELU: i32 = 2;
    pub const BIAS: i32 = 4;
    pub const GELU: i32 = 32;
    /// Second matrix, written by the forward pass and read by the backward pass: the input of the activation.
    pub const AUX: i32 = 128;
    /// The gradient of GELU, given the saved input.
    pub const DGELU: i32 = 64 | AUX;
}

/// `…_MATMUL_PREF_MAX_WORKSPACE_BYTES`.
const PREFERENCE_WORKSPACE: i32 = 1;

/// Maximum workspace of an algorithm.
const WORKSPACE: usize = 32 << 20;
/// Maximum number of cached plans.
const MAX_PLANS: usize = 4096;
/// Nothing is left to do: the whole epilogue is fused.
const NOTHING: Rest = Rest { bias: false, activation: false };

/// A factor of a product with the imaginary part that complex products read, aligned as their numbers are: the library
/// loads both parts at once.
#[repr(C, align(16))]
struct Factor<T>([T; 2]);

/// A matrix in the libraries' terms: column-major, possibly transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    rows: u64,
    columns: u64,
    /// Column stride in elements.
    pub step: i64,
    /// Batch stride in elements.
    pub batch_stride: i64,
    /// Whether it is transposed.
    pub transposed: bool,
}

/// The key of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PlanKey {
    dtype: DType,
    out_dtype: DType,
    tf32: bool,
    batch: u64,
    a: Matrix,
    b: Matrix,
    out: Matrix,
    epilogue: i32,
    alignment: [u32; 3],
    accumulates: bool,
}

/// A prepared product: its descriptors and the algorithm chosen by the library's heuristic.
struct Plan {
    api: Table,
    desc: Handle,
    a: Handle,
    b: Handle,
    out: Handle,
    algorithm: [u64; ANSWER],
    workspace: usize,
}

// SAFETY: as for the library.
unsafe impl Send for Plan {}
// SAFETY: as for the library.
unsafe impl Sync for Plan {}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: our own handles, no longer in use; running work has its own copies.
        unsafe {
            (self.api.desc_destroy)(self.desc);
            for handle in [self.a, self.b, self.out] {
                (self.api.layout_destroy)(handle);
            }
        }
    }
}

type Plans = Recent<PlanKey, Option<Arc<Plan>>>;

/// The library with its plans. Lives as long as the process.
pub struct Lt {
    api: Table,
    handle: Handle,
    /// `None` for products that the library does not support.
    plans: Mutex<Plans>,
}
// SAFETY: handles of the library may be used from any thread; plans are changed under a lock.
unsafe impl Send for Lt {}
// SAFETY: as above.
unsafe impl Sync for Lt {}

impl Table {
    fn check(&self, call: &str, code: i32) -> Result<()> {
        let Table { name, prefix, .. } = self;
        if code == 0 { Ok(()) } else { Err(Error::device(format!("{name}: {prefix}{call} failed with status {code}"))) }
    }
}

/// `op(M)` with `rows` rows, whose element `(r, c)` is at `r * row_stride + c * column_stride`; `None` if neither
/// stride is one.
fn matrix(rows: usize, columns: usize, batch_stride: usize, row_stride: usize, column_stride: usize) -> Option<Matrix> {
    let batch_stride = batch_stride as i64;
    let step = |stride: usize, least: usize, count: usize| {
        // With a single line the line stride is irrelevant.
        if count == 1 { Some(least.max(1) as i64) } else { (stride >= least.max(1)).then_some(stride as i64) }
    };
    if (row_stride == 1 || rows == 1)
        && let Some(step) = step(column_stride, rows, columns)
    {
        return Some(Matrix { rows: rows as u64, columns: columns as u64, step, batch_stride, transposed: false });
    }
    if column_stride == 1 || columns == 1 {
        let step = step(row_stride, columns, rows)?;
        return Some(Matrix { rows: columns as u64, columns: rows as u64, step, batch_stride, transposed: true });
    }
    None
}

/// The alignment of an address, capped at the largest that the library distinguishes.
fn alignment(ptr: u64) -> u32 {
    1 << ptr.trailing_zeros().min(8)
}

impl Lt {
    /// The library for the device whose context is current.
    pub fn new(api: Table) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a handle to write to.
        api.check("Create", unsafe { (api.create)(&mut handle) })?;
        Ok(Self { api, handle, plans: Mutex::new(Recent::new(MAX_PLANS)) })
    }

    fn layout(&self, m: Matrix, dtype: i32, batch: u64) -> Result<Handle> {
        let mut handle = std::ptr::null_mut();
        let count = batch as i32;
        // SAFETY: attributes are passed with their sizes.
        unsafe {
            self.api
                .check("MatrixLayoutCreate", (self.api.layout_create)(&mut handle, dtype, m.rows, m.columns, m.step))?;
            let set = |which: i32, value: *const c_void, size: usize| {
                self.api.check("MatrixLayoutSetAttribute", (self.api.layout_set)(handle, which, value, size))
            };
            set(self.api.numbers.layout[0], (&raw const count).cast(), 4)?;
            set(self.api.numbers.layout[1], (&raw const m.batch_stride).cast(), 8)?;
        }
        Ok(handle)
    }

    fn plans(&self) -> MutexGuard<'_, Plans> {
        lock(&self.plans)
    }

    /// The plan of a product; `None` if the library does not support it.
    fn plan(&self, key: &PlanKey) -> Result<Option<Arc<Plan>>> {
        self.plans().get_or_make(key, || Ok(self.make_plan(key)?.map(Arc::new)))
    }

    /// Launches a product of matrices at these addresses, laid out as in the plan, with this workspace.
    fn run(
        &self,
        plan: &Plan,
        g: &Gemm,
        [a, b, room]: [DevicePtr; 3],
        bias: Option<DevicePtr>,
        stream: Handle,
    ) -> Result<()> {
        let wide = [g.alpha, g.beta].map(|factor| Factor([factor, 0.0]));
        let narrow = [g.alpha, g.beta].map(|factor| Factor([factor as f32, 0.0]));
        let factor = |i: usize| -> *const c_void {
            match g.dtype {
                DType::F64 | DType::C128 => (&raw const wide[i]).cast(),
                _ => (&raw const narrow[i]).cast(),
            }
        };
        // The lock protects the addresses in a plan's descriptor.
        let _turn = self.plans();
        let (api, numbers) = (&self.api, &self.api.numbers);
        // SAFETY: as the caller says.
        let rc = unsafe {
            let set = |which: i32, address: DevicePtr| {
                let rc = (api.desc_set)(plan.desc, which, (&raw const address).cast(), 8);
                api.check("MatmulDescSetAttribute", rc)
            };
            if let Some(bias) = bias {
                set(numbers.desc[3], bias)?;
            }
            if let Some(Gelu::Keep(kept) | Gelu::Backward(kept)) = g.gelu {
                set(numbers.desc[4], kept)?;
            }
            (api.matmul)(
                self.handle,
                plan.desc,
                factor(0),
                a,
                plan.a,
                b,
                plan.b,
                factor(1),
                g.out,
                plan.out,
                g.out,
                plan.out,
                plan.algorithm.as_ptr().cast(),
                room,
                plan.workspace,
                stream,
            )
        };
        self.api.check("Matmul", rc)
    }

    /// Runs a plan; `false` if the library does not support the product.
    fn run_plan(
        &'static self,
        gpu: &Gpu,
        key: &PlanKey,
        g: &Gemm,
        [a, b]: [DevicePtr; 2],
        bias: Option<DevicePtr>,
    ) -> Result<bool> {
        let Some(plan) = self.plan(key)? else { return Ok(false) };
        let workspace = if plan.workspace > 0 { Some(gpu.scratch(plan.workspace)?) } else { None };
        let (g, room) = (*g, workspace.as_ref().map_or(0, |w| w.ptr));
        gpu.submit(move |_, stream| self.run(&plan, &g, [a, b, room], bias, stream))?;
        Ok(true)
    }

    /// Queries the library's heuristic for a product; `None` if it returns no algorithm.
    fn make_plan(&self, key: &PlanKey) -> Result<Option<Plan>> {
        let numbers = &self.api.numbers;
        let [single, double, tf32] = numbers.compute;
        let (kind, how, scale) = match key.dtype {
            DType::F64 if !numbers.doubles => return Ok(None),
            DType::F64 => (data::F64, double, data::F64),
            DType::C64 | DType::C128 if !numbers.complex => return Ok(None),
            DType::C64 => (data::C64, single, data::C64),
            DType::C128 => (data::C128, double, data::C128),
            DType::F16 => (data::F16, single, data::F32),
            DType::BF16 => (data::BF16, single, data::F32),
            _ => (data::F32, if key.tf32 { tf32 } else { single }, data::F32),
        };
        let (mut desc, mut preference) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: attributes are passed with their sizes; handles live until destroyed below, or as long as the plan.
        unsafe {
            self.api.check("MatmulDescCreate", (self.api.desc_create)(&mut desc, how, scale))?;
            let set = |which: i32, value: i32| {
                let rc = (self.api.desc_set)(desc, which, (&raw const value).cast(), 4);
                self.api.check("MatmulDescSetAttribute", rc)
            };
            set(numbers.desc[0], numbers.operations[key.a.transposed as usize])?;
            set(numbers.desc[1], numbers.operations[key.b.transposed as usize])?;
            set(numbers.desc[2], key.epilogue)?;
            let out_kind = if key.out_dtype == key.dtype { kind } else { data::F32 };
            if let Some(which) = numbers.bias_type.filter(|_| key.epilogue & epilogue::BIAS != 0) {
                set(which, out_kind)?;
            }
            if key.epilogue & epilogue::AUX != 0 {
                let step = key.out.rows as i64;
                let rc = (self.api.desc_set)(desc, numbers.desc[5], (&raw const step).cast(), 8);
                self.api.check("MatmulDescSetAttribute", rc)?;
            }
            let (a, b) = (self.layout(key.a, kind, key.batch)?, self.layout(key.b, kind, key.batch)?);
            let out = self.layout(key.out, out_kind, key.batch)?;
            self.api.check("MatmulPreferenceCreate", (self.api.preference_create)(&mut preference))?;
            let workspace = WORKSPACE;
            self.api.check(
                "MatmulPreferenceSetAttribute",
                (self.api.preference_set)(preference, PREFERENCE_WORKSPACE, (&raw const workspace).cast(), 8),
            )?;
            let [aligned_a, aligned_b, aligned_out] = key.alignment;
            let aligned = [aligned_a, aligned_b, aligned_out, aligned_out];
            for (i, bytes) in aligned.iter().enumerate().filter(|_| numbers.alignment.is_some()) {
                let which = numbers.alignment.unwrap_or(0) + i as i32;
                self.api.check(
                    "MatmulPreferenceSetAttribute",
                    (self.api.preference_set)(preference, which, (&raw const *bytes).cast(), 4),
                )?;
            }
            let (mut best, mut found) = ([0u64; ANSWER], 0);
            let answer = best.as_mut_ptr().cast();
            let rc = (self.api.heuristic)(self.handle, desc, a, b, out, out, preference, 1, answer, &mut found);
            (self.api.preference_destroy)(preference);
            if rc != 0 || found == 0 {
                (self.api.desc_destroy)(desc);
                for handle in [a, b, out] {
                    (self.api.layout_destroy)(handle);
                }
                return Ok(None);
            }
            let workspace = best[numbers.algorithm_words] as usize;
            Ok(Some(Plan { api: self.api, desc, a, b, out, algorithm: best, workspace }))
        }
    }
}

/// A product in the terms of column-major libraries.
impl Lt {
    /// Whether a matrix of these strides (batch, row, column) can be read without packing: one stride is one.
    pub fn takes(rows: usize, columns: usize, [batch, row, column]: [usize; 3]) -> bool {
        matrix(rows, columns, batch, row, column).is_some()
    }

    /// Whether the transposed product is computed, with operands swapped, because the output is row-major.
    pub fn is_flipped(g: &Gemm) -> bool {
        (g.out_strides[2] == 1 || g.n == 1) && g.out_strides[1] >= g.n
    }

    /// The operands, swapped if needed, and the output; `None` if one needs packing or is too large.
    pub fn matrices(g: &Gemm) -> Option<[Matrix; 3]> {
        let [out_batch, out_row, out_column] = g.out_strides;
        let [a, b, out] = if Lt::is_flipped(g) {
            [
                matrix(g.n, g.k, g.b_strides[0], g.b_strides[2], g.b_strides[1])?,
                matrix(g.k, g.m, g.a_strides[0], g.a_strides[2], g.a_strides[1])?,
                matrix(g.n, g.m, out_batch, out_column, out_row)?,
            ]
        } else {
            [
                matrix(g.m, g.k, g.a_strides[0], g.a_strides[1], g.a_strides[2])?,
                matrix(g.k, g.n, g.b_strides[0], g.b_strides[1], g.b_strides[2])?,
                matrix(g.m, g.n, out_batch, out_row, out_column)?,
            ]
        };
        let fits = |m: &Matrix| m.rows.max(m.columns) <= i32::MAX as u64;
        let taken = !out.transposed && [a, b, out].iter().all(fits) && g.batch <= i32::MAX as usize;
        taken.then_some([a, b, out])
    }
}

impl Products for Lt {
    fn reads(&self, rows: usize, columns: usize, strides: [usize; 3]) -> bool {
        Lt::takes(rows, columns, strides)
    }

    fn gemm(&'static self, gpu: &Gpu, g: &Gemm) -> Result<Option<Rest>> {
        let Some([a, b, out]) = Lt::matrices(g) else { return Ok(None) };
        let flipped = Lt::is_flipped(g);
        let (a_ptr, b_ptr) = if flipped { (g.b, g.a) } else { (g.a, g.b) };
        // The library's bias runs along its rows, which are our columns if operands are swapped.
        let bias = g.bias.filter(|b| flipped && (b.1 == 1 || g.n == 1)).map(|b| b.0);
        let plan = |epilogue: i32| PlanKey {
            dtype: g.dtype,
            out_dtype: g.out_dtype,
            tf32: g.dtype == DType::F32 && g.tf32,
            batch: g.batch as u64,
            a,
            b,
            out,
            epilogue,
            alignment: [alignment(a_ptr), alignment(b_ptr), alignment(g.out)],
            accumulates: g.beta != 0.0,
        };
        if let Some(gelu) = g.gelu {
            let (epilogue, vector) = match gelu {
                Gelu::Keep(_) => {
                    (epilogue::GELU | epilogue::AUX | if bias.is_some() { epilogue::BIAS } else { 0 }, bias)
                }
                Gelu::Backward(_) => (epilogue::DGELU, None),
            };
            let fits = flipped && g.bias.is_some() == bias.is_some();
            let done = fits && self.run_plan(gpu, &plan(epilogue), g, [a_ptr, b_ptr], vector)?;
            return Ok(done.then_some(NOTHING));
        }
        let fused = match g.activation {
            Activation::None => Some(epilogue::NONE),
            Activation::Relu => Some(epilogue::RELU),
            Activation::GeluTanh => Some(epilogue::GELU),
            Activation::Gelu => None,
        };
        let whole = fused.filter(|_| g.bias.is_none() || bias.is_some()).map(|activation| {
            let kind = match (activation, bias) {
                (activation, None) => activation,
                (epilogue::NONE, Some(_)) => epilogue::BIAS,
                (activation, Some(_)) => activation | epilogue::BIAS,
            };
            (kind, NOTHING)
        });
        let only_bias = bias.map(|_| (epilogue::BIAS, Rest { bias: false, activation: true }));
        let plain = Some((epilogue::NONE, Rest { bias: g.bias.is_some(), activation: true }));
        for (epilogue, rest) in [whole, only_bias, plain].into_iter().flatten() {
            let key = plan(epilogue);
            let bias = (epilogue & epilogue::BIAS != 0).then_some(bias).flatten();
            if self.run_plan(gpu, &key, g, [a_ptr, b_ptr], bias)? {
                return Ok(Some(rest));
            }
        }
        Ok(None)
    }
}
