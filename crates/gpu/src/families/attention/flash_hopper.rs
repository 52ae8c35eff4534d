//! Attention of half types on compute capability 9.0 (`kernels/flash_hopper.cu`, `hopper_tasks.cu`): the copy engine
//! (TMA) loads tiles, and blocks are persistent. Unsupported shapes fall back to `flash`.

use crate::device::Gpu;
use crate::families::attention::flash::{Part, loads_well, stores_well};
use crate::families::attention::task_order::Tasks;
use crate::families::attention::{Form, Saved, Spec, strides};
use crate::launch::kernel::{Defines, Family, Function, Grid, Key, launch};
use crate::vendor::driver::{Boxes, DevicePtr, MatrixUnits, TensorMap};
use rushlight_core::{DType, Result, View};

/// Queries or keys per warp group.
const GROUP_ROWS: usize = 64;
/// Columns per panel of a tile: 128 bytes.
const PANEL: usize = 64;
/// Maximum bytes of the other operand for the heads of a set, so that they stay in the cache.
const CACHED: usize = 32 << 20;
/// Minimum queries or keys, for heads of up to 64 and for larger ones; below it `flash` is faster.
const FEWEST: [usize; 2] = [256, 128];

/// A kernel's shape.
#[derive(Clone, Copy)]
pub struct Shape {
    part: Part,
    /// The head size it is compiled for.
    d: usize,
    /// Consumer warp groups, besides the producer.
    consumers: usize,
    /// Keys or queries per step.
    step: usize,
    /// Steps in flight in shared memory.
    stages: usize,
    /// Tasks in flight in shared memory.
    tasks: usize,
    /// Registers per thread of a consumer group and of the producer.
    registers: [usize; 2],
}

/// Matches `Order` in `hopper_tasks.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Order {
    tiles: u32,
    heads: u32,
    together: u32,
}

impl Shape {
    /// The shape for heads of up to `d` features and a number of rows.
    pub fn new(part: Part, d: usize, rows: usize, form: Form) -> Self {
        let plain = form.mask == 0 && !form.dropout;
        // Four groups need shorter steps, which costs 1/15; three fit many lengths badly.
        let padded = |groups: usize| rows.next_multiple_of(groups * GROUP_ROWS);
        let tasks = if d > 192 { 1 } else { 2 };
        let (consumers, step, stages, registers) = match (part, d) {
            (Part::Forward, ..=64) if plain && 14 * padded(3) > 15 * padded(4) => (4, 64, 4, [112, 32]),
            (Part::Forward, ..=64) => (3, if plain { 128 } else { 64 }, 3, [160, 32]),
            (Part::Forward, ..=128) => (2, if plain { 128 } else { 64 }, 2, [240, 24]),
            (Part::Forward, _) => (2, 64, 2, [240, 24]),
            (Part::Queries, _) => (2, 64, 3, [216, 72]),
            (Part::Keys, _) => (2, 64, 3, [240, 24]),
        };
        Shape { part, d, consumers, step, stages, tasks, registers }
    }

    fn rows(self) -> usize {
        self.consumers * GROUP_ROWS
    }

    fn threads(self) -> usize {
        (self.consumers + 1) * 128
    }

    fn tiles(self, rows: usize) -> usize {
        rows.div_ceil(self.rows())
    }

    /// Cost of a head's tile in steps: under a causal mask the first tiles are the longest. Prologue and epilogue count
    /// as two steps.
    fn cost(self, tile: usize, spec: &Spec, form: Form) -> u32 {
        let steps = match self.part {
            Part::Keys => {
                let skipped = if form.causal { tile * self.rows() / self.step } else { 0 };
                spec.l.div_ceil(self.step).saturating_sub(skipped) * (spec.heads / spec.kv_heads)
            }
            _ => {
                let end = (self.tiles(spec.l) - tile) * self.rows();
                let keys = if form.causal { spec.s.min(end) } else { spec.s };
                keys.div_ceil(self.step)
            }
        };
        (steps + 2) as u32
    }

    /// Bytes of shared memory from the first tile on: a slot for each tile of the tasks in flight, the steps' tiles,
    /// per-row data for gradients, two barriers per slot.
    fn shared(self) -> usize {
        let (tiles, steps, rows, more) = match self.part {
            Part::Forward => (1, 2 * self.stages, 0, 0),
            Part::Queries => (2, self.stages + 2, 2 * self.rows(), 2),
            Part::Keys => (2, 2 * self.stages, self.stages * self.step, 0),
        };
        let slots = self.tasks * tiles;
        let barriers = 2 * (slots + steps + more);
        (slots * self.rows() + steps * self.step) * self.d * 2 + (rows + barriers) * 8
    }

