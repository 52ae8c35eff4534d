//! Convolutions by MIOpen's immediate mode, if it is installed; the engine has its own kernels for all of them.

use crate::api;
use rushlight_core::backend::Conv;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Error, Result};
use rushlight_gpu::vendor::conv_library::{Dense, Descriptors, MAX_PLANS, Shapes, WORKSPACE, numbers};
use rushlight_gpu::vendor::driver::{Convolutions, DevicePtr, Handle};
use rushlight_gpu::{Gpu, Order, Pass, Recent};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

type Choose = unsafe extern "C" fn(Handle, Handle, Handle, Handle, Handle, usize, *mut usize, *mut Solution) -> i32;
type Compile = unsafe extern "C" fn(Handle, Handle, Handle, Handle, Handle, u64) -> i32;
type Run = unsafe extern "C" fn(
    Handle,
    Handle,
    DevicePtr,
    Handle,
    DevicePtr,
    Handle,
    Handle,
    DevicePtr,
    DevicePtr,
    usize,
    u64,
) -> i32;

api! {
    /// The library of convolutions.
    Miopen(
        "MIOpen (libMIOpen)",
        &["libMIOpen.so.1", "libMIOpen.so"],
        "Install MIOpen, a part of ROCm, or name its directory in RUSHLIGHT_HIP_PATH; without it convolutions are slower."
    ) {
        fn version = "miopenGetVersion" (*mut usize, *mut usize, *mut usize);
        fn create = "miopenCreateWithStream" (*mut Handle, Handle);
        fn set_stream = "miopenSetStream" (Handle, Handle);
        fn tensor_create = "miopenCreateTensorDescriptor" (*mut Handle);
        fn tensor_destroy = "miopenDestroyTensorDescriptor" (Handle);
        fn tensor_set = "miopenSetTensorDescriptor" (Handle, c_int, c_int, *const c_int, *const c_int);
        fn conv_create = "miopenCreateConvolutionDescriptor" (*mut Handle);
        fn conv_destroy = "miopenDestroyConvolutionDescriptor" (Handle);
        fn conv_set = "miopenInitConvolutionNdDescriptor" (Handle, c_int, *const c_int, *const c_int, *const c_int, c_int);
        fn conv_groups = "miopenSetConvolutionGroupCount" (Handle, c_int);
        fn choose_forward = "miopenConvolutionForwardGetSolution" (Handle, Handle, Handle, Handle, Handle, usize, *mut usize, *mut Solution);
        fn choose_input = "miopenConvolutionBackwardDataGetSolution" (Handle, Handle, Handle, Handle, Handle, usize, *mut usize, *mut Solution);
        fn choose_weight = "miopenConvolutionBackwardWeightsGetSolution" (Handle, Handle, Handle, Handle, Handle, usize, *mut usize, *mut Solution);
        fn compile_forward = "miopenConvolutionForwardCompileSolution" (Handle, Handle, Handle, Handle, Handle, u64);
        fn compile_input = "miopenConvolutionBackwardDataCompileSolution" (Handle, Handle, Handle, Handle, Handle, u64);
        fn compile_weight = "miopenConvolutionBackwardWeightsCompileSolution" (Handle, Handle, Handle, Handle, Handle, u64);
        fn forward = "miopenConvolutionForwardImmediate" (
            Handle, Handle, DevicePtr, Handle, DevicePtr, Handle, Handle, DevicePtr, DevicePtr, usize, u64,
        );
        fn input = "miopenConvolutionBackwardDataImmediate" (
            Handle, Handle, DevicePtr, Handle, DevicePtr, Handle, Handle, DevicePtr, DevicePtr, usize, u64,
        );
        fn weight = "miopenConvolutionBackwardWeightsImmediate" (
            Handle, Handle, DevicePtr, Handle, DevicePtr, Handle, Handle, DevicePtr, DevicePtr, usize, u64,
        );
        optional fn conv_attribute = "miopenSetConvolutionAttribute" (Handle, c_int, c_int);
    }
}

