//! Convolutions through cuDNN, each a graph of one operation; without the library the engine uses its own kernels.

use super::descriptor::{Kind, Values, name};
use super::{Library, check};
use rushlight_core::backend::{Conv, allow_tf32_conv};
use rushlight_core::{DType, Error, Result};
use rushlight_gpu::vendor::conv_library::{Dense, Descriptors, Shapes, WORKSPACE, numbers};
use rushlight_gpu::vendor::driver::{Convolutions, DevicePtr, Handle};
use rushlight_gpu::{Gpu, Order, Pass, Recent};
use std::ffi::c_int;
use std::sync::Arc;

/// Where the library's suggestions come from, best first: for this GPU (`CUDNN_HEUR_MODE_A`), by a table (`…_INSTANT`,
/// which older versions have), anything that works (`…_FALLBACK`).
const HEURISTICS: [c_int; 3] = [3, 0, 2];
/// Most suggestions that are looked at.
const SUGGESTIONS: usize = 16;
/// `CUDNN_NUMERICAL_NOTE_TENSOR_CORE`: for `f32`, products in TF32.
const TENSOR_CORES: c_int = 0;
/// `…_DOWN_CONVERT_INPUTS`, `…_REDUCED_PRECISION_REDUCTION`, `…_NONDETERMINISTIC`: never used.
const REFUSED: [c_int; 3] = [1, 2, 4];
/// `CUDNN_CROSS_CORRELATION`.
const CROSS_CORRELATION: c_int = 1;
/// Names of the weight, the input and the output in a plan.
const IDS: [i64; 3] = [1, 2, 3];

/// A convolution prepared.
pub struct Plan {
    _descriptors: Descriptors,
    plan: Handle,
    workspace: usize,
}

// SAFETY: handles are used under the library's lock.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

/// A convolution, its dtype, whether TF32 is allowed, the order of memory, and the alignment of its addresses.
type What = (Pass, Conv, DType, bool, Order, i64);
type PlanKey = (Pass, [usize; 22], DType, bool, Order, i64);

/// `None` if the library does not support the problem.
pub type Plans = Recent<PlanKey, Option<Arc<Plan>>>;

impl Library {
    /// How to compute a convolution; `None` if the library does not.
    fn plan(&self, what: &What) -> Result<Option<Arc<Plan>>> {
        let (pass, s, dtype, tf32, order, alignment) = what;
        let state = &mut *self.state();
        let key = (*pass, numbers(s), *dtype, *tf32, *order, *alignment);
        state.convolutions.get_or_make(&key, || Ok(self.make_plan(state.handle, what).map(Arc::new)))
    }

    /// Describes a convolution and chooses an engine; `None` if the library has none.
    fn make_plan(&self, handle: Handle, (pass, s, dtype, tf32, order, alignment): &What) -> Option<Plan> {
        let (kind, compute) = match dtype {
            DType::F64 => (1, 1),
            DType::F16 => (2, 0),
            DType::BF16 => (9, 0),
            _ => (0, 0),
        };
        let Shapes { x, w, y, padding, stride, dilation } = Shapes::new(s, *order)?;
        let mut keep = Descriptors::default();
        let tensor = |t: &Dense, id: i64, keep: &mut Descriptors| {
            let [sizes, strides] = [&t.sizes, &t.strides].map(|v| wide(v));
            let attributes = [
                (name::TENSOR_DTYPE, Values::Dtype(&kind)),
                (name::TENSOR_SIZES, Values::Integers(&sizes)),
                (name::TENSOR_STRIDES, Values::Integers(&strides)),
                (name::TENSOR_ID, Values::Integers(std::slice::from_ref(&id))),
                (name::TENSOR_ALIGNMENT, Values::Integers(std::slice::from_ref(alignment))),
            ];
            self.api.described(Kind::Tensor, &attributes, keep)
        };
        let [w, x, y] =
            [tensor(&w, IDS[0], &mut keep)?, tensor(&x, IDS[1], &mut keep)?, tensor(&y, IDS[2], &mut keep)?];
        let [padding, stride, dilation] = [padding, stride, dilation].map(|v| wide(&v));
        let windows = [
            (name::CONV_COMPUTE, Values::Dtype(&compute)),
            (name::CONV_MODE, Values::ConvMode(&CROSS_CORRELATION)),
            (name::CONV_DIMENSIONS, Values::Integers(&[padding.len() as i64])),
            (name::CONV_DILATIONS, Values::Integers(&dilation)),
            (name::CONV_STRIDES, Values::Integers(&stride)),
            (name::CONV_PADDING_BEFORE, Values::Integers(&padding)),
            (name::CONV_PADDING_AFTER, Values::Integers(&padding)),
        ];
        let conv = self.api.described(Kind::Convolution, &windows, &mut keep)?;
        // Each operation has the same attributes: alpha, beta, the windows, weight, input, output.
        let (kind, first) = match pass {
            Pass::Forward => (Kind::Forward, 700),
            Pass::Input => (Kind::BackwardInput, 706),
            Pass::Weight => (Kind::BackwardWeight, 712),
        };
        let [alpha, beta] = match dtype {
            DType::F64 => [Values::Double(&1.0), Values::Double(&0.0)],
            _ => [Values::Float(&1.0), Values::Float(&0.0)],
        };
        let operands = [conv, w, x, y];
        let [conv, w, x, y] = [0, 1, 2, 3].map(|i| Values::Descriptors(&operands[i..=i]));
        let attributes: Vec<_> = (first..).zip([alpha, beta, conv, w, x, y]).collect();
        let operation = self.api.described(kind, &attributes, &mut keep)?;
        let graph = [
            (name::GRAPH_HANDLE, Values::Library(&handle)),
            (name::GRAPH_OPERATIONS, Values::Descriptors(&[operation])),
        ];
        let graph = self.api.described(Kind::Graph, &graph, &mut keep)?;
        let exact = *dtype == DType::F32 && !tf32;
        HEURISTICS
            .iter()
            .find_map(|mode| self.suggested(handle, graph, mode, exact, &mut keep))
            .map(|(plan, workspace)| Plan { _descriptors: keep, plan, workspace })
    }

