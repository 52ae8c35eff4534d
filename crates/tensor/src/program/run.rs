//! Runs programs on memory that is given, on any engine.

use super::bisect::{self, Run};
use super::{Program, Slot, is_fused, packed, passes};
use crate::Tensor;
use crate::autograd::Meta;
use crate::engine::{allocate, run};
use rushlight_core::backend::{Call, Storage, View};
use rushlight_core::{DType, Error, Philox, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A program that can be run: `Runner::new(program)?.run(&[(buffer, storage)], &results)`.
///
/// Buffers from outside are bound to memory at each run. The program's own buffers are allocated before the call that
/// first writes them and freed after the last that uses them, except results, which are returned.
///
/// ```
/// # use rushlight_tensor as rushlight;
/// use rushlight::{Tensor, program::{self, Runner, Slot}};
/// let x = Tensor::new([1.0f32, 2.0])?;
/// let (y, program) = program::trace(|| x.mul(3.0)?.add(1.0));
/// let y = y?;
/// let (from, to) = (program.calls()[0].inputs()[0].clone(), program.calls()[1].outputs()[0].clone());
/// let runner = Runner::new(program)?;
/// let again = runner.run_tensors(&[(from.buffer, &Tensor::new([5.0f32, 6.0])?)], &[to])?;
/// assert_eq!(again[0].to_vec::<f32>()?, [16.0, 19.0]);
/// # drop(y);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct Runner {
    program: Program,
    /// For each call the buffers that nothing uses after it.
    ends: Vec<Vec<usize>>,
    /// Where the random streams of the calls began.
    start: Option<Philox>,
    /// The program before the passes, where runs compare themselves with it.
    recorded: Option<Program>,
    /// Whether runs wait for kernels that are being compiled: until one has ended.
    waits: AtomicBool,
}

impl Runner {
    /// A verified program.
    pub fn new(program: Program) -> Result<Self> {
        if let Some(what) = program.foreign() {
            return Err(Error::unsupported(format!("a program with {what}, which is no call, cannot be run")));
        }
        program.verify()?;
        let mut last: Vec<Option<usize>> = vec![None; program.buffers().len()];
        for (i, call) in program.calls().iter().enumerate() {
            call.visit(&mut |_, slot| last[slot.buffer] = Some(i));
        }
        let mut ends = vec![Vec::new(); program.calls().len()];
        for (buffer, at) in last.into_iter().enumerate() {
            if let Some(at) = at.filter(|_| !program.buffers()[buffer].outside) {
                ends[at].push(buffer);
            }
        }
        Ok(Self { program: program.unplaced(), ends, start: None, recorded: None, waits: AtomicBool::new(false) })
    }

    /// A program after all passes. With `RUSHLIGHT_BISECT=1` every run is compared with one of the program as it is,
    /// and standard error names the pass and the call after which they differ.
    pub fn optimized(program: &Program) -> Result<Self> {
        Self::with_constants(program, &[])
    }

    /// [`optimized`](Runner::optimized) for a program whose memory in `constants` never changes: engines keep the
    /// weights of its products and convolutions in their own layout.
    pub fn with_constants(program: &Program, constants: &[(usize, Arc<Storage>)]) -> Result<Self> {
        let packed = |by: passes::Use, w: &Slot| {
            let (_, storage) = constants.iter().find(|(buffer, _)| *buffer == w.buffer)?;
            packed::packed(&by, storage, w)
        };
        let mut runner = Self::new(passes::optimize_with(program, packed)?)?;
        runner.recorded = bisect::is_on().then(|| program.clone().unplaced());
        Ok(runner)
    }

    /// The same, whose first run waits for fused kernels: all runs then give the same numbers.
    pub(crate) fn waiting(self) -> Self {
        self.waits.store(true, Relaxed);
        self
    }