/// `miopenConvSolution_t`: an algorithm for a convolution.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Solution {
    time: f32,
    workspace: usize,
    id: u64,
    algorithm: c_int,
}

/// `MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC`.
const DETERMINISTIC: c_int = 1;
/// The number of solutions to query.
const SOLUTIONS: usize = 8;

impl Miopen {
    /// The version, such as 3.2.0.
    pub fn number(&self) -> Result<String> {
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: three numbers to write to.
        match unsafe { (self.version)(&mut major, &mut minor, &mut patch) } {
            0 => Ok(format!("{major}.{minor}.{patch}")),
            code => Err(Error::device(format!("miopenGetVersion failed with status {code}"))),
        }
    }

    /// The three library functions of one computation.
    fn functions(&self, pass: Pass) -> (Choose, Compile, Run) {
        match pass {
            Pass::Forward => (self.choose_forward, self.compile_forward, self.forward),
            Pass::Input => (self.choose_input, self.compile_input, self.input),
            Pass::Weight => (self.choose_weight, self.compile_weight, self.weight),
        }
    }
}

/// A prepared convolution: descriptors of the two operands and the result, in the order of the library's arguments.
struct Plan {
    _descriptors: Descriptors,
    operands: [Handle; 2],
    result: Handle,
    conv: Handle,
    solution: u64,
    workspace: usize,
}

// SAFETY: handles are used under the library's lock.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

type PlanKey = (Pass, [usize; 22], DType, Order);

struct State {
    handle: Handle,
    /// The stream that the handle currently uses.
    stream: Handle,
    /// `None` if the library does not support the problem.
    plans: Recent<PlanKey, Option<Arc<Plan>>>,
}

/// The library with its plans, for one device. Lives as long as the process.
pub struct Library {
    api: &'static Miopen,
    /// The library's handle. One thread at a time may use it.
    state: Mutex<State>,
}
// SAFETY: handles are used under the lock.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

fn check(call: &str, code: i32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::device(format!("MIOpen: {call} failed with status {code}"))) }
}

/// Whether the library is turned off (`RUSHLIGHT_HIP_MIOPEN=0`).
pub fn is_off() -> bool {
    static OFF: OnceLock<bool> = OnceLock::new();
    *OFF.get_or_init(|| std::env::var_os("RUSHLIGHT_HIP_MIOPEN").is_some_and(|v| v == "0"))
}

