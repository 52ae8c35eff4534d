//! Matrix products by cuBLASLt, with bias, ReLU and GELU fused.

use crate::cublaslt::{CublasLt, Heuristic, compute, data, desc, epilogue, layout, preference};
use rushlight_core::backend::{Activation, allow_tf32};
use rushlight_core::{DType, Error, Result};
use rushlight_gpu::driver::{DevicePtr, Handle, Products, Rest};
use rushlight_gpu::{Gelu, Gemm, Gpu, Recent};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard};

/// Most workspace an algorithm may ask for.
const WORKSPACE: usize = 32 << 20;
/// Most plans that are kept.
const MAX_PLANS: usize = 4096;
/// Everything is fused.
const NOTHING: Rest = Rest { bias: false, activation: false };

/// A matrix as the library sees it: column-major, perhaps transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Matrix {
    rows: u64,
    columns: u64,
    step: i64,
    batch_stride: i64,
    transposed: bool,
}

/// What a plan depends on.
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

/// A product prepared: what the library was told, and what it suggested.
struct Plan {
    api: &'static CublasLt,
    desc: Handle,
    a: Handle,
    b: Handle,
    out: Handle,
    algorithm: [u64; 8],
    workspace: usize,
}

// SAFETY: as for the library.
unsafe impl Send for Plan {}
// SAFETY: as for the library.
unsafe impl Sync for Plan {}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: handles of ours that no call uses any more; the library copies what work under way needs of them.
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
    api: &'static CublasLt,
    handle: Handle,
    /// `None` for products that the library does not take.
    plans: Mutex<Plans>,
}
// SAFETY: handles of the library may be used from any thread; plans are changed under a lock.
unsafe impl Send for Lt {}
// SAFETY: as above.
unsafe impl Sync for Lt {}

fn check(call: &str, code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::device(format!("cuBLASLt: {call} failed with status {code}"))) }
}

