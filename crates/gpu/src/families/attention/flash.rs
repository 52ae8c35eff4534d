//! Attention of half types on tensor cores (`kernels/flash.cu`), for the shapes those kernels support; `attention`
//! handles the rest.

use crate::device::Gpu;
use crate::families::attention::{Form, Saved, Spec, strides};
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, c_type, launch};
use crate::vendor::driver::MatrixUnits;
use rushlight_core::{DType, Result, View};

/// One of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Forward,
    /// The gradient with respect to the queries.
    Queries,
    /// The gradients with respect to keys and values.
    Keys,
}

impl Part {
    pub const ALL: [Part; 3] = [Part::Forward, Part::Queries, Part::Keys];

    fn entry(self) -> &'static str {
        ["flash", "flash_queries", "flash_keys"][self as usize]
    }

    /// The problem's parameters for its kernels, for a head size.
    pub fn defines(self, d: usize, form: Form) -> Defines {
        Defines::default()
            .define(["FORWARD", "QUERIES", "KEYS"][self as usize], 1)
            .define("WIDE", 1)
            .define("T", c_type(form.dtype))
            .define("IS_BF16", (form.dtype == DType::BF16) as u8)
            .define("D", d)
            .define("CAUSAL", form.causal as u8)
            .define("MASK", form.mask)
            .define("DROPOUT", form.dropout as u8)
    }

    /// Number of heads per set; sets run one after the other. It is chosen by the bytes that the blocks of a head
    /// share, so that the data of a set stays in the cache.
    pub fn sets(self, heads: usize, common: usize) -> usize {
        let cached = if self == Part::Forward { 32 << 20 } else { 8 << 20 };
        heads.div_ceil((cached / common.max(1)).max(1)).max(1)
    }
}

/// Keys or queries per step.
const STEP: usize = 64;
/// Queries or keys per warp.
const WARP_ROWS: usize = 16;

/// A kernel's shape: head size, warps per block, target number of blocks per multiprocessor, and whether four warps
/// issue one product together.
#[derive(Clone, Copy)]
pub struct Shape {
    part: Part,
    d: usize,
    warps: usize,
    blocks: usize,
    group: bool,
}

impl Shape {
    /// The shape for a number of rows. Many warps hide latency, up to the limit of registers; blocks of many rows read
    /// the other operand less often.
    pub fn new(part: Part, rows: usize, d: usize, capability: (i32, i32)) -> Self {
        // On this architecture `flash_hopper` handles larger heads, except with few rows, for which a warp group is too
        // large.
        let group = capability == (9, 0) && d == 64;
        let (warps, blocks) = match (group, part, d) {
            (true, Part::Forward, _) if rows > STEP => (8, 2),
            (true, Part::Keys, _) => (4, 2),
            (true, ..) => (4, 3),
            (false, Part::Forward, ..=64) => (4, 4),
            (false, Part::Queries, ..=64) => (4, 3),
            (false, Part::Keys, ..=64) | (false, Part::Forward, _) => (4, 2),
            (false, ..) => (4, 1),
        };
        Shape { part, d, warps, blocks, group }
    }

    fn rows(self) -> usize {
        self.warps * WARP_ROWS
    }

    /// Bytes of shared memory: the block's own rows, steps of the other operand's, and per-row data for the gradients
    /// of a step's or the block's rows.
    fn shared(self) -> usize {
        let (own, stages) = match (self.group, self.part) {
            (true, Part::Forward) => (self.rows(), 3),
            (true, _) => (2 * self.rows(), 3),
            (false, _) => (self.rows(), 2),
        };
        let (row, gap) = if self.group { (self.d, 1024) } else { (self.d + 8, 0) };
        (own + 2 * stages * STEP) * row * 2 + self.rows().max(stages * STEP) * 8 + gap
    }

    /// Launch configuration for a number of rows and heads, given the bytes that the blocks of a head share. Within a
    /// set of heads the longest blocks start first.
    fn grid(self, rows: usize, heads: usize, common: usize) -> Result<Grid> {
        let sets = self.part.sets(heads, common);
        let grid = Grid::plane(heads.div_ceil(sets), rows.div_ceil(self.rows()), self.warps * 32)?;
        let grid = Grid { blocks: [grid.blocks[0], grid.blocks[1], sets as u32], ..grid.shared(self.shared()) };
        Ok(if rows > STEP { grid.spread() } else { grid })
    }

    pub fn defines(self, form: Form) -> Defines {
        self.part
            .defines(self.d, form)
            .define("STEP", STEP)
            .define("WARPS", self.warps)
            .define("BLOCKS", self.blocks)
            .define("WARPGROUP", self.group as u8)
    }
}

/// Head sizes that kernels are compiled for.
const HEADS: [usize; 4] = [32, 64, 96, 128];

