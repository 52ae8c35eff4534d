//! Attention for any dtype, head size, strides and mask (`kernels/attention.cu`). `flash_hopper` and `flash` handle the
//! shapes that tensor cores support, `attention_products` other large problems.

pub(crate) mod flash;
pub(crate) mod flash_hopper;
pub(crate) mod flash_mfma;
mod products;
mod task_order;

use crate::device::Gpu;
use crate::families::softmax::float;
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, launch, wide_type};
use rushlight_core::backend::{Attention, call};
use rushlight_core::{DType, Error, Result, View};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static HOPPER: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Number of forward and backward passes run so far by the kernels for compute capability 9.0; a recorded step counts
/// once. Other shapes fall back to other kernels; tests check here which kernel ran.
pub fn hopper_attentions() -> [u64; 2] {
    HOPPER.each_ref().map(|n| n.load(Relaxed))
}

const THREADS: usize = 256;
/// Maximum numbers of queries and keys for which one block computes a whole head.
const SHORT: usize = 32;
/// Maximum number of such heads, of half types, for which that is faster than tensor cores.
const TINY: usize = 16;

/// Matches `Spec` in `attention.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Spec {
    pub q: u64,
    pub k: u64,
    pub v: u64,
    pub mask: u64,
    pub q_strides: [u64; 4],
    pub k_strides: [u64; 4],
    pub v_strides: [u64; 4],
    pub mask_strides: [u64; 4],
    pub batch: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub l: usize,
    pub s: usize,
    pub d: usize,
    pub dv: usize,
    pub scale: f64,
    pub p: f64,
    pub stream: [u64; 2],
}

/// Matches `Saved` in `attention.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Saved {
    pub out: u64,
    pub dout: u64,
    pub out_strides: [u64; 4],
    pub dout_strides: [u64; 4],
    pub lse: u64,
}

/// Matches `Grads` in `attention.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Grads {
    at: [u64; 3],
    strides: [[u64; 4]; 3],
}

/// Row stride of a tile: whole vectors of four, plus one element.
fn padded(width: usize) -> usize {
    width.next_multiple_of(4).saturating_add(4)
}

pub fn strides(view: View) -> [u64; 4] {
    std::array::from_fn(|d| view.strides().get(d).copied().unwrap_or(0) as u64)
}

/// Compile-time parameters of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub dtype: DType,
    pub tile: u16,
    pub causal: bool,
    /// 0: no mask, 1: boolean, 2: additive.
    pub mask: u16,
    pub dropout: bool,
}

impl Form {
    pub fn tags(&self) -> [u16; 5] {
        [self.dtype as u16, self.tile, self.causal as u16, self.mask, self.dropout as u16]
    }

    pub fn defines(&self, part: &str) -> Defines {
        Defines::default()
            .define(part, 1)
            .dtype("T", self.dtype)
            .define("W", wide_type(self.dtype))
            .define("TILE", self.tile)
            .define("CAUSAL", self.causal as u8)
            .define("MASK", self.mask)
            .define("DROPOUT", self.dropout as u8)
    }
}

pub fn spec(call: &str, a: &Attention) -> Result<(Spec, Form)> {
    let (&[batch, heads, l, d], &[_, kv_heads, s, _], &[.., dv]) = (a.q.shape(), a.k.shape(), a.v.shape()) else {
        return Err(Error::shape(format!("{call}: queries, keys and values need four dimensions")));
    };
    float(call, a.q.dtype())?;
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(Error::shape(format!("{call}: {heads} query heads cannot share {kv_heads} key and value heads")));
    }
    if batch * heads > 65_535 {
        return Err(Error::unsupported(format!(
            "{call}: {batch} times {heads} heads are more than one CUDA launch takes (65535); split the batch"
        )));
    }
    let (p, stream) = a.dropout.map_or((0.0, [0, 0]), |(p, stream)| (p, [stream.seed, stream.offset]));
    let spec = Spec {
        q: a.q.ptr() as u64,
        k: a.k.ptr() as u64,
        v: a.v.ptr() as u64,
        mask: a.mask.map_or(0, |m| m.ptr() as u64),
        q_strides: strides(a.q),
        k_strides: strides(a.k),
        v_strides: strides(a.v),
        mask_strides: a.mask.map_or([0; 4], strides),
        batch,
        heads,
        kv_heads,
        l,
        s,
        d,
        dv,
        scale: a.scale,
        p,
        stream,
    };
    let mask = match a.mask {
        None => 0,
        Some(m) if m.dtype() == DType::Bool => 1,
        Some(m) if m.dtype() == a.q.dtype() => 2,
        Some(m) => return Err(Error::dtype(format!("{call}: a mask of {} for inputs of {}", m.dtype(), a.q.dtype()))),
    };
    Ok((spec, Form { dtype: a.q.dtype(), tile: 32, causal: a.causal, mask, dropout: p > 0.0 }))
}

