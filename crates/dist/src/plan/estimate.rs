//! Memory, communication and time of a step.

use super::machine::Machine;
use super::memory::{Precision, Split, memory};
use super::model::Model;
use rushlight_core::{Error, Result};

/// Which activations are computed again in the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompute {
    /// None: all are kept.
    None,
    /// All of a block: only its input is kept.
    Full,
}

/// How a job splits a model. The product of the sizes is the number of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Data parallel.
    pub data: usize,
    /// Tensor parallel.
    pub tensor: usize,
    /// Pipeline stages.
    pub pipeline: usize,
    /// ZeRO's stage: 0 to 3.
    pub zero: usize,
    /// Sequences of a microbatch.
    pub microbatch: usize,
    /// What is computed again.
    pub recompute: Recompute,
    /// Whether weights, gradients and moments are in the host's memory: ZeRO-3 only.
    pub offload: bool,
}

/// A model, a machine, a number of devices and a batch.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The model.
    pub model: Model,
    /// The machine.
    pub machine: Machine,
    /// Devices in all.
    pub devices: usize,
    /// Sequences of a step, over all devices.
    pub batch: usize,
    /// The dtype of products and activations.
    pub precision: Precision,
}

/// What a step takes on a rank.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// The strategy.
    pub strategy: Strategy,
    /// Microbatches of a step.
    pub microbatches: usize,
    /// Bytes of weights, gradients and optimizer state.
    pub state: f64,
    /// Bytes of activations.
    pub activations: f64,
    /// The most bytes at any moment: gradients come while activations go.
    pub peak: f64,
    /// Bytes in the host's memory.
    pub host: f64,
    /// Bytes sent in a step.
    pub sent: f64,
    /// The idle share of the pipeline.
    pub bubble: f64,
    /// Seconds of computing.
    pub compute: f64,
    /// Seconds of communication that does not overlap.
    pub exposed: f64,
    /// Seconds of a step.
    pub seconds: f64,
    /// The share of the machine's peak.
    pub utilisation: f64,
    /// Tokens per second of a device.
    pub tokens: f64,
}

impl Estimate {
    /// Bytes that a rank needs; a tenth is added for the allocator and the libraries.
    pub fn memory(&self) -> f64 {
        1.1 * self.peak
    }
}

/// The share of the backward pass that gradients' communication overlaps with.
const OVERLAP: f64 = 0.8;

/// The width of a model at which half of the reachable rate is lost; from Megatron's 1.7B to 462B on H100.
const WIDTH: f64 = 900.0;