/// `op(M)` with `rows` rows, whose element `(r, c)` lies at `r * row_stride + c * column_stride`; `None` if neither stride is one.
fn matrix(rows: usize, columns: usize, batch_stride: usize, row_stride: usize, column_stride: usize) -> Option<Matrix> {
    let batch_stride = batch_stride as i64;
    let step = |stride: usize, least: usize, count: usize| {
        // With one line there is no step between lines.
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

/// How well an address is aligned, up to what the library asks about.
fn alignment(ptr: u64) -> u32 {
    1 << ptr.trailing_zeros().min(8)
}

impl Lt {
    pub fn new() -> Result<Self> {
        let api = CublasLt::get()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a handle to write to.
        check("cublasLtCreate", unsafe { (api.create)(&mut handle) })?;
        Ok(Self { api, handle, plans: Mutex::new(Recent::new(MAX_PLANS)) })
    }

    fn layout(&self, m: Matrix, dtype: i32, batch: u64) -> Result<Handle> {
        let mut handle = std::ptr::null_mut();
        let count = batch as i32;
        // SAFETY: attributes are passed with their sizes.
        unsafe {
            check(
                "cublasLtMatrixLayoutCreate",
                (self.api.layout_create)(&mut handle, dtype, m.rows, m.columns, m.step),
            )?;
            let set = |which: i32, value: *const c_void, size: usize| {
                check("cublasLtMatrixLayoutSetAttribute", (self.api.layout_set)(handle, which, value, size))
            };
            set(layout::BATCH_COUNT, (&raw const count).cast(), 4)?;
            set(layout::BATCH_STRIDE, (&raw const m.batch_stride).cast(), 8)?;
        }
        Ok(handle)
    }

    fn plans(&self) -> MutexGuard<'_, Plans> {
        self.plans.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// How to compute a product; `None` if the library does not.
    fn plan(&self, key: &PlanKey) -> Result<Option<Arc<Plan>>> {
        self.plans().get_or_make(key, || Ok(self.make_plan(key)?.map(Arc::new)))
    }

    /// Starts a product of matrices at these addresses, which have the layouts of the plan, with this room to work in.
    fn run(
        &self,
        plan: &Plan,
        g: &Gemm,
        [a, b, room]: [DevicePtr; 3],
        bias: Option<DevicePtr>,
        stream: Handle,
    ) -> Result<()> {
        let (wide, narrow) = ([g.alpha, g.beta], [g.alpha as f32, g.beta as f32]);
        let factor = |i: usize| -> *const c_void {
            if g.dtype == DType::F64 { (&raw const wide[i]).cast() } else { (&raw const narrow[i]).cast() }
        };
        // The addresses in a plan's descriptor are those of whoever holds the lock.
        let _turn = self.plans();
        let api = self.api;
        // SAFETY: as the caller says.
        let rc = unsafe {
            let set = |which: i32, address: DevicePtr| {
                let rc = (api.desc_set)(plan.desc, which, (&raw const address).cast(), 8);
                check("cublasLtMatmulDescSetAttribute", rc)
            };
            if let Some(bias) = bias {
                set(desc::BIAS_POINTER, bias)?;
            }
            if let Some(Gelu::Keep(kept) | Gelu::Backward(kept)) = g.gelu {
                set(desc::AUX_POINTER, kept)?;
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
                &plan.algorithm,
                room,
                plan.workspace,
                stream,
            )
        };
        check("cublasLtMatmul", rc)
    }

    /// Runs a plan; `false` if the library has none.
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

    /// Asks the library how to compute a product; `None` if it does not.
    fn make_plan(&self, key: &PlanKey) -> Result<Option<Plan>> {
        let (kind, how, scale) = match key.dtype {
            DType::F64 => (data::F64, compute::F64, data::F64),
            DType::F16 => (data::F16, compute::F32, data::F32),
            DType::BF16 => (data::BF16, compute::F32, data::F32),
            _ => (data::F32, if key.tf32 { compute::TF32 } else { compute::F32 }, data::F32),
        };
        let (mut desc, mut preference) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: attributes are passed with their sizes; handles live until destroyed below, or as long as the plan.
        unsafe {
            check("cublasLtMatmulDescCreate", (self.api.desc_create)(&mut desc, how, scale))?;
            let set = |which: i32, value: i32| {
                let rc = (self.api.desc_set)(desc, which, (&raw const value).cast(), 4);
                check("cublasLtMatmulDescSetAttribute", rc)
            };
            set(desc::TRANSPOSE_A, key.a.transposed as i32)?;
            set(desc::TRANSPOSE_B, key.b.transposed as i32)?;
            set(desc::EPILOGUE, key.epilogue)?;
            if key.epilogue & epilogue::AUX != 0 {
                let step = key.out.rows as i64;
                let rc = (self.api.desc_set)(desc, desc::AUX_STEP, (&raw const step).cast(), 8);
                check("cublasLtMatmulDescSetAttribute", rc)?;
            }
            let (a, b) = (self.layout(key.a, kind, key.batch)?, self.layout(key.b, kind, key.batch)?);
            let out_kind = if key.out_dtype == key.dtype { kind } else { data::F32 };
            let out = self.layout(key.out, out_kind, key.batch)?;
            check("cublasLtMatmulPreferenceCreate", (self.api.preference_create)(&mut preference))?;
            let workspace = WORKSPACE;
            check(
                "cublasLtMatmulPreferenceSetAttribute",
                (self.api.preference_set)(preference, preference::WORKSPACE, (&raw const workspace).cast(), 8),
            )?;
            let [aligned_a, aligned_b, aligned_out] = key.alignment;
            for (i, bytes) in [aligned_a, aligned_b, aligned_out, aligned_out].iter().enumerate() {
                let which = preference::ALIGNMENT_A + i as i32;
                check(
                    "cublasLtMatmulPreferenceSetAttribute",
                    (self.api.preference_set)(preference, which, (&raw const *bytes).cast(), 4),
                )?;
            }
            let (mut best, mut found) = (Heuristic::default(), 0);
            let rc = (self.api.heuristic)(self.handle, desc, a, b, out, out, preference, 1, &mut best, &mut found);
            (self.api.preference_destroy)(preference);
            if rc != 0 || found == 0 {
                (self.api.desc_destroy)(desc);
                for handle in [a, b, out] {
                    (self.api.layout_destroy)(handle);
                }
                return Ok(None);
            }
            Ok(Some(Plan { api: self.api, desc, a, b, out, algorithm: best.algorithm, workspace: best.workspace }))
        }
    }
}

impl Products for Lt {
    /// The library wants one stride to be one.
    fn reads(&self, rows: usize, columns: usize, [batch, row, column]: [usize; 3]) -> bool {
        matrix(rows, columns, batch, row, column).is_some()
    }

    fn gemm(&'static self, gpu: &Gpu, g: &Gemm) -> Result<Option<Rest>> {
        let [out_batch, out_row, out_column] = g.out_strides;
        // The library's matrices are column-major: it computes the transposed product, with the operands swapped. Unless the output itself
        // lies by columns.
        let flipped = (out_column == 1 || g.n == 1) && out_row >= g.n;
        let (a, b, out) = if flipped {
            (
                matrix(g.n, g.k, g.b_strides[0], g.b_strides[2], g.b_strides[1]),
                matrix(g.k, g.m, g.a_strides[0], g.a_strides[2], g.a_strides[1]),
                matrix(g.n, g.m, out_batch, out_column, out_row),
            )
        } else {
            (
                matrix(g.m, g.k, g.a_strides[0], g.a_strides[1], g.a_strides[2]),
                matrix(g.k, g.n, g.b_strides[0], g.b_strides[1], g.b_strides[2]),
                matrix(g.m, g.n, out_batch, out_row, out_column),
            )
        };
        let (Some(a), Some(b), Some(out)) = (a, b, out) else { return Ok(None) };
        let fits = |m: &Matrix| m.rows.max(m.columns) <= i32::MAX as u64;
        if out.transposed || ![a, b, out].iter().all(fits) || g.batch > i32::MAX as usize {
            return Ok(None);
        }
        let (a_ptr, b_ptr) = if flipped { (g.b, g.a) } else { (g.a, g.b) };
        // The library's bias goes along its rows, which are our columns if operands are swapped.
        let bias = g.bias.filter(|b| flipped && (b.1 == 1 || g.n == 1)).map(|b| b.0);
        let plan = |epilogue: i32| PlanKey {
            dtype: g.dtype,
            out_dtype: g.out_dtype,
            tf32: g.dtype == DType::F32 && allow_tf32(),
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