impl Library {
    /// The library for the device whose context is current.
    pub fn new() -> Result<Self> {
        crate::cache::place();
        let api = Miopen::get()?;
        let (mut handle, stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a handle to write to; the null stream is the default one.
        check("miopenCreateWithStream", unsafe { (api.create)(&mut handle, stream) })?;
        Ok(Self { api, state: Mutex::new(State { handle, stream, plans: Recent::new(MAX_PLANS) }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Descriptor of a dense tensor; `None` if the library does not support it.
    fn tensor(&self, t: &Dense, dtype: c_int, all: &mut Descriptors) -> Result<Option<Handle>> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the arrays have the given number of sizes and strides.
        unsafe {
            check("miopenCreateTensorDescriptor", (self.api.tensor_create)(&mut handle))?;
            all.push(self.api.tensor_destroy, handle);
            let rc = (self.api.tensor_set)(handle, dtype, t.sizes.len() as c_int, t.sizes.as_ptr(), t.strides.as_ptr());
            Ok((rc == 0).then_some(handle))
        }
    }

    /// Describes a convolution, selects a solution and compiles it; `None` if the library has no solution.
    fn make_plan(&self, handle: Handle, (pass, s, dtype, order): (Pass, &Conv, DType, Order)) -> Result<Option<Plan>> {
        // `miopenHalf`, `miopenFloat`, `miopenBFloat16`.
        let kind = match dtype {
            DType::F16 => 0,
            DType::F32 => 1,
            DType::BF16 => 5,
            _ => return Ok(None),
        };
        let Some(shapes) = Shapes::new(s, order) else { return Ok(None) };
        let mut all = Descriptors::default();
        let mut tensors = [std::ptr::null_mut(); 3];
        for (tensor, shape) in tensors.iter_mut().zip([&shapes.x, &shapes.w, &shapes.y]) {
            let Some(made) = self.tensor(shape, kind, &mut all)? else { return Ok(None) };
            *tensor = made;
        }
        let [x, w, y] = tensors;
        let (operands, result) = match pass {
            Pass::Forward => ([w, x], y),
            Pass::Input => ([y, w], x),
            Pass::Weight => ([y, x], w),
        };
        let Shapes { padding, stride, dilation, .. } = &shapes;
        let (choose, compile, _) = self.api.functions(pass);
        let (mut conv, mut found, mut list) = (std::ptr::null_mut(), 0, [Solution::default(); SOLUTIONS]);
        let (api, length) = (self.api, padding.len() as c_int);
        // SAFETY: the arrays have the lengths passed with them; descriptors live as long as the plan.
        unsafe {
            check("miopenCreateConvolutionDescriptor", (api.conv_create)(&mut conv))?;
            all.push(api.conv_destroy, conv);
            let rc = (api.conv_set)(conv, length, padding.as_ptr(), stride.as_ptr(), dilation.as_ptr(), 0);
            if rc != 0 || (api.conv_groups)(conv, s.groups as c_int) != 0 {
                return Ok(None);
            }
            if let Some(set) = api.conv_attribute {
                set(conv, DETERMINISTIC, 1);
            }
            let [a, b] = operands;
            if choose(handle, a, b, conv, result, SOLUTIONS, &mut found, list.as_mut_ptr()) != 0 {
                return Ok(None);
            }
            let best = list[..found.min(SOLUTIONS)].iter().find(|s| s.workspace <= WORKSPACE);
            let Some(&Solution { id, workspace, .. }) = best else { return Ok(None) };
            if compile(handle, a, b, conv, result, id) != 0 {
                return Ok(None);
            }
            Ok(Some(Plan { _descriptors: all, operands, result, conv, solution: id, workspace }))
        }
    }

    /// Launches a convolution on operands and result at these addresses.
    fn start(&self, pass: Pass, plan: &Plan, [x, w, y, room]: [DevicePtr; 4], stream: Handle) -> Result<()> {
        let mut state = self.state();
        if state.stream != stream {
            // SAFETY: a handle and a stream of ours.
            check("miopenSetStream", unsafe { (self.api.set_stream)(state.handle, stream) })?;
            state.stream = stream;
        }
        let ([a, b], to) = match pass {
            Pass::Forward => ([w, x], y),
            Pass::Input => ([y, w], x),
            Pass::Weight => ([y, x], w),
        };
        let (_, _, run) = self.api.functions(pass);
        let ([first, second], Plan { result, conv, workspace, solution, .. }) = (plan.operands, plan);
        // SAFETY: addresses have the descriptors' sizes, by the caller's views and the plan; the handle is ours while
        // we hold the lock.
        let status = unsafe { run(state.handle, first, a, second, b, *conv, *result, to, room, *workspace, *solution) };
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
        let plan = {
            let state = &mut *self.state();
            let key = (pass, numbers(spec), dtype, order);
            let make = || self.make_plan(state.handle, (pass, spec, dtype, order));
            // Compilation loads kernels, which is forbidden on a recording thread outside this scope.
            state.plans.get_or_make(&key, || Ok::<_, Error>(gpu.driver.relaxed(make)?.map(Arc::new)))?
        };
        let Some(plan) = plan else { return Ok(false) };
        let workspace = if plan.workspace > 0 { Some(gpu.scratch(plan.workspace)?) } else { None };
        let room = workspace.as_ref().map_or(0, |w| w.ptr);
        gpu.submit(move |_, stream| self.start(pass, &plan, [x, w, y, room], stream))?;
        Ok(true)
    }
}
