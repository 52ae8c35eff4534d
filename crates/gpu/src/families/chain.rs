//! Fuses a batch norm with the ops that follow it into one pass.
//!
//! Networks add a shortcut to a normalised tensor and apply a ReLU, with separate calls, and drop the intermediate
//! tensors. The last kernel of a batch norm is therefore deferred (`queue`). An addition of a tensor of the same shape,
//! or a ReLU, that comes next and reads the result is fused with it. An intermediate that is freed before any other
//! work is issued is never written. The values equal those of separate kernels bit for bit.
//!
//! The gradient of a large ReLU is deferred too: if the gradient of a batch norm comes next and reads it, its first
//! pass applies the mask.

use crate::device::{Gpu, Place};
use crate::families::batch_norm::{Share, chain_kernel};
use crate::families::pointwise::Prepared;
use crate::launch::kernel::{Function, launch};
use crate::vendor::driver::Handle;
use rushlight_core::sync::lock;
use rushlight_core::{DType, Operand, Pointwise, Result, View};
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex};

/// Arguments of the last kernel of a batch norm.
#[derive(Clone, Copy)]
pub struct Normalised {
    pub dtype: DType,
    pub parameter: DType,
    pub share: Share,
    pub cut: crate::families::batch_norm::Cut,
    pub pieces: usize,
    pub elements: usize,
    pub x: u64,
    pub weight: u64,
    pub bias: u64,
    pub mean: u64,
    pub rstd: u64,
    /// Output address of the normalised elements.
    pub y: u64,
    /// Base addresses of the memory that the kernel reads.
    pub blocks: [u64; 5],
}

/// A deferred batch norm, and the ops fused with it.
pub struct Chain {
    norm: Normalised,
    stream: Place,
    /// Set once later work is queued behind it.
    passed: Arc<AtomicBool>,
    /// Whether the normalised elements themselves must be written.
    keep: bool,
    /// The addend.
    added: Option<Added>,
    /// Output address of the ReLU.
    relu: Option<u64>,
}

/// An addition: addend, output, and whether the sum itself must be written.
#[derive(Clone, Copy)]
struct Added {
    other: u64,
    to: u64,
    keep: bool,
}

/// The ops of a chain's kernel, as bits of its compiled form.
pub mod stage {
    pub const KEEP: u16 = 1;
    pub const ADD: u16 = 2;
    pub const KEEP_SUM: u16 = 4;
    pub const RELU: u16 = 8;
}

impl Chain {
    /// Output address of the last op.
    fn end(&self) -> u64 {
        self.relu.or(self.added.map(|a| a.to)).unwrap_or(self.norm.y)
    }

    /// Whether the chain reads the memory that starts here.
    fn reads(&self, block: u64) -> bool {
        self.norm.blocks.contains(&block) || self.added.is_some_and(|a| a.other == block)
    }

    /// Whether the chain writes the memory that starts here.
    fn writes(&self, block: u64) -> bool {
        block == self.norm.y || self.added.is_some_and(|a| a.to == block) || self.relu == Some(block)
    }

    /// Records that the memory that starts here was freed, so it need not be written.
    fn forget(&mut self, block: u64) {
        if block == self.end() {
            return;
        }
        if block == self.norm.y {
            self.keep = false;
        }
        if let Some(added) = self.added.as_mut().filter(|a| a.to == block) {
            added.keep = false;
        }
    }

    fn stages(&self) -> u16 {
        let mut stages = if self.keep { stage::KEEP } else { 0 };
        if let Some(added) = &self.added {
            stages |= stage::ADD | if added.keep { stage::KEEP_SUM } else { 0 };
        }
        stages | if self.relu.is_some() { stage::RELU } else { 0 }
    }

    /// The fused kernel.
    fn kernel(&self, gpu: &Gpu) -> Result<Function> {
        let n = &self.norm;
        chain_kernel(gpu, n.dtype, n.parameter, n.share, self.stages())
    }

