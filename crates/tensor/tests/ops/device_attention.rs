//! Attention of another device's engine against the CPU's: every head size, mask, dropout and layout.

use crate::device::{device, distance, randn, turn};
use rushlight_core::{DType, Device, Result, rng};
use rushlight_tensor::autograd::Backward;
use rushlight_tensor::{AttentionOptions, Tensor};

/// One attention problem.
#[derive(Clone, Copy, Debug)]
struct Problem {
    /// Batch, heads, key and value heads, queries, keys, head size.
    sizes: [usize; 6],
    dtype: DType,
    causal: bool,
    /// 0: none; 1: truth values; 2: added.
    mask: u8,
    dropout: f64,
}

fn attend(p: Problem) -> Result<()> {
    let Some(device) = device() else { return Ok(()) };
    let [b, h, kv, l, s, d] = p.sizes;
    // Heads side by side, as a model's projections leave them.
    let make = |heads: usize, length: usize| randn(&[b, length, heads, d])?.transpose(1, 2)?.to_dtype(p.dtype);
    // Later keys of a long sequence are larger: on the way scores leave behind what they were measured by.
    let growth = Tensor::linspace(1.0, if s > 500 { 4.0 } else { 1.0 }, s)?.unsqueeze(1)?;
    let inputs = [make(h, l)?, make(kv, s)?.mul(&growth.to_dtype(p.dtype)?)?, make(kv, s)?];
    let dy = make(h, l)?;
    let mask = match p.mask {
        0 => None,
        1 => Some(Tensor::rand([l, s])?.gt(0.3)?),
        _ => Some(randn(&[1, h, l, s])?.to_dtype(p.dtype)?),
    };
    let run = |device: &Device, dtype: DType| -> Result<Vec<Tensor>> {
        let place = |t: &Tensor| t.to_dtype(dtype)?.to(device);
        let leaves: Vec<Tensor> =
            inputs.iter().map(|t| place(t)?.detach().requires_grad_(true)).collect::<Result<_>>()?;
        let mask = mask.as_ref().map(|m| if m.dtype() == DType::Bool { m.to(device) } else { place(m) }).transpose()?;
        rng::manual_seed(5);
        let options = AttentionOptions::default().is_causal(p.causal).dropout_p(p.dropout).enable_gqa(h != kv);
        let options = options.attn_mask(mask.as_ref());
        let y = leaves[0].scaled_dot_product_attention(&leaves[1], &leaves[2], &options)?;
        y.backward_with(Backward::default().gradient(&place(&dy)?))?;
        let mut out = vec![y];
        for leaf in &leaves {
            out.extend(leaf.grad());
        }
        Ok(out)
    };
    // Half types against the same in f32, on the CPU.
    let wide = if p.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let (got, want) = (run(&device, p.dtype)?, run(&Device::Cpu, wide)?);
    let most = match p.dtype {
        DType::F64 => 1e-12,
        DType::F32 => 2e-5,
        DType::F16 => 3e-3,
        _ => 2e-2,
    };
    for (name, (got, want)) in ["out", "dq", "dk", "dv"].iter().zip(got.iter().zip(&want)) {
        let off = distance(got, want)?;
        assert!(off <= most, "{p:?}: {name} is off by {off:e}");
    }
    // Nothing depends on what was done first.
    for (name, (got, again)) in ["out", "dq", "dk", "dv"].iter().zip(got.iter().zip(run(&device, p.dtype)?)) {
        assert_eq!(got.to_vec::<f64>()?, again.to_vec::<f64>()?, "{p:?}: {name} differs from run to run");
    }
    Ok(())
}

/// Whether the kernels for compute capability 9.0 took part where they are the fastest: shapes they do not support fall
/// back.
fn went_by_hopper() -> Result<()> {
    let (Some(device), Some(engine)) = (device(), rushlight_engines::accelerator()) else { return Ok(()) };
    let counts = rushlight_gpu::hopper_attentions();
    println!("attentions by the kernels for compute capability 9.0, forward and backward: {counts:?}");
    if engine.name() != "cuda" || engine.properties(device.index())?.capability != (9, 0) {
        println!("skipped: no kernels for compute capability 9.0 on this GPU");
        return Ok(());
    }
    assert!(counts.into_iter().all(|n| n > 0), "no attention by the kernels for this GPU");
    Ok(())
}

