//! Attention on a CPU: a kernel takes a few queries through all keys (`kernels/attention_tiles.cl`). Keys and values
//! are packed into panels first.

use crate::attention::{Part, Problem, plain};
use crate::device::{Scratch, Xpu};
use crate::driver::Arg;
use crate::matmul::Matrix;
use crate::program::{Argument, At, Family, Key, Number, run};
use crate::rows::Shape;
use rushlight_core::{DType, Result, View};

/// Queries of a tile.
pub const ROWS: usize = 12;

/// Most elements of a head.
pub const MOST: usize = 128;

/// Most tiles of a work item.
pub const EACH: usize = 4;

/// Scores of a part of the backward pass: they stay in caches. Of causal attention only half of them are computed.
const MOST_SCORES: usize = 1 << 20;

/// Queries from which on a tile is worth its empty rows.
const FEWEST: usize = 4;

/// Multiplications from which on the kernels are worth their compilation, which takes a CPU's driver about a second.
const LARGE: usize = 1 << 20;

/// The same as `Tensors` in `attention_tiles.cl`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Tensors {
    q: [i64; 4],
    out: [i64; 4],
    dout: [i64; 4],
    dq: [i64; 4],
    d: u64,
    dv: u64,
    /// Elements between batches of panels: of keys transposed, of values, of keys.
    keys: u64,
    values: u64,
    rows_of_keys: u64,
    /// Tiles of a work item.
    each: u64,
}

/// The same as `Target` in `attention_tiles.cl`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Target {
    strides: [i64; 4],
    rows_batch: u64,
    size: u64,
}

plain!(Tensors, Target);

/// Weights, the rows they weigh, where the sums go, and their elements.
type Sum = (u64, Matrix, Matrix, usize);

/// Keys or values in panels, packed once for all parts of their heads.
#[derive(Default)]
struct Panels<'x> {
    of: Option<(usize, usize)>,
    packed: Option<(Scratch<'x>, u64)>,
}

impl<'x> Panels<'x> {
    /// Rows of `size` elements in panels, of keys side by side (`across`) or of elements side by side.
    fn pack(
        &mut self,
        xpu: &'x Xpu,
        p: &Problem,
        part: &Part,
        rows: Matrix,
        size: usize,
        across: bool,
    ) -> Result<(At, u64)> {
        if self.of != Some((part.image, part.head)) {
            let columns = 2 * p.shape.lanes;
            let packed = if across {
                xpu.panels(rows, p.shape.kind, columns, [part.images, part.heads, p.s, size])?
            } else {
                xpu.panels(rows.transposed(), p.shape.kind, columns, [part.images, part.heads, size, p.s])?
            };
            (self.of, self.packed) = (Some((part.image, part.head)), Some(packed));
        }
        Ok(self.packed.as_ref().map_or((At(rows.address), 0), |(scratch, batch)| (At(scratch.address), *batch)))
    }
}

impl Problem<'_> {
    /// Whether the kernels of this file take it.
    pub fn takes_tiles(&self, xpu: &Xpu) -> bool {
        let work = [self.heads, self.l, self.s, self.d].iter().fold(self.batch, |work, &n| work.saturating_mul(n));
        xpu.driver.abilities().is_cpu && self.d.max(self.dv) <= MOST && self.l >= FEWEST && work >= LARGE
    }
}

impl Xpu {
    pub fn attention_tiles(&self, p: &Problem, out: View, lse: View) -> Result<()> {
        let kernel = p.kernel(self, Family::AttentionTiles, "attention_tiles", "TILES_FORWARD")?;
        let (mut keys, mut values) = (Panels::default(), Panels::default());
        for part in p.parts(usize::MAX) {
            // Several tiles for an item share its keys, but all cores have some items.
            let tiles = part.rows.div_ceil(ROWS);
            let cores = self.driver.abilities().compute_units.max(1);
            let each = (tiles * part.images * part.heads / (8 * cores)).clamp(1, EACH);
            let (q, to) = (p.of_queries(p.spec.q, &part), p.of_queries(out, &part));
            let (k, keys_batch) = keys.pack(self, p, &part, p.of_keys(p.spec.k, &part), p.d, true)?;
            let (v, values_batch) = values.pack(self, p, &part, p.of_keys(p.spec.v, &part), p.dv, false)?;
            let tensors = Tensors {
                q: q.strides,
                out: to.strides,
                d: p.d as u64,
                dv: p.dv as u64,
                keys: keys_batch,
                values: values_batch,
                each: each as u64,
                ..Tensors::default()
            };
            let (statistics, image, head) = p.statistics(lse, &part);
            let number = |value| -> Number { p.shape.kind.number(value) };
            run!(self, kernel, [tiles.div_ceil(each), part.images * part.heads, 1], [1, 1, 1];
                p.block(&part), tensors, At(q.address), k, v, At(p.mask(&part)), At(statistics), image, head, At(to.address),
                number(p.kept_factor()), number(p.spec.scale))?;
        }
        Ok(())
    }