    fn launch(self, gpu: &Gpu) -> Result<()> {
        let (n, function) = (self.norm, self.kernel(gpu)?);
        let Added { other, to: sum, .. } = self.added.unwrap_or(Added { other: 0, to: 0, keep: false });
        let (x, weight, bias, y, mean, rstd, cut) = (n.x, n.weight, n.bias, n.y, n.mean, n.rstd, n.cut);
        let relu = self.relu.unwrap_or(0);
        let grid = n.share.grid(&cut, n.pieces)?;
        let mut args = [
            (&raw const x).cast_mut().cast::<std::ffi::c_void>(),
            (&raw const weight).cast_mut().cast(),
            (&raw const bias).cast_mut().cast(),
            (&raw const y).cast_mut().cast(),
            (&raw const mean).cast_mut().cast(),
            (&raw const rstd).cast_mut().cast(),
            (&raw const other).cast_mut().cast(),
            (&raw const sum).cast_mut().cast(),
            (&raw const relu).cast_mut().cast(),
            (&raw const cut).cast_mut().cast(),
        ];
        let handle = function.load(gpu)?;
        gpu.enter()?;
        // SAFETY: the kernel's parameters, in order; their memory is not reused before this is
        // issued.
        unsafe { gpu.launch_now(handle, grid, self.stream.handle(), &mut args) }
    }

    /// Marks the last result as not needed: a later op overwrites it.
    fn forget_end(&mut self) {
        match &mut self.added {
            Some(added) => added.keep = false,
            None => self.keep = false,
        }
    }

    /// Fuses an addition or a ReLU if it reads the last result and nothing that the chain writes. Returns whether it
    /// did.
    fn join(&mut self, stream: Handle, op: Pointwise, compute: DType, inputs: &[Operand], out: View) -> bool {
        let n = self.norm;
        let arithmetic = if n.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let aligned = |v: View| n.share.lanes == 1 || (v.ptr() as usize).is_multiple_of(16);
        let fits = |v: View| whole(v, n.dtype, n.elements) && aligned(v);
        let (end, to) = (self.end(), out.ptr() as u64);
        // In place, or to memory that the chain does not write.
        let in_place = to == end;
        let suits = self.stream.handle() == stream && compute == arithmetic && self.relu.is_none() && fits(out);
        if !suits || (!in_place && self.writes(to)) || n.blocks.contains(&to) {
            return false;
        }
        match (op, inputs) {
            (Pointwise::Relu, &[Operand::Tensor(x)]) if fits(x) && x.ptr() as u64 == end && !self.reads(to) => {
                if in_place {
                    self.forget_end();
                }
                self.relu = Some(to);
                true
            }
            (Pointwise::Add, &[Operand::Tensor(a), Operand::Tensor(b)])
                if self.added.is_none() && fits(a) && fits(b) =>
            {
                let (a, b) = (a.ptr() as u64, b.ptr() as u64);
                let other = if a == end { b } else { a };
                // The sum may overwrite the addend.
                if (a != end && b != end) || self.writes(other) {
                    return false;
                }
                if in_place {
                    self.forget_end();
                }
                self.added = Some(Added { other, to, keep: true });
                true
            }
            _ => false,
        }
    }
}

/// Minimum bytes of a gradient that is worth deferring.
const LARGE_MASK: usize = 1 << 20;

/// A dense view that covers its whole storage.
fn whole(v: View, dtype: DType, elements: usize) -> bool {
    v.dtype() == dtype && v.numel() == elements && v.layout().offset() == 0 && v.layout().is_contiguous()
}

/// A deferred gradient of a ReLU.
pub struct Mask {
    stream: Place,
    passed: Arc<AtomicBool>,
    /// The separate kernel, in case no batch norm fuses the mask.
    form: Box<Prepared>,
    /// Base addresses of the output's gradient, the output, and the input's gradient.
    pub dy: u64,
    pub positive: u64,
    pub to: u64,
    dtype: DType,
    elements: usize,
}