#[test]
fn attention() -> Result<()> {
    let _turn = turn();
    let sizes = [
        [2, 3, 3, 64, 64, 64],
        [1, 2, 2, 200, 333, 32],
        [2, 4, 2, 130, 130, 128],
        [1, 2, 1, 77, 70, 96],
        [1, 1, 1, 300, 40, 40],
    ];
    for (i, sizes) in sizes.into_iter().enumerate() {
        // Every head size and every feature, but not every feature at every size: each is a kernel to compile.
        let half = [DType::BF16, DType::F16][i % 2];
        attend(Problem { sizes, dtype: half, causal: i % 2 == 0, mask: 0, dropout: 0.0 })?;
        attend(Problem {
            sizes,
            dtype: half,
            causal: false,
            mask: 1 + i as u8 % 2,
            dropout: if i < 2 { 0.25 } else { 0.0 },
        })?;
        attend(Problem { sizes, dtype: DType::F32, causal: i % 2 == 0, mask: [0, 1, 0, 2, 0][i], dropout: 0.1 })?;
    }
    // Many steps of the tensor cores' kernels, and heads that one block does alone.
    for dtype in [DType::BF16, DType::F16] {
        attend(Problem { sizes: [2, 3, 3, 700, 700, 64], dtype, causal: true, mask: 0, dropout: 0.0 })?;
        attend(Problem { sizes: [1, 2, 1, 257, 513, 128], dtype, causal: false, mask: 0, dropout: 0.0 })?;
        // Keys shared by heads, more queries than keys, more heads than stay in the cache together.
        for sizes in [[1, 4, 2, 200, 200, 64], [1, 2, 2, 300, 100, 64], [1, 140, 140, 256, 256, 64]] {
            attend(Problem { sizes, dtype, causal: true, mask: 0, dropout: 0.0 })?;
        }
        for sizes in [[2, 8, 4, 1024, 640, 128], [1, 3, 3, 700, 900, 96], [2, 24, 6, 515, 390, 40]] {
            for causal in [false, true] {
                attend(Problem { sizes, dtype, causal, mask: 0, dropout: 0.0 })?;
            }
            attend(Problem { sizes, dtype, causal: false, mask: 1, dropout: 0.1 })?;
        }
    }
    went_by_hopper()?;
    // Heads whose rows stay in shared memory: few queries and many, odd numbers of keys, every feature once.
    for (i, sizes) in
        [[1, 2, 1, 200, 333, 256], [2, 2, 2, 130, 132, 192], [1, 3, 3, 50, 70, 160], [1, 2, 2, 300, 260, 232]]
            .into_iter()
            .enumerate()
    {
        let dtype = [DType::BF16, DType::F16][i % 2];
        attend(Problem { sizes, dtype, causal: i % 2 == 0, mask: 0, dropout: 0.0 })?;
        attend(Problem { sizes, dtype, causal: false, mask: i as u8 % 3, dropout: if i < 2 { 0.25 } else { 0.0 } })?;
    }
    // Many steps of large heads, with each kind of mask.
    for (mask, sizes) in
        [[2, 3, 3, 700, 900, 256], [1, 4, 2, 515, 390, 192], [1, 2, 2, 390, 642, 256]].into_iter().enumerate()
    {
        attend(Problem { sizes, dtype: DType::BF16, causal: mask == 0, mask: mask as u8, dropout: 0.0 })?;
    }
    for sizes in [[3, 2, 2, 20, 20, 64], [2, 2, 2, 20, 2, 64], [2, 2, 2, 3, 31, 300]] {
        attend(Problem { sizes, dtype: DType::F32, causal: false, mask: 0, dropout: 0.1 })?;
        attend(Problem { sizes, dtype: DType::F32, causal: true, mask: 0, dropout: 0.0 })?;
    }
    attend(Problem { sizes: [1, 2, 2, 50, 60, 24], dtype: DType::F64, causal: false, mask: 1, dropout: 0.1 })
}

