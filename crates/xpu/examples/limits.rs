//! Products, attention and memory-bound kernels of an xpu device beside what the device can do at most, measured in the
//! same run: `cargo run --release -p rushlight-xpu --example limits`. With `check`, an error if any of them stays below
//! half of its limit; with another word (`product`, `attention`, `memory`), only these.

use rushlight_core::backend::{Activation, Attention, MatMul, RowNorm};
use rushlight_core::{Backend, DType, Error, Layout, Result, Scalar, Storage, View};
use std::time::Instant;

/// Rounds that measure everything anew: another program's load lowers some rounds, and the best of all counts.
const ROUNDS: usize = 8;

/// Seconds of the fastest of the runs of 0.15 s, at least three.
fn fastest(engine: &dyn Backend, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    engine.synchronize()?;
    let (mut best, mut count, begin) = (f64::INFINITY, 0, Instant::now());
    while count < 3 || begin.elapsed().as_secs_f64() < 0.15 {
        let start = Instant::now();
        run()?;
        engine.synchronize()?;
        best = best.min(start.elapsed().as_secs_f64());
        count += 1;
    }
    Ok(best)
}

/// What is measured, by name, in the order of the first round: work a second, the best so far.
#[derive(Default)]
struct Table(Vec<(String, f64)>);

impl Table {
    fn note(&mut self, name: String, rate: f64) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, best)) => *best = best.max(rate),
            None => self.0.push((name, rate)),
        }
    }

    /// The names below half of `most`.
    fn print(&self, most: f64, unit: &str) -> Vec<&str> {
        for (name, rate) in &self.0 {
            println!("{name}: {:.1} {unit}, {:.0} % of the most", rate * 1e-9, rate / most * 100.0);
        }
        self.0.iter().filter(|(_, rate)| *rate < 0.5 * most).map(|(name, _)| name.as_str()).collect()
    }
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
        engine.fill(Scalar::Float(0.01), made.view())?;
        Ok(made)
    }

    fn view(&self) -> View<'_> {
        View { storage: &self.storage, layout: &self.layout, dtype: self.dtype }
    }
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let check = words.iter().any(|word| word == "check");
    let only: Vec<&String> = words.iter().filter(|word| *word != "check").collect();
    let wants = |kind: &str| only.is_empty() || only.iter().any(|word| *word == kind);
    let engine = rushlight_xpu::backend(0)?;
    let (mut flops, mut bandwidth) = (0.0f64, 0.0f64);
    let (mut compute, mut memory, mut causal) = (Table::default(), Table::default(), Table::default());
    for _ in 0..ROUNDS {
        let most = rushlight_xpu::limits(0)?;
        (flops, bandwidth) = (flops.max(most.flops), bandwidth.max(most.bandwidth));
        if wants("product") {
            products(engine, &mut compute)?;
        }
        if wants("attention") {
            attention(engine, &mut compute, &mut causal)?;
        }
        if wants("memory") {
            memory_bound(engine, &mut memory)?;
            vector_products(engine, &mut memory)?;
        }
    }
    println!("most of the device: {:.1} GFLOP/s, {:.1} GB/s", flops * 1e-9, bandwidth * 1e-9);
    let mut low = compute.print(flops, "GFLOP/s");
    low.extend(causal.print(flops, "GFLOP/s of visible scores"));
    low.extend(memory.print(bandwidth, "GB/s"));
    if check && !low.is_empty() {
        return Err(Error::device(format!("below half of the device's limit: {}", low.join("; "))));
    }
    Ok(())
}

fn products(engine: &'static dyn Backend, table: &mut Table) -> Result<()> {
    for n in [256usize, 512, 1024] {
        let [a, b, out] = [0; 3].map(|_| Filled::new(engine, &[1, n, n], DType::F32));
        let (a, b, out) = (a?, b?, out?);
        let turned = b.layout.transpose(1, 2);
        for (name, layout) in [("a @ b", &b.layout), ("a @ b.T", &turned)] {
            let b = View { layout, ..b.view() };
            let (bias, alpha, beta, activation) = (None, 1.0, 0.0, Activation::None);
            let spec = MatMul { a: a.view(), b, out: out.view(), bias, alpha, beta, activation };
            let seconds = fastest(engine, || engine.matmul(&spec))?;
            table.note(format!("{name}, {n} x {n} x {n}"), 2.0 * (n * n * n) as f64 / seconds);
        }
    }
    Ok(())
}

