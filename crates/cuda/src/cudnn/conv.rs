//! Convolutions through cuDNN; without it the engine uses its own kernels.

use super::{Library, check};
use rushlight_core::backend::{Conv, allow_tf32_conv};
use rushlight_core::{DType, Result};
use rushlight_gpu::vendor::conv_library::{Dense, Descriptors, Shapes, WORKSPACE, numbers};
use rushlight_gpu::vendor::driver::{Convolutions, DevicePtr, Handle};
use rushlight_gpu::{Gpu, Order, Pass, Recent};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// The library's report on an algorithm (`cudnnConvolutionFwdAlgoPerf_t` and its like).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Algorithm {
    algorithm: c_int,
    status: c_int,
    time: f32,
    memory: usize,
    deterministic: c_int,
    math: c_int,
    reserved: [c_int; 3],
}

/// The number of algorithms to query.
const ALGORITHMS: usize = 10;
/// `CUDNN_FMA_MATH`: arithmetic in the inputs' own precision.
const EXACT: c_int = 3;

/// A convolution prepared.
pub struct Plan {
    _descriptors: Descriptors,
    x: Handle,
    w: Handle,
    y: Handle,
    conv: Handle,
    algorithm: c_int,
    math: c_int,
    workspace: usize,
}

// SAFETY: handles are used under the library's lock.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

type PlanKey = (Pass, [usize; 22], DType, bool, Order);

/// `None` if the library does not support the problem.
pub type Plans = Recent<PlanKey, Option<Arc<Plan>>>;