    pub fn entry(self) -> &'static str {
        ["flash_hopper_forward", "flash_hopper_queries", "flash_hopper_keys"][self.part as usize]
    }

    pub fn defines(self, form: Form) -> Defines {
        self.part
            .defines(self.d, form)
            .define("CONSUMERS", self.consumers)
            .define("STEP", self.step)
            .define("STAGES", self.stages)
            .define("TASKS", self.tasks)
            .define("REGISTERS", self.registers[0])
            .define("LEFT_REGISTERS", self.registers[1])
            .define("SHARED", self.shared())
    }
}

/// Four dimensions in the copy engine's order, columns first.
#[derive(Clone, Copy)]
struct Operand {
    at: DevicePtr,
    sizes: [usize; 4],
    strides: [u64; 4],
}

impl Operand {
    fn new(at: DevicePtr, [batch, heads, rows]: [usize; 3], d: usize, [sb, sh, sr, sc]: [u64; 4]) -> Self {
        Operand { at, sizes: [d, rows, heads, batch], strides: [sc, sr, sh, sb] }
    }

    /// Strides in bytes; the stride of a dimension of size one is irrelevant.
    fn bytes(&self) -> [u64; 3] {
        std::array::from_fn(|n| if self.sizes[n + 1] == 1 { 16 } else { self.strides[n + 1].saturating_mul(2) })
    }

    /// Whether the copy engine supports the operand: unit column stride, other strides multiples of 16 bytes below
    /// 2^40.
    fn suits(&self) -> bool {
        let strides =
            self.strides[0] == 1 && self.bytes().iter().all(|&s| s > 0 && s.is_multiple_of(16) && s < 1 << 40);
        self.at.is_multiple_of(16) && strides && self.sizes.iter().all(|&n| n > 0 && n <= u32::MAX as usize)
    }
}

/// The operands of queries, keys and values.
fn operands(s: &Spec) -> [Operand; 3] {
    [
        Operand::new(s.q, [s.batch, s.heads, s.l], s.d, s.q_strides),
        Operand::new(s.k, [s.batch, s.kv_heads, s.s], s.d, s.k_strides),
        Operand::new(s.v, [s.batch, s.kv_heads, s.s], s.d, s.v_strides),
    ]
}

impl Gpu {
    /// The head size to compile for; `None` if the kernels do not support this problem.
    fn hopper_head(&self, spec: &Spec, form: &Form) -> Option<usize> {
        let fits = self.matrix_units == MatrixUnits::TensorCores((9, 0))
            && self.driver.has_bulk_copies()
            && matches!(form.dtype, DType::F16 | DType::BF16)
            && spec.d == spec.dv
            && spec.d.is_multiple_of(8)
            && spec.l.max(spec.s) <= 1 << 20
            && spec.scale > 0.0
            && operands(spec).iter().all(Operand::suits);
        let rows = spec.l.min(spec.s);
        match spec.d {
            33..=64 if fits && rows >= FEWEST[0] => Some(64),
            65..=256 if fits && rows >= FEWEST[1] => Some(spec.d.next_multiple_of(64)),
            _ => None,
        }
    }

    /// The copy engine's descriptor for boxes of a panel's width and a number of rows.
    fn tensor_map(&self, operand: Operand, rows: usize, dtype: DType) -> Result<TensorMap> {
        let boxes = Boxes {
            at: operand.at,
            bf16: dtype == DType::BF16,
            sizes: operand.sizes.map(|n| n as u64),
            strides: operand.bytes(),
            boxes: [PANEL as u32, rows as u32, 1, 1],
        };
        // SAFETY: the operand is a view given to the engine, which is within its storage.
        unsafe { self.driver.tensor_map(&boxes) }
    }

    fn hopper_kernel(&self, shape: Shape, form: Form) -> Result<Function> {
        let (d, groups) = (shape.d as u16, shape.consumers as u16);
        let tags = [form.dtype as u16, d, form.causal as u16, form.mask, form.dropout as u16, groups];
        let function = self.function(Key::new(Family::FlashHopper, shape.entry(), tags), || shape.defines(form))?;
        // Tiles are aligned to 1024 bytes.
        self.allow_shared(function, shape.shared() + 1024)?;
        Ok(function)
    }

    /// The task order of a pass, and the launch: one block per multiprocessor, or per task if there are fewer.
    fn hopper_order(&self, shape: Shape, spec: &Spec, form: Form) -> Result<(Order, Grid)> {
        let (heads, rows, other) = match shape.part {
            Part::Keys => (spec.batch * spec.kv_heads, spec.s, spec.l * (spec.heads / spec.kv_heads)),
            _ => (spec.batch * spec.heads, spec.l, spec.s),
        };
        let costs: Vec<u32> = (0..shape.tiles(rows)).map(|tile| shape.cost(tile, spec, form)).collect();
        let tiles = costs.len();
        let blocks = (tiles * heads).min(self.properties.multiprocessors);
        let together = Tasks { costs, heads, blocks, cached: CACHED / (4 * other * spec.d) }.together();
        let order = Order { tiles: tiles as u32, heads: heads as u32, together: together as u32 };
        Ok((order, Grid::line(blocks, shape.threads())?.shared(shape.shared() + 1024).spread()))
    }

