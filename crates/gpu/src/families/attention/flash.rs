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

/// Keys or queries per step, for heads of up to 128 features and for larger ones.
const STEPS: [usize; 2] = [64, 32];
/// Largest head whose rows a warp keeps in registers, with the gradients of keys and of values.
const SMALL: usize = 128;
/// Queries or keys per warp.
const WARP_ROWS: usize = 16;

/// A kernel's shape: head size, warps per block, target number of blocks per multiprocessor, and whether four warps
/// issue one product together.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    part: Part,
    d: usize,
    warps: usize,
    blocks: usize,
    group: bool,
    /// Of the kernel over keys: the gradients of values (1), of keys (2), or both.
    grads: u16,
}

impl Shape {
    /// The shape for a number of rows. Many warps hide latency, up to the limit of registers and of a block's shared
    /// memory, `most`; blocks of many rows read the other operand less often.
    pub fn new(part: Part, rows: usize, d: usize, capability: (i32, i32), most: usize) -> Self {
        if d > SMALL {
            let grads = if part == Part::Keys { 1 } else { 3 };
            let shape = Shape { part, d, warps: 4, blocks: 1, group: false, grads };
            let large = Shape { warps: 8, ..shape };
            return match part {
                Part::Forward if 2 * (shape.shared() + 1024) <= most => Shape { blocks: 2, ..shape },
                Part::Queries | Part::Keys if rows > shape.rows() && large.shared() <= most => large,
                _ => shape,
            };
        }
        // On this architecture `flash_hopper` handles larger heads, except with few rows, for which a warp group is too
        // large.
        let group = capability == (9, 0) && d == 64;
        let (warps, blocks) = match (group, part, d) {
            (true, Part::Forward, _) if rows > STEPS[0] => (8, 2),
            (true, Part::Keys, _) => (4, 2),
            (true, ..) => (4, 3),
            (false, Part::Forward, ..=64) => (4, 4),
            (false, Part::Queries, ..=64) => (4, 3),
            (false, Part::Keys, ..=64) | (false, Part::Forward, _) => (4, 2),
            (false, ..) => (4, 1),
        };
        Shape { part, d, warps, blocks, group, grads: 3 }
    }

    /// The kernels of a part: one, or one per gradient.
    pub fn all(self) -> impl Iterator<Item = Shape> {
        let second = (self.grads == 1).then_some(Shape { grads: 2, ..self });
        [self].into_iter().chain(second)
    }

    fn step(self) -> usize {
        STEPS[(self.d > SMALL) as usize]
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
            (false, Part::Queries | Part::Keys) if self.d > SMALL => (2 * self.rows(), 2),
            (false, _) => (self.rows(), 2),
        };
        let (row, gap) = if self.group { (self.d, 1024) } else { (self.d + 8, 0) };
        let steps = stages * self.step();
        (own + 2 * steps) * row * 2 + self.rows().max(steps) * 8 + gap
    }

    /// Launch configuration for a number of rows and heads, given the bytes that the blocks of a head share. Within a
    /// set of heads the longest blocks start first.
    fn grid(self, rows: usize, heads: usize, common: usize) -> Result<Grid> {
        let sets = self.part.sets(heads, common);
        let grid = Grid::plane(heads.div_ceil(sets), rows.div_ceil(self.rows()), self.warps * 32)?;
        let grid = Grid { blocks: [grid.blocks[0], grid.blocks[1], sets as u32], ..grid.shared(self.shared()) };
        Ok(if rows > STEPS[0] { grid.spread() } else { grid })
    }

    pub fn defines(self, form: Form) -> Defines {
        self.part
            .defines(self.d, form)
            .define("STEP", self.step())
            .define("GRADS", self.grads)
            .define("WARPS", self.warps)
            .define("BLOCKS", self.blocks)
            .define("WARPGROUP", self.group as u8)
    }
}

/// Head sizes that kernels are compiled for.
const HEADS: [usize; 7] = [32, 64, 96, 128, 160, 192, 256];

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
    let fits_memory = |&d: &usize| {
        Part::ALL.iter().all(|&part| Shape::new(part, 1, d, (8, 0), gpu.shared_memory).shared() <= gpu.shared_memory)
    };
    HEADS.into_iter().find(|&d| spec.d <= d && spec.d > 0).filter(|_| fits).filter(|d| *d <= SMALL || fits_memory(d))
}

impl Gpu {
    fn flash_shape(&self, part: Part, spec: &Spec, d: usize) -> Shape {
        let rows = if part == Part::Keys { spec.s } else { spec.l };
        Shape::new(part, rows, d, capability(self).unwrap_or((8, 0)), self.shared_memory)
    }

    fn flash_kernel(&self, shape: Shape, form: Form) -> Result<Function> {
        let Form { dtype, causal, mask, dropout, .. } = form;
        let (d, warps, blocks) = (shape.d as u16, shape.warps as u16, shape.blocks as u16);
        let tags = [dtype as u16, d, causal as u16, mask, dropout as u16, warps, blocks, shape.grads];
        let key = Key::new(Family::Flash, shape.part.entry(), tags);
        let function = self.function(key, || shape.defines(form))?;
        self.allow_shared(function, shape.shared())?;
        Ok(function)
    }

    /// Attention on tensor cores. Returns whether the kernels support it.
    pub fn flash(&self, spec: &Spec, form: Form, out: View, lse: View) -> Result<bool> {
        let Some(d) = head(self, spec, &form).filter(|_| stores_well(out)) else { return Ok(false) };
        let (to, [o0, o1, o2, _]) = (out.ptr() as u64, strides(out));
        let shape = self.flash_shape(Part::Forward, spec, d);
        let function = self.flash_kernel(shape, form)?;
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
        let shape = self.flash_shape(Part::Queries, &spec, d);
        let queries = self.flash_kernel(shape, form)?;
        let grid = shape.grid(spec.l, spec.batch * spec.heads, 4 * spec.s * spec.d)?;
        launch!(self, queries, grid; spec, saved, rows, to_q, q0, q1, q2)?;
        let shape = self.flash_shape(Part::Keys, &spec, d);
        let shared_by_keys = 4 * spec.l * spec.d * (spec.heads / spec.kv_heads);
        let grid = shape.grid(spec.s, spec.batch * spec.kv_heads, shared_by_keys)?;
        for shape in shape.all() {
            let keys = self.flash_kernel(shape, form)?;
            launch!(self, keys, grid; spec, saved, rows, to_k, to_v, k0, k1, k2, v0, v1, v2)?;
        }
        Ok(true)
    }
}
