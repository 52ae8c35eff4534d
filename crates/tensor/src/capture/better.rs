//! The optimized program of a recorded step. Its kernels are compiled while the step replays as it was recorded; then
//! the step's graph is recorded anew from the program.

use crate::engine::run;
use crate::program::{Program, Slot, is_fused, passes};
use rushlight_core::backend::{Call, Graph, View};
use rushlight_core::{Backend, DType, Result, Storage};
use std::ptr::NonNull;

/// A program over the memory that the step was recorded in.
pub(super) struct Better {
    program: Program,
    memory: Vec<Storage>,
}

impl Better {
    /// `None` if the step's program would not be better, or calls alone do not repeat the step.
    pub fn new(backend: &'static dyn Backend, program: &Program) -> Option<Self> {
        if !passes::is_fusing() {
            return None;
        }
        if let Some(what) = program.foreign() {
            rushlight_core::info!("capture: the step is not fused: it contains {what}");
            return None;
        }
        if program.buffers().iter().any(|b| b.device != backend.device()) {
            rushlight_core::info!("capture: the step is not fused: it has memory of other devices");
            return None;
        }
        let failed = |e: &_| rushlight_core::info!("capture: the step is not fused: {e}");
        let better = passes::optimize(program).inspect_err(failed).ok()?;
        if !better.calls().iter().any(is_fused) {
            return None;
        }
        // Values that passes have added are within calls and have no memory.
        let mut placed = true;
        better.calls().iter().for_each(|call| call.visit(&mut |_, slot| placed &= better.place(slot.buffer).is_some()));
        if !placed {
            rushlight_core::info!("capture: the step is not fused: a new value has no memory");
            return None;
        }
        let storage = |buffer: usize| {
            let place = better.place(buffer).and_then(|place| NonNull::new(place as *mut u8));
            let bytes = if place.is_some() { better.buffers()[buffer].bytes } else { 0 };
            // SAFETY: memory of the recording's pool, or that the recorded step keeps, or none; only addresses are
            // recorded.
            unsafe { Storage::from_owner(backend, place.unwrap_or(NonNull::dangling()), bytes, Box::new(())) }
        };
        let memory = (0..better.buffers().len()).map(storage).collect();
        Some(Self { program: better, memory })
    }

    /// Whether all kernels are compiled; starts their compilation.
    pub fn is_ready(&self, backend: &'static dyn Backend) -> Result<bool> {
        let mut ready = true;
        for call in self.program.calls().iter().filter(|call| is_fused(call)) {
            ready &= backend.prepare(&self.views(call))?;
        }
        Ok(ready)
    }

    fn views<'a>(&'a self, call: &'a Call<Slot>) -> Call<View<'a>> {
        call.map(&mut |_, slot| {
            // SAFETY: `optimize` has verified that every view is within its buffer.
            unsafe { View::new_unchecked(&self.memory[slot.buffer], &slot.layout, slot.dtype) }
        })
    }

    /// Records the step anew and returns the program that it replays from now on.
    pub fn record(self, backend: &'static dyn Backend, graph: &mut dyn Graph) -> Result<Program> {
        let mut last = vec![None; self.memory.len()];
        for (i, call) in self.program.calls().iter().enumerate() {
            call.visit(&mut |_, slot| last[slot.buffer] = Some(i));
        }
        let ends = |i: usize, buffer: usize| last[buffer] == Some(i) && !self.program.is_result(buffer);
        graph.rerecord(&mut || {
            for (i, call) in self.program.calls().iter().enumerate() {
                let mut dtype = DType::F32;
                call.visit(&mut |_, slot| {
                    if slot.dtype.is_carried() {
                        dtype = slot.dtype;
                    }
                });
                run(backend, dtype, &self.views(call))?;
                // Where values end lets the engine join a batch norm with the calls after it.
                call.visit(&mut |_, slot| {
                    if ends(i, slot.buffer) {
                        backend.unneeded(&self.memory[slot.buffer]);
                    }
                });
            }
            Ok(())
        })?;
        Ok(self.program)
    }
}