    /// Attention by these kernels. Returns whether they support it.
    pub fn hopper(&self, spec: &Spec, form: Form, out: View, lse: View) -> Result<bool> {
        let Some(d) = self.hopper_head(spec, &form).filter(|_| stores_well(out)) else { return Ok(false) };
        let shape = Shape::new(Part::Forward, d, spec.l, form);
        // `flash` has smaller blocks: it is used if these would not fill the device.
        if d == 64 && shape.tiles(spec.l) * spec.batch * spec.heads < self.properties.multiprocessors {
            return Ok(false);
        }
        let function = self.hopper_kernel(shape, form)?;
        let [q, k, v] = operands(spec);
        let q = self.tensor_map(q, shape.rows(), form.dtype)?;
        let [k, v] = [self.tensor_map(k, shape.step, form.dtype)?, self.tensor_map(v, shape.step, form.dtype)?];
        let (order, grid) = self.hopper_order(shape, spec, form)?;
        let (to, [o0, o1, o2, _], log_sum, spec) = (out.ptr() as u64, strides(out), lse.ptr() as u64, *spec);
        launch!(self, function, grid; spec, order, q, k, v, to, o0, o1, o2, log_sum)?;
        Ok(true)
    }

    /// Gradients of attention. Returns whether these kernels support them.
    pub fn hopper_backward(&self, spec: &Spec, form: Form, saved: &Saved, [dq, dk, dv]: [View; 3]) -> Result<bool> {
        let stores = [dq, dk, dv].iter().all(|&to| stores_well(to));
        let dout = Operand::new(saved.dout, [spec.batch, spec.heads, spec.l], spec.d, saved.dout_strides);
        let loads =
            dout.suits() && loads_well(saved.dout, saved.dout_strides) && loads_well(saved.out, saved.out_strides);
        // For smaller heads the gradients are faster with the many small blocks of `flash`.
        let suits = |d: &usize| *d == 128 && stores && loads;
        let Some(d) = self.hopper_head(spec, &form).filter(suits) else { return Ok(false) };
        let (to_q, to_k, to_v) = (dq.ptr() as u64, dk.ptr() as u64, dv.ptr() as u64);
        let ([q0, q1, q2, _], [k0, k1, k2, _], [v0, v1, v2, _]) = (strides(dq), strides(dk), strides(dv));
        let (spec, saved, [own_q, own_k, own_v]) = (*spec, *saved, operands(spec));
        let map = |operand, rows| self.tensor_map(operand, rows, form.dtype);
        let heads = spec.batch * spec.heads;

        let shape = Shape::new(Part::Queries, d, spec.l, form);
        let queries = self.hopper_kernel(shape, form)?;
        let padded = shape.tiles(spec.l) * shape.rows();
        let scratch = self.scratch(heads * padded * 8)?;
        let (rows, padded) = (scratch.ptr, padded as u64);
        let (q, k) = (map(own_q, shape.rows())?, map(own_k, shape.step)?);
        let (v, d_out) = (map(own_v, shape.step)?, map(dout, shape.rows())?);
        let (order, grid) = self.hopper_order(shape, &spec, form)?;
        launch!(self, queries, grid; spec, saved, order, q, k, v, d_out, rows, to_q, q0, q1, q2)?;

        let shape = Shape::new(Part::Keys, d, spec.s, form);
        let keys = self.hopper_kernel(shape, form)?;
        let (q, k) = (map(own_q, shape.step)?, map(own_k, shape.rows())?);
        let (v, d_out) = (map(own_v, shape.rows())?, map(dout, shape.step)?);
        let (order, grid) = self.hopper_order(shape, &spec, form)?;
        launch!(self, keys, grid; spec, order, q, k, v, d_out, rows, padded, to_k, to_v, k0, k1, k2, v0, v1, v2)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_engine_takes_whole_rows() {
        let suits = |at, strides| Operand::new(at, [2, 3, 300], 64, strides).suits();
        assert!(suits(256, [57_600, 64, 192, 1]));
        assert!(
            Operand::new(256, [1, 3, 300], 64, [7, 64, 192, 1]).suits(),
            "the stride of a dimension of size one does not matter"
        );
        // Strided columns; distant columns; heads expanded; rows and an address that are not multiples of 16 bytes.
        for strides in [[115_200, 128, 384, 2], [57_600, 19_200, 1, 300], [57_600, 0, 192, 1], [57_600, 64, 196, 1]] {
            assert!(!suits(256, strides), "{strides:?}");
        }
        assert!(!suits(264, [57_600, 64, 192, 1]));
        assert!(!suits(256, [1 << 40, 64, 192, 1]));
    }
}
