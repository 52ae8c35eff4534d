//! Lists of tensors: optimizer steps, norms and scaling of all gradients in few launches (`kernels/foreach.cu`).

use crate::device::Gpu;
use crate::families::softmax::float;
use crate::launch::kernel::{Defines, Family, Grid, Key, launch, wide_type};
use crate::launch::nest::{loops, merged};
use rushlight_core::backend::{ParamUpdate, UPDATE_NUMBERS, UpdateRule};
use rushlight_core::{DType, Error, Operand, Result, View};

const THREADS: usize = 256;
/// Elements per block.
const PIECE: usize = 16_384;
/// The same for copies of few tensors, whose blocks soon find their entry.
const SMALL_PIECE: usize = 4096;
const FEW: usize = 8;
/// Maximum entries of a table: as many as fit kernel arguments.
const UPDATES: usize = 24;
const TENSORS: usize = 128;
const COPIES: usize = 80;

/// Matches `Entry` in `foreach.cu`, for updates.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct UpdateEntry {
    param: u64,
    grad: u64,
    state: [u64; 3],
    count: usize,
    first: usize,
    live: u64,
    factors: Factors,
}

/// [`ParamUpdate::numbers`]; matches `Factors` in `foreach.cu`.
type Factors = [f64; UPDATE_NUMBERS];

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct TensorEntry {
    x: u64,
    count: usize,
    first: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CopyEntry {
    from: u64,
    to: u64,
    count: usize,
    first: usize,
    row: usize,
    apart: usize,
}

/// Matches `Table` in `foreach.cu`.
#[repr(C)]
struct Table<E, const N: usize> {
    entries: u32,
    piece: u32,
    list: [E; N],
}

const _: () = assert!(size_of::<Table<UpdateEntry, UPDATES>>() <= 4000);
const _: () = assert!(size_of::<Table<TensorEntry, TENSORS>>() <= 4000);
const _: () = assert!(size_of::<Table<CopyEntry, COPIES>>() <= 4000);

/// A tensor's entry in a table.
trait Entry: Copy + Default {
    /// Number of elements.
    fn count(&self) -> usize;
    /// Sets the index of its first block.
    fn starts_at(&mut self, block: usize);
}

macro_rules! entries {
    ($($type:ty),*) => {$(
        impl Entry for $type {
            fn count(&self) -> usize {
                self.count
            }

            fn starts_at(&mut self, block: usize) {
                self.first = block;
            }
        }
    )*};
}
entries!(UpdateEntry, TensorEntry, CopyEntry);

impl<E: Entry, const N: usize> Table<E, N> {
    /// Fills a table with as many entries as fit, numbers their blocks, and returns the number of blocks.
    fn new(list: &[E]) -> (Self, usize) {
        Self::of_pieces(list, PIECE)
    }

    fn of_pieces(list: &[E], piece: usize) -> (Self, usize) {
        let mut table = Self { entries: list.len() as u32, piece: piece as u32, list: [E::default(); N] };
        let mut blocks = 0;
        for (to, from) in table.list.iter_mut().zip(list) {
            *to = *from;
            to.starts_at(blocks);
            blocks += from.count().div_ceil(piece);
        }
        (table, blocks)
    }
}

/// A rule's row as definitions for `foreach.cu`: states as arguments, factors as locals, and the formula.
fn rule_defines(defines: Defines, rule: UpdateRule) -> Defines {
    let states = rule.states();
    let arguments = (0..3).map(|i| format!("W& {}", states.get(i).map_or(["s0", "s1", "s2"][i], |s| s.name)));
    let conditions = states.iter().enumerate().filter_map(|(i, s)| s.present.map(|name| (i, name)));
    let defines = conditions.fold(defines, |defines, (i, name)| defines.define(name, format!("(STATES >> {i} & 1)")));
    let factors = rule
        .factor_names()
        .iter()
        .enumerate()
        .map(|(i, name)| format!("[[maybe_unused]] const W {name} = (W)e.f[{i}]; "));
    defines
        .define("RULE_STATES", arguments.collect::<Vec<_>>().join(", "))
        .define("RULE_FACTORS", factors.collect::<String>())
        .define("RULE", rule.text().replace('\n', " "))
}

/// A factor's address and dtype, or its value.
fn factor(operand: Operand) -> (u64, DType, f64) {
    match operand {
        Operand::Tensor(view) => (view.ptr() as u64, view.dtype(), 1.0),
        Operand::Scalar(value) => (0, DType::F32, value.to_f64()),
    }
}

impl Gpu {
    /// An optimizer's step, skipped if `found_inf`, one `f32`, is not zero. In a recorded step `live` has for each
    /// parameter the address of its `Factors`, which each replay updates.
    pub fn update_parameters(
        &self,
        updates: &[ParamUpdate],
        live: &[u64],
        grad_scale: Operand,
        found_inf: Option<View>,
    ) -> Result<()> {
        if live.len() != updates.len() && (self.lane().recording || !live.is_empty()) {
            return Err(Error::unsupported(
                "update: this optimizer's numbers change from step to step in a way that a captured step cannot follow; step it outside \
                 the captured step, or run without capture",
            ));
        }
        // Entries of one launch share the kernel: the rule, its states, the dtype and the vector width
        // once.
        let mut groups: Vec<([u16; 4], Vec<UpdateEntry>)> = Vec::new();
        for (i, update) in updates.iter().enumerate() {
            float("update", update.param.dtype())?;
            let states = update.present();
            if !update.rule.fits(states) {
                return Err(update.misfit());
            }
            let views = [Some(update.param), Some(update.grad), update.state[0], update.state[1], update.state[2]];
            let alike = |v: &View| {
                v.dtype() == update.param.dtype() && v.numel() == update.param.numel() && v.layout().is_contiguous()
            };
            if !views.iter().flatten().all(alike) {
                return Err(Error::value(format!(
                    "update: gradient and states of a parameter of shape {:?} must be contiguous, of its dtype and size",
                    update.param.shape()
                )));
            }
            if update.param.numel() == 0 {
                continue;
            }
            let aligned = views.iter().flatten().all(|v| (v.ptr() as usize).is_multiple_of(16));
            let lanes = if aligned { 16 / update.param.dtype().size() } else { 1 };
            let tags = [update.rule.index(), u16::from(states), update.param.dtype() as u16, lanes as u16];
            let entry = UpdateEntry {
                param: update.param.ptr() as u64,
                grad: update.grad.ptr() as u64,
                state: update.state.map(|s| s.map_or(0, |v| v.ptr() as u64)),
                count: update.param.numel(),
                first: 0,
                live: live.get(i).copied().unwrap_or(0),
                factors: update.numbers(),
            };
            match groups.iter_mut().find(|g| g.0 == tags) {
                Some(group) => group.1.push(entry),
                None => groups.push((tags, vec![entry])),
            }
        }
        let (scale, scale_dtype, number) = factor(grad_scale);
        let found = found_inf.map_or(0, |v| v.ptr() as u64);
        for (tags, entries) in groups {
            let [rule, states, dtype, lanes] = tags;
            let dtype = DType::COMPUTED[dtype as usize];
            let key = Key::new(Family::Foreach, "update", [rule, states, dtype as u16, lanes, scale_dtype as u16]);
            let function = self.function(key, || update_defines(rule, states, dtype, lanes, scale_dtype))?;
            for part in entries.chunks(UPDATES) {
                let (table, blocks) = Table::<_, UPDATES>::new(part);
                launch!(self, function, Grid::line(blocks, THREADS)?; table, scale, number, found)?;
            }
        }
        Ok(())
    }

    pub fn foreach_norm(&self, p: f64, xs: &[View], out: View) -> Result<()> {
        let code: u16 = match p {
            0.0 => 8,
            1.0 => 9,
            2.0 => 10,
            p if p == f64::INFINITY => 11,
            p if p == f64::NEG_INFINITY => 12,
            _ => 13,
        };
        let mut packed = Vec::new();
        for x in xs.iter().filter(|x| !x.layout().is_contiguous()) {
            packed.push(self.packed(*x)?);
        }
        let mut own = packed.iter();
        let mut all: Vec<View> = Vec::with_capacity(xs.len());
        for x in xs {
            float("foreach_norm", x.dtype())?;
            all.extend(if x.layout().is_contiguous() { Some(*x) } else { own.next().map(|t| t.view()) });
        }
        let pieces: usize = all.iter().map(|x| x.numel().div_ceil(PIECE)).sum();
        let scratch = self.scratch(pieces.max(1) * 8)?;
        let mut at = scratch.ptr;
        self.each_table(&all, |gpu, dtype, table, blocks| {
            let key = Key::new(Family::Foreach, "foreach_norm", [code, dtype as u16]);
            let function = gpu.function(key, || norm_defines(code, dtype))?;
            let partial = at;
            at += (blocks * 8) as u64;
            launch!(gpu, function, Grid::line(blocks, THREADS)?; table, p, partial)
        })?;
        let key = Key::new(Family::Foreach, "foreach_norm_finish", [code, out.dtype() as u16]);
        let function = self.function(key, || finish_defines(code, out.dtype()))?;
        let (partial, to) = (scratch.ptr, out.ptr() as u64);
        launch!(self, function, Grid::line(1, THREADS)?; partial, pieces, p, to)
    }

    pub fn foreach_scale(&self, by: Option<Operand>, xs: &[View], found_inf: Option<View>) -> Result<()> {
        for x in xs {
            float("foreach_scale", x.dtype())?;
            if !x.layout().is_contiguous() {
                return Err(Error::value("foreach_scale: tensors must be contiguous"));
            }
        }
        let (scale, scale_dtype, number) = by.map_or((0, DType::F32, 1.0), factor);
        let found = found_inf.map_or(0, |v| v.ptr() as u64);
        let writes = by.is_some();
        self.each_table(xs, |gpu, dtype, table, blocks| {
            let key = Key::new(Family::Foreach, "foreach_scale", [dtype as u16, scale_dtype as u16, writes as u16]);
            let function = gpu.function(key, || scale_defines(dtype, scale_dtype, writes))?;
            launch!(gpu, function, Grid::line(blocks, THREADS)?; table, scale, number, found)
        })
    }

    pub fn foreach_copy(&self, from: &[View], to: &[View]) -> Result<()> {
        let mut groups: Vec<((DType, DType), Vec<CopyEntry>)> = Vec::new();
        for (from, to) in from.iter().zip(to).filter(|(from, _)| from.numel() > 0) {
            let count = from.numel();
            let rows = rows_of(*to).filter(|_| from.layout().is_contiguous() && to.numel() == count);
            let Some((row, apart)) = rows else {
                return Err(Error::value("foreach_copy: tensors must be contiguous and of the same sizes"));
            };
            let entry = CopyEntry { from: from.ptr() as u64, to: to.ptr() as u64, count, first: 0, row, apart };
            match groups.iter_mut().find(|g| g.0 == (from.dtype(), to.dtype())) {
                Some(group) => group.1.push(entry),
                None => groups.push(((from.dtype(), to.dtype()), vec![entry])),
            }
        }
        for ((from, to), entries) in groups {
            let key = Key::new(Family::Foreach, "foreach_copy", [from as u16, to as u16]);
            let function = self.function(key, || copy_defines(from, to))?;
            for part in entries.chunks(COPIES) {
                let piece = if part.len() <= FEW { SMALL_PIECE } else { PIECE };
                let (table, blocks) = Table::<_, COPIES>::of_pieces(part, piece);
                launch!(self, function, Grid::line(blocks, THREADS)?; table)?;
            }
        }
        Ok(())
    }

    /// Calls `run` with tables of all tensors, grouped by dtype.
    fn each_table(
        &self,
        xs: &[View],
        mut run: impl FnMut(&Gpu, DType, Table<TensorEntry, TENSORS>, usize) -> Result<()>,
    ) -> Result<()> {
        for dtype in DType::COMPUTED.into_iter().filter(|d| d.is_float()) {
            let entries: Vec<TensorEntry> = xs
                .iter()
                .filter(|x| x.dtype() == dtype && x.numel() > 0)
                .map(|x| TensorEntry { x: x.ptr() as u64, count: x.numel(), first: 0 })
                .collect();
            for part in entries.chunks(TENSORS) {
                let (table, blocks) = Table::new(part);
                run(self, dtype, table, blocks)?;
            }
        }
        Ok(())
    }
}

/// The elements of a row and the distance of rows of a tensor that is contiguous but for one stride; a contiguous
/// tensor is one row.
fn rows_of(to: View) -> Option<(usize, usize)> {
    match &merged(&loops(to.shape(), [to.strides()]))[..] {
        [(_, [1])] | [(1, _)] => Some((to.numel(), to.numel())),
        [(_, [apart]), (row, [1])] => Some((*row, *apart)),
        [(_, [apart])] => Some((1, *apart)),
        _ => None,
    }
}

fn base(entry: &str, dtype: DType) -> Defines {
    Defines::default().define(entry, 1).define("WIDE", 1).dtype("T", dtype).define("W", wide_type(dtype))
}

pub fn update_defines(rule: u16, states: u16, dtype: DType, lanes: u16, scale: DType) -> Defines {
    let defines = base("UPDATE", dtype).define("STATES", states).define("LANES", lanes).dtype("G", scale);
    rule_defines(defines, UpdateRule::of_index(rule))
}

pub fn norm_defines(code: u16, dtype: DType) -> Defines {
    base("NORM", dtype).define("OP_CODE", code)
}

pub fn finish_defines(code: u16, out: DType) -> Defines {
    Defines::default().define("NORM_FINISH", 1).define("WIDE", 1).define("OP_CODE", code).dtype("OUT", out)
}

pub fn scale_defines(dtype: DType, scale: DType, writes: bool) -> Defines {
    base("SCALE", dtype).dtype("G", scale).define("WRITES", writes as u8)
}

pub fn copy_defines(from: DType, to: DType) -> Defines {
    base("COPY", from).dtype("OUT", to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_number_their_blocks() {
        let counts = [1, PIECE, PIECE + 1, 5 * PIECE];
        let list = counts.map(|count| TensorEntry { x: count as u64, count, first: 99 });
        let (table, blocks) = Table::<_, 6>::new(&list);
        assert_eq!(table.list.map(|e| e.first), [0, 1, 2, 4, 0, 0]);
        assert_eq!(table.list.map(|e| e.x as usize), [1, PIECE, PIECE + 1, 5 * PIECE, 0, 0]);
        assert_eq!((table.entries, blocks), (4, 9));
        let (_, none) = Table::<CopyEntry, 3>::new(&[]);
        assert_eq!(none, 0);
    }
}