    /// The stream that the calls' random numbers began with when they were recorded. Runs then draw from the stream
    /// that they are given.
    pub fn random_from(mut self, start: Philox) -> Self {
        self.start = Some(start);
        self
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs the program with memory for its buffers from outside. Returns the memory of `results`, buffers of its own.
    pub fn run(&self, bound: &[(usize, Arc<Storage>)], results: &[usize]) -> Result<Vec<Arc<Storage>>> {
        self.run_at(bound, results, None)
    }

    /// [`run`](Runner::run) with random numbers from a stream: see [`random_from`](Runner::random_from).
    pub fn run_at(
        &self,
        bound: &[(usize, Arc<Storage>)],
        results: &[usize],
        stream: Option<Philox>,
    ) -> Result<Vec<Arc<Storage>>> {
        if let Some(recorded) = &self.recorded {
            let streams = self.start.and_then(|start| Some((start, stream?)));
            let in_use = |(name, _): &&passes::Pass| *name != "fuse" || passes::is_fusing();
            let all: Vec<passes::Pass> = passes::PASSES.iter().filter(in_use).copied().collect();
            match bisect::bisect(recorded, &Run { bound, streams }, &all)? {
                Some(difference) => eprintln!("bisect: {difference}\n{recorded}"),
                None => eprintln!("bisect: {} calls agree after every pass", recorded.calls().len()),
            }
        }
        let buffers = self.program.buffers();
        let mut memory: Vec<Option<Arc<Storage>>> = vec![None; buffers.len()];
        for (buffer, storage) in bound {
            let Some(of) = buffers.get(*buffer) else {
                return Err(Error::value(format!("program: there is no buffer %{buffer}")));
            };
            if storage.bytes() < of.bytes || storage.device() != of.device {
                return Err(Error::value(format!(
                    "program: buffer %{buffer} takes {} bytes of {}, not {} of {}",
                    of.bytes,
                    of.device,
                    storage.bytes(),
                    storage.device()
                )));
            }
            memory[*buffer] = Some(storage.clone());
        }
        for (call, ends) in self.program.calls().iter().zip(&self.ends) {
            self.step(call, &mut memory, stream)?;
            for buffer in ends.iter().filter(|buffer| !results.contains(buffer)) {
                memory[*buffer] = None;
            }
        }
        self.waits.store(false, Relaxed);
        let result = |buffer: &usize| {
            let found = memory.get(*buffer).cloned().flatten();
            found.ok_or_else(|| Error::value(format!("program: buffer %{buffer} is not written by it")))
        };
        results.iter().map(result).collect()
    }

    /// Runs the program with tensors for its buffers from outside, and returns tensors of results. A tensor's memory is
    /// used as it lies: from its first element on in row-major order.
    pub fn run_tensors(&self, inputs: &[(usize, &Tensor)], results: &[Slot]) -> Result<Vec<Tensor>> {
        let mut bound = Vec::with_capacity(inputs.len());
        for (buffer, t) in inputs {
            let whole = t.layout().offset() == 0 && t.is_contiguous();
            let t = if whole { (*t).clone() } else { crate::autograd::no_grad(|| t.copy()?.contiguous())? };
            bound.push((*buffer, t.storage().clone()));
        }
        let own: Vec<usize> = results.iter().map(|slot| slot.buffer).collect();
        let memory = self.run(&bound, &own)?;
        let tensor = |(slot, storage): (&Slot, Arc<Storage>)| {
            View::new(&storage, &slot.layout, slot.dtype)?;
            Ok(Tensor::from_parts(storage, slot.layout.clone(), slot.dtype, Meta::default()))
        };
        results.iter().zip(memory).map(tensor).collect()
    }

    fn step(&self, call: &Call<Slot>, memory: &mut [Option<Arc<Storage>>], stream: Option<Philox>) -> Result<()> {
        let buffers = self.program.buffers();
        let (mut result, mut dtype, mut device) = (Ok(()), DType::F32, None);
        call.visit(&mut |_, slot| {
            let of = &buffers[slot.buffer];
            if slot.dtype.is_carried() || device.is_none() {
                dtype = if dtype.is_carried() { dtype } else { slot.dtype };
            }
            device = Some(of.device);
            if memory[slot.buffer].is_none() && result.is_ok() {
                let made = if of.outside {
                    Err(Error::value(format!("program: buffer %{} is not bound", slot.buffer)))
                } else {
                    rushlight_engines::backend(of.device).and_then(|engine| allocate(engine, of.bytes))
                };
                match made {
                    Ok(storage) => memory[slot.buffer] = Some(storage),
                    Err(e) => result = Err(e),
                }
            }
        });
        result?;
        let Some(device) = device else { return Ok(()) };
        let engine = rushlight_engines::backend(device)?;
        let Some(first) = memory.iter().flatten().next() else { return Ok(()) };
        let mut views = call.map(&mut |_, slot| {
            let storage = memory[slot.buffer].as_deref().unwrap_or(first);
            // SAFETY: `new` has verified that every view is within its buffer, and `run` that memory is as large.
            unsafe { View::new_unchecked(storage, &slot.layout, slot.dtype) }
        });
        if let (Some(start), Some(stream), Some(drawn)) = (self.start, stream, views.stream_mut()) {
            *drawn = Philox {
                seed: stream.seed,
                offset: drawn.offset.wrapping_sub(start.offset).wrapping_add(stream.offset),
            };
        }
        while self.waits.load(Relaxed) && is_fused(&views) && !engine.prepare(&views)? {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        run(engine, dtype, &views)
    }
}
