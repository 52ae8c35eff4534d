//! Attention through cuDNN's graphs, forward and backward each by itself: both share what our own kernels do (`lse`).
//!
//! The library knows attention by its pattern: products, and a softmax of maxima, sums and exponentials, written as one would without it. The gradient by
//! the queries is asked for as one product, which the library then does in order, in a workspace that grows with queries times keys. Asked to add it up
//! in memory, in `f32`, it needs none, but adds in whatever order blocks come, and no note of its engines says so.

use super::graph::{Answer, DataType, Four, Graph, Knob, PointwiseMode as Op, Reduce, Tensor, packed, turned};
use super::plan::{Choice, Plan, Target};
use super::{Cudnn, Library, is_off};
use crate::attention::{Form, Saved, Spec, strides};
use crate::device::Gpu;
use crate::driver::{DevicePtr, Handle};
use crate::stream::Event;
use rushlight_core::{DType, Device, Error, Result, View};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    Forward,
    Backward,
}

/// Whether the library has a deterministic backward pass made for the chip.
fn is_blackwell((major, minor): (i32, i32)) -> bool {
    major == 10 && minor <= 3
}

/// The oldest version used: those just before are known for wrong results, older ones were not tried.
pub const OLDEST: i32 = 91_002;
/// The first version with that pass.
const FOR_BLACKWELL: i32 = 91_800;
/// Up to this one NVIDIA's front end masks what is missing of the last 128 keys itself, backward; here such problems are left to our own kernels.
const WHOLE_BLOCKS: i32 = 91_500;
/// More queries or keys than anybody has; sizes multiplied stay within 64 bits.
const LONGEST: usize = 1 << 20;

/// How that pass is asked for, as the library does not suggest it; since 9.23 its shape is told by more knobs.
const BLACKWELL: [Choice; 2] = [
    Choice {
        engine: 5,
        knobs: &[
            (Knob::TILE_M, 3),
            (Knob::TILE_N, 2),
            (Knob::KERNEL_CFG, 2),
            (Knob::STREAM_K, 0),
            (Knob::TILE_CGA_M, 0),
            (Knob::STAGES, 2),
        ],
    },
    Choice { engine: 5, knobs: &[(Knob::KERNEL_CFG, 31), (Knob::STAGES, 2)] },
];

/// Whether there is a cuDNN for it, and it may be used.
pub fn does_attention() -> bool {
    !is_off() && Cudnn::get().is_ok_and(|api| api.number() >= OLDEST)
}

/// All that a plan depends on. The factor of the scores is given at execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    pub pass: Pass,
    pub dtype: DType,
    pub causal: bool,
    /// Batch, heads, heads of keys and values, queries, keys, head size.
    pub sizes: [i64; 6],
    /// Of queries, keys, values and output; backward also of the output's gradient and those of queries, keys and values.
    pub strides: [Four; 8],
}

/// Does a problem without the library; says whether it could.
pub type Rival<'a> = &'a dyn Fn() -> Result<bool>;

/// `None` for what the library does not take, or is slower at.
pub type Plans = HashMap<Problem, Option<&'static Plan>>;

/// Strides as the library takes them, if it takes the tensor: rows of 16 bytes at addresses that are multiples of it, which it needs and does not check.
pub fn placed(address: u64, sizes: [usize; 4], strides: [u64; 4]) -> Option<Four> {
    let one = |d: usize| sizes[d] == 1;
    let fits = address.is_multiple_of(16)
        && strides[3] == 1
        && (0..3).all(|d| one(d) || (strides[d] > 0 && strides[d].is_multiple_of(8)));
    // A stride over nothing may be anything: let it be one that holds the rest.
    let whole = (0..4).filter(|&d| !one(d)).map(|d| sizes[d] as u64 * strides[d]).max().unwrap_or(1);
    let known = |d: usize| i64::try_from(if one(d) { whole } else { strides[d] }).unwrap_or(0);
    fits.then(|| std::array::from_fn(known)).filter(|four: &Four| four.iter().all(|&s| s > 0))
}

