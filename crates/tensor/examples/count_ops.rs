//! Ops of every family, each marked for an emulator that counts instructions: `scripts/arm count` compares the levels
//! of 64-bit ARM by it.
//!
//! Prints a line "number name" for each op. Each runs once to get memory and once marked.

use rushlight_core::backend::UpdateRule;
use rushlight_core::{DType, Result, Scalar};
use rushlight_tensor::autograd::{Backward, grad};
use rushlight_tensor::{
    AttentionOptions, BatchNormOptions, ConvOptions, InterpolateMode, InterpolateOptions, MaxPool, PadMode, Tensor,
    cat, foreach, where_,
};
use std::io::Write;

/// A system call that no kernel has: the plugin of the emulator sees it.
fn mark(number: usize) {
    #[cfg(all(target_arch = "aarch64", target_os = "linux"))]
    // SAFETY: a call that fails, and changes one register.
    unsafe {
        std::arch::asm!("svc 0", in("x8") 5255u64, inlateout("x0") number as u64 => _, options(nostack));
    }
    #[cfg(not(all(target_arch = "aarch64", target_os = "linux")))]
    let _ = number;
}

struct Count {
    number: usize,
}

impl Count {
    fn op<T>(&mut self, name: &str, mut op: impl FnMut() -> Result<T>) -> Result<()> {
        op()?;
        self.number += 1;
        // A closed pipe ends the program.
        if writeln!(std::io::stdout(), "{} {name}", self.number).is_err() {
            std::process::exit(0);
        }
        mark(self.number);
        let result = op();
        mark(0);
        result.map(drop)
    }

    /// The op and its derivative.
    fn both(&mut self, name: &str, x: &Tensor, op: impl Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
        self.op(name, || op(x))?;
        let leaf = x.detach().requires_grad_(true)?;
        let y = op(&leaf)?;
        let dy = Tensor::ones_like(&y)?;
        self.op(&format!("{name}, backward"), || grad(&[&op(&leaf)?], &[&leaf], Backward::default().gradient(&dy)))
    }
}

fn main() -> Result<()> {
    let mut count = Count { number: 0 };
    pointwise(&mut count)?;
    conversions(&mut count)?;
    reductions(&mut count)?;
    rows(&mut count)?;
    products(&mut count)?;
    images(&mut count)?;
    elements(&mut count)
}

fn randn(shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::randn(shape)?.to_dtype(dtype)
}