fn attention(engine: &'static dyn Backend, table: &mut Table, visible: &mut Table) -> Result<()> {
    for (length, causal) in [(512usize, false), (1024, false), (1024, true)] {
        let (batch, heads, size) = (2usize, 4usize, 64usize);
        let shape = [batch, heads, length, size];
        let [q, k, v, out, dq, dk, dv] = [0; 7].map(|_| Filled::new(engine, &shape, DType::F32));
        let (q, k, v, out, dq, dk, dv) = (q?, k?, v?, out?, dq?, dk?, dv?);
        let lse = Filled::new(engine, &[batch, heads, length], DType::F32)?;
        let (mask, dropout) = (None, None);
        let spec = Attention { q: q.view(), k: k.view(), v: v.view(), mask, causal, scale: 0.125, dropout };
        let seconds = fastest(engine, || engine.attention(&spec, out.view(), lse.view()))?;
        // What is masked out is not counted.
        let flops = 4.0 * (batch * heads * length * length * size) as f64 * if causal { 0.5 } else { 1.0 };
        let table = if causal { &mut *visible } else { &mut *table };
        let kind = if causal { ", causal" } else { "" };
        let name = format!("attention, {heads} heads of {length} x {size}{kind}");
        table.note(name.clone(), flops / seconds);
        let seconds = fastest(engine, || {
            let views = [&out, &lse, &q].map(Filled::view);
            engine.attention_backward(&spec, views[0], views[1], views[2], dq.view(), dk.view(), dv.view())
        })?;
        table.note(format!("{name}, backward"), 2.5 * flops / seconds);
    }
    Ok(())
}

/// Products of a matrix and a vector, whose limit is the reading of the matrix.
fn vector_products(engine: &'static dyn Backend, table: &mut Table) -> Result<()> {
    let n = 4096usize;
    let [matrix, x, y] = [[1, n, n], [1, n, 1], [1, n, 1]].map(|shape| Filled::new(engine, &shape, DType::F32));
    let (matrix, x, y) = (matrix?, x?, y?);
    let turned = matrix.layout.transpose(1, 2);
    for (name, layout) in [("matrix times vector", &matrix.layout), ("transposed matrix times vector", &turned)] {
        let a = View { layout, ..matrix.view() };
        let (bias, alpha, beta, activation) = (None, 1.0, 0.0, Activation::None);
        let spec = MatMul { a, b: x.view(), out: y.view(), bias, alpha, beta, activation };
        let seconds = fastest(engine, || engine.matmul(&spec))?;
        table.note(format!("{name}, {n} x {n}"), (n * n * 4) as f64 / seconds);
    }
    Ok(())
}

/// Kernels that memory limits.
fn memory_bound(engine: &'static dyn Backend, table: &mut Table) -> Result<()> {
    let (rows, columns) = (16384usize, 1024usize);
    let [x, y] = [0; 2].map(|_| Filled::new(engine, &[rows, columns], DType::F32));
    let (x, y) = (x?, y?);
    let [mean, rstd] = [0; 2].map(|_| Filled::new(engine, &[rows], DType::F32));
    let (mean, rstd) = (mean?, rstd?);
    let mut memory = |name: &str, seconds: f64| table.note(name.to_string(), (rows * columns * 8) as f64 / seconds);
    memory("copy", fastest(engine, || engine.copy(x.view(), y.view()))?);
    memory("softmax", fastest(engine, || engine.softmax(false, [rows, columns, 1], x.view(), y.view()))?);
    let spec = RowNorm { rows, cols: columns, eps: 1e-5, rms: false };
    let (mean, rstd) = (mean.view(), rstd.view());
    memory("layer norm", fastest(engine, || engine.row_norm(&spec, x.view(), None, None, y.view(), None, mean, rstd))?);
    Ok(())
}