impl Gpu {
    fn attention_kernel(&self, entry: &'static str, part: &str, form: Form, shared: usize) -> Result<Function> {
        let function = self.function(Key::new(Family::Attention, entry, form.tags()), || form.defines(part))?;
        self.allow_shared(function, shared)?;
        Ok(function)
    }

    /// The largest tile whose shared memory fits a block, and its bytes.
    fn tile(&self, dtype: DType, elements: impl Fn(usize) -> usize) -> Result<(u16, usize)> {
        let size = if dtype == DType::F64 { 8 } else { 4 };
        // A part of the shared memory is static.
        let most = self.shared_memory.saturating_sub(4 << 10);
        [32, 16, 8, 4, 2]
            .into_iter()
            .map(|tile| (tile as u16, elements(tile) * size))
            .find(|(_, bytes)| *bytes <= most)
            .ok_or_else(|| {
                Error::unsupported("attention: heads are too large for CUDA; compose it from matmul and softmax")
            })
    }

    pub fn attention(&self, a: &Attention, out: View, lse: View) -> Result<()> {
        let (spec, form) = spec("attention", a)?;
        if out.numel() == 0 && lse.numel() == 0 {
            return Ok(());
        }
        let by_hopper = self.hopper(&spec, form, out, lse)?;
        HOPPER[0].fetch_add(by_hopper as u64, Relaxed);
        if by_hopper || self.flash(&spec, form, out, lse)? || self.mfma(&spec, form, out, lse)? {
            return Ok(());
        }
        if Gpu::are_uneven(&spec, &form, &[a.q, a.k, a.v, out]) {
            let [q, k, v] = [self.packed(a.q)?, self.packed(a.k)?, self.packed(a.v)?];
            let packed = self.temporary(out.shape(), out.dtype())?;
            let a = Attention { q: q.view(), k: k.view(), v: v.view(), ..*a };
            self.attention(&a, packed.view(), lse)?;
            return self.copy(packed.view(), out);
        }
        if self.attention_products(&spec, form, out, lse)? {
            return Ok(());
        }
        let (tile, shared) = self.tile(form.dtype, |t| t * (2 * padded(spec.d) + 2 * padded(spec.dv) + t))?;
        let form = Form { tile, ..form };
        let function = self.attention_kernel("attention", "FORWARD", form, shared)?;
        let [o0, o1, o2, o3] = strides(out);
        let (to, log_sum) = (out.ptr() as u64, lse.ptr() as u64);
        let grid = Grid::plane(spec.l.div_ceil(tile as usize), spec.batch * spec.heads, THREADS)?;
        launch!(self, function, grid.shared(shared).spread(); spec, to, o0, o1, o2, o3, log_sum)
    }

    /// Computes the gradients of short heads, one block per head. Returns whether it did.
    fn attention_short(&self, spec: &Spec, mut form: Form, saved: &Saved, [dq, dk, dv]: [View; 3]) -> Result<bool> {
        let size = if form.dtype == DType::F64 { 8 } else { 4 };
        let shared = (spec.l + spec.s).saturating_mul(padded(spec.d) + padded(spec.dv)).saturating_mul(size);
        let fits = shared <= self.shared_memory.saturating_sub(2 * SHORT * SHORT * size);
        if spec.l.max(spec.s) > SHORT || spec.heads != spec.kv_heads || !fits {
            return Ok(false);
        }
        form.tile = SHORT as u16;
        let function = self.attention_kernel("attention_short", "SHORT", form, shared)?;
        let grads = Grads { at: [dq, dk, dv].map(|v| v.ptr() as u64), strides: [dq, dk, dv].map(strides) };
        let (spec, saved) = (*spec, *saved);
        let grid = Grid::line(spec.batch * spec.heads, THREADS)?.shared(shared);
        launch!(self, function, grid; spec, saved, grads)?;
        Ok(true)
    }