fn pointwise(c: &mut Count) -> Result<()> {
    type Op = fn(&Tensor) -> Result<Tensor>;
    let ops: [(&str, Op); 30] = [
        ("neg", |x| x.neg()),
        ("abs", |x| x.abs()),
        ("square", |x| x.square()),
        ("sqrt", |x| x.abs()?.sqrt()),
        ("rsqrt", |x| x.square()?.rsqrt()),
        ("reciprocal", |x| x.reciprocal()),
        ("exp", |x| x.exp()),
        ("expm1", |x| x.expm1()),
        ("log", |x| x.abs()?.log()),
        ("log1p", |x| x.abs()?.log1p()),
        ("sin", |x| x.sin()),
        ("cos", |x| x.cos()),
        ("tan", |x| x.tan()),
        ("atan", |x| x.atan()),
        ("sinh", |x| x.sinh()),
        ("tanh", |x| x.tanh()),
        ("erf", |x| x.erf()),
        ("sigmoid", |x| x.sigmoid()),
        ("relu", |x| x.relu()),
        ("gelu", |x| x.gelu()),
        ("gelu_tanh", |x| x.gelu_tanh()),
        ("silu", |x| x.silu()),
        ("softplus", |x| x.softplus(1.0, 20.0)),
        ("elu", |x| x.elu(1.0)),
        ("floor", |x| x.floor()),
        ("round", |x| x.round()),
        ("sign", |x| x.sign()),
        ("lgamma", |x| x.lgamma()),
        ("isnan", |x| x.isnan()),
        ("clamp", |x| x.clamp(-0.5, 0.5)),
    ];
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let x = randn(&[16384], dtype)?;
        for (name, op) in ops {
            c.op(&format!("{name} {dtype}"), || op(&x))?;
        }
    }
    let x = randn(&[16384], DType::F32)?;
    for (name, op) in ops.iter().filter(|(name, _)| ["exp", "tanh", "gelu", "silu", "sigmoid", "sqrt"].contains(name)) {
        c.both(&format!("{name} f32, recorded"), &x, op)?;
    }
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32, DType::U8] {
        let (a, b) = if dtype.is_float() {
            (randn(&[128, 128], dtype)?, randn(&[128, 128], dtype)?)
        } else {
            let make = || Tensor::randint(1, 100, [128, 128])?.to_dtype(dtype);
            (make()?, make()?)
        };
        let row = b.narrow(0, 0, 1)?;
        c.op(&format!("add {dtype}"), || a.add(&b))?;
        c.op(&format!("mul {dtype}"), || a.mul(&b))?;
        c.op(&format!("div {dtype}"), || a.div(&b))?;
        c.op(&format!("maximum {dtype}"), || a.maximum(&b))?;
        c.op(&format!("remainder {dtype}"), || a.remainder(&b))?;
        c.op(&format!("add a row {dtype}"), || a.add(&row))?;
        c.op(&format!("add a number {dtype}"), || a.add(Scalar::Int(3)))?;
        c.op(&format!("lt {dtype}"), || a.lt(&b))?;
        c.op(&format!("transposed copy {dtype}"), || a.transpose(0, 1)?.contiguous())?;
        c.op(&format!("add transposed {dtype}"), || a.transpose(0, 1)?.add(&b))?;
        let mask = a.lt(&b)?;
        c.op(&format!("where {dtype}"), || where_(&mask, &a, &b))?;
        c.op(&format!("masked_fill {dtype}"), || a.masked_fill(&mask, Scalar::Int(0)))?;
    }
    let (a, b) = (randn(&[16384], DType::F32)?.abs()?, randn(&[16384], DType::F32)?);
    c.op("pow f32", || a.pow(&b))?;
    c.op("atan2 f32", || a.atan2(&b))?;
    c.op("hypot f32", || a.hypot(&b))
}

fn conversions(c: &mut Count) -> Result<()> {
    let kinds = [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32, DType::U8, DType::Bool];
    for from in kinds {
        let x = Tensor::randint(0, 100, [16384])?.to_dtype(from)?;
        for to in kinds.into_iter().filter(|&to| to != from) {
            c.op(&format!("{from} to {to}"), || x.to_dtype(to))?;
        }
    }
    Ok(())
}

fn reductions(c: &mut Count) -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32, DType::U8] {
        let x = if dtype.is_float() {
            randn(&[128, 256], dtype)?
        } else {
            Tensor::randint(0, 100, [128, 256])?.to_dtype(dtype)?
        };
        c.op(&format!("sum {dtype}"), || x.sum(..))?;
        c.op(&format!("sum of rows {dtype}"), || x.sum(1))?;
        c.op(&format!("sum of columns {dtype}"), || x.sum(0))?;
        c.op(&format!("prod of rows {dtype}"), || x.prod(1))?;
        c.op(&format!("amax of rows {dtype}"), || x.amax(1, false))?;
        c.op(&format!("amax of columns {dtype}"), || x.amax(0, false))?;
        c.op(&format!("argmax {dtype}"), || x.argmax(..))?;
        c.op(&format!("cumsum of rows {dtype}"), || x.cumsum(1))?;
        c.op(&format!("cumsum of columns {dtype}"), || x.cumsum(0))?;
        c.op(&format!("any {dtype}"), || x.any(..))?;
        if dtype.is_float() {
            c.op(&format!("var {dtype}"), || x.var(..))?;
            c.op(&format!("norm {dtype}"), || x.norm(2.0))?;
            c.op(&format!("logsumexp {dtype}"), || x.logsumexp(1, false))?;
        }
    }
    Ok(())
}

