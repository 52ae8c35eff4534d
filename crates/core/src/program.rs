//! The calls of a recorded step as data: [`Call`]s over numbered buffers.
//!
//! A [`Program`] is what a captured step keeps of itself. Passes that fuse, reorder or export work on it and need no
//! other knowledge of ops: a call knows its name, what it reads and writes, and what it costs.

use crate::backend::call::{Access, Shaped};
use crate::backend::{Call, Storage, View};
use crate::{DType, Device, Error, Layout, Result};
use std::collections::HashMap;
use std::fmt;

/// A view of a program's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The buffer's number.
    pub buffer: usize,
    /// The elements and their order.
    pub layout: Layout,
    /// Their type.
    pub dtype: DType,
}

impl Shaped for Slot {
    fn sizes(&self) -> &[usize] {
        self.layout.shape()
    }

    fn element(&self) -> DType {
        self.dtype
    }
}

/// A block of memory that a program uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The device.
    pub device: Device,
    /// The size.
    pub bytes: usize,
    /// Whether the memory was there before: an input, a parameter, an optimizer's state.
    pub outside: bool,
}

/// Engine calls in order, over numbered buffers.
///
/// A buffer is a block of memory from its allocation on: memory that was freed and allocated again has another number.
#[derive(Clone, Debug, Default)]
pub struct Program {
    buffers: Vec<Buffer>,
    calls: Vec<Call<Slot>>,
    /// By address, while the program is recorded.
    numbers: HashMap<usize, usize>,
}

impl Program {
    /// A program of these calls; [`verify`](Program::verify) says whether it is one.
    pub fn new(buffers: Vec<Buffer>, calls: Vec<Call<Slot>>) -> Self {
        Self { buffers, calls, numbers: HashMap::new() }
    }

    /// Adds memory that the step has allocated: a new buffer, also where a freed one was.
    pub fn allocate(&mut self, storage: &Storage) {
        if storage.bytes() > 0 {
            self.numbers.insert(storage.ptr() as usize, self.buffers.len());
            self.buffers.push(Buffer { device: storage.device(), bytes: storage.bytes(), outside: false });
        }
    }

    /// Adds a call. Memory that the step has not allocated comes from outside.
    pub fn push(&mut self, call: &Call<View>) {
        let Self { buffers, numbers, .. } = self;
        let noted = call.map(&mut |_, view| {
            let storage = view.storage();
            let buffer = *numbers.entry(storage.ptr() as usize).or_insert(buffers.len());
            if buffer == buffers.len() {
                buffers.push(Buffer { device: storage.device(), bytes: storage.bytes(), outside: true });
            }
            Slot { buffer, layout: view.layout().clone(), dtype: view.dtype() }
        });
        self.calls.push(noted);
    }

    /// The calls, in order.
    pub fn calls(&self) -> &[Call<Slot>] {
        &self.calls
    }

    /// The buffers, by number.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Additions and multiplications of all products, convolutions and attentions.
    pub fn flops(&self) -> u64 {
        self.calls.iter().map(Call::flops).sum()
    }

    /// Bytes that all calls read and write.
    pub fn bytes(&self) -> u64 {
        self.calls.iter().map(Call::bytes).sum()
    }

    /// Checks that every view is within its buffer, that a call's outputs do not overlap themselves or each other, and
    /// that the program reads no buffer of its own before it wrote to it. The error names the call.
    pub fn verify(&self) -> Result<()> {
        let mut written: Vec<bool> = self.buffers.iter().map(|buffer| buffer.outside).collect();
        for (i, call) in self.calls.iter().enumerate() {
            let fault = |what: String| Error::value(format!("program: call {i}, {}: {what}", call.op_name()));
            let (mut result, mut outputs) = (Ok(()), Vec::new());
            call.visit(&mut |access, slot| {
                let found = self.check(slot).and_then(|()| {
                    if call.effective(access) != Access::Write && !written[slot.buffer] && slot.layout.numel() > 0 {
                        return Err(format!("reads buffer %{}, which was not written yet", slot.buffer));
                    }
                    if access != Access::Read {
                        if slot.layout.overlaps() {
                            return Err(format!("writes %{} through a view that overlaps itself", slot.buffer));
                        }
                        outputs.push(slot);
                    }
                    Ok(())
                });
                if let (Ok(()), Err(what)) = (&result, found) {
                    result = Err(fault(what));
                }
            });
            result?;
            for (k, a) in outputs.iter().enumerate() {
                if let Some(b) = outputs[..k].iter().find(|b| a == *b && a.layout.numel() > 0) {
                    return Err(fault(format!("writes %{} twice", b.buffer)));
                }
                written[a.buffer] = true;
            }
        }
        Ok(())
    }

    fn check(&self, slot: &Slot) -> std::result::Result<(), String> {
        let Some(buffer) = self.buffers.get(slot.buffer) else {
            return Err(format!("there is no buffer %{}", slot.buffer));
        };
        let end = slot.layout.span().map_err(|e| e.to_string())?;
        if slot.layout.numel() > 0 && end * slot.dtype.size() > buffer.bytes {
            let bytes = end * slot.dtype.size();
            return Err(format!("a view ends at byte {bytes} of %{}, which has {}", slot.buffer, buffer.bytes));
        }
        Ok(())
    }
}

/// `%3 f32[2, 8]`, with strides and offset where the view is not a whole contiguous one.
impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{} {}{:?}", self.buffer, self.dtype, self.layout.shape())?;
        if !self.layout.is_contiguous() {
            write!(f, " strides {:?}", self.layout.strides())?;
        }
        if self.layout.offset() > 0 { write!(f, " at {}", self.layout.offset()) } else { Ok(()) }
    }
}

/// One line per call: `%7 f32[2, 8] = relu(%3 f32[2, 8])`.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outside = self.buffers.iter().filter(|buffer| buffer.outside).count();
        writeln!(
            f,
            "# {} calls over {} buffers, {outside} of them from outside; {:.3} GFLOP, {:.3} MiB read and written",
            self.calls.len(),
            self.buffers.len(),
            self.flops() as f64 / 1e9,
            self.bytes() as f64 / f64::from(1 << 20),
        )?;
        for call in &self.calls {
            let join = |slots: Vec<&Slot>| slots.iter().map(|slot| slot.to_string()).collect::<Vec<_>>().join(", ");
            let mut reads = Vec::new();
            let mut writes = Vec::new();
            call.visit(&mut |access, slot| match call.effective(access) {
                Access::Read => reads.push(slot),
                Access::Write => writes.push(slot),
                Access::Change => {
                    reads.push(slot);
                    writes.push(slot);
                }
            });
            write!(f, "{} = {}({}", join(writes), call.op_name(), join(reads))?;
            let mut params = String::new();
            call.params(&mut |name, value| {
                if !matches!(name, "op" | "compute" | "live") {
                    params.push_str(&format!("; {name} {value:?}"));
                }
            });
            writeln!(f, "{params})")?;
        }
        Ok(())
    }
}