/// Operands whose columns are not neighbours, or whose heads are one: the fastest kernels do not take them, and none
/// may take them for others.
#[test]
fn attention_of_views() -> Result<()> {
    let _turn = turn();
    let Some(device) = device() else { return Ok(()) };
    for (heads, size) in [(80, 64), (4, 128)] {
        let make = |shape: [usize; 5]| randn(&shape)?.to_dtype(DType::BF16)?.to(device);
        let q = make([2, heads, 300, size, 2])?.select(4, 0)?;
        let k = make([2, heads, size, 300, 1])?.select(4, 0)?.transpose(2, 3)?;
        let v = make([2, 1, 300, size, 1])?.select(4, 0)?.expand([2, heads, 300, size])?;
        let dy = make([2, heads, 300, size, 2])?.select(4, 1)?;
        let run = |inputs: [&Tensor; 3], dy: &Tensor| -> Result<Vec<Tensor>> {
            let leaves = inputs.map(|t| t.detach().requires_grad_(true));
            let [q, k, v] = [leaves[0].clone()?, leaves[1].clone()?, leaves[2].clone()?];
            let y = q.scaled_dot_product_attention(&k, &v, &AttentionOptions::default())?;
            y.backward_with(Backward::default().gradient(dy))?;
            Ok([Some(y), q.grad(), k.grad(), v.grad()].into_iter().flatten().collect())
        };
        let got = run([&q, &k, &v], &dy)?;
        let want = run([&q.contiguous()?, &k.contiguous()?, &v.contiguous()?], &dy.contiguous()?)?;
        for (name, (got, want)) in ["out", "dq", "dk", "dv"].iter().zip(got.iter().zip(&want)) {
            let off = distance(got, want)?;
            assert!(off <= 2e-2, "heads of {size}: {name} is off by {off:e}");
        }
    }
    Ok(())
}

/// Attention that takes each kernel in little time: what an emulated GPU runs instead of the large problems above.
#[test]
fn small_attention() -> Result<()> {
    let _turn = turn();
    for (i, sizes) in [[1, 2, 1, 70, 70, 64], [1, 1, 1, 20, 75, 24], [1, 1, 1, 33, 17, 128]].into_iter().enumerate() {
        for (n, dtype) in [DType::BF16, DType::F16, DType::F32].into_iter().enumerate() {
            let (causal, dropout) = ((i + n) % 2 == 0, [0.0, 0.2][(i + n) % 2]);
            attend(Problem { sizes, dtype, causal, mask: if causal { 0 } else { 1 + (n % 2) as u8 }, dropout })?;
        }
    }
    // By matrix products, then all at once.
    attend(Problem { sizes: [1, 2, 2, 70, 66, 20], dtype: DType::F32, causal: true, mask: 0, dropout: 0.1 })?;
    attend(Problem { sizes: [1, 2, 2, 40, 36, 20], dtype: DType::F64, causal: false, mask: 1, dropout: 0.1 })?;
    // Rows longer than what a block keeps in registers.
    attend(Problem { sizes: [1, 1, 1, 4, 1100, 8], dtype: DType::F32, causal: false, mask: 2, dropout: 0.1 })?;
    attend(Problem { sizes: [1, 1, 1, 1100, 1100, 4], dtype: DType::F32, causal: true, mask: 0, dropout: 0.0 })?;
    // In stripes: heads are many.
    attend(Problem { sizes: [2, 32, 32, 300, 280, 4], dtype: DType::F32, causal: true, mask: 0, dropout: 0.1 })?;
    attend(Problem { sizes: [1, 64, 64, 270, 300, 4], dtype: DType::F32, causal: true, mask: 0, dropout: 0.0 })
}