fn rows(c: &mut Count) -> Result<()> {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let x = randn(&[64, 256], dtype)?;
        let (w, b) = (randn(&[256], dtype)?, randn(&[256], dtype)?);
        c.both(&format!("softmax {dtype}"), &x, |x| x.softmax(-1))?;
        c.both(&format!("log_softmax {dtype}"), &x, |x| x.log_softmax(-1))?;
        c.both(&format!("softmax of columns {dtype}"), &x, |x| x.softmax(0))?;
        c.both(&format!("layer_norm {dtype}"), &x, |x| x.layer_norm(&[256], Some(&w), Some(&b), 1e-5))?;
        c.both(&format!("rms_norm {dtype}"), &x, |x| x.rms_norm(&[256], Some(&w), None))?;
        let image = randn(&[4, 16, 12, 12], dtype)?;
        c.both(&format!("batch_norm {dtype}"), &image, |x| x.batch_norm(&BatchNormOptions::default().training(true)))?;
        c.both(&format!("group_norm {dtype}"), &image, |x| x.group_norm(4, None, None, 1e-5))?;
        let target = Tensor::randint(0, 256, [64])?;
        c.both(&format!("cross_entropy {dtype}"), &x, |x| x.cross_entropy(&target))?;
    }
    Ok(())
}

fn products(c: &mut Count) -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32, DType::U8, DType::I8] {
        let make = |shape: &[usize]| {
            if dtype.is_float() { randn(shape, dtype) } else { Tensor::randint(0, 100, shape)?.to_dtype(dtype) }
        };
        let (a, b, v) = (make(&[96, 100])?, make(&[100, 88])?, make(&[100])?);
        c.op(&format!("matmul {dtype}"), || a.matmul(&b))?;
        c.op(&format!("matmul of transposed {dtype}"), || b.transpose(0, 1)?.matmul(&a.transpose(0, 1)?))?;
        c.op(&format!("matrix times vector {dtype}"), || a.matmul(&v))?;
        c.op(&format!("vector times matrix {dtype}"), || v.matmul(&b))?;
        let (few, small) = (make(&[3, 100])?, make(&[12, 7, 9])?);
        c.op(&format!("few rows {dtype}"), || few.matmul(&b))?;
        c.op(&format!("small batch {dtype}"), || small.matmul(&small.transpose(1, 2)?))?;
    }
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let (q, k) = (randn(&[1, 2, 64, 32], dtype)?, randn(&[1, 2, 64, 32], dtype)?);
        let options = AttentionOptions::default().is_causal(true);
        c.both(&format!("attention {dtype}"), &q, |q| q.scaled_dot_product_attention(&k, &k, &options))?;
    }
    let (a, b) = (randn(&[64, 20], DType::F32)?, randn(&[60, 20], DType::F32)?);
    c.op("cdist f32", || a.cdist(&b, 2.0))?;
    c.op("cdist 1 f32", || a.cdist(&b, 1.0))
}

fn images(c: &mut Count) -> Result<()> {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let x = randn(&[2, 16, 14, 14], dtype)?;
        let cases: [(&str, Tensor, ConvOptions); 5] = [
            ("3×3", randn(&[24, 16, 3, 3], dtype)?, ConvOptions::default().padding(1)),
            ("1×1", randn(&[24, 16, 1, 1], dtype)?, ConvOptions::default()),
            ("5×5, stride 2", randn(&[12, 16, 5, 5], dtype)?, ConvOptions::default().stride(2)),
            ("by channel", randn(&[16, 1, 3, 3], dtype)?, ConvOptions::default().padding(1).groups(16)),
            ("grouped", randn(&[16, 4, 3, 3], dtype)?, ConvOptions::default().padding(1).groups(4)),
        ];
        for (name, w, options) in &cases {
            c.both(&format!("conv2d {name} {dtype}"), &x, |x| x.conv2d(w, None, *options))?;
            let leaf = w.detach().requires_grad_(true)?;
            let dy = Tensor::ones_like(&x.conv2d(w, None, *options)?)?;
            c.op(&format!("conv2d {name} {dtype}, of the weight"), || {
                grad(&[&x.conv2d(&leaf, None, *options)?], &[&leaf], Backward::default().gradient(&dy))
            })?;
        }
        let few = randn(&[2, 3, 20, 20], dtype)?;
        let w = randn(&[8, 3, 7, 7], dtype)?;
        c.both(&format!("conv2d 7×7 of 3 {dtype}"), &few, |x| x.conv2d(&w, None, ConvOptions::default().stride(2)))?;
        c.both(&format!("max_pool2d {dtype}"), &x, |x| x.max_pool2d(MaxPool::new(2)))?;
        c.both(&format!("avg_pool2d {dtype}"), &x, |x| x.avg_pool2d(2))?;
        c.op(&format!("pad {dtype}"), || x.pad(&[1, 1, 1, 1], PadMode::Reflect))?;
    }
    let x = randn(&[2, 4, 14, 14], DType::F32)?;
    for (name, mode) in [
        ("nearest", InterpolateMode::Nearest),
        ("bilinear", InterpolateMode::Bilinear),
        ("bicubic", InterpolateMode::Bicubic),
    ] {
        let options = InterpolateOptions::size([28, 28]).mode(mode);
        c.both(&format!("interpolate {name} f32"), &x, |x| x.interpolate(&options))?;
    }
    Ok(())
}

