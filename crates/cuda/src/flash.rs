//! Attention of half types on tensor cores (`kernels/flash.cu`), for what those kernels take; `attention` does the rest.

use crate::attention::{Form, Saved, Spec, strides};
use crate::device::Gpu;
use crate::kernel::{Defines, Family, Function, Grid, Key, c_type, launch};
use rushlight_core::{DType, Result, View};

/// One of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Forward,
    /// The gradient by the queries.
    Queries,
    /// The gradients by keys and values.
    Keys,
}

impl Part {
    #[cfg(test)]
    pub const ALL: [Part; 3] = [Part::Forward, Part::Queries, Part::Keys];

    fn entry(self) -> &'static str {
        ["flash", "flash_queries", "flash_keys"][self as usize]
    }

    fn define(self) -> &'static str {
        ["FORWARD", "QUERIES", "KEYS"][self as usize]
    }
}

/// Keys or queries of a step.
const STEP: usize = 64;
/// Queries or keys of a warp.
const WARP_ROWS: usize = 16;

/// A kernel's shape: head size, warps of a block, blocks that a multiprocessor should take, and whether four warps multiply together.
#[derive(Clone, Copy)]
pub struct Shape {
    part: Part,
    d: usize,
    warps: usize,
    blocks: usize,
    group: bool,
}

impl Shape {
    /// Many warps hide what each waits for: as many as registers allow.
    pub fn new(part: Part, d: usize, capability: (i32, i32)) -> Self {
        // A group's products take heads in panels of 64.
        let group = capability == (9, 0) && d.is_multiple_of(64);
        let (warps, blocks) = match (group, part, d) {
            (true, _, ..=64) => (4, 3),
            (true, Part::Forward, _) => (8, 1),
            (true, ..) => (4, 1),
            (false, Part::Forward, ..=64) => (4, 4),
            (false, _, ..=64) => (4, 3),
            (false, Part::Forward, _) => (4, 2),
            (false, ..) => (4, 1),
        };
        Shape { part, d, warps, blocks, group }
    }

    fn rows(self) -> usize {
        self.warps * WARP_ROWS
    }

    /// Bytes of shared memory: the block's own rows, two steps of the other side's, sums of two steps.
    fn shared(self) -> usize {
        let own = if self.group && self.part != Part::Forward { 2 * self.rows() } else { self.rows() };
        let (row, gap) = if self.group { (self.d, 1024) } else { (self.d + 8, 0) };
        (own + 4 * STEP) * row * 2 + 4 * STEP * 4 + gap
    }

    /// The launch for so many rows of so many heads.
    fn grid(self, rows: usize, heads: usize) -> Result<Grid> {
        Ok(Grid::plane(rows.div_ceil(self.rows()), heads, self.warps * 32)?.shared(self.shared()))
    }

    pub fn defines(self, form: Form) -> Defines {
        Defines::default()
            .define(self.part.define(), 1)
            .define("WARPS", self.warps)
            .define("TILES", 1)
            .define("BLOCKS", self.blocks)
            .define("WARPGROUP", self.group as u8)
            .define("WIDE", 1)
            .define("T", c_type(form.dtype))
            .define("IS_BF16", (form.dtype == DType::BF16) as u8)
            .define("D", self.d)
            .define("CAUSAL", form.causal as u8)
            .define("MASK", form.mask)
            .define("DROPOUT", form.dropout as u8)
    }
}

/// Head sizes that kernels are compiled for.
const HEADS: [usize; 4] = [32, 64, 96, 128];

/// Whether rows can be loaded 16 bytes at a time.
fn loads_well(ptr: u64, strides: [u64; 4]) -> bool {
    ptr.is_multiple_of(16) && strides[3] == 1 && strides[..3].iter().all(|s| s.is_multiple_of(8))
}

/// Whether rows can be stored 4 bytes at a time.
fn stores_well(to: View) -> bool {
    let [batch, head, row, column] = strides(to);
    (to.ptr() as u64).is_multiple_of(4) && column == 1 && [batch, head, row].iter().all(|s| s.is_multiple_of(2))
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

impl Gpu {
    fn flash_kernel(&self, part: Part, form: Form, d: usize) -> Result<(Function, Shape)> {
        let shape = Shape::new(part, d, self.properties.capability);
        let tags = [form.dtype as u16, d as u16, form.causal as u16, form.mask, form.dropout as u16];
        let key = |part: Part| Key::new(Family::Flash, part.entry(), tags);
        if part == Part::Forward {
            self.prepare(&key(part), || {
                [Part::Queries, Part::Keys]
                    .map(|part| (key(part), Shape::new(part, d, self.properties.capability).defines(form)))
            });
        }
        let function = self.function(key(part), || shape.defines(form))?;
        self.allow_shared(function, shape.shared())?;
        Ok((function, shape))
    }

    /// Attention on tensor cores; says whether it was for them.
    pub fn flash(&self, spec: &Spec, form: Form, out: View, lse: View) -> Result<bool> {
        let Some(d) = head(self, spec, &form).filter(|_| stores_well(out)) else { return Ok(false) };
        let (to, [o0, o1, o2, _]) = (out.ptr() as u64, strides(out));
        let (function, shape) = self.flash_kernel(Part::Forward, form, d)?;
        let (spec, log_sum) = (*spec, lse.ptr() as u64);
        let grid = shape.grid(spec.l, spec.batch * spec.heads)?;
        launch!(self, function, grid; spec, to, o0, o1, o2, log_sum)?;
        Ok(true)
    }

    /// Its gradients; says whether they were for tensor cores.
    pub fn flash_backward(
        &self,
        spec: &Spec,
        form: Form,
        saved: &Saved,
        delta: u64,
        [dq, dk, dv]: [View; 3],
    ) -> Result<bool> {
        let stores = [dq, dk, dv].iter().all(|&to| stores_well(to));
        let loads = loads_well(saved.dout, saved.dout_strides) && loads_well(saved.out, saved.out_strides);
        let Some(d) = head(self, spec, &form).filter(|_| stores && loads) else { return Ok(false) };
        let (to_q, to_k, to_v) = (dq.ptr() as u64, dk.ptr() as u64, dv.ptr() as u64);
        let ([q0, q1, q2, _], [k0, k1, k2, _], [v0, v1, v2, _]) = (strides(dq), strides(dk), strides(dv));
        let (spec, saved) = (*spec, *saved);
        let (queries, shape) = self.flash_kernel(Part::Queries, form, d)?;
        let grid = shape.grid(spec.l, spec.batch * spec.heads)?;
        launch!(self, queries, grid; spec, saved, delta, to_q, q0, q1, q2)?;
        let (keys, shape) = self.flash_kernel(Part::Keys, form, d)?;
        let grid = shape.grid(spec.s, spec.batch * spec.kv_heads)?;
        launch!(self, keys, grid; spec, saved, delta, to_k, to_v, k0, k1, k2, v0, v1, v2)?;
        Ok(true)
    }
}