/// Estimates a step.
pub fn estimate(job: &Job, strategy: Strategy) -> Result<Estimate> {
    let Job { model, machine, devices, batch, precision } = *job;
    let Strategy { data, tensor, pipeline, zero, microbatch, recompute, offload } = strategy;
    let fail = |what: String| Err(Error::value(format!("plan: {what}")));
    if data * tensor * pipeline != devices {
        return fail(format!("{data} x {tensor} x {pipeline} ranks are not {devices} devices"));
    }
    if !model.heads.is_multiple_of(tensor) || !model.layers.is_multiple_of(pipeline) || zero > 3 {
        return fail(format!(
            "{} heads and {} layers do not split by {tensor} and {pipeline}",
            model.heads, model.layers
        ));
    }
    if offload && zero != 3 {
        return fail(format!("offloading is of ZeRO's stage 3, not {zero}"));
    }
    if microbatch == 0 || !batch.is_multiple_of(data * microbatch) {
        return fail(format!("a batch of {batch} does not split among {data} ranks in microbatches of {microbatch}"));
    }
    let microbatches = batch / (data * microbatch);
    let (d, t, p, m) = (data as f64, tensor as f64, pipeline as f64, microbatches as f64);
    let (h, s) = (model.hidden as f64, model.sequence as f64);
    let layers = (model.layers / pipeline) as f64;
    // The first stage has the embedding and the last the output layer, which a pipeline cannot share.
    let ends = if pipeline > 1 { model.vocabulary as f64 * h } else { model.embeddings() } / t;
    let block = model.block() / t;
    let own = block * layers + ends;
    let tokens = microbatch as f64 * s;
    let held = memory(
        &model,
        &Split {
            block,
            ends,
            own,
            data: d,
            tensor: t,
            pipeline: p,
            zero,
            microbatches: m,
            tokens,
            recompute: recompute == Recompute::Full,
            offload,
            precision,
        },
    );

    let again = if recompute == Recompute::Full { 4.0 / 3.0 } else { 1.0 };
    // Narrow models have smaller products and relatively more of everything else.
    let rate = machine.peak * machine.reach * h / (h + WIDTH);
    let compute = m * tokens * model.operations() / (t * p) * again / rate;

    // Tensor parallel: two all-reduces forward, two backward, two more where blocks are computed again.
    let passes = if recompute == Recompute::Full { 6.0 } else { 4.0 };
    let one = 2.0 * (t - 1.0) / t * tokens * h * 2.0;
    let tensor_bytes = m * layers * passes * one;
    let link = |ranks: usize| if ranks <= machine.devices { machine.inside } else { machine.between };
    let latency = |ranks: f64| if ranks > 1.0 { machine.latency * ranks.log2() } else { 0.0 };
    let tensor_time = tensor_bytes / link(tensor) + m * layers * passes * latency(t);

    // Pipeline: activations and gradients between neighbours, each split among the tensor-parallel ranks.
    let pipe_bytes = if pipeline > 1 { 2.0 * m * tokens * h * 2.0 / t } else { 0.0 };
    let pipe_time = pipe_bytes / machine.between * 0.5;

    // Data parallel: gradients once a step; ZeRO-3 gathers the weights twice for each microbatch.
    let around = (d - 1.0) / d * 2.0 * own;
    let data_bytes = around * if zero == 3 { 1.0 + 2.0 * m } else { 2.0 };
    let blocks = if zero == 3 { layers * (1.0 + 2.0 * m) } else { layers };
    let data_time = data_bytes / link(data * tensor) + blocks * latency(d);
    // Gradients overlap with the backward pass of the last microbatch, weights of ZeRO-3 with everything.
    let hidden = OVERLAP * if zero == 3 { compute } else { compute / m * 2.0 / 3.0 };
    let data_exposed = (data_time - hidden).max(0.05 * data_time);

    let bubble = (p - 1.0) / (m + p - 1.0);
    // Weights go to the device and gradients come back once a step, in the dtype of products.
    let moved = if offload { 2.0 * precision.bytes() * own / d / machine.host } else { 0.0 };
    let update = 20.0 * own / if zero > 0 { d } else { 1.0 } / if offload { machine.host } else { 1e12 } + moved;
    let exposed = tensor_time + pipe_time;
    let seconds = (compute + exposed) / (1.0 - bubble) + data_exposed + update;
    let useful = (batch * model.sequence) as f64;
    Ok(Estimate {
        strategy,
        microbatches,
        state: held.state,
        activations: held.activations,
        peak: held.peak,
        host: held.host,
        sent: tensor_bytes + pipe_bytes + data_bytes,
        bubble,
        compute,
        exposed: exposed + data_exposed,
        seconds,
        utilisation: useful * model.operations() / (seconds * devices as f64 * machine.peak),
        tokens: useful / (seconds * devices as f64),
    })
}

/// Every strategy that fits the devices' memory, the fastest first. Strategies that offload are taken if they are
/// asked for.
pub fn plans(job: &Job, offload: bool) -> Vec<Estimate> {
    let mut found = Vec::new();
    let powers = |most: usize| (0..=most.max(1).ilog2()).map(|i| 1usize << i).filter(move |&n| n <= most);
    // Tensor parallelism stays within a node.
    let tensors = powers(job.machine.devices).filter(|t| job.model.heads.is_multiple_of(*t));
    for tensor in tensors {
        for pipeline in (1..=job.model.layers).filter(|p| job.model.layers.is_multiple_of(*p)) {
            if !job.devices.is_multiple_of(tensor * pipeline) {
                continue;
            }
            let data = job.devices / (tensor * pipeline);
            for zero in 0..=3 {
                // With one rank all stages are the same; with a pipeline only the optimizer's state is split.
                if (data == 1 && zero > 0) || (pipeline > 1 && zero > 1) {
                    continue;
                }
                for microbatch in powers(8) {
                    for recompute in [Recompute::None, Recompute::Full] {
                        for offload in [false, true].into_iter().take(1 + usize::from(offload && zero == 3)) {
                            let strategy = Strategy { data, tensor, pipeline, zero, microbatch, recompute, offload };
                            if let Ok(one) = estimate(job, strategy)
                                && one.memory() <= job.machine.memory
                            {
                                found.push(one);
                            }
                        }
                    }
                }
            }
        }
    }
    found.sort_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.memory().total_cmp(&b.memory())));
    found
}

/// The share of the peak that blocks of a very wide model reach ([`Machine::reach`]), if those of width `hidden` were
/// measured at `rate` operations per second and large products at `peak`.
pub fn reach(rate: f64, peak: f64, hidden: usize) -> f64 {
    (rate / peak * (hidden as f64 + WIDTH) / hidden as f64).min(1.0)
}
