//! Reductions: kept and reduced dimensions, and how threads share them (`kernels/reduce.cu`).

use crate::device::Gpu;
use crate::launch::kernel::{Defines, Family, Grid, Key, launch, wide_type};
use crate::launch::nest::{Loops, Nest, is_wide, loops, merged};
use rushlight_core::backend::{ArgReduce, Reduce};
use rushlight_core::{DType, Error, Result, View};

const THREADS: usize = 256;
/// Blocks per multiprocessor that saturate memory.
const ENOUGH_BLOCKS: usize = 8;
/// Threads per multiprocessor that keep it busy.
const BUSY_THREADS: usize = 512;
/// Minimum elements per thread before an output is split into pieces.
const PER_THREAD: usize = 16;
/// Elements of an output that a thread has under way at a time.
const TURNS: usize = 4;
/// Maximum bytes of partial results.
const PARTIAL: usize = 24;

/// The reduction as a code of `reduce.cu`, and its parameter.
fn code(op: Reduce) -> (u16, f64) {
    match op {
        Reduce::Sum => (0, 0.0),
        Reduce::Mean => (1, 0.0),
        Reduce::Prod => (2, 0.0),
        Reduce::Max => (3, 0.0),
        Reduce::Min => (4, 0.0),
        Reduce::Any => (5, 0.0),
        Reduce::All => (6, 0.0),
        Reduce::Var { correction } => (7, correction),
        Reduce::Norm { p: 0.0 } => (8, 0.0),
        Reduce::Norm { p: 1.0 } => (9, 0.0),
        Reduce::Norm { p: 2.0 } => (10, 0.0),
        Reduce::Norm { p } if p == f64::INFINITY => (11, 0.0),
        Reduce::Norm { p } if p == f64::NEG_INFINITY => (12, 0.0),
        Reduce::Norm { p } => (13, p),
        Reduce::LogSumExp => (14, 0.0),
        Reduce::SumSquares => (15, 0.0),
        Reduce::CountNonzero => (16, 0.0),
    }
}

/// Compile-time parameters of the kernels.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub code: u16,
    pub x: DType,
    pub out: DType,
    pub threads_in: u16,
    /// Whether adjacent threads compute adjacent outputs.
    pub across: bool,
    pub lanes: u16,
    pub one_loop: bool,
    pub wide: bool,
}

impl Form {
    pub fn defines(&self, entry: &str) -> Defines {
        let wide = if matches!(self.code, 5 | 6 | 16) { "i64" } else { wide_type(self.x) };
        let mut defines = Defines::default()
            .define(entry, 1)
            .define("OP_CODE", self.code)
            .dtype("T", self.x)
            .dtype("OUT", self.out)
            .define("W", wide)
            .define("THREADS_IN", self.threads_in)
            .define("JOIN_THREADS", self.threads_in)
            .define("THREADS_OUT", THREADS / self.threads_in as usize)
            .define("ALONG", self.across as u8)
            .define("LANES", self.lanes);
        if self.one_loop {
            defines = defines.define("ONE_LOOP", 1);
        }
        if self.wide {
            defines = defines.define("WIDE", 1);
        }
        defines
    }

    fn key(&self, entry: &'static str) -> Key {
        let flags = (self.across as u16) | (self.one_loop as u16) << 1 | (self.wide as u16) << 2;
        let tags = [self.code, self.x as u16, self.out as u16, self.threads_in, self.lanes, flags];
        Key::new(Family::Reduce, entry, tags)
    }
}

fn product<const N: usize>(loops: &Loops<N>) -> usize {
    loops.iter().map(|l| l.0).product()
}

/// A reduction to be run.
struct Job<'a> {
    code: u16,
    param: f64,
    x: View<'a>,
    out: View<'a>,
    /// Output of indices, for arg-reductions.
    indices: u64,
    kept: Loops<2>,
    reduced: Loops<1>,
}

impl Gpu {
    pub fn reduce(&self, op: Reduce, x: View, reduced: &[bool], out: View) -> Result<()> {
        let (code, param) = code(op);
        let needs_float = matches!(
            op,
            Reduce::Mean | Reduce::Var { .. } | Reduce::Norm { .. } | Reduce::LogSumExp | Reduce::SumSquares
        );
        if needs_float && !x.dtype().is_float() {
            return Err(Error::dtype(format!("{op:?}: takes floats, not {}", x.dtype())));
        }
        let job = self.split(code, param, x, reduced, out, 0);
        if product(&job.kept) > 0 && product(&job.reduced) == 0 && matches!(op, Reduce::Max | Reduce::Min) {
            return Err(Error::value(format!(
                "{op:?}: cannot reduce over no elements, which have no largest or smallest (input shape {:?})",
                x.shape()
            )));
        }
        self.fold(job)
    }

    pub fn arg_reduce(&self, op: ArgReduce, x: View, dim: usize, values: View, indices: View) -> Result<()> {
        let code = if op == ArgReduce::Max { 17 } else { 18 };
        let reduced: Vec<bool> = (0..x.shape().len()).map(|d| d == dim).collect();
        if values.strides() == indices.strides() {
            let job = self.split(code, 0.0, x, &reduced, values, indices.ptr() as u64);
            return self.fold(job);
        }
        // One kernel writes both at the same offsets.
        let (best, at) = (self.temporary(values.shape(), x.dtype())?, self.temporary(values.shape(), DType::I64)?);
        let job = self.split(code, 0.0, x, &reduced, best.view(), at.view().ptr() as u64);
        self.fold(job)?;
        self.copy(best.view(), values)?;
        self.copy(at.view(), indices)
    }