impl Problem {
    /// Its engines, if the library's own suggestions are not the first to be asked.
    fn choices(&self, capability: (i32, i32), version: i32) -> &'static [Choice] {
        let made = self.pass == Pass::Backward && is_blackwell(capability) && version >= FOR_BLACKWELL;
        if made { &BLACKWELL } else { &[] }
    }

    /// Whether this version does it right.
    pub fn is_right(&self, version: i32) -> bool {
        let keys = self.sizes[4];
        version >= OLDEST && (self.pass == Pass::Forward || version > WHOLE_BLOCKS || keys % 128 == 0)
    }

    fn kind(&self) -> DataType {
        if self.dtype == DType::BF16 { DataType::BFLOAT16 } else { DataType::HALF }
    }

    /// Tensors of queries, keys, values and output, keys turned, and values, if asked.
    fn inputs(&self, graph: &mut Graph, turn_values: bool) -> Answer<[Tensor; 4]> {
        let ([q, k, v, out, ..], kind) = (self.strides, self.kind());
        let (queries, keys) = (self.queries(), self.keys());
        let values = if turn_values { (turned(keys), turned(v)) } else { (keys, v) };
        Ok([
            graph.tensor(queries, q, kind)?,
            graph.tensor(turned(keys), turned(k), kind)?,
            graph.tensor(values.0, values.1, kind)?,
            graph.tensor(queries, out, kind)?,
        ])
    }

    fn queries(&self) -> Four {
        let [batch, heads, _, l, _, d] = self.sizes;
        [batch, heads, l, d]
    }

    fn keys(&self) -> Four {
        let [batch, _, kv_heads, _, s, d] = self.sizes;
        [batch, kv_heads, s, d]
    }

    fn scores(&self) -> Four {
        let [batch, heads, _, l, s, _] = self.sizes;
        [batch, heads, l, s]
    }

    /// One for each query.
    fn rows(&self) -> Four {
        let [batch, heads, l, _] = self.queries();
        [batch, heads, l, 1]
    }

    /// Operands: queries, keys, values, output, `lse`; the factor, and minus infinity if causal.
    fn forward(&self, graph: &mut Graph) -> Answer<()> {
        let [q, k, v, out] = self.inputs(graph, false)?;
        let lse = graph.tensor(self.rows(), packed(self.rows()), DataType::FLOAT)?;
        let scale = graph.number()?;
        let scores = self.scores();
        let products = graph.between(scores, packed(scores), DataType::FLOAT)?;
        graph.matmul(q, k, products)?;
        let mut x = graph.pointwise(Op::MUL, &[products, scale])?;
        if self.causal {
            let masked = graph.number()?;
            x = graph.lower_triangle(x, masked)?;
        }
        let most = graph.reduce_rows(Reduce::MAX, x)?;
        let less = graph.pointwise(Op::SUB, &[x, most])?;
        let powers = graph.pointwise(Op::EXP, &[less])?;
        let sum = graph.reduce_rows(Reduce::ADD, powers)?;
        let log = graph.pointwise(Op::LOG, &[sum])?;
        graph.pointwise_to(Op::ADD, &[most, log], lse)?;
        let weights = graph.between(scores, packed(scores), self.kind())?;
        graph.pointwise_to(Op::DIV, &[powers, sum], weights)?;
        graph.matmul(weights, v, out)
    }

    /// A product with scores turned, of all heads, added up for those that share keys.
    fn by_keys(&self, graph: &mut Graph, scores: Tensor, by: Tensor, to: Tensor) -> Answer<()> {
        let ([batch, heads, kv_heads, _, s, d], kind) = (self.sizes, self.kind());
        let (sizes, strides) = (self.scores(), packed(self.scores()));
        let turned = graph.reshape(scores, turned(sizes), turned(strides), kind)?;
        if heads == kv_heads {
            return graph.matmul(turned, by, to);
        }
        let all = graph.between([batch, heads, s, d], packed([batch, heads, s, d]), kind)?;
        graph.matmul(turned, by, all)?;
        graph.reduce_to(Reduce::ADD, all, to)
    }

    /// Operands: queries, keys, values, output, its gradient, `lse`, gradients by queries, keys and values, room for a number of every query; the factor,
    /// one, and minus infinity if causal.
    fn backward(&self, graph: &mut Graph) -> Answer<()> {
        let kind = self.kind();
        let [q, k, v, out] = self.inputs(graph, true)?;
        let [_, key_strides, _, _, dout, dq, dk, dv] = self.strides;
        let dout = graph.tensor(self.queries(), dout, kind)?;
        let lse = graph.tensor(self.rows(), packed(self.rows()), DataType::FLOAT)?;
        let dq = graph.tensor(self.queries(), dq, kind)?;
        let dk = graph.tensor(self.keys(), dk, kind)?;
        let dv = graph.tensor(self.keys(), dv, kind)?;
        let delta = graph.tensor(self.rows(), packed(self.rows()), DataType::FLOAT)?;
        let (scale, one) = (graph.number()?, graph.number()?);
        // The library looks for a factor here, which dropout would need.
        let products = graph.pointwise(Op::MUL, &[dout, out])?;
        let sums = graph.reduce_rows(Reduce::ADD, products)?;
        graph.pointwise_to(Op::MUL, &[sums, one], delta)?;
        let scores = self.scores();
        let products = graph.between(scores, packed(scores), DataType::FLOAT)?;
        graph.matmul(q, k, products)?;
        let x = graph.pointwise(Op::MUL, &[products, scale])?;
        let mut x = graph.pointwise(Op::SUB, &[x, lse])?;
        if self.causal {
            let masked = graph.number()?;
            x = graph.lower_triangle(x, masked)?;
        }
        let weights = graph.pointwise(Op::EXP, &[x])?;
        self.by_keys(graph, weights, dout, dv)?;
        let by_weights = graph.between(scores, packed(scores), DataType::FLOAT)?;
        graph.matmul(dout, v, by_weights)?;
        let x = graph.pointwise(Op::SUB, &[by_weights, delta])?;
        let x = graph.pointwise(Op::MUL, &[x, weights])?;
        let by_scores = graph.pointwise(Op::MUL, &[x, scale])?;
        self.by_keys(graph, by_scores, q, dk)?;
        let keys = graph.reshape(k, self.keys(), key_strides, DataType::FLOAT)?;
        graph.matmul(by_scores, keys, dq)
    }

    /// Asks the library how to do it.
    pub fn plan(&self, api: &'static Cudnn, target: &Target, capability: (i32, i32)) -> Answer<Plan> {
        let mut graph = Graph::new(api);
        match self.pass {
            Pass::Forward => self.forward(&mut graph)?,
            Pass::Backward => self.backward(&mut graph)?,
        }
        graph.close(target)?.plan(target, self.choices(capability, api.number()))
    }
}