/// Whether rows can be loaded 16 bytes at a time.
pub fn loads_well(ptr: u64, strides: [u64; 4]) -> bool {
    ptr.is_multiple_of(16) && strides[3] == 1 && strides[..3].iter().all(|s| s.is_multiple_of(8))
}

/// Whether rows can be stored 16 bytes at a time.
pub fn stores_well(to: View) -> bool {
    loads_well(to.ptr() as u64, strides(to))
}

/// The compute capability, if the device has tensor cores that the kernels use.
fn capability(gpu: &Gpu) -> Option<(i32, i32)> {
    match gpu.matrix_units {
        MatrixUnits::TensorCores(capability) if capability.0 >= 8 => Some(capability),
        _ => None,
    }
}

/// The head size to compile for; `None` if the kernels do not support this problem.
fn head(gpu: &Gpu, spec: &Spec, form: &Form) -> Option<usize> {
    let half = matches!(form.dtype, DType::F16 | DType::BF16);
    let inputs = [(spec.q, spec.q_strides), (spec.k, spec.k_strides), (spec.v, spec.v_strides)];
    let fits = half
        && capability(gpu).is_some()
        && spec.d == spec.dv
        && spec.l.max(spec.s) <= i32::MAX as usize / 2
        && spec.scale > 0.0
        && spec.d.is_multiple_of(8)
        && inputs.iter().all(|&(ptr, strides)| loads_well(ptr, strides));
    HEADS.into_iter().find(|&d| spec.d <= d && spec.d > 0).filter(|_| fits)
}

impl Gpu {
    fn flash_kernel(&self, part: Part, form: Form, spec: &Spec, d: usize) -> Result<(Function, Shape)> {
        let shape = |part| {
            let rows = if part == Part::Keys { spec.s } else { spec.l };
            Shape::new(part, rows, d, capability(self).unwrap_or((8, 0)))
        };
        let key = |shape: Shape| {
            let (dtype, warps) = (form.dtype as u16, shape.warps as u16);
            let tags = [dtype, d as u16, form.causal as u16, form.mask, form.dropout as u16, warps];
            Key::new(Family::Flash, shape.part.entry(), tags)
        };
        let own = shape(part);
        let function = self.function(key(own), || own.defines(form))?;
        self.allow_shared(function, own.shared())?;
        Ok((function, own))
    }

    /// Attention on tensor cores. Returns whether the kernels support it.
    pub fn flash(&self, spec: &Spec, form: Form, out: View, lse: View) -> Result<bool> {
        let Some(d) = head(self, spec, &form).filter(|_| stores_well(out)) else { return Ok(false) };
        let (to, [o0, o1, o2, _]) = (out.ptr() as u64, strides(out));
        let (function, shape) = self.flash_kernel(Part::Forward, form, spec, d)?;
        let (spec, log_sum) = (*spec, lse.ptr() as u64);
        let grid = shape.grid(spec.l, spec.batch * spec.heads, 4 * spec.s * spec.d)?;
        launch!(self, function, grid; spec, to, o0, o1, o2, log_sum)?;
        Ok(true)
    }

    /// Gradients of attention. Returns whether the kernels support them.
    pub fn flash_backward(&self, spec: &Spec, form: Form, saved: &Saved, [dq, dk, dv]: [View; 3]) -> Result<bool> {
        let stores = [dq, dk, dv].iter().all(|&to| stores_well(to));
        let loads = loads_well(saved.dout, saved.dout_strides) && loads_well(saved.out, saved.out_strides);
        let Some(d) = head(self, spec, &form).filter(|_| stores && loads) else { return Ok(false) };
        let (to_q, to_k, to_v) = (dq.ptr() as u64, dk.ptr() as u64, dv.ptr() as u64);
        let ([q0, q1, q2, _], [k0, k1, k2, _], [v0, v1, v2, _]) = (strides(dq), strides(dk), strides(dv));
        let (spec, saved) = (*spec, *saved);
        // Two values per query.
        let scratch = self.scratch(spec.batch * spec.heads * spec.l * 8)?;
        let rows = scratch.ptr;
        let (queries, shape) = self.flash_kernel(Part::Queries, form, &spec, d)?;
        let grid = shape.grid(spec.l, spec.batch * spec.heads, 4 * spec.s * spec.d)?;
        launch!(self, queries, grid; spec, saved, rows, to_q, q0, q1, q2)?;
        let (keys, shape) = self.flash_kernel(Part::Keys, form, &spec, d)?;
        let shared_by_keys = 4 * spec.l * spec.d * (spec.heads / spec.kv_heads);
        let grid = shape.grid(spec.s, spec.batch * spec.kv_heads, shared_by_keys)?;
        launch!(self, keys, grid; spec, saved, rows, to_k, to_v, k0, k1, k2, v0, v1, v2)?;
        Ok(true)
    }
}