    pub fn attention_tiles_backward(
        &self,
        p: &Problem,
        out: View,
        lse: View,
        dout: View,
        [dq, dk, dv]: [View; 3],
    ) -> Result<()> {
        let kernel = p.kernel(self, Family::AttentionTiles, "attention_tiles_backward", "TILES_BACKWARD")?;
        let parts = p.parts(if p.spec.causal { 2 * MOST_SCORES } else { MOST_SCORES });
        let sums = self.wide_sums(p, &parts, dk, dv)?;
        let (dk_sum, dv_sum) = sums.as_ref().map_or((dk, dv), |(dk, dv)| (dk.view(), dv.view()));
        let (mut keys_across, mut keys_along, mut values) = (Panels::default(), Panels::default(), Panels::default());
        let columns = 2 * p.shape.lanes;
        for part in &parts {
            let bytes = part.images * part.heads * part.rows * p.s.next_multiple_of(columns) * p.wide.size();
            let (weights, slopes) = (self.scratch(bytes)?, self.scratch(bytes)?);
            let [q, result, gradient, to] = [p.spec.q, out, dout, dq].map(|view| p.of_queries(view, part));
            let k = p.of_keys(p.spec.k, part);
            let (across, keys_batch) = keys_across.pack(self, p, part, k, p.d, true)?;
            let (along, rows_of_keys) = keys_along.pack(self, p, part, k, p.d, false)?;
            let (v, values_batch) = values.pack(self, p, part, p.of_keys(p.spec.v, part), p.dv, true)?;
            let tensors = Tensors {
                q: q.strides,
                out: result.strides,
                dout: gradient.strides,
                dq: to.strides,
                d: p.d as u64,
                dv: p.dv as u64,
                keys: keys_batch,
                values: values_batch,
                rows_of_keys,
                each: 1,
            };
            let (statistics, image, head) = p.statistics(lse, part);
            let number = |value| -> Number { p.shape.kind.number(value) };
            run!(self, kernel, [part.rows.div_ceil(ROWS), part.images * part.heads, 1], [1, 1, 1];
                p.block(part), tensors, At(q.address), across, along, v, At(p.mask(part)), At(statistics), image, head,
                At(result.address), At(gradient.address), At(to.address), At(weights.address), At(slopes.address),
                number(p.kept_factor()), number(p.spec.scale))?;
            let values = (weights.address, gradient, p.of_keys(dv_sum, part), p.dv);
            self.attention_keys(p, part, values, (slopes.address, q, p.of_keys(dk_sum, part), p.d))?;
        }
        if sums.is_some() {
            self.copy(dk_sum, dk)?;
            self.copy(dv_sum, dv)?;
        }
        Ok(())
    }

    /// A part's share of the gradients of values and keys, for each of the two: the address of its weights, which
    /// transposed are multiplied with rows of the output's gradient or of queries, where the sums go, and their
    /// elements.
    fn attention_keys(&self, p: &Problem, part: &Part, values: Sum, keys: Sum) -> Result<()> {
        let Shape { kind, lanes, .. } = p.shape;
        let dtype = keys.2.dtype;
        let key = Key::new(Family::AttentionTiles, "attention_keys", [kind as u16, dtype as u16]);
        let kernel = self.kernel(key, || {
            let defines = p.shape.defines().define("TILES_KEYS", 1).define("MASK", 0).define("DROPOUT", 0);
            let defines = defines.define("ROWS", ROWS).define("MOST", MOST).define("EACH", EACH);
            defines.vector("T", dtype).vector("O", dtype).dtype("M", DType::Bool)
        })?;
        let panels = |(_, rows, to, size): Sum| -> Result<(Scratch<'_>, Target)> {
            let sizes = [part.images, part.heads, size, part.rows];
            let (panels, rows_batch) = self.panels(rows.transposed(), kind, 2 * lanes, sizes)?;
            Ok((panels, Target { strides: to.strides, rows_batch, size: size as u64 }))
        };
        let ((of_values, to_values), (of_keys, to_keys)) = (panels(values)?, panels(keys)?);
        let adds = (part.first > 0 || part.member > 0) as u32;
        run!(self, kernel, [p.s.div_ceil(2 * lanes), part.images * part.heads, 2], [1, 1, 1];
            p.block(part), to_values, At(values.0), At(of_values.address), At(values.2.address),
            to_keys, At(keys.0), At(of_keys.address), At(keys.2.address), adds)
    }
}