impl Library {
    /// How to do it; `None` if the library does not, or not as fast as others.
    fn attention_plan(&self, problem: Problem, capability: (i32, i32)) -> Option<&'static Plan> {
        let state = &mut *self.state();
        match state.attention.entry(problem) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let plan = problem.plan(self.api, &Target::Handle(state.handle), capability).ok();
                *new.insert(plan.map(|plan| &*Box::leak(Box::new(plan))))
            }
        }
    }

    fn has_planned(&self, problem: &Problem) -> bool {
        self.state().attention.contains_key(problem)
    }

    /// Leaves a problem to others from now on.
    fn leave(&self, problem: Problem) {
        self.state().attention.insert(problem, None);
    }

    /// Starts a plan. After the addresses come numbers, as many as the plan takes.
    fn attend(&self, plan: &Plan, addresses: &[u64], numbers: &[f32], room: DevicePtr, stream: Handle) -> Result<()> {
        let numbers = numbers.iter().map(|n| &raw const *n as u64);
        let operands: Vec<u64> = addresses.iter().copied().chain(numbers).take(plan.operands()).collect();
        let state = self.on(stream)?;
        // SAFETY: addresses have the sizes and strides that the plan was made for, by the caller's views; the handle is ours while we hold the lock.
        unsafe { plan.execute(state.handle, &operands, room) }
            .map_err(|e| Error::device(format!("cuDNN: attention: {} failed with status {}", e.call, e.status)))
    }
}