/// Deferred work.
pub enum Held {
    Norm(Chain),
    Mask(Mask),
}

impl Held {
    fn passed(&self) -> &Arc<AtomicBool> {
        match self {
            Held::Norm(chain) => &chain.passed,
            Held::Mask(mask) => &mask.passed,
        }
    }

    fn stream(&self) -> Handle {
        match self {
            Held::Norm(chain) => chain.stream.handle(),
            Held::Mask(mask) => mask.stream.handle(),
        }
    }

    fn reads(&self, block: u64) -> bool {
        match self {
            Held::Norm(chain) => chain.reads(block),
            Held::Mask(mask) => mask.dy == block || mask.positive == block,
        }
    }

    fn writes(&self, block: u64) -> bool {
        match self {
            Held::Norm(chain) => chain.writes(block),
            Held::Mask(mask) => mask.to == block,
        }
    }

    fn is_ready(&self, gpu: &Gpu) -> bool {
        match self {
            // Launching reports the error again.
            Held::Norm(chain) => chain.kernel(gpu).map_or(true, |kernel| kernel.is_compiled()),
            Held::Mask(mask) => mask.form.function.is_compiled(),
        }
    }

    fn launch(self, gpu: &Gpu) -> Result<()> {
        match self {
            Held::Norm(chain) => chain.launch(gpu),
            Held::Mask(mask) => mask.form.launch(gpu, mask.stream.handle()),
        }
    }
}

/// Queue of work that is not issued yet.
pub type Slot = Arc<Mutex<Option<Held>>>;

impl Gpu {
    /// Defers the last kernel of a batch norm, or launches it if it cannot be deferred.
    pub fn hold_chain(&self, norm: Normalised, may_wait: bool) -> Result<()> {
        if !may_wait || self.is_timed() || crate::launch::kernel::sync_each_call() {
            let function = chain_kernel(self, norm.dtype, norm.parameter, norm.share, stage::KEEP)?;
            let Normalised { x, weight, bias, y, mean, rstd, cut, .. } = norm;
            let none = 0u64;
            let grid = norm.share.grid(&cut, norm.pieces)?;
            return launch!(self, function, grid; x, weight, bias, y, mean, rstd, none, none, none, cut);
        }
        let (stream, passed) = (Place(self.lane().stream), Arc::default());
        self.hold_back(Held::Norm(Chain { norm, stream, passed, keep: true, added: None, relu: None }))
    }

    fn hold_back(&self, held: Held) -> Result<()> {
        let gpu = self.this()?;
        let slot: Slot = Arc::new(Mutex::new(Some(held)));
        let (of_ready, of_issue) = (slot.clone(), slot.clone());
        let ready = move || lock(&of_ready).as_ref().is_none_or(|held| held.is_ready(gpu));
        let issue = move |gpu: &Gpu| {
            let held = lock(&of_issue).take();
            held.map_or(Ok(()), |held| held.launch(gpu))
        };
        if let Some(gate) = self.queue.hold(self, ready, issue)? {
            match &mut *lock(&slot) {
                Some(Held::Norm(chain)) => chain.passed = gate,
                Some(Held::Mask(mask)) => mask.passed = gate,
                None => {}
            }
            *lock(&self.chain) = Some(slot);
        }
        Ok(())
    }

    /// The deferred work, if no later work has been issued.
    fn with_held<R>(&self, what: impl FnOnce(&mut Held) -> R) -> Option<R> {
        let slot = lock(&self.chain).clone()?;
        let mut held = lock(&slot);
        held.as_mut().filter(|h| !h.passed().load(Acquire)).map(what)
    }

