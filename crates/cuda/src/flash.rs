//! Attention of half types on tensor cores (`kernels/flash.cu`), for what those kernels take; `attention` does the rest.

use crate::attention::{Form, Saved, Spec, strides};
use crate::device::Gpu;
use crate::kernel::{Defines, Family, Function, Grid, Key, c_type, launch};
use rushlight_core::{DType, Result, View};

/// Warps of a block; of each, tiles of 16 queries or keys; and blocks that a multiprocessor should take.
#[derive(Clone, Copy)]
struct Shape {
    warps: usize,
    tiles: usize,
    blocks: usize,
}

impl Shape {
    /// Many warps hide what each waits for: as many as registers allow.
    fn new(backward: bool, d: usize) -> Self {
        match (backward, d) {
            (false, ..=64) => Shape { warps: 4, tiles: 1, blocks: 4 },
            (true, ..=64) => Shape { warps: 4, tiles: 1, blocks: 3 },
            (false, _) => Shape { warps: 4, tiles: 1, blocks: 2 },
            (true, _) => Shape { warps: 4, tiles: 1, blocks: 1 },
        }
    }

    fn rows(self) -> usize {
        self.warps * self.tiles * 16
    }
}
/// Keys or queries of a step.
const STEP: usize = 64;

/// Head sizes that kernels are compiled for.
const HEADS: [usize; 4] = [32, 64, 96, 128];

/// Whether rows can be loaded 16 bytes at a time.
fn loads_well(ptr: u64, strides: [u64; 4]) -> bool {
    ptr.is_multiple_of(16) && strides[3] == 1 && strides[..3].iter().all(|s| s.is_multiple_of(8))
}

/// The head size to compile for, if the kernels take this problem.
fn head(gpu: &Gpu, spec: &Spec, form: &Form) -> Option<usize> {
    let half = matches!(form.dtype, DType::F16 | DType::BF16);
    let inputs = [(spec.q, spec.q_strides), (spec.k, spec.k_strides), (spec.v, spec.v_strides)];
    let fits = half
        && gpu.properties.capability.0 >= 8
        && spec.d == spec.dv
        && spec.l.max(spec.s) <= i32::MAX as usize / 2
        && spec.scale > 0.0
        && spec.d.is_multiple_of(8)
        && inputs.iter().all(|&(ptr, strides)| loads_well(ptr, strides));
    HEADS.into_iter().find(|&d| spec.d <= d && spec.d > 0).filter(|_| fits)
}

pub fn defines(backward: bool, form: Form, d: usize) -> Defines {
    Defines::default()
        .define(if backward { "BACKWARD" } else { "FORWARD" }, 1)
        .define("WARPS", Shape::new(backward, d).warps)
        .define("TILES", Shape::new(backward, d).tiles)
        .define("BLOCKS", Shape::new(backward, d).blocks)
        .define("WIDE", 1)
        .define("T", c_type(form.dtype))
        .define("IS_BF16", (form.dtype == DType::BF16) as u8)
        .define("D", d)
        .define("CAUSAL", form.causal as u8)
        .define("MASK", form.mask)
        .define("DROPOUT", form.dropout as u8)
}

/// Bytes of shared memory: the block's own rows, two steps of the other side's, sums of two steps.
fn shared(backward: bool, d: usize) -> usize {
    (Shape::new(backward, d).rows() + 4 * STEP) * (d + 8) * 2 + 4 * STEP * 4
}

/// The launch for so many rows of so many heads.
fn grid(backward: bool, d: usize, rows: usize, heads: usize) -> Result<Grid> {
    let shape = Shape::new(backward, d);
    Ok(Grid::plane(rows.div_ceil(shape.rows()), heads, shape.warps * 32)?.shared(shared(backward, d)))
}

impl Gpu {
    fn flash_kernel(&self, entry: &'static str, backward: bool, form: Form, d: usize) -> Result<Function> {
        let tags = [form.dtype as u16, d as u16, form.causal as u16, form.mask, form.dropout as u16];
        let function = self.function(Key::new(Family::Flash, entry, tags), || defines(backward, form, d))?;
        self.allow_shared(function, shared(backward, d))?;
        Ok(function)
    }

    /// Attention on tensor cores; says whether it was for them.
    pub fn flash(&self, spec: &Spec, form: Form, out: View, lse: View) -> Result<bool> {
        let to = out.ptr() as u64;
        let [o0, o1, o2, o3] = strides(out);
        let stores = to.is_multiple_of(4) && o3 == 1 && [o0, o1, o2].iter().all(|s| s.is_multiple_of(2));
        let Some(d) = head(self, spec, &form).filter(|_| stores) else { return Ok(false) };
        let function = self.flash_kernel("flash", false, form, d)?;
        let (spec, log_sum) = (*spec, lse.ptr() as u64);
        let grid = grid(false, d, spec.l, spec.batch * spec.heads)?;
        launch!(self, function, grid; spec, to, o0, o1, o2, log_sum)?;
        Ok(true)
    }

    /// Its gradients, given `out . dout` of each row; says whether it was for tensor cores.
    pub fn flash_backward(
        &self,
        spec: &Spec,
        form: Form,
        saved: &Saved,
        delta: u64,
        [dq, dk, dv]: [View; 3],
    ) -> Result<bool> {
        let (to_q, to_k, to_v) = (dq.ptr() as u64, dk.ptr() as u64, dv.ptr() as u64);
        let stores = [to_q, to_k, to_v].iter().all(|p| p.is_multiple_of(4));
        let loads = loads_well(saved.dout, saved.dout_strides);
        let Some(d) = head(self, spec, &form).filter(|_| stores && loads) else { return Ok(false) };
        let (spec, saved) = (*spec, *saved);
        let queries = self.flash_kernel("flash_queries", true, form, d)?;
        let (rows, heads) = (spec.l, spec.batch * spec.heads);
        launch!(self, queries, grid(true, d, rows, heads)?; spec, saved, delta, to_q)?;
        let keys = self.flash_kernel("flash_keys", true, form, d)?;
        let (rows, heads) = (spec.s, spec.batch * spec.kv_heads);
        launch!(self, keys, grid(true, d, rows, heads)?; spec, saved, delta, to_k, to_v)?;
        Ok(true)
    }
}