impl Gpu {
    /// The library, if attention is for it.
    fn attention_library(&self, spec: &Spec, form: &Form) -> Option<&'static Library> {
        let Spec { heads, kv_heads, batch, l, s, d, dv, scale, .. } = *spec;
        let fits = matches!(form.dtype, DType::F16 | DType::BF16)
            && form.mask == 0
            && !form.dropout
            && self.properties.capability.0 >= 8
            && d == dv
            && d.is_multiple_of(8)
            && (8..=128).contains(&d)
            && (2..=LONGEST).contains(&l)
            && (2..=LONGEST).contains(&s)
            && batch.min(heads).min(kv_heads) > 0
            && scale.is_finite()
            && scale > 0.0;
        if fits { self.cudnn() } else { None }
    }

    /// Does a problem by the library if it is for it and, when first seen, was faster than its rival. `tensors` are those whose strides are told:
    /// address, strides, and whether their rows are keys; `given` all addresses, in the order of the graph's operands.
    fn attend_by_cudnn<const N: usize>(
        &self,
        pass: Pass,
        spec: &Spec,
        form: &Form,
        tensors: &[(u64, [u64; 4], bool)],
        given: [u64; N],
        rival: Option<Rival>,
    ) -> Result<bool> {
        self.enter()?;
        let Some(library) = self.attention_library(spec, form) else { return Ok(false) };
        let mut laid = [[0; 4]; 8];
        for (to, &(address, strides, of_keys)) in laid.iter_mut().zip(tensors) {
            let sizes = if of_keys {
                [spec.batch, spec.kv_heads, spec.s, spec.d]
            } else {
                [spec.batch, spec.heads, spec.l, spec.d]
            };
            let Some(four) = placed(address, sizes, strides) else { return Ok(false) };
            *to = four;
        }
        let sizes = [spec.batch, spec.heads, spec.kv_heads, spec.l, spec.s, spec.d].map(|n| n as i64);
        let problem = Problem { pass, dtype: form.dtype, causal: form.causal, sizes, strides: laid };
        if !problem.is_right(library.api.number()) || given.iter().any(|address| !address.is_multiple_of(16)) {
            return Ok(false);
        }
        let capability = self.properties.capability;
        let is_new = rival.is_some() && !library.has_planned(&problem);
        if is_new && self.lane().recording {
            // What is recorded cannot be timed.
            return Ok(false);
        }
        let Some(plan) = self.driver.relaxed(|| library.attention_plan(problem, capability)) else { return Ok(false) };
        let start = || self.start_attention(library, plan, pass, spec, given);
        if let Some(rival) = rival.filter(|_| is_new)
            && rival()?
            && self.seconds(&|| rival().map(drop))? <= self.seconds(&start)?
        {
            library.leave(problem);
            return Ok(false);
        }
        start()?;
        Ok(true)
    }

    /// How long something takes that may be done again and again: the shortest of a few tries.
    fn seconds(&self, run: &dyn Fn() -> Result<()>) -> Result<f64> {
        const TRIES: usize = 3;
        const TIMES: usize = 5;
        run()?;
        let mut shortest = f64::INFINITY;
        for _ in 0..TRIES {
            let [begin, end] = [Event::new(Device::Cuda(self.index))?, Event::new(Device::Cuda(self.index))?];
            begin.record()?;
            for _ in 0..TIMES {
                run()?;
            }
            end.record()?;
            end.synchronize()?;
            shortest = shortest.min(begin.elapsed_time(&end)?);
        }
        Ok(shortest / 1e3 / TIMES as f64)
    }

    fn start_attention<const N: usize>(
        &self,
        library: &'static Library,
        plan: &'static Plan,
        pass: Pass,
        spec: &Spec,
        given: [u64; N],
    ) -> Result<()> {
        let delta = if pass == Pass::Backward { spec.batch * spec.heads * spec.l * 4 } else { 0 };
        let delta = delta.next_multiple_of(256);
        let scratch = if delta + plan.workspace > 0 { Some(self.scratch(delta + plan.workspace)?) } else { None };
        let (room, scale) = (scratch.as_ref().map_or(0, |s| s.ptr), spec.scale as f32);
        self.submit(move |gpu, stream| {
            let (mut addresses, mut numbers) = (given.to_vec(), vec![scale]);
            if pass == Pass::Backward {
                addresses.push(room);
                numbers.push(1.0);
            }
            numbers.push(f32::NEG_INFINITY);
            // The library may load a kernel at its first use.
            gpu.driver.relaxed(|| library.attend(plan, &addresses, &numbers, room + delta as u64, stream))
        })
    }

    /// Attention by the library; says whether it took it.
    pub fn cudnn_attention(
        &self,
        spec: &Spec,
        form: &Form,
        out: View,
        lse: View,
        rival: Option<Rival>,
    ) -> Result<bool> {
        let (to, log_sum) = (out.ptr() as u64, lse.ptr() as u64);
        let tensors = [
            (spec.q, spec.q_strides, false),
            (spec.k, spec.k_strides, true),
            (spec.v, spec.v_strides, true),
            (to, strides(out), false),
        ];
        self.attend_by_cudnn(Pass::Forward, spec, form, &tensors, [spec.q, spec.k, spec.v, to, log_sum], rival)
    }

    /// Its gradients; says whether the library took them.
    pub fn cudnn_attention_backward(
        &self,
        spec: &Spec,
        form: &Form,
        saved: &Saved,
        to: [View; 3],
        rival: Option<Rival>,
    ) -> Result<bool> {
        let [dq, dk, dv] = to.map(|v| (v.ptr() as u64, strides(v)));
        let tensors = [
            (spec.q, spec.q_strides, false),
            (spec.k, spec.k_strides, true),
            (spec.v, spec.v_strides, true),
            (saved.out, saved.out_strides, false),
            (saved.dout, saved.dout_strides, false),
            (dq.0, dq.1, false),
            (dk.0, dk.1, true),
            (dv.0, dv.1, true),
        ];
        let given = [spec.q, spec.k, spec.v, saved.out, saved.dout, saved.lse, dq.0, dk.0, dv.0];
        self.attend_by_cudnn(Pass::Backward, spec, form, &tensors, given, rival)
    }
}
