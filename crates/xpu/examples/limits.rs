//! Products, attention and memory-bound kernels of an xpu device as a share of the device's peak:
//! `cargo run --release -p rushlight-xpu --example limits`. With `check`, an error if any of them stays below half of
//! the peak; with another word (`product`, `attention`, `memory`), only these.
//!
//! The clock of a shared machine changes from second to second, so the peak is measured right before and after each
//! kernel, in several rounds, and a kernel's share is the median over the rounds.

use rushlight_core::backend::{Activation, Attention, Call, MatMul, RowNorm, call, execute};
use rushlight_core::{Backend, DType, Error, Layout, Result, Scalar, Storage, View};
use rushlight_xpu::Limits;
use std::time::Instant;

/// Rounds that measure every kernel and the peak next to it.
const ROUNDS: usize = 15;
/// Seconds that one kernel is measured in a round.
const SECONDS: f64 = 0.03;

/// Median seconds of the runs within [`SECONDS`], of at least three.
/// Runs a call on the engine.
fn run<'v>(engine: &dyn Backend, call: impl Into<Call<View<'v>>>) -> Result<()> {
    // SAFETY: the arrays below have the shapes that a call asks for.
    unsafe { execute(engine, &call.into()) }
}

fn typical(engine: &dyn Backend, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    engine.synchronize()?;
    let (mut times, begin) = (Vec::new(), Instant::now());
    while times.len() < 3 || begin.elapsed().as_secs_f64() < SECONDS {
        let start = Instant::now();
        run()?;
        engine.synchronize()?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(median(&times))
}

/// What limits a kernel.
#[derive(Clone, Copy)]
enum Bound {
    Compute,
    Memory,
}

impl Bound {
    fn of(self, limits: &Limits) -> f64 {
        match self {
            Bound::Compute => limits.flops,
            Bound::Memory => limits.bandwidth,
        }
    }
}

/// All measurements of one kernel.
struct Row {
    name: String,
    bound: Bound,
    /// Flops or bytes a second in each round.
    rates: Vec<f64>,
    /// The same as a share of the peak next to it.
    shares: Vec<f64>,
}

/// The measured kernels, in the order of the first round.
struct Table {
    rows: Vec<Row>,
    /// The peak that was measured last.
    before: Limits,
}

impl Table {
    /// Adds a kernel that does `work` flops or bytes in `seconds`.
    fn note(&mut self, name: String, bound: Bound, work: f64, seconds: f64) -> Result<()> {
        let after = rushlight_xpu::limits(0)?;
        let peak = (bound.of(&self.before) + bound.of(&after)) / 2.0;
        self.before = after;
        let at = match self.rows.iter().position(|row| row.name == name) {
            Some(at) => at,
            None => {
                self.rows.push(Row { name, bound, rates: Vec::new(), shares: Vec::new() });
                self.rows.len() - 1
            }
        };
        self.rows[at].rates.push(work / seconds);
        self.rows[at].shares.push(work / seconds / peak);
        Ok(())
    }

    /// Prints a line for each kernel; returns the names of those below half of the peak.
    fn print(&self) -> Vec<&str> {
        let mut low = Vec::new();
        for Row { name, bound, rates, shares } in &self.rows {
            let unit = match bound {
                Bound::Compute => "GFLOP/s",
                Bound::Memory => "GB/s",
            };
            let share = median(shares);
            println!("{name}: {:.1} {unit}, {:.0} % of the peak", median(rates) * 1e-9, share * 100.0);
            if share < 0.5 {
                low.push(name.as_str());
            }
        }
        low
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// A tensor with small numbers everywhere.
struct Filled {
    storage: Storage,
    layout: Layout,
    dtype: DType,
}

impl Filled {
    fn new(engine: &'static dyn Backend, shape: &[usize], dtype: DType) -> Result<Self> {
        let layout = Layout::contiguous(shape)?;
        let made = Self { storage: engine.alloc(layout.numel() * dtype.size())?, layout, dtype };
        run(engine, call::Fill { value: Scalar::Float(0.01), out: made.view() })?;
        Ok(made)
    }

    fn view(&self) -> View<'_> {
        // SAFETY: contiguous, and the storage was allocated for it.
        unsafe { View::new_unchecked(&self.storage, &self.layout, self.dtype) }
    }
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let check = words.iter().any(|word| word == "check");
    let only: Vec<&String> = words.iter().filter(|word| *word != "check").collect();
    let wants = |kind: &str| only.is_empty() || only.iter().any(|word| *word == kind);
    let engine = rushlight_xpu::backend(0)?;
    let mut table = Table { rows: Vec::new(), before: rushlight_xpu::limits(0)? };
    for _ in 0..ROUNDS {
        if wants("product") {
            products(engine, &mut table)?;
        }
        if wants("attention") {
            attention(engine, &mut table)?;
        }
        if wants("memory") {
            memory_bound(engine, &mut table)?;
            vector_products(engine, &mut table)?;
        }
    }
    println!("peak: {:.1} GFLOP/s, {:.1} GB/s", table.before.flops * 1e-9, table.before.bandwidth * 1e-9);
    let low = table.print();
    if check && !low.is_empty() {
        return Err(Error::device(format!("below half of the device's peak: {}", low.join("; "))));
    }
    Ok(())
}

fn products(engine: &'static dyn Backend, table: &mut Table) -> Result<()> {
    for n in [256usize, 512, 1024] {
        let [a, b, out] = [0; 3].map(|_| Filled::new(engine, &[1, n, n], DType::F32));
        let (a, b, out) = (a?, b?, out?);
        let transposed = b.layout.transpose(1, 2);
        for (name, layout) in [("a @ b", &b.layout), ("a @ b.T", &transposed)] {
            let b = b.view().with_layout(layout)?;
            let (bias, alpha, beta, activation) = (None, 1.0, 0.0, Activation::None);
            let spec = MatMul { a: a.view(), b, out: out.view(), bias, alpha, beta, activation };
            let seconds = typical(engine, || run(engine, spec))?;
            table.note(format!("{name}, {n} x {n} x {n}"), Bound::Compute, 2.0 * (n * n * n) as f64, seconds)?;
        }
    }
    Ok(())
}

fn attention(engine: &'static dyn Backend, table: &mut Table) -> Result<()> {
    for (length, causal) in [(512usize, false), (1024, false), (1024, true)] {
        let (batch, heads, size) = (2usize, 4usize, 64usize);
        let shape = [batch, heads, length, size];
        let [q, k, v, out, dq, dk, dv] = [0; 7].map(|_| Filled::new(engine, &shape, DType::F32));
        let (q, k, v, out, dq, dk, dv) = (q?, k?, v?, out?, dq?, dk?, dv?);
        let lse = Filled::new(engine, &[batch, heads, length], DType::F32)?;
        let (mask, dropout) = (None, None);
        let spec = Attention { q: q.view(), k: k.view(), v: v.view(), mask, causal, scale: 0.125, dropout };
        let seconds = typical(engine, || run(engine, call::Attention { of: spec, out: out.view(), lse: lse.view() }))?;
        // Masked scores do not count.
        let flops = 4.0 * (batch * heads * length * length * size) as f64 * if causal { 0.5 } else { 1.0 };
        let kind = if causal { ", causal" } else { "" };
        let name = format!("attention, {heads} heads of {length} x {size}{kind}");
        table.note(name.clone(), Bound::Compute, flops, seconds)?;
        let seconds = typical(engine, || {
            let views = [&out, &lse, &q].map(Filled::view);
            run(
                engine,
                call::AttentionBackward {
                    of: spec,
                    out: views[0],
                    lse: views[1],
                    dout: views[2],
                    dq: dq.view(),
                    dk: dk.view(),
                    dv: dv.view(),
                },
            )
        })?;
        table.note(format!("{name}, backward"), Bound::Compute, 2.5 * flops, seconds)?;
    }
    Ok(())
}

/// Products of a matrix and a vector, bound by reading the matrix.
fn vector_products(engine: &'static dyn Backend, table: &mut Table) -> Result<()> {
    let n = 4096usize;
    let [matrix, x, y] = [[1, n, n], [1, n, 1], [1, n, 1]].map(|shape| Filled::new(engine, &shape, DType::F32));
    let (matrix, x, y) = (matrix?, x?, y?);
    let transposed = matrix.layout.transpose(1, 2);
    for (name, layout) in [("matrix times vector", &matrix.layout), ("transposed matrix times vector", &transposed)] {
        let a = matrix.view().with_layout(layout)?;
        let (bias, alpha, beta, activation) = (None, 1.0, 0.0, Activation::None);
        let spec = MatMul { a, b: x.view(), out: y.view(), bias, alpha, beta, activation };
        let seconds = typical(engine, || run(engine, spec))?;
        table.note(format!("{name}, {n} x {n}"), Bound::Memory, (n * n * 4) as f64, seconds)?;
    }
    Ok(())
}

/// Kernels bound by memory.
fn memory_bound(engine: &'static dyn Backend, table: &mut Table) -> Result<()> {
    let (rows, columns) = (16384usize, 1024usize);
    let [x, y] = [0; 2].map(|_| Filled::new(engine, &[rows, columns], DType::F32));
    let (x, y) = (x?, y?);
    let [mean, rstd] = [0; 2].map(|_| Filled::new(engine, &[rows], DType::F32));
    let (mean, rstd) = (mean?, rstd?);
    let bytes = (rows * columns * 8) as f64;
    let mut memory = |name: &str, seconds: f64| table.note(name.to_string(), Bound::Memory, bytes, seconds);
    memory("copy", typical(engine, || run(engine, call::Copy { src: x.view(), out: y.view() }))?)?;
    memory(
        "softmax",
        typical(engine, || {
            run(engine, call::Softmax { log: false, dims: [rows, columns, 1], x: x.view(), y: y.view() })
        })?,
    )?;
    let spec = RowNorm { rows, cols: columns, eps: 1e-5, rms: false };
    let (mean, rstd) = (mean.view(), rstd.view());
    memory(
        "layer norm",
        typical(engine, || {
            run(
                engine,
                call::RowNorm { spec, x: x.view(), weight: None, bias: None, y: y.view(), low: None, mean, rstd },
            )
        })?,
    )?;
    Ok(())
}