impl Library {
    /// Descriptor of a dense tensor; `None` if the library does not take it.
    fn tensor(&self, t: &Dense, dtype: c_int, descriptors: &mut Descriptors) -> Result<Option<Handle>> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the arrays have the given number of sizes and strides.
        unsafe {
            check("cudnnCreateTensorDescriptor", (self.api.tensor_create)(&mut handle))?;
            descriptors.push(self.api.tensor_destroy, handle);
            let rc = (self.api.tensor_set)(handle, dtype, t.sizes.len() as c_int, t.sizes.as_ptr(), t.strides.as_ptr());
            Ok((rc == 0).then_some(handle))
        }
    }

    /// How to compute a convolution; `None` if the library does not.
    fn plan(&self, what: (Pass, &Conv, DType, bool, Order)) -> Result<Option<Arc<Plan>>> {
        let (pass, s, dtype, tf32, order) = what;
        let state = &mut *self.state();
        let key = (pass, numbers(s), dtype, tf32, order);
        state.convolutions.get_or_make(&key, || Ok(self.make_plan(state.handle, what)?.map(Arc::new)))
    }

    /// Describes a convolution and queries its algorithm; `None` if the library has none.
    fn make_plan(
        &self,
        handle: Handle,
        (pass, s, dtype, tf32, order): (Pass, &Conv, DType, bool, Order),
    ) -> Result<Option<Plan>> {
        let (kind, compute) = match dtype {
            DType::F64 => (1, 1),
            DType::F16 => (2, 0),
            DType::BF16 => (9, 0),
            _ => (0, 0),
        };
        // Tensor cores for half types; for f32 the default lets them be used too.
        let math = if dtype.size() == 2 {
            1
        } else if tf32 || dtype == DType::F64 {
            0
        } else {
            EXACT
        };
        let Some(shapes) = Shapes::new(s, order) else { return Ok(None) };
        let mut descriptors = Descriptors::default();
        let Some(x) = self.tensor(&shapes.x, kind, &mut descriptors)? else { return Ok(None) };
        let Some(y) = self.tensor(&shapes.y, kind, &mut descriptors)? else { return Ok(None) };
        let Shapes { w: Dense { sizes: filter, .. }, padding, stride, dilation, .. } = &shapes;
        let (mut w, mut conv) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (mut found, mut list) = (0, [Algorithm::default(); ALGORITHMS]);
        let api = self.api;
        // SAFETY: arrays are as long as is said; descriptors live as long as the plan.
        unsafe {
            check("cudnnCreateFilterDescriptor", (api.filter_create)(&mut w))?;
            descriptors.push(api.filter_destroy, w);
            check("cudnnCreateConvolutionDescriptor", (api.conv_create)(&mut conv))?;
            descriptors.push(api.conv_destroy, conv);
            let length = padding.len() as c_int;
            let described = (api.filter_set)(w, kind, order as c_int, filter.len() as c_int, filter.as_ptr()) == 0
                && (api.conv_set)(conv, length, padding.as_ptr(), stride.as_ptr(), dilation.as_ptr(), 1, compute) == 0
                && (api.conv_groups)(conv, s.groups as c_int) == 0
                && (api.conv_math)(conv, math) == 0;
            if !described {
                return Ok(None);
            }
            let (n, list) = (ALGORITHMS as c_int, list.as_mut_ptr());
            let rc = match pass {
                Pass::Forward => (api.choose_forward)(handle, x, w, conv, y, n, &mut found, list),
                Pass::Input => (api.choose_input)(handle, w, y, conv, x, n, &mut found, list),
                Pass::Weight => (api.choose_weight)(handle, x, y, conv, w, n, &mut found, list),
            };
            if rc != 0 {
                return Ok(None);
            }
        }
        // A suggestion may use other arithmetic than requested, but not less precise than allowed.
        let suits = |a: &&Algorithm| {
            a.status == 0 && a.deterministic == 1 && a.memory <= WORKSPACE && (a.math == math || math != EXACT)
        };
        let best = list[..found.clamp(0, ALGORITHMS as c_int) as usize].iter().find(suits);
        Ok(best.map(|a| Plan {
            _descriptors: descriptors,
            x,
            w,
            y,
            conv,
            algorithm: a.algorithm,
            math: a.math,
            workspace: a.memory,
        }))
    }

    /// Starts a convolution.
    fn start(&self, pass: Pass, plan: &Plan, dtype: DType, [x, w, y, room]: [DevicePtr; 4], own: Handle) -> Result<()> {
        let state = self.on(own)?;
        let handle = state.handle;
        let (wide, narrow) = ([1.0f64, 0.0], [1.0f32, 0.0]);
        let factor = |i: usize| -> *const c_void {
            if dtype == DType::F64 { (&raw const wide[i]).cast() } else { (&raw const narrow[i]).cast() }
        };
        let (one, zero, api) = (factor(0), factor(1), self.api);
        let Plan { conv, algorithm, workspace, .. } = *plan;
        // SAFETY: addresses have the descriptors' sizes, by the caller's views and the plan; the handle is ours while
        // we hold the lock.
        let status = unsafe {
            check("cudnnSetConvolutionMathType", (api.conv_math)(conv, plan.math))?;
            match pass {
                Pass::Forward => {
                    (api.forward)(handle, one, plan.x, x, plan.w, w, conv, algorithm, room, workspace, zero, plan.y, y)
                }
                Pass::Input => {
                    (api.input)(handle, one, plan.w, w, plan.y, y, conv, algorithm, room, workspace, zero, plan.x, x)
                }
                Pass::Weight => {
                    (api.weight)(handle, one, plan.x, x, plan.y, y, conv, algorithm, room, workspace, zero, plan.w, w)
                }
            }
        };
        check("convolution", status)
    }
}

impl Convolutions for Library {
    fn convolve(
        &'static self,
        gpu: &Gpu,
        pass: Pass,
        spec: &Conv,
        dtype: DType,
        order: Order,
        [x, w, y]: [DevicePtr; 3],
    ) -> Result<bool> {
        let tf32 = dtype == DType::F32 && allow_tf32_conv();
        let Some(plan) = self.plan((pass, spec, dtype, tf32, order))? else { return Ok(false) };
        let workspace = if plan.workspace > 0 { Some(gpu.scratch(plan.workspace)?) } else { None };
        let room = workspace.as_ref().map_or(0, |w| w.ptr);
        gpu.submit(move |_, stream| self.start(pass, &plan, dtype, [x, w, y, room], stream))?;
        Ok(true)
    }
}
