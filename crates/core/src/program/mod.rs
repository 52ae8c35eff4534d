//! The calls of a recorded step as data: [`Call`]s over numbered buffers.
//!
//! A [`Program`] is what a captured step keeps of itself. Passes that fuse, reorder or export work on it and need no
//! other knowledge of ops: a call knows its name, what it reads and writes, and what it costs.
//!
//! | module | what |
//! |---|---|
//! | `verify` | the rules of a program |
//! | [`passes`] | functions from a program to a better one |

pub mod passes;
mod verify;

use crate::backend::call::{Access, Shaped};
use crate::backend::{Call, Storage, View};
use crate::{DType, Device, Layout};
use std::collections::{HashMap, HashSet};
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
    /// Addresses of the buffers; empty where their memory is not fixed. Values that passes add have none.
    places: Vec<Option<usize>>,
    /// Buffers of the program's own that are read after it; `None` if all may be.
    results: Option<HashSet<usize>>,
    /// Work of the device that is not a call.
    foreign: Option<&'static str>,
}

impl Program {
    /// A program of these calls; [`verify`](Program::verify) says whether it is one.
    pub fn new(buffers: Vec<Buffer>, calls: Vec<Call<Slot>>) -> Self {
        Self { buffers, calls, ..Self::default() }
    }

    /// Adds memory that the step has allocated: a new buffer, also where a freed one was.
    pub fn allocate(&mut self, storage: &Storage) {
        if storage.bytes() > 0 {
            self.numbers.insert(storage.ptr() as usize, self.buffers.len());
            self.buffers.push(Buffer { device: storage.device(), bytes: storage.bytes(), outside: false });
            self.places.push(Some(storage.ptr() as usize));
        }
    }

    /// Adds a call. Memory that the step has not allocated comes from outside.
    pub fn push(&mut self, call: &Call<View>) {
        let Self { buffers, numbers, places, .. } = self;
        let noted = call.map(&mut |_, view| {
            let storage = view.storage();
            let buffer = *numbers.entry(storage.ptr() as usize).or_insert(buffers.len());
            if buffer == buffers.len() {
                buffers.push(Buffer { device: storage.device(), bytes: storage.bytes(), outside: true });
                places.push(Some(storage.ptr() as usize));
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

    /// The number of the buffer that memory at this address had last.
    pub fn buffer_at(&self, address: usize) -> Option<usize> {
        self.numbers.get(&address).copied()
    }

    /// The address of a buffer, if memory is fixed.
    pub fn place(&self, buffer: usize) -> Option<usize> {
        self.places.get(buffer).copied().flatten()
    }

    /// The same program over memory that is not fixed: whoever runs it allocates.
    pub fn unplaced(mut self) -> Self {
        self.places.clear();
        self.numbers.clear();
        self
    }

    /// The same program, of whose own buffers only these are read after it.
    pub fn with_results(mut self, results: impl IntoIterator<Item = usize>) -> Self {
        self.results = Some(results.into_iter().collect());
        self
    }

    /// Whether a buffer may be read after the program: all from outside, and the results.
    pub fn is_result(&self, buffer: usize) -> bool {
        let outside = self.buffers.get(buffer).is_none_or(|b| b.outside);
        outside || self.results.as_ref().is_none_or(|results| results.contains(&buffer))
    }

    /// Turns a buffer that the program reads and never wrote into one from outside.
    pub fn set_outside(&mut self, buffer: usize) {
        if let Some(buffer) = self.buffers.get_mut(buffer) {
            buffer.outside = true;
        }
    }

    /// Notes work of the device that is not a call, such as a collective: calls alone do not repeat the step.
    pub fn note_foreign(&mut self, what: &'static str) {
        self.foreign.get_or_insert(what);
    }

    /// The first work that is not a call.
    pub fn foreign(&self) -> Option<&'static str> {
        self.foreign
    }

    /// Another buffer in the memory of one whose values have ended. Returns its number.
    pub(crate) fn again(&mut self, buffer: usize) -> usize {
        let number = self.buffers.len();
        self.buffers.push(self.buffers[buffer].clone());
        if let Some(&place) = self.places.get(buffer) {
            self.places.push(place);
        }
        number
    }

    /// A new value without memory. Where memory is fixed, passes must keep it within one call. Returns its number.
    pub(crate) fn value(&mut self, device: Device, bytes: usize) -> usize {
        let number = self.buffers.len();
        self.buffers.push(Buffer { device, bytes, outside: false });
        if !self.places.is_empty() {
            self.places.push(None);
        }
        number
    }

    /// Whether two buffers may have memory in common.
    pub fn alias(&self, a: usize, b: usize) -> bool {
        if a == b {
            return true;
        }
        let range = |i: usize| Some((self.place(i)?, self.buffers.get(i)?.bytes));
        match (range(a), range(b)) {
            (Some((a, m)), Some((b, n))) => a < b.saturating_add(n) && b < a.saturating_add(m),
            _ => false,
        }
    }

    /// The same buffers with other calls.
    pub fn with_calls(&self, calls: Vec<Call<Slot>>) -> Self {
        Self { calls, ..self.clone() }
    }

    /// Most bytes that the program's own buffers take at a time, if each lives from its first to its last use.
    pub fn peak(&self) -> usize {
        let mut span: HashMap<usize, (usize, usize)> = HashMap::new();
        for (i, call) in self.calls.iter().enumerate() {
            call.visit(&mut |_, slot| span.entry(slot.buffer).or_insert((i, i)).1 = i);
        }
        let mut change = vec![0isize; self.calls.len() + 1];
        for (&buffer, &(first, last)) in &span {
            let Some(b) = self.buffers.get(buffer).filter(|b| !b.outside) else { continue };
            change[first] += b.bytes as isize;
            if !(self.results.is_some() && self.is_result(buffer)) {
                change[last + 1] -= b.bytes as isize;
            }
        }
        let (mut now, mut peak) = (0, 0);
        for by in change {
            now += by;
            peak = peak.max(now);
        }
        peak as usize
    }

    /// Additions and multiplications of all products, convolutions and attentions.
    pub fn flops(&self) -> u64 {
        self.calls.iter().map(Call::flops).sum()
    }

    /// Bytes that all calls read and write.
    pub fn bytes(&self) -> u64 {
        self.calls.iter().map(Call::bytes).sum()
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