    pub fn attention_backward(&self, c: &call::AttentionBackward<View>) -> Result<()> {
        let call::AttentionBackward { of: ref a, out, lse, dout, dq, dk, dv } = *c;
        let (spec, form) = spec("attention_backward", a)?;
        let saved = Saved {
            out: out.ptr() as u64,
            dout: dout.ptr() as u64,
            out_strides: strides(out),
            dout_strides: strides(dout),
            lse: lse.ptr() as u64,
        };
        let grads = [dq, dk, dv];
        let by_tensor_cores = || -> Result<bool> {
            let by_hopper = self.hopper_backward(&spec, form, &saved, grads)?;
            HOPPER[1].fetch_add(by_hopper as u64, Relaxed);
            Ok(by_hopper
                || self.flash_backward(&spec, form, &saved, grads)?
                || self.mfma_backward(&spec, form, &saved, grads)?)
        };
        let tiny = spec.l.max(spec.s) <= TINY;
        if !tiny && by_tensor_cores()? {
            return Ok(());
        }
        let rows = spec.batch * spec.heads * spec.l;
        // One value per query.
        let scratch = self.scratch(rows * 8)?;
        let delta = scratch.ptr;
        let (tile, shared) = self.tile(form.dtype, |t| t * (3 * padded(spec.d) + 3 * padded(spec.dv) + 2 * t))?;
        let form = Form { tile, ..form };
        if self.attention_short(&spec, form, &saved, grads)? || (tiny && by_tensor_cores()?) {
            return Ok(());
        }
        if Gpu::are_uneven(&spec, &form, &[a.q, a.k, a.v, out, dout]) {
            let [q, k, v] = [self.packed(a.q)?, self.packed(a.k)?, self.packed(a.v)?];
            let (out, dout) = (self.packed(out)?, self.packed(dout)?);
            let a = Attention { q: q.view(), k: k.view(), v: v.view(), ..*a };
            let of = a;
            return self.attention_backward(&call::AttentionBackward { of, out: out.view(), dout: dout.view(), ..*c });
        }
        if grads.iter().any(|g| !g.layout().is_contiguous()) {
            let packed = grads.iter().map(|g| self.temporary(g.shape(), g.dtype())).collect::<Result<Vec<_>>>()?;
            let [q, k, v] = [&packed[0], &packed[1], &packed[2]].map(|t| t.view());
            self.attention_backward(&call::AttentionBackward { dq: q, dk: k, dv: v, ..*c })?;
            return packed.iter().zip(grads).try_for_each(|(from, to)| self.copy(from.view(), to));
        }
        let function = self.attention_kernel("attention_delta", "BACKWARD", form, 0)?;
        launch!(self, function, Grid::line((rows * 32).div_ceil(THREADS), THREADS)?; spec, saved, delta)?;
        if self.attention_products_backward(&spec, form, &saved, delta, grads)? {
            return Ok(());
        }
        let function = self.attention_kernel("attention_queries", "BACKWARD", form, shared)?;
        let to = dq.ptr() as u64;
        let tiles = |n: usize| n.div_ceil(tile as usize);
        let grid = Grid::plane(tiles(spec.l), spec.batch * spec.heads, THREADS)?.shared(shared);
        launch!(self, function, grid; spec, saved, delta, to)?;
        let function = self.attention_kernel("attention_keys", "BACKWARD", form, shared)?;
        let (to_k, to_v) = (dk.ptr() as u64, dv.ptr() as u64);
        let grid = Grid::plane(tiles(spec.s), spec.batch * spec.kv_heads, THREADS)?.shared(shared);
        launch!(self, function, grid; spec, saved, delta, to_k, to_v)
    }
}