    fn split<'a>(&self, code: u16, param: f64, x: View<'a>, reduced: &[bool], out: View<'a>, indices: u64) -> Job<'a> {
        let all = loops(x.shape(), [x.strides(), out.strides()]);
        let mut marks = (0..x.shape().len()).filter(|&d| x.shape()[d] != 1).map(|d| reduced[d]);
        let (mut kept, mut inner): (Loops<2>, Loops<1>) = (Loops::new(), Loops::new());
        for (size, strides) in all {
            if marks.next().unwrap_or(false) {
                inner.push((size, [strides[0]]));
            } else {
                kept.push((size, strides));
            }
        }
        Job { code, param, x, out, indices, kept: merged(&kept), reduced: merged(&inner) }
    }

    fn fold(&self, job: Job) -> Result<()> {
        let Job { code, param, x, out, indices, kept, reduced } = job;
        let (outputs, length) = (product(&kept), product(&reduced));
        if outputs == 0 {
            return Ok(());
        }
        let least = |l: &[(usize, usize)]| l.iter().filter(|s| s.0 > 1).map(|s| s.1).min().unwrap_or(usize::MAX);
        let least_kept = least(&kept.iter().map(|l| (l.0, l.1[0])).collect::<Vec<_>>());
        let least_reduced = least(&reduced.iter().map(|l| (l.0, l.1[0])).collect::<Vec<_>>());
        let across = least_kept < least_reduced;
        let width = 16 / x.dtype().size().max(2);
        let whole = |stride: usize| stride.is_multiple_of(width);
        let dense = if across {
            // Adjacent outputs at once.
            let (last, others) = (kept[kept.len() - 1], &kept[..kept.len() - 1]);
            last.1[0] == 1
                && whole(last.0)
                && others.iter().all(|l| whole(l.1[0]))
                && reduced.iter().all(|l| whole(l.1[0]))
        } else {
            reduced.len() == 1 && reduced[0].1[0] == 1 && length >= width && kept.iter().all(|l| whole(l.1[0]))
        };
        let vectors = dense && (x.ptr() as usize).is_multiple_of(width * x.dtype().size());
        let lanes = if vectors { width } else { 1 };
        let threads_in = if across {
            let most = THREADS / (outputs / lanes).next_power_of_two().min(32);
            most.min(length.div_ceil(TURNS).max(1).next_power_of_two())
        } else {
            let mut threads =
                length.div_ceil(lanes * if lanes > 1 { 1 } else { 4 }).max(1).next_power_of_two().min(THREADS);
            // Where there are threads enough, each takes a few vectors: joining threads costs more than loads.
            let busy = self.properties.multiprocessors * BUSY_THREADS;
            while threads > 32 && length < threads * lanes * TURNS && outputs * threads / 2 >= busy {
                threads /= 2;
            }
            threads
        };
        let threads_out = THREADS / threads_in;
        let blocks = outputs.div_ceil(threads_out * if across { lanes } else { 1 });
        let enough = ENOUGH_BLOCKS * self.properties.multiprocessors;
        let mut pieces = (enough / blocks).clamp(1, 2048).min(length / (threads_in * PER_THREAD)).max(1);
        let piece = length.div_ceil(pieces).next_multiple_of(if across { 1 } else { lanes }).max(1);
        pieces = length.div_ceil(piece).max(1);
        let form = Form {
            code,
            x: x.dtype(),
            out: out.dtype(),
            threads_in: threads_in as u16,
            across,
            lanes: lanes as u16,
            one_loop: kept.len() == 1 && reduced.len() == 1,
            wide: is_wide(&kept) || is_wide(&reduced) || x.layout().span()? > i32::MAX as usize,
        };
        let function = self.function(form.key("reduce"), || form.defines("FOLD"))?;
        let (kept, reduced) = (Nest::new(&kept)?, Nest::new(&reduced)?);
        let (from, to) = (x.ptr() as u64, out.ptr() as u64);
        let scratch = if pieces > 1 { Some(self.scratch(pieces * outputs * PARTIAL)?) } else { None };
        let partial = scratch.as_ref().map_or(0, |s| s.ptr);
        let grid = Grid::plane(blocks, pieces, THREADS)?;
        launch!(self, function, grid; kept, reduced, from, to, indices, partial, outputs, length, piece, param)?;
        if pieces > 1 {
            // For few outputs with many pieces, one block combines each output.
            let form = Form { threads_in: if pieces > 16 { 128 } else { 1 }, lanes: 1, across: false, ..form };
            let join = self.function(form.key("reduce_join"), || form.defines("JOIN"))?;
            let grid = Grid::line(outputs.div_ceil(128 / form.threads_in as usize), 128)?;
            launch!(self, join, grid; kept, to, indices, partial, outputs, pieces, length, param)?;
        }
        Ok(())
    }
}