    /// The first of the library's suggestions that computes what is asked for, with its workspace.
    fn suggested(
        &self,
        handle: Handle,
        graph: Handle,
        mode: &c_int,
        exact: bool,
        keep: &mut Descriptors,
    ) -> Option<(Handle, usize)> {
        let question = [
            (name::HEURISTICS_GRAPH, Values::Descriptors(std::slice::from_ref(&graph))),
            (name::HEURISTICS_MODE, Values::HeuristicsMode(mode)),
        ];
        let heuristics = self.api.described(Kind::Heuristics, &question, keep)?;
        let configs = self.api.held(heuristics, name::HEURISTICS_RESULTS, Kind::EngineConfig, SUGGESTIONS, keep);
        configs.into_iter().find_map(|config| {
            let engine = *self.api.held(config, name::CONFIG_ENGINE, Kind::Engine, 1, keep).first()?;
            let notes = self.api.notes(engine)?;
            if notes.iter().any(|note| REFUSED.contains(note) || exact && *note == TENSOR_CORES) {
                return None;
            }
            let attributes = [
                (name::PLAN_HANDLE, Values::Library(&handle)),
                (name::PLAN_CONFIG, Values::Descriptors(std::slice::from_ref(&config))),
            ];
            let plan = self.api.described(Kind::Plan, &attributes, keep)?;
            let workspace = usize::try_from(self.api.integer(plan, name::PLAN_WORKSPACE)?).ok()?;
            (workspace <= WORKSPACE).then_some((plan, workspace))
        })
    }

    /// Starts a convolution.
    fn start(&self, plan: &Plan, [x, w, y, room]: [DevicePtr; 4], stream: Handle) -> Result<()> {
        let state = self.on(stream)?;
        let mut keep = Descriptors::default();
        let data = [
            (name::PACK_IDS, Values::Integers(&IDS)),
            (name::PACK_POINTERS, Values::Pointers(&[w, x, y])),
            (name::PACK_WORKSPACE, Values::Pointers(&[room])),
        ];
        let pack = self.api.described(Kind::VariantPack, &data, &mut keep);
        let pack = pack.ok_or_else(|| Error::device("cuDNN: a convolution's memory was not accepted"))?;
        // SAFETY: addresses have the descriptors' sizes, by the caller's views and the plan; the handle is ours while
        // we hold the lock.
        check("convolution", unsafe { (self.api.execute)(state.handle, plan.plan, pack) })
    }
}

fn wide(values: &[c_int]) -> Vec<i64> {
    values.iter().map(|&v| v.into()).collect()
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
        let alignment = 1 << (x | w | y | 16).trailing_zeros();
        let Some(plan) = self.plan(&(pass, *spec, dtype, tf32, order, alignment))? else { return Ok(false) };
        let workspace = if plan.workspace > 0 { Some(gpu.scratch(plan.workspace)?) } else { None };
        let room = workspace.as_ref().map_or(0, |w| w.ptr);
        gpu.submit(move |_, stream| self.start(&plan, [x, w, y, room], stream))?;
        Ok(true)
    }
}
