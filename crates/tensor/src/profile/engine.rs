//! Spans and counted operations of engine calls.

use super::flops::count;
use rushlight_core::backend::call::{Access, Operand};
use rushlight_core::backend::{Call, View};
use rushlight_core::sync::lock;
use rushlight_core::{Backend, Device, Result};
use rushlight_profile::{Category, Details, MemoryReading, shapes_wanted, span};
use std::sync::Mutex;

/// The engines used while the profiler was on.
static KNOWN: Mutex<Vec<&'static dyn Backend>> = Mutex::new(Vec::new());

/// Makes an engine's memory known to the profiler.
fn know(backend: &'static dyn Backend) {
    let mut known = lock(&KNOWN);
    if !known.iter().any(|other| other.device() == backend.device()) {
        known.push(backend);
        rushlight_profile::set_memory_probe(memory);
    }
}

/// Memory in use on the host, and on all accelerators that were used while the profiler was on.
fn memory() -> [MemoryReading; 2] {
    let mut out = [MemoryReading::default(); 2];
    let known: Vec<_> = lock(&KNOWN).clone();
    for engine in known {
        if let Some(allocator) = engine.allocator() {
            let stats = allocator.stats();
            let reading = &mut out[usize::from(!engine.device().is_cpu())];
            reading.allocated += stats.allocated;
            reading.reserved += stats.reserved;
        }
    }
    out
}

/// Makes the CPU's memory known to the profiler before the first op.
pub fn prepare() {
    if let Ok(cpu) = rushlight_engines::backend(Device::Cpu) {
        know(cpu);
    }
}

/// Runs a call within a span that has its name, operations and inputs.
#[cold]
pub(crate) fn noted(backend: &'static dyn Backend, call: &Call<View>, run: impl FnOnce() -> Result<()>) -> Result<()> {
    know(backend);
    let mut span = span(Category::Op, || format!("rushlight::{}", call.op_name()));
    if span.is_recorded() {
        span.describe(|details| {
            details.flops = call.flops();
            if shapes_wanted() {
                describe_inputs(call, details);
            }
        });
    }
    count(call);
    run()
}

/// Runs a transfer, or a wait, within a span while the profiler is on.
#[inline]
pub(crate) fn transfer<T>(name: &'static str, run: impl FnOnce() -> T) -> T {
    let _span = super::is_on().then(|| span(Category::Op, || name));
    run()
}

fn describe_inputs(call: &Call<View>, details: &mut Details) {
    let mut note = |shape: &[usize], dtype| {
        details.shapes.push(shape.to_vec());
        details.dtypes.push(dtype);
    };
    let operands = match call {
        Call::Pointwise(c) => c.inputs.to_vec(),
        Call::Select(c) => vec![Operand::Tensor(c.condition), c.a, c.b],
        _ => {
            return call.visit(&mut |access, input| {
                if access == Access::Read {
                    note(input.shape(), input.dtype().name());
                }
            });
        }
    };
    for operand in operands {
        match operand {
            Operand::Tensor(input) => note(input.shape(), input.dtype().name()),
            Operand::Scalar(_) => note(&[], "Scalar"),
        }
    }
}