    /// Defers the gradient of a ReLU. Returns whether it did.
    pub fn hold_mask(
        &self,
        form: impl FnOnce() -> Result<Prepared>,
        dy: View,
        positive: View,
        to: View,
    ) -> Result<bool> {
        let (dtype, elements) = (to.dtype(), to.numel());
        let fits = |v: View| whole(v, dtype, elements) && (v.ptr() as usize).is_multiple_of(16);
        let apart = dy.ptr() != to.ptr() && positive.ptr() != to.ptr() && dy.ptr() != positive.ptr();
        // For half types the fused sums would need more registers than the saved pass is worth.
        let large = elements * dtype.size() >= LARGE_MASK && dtype.size() >= 4;
        if !large
            || !apart
            || ![dy, positive, to].into_iter().all(fits)
            || self.is_timed()
            || crate::launch::kernel::sync_each_call()
        {
            return Ok(false);
        }
        let [dy, positive, to] = [dy, positive, to].map(|v| v.ptr() as u64);
        let (stream, passed) = (Place(self.lane().stream), Arc::default());
        let mask = Mask { stream, passed, form: Box::new(form()?), dy, positive, to, dtype, elements };
        self.hold_back(Held::Mask(mask)).map(|()| true)
    }

    /// Takes over a deferred gradient of a ReLU whose output is `to`; the caller then computes it.
    pub fn take_mask(&self, to: View) -> Option<Mask> {
        if !self.queue.has_pending() {
            return None;
        }
        let slot = lock(&self.chain).clone()?;
        let mut held = lock(&slot);
        let suits = match held.as_ref()? {
            Held::Mask(mask) => {
                mask.to == to.ptr() as u64
                    && mask.stream.handle() == self.lane().stream
                    && !mask.passed.load(Acquire)
                    && whole(to, mask.dtype, mask.elements)
            }
            Held::Norm(_) => false,
        };
        match if suits { held.take() } else { None } {
            Some(Held::Mask(mask)) => Some(mask),
            _ => None,
        }
    }

    /// Fuses an addition or a ReLU with a deferred batch norm. Returns whether it did.
    pub fn join_chain(&self, op: Pointwise, compute: DType, inputs: &[Operand], out: View) -> bool {
        self.queue.has_pending()
            && self
                .with_held(|held| match held {
                    Held::Norm(chain) => chain.join(self.lane().stream, op, compute, inputs, out),
                    Held::Mask(_) => false,
                })
                .unwrap_or(false)
    }

    /// Whether work on these tensors commutes with the deferred work.
    pub fn is_apart_from_chain(&self, inputs: &[Option<View>], out: View) -> bool {
        let start = |v: &View| v.storage().ptr() as u64;
        let written = start(&out);
        let apart = |held: &mut Held| {
            held.stream() == self.lane().stream
                && !held.reads(written)
                && !held.writes(written)
                && !inputs.iter().flatten().any(|v| held.writes(start(v)))
        };
        self.with_held(apart).unwrap_or(false)
    }

    /// Called when memory is freed, before its reuse. Returns whether it must be kept until its readers are
    /// issued.
    pub fn is_kept_for_held(&self, block: u64) -> bool {
        let read = self.with_held(|held| {
            let read = held.reads(block);
            if let (false, Held::Norm(chain)) = (read, held) {
                chain.forget(block);
            }
            read
        });
        if read != Some(true) {
            return false;
        }
        match lock(&self.chain).clone() {
            Some(slot) => {
                lock(&self.kept).push((slot, block));
                self.keeps.store(true, Release);
                true
            }
            None => false,
        }
    }

    /// Records that nobody reads the memory that starts here any more.
    pub fn forget_in_chain(&self, block: u64) {
        self.with_held(|held| {
            if let Held::Norm(chain) = held {
                chain.forget(block);
            }
        });
    }

    /// Memory kept for work that has been issued since.
    pub fn no_longer_kept(&self) -> Vec<u64> {
        let mut kept = lock(&self.kept);
        let mut free = Vec::new();
        kept.retain(|(slot, block)| {
            // After the deferred work is queued, any reuse of the memory is ordered behind it.
            let waits = lock(slot).as_ref().is_some_and(|held| !held.passed().load(Acquire));
            if !waits {
                free.push(*block);
            }
            waits
        });
        self.keeps.store(!kept.is_empty(), Release);
        free
    }
}