fn elements(c: &mut Count) -> Result<()> {
    for dtype in [DType::F32, DType::BF16, DType::I64] {
        let x = Tensor::randint(0, 1000, [64, 128])?.to_dtype(dtype)?;
        let index = Tensor::randint(0, 64, [64, 128])?;
        let picked = Tensor::randint(0, 64, [100])?;
        c.op(&format!("sort {dtype}"), || x.sort(1, false))?;
        c.op(&format!("topk {dtype}"), || x.topk(5, 1, true))?;
        c.op(&format!("kthvalue {dtype}"), || x.kthvalue(20, 1, false))?;
        c.op(&format!("unique {dtype}"), || x.unique())?;
        c.op(&format!("gather {dtype}"), || x.gather(0, &index))?;
        c.op(&format!("scatter_add {dtype}"), || x.scatter_add(0, &index, &x))?;
        c.op(&format!("index_select {dtype}"), || x.index_select(0, &picked))?;
        c.op(&format!("index_select of columns {dtype}"), || x.index_select(1, &picked))?;
        c.op(&format!("flip {dtype}"), || x.flip([0, 1]))?;
        c.op(&format!("roll {dtype}"), || x.roll([3], [1]))?;
        c.op(&format!("cat {dtype}"), || cat(&[&x, &x], 1))?;
    }
    let x = randn(&[16384], DType::F32)?;
    c.op("histc f32", || x.histc(20, -2.0, 2.0))?;
    c.op("rand f32", || Tensor::rand([16384]))?;
    c.op("randn f32", || Tensor::randn([16384]))?;
    c.op("dropout f32", || x.dropout(0.2, true))?;
    for dtype in [DType::F32, DType::BF16] {
        let (p, g, m, v) =
            (randn(&[16384], dtype)?, randn(&[16384], dtype)?, randn(&[16384], dtype)?, randn(&[16384], dtype)?.abs()?);
        let rules = [
            ("sgd", [Some(&m), None, None], UpdateRule::Sgd { decay: 0.9, gain: 1.0, step: 0.1, grad_step: 0.0 }),
            (
                "adam",
                [Some(&m), Some(&v), None],
                UpdateRule::Adam { beta1: 0.9, beta2: 0.99, eps: 1e-8, root: 1.0, step: 0.01, grad_step: 0.0 },
            ),
            ("sgd, plain", [None; 3], UpdateRule::Sgd { decay: 0.0, gain: 0.0, step: 0.0, grad_step: 0.1 }),
        ];
        for (name, state, rule) in rules {
            let one = || foreach::Update {
                param: &p,
                grad: &g,
                state,
                maximize: false,
                weight_decay: 0.01,
                shrink: 1.0,
                rule,
            };
            c.op(&format!("update, {name} {dtype}"), || foreach::update(&[one()], 1.0))?;
        }
        c.op(&format!("norm of a list {dtype}"), || foreach::norm(&[&p, &v], 2.0))?;
    }
    Ok(())
}
