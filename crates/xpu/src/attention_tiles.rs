//! Attention on a CPU: a kernel takes a few queries through all keys that they see (`kernels/attention_tiles.cl`).

use crate::attention::{Part, Problem, plain};
use crate::device::{Temporary, Xpu};
use crate::driver::Arg;
use crate::matmul::Matrix;
use crate::program::{Argument, At, Family, Key, Number, run};
use rushlight_core::{DType, Result, View};

/// Maximum elements of a head.
pub const MAX_HEAD: usize = 128;

/// Keys of a block, as in `attention_tiles.cl`.
const BLOCK: usize = 48;

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
    keys: [i64; 3],
    values: [i64; 3],
    d: u64,
    dv: u64,
}

/// The same as `Target` in `attention_tiles.cl`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Target {
    strides: [i64; 4],
    size: u64,
}

plain!(Tensors, Target);

impl Problem<'_> {
    /// Whether the kernels of this file take it.
    pub fn takes_tiles(&self, xpu: &Xpu) -> bool {
        let work = [self.heads, self.l, self.s, self.d].iter().fold(self.batch, |work, &n| work.saturating_mul(n));
        xpu.driver.abilities().is_cpu && self.d.max(self.dv) <= MAX_HEAD && self.l >= FEWEST && work >= LARGE
    }

    /// A copy of keys or values where the kernels cannot read them: they take the arithmetic dtype, and elements of a
    /// key in a line.
    fn copy_for_tiles(&self, xpu: &Xpu, view: View) -> Result<Option<Temporary>> {
        if view.dtype() == self.wide && view.strides()[3] == 1 {
            return Ok(None);
        }
        let copy = xpu.temporary(view.shape(), self.wide)?;
        xpu.copy(view, copy.view())?;
        Ok(Some(copy))
    }

    /// Elements that the kernels have room for: forms with less room for small heads use caches better.
    pub fn room(&self) -> usize {
        if self.d.max(self.dv) <= MAX_HEAD / 2 { MAX_HEAD / 2 } else { MAX_HEAD }
    }

    /// Queries of a tile, as in `attention_tiles.cl`.
    fn tile(&self) -> usize {
        3 * self.shape.lanes
    }

    /// Elements of a row of sums.
    fn width(&self) -> usize {
        let columns = 2 * self.shape.lanes;
        self.d.next_multiple_of(columns) + self.dv.next_multiple_of(columns)
    }
}

impl Xpu {
    pub fn attention_tiles(&self, p: &Problem, out: View, lse: View) -> Result<()> {
        let kernel = p.kernel(self, Family::AttentionTiles, "attention_tiles", "TILES_FORWARD")?;
        let (keys, values) = (p.copy_for_tiles(self, p.spec.k)?, p.copy_for_tiles(self, p.spec.v)?);
        let keys = keys.as_ref().map_or(p.spec.k, Temporary::view);
        let values = values.as_ref().map_or(p.spec.v, Temporary::view);
        for part in p.parts(usize::MAX) {
            let (q, to) = (p.of_queries(p.spec.q, &part), p.of_queries(out, &part));
            let (k, v) = (p.of_keys(keys, &part), p.of_keys(values, &part));
            let [keys, values] = [k, v].map(|rows| [rows.strides[0], rows.strides[1], rows.strides[2]]);
            let (d, dv) = (p.d as u64, p.dv as u64);
            let tensors = Tensors { q: q.strides, out: to.strides, keys, values, d, dv, ..Tensors::default() };
            let (statistics, image, head) = p.statistics(lse, &part);
            let number = |value| -> Number { p.shape.kind.number(value) };
            run!(self, kernel, [part.rows.div_ceil(p.tile()), part.images * part.heads, 1], [1, 1, 1];
                p.block(&part), tensors, At(q.address), At(k.address), At(v.address), At(p.mask(&part)),
                At(statistics), image, head, At(to.address), number(p.kept_factor()), number(p.spec.scale))?;
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
        // A part has work for all cores a few times over; its sums are in memory of our own.
        let items = 8 * self.driver.abilities().compute_units.max(1);
        let parts = p.parts(p.l.saturating_mul(p.s).saturating_mul(items));
        let sums = self.wide_sums(p, &parts, dk, dv)?;
        let (dk_sum, dv_sum) = sums.as_ref().map_or((dk, dv), |(dk, dv)| (dk.view(), dv.view()));
        let (keys, values) = (p.copy_for_tiles(self, p.spec.k)?, p.copy_for_tiles(self, p.spec.v)?);
        let keys = keys.as_ref().map_or(p.spec.k, Temporary::view);
        let values = values.as_ref().map_or(p.spec.v, Temporary::view);
        for part in &parts {
            let heads = part.images * part.heads;
            let shares = (items / 2).div_ceil(heads).clamp(1, part.rows.div_ceil(p.tile()));
            let padded = p.s.next_multiple_of(BLOCK);
            let own = self.scratch(heads * shares * padded * p.width() * p.wide.size())?;
            let [q, result, gradient, to] = [p.spec.q, out, dout, dq].map(|view| p.of_queries(view, part));
            let (k, v) = (p.of_keys(keys, part), p.of_keys(values, part));
            let [keys, values] = [k, v].map(|rows| [rows.strides[0], rows.strides[1], rows.strides[2]]);
            let tensors = Tensors {
                q: q.strides,
                out: result.strides,
                dout: gradient.strides,
                dq: to.strides,
                keys,
                values,
                d: p.d as u64,
                dv: p.dv as u64,
            };
            let (statistics, image, head) = p.statistics(lse, part);
            let number = |value| -> Number { p.shape.kind.number(value) };
            run!(self, kernel, [shares, heads, 1], [1, 1, 1];
                p.block(part), tensors, At(q.address), At(k.address), At(v.address), At(p.mask(part)), At(statistics),
                image, head, At(result.address), At(gradient.address), At(to.address), At(own.address), padded,
                number(p.kept_factor()), number(p.spec.scale))?;
            let (dk, dv) = (p.of_keys(dk_sum, part), p.of_keys(dv_sum, part));
            self.attention_keys(p, part, [padded, shares], own.address, dk, dv)?;
        }
        if sums.is_some() {
            self.copy(dk_sum, dk)?;
            self.copy(dv_sum, dv)?;
        }
        Ok(())
    }

    /// The gradients of a part's keys and values from the sums of all shares, each of `padded` keys.
    fn attention_keys(
        &self,
        p: &Problem,
        part: &Part,
        [padded, shares]: [usize; 2],
        sums: u64,
        dk: Matrix,
        dv: Matrix,
    ) -> Result<()> {
        let key = Key::new(Family::AttentionTiles, "attention_keys", [p.shape.kind as u16, dk.dtype as u16]);
        let kernel = self.kernel(key, || {
            let defines = p.shape.defines().define("TILES_KEYS", 1).define("MASK", 0).define("DROPOUT", 0);
            let defines = defines.define("HEAD", MAX_HEAD).vector("T", dk.dtype).vector("O", dk.dtype);
            defines.dtype("M", DType::Bool)
        })?;
        let (keys, values) =
            (Target { strides: dk.strides, size: p.d as u64 }, Target { strides: dv.strides, size: p.dv as u64 });
        let adds = (part.member > 0) as u32;
        run!(self, kernel, [p.s.div_ceil(BLOCK), part.images * part.heads, 2], [1, 1, 1];
            part.heads, p.s, padded, shares, At(sums), keys, At(dk.address), values, At(dv.address), adds)
    }
}
